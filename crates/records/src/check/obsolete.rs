//! The check of the obsolete set, and of trees of written keys and replaced values, against all
//! versions of the records, which a scan visits in order.

use esker_lsm::{Cursor, Kind, Seq, Snapshot, Superseded, TreeCursor, TreeId};
use esker_model::record::RecordRef;

use crate::catalog::Layout;
use crate::coverage::{Complete, Coverage, Source};
use crate::error::Result;
use crate::index::Attribute;
use crate::maintenance;

const READAHEAD: usize = 256 << 10;

/// The obsolete set of a dataset, and how far it must be complete.
pub(super) struct Known {
    set: Option<Superseded>,
    /// For entries of stand-alone indexes.
    entries: Complete,
    /// For versions of records.
    versions: Complete,
}

impl Known {
    pub(super) fn new(layout: &Layout, set: Option<Superseded>) -> Known {
        let coverage = Coverage::new(&layout.stored.settings, set.as_ref());
        Known {
            set,
            entries: coverage.of(Source::IndexEntries),
            versions: coverage.of(Source::DataVersions),
        }
    }

    /// For an index under construction, which guarantees nothing.
    pub(super) fn nothing() -> Known {
        Known {
            set: None,
            entries: Complete::UpTo(0),
            versions: Complete::UpTo(0),
        }
    }

    fn has(&self, seq: Seq) -> bool {
        self.set.as_ref().is_some_and(|set| set.contains(seq))
    }

    /// True if the write `seq` of an obsolete index entry must be in the set and is not; `newest`
    /// is the newest entry of its key.
    pub(super) fn misses(&self, seq: Seq, newest: Option<Seq>) -> bool {
        let must = match newest {
            Some(newest) => self.entries.includes(newest),
            None => self.entries.is_always(),
        };
        must && !self.has(seq)
    }
}

/// Data derived from the records besides index entries, checked during a scan of the records.
pub(super) struct Derived<'a> {
    known: &'a Known,
    snapshot: &'a Snapshot,
    keys: Option<TreeCursor>,
    deleted: Vec<Deleted>,
    replaced: Vec<Replaced<'a>>,
    /// The number of the last visited version, and its values for each of `replaced`.
    newer: (Seq, Vec<Vec<Vec<u8>>>),
    wrong: Wrong,
}

/// The number of errors of each type.
#[derive(Default)]
struct Wrong {
    keys: u64,
    hidden: u64,
    unknown: u64,
    deleted: u64,
    replaced: u64,
}

/// The tree of keys written since an index began: deleted-key maintenance.
struct Deleted {
    tree: TreeId,
    /// The tree has all later writes.
    since: Seq,
}

/// The tree of values that writes replaced: range filters under eager maintenance.
struct Replaced<'a> {
    tree: TreeId,
    attribute: &'a Attribute,
    since: Seq,
}

impl<'a> Derived<'a> {
    pub(super) fn new(
        snapshot: &'a Snapshot,
        layout: &'a Layout,
        known: &'a Known,
    ) -> Result<Derived<'a>> {
        let mut keys = layout.keys.map(|tree| snapshot.cursor(tree, READAHEAD));
        if let Some(keys) = &mut keys {
            keys.seek_first()?;
        }
        let settings = &layout.stored.settings;
        let strategy = maintenance::of(settings.maintenance);
        let since = |attribute: &Attribute| attribute.since.max(settings.since);
        let deleted = layout.attributes.iter().filter_map(|attribute| {
            let tree = attribute.deleted?;
            let since = since(attribute);
            strategy
                .keeps_written_keys()
                .then_some(Deleted { tree, since })
        });
        let replaced = layout.attributes.iter().filter_map(|attribute| {
            let tree = attribute.widened?;
            let since = since(attribute);
            strategy.keeps_replaced_values().then_some(Replaced {
                tree,
                attribute,
                since,
            })
        });
        Ok(Derived {
            known,
            snapshot,
            keys,
            deleted: deleted.collect(),
            replaced: replaced.collect(),
            newer: (0, Vec::new()),
            wrong: Wrong::default(),
        })
    }

    /// Visits the newest entry of a key: a record or a tombstone.
    pub(super) fn newest(
        &mut self,
        key: &[u8],
        seq: Seq,
        record: Option<&RecordRef<'_>>,
    ) -> Result<()> {
        self.newer = (seq, self.values(record));
        if record.is_none() {
            return Ok(());
        }
        self.wrong.hidden += u64::from(self.known.has(seq));
        for deleted in self.deleted.iter().filter(|deleted| seq > deleted.since) {
            let entry = self
                .snapshot
                .get(deleted.tree, key, &self.snapshot.cost())?;
            self.wrong.deleted += u64::from(entry.is_none_or(|entry| entry.seq != seq));
        }
        let Some(keys) = &mut self.keys else {
            return Ok(());
        };
        while keys.valid() && keys.key() < key {
            self.wrong.keys += 1;
            keys.next()?;
        }
        if keys.valid() && keys.key() == key {
            self.wrong.keys += u64::from(keys.seq() != seq);
            keys.next()?;
        } else {
            self.wrong.keys += 1;
        }
        Ok(())
    }

    /// Visits an older version of the same key; newest first.
    pub(super) fn older(
        &mut self,
        seq: Seq,
        kind: Kind,
        record: Option<&RecordRef<'_>>,
    ) -> Result<()> {
        let (by, new) = std::mem::take(&mut self.newer);
        let old = self.values(record);
        if kind == Kind::Put {
            let must = self.known.versions.includes(by);
            self.wrong.unknown += u64::from(must && !self.known.has(seq));
        }
        for ((replaced, old), new) in self.replaced.iter().zip(&old).zip(&new) {
            for value in old.iter().filter(|value| !new.contains(value)) {
                if seq > replaced.since {
                    let entry = self
                        .snapshot
                        .get(replaced.tree, value, &self.snapshot.cost())?;
                    self.wrong.replaced += u64::from(entry.is_none());
                }
            }
        }
        self.newer = (seq, old);
        Ok(())
    }

    fn values(&self, record: Option<&RecordRef<'_>>) -> Vec<Vec<Vec<u8>>> {
        let of = |replaced: &Replaced<'_>| {
            let mut values = Vec::new();
            if let Some(record) = record {
                replaced.attribute.any_value(record, |value| {
                    values.push(value.to_vec());
                    false
                });
            }
            values
        };
        self.replaced.iter().map(of).collect()
    }

    /// The errors found, as texts.
    pub(super) fn finish(mut self) -> Result<impl Iterator<Item = String>> {
        while let Some(keys) = &mut self.keys
            && keys.valid()
        {
            self.wrong.keys += 1;
            keys.next()?;
        }
        let wrong = self.wrong;
        let counted = [
            (
                wrong.keys,
                "keys differ between the primary-key index and the data",
            ),
            (wrong.hidden, "records are current, but in the obsolete set"),
            (
                wrong.unknown,
                "versions of records are obsolete, but not in the obsolete set, which must contain all of them",
            ),
            (
                wrong.deleted,
                "keys that were written are missing from an index's tree of written keys",
            ),
            (
                wrong.replaced,
                "values that were replaced are missing from a range filter's tree of replaced values",
            ),
        ];
        let wrong = counted.into_iter().filter(|(count, _)| *count > 0);
        Ok(wrong.map(|(count, what)| format!("{count} {what}")))
    }
}

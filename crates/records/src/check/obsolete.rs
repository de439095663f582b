//! The check of the obsolete set, and of trees of written keys and replaced values, against all
//! versions of the records, which a scan visits in order.

use esker_lsm::coding::Misplaced;
use esker_lsm::{Cursor, Kind, Seq, Snapshot, Superseded, TreeCursor, TreeId};
use esker_model::record::RecordRef;

use crate::catalog::Layout;
use crate::coverage::{Complete, Coverage, Source};
use crate::error::Result;
use crate::index::Attribute;
use crate::maintenance;

/// Read-ahead of scans.
pub(super) const READAHEAD: usize = 256 << 10;

/// The obsolete set of a dataset, and how far it must be complete.
pub(super) struct KnownObsolete {
    set: Option<Superseded>,
    /// For entries of stand-alone indexes.
    entries: Complete,
    /// For versions of records.
    versions: Complete,
}

impl KnownObsolete {
    /// The obsolete set of a dataset; `None` if the dataset has none.
    pub(super) fn new(layout: &Layout, set: Option<Superseded>) -> KnownObsolete {
        let coverage = Coverage::new(&layout.stored.settings, set.as_ref());
        KnownObsolete {
            set,
            entries: coverage.complete_for(Source::IndexEntries),
            versions: coverage.complete_for(Source::DataVersions),
        }
    }

    /// For an index under construction, which guarantees nothing.
    pub(super) fn nothing() -> KnownObsolete {
        KnownObsolete {
            set: None,
            entries: Complete::NOTHING,
            versions: Complete::NOTHING,
        }
    }

    /// True if the set contains the write `seq`.
    fn has(&self, seq: Seq) -> bool {
        self.set.as_ref().is_some_and(|set| set.contains(seq))
    }

    /// True if the write `seq` of an obsolete index entry must be in the set and is not; `newest`
    /// is the newest entry of its key.
    pub(super) fn misses(&self, seq: Seq, newest: Option<Seq>) -> bool {
        let is_required = match newest {
            Some(newest) => self.entries.includes(newest),
            None => self.entries.is_always(),
        };
        is_required && !self.has(seq)
    }
}

/// Data derived from the records besides index entries, checked during a scan of the records.
pub(super) struct DerivedData<'a> {
    known: &'a KnownObsolete,
    snapshot: &'a Snapshot,
    keys: Option<TreeCursor>,
    deleted: Vec<WrittenKeys>,
    replaced: Vec<ReplacedValues<'a>>,
    /// The last visited version; `None` at the beginning.
    visited: Option<VisitedVersion>,
    wrong: ErrorCounts,
}

/// A visited version of a key.
struct VisitedVersion {
    seq: Seq,
    /// Its values for each of [`DerivedData::replaced`].
    values: Vec<Vec<Vec<u8>>>,
}

/// The number of errors of each type.
#[derive(Default)]
struct ErrorCounts {
    /// Keys that differ between the primary-key index and the data.
    keys: u64,
    /// Current records in the obsolete set.
    hidden: u64,
    /// Obsolete versions that the obsolete set must contain and does not.
    unknown: u64,
    /// Keys that a tree of written keys lacks.
    deleted: u64,
    /// Values that a tree of replaced values lacks.
    replaced: u64,
}

/// The tree of keys written since an index began: deleted-key maintenance.
struct WrittenKeys {
    tree: TreeId,
    /// The tree has all later writes.
    since: Seq,
}

/// The tree of values that writes replaced: range filters under eager maintenance.
struct ReplacedValues<'a> {
    tree: TreeId,
    attribute: &'a Attribute,
    /// The tree has the values that later writes replaced.
    since: Seq,
}

impl<'a> DerivedData<'a> {
    pub(super) fn new(
        snapshot: &'a Snapshot,
        layout: &'a Layout,
        known: &'a KnownObsolete,
    ) -> Result<DerivedData<'a>> {
        let mut keys = layout.keys.map(|tree| snapshot.cursor(tree, READAHEAD));
        if let Some(keys) = &mut keys {
            keys.seek_first()?;
        }
        let settings = &layout.stored.settings;
        let strategy = maintenance::strategy_of(settings.maintenance);
        let since = |attribute: &Attribute| attribute.since.max(settings.since);
        let deleted = layout.attributes.iter().filter_map(|attribute| {
            let tree = attribute.deleted?;
            let since = since(attribute);
            strategy
                .keeps_written_keys()
                .then_some(WrittenKeys { tree, since })
        });
        let replaced = layout.attributes.iter().filter_map(|attribute| {
            let tree = attribute.widened?;
            let since = since(attribute);
            strategy.keeps_replaced_values().then_some(ReplacedValues {
                tree,
                attribute,
                since,
            })
        });
        Ok(DerivedData {
            known,
            snapshot,
            keys,
            deleted: deleted.collect(),
            replaced: replaced.collect(),
            visited: None,
            wrong: ErrorCounts::default(),
        })
    }

    /// Visits the newest entry of a key: a record or a tombstone.
    pub(super) fn visit_newest(
        &mut self,
        key: &[u8],
        seq: Seq,
        record: Option<&RecordRef<'_>>,
    ) -> Result<()> {
        let values = self.values(record);
        self.visited = Some(VisitedVersion { seq, values });
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
    pub(super) fn visit_older(
        &mut self,
        seq: Seq,
        kind: Kind,
        record: Option<&RecordRef<'_>>,
    ) -> Result<()> {
        let newer = self.visited.take().ok_or_else(|| Misplaced::here())?;
        let old = self.values(record);
        if kind == Kind::Put {
            let is_required = self.known.versions.includes(newer.seq);
            self.wrong.unknown += u64::from(is_required && !self.known.has(seq));
        }
        debug_assert_eq!(newer.values.len(), old.len());
        for ((replaced, old), new) in self.replaced.iter().zip(&old).zip(&newer.values) {
            for value in old.iter().filter(|value| !new.contains(value)) {
                if seq > replaced.since {
                    let entry = self
                        .snapshot
                        .get(replaced.tree, value, &self.snapshot.cost())?;
                    self.wrong.replaced += u64::from(entry.is_none());
                }
            }
        }
        self.visited = Some(VisitedVersion { seq, values: old });
        Ok(())
    }

    /// The values of a version for each of `replaced`; none for a deletion.
    fn values(&self, record: Option<&RecordRef<'_>>) -> Vec<Vec<Vec<u8>>> {
        let values_of = |replaced: &ReplacedValues<'_>| {
            let mut values = Vec::new();
            if let Some(record) = record {
                replaced.attribute.any_value(record, |value| {
                    values.push(value.to_vec());
                    false
                });
            }
            values
        };
        self.replaced.iter().map(values_of).collect()
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
        Ok(wrong.map(|(count, error)| format!("{count} {error}")))
    }
}

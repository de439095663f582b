//! Is a candidate current? What the maintenance strategy knows of it before the record is fetched.
//!
//! Candidates of a stand-alone index are facts (value, key, number): over once the record has a newer
//! write. In the order of what it costs to find that out:
//! - the set of writes that are over ([`lsm::Superseded`]): one bit. With a mutable bitmap it has all of them;
//! - a tree of keys (the primary-key index, or an index's own under deleted-key maintenance): is there
//!   an entry of the key with a larger number? Luo & Carey's timestamp validation (section 4.3). Only
//!   components are asked that can have one which the set does not know of;
//! - the record itself, whose number is the fact's or not: direct validation.

use std::str::FromStr;
use std::sync::{Arc, OnceLock};

use lsm::table::KeyFilter;
use lsm::{Component, Cost, Cursor, Seq, Snapshot, Superseded, TreeId};

use crate::def::{Maintenance, Repair};
use crate::error::{Error, Result};
use crate::index::Candidate;
use crate::layout::{Attribute, Layout};

/// How candidates of an index are validated (Luo & Carey section 4.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Validation {
    /// As it is expected to cost least: timestamps where many candidates have turned out to be over, and for
    /// answers without records.
    #[default]
    Auto,
    /// The records are fetched, and tell. Answers without records need them too.
    Direct,
    /// The primary-key index is asked first, where the strategy has one.
    Timestamp,
}

impl FromStr for Validation {
    type Err = Error;
    fn from_str(text: &str) -> Result<Validation> {
        match text {
            "auto" => Ok(Validation::Auto),
            "direct" => Ok(Validation::Direct),
            "timestamp" => Ok(Validation::Timestamp),
            _ => Err(Error::bad_input(format!(
                "unknown validation `{text}`: it is one of auto, direct, timestamp"
            ))),
        }
    }
}

/// Fewer entries than this many times the candidates are worth a filter of their keys.
const WORTH: u64 = 2;

/// Bits of that filter per key.
const FILTER_BITS: usize = 12;

/// What a snapshot knows of the facts of one index.
pub(crate) struct Validity {
    over: Option<Arc<Superseded>>,
    /// What is not in the set is current.
    exact: bool,
    newer: Option<Newer>,
}

impl Validity {
    pub(crate) fn new(
        snapshot: &Snapshot,
        layout: &Layout,
        attribute: Option<&Attribute>,
    ) -> Validity {
        let over = layout
            .superseded
            .and_then(|tree| snapshot.superseded(tree))
            .map(Arc::new);
        let upkeep = &layout.stored.upkeep;
        let mark = over.as_ref().map_or(0, |over| over.mark());
        // Of what was written by another strategy the set must know everything.
        let settled = over.is_some() && mark >= upkeep.since;
        let standalone = attribute.filter(|attribute| attribute.kind.is_standalone());
        let exact = settled && upkeep.maintenance == Maintenance::MutableBitmap;
        let tree = standalone.and_then(|attribute| match upkeep.maintenance {
            Maintenance::DeletedKey => attribute.deleted,
            maintenance if maintenance.uses_keys() => layout.keys,
            _ => None,
        });
        let newer = tree.filter(|_| settled && !exact).map(|tree| {
            let told = upkeep.repair == Repair::Merge;
            let complete = upkeep.maintenance != Maintenance::DeletedKey;
            Newer::new(snapshot, tree, mark, (told, complete))
        });
        Validity { over, exact, newer }
    }

    /// True when it can be told without records which candidates are current.
    pub(crate) fn can_tell(&self) -> bool {
        self.exact || self.newer.is_some()
    }

    /// True when there is a tree of keys to be asked.
    pub(crate) fn asks(&self) -> bool {
        self.newer.is_some()
    }

    /// True when the write is known to be over.
    #[inline]
    pub(crate) fn is_over(&self, seq: Seq) -> bool {
        self.over.as_ref().is_some_and(|over| over.contains(seq))
    }

    /// True when the set alone tells.
    pub(crate) fn is_exact(&self) -> bool {
        self.exact
    }

    /// The set, to be asked by whoever gathers candidates.
    pub(crate) fn over(&self) -> Option<Arc<Superseded>> {
        self.over.clone()
    }

    /// Asks the tree of keys, if there is one, about `facts`, and drops those that
    /// are over. `total` is about how many facts there will be in all.
    pub(crate) fn retain(&self, facts: &mut Vec<Candidate>, total: u64, cost: &Cost) -> Result<()> {
        self.prepare(total, cost)?;
        let mut failed = None;
        facts.retain(|fact| match self.is_superseded(fact.seq, &fact.key, cost) {
            Ok(superseded) => !superseded,
            Err(error) => {
                failed.get_or_insert(error);
                true
            }
        });
        failed.map_or(Ok(()), Err)
    }
}

impl Validity {
    /// True when the tree of keys, if there is one, has a newer write of the key of a fact.
    pub(crate) fn is_superseded(&self, seq: Seq, key: &[u8], cost: &Cost) -> Result<bool> {
        match &self.newer {
            Some(newer) => newer.has(seq, key, cost),
            None => Ok(false),
        }
    }

    /// To be told how many facts will be asked about, before they are.
    pub(crate) fn prepare(&self, total: u64, cost: &Cost) -> Result<()> {
        match &self.newer {
            Some(newer) => newer.prepare(total, cost),
            None => Ok(()),
        }
    }
}

/// The components of a tree of keys, as far as they may have a newer entry than an index fact.
struct Newer {
    components: Vec<Span>,
    /// The last number that the snapshot sees.
    seq: Seq,
    /// The set knows all that was superseded up to this number.
    mark: Seq,
    /// Every record has its entry; so where a fact's own is gone, its record was deleted, and the delete
    /// went in a merge that told nobody.
    complete: bool,
    /// The keys of all that the set does not know of yet: almost every current fact is known to be so by
    /// one question (the superseded keys filter).
    filter: OnceLock<Option<KeyFilter>>,
}

/// A component and the numbers that it spans.
struct Span {
    component: Component,
    min: Seq,
    max: Seq,
    /// What one of its writes superseded by another is in the set: merges told.
    told: bool,
}

impl Newer {
    fn new(snapshot: &Snapshot, tree: TreeId, mark: Seq, (told, complete): (bool, bool)) -> Newer {
        let components = snapshot.components(tree).into_iter().map(|component| {
            let (min, max, is_run) = match &component {
                Component::Memtable(memtable) => {
                    let (min, max) = memtable.seq_bounds().unwrap_or((0, 0));
                    (min, max, false)
                }
                Component::Run(run) => {
                    let id = run.component();
                    (id.min, id.max, true)
                }
            };
            Span {
                component,
                min,
                max,
                told: told && is_run,
            }
        });
        Newer {
            components: components.filter(|span| span.max > mark).collect(),
            seq: snapshot.seq(),
            mark,
            complete: complete && !told,
            filter: OnceLock::new(),
        }
    }

    /// Where many facts are to be asked about, gathers the keys of what is newer than the mark in a filter.
    fn prepare(&self, total: u64, cost: &Cost) -> Result<()> {
        if self.filter.get().is_some() {
            return Ok(());
        }
        let entries = self.components.iter().map(|span| match &span.component {
            Component::Memtable(memtable) => memtable.len() as u64,
            Component::Run(run) => run.tables.iter().map(|table| table.meta().entries).sum(),
        });
        if entries.sum::<u64>() > total.saturating_mul(WORTH) {
            return Ok(());
        }
        let mut keys = KeyFilter::builder();
        for span in &self.components {
            for part in span.component.parts(&[], None) {
                let mut cursor = part.cursor(lsm::table::ReadOptions {
                    fill_cache: true,
                    readahead: 0,
                });
                cursor.seek_first()?;
                while cursor.valid() {
                    keys.add(cursor.key());
                    cursor.next()?;
                }
                cost.absorb(&cursor.cost());
            }
        }
        let _ = self.filter.set(Some(keys.build(FILTER_BITS)));
        Ok(())
    }

    /// True when there is an entry of `key` with a larger number than `seq`, which the set lacks.
    fn has(&self, seq: Seq, key: &[u8], cost: &Cost) -> Result<bool> {
        if let Some(Some(filter)) = self.filter.get()
            && !filter.may_contain(key)
        {
            // Its own component is among those that were gathered, unless the mark is past it.
            let own = |span: &Span| span.min <= seq && seq <= span.max;
            return Ok(self.complete && self.components.iter().any(own));
        }
        for span in &self.components {
            // Newest first: what follows is older still.
            if span.max <= seq.max(self.mark) {
                break;
            }
            if span.told && span.min <= seq {
                break;
            }
            if let Some(newest) = span.component.newest(key, self.seq, cost)? {
                return Ok(newest > seq);
            }
            if self.complete && span.min <= seq {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

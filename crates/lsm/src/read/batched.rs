//! Batched point lookups (Luo & Carey section 3.2): keys in ascending order, cut into batches; each
//! batch passes through the components of a tree from the newest to the oldest, each front to back,
//! before the next batch begins. The optimisations, each of which can be switched off
//! ([`LookupOptions`]):
//!
//! - *Batches*: the blocks of a run that a batch needs are read together, neighbours in one read,
//!   and a block that holds several keys is read once. Without batches, each key is looked up
//!   separately in all components: a random read per key.
//! - *Stateful search*: in a run, a key near the one before it costs a few comparisons instead of a
//!   search from the top.
//! - *Component-ID hints*: with the sequence number of a key's entry ([`Expected`]), components
//!   that cannot hold it are skipped without a filter probe.
//!
//! The paper's fourth optimisation, blocked Bloom filters, is a setting of table builders
//! ([`crate::Options::blocked_filter`]).

use std::ops::Range;

use crate::batch::TreeId;
use crate::cost::Cost;
use crate::entry::{Kind, MAX_SEQ, Seq, TIMED_LEN};
use crate::error::Result;
use crate::memtable::Memtable;
use crate::read::component::{Component, Entries};
use crate::read::lens::{Lens, Shown};
use crate::read::snapshot::{Found, Snapshot};
use crate::table::{Locator, WantedBlock, fetch, meet};
use crate::version::Run;
use esker_coding::{Own, Slice};

/// Limits of the data blocks held at a time, in blocks and in bytes (one block of any size is
/// always held).
const WINDOW: usize = 256;
const WINDOW_BYTES: usize = 1 << 20;
/// The window of small batches has half of their bytes, but at least this many.
const LEAST_WINDOW: usize = 64 << 10;

/// Memory of a key of a batch beside its bytes and its value.
const KEY_BYTES: usize = 64;

/// Settings of batched lookups: the optimisations of Luo & Carey section 3.2. Each can be switched
/// off, for measurements or when in doubt: answers are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LookupOptions {
    /// Bytes of a batch: its keys and their expected values, estimated from those found so far. 0:
    /// no batches, each key is looked up separately. Default 16 MiB.
    pub batch_bytes: usize,
    /// Search from the position of the previous key, instead of from the top of each table. Default
    /// true.
    pub stateful: bool,
    /// Use [`Expected`] sequence numbers. Default true.
    pub hints: bool,
}

impl Default for LookupOptions {
    fn default() -> LookupOptions {
        LookupOptions {
            batch_bytes: 16 << 20,
            stateful: true,
            hints: true,
        }
    }
}

/// The known bounds of the newest entry of each key, at the keys' positions. Where a bound is too
/// high the key may not be found, or an older entry of it.
#[derive(Debug, Clone, Copy, Default)]
pub enum Expected<'a> {
    /// None.
    #[default]
    Unknown,
    /// The newest entry has at least this sequence number, or is gone altogether. Components whose
    /// largest number is below it are skipped.
    AtLeast(&'a [Seq]),
    /// The newest entry has this sequence number. Components that cannot hold it are skipped.
    Exactly(&'a [Seq]),
}

impl Expected<'_> {
    /// The least and the greatest sequence number that the newest entry of the key at this position
    /// can have.
    #[inline]
    fn seqs(&self, at: usize) -> (Seq, Seq) {
        match self {
            Expected::Unknown => (0, MAX_SEQ),
            Expected::AtLeast(seqs) => (*seqs.own(at), MAX_SEQ),
            Expected::Exactly(seqs) => (*seqs.own(at), *seqs.own(at)),
        }
    }
}

impl Snapshot {
    /// Looks up `keys`, which must ascend, and puts the results into `found` at the same positions
    /// (`None` for keys without a value).
    ///
    /// # Errors
    /// [`crate::Error::Io`] and [`crate::Error::Corruption`] of the blocks read.
    pub fn get_batch(
        &self,
        tree: TreeId,
        keys: &[&[u8]],
        found: &mut Vec<Option<Found>>,
        cost: &Cost,
    ) -> Result<()> {
        found.clear();
        found.resize_with(keys.len(), || None);
        self.visit_batch(tree, keys, cost, &mut |at, entry| {
            *found.own_mut(at) = Some(entry);
        })
    }

    /// Looks up `keys`, which must ascend (some may be equal), and passes the position and the
    /// newest entry of each that has a value to `visit`, in no particular order: for callers that
    /// need not hold all values at once.
    ///
    /// # Errors
    /// [`crate::Error::Io`] and [`crate::Error::Corruption`] of the blocks read.
    pub fn visit_batch(
        &self,
        tree: TreeId,
        keys: &[&[u8]],
        cost: &Cost,
        visit: &mut dyn FnMut(usize, Found),
    ) -> Result<()> {
        let (components, options) = (self.components(tree), LookupOptions::default());
        self.lookup(&components, keys, Expected::Unknown, options, cost)
            .visit_all(visit)
    }

    /// A lookup of `keys`, which must ascend (some may be equal), in a tree's `components`
    /// ([`Snapshot::components`]).
    pub fn lookup<'a>(
        &self,
        components: &'a [Component],
        keys: &'a [&'a [u8]],
        expected: Expected<'a>,
        options: LookupOptions,
        cost: &'a Cost,
    ) -> Lookup<'a> {
        debug_assert!(keys.is_sorted());
        debug_assert!(
            match expected {
                Expected::Unknown => true,
                Expected::AtLeast(seqs) | Expected::Exactly(seqs) => seqs.len() == keys.len(),
            },
            "a number for each key"
        );
        let batch = Batch {
            keys,
            expected: if options.hints {
                expected
            } else {
                Expected::Unknown
            },
            stateful: options.stateful,
            window: (options.batch_bytes / 2).clamp(LEAST_WINDOW, WINDOW_BYTES),
            cost,
        };
        let last = components.len().saturating_sub(1);
        let searches = components
            .iter()
            .enumerate()
            .map(|(at, component)| match component {
                Component::Memtable(memtable) => Search::Memtable(memtable),
                Component::Run(run) => Search::Run(RunSearch::new(run, batch, at == last)),
            });
        Lookup {
            batch,
            seq: self.seq(),
            lens: self.lens(None),
            components,
            batch_bytes: options.batch_bytes,
            deletes: false,
            searches: searches.collect(),
            next: 0,
            values: ValueSize::guess(components),
            missing: Vec::new(),
            still_missing: Vec::new(),
        }
    }
}

/// A lookup of many keys, batch by batch.
pub struct Lookup<'a> {
    batch: Batch<'a>,
    seq: Seq,
    lens: Lens,
    components: &'a [Component],
    batch_bytes: usize,
    /// Visit deleted keys, too.
    deletes: bool,
    searches: Vec<Search<'a>>,
    /// The position of the next key to look up.
    next: usize,
    values: ValueSize,
    // State of the batch: the keys not found yet, and those among them that a component lacks.
    missing: Vec<usize>,
    still_missing: Vec<usize>,
}

impl Lookup<'_> {
    /// As before, but keys whose newest entry is a delete are visited, too.
    pub fn with_deletes(self) -> Self {
        Lookup {
            deletes: true,
            ..self
        }
    }

    /// Looks up the next batch, and passes the position and the newest entry of each key that has a
    /// value to `visit`, in no particular order. Returns the positions of the batch, which follow
    /// those of the batch before; `None` when no key is left.
    ///
    /// # Errors
    /// [`crate::Error::Io`] and [`crate::Error::Corruption`] of the blocks read; the lookup has
    /// ended then.
    pub fn next_batch(
        &mut self,
        visit: &mut dyn FnMut(usize, Found),
    ) -> Result<Option<Range<usize>>> {
        let Some(rest) = self.batch.keys.get(self.next..).filter(|r| !r.is_empty()) else {
            return Ok(None);
        };
        self.lens.check_open()?;
        let (mut bytes, each) = (0, self.values.mean() + KEY_BYTES);
        let fits = rest.iter().take_while(|key| {
            bytes += key.len() + each;
            bytes <= self.batch_bytes
        });
        let positions = self.next..self.next + fits.count().max(1);
        self.next = positions.end;
        let (values, deletes) = (&mut self.values, self.deletes);
        // A deleted key counts as found: older components must not be searched for it.
        let (lens, keys) = (&self.lens, self.batch.keys);
        let (components, all, cost) = (self.components, self.seq, self.batch.cost);
        let mut failed = Ok(());
        let mut visit = |at: usize, entry: Found| {
            let entry = match entry.kind {
                Kind::Timed => {
                    let key = keys.item(at).map_err(crate::Error::from);
                    match key.and_then(|key| see_timed(lens, components, all, key, entry, cost)) {
                        Ok(entry) => entry,
                        Err(error) => {
                            failed = Err(error);
                            return;
                        }
                    }
                }
                _ => entry,
            };
            if deletes || entry.kind != Kind::Delete {
                values.add(entry.value.len());
                visit(at, entry);
            }
        };
        self.missing.clear();
        self.missing.extend(positions.clone());
        for search in &mut self.searches {
            if self.missing.is_empty() {
                break;
            }
            match search {
                Search::Memtable(memtable) => {
                    let (batch, seq) = (self.batch, self.seq);
                    let mut stopped = Ok(());
                    self.missing.retain(|at| {
                        if stopped.is_ok() {
                            stopped = batch.cost.check();
                        }
                        stopped.is_err() || !batch.find_in_memtable(memtable, *at, seq, &mut visit)
                    });
                    stopped?;
                }
                Search::Run(run) => {
                    run.run(&self.missing, &mut self.still_missing, &mut visit)?;
                    std::mem::swap(&mut self.missing, &mut self.still_missing);
                }
            }
        }
        failed?;
        Ok(Some(positions))
    }

    /// Looks up all remaining keys.
    ///
    /// # Errors
    /// As [`Lookup::next_batch`].
    pub fn visit_all(mut self, visit: &mut dyn FnMut(usize, Found)) -> Result<()> {
        while self.next_batch(visit)?.is_some() {}
        Ok(())
    }
}

/// The visible value of a timed entry, the newest of its key.
#[cold]
fn see_timed(
    lens: &Lens,
    components: &[Component],
    seq: Seq,
    key: &[u8],
    entry: Found,
    cost: &Cost,
) -> Result<Found> {
    let deleted = |seq| Found {
        seq,
        kind: Kind::Delete,
        value: Slice::from(Vec::new()),
    };
    match lens.look(&entry.value) {
        Shown::Put => Ok(Found {
            kind: Kind::Put,
            value: entry.value.skip(TIMED_LEN),
            ..entry
        }),
        Shown::Operand => Ok(Found {
            kind: Kind::Operand,
            value: entry.value.skip(TIMED_LEN),
            ..entry
        }),
        Shown::Deleted => Ok(deleted(entry.seq)),
        // A list may have older operands.
        Shown::Nothing => {
            let stop = cost.stop();
            let mut rest = Entries::new(components.to_vec(), key, seq, lens.clone(), stop);
            let next = rest.next_entry()?;
            Ok(next.map_or_else(
                || deleted(entry.seq),
                |next| Found {
                    seq: next.seq,
                    kind: next.kind,
                    value: next.value,
                },
            ))
        }
    }
}

/// The estimated size of values: from those found, and before there are any, from the tree's
/// entries.
struct ValueSize {
    bytes: u64,
    count: u64,
}

impl ValueSize {
    fn guess(components: &[Component]) -> ValueSize {
        let (mut bytes, mut count) = (0, 0);
        for component in components {
            if let Component::Run(run) = component {
                bytes += run.size();
                count += run.tables.iter().map(|t| t.meta().entries).sum::<u64>();
            }
        }
        // Counts as much as one found value.
        ValueSize {
            bytes: bytes.checked_div(count).unwrap_or(0),
            count: 1,
        }
    }

    fn add(&mut self, len: usize) {
        self.bytes += len as u64;
        self.count += 1;
    }

    fn mean(&self) -> usize {
        (self.bytes / self.count) as usize
    }
}

/// The keys of a lookup, and its settings.
#[derive(Clone, Copy)]
struct Batch<'a> {
    keys: &'a [&'a [u8]],
    expected: Expected<'a>,
    stateful: bool,
    /// Bytes of blocks in a window.
    window: usize,
    cost: &'a Cost,
}

impl Batch<'_> {
    /// Visits the newest entry of a key in a memtable; false when it has none.
    fn find_in_memtable(
        &self,
        memtable: &Memtable,
        at: usize,
        seq: Seq,
        visit: &mut dyn FnMut(usize, Found),
    ) -> bool {
        let bounds = memtable.seq_bounds();
        if !bounds.is_some_and(|bounds| meet(bounds, self.expected.seqs(at))) {
            return false;
        }
        let entry = memtable.get(self.keys.own(at), seq);
        if let Some(entry) = &entry {
            let (seq, kind, value) = (entry.seq, entry.kind, Slice::from(entry.value));
            visit(at, Found { seq, kind, value });
        }
        entry.is_some()
    }
}

/// A component being searched.
enum Search<'a> {
    Memtable(&'a Memtable),
    Run(RunSearch<'a>),
}

/// The search of a run; it keeps its position from batch to batch.
struct RunSearch<'a> {
    run: &'a Run,
    batch: Batch<'a>,
    /// Key filters are probed.
    filtered: bool,
    /// The table of the previous key, and the position in it.
    locator: Option<(usize, Locator<'a>)>,
    /// The blocks of the window, and the keys to search for: position of the key, index of the
    /// block.
    blocks: Vec<WantedBlock<'a>>,
    spots: Vec<(usize, usize)>,
    /// Bytes of the blocks.
    held: usize,
}

impl<'a> RunSearch<'a> {
    fn new(run: &'a Run, batch: Batch<'a>, is_last: bool) -> RunSearch<'a> {
        RunSearch {
            run,
            batch,
            // What is known to have been written, and in no newer component, is in the oldest one,
            // unless it was deleted: filters have little to exclude.
            filtered: !is_last || matches!(batch.expected, Expected::Unknown),
            locator: None,
            blocks: Vec::new(),
            spots: Vec::new(),
            held: 0,
        }
    }

    /// Searches for the keys at the positions `wanted`, and puts the positions of those that the
    /// run lacks into `missing`.
    fn run(
        &mut self,
        wanted: &[usize],
        missing: &mut Vec<usize>,
        visit: &mut dyn FnMut(usize, Found),
    ) -> Result<()> {
        missing.clear();
        let expected = wanted.len().min(WINDOW);
        self.blocks.reserve(expected);
        self.spots.reserve(expected);
        missing.reserve(expected);
        for &at in wanted {
            self.batch.cost.check()?;
            let before = self.blocks.len();
            let located = self.locate(at)?;
            let new = self.blocks.iter().skip(before);
            self.held += new.map(WantedBlock::len).sum::<usize>();
            if located {
                self.spots.push((at, self.blocks.len() - 1));
            } else {
                missing.push(at);
            }
            if self.blocks.len() >= WINDOW || self.held >= self.batch.window {
                self.look(missing, visit)?;
            }
        }
        self.look(missing, visit)?;
        missing.sort_unstable();
        Ok(())
    }

    /// Adds the block of a key to the window; false when no block can hold it.
    fn locate(&mut self, at: usize) -> Result<bool> {
        let Batch { keys, cost, .. } = self.batch;
        let key = keys.item(at)?;
        let seqs = self.batch.expected.seqs(at);
        if let Some((_, locator)) = &mut self.locator
            && !self.batch.stateful
        {
            locator.rewind();
        }
        let position = match &self.locator {
            Some((position, _)) if self.batch.stateful && self.covers(*position, key) => {
                Some(*position)
            }
            _ => self.run.position_of(key),
        };
        let file = position.and_then(|position| Some((position, self.run.tables.get(position)?)));
        let Some((position, file)) = file else {
            return Ok(false);
        };
        if !meet((file.meta().min_seq, file.meta().max_seq), seqs) {
            return Ok(false);
        }
        if self.locator.as_ref().is_none_or(|(at, _)| *at != position) {
            self.locator = Some((position, Locator::new(file.table()?)));
        }
        match &mut self.locator {
            Some((_, locator)) => locator.locate(key, seqs, self.filtered, &mut self.blocks, cost),
            None => Ok(false),
        }
    }

    fn covers(&self, position: usize, key: &[u8]) -> bool {
        let file = self.run.tables.get(position);
        self.run.is_by_key() && file.is_some_and(|file| file.covers(key))
    }

    /// Fetches the window's blocks, searches for its keys in them, and clears the window.
    fn look(
        &mut self,
        missing: &mut Vec<usize>,
        visit: &mut dyn FnMut(usize, Found),
    ) -> Result<()> {
        fetch(&mut self.blocks, self.batch.cost)?;
        let mut near = None;
        let mut last = usize::MAX;
        for (at, block) in self.spots.drain(..) {
            let (key, wanted) = (self.batch.keys.item(at)?, self.blocks.item(block)?);
            if block != last || !self.batch.stateful {
                (last, near) = (block, None);
            }
            match wanted.get(key, &mut near)? {
                Some(found) => {
                    let (seq, kind, value) = (found.seq, found.kind, found.value);
                    visit(at, Found { seq, kind, value });
                }
                None => missing.push(at),
            }
        }
        self.blocks.clear();
        self.held = 0;
        Ok(())
    }
}

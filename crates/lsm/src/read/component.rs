//! The components of a tree in a snapshot, newest first: reads that can stop early (top-K lookups,
//! posting lists, batched lookups) visit them one by one.

use std::sync::Arc;

use crate::cost::Cost;
use crate::cursor::Cursor;
use crate::entry::{Kind, MAX_SEQ, Seq, TIMED_LEN, Time, Timed};
use crate::error::Result;
use crate::memtable::Memtable;
use crate::read::SourceCursor;
use crate::read::lens::{Lens, Shown};
use crate::stop::Stop;
use crate::table::ReadOptions;
use crate::version::RunCursor;
use crate::version::{Run, TableFile};
use esker_coding::{Own, Slice};

/// A component of a tree: a memtable or a run.
#[derive(Clone)]
pub enum Component {
    /// A memtable; it may have entries newer than the snapshot.
    Memtable(Arc<Memtable>),
    /// A run; all of it is visible to the snapshot.
    Run(Run),
}

impl Component {
    /// The largest sequence number, 0 when it is empty.
    pub fn max_seq(&self) -> Seq {
        match self {
            Component::Memtable(memtable) => memtable.seq_bounds().map_or(0, |(_, max)| max),
            Component::Run(run) => run
                .tables
                .iter()
                .map(|t| t.meta().max_seq)
                .max()
                .unwrap_or(0),
        }
    }

    /// The sequence number of the newest entry of `key`, deletes included; in a memtable, of those
    /// up to `seq`.
    pub fn newest(&self, key: &[u8], seq: Seq, cost: &Cost) -> Result<Option<Seq>> {
        match self {
            Component::Memtable(memtable) => Ok(memtable.get(key, seq).map(|entry| entry.seq)),
            Component::Run(run) => match run.table_for(key) {
                Some(table) => Ok(table.table()?.get(key, cost)?.map(|found| found.seq)),
                None => Ok(None),
            },
        }
    }

    /// False when the component certainly has no entry of `key`: probes a key filter, reads no data
    /// block.
    pub fn may_contain(&self, key: &[u8], cost: &Cost) -> Result<bool> {
        match self {
            Component::Memtable(memtable) => Ok(memtable.get(key, MAX_SEQ).is_some()),
            Component::Run(run) => match run.table_for(key) {
                Some(table) => table.table()?.may_contain(key, cost),
                None => Ok(false),
            },
        }
    }

    /// The approximate number of entries, deletes included.
    pub fn entries(&self) -> u64 {
        match self {
            Component::Memtable(memtable) => memtable.len() as u64,
            Component::Run(run) => run.tables.iter().map(|table| table.meta().entries).sum(),
        }
    }

    /// Keys that cut a run into pieces of similar size, ascending: the ends of its partitions. For
    /// sharing work among threads. None for a memtable.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) and [`Error::Corruption`](crate::Error::Corruption) of a
    /// table that is not open yet.
    pub fn cuts(&self) -> Result<Vec<Vec<u8>>> {
        let mut cuts = Vec::new();
        if let Component::Run(run) = self {
            for table in run.tables.iter() {
                cuts.extend(table.table()?.partition_keys().map(<[u8]>::to_vec));
            }
        }
        Ok(cuts)
    }

    /// Keys that cut several components together into up to `pieces` pieces of similar size,
    /// ascending; fewer than that if there are few partitions.
    ///
    /// # Errors
    /// As [`Component::cuts`].
    pub fn cuts_of_all(components: &[Component], pieces: usize) -> Result<Vec<Vec<u8>>> {
        let mut cuts = Vec::new();
        if pieces > 1 {
            for component in components {
                cuts.extend(component.cuts()?);
            }
        }
        cuts.sort_unstable();
        cuts.dedup();
        let chosen = (1..pieces).filter_map(|piece| cuts.get(piece * cuts.len() / pieces));
        let mut chosen: Vec<Vec<u8>> = chosen.filter(|cut| !cut.is_empty()).cloned().collect();
        chosen.dedup();
        Ok(chosen)
    }

    pub(crate) fn cursor(&self, options: ReadOptions, stop: Option<&Stop>) -> SourceCursor {
        match self {
            Component::Memtable(memtable) => SourceCursor::memtable(memtable, stop),
            Component::Run(run) => SourceCursor::run(run, options, stop),
        }
    }
}

impl Component {
    /// The parts of a component that hold keys in `lo..hi` (unbounded above without `hi`), by key:
    /// a whole memtable, or tables of a run.
    pub fn parts(&self, lo: &[u8], hi: Option<&[u8]>) -> Vec<Part> {
        match self {
            Component::Memtable(memtable) => vec![Part::Memtable(memtable.clone())],
            Component::Run(run) => {
                let within = |table: &&Arc<TableFile>| {
                    let meta = table.meta();
                    meta.largest.as_slice() >= lo
                        && hi.is_none_or(|hi| meta.smallest.as_slice() < hi)
                };
                let start = if run.is_by_key() { run.position(lo) } else { 0 };
                let tables = run.tables.own(start..).iter();
                let below = |table: &&Arc<TableFile>| {
                    hi.is_none_or(|hi| table.meta().smallest.as_slice() < hi)
                };
                let tables = tables.take_while(below).filter(within);
                tables.cloned().map(Part::Table).collect()
            }
        }
    }
}

/// A part of a component that can be read, or skipped, separately.
#[derive(Clone)]
pub enum Part {
    /// A memtable; it may have entries newer than the snapshot.
    Memtable(Arc<Memtable>),
    /// A table.
    Table(Arc<TableFile>),
}

impl Part {
    /// The smallest and largest sequence number.
    pub fn seq_bounds(&self) -> (Seq, Seq) {
        match self {
            Part::Memtable(memtable) => memtable.seq_bounds().unwrap_or((0, 0)),
            Part::Table(table) => (table.meta().min_seq, table.meta().max_seq),
        }
    }

    /// A cursor over the part: every entry, superseded ones and deletes included. The token of
    /// `cost` stops it; its own cost is counted separately.
    pub fn cursor(&self, options: ReadOptions, cost: &Cost) -> PartCursor {
        let stop = cost.stop();
        let cursor = match self {
            Part::Memtable(memtable) => SourceCursor::memtable(memtable, stop),
            Part::Table(table) => {
                let tables = Arc::new(vec![table.clone()]);
                SourceCursor::Run(RunCursor::new(tables, options).until(stop))
            }
        };
        PartCursor(cursor, 0)
    }
}

/// A cursor over a [`Part`], as of a time ([`PartCursor::at`]).
pub struct PartCursor(SourceCursor, Time);

impl PartCursor {
    /// The same cursor, with entries that have expired by `time`
    /// ([`Snapshot::time`](crate::Snapshot::time)) shown as deletes.
    pub fn at(self, time: Time) -> PartCursor {
        PartCursor(self.0, time)
    }

    /// The expiry time of the entry, if any.
    pub fn expires(&self) -> Option<Time> {
        Timed::of(self.0.kind(), self.0.value()).1
    }
}

impl PartCursor {
    /// The cost of the cursor so far.
    pub fn cost(&self) -> Cost {
        let total = Cost::default();
        self.0.add_cost(&total);
        total
    }
}

impl Cursor for PartCursor {
    #[inline]
    fn valid(&self) -> bool {
        self.0.valid()
    }
    #[inline]
    fn key(&self) -> &[u8] {
        self.0.key()
    }
    #[inline]
    fn seq(&self) -> Seq {
        self.0.seq()
    }
    #[inline]
    fn kind(&self) -> Kind {
        match self.0.kind() {
            Kind::Timed => match Timed::of(Kind::Timed, self.0.value()) {
                (_, Some(expires), _) if expires <= self.1 => Kind::Delete,
                (kind, _, _) => kind,
            },
            kind => kind,
        }
    }
    #[inline]
    fn value(&self) -> &[u8] {
        Timed::of(self.0.kind(), self.0.value()).2
    }
    fn value_slice(&self) -> Slice {
        match self.0.kind() {
            Kind::Timed => self.0.value_slice().skip(TIMED_LEN),
            _ => self.0.value_slice(),
        }
    }
    fn seek_first(&mut self) -> Result<()> {
        self.0.seek_first()
    }
    fn seek_last(&mut self) -> Result<()> {
        self.0.seek_last()
    }
    fn seek(&mut self, key: &[u8], seq: Seq) -> Result<()> {
        self.0.seek(key, seq)
    }
    #[inline]
    fn next(&mut self) -> Result<()> {
        self.0.next()
    }
    fn prev(&mut self) -> Result<()> {
        self.0.prev()
    }
}

/// The entries of one key, newest first, read component by component: a caller that stops early
/// does not touch older components.
pub struct Entries {
    components: std::vec::IntoIter<Component>,
    key: Vec<u8>,
    seq: Seq,
    lens: Lens,
    cursor: Option<SourceCursor>,
    cost: Cost,
}

/// An entry of a walk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WalkEntry {
    /// Its sequence number.
    pub seq: Seq,
    /// Its kind.
    pub kind: Kind,
    /// Its value.
    pub value: Slice,
}

impl Entries {
    pub(crate) fn new(
        components: Vec<Component>,
        key: &[u8],
        seq: Seq,
        lens: Lens,
        stop: Option<&Stop>,
    ) -> Entries {
        let (components, key) = (components.into_iter(), key.to_vec());
        Entries {
            components,
            key,
            seq,
            lens,
            cursor: None,
            cost: Cost::until(stop),
        }
    }

    /// The cost of the walk so far.
    pub fn cost(&self) -> &Cost {
        &self.cost
    }

    /// The next older entry of the key.
    pub fn next_entry(&mut self) -> Result<Option<WalkEntry>> {
        self.lens.check_open()?;
        loop {
            self.cost.check()?;
            if let Some(cursor) = &mut self.cursor {
                if cursor.valid() && cursor.key() == self.key.as_slice() {
                    let entry = WalkEntry {
                        seq: cursor.seq(),
                        kind: cursor.kind(),
                        value: cursor.value_slice(),
                    };
                    cursor.next()?;
                    if entry.seq > self.seq {
                        continue;
                    }
                    match see(&self.lens, &self.key, entry) {
                        Some(entry) => return Ok(Some(entry)),
                        None => continue,
                    }
                }
                cursor.add_cost(&self.cost);
                self.cursor = None;
            }
            let Some(component) = self.components.next() else {
                return Ok(None);
            };
            let options = ReadOptions {
                fill_cache: true,
                readahead: 0,
            };
            let mut cursor = match &component {
                Component::Memtable(memtable) if !memtable.may_contain(&self.key) => continue,
                Component::Memtable(_) => component.cursor(options, self.cost.stop()),
                Component::Run(run) => {
                    let Some(table) = run.table_for(&self.key) else {
                        continue;
                    };
                    if table.meta().min_seq > self.seq
                        || !table.table()?.may_contain(&self.key, &self.cost)?
                    {
                        continue;
                    }
                    let tables = if run.is_by_key() {
                        run.tables.clone()
                    } else {
                        Arc::new(vec![table.clone()])
                    };
                    SourceCursor::Run(RunCursor::new(tables, options).until(self.cost.stop()))
                }
            };
            cursor.seek(&self.key, self.seq.min(MAX_SEQ))?;
            self.cursor = Some(cursor);
        }
    }
}

/// An entry as visible to a snapshot; `None` for an operand that has expired.
fn see(lens: &Lens, key: &[u8], entry: WalkEntry) -> Option<WalkEntry> {
    if entry.kind != Kind::Timed {
        return Some(entry);
    }
    let (kind, value) = match lens.look(&entry.value) {
        Shown::Put => (Kind::Put, entry.value.skip(TIMED_LEN)),
        Shown::Deleted => (Kind::Delete, Vec::new().into()),
        Shown::Nothing => return None,
        Shown::Operand => match lens.prune(key, &entry.value) {
            None => (Kind::Operand, entry.value.skip(TIMED_LEN)),
            Some(left) if left.is_empty() => return None,
            Some(left) => (Kind::Operand, left.into()),
        },
    };
    Some(WalkEntry {
        kind,
        value,
        ..entry
    })
}

//! A cursor over one component, whichever it is.

use std::sync::Arc;

use crate::cost::Cost;
use crate::cursor::Cursor;
use crate::entry::{Kind, Seq};
use crate::error::Result;
use crate::memtable::{MemCursor, Memtable};
use crate::merge::MergeCursor;
use crate::stop::{Stop, Watch};
use crate::table::ReadOptions;
use crate::version::{Run, RunCursor};
use esker_coding::Slice;

/// A cursor over one component.
#[allow(
    clippy::large_enum_variant,
    reason = "there are few, and most are of the large kind"
)]
pub(crate) enum SourceCursor {
    /// A memtable has no block fetches at which a stop is checked, so each move checks it.
    Memtable(MemCursor, Watch),
    Run(RunCursor),
    /// The tables of a run that is not ordered by key, each a source of its own.
    Tables(Box<MergeCursor<RunCursor>>),
}

impl SourceCursor {
    pub(crate) fn memtable(memtable: &Memtable, stop: Option<&Stop>) -> SourceCursor {
        SourceCursor::Memtable(memtable.cursor(), Watch::new(stop))
    }

    pub(crate) fn run(run: &Run, options: ReadOptions, stop: Option<&Stop>) -> SourceCursor {
        let cursor = |tables| RunCursor::new(tables, options).until(stop);
        if run.is_by_key() {
            return SourceCursor::Run(cursor(run.tables.clone()));
        }
        let tables = run.tables.iter();
        let sources = tables.map(|table| cursor(Arc::new(vec![table.clone()])));
        SourceCursor::Tables(Box::new(MergeCursor::new(sources.collect())))
    }

    /// Adds the cost of the cursor so far.
    pub(crate) fn add_cost(&self, total: &Cost) {
        match self {
            SourceCursor::Memtable(..) => {}
            SourceCursor::Run(run) => total.absorb(&run.cost()),
            SourceCursor::Tables(tables) => {
                for table in tables.sources() {
                    total.absorb(&table.cost());
                }
            }
        }
    }
}

macro_rules! each {
    ($self:ident, $cursor:ident => $call:expr) => {
        match $self {
            SourceCursor::Memtable($cursor, _) => $call,
            SourceCursor::Run($cursor) => $call,
            SourceCursor::Tables($cursor) => $call,
        }
    };
}

/// Separate from the moves without a stop, which stay small.
#[cold]
#[inline(never)]
fn watched(
    cursor: &mut MemCursor,
    watch: &Watch,
    step: impl FnOnce(&mut MemCursor) -> Result<()>,
) -> Result<()> {
    watch.check()?;
    step(cursor)
}

macro_rules! each_watched {
    ($self:ident, $cursor:ident => $call:expr) => {
        match $self {
            SourceCursor::Memtable($cursor, watch) if !watch.is_idle() => {
                watched($cursor, watch, |$cursor| $call)
            }
            SourceCursor::Memtable($cursor, _) => $call,
            SourceCursor::Run($cursor) => $call,
            SourceCursor::Tables($cursor) => $call,
        }
    };
}

impl Cursor for SourceCursor {
    #[inline]
    fn valid(&self) -> bool {
        each!(self, c => c.valid())
    }
    #[inline]
    fn key(&self) -> &[u8] {
        each!(self, c => c.key())
    }
    #[inline]
    fn seq(&self) -> Seq {
        each!(self, c => c.seq())
    }
    #[inline]
    fn kind(&self) -> Kind {
        each!(self, c => c.kind())
    }
    #[inline]
    fn value(&self) -> &[u8] {
        each!(self, c => c.value())
    }
    fn value_slice(&self) -> Slice {
        each!(self, c => c.value_slice())
    }
    fn seek_first(&mut self) -> Result<()> {
        each_watched!(self, c => c.seek_first())
    }
    fn seek_last(&mut self) -> Result<()> {
        each_watched!(self, c => c.seek_last())
    }
    fn seek(&mut self, key: &[u8], seq: Seq) -> Result<()> {
        each_watched!(self, c => c.seek(key, seq))
    }
    #[inline]
    fn next(&mut self) -> Result<()> {
        each_watched!(self, c => c.next())
    }
    fn prev(&mut self) -> Result<()> {
        each_watched!(self, c => c.prev())
    }
}

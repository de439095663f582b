//! Parallel compaction: the key range of the inputs is cut into pieces of about the same bytes,
//! each is merged on its own, by another thread where one is free, and the tables of all pieces, in
//! key order, form one run of one edit.
//!
//! The result equals that of a single merge: all entries of a key are in one piece, and the
//! decision on an entry depends on the entries of its key, on the obsolete set of the job's
//! version, and on the older runs, which are the same for all pieces. Each piece starts a new
//! compaction filter, so a filter that keeps state across keys says so
//! ([`CompactionFilterFactory::spans_keys`](crate::merge::CompactionFilterFactory::spans_keys)),
//! and its trees are compacted in one piece. So are bitmap trees, whose sets are read whole, and
//! trees with a partitioner, which cuts by more than the key.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::context::CompactionContext;
use super::output::Written;
use crate::cursor::Cursor;
use crate::entry::{Kind, MAX_SEQ, Seq};
use crate::error::{Error, Result};
use crate::obsolete::SeqSet;
use crate::stats::Counters;
use crate::version::{Choice, TableFile, TreeVersion};
use esker_coding::Slice;

/// The most pieces of a compaction: more would make too many small tables.
const MAX_PIECES: u64 = 16;

impl CompactionContext<'_> {
    /// Runs a compaction, given as `make` of a key range, in one or several pieces.
    pub(super) fn in_pieces(
        &self,
        tree: &TreeVersion,
        choice: &Choice,
        make: &MakePiece<'_>,
    ) -> Result<Made> {
        let filter = tree.options.filter.as_ref();
        let whole = filter.is_some_and(|filter| filter.spans_keys());
        let (size, options) = (choice.size(), self.options);
        let idle = self.slots.map_or(0, |slots| slots.all());
        let pieces = |threads| count(size, options.table_size, threads, options.piece_bytes);
        if whole || tree.options.partitioner.is_some() || pieces(idle) <= 1 {
            return make(None, None);
        }
        let most = pieces(idle) as usize - 1;
        let helpers = self.slots.map(|slots| slots.take(most));
        let helpers = helpers.as_ref().map_or(0, |helpers| helpers.count);
        let cuts = cuts(choice.tables(), pieces(helpers + 1))?;
        let ends = || cuts.iter().map(|cut| Some(cut.as_slice()));
        let ranges: Vec<_> = std::iter::once(None)
            .chain(ends())
            .zip(ends().chain(std::iter::once(None)))
            .collect();
        self.abandoned.store(false, Ordering::Relaxed);
        let done = each(&ranges, helpers, &|(from, to)| {
            let made = if self.is_aborted() {
                Err(Error::Closed)
            } else {
                make(from, to)
            };
            if made.is_err() {
                self.abandoned.store(true, Ordering::Relaxed);
            }
            made
        });
        self.abandoned.store(false, Ordering::Relaxed);
        if ranges.len() > 1 {
            Counters::add(&self.counters.pieces, ranges.len() as u64);
        }
        let mut whole = Made::default();
        let mut error: Option<Error> = None;
        for piece in done {
            match piece {
                Ok(piece) => whole.append(piece),
                // Prefer the root error to that of a piece which aborted because of it.
                Err(other) if matches!(error, None | Some(Error::Closed)) => error = Some(other),
                Err(_) => {}
            }
        }
        match error {
            None => Ok(whole),
            Some(error) => {
                whole.written.remove(self.source);
                Err(error)
            }
        }
    }
}

/// Merges the keys from the first bound (inclusive) to the second (exclusive).
pub(super) type MakePiece<'m> = dyn Fn(Option<&[u8]>, Option<&[u8]>) -> Result<Made> + Sync + 'm;

/// The result of a flush, a compaction or a piece of one.
#[derive(Default)]
pub(super) struct Made {
    pub(super) written: Written,
    /// Numbers to add to the obsolete set.
    pub(super) reported: SeqSet,
    /// Number of entries written.
    pub(super) count: u64,
}

impl Made {
    fn append(&mut self, piece: Made) {
        self.written.append(piece.written);
        self.reported.add_all(&piece.reported);
        self.count += piece.count;
    }
}

/// The number of pieces for a compaction of `bytes` by `threads`: all threads share a large one.
/// `piece_bytes` overrides the bytes per piece, for any number of threads.
pub(super) fn count(bytes: u64, table_size: u64, threads: usize, piece_bytes: Option<u64>) -> u64 {
    match piece_bytes {
        Some(piece) => (bytes / piece.max(1)).clamp(1, MAX_PIECES),
        None if bytes <= table_size.saturating_mul(4) => 1,
        None => (threads as u64)
            .min(bytes / table_size.max(1))
            .clamp(1, MAX_PIECES),
    }
}

/// Keys that cut the tables into at most `pieces` ranges of about the same bytes.
pub(super) fn cuts<'t>(
    tables: impl Iterator<Item = &'t Arc<TableFile>>,
    pieces: u64,
) -> Result<Vec<Vec<u8>>> {
    // Keys, and about how many bytes lie between one and the next.
    let mut keys: Vec<(Vec<u8>, u64)> = Vec::new();
    for file in tables {
        let table = file.table()?;
        let parts: Vec<&[u8]> = table.partition_keys().collect();
        let bytes = file.meta().size / (parts.len() as u64).max(1);
        // A partition begins after the last key of the one before; the exact key makes no
        // difference.
        let begins = std::iter::once(file.meta().smallest.as_slice()).chain(parts.iter().copied());
        keys.extend(
            begins
                .take(parts.len().max(1))
                .map(|key| (key.to_vec(), bytes)),
        );
    }
    keys.sort();
    let share = keys.iter().map(|(_, bytes)| bytes).sum::<u64>() / pieces.max(1);
    let least = keys.first().map(|(key, _)| key.clone());
    let (mut cuts, mut piece): (Vec<Vec<u8>>, u64) = (Vec::new(), 0);
    for (key, bytes) in keys {
        let is_new = cuts
            .last()
            .or(least.as_ref())
            .is_some_and(|last| *last < key);
        if is_new && piece >= share && (cuts.len() as u64) + 1 < pieces {
            cuts.push(key);
            piece = 0;
        }
        piece += bytes;
    }
    Ok(cuts)
}

/// Runs `work` for each item, on this thread and `others`, and returns the results in the order of
/// the items.
pub(super) fn each<I: Copy + Sync, T: Send>(
    items: &[I],
    helpers: usize,
    work: &(dyn Fn(I) -> T + Sync),
) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let some = || {
        let mut done = Vec::new();
        while let at = next.fetch_add(1, Ordering::Relaxed)
            && let Some(item) = items.get(at)
        {
            done.push((at, work(*item)));
        }
        done
    };
    let mut done = std::thread::scope(|scope| {
        let spawn = |_| {
            let thread = std::thread::Builder::new().name("esker-merge-piece".to_string());
            // Without it this thread does more of the work.
            thread.spawn_scoped(scope, some).ok()
        };
        let threads: Vec<_> = (0..helpers).filter_map(spawn).collect();
        let mut done = some();
        for thread in threads {
            match thread.join() {
                Ok(more) => done.extend(more),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        done
    });
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, made)| made).collect()
}

/// The entries of a cursor with keys in `from..to`.
pub(super) struct Between<'k, C> {
    inner: C,
    from: Option<&'k [u8]>,
    to: Option<&'k [u8]>,
    valid: bool,
}

impl<'k, C: Cursor> Between<'k, C> {
    pub(super) fn new(inner: C, from: Option<&'k [u8]>, to: Option<&'k [u8]>) -> Self {
        Between {
            inner,
            from,
            to,
            valid: false,
        }
    }

    fn look(&mut self) {
        let inside = |key: &[u8]| {
            self.from.is_none_or(|from| from <= key) && self.to.is_none_or(|to| key < to)
        };
        self.valid = self.inner.valid() && inside(self.inner.key());
    }
}

impl<C: Cursor> Cursor for Between<'_, C> {
    fn valid(&self) -> bool {
        self.valid
    }
    fn key(&self) -> &[u8] {
        self.inner.key()
    }
    fn seq(&self) -> Seq {
        self.inner.seq()
    }
    fn kind(&self) -> Kind {
        self.inner.kind()
    }
    fn value(&self) -> &[u8] {
        self.inner.value()
    }
    fn value_slice(&self) -> Slice {
        self.inner.value_slice()
    }
    fn seek_first(&mut self) -> Result<()> {
        match self.from {
            Some(from) => self.inner.seek(from, MAX_SEQ)?,
            None => self.inner.seek_first()?,
        }
        self.look();
        Ok(())
    }
    fn seek_last(&mut self) -> Result<()> {
        match self.to {
            Some(to) => {
                self.inner.seek(to, MAX_SEQ)?;
                if self.inner.valid() {
                    self.inner.prev()?
                } else {
                    self.inner.seek_last()?
                }
            }
            None => self.inner.seek_last()?,
        }
        self.look();
        Ok(())
    }
    fn seek(&mut self, key: &[u8], seq: Seq) -> Result<()> {
        match self.from.filter(|from| key < *from) {
            Some(from) => self.inner.seek(from, MAX_SEQ)?,
            None => self.inner.seek(key, seq)?,
        }
        self.look();
        Ok(())
    }
    fn next(&mut self) -> Result<()> {
        self.inner.next()?;
        self.look();
        Ok(())
    }
    fn prev(&mut self) -> Result<()> {
        self.inner.prev()?;
        self.look();
        Ok(())
    }
}

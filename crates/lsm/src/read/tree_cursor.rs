//! Cursors over a whole tree in a snapshot.

use crate::cost::Cost;
use crate::cursor::Cursor;
use crate::entry::{Kind, MAX_SEQ, Seq, TIMED_LEN, Timed};
use crate::error::Result;
use crate::merge::MergeCursor;
use crate::read::SourceCursor;
use crate::read::lens::{Lens, Shown};
use esker_coding::Slice;

/// Every visible entry of a tree, superseded ones, deletes and operands included, by key and per
/// key the newest first.
pub struct EntryCursor {
    merged: MergeCursor<SourceCursor>,
    seq: Seq,
    lens: Lens,
    /// The visible form of the merge's current entry if it is timed, and the rest of its value if
    /// some of it has expired.
    shown: Shown,
    left: Option<Vec<u8>>,
    /// The keys that are shown: from the first on, and before the second.
    bounds: (Vec<u8>, Option<Vec<u8>>),
    /// True when the merge is on an entry that is shown.
    valid: bool,
}

impl EntryCursor {
    pub(crate) fn new(sources: Vec<SourceCursor>, seq: Seq, lens: Lens) -> EntryCursor {
        EntryCursor {
            merged: MergeCursor::new(sources),
            seq,
            lens,
            shown: Shown::Put,
            left: None,
            bounds: (Vec::new(), None),
            valid: false,
        }
    }

    /// Bounds the cursor: it shows the keys from `lo` on and before `hi` alone, and ends there
    /// without reading on to the next entry that is visible, which may be far where much is deleted
    /// or has expired. The next move is to be a seek.
    pub fn within(&mut self, lo: &[u8], hi: Option<&[u8]>) {
        self.valid = false;
        self.bounds.0.clear();
        self.bounds.0.extend_from_slice(lo);
        match (&mut self.bounds.1, hi) {
            (Some(mine), Some(hi)) => {
                mine.clear();
                mine.extend_from_slice(hi);
            }
            (mine, hi) => *mine = hi.map(<[u8]>::to_vec),
        }
    }

    /// The cost of the cursor so far.
    pub fn cost(&self) -> Cost {
        let total = Cost::default();
        for source in self.merged.sources() {
            source.add_cost(&total);
        }
        total
    }

    /// True when the merge's current entry is visible to the snapshot.
    #[inline]
    fn sees(&mut self) -> bool {
        self.merged.seq() <= self.seq && (self.merged.kind() != Kind::Timed || self.look())
    }

    #[cold]
    fn look(&mut self) -> bool {
        let stored = self.merged.value();
        self.shown = self.lens.look(stored);
        self.left = match self.shown {
            Shown::Operand => self.lens.prune(self.merged.key(), stored),
            _ => None,
        };
        let is_empty = self.left.as_ref().is_some_and(Vec::is_empty);
        self.shown != Shown::Nothing && !is_empty
    }

    #[inline]
    fn skip_forward(&mut self) -> Result<()> {
        loop {
            let hi = self.bounds.1.as_deref();
            self.valid = self.merged.valid() && hi.is_none_or(|hi| self.merged.key() < hi);
            if !self.valid || self.sees() {
                return Ok(());
            }
            self.merged.next()?;
        }
    }

    fn skip_backward(&mut self) -> Result<()> {
        loop {
            let lo = self.bounds.0.as_slice();
            self.valid = self.merged.valid() && (lo.is_empty() || self.merged.key() >= lo);
            if !self.valid || self.sees() {
                return Ok(());
            }
            self.merged.prev()?;
        }
    }
}

impl Cursor for EntryCursor {
    #[inline]
    fn valid(&self) -> bool {
        self.valid
    }
    #[inline]
    fn key(&self) -> &[u8] {
        self.merged.key()
    }
    #[inline]
    fn seq(&self) -> Seq {
        self.merged.seq()
    }
    #[inline]
    fn kind(&self) -> Kind {
        match (self.merged.kind(), self.shown) {
            (Kind::Timed, Shown::Put) => Kind::Put,
            (Kind::Timed, Shown::Operand) => Kind::Operand,
            (Kind::Timed, _) => Kind::Delete,
            (kind, _) => kind,
        }
    }
    #[inline]
    fn value(&self) -> &[u8] {
        let (kind, value) = (self.merged.kind(), self.merged.value());
        match (kind, self.shown, &self.left) {
            (Kind::Timed, Shown::Deleted, _) => &[],
            (Kind::Timed, _, Some(left)) => left,
            (Kind::Timed, _, None) => Timed::of(kind, value).2,
            _ => value,
        }
    }
    fn value_slice(&self) -> Slice {
        match (self.merged.kind(), self.shown, &self.left) {
            (Kind::Timed, Shown::Deleted, _) => Slice::from(Vec::new()),
            (Kind::Timed, _, Some(left)) => Slice::from(left.as_slice()),
            (Kind::Timed, _, None) => self.merged.value_slice().skip(TIMED_LEN),
            _ => self.merged.value_slice(),
        }
    }
    fn seek_first(&mut self) -> Result<()> {
        self.lens.check_open()?;
        match self.bounds.0.as_slice() {
            [] => self.merged.seek_first()?,
            lo => self.merged.seek(lo, MAX_SEQ)?,
        }
        self.skip_forward()
    }
    fn seek_last(&mut self) -> Result<()> {
        self.lens.check_open()?;
        match &self.bounds.1 {
            None => self.merged.seek_last()?,
            Some(hi) => {
                self.merged.seek(hi, MAX_SEQ)?;
                if self.merged.valid() {
                    self.merged.prev()?
                } else {
                    self.merged.seek_last()?
                }
            }
        }
        self.skip_backward()
    }
    fn seek(&mut self, key: &[u8], seq: Seq) -> Result<()> {
        self.lens.check_open()?;
        match self.bounds.0.as_slice() {
            lo if key < lo => self.merged.seek(lo, MAX_SEQ)?,
            _ => self.merged.seek(key, seq)?,
        }
        self.skip_forward()
    }
    #[inline]
    fn next(&mut self) -> Result<()> {
        if !self.valid {
            return Ok(());
        }
        self.merged.next()?;
        self.skip_forward()
    }
    fn prev(&mut self) -> Result<()> {
        if !self.valid {
            return Ok(());
        }
        self.merged.prev()?;
        self.skip_backward()
    }
}

/// The keys of a tree that have a value in a snapshot, each with its newest entry, forward and
/// backward. For trees of puts and deletes; in an operand list it shows the newest piece.
pub struct TreeCursor {
    entries: EntryCursor,
    /// The user key last shown or skipped, going forward.
    passed: Vec<u8>,
    /// Going backward, the merge is before the shown entry, which is kept here.
    behind: Option<Saved>,
}

struct Saved {
    key: Vec<u8>,
    seq: Seq,
    kind: Kind,
    value: Slice,
}

impl TreeCursor {
    pub(crate) fn new(sources: Vec<SourceCursor>, seq: Seq, lens: Lens) -> TreeCursor {
        TreeCursor {
            entries: EntryCursor::new(sources, seq, lens),
            passed: Vec::new(),
            behind: None,
        }
    }

    /// The cost of the cursor so far.
    pub fn cost(&self) -> Cost {
        self.entries.cost()
    }

    /// Bounds the cursor ([`EntryCursor::within`]); the next move is to be a seek.
    pub fn within(&mut self, lo: &[u8], hi: Option<&[u8]>) {
        self.behind = None;
        self.entries.within(lo, hi);
    }

    /// From the newest entry of a key, moves to the first key that is not deleted.
    fn skip_tombstones(&mut self) -> Result<()> {
        while self.entries.valid() && self.entries.kind() == Kind::Delete {
            self.skip_key()?;
        }
        Ok(())
    }

    /// Skips all entries of the merge's current key.
    fn skip_key(&mut self) -> Result<()> {
        self.passed.clear();
        self.passed.extend_from_slice(self.entries.key());
        self.entries.next()?;
        while self.entries.valid() && self.entries.key() == self.passed.as_slice() {
            self.entries.next()?;
        }
        Ok(())
    }

    /// Going backward, the merge is on the oldest entry of a key: moves to its newest, keeps that,
    /// and repeats while it is a delete.
    fn skip_tombstones_backward(&mut self) -> Result<()> {
        self.behind = None;
        while self.entries.valid() {
            self.passed.clear();
            self.passed.extend_from_slice(self.entries.key());
            let mut newest = None;
            while self.entries.valid() && self.entries.key() == self.passed.as_slice() {
                newest = Some((
                    self.entries.seq(),
                    self.entries.kind(),
                    self.entries.value_slice(),
                ));
                self.entries.prev()?;
            }
            if let Some((seq, kind, value)) = newest
                && kind != Kind::Delete
            {
                self.behind = Some(Saved {
                    key: self.passed.clone(),
                    seq,
                    kind,
                    value,
                });
                return Ok(());
            }
        }
        Ok(())
    }
}

impl Cursor for TreeCursor {
    #[inline]
    fn valid(&self) -> bool {
        self.behind.is_some() || self.entries.valid()
    }
    #[inline]
    fn key(&self) -> &[u8] {
        self.behind
            .as_ref()
            .map_or_else(|| self.entries.key(), |saved| &saved.key)
    }
    #[inline]
    fn seq(&self) -> Seq {
        self.behind
            .as_ref()
            .map_or_else(|| self.entries.seq(), |saved| saved.seq)
    }
    #[inline]
    fn kind(&self) -> Kind {
        self.behind
            .as_ref()
            .map_or_else(|| self.entries.kind(), |saved| saved.kind)
    }
    #[inline]
    fn value(&self) -> &[u8] {
        self.behind
            .as_ref()
            .map_or_else(|| self.entries.value(), |saved| &saved.value)
    }
    fn value_slice(&self) -> Slice {
        self.behind
            .as_ref()
            .map_or_else(|| self.entries.value_slice(), |saved| saved.value.clone())
    }

    fn seek_first(&mut self) -> Result<()> {
        self.behind = None;
        self.entries.seek_first()?;
        self.skip_tombstones()
    }

    fn seek_last(&mut self) -> Result<()> {
        self.behind = None;
        self.entries.seek_last()?;
        self.skip_tombstones_backward()
    }

    /// Moves to the first key at or after `key`; `seq` is not used.
    fn seek(&mut self, key: &[u8], _seq: Seq) -> Result<()> {
        self.behind = None;
        self.entries.seek(key, MAX_SEQ)?;
        self.skip_tombstones()
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        if let Some(saved) = self.behind.take() {
            self.entries.seek(&saved.key, MAX_SEQ)?;
        }
        self.skip_key()?;
        self.skip_tombstones()
    }

    fn prev(&mut self) -> Result<()> {
        if self.behind.is_none() {
            // Forward, the merge is on the newest entry of the shown key.
            self.entries.prev()?;
        }
        self.skip_tombstones_backward()
    }
}

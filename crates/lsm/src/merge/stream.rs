//! The output of a flush or compaction: determines the circumstances of each merged entry, calls
//! the decision (`decide.rs`), and emits the surviving entries.
//!
//! - Operands are first combined piece by piece by the tree's [`MergeOperator`]; a piece is decided
//!   on as one entry.
//! - A tombstone is held back until an older entry of its key is kept, which it must hide. At the
//!   end of the key it is dropped, unless an older component may hold the key.
//!
//! At most one operand piece is in memory, however long a key's list is.

use std::sync::Arc;

use super::decide::{Circumstances, Fate, Reason, decide};
use super::{CompactionFilter, Decision, FilteredEntry, MergeOperator};
use crate::cursor::Cursor;
use crate::entry::{Kind, MAX_TIME, Seq, Time, Timed};
use crate::error::Result;
use crate::obsolete::{ObsoleteWrites, SeqSet};

/// The rules of one tree for one flush or compaction.
pub(crate) struct Rules<'a> {
    pub(crate) operator: Option<Arc<dyn MergeOperator>>,
    pub(crate) filter: Option<Box<dyn CompactionFilter>>,
    /// The number of puts and deletes of a key that are kept, at least 1: the newest ones.
    pub(crate) versions: usize,
    /// True when no component older than the inputs can hold the key.
    pub(crate) is_oldest: &'a dyn Fn(&[u8]) -> bool,
    /// Obsolete writes, whose puts are dropped.
    pub(crate) obsolete: ObsoleteWrites,
    /// Collects the numbers of puts that are dropped, or become tombstones, for other reasons.
    pub(crate) reported: Option<&'a mut SeqSet>,
    /// Puts of a key that was written since this number are kept, however many newer ones there
    /// are: repair must see which write superseded which.
    pub(crate) repaired: Seq,
    /// Entries that expire up to this time have expired.
    pub(crate) now: Time,
}

/// Reads entries from a cursor and passes the surviving ones to a sink.
pub(crate) struct MergeStream<'a, C> {
    input: C,
    rules: Rules<'a>,
    key: Vec<u8>,
    piece: Vec<u8>,
    /// The numbers of the held-back tombstones of the key.
    held: Vec<Seq>,
    /// Whether no older component has the key, once known: it costs a search.
    oldest: Option<bool>,
}

/// Receives surviving entries. An error aborts the compaction.
pub(crate) type Sink<'s> = dyn FnMut(&[u8], Seq, Kind, &[u8]) -> Result<()> + 's;

impl<'a, C: Cursor> MergeStream<'a, C> {
    /// `input` must be on its first entry.
    pub(crate) fn new(input: C, rules: Rules<'a>) -> MergeStream<'a, C> {
        MergeStream {
            input,
            rules,
            key: Vec::new(),
            piece: Vec::new(),
            held: Vec::new(),
            oldest: None,
        }
    }

    /// Runs to the end of the input.
    pub(crate) fn run(&mut self, sink: &mut Sink<'_>) -> Result<()> {
        while self.input.valid() {
            self.key.clear();
            self.key.extend_from_slice(self.input.key());
            self.oldest = None;
            self.one_key(sink)?;
            if !self.held.is_empty() {
                if !self.is_oldest() {
                    self.emit_held(sink)?;
                }
                self.held.clear();
            }
        }
        Ok(())
    }

    fn on_key(&self) -> bool {
        self.input.valid() && self.input.key() == self.key.as_slice()
    }

    fn is_oldest(&mut self) -> bool {
        let (rules, key) = (&self.rules, &self.key);
        *self.oldest.get_or_insert_with(|| (rules.is_oldest)(key))
    }

    fn one_key(&mut self, sink: &mut Sink<'_>) -> Result<()> {
        let newest = self.input.seq();
        let awaits_repair = newest > self.rules.repaired;
        let mut versions = 0;
        while self.on_key() {
            let (seq, stored) = (self.input.seq(), self.input.kind());
            let (kind, expires, value) = Timed::of(stored, self.input.value());
            let circumstances = Circumstances {
                kind,
                is_obsolete: kind == Kind::Put && self.rules.obsolete.contains(seq),
                is_shadowed: versions >= self.rules.versions.max(1),
                is_expired: expires.is_some_and(|expires| expires <= self.rules.now),
                awaits_repair,
            };
            if kind == Kind::Operand && !circumstances.is_shadowed && !circumstances.is_expired {
                self.operands(seq, circumstances, expires, sink)?;
                continue;
            }
            let entry = FilteredEntry {
                key: &self.key,
                seq,
                kind,
                value,
                expires,
            };
            let (rules, oldest) = (&mut self.rules, &mut self.oldest);
            let fate = decide(circumstances, || filtered(rules, entry, oldest));
            if kind != Kind::Operand && !circumstances.is_shadowed && !circumstances.is_obsolete {
                versions += 1;
            }
            match fate {
                Fate::Keep => {
                    self.emit_held(sink)?;
                    sink(&self.key, seq, stored, self.input.value())?;
                }
                Fate::Rewrite(value) => {
                    self.emit_held(sink)?;
                    self.emit(seq, kind, expires, &value, sink)?;
                }
                Fate::Delete(reason) => {
                    self.held.push(seq);
                    if reason.is_some() {
                        self.report(seq);
                    }
                }
                Fate::Drop(Reason::Obsolete) => {}
                Fate::Drop(_) if kind == Kind::Put => self.report(seq),
                Fate::Drop(_) => {}
            }
            self.input.next()?;
        }
        Ok(())
    }

    /// Emits an entry with its value in stored form.
    fn emit(
        &self,
        seq: Seq,
        kind: Kind,
        expires: Option<Time>,
        value: &[u8],
        sink: &mut Sink<'_>,
    ) -> Result<()> {
        match expires {
            None => sink(&self.key, seq, kind, value),
            Some(expires) => {
                let stored = [&Timed::front(kind, expires), value].concat();
                sink(&self.key, seq, Kind::Timed, &stored)
            }
        }
    }

    /// Combines the operands at the cursor into one piece, and emits it.
    fn operands(
        &mut self,
        seq: Seq,
        circumstances: Circumstances,
        mut expires: Option<Time>,
        sink: &mut Sink<'_>,
    ) -> Result<()> {
        self.piece.clear();
        let (_, _, value) = Timed::of(self.input.kind(), self.input.value());
        self.piece.extend_from_slice(value);
        self.input.next()?;
        if let Some(operator) = self.rules.operator.clone() {
            while self.on_key() {
                let (kind, until, value) = Timed::of(self.input.kind(), self.input.value());
                let is_expired = until.is_some_and(|until| until <= self.rules.now);
                let together = operator.times_elements() || until == expires;
                if kind != Kind::Operand || !(is_expired || together) {
                    break;
                }
                let older = self.input.seq();
                if !is_expired && !operator.combine(&self.key, &mut self.piece, seq, value, older) {
                    break;
                }
                if !is_expired {
                    // A part that never expires outlives the others; but some of the elements
                    // expire.
                    let never = MAX_TIME;
                    expires = match (expires, until) {
                        (None, None) => None,
                        (a, b) => Some(a.unwrap_or(never).max(b.unwrap_or(never))),
                    };
                }
                self.input.next()?;
            }
            if let Some(left) =
                expires.and_then(|_| operator.prune(&self.key, &self.piece, self.rules.now))
            {
                self.piece = left;
            }
            let last = !self.on_key() && self.is_oldest();
            if !operator.finish(&self.key, seq, &mut self.piece, last) {
                return Ok(());
            }
        }
        let entry = FilteredEntry {
            key: &self.key,
            seq,
            kind: Kind::Operand,
            value: &self.piece,
            expires,
        };
        let (rules, oldest) = (&mut self.rules, &mut self.oldest);
        match decide(circumstances, || filtered(rules, entry, oldest)) {
            Fate::Keep => {}
            Fate::Rewrite(value) => self.piece = value,
            Fate::Delete(_) | Fate::Drop(_) => return Ok(()),
        }
        self.emit_held(sink)?;
        self.emit(seq, Kind::Operand, expires, &self.piece, sink)
    }

    /// Emits the held-back tombstones.
    fn emit_held(&mut self, sink: &mut Sink<'_>) -> Result<()> {
        for seq in self.held.drain(..) {
            sink(&self.key, seq, Kind::Delete, &[])?;
        }
        Ok(())
    }

    fn report(&mut self, seq: Seq) {
        if let Some(reported) = &mut self.rules.reported {
            reported.insert(seq);
        }
    }
}

/// Calls the tree's compaction filter, if there is one. `oldest` caches `is_oldest` for the key.
fn filtered(
    rules: &mut Rules<'_>,
    entry: FilteredEntry<'_>,
    oldest: &mut Option<bool>,
) -> Decision {
    let is_oldest = rules.is_oldest;
    match &mut rules.filter {
        Some(filter) => {
            let key = entry.key;
            filter.decide(entry, &mut || *oldest.get_or_insert_with(|| is_oldest(key)))
        }
        None => Decision::Keep,
    }
}

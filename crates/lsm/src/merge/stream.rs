//! What of merged entries survives a flush or a merge.
//!
//! Readers pin the components they read, so a merge need not keep versions for them: of a key's
//! entries, from newest to oldest,
//! - operands are combined piece by piece by the tree's [`MergeOperator`] and kept;
//! - the first `versions` puts and deletes are kept; with one version (the usual case) that is the newest;
//! - everything older is dropped, and told to the observer;
//! - a delete is dropped too when no older component can hold its key;
//! - a put whose sequence number is known to be over is left out, as if it were not there.
//!
//! At most one operand piece is in memory, however long a key's list is.

use std::sync::Arc;

use super::{Dropped, Judge, Judged, MergeObserver, MergeOperator, Verdict};
use crate::cursor::Cursor;
use crate::entry::{Kind, Seq};
use crate::error::Result;
use crate::obsolete::{Over, SeqSet};

/// The rules of one tree for one merge.
pub(crate) struct Rules<'a> {
    pub(crate) operator: Option<Arc<dyn MergeOperator>>,
    pub(crate) judge: Option<Box<dyn Judge>>,
    pub(crate) observer: Option<Arc<dyn MergeObserver>>,
    pub(crate) versions: usize,
    /// True when no component older than the merged ones can hold the key.
    pub(crate) is_oldest: &'a dyn Fn(&[u8]) -> bool,
    /// Writes that are over, whose puts are left out.
    pub(crate) over: Over,
    /// Takes the numbers of the puts that are dropped because newer ones are there.
    pub(crate) told: Option<&'a mut SeqSet>,
    /// Puts of a key that was written since this number are not dropped, however many newer ones there
    /// are: whoever goes through the entries must see what superseded what.
    pub(crate) repaired: Seq,
}

/// Pulls entries out of a cursor and hands those that survive to a sink.
pub(crate) struct MergeStream<'a, C> {
    input: C,
    rules: Rules<'a>,
    key: Vec<u8>,
    piece: Vec<u8>,
}

/// Where surviving entries go. Returns an error to abandon the merge.
pub(crate) type Sink<'s> = dyn FnMut(&[u8], Seq, Kind, &[u8]) -> Result<()> + 's;

impl<'a, C: Cursor> MergeStream<'a, C> {
    /// `input` must stand on its first entry.
    pub(crate) fn new(input: C, rules: Rules<'a>) -> MergeStream<'a, C> {
        MergeStream {
            input,
            rules,
            key: Vec::new(),
            piece: Vec::new(),
        }
    }

    /// Runs the merge to its end.
    pub(crate) fn run(&mut self, sink: &mut Sink<'_>) -> Result<()> {
        while self.input.valid() {
            self.key.clear();
            self.key.extend_from_slice(self.input.key());
            self.one_key(sink)?;
        }
        match &self.rules.observer {
            Some(observer) => observer.finish(),
            None => Ok(()),
        }
    }

    fn on_key(&self) -> bool {
        self.input.valid() && self.input.key() == self.key.as_slice()
    }

    fn one_key(&mut self, sink: &mut Sink<'_>) -> Result<()> {
        let mut kept = 0;
        let mut newest_kept = 0;
        let newest = self.input.seq();
        // An answer that is only needed for deletes and operands, and costs a search.
        let mut oldest = None;
        while self.on_key() {
            let (seq, kind) = (self.input.seq(), self.input.kind());
            if kind == Kind::Put && self.rules.over.contains(seq) {
                self.input.next()?;
                continue;
            }
            if kept >= self.rules.versions.max(1) {
                if kind == Kind::Put && newest > self.rules.repaired {
                    sink(&self.key, seq, kind, self.input.value())?;
                    self.input.next()?;
                    continue;
                }
                self.tell_dropped(newest_kept)?;
                self.input.next()?;
                continue;
            }
            match kind {
                Kind::Operand => {
                    self.operands(seq, &mut oldest, sink)?;
                    continue;
                }
                Kind::Delete => {
                    kept += 1;
                    newest_kept = seq;
                    let is_oldest =
                        *oldest.get_or_insert_with(|| (self.rules.is_oldest)(&self.key));
                    // A put that is kept for the repair must stay hidden.
                    let hides = newest > self.rules.repaired || self.rules.versions > 1;
                    if is_oldest && !hides {
                        self.tell_dropped(seq)?;
                    } else {
                        sink(&self.key, seq, Kind::Delete, &[])?;
                    }
                }
                Kind::Put => {
                    kept += 1;
                    newest_kept = seq;
                    let entry = Judged {
                        key: &self.key,
                        seq,
                        kind,
                        value: self.input.value(),
                    };
                    match judge(
                        &mut self.rules.judge,
                        entry,
                        &mut oldest,
                        self.rules.is_oldest,
                    ) {
                        Verdict::Keep => sink(&self.key, seq, kind, self.input.value())?,
                        Verdict::Rewrite(value) => sink(&self.key, seq, kind, &value)?,
                        Verdict::Drop => {
                            let is_oldest =
                                *oldest.get_or_insert_with(|| (self.rules.is_oldest)(&self.key));
                            if !is_oldest || self.rules.versions > 1 {
                                sink(&self.key, seq, Kind::Delete, &[])?;
                            }
                            self.tell_dropped(seq)?;
                        }
                    }
                }
            }
            self.input.next()?;
        }
        Ok(())
    }

    /// Combines operands from the cursor's place on into one piece, and stores it.
    fn operands(&mut self, seq: Seq, oldest: &mut Option<bool>, sink: &mut Sink<'_>) -> Result<()> {
        self.piece.clear();
        self.piece.extend_from_slice(self.input.value());
        self.input.next()?;
        let Some(operator) = self.rules.operator.clone() else {
            return self.store_piece(seq, oldest, sink);
        };
        while self.on_key()
            && self.input.kind() == Kind::Operand
            && operator.combine(
                &self.key,
                &mut self.piece,
                seq,
                self.input.value(),
                self.input.seq(),
            )
        {
            self.input.next()?;
        }
        let last =
            !self.on_key() && *oldest.get_or_insert_with(|| (self.rules.is_oldest)(&self.key));
        if operator.finish(&self.key, seq, &mut self.piece, last) {
            self.store_piece(seq, oldest, sink)?;
        }
        Ok(())
    }

    fn store_piece(
        &mut self,
        seq: Seq,
        oldest: &mut Option<bool>,
        sink: &mut Sink<'_>,
    ) -> Result<()> {
        let (key, kind, value) = (&self.key, Kind::Operand, &self.piece);
        let entry = Judged {
            key,
            seq,
            kind,
            value,
        };
        match judge(&mut self.rules.judge, entry, oldest, self.rules.is_oldest) {
            Verdict::Keep => sink(key, seq, kind, value),
            Verdict::Rewrite(value) => sink(key, seq, kind, &value),
            Verdict::Drop => Ok(()),
        }
    }

    fn tell_dropped(&mut self, shadowed_by: Seq) -> Result<()> {
        if let (Some(told), Kind::Put) = (&mut self.rules.told, self.input.kind()) {
            told.insert(self.input.seq());
        }
        match &self.rules.observer {
            Some(observer) => observer.dropped(Dropped {
                key: &self.key,
                seq: self.input.seq(),
                kind: self.input.kind(),
                value: self.input.value(),
                shadowed_by,
            }),
            None => Ok(()),
        }
    }
}

/// Asks the judge, if there is one. `oldest` is the answer of `is_oldest` for the key, once known.
fn judge(
    judge: &mut Option<Box<dyn Judge>>,
    entry: Judged<'_>,
    oldest: &mut Option<bool>,
    is_oldest: &dyn Fn(&[u8]) -> bool,
) -> Verdict {
    let key = entry.key;
    match judge {
        Some(judge) => judge.judge(entry, &mut || *oldest.get_or_insert_with(|| is_oldest(key))),
        None => Verdict::Keep,
    }
}

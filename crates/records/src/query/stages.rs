//! The stages that the executors of a query share. Each executor (pages, answers in bulk, counts,
//! versions) decides where its candidates come from and what becomes of its answers; the stages in
//! between are the same for all:
//!
//! 1. *scan* ([`ScanMatching`](super::scan_matching::ScanMatching)): the records themselves, if no
//!    index helps;
//! 2. *sort out* ([`View::leave_out_noted`], [`Validity`](crate::maintenance::Validity)): drops
//!    candidates that are known to be obsolete;
//! 3. *fetch* ([`Fetch`]): reads the newest record of each key. A candidate is current if the write
//!    of that record made its index entry; obsolete candidates are noted for read repair;
//! 4. *admit* ([`Admission`]): drops expired records, and those that do not satisfy the conditions
//!    that the index has not answered.
//!
//! **Invariant.** Every answer has passed stages 3 and 4, unless stage 2 has decided for certain
//! and stage 4 has nothing left to decide (then the set of expired writes decides expiry). So an
//! index that offers too many candidates costs time, not correctness.

use std::ops::ControlFlow;

use esker_lsm::coding::Own;
use esker_lsm::{Component, Cost, Expected, LookupOptions, Seq, Slice, Snapshot};
use esker_model::query::Compiled;
use esker_model::record::RecordRef;

use super::explain::Steps;
use crate::bodies::{self, Bodies};
use crate::catalog::Layout;
use crate::error::Result;
use crate::index::Candidate;
use crate::maintenance;
use crate::record::parse;
use crate::store::{View, has_expired};

/// The decision of stage 4 about a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Admitted,
    Expired,
    /// A condition does not hold.
    Discarded,
}

/// Stage 4: which records of current candidates answer the query.
#[derive(Clone, Copy)]
pub(super) struct Admission<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) layout: &'a Layout,
    pub(super) compiled: &'a Compiled,
    /// True if the conditions cannot be decided without the JSON ([`needs_bodies`]).
    pub(super) needs_bodies: bool,
    /// The constraint whose index gave the candidates.
    pub(super) driver: Option<usize>,
    /// True if the index has answered all conditions.
    pub(super) all_answered: bool,
}

/// True if a head is not enough to decide the conditions on a record: a path is not declared, or
/// was declared after some records were stored, or a condition needs more than the index's answer.
pub(super) fn needs_bodies(layout: &Layout, compiled: &Compiled) -> bool {
    let mut constraints = compiled.constraints.iter();
    let is_open = |at: usize| {
        let attribute = layout.attributes.own(at);
        !layout.stored.in_all_records(attribute.id)
    };
    bodies::are_apart(layout)
        && (!compiled.undeclared.is_empty()
            || constraints.any(|constraint| !constraint.answered || is_open(constraint.attribute)))
}

impl<'a> Admission<'a> {
    /// For records whose conditions no index has answered.
    pub(super) fn of_all(view: &'a View, compiled: &'a Compiled) -> Admission<'a> {
        Admission {
            snapshot: &view.snapshot,
            layout: &view.layout,
            compiled,
            needs_bodies: needs_bodies(&view.layout, compiled),
            driver: None,
            all_answered: false,
        }
    }

    pub(super) fn decide(&self, stored: &[u8]) -> Result<Verdict> {
        if has_expired(self.snapshot, stored) {
            return Ok(Verdict::Expired);
        }
        if self.all_answered {
            return Ok(Verdict::Admitted);
        }
        let record = parse(stored)?;
        if (self.compiled).confirm(&record, &self.layout.shape, self.driver) {
            Ok(Verdict::Admitted)
        } else {
            Ok(Verdict::Discarded)
        }
    }

    /// True if the record answers the query; otherwise counts the reason in `steps`.
    pub(super) fn admits(&self, stored: &[u8], steps: &mut Steps) -> Result<bool> {
        let verdict = self.decide(stored)?;
        match verdict {
            Verdict::Admitted => {}
            Verdict::Expired => steps.obsolete += 1,
            Verdict::Discarded => steps.discarded += 1,
        }
        Ok(verdict == Verdict::Admitted)
    }
}

/// Receives the results of a scan.
pub(super) trait TakeScanned {
    /// False if the caller does not need the record of this write.
    fn wants(&mut self, _seq: Seq) -> bool {
        true
    }

    /// Receives a record that answers the query: the whole record, or its head if the caller said
    /// that heads suffice.
    fn take(
        &mut self,
        key: &[u8],
        seq: Seq,
        record: &mut dyn FnMut() -> Slice,
    ) -> Result<ControlFlow<()>>;
}

/// The bodies that a query needs of records that lack them.
#[derive(Clone, Copy)]
pub(super) enum Needs<'a> {
    None,
    /// Of records that answer the query: their heads decide all conditions.
    Admitted(Admission<'a>),
    All,
}

impl<'a> Needs<'a> {
    /// `given_out` is true if the caller needs whole records.
    pub(super) fn of(admission: Admission<'a>, given_out: bool) -> Needs<'a> {
        if !bodies::are_apart(admission.layout) {
            Needs::None
        } else if admission.needs_bodies && !admission.all_answered {
            Needs::All
        } else if given_out {
            Needs::Admitted(admission)
        } else {
            Needs::None
        }
    }

    /// The set for reading them.
    pub(super) fn bodies<'b>(
        &self,
        layout: &'b Layout,
        snapshot: &'b Snapshot,
    ) -> Result<Bodies<'b>> {
        match self {
            Needs::None => Ok(Bodies::not_needed(snapshot)),
            _ => Bodies::new(layout, snapshot),
        }
    }

    /// True if the body of `stored` is missing and needed.
    pub(super) fn wants(&self, stored: &[u8]) -> Result<bool> {
        match self {
            Needs::None => Ok(false),
            Needs::All => Ok(RecordRef::lacks_body(stored)),
            Needs::Admitted(admission) => {
                Ok(RecordRef::lacks_body(stored) && admission.decide(stored)? == Verdict::Admitted)
            }
        }
    }
}

/// Stage 3: the records of candidates.
pub(super) struct Fetch<'a> {
    pub(super) view: &'a View,
    pub(super) components: &'a [Component],
    /// True if all candidates are known to be current.
    pub(super) known: bool,
    pub(super) options: LookupOptions,
    pub(super) cost: &'a Cost,
    /// The bodies that are read.
    pub(super) needs: Needs<'a>,
    /// The cost of reading these bodies.
    pub(super) body_cost: &'a Cost,
}

/// Receives the records of current candidates.
pub(super) trait TakeCurrent {
    /// Receives the record of the candidate at index `at`.
    fn take(&mut self, at: usize, record: Slice) -> Result<()>;

    /// Called after each batch, whose records arrived in any order.
    fn end_batch(&mut self) -> Result<ControlFlow<()>> {
        Ok(ControlFlow::Continue(()))
    }
}

impl<F: FnMut(usize, Slice)> TakeCurrent for F {
    fn take(&mut self, at: usize, record: Slice) -> Result<()> {
        self(at, record);
        Ok(())
    }
}

/// The counts of a fetch.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Fetched {
    /// Candidates that were looked up.
    candidates: u64,
    /// Of these, current candidates.
    current: u64,
    /// Records that were read, current or not.
    pub(super) read: usize,
    /// Bytes of these records.
    pub(super) bytes: usize,
}

impl Fetched {
    pub(super) fn count_in(&self, steps: &mut Steps) {
        let stale = self.candidates - self.current;
        steps.fetched += self.candidates;
        steps.obsolete += stale;
        steps.wasted += stale;
    }
}

impl Fetch<'_> {
    /// Reads the records of candidates by key (ascending) and write number. A candidate is current
    /// if its write also made the record; then the values of its index entry hold without a check.
    pub(super) fn run(
        &self,
        keys: &[&[u8]],
        seqs: &[Seq],
        to: &mut impl TakeCurrent,
    ) -> Result<Fetched> {
        debug_assert_eq!(keys.len(), seqs.len(), "a number for each key");
        let snapshot = &self.view.snapshot;
        let expected = if self.known {
            Expected::Exactly(seqs)
        } else {
            Expected::AtLeast(seqs)
        };
        let mut fetched = Fetched::default();
        // If the dataset keeps several versions, a replaced version is not obsolete.
        let notes = self.view.layout.stored.settings.versions == 1;
        let layout = &self.view.layout;
        let mut bodies = self.needs.bodies(layout, snapshot)?;
        let mut options = self.options;
        // The bodies of a batch must fit into the budget, too.
        options.batch_bytes = bodies.share_of_heads(self.components, options.batch_bytes);
        let mut lookup = snapshot.lookup(self.components, keys, expected, options, self.cost);
        loop {
            let mut failed = Ok(());
            let batch = lookup.next_batch(&mut |at, found| {
                fetched.read += 1;
                fetched.bytes += found.value.len();
                let (key, seq) = (*keys.own(at), *seqs.own(at));
                if found.seq == seq {
                    fetched.current += 1;
                    if failed.is_ok() {
                        failed = match self.needs.wants(&found.value) {
                            Err(error) => Err(error),
                            Ok(true) => bodies.add(at, key, seq, &found.value),
                            Ok(false) => to.take(at, found.value),
                        };
                    }
                } else if notes {
                    self.view.note_obsolete(seq, found.seq);
                }
            });
            let Some(positions) = batch? else { break };
            failed?;
            bodies.read(self.options, self.body_cost, &mut |at, record| {
                fetched.bytes += record.len();
                to.take(at, record)
            })?;
            fetched.candidates += positions.len() as u64;
            if to.end_batch()?.is_break() {
                break;
            }
        }
        Ok(fetched)
    }
}

/// Read repair: stage 3 notes obsolete writes, and stage 2 of later queries drops their candidates.
impl View {
    /// Notes that the write `seq`, which an index entry names, was replaced by the write `by`,
    /// which the snapshot sees. Only under strategies whose queries note obsolete writes.
    pub(crate) fn note_obsolete(&self, seq: Seq, by: Seq) {
        if self.notes() && seq < by {
            self.dataset.current.findings.note_obsolete(seq, by);
        } else if seq > by {
            // The newest entry of the key is older than the index entry.
            self.note_dangling(seq);
        }
    }

    /// Notes that an index entry of the write `seq` exists, but no record of this write.
    pub(crate) fn note_dangling(&self, seq: Seq) {
        if self.notes() {
            self.dataset.current.findings.note_dangling(seq);
        }
    }

    /// Drops candidates that are known to be obsolete.
    pub(super) fn leave_out_noted(&self, candidates: &mut Vec<Candidate>) {
        if let Some(notes) = self.dataset.current.findings.notes() {
            candidates.retain(|candidate| !notes.is_obsolete(candidate.seq, self.seq()));
        }
    }

    fn notes(&self) -> bool {
        self.layout.superseded.is_some()
            && maintenance::of(self.layout.stored.settings.maintenance).notes_what_queries_find()
    }
}

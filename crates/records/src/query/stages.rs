//! The stages that the executors of a query share. Each executor (pages, answers in bulk, counts,
//! versions) has its own source of candidates and its own use of the answers; the stages between
//! them are the same for all:
//!
//! 1. *scan* ([`ScanMatching`](super::scan_matching::ScanMatching)): the records themselves, if no
//!    index helps;
//! 2. *validate* ([`View::drop_noted`], [`Validity`](crate::maintenance::Validity)): drops
//!    candidates that are known to be obsolete;
//! 3. *fetch* ([`Fetch`]): reads the newest record of each key. A candidate is current if the write
//!    of that record made its index entry; obsolete candidates are noted for read repair;
//! 4. *admit* ([`Admission`]): drops expired records, and those that do not satisfy the conditions
//!    that the index has not answered.
//!
//! **Invariant.** Every answer has passed stages 3 and 4, unless stage 2 has decided for certain
//! which candidates are current and the indexes have answered all conditions (then the set of
//! expired writes decides expiry). So an index that offers too many candidates costs time, not
//! correctness.

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
pub(super) enum Decision {
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
    let mut constraints = compiled.of_tests();
    let heads_may_lack = |at: usize| {
        let attribute = layout.attributes.own(at);
        !layout.stored.in_all_records(attribute.id)
    };
    bodies::are_separate(layout)
        && (!compiled.undeclared.is_empty()
            || constraints.any(|(_, constraint)| {
                !constraint.answered || heads_may_lack(constraint.attribute)
            }))
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

    /// The decision about the record of a current candidate, which may be a head if heads decide
    /// the conditions.
    ///
    /// # Errors
    /// Damage if the record is malformed.
    pub(super) fn decide(&self, stored: &[u8]) -> Result<Decision> {
        if has_expired(self.snapshot, stored) {
            return Ok(Decision::Expired);
        }
        if self.all_answered {
            return Ok(Decision::Admitted);
        }
        let record = parse(stored)?;
        if (self.compiled).confirm(&record, &self.layout.shape, self.driver) {
            Ok(Decision::Admitted)
        } else {
            Ok(Decision::Discarded)
        }
    }

    /// True if the record answers the query; otherwise counts the reason in `steps`.
    pub(super) fn admits(&self, stored: &[u8], steps: &mut Steps) -> Result<bool> {
        let decision = self.decide(stored)?;
        match decision {
            Decision::Admitted => {}
            Decision::Expired => steps.obsolete += 1,
            Decision::Discarded => steps.discarded += 1,
        }
        Ok(decision == Decision::Admitted)
    }
}

/// Receives the results of a scan.
pub(super) trait TakeScanned {
    /// False if the receiver does not need the record of this write.
    fn wants(&mut self, _seq: Seq) -> bool {
        true
    }

    /// Receives a record that answers the query: the whole record, or its head if the answer is of
    /// [`AnswerContent::Keys`]. A break ends the scan.
    fn take(
        &mut self,
        key: &[u8],
        seq: Seq,
        record: &mut dyn FnMut() -> Slice,
    ) -> Result<ControlFlow<()>>;
}

/// The content of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AnswerContent {
    /// Whole records.
    Records,
    /// Keys, or their number.
    Keys,
}

/// The order of an answer that is not in order of recency.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BulkOrder {
    /// Whatever order is the quickest.
    Any,
    /// By primary key, ascending.
    Key,
}

/// The bodies that a query needs of records that lack them.
#[derive(Clone, Copy)]
pub(super) enum Needs<'a> {
    /// None: all records have their bodies, or the query needs heads alone.
    None,
    /// Those of records that answer the query: their heads decide all conditions.
    Admitted(Admission<'a>),
    /// Those of all candidates: the conditions need the JSON.
    All,
}

impl<'a> Needs<'a> {
    /// The bodies that `admission` and an answer of this content need.
    pub(super) fn of(admission: Admission<'a>, content: AnswerContent) -> Needs<'a> {
        if !bodies::are_separate(admission.layout) {
            return Needs::None;
        }
        if admission.needs_bodies && !admission.all_answered {
            return Needs::All;
        }
        match content {
            AnswerContent::Records => Needs::Admitted(admission),
            AnswerContent::Keys => Needs::None,
        }
    }

    /// An empty set of bodies, with which they are read.
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
            Needs::Admitted(admission) => Ok(
                RecordRef::lacks_body(stored) && admission.decide(stored)? == Decision::Admitted
            ),
        }
    }
}

/// Stage 3: the records of candidates.
pub(super) struct Fetch<'a> {
    pub(super) view: &'a View,
    pub(super) components: &'a [Component],
    /// True if all candidates are known to be current.
    pub(super) all_current: bool,
    pub(super) options: LookupOptions,
    pub(super) cost: &'a Cost,
    /// The bodies that are read.
    pub(super) needs: Needs<'a>,
    /// The cost of reading these bodies.
    pub(super) body_cost: &'a Cost,
}

/// Receives the records of current candidates.
pub(super) trait TakeCurrent {
    /// Receives the record of the current candidate at index `at`.
    fn take(&mut self, at: usize, record: Slice) -> Result<()>;

    /// Called after each batch, whose records arrived in any order. A break ends the fetch.
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
    /// Adds the counts to those of the query.
    pub(super) fn count_in(&self, steps: &mut Steps) {
        let stale = self.candidates - self.current;
        steps.fetched += self.candidates;
        steps.obsolete += stale;
        steps.wasted += stale;
    }
}

impl Fetch<'_> {
    /// Reads the records of candidates, given by key (ascending) and write number, and passes those
    /// of current candidates to `to`. A candidate is current if its write also made the record;
    /// then the values of its index entry hold without a check.
    ///
    /// # Errors
    /// Any read error; damage if a record is malformed, or its body is missing; any error of `to`.
    pub(super) fn run(
        &self,
        keys: &[&[u8]],
        seqs: &[Seq],
        to: &mut impl TakeCurrent,
    ) -> Result<Fetched> {
        debug_assert_eq!(keys.len(), seqs.len(), "a number for each key");
        debug_assert!(keys.is_sorted(), "keys are looked up in ascending order");
        let snapshot = &self.view.snapshot;
        let expected = if self.all_current {
            Expected::Exactly(seqs)
        } else {
            Expected::AtLeast(seqs)
        };
        let mut fetched = Fetched::default();
        // If the dataset keeps several versions, a replaced version is not obsolete.
        let notes_obsolete = self.view.layout.stored.settings.versions == 1;
        let layout = &self.view.layout;
        let mut bodies = self.needs.bodies(layout, snapshot)?;
        let mut options = self.options;
        // The bodies of a batch must fit into the budget, too.
        options.batch_bytes = bodies.share_of_heads(self.components, options.batch_bytes);
        let mut lookup = snapshot.lookup(self.components, keys, expected, options, self.cost);
        loop {
            let mut taken = Ok(());
            let batch = lookup.next_batch(&mut |at, found| {
                fetched.read += 1;
                fetched.bytes += found.value.len();
                let (key, seq) = (*keys.own(at), *seqs.own(at));
                if found.seq == seq {
                    fetched.current += 1;
                    if taken.is_ok() {
                        taken = match self.needs.wants(&found.value) {
                            Err(error) => Err(error),
                            Ok(true) => bodies.add(at, key, seq, &found.value),
                            Ok(false) => to.take(at, found.value),
                        };
                    }
                } else if notes_obsolete {
                    self.view.note_obsolete(seq, found.seq);
                }
            });
            let Some(positions) = batch? else { break };
            taken?;
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
        if self.queries_note() && seq < by {
            self.dataset.state.findings.note_obsolete(seq, by);
        } else if seq > by {
            // The newest entry of the key is older than the index entry.
            self.note_dangling(seq);
        }
    }

    /// Notes that an index entry of the write `seq` exists, but no record of this write.
    pub(crate) fn note_dangling(&self, seq: Seq) {
        if self.queries_note() {
            self.dataset.state.findings.note_dangling(seq);
        }
    }

    /// Drops candidates that earlier queries have noted as obsolete.
    pub(super) fn drop_noted(&self, candidates: &mut Vec<Candidate>) {
        if let Some(notes) = self.dataset.state.findings.notes() {
            candidates.retain(|candidate| !notes.is_obsolete(candidate.seq, self.seq()));
        }
    }

    /// True if queries note obsolete writes under the strategy of the dataset.
    fn queries_note(&self) -> bool {
        self.layout.superseded.is_some()
            && maintenance::strategy_of(self.layout.stored.settings.maintenance)
                .notes_what_queries_find()
    }
}

//! The answer of a query, found page by page.

use std::collections::{HashSet, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;

use esker_lsm::{Account, Component, Cost, Loan, LookupOptions, Seq, SeqSet, Slice};
use esker_model::Key;
use esker_model::record::RecordRef;
use esker_model::schema::Path;

use super::bulk::BulkOrder;
use super::explain::{Compared, Explain, ExplainedCost, ExplainedIndex, ExplainedPlan, Steps};
use super::fetch::Size;
use super::plan::{self, Driver, Plan};
use super::predicate::{self, Predicates};
use super::stages::{self, Admission, TakeScanned};
use super::{Order, PageToken, Query};
use crate::catalog::Attribute;
use crate::error::{Error, Result};
use crate::index::{self, Best, CURRENT, Candidate, Looks, Lookup, Window};
use crate::maintenance::{Validation, Validity};
use crate::record::Record;
use crate::store::View;

/// The most candidates that are requested at a time.
const PAGE: usize = 256 << 10;

/// The most candidates whose records are fetched together where there is a limit, and how many at first:
/// until their size is known.
const FETCH: usize = 1024;
const FIRST_FETCH: usize = 64;

/// A record that answers the query.
pub(super) struct Ready {
    seq: Seq,
    key: Vec<u8>,
    /// The stored record, unless keys alone are wanted.
    value: Option<Slice>,
}

/// Matching records in order, found during iteration.
pub(crate) struct Answer {
    pub(super) snapshot: View,
    pub(super) components: Vec<Component>,
    pub(super) predicates: Predicates,
    pub(super) plan: Plan,
    pub(super) order: Order,
    pub(super) remaining: Option<usize>,
    /// The last candidate that was taken from the index.
    pub(super) after: Option<Seq>,
    /// The last record that was given out.
    given: Option<Seq>,
    pub(super) exhausted: bool,
    /// The candidates are from a scan: current, not expired, and the conditions hold.
    pub(super) scanned: bool,
    failed: bool,
    pending: VecDeque<Candidate>,
    ready: VecDeque<Ready>,
    pub(super) validity: Arc<Validity>,
    /// What has expired: for answers that read no records.
    pub(super) expired: Option<Arc<SeqSet>>,
    validation: Validation,
    /// Keys alone are wanted: records are fetched only where nothing else decides.
    pub(super) keys_only: bool,
    /// The tree of keys is probed before records are fetched.
    pub(super) probes_keys: bool,
    /// How many candidates are fetched together, and how.
    fetch: usize,
    /// The memory of the page, where it may be large.
    loan: Option<Loan>,
    /// Bytes of records that may be held at a time.
    pub(super) room: usize,
    pub(super) lookup: LookupOptions,
    pub(super) steps: Steps,
    pub(super) data_cost: Cost,
    /// Of records that are stored by place, looked up there.
    pub(super) place_cost: Cost,
    pub(super) index_cost: Cost,
    pub(super) keys_cost: Cost,
    notes: Vec<String>,
}

impl Answer {
    pub(super) fn new(mut query: Query) -> Result<Answer> {
        query.snapshot.snapshot.check_open()?;
        let condition = query.condition.take();
        let is_conditional = condition.is_some();
        let layout = &*query.snapshot.layout;
        let snapshot = &query.snapshot.snapshot;
        let (data_cost, index_cost, keys_cost) =
            (snapshot.cost(), snapshot.cost(), snapshot.cost());
        let lookup = Lookup {
            layout,
            snapshot,
            data_cost: &data_cost,
            index_cost: &index_cost,
            looks: Looks::default(),
        };
        let mut has_other = |attribute: &Attribute| predicate::has_other(&lookup, attribute);
        let predicates = Predicates::new(layout, condition, &mut has_other)?;
        let plan = plan::choose(&lookup, &predicates)?;
        let mut driving: Vec<usize> = plan
            .driver
            .predicates()
            .iter()
            .filter_map(|at| Some(predicates.declared.get(*at)?.attribute))
            .collect();
        driving.sort_unstable();
        driving.dedup();
        let driving: Vec<&Attribute> = driving
            .into_iter()
            .filter_map(|at| layout.attributes.get(at))
            .collect();
        let kept = &query.snapshot.dataset.current.kept_filter;
        let validity = Validity::new(snapshot, layout, &driving, kept);
        let probes_keys = match query.validation {
            Validation::Direct => false,
            Validation::Timestamp => validity.probes_keys(),
            Validation::Auto => {
                let wasteful = query.snapshot.dataset.current.usage.is_wasteful();
                // Records that come with their index entries need not be fetched.
                let brings = (driving.first()).is_some_and(|a| index::brings_records(a.kind));
                validity.probes_keys() && (query.keys_only || wasteful || brings)
            }
        };
        let expired = match query.keys_only {
            true => query.snapshot.expired()?,
            false => None,
        };
        let mut notes = Vec::new();
        if plan.driver == Driver::Scan && is_conditional {
            let by_key = !predicates.keys.is_all();
            let keys = layout.key_paths();
            let is_key = |path: &Path| by_key && keys.contains(path);
            let mut paths: Vec<String> = (predicates.undeclared.iter())
                .filter(|path| !is_key(path))
                .map(|p| format!("`{p}`"))
                .collect();
            let declared = predicates
                .declared
                .iter()
                .filter_map(|p| layout.attributes.get(p.attribute))
                .filter(|attribute| !attribute.kind.is_indexed() && !is_key(&attribute.path));
            paths.extend(declared.map(|attribute| format!("`{}`", attribute.path)));
            let mut seen = HashSet::new();
            paths.retain(|path| seen.insert(path.clone()));
            match (paths.is_empty(), by_key) {
                (false, _) => {
                    let paths = paths.join(", ");
                    notes.push(format!("no index on {paths}: answered by a scan"));
                }
                (true, true) => {}
                // As of `not` and `is null`, of which indexes know nothing.
                (true, false) => {
                    notes.push("no index answers this condition: answered by a scan".to_owned());
                }
            }
        }
        let empty = predicates.is_never();
        let after = query.after.map(|token| token.0);
        Ok(Answer {
            components: snapshot.components(layout.data),
            predicates,
            plan,
            order: query.order,
            remaining: query.limit,
            after,
            given: after,
            exhausted: empty || query.limit == Some(0),
            scanned: false,
            failed: false,
            pending: VecDeque::new(),
            ready: VecDeque::new(),
            keys_only: query.keys_only,
            validation: query.validation,
            probes_keys,
            validity: Arc::new(validity),
            expired,
            fetch: FIRST_FETCH,
            loan: None,
            room: 0,
            lookup: query.lookup,
            steps: Steps::default(),
            place_cost: snapshot.cost(),
            data_cost,
            index_cost,
            keys_cost,
            notes,
            snapshot: query.snapshot,
        })
    }

    /// Takes these candidates, which are all that there are, in their order instead of those of the driver, whose
    /// predicate they meet.
    pub(super) fn take_candidates(&mut self, candidates: Vec<Candidate>) {
        self.steps.rounds += 1;
        self.steps.candidates += candidates.len() as u64;
        self.pending = candidates.into();
        self.exhausted = true;
    }

    /// Remarks about how the query is answered, for people.
    pub(crate) fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }

    /// Where the answer stands: [`Query::after`] with it continues from here.
    pub(crate) fn token(&self) -> Option<PageToken> {
        self.given.map(PageToken)
    }

    /// What the query did so far and what it cost.
    pub(crate) fn explain(&self) -> Explain {
        let layout = &self.snapshot.layout;
        let index = |at: &usize| {
            let predicate = self.predicates.declared.get(*at);
            let attribute = predicate.and_then(|p| layout.attributes.get(p.attribute));
            ExplainedIndex {
                index: attribute.map(|a| a.path.to_string()).unwrap_or_default(),
                kind: attribute.map(|a| a.kind.to_string()).unwrap_or_default(),
                condition: self.predicates.text(*at),
            }
        };
        let mut plan = ExplainedPlan::default();
        match &self.plan.driver {
            Driver::Scan => plan.scan = Some(self.predicates.keys.text()),
            Driver::Index(at) => plan.index = Some(index(at)),
            Driver::Union(all) => plan.union = all.iter().map(index).collect(),
        }
        // Without a limit of 0, which reads nothing.
        let is_read = self.exhausted && (self.steps.rounds > 0 || self.steps.candidates > 0);
        let read_to_end = self.plan.driver.single().filter(|_| is_read);
        let compared = self.plan.compared.iter().map(|(at, expected)| Compared {
            condition: index(at).condition,
            expected: *expected,
            found: (read_to_end == Some(*at)).then_some(self.steps.candidates),
        });
        plan.compared = compared.collect();
        Explain {
            plan,
            notes: self.notes.clone(),
            steps: self.steps.clone(),
            cost: ExplainedCost {
                data: (&self.data_cost).into(),
                place: (layout.clustered()).map(|_| (&self.place_cost).into()),
                index: Some((&self.index_cost).into()),
                keys: Some((&self.keys_cost).into()),
            },
        }
    }

    /// Asks the driver for the next candidates.
    fn refill(&mut self) -> Result<()> {
        let layout = &*self.snapshot.layout;
        // With a limit, some more than wanted, for those that turn out to be superseded or not to
        // meet the other conditions; each further round asks for more.
        let want = match self.remaining {
            Some(left) => {
                (left.saturating_add(left / 4)).saturating_mul(1 << self.steps.rounds.min(12))
            }
            None => usize::MAX,
        };
        self.loan = None;
        let shared = &self.snapshot.dataset.shared;
        let is_large = want > FIRST_FETCH;
        self.loan = is_large.then(|| shared.borrow(Account::Queries));
        let small = shared.group.options().memory_budget / 8;
        let bytes = self.loan.as_ref().map_or(small, Loan::bytes);
        self.room = bytes / 4;
        let window = Window {
            order: self.order,
            after: self.after,
            want: want.clamp(1, PAGE),
            bytes: bytes / 2,
        };
        let mut best = Best::new(window).without(self.validity.over());
        let lookup = Lookup {
            layout,
            snapshot: &self.snapshot.snapshot,
            data_cost: &self.data_cost,
            index_cost: &self.index_cost,
            looks: Looks::default(),
        };
        if self.plan.driver == Driver::Scan {
            self.steps.scanned += self.scan_all(&mut best, want)?;
            self.scanned = true;
        }
        for at in self.plan.driver.predicates() {
            let predicate = self.predicates.declared.get(*at);
            let probe = predicate.and_then(|predicate| plan::probe(layout, predicate));
            let Some((index, attribute, sought)) = probe else {
                continue;
            };
            for range in sought.iter().filter(|range| !range.is_empty()) {
                index.candidates(&lookup, attribute, range, &mut best)?;
            }
        }
        self.steps.obsolete += best.passed_over();
        self.steps.candidates += best.passed_over();
        let (candidates, more) = best.finish();
        self.steps.rounds += 1;
        self.steps.candidates += candidates.len() as u64;
        self.after = candidates
            .last()
            .map(|candidate| candidate.seq)
            .or(self.after);
        self.exhausted = !more || candidates.is_empty();
        if let Some(loan) = &mut self.loan {
            let candidates = candidates.iter().map(Candidate::bytes);
            loan.shrink(candidates.sum::<usize>() + 2 * self.room);
        }
        self.pending = candidates.into();
        Ok(())
    }

    /// Offers every record that meets the conditions; how many were looked at.
    fn scan_all(&self, best: &mut Best, want: usize) -> Result<u64> {
        let mut offer = OfferScanned {
            best,
            order: self.order,
            brings: want <= FETCH,
        };
        stages::scan_matching(
            &self.snapshot,
            &self.predicates,
            (BulkOrder::Any, offer.brings && !self.keys_only),
            (&self.data_cost, &self.place_cost),
            &mut offer,
        )
    }

    /// Takes the next candidates through the stages.
    fn advance(&mut self) -> Result<()> {
        let all_answered = self.predicates.is_answered_by(&self.plan.driver);
        // Without records there is nothing to be held.
        let without_records =
            self.keys_only && (self.scanned || all_answered && self.knows_current());
        let mut chunk = self.sort_out(without_records)?;
        if without_records {
            if let Some(expired) = &self.expired {
                chunk.retain(|candidate| !expired.contains(candidate.seq));
            }
            self.ready.extend(chunk.into_iter().map(|candidate| Ready {
                seq: candidate.seq,
                key: candidate.key,
                value: None,
            }));
            return Ok(());
        }
        let mut steps = std::mem::take(&mut self.steps);
        let fetched = self.fetch(&mut chunk, &mut steps);
        let admitted =
            fetched.and_then(|(records, size)| Ok((self.admit(chunk, records, &mut steps)?, size)));
        self.steps = steps;
        let (admitted, size) = admitted?;
        self.adapt(size);
        self.ready.extend(admitted);
        Ok(())
    }

    /// The next candidates, without those that are known to be obsolete.
    fn sort_out(&mut self, without_records: bool) -> Result<Vec<Candidate>> {
        let most = if without_records {
            usize::MAX
        } else {
            self.fetch
        };
        let wanted = self.remaining.unwrap_or(usize::MAX);
        let take = wanted.clamp(1, most).min(self.pending.len());
        let mut chunk: Vec<Candidate> = self.pending.drain(..take).collect();
        self.snapshot.leave_out_noted(&mut chunk);
        self.steps.obsolete += (take - chunk.len()) as u64;
        if self.probes_keys {
            let total = (chunk.len() + self.pending.len()) as u64;
            let before = chunk.len();
            self.validity.retain(&mut chunk, total, &self.keys_cost)?;
            self.steps.probed += before as u64;
            self.steps.obsolete += (before - chunk.len()) as u64;
        }
        Ok(chunk)
    }

    /// How many candidates are fetched together next, by the size of the records that were read.
    fn adapt(&mut self, Size { read, bytes }: Size) {
        let Some(each) = bytes.checked_div(read) else {
            return;
        };
        let (most, bytes) = match self.remaining {
            Some(_) => (FETCH, self.room),
            None => (
                PAGE,
                self.lookup.batch_bytes.clamp(self.room, 2 * self.room),
            ),
        };
        self.fetch = (bytes / (each + 1)).clamp(1, most.min(self.fetch * 4));
    }

    /// What is answered with, in the order of the candidates.
    fn admit(
        &self,
        chunk: Vec<Candidate>,
        records: Vec<Option<Slice>>,
        steps: &mut Steps,
    ) -> Result<Vec<Ready>> {
        let admission = Admission::of(self);
        let mut ready = Vec::with_capacity(records.len());
        for (candidate, record) in chunk.into_iter().zip(records) {
            let Some(value) = record else { continue };
            if admission.admits(&value, steps)? {
                ready.push(Ready {
                    seq: candidate.seq,
                    key: candidate.key,
                    value: (!self.keys_only).then_some(value),
                });
            }
        }
        Ok(ready)
    }

    /// True when records are read to know which candidates are current.
    pub(super) fn is_direct(&self) -> bool {
        self.validation == Validation::Direct
    }

    /// True when it was left to the query how candidates are validated.
    pub(super) fn chooses_validation(&self) -> bool {
        self.validation == Validation::Auto
    }

    /// True when queries have fetched many records in vain.
    pub(super) fn is_wasteful(&self) -> bool {
        self.snapshot.dataset.current.usage.is_wasteful()
    }

    /// True when candidates that have come so far are current.
    pub(super) fn knows_current(&self) -> bool {
        self.probes_keys || self.scanned || self.validity.is_exact()
    }

    /// Gives the memory of the page back.
    fn give_back(&mut self) {
        self.loan = None;
    }

    pub(super) fn step(&mut self) -> Result<Option<Ready>> {
        loop {
            if self.remaining == Some(0) {
                self.give_back();
                return Ok(None);
            }
            if let Some(record) = self.ready.pop_front() {
                self.remaining = self.remaining.map(|left| left - 1);
                self.given = Some(record.seq);
                self.steps.answers += 1;
                return Ok(Some(record));
            }
            if !self.pending.is_empty() {
                self.advance()?;
            } else if self.exhausted {
                self.give_back();
                return Ok(None);
            } else {
                self.refill()?;
            }
        }
    }
}

/// Offers what a scan finds to the best.
struct OfferScanned<'a> {
    best: &'a mut Best,
    order: Order,
    /// Few enough are wanted to bring their records along.
    brings: bool,
}

impl TakeScanned for OfferScanned<'_> {
    fn wants(&mut self, seq: Seq) -> bool {
        let admits = self.best.admits(self.order.rank(seq));
        if !admits && self.best.is_full() {
            self.best.note_skipped();
        }
        admits
    }

    fn take(
        &mut self,
        key: &[u8],
        seq: Seq,
        record: &mut dyn FnMut() -> Slice,
    ) -> Result<ControlFlow<()>> {
        let brings = self.brings;
        let bring = || brings.then(|| (Slice::from(&*record()), CURRENT));
        self.best.offer_with(seq, key, bring);
        Ok(ControlFlow::Continue(()))
    }
}

pub(super) fn parse(value: &[u8]) -> Result<RecordRef<'_>> {
    RecordRef::parse(value).ok_or_else(|| Error::damaged("a stored record is malformed"))
}

impl Iterator for Answer {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Result<Record>> {
        if self.failed {
            return None;
        }
        let next = self.step().and_then(|ready| {
            let value = |ready: Ready| Some((ready.key, ready.seq, ready.value?));
            let record = ready.and_then(value);
            record
                .map(|(key, seq, value)| self.snapshot.record(key, seq, value))
                .transpose()
        });
        self.failed = next.is_err();
        next.transpose()
    }
}

/// The keys of matching records, in order, found during iteration ([`super::Query::keys`]).
pub(crate) struct Keys(pub(super) Answer);

impl Keys {
    /// What the query did so far and what it cost.
    pub(crate) fn explain(&self) -> Explain {
        self.0.explain()
    }

    /// Remarks about how the query is answered, for people.
    pub(crate) fn notes(&self) -> Vec<String> {
        self.0.notes()
    }

    /// Where the answer stands: [`super::Query::after`] with it continues from here.
    pub(crate) fn token(&self) -> Option<PageToken> {
        self.0.token()
    }
}

impl Iterator for Keys {
    type Item = Result<Key>;

    fn next(&mut self) -> Option<Result<Key>> {
        if self.0.failed {
            return None;
        }
        let next = self.0.step();
        self.0.failed = next.is_err();
        let ty = self.0.snapshot.dataset.key_type();
        let key = |ready: Ready| Key::from_encoded(ty, ready.key);
        next.map(|ready| ready.map(key)).transpose()
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.count_use();
        let group = &self.snapshot.dataset.shared.group;
        group.count(&self.data_cost);
        group.count(&self.place_cost);
        group.count(&self.index_cost);
        group.count(&self.keys_cost);
        let steps = &self.steps;
        let usage = &self.snapshot.dataset.current.usage;
        let validated = steps.probed.max(steps.fetched);
        usage.queried(steps.obsolete, validated, self.measured());
    }
}

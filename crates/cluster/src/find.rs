//! Queries. A query answers as of its start ([`View`]): for each key the newest version of that
//! time counts. It finds every record whose write was acknowledged before it began, unless a later
//! write of the same key hides it.

use std::collections::VecDeque;
use std::sync::Arc;

use esker_coding::Seq;
use esker_model::query::{Compiled, NoEstimates, Order, PageToken, Plan, Recency, Request, Shape};
use esker_model::record::RecordRef;

use crate::bound::Bound;
use crate::candidates::Candidates;
use crate::error::{Error, Result};
use crate::given::Given;
use crate::hit::Hit;
use crate::intersect::Filters;
use crate::judge::judge_all;
use crate::pages::Pages;
use crate::probe::Probe;
use crate::scan::Scan;
use crate::shared::Shared;
use crate::sources::{PAGE, Sought};
use crate::useless;
use crate::verdict::{Candidate, Verdict};
use crate::view::{Newest, View};

/// Candidates whose records are read at a time; fewer for the first ones of a small answer.
const TOGETHER: usize = 256;

/// How a query is answered, and what it read.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Explained {
    /// What a scan reads, if no index is read.
    pub scan: Option<String>,
    /// The indexes that are read: path, and the condition that it answers.
    pub indexes: Vec<(String, String)>,
    /// The indexes that are asked for the candidates of these, before records are read: path, and
    /// condition.
    pub intersected: Vec<(String, String)>,
    /// Candidates that such an index has ruled out.
    pub ruled_out: u64,
    /// The paths of the condition that have no index, if that is why it scans.
    pub without_index: Vec<esker_model::schema::Path>,
    /// Index entries that were read.
    pub entries: u64,
    /// Keys whose versions were read.
    pub keys: u64,
    /// Index entries of no use that were found on the way; they are removed, some together.
    pub removed: u64,
    /// Answers so far.
    pub answers: u64,
}

/// A query that runs.
pub(crate) struct Query {
    shared: Arc<Shared>,
    pub(crate) bound: Arc<Bound>,
    compiled: Compiled,
    view: View,
    keys_only: bool,
    /// True if a current candidate is an answer without a look at its record.
    is_answered: bool,
    order: Recency,
    /// Answers behind this one in the order.
    after: Option<Seq>,
    source: From,
    left: usize,
    asked: usize,
    /// Records that are read at a time, by their sizes.
    pages: Pages,
    hits: VecDeque<Hit>,
    /// What was given, where an update moves a record behind what is read.
    given: Option<Given>,
    last: Option<Seq>,
    explained: Explained,
    /// What passes before this one have read.
    earlier: Explained,
}

/// Candidates of the driving index.
struct Entries {
    candidates: Candidates,
    filters: Filters,
    /// Those that no other index has ruled out.
    waiting: VecDeque<Candidate>,
    /// Entries that were read to choose the index.
    probed: u64,
}

impl Entries {
    /// The next candidates: at most `most`, none at the end.
    fn next(&mut self, most: usize) -> Result<Vec<Candidate>> {
        while self.waiting.is_empty() {
            // Entries are read by pages in any case.
            let together = if self.filters.is_some() {
                most.max(PAGE)
            } else {
                most
            };
            let found = self.candidates.next(together)?;
            if found.is_empty() {
                return Ok(Vec::new());
            }
            self.waiting = self.filters.apply(found)?.into();
        }
        let count = most.min(self.waiting.len());
        Ok(self.waiting.drain(..count).collect())
    }

    /// Entries that were read.
    fn read(&self) -> u64 {
        self.probed + self.candidates.read + self.filters.read
    }
}

enum From {
    Entries(Box<Entries>),
    Keys(Vec<Vec<u8>>),
    Scan(Scan),
}

impl Query {
    pub(crate) fn new(shared: Arc<Shared>, bound: Arc<Bound>, request: &Request) -> Result<Query> {
        // Whatever is read of an index is read after the view begins.
        let view = View::now(&shared)?;
        Query::of_view(shared, bound, request, view)
    }

    /// Reads all answers once more, as of the same start. What was read so far stays counted.
    pub(crate) fn begin_again(&mut self, request: &Request) -> Result<()> {
        let earlier = self.explained();
        let (shared, bound) = (self.shared.clone(), self.bound.clone());
        *self = Query::of_view(shared, bound, request, self.view)?;
        self.earlier = earlier;
        Ok(())
    }

    fn of_view(
        shared: Arc<Shared>,
        bound: Arc<Bound>,
        request: &Request,
        view: View,
    ) -> Result<Query> {
        let shape = &bound.shape;
        let after = request.after.as_ref().map(PageToken::write).transpose()?;
        let compiled = Compiled::new(shape, request.condition.clone(), &mut NoEstimates)?;
        let mut probe = Probe {
            shared: &shared,
            bound: &bound,
            read: 0,
        };
        let plan = Plan::choose(shape, &compiled, &mut probe)?;
        let probed = probe.read;
        let mut explained = Explained::default();
        let mut source = source(
            &shared,
            &bound,
            &compiled,
            &plan,
            request,
            view,
            &mut explained,
        );
        if let From::Entries(entries) = &mut source {
            entries.probed = probed;
        }
        // What lies behind a page depends on the order.
        let is_ordered = request.order != Order::Any || after.is_some();
        if let (From::Scan(scan), false) = (&mut source, is_ordered) {
            *scan = Scan::unordered(view);
        }
        let given = (request.order == Order::Oldest).then(|| Given::new(&shared));
        let is_index = matches!(source, From::Entries(_));
        let is_answered = is_index && compiled.is_answered_by(&plan.driver);
        Ok(Query {
            shared,
            view,
            keys_only: request.keys_only,
            is_answered,
            order: request.order.recency(),
            after,
            source,
            left: if compiled.is_never() {
                0
            } else {
                request.limit.unwrap_or(usize::MAX)
            },
            asked: 0,
            pages: Pages::of(TOGETHER),
            hits: VecDeque::new(),
            given,
            last: None,
            explained,
            earlier: Explained::default(),
            compiled,
            bound,
        })
    }

    pub(crate) fn explained(&self) -> Explained {
        let earlier = &self.earlier;
        let mut explained = self.explained.clone();
        explained.ruled_out += earlier.ruled_out;
        explained.entries += earlier.entries;
        explained.keys += earlier.keys;
        explained.removed += earlier.removed;
        explained.answers += earlier.answers;
        explained
    }

    /// The timestamp of the last answer: the next page begins behind it.
    pub(crate) fn last(&self) -> Option<Seq> {
        self.last
    }

    /// The next answer.
    pub(crate) fn next(&mut self) -> Result<Option<Hit>> {
        loop {
            if self.left == 0 {
                return Ok(None);
            }
            if let Some(hit) = self.hits.pop_front() {
                if let Some(given) = &mut self.given {
                    if given.has(&hit.key) {
                        continue;
                    }
                    given.note(&self.shared, &hit.key);
                }
                self.left -= 1;
                self.last = Some(hit.at);
                self.explained.answers += 1;
                return Ok(Some(hit));
            }
            if !self.more()? {
                return Ok(None);
            }
        }
    }

    /// Reads more; false at the end.
    fn more(&mut self) -> Result<bool> {
        // Small answers read little more than they need.
        let most = self
            .left
            .min(TOGETHER)
            .max(16.min(TOGETHER))
            .max(self.asked.min(TOGETHER))
            .min(self.pages.rows());
        match &mut self.source {
            From::Entries(entries) => {
                let found = entries.next(most)?;
                self.explained.entries = entries.read();
                self.explained.ruled_out = entries.filters.dropped;
                if found.is_empty() {
                    return Ok(false);
                }
                self.asked = most * 2;
                self.judge(found)?;
                Ok(true)
            }
            From::Keys(keys) => {
                let keys = std::mem::take(keys);
                if keys.is_empty() {
                    return Ok(false);
                }
                self.look_up(&keys)?;
                Ok(true)
            }
            From::Scan(scan) => {
                let (compiled, bound) = (&self.compiled, &self.bound);
                let confirm = |stored: &[u8]| confirms(compiled, bound, stored);
                let found = scan.next(&self.shared, bound, &confirm)?;
                self.explained.keys = scan.keys;
                match found {
                    Some(hits) => self.hits = hits,
                    None => return Ok(false),
                }
                Ok(true)
            }
        }
    }

    fn judge(&mut self, found: Vec<Candidate>) -> Result<()> {
        let rows_only = self.keys_only && self.is_answered;
        let verdicts = judge_all(&self.shared, &self.bound, &found, &self.view, rows_only)?;
        self.explained.keys += found.len() as u64;
        let bytes = verdicts.iter().map(|verdict| match verdict {
            Verdict::Newest(stored) | Verdict::Kept(stored) => stored.len(),
            Verdict::Pending | Verdict::Obsolete | Verdict::Dangling => 0,
        });
        self.pages.had(verdicts.len(), bytes.sum());
        let mut useless = Vec::new();
        for (candidate, verdict) in found.into_iter().zip(verdicts) {
            match verdict {
                Verdict::Newest(stored) => {
                    let is_hit = rows_only || confirms(&self.compiled, &self.bound, &stored);
                    if is_hit {
                        self.hits.push_back(Hit {
                            at: candidate.at,
                            key: candidate.key,
                            stored,
                        });
                    }
                }
                Verdict::Kept(_) | Verdict::Pending => {}
                Verdict::Obsolete | Verdict::Dangling => useless.push((candidate, verdict)),
            }
        }
        self.explained.removed += useless.len() as u64;
        if !useless.is_empty() {
            useless::add(&self.shared, &self.bound, useless);
        }
        Ok(())
    }

    /// Reads the records of keys, in the order of the request.
    fn look_up(&mut self, keys: &[Vec<u8>]) -> Result<()> {
        let refs: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let found = self.view.newest(&self.shared, &self.bound, &refs);
        self.explained.keys += keys.len() as u64;
        let mut hits = Vec::new();
        for (key, newest) in keys.iter().zip(found) {
            let Some(Newest { at, record }) = newest? else {
                continue;
            };
            let record = record.filter(|stored| confirms(&self.compiled, &self.bound, stored));
            let key = key.clone();
            hits.extend(record.map(|stored| Hit { at, key, stored }));
        }
        let behind = self.after.map(|after| self.order.rank(after));
        hits.retain(|hit| behind.is_none_or(|behind| self.order.rank(hit.at) > behind));
        hits.sort_by_key(|hit| self.order.rank(hit.at));
        self.hits = hits.into();
        Ok(())
    }
}

/// True if a stored record satisfies the condition.
pub(crate) fn confirms(compiled: &Compiled, bound: &Bound, stored: &[u8]) -> bool {
    RecordRef::parse(stored).is_some_and(|record| compiled.confirm(&record, &bound.shape, None))
}

fn source(
    shared: &Arc<Shared>,
    bound: &Arc<Bound>,
    compiled: &Compiled,
    plan: &Plan,
    request: &Request,
    view: View,
    explained: &mut Explained,
) -> From {
    let after = match &request.after {
        Some(PageToken::Write(seq)) => Some(*seq),
        _ => None,
    };
    let constraints = plan.driver.constraints();
    if !constraints.is_empty() {
        let named = |at: usize, into: &mut Vec<(String, String)>| {
            let constraint = compiled.constraints.get(at)?;
            let indexes = &bound.indexes;
            let index = indexes
                .iter()
                .position(|i| i.place == constraint.attribute)?;
            let ranges = constraint.sought()?.to_vec();
            if let Some(attribute) = bound.shape.attribute(constraint.attribute) {
                into.push((attribute.path.to_string(), compiled.text(at)));
            }
            Some(Sought { index, ranges })
        };
        let sought = constraints.iter();
        let sought = sought.filter_map(|at| named(*at, &mut explained.indexes));
        let sought: Vec<Sought> = sought.collect();
        let others = others(compiled, &bound.shape, constraints).into_iter();
        let others = others.filter_map(|at| named(at, &mut explained.intersected));
        let filters = Filters::new(shared.clone(), bound.clone(), others.collect());
        let (shared, bound) = (shared.clone(), bound.clone());
        let (order, until) = (request.order.recency(), view.until);
        let candidates = Candidates::new(shared, bound, sought, order, until, after);
        return From::Entries(Box::new(Entries {
            candidates,
            filters,
            waiting: VecDeque::new(),
            probed: 0,
        }));
    }
    explained.scan = Some(compiled.keys.text());
    if compiled.keys.are_few()
        && let Some(spans) = compiled.keys.spans()
    {
        let keys = spans.iter().map(|(key, _)| key.clone()).collect();
        return From::Keys(keys);
    }
    let undeclared = compiled.undeclared.iter().cloned();
    let declared = compiled.constraints.iter().filter_map(|constraint| {
        let attribute = bound.shape.attribute(constraint.attribute)?;
        (!attribute.kind.is_indexed()).then(|| attribute.path.clone())
    });
    explained.without_index = undeclared.chain(declared).collect();
    explained.without_index.dedup();
    From::Scan(Scan::in_order(
        request.order.recency(),
        view,
        after,
        request.keys_only,
    ))
}

/// The constraints that every match satisfies and that have an index, besides those that drive.
fn others(compiled: &Compiled, shape: &Shape, driving: &[usize]) -> Vec<usize> {
    let conjuncts: Vec<_> = compiled.conjuncts().collect();
    let constraints = compiled.constraints.iter().enumerate();
    let others = constraints.filter(|(at, constraint)| {
        let mut conjuncts = conjuncts.iter();
        !driving.contains(at)
            && constraint.can_drive(shape)
            && conjuncts.any(|conjunct| std::ptr::eq(*conjunct, *constraint))
    });
    others.map(|(at, _)| at).collect()
}

/// Fails for a request that a cluster cannot answer.
pub(crate) fn check(request: &Request) -> Result<()> {
    match request.limit {
        Some(0) => Err(Error::BadInput("a limit is at least 1".to_string())),
        _ => Ok(()),
    }
}

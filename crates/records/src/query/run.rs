//! A query in execution.
//!
//! [`Context`] has the parts that do not change while the query is answered: the request, its
//! compiled condition, the plan, and how candidates are validated. [`Run`] adds the counts, and
//! hands them to the store's statistics when it is dropped. Each executor owns a run, and has its
//! own state beside it.

use std::collections::HashSet;
use std::sync::Arc;

use esker_lsm::coding::Own;
use esker_lsm::{Component, Cost, LookupOptions, Seq, SeqSet, Snapshot};
use esker_model::query::{Compiled, Driver, Lists, PageToken, Plan, Request, Validation};
use esker_model::schema::Path;

use super::estimates::Estimates;
use super::explain::{
    Alternative, Compared, Explain, ExplainedCombination, ExplainedCost, ExplainedIndex,
    ExplainedPlan, Note, Outcome, Steps,
};
use super::input::ViewQuery;
use super::stages::{self, Admission, AnswerContent};
use crate::bodies;
use crate::catalog::Layout;
use crate::error::Result;
use crate::index::{Attribute, Looks, Lookup, Range};
use crate::maintenance::{self, Validity};
use crate::store::View;

/// The costs of a query's reads, by tree.
pub(super) struct Costs {
    /// The data tree.
    pub(super) data: Cost,
    /// Bodies that are stored separately.
    pub(super) bodies: Cost,
    /// The trees of the driving indexes.
    pub(super) index: Cost,
    /// The primary-key index.
    pub(super) keys: Cost,
}

impl Costs {
    /// Costs of 0, under the snapshot's [`Stop`](esker_lsm::Stop).
    pub(super) fn new(snapshot: &Snapshot) -> Costs {
        Costs {
            data: snapshot.cost(),
            bodies: snapshot.cost(),
            index: snapshot.cost(),
            keys: snapshot.cost(),
        }
    }
}

/// The context in which a query is answered.
pub(super) struct Context {
    pub(super) view: View,
    /// The components of the tree of the records.
    pub(super) components: Vec<Component>,
    /// The request, without its condition.
    pub(super) request: Request,
    /// The answer begins after this write.
    pub(super) after: Option<Seq>,
    pub(super) compiled: Compiled,
    pub(super) plan: Plan,
    /// True if the driver answers all conditions.
    pub(super) all_answered: bool,
    /// True if the conditions cannot be decided without the JSON.
    pub(super) needs_bodies: bool,
    pub(super) validity: Validity,
    /// True if candidates are validated by the primary-key index before their records are fetched.
    pub(super) probes_keys: bool,
    /// The expired writes, for answers without records.
    pub(super) expired: Option<Arc<SeqSet>>,
    pub(super) lookup: LookupOptions,
    pub(super) costs: Costs,
    pub(super) notes: Vec<Note>,
    /// The index that gave the first rows of an order, in place of the driver.
    pub(super) in_order: Option<OrderedIndex>,
}

/// An index that gave the first rows of an order.
pub(super) struct OrderedIndex {
    pub(super) index: ExplainedIndex,
    /// The number of rows that were wanted.
    pub(super) rows: u64,
}

/// The driving index of a query that reads one index for one range.
pub(super) struct DrivingIndex<'a> {
    pub(super) attribute: &'a Attribute,
    pub(super) range: &'a Range,
}

impl Context {
    /// Compiles the query's condition and chooses its plan.
    ///
    /// # Errors
    /// If the condition or the page token does not fit the dataset; any read error.
    pub(super) fn new(query: ViewQuery) -> Result<Context> {
        let ViewQuery {
            view,
            mut request,
            lookup,
            combining,
        } = query;
        view.snapshot.check_open()?;
        let after = request.after.as_ref().map(PageToken::write).transpose()?;
        let condition = request.condition.take();
        let is_conditional = condition.is_some();
        let costs = Costs::new(&view.snapshot);
        let indexes = index_lookup(&view, &costs);
        let mut estimates = Estimates {
            lookup: &indexes,
            layout: &view.layout,
            combining,
        };
        let compiled = Compiled::new(&view.layout.shape, condition, &mut estimates)?;
        let plan = Plan::choose(&view.layout.shape, &compiled, &mut estimates)?;
        let driving = driving(&view.layout, &compiled, &plan.driver);
        let state = &view.dataset.state;
        let validity = Validity::new(&view.snapshot, &view.layout, &driving, &state.kept_filter);
        let probes_keys = probes_keys(&view, &request, &validity, &driving);
        let expired = if request.keys_only {
            view.expired()?
        } else {
            None
        };
        let notes = match plan.driver {
            Driver::Scan if is_conditional => notes_of_scan(&view.layout, &compiled),
            _ => Vec::new(),
        };
        Ok(Context {
            components: view.snapshot.components(view.layout.data),
            all_answered: compiled.is_answered_by(&plan.driver),
            needs_bodies: stages::needs_bodies(&view.layout, &compiled),
            request,
            after,
            compiled,
            plan,
            validity,
            probes_keys,
            expired,
            lookup,
            costs,
            notes,
            in_order: None,
            view,
        })
    }

    /// The indexes of the snapshot, to be read at the query's cost.
    pub(super) fn indexes(&self) -> Lookup<'_> {
        index_lookup(&self.view, &self.costs)
    }

    /// Stage 4 for the candidates of the driver ([`stages`]).
    pub(super) fn admission(&self) -> Admission<'_> {
        Admission {
            snapshot: &self.view.snapshot,
            layout: &self.view.layout,
            compiled: &self.compiled,
            needs_bodies: self.needs_bodies,
            driver: self.plan.driver.single(),
            all_answered: self.all_answered,
        }
    }

    /// The attributes whose indexes have the candidates, each once; none for a scan.
    pub(super) fn driving_attributes(&self) -> Vec<&Attribute> {
        driving(&self.view.layout, &self.compiled, &self.plan.driver)
    }

    /// The driving index, if it is a single one that is read for one range.
    pub(super) fn driving_index(&self) -> Option<DrivingIndex<'_>> {
        let at = self.plan.driver.single()?;
        let constraint = self.compiled.constraints.own(at);
        let attribute = self.view.layout.attributes.own(constraint.attribute);
        let range = constraint.sought_range()?;
        Some(DrivingIndex { attribute, range })
    }

    /// The content of the answer.
    pub(super) fn content(&self) -> AnswerContent {
        if self.request.keys_only {
            AnswerContent::Keys
        } else {
            AnswerContent::Records
        }
    }

    /// True if candidates that have passed stage 2 are current.
    pub(super) fn shows_current(&self) -> bool {
        self.probes_keys || self.validity.is_exact()
    }

    /// True if the entries of the driver's index decide the answer, without the records: they
    /// answer all conditions, and the strategy shows which of them are current.
    pub(super) fn entries_suffice(&self) -> bool {
        !self.is_direct() && self.validity.validates_without_records() && self.all_answered
    }

    /// True if records are read to decide which candidates are current.
    pub(super) fn is_direct(&self) -> bool {
        self.request.validation == Validation::Direct
    }

    /// True if the query chooses how candidates are validated.
    pub(super) fn chooses_validation(&self) -> bool {
        self.request.validation == Validation::Auto
    }

    /// True if queries have fetched many records in vain.
    pub(super) fn is_wasteful(&self) -> bool {
        self.view.dataset.state.usage.is_wasteful()
    }

    fn explain_plan(&self) -> ExplainedPlan {
        let mut plan = ExplainedPlan {
            index: self.in_order.as_ref().map(|read| read.index.clone()),
            ..ExplainedPlan::default()
        };
        if plan.index.is_some() {
            return plan;
        }
        match &self.plan.driver {
            Driver::Scan => plan.scan = Some(self.compiled.keys.text()),
            Driver::Index(at) => plan.index = Some(self.explain_index(*at)),
            Driver::Union(all) => {
                plan.union = all.iter().map(|at| self.explain_index(*at)).collect();
            }
            Driver::Combined(combined) => {
                let all = combined.lists.constraints().into_iter();
                plan.combined = Some(ExplainedCombination {
                    condition: self.text_of(&combined.lists),
                    indexes: all.map(|at| self.explain_index(at)).collect(),
                });
            }
        }
        plan
    }

    /// The condition that the entries of a combination meet, for people.
    fn text_of(&self, lists: &Lists) -> String {
        match lists {
            Lists::One(at) => self.compiled.text(*at),
            Lists::Any(parts) => {
                let parts: Vec<String> = parts.iter().map(|part| self.text_of(part)).collect();
                format!("({})", parts.join(" | "))
            }
            Lists::All { of, but } => {
                let parts = of.iter().map(|part| self.text_of(part));
                let but = but
                    .iter()
                    .map(|at| format!("!({})", self.compiled.text(*at)));
                parts.chain(but).collect::<Vec<_>>().join(" & ")
            }
        }
    }

    /// The paths of the indexes of some constraints, each once.
    fn indexes_of(&self, constraints: &[usize]) -> Vec<String> {
        let mut paths = Vec::new();
        for at in constraints {
            let path = self.attribute_of(*at).path.to_string();
            if !paths.contains(&path) {
                paths.push(path);
            }
        }
        paths
    }

    /// The alternatives that were weighed for the plan; `outcome` is that of the chosen one.
    fn alternatives(&self, outcome: &Outcome) -> Vec<Alternative> {
        let weighed = self.plan.weighed.iter();
        let in_order = self
            .in_order
            .iter()
            .filter(|_| !self.plan.weighed.is_empty());
        let in_order = in_order.map(|OrderedIndex { index, rows }| Alternative {
            way: "order".to_string(),
            indexes: vec![index.index.clone()],
            condition: index.condition.clone(),
            expected: *rows,
            work: None,
            outcome: Some(outcome.clone()),
        });
        let alternatives = weighed.map(|weighed| {
            let driver = &weighed.driver;
            let (way, condition) = match driver {
                Driver::Index(at) => ("index", self.compiled.text(*at)),
                Driver::Union(all) => {
                    let all: Vec<String> = all.iter().map(|at| self.compiled.text(*at)).collect();
                    ("union", all.join(" | "))
                }
                Driver::Combined(combined) => ("combination", self.text_of(&combined.lists)),
                Driver::Scan => ("scan", self.compiled.keys.text()),
            };
            let indexes = match driver {
                Driver::Combined(combined) => self.indexes_of(&combined.lists.constraints()),
                driver => self.indexes_of(driver.constraints()),
            };
            let is_chosen = self.in_order.is_none() && *driver == self.plan.driver;
            Alternative {
                way: way.to_string(),
                indexes,
                condition,
                expected: weighed.candidates,
                work: weighed.work.map(|work| work.round() as u64),
                outcome: is_chosen.then(|| outcome.clone()),
            }
        });
        alternatives.chain(in_order).collect()
    }

    fn attribute_of(&self, constraint: usize) -> &Attribute {
        let constraint = self.compiled.constraints.own(constraint);
        self.view.layout.attributes.own(constraint.attribute)
    }

    fn explain_index(&self, at: usize) -> ExplainedIndex {
        let attribute = self.attribute_of(at);
        ExplainedIndex {
            index: attribute.path.to_string(),
            kind: attribute.kind.to_string(),
            condition: self.compiled.text(at),
            order: None,
        }
    }
}

/// The indexes of a view, to be read at these costs.
pub(super) fn index_lookup<'a>(view: &'a View, costs: &'a Costs) -> Lookup<'a> {
    let (data, index) = (&costs.data, &costs.index);
    maintenance::lookup(&view.layout, &view.snapshot, data, index, Looks::default())
}

/// The attributes whose indexes a driver reads, each once.
fn driving<'a>(layout: &'a Layout, compiled: &Compiled, driver: &Driver) -> Vec<&'a Attribute> {
    let constraints = driver.constraints().iter();
    let mut places: Vec<usize> = constraints
        .map(|at| compiled.constraints.own(*at).attribute)
        .collect();
    places.sort_unstable();
    places.dedup();
    let attributes = places.into_iter();
    attributes.map(|at| layout.attributes.own(at)).collect()
}

/// True if candidates of the driving indexes are to be validated by the primary-key index.
fn probes_keys(
    view: &View,
    request: &Request,
    validity: &Validity,
    driving: &[&Attribute],
) -> bool {
    let is_wanted = match request.validation {
        Validation::Direct => false,
        Validation::Timestamp => true,
        Validation::Auto => {
            // Records that come with their index entries need not be fetched.
            let brings = driving.first().is_some_and(|a| a.brings_records());
            request.keys_only || view.dataset.state.usage.is_wasteful() || brings
        }
    };
    is_wanted && validity.probes_keys()
}

/// True if a scan finds its records by this field of the key: conditions on it need no index.
pub(super) fn is_key_of_scan(layout: &Layout, compiled: &Compiled, path: &Path) -> bool {
    !compiled.keys.is_all() && layout.shape.key_paths().contains(path)
}

/// The reasons why a condition is answered by a scan.
fn notes_of_scan(layout: &Layout, compiled: &Compiled) -> Vec<Note> {
    let undeclared = compiled.undeclared.iter();
    let declared = (compiled.constraints.iter())
        .map(|constraint| layout.attributes.own(constraint.attribute))
        .filter(|attribute| !attribute.kind.is_indexed())
        .map(|attribute| &attribute.path);
    let mut seen = HashSet::new();
    let paths: Vec<Path> = (undeclared.chain(declared))
        .filter(|path| !is_key_of_scan(layout, compiled, path) && seen.insert(*path))
        .cloned()
        .collect();
    if !paths.is_empty() {
        vec![Note::NoIndex { paths }]
    } else if compiled.keys.is_all() {
        vec![Note::NotIndexable]
    } else {
        Vec::new()
    }
}

/// A query in execution, and its counts so far.
pub(super) struct Run {
    pub(super) context: Context,
    pub(super) steps: Steps,
    /// The number of records still wanted; `None` for all.
    pub(super) remaining: Option<usize>,
    /// True if the source has no further candidates.
    pub(super) exhausted: bool,
    /// The lists that were read whole.
    pub(super) lists_read: Vec<ListRead>,
}

/// A list that was read whole.
#[derive(Debug, Clone, Copy)]
pub(super) struct ListRead {
    /// The place of its constraint.
    pub(super) constraint: usize,
    /// The number of its entries.
    pub(super) entries: u64,
}

impl Run {
    /// Prepares the query: see [`Context::new`].
    pub(super) fn new(query: ViewQuery) -> Result<Run> {
        let context = Context::new(query)?;
        let limit = context.request.limit;
        Ok(Run {
            exhausted: context.compiled.is_never() || limit == Some(0),
            remaining: limit,
            steps: Steps::default(),
            lists_read: Vec::new(),
            context,
        })
    }

    /// The steps of the query so far and their cost.
    pub(super) fn explain(&self) -> Explain {
        let context = &self.context;
        // A query with the limit 0 reads nothing.
        let is_read = self.exhausted && (self.steps.rounds > 0 || self.steps.candidates > 0);
        let is_driven = is_read && context.in_order.is_none();
        let read_to_end = context.plan.driver.single().filter(|_| is_driven);
        let found_of = |at: usize| {
            let list = self.lists_read.iter().find(|list| list.constraint == at);
            let alone = || (read_to_end == Some(at)).then_some(self.steps.candidates);
            list.map(|list| list.entries).or_else(alone)
        };
        let compared = context.plan.compared.iter().map(|(at, expected)| Compared {
            condition: context.compiled.text(*at),
            index: context.attribute_of(*at).path.to_string(),
            expected: *expected,
            found: found_of(*at),
        });
        let outcome = Outcome {
            candidates: self.steps.candidates,
            ruled_out: self.steps.ruled_out,
            fetched: self.steps.fetched,
        };
        let (layout, costs) = (&context.view.layout, &context.costs);
        Explain {
            plan: ExplainedPlan {
                compared: compared.collect(),
                alternatives: context.alternatives(&outcome),
                ..context.explain_plan()
            },
            notes: context.notes.clone(),
            steps: self.steps.clone(),
            cost: ExplainedCost {
                data: (&costs.data).into(),
                place: bodies::are_separate(layout).then(|| (&costs.bodies).into()),
                index: Some((&costs.index).into()),
                keys: Some((&costs.keys).into()),
            },
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.count_attribute_queries();
        let dataset = &self.context.view.dataset;
        let costs = &self.context.costs;
        for cost in [&costs.data, &costs.bodies, &costs.index, &costs.keys] {
            dataset.store.group.count(cost);
        }
        let usage = &dataset.state.usage;
        usage.count_query(self.steps.obsolete, self.validated(), self.measured());
    }
}

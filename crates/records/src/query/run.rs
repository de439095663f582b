//! A query in execution.
//!
//! [`Context`] is all about a query that does not change while it is answered: the request, its
//! compiled condition, the plan, and how candidates are validated. [`Run`] adds the counts, and
//! hands them to the store's statistics when it is dropped. Each executor owns a run and keeps a
//! state of its own beside it.

use esker_lsm::coding::Own;

use std::collections::HashSet;
use std::sync::Arc;

use esker_lsm::{Component, Cost, LookupOptions, Seq, SeqSet, Snapshot};
use esker_model::query::{Compiled, Driver, Lists, PageToken, Plan, Request, Validation};
use esker_model::schema::Path;

use super::estimates::Estimates;
use super::explain::{
    Alternative, Compared, Explain, ExplainedCombination, ExplainedCost, ExplainedIndex,
    ExplainedPlan, Note, Outcome, Steps,
};
use super::input::Query;
use super::stages::{self, Admission};
use crate::bodies;
use crate::catalog::Layout;
use crate::error::Result;
use crate::index::{Attribute, Looks, Lookup, Range};
use crate::maintenance;
use crate::maintenance::Validity;
use crate::store::View;

/// The reads of a query, by what was read.
pub(super) struct Costs {
    pub(super) data: Cost,
    /// Bodies that are stored apart.
    pub(super) bodies: Cost,
    pub(super) index: Cost,
    /// The index of keys.
    pub(super) keys: Cost,
}

impl Costs {
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
    /// The write behind which the answer begins.
    pub(super) after: Option<Seq>,
    pub(super) compiled: Compiled,
    pub(super) plan: Plan,
    /// True if the driver answers all conditions.
    pub(super) all_answered: bool,
    /// True if the conditions cannot be decided without the JSON.
    pub(super) needs_bodies: bool,
    pub(super) validity: Validity,
    /// True if candidates are validated by the index of keys before their records are fetched.
    pub(super) probes_keys: bool,
    /// The expired writes, for answers without records.
    pub(super) expired: Option<Arc<SeqSet>>,
    pub(super) lookup: LookupOptions,
    pub(super) costs: Costs,
    pub(super) notes: Vec<Note>,
}

impl Context {
    pub(super) fn new(query: Query) -> Result<Context> {
        let Query {
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
        let current = &view.dataset.current;
        let validity = Validity::new(&view.snapshot, &view.layout, &driving, &current.kept_filter);
        let probes_keys = match request.validation {
            Validation::Direct => false,
            Validation::Timestamp => validity.probes_keys(),
            Validation::Auto => {
                // Records that come with their index entries need not be fetched.
                let brings = (driving.first()).is_some_and(|a| a.brings_records());
                let is_cheaper = request.keys_only || current.usage.is_wasteful() || brings;
                validity.probes_keys() && is_cheaper
            }
        };
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
            view,
        })
    }

    /// Reads the indexes.
    pub(super) fn indexes(&self) -> Lookup<'_> {
        index_lookup(&self.view, &self.costs)
    }

    /// Stage 4 for the candidates of the driver.
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

    /// The driving index, if it is a single one that is read for one range: the place of the
    /// constraint, the attribute and the range.
    pub(super) fn driving_index(&self) -> Option<(&Attribute, &Range)> {
        let constraint = self.compiled.constraints.get(self.plan.driver.single()?)?;
        let attribute = self.view.layout.attributes.get(constraint.attribute)?;
        Some((attribute, constraint.sought_range()?))
    }

    /// True if candidates that have passed stage 2 are current.
    pub(super) fn knows_current(&self) -> bool {
        self.probes_keys || self.validity.is_exact()
    }

    /// True if the entries of the driver's index show without the records which of them answer the
    /// query.
    pub(super) fn tells_current_entries(&self) -> bool {
        !self.is_direct() && self.validity.can_tell() && self.all_answered
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
        self.view.dataset.current.usage.is_wasteful()
    }

    fn explain_plan(&self) -> ExplainedPlan {
        let mut plan = ExplainedPlan::default();
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

    /// The condition that a combination stands for, for people.
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

    /// What was weighed for the plan; `outcome` is that of the query.
    fn alternatives(&self, outcome: &Outcome) -> Vec<Alternative> {
        let weighed = self.plan.weighed.iter();
        let alternatives = weighed.map(|weighed| {
            let (way, condition) = match &weighed.driver {
                Driver::Index(at) => ("index", self.compiled.text(*at)),
                Driver::Union(all) => {
                    let all: Vec<String> = all.iter().map(|at| self.compiled.text(*at)).collect();
                    ("union", all.join(" | "))
                }
                Driver::Combined(combined) => ("combination", self.text_of(&combined.lists)),
                Driver::Scan => ("scan", self.compiled.keys.text()),
            };
            Alternative {
                way: way.to_string(),
                condition,
                expected: weighed.candidates,
                work: weighed.work.map(|work| work.round() as u64),
                outcome: (weighed.driver == self.plan.driver).then(|| outcome.clone()),
            }
        });
        alternatives.collect()
    }

    fn explain_index(&self, at: usize) -> ExplainedIndex {
        let constraint = self.compiled.constraints.get(at);
        let attribute = constraint.and_then(|c| self.view.layout.attributes.get(c.attribute));
        ExplainedIndex {
            index: attribute.map(|a| a.path.to_string()).unwrap_or_default(),
            kind: attribute.map(|a| a.kind.to_string()).unwrap_or_default(),
            condition: self.compiled.text(at),
        }
    }
}

/// Reads the indexes of a view.
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

/// The reasons why a condition is answered by a scan.
fn notes_of_scan(layout: &Layout, compiled: &Compiled) -> Vec<Note> {
    let by_key = !compiled.keys.is_all();
    let keys = layout.shape.key_paths();
    let is_key = |path: &Path| by_key && keys.contains(path);
    let undeclared = compiled.undeclared.iter();
    let declared = (compiled.constraints.iter())
        .filter_map(|constraint| layout.attributes.get(constraint.attribute))
        .filter(|attribute| !attribute.kind.is_indexed())
        .map(|attribute| &attribute.path);
    let mut seen = HashSet::new();
    let paths: Vec<Path> = (undeclared.chain(declared))
        .filter(|path| !is_key(path) && seen.insert(*path))
        .cloned()
        .collect();
    match (paths.is_empty(), by_key) {
        (false, _) => vec![Note::NoIndex { paths }],
        (true, true) => Vec::new(),
        (true, false) => vec![Note::NotIndexable],
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
    /// The constraints whose lists were read whole, and the entries of each.
    pub(super) found: Vec<(usize, u64)>,
}

impl Run {
    pub(super) fn new(query: Query) -> Result<Run> {
        let context = Context::new(query)?;
        let limit = context.request.limit;
        Ok(Run {
            exhausted: context.compiled.is_never() || limit == Some(0),
            remaining: limit,
            steps: Steps::default(),
            found: Vec::new(),
            context,
        })
    }

    /// The steps of the query so far and their cost.
    pub(super) fn explain(&self) -> Explain {
        let context = &self.context;
        // A query with the limit 0 reads nothing.
        let is_read = self.exhausted && (self.steps.rounds > 0 || self.steps.candidates > 0);
        let read_to_end = context.plan.driver.single().filter(|_| is_read);
        let found_of = |at: usize| {
            let mut found = self.found.iter();
            let found = found.find(|(other, _)| *other == at);
            let alone = || (read_to_end == Some(at)).then_some(self.steps.candidates);
            found.map(|(_, entries)| *entries).or_else(alone)
        };
        let compared = context.plan.compared.iter().map(|(at, expected)| Compared {
            condition: context.compiled.text(*at),
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
                place: bodies::are_apart(layout).then(|| (&costs.bodies).into()),
                index: Some((&costs.index).into()),
                keys: Some((&costs.keys).into()),
            },
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.count_use();
        let dataset = &self.context.view.dataset;
        let costs = &self.context.costs;
        for cost in [&costs.data, &costs.bodies, &costs.index, &costs.keys] {
            dataset.shared.group.count(cost);
        }
        let validated = self.steps.probed.max(self.steps.fetched);
        let usage = &dataset.current.usage;
        usage.count_query(self.steps.obsolete, validated, self.measured());
    }
}

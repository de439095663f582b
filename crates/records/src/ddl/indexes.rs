//! Changing the indexes of a dataset while it is in use.
//!
//! 1. One edit of the engine creates the new tree and stores the change in the definition. From
//!    then on every write maintains the old and the new index; queries use the old one only.
//! 2. The index entries of the older records are collected (`backfill.rs`), sorted by the engine,
//!    and written below everything that the new tree has by then (`index/staging.rs`). An embedded
//!    index has no tree: the tables of the data are rewritten one by one.
//! 3. One edit of the engine makes the new index the attribute's index, and drops the old one.
//!
//! All intermediate steps are durable, so an interrupted change can be resumed.

use std::ops::ControlFlow;

use esker_lsm::TreeChange;
use esker_lsm::coding::{Misplaced, Own};
use esker_model::Record;
use esker_model::definition::{
    self, Index, IndexDef, IndexKind, MAX_INDEXES, StoredAttribute, StoredChange, StoredDef,
};
use esker_model::schema::{Path, Type, infer, infer_time};
use esker_model::tokens::Tokenizer;
use serde::{Deserialize, Serialize};

use super::backfill::{Aborted, Backfill, Needs, Phase};
use super::build::IndexBuild;
use crate::bodies;
use crate::catalog::{
    Building, Layout, Role, TreeConfig, deleted_tree, index_tree, staging_tree, widened_tree,
};
use crate::error::{Error, Result};
use crate::maintenance;
use crate::query::Scan;
use crate::store::Handle;
use crate::trees::widens;

/// The number of records from which a type is inferred.
const SAMPLE: usize = 1000;

/// The current step of an index change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum IndexStep {
    /// Reading the existing records. The numbers count records.
    Reading,
    /// Writing the index. The numbers count index entries for a stand-alone index, entries of the
    /// data (also of older versions and deletions) for an embedded one.
    Writing,
    /// Waiting until all writers of a cluster know the index. The numbers are milliseconds.
    Waiting,
}

/// The progress of an index change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct IndexProgress {
    /// The current step.
    pub step: IndexStep,
    /// How much of the step is done.
    pub done: u64,
    /// About how much the step has to do.
    pub total: u64,
}

impl IndexProgress {
    /// The progress of a change in a store of another crate.
    pub fn new(step: IndexStep, done: u64, total: u64) -> IndexProgress {
        IndexProgress { step, done, total }
    }
}

/// Called with the progress from time to time; returns whether to continue. It may use the dataset,
/// but not change its indexes. A change that it stops stays unfinished, see
/// [`Dataset::resume_index`](crate::Dataset::resume_index).
pub(crate) type OnProgress<'p> = dyn FnMut(IndexProgress) -> ControlFlow<()> + 'p;

/// The result of an index change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct IndexChange {
    /// The attribute.
    pub path: Path,
    /// The kind of its index before; `None` if it was not declared.
    pub from: Option<IndexKind>,
    /// The kind of its index now (or once the change is complete).
    pub to: IndexKind,
    /// Records that were read, or entries of the data that were rewritten.
    pub records: u64,
    /// False if the progress callback stopped the change.
    pub complete: bool,
}

impl IndexChange {
    /// A change of a store of another crate, which has read no record yet.
    pub fn new(path: Path, from: Option<IndexKind>, to: IndexKind) -> IndexChange {
        IndexChange {
            path,
            from,
            to,
            records: 0,
            complete: false,
        }
    }
}

impl Handle {
    /// Adds an index; the caller holds the claim on changes of the dataset, and has declared the
    /// fields of a compound index.
    pub(super) fn add_under_claim(
        &self,
        path: &Path,
        index: Index,
        progress: &mut OnProgress<'_>,
    ) -> Result<IndexChange> {
        let (kind, ty, tokenizer) = (index.kind(), index.explicit_type(), index.tokens());
        let layout = self.layout();
        if is_resumed(&layout, path, kind, Some(&index))? {
            return self.build(progress);
        }
        let known = layout.stored.attribute(path);
        match known {
            Some(known) => refuse_redeclared(known, kind, ty)?,
            None if layout.attributes.len() >= MAX_INDEXES => {
                return Err(Error::bad_input(format!(
                    "the dataset has {MAX_INDEXES} attributes, which is the limit"
                )));
            }
            None => {}
        }
        let ty = match (ty, known) {
            (_, Some(known)) => known.def.ty,
            // The unit is inferred from the existing numbers.
            (Some(Type::Time), None) => self.infer_time(path)?,
            (Some(ty), None) => ty,
            (None, None) => match kind.type_for(None) {
                Some(ty) => ty,
                None => self.infer(path)?,
            },
        };
        // A leniently declared attribute has values of other types.
        let lenient = index.is_lenient() || known.is_some_and(|known| known.def.lenient);
        let def = IndexDef::new(path.clone(), kind, ty)
            .tokenizer(tokenizer)
            .lenient(lenient)
            .unique(index.is_unique());
        self.begin(&layout, def)?;
        self.build(progress)
    }

    /// See [`crate::Dataset::switch_index`].
    pub(crate) fn switch_index(
        &self,
        path: &Path,
        kind: IndexKind,
        progress: &mut OnProgress<'_>,
    ) -> Result<IndexChange> {
        self.store.index_types.check(kind)?;
        let claim = self.state.claim()?;
        let layout = self.layout();
        if is_resumed(&layout, path, kind, None)? {
            return self.build(progress);
        }
        let missing = || undeclared(&layout, path);
        let known = layout.stored.attribute(path).ok_or_else(missing)?;
        if known.def.kind == kind {
            let error = format!("the index of `{path}` is of kind {kind} already");
            return Err(Error::exists(error));
        }
        if !kind.is_indexed() {
            drop(claim);
            return self.drop_index(path);
        }
        let mut def = known.def.clone();
        def.kind = kind;
        self.begin(&layout, def)?;
        self.build(progress)
    }

    /// See [`crate::Dataset::rebuild_index`].
    pub(crate) fn rebuild_index(
        &self,
        path: &Path,
        progress: &mut OnProgress<'_>,
    ) -> Result<IndexChange> {
        let _claim = self.state.claim()?;
        let layout = self.layout();
        let missing = || undeclared(&layout, path);
        let def = &layout.stored.attribute(path).ok_or_else(missing)?.def;
        let same = Index::new(def.kind)
            .of_type(def.ty)
            .tokenizer(def.tokenizer)
            .unique_if(def.unique);
        if is_resumed(&layout, path, def.kind, Some(&same))? {
            return self.build(progress);
        }
        if !def.kind.is_indexed() {
            return Err(Error::bad_input(format!("`{path}` has no index")));
        }
        self.begin(&layout, def.clone())?;
        self.build(progress)
    }

    /// See [`crate::Dataset::drop_index`].
    pub(crate) fn drop_index(&self, path: &Path) -> Result<IndexChange> {
        let _claim = self.state.claim()?;
        let layout = self.layout();
        if let Some(building) = &layout.building
            && building.attribute.path == *path
        {
            self.undo(&layout, building)?;
            return Ok(IndexChange {
                to: kind_before(&layout, building).unwrap_or(IndexKind::None),
                ..self.outcome(&layout, building, 0)
            });
        }
        layout.refuse_unfinished()?;
        let missing = || undeclared(&layout, path);
        let at = layout.attributes.iter().position(|a| a.path == *path);
        let at = at.ok_or_else(missing)?;
        let known = layout.attributes.item(at)?;
        if !known.kind.is_indexed() {
            return Err(Error::bad_input(format!("`{path}` has no index")));
        }
        bodies::refuse_change(&layout, path, IndexKind::None)?;
        self.drop_complete(&layout, at)?;
        Ok(IndexChange {
            path: path.clone(),
            from: Some(known.kind),
            to: IndexKind::None,
            records: 0,
            complete: true,
        })
    }

    /// Drops the index of the attribute with this index in the layout and the definition.
    fn drop_complete(&self, layout: &Layout, at: usize) -> Result<()> {
        let known = layout.attributes.item(at)?;
        let mut stored = layout.stored.clone();
        if known.ty.is_compound() {
            // Its fields stay declared by themselves.
            stored.attributes.remove(at);
        } else {
            let def = &mut stored.attributes.own_mut(at).def;
            def.kind = IndexKind::None;
            def.tokenizer = Tokenizer::Exact;
            def.unique = false;
        }
        let trees = known.tree.into_iter();
        let trees = trees.chain(known.deleted).chain(known.widened);
        self.store.group.change_trees(&mut |_| {
            Ok(TreeChange {
                configured: vec![(layout.data, stored.to_bytes())],
                dropped: trees.clone().collect(),
                ..TreeChange::default()
            })
        })?;
        Ok(())
    }

    /// See [`crate::Dataset::unfinished_index`].
    pub(crate) fn unfinished_index(&self) -> Option<IndexDef> {
        let change = self.layout().stored.change.clone()?;
        Some(change.attribute.def)
    }

    /// See [`crate::Dataset::resume_index`].
    pub(crate) fn resume_index(
        &self,
        progress: &mut OnProgress<'_>,
    ) -> Result<Option<IndexChange>> {
        let _claim = self.state.claim()?;
        if self.layout().building.is_none() {
            return Ok(None);
        }
        self.build(progress).map(Some)
    }

    /// The records from which a type is inferred.
    fn sample(&self) -> Result<Vec<Record>> {
        Scan::all(self.snapshot())?.take(SAMPLE).collect()
    }

    /// Infers the unit of an undeclared attribute of times.
    fn infer_time(&self, path: &Path) -> Result<Type> {
        let records = self.sample()?;
        let bodies: Vec<&[u8]> = records.iter().map(|record| record.json()).collect();
        Ok(infer_time(&bodies, path))
    }

    /// Infers the type of an undeclared attribute.
    fn infer(&self, path: &Path) -> Result<Type> {
        let records = self.sample()?;
        let bodies: Vec<&[u8]> = records.iter().map(|record| record.json()).collect();
        infer(&bodies, path).ok_or_else(|| {
            Error::bad_input(format!(
                "none of the first {SAMPLE} records has a value at `{path}` to infer its type from: give the index a type (string, int, float, bool, time)"
            ))
        })
    }

    /// The first step of a change: from here on writes maintain the new index.
    fn begin(&self, layout: &Layout, def: IndexDef) -> Result<()> {
        let (path, kind) = (&def.path, def.kind);
        check_fits(layout, &def)?;
        let mut stored = layout.stored.clone();
        let (id, tree) = match stored.attribute(path) {
            // A different tree name from the present one.
            Some(known) => (known.id, known.tree + u32::from(kind.is_standalone())),
            None => (stored.next_id, 0),
        };
        stored.next_id = stored.next_id.max(id + 1);
        let created = self.trees_to_build(layout, id, kind, &index_tree(&self.name(), id, tree));
        let group = &self.store.group;
        group.change_trees(&mut |since| {
            // No flush and no compaction of the data tree is running. If one begins, the engine
            // calls this closure again after it.
            let snapshot = group.snapshot();
            let tables = snapshot.version().tables().map(|table| table.meta().number);
            let attribute = StoredAttribute {
                id,
                def: def.clone(),
                tree,
                since,
                exact: true,
            };
            stored.change = Some(StoredChange {
                attribute,
                since,
                tables: tables.max().unwrap_or(0),
                gathered: false,
            });
            Ok(TreeChange {
                created: created.clone(),
                configured: vec![(layout.data, stored.to_bytes())],
                ..TreeChange::default()
            })
        })?;
        Ok(())
    }

    /// The trees that the build of an index of attribute `id` needs and the dataset lacks: names
    /// and configurations. `tree` is the name of the index's own tree, if its kind has one.
    fn trees_to_build(
        &self,
        layout: &Layout,
        id: u32,
        kind: IndexKind,
        tree: &str,
    ) -> Vec<(String, Vec<u8>)> {
        let (name, settings) = (&self.name(), &layout.stored.settings);
        let config = |role| TreeConfig::new(role, settings);
        let old = layout.attributes.iter().find(|a| a.id == id);
        let mut created = Vec::new();
        // A rebuilt filter keeps the tree of the filter before it.
        if widens(settings, kind) && old.is_none_or(|old| old.widened.is_none()) {
            let widened = widened_tree(name, id);
            created.push((widened, config(Role::Widened).to_bytes()));
        }
        if kind.is_standalone() {
            let index = config(Role::Index(kind)).incomplete();
            created.push((tree.to_string(), index.to_bytes()));
            created.push((staging_tree(name), config(Role::Staging).to_bytes()));
            let has_keys = old.is_some_and(|old| old.kind.is_standalone());
            if maintenance::strategy_of(settings.maintenance).keeps_written_keys() && !has_keys {
                let deleted = deleted_tree(name, id);
                created.push((deleted, config(Role::Deleted).to_bytes()));
            }
        }
        created
    }

    /// Completes the change that was begun.
    fn build(&self, progress: &mut OnProgress<'_>) -> Result<IndexChange> {
        let layout = self.layout();
        let Some(building) = &layout.building else {
            return Err(Error::damaged(
                "the unfinished index change no longer exists",
            ));
        };
        let mut progress = |phase, done, total| {
            let step = match phase {
                Phase::Reading => IndexStep::Reading,
                Phase::Writing => IndexStep::Writing,
            };
            progress(IndexProgress { step, done, total })
        };
        let needs = Needs {
            older_versions: layout.stored.settings.versions > 1,
            // Heads suffice for an attribute that all records were stored with.
            bodies: !layout.stored.in_all_records(building.attribute.id),
        };
        let backfill = Backfill::new(self, layout.data, building.since, needs, &mut progress);
        let mut build = IndexBuild {
            layout: &layout,
            building,
            backfill,
            records: 0,
        };
        let result = match (building.attribute.tree, building.staging) {
            (Some(tree), Some(staging)) => build.standalone(tree, staging),
            (None, None) => build.in_place(),
            _ => Err(Misplaced::here().into()),
        };
        let outcome = self.outcome(&layout, building, build.records);
        match result {
            Ok(()) => Ok(outcome),
            Err(Aborted::Cancelled) => Ok(IndexChange {
                complete: false,
                ..outcome
            }),
            Err(Aborted::Refused(error)) => {
                self.undo(&layout, building)?;
                Err(error)
            }
            Err(Aborted::Failed(error)) => Err(error),
        }
    }

    /// The result of a complete change that has read `records` records.
    fn outcome(&self, layout: &Layout, building: &Building, records: u64) -> IndexChange {
        IndexChange {
            path: building.attribute.path.clone(),
            from: kind_before(layout, building),
            to: building.attribute.kind,
            records,
            complete: true,
        }
    }

    /// Undoes a change that is not complete.
    fn undo(&self, layout: &Layout, building: &Building) -> Result<()> {
        let stored = StoredDef {
            change: None,
            ..layout.stored.clone()
        };
        let mut attributes = layout.attributes.iter();
        let old = attributes.find(|a| a.id == building.attribute.id);
        let had_tree = old.is_some_and(|a| a.tree.is_some());
        let deleted = building.attribute.deleted.filter(|_| !had_tree);
        let had_widened = old.is_some_and(|a| a.widened.is_some());
        let widened = building.attribute.widened.filter(|_| !had_widened);
        let trees = building.attribute.tree.into_iter().chain(building.staging);
        let trees = trees.chain(deleted).chain(widened);
        self.store.group.change_trees(&mut |_| {
            Ok(TreeChange {
                configured: vec![(layout.data, stored.to_bytes())],
                dropped: trees.clone().collect(),
                ..TreeChange::default()
            })
        })?;
        Ok(())
    }
}

/// Refuses a definition that does not fit the dataset.
fn check_fits(layout: &Layout, def: &IndexDef) -> Result<()> {
    let (path, kind, ty) = (&def.path, def.kind, def.ty);
    bodies::refuse_change(layout, path, kind)?;
    def.check_lenient()?;
    def.check_unique()?;
    definition::check_tokenizer(def.tokenizer, kind, ty)?;
    definition::check_type(path, kind, ty)?;
    let declared = |path: &Path| layout.stored.attribute(path).map(|known| known.def.ty);
    definition::check_place_and_time(path, ty, declared)?;
    definition::check_fields(path, ty, declared)?;
    Ok(())
}

/// True if the requested change is the unfinished one. `index` has what the caller requests beside
/// the kind; `None` accepts anything.
///
/// # Errors
/// [`Error::Busy`] if another change is unfinished.
fn is_resumed(
    layout: &Layout,
    path: &Path,
    kind: IndexKind,
    index: Option<&Index>,
) -> Result<bool> {
    let Some(change) = &layout.stored.change else {
        return Ok(false);
    };
    let def = &change.attribute.def;
    let fits = index.is_none_or(|index| {
        let ty = index.explicit_type();
        // An attribute that was declared as lenient stays so.
        let known = layout.stored.attribute(path);
        let is_lenient = index.is_lenient() || known.is_some_and(|known| known.def.lenient);
        is_lenient == def.lenient
            && ty.is_none_or(|ty| def.ty.is_allowed_by(ty))
            && index.tokens() == def.tokenizer
            && index.is_unique() == def.unique
    });
    if def.path == *path && def.kind == kind && fits {
        return Ok(true);
    }
    layout.refuse_unfinished().map(|()| false)
}

/// Refuses to add an index of this kind and type to an attribute that is declared already: it has
/// an index, or another type, or none is requested.
fn refuse_redeclared(known: &StoredAttribute, kind: IndexKind, ty: Option<Type>) -> Result<()> {
    let (path, declared) = (&known.def.path, known.def.ty);
    if known.def.kind.is_indexed() {
        return Err(Error::exists(format!(
            "`{path}` has an index already, of kind {}; use `switch` to change it",
            known.def.kind
        )));
    }
    if let Some(ty) = ty
        && !declared.is_allowed_by(ty)
    {
        return Err(Error::bad_input(format!(
            "`{path}` is declared as {declared}, not {ty}"
        )));
    }
    if !kind.is_indexed() {
        return Err(Error::exists(format!(
            "`{path}` is declared already, without an index"
        )));
    }
    Ok(())
}

/// The error for a path that is not an attribute.
fn undeclared(layout: &Layout, path: &Path) -> Error {
    let paths: Vec<String> = layout
        .attributes
        .iter()
        .map(|a| a.path.to_string())
        .collect();
    let known = if paths.is_empty() {
        "none".to_string()
    } else {
        paths.join(", ")
    };
    Error::bad_input(format!(
        "`{path}` is not an attribute of the dataset (attributes: {known})"
    ))
}

/// The attribute's index type before the change; `None` if the attribute was not declared.
fn kind_before(layout: &Layout, building: &Building) -> Option<IndexKind> {
    (!building.is_new).then(|| layout.attributes.own(building.at).kind)
}

//! A layout: the attributes and trees of a dataset according to one definition, ready for use.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use esker_lsm::coding::Own;
use esker_lsm::version::Version;
use esker_lsm::{Kind, Seq, TreeId};
use esker_model::definition::{IndexKind, StoredAttribute, StoredChange, StoredDef};
use esker_model::query::{Attribute as Declared, Shape};
use esker_model::schema::{Extraction, Wanted};

use super::names::{
    data_tree, deleted_tree, expiry_tree, index_tree, keys_tree, notes_tree, old_tree,
    staging_tree, superseded_tree, widened_tree,
};
use crate::coverage::Coverage;
use crate::error::{Error, Result};
use crate::index::{Attribute, IndexTypes};

/// Finds the trees and the index types of a dataset's attributes.
struct Resolver<'a> {
    dataset: &'a str,
    stored: &'a StoredDef,
    version: &'a Version,
    types: &'a IndexTypes,
}

/// Whether an index has the entries of writes before its build.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Entries {
    Complete,
    Incomplete,
}

impl Resolver<'_> {
    /// The number of a tree; `None` if the version has no tree of that name.
    fn tree(&self, name: &str) -> Option<TreeId> {
        self.version.tree_named(name).map(|tree| tree.id)
    }

    /// The attribute in the version; `None` if its tree is missing, or the type of its index.
    fn attribute(
        &self,
        stored: &StoredAttribute,
        declared: Arc<Declared>,
        entries: Entries,
    ) -> Option<Attribute> {
        let StoredAttribute {
            id,
            def,
            tree,
            since,
            exact: _,
        } = stored;
        let tree = if def.kind.is_standalone() {
            Some(self.tree(&index_tree(self.dataset, *id, *tree))?)
        } else {
            None
        };
        let deleted = self.tree(&deleted_tree(self.dataset, *id));
        let widened = self.tree(&widened_tree(self.dataset, *id));
        if self.types.lacks(def.kind) {
            return None;
        }
        Some(Attribute {
            declared,
            index: self.types.index_of(def.kind),
            widened: widened.filter(|_| def.kind == IndexKind::Filter),
            since: *since,
            deleted: deleted.filter(|_| tree.is_some()),
            versions: self.stored.settings.versions,
            tree,
            incomplete: entries == Entries::Incomplete,
        })
    }

    /// The index that is being built by `change`, beside the complete `attributes`; `None` if one
    /// of its trees is missing, or the type of its index.
    fn building(&self, change: &StoredChange, attributes: &[Attribute]) -> Option<Building> {
        let declared = Arc::new(Declared::new(&change.attribute, self.stored));
        let attribute = self.attribute(&change.attribute, declared, Entries::Incomplete)?;
        let known = attributes.iter().position(|a| a.id == attribute.id);
        let was_unique = known.is_some_and(|at| attributes.own(at).unique);
        Some(Building {
            // A new attribute is extracted behind the others.
            at: known.unwrap_or(attributes.len()),
            is_new: known.is_none(),
            since: change.since,
            tables: change.tables,
            becomes_unique: attribute.unique && !was_unique,
            gathered: change.gathered,
            staging: match attribute.tree {
                Some(_) => Some(self.tree(&staging_tree(self.dataset))?),
                None => None,
            },
            attribute,
        })
    }
}

/// An index that is being built.
pub(crate) struct Building {
    /// The attribute with its new index. Writes go to this index; queries do not use it.
    pub(crate) attribute: Attribute,
    /// Its index among the extracted attributes.
    pub(crate) at: usize,
    /// True if the attribute was not declared before.
    pub(crate) is_new: bool,
    /// The build adds the entries of writes up to this sequence number. Later writes add theirs.
    pub(crate) since: Seq,
    /// Tables up to this number were written before the change began.
    pub(crate) tables: u64,
    /// The tree in which the build gathers the index entries of a stand-alone index.
    pub(crate) staging: Option<TreeId>,
    /// The values become unique: until now there was no index in which they were.
    pub(crate) becomes_unique: bool,
    /// The staging tree has the entries of all earlier records.
    pub(crate) gathered: bool,
}

/// An index whose values must be unique, as commits search it.
#[derive(Clone, Copy)]
pub(crate) struct UniqueIndex<'l> {
    pub(crate) attribute: &'l Attribute,
    /// The staging tree, once it has the entries of all earlier records, while the index is built.
    pub(crate) staged: Option<TreeId>,
}

/// The steps of a compaction of a whole dataset, in order.
#[derive(Debug, Clone, Copy)]
pub(crate) enum CompactionStep {
    /// Trees whose compactions report obsolete writes.
    Report,
    /// Trees whose compactions drop the entries of obsolete writes.
    Drop,
    /// The obsolete set, which forgets writes that no tree holds any more; then the notes and the
    /// old records.
    Forget,
}

/// A tree that gets the key of each write.
pub(crate) struct KeyTree {
    pub(crate) tree: TreeId,
    /// The kind of its entry for a deletion.
    pub(crate) deletion: Kind,
}

impl KeyTree {
    /// The primary-key index `keys`, if the dataset has one, and the trees `deleted` of deleted-key
    /// maintenance, each once.
    fn all(keys: Option<TreeId>, deleted: impl Iterator<Item = TreeId>) -> Vec<KeyTree> {
        let mut deleted: Vec<TreeId> = deleted.collect();
        deleted.sort_unstable();
        deleted.dedup();
        let keys = keys.map(|tree| KeyTree {
            tree,
            deletion: Kind::Delete,
        });
        // Queries probe these trees for any newer write, deletions included.
        let deleted = deleted.into_iter().map(|tree| KeyTree {
            tree,
            deletion: Kind::Put,
        });
        keys.into_iter().chain(deleted).collect()
    }
}

/// What is extracted from the JSON of each record: the key, then the attributes, a new one that is
/// being built last, then the expiry time, if it is a field.
struct ExtractedFields {
    /// Extracts the key and the values.
    extraction: Extraction,
    /// The IDs of the attributes, in their order.
    ids: Vec<u32>,
    /// The index of the expiry time among the values, if it is a field.
    expiry_field_at: Option<usize>,
}

impl ExtractedFields {
    fn new(stored: &StoredDef) -> ExtractedFields {
        let is_declared = |id| stored.attributes.iter().any(|a| a.id == id);
        let building = stored.change.iter().map(|change| &change.attribute);
        let new = building.filter(|a| !is_declared(a.id));
        let mut ids = Vec::new();
        let mut wanted = Vec::new();
        for attribute in stored.attributes.iter().chain(new) {
            ids.push(attribute.id);
            wanted.push(stored.wanted(&attribute.def));
        }
        let expiry_field_at = stored.expiry.path.as_ref().map(|path| {
            // Refuses objects: a record with an unreadable expiry time would never expire.
            wanted.push(Wanted::new(path.clone(), stored.expiry.ty).refusing_objects());
            wanted.len() - 1
        });
        ExtractedFields {
            extraction: Extraction::of((stored.key.clone(), stored.key_type), wanted),
            ids,
            expiry_field_at,
        }
    }
}

/// The attributes and trees of a dataset according to one definition.
pub(crate) struct Layout {
    /// The definition.
    pub(crate) stored: StoredDef,
    /// The tree of records, or of their heads.
    pub(crate) data: TreeId,
    /// The primary-key index for reads: `None` until it is complete.
    pub(crate) keys: Option<TreeId>,
    /// The primary-key index for writes, complete or not.
    pub(crate) keys_written: Option<TreeId>,
    /// The bitmap tree of the obsolete set; datasets created before bitmap trees existed lack it.
    pub(crate) superseded: Option<TreeId>,
    /// The tree of notes, if it exists.
    pub(crate) notes: Option<TreeId>,
    /// The tree of old records, if the dataset keeps them for its feed.
    pub(crate) old: Option<TreeId>,
    /// The primary key and the attributes: conditions are compiled against it.
    pub(crate) shape: Shape,
    /// The attributes with their trees, in the order of the shape.
    pub(crate) attributes: Vec<Attribute>,
    /// The index in `attributes` of the attribute by which the records are stored, if they are
    /// stored by location.
    clustered: Option<usize>,
    /// The index that is being built; one at a time.
    pub(crate) building: Option<Building>,
    /// The values of an index must be unique.
    has_unique: bool,
    /// The ids of the extracted attributes, in their order.
    pub(crate) extracted_ids: Vec<u32>,
    /// The trees that get the key of each write, without duplicates: the primary-key index, and
    /// those of deleted-key maintenance, of which the old and the new index of a rebuild share one.
    pub(crate) key_trees: Vec<KeyTree>,
    /// The tree of expiry times, if records expire.
    pub(crate) expiry: Option<TreeId>,
    /// The index of a record's expiry time among the extracted values, if the expiry time is a
    /// field.
    pub(crate) expiry_field_at: Option<usize>,
    /// Extracts the key and the values from a record's JSON.
    pub(crate) extraction: Extraction,
    /// The index types of the store.
    types: IndexTypes,
    /// The configuration that the layout was made from.
    config: Arc<Vec<u8>>,
    /// The latest count of tree changes at which this layout was still valid.
    valid_change: AtomicU64,
}

impl Layout {
    /// The layout of the dataset called `name` in `version`; `None` if its definition cannot be
    /// read, or a tree or the type of an index is missing.
    pub(crate) fn new(name: &str, version: &Version, types: &IndexTypes) -> Option<Layout> {
        let data = version.tree_named(&data_tree(name))?;
        let stored = StoredDef::from_bytes(&data.config)?;
        let resolver = Resolver {
            dataset: name,
            stored: &stored,
            version,
            types,
        };
        let shape = Shape::new(&stored);
        let attributes = stored.attributes.iter().zip(&shape.attributes);
        let attributes: Vec<Attribute> = attributes
            .map(|(a, declared)| resolver.attribute(a, declared.clone(), Entries::Complete))
            .collect::<Option<_>>()?;
        let building = match &stored.change {
            Some(change) => Some(resolver.building(change, &attributes)?),
            None => None,
        };
        let being_built = building.iter().map(|building| &building.attribute);
        let deleted = attributes.iter().chain(being_built);
        let deleted = deleted.filter_map(|a| a.deleted);
        let keys_written = resolver.tree(&keys_tree(name));
        let key_trees = KeyTree::all(keys_written, deleted);
        let expiry = resolver.tree(&expiry_tree(name));
        if expiry.is_none() && stored.expiry.is_some() {
            return None;
        }
        let old = resolver.tree(&old_tree(name));
        if old.is_none() && stored.old_records {
            return None;
        }
        let has_unique = attributes.iter().any(|a| a.unique)
            || building.as_ref().is_some_and(|b| b.becomes_unique);
        let fields = ExtractedFields::new(&stored);
        Some(Layout {
            has_unique,
            clustered: attributes.iter().position(|a| a.kind.is_clustered()),
            expiry,
            old,
            expiry_field_at: fields.expiry_field_at,
            extracted_ids: fields.ids,
            key_trees,
            extraction: fields.extraction,
            data: data.id,
            keys: keys_written.filter(|_| stored.settings.keys_after.is_none()),
            keys_written,
            superseded: resolver.tree(&superseded_tree(name)),
            notes: resolver.tree(&notes_tree(name)),
            shape,
            attributes,
            building,
            types: types.clone(),
            config: data.config.clone(),
            valid_change: AtomicU64::new(version.changes()),
            stored,
        })
    }

    /// The coverage of the obsolete set. `watermark` is its repair watermark; `None` if there is no
    /// set, or it is not fully readable.
    pub(crate) fn coverage_at(&self, watermark: Option<Seq>) -> Coverage {
        let watermark = watermark.filter(|_| self.superseded.is_some());
        Coverage::at(&self.stored.settings, watermark)
    }

    /// The index types of the store.
    pub(crate) fn index_types(&self) -> &IndexTypes {
        &self.types
    }

    /// The attribute by which the records are stored, if they are stored by location. Its tree has
    /// the full records (`crate::bodies`).
    #[inline]
    pub(crate) fn clustered(&self) -> Option<&Attribute> {
        self.clustered.map(|at| self.attributes.own(at))
    }

    /// True if the values of an index must be unique.
    #[inline]
    pub(crate) fn has_unique(&self) -> bool {
        self.has_unique
    }

    /// The indexes whose values must be unique.
    pub(crate) fn unique_indexes(&self) -> Vec<UniqueIndex<'_>> {
        let complete = self.attributes.iter().filter(|a| a.unique);
        let complete = complete.map(|attribute| UniqueIndex {
            attribute,
            staged: None,
        });
        let building = self.building.iter().filter(|b| b.becomes_unique);
        let building = building.map(|building| UniqueIndex {
            attribute: &building.attribute,
            staged: building.staging.filter(|_| building.gathered),
        });
        complete.chain(building).collect()
    }

    /// The index of the clustered attribute among the extracted attributes.
    pub(crate) fn clustered_at(&self) -> Option<usize> {
        self.clustered
    }

    /// True if heads may lack the values of a written attribute, because it was declared after
    /// records were stored.
    pub(crate) fn has_late_attributes(&self) -> bool {
        let mut written = self.written();
        self.clustered.is_some() && written.any(|(_, a)| !self.stored.in_all_records(a.id))
    }

    /// The attributes whose indexes receive writes, each with its index among the extracted
    /// attributes.
    pub(crate) fn written(&self) -> impl Iterator<Item = (usize, &Attribute)> {
        let building = self.building.iter();
        let building = building.map(|building| (building.at, &building.attribute));
        self.attributes.iter().enumerate().chain(building)
    }

    /// The trees of the dataset in the order of the steps, the data tree first.
    pub(crate) fn trees(&self) -> Vec<TreeId> {
        let steps = [
            CompactionStep::Report,
            CompactionStep::Drop,
            CompactionStep::Forget,
        ];
        steps.map(|step| self.trees_in(step)).concat()
    }

    /// The trees of one step of a compaction.
    pub(crate) fn trees_in(&self, step: CompactionStep) -> Vec<TreeId> {
        let written = || self.written().map(|(_, attribute)| attribute);
        let mut trees: Vec<TreeId> = match step {
            CompactionStep::Report => std::iter::once(self.data)
                .chain(written().filter_map(|a| a.widened))
                .chain(self.keys_written)
                .chain(written().filter_map(|a| a.deleted))
                .collect(),
            CompactionStep::Drop => {
                let staging = self.building.iter().filter_map(|building| building.staging);
                let trees = written().filter_map(|a| a.tree).chain(staging);
                trees.chain(self.expiry).collect()
            }
            CompactionStep::Forget => (self.superseded.into_iter())
                .chain(self.notes)
                .chain(self.old)
                .collect(),
        };
        // The old and the new index of a rebuild share their tree of keys.
        let mut seen = HashSet::new();
        trees.retain(|tree| seen.insert(*tree));
        trees
    }

    /// The latest count of tree changes at which this was still the layout of the dataset.
    pub(crate) fn valid_change(&self) -> u64 {
        self.valid_change.load(Ordering::Relaxed)
    }

    /// Records that the layout is still valid in `version`.
    pub(crate) fn note_valid_in(&self, version: &Version) {
        self.valid_change
            .fetch_max(version.changes(), Ordering::Relaxed);
    }

    /// True if the layout was made from this configuration.
    pub(crate) fn is_of(&self, config: &Arc<Vec<u8>>) -> bool {
        Arc::ptr_eq(config, &self.config)
    }

    /// Returns [`Error::Busy`] while the change of an index is unfinished.
    pub(crate) fn refuse_unfinished(&self) -> Result<()> {
        match &self.stored.change {
            None => Ok(()),
            Some(StoredChange { attribute, .. }) => Err(Error::busy(format!(
                "the change of the index of `{0}` to {1} is unfinished: resume it, or drop `{0}` to cancel it",
                attribute.def.path, attribute.def.kind
            ))),
        }
    }
}

//! Where a dataset's records and indexes are in the group: names of trees, and their options.
//!
//! A dataset `d` has a tree `d/data` (primary key -> stored record), and one tree `d/index/N` for
//! each attribute N with a stand-alone index.

use std::sync::Arc;

use lsm::attributes::{Extractor, Summary};
use lsm::{Leveled, Policy, TreeId, TreeOptions, TreeProvider};

use crate::def::{IndexKind, StoredDef};
use crate::index;
use crate::record::RecordRef;
use crate::schema::{Extraction, Type};

const DATA: &str = "/data";

/// The name of a dataset's data tree.
pub(crate) fn data_tree(dataset: &str) -> String {
    format!("{dataset}{DATA}")
}

/// The name of the tree of attribute `id`.
pub(crate) fn index_tree(dataset: &str, id: u32) -> String {
    format!("{dataset}/index/{id}")
}

/// The dataset that a data tree belongs to; `None` for other trees.
pub(crate) fn dataset_of(tree: &str) -> Option<&str> {
    tree.strip_suffix(DATA)
}

/// One attribute, ready for use.
pub(crate) struct Attribute {
    pub(crate) id: u32,
    pub(crate) ty: Type,
    pub(crate) kind: IndexKind,
    pub(crate) path: crate::schema::Path,
    /// The tree of a stand-alone index.
    pub(crate) tree: Option<TreeId>,
}

/// A dataset, ready for use.
pub(crate) struct Layout {
    pub(crate) name: String,
    pub(crate) stored: StoredDef,
    pub(crate) data: TreeId,
    pub(crate) attributes: Vec<Attribute>,
    pub(crate) extraction: Extraction,
}

impl Layout {
    /// The layout of a dataset whose trees are in the group; `None` when one of them is not.
    pub(crate) fn new(
        name: &str,
        stored: StoredDef,
        tree: &dyn Fn(&str) -> Option<TreeId>,
    ) -> Option<Layout> {
        let mut attributes = Vec::new();
        for attribute in &stored.attributes {
            let kind = attribute.def.kind;
            let tree = if kind.is_standalone() {
                Some(tree(&index_tree(name, attribute.id))?)
            } else {
                None
            };
            let (path, ty) = (attribute.def.path.clone(), attribute.def.ty);
            attributes.push(Attribute {
                id: attribute.id,
                ty,
                kind,
                path,
                tree,
            });
        }
        let paths = stored
            .attributes
            .iter()
            .map(|a| (a.def.path.clone(), a.def.ty))
            .collect();
        let extraction = Extraction::new((stored.key.clone(), stored.key_type), paths);
        Some(Layout {
            name: name.to_string(),
            data: tree(&data_tree(name))?,
            stored,
            attributes,
            extraction,
        })
    }
}

/// Tells the engine the attributes of stored records that have an embedded or a fingerprint index.
struct EmbeddedAttributes {
    ids: Vec<u32>,
    summaries: Vec<Summary>,
}

impl Extractor for EmbeddedAttributes {
    fn ids(&self) -> &[u32] {
        &self.ids
    }

    fn summary(&self, slot: usize) -> Summary {
        self.summaries.get(slot).copied().unwrap_or_default()
    }

    fn extract(&self, _key: &[u8], value: &[u8], emit: &mut dyn FnMut(usize, &[u8])) {
        let Some(record) = RecordRef::parse(value) else {
            return;
        };
        for (id, value) in record.attributes() {
            if let Some(slot) = self.ids.iter().position(|known| *known == id) {
                emit(slot, value);
            }
        }
    }
}

/// Gives the engine the options of our trees.
pub(crate) struct Trees {
    /// Bytes at which a merge starts the next table.
    pub(crate) table_size: u64,
}

impl Trees {
    /// Levels grow with the tables, so that a store of small tables is as deep as a large one.
    fn policy(&self) -> Policy {
        Policy::Leveled(Leveled {
            level1_bytes: self.table_size.saturating_mul(2),
            ..Leveled::default()
        })
    }
}

impl TreeProvider for Trees {
    fn tree_options(&self, name: &str, config: &[u8]) -> lsm::Result<TreeOptions> {
        let unknown =
            || lsm::Error::Invalid(format!("tree {name}: its configuration is not readable"));
        if dataset_of(name).is_some() {
            let stored = StoredDef::from_bytes(config).ok_or_else(unknown)?;
            let embedded = stored
                .attributes
                .iter()
                .filter(|a| a.def.kind.is_embedded());
            let summary = |kind| match kind {
                IndexKind::Fingerprint => Summary::Fingerprints,
                _ => Summary::Filters,
            };
            let (ids, summaries): (Vec<u32>, Vec<Summary>) =
                embedded.map(|a| (a.id, summary(a.def.kind))).unzip();
            let extractor: Option<Arc<dyn Extractor>> = if ids.is_empty() {
                None
            } else {
                Some(Arc::new(EmbeddedAttributes { ids, summaries }))
            };
            return Ok(TreeOptions {
                extractor,
                policy: self.policy(),
                ..TreeOptions::default()
            });
        }
        let kind: IndexKind = std::str::from_utf8(config)
            .ok()
            .and_then(|text| text.parse().ok())
            .ok_or_else(unknown)?;
        Ok(TreeOptions {
            policy: self.policy(),
            ..index::tree_options(kind)
        })
    }
}

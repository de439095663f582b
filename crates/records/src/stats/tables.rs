//! The tables of a dataset, one by one.

use std::path::PathBuf;

use esker_lsm::Seq;
use esker_lsm::coding::Reader;
use esker_lsm::version::TreeVersion;
use esker_model::schema::{KeyType, Type, Value, decode_key};
use serde::Serialize;

use super::tree_label;
use crate::catalog::Layout;
use crate::index::IndexType;
use crate::store::Handle;

/// A table of a dataset ([`Dataset::tables`](crate::Dataset::tables)).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TableStats {
    /// The contents of its tree, in words: as [`TreeStats::name`](super::TreeStats::name).
    pub tree: String,
    /// Its level; the runs of level 0 are the newest.
    pub level: u32,
    /// Its run among those of the tree, from the newest (0) to the oldest.
    pub run: usize,
    /// Its number, unique in the store.
    pub number: u64,
    /// Its file, which small tables that were written together share.
    #[serde(skip)]
    pub file: PathBuf,
    /// Its bytes.
    pub bytes: u64,
    /// Entries, deletions among them.
    pub entries: u64,
    /// Of these, deletions.
    pub deletes: u64,
    /// Its first write.
    pub min_seq: Seq,
    /// Its last write.
    pub max_seq: Seq,
    /// Its least key, or the least value of an index; `None` if it cannot be shown as text.
    pub first: Option<String>,
    /// Its greatest key, or the greatest value of an index.
    pub last: Option<String>,
}

/// How the keys of a tree are read.
enum Keys<'l> {
    Primary(KeyType),
    Values(&'l dyn IndexType, Type),
    Other,
}

impl Keys<'_> {
    fn of<'l>(layout: &'l Layout, tree: &TreeVersion) -> Keys<'l> {
        if tree.id == layout.data || layout.keys_written == Some(tree.id) {
            return Keys::Primary(layout.stored.key_type);
        }
        let mut attributes = layout.written().map(|(_, attribute)| attribute);
        let own = attributes.find(|attribute| attribute.tree == Some(tree.id));
        match own.and_then(|own| Some((own.index()?, own.ty))) {
            Some((index, ty)) => Keys::Values(index, ty),
            None => Keys::Other,
        }
    }

    fn text(&self, key: &[u8]) -> Option<String> {
        let value = match self {
            Keys::Primary(ty) => decode_key(*ty, key)?,
            Keys::Values(index, ty) => {
                let (value, _) = index.split(*ty, key)?;
                Value::decode(*ty, &mut Reader::new(value))?
            }
            Keys::Other => return None,
        };
        Some(value.to_string())
    }
}

impl Handle {
    /// See [`crate::Dataset::tables`].
    pub(crate) fn tables(&self) -> Vec<TableStats> {
        let snapshot = self.store.group.snapshot();
        let layout = self.state.layout_in(snapshot.version());
        let mut tables = Vec::new();
        // A dataset that was dropped has no trees.
        let own = layout.trees();
        for tree in (own.iter()).filter_map(|id| snapshot.version().trees.get(id)) {
            let (name, keys) = (tree_label(&layout, tree), Keys::of(&layout, tree));
            for (at, run) in tree.runs.iter().enumerate() {
                for table in run.tables.iter() {
                    let meta = table.meta();
                    tables.push(TableStats {
                        tree: name.clone(),
                        level: run.level,
                        run: at,
                        number: meta.number,
                        file: table.path(),
                        bytes: meta.size,
                        entries: meta.entries,
                        deletes: meta.deletes,
                        min_seq: meta.min_seq,
                        max_seq: meta.max_seq,
                        first: keys.text(&meta.smallest),
                        last: keys.text(&meta.largest),
                    });
                }
            }
        }
        tables
    }
}

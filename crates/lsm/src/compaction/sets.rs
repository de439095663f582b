//! The obsolete set in flushes and compactions: which entries it drops, what they add to it, and
//! how bitmap trees, which hold it, are written.

use std::sync::Arc;

use super::context::CompactionContext;
use super::output::{Expected, Output, Written};
use crate::cursor::Cursor;
use crate::entry::{Kind, Seq};
use crate::error::{Error, Result};
use crate::obsolete::{self, ObsoleteWrites, SeqSet};
use crate::options::BitmapMerges;
use crate::version::{ComponentId, DropPolicy, Edit, TableAt, TreeVersion};

impl CompactionContext<'_> {
    /// The obsolete writes of `tree`.
    pub(super) fn obsolete_writes(&self, tree: &TreeVersion) -> ObsoleteWrites {
        let Some(by) = &tree.options.superseded else {
            return ObsoleteWrites::default();
        };
        if by.drop_policy == DropPolicy::Regardless {
            return ObsoleteWrites::default();
        }
        let bitmap = self.version.tree_named(&by.tree);
        ObsoleteWrites(bitmap.map(|bitmap| match self.options.bitmap_merges {
            BitmapMerges::SideFile => obsolete::Source::Pinned(bitmap.bitmap().clone()),
            BitmapMerges::Lock => {
                let (now, id) = (self.now.clone(), bitmap.id);
                let bitmap = move || now().trees.get(&id).map(|tree| tree.bitmap().clone());
                obsolete::Source::Live(Arc::new(move || bitmap().unwrap_or_default()))
            }
        }))
    }

    /// Records the numbers that a flush or compaction of `tree` dropped in the tree's bitmap tree,
    /// by the same edit: the bits are set when, and only when, the puts are gone.
    pub(super) fn report(
        &self,
        tree: &TreeVersion,
        reported: &SeqSet,
        component: ComponentId,
        edit: &mut Edit,
    ) -> Result<()> {
        let by = tree.options.superseded.as_ref();
        let bitmap = by.and_then(|by| self.version.tree_named(&by.tree));
        let Some(bitmap) = bitmap.filter(|_| !reported.is_empty()) else {
            return Ok(());
        };
        self.add_set(bitmap, reported.clone(), component, edit)
    }

    /// True when the output of flushes and compactions of a tree has no entry of a write in its
    /// set.
    pub(super) fn applies_set(&self, tree: &TreeVersion) -> bool {
        let Some(by) = &tree.options.superseded else {
            return false;
        };
        let drop_policy = match &tree.options.filter {
            Some(filter) => {
                filter.drops_obsolete() && by.drop_policy != DropPolicy::KeepUntilRepaired
            }
            None => by.drop_policy != DropPolicy::Regardless,
        };
        drop_policy && self.version.tree_named(&by.tree).is_some()
    }

    /// Writes numbers as a run of a bitmap tree into `edit`. `component` spans the writes that made
    /// them obsolete.
    pub(crate) fn write_bits(
        &self,
        bitmap: &TreeVersion,
        numbers: &mut dyn Iterator<Item = Result<Seq>>,
        component: ComponentId,
        edit: &mut Edit,
    ) -> Result<()> {
        let mut set = SeqSet::new();
        for seq in numbers {
            set.insert(seq?);
        }
        self.add_set(bitmap, set, component, edit)
    }

    /// Writes a set that is added to a bitmap tree as a new run into `edit`.
    fn add_set(
        &self,
        bitmap: &TreeVersion,
        set: SeqSet,
        component: ComponentId,
        edit: &mut Edit,
    ) -> Result<()> {
        let mut written = self.write_set(bitmap, &set, component)?;
        written.bits = set;
        written.enter(edit, bitmap.id, 0, None, Some(component));
        Ok(())
    }

    /// Writes a set that replaces all tables of a bitmap tree as one run into `edit`.
    pub(crate) fn replace_set(
        &self,
        bitmap: &TreeVersion,
        set: &SeqSet,
        component: ComponentId,
        edit: &mut Edit,
    ) -> Result<()> {
        edit.removed.extend(bitmap.tables().map(|table| TableAt {
            tree: bitmap.id,
            number: table.meta().number,
        }));
        let written = self.write_set(bitmap, set, component)?;
        written.enter(edit, bitmap.id, 0, None, Some(component));
        Ok(())
    }

    pub(super) fn write_set(
        &self,
        bitmap: &TreeVersion,
        set: &SeqSet,
        component: ComponentId,
    ) -> Result<Written> {
        let mut output = Output::new(self, bitmap, &Expected::default());
        obsolete::encode(set, &mut |key, value| {
            output.add(key, component.max, Kind::Put, value)
        })?;
        output.finish()
    }
}

/// The set in sources (memtables or runs) of a bitmap tree.
pub(super) fn read_set<C: Cursor>(tree: &TreeVersion, sources: Vec<C>) -> Result<SeqSet> {
    let mut set = SeqSet::new();
    for mut source in sources {
        source.seek_first()?;
        while source.valid() {
            obsolete::decode(source.key(), source.value(), &mut set)
                .map_err(|what| Error::Invalid(format!("tree {}: {what}", tree.name)))?;
            source.next()?;
        }
    }
    Ok(set)
}

//! The rules of the obsolete set: it never has the write of a current record, and up to its repair
//! watermark (or always, if writers report obsolete writes) it has every obsolete write of which a
//! tree still has an entry.

use esker::schema::{Maintenance, Repair};
use esker::{Database, DatasetDef};
use esker_lsm::Snapshot;

use crate::model::Records;

/// The replaced writes of a dataset.
#[derive(Clone, Default)]
pub(crate) struct Known {
    /// Writes, and the later ones that replaced them.
    over: Vec<(u64, u64)>,
    /// The strategy or an index was changed, or a repair went by index: the repair watermark does
    /// not cover writes without index entries.
    pub(crate) partial: bool,
    /// A snapshot that is checked again later.
    pinned: Option<(Snapshot, String, Vec<u64>)>,
}

impl Known {
    pub(crate) fn of(def: &DatasetDef) -> Known {
        let keys = [
            Maintenance::Eager,
            Maintenance::Validation,
            Maintenance::MutableBitmap,
        ];
        let told = def.repair == Repair::Merge && keys.contains(&def.maintenance);
        Known {
            partial: !told || def.versions > 1 || def.auto,
            ..Known::default()
        }
    }

    pub(crate) fn over(&mut self, over: Vec<(u64, u64)>) {
        self.over.extend(over);
    }

    /// After a power cut: removes the writes after this one, which were lost.
    pub(crate) fn forget(&mut self, last: u64) {
        self.over.retain(|(_, by)| *by <= last);
    }

    pub(crate) fn compare(&self, db: &Database, name: &str, records: &Records, def: &DatasetDef) {
        let current: Vec<u64> = records.rows().map(|(_, seq, _)| seq).collect();
        let exact = !self.partial
            && matches!(
                def.maintenance,
                Maintenance::MutableBitmap | Maintenance::Eager
            );
        self.hold_against(&db.group().snapshot(), name, &current, exact);
    }

    fn hold_against(&self, snapshot: &Snapshot, name: &str, current: &[u64], exact: bool) {
        let tree = snapshot.version().tree_named(&format!("{name}/superseded"));
        let Some(set) = tree.and_then(|tree| snapshot.superseded(tree.id)) else {
            return;
        };
        for seq in current {
            assert!(
                !set.contains(*seq),
                "write {seq} is current and said to be obsolete"
            );
        }
        assert!(
            set.repair_watermark() <= snapshot.seq(),
            "the mark is ahead"
        );
        let must = |by: u64| by <= snapshot.seq() && (by <= set.repair_watermark() || exact);
        let missing = self.over.iter().filter(|_| !self.partial);
        let mut missing = missing.filter(|(seq, by)| must(*by) && !set.contains(*seq));
        let Some(first) = missing.next() else {
            return;
        };
        // The set forgets writes of which no tree has an entry. The entries of a damaged tree are
        // unknown.
        let held = tree.and_then(|tree| esker_lsm::held(snapshot, tree.id).ok().flatten());
        let Some(held) = held else {
            return;
        };
        for (seq, by) in std::iter::once(first).chain(missing) {
            assert!(
                !held.contains(*seq),
                "write {seq}, obsolete by {by}, is not in the set of mark {}",
                set.repair_watermark()
            );
        }
    }

    /// The state as of now, to be compared with the same snapshot later.
    pub(crate) fn pinned(&self, db: &Database) -> Known {
        Known {
            pinned: Some((db.group().snapshot(), String::new(), Vec::new())),
            ..self.clone()
        }
    }

    pub(crate) fn with_current(mut self, name: &str, records: &Records) -> Known {
        if let Some((_, of, current)) = &mut self.pinned {
            *of = name.to_string();
            *current = records.rows().map(|(_, seq, _)| seq).collect();
        }
        self
    }

    /// Checks that the pinned snapshot is unchanged.
    pub(crate) fn hold(&self) {
        if let Some((snapshot, name, current)) = &self.pinned {
            self.hold_against(snapshot, name, current, false);
        }
    }
}

//! How the dataset of a life is kept in order, and what must hold of the set of writes that are over:
//! it never has the write of a current record, it has all up to its mark, and it only grows.

use std::collections::BTreeMap;

use esker::{Database, DatasetDef, Maintenance, Merging, Repair, Tuning};
use lsm::{BitmapMerges, Cursor, Seq, Snapshot};

/// Everything about a dataset's order that can be chosen.
#[derive(Debug, Clone)]
pub(crate) struct Upkeep {
    pub(crate) maintenance: Maintenance,
    pub(crate) repair: Repair,
    pub(crate) merging: Merging,
    pub(crate) versions: u32,
    pub(crate) bitmap_merges: BitmapMerges,
}

pub(crate) const MERGINGS: [Merging; 3] = [Merging::Leveled, Merging::Tiered, Merging::Correlated];

impl Upkeep {
    /// Any way that is allowed.
    pub(crate) fn any(rng: &mut fastrand::Rng) -> Upkeep {
        let maintenance = Maintenance::ALL[rng.usize(0..Maintenance::ALL.len())];
        Upkeep::under(maintenance, MERGINGS[rng.usize(0..MERGINGS.len())], rng)
    }

    /// Any way with this strategy and these merges.
    pub(crate) fn under(
        maintenance: Maintenance,
        merging: Merging,
        rng: &mut fastrand::Rng,
    ) -> Upkeep {
        let deferred = maintenance == Maintenance::Deferred;
        let repairs = [Repair::Merge, Repair::None, Repair::Staged];
        Upkeep {
            maintenance,
            repair: repairs[rng.usize(0..2 + usize::from(deferred))],
            merging,
            versions: if deferred && rng.usize(0..3) == 0 {
                3
            } else {
                1
            },
            bitmap_merges: [BitmapMerges::SideFile, BitmapMerges::Lock][rng.usize(0..2)],
        }
    }

    pub(crate) fn of(&self, def: DatasetDef) -> DatasetDef {
        def.maintenance(self.maintenance)
            .repair(self.repair)
            .merging(self.merging)
            .versions(self.versions)
    }

    pub(crate) fn tuning(&self) -> Tuning {
        Tuning {
            bitmap_merges: self.bitmap_merges,
            ..Tuning::default()
        }
    }

    /// True when the set has every write that is over, at any time: writers note what they replace.
    pub(crate) fn is_exact(&self) -> bool {
        matches!(
            self.maintenance,
            Maintenance::MutableBitmap | Maintenance::Eager
        )
    }
}

/// What is known of the writes of the dataset `d`.
#[derive(Clone, Default)]
pub(crate) struct Known {
    /// The writes that made the records that are there.
    current: BTreeMap<Vec<u8>, Seq>,
    /// Writes that are over, and the last write when that was seen.
    over: Vec<(Seq, Seq)>,
    /// Whether the mark does not stand for every write that was replaced: not for those without facts in
    /// indexes, or not for versions that are kept.
    pub(super) partial: bool,
    /// What is asked again later.
    pinned: Option<Snapshot>,
}

/// The writes of the records that `snapshot` shows.
pub(crate) fn current(snapshot: &Snapshot) -> BTreeMap<Vec<u8>, Seq> {
    let data = snapshot.version().tree_named("d/data").unwrap().id;
    let mut cursor = snapshot.cursor(data, 0);
    let mut current = BTreeMap::new();
    cursor.seek_first().unwrap();
    while cursor.valid() {
        current.insert(cursor.key().to_vec(), cursor.seq());
        cursor.next().unwrap();
    }
    current
}

impl Known {
    pub(crate) fn of(upkeep: &Upkeep) -> Known {
        Known {
            // Found by going through indexes: what no index has a fact of is not looked for.
            partial: upkeep.versions > 1
                || upkeep.repair != Repair::Merge
                || !matches!(
                    upkeep.maintenance,
                    Maintenance::Eager | Maintenance::Validation | Maintenance::MutableBitmap
                ),
            ..Known::default()
        }
    }

    /// Takes in what has changed, and holds it against the set of the moment.
    pub(crate) fn see(&mut self, db: &Database, is_exact: bool) {
        let snapshot = db.group().snapshot();
        let now = current(&snapshot);
        let gone = self
            .current
            .iter()
            .filter(|(key, seq)| now.get(*key) != Some(seq));
        self.over
            .extend(gone.map(|(_, seq)| (*seq, snapshot.seq())));
        self.current = now;
        self.compare(&snapshot, is_exact);
    }

    /// The same as of now, to be held against the same snapshot later.
    pub(crate) fn pinned(&self, db: &Database) -> Known {
        Known {
            pinned: Some(db.group().snapshot()),
            ..self.clone()
        }
    }

    /// What was pinned is as it was.
    pub(crate) fn hold(&self) {
        let snapshot = self.pinned.as_ref().unwrap();
        assert_eq!(current(snapshot), self.current);
        self.compare(snapshot, false);
    }

    fn compare(&self, snapshot: &Snapshot, is_exact: bool) {
        let tree = snapshot.version().tree_named("d/superseded").unwrap().id;
        let set = snapshot.superseded(tree).unwrap();
        for (key, seq) in &self.current {
            assert!(
                !set.contains(*seq),
                "write {seq} of {key:?} is current and in the set"
            );
        }
        assert!(set.mark() <= snapshot.seq());
        for (seq, by) in &self.over {
            assert!(
                set.contains(*seq) || ((*by > set.mark() || self.partial) && !is_exact),
                "write {seq}, over by {by}, is not in the set of mark {}",
                set.mark()
            );
        }
    }
}

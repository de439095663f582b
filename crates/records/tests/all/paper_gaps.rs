//! Questions that the papers on index maintenance leave open (Luo & Carey; DELI), one test each:
//! snapshots beside repairs, crashes between a version and its index entry, failed batches, deletes
//! with validation, compactions and writers at once, repeated keys in a batch.

use crate::common;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use crate::common::{
    Doing, TextQuery, check, check_set, converge, keys_in_every_way, open, path, scan, seeds, small,
};

use esker::fs::Fs;
use esker::maintain::RepairOptions;
use esker::schema::{Maintenance, Merging, Repair};
use esker::{
    Database, Dataset, DatasetDef, DatasetSnapshot, Durability, ErrorKind, IndexKind, KeyType, Type,
};
use esker_lsm::{BitmapMerges, Cursor, Kind, Seq, TreeId};
use esker_sim::by_tier;
use esker_sim::faulty::Faulty;
use esker_sim::memory::{Memory, PowerCut};

const STANDALONE: [IndexKind; 4] = [
    IndexKind::Eager,
    IndexKind::Lazy,
    IndexKind::Composite,
    IndexKind::Recent,
];

const MERGINGS: [Merging; 4] = [
    Merging::LazyLeveled,
    Merging::Leveled,
    Merging::Tiered,
    Merging::Correlated,
];

struct Store {
    db: Database,
    dataset: Dataset,
}

fn def(kind: IndexKind, maintenance: Maintenance) -> DatasetDef {
    DatasetDef::new(path("id"), KeyType::Int)
        .index(path("v"), esker::Index::new(kind).of_type(Type::Int))
        .maintenance(maintenance)
}

fn store_in(fs: Arc<dyn Fs>, def: DatasetDef) -> Store {
    let db = open(fs).unwrap();
    let dataset = db.create_dataset::<esker::Key>("d", def).unwrap();
    Store { db, dataset }
}

fn store(def: DatasetDef) -> Store {
    store_in(Arc::new(Memory::new()), def)
}

/// Runs `test` for every strategy with every kind that has a tree, and every compaction policy.
fn everywhere(test: impl Fn(DatasetDef)) {
    for maintenance in Maintenance::ALL {
        for kind in STANDALONE {
            for merging in MERGINGS {
                let def = def(kind, maintenance).merging(merging);
                let _doing = Doing(format!("{def:?}"));
                test(def);
            }
        }
    }
}

fn body(id: u64, v: u64) -> String {
    format!(r#"{{"id":{id},"v":{v}}}"#)
}

/// The keys of the records whose `v` is `value`, newest first.
fn of(snapshot: &DatasetSnapshot, value: u64) -> Vec<String> {
    let query = snapshot.query().equals(&path("v"), &value.to_string());
    keys_in_every_way(&query)
}

impl Store {
    fn put(&self, id: u64, v: u64) {
        self.dataset.put_json(body(id, v).as_bytes()).unwrap();
    }

    fn delete(&self, id: u64) {
        let key = self.dataset.parse_key(&id.to_string()).unwrap();
        assert!(self.dataset.delete(&key).unwrap().is_some());
    }

    fn of(&self, value: u64) -> Vec<String> {
        of(&self.dataset.snapshot(), value)
    }

    fn tree(&self, name: &str) -> Option<TreeId> {
        self.db.group().tree(&format!("d/{name}"))
    }

    fn is_over(&self, seq: Seq) -> bool {
        let set = self.db.group().snapshot();
        let set = set.superseded(self.tree("superseded").unwrap()).unwrap();
        set.contains(seq)
    }

    /// True if the write is in the set, or no tree that reads the set has entries of it.
    fn is_over_or_gone(&self, seq: Seq) -> bool {
        let set = self.tree("superseded").unwrap();
        let held = esker_lsm::held(&self.db.group().snapshot(), set).unwrap();
        self.is_over(seq) || !held.unwrap().contains(seq)
    }

    /// The number of the write that made a record.
    fn seq(&self, id: u64) -> Seq {
        let key = self.dataset.parse_key(&id.to_string()).unwrap();
        self.dataset.get(&key).unwrap().unwrap().seq()
    }

    fn repair(&self) {
        let options = RepairOptions::default();
        let report = self.dataset.repair(&options).run();
        assert!(report.unwrap().complete);
    }

    fn check(&self) {
        check(&self.db);
        check_set(&self.db);
    }
}

#[test]
fn a_snapshot_from_before_an_update_finds_the_old_record_through_the_index_after_repair_and_merges()
{
    for by_hand in [false, true] {
        everywhere(|def| old_and_new(def, by_hand));
    }
    everywhere(|def| old_and_new(def.repair(Repair::None), false));
}

fn old_and_new(def: DatasetDef, by_hand: bool) {
    let store = store(def);
    for id in 0..20 {
        store.put(id, id % 2);
    }
    store.db.flush().unwrap();
    let evens: Vec<String> = (0..20_u64)
        .rev()
        .filter(|id| id % 2 == 0)
        .map(|id| id.to_string())
        .collect();
    let before = store.dataset.snapshot();
    for id in (0..20).step_by(2) {
        match id % 4 {
            0 => store.put(id, 7),
            _ => store.delete(id),
        }
    }
    let replaced: Vec<Seq> = (1..=20).step_by(2).collect();
    let after = store.dataset.snapshot();
    let moved = ["16", "12", "8", "4", "0"];
    let hold = || {
        for snapshot in [&before, &after, &store.dataset.snapshot()] {
            let old = std::ptr::eq(snapshot, &before);
            let (zero, seven) = if old {
                (evens.as_slice(), &[][..])
            } else {
                (&[][..], &moved[..])
            };
            assert_eq!(of(snapshot, 0), zero);
            assert_eq!(of(snapshot, 7), seven);
            assert_eq!(of(snapshot, 1).len(), 10);
        }
    };
    hold();
    // Recorded in memory, as writers do, or by a repair.
    let group = store.db.group();
    let set = store.tree("superseded").unwrap();
    let mark = group.snapshot().seq();
    if by_hand {
        let mut numbers = replaced.iter().map(|seq| Ok(*seq));
        group.supersede(set, &mut numbers, Some(mark)).unwrap();
    } else {
        store.repair();
    }
    assert!(replaced.iter().all(|seq| store.is_over(*seq)));
    hold();
    store.db.flush().unwrap();
    hold();
    converge(&store.db);
    hold();
    store.db.compact(None).unwrap();
    hold();
    store.check();
}

/// The numbers of the puts that a tree holds.
fn puts(db: &Database, tree: TreeId) -> Vec<Seq> {
    let snapshot = db.group().snapshot();
    let mut cursor = snapshot.entries(tree, 0);
    let mut found = Vec::new();
    cursor.seek_first().unwrap();
    while cursor.valid() {
        if cursor.kind() == Kind::Put {
            found.push(cursor.seq());
        }
        cursor.next().unwrap();
    }
    found
}

#[test]
fn a_version_has_its_bit_or_its_entry_wherever_a_reporting_compaction_is_cut() {
    let reporting = [
        (Maintenance::Deferred, "data"),
        (Maintenance::Validation, "keys"),
        (Maintenance::DeletedKey, "deleted/0"),
    ];
    let modes = [
        PowerCut::Lost,
        PowerCut::Kept,
        PowerCut::Torn,
        PowerCut::Reordered,
    ];
    for (maintenance, tree) in reporting {
        for merging in MERGINGS {
            // Runs up to the compaction; `cut` is called before it.
            let run = |fs: Arc<dyn Fs>, cut: &mut dyn FnMut()| {
                let def = def(IndexKind::Composite, maintenance).merging(merging);
                let store = store_in(fs, def);
                for round in 0..3 {
                    for id in 0..12 {
                        store.put(id, round);
                    }
                    store.db.flush().unwrap();
                }
                cut();
                let _ = store.db.compact(None);
            };
            let quiet = Faulty::new(Arc::new(Memory::new()));
            let mut before = 0;
            run(Arc::new(quiet.clone()), &mut || before = quiet.calls());
            let calls = quiet.calls() - before;
            assert!(calls > 5, "{calls}");
            for at in 1..=calls {
                let mode = modes[at as usize % modes.len()];
                // In the usual tier every call in one of the two ways.
                let first = at / 4 % 2 == 1;
                let ways = [first, !first];
                for &once in by_tier(&ways[..1], &ways) {
                    let _doing = Doing(format!(
                        "{maintenance} {merging}: call {at}, {mode:?}, {once}"
                    ));
                    let memory = Memory::new();
                    let faulty = Faulty::new(Arc::new(memory.clone()));
                    run(Arc::new(faulty.clone()), &mut || {
                        if once {
                            faulty.fail_at(at)
                        } else {
                            faulty.fail_from(at)
                        }
                    });
                    let db = open(Arc::new(memory.power_cut(at, mode))).unwrap();
                    let dataset = db.dataset::<esker::Key>("d").unwrap();
                    let store = Store { db, dataset };
                    let there = puts(&store.db, store.tree(tree).unwrap());
                    for seq in 1..=24 {
                        let known = there.contains(&seq) || store.is_over_or_gone(seq);
                        assert!(known, "{seq} was lost");
                    }
                    for (value, count) in [(0, 0), (1, 0), (2, 12)] {
                        assert_eq!(store.of(value).len(), count);
                    }
                    store.check();
                    store.db.compact(None).unwrap();
                    assert_eq!(store.of(2).len(), 12);
                    store.check();
                }
            }
        }
    }
}

#[test]
fn a_batch_that_fails_leaves_no_bit_set_and_no_entry_behind_and_can_be_done_again() {
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Fails {
        Append,
        FullDisk,
        Sync,
    }
    for maintenance in Maintenance::ALL {
        for kind in STANDALONE {
            for fails in [Fails::Append, Fails::FullDisk, Fails::Sync] {
                for flushed in [false, true] {
                    let _doing = Doing(format!("{maintenance} {kind} {fails:?} flushed {flushed}"));
                    let memory = Memory::new();
                    let faulty = Faulty::new(Arc::new(memory.clone()));
                    let store = store_in(Arc::new(faulty.clone()), def(kind, maintenance));
                    store.put(1, 5);
                    store.put(2, 5);
                    if flushed {
                        store.db.flush().unwrap();
                    }
                    store.db.sync().unwrap();
                    let old = [store.seq(1), store.seq(2)];
                    let mut batch = store.dataset.batch();
                    batch.put_json(body(1, 6).as_bytes()).unwrap();
                    batch.delete(store.dataset.parse_key("2").unwrap()).unwrap();
                    batch.insert_json(body(3, 6).as_bytes()).unwrap();
                    match fails {
                        Fails::Append => faulty.fail_at(1),
                        Fails::FullDisk => faulty.set_capacity(faulty.used() + 20),
                        Fails::Sync => faulty.fail_sync_once(),
                    }
                    let error = batch.durability(Durability::Sync).commit().unwrap_err();
                    assert_ne!(error.kind(), ErrorKind::Exists, "{error}");
                    let as_before = |store: &Store| {
                        assert_eq!(store.of(5), ["2", "1"]);
                        assert_eq!(store.of(6), Vec::<String>::new());
                        assert!(!old.iter().any(|seq| store.is_over(*seq)));
                        check_set(&store.db);
                    };
                    as_before(&store);
                    faulty.clear();
                    let done = |store: &Store| {
                        assert_eq!(store.of(5), Vec::<String>::new());
                        assert_eq!(store.of(6), ["3", "1"]);
                        if maintenance == Maintenance::MutableBitmap
                            || maintenance == Maintenance::Eager
                        {
                            assert!(old.iter().all(|seq| store.is_over_or_gone(*seq)));
                        }
                        store.check();
                    };
                    if fails == Fails::FullDisk {
                        batch.durability(Durability::Sync).commit().unwrap();
                        done(&store);
                    }
                    drop(batch);
                    let Store { db, dataset } = store;
                    drop((dataset, db));
                    // The batch is there completely or not at all, wherever the log ends.
                    let db = open(Arc::new(memory)).unwrap();
                    let dataset = db.dataset::<esker::Key>("d").unwrap();
                    let store = Store { db, dataset };
                    if store.of(6).is_empty() {
                        as_before(&store)
                    } else {
                        done(&store)
                    }
                    if store.of(6).is_empty() {
                        let mut batch = store.dataset.batch();
                        batch.put_json(body(1, 6).as_bytes()).unwrap();
                        batch.delete(store.dataset.parse_key("2").unwrap()).unwrap();
                        batch.insert_json(body(3, 6).as_bytes()).unwrap();
                        batch.durability(Durability::Sync).commit().unwrap();
                    }
                    done(&store);
                    store.db.compact(None).unwrap();
                    done(&store);
                }
            }
        }
    }
}

#[test]
fn a_delete_and_a_later_put_differ_whichever_tree_is_compacted_first() {
    for maintenance in Maintenance::ALL {
        for kind in STANDALONE {
            for repair in [Repair::Merge, Repair::None] {
                for turn in 0..6 {
                    let _doing = Doing(format!("{maintenance} {kind} {repair} {turn}"));
                    let store = store(def(kind, maintenance).repair(repair));
                    for id in 0..8 {
                        store.put(id, 1);
                    }
                    store.db.flush().unwrap();
                    for id in 0..8 {
                        store.delete(id);
                    }
                    store.db.flush().unwrap();
                    // Put again with the same value; moved and put back; deleted for good.
                    for id in 0..6 {
                        store.put(id, if id < 3 { 1 } else { 2 });
                    }
                    if turn % 2 == 0 {
                        store.db.flush().unwrap();
                    }
                    for id in 3..6 {
                        store.put(id, 1);
                    }
                    let right = || {
                        assert_eq!(store.of(1), ["5", "4", "3", "2", "1", "0"]);
                        assert_eq!(store.of(2), Vec::<String>::new());
                        store.check();
                    };
                    right();
                    store.db.flush().unwrap();
                    right();
                    let trees = ["data", "index/0", "keys", "deleted/0", "superseded"];
                    let mut trees: Vec<TreeId> =
                        trees.iter().filter_map(|name| store.tree(name)).collect();
                    let len = trees.len();
                    trees.rotate_left(turn % len);
                    if turn >= 3 {
                        trees.reverse();
                    }
                    for _ in 0..2 {
                        for tree in &trees {
                            store.db.group().compact(Some(*tree)).unwrap();
                            right();
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn an_insert_of_a_key_whose_delete_is_not_flushed_goes_and_one_more_does_not() {
    everywhere(|def| {
        let store = store(def);
        store.put(1, 5);
        store.db.flush().unwrap();
        let insert = |v| store.dataset.insert_json(body(1, v).as_bytes());
        let exists = |result: esker::Result<()>| {
            assert_eq!(result.unwrap_err().kind(), ErrorKind::Exists);
        };
        exists(insert(6));
        store.delete(1);
        insert(6).unwrap();
        exists(insert(7));
        assert_eq!(
            (store.of(5).len(), store.of(6).len(), store.of(7).len()),
            (0, 1, 0)
        );
        store.db.flush().unwrap();
        exists(insert(7));
        // In a batch, the state at its commit decides.
        let key = store.dataset.parse_key("1").unwrap();
        let mut batch = store.dataset.batch();
        batch.delete(&key).unwrap();
        batch.insert_json(body(1, 8).as_bytes()).unwrap();
        exists(batch.durability(Durability::Os).commit());
        drop(batch);
        store.check();
        store.delete(1);
        store.db.flush().unwrap();
        store.db.compact(None).unwrap();
        insert(9).unwrap();
        exists(insert(9));
        assert_eq!((store.of(6).len(), store.of(9).len()), (0, 1));
        store.check();
    });
}

#[test]
fn of_a_key_that_a_batch_updates_twice_the_last_counts() {
    everywhere(|def| {
        for flushed in [false, true] {
            let store = store(def.clone());
            for id in 0..6 {
                store.put(id, 1);
            }
            if flushed {
                store.db.flush().unwrap();
            }
            let mut batch = store.dataset.batch();
            let key = |id: u64| store.dataset.parse_key(&id.to_string()).unwrap();
            // Moved and put back; moved twice; deleted; deleted and put; new and deleted; new,
            // written twice.
            for (id, v) in [(0, 2), (0, 1), (1, 2), (1, 3), (2, 2)] {
                batch.put_json(body(id, v).as_bytes()).unwrap();
            }
            batch.delete(key(2)).unwrap();
            batch.delete(key(3)).unwrap();
            batch.put_json(body(3, 2).as_bytes()).unwrap();
            batch.insert_json(body(7, 2).as_bytes()).unwrap();
            batch.delete(key(7)).unwrap();
            batch.insert_json(body(8, 2).as_bytes()).unwrap();
            batch.put_json(body(8, 3).as_bytes()).unwrap();
            batch.durability(Durability::Os).commit().unwrap();
            for round in 0..4 {
                assert_eq!(store.of(1), ["0", "5", "4"], "round {round}");
                assert_eq!(store.of(2), ["3"], "round {round}");
                assert_eq!(store.of(3), ["8", "1"], "round {round}");
                assert_eq!(scan(&store.dataset.snapshot()).unwrap().len(), 6);
                store.check();
                match round {
                    0 => store.db.flush().unwrap(),
                    1 => store.db.compact(None).unwrap(),
                    // The same values again; no entry of the batch reappears.
                    _ => {
                        for (id, v) in [(5, 1), (4, 1)] {
                            store.put(id, v);
                        }
                        for (id, v) in [(4, 1), (5, 1), (0, 1)] {
                            store.put(id, v);
                        }
                        store.db.flush().unwrap();
                    }
                }
            }
        }
    });
}

/// Writes, flushes, repairs and compactions at once, from threads that do not wait for each other;
/// then everything is compared with the writes.
fn race(seed: u64, maintenance: Maintenance, bitmap_merges: BitmapMerges) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let kind = STANDALONE[rng.usize(0..STANDALONE.len())];
    let def = def(kind, maintenance).merging(MERGINGS[rng.usize(0..4)]);
    let _doing = Doing(format!("ESKER_SEED={seed}: {def:?} {bitmap_merges:?}"));
    let options = small(Arc::new(Memory::new()))
        .engine(|engine| engine.bitmap_merges = bitmap_merges)
        .background(true)
        .table_size(2 << 10);
    let db = Database::create_or_open(common::DIR, options).unwrap();
    let dataset = db.create_dataset::<esker::Key>("d", def).unwrap();
    let store = Store { db, dataset };
    let done = AtomicBool::new(false);
    let mut model = BTreeMap::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(SeqCst) {
                store.db.compact(None).unwrap();
            }
        });
        scope.spawn(|| {
            while !done.load(SeqCst) {
                store.repair();
                store.db.compact(None).unwrap();
            }
        });
        scope.spawn(|| {
            while !done.load(SeqCst) {
                store.db.flush().unwrap();
                let snapshot = store.dataset.snapshot();
                let all = scan(&snapshot).unwrap();
                for v in 0..4 {
                    let part = format!(r#""v":{v},"#);
                    let right = all.iter().filter(|row| row.1.contains(&part)).count();
                    assert_eq!(of(&snapshot, v).len(), right, "v = {v}");
                }
            }
        });
        struct End<'a>(&'a AtomicBool);
        impl Drop for End<'_> {
            fn drop(&mut self) {
                self.0.store(true, SeqCst);
            }
        }
        let _end = End(&done);
        for step in 0..600 {
            let id = rng.u64(0..60);
            if rng.usize(0..6) == 0 {
                if model.remove(&id).is_some() {
                    store.delete(id);
                }
                continue;
            }
            let v = rng.u64(0..4);
            let body = format!(r#"{{"id":{id},"v":{v},"step":{step}}}"#);
            store.dataset.put_json(body.as_bytes()).unwrap();
            model.insert(id, (v, step));
        }
    });
    for _ in 0..2 {
        for v in 0..4 {
            let mut right: Vec<_> = model.iter().filter(|(_, (of, _))| *of == v).collect();
            right.sort_by_key(|(_, (_, step))| std::cmp::Reverse(*step));
            let right: Vec<String> = right.into_iter().map(|(id, _)| id.to_string()).collect();
            assert_eq!(store.of(v), right, "v = {v}");
        }
        store.check();
        store.db.compact(None).unwrap();
    }
}

#[test]
fn a_bit_that_is_set_while_merges_read_the_component_is_kept() {
    for seed in seeds(4) {
        for bitmap_merges in [BitmapMerges::SideFile, BitmapMerges::Lock] {
            race(seed, Maintenance::MutableBitmap, bitmap_merges);
        }
    }
}

#[test]
fn what_merges_tell_repairs_find_and_writers_replace_at_once_agrees() {
    for seed in seeds(2) {
        for maintenance in Maintenance::ALL {
            let bitmap_merges = [BitmapMerges::SideFile, BitmapMerges::Lock][seed as usize % 2];
            race(seed, maintenance, bitmap_merges);
        }
    }
}

//! Repair: what it reads, what it refuses, and what it keeps when it is cancelled. The simulation
//! (`sim/`) runs repairs of every kind in the middle of everything else.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path as FsPath;
use std::sync::Arc;

use crate::common::{DIR, Doing, TextQuery, check, keys, open, path, small};
use esker::fs::Fs;
use esker::maintain::Compaction;
use esker::maintain::{RepairMethod, RepairOptions, RepairReport};
use esker::schema::{Maintenance, Merging, Repair};
use esker::{
    Database, Dataset, DatasetDef, DatasetSnapshot, Durability, ErrorKind, IndexKind, KeyType, Type,
};
use esker_sim::faulty::Faulty;
use esker_sim::memory::Memory;

const KINDS: [IndexKind; 4] = [
    IndexKind::Eager,
    IndexKind::Lazy,
    IndexKind::Composite,
    IndexKind::Recent,
];
const VALUES: u64 = 5;

/// By key: the value, and the order of the write.
type Model = BTreeMap<u64, (u64, u64)>;

fn def(maintenance: Maintenance, repair: Repair, merging: Merging) -> DatasetDef {
    let def = DatasetDef::new(path("id"), KeyType::Int)
        .maintenance(maintenance)
        .repair(repair)
        .merging(merging);
    let index = |def: DatasetDef, kind: IndexKind| {
        def.index(
            path(&kind.to_string()),
            esker::Index::new(kind).of_type(Type::Int),
        )
    };
    KINDS.into_iter().fold(def, index)
}

fn body(key: u64, value: u64, order: u64) -> String {
    let fields: Vec<String> = KINDS
        .iter()
        .map(|kind| format!("\"{kind}\":[{value},{}]", value + 10))
        .collect();
    format!(
        "{{\"id\":{key},{},\"order\":{order},\"pad\":\"{}\"}}",
        fields.join(","),
        "p".repeat((key % 50) as usize)
    )
}

struct Life {
    db: Database,
    dataset: Dataset,
    model: Model,
    rng: fastrand::Rng,
    order: u64,
    pinned: Vec<(DatasetSnapshot, Model)>,
}

impl Life {
    fn new(def: DatasetDef, seed: u64) -> Life {
        let db = open(Arc::new(Memory::new())).unwrap();
        let dataset = db.create_dataset::<esker::Key>("d", def).unwrap();
        Life {
            db,
            dataset,
            model: Model::new(),
            rng: fastrand::Rng::with_seed(seed),
            order: 0,
            pinned: Vec::new(),
        }
    }

    fn write(&mut self, most: usize, keys: u64) {
        let mut batch = self.dataset.batch();
        for _ in 0..self.rng.usize(1..most) {
            let key = self.rng.u64(0..keys);
            if self.rng.usize(0..6) == 0 {
                let encoded = self.dataset.parse_key(&key.to_string()).unwrap();
                batch.delete(&encoded).unwrap();
                self.model.remove(&key);
            } else {
                self.order += 1;
                let value = self.rng.u64(0..VALUES);
                batch
                    .put_json(body(key, value, self.order).as_bytes())
                    .unwrap();
                self.model.insert(key, (value, self.order));
            }
        }
        batch.durability(Durability::Os).commit().unwrap();
    }

    fn agree(&self) {
        let now = (self.dataset.snapshot(), self.model.clone());
        for (snapshot, model) in self.pinned.iter().chain([&now]) {
            for kind in KINDS {
                for value in 0..VALUES {
                    let query = snapshot
                        .query()
                        .equals(&path(&kind.to_string()), &value.to_string());
                    assert_eq!(keys(query), expected(model, value), "{kind} = {value}");
                }
            }
        }
    }

    fn repair(&self, options: &RepairOptions) -> esker::Result<RepairReport> {
        self.dataset.repair(options).run()
    }
}

fn expected(model: &Model, value: u64) -> Vec<String> {
    let mut rows: Vec<(u64, u64)> = model
        .iter()
        .filter(|(_, put)| put.0 == value)
        .map(|(key, put)| (put.1, *key))
        .collect();
    rows.sort_unstable_by(|a, b| b.cmp(a));
    rows.iter().map(|(_, key)| key.to_string()).collect()
}

#[test]
fn a_small_sorter_goes_to_disk_and_agrees() {
    let mut found = Vec::new();
    for (memory, threads) in [(1, 1), (16 << 20, 1), (64 << 10, 3)] {
        let def = def(Maintenance::Validation, Repair::None, Merging::Tiered);
        let mut life = Life::new(def, 5);
        for _ in 0..60 {
            life.write(200, 3000);
        }
        life.db.flush().unwrap();
        let files = |life: &Life| {
            let names = life.db.group().options().fs.list(FsPath::new(DIR)).unwrap();
            names.len()
        };
        let before = files(&life);
        let options = RepairOptions {
            method: RepairMethod::Index,
            memory,
            threads,
            bloom: false,
            ..RepairOptions::default()
        };
        let report = life.repair(&options).unwrap();
        // It gets at most the store's budget, even if `memory` is large.
        assert!(report.spilled > 0, "{report:?}");
        // Only tables of the set were added, and the temporary files are removed.
        let snapshot = life.db.group().snapshot();
        let tables = snapshot.version().tables().count();
        assert!(files(&life) <= before + tables);
        let listed = life.db.group().options().fs.list(FsPath::new(DIR)).unwrap();
        let on_disk = listed
            .iter()
            .filter(|n| n.extension().is_some_and(|e| e == "tbl"));
        assert_eq!(on_disk.count(), tables);
        check(&life.db);
        life.agree();
        found.push((report.found, report.sorted));
    }
    assert!(found[0].0 > 0);
    assert!(found.iter().all(|other| *other == found[0]), "{found:?}");
}

#[test]
fn methods_that_do_not_fit_are_refused() {
    let life = Life::new(
        def(Maintenance::Validation, Repair::None, Merging::Leveled),
        1,
    );
    let refused = |life: &Life, method| {
        let options = RepairOptions {
            method,
            ..RepairOptions::default()
        };
        let error = life.repair(&options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadInput);
    };
    let primary = RepairMethod::Primary {
        compaction: Compaction::Without,
    };
    refused(&life, RepairMethod::Key);
    refused(&life, primary);
    let life = Life::new(
        def(Maintenance::Validation, Repair::Merge, Merging::Leveled),
        1,
    );
    refused(&life, primary);
    let life = Life::new(
        def(Maintenance::Deferred, Repair::None, Merging::Leveled),
        1,
    );
    refused(&life, primary);
    refused(&life, RepairMethod::Key);
}

#[test]
fn a_repair_that_is_broken_off_keeps_its_mark_and_what_it_found() {
    let mut life = Life::new(
        def(Maintenance::Validation, Repair::None, Merging::Tiered),
        3,
    );
    for _ in 0..30 {
        life.write(200, 500);
    }
    let options = RepairOptions::default();
    let report = life
        .dataset
        .repair(&options)
        .on_progress(|_| ControlFlow::Break(()))
        .run()
        .unwrap();
    assert!(!report.complete);
    assert_eq!((report.watermark, report.found), (0, 0));
    let report = life.repair(&options).unwrap();
    assert!(report.complete && report.watermark > 0 && report.found > 0);
    life.agree();
}

#[test]
fn a_brake_slows_reading() {
    let mut life = Life::new(
        def(Maintenance::Deferred, Repair::Staged, Merging::Tiered),
        3,
    );
    for _ in 0..30 {
        life.write(200, 500);
    }
    let rate = 1_000_000;
    let options = RepairOptions {
        bytes_per_second: Some(rate),
        ..RepairOptions::default()
    };
    let report = life.repair(&options).unwrap();
    assert!(report.bytes_read > 50_000, "{report:?}");
    let least = report.bytes_read as f64 / rate as f64;
    assert!(report.elapsed.as_secs_f64() >= least * 0.9, "{report:?}");
}

#[test]
fn writes_go_on_during_a_repair() {
    for maintenance in Maintenance::ALL {
        let _doing = Doing(format!("{maintenance}"));
        let fs: Arc<dyn Fs> = Arc::new(Memory::new());
        let options = small(fs).background(true);
        let db = Database::create_or_open(FsPath::new(DIR), options).unwrap();
        let def = def(maintenance, Repair::Merge, Merging::Tiered);
        let dataset = db.create_dataset::<esker::Key>("d", def).unwrap();
        let mut rng = fastrand::Rng::with_seed(9);
        let mut model = Model::new();
        let mut order = 0;
        let mut write = |model: &mut Model| {
            for _ in 0..20 {
                order += 1;
                let (key, value) = (rng.u64(0..400), rng.u64(0..VALUES));
                dataset
                    .put_json(body(key, value, order).as_bytes())
                    .unwrap();
                model.insert(key, (value, order));
            }
        };
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for method in [RepairMethod::Auto, RepairMethod::Index].repeat(4) {
                    let options = RepairOptions {
                        method,
                        ..RepairOptions::default()
                    };
                    dataset.repair(&options).run().unwrap();
                }
                done.store(true, std::sync::atomic::Ordering::SeqCst);
            });
            while !done.load(std::sync::atomic::Ordering::SeqCst) {
                write(&mut model);
            }
        });
        check(&db);
        for kind in KINDS {
            for value in 0..VALUES {
                let at = path(&kind.to_string());
                let query = dataset.query().equals(&at, &value.to_string());
                assert_eq!(keys(query), expected(&model, value), "{kind}");
            }
        }
        drop(dataset);
        db.close().unwrap();
    }
}

#[test]
fn a_read_that_fails_is_an_error_and_the_next_repair_completes() {
    let def = def(Maintenance::Validation, Repair::None, Merging::Tiered);
    let memory = Memory::new();
    let faulty = Faulty::new(Arc::new(memory.clone()));
    let db = open(Arc::new(faulty.clone())).unwrap();
    let dataset = db.create_dataset::<esker::Key>("d", def).unwrap();
    for order in 0..2000 {
        dataset
            .put_json(body(order % 700, order % VALUES, order).as_bytes())
            .unwrap();
    }
    let options = RepairOptions {
        method: RepairMethod::Index,
        memory: 1,
        threads: 1,
        bloom: false,
        ..RepairOptions::default()
    };
    let mut failed = 0;
    for at in 1..40 {
        faulty.fail_reads_at(at * 3);
        match dataset.repair(&options).run() {
            Ok(_) => {}
            Err(error) => {
                failed += 1;
                assert!(matches!(error.kind(), ErrorKind::Io | ErrorKind::Damaged));
            }
        }
        faulty.clear();
        dataset
            .put_json(body(at, 1, 10_000 + at).as_bytes())
            .unwrap();
    }
    assert!(failed > 0);
    dataset.repair(&options).run().unwrap();
    check(&db);
}

/// A repair on several threads first reads the tables' block indexes, to split its work. If that
/// fails, the repair fails: it does not pass for a repair that was cancelled.
#[test]
fn a_repair_whose_work_cannot_be_split_fails() {
    let methods = [
        (RepairMethod::Key, Maintenance::Validation),
        (
            RepairMethod::Primary {
                compaction: Compaction::Without,
            },
            Maintenance::Deferred,
        ),
    ];
    for (method, maintenance) in methods {
        let options = RepairOptions {
            method,
            threads: 2,
            ..RepairOptions::default()
        };
        let mut failed = 0;
        for at in 1..=20 {
            let memory = Memory::new();
            let db = open(Arc::new(memory.clone())).unwrap();
            let def = def(maintenance, Repair::Merge, Merging::Tiered);
            let dataset = db.create_dataset::<esker::Key>("d", def).unwrap();
            for order in 0..60 {
                let body = body(order % 20, order % VALUES, order);
                dataset.put_json(body.as_bytes()).unwrap();
            }
            drop(dataset);
            db.close().unwrap();
            let faulty = Faulty::new(Arc::new(memory.clone()));
            let db = open(Arc::new(faulty.clone())).unwrap();
            let dataset = db.dataset::<esker::Key>("d").unwrap();
            faulty.fail_reads_at(at);
            match dataset.repair(&options).run() {
                Ok(report) => assert!(report.complete, "{method:?}, read {at}"),
                Err(_) => failed += 1,
            }
        }
        assert!(failed > 0, "{method:?}");
    }
}

/// A repair needs no thread of its own: where the system starts none, the caller's does the work.
#[test]
fn a_repair_without_threads_is_done_by_the_caller() {
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "repair::repair_without_threads", "--ignored"])
        // On its main thread.
        .arg("--test-threads=1")
        // No system has so much memory for the stack of a thread.
        .env("RUST_MIN_STACK", (1_u64 << 60).to_string())
        .output()
        .unwrap();
    let out = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success(), "{out}");
    assert!(out.contains("1 passed"), "{out}");
}

/// The child. Where threads can be started it shows nothing.
#[test]
#[ignore = "the child of the other test"]
fn repair_without_threads() {
    let db = open(Arc::new(Memory::new())).unwrap();
    let def = def(Maintenance::Validation, Repair::None, Merging::Tiered);
    let dataset = db.create_dataset::<esker::Key>("d", def).unwrap();
    for order in 0..60 {
        let body = body(order % 20, order % VALUES, order);
        dataset.put_json(body.as_bytes()).unwrap();
    }
    db.flush().unwrap();
    let options = RepairOptions {
        threads: 4,
        ..RepairOptions::default()
    };
    let report = dataset.repair(&options).run().unwrap();
    assert!(report.complete);
    check(&db);
}

/// A store created before obsolete sets existed: the first repair creates the set.
#[test]
fn a_store_without_a_set_gets_one() {
    let fs = Arc::new(Memory::new());
    let engine = esker_lsm::Options {
        fs: fs.clone(),
        background: false,
        ..esker_lsm::Options::default()
    };
    let group = esker_lsm::Group::open(DIR.as_ref(), engine, Arc::new(esker_lsm::PlainTrees), true)
        .unwrap();
    let definition = br#"{"key":"id","key_type":"int","attributes":[{"id":0,"path":"a","kind":"lazy","type":"int"}],"next_id":1}"#;
    let trees = [
        ("d/data".to_string(), definition.to_vec()),
        ("d/index/0".to_string(), b"lazy".to_vec()),
    ];
    group.create_trees(&trees).unwrap();
    group.close().unwrap();
    drop(group);
    let db = Database::open(DIR, small(fs)).unwrap();
    let dataset = db.dataset::<esker::Key>("d").unwrap();
    for a in [1, 2] {
        for id in 0..20 {
            dataset
                .put_json(format!("{{\"id\":{id},\"a\":{a}}}").as_bytes())
                .unwrap();
        }
        db.flush().unwrap();
    }
    // Either background maintenance has created the set by then, or the repair does.
    for _ in 0..2 {
        let go = &mut |_| ControlFlow::Continue(());
        assert!(
            dataset
                .repair(&RepairOptions::default())
                .on_progress(go)
                .run()
                .unwrap()
                .complete
        );
        let snapshot = db.group().snapshot();
        let set = snapshot.version().tree_named("d/superseded").unwrap();
        assert_eq!((set.bitmap().len(), set.repair_watermark()), (20, 40));
    }
    let query = dataset.query().equals(&path("a"), "1");
    let (count, plan) = query.count_explained().unwrap();
    assert_eq!(count, 0);
    assert_eq!(plan.steps.fetched, 0, "{plan}");
    check(&db);
}

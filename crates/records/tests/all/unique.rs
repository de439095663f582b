//! Unique values: a brute-force model decides which batches are refused, under each kind of index
//! and maintenance strategy, with expiry, online builds, reopened stores and threads.
//! `ESKER_SEEDS=1000 cargo test -p esker --test all unique::` tries more; `ESKER_SEED=17` repeats
//! one.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path as FsPath;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use esker::advise::AdvisedChange;
use esker::schema::{Maintenance, Tokenizer};
use esker::{
    Database, Dataset, DatasetDef, Error, ErrorKind, Index, IndexKind, KeyType, NotUnique, Type,
    Update,
};
use esker_sim::clock::TestClock;
use esker_sim::memory::{Memory, PowerCut};
use serde_json::{Value as Json, json};

use crate::common::{DIR, Doing, check, path, seeds, small, with_strategy};

const KINDS: [IndexKind; 4] = [
    IndexKind::Composite,
    IndexKind::Lazy,
    IndexKind::Recent,
    IndexKind::Eager,
];

const START: u64 = 1_700_000_000_000;

fn unique(kind: IndexKind) -> Index {
    Index::new(kind).of_type(Type::Int).unique()
}

fn def(kind: IndexKind, strategy: usize) -> DatasetDef {
    let def = DatasetDef::new(path("id"), KeyType::Int).index(path("v"), unique(kind));
    with_strategy(def, strategy)
}

fn body(id: i64, v: Json) -> String {
    json!({"id": id, "v": v}).to_string()
}

fn refusal(error: Error) -> NotUnique {
    match error {
        Error::NotUnique(not_unique) => *not_unique,
        error => panic!("{:?}: {error}", error.kind()),
    }
}

fn each(mut test: impl FnMut(IndexKind, usize)) {
    for kind in KINDS {
        for strategy in 0..Maintenance::ALL.len() {
            let _doing = Doing(format!("{kind}, {:?}", Maintenance::ALL[strategy]));
            test(kind, strategy);
        }
    }
}

#[test]
fn a_value_belongs_to_one_record() {
    each(|kind, strategy| {
        let memory = Memory::new();
        let open =
            || Database::create_or_open(FsPath::new(DIR), small(Arc::new(memory.clone()))).unwrap();
        let db = open();
        let d = db.create_dataset::<i64>("d", def(kind, strategy)).unwrap();
        d.put_json(body(1, json!(7)).as_bytes()).unwrap();
        // In the memtable, in a table, and after the log was replayed.
        for step in 0..3 {
            let error = d.put_json(body(2, json!(7)).as_bytes()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotUnique);
            let text = error.to_string();
            for part in ["`d`", "`v`", "keys 2 and 1", "\"7\""] {
                assert!(text.contains(part), "{text}");
            }
            let not_unique = refusal(error);
            assert_eq!(not_unique.path, path("v"));
            assert_eq!(
                (not_unique.value.as_str(), not_unique.dataset.as_str()),
                ("7", "d")
            );
            let keys = [&not_unique.key, &not_unique.holder].map(ToString::to_string);
            assert_eq!(keys, ["2", "1"]);
            assert_eq!(d.get(2).unwrap(), None);
            let inserted = d.insert_json(body(2, json!([1, 7])).as_bytes());
            assert_eq!(inserted.unwrap_err().kind(), ErrorKind::NotUnique);
            // The same record may keep or rewrite its value.
            d.put_json(body(1, json!(7)).as_bytes()).unwrap();
            let updated = d.update(3, |_| Update::Put(body(3, json!(7)).into_bytes()));
            refusal(updated.unwrap_err());
            if step == 0 {
                db.flush().unwrap();
            }
        }
        drop(d);
        drop(db);
        let db = open();
        let d = db.dataset::<i64>("d").unwrap();
        refusal(d.put_json(body(2, json!(7)).as_bytes()).unwrap_err());
        // Records without the value, or with other values, are free.
        d.put_json(br#"{"id": 4}"#).unwrap();
        d.put_json(br#"{"id": 5, "v": null}"#).unwrap();
        d.put_json(br#"{"id": 6, "v": []}"#).unwrap();
        d.put_json(body(7, json!([8, 9, 8])).as_bytes()).unwrap();
        refusal(d.put_json(body(8, json!([10, 9])).as_bytes()).unwrap_err());
        // A record that is changed or deleted frees its value.
        d.put_json(body(1, json!(6)).as_bytes()).unwrap();
        d.put_json(body(2, json!(7)).as_bytes()).unwrap();
        d.delete(2).unwrap();
        d.put_json(body(3, json!(7)).as_bytes()).unwrap();
        check(&db);
    });
}

#[test]
fn an_update_that_was_overtaken_is_made_again_before_it_is_refused() {
    each(|kind, strategy| {
        let fs = Arc::new(Memory::new());
        let db = Database::create_or_open(FsPath::new(DIR), small(fs)).unwrap();
        let d = db.create_dataset::<i64>("d", def(kind, strategy)).unwrap();
        d.put_json(body(1, json!(1)).as_bytes()).unwrap();
        let mut calls = 0;
        let updated = d.update(1, |old| {
            calls += 1;
            if calls == 1 {
                // Gives the record another value, and its next one to another record.
                let mut batch = d.batch();
                batch.put_json(body(1, json!(3)).as_bytes()).unwrap();
                batch.put_json(body(2, json!(2)).as_bytes()).unwrap();
                batch.commit().unwrap();
            }
            let old: Json = old.unwrap().parse().unwrap();
            match old["v"].as_i64() {
                Some(1) => Update::Put(body(1, json!(2)).into_bytes()),
                _ => Update::Keep,
            }
        });
        updated.unwrap();
        assert_eq!(calls, 2);
    });
}

#[test]
fn the_advice_keeps_an_index_whose_values_must_be_unique() {
    let fs = Arc::new(Memory::new());
    let db = Database::create_or_open(FsPath::new(DIR), small(fs)).unwrap();
    let def = def(IndexKind::Composite, 0).index(path("w"), Index::composite().int());
    let d = db.create_dataset::<i64>("d", def).unwrap();
    for id in 0..200 {
        let record = json!({"id": id, "v": id, "w": id % 7}).to_string();
        d.put_json(record.as_bytes()).unwrap();
        d.get(id).unwrap();
    }
    let advice = d.advise(None).unwrap();
    let changes = advice
        .attributes
        .iter()
        .map(|of| (of.path.to_string(), of.change));
    let changes: BTreeMap<_, _> = changes.collect();
    assert_eq!(changes["v"], AdvisedChange::Keep);
    assert_eq!(changes["w"], AdvisedChange::Drop);
}

#[test]
fn what_counts_is_the_state_after_the_batch() {
    each(|kind, strategy| {
        let db = crate::common::open(Arc::new(Memory::new())).unwrap();
        let d = db.create_dataset::<i64>("d", def(kind, strategy)).unwrap();
        let put = |records: &[(i64, Json)], deleted: &[i64]| {
            let mut batch = d.batch();
            for (id, v) in records {
                batch.put_json(body(*id, v.clone()).as_bytes()).unwrap();
            }
            for id in deleted {
                batch.delete(*id).unwrap();
            }
            batch.commit()
        };
        let error = refusal(put(&[(1, json!(1)), (2, json!(1))], &[]).unwrap_err());
        assert_eq!(
            (error.key.to_string(), error.holder.to_string()),
            ("2".into(), "1".into())
        );
        assert_eq!(d.scan(..).count(), 0, "nothing of a refused batch is there");
        put(&[(1, json!(1)), (2, json!(2))], &[]).unwrap();
        // Two records swap their values; a third takes the value of a deleted one.
        put(&[(1, json!(2)), (2, json!(1))], &[]).unwrap();
        put(&[(3, json!(1))], &[2]).unwrap();
        // Earlier versions within the batch do not count.
        put(
            &[(4, json!(2)), (4, json!(4)), (5, json!(3)), (5, json!(5))],
            &[],
        )
        .unwrap();
        put(&[(6, json!(9)), (7, json!(9))], &[6]).unwrap();
        refusal(put(&[(8, json!(4)), (8, json!(2))], &[]).unwrap_err());
        check(&db);
    });
}

#[test]
fn values_that_an_index_cannot_compare_are_free() {
    let db = crate::common::open(Arc::new(Memory::new())).unwrap();
    let float = Index::composite().float().unique();
    let lenient = Index::lazy().int().lenient().unique();
    let def = DatasetDef::new(path("id"), KeyType::Int)
        .index(path("f"), float)
        .index(path("l"), lenient);
    let d = db.create_dataset::<i64>("d", def).unwrap();
    for id in 0..2 {
        let record = json!({"id": id, "f": 9007199254740993u64, "l": "text"});
        d.put_json(record.to_string().as_bytes()).unwrap();
        let record = json!({"id": id + 10, "l": {"a": 1}});
        d.put_json(record.to_string().as_bytes()).unwrap();
    }
    d.put_json(br#"{"id": 20, "f": 1.5, "l": 3}"#).unwrap();
    refusal(d.put_json(br#"{"id": 21, "f": 1.50}"#).unwrap_err());
    refusal(d.put_json(br#"{"id": 21, "l": [true, 3]}"#).unwrap_err());
    check(&db);
}

#[test]
fn kinds_without_a_tree_of_values_are_refused() {
    let db = crate::common::open(Arc::new(Memory::new())).unwrap();
    for kind in [
        IndexKind::None,
        IndexKind::Embedded,
        IndexKind::Fingerprint,
        IndexKind::Filter,
    ] {
        let def = DatasetDef::new(path("id"), KeyType::Int).index(path("v"), unique(kind));
        let error = db.create_dataset::<i64>("d", def).map(drop).unwrap_err();
        assert!(error.to_string().contains("cannot be unique"), "{error}");
    }
    let points = Index::spatial().unique();
    let prefixes = Index::lazy().string().tokenizer(Tokenizer::Prefix).unique();
    for index in [points, prefixes] {
        let def = DatasetDef::new(path("id"), KeyType::Int).index(path("v"), index);
        let error = db.create_dataset::<i64>("d", def).map(drop).unwrap_err();
        assert!(error.to_string().contains("cannot be unique"), "{error}");
    }
    let def = DatasetDef::new(path("id"), KeyType::Int);
    let d = db.create_dataset::<i64>("d", def).unwrap();
    let added = d.add_index("v", unique(IndexKind::Embedded)).run();
    assert_eq!(added.unwrap_err().kind(), ErrorKind::BadInput);
    d.add_index("v", unique(IndexKind::Recent)).run().unwrap();
    let switched = d.switch_index("v", IndexKind::Filter).run();
    assert!(
        switched
            .unwrap_err()
            .to_string()
            .contains("cannot be unique")
    );
    d.switch_index("v", IndexKind::Composite).run().unwrap();
    assert!(d.def().indexes[0].unique);
    d.drop_index("v").unwrap();
    assert!(!d.def().indexes[0].unique);
}

/// The records: their values, and when they expire.
type Model = BTreeMap<i64, (Vec<i64>, Option<u64>)>;

/// Two records that share a value.
fn duplicate(model: &Model, now: u64) -> Option<(i64, i64)> {
    let live = |expires: &Option<u64>| expires.is_none_or(|expires| expires > now);
    let live: Vec<_> = model.iter().filter(|(_, (_, e))| live(e)).collect();
    live.iter().enumerate().find_map(|(at, (id, (values, _)))| {
        let mut others = live.iter().skip(at + 1);
        let other = others.find(|(_, (other, _))| other.iter().any(|v| values.contains(v)))?;
        Some((**id, *other.0))
    })
}

struct World {
    memory: Memory,
    hand: TestClock,
    db: Database,
    d: Dataset<i64>,
    model: Model,
    is_unique: bool,
}

impl World {
    fn open(memory: &Memory, hand: &TestClock) -> Database {
        let options = small(Arc::new(memory.clone()))
            .memory_budget(64 << 10)
            .clock(hand.function());
        Database::create_or_open(FsPath::new(DIR), options).unwrap()
    }

    fn new(def: DatasetDef) -> World {
        let (memory, hand) = (Memory::new(), TestClock::new(START));
        let db = World::open(&memory, &hand);
        World {
            d: db.create_dataset::<i64>("d", def).unwrap(),
            memory,
            hand,
            db,
            model: Model::new(),
            is_unique: true,
        }
    }

    /// Commits a random batch, and compares the result with the model. With `is_built` an index is
    /// being built, which may find the duplicate later.
    fn write(&mut self, rng: &mut fastrand::Rng, is_built: bool) {
        let now = self.hand.get();
        let mut batch = self.d.batch();
        let mut after = self.model.clone();
        let (mut exists, mut touched) = (false, Vec::new());
        for _ in 0..rng.usize(1..5) {
            let id = rng.i64(0..14);
            touched.push(id);
            if rng.usize(0..4) == 0 {
                batch.delete(id).unwrap();
                after.remove(&id);
                continue;
            }
            let count = [0, 1, 1, 1, 1, 2, 3][rng.usize(0..7)];
            let values: Vec<i64> = (0..count).map(|_| rng.i64(0..30)).collect();
            let mut record = json!({"id": id, "v": values, "pad": "x".repeat(rng.usize(0..200))});
            let expires = match rng.usize(0..4) {
                0 => Some(now - 500 + rng.u64(0..3_000)),
                _ => None,
            };
            if let Some(expires) = expires {
                record["until"] = json!(expires as f64 / 1000.0);
            }
            let live = |(_, e): &(_, Option<u64>)| e.is_none_or(|e| e > now);
            if rng.usize(0..6) == 0 && !touched[..touched.len() - 1].contains(&id) {
                exists |= self.model.get(&id).is_some_and(live);
                batch.insert_json(record.to_string().as_bytes()).unwrap();
            } else {
                batch.put_json(record.to_string().as_bytes()).unwrap();
            }
            after.insert(id, (values, expires));
        }
        let differs = duplicate(&after, now).is_some() && self.is_unique;
        match batch.commit() {
            Ok(()) => {
                assert!(!exists, "an insert of a key that exists");
                assert!(!differs || is_built, "{:?}", duplicate(&after, now));
                self.model = after;
            }
            Err(error) if error.kind() == ErrorKind::Exists => assert!(exists, "{error}"),
            Err(error) => {
                let NotUnique { key, holder, .. } = refusal(error);
                assert!(
                    differs,
                    "{key} and {holder} at {now}: {after:?}, before {:?}",
                    self.model
                );
                let [key, holder] = [&key, &holder].map(|key| key.to_string().parse().unwrap());
                assert!(touched.contains(&key));
                let [one, other] = [&after[&key], &after[&holder]];
                assert!(
                    one.0.iter().any(|v| other.0.contains(v)),
                    "{one:?} {other:?}"
                );
            }
        }
    }

    /// Drops the index, writes, and adds it again, with writes meanwhile.
    fn rebuild(&mut self, rng: &mut fastrand::Rng) {
        let kind = KINDS[rng.usize(0..KINDS.len())];
        self.d.drop_index("v").unwrap();
        self.is_unique = false;
        for _ in 0..rng.usize(0..3) {
            self.write(rng, false);
        }
        self.is_unique = true;
        let d = self.d.clone();
        let stops = rng.bool();
        let task = d.add_index("v", unique(kind));
        let result = task.on_progress(|_| self.during(rng, stops)).run();
        let is_stopped = matches!(&result, Ok(change) if !change.complete);
        if !is_stopped {
            return self.built(result.map(drop));
        }
        assert!(stops, "nobody stopped the build");
        drop(d);
        if rng.bool() {
            self.reopen();
        }
        for _ in 0..rng.usize(0..3) {
            self.write(rng, true);
        }
        let d = self.d.clone();
        let task = d.resume_index();
        let result = task.on_progress(|_| self.during(rng, false)).run();
        self.built(result.map(drop));
    }

    /// Compares the result of a build with the model.
    fn built(&mut self, result: esker::Result<()>) {
        let Err(error) = result else {
            assert_eq!(duplicate(&self.model, self.hand.get()), None);
            return;
        };
        refusal(error);
        assert_eq!(
            self.d.unfinished_index(),
            None,
            "the rest of a refused build"
        );
        while let Some((_, other)) = duplicate(&self.model, self.hand.get()) {
            self.d.delete(other).unwrap();
            self.model.remove(&other);
        }
        self.d
            .add_index("v", unique(IndexKind::Composite))
            .run()
            .unwrap();
    }

    fn during(&mut self, rng: &mut fastrand::Rng, stops: bool) -> ControlFlow<()> {
        for _ in 0..rng.usize(0..3) {
            self.write(rng, true);
        }
        if rng.usize(0..4) == 0 {
            self.db.flush().unwrap();
        }
        if stops && rng.bool() {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    fn reopen(&mut self) {
        self.db.clone().close().unwrap();
        self.db = World::open(&self.memory, &self.hand);
        self.d = self.db.dataset::<i64>("d").unwrap();
    }

    fn step(&mut self, rng: &mut fastrand::Rng) {
        match rng.usize(0..30) {
            0 => self.db.flush().unwrap(),
            1 => self.db.compact(None).unwrap(),
            2 => self.reopen(),
            3..=5 => self.hand.add(rng.u64(0..1_000)),
            6 => drop(self.d.expire_now().unwrap()),
            7 => self.rebuild(rng),
            8 => {
                let kind = KINDS[rng.usize(0..KINDS.len())];
                // The index may have this kind already.
                let _ = self.d.switch_index("v", kind).run();
                assert!(self.d.def().indexes[0].unique);
            }
            _ => self.write(rng, false),
        }
        let now = self.hand.get();
        let live = self.model.iter();
        let live = live.filter(|(_, (_, expires))| expires.is_none_or(|e| e > now));
        let live: Vec<i64> = live.map(|(id, _)| *id).collect();
        let found: Vec<i64> = self.d.scan(..).map(|r| *r.unwrap().key()).collect();
        assert_eq!(found, live);
    }
}

#[test]
fn batches_are_refused_exactly_where_two_records_would_share_a_value() {
    for seed in seeds(30) {
        let _doing = Doing(format!("ESKER_SEED={seed}"));
        let mut rng = fastrand::Rng::with_seed(seed);
        let kind = KINDS[rng.usize(0..KINDS.len())];
        let def = def(kind, rng.usize(0..30)).expires_at("until");
        let mut world = World::new(def);
        for _ in 0..rng.usize(20..120) {
            world.step(&mut rng);
        }
        check(&world.db);
    }
}

#[test]
fn a_build_names_two_records_with_the_same_value_and_leaves_nothing() {
    each(|kind, strategy| {
        let db = crate::common::open(Arc::new(Memory::new())).unwrap();
        let def = with_strategy(DatasetDef::new(path("id"), KeyType::Int), strategy);
        let d = db.create_dataset::<i64>("d", def).unwrap();
        for (id, v) in [(1, 1), (2, 2), (3, 3), (4, 2)] {
            d.put_json(body(id, json!(v)).as_bytes()).unwrap();
        }
        let error = refusal(d.add_index("v", unique(kind)).run().unwrap_err());
        let mut keys = [&error.key, &error.holder].map(ToString::to_string);
        keys.sort();
        assert_eq!(
            (keys, error.value.as_str()),
            (["2".into(), "4".into()], "2")
        );
        assert_eq!((d.def().indexes, d.unfinished_index()), (vec![], None));
        d.delete(4).unwrap();
        // A duplicate that is written while the index is built.
        let mut done = false;
        let result = d
            .add_index("v", unique(kind))
            .on_progress(|_| {
                if !std::mem::replace(&mut done, true) {
                    d.put_json(body(5, json!(3)).as_bytes()).unwrap();
                    refusal(d.put_json(body(6, json!(3)).as_bytes()).unwrap_err());
                }
                ControlFlow::Continue(())
            })
            .run();
        let error = refusal(result.unwrap_err());
        assert_eq!(error.value, "3");
        d.delete(3).unwrap();
        // Once the entries are collected, later writes are compared with them.
        let mut calls = 0;
        let result = d
            .add_index("v", unique(kind))
            .on_progress(|_| {
                calls += 1;
                match calls {
                    2.. => refusal(d.put_json(body(7, json!(1)).as_bytes()).unwrap_err()),
                    _ => return ControlFlow::Continue(()),
                };
                ControlFlow::Continue(())
            })
            .run();
        assert!(result.unwrap().complete && calls > 2, "{calls}");
        refusal(d.put_json(body(8, json!(1)).as_bytes()).unwrap_err());
        check(&db);
    });
}

#[test]
fn an_expired_record_holds_no_value_and_one_that_may_come_back_does() {
    let (memory, hand) = (Memory::new(), TestClock::new(START));
    let db = World::open(&memory, &hand);
    let def = def(IndexKind::Composite, 0).ttl(Duration::from_secs(10));
    let d = db.create_dataset::<i64>("d", def).unwrap();
    d.put_json(body(1, json!(1)).as_bytes()).unwrap();
    hand.add(9_999);
    refusal(d.put_json(body(2, json!(1)).as_bytes()).unwrap_err());
    hand.add(1);
    d.put_json(body(2, json!(1)).as_bytes()).unwrap();
    // The clock is so far ahead that it is not believed: reads hide the record, and it holds its
    // value, since it comes back if the clock is set right.
    hand.add(3 * 24 * 60 * 60 * 1000);
    assert_eq!(d.get(2).unwrap(), None);
    refusal(d.put_json(body(3, json!(1)).as_bytes()).unwrap_err());
    db.group().confirm_time().unwrap();
    d.put_json(body(3, json!(1)).as_bytes()).unwrap();
    check(&db);
}

#[test]
fn a_check_reports_two_records_with_the_same_value() {
    // A power cut makes the store forget by which time it acted, and the clock was set back.
    let (memory, hand) = (Memory::new(), TestClock::new(START));
    let db = World::open(&memory, &hand);
    let def = def(IndexKind::Recent, 0).expires_at("until");
    let d = db.create_dataset::<i64>("d", def).unwrap();
    let until = (START + 1_000) as f64 / 1000.0;
    d.put_json(
        json!({"id": 1, "v": 1, "until": until})
            .to_string()
            .as_bytes(),
    )
    .unwrap();
    hand.add(2_000);
    d.put_json(body(2, json!(1)).as_bytes()).unwrap();
    db.sync().unwrap();
    let memory = memory.power_cut(1, PowerCut::Lost);
    hand.set(START);
    drop((d, db));
    let db = World::open(&memory, &hand);
    let errors = db.check().unwrap().errors;
    assert!(
        errors.len() == 1 && errors[0].contains("must be unique"),
        "{errors:?}"
    );
    let d = db.dataset::<i64>("d").unwrap();
    d.delete(2).unwrap();
    check(&db);
}

#[test]
fn of_several_threads_that_want_one_value_exactly_one_gets_it() {
    let rounds = crate::common::number("ESKER_ROUNDS", 150);
    each(|kind, strategy| {
        let options = small(Arc::new(Memory::new()))
            .memory_budget(32 << 10)
            .table_size(2 << 10)
            .background(true);
        let db = Database::create_or_open(FsPath::new(DIR), options).unwrap();
        let d = db.create_dataset::<i64>("d", def(kind, strategy)).unwrap();
        const THREADS: i64 = 3;
        let (barrier, won) = (Barrier::new(THREADS as usize), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (d, barrier, won) = (&d, &barrier, &won);
                scope.spawn(move || {
                    for round in 0..rounds as i64 {
                        barrier.wait();
                        let record = body(round * THREADS + thread, json!([-1, round]));
                        let mut batch = d.batch();
                        // The holder of -1 gives it to the winner of the round.
                        for earlier in 0..THREADS {
                            if round > 0 {
                                batch.delete((round - 1) * THREADS + earlier).unwrap();
                            }
                        }
                        batch.put_json(record.as_bytes()).unwrap();
                        match batch.commit() {
                            Ok(()) => drop(won.fetch_add(1, SeqCst)),
                            Err(error) => drop(refusal(error)),
                        }
                        barrier.wait();
                        assert_eq!(won.load(SeqCst), round as usize + 1);
                    }
                });
            }
        });
        assert_eq!(d.scan(..).count(), 1);
        db.flush().unwrap();
        check(&db);
    });
}

#[test]
fn threads_never_make_two_records_with_the_same_value() {
    for seed in seeds(4) {
        let _doing = Doing(format!("ESKER_SEED={seed}"));
        let mut rng = fastrand::Rng::with_seed(seed);
        let options = small(Arc::new(Memory::new()))
            .memory_budget(32 << 10)
            .table_size(1 << 10)
            .background(true);
        let db = Database::create_or_open(FsPath::new(DIR), options).unwrap();
        let kind = KINDS[rng.usize(0..KINDS.len())];
        let def = def(kind, rng.usize(0..30));
        let d = db.create_dataset::<i64>("d", def).unwrap();
        let refused = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (d, refused) = (&d, &refused);
                let mut rng = fastrand::Rng::with_seed(seed * 100 + thread);
                scope.spawn(move || {
                    for _ in 0..300 {
                        let mut batch = d.batch();
                        for _ in 0..rng.usize(1..4) {
                            let (id, v) = (rng.i64(0..40), rng.i64(0..50));
                            match rng.usize(0..4) {
                                0 => batch.delete(id).unwrap(),
                                _ => batch
                                    .put_json(body(id, json!([v, v + 1])).as_bytes())
                                    .unwrap(),
                            };
                        }
                        match batch.commit() {
                            Ok(()) => {}
                            Err(error) => {
                                refusal(error);
                                refused.fetch_add(1, SeqCst);
                            }
                        }
                    }
                });
            }
            let (d, db) = (&d, &db);
            let mut rng = fastrand::Rng::with_seed(seed * 100 + 50);
            scope.spawn(move || {
                for _ in 0..8 {
                    let kind = KINDS[rng.usize(0..KINDS.len())];
                    // Another thread may change the dataset, or the index may have the kind.
                    let _ = d.switch_index("v", kind).run();
                    let mut seen = BTreeMap::new();
                    for record in d.snapshot().scan(..) {
                        let record = record.unwrap();
                        let json: Json = serde_json::from_slice(record.json()).unwrap();
                        for v in json["v"].as_array().unwrap() {
                            let before = seen.insert(v.to_string(), *record.key());
                            assert_eq!(before, None, "{v} twice");
                        }
                    }
                    db.flush().unwrap();
                }
            });
        });
        assert!(refused.load(SeqCst) > 0, "no conflict was provoked");
        check(&db);
    }
}

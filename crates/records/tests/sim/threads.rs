//! The second mode: threads write the same keys, query, repair, change indexes and strategies,
//! create and drop datasets, and back one store up, all at once, until it is closed under them;
//! then the next round opens it again. Syncs of the log take time, so that writes are in the log
//! but not visible while others update, insert, delete and expire. Batches span two datasets,
//! consumers follow changes, and the clock advances. Runs are not repeatable. Invariants: every
//! query of a snapshot returns what its scan returns; backups are sound stores; acknowledged writes
//! survive a close; batches are atomic, and errors are true; changes arrive in order, and none is
//! lost; records expire in time;
//! values that are unique are.

mod clock;
mod counters;
mod pairs;
mod readers;
mod upkeep;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path as FsPath;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use esker::schema::Maintenance;
use esker::{
    Database, DatasetDef, DatasetSnapshot, Durability, ErrorKind, IndexKind, KeyType, Options,
    Result, Type,
};
use esker_lsm::BitmapMerges;
use esker_sim::hooked::{Call, Hooked};
use esker_sim::memory::Memory;

use crate::action::{MERGINGS, PATHS};
use crate::ask::{self, View};
use crate::common::{DIR, number, path, seeds, small};
use crate::compound;
use crate::model::{Entry, K, Records, Row, Types, key};
use clock::{Clock, LASTING, LIVES};
use counters::counted;
use pairs::{Copies, FOLLOWED, PAIR};

const KEYS: u8 = 25;
const NAMES: [&str; 2] = ["d0", "d1"];
/// A dataset of counters, one of expiring records, and their contents.
const COUNTS: &str = "counts";
const PASSING: &str = "passing";
const COUNTERS: u64 = 2;
const TYPES: [Type; PATHS.len()] = [Type::Int, Type::Bool, Type::Float, Type::Int, Type::String];
const VALUES: Types = Types {
    of: TYPES,
    lenient: false,
    unique: None,
    compound: 0,
};

/// Every record that was ever made, by its number.
type Made = Mutex<BTreeMap<u64, (K, Arc<Row>)>>;

/// The last writes of a writer to each key: the number of the record, or none. `unsure` has the
/// writes whose outcome it does not know.
#[derive(Default)]
struct Last {
    sure: BTreeMap<(usize, u8), Option<u64>>,
    unsure: Vec<((usize, u8), Option<u64>)>,
}

struct Shared {
    memory: Memory,
    clock: Clock,
    made: Made,
    number: AtomicU64,
    copies: AtomicU64,
    /// The number of running writers.
    writing: AtomicUsize,
    closing: AtomicBool,
    /// A thread has failed: all end.
    failed: AtomicBool,
}

/// The memory file system, in which some syncs of the log take a moment.
fn slow(memory: &Memory) -> Hooked {
    let fs = Hooked::new(Arc::new(memory.clone()));
    let calls = AtomicU64::new(0);
    fs.set(move |call, path| {
        let is_log = path.extension().is_some_and(|extension| extension == "log");
        if call == Call::Sync && is_log {
            let call = calls.fetch_add(1, SeqCst);
            std::thread::sleep(Duration::from_micros([0, 50, 300, 1000][call as usize % 4]));
        }
        Ok(())
    });
    fs
}

fn options(memory: &Memory, clock: &Clock, rng: &mut fastrand::Rng) -> Options {
    let clock = clock.clone();
    small(Arc::new(slow(memory)))
        .clock(Arc::new(move || clock.get()))
        .background(true)
        .table_size([1 << 10, 4 << 10][rng.usize(0..2)])
        .memory_budget([64 << 10, 512 << 10][rng.usize(0..2)])
        .engine(|engine| {
            engine.bitmap_merges = [BitmapMerges::SideFile, BitmapMerges::Lock][rng.usize(0..2)];
            engine.bitmap_slack = [0, 16 << 10][rng.usize(0..2)];
            engine.compaction_threads = rng.usize(1..5);
            engine.piece_bytes = [None, Some(1 << 10), Some(8 << 10)][rng.usize(0..3)];
            engine.mapped_reads = engine.bitmap_slack == 0;
        })
        .durability([Durability::Os, Durability::Sync][rng.usize(0..2)])
}

fn definition(rng: &mut fastrand::Rng) -> DatasetDef {
    let mut def = DatasetDef::new(path("id"), KeyType::Int);
    for at in 0..rng.usize(1..4) {
        let kind = IndexKind::ALL[rng.usize(0..IndexKind::ALL.len())];
        let is_unique = at == 0 && kind.can_be_unique() && rng.bool();
        let index = esker::Index::new(kind).of_type(TYPES[at]);
        def = def.index(path(PATHS[at]), index.unique_if(is_unique));
    }
    // From numbers of its own, so that other lives stay as they were.
    let mut own = fastrand::Rng::with_seed(rng.clone().u64(..));
    if own.usize(0..3) == 0 {
        def = compound::declare(def, own.u8(1..=compound::MOST), &TYPES, false);
    }
    def.maintenance(Maintenance::ALL[rng.usize(0..Maintenance::ALL.len())])
        .merging(MERGINGS[rng.usize(0..MERGINGS.len())])
}

/// Ends the other threads when this one fails.
struct Alarm<'a>(&'a Shared);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.failed.store(true, SeqCst);
        }
    }
}

impl Shared {
    fn goes_on(&self) -> bool {
        self.writing.load(SeqCst) > 0 && !self.failed.load(SeqCst)
    }

    /// These errors are allowed, and any error of a closed store.
    fn decide<T>(&self, result: Result<T>, allowed: &[ErrorKind]) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                let kind = error.kind();
                let closed = self.closing.load(SeqCst) && kind == ErrorKind::Closed;
                assert!(closed || allowed.contains(&kind), "{kind:?}: {error}");
                None
            }
        }
    }

    /// The records that a scan returns.
    fn scanned(&self, snapshot: &DatasetSnapshot) -> Result<Records> {
        let mut records = Records::default();
        for record in snapshot.scan(..) {
            let record = record?;
            let body: serde_json::Value = serde_json::from_slice(record.json()).unwrap();
            let number = body["o"].as_u64().unwrap();
            let (key, row) = self.made.lock().unwrap()[&number].clone();
            assert_eq!(row.put.body.as_bytes(), record.json(), "a record is torn");
            let row = Some(Rc::new(Row::clone(&row)));
            let seq = record.seq();
            records.write(key, Entry { seq, row }, 1);
        }
        Ok(records)
    }

    /// Every query of a snapshot returns what its scan returns.
    fn agree(
        &self,
        snapshot: &DatasetSnapshot,
        def: &DatasetDef,
        rng: &mut fastrand::Rng,
    ) -> Result<()> {
        let records = self.scanned(snapshot)?;
        let view = View {
            key_type: KeyType::Int,
            types: TYPES,
            def: def.clone(),
        };
        ask::some(snapshot, &view, &records, rng, 2)
    }

    /// Nothing failed in the background.
    fn no_errors(&self, db: &Database) {
        for name in [&NAMES[..], &PAIR, &[COUNTS, PASSING, LASTING]].concat() {
            let stats = db.dataset::<esker::Key>(name).unwrap().stats();
            let failed = (stats.strategy.error, stats.failures);
            assert_eq!(failed, (None, Vec::new()), "{name} in the background");
        }
    }

    /// Each key has the last write of some writer, or one with an unknown outcome.
    fn holds(
        &self,
        db: &Database,
        before: &mut BTreeMap<(usize, u8), Option<u64>>,
        lasts: &[Last],
    ) {
        for (set, name) in NAMES.iter().enumerate() {
            let dataset = db.dataset::<esker::Key>(name).unwrap();
            let records = self.scanned(&dataset.snapshot()).unwrap();
            for id in 0..KEYS {
                let found = records.current(&key(KeyType::Int, id));
                let found = found.map(|(_, row)| row.put.order);
                let sure = lasts.iter().filter_map(|last| last.sure.get(&(set, id)));
                let mut may_be: BTreeSet<Option<u64>> = sure.copied().collect();
                if may_be.is_empty() {
                    may_be.insert(before.get(&(set, id)).copied().flatten());
                }
                let unsure = lasts.iter().flat_map(|last| &last.unsure);
                may_be.extend(unsure.filter(|(k, _)| *k == (set, id)).map(|(_, n)| *n));
                assert!(
                    may_be.contains(&found),
                    "{name} {id}: {found:?}, not {may_be:?}"
                );
                before.insert((set, id), found);
            }
        }
    }
}

fn contend(seed: u64, batches: usize) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let memory = Memory::new();
    let shared = Shared {
        memory: memory.clone(),
        clock: Clock::new(),
        made: Made::default(),
        number: AtomicU64::new(1),
        copies: AtomicU64::new(0),
        writing: AtomicUsize::new(0),
        closing: AtomicBool::new(false),
        failed: AtomicBool::new(false),
    };
    let open = |rng: &mut fastrand::Rng| {
        Database::create_or_open(FsPath::new(DIR), options(&memory, &shared.clock, rng)).unwrap()
    };
    let db = open(&mut rng);
    for name in NAMES {
        db.create_dataset::<esker::Key>(name, definition(&mut rng))
            .unwrap();
    }
    let counts = DatasetDef::new(path("id"), KeyType::Int);
    let passing = counts.clone().ttl(Duration::from_millis(1));
    db.create_dataset::<u64>(COUNTS, counts).unwrap();
    db.create_dataset::<u64>(PASSING, passing).unwrap();
    let lasting = DatasetDef::new(path("id"), KeyType::Int).ttl(Duration::from_millis(LIVES));
    db.create_dataset::<u64>(LASTING, lasting).unwrap();
    pairs::create(&db);
    drop(db);
    let (added, paired, copies) = (AtomicU64::new(0), AtomicU64::new(0), Copies::default());
    let mut before = BTreeMap::new();
    for round in 0..3 {
        let db = open(&mut rng);
        shared.closing.store(false, SeqCst);
        shared.writing.store(2, SeqCst);
        let close_after = rng.usize(0..batches.max(1) * 2) as u64;
        let seed = seed * 1000 + round * 100;
        let lasts: Vec<Last> = std::thread::scope(|scope| {
            let shared = &shared;
            let writers: Vec<_> = (0..2)
                .map(|writer| {
                    let db = db.clone();
                    scope.spawn(move || shared.write(&db, seed + writer, batches))
                })
                .collect();
            let others = [
                (Shared::read as fn(&Shared, &Database, u64), 10),
                (Shared::keep_up, 20),
                (Shared::keep_up, 21),
                (Shared::back_up, 30),
                (Shared::beside, 40),
                (Shared::keep, 50),
                (Shared::tick, 80),
                (Shared::last, 81),
                (Shared::last, 82),
            ];
            for (work, number) in others {
                let db = db.clone();
                scope.spawn(move || work(shared, &db, seed + number));
            }
            for number in 60..64 {
                let (db, added) = (db.clone(), &added);
                scope.spawn(move || shared.count(&db, seed + number, added));
            }
            for number in 90..92 {
                let (db, added) = (db.clone(), &paired);
                scope.spawn(move || shared.pair(&db, seed + number, added));
            }
            for which in 0..FOLLOWED.len() {
                let (db, copies) = (db.clone(), &copies);
                scope.spawn(move || shared.follow(&db, which, copies));
            }
            for number in 70..72 {
                let db = db.clone();
                scope.spawn(move || shared.pass(&db, seed + number));
            }
            let closer = db.clone();
            scope.spawn(move || {
                let _alarm = Alarm(shared);
                let first = shared.number.load(SeqCst);
                // Closes at some moment during the writes.
                while shared.goes_on() && shared.number.load(SeqCst) < first + close_after {
                    std::thread::yield_now();
                }
                shared.no_errors(&closer);
                shared.closing.store(true, SeqCst);
                closer.close().unwrap();
            });
            let writers = writers.into_iter();
            writers.map(|writer| writer.join().unwrap()).collect()
        });
        drop(db);
        let db = open(&mut rng);
        shared.closing.store(false, SeqCst);
        shared.holds(&db, &mut before, &lasts);
        let counts = db.dataset::<u64>(COUNTS).unwrap();
        let counters = (0..COUNTERS).filter_map(|id| counts.get(id).unwrap());
        let sum: u64 = counters.map(|record| counted(record.json())).sum();
        // Closing may have interrupted one addition per thread that is in the log.
        let sure = added.load(SeqCst);
        assert!(
            (sure..=sure + 4).contains(&sum),
            "{sum} additions, {sure} acknowledged"
        );
        added.store(sum, SeqCst);
        shared.holds_pairs(&db, &paired, 2);
        copies.catch_up(&db);
        let report = db.check().unwrap();
        assert_eq!(report.errors, Vec::<String>::new());
        for name in db.dataset_names() {
            if name.starts_with('x') {
                db.drop_dataset(&name).unwrap();
            }
        }
        db.close().unwrap();
    }
}

#[test]
fn threads_that_do_everything_at_once_leave_a_store_that_is_sound() {
    for seed in seeds(4) {
        let _doing = crate::common::Doing(format!("ESKER_SEED={seed}"));
        contend(seed, number("ESKER_BATCHES", 150));
    }
}

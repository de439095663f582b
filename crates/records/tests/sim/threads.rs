//! The second mode: threads that write the same keys, ask, repair, change indexes and strategies, make and drop datasets,
//! and back up one store, all at once, until it is closed under them; then it is opened again, some rounds long. Syncs of the
//! log take time, so that writes are in the log and not visible yet while others update, insert, delete and expire. It does not
//! repeat. What must hold: every way of asking a snapshot gives what a scan of it gives; backups are sound stores; what was
//! acknowledged is there after a close.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::{Path as FsPath, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use esker::experimental::Tuning;
use esker::experimental::{Compaction, Lookups};
use esker::fs::hooked::{Call, Hooked};
use esker::fs::memory::{Memory, PowerCut};
use esker::{
    Database, DatasetDef, DatasetSnapshot, Durability, ErrorKind, IndexKind, KeyType, Maintenance,
    Options, RepairMethod, RepairOptions, Result, Type,
};
use lsm::BitmapMerges;

use crate::action::{Cell, MERGINGS, ONE, PATHS};
use crate::ask::{self, View};
use crate::common::{DIR, number, path, seeds, small};
use crate::model::{Entry, K, Records, Row, key, row};

const KEYS: u8 = 25;
const NAMES: [&str; 2] = ["d0", "d1"];
/// A dataset of counters, one of records that expire, and what they hold.
const COUNTS: &str = "counts";
const PASSING: &str = "passing";
const COUNTERS: u64 = 2;
const TYPES: [Type; PATHS.len()] = [Type::Int, Type::Bool, Type::Float, Type::Int, Type::String];

/// Every record that was ever made, by its number.
type Made = Mutex<BTreeMap<u64, (K, Arc<Row>)>>;

/// What a writer did to each key last: the number of the record, or none. And what it does not know to have done.
#[derive(Default)]
struct Last {
    sure: BTreeMap<(usize, u8), Option<u64>>,
    unsure: Vec<((usize, u8), Option<u64>)>,
}

struct Shared {
    memory: Memory,
    made: Made,
    number: AtomicU64,
    copies: AtomicU64,
    /// Writers at work.
    writing: AtomicUsize,
    closing: AtomicBool,
    /// Something went wrong: all end.
    failed: AtomicBool,
}

/// The memory, with syncs of the log of which some take a moment.
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

fn options(memory: &Memory, rng: &mut fastrand::Rng) -> Options {
    Options {
        background: true,
        table_size: [1 << 10, 4 << 10][rng.usize(0..2)],
        memory_budget: [64 << 10, 512 << 10][rng.usize(0..2)],
        tuning: Tuning {
            bitmap_merges: [BitmapMerges::SideFile, BitmapMerges::Lock][rng.usize(0..2)],
            bitmap_slack: [0, 16 << 10][rng.usize(0..2)],
            compaction_threads: rng.usize(1..5),
            piece_bytes: [None, Some(1 << 10), Some(8 << 10)][rng.usize(0..3)],
            ..Tuning::default()
        },
        durability: [Durability::Os, Durability::Sync][rng.usize(0..2)],
        ..small(Arc::new(slow(memory)))
    }
}

fn definition(rng: &mut fastrand::Rng) -> DatasetDef {
    let mut def = DatasetDef::new(path("id"), KeyType::Int);
    for at in 0..rng.usize(1..4) {
        let kind = IndexKind::ALL[rng.usize(0..IndexKind::ALL.len())];
        def = def.index(path(PATHS[at]), esker::Index::new(kind).of_type(TYPES[at]));
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

    /// Errors of these kinds are right, and any that a closed store gives.
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

    /// What a scan shows.
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

    /// Every way of asking a snapshot gives what a scan of it gives.
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

    fn write(&self, db: &Database, seed: u64, batches: usize) -> Last {
        let _alarm = Alarm(self);
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut last = Last::default();
        for number in 0..batches {
            if self.failed.load(SeqCst) {
                break;
            }
            let set = rng.usize(0..NAMES.len());
            let Some(dataset) = self.decide(db.dataset::<esker::Key>(NAMES[set]), &[]) else {
                break;
            };
            let mut batch = dataset.batch();
            let mut done = BTreeMap::new();
            for _ in 0..rng.usize(1..6) {
                let id = rng.u8(0..KEYS);
                let key = key(KeyType::Int, id);
                if rng.usize(0..4) == 0 {
                    let api = dataset.parse_key(&key.to_string()).unwrap();
                    batch.delete(&api).unwrap();
                    done.insert((set, id), None);
                    continue;
                }
                let number = self.number.fetch_add(1, SeqCst);
                let cells: [Cell; PATHS.len()] = std::array::from_fn(|_| ONE + rng.u8(0..3));
                let made = row(
                    &key,
                    &TYPES,
                    &cells,
                    (rng.u16(0..60), 0, None),
                    None,
                    number,
                );
                let body = made.put.body.clone();
                self.made
                    .lock()
                    .unwrap()
                    .insert(number, (key, Arc::new(made)));
                match rng.usize(0..8) {
                    0 => batch.insert_json(body.as_bytes()).unwrap(),
                    _ => batch.put_json(body.as_bytes()).unwrap(),
                }
                done.insert((set, id), Some(number));
            }
            // What a batch notes goes with its records, also where it was overtaken and made again.
            let name = format!("writer {}", seed % 2);
            let noted = (rng.usize(0..4) > 0).then(|| number.to_string().into_bytes());
            let result = batch.note(&name, noted.as_deref());
            let is_noted = self.decide(result, &[ErrorKind::Busy]).is_some();
            let durability = match number % 16 {
                0 => Durability::Sync,
                1 => Durability::Periodic(Duration::from_millis(5)),
                _ => Durability::Os,
            };
            match batch.durability(durability).commit() {
                Ok(()) => {
                    for (key, number) in done {
                        last.sure.insert(key, number);
                        last.unsure.retain(|(other, _)| *other != key);
                    }
                    if is_noted && let Some(mut notes) = self.decide(dataset.notes(), &[]) {
                        assert_eq!(notes.remove(&name), noted, "what batch {number} noted");
                    }
                }
                Err(error) if error.kind() == ErrorKind::Exists => {}
                Err(error) => {
                    self.decide(Err::<(), _>(error), &[]);
                    last.unsure.extend(done);
                    break;
                }
            }
        }
        self.writing.fetch_sub(1, SeqCst);
        last
    }

    fn read(&self, db: &Database, seed: u64) {
        let _alarm = Alarm(self);
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut held: Option<(DatasetSnapshot, DatasetDef)> = None;
        while self.goes_on() {
            let name = NAMES[rng.usize(0..NAMES.len())];
            let Ok(dataset) = db.dataset::<esker::Key>(name) else {
                break;
            };
            // A definition and a snapshot that fit: where nothing changed in between.
            let def = dataset.def();
            let snapshot = dataset.snapshot();
            if dataset.def() != def {
                continue;
            }
            self.decide(self.agree(&snapshot, &def, &mut rng), &[]);
            if let Some((snapshot, def)) = &held {
                self.decide(self.agree(snapshot, def, &mut rng), &[]);
            }
            if rng.usize(0..4) == 0 {
                held = Some((snapshot, def));
            }
        }
    }

    fn keep_up(&self, db: &Database, seed: u64) {
        let _alarm = Alarm(self);
        let mut rng = fastrand::Rng::with_seed(seed);
        let busy = [ErrorKind::Busy, ErrorKind::BadInput, ErrorKind::Exists];
        while self.goes_on() {
            let Ok(dataset) = db.dataset::<esker::Key>(NAMES[rng.usize(0..NAMES.len())]) else {
                break;
            };
            let mut left = [usize::MAX, usize::MAX, 0, 2][rng.usize(0..4)];
            let mut go = || {
                left = left.saturating_sub(1);
                match left > 0 {
                    true => ControlFlow::Continue(()),
                    false => ControlFlow::Break(()),
                }
            };
            let at = rng.usize(0..PATHS.len());
            let kind = IndexKind::ALL[rng.usize(0..IndexKind::ALL.len())];
            match rng.usize(0..12) {
                0 => drop(self.decide(db.compact(None), &[])),
                1 | 2 => drop(self.decide(db.flush(), &[])),
                3 | 4 => {
                    let methods = [
                        RepairMethod::Auto,
                        RepairMethod::Key,
                        RepairMethod::Index,
                        RepairMethod::Primary {
                            compaction: Compaction::After,
                        },
                    ];
                    let options = RepairOptions {
                        method: methods[rng.usize(0..methods.len())],
                        memory: [1, 1 << 20][rng.usize(0..2)],
                        threads: rng.usize(1..3),
                        lookups: [Lookups::Auto, Lookups::Points][rng.usize(0..2)],
                        ..RepairOptions::default()
                    };
                    self.decide(dataset.repair(&options).on_progress(|_| go()).run(), &busy);
                }
                5 => drop(
                    self.decide(
                        dataset
                            .add_index(path(PATHS[at]), esker::Index::new(kind).of_type(TYPES[at]))
                            .on_progress(|_| go())
                            .run(),
                        &busy,
                    ),
                ),
                6 => drop(
                    self.decide(
                        dataset
                            .switch_index(path(PATHS[at]), kind)
                            .on_progress(|_| go())
                            .run(),
                        &busy,
                    ),
                ),
                7 => drop(self.decide(dataset.drop_index(path(PATHS[at])), &busy)),
                8 => drop(self.decide(dataset.resume_index().on_progress(|_| go()).run(), &busy)),
                9 => {
                    let to = Maintenance::ALL[rng.usize(0..Maintenance::ALL.len())];
                    self.decide(
                        dataset.set_maintenance(to).on_progress(|_| go()).run(),
                        &busy,
                    );
                }
                _ => self.other(db, &format!("x{}", seed % 10), &mut rng),
            }
        }
    }

    /// A dataset that comes, is written to, and goes.
    fn other(&self, db: &Database, name: &str, rng: &mut fastrand::Rng) {
        let Some(dataset) = self.decide(
            db.create_dataset::<esker::Key>(name, definition(rng)),
            &[ErrorKind::Exists],
        ) else {
            // It could not be dropped the last time.
            self.decide(
                db.drop_dataset(name),
                &[ErrorKind::Busy, ErrorKind::UnknownDataset],
            );
            return;
        };
        for id in 0..rng.u64(0..30) {
            let body = format!("{{\"id\":{},\"a\":{id}}}", id % 9);
            if self
                .decide(dataset.put_json(body.as_bytes()), &[])
                .is_none()
            {
                return;
            }
        }
        drop(dataset);
        // Background maintenance may be at work in it.
        self.decide(db.drop_dataset(name), &[ErrorKind::Busy]);
        if db.dataset::<esker::Key>(name).is_ok() {
            std::thread::sleep(Duration::from_millis(1));
            self.decide(db.drop_dataset(name), &[ErrorKind::Busy]);
        }
    }

    /// Keeps snapshots under names, and asks and drops them: each shows what it did at first, by whichever way it is asked.
    fn keep(&self, db: &Database, seed: u64) {
        let _alarm = Alarm(self);
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut seen: BTreeMap<(String, &str), Vec<u64>> = BTreeMap::new();
        while self.goes_on() {
            let kept = format!("k{}", rng.usize(0..3));
            if db.kept_snapshot(&kept).is_err() {
                let result = db.keep_snapshot(&kept);
                if self.decide(result, &[]).is_none() {
                    continue;
                }
            }
            // It can be read on when it is dropped.
            let snapshot = db.kept_snapshot(&kept).unwrap();
            let drops = rng.usize(0..4) == 0;
            let dropped = drops.then(|| self.decide(db.drop_snapshot(&kept), &[]));
            for name in NAMES {
                let dataset = snapshot.dataset::<esker::Key>(name).unwrap();
                self.decide(self.agree(&dataset, &dataset.def(), &mut rng), &[]);
                let Some(records) = self.decide(self.scanned(&dataset), &[]) else {
                    return;
                };
                let shown: Vec<u64> = records.rows().map(|(_, seq, _)| seq).collect();
                let first = seen.entry((kept.clone(), name)).or_insert(shown.clone());
                assert_eq!(*first, shown, "{kept}");
            }
            if let Some(Some(())) = dropped {
                seen.retain(|(name, _), _| *name != kept);
            }
        }
    }

    /// Adds to counters that others add to: each addition that is acknowledged counts, and none is refused. A record with the
    /// additions of this thread is inserted, found and deleted: exactly once.
    fn count(&self, db: &Database, seed: u64, added: &AtomicU64) {
        let _alarm = Alarm(self);
        let mut rng = fastrand::Rng::with_seed(seed);
        let Some(counts) = self.decide(db.dataset::<u64>(COUNTS), &[]) else {
            return;
        };
        while self.goes_on() {
            let id = rng.u64(0..COUNTERS);
            let add = counts.update(id, |old| {
                let n = old.map_or(0, |record| counted(record.json()));
                format!("{{\"id\":{id},\"n\":{}}}", n + 1)
            });
            match self.decide(add, &[]) {
                Some(_) => drop(added.fetch_add(1, SeqCst)),
                None => return,
            }
            // Others insert and delete the same key.
            let shared = format!("{{\"id\":{},\"n\":{seed}}}", COUNTERS);
            let inserted = counts.insert_json(shared);
            let deleted = match inserted {
                Ok(()) => counts.delete(COUNTERS),
                // Whoever refused the insert is visible, unless it was deleted since.
                Err(error) if error.kind() == ErrorKind::Exists => counts.get(COUNTERS),
                Err(error) => Err(error),
            };
            if self.decide(deleted, &[]).is_none() {
                return;
            }
        }
    }

    /// Puts records that expire at once and again, and has them deleted; nobody but maintenance is beside it.
    fn pass(&self, db: &Database, seed: u64) {
        let _alarm = Alarm(self);
        let mut rng = fastrand::Rng::with_seed(seed);
        let Some(passing) = self.decide(db.dataset::<u64>(PASSING), &[]) else {
            return;
        };
        while self.goes_on() {
            for _ in 0..rng.usize(1..20) {
                let record = format!("{{\"id\":{},\"n\":1}}", rng.u64(0..8));
                if self.decide(passing.put_json(record), &[]).is_none() {
                    return;
                }
            }
            if self.decide(passing.expire_now(), &[]).is_none() {
                return;
            }
            let stats = passing.stats();
            if !self.closing.load(SeqCst) {
                assert_eq!(stats.strategy.error, None, "maintenance in the background");
            }
        }
    }

    /// Backs up, and lives on in the copy.
    fn back_up(&self, db: &Database, seed: u64) {
        let _alarm = Alarm(self);
        let mut rng = fastrand::Rng::with_seed(seed);
        while self.goes_on() {
            let dest = PathBuf::from(format!("/copy-{}", self.copies.fetch_add(1, SeqCst)));
            let result = db.backup(&dest);
            if self.decide(result, &[]).is_none() {
                continue;
            }
            let image = self.memory.power_cut(seed, PowerCut::Kept);
            let options = options(&image, &mut rng);
            let copy = Database::open(&dest, options).unwrap();
            self.is_sound(&copy, &mut rng);
            copy.close().unwrap();
            for path in self.memory.paths() {
                if path.starts_with(&dest) {
                    let _ = esker::fs::Fs::remove(&self.memory, &path);
                }
            }
        }
    }

    /// Reads beside the writers, as another process does: it sees what is acknowledged, neither less nor more, and gives each
    /// commit once.
    fn beside(&self, db: &Database, seed: u64) {
        let _alarm = Alarm(self);
        let mut rng = fastrand::Rng::with_seed(seed);
        let open = || {
            let options = options(&self.memory, &mut fastrand::Rng::with_seed(seed));
            Database::open_reader(FsPath::new(DIR), options).unwrap()
        };
        // It looks again before it begins, and what it would begin with may have been flushed.
        let follow = |reader: &Database| loop {
            match reader.group().tail(reader.group().position()) {
                Err(lsm::Error::PositionExpired { .. }) => {}
                tail => break tail.unwrap(),
            }
        };
        let mut reader = open();
        let mut tail = follow(&reader);
        let mut goes_on = true;
        while goes_on {
            // Once more when the writers are through.
            goes_on = self.goes_on();
            let acknowledged = db.group().position();
            reader.refresh().unwrap();
            let seen = reader.group().position();
            assert!(acknowledged.seq <= seen.seq, "{acknowledged}, not {seen}");
            let name = NAMES[rng.usize(0..NAMES.len())];
            let dataset = reader.dataset::<esker::Key>(name).unwrap();
            let (snapshot, def) = (dataset.snapshot(), dataset.def());
            self.agree(&snapshot, &def, &mut rng).unwrap();
            let mut before = tail.position();
            let expired = loop {
                match tail.next() {
                    Ok(Some(commit)) => {
                        let mut first = u64::MAX;
                        commit.each(&mut |_, seq, _, _, _| first = first.min(seq));
                        assert!(before.seq < first, "{first} behind {before}");
                        before = commit.position();
                    }
                    Ok(None) => break false,
                    Err(lsm::Error::PositionExpired { .. }) => break true,
                    Err(error) => panic!("{error}"),
                }
            };
            if rng.usize(0..16) == 0 {
                reader = open();
            } else if !expired {
                continue;
            }
            tail = follow(&reader);
        }
    }

    /// The store is sound, also after it was written to and merged.
    fn is_sound(&self, db: &Database, rng: &mut fastrand::Rng) {
        for round in 0..3 {
            let report = db.check().unwrap();
            assert_eq!(report.errors, Vec::<String>::new(), "round {round}");
            for name in NAMES {
                let dataset = db.dataset::<esker::Key>(name).unwrap();
                let snapshot = dataset.snapshot();
                let def = dataset.def();
                self.agree(&snapshot, &def, rng).unwrap();
                if round == 1 {
                    for id in 0..KEYS / 2 {
                        let number = self.number.fetch_add(1, SeqCst);
                        let key = key(KeyType::Int, id * 2);
                        let cells = [ONE + id % 3; PATHS.len()];
                        let made = row(&key, &TYPES, &cells, (9, 0, None), None, number);
                        dataset.put_json(made.put.body.as_bytes()).unwrap();
                        let mut all = self.made.lock().unwrap();
                        all.insert(number, (key, Arc::new(made)));
                    }
                }
            }
            if round == 1 {
                db.compact(None).unwrap();
            }
        }
    }

    /// Each key has what somebody wrote there last, or nobody knows to have written.
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

fn counted(json: &[u8]) -> u64 {
    let json: serde_json::Value = serde_json::from_slice(json).unwrap();
    json["n"].as_u64().unwrap()
}

fn contend(seed: u64, batches: usize) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let memory = Memory::new();
    let shared = Shared {
        memory: memory.clone(),
        made: Made::default(),
        number: AtomicU64::new(1),
        copies: AtomicU64::new(0),
        writing: AtomicUsize::new(0),
        closing: AtomicBool::new(false),
        failed: AtomicBool::new(false),
    };
    let open = |rng: &mut fastrand::Rng| {
        Database::create_or_open(FsPath::new(DIR), options(&memory, rng)).unwrap()
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
    drop(db);
    let added = AtomicU64::new(0);
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
            ];
            for (work, number) in others {
                let db = db.clone();
                scope.spawn(move || work(shared, &db, seed + number));
            }
            for number in 60..64 {
                let (db, added) = (db.clone(), &added);
                scope.spawn(move || shared.count(&db, seed + number, added));
            }
            for number in 70..72 {
                let db = db.clone();
                scope.spawn(move || shared.pass(&db, seed + number));
            }
            let closer = db.clone();
            scope.spawn(move || {
                let _alarm = Alarm(shared);
                let first = shared.number.load(SeqCst);
                // At some moment of what the writers do.
                while shared.goes_on() && shared.number.load(SeqCst) < first + close_after {
                    std::thread::yield_now();
                }
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
        // Closing may have cut off one addition a thread that is in the log all the same.
        let sure = added.load(SeqCst);
        assert!(
            (sure..=sure + 4).contains(&sum),
            "{sum} additions, {sure} acknowledged"
        );
        added.store(sum, SeqCst);
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

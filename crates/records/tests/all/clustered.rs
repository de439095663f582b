//! Datasets stored by location behave like any other dataset: reads, writes, feeds, copies and
//! checks are compared with a model under random operations. Areas are read from neighbouring
//! blocks, and unsupported settings are refused. `ESKER_SEEDS=1000 cargo test -p esker --test all
//! clustered::` runs more seeds; `ESKER_SEED=17` repeats one.

use crate::common;
use std::collections::BTreeMap;
use std::path::Path as FsPath;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::{DIR, check, small, with_strategy};
use esker::advise::AdvisedChange;
use esker::maintain::RepairOptions;
use esker::options::KeepLog;
use esker::schema::{Layout, Maintenance, Merging};
use esker::{
    AreaExpr, ChangeKind, Changes, Database, Dataset, DatasetDef, DatasetSnapshot, Expr, Index,
    IndexKind, KeyType, Options, Order, Record, Type, Update, field,
};
use esker_lsm::{Batch, Cursor, Durability};
use esker_model::definition::StoredDef;
use esker_sim::by_tier;
use esker_sim::memory::{Memory, PowerCut};
use fastrand::Rng;
use serde_json::{Value as Json, json};

const START: u64 = 1_700_000_000_000;

/// A record of the model: its JSON, its point, its expiry time, and the order of its write.
#[derive(Debug, Clone)]
struct Row {
    json: Json,
    point: Option<(f64, f64)>,
    until: Option<u64>,
    write: u64,
}

type Rows = BTreeMap<u64, Row>;

struct Run {
    seed: u64,
    rng: Rng,
    memory: Memory,
    clock: Arc<AtomicU64>,
    db: Option<Database>,
    rows: Rows,
    writes: u64,
    /// The copy of a follower of the feed, and its position.
    copy: BTreeMap<u64, Json>,
    given: u64,
    copies: u64,
    held: Vec<(DatasetSnapshot<u64>, Rows)>,
    /// The expected content of the named snapshot.
    kept: Option<Rows>,
}

impl Run {
    fn new(seed: u64) -> Run {
        let mut run = Run {
            seed,
            rng: Rng::with_seed(seed),
            memory: Memory::new(),
            clock: Arc::new(AtomicU64::new(START)),
            db: None,
            rows: Rows::new(),
            writes: 0,
            copy: BTreeMap::new(),
            given: 0,
            copies: 0,
            held: Vec::new(),
            kept: None,
        };
        run.open();
        let kinds = [
            IndexKind::Embedded,
            IndexKind::Fingerprint,
            IndexKind::Filter,
            IndexKind::Eager,
            IndexKind::Composite,
        ];
        let n = Index::new(kinds[run.rng.usize(0..kinds.len())]).int();
        let merging = [Merging::LazyLeveled, Merging::Leveled, Merging::Correlated];
        let def = DatasetDef::new("id", KeyType::Int)
            .cluster("at")
            .index("n", n)
            .expires_at("until")
            .keep_old_records()
            .merging(merging[run.rng.usize(0..merging.len())]);
        let def = with_strategy(def, seed as usize);
        run.db().create_dataset::<u64>("d", def).unwrap();
        run
    }

    fn options(&self, memory: &Memory) -> Options {
        let clock = self.clock.clone();
        small(Arc::new(memory.clone()))
            .clock(Arc::new(move || clock.load(Ordering::SeqCst)))
            .keep_log(KeepLog {
                bytes: u64::MAX,
                age: None,
            })
    }

    fn open(&mut self) {
        let options = self.options(&self.memory);
        self.db = Some(Database::create_or_open(FsPath::new(DIR), options).unwrap());
    }

    fn db(&self) -> &Database {
        self.db.as_ref().unwrap()
    }

    fn dataset(&self) -> Dataset<u64> {
        self.db().dataset("d").unwrap()
    }

    fn row(&mut self, id: u64) -> Row {
        self.writes += 1;
        let point = |rng: &mut Rng| (f64::from(rng.u8(0..10)), f64::from(rng.u8(0..80)) / 8.0);
        let point = (self.rng.usize(0..6) > 0).then(|| point(&mut self.rng));
        let now = self.clock.load(Ordering::SeqCst);
        let until = (self.rng.usize(0..8) == 0).then(|| now + self.rng.u64(1..40_000));
        // In whole seconds, as in the records.
        let until = until.map(|until| until.div_ceil(1000) * 1000);
        let mut json = json!({
            "id": id,
            "at": point.map(|(x, y)| json!([x, y])),
            "n": self.rng.u64(0..6),
            "who": format!("w{}", self.rng.u64(0..8)),
            "pad": "x".repeat(self.rng.usize(0..60)),
        });
        if let Some(until) = until {
            json["until"] = json!(until / 1000);
        }
        Row {
            json,
            point,
            until,
            write: self.writes,
        }
    }

    fn shown(&self, id: u64) -> Option<&Row> {
        let now = self.clock.load(Ordering::SeqCst);
        let row = self.rows.get(&id);
        row.filter(|row| row.until.is_none_or(|until| until > now))
    }

    fn write(&mut self) {
        let dataset = self.dataset();
        let id = self.rng.u64(0..120);
        match self.rng.usize(0..8) {
            0 => {
                dataset.delete(id).unwrap();
                if self.shown(id).is_some() {
                    self.rows.remove(&id);
                }
            }
            1 => {
                let row = self.row(id);
                let was = self.shown(id).map(|row| row.json.clone());
                let text = row.json.to_string();
                let old = dataset.update(id, |old: Option<&Record<u64>>| {
                    let old = old.map(|old| old.parse::<Json>().unwrap());
                    assert_eq!(old, was);
                    Update::Put(text.clone().into_bytes())
                });
                assert_eq!(old.unwrap().map(|old| old.parse::<Json>().unwrap()), was);
                self.rows.insert(id, row);
            }
            2 => {
                let row = self.row(id);
                let inserted = dataset.insert(&row.json);
                assert_eq!(inserted.is_ok(), self.shown(id).is_none());
                if inserted.is_ok() {
                    self.rows.insert(id, row);
                }
            }
            _ => {
                let mut batch = dataset.batch();
                for _ in 0..self.rng.usize(1..30) {
                    let id = self.rng.u64(0..120);
                    if self.rng.usize(0..5) == 0 {
                        batch.delete(id).unwrap();
                        self.rows.remove(&id);
                        continue;
                    }
                    let row = self.row(id);
                    batch.put(&row.json).unwrap();
                    self.rows.insert(id, row);
                }
                batch.commit().unwrap();
            }
        }
    }

    /// A batch that is begun before an index is added, and is then built again from its own
    /// records.
    fn write_across_a_change(&mut self) {
        let dataset = self.dataset();
        let mut batch = dataset.batch();
        let mut rows = Vec::new();
        for id in 0..20 {
            let row = self.row(id);
            batch.put(&row.json).unwrap();
            rows.push((id, row));
        }
        self.change();
        batch.commit().unwrap();
        self.rows.extend(rows);
    }

    fn change(&mut self) {
        let dataset = self.dataset();
        let def = dataset.def();
        let who = (def.indexes.iter()).find(|index| index.path.to_string() == "who");
        let kinds = [IndexKind::Lazy, IndexKind::Composite, IndexKind::Eager];
        let kind = kinds[self.rng.usize(0..kinds.len())];
        match (self.rng.usize(0..4), who) {
            (0, _) => {
                let to = Maintenance::ALL[self.rng.usize(0..Maintenance::ALL.len())];
                let to = dataset.set_maintenance(to).run();
                // Staged repair works with one strategy only.
                assert!(to.is_ok() || def.repair == esker::schema::Repair::Staged);
            }
            (1, Some(who)) if who.kind.is_indexed() => {
                dataset.drop_index("who").unwrap();
            }
            (_, Some(who)) if who.kind.is_indexed() => {
                if who.kind != kind {
                    dataset.switch_index("who", kind).run().unwrap();
                }
            }
            _ => {
                let index = Index::new(kind).string();
                dataset.add_index("who", index).run().unwrap();
            }
        }
    }

    fn reopen(&mut self) {
        self.held.clear();
        let cut = if self.rng.bool() {
            PowerCut::Kept
        } else {
            self.db().sync().unwrap();
            PowerCut::Lost
        };
        let there = self.memory.power_cut(self.rng.u64(..), cut);
        self.db = None;
        self.memory = there;
        self.open();
    }

    /// Applies the feed; the old record of each change must be the last one of its key.
    fn follow(&mut self) {
        let dataset = self.dataset();
        let mut changes: Changes<u64> = dataset.changes(self.given).unwrap().with_old().unwrap();
        while let Some(change) = changes.next().unwrap() {
            let json = |record: &Record<u64>| record.parse::<Json>().unwrap();
            let old = change.old().map(json);
            assert_eq!(old.as_ref(), self.copy.get(change.key()), "{}", self.seed);
            match change.record() {
                Some(record) => self.copy.insert(*change.key(), json(record)),
                None => self.copy.remove(change.key()),
            };
            if change.kind() == ChangeKind::Expired {
                self.rows.remove(change.key());
            }
            self.given = change.seq();
        }
        let expected: BTreeMap<u64, Json> = (self.rows.iter())
            .map(|(id, row)| (*id, row.json.clone()))
            .collect();
        assert_eq!(self.copy, expected, "ESKER_SEED={}: the feed", self.seed);
    }

    fn check_all(&mut self) {
        let now = (self.dataset().snapshot(), self.rows.clone());
        self.check(&now.0, &now.1);
        let held = std::mem::take(&mut self.held);
        for (snapshot, rows) in held.iter().take(1) {
            self.check(snapshot, rows);
        }
        self.held = held;
        if let Some(rows) = &self.kept {
            let rows = rows.clone();
            let kept = self.db().kept_snapshot("kept").unwrap();
            self.check(&kept.dataset("d").unwrap(), &rows);
        }
        self.follow();
        if self.rng.usize(0..4) == 0 {
            self.copies += 1;
            let copy = format!("/copy{}", self.copies);
            self.db().backup(&copy).unwrap();
            let db = Database::open(&copy, self.options(&self.memory)).unwrap();
            let rows = self.rows.clone();
            self.check(&db.dataset("d").unwrap().snapshot(), &rows);
            check(&db);
        }
    }

    fn check(&mut self, snapshot: &DatasetSnapshot<u64>, rows: &Rows) {
        let (seed, now) = (self.seed, self.clock.load(Ordering::SeqCst));
        let shown = |row: &&Row| row.until.is_none_or(|until| until > now);
        let rows: Vec<&Row> = rows.values().filter(shown).collect();
        let jsons = |mut rows: Vec<&Row>, order: Option<Order>| -> Vec<Json> {
            match order {
                Some(Order::Oldest) => rows.sort_by_key(|row| row.write),
                Some(_) => rows.sort_by_key(|row| u64::MAX - row.write),
                None => {}
            }
            rows.iter().map(|row| row.json.clone()).collect()
        };
        let json = |record: esker::Result<Record<u64>>| record.unwrap().parse::<Json>().unwrap();
        let all = jsons(rows.clone(), None);
        let scanned: Vec<Json> = snapshot.scan(..).map(json).collect();
        assert_eq!(scanned, all, "ESKER_SEED={seed}: scan");
        let mut back: Vec<Json> = snapshot.scan(..).rev().map(json).collect();
        back.reverse();
        assert_eq!(back, all, "ESKER_SEED={seed}: scan backwards");
        for _ in 0..3 {
            let id = self.rng.u64(0..120);
            let is = |row: &&&Row| row.json["id"] == id;
            let wanted = rows.iter().find(is).map(|row| row.json.clone());
            let got = snapshot.get(id).unwrap().map(|record| json(Ok(record)));
            assert_eq!(got, wanted, "ESKER_SEED={seed}: get");
            let versions = snapshot.versions(id).read().unwrap();
            let versions: Vec<Json> = versions
                .into_iter()
                .map(|record| json(Ok(record)))
                .collect();
            assert_eq!(versions, wanted.into_iter().collect::<Vec<Json>>());
        }
        let (x, y, side) = (
            self.rng.f64() * 10.0,
            self.rng.f64() * 10.0,
            self.rng.f64() * 6.0,
        );
        let area = || AreaExpr::rect(x, y, x + side, y + side);
        let inside = |row: &Row| {
            let within =
                |(px, py): &(f64, f64)| (x..=x + side).contains(px) && (y..=y + side).contains(py);
            row.point.as_ref().is_some_and(within)
        };
        let (n, who) = (self.rng.u64(0..6), format!("w{}", self.rng.u64(0..8)));
        let is_n = |row: &Row| row.json["n"] == n;
        let is_who = |row: &Row| row.json["who"] == who.as_str();
        type Meets<'a> = Box<dyn Fn(&Row) -> bool + 'a>;
        let conditions: Vec<(Expr, Meets<'_>)> = vec![
            (field("at").within(area()), Box::new(inside)),
            (
                field("at").within(area()) & field("n").eq(n),
                Box::new(|row| inside(row) && is_n(row)),
            ),
            (
                field("at").within(area()) & field("who").eq(who.as_str()),
                Box::new(|row| inside(row) && is_who(row)),
            ),
            (field("n").eq(n), Box::new(is_n)),
            (
                field("n").eq(n) & field("who").eq(who.as_str()),
                Box::new(|row| is_n(row) && is_who(row)),
            ),
            (field("who").eq(who.as_str()), Box::new(is_who)),
            (
                field("n").eq(n) | field("at").within(area()),
                Box::new(|row| is_n(row) || inside(row)),
            ),
        ];
        for (condition, meets) in conditions {
            let label = |what: &str| format!("ESKER_SEED={seed}: {what} {condition}");
            let matching: Vec<&Row> = rows.iter().copied().filter(|row| meets(row)).collect();
            let find = || snapshot.find(condition.clone());
            for order in [Order::Newest, Order::Oldest] {
                let wanted = jsons(matching.clone(), Some(order.clone()));
                let few = self.rng.usize(1..5);
                let found: Vec<Json> = find()
                    .order(order.clone())
                    .run()
                    .unwrap()
                    .map(json)
                    .collect();
                assert_eq!(found, wanted, "{}", label("find"));
                let found = find().order(order.clone()).limit(few).run().unwrap();
                let found: Vec<Json> = found.map(json).collect();
                assert_eq!(found, wanted[..few.min(wanted.len())], "{}", label("few"));
            }
            let count = find().count().unwrap();
            assert_eq!(count, matching.len() as u64, "{}", label("count"));
            for order in [Order::Key, Order::Any] {
                let mut found = Vec::new();
                let visit = &mut |record: Record<u64>| {
                    found.push((*record.key(), json(Ok(record))));
                    std::ops::ControlFlow::Continue(())
                };
                find().order(order.clone()).visit(visit).unwrap();
                assert!(order == Order::Any || found.is_sorted_by_key(|(key, _)| *key));
                found.sort_by_key(|(key, _)| *key);
                let found: Vec<Json> = found.into_iter().map(|(_, json)| json).collect();
                assert_eq!(found, jsons(matching.clone(), None), "{}", label("bulk"));
            }
            let keys = find().keys().unwrap().map(Result::unwrap);
            let mut keys: Vec<u64> = keys.collect();
            keys.sort_unstable();
            let wanted = matching.iter().map(|row| row.json["id"].as_u64().unwrap());
            assert_eq!(keys, wanted.collect::<Vec<u64>>(), "{}", label("keys"));
        }
        let versions = snapshot
            .versions_with("who", who.as_str())
            .limit(1000)
            .read()
            .unwrap();
        let versions = versions.records.into_iter().map(|record| json(Ok(record)));
        let wanted: Vec<&Row> = rows.iter().copied().filter(|row| is_who(row)).collect();
        let wanted = jsons(wanted, Some(Order::Newest));
        assert_eq!(
            versions.collect::<Vec<Json>>(),
            wanted,
            "ESKER_SEED={seed}: versions"
        );
    }

    fn step(&mut self) {
        match self.rng.usize(0..30) {
            0 => self.db().flush().unwrap(),
            1 => self.db().compact(None).unwrap(),
            2 => self.change(),
            3 => self.write_across_a_change(),
            4 => self.reopen(),
            5 => {
                let held = (self.dataset().snapshot(), self.rows.clone());
                self.held = vec![held];
            }
            6 => {
                self.dataset()
                    .repair(&RepairOptions::default())
                    .run()
                    .unwrap();
            }
            7 => {
                self.held.clear();
                if self.kept.take().is_some() {
                    self.db().drop_snapshot("kept").unwrap();
                }
                self.clock
                    .fetch_add(self.rng.u64(0..9000), Ordering::SeqCst);
                self.dataset().expire_now().unwrap();
                self.follow();
            }
            8 => {
                if self.kept.take().is_some() {
                    self.db().drop_snapshot("kept").unwrap();
                }
                self.db().keep_snapshot("kept").unwrap();
                self.kept = Some(self.rows.clone());
            }
            9 => {
                self.dataset().advise(None).unwrap();
            }
            10..16 => self.check_all(),
            _ => self.write(),
        }
    }
}

fn run(seed: u64) {
    let mut run = Run::new(seed);
    for _ in 0..90 {
        run.step();
    }
    run.check_all();
    check(run.db());
    run.db().compact(None).unwrap();
    check(run.db());
    run.reopen();
    run.check_all();
}

#[test]
fn records_that_are_stored_by_place_agree_with_the_model() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    match number("ESKER_SEED") {
        Some(seed) => run(seed),
        None => (0..number("ESKER_SEEDS").unwrap_or(by_tier(8, 40))).for_each(run),
    }
}

/// Random points, written in an order unrelated to their location.
fn spread(def: DatasetDef, points: u64) -> (Database, Dataset<u64>) {
    let options = small(Arc::new(Memory::new()))
        .table_size(256 << 10)
        .memory_budget(8 << 20);
    let db = Database::create_or_open(FsPath::new(DIR), options).unwrap();
    let dataset = db.create_dataset::<u64>("d", def).unwrap();
    let mut rng = Rng::with_seed(5);
    let mut batch = dataset.batch();
    for n in 0..points {
        // Each key once.
        let id = n.wrapping_mul(7919) % points;
        let (x, y) = (rng.f64() * 80.0, rng.f64() * 80.0);
        let json = json!({"id": id, "at": [x, y], "n": n % 7, "text": "t".repeat(120)});
        batch.put(&json).unwrap();
        if batch.len() == 1000 {
            batch.commit().unwrap();
        }
    }
    batch.commit().unwrap();
    db.flush().unwrap();
    db.compact(None).unwrap();
    (db, dataset)
}

/// The blocks with entries that a query of an area with some hundred records reads: of the data, of
/// the index, and of the records by location.
fn blocks_of_an_area(def: DatasetDef) -> (u64, u64) {
    let (_db, dataset) = spread(def, 40_000);
    let area = AreaExpr::rect(40.0, 40.0, 50.0, 50.0);
    let snapshot = dataset.snapshot();
    let mut answer = snapshot
        .find(field("at").within(area.clone()))
        .run()
        .unwrap();
    let found = answer.by_ref().map(Result::unwrap).count() as u64;
    let explain = answer.explain();
    let cost = &explain.cost;
    let blocks = [Some(cost.data), cost.index, cost.place];
    let paged: u64 = blocks
        .into_iter()
        .flatten()
        .map(|cost| cost.data_blocks)
        .sum();
    let mut visited = 0;
    let visit = &mut |_: Record<u64>| {
        visited += 1;
        std::ops::ControlFlow::Continue(())
    };
    let query = snapshot.find(field("at").within(area));
    let explain = query.order(Order::Any).visit(visit).unwrap();
    let cost = &explain.cost;
    let blocks = [Some(cost.data), cost.index, cost.place];
    let bulk: u64 = blocks
        .into_iter()
        .flatten()
        .map(|cost| cost.data_blocks)
        .sum();
    assert_eq!(visited, found);
    assert!(
        found > 300 && explain.to_string().contains("spatial:"),
        "{explain}"
    );
    (paged, bulk)
}

#[test]
fn an_area_is_read_from_neighbouring_blocks() {
    let usual = [Maintenance::Deferred, Maintenance::MutableBitmap];
    for maintenance in by_tier(usual.to_vec(), Maintenance::ALL.to_vec()) {
        let def = DatasetDef::new("id", KeyType::Int).maintenance(maintenance);
        let beside = blocks_of_an_area(def.clone().index("at", Index::spatial()));
        let by_place = blocks_of_an_area(def.cluster("at"));
        // Deferred maintenance does not know which entries are current, so each stub is read.
        let fewer = match maintenance {
            Maintenance::Deferred => 1,
            _ => 8,
        };
        let message = format!("{maintenance}: {by_place:?} blocks, beside the records {beside:?}");
        assert!(fewer * by_place.0 < beside.0, "{message}");
        assert!(fewer * by_place.1 < beside.1, "{message}");
    }
}

#[test]
fn what_does_not_go_with_a_dataset_in_the_order_of_place_is_refused() {
    let db = common::open(Arc::new(Memory::new())).unwrap();
    let def = || DatasetDef::new("id", KeyType::Int);
    let created = |def: DatasetDef| {
        db.create_dataset::<u64>("no", def)
            .err()
            .unwrap()
            .to_string()
    };
    let message = created(def().cluster("a").cluster("b"));
    assert!(message.contains("in the order of one"), "{message}");
    let versions = def().maintenance(Maintenance::Deferred).versions(2);
    let message = created(versions.cluster("at"));
    assert!(message.contains("keeps one"), "{message}");
    let message = created(def().index("at", Index::spatial()).cluster("at"));
    assert!(message.contains("indexed twice"), "{message}");
    let message = created(def().index("at", Index::none().string()).cluster("at"));
    assert!(message.contains("types point and plane"), "{message}");
    let message = created(def().cluster("at@time"));
    assert!(message.contains("declare its time first"), "{message}");

    let clustered = IndexKind::Spatial(Layout::Clustered);
    let index = Index::new(clustered).of_type(Type::Point);
    let plain = db.create_dataset::<u64>("plain", def()).unwrap();
    let message = plain
        .add_index("at", index)
        .run()
        .err()
        .unwrap()
        .to_string();
    assert!(message.contains("cannot be added"), "{message}");

    let dataset = db.create_dataset::<u64>("d", def().cluster("at")).unwrap();
    dataset
        .put(&json!({"id": 1, "at": [1, 2], "n": 3}))
        .unwrap();
    let errors = [
        dataset.drop_index("at").err(),
        dataset.rebuild_index("at").run().err(),
        dataset
            .switch_index("at", IndexKind::Spatial(Layout::Mbr))
            .run()
            .err(),
        dataset.switch_index("at", IndexKind::None).run().err(),
    ];
    for error in errors {
        let error = error.unwrap();
        assert_eq!(error.kind(), esker::ErrorKind::BadInput);
        assert!(
            error.to_string().contains("in order of the points at `at`"),
            "{error}"
        );
    }
    for kind in [
        IndexKind::Embedded,
        IndexKind::Fingerprint,
        IndexKind::Filter,
    ] {
        let message = dataset.add_index("n", Index::new(kind).int()).run();
        let message = message.err().unwrap().to_string();
        assert!(
            message.contains("when the dataset was created"),
            "{message}"
        );
    }
    dataset.add_index("n", Index::lazy().int()).run().unwrap();
    assert_eq!(dataset.find(field("n").eq(3)).count().unwrap(), 1);
    let refused = dataset.switch_index("n", IndexKind::Embedded).run();
    assert!(refused.err().unwrap().to_string().contains("was created"));
}

/// Stubs contain the attributes declared at creation, so embedded kinds of index can be added for
/// them.
#[test]
fn tables_of_stubs_carry_what_was_declared_at_the_beginning() {
    let def = DatasetDef::new("id", KeyType::Int)
        .cluster("at")
        .index("n", Index::none().int());
    let (db, dataset) = spread(def, 2000);
    for kind in [
        IndexKind::Embedded,
        IndexKind::Fingerprint,
        IndexKind::Filter,
        IndexKind::Recent,
    ] {
        let known = dataset
            .def()
            .indexes
            .iter()
            .any(|index| index.kind.is_indexed() && index.path.to_string() == "n");
        if known {
            dataset.switch_index("n", kind).run().unwrap()
        } else {
            dataset.add_index("n", kind).run().unwrap()
        };
        let found = dataset.find(field("n").eq(3)).run().unwrap();
        let found: Vec<Record<u64>> = found.map(Result::unwrap).collect();
        assert_eq!(found.len(), 286, "{kind}");
        assert!(
            found
                .iter()
                .all(|record| record.parse::<Json>().unwrap()["n"] == 3)
        );
        check(&db);
    }
}

#[test]
fn a_check_finds_stubs_without_records() {
    let wrong = |damage: &dyn Fn(&mut Batch, &Database)| {
        let (db, dataset) = spread(DatasetDef::new("id", KeyType::Int).cluster("at"), 50);
        check(&db);
        let mut batch = Batch::new();
        damage(&mut batch, &db);
        db.group().write(&mut batch, Durability::Os).unwrap();
        let errors = db.check().unwrap().errors;
        assert!(!errors.is_empty());
        // The check also finds entries that compactions have not dropped.
        db.compact(None).unwrap();
        (errors.join("; "), dataset)
    };
    let tree = |db: &Database, name: &str| db.group().tree(name).unwrap();
    let first = |db: &Database, name: &str| {
        let mut cursor = db.group().snapshot().cursor(tree(db, name), 0);
        cursor.seek_first().unwrap();
        (cursor.key().to_vec(), cursor.value().to_vec())
    };
    let (message, dataset) = wrong(&|batch, db| {
        batch
            .delete(tree(db, "d/index/0"), &first(db, "d/index/0").0)
            .unwrap();
    });
    assert!(
        message.contains("the tree of records by location has 49"),
        "{message}"
    );
    // Reads of the record fail, too.
    let failed: Vec<esker::Error> = dataset.scan(..).filter_map(Result::err).collect();
    assert_eq!(failed[0].kind(), esker::ErrorKind::Damaged, "{failed:?}");
    // The record exists, but from another write.
    let (message, dataset) = wrong(&|batch, db| {
        let (key, stub) = first(db, "d/data");
        batch.put(tree(db, "d/data"), &key, &stub).unwrap();
    });
    assert!(
        message.contains("the tree of records by location has 49"),
        "{message}"
    );
    assert_eq!(
        dataset.get(0).err().unwrap().kind(),
        esker::ErrorKind::Damaged
    );
}

/// Several writers of the same few keys under each strategy: each finds the records that it
/// replaces, and the last write of each key is complete.
#[test]
fn writers_at_the_same_time_find_whole_records() {
    for maintenance in Maintenance::ALL {
        let options = small(Arc::new(Memory::new()))
            .background(true)
            .memory_budget(256 << 10);
        let db = Database::create_or_open(FsPath::new(DIR), options).unwrap();
        let def = DatasetDef::new("id", KeyType::Int)
            .cluster("at")
            .index("v", Index::lazy().int())
            .keep_old_records()
            .maintenance(maintenance);
        let dataset = db.create_dataset::<u64>("d", def).unwrap();
        let mut changes = dataset.changes(0).unwrap().with_old().unwrap();
        changes.hold(u64::MAX);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let dataset = &dataset;
                scope.spawn(move || {
                    let mut rng = Rng::with_seed(thread);
                    for _ in 0..150 {
                        let (id, v) = (rng.u64(0..5), rng.u64(0..9));
                        let json = json!({"id": id, "v": v, "at": [rng.u8(0..3), 0]});
                        match rng.usize(0..5) {
                            0 => drop(dataset.delete(id).unwrap()),
                            1 => {
                                let new = |_: Option<&Record<u64>>| {
                                    Update::Put(json.to_string().into_bytes())
                                };
                                dataset.update(id, new).unwrap();
                            }
                            2 => {
                                let area = AreaExpr::rect(0.0, 0.0, 1.0, 0.0);
                                let found = dataset.find(field("at").within(area));
                                found
                                    .run()
                                    .unwrap()
                                    .for_each(|record| drop(record.unwrap()));
                            }
                            _ => dataset.put(&json).unwrap(),
                        }
                    }
                });
            }
        });
        let mut copy: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        while let Some(change) = changes.next().unwrap() {
            let old = change.old().map(|old| old.json().to_vec());
            assert_eq!(old.as_ref(), copy.get(change.key()), "{maintenance}");
            match change.record() {
                Some(record) => copy.insert(*change.key(), record.json().to_vec()),
                None => copy.remove(change.key()),
            };
        }
        let now = dataset.scan(..).map(|record| record.unwrap());
        let now: BTreeMap<u64, Vec<u8>> = now.map(|r| (*r.key(), r.json().to_vec())).collect();
        assert_eq!(copy, now, "{maintenance}");
        db.compact(None).unwrap();
        check(&db);
    }
}

#[test]
fn advice_fits_a_dataset_in_the_order_of_place() {
    let (_db, dataset) = spread(DatasetDef::new("id", KeyType::Int).cluster("at"), 3000);
    for n in 0..5 {
        dataset
            .find(field("n").eq(n))
            .limit(3)
            .run()
            .unwrap()
            .for_each(drop);
    }
    let advice = dataset.advise(None).unwrap();
    for advised in &advice.attributes {
        match advised.path.to_string().as_str() {
            // There were no queries for it, and it has no index to drop.
            "at" => assert_eq!(advised.change, AdvisedChange::Keep, "{}", advised.why),
            // The attribute is not in the stubs.
            _ => assert!(!advised.costs.iter().any(|cost| cost.kind.is_embedded())),
        }
    }
    assert_eq!(advice.attributes.len(), 2);
}

/// The clustering attribute gets the greatest number of the attributes declared at creation,
/// wherever it stands among them.
#[test]
fn a_definition_keeps_its_order() {
    let none = || Index::none().int();
    let defs = [
        DatasetDef::new("id", KeyType::Int)
            .cluster("at")
            .index("n", none()),
        DatasetDef::new("id", KeyType::Int)
            .index("n", none())
            .cluster("x,y"),
        (DatasetDef::new("id", KeyType::Int).index("n", none()))
            .index("x,y", Index::none().plane())
            .index("time", Index::none().time())
            .cluster("x,y@time"),
    ];
    for def in defs {
        let text = serde_json::to_string(&def).unwrap();
        assert_eq!(serde_json::from_str::<DatasetDef>(&text).unwrap(), def);
        let stored = StoredDef::new(&def);
        let clustered = stored.clustered().unwrap();
        assert!(
            stored
                .attributes
                .iter()
                .all(|a| stored.in_all_records(a.id))
        );
        assert_eq!(clustered.id + 1, stored.next_id);
        assert!(!stored.in_all_records(stored.next_id));
        assert_eq!(StoredDef::from_bytes(&stored.to_bytes()).unwrap(), stored);
        assert_eq!(stored.def(), def);
    }
    let timed = DatasetDef::new("id", KeyType::Int).cluster("at@time");
    let kind = IndexKind::SpaceTime(Layout::Clustered);
    assert!(timed.indexes.iter().any(|index| index.kind == kind));
}

/// A few records in any order, without an index: neither all heads are read, nor their bodies.
#[test]
fn a_few_in_any_order_are_found_before_the_end() {
    let def = DatasetDef::new("id", KeyType::Int).cluster("at");
    let (_db, dataset) = spread(def, 20_000);
    let snapshot = dataset.snapshot();
    let read = |query: esker::Query<u64>, breaks: usize| {
        let mut visited = 0;
        let visit = &mut |_: Record<u64>| {
            visited += 1;
            if visited < breaks {
                std::ops::ControlFlow::Continue(())
            } else {
                std::ops::ControlFlow::Break(())
            }
        };
        let explain = query.order(Order::Any).visit(visit).unwrap();
        let bodies = explain.cost.place.unwrap().data_blocks;
        (visited, explain.steps.scanned, bodies)
    };
    let (visited, scanned, bodies) = read(snapshot.query().limit(3), usize::MAX);
    assert_eq!(visited, 3);
    assert!(scanned <= 256 && bodies <= 256, "{scanned}, {bodies}");
    // The heads do not decide this condition; a few of them may match, so all are looked up.
    let some = field("text").eq("t".repeat(120)) & field("id").lt(3000);
    let (visited, _, few) = read(snapshot.find(some.clone()), 2);
    assert_eq!(visited, 2);
    let (visited, _, all) = read(snapshot.find(some), usize::MAX);
    assert_eq!(visited, 3000);
    assert!(few * 2 < all, "{few} of {all} blocks");
}

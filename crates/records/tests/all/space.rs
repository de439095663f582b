//! Points: every layout under every maintenance strategy, compared with a model that reads all
//! records, under random writes, moves, deletions, snapshots, flushes, compactions, repairs,
//! changes of index and strategy, reopenings and power cuts. `ESKER_SEEDS=1000 cargo test -p esker
//! --test all space::` runs more seeds; `ESKER_SEED=17` repeats one.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::{open, path};
use esker::maintain::RepairOptions;
use esker::schema::{Layout, Maintenance, Merging};
use esker::space::Latest;
use esker::{
    AreaExpr, Database, Dataset, DatasetDef, DatasetSnapshot, Durability, Expr, Index, IndexKind,
    KeyType, Order, Type, field,
};
use esker_model::geometry::{Area, Point, Space, distance};
use esker_sim::memory::{Memory, PowerCut};
use fastrand::Rng;
use serde_json::{Value as Json, json};

/// Layouts that partition tables by space have a different policy with each.
const MERGING: [Merging; 4] = [
    Merging::LazyLeveled,
    Merging::Leveled,
    Merging::Tiered,
    Merging::Correlated,
];

/// A record of the model.
#[derive(Debug, Clone, PartialEq)]
struct Row {
    id: u64,
    point: Option<(f64, f64)>,
    n: u64,
    who: String,
    time: i64,
}

/// By key: the order of writes, and the record.
type Rows = BTreeMap<u64, (u64, Row)>;

/// The condition on a record.
type Meets<'a> = dyn Fn(&Row) -> bool + 'a;

/// The form of the point in a record.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Form {
    Fields,
    Array,
    GeoJson,
}

struct Run {
    seed: u64,
    rng: Rng,
    memory: Memory,
    db: Option<Database>,
    space: Space,
    form: Form,
    rows: Rows,
    /// Keys are below this.
    keys: u64,
    writes: u64,
    /// The path by which the records are clustered, its points, and the paths declared at creation.
    clustered: Option<String>,
    declared: Vec<String>,
    held: Vec<(DatasetSnapshot<u64>, Rows)>,
    /// The times of some records are numbers beyond all times.
    has_far: bool,
}

fn coordinate(rng: &mut Rng, space: Space) -> (f64, f64) {
    let grid = |rng: &mut Rng, step: f64, most: i32| f64::from(rng.i32(-most..=most)) * step;
    match (space, rng.usize(0..10)) {
        // This collects about a thousand records at one point.
        (_, 0) => (2.5, 48.5),
        (Space::Sphere, 1) => (180.0 * f64::from(rng.i8(-1..=1)), grid(rng, 15.0, 6)),
        (Space::Sphere, 2) => (grid(rng, 30.0, 6), 90.0 * f64::from(rng.i8(-1..=1))),
        (Space::Sphere, 3..6) => (2.0 + rng.f64(), 48.0 + rng.f64()),
        (Space::Sphere, _) => (rng.f64() * 360.0 - 180.0, rng.f64() * 180.0 - 90.0),
        (Space::Plane, 1) => (rng.f64() * 1e9, -1e-9 * rng.f64()),
        (Space::Plane, _) => (grid(rng, 0.5, 20), grid(rng, 0.25, 20)),
    }
}

impl Run {
    fn new(seed: u64) -> Run {
        let mut rng = Rng::with_seed(seed);
        let space = if rng.usize(0..4) == 0 {
            Space::Plane
        } else {
            Space::Sphere
        };
        let form = [Form::Fields, Form::Array, Form::GeoJson][rng.usize(0..3)];
        let memory = Memory::new();
        let mut run = Run {
            seed,
            memory,
            db: None,
            space,
            form,
            rows: Rows::new(),
            // With the larger number of keys, levels have several tables.
            keys: if rng.usize(0..3) == 0 { 3000 } else { 150 },
            writes: 0,
            clustered: None,
            declared: Vec::new(),
            held: Vec::new(),
            has_far: false,
            rng,
        };
        run.open();
        let mut def = DatasetDef::new("id", KeyType::Int)
            .index("n", Index::lazy().int())
            .maintenance(Maintenance::ALL[run.rng.usize(0..Maintenance::ALL.len())])
            .merging(MERGING[run.rng.usize(0..MERGING.len())]);
        // A plane must be declared, and so must the point and time of an index over both.
        let is_plane = run.space == Space::Plane;
        let timed = run.rng.bool();
        if run.rng.usize(0..4) > 0 || is_plane && timed {
            def = def.index(run.at(), run.index());
        }
        if timed {
            let ty = [Type::Int, Type::Time, Type::Float][run.rng.usize(0..3)];
            let mut time = Index::none().of_type(ty);
            if ty != Type::Time && run.rng.bool() {
                time = time.lenient();
                run.has_far = true;
            }
            def = def.index("time", time);
            let layout = Layout::ALL[run.rng.usize(0..4)];
            def = def.index(run.at_time().as_str(), run.timed_index(layout));
        }
        if run.rng.usize(0..3) == 0 {
            let by_time = timed && run.rng.bool();
            let at = if by_time {
                run.at_time()
            } else {
                run.at().to_string()
            };
            // Instead of the index that it may already have.
            def.indexes.retain(|index| index.path != path(&at));
            let ty = if by_time {
                run.timed_index(Layout::Z).type_of()
            } else {
                Some(run.ty())
            };
            def = def.index(at.as_str(), Index::none().of_type(ty));
            def = def.cluster(at.as_str());
            if by_time && is_plane && !def.indexes.iter().any(|i| i.path == path(run.at())) {
                def = def.index(run.at(), Index::none().plane());
            }
            if run.rng.bool() {
                def = def.keep_old_records();
            }
            run.clustered = Some(at);
        }
        run.declared = (def.indexes.iter())
            .map(|index| index.path.to_string())
            .collect();
        run.db().create_dataset::<u64>("d", def).unwrap();
        run
    }

    fn open(&mut self) {
        self.db = Some(open(Arc::new(self.memory.clone())).unwrap());
    }

    fn db(&self) -> &Database {
        self.db.as_ref().unwrap()
    }

    fn dataset(&self) -> Dataset<u64> {
        self.db().dataset("d").unwrap()
    }

    fn at(&self) -> &'static str {
        match self.form {
            Form::Fields => "place.lon,place.lat",
            Form::Array | Form::GeoJson => "at",
        }
    }

    fn at_time(&self) -> String {
        format!("{}@time", self.at())
    }

    fn index(&mut self) -> Index {
        let layout = Layout::ALL[self.rng.usize(0..Layout::ALL.len())];
        Index::new(IndexKind::Spatial(layout)).of_type(self.ty())
    }

    fn timed_index(&self, layout: Layout) -> Index {
        Index::new(IndexKind::SpaceTime(layout)).of_type(self.ty())
    }

    fn ty(&self) -> Type {
        match self.space {
            Space::Sphere => Type::Point,
            Space::Plane => Type::PlanePoint,
        }
    }

    fn json(&mut self, row: &Row) -> Json {
        let mut json = json!({"id": row.id, "n": row.n, "who": row.who, "time": row.time});
        let point = match (self.form, row.point) {
            (_, None) if self.rng.bool() => return json,
            (Form::Fields, None) => json!({"lon": null}),
            (_, None) => Json::Null,
            (Form::Fields, Some((x, y))) => json!({"lon": x, "lat": y}),
            (Form::Array, Some((x, y))) => json!([x, y]),
            (Form::GeoJson, Some((x, y))) => json!({"type": "Point", "coordinates": [x, y, 7]}),
        };
        json[if self.form == Form::Fields {
            "place"
        } else {
            "at"
        }] = point;
        json
    }

    fn write(&mut self) {
        let dataset = self.dataset();
        let mut batch = dataset.batch();
        for _ in 0..1 + self.rng.usize(0..20 + self.keys as usize / 10) {
            self.writes += 1;
            let id = self.rng.u64(0..self.keys);
            if self.rng.usize(0..6) == 0 {
                batch.delete(id).unwrap();
                self.rows.remove(&id);
                continue;
            }
            let row = Row {
                id,
                point: (self.rng.usize(0..12) > 0).then(|| coordinate(&mut self.rng, self.space)),
                n: self.rng.u64(0..5),
                who: format!("w{}", self.rng.u64(0..20)),
                time: match self.rng.usize(0..10) {
                    0 if self.has_far => 10_000_000_000_000_000,
                    _ => self.rng.i64(0..40),
                },
            };
            let json = self.json(&row);
            batch.put(&json).unwrap();
            self.rows.insert(id, (self.writes, row));
        }
        batch.durability(Durability::Os).commit().unwrap();
    }

    fn change(&mut self) {
        let dataset = self.dataset();
        let def = dataset.def();
        let is_timed =
            self.rng.bool() && (def.indexes.iter()).any(|index| index.path == path("time"));
        let at = if is_timed {
            path(&self.at_time())
        } else {
            path(self.at())
        };
        let layout = Layout::ALL[self.rng.usize(0..Layout::ALL.len())];
        let index = if is_timed {
            self.timed_index(layout)
        } else {
            self.index()
        };
        let has = def
            .indexes
            .iter()
            .any(|index| index.path == at && index.kind.is_indexed());
        if self.clustered.as_ref() == Some(&at.to_string()) {
            let errors = [
                dataset.drop_index(&at).err(),
                dataset.rebuild_index(&at).run().err(),
                dataset.switch_index(&at, index.kind()).run().err(),
            ];
            let messages = errors.map(|error| error.unwrap().to_string());
            assert!(
                messages[0].contains("in order of the points"),
                "{messages:?}"
            );
            assert!(
                messages[1].contains("in order of the points"),
                "{messages:?}"
            );
            return;
        }
        let late = self.clustered.is_some() && !self.declared.contains(&at.to_string());
        if late && layout == Layout::Embedded {
            if !has {
                let error = dataset.add_index(&at, index).run().err().unwrap();
                assert!(error.to_string().contains("was created"), "{error}");
            }
            return;
        }
        match self.rng.usize(0..7) {
            6 => {
                // Declares it after records were written, with its own index.
                let known = def.indexes.iter().find(|index| index.path == path("who"));
                match known.map(|known| known.kind.is_indexed()) {
                    Some(true) => {
                        dataset.drop_index("who").unwrap();
                    }
                    _ => {
                        let kinds = [Index::recent(), Index::lazy(), Index::composite()];
                        let index = kinds[self.rng.usize(0..kinds.len())].string();
                        dataset.add_index("who", index).run().unwrap();
                    }
                }
            }
            0 if has => {
                dataset.drop_index(&at).unwrap();
            }
            1 if has => {
                dataset.rebuild_index(&at).run().unwrap();
            }
            0..3 if !has => {
                dataset.add_index(&at, index).run().unwrap();
            }
            2 => {
                let known = def.indexes.iter().find(|index| index.path == at);
                if known.is_some_and(|known| known.kind != index.kind()) {
                    dataset.switch_index(&at, index.kind()).run().unwrap();
                }
            }
            3 => {
                let to = Maintenance::ALL[self.rng.usize(0..Maintenance::ALL.len())];
                dataset.set_maintenance(to).run().unwrap();
            }
            _ => {
                dataset.repair(&RepairOptions::default()).run().unwrap();
            }
        }
    }

    fn reopen(&mut self) {
        self.held.clear();
        match self.rng.usize(0..3) {
            0 => self.db.take().unwrap().close().unwrap(),
            1 => {
                // Killed: all written records are there.
                let there = self.memory.power_cut(self.rng.u64(..), PowerCut::Kept);
                self.db = None;
                self.memory = there;
            }
            _ => {
                self.db().sync().unwrap();
                let there = self.memory.power_cut(self.rng.u64(..), PowerCut::Lost);
                self.db = None;
                self.memory = there;
            }
        }
        self.open();
    }

    fn area(&mut self) -> AreaExpr {
        let (a, b) = (
            coordinate(&mut self.rng, self.space),
            coordinate(&mut self.rng, self.space),
        );
        let (south, north) = (a.1.min(b.1), a.1.max(b.1));
        match self.rng.usize(0..5) {
            0 if self.space == Space::Sphere => AreaExpr::rect(a.0, south, b.0, north),
            0 | 1 => AreaExpr::rect(a.0.min(b.0), south, a.0.max(b.0), north),
            // Exactly one point.
            2 => AreaExpr::rect(a.0, a.1, a.0, a.1),
            3 => {
                let most = if self.space == Space::Sphere {
                    5e6
                } else {
                    20.0
                };
                AreaExpr::circle(a.0, a.1, self.rng.f64().powi(3) * most)
            }
            _ => {
                let (x, y) = (a.0.clamp(-150.0, 150.0), a.1.clamp(-70.0, 70.0));
                let ring = [[x, y], [x + 20.0, y], [x + 10.0, y + 15.0], [x, y]];
                AreaExpr::geojson(json!({"type": "Polygon", "coordinates": [ring]}).to_string())
            }
        }
    }

    fn check_all(&mut self) {
        let now = (self.dataset().snapshot(), self.rows.clone());
        self.check(&now.0, &now.1);
        let held = std::mem::take(&mut self.held);
        if let Some((snapshot, rows)) = held.first() {
            self.check(snapshot, rows);
        }
        self.held = held;
    }

    /// Compares one query of each sort with the model.
    fn check(&mut self, snapshot: &DatasetSnapshot<u64>, rows: &Rows) {
        let (seed, at, space) = (self.seed, self.at(), self.space);
        let declared = snapshot
            .def()
            .indexes
            .iter()
            .any(|index| index.path == path(at));
        if space == Space::Plane && !declared {
            // Undeclared points are degrees.
            return;
        }
        let expr = self.area();
        let area: Area = expr.area(space).unwrap();
        let point = |(x, y): (f64, f64)| Point::new(space, x, y).unwrap();
        let inside = |row: &Row| row.point.is_some_and(|p| area.contains(point(p)));
        let n = self.rng.u64(0..5);
        let (since, until) = (self.rng.i64(0..30), self.rng.i64(15..45));
        let then = move |row: &Row| row.time >= since && row.time < until;
        let time = |area: Expr| {
            if since < until {
                area & field("time").range(since..until)
            } else {
                area & field("time").ge(since)
            }
        };
        let then = move |row: &Row| {
            if since < until {
                then(row)
            } else {
                row.time >= since
            }
        };
        let who = format!("w{}", self.rng.u64(0..20));
        let is_who = who.clone();
        let (condition, meets): (Expr, Box<Meets<'_>>) = match self.rng.usize(0..10) {
            7 => (
                field(at).within(expr.clone()) & field("who").eq(who),
                Box::new(move |row: &Row| inside(row) && row.who == is_who),
            ),
            8 => (
                field("who").eq(who),
                Box::new(move |row: &Row| row.who == is_who),
            ),
            9 => (
                field("n").eq(n) & field("who").ne("w1"),
                Box::new(move |row: &Row| row.n == n && row.who != "w1"),
            ),
            4 | 5 => (
                time(field(at).within(expr.clone())),
                Box::new(move |row: &Row| inside(row) && then(row)),
            ),
            6 => (
                time(field(at).within(expr.clone()) & field("n").eq(n)),
                Box::new(move |row: &Row| inside(row) && row.n == n && then(row)),
            ),
            0 => (field(at).within(expr.clone()), Box::new(inside)),
            1 => (
                field(at).within(expr.clone()) & field("n").ge(n),
                Box::new(move |row: &Row| inside(row) && row.n >= n),
            ),
            2 => (
                field(at).within(expr.clone()) | field("n").eq(n),
                Box::new(move |row: &Row| inside(row) || row.n == n),
            ),
            _ => (
                !field(at).within(expr.clone()),
                Box::new(move |row: &Row| !inside(row)),
            ),
        };
        let label = |what: &str| format!("ESKER_SEED={seed}: {what} {condition}");
        let mut expected: Vec<(u64, u64)> = rows
            .values()
            .filter(|(_, row)| meets(row))
            .map(|(write, row)| (*write, row.id))
            .collect();
        expected.sort_unstable_by_key(|(write, _)| u64::MAX - write);
        let ids = |found: &[(u64, u64)]| found.iter().map(|(_, id)| *id).collect::<Vec<u64>>();
        let found = |order: Order, limit: Option<usize>| -> Vec<u64> {
            let query = snapshot
                .find(condition.clone())
                .order(order.clone())
                .limit(limit);
            let found = query.run().unwrap().map(|record| {
                let record = record.unwrap();
                let json: Json = record.parse().unwrap();
                let (_, row) = &rows[record.key()];
                let is_whole = json["n"] == row.n && json["who"] == row.who.as_str();
                assert!(is_whole, "{}: {json}, not {row:?}", label("content"));
                *record.key()
            });
            found.collect()
        };
        assert_eq!(
            found(Order::Newest, None),
            ids(&expected),
            "{}",
            label("newest")
        );
        let few = self.rng.usize(1..6);
        let first = &expected[..expected.len().min(few)];
        assert_eq!(
            found(Order::Newest, Some(few)),
            ids(first),
            "{}",
            label("few")
        );
        let mut oldest = ids(&expected);
        oldest.reverse();
        assert_eq!(found(Order::Oldest, None), oldest, "{}", label("oldest"));
        let count = snapshot.find(condition.clone()).count().unwrap();
        assert_eq!(count as usize, expected.len(), "{}", label("count"));
        let mut bulk = Vec::new();
        let visit = &mut |record: esker::Record<u64>| {
            bulk.push(*record.key());
            std::ops::ControlFlow::Continue(())
        };
        snapshot
            .find(condition.clone())
            .order(esker::Order::Key)
            .visit(visit)
            .unwrap();
        let mut by_key = ids(&expected);
        by_key.sort_unstable();
        assert_eq!(bulk, by_key, "{}", label("bulk"));
        let mut any = Vec::new();
        let visit = &mut |record: esker::Record<u64>| {
            any.push(*record.key());
            std::ops::ControlFlow::Continue(())
        };
        snapshot
            .find(condition.clone())
            .order(esker::Order::Any)
            .visit(visit)
            .unwrap();
        any.sort_unstable();
        assert_eq!(any, by_key, "{}", label("bulk, in any order"));
        let keys = snapshot.find(condition.clone()).keys().unwrap();
        let mut keys: Vec<u64> = keys.map(Result::unwrap).collect();
        keys.sort_unstable();
        assert_eq!(keys, by_key, "{}", label("keys"));
        if self.rng.usize(0..4) == 0 {
            let all: Vec<u64> = (snapshot.scan(..))
                .map(|record| {
                    let record = record.unwrap();
                    let json: Json = record.parse().unwrap();
                    assert_eq!(json["n"], rows[record.key()].1.n);
                    *record.key()
                })
                .collect();
            assert_eq!(all, rows.keys().copied().collect::<Vec<u64>>());
        }
        let id = self.rng.u64(0..self.keys);
        let got = snapshot.get(id).unwrap();
        let got = got.map(|record| record.parse::<Json>().unwrap()["who"].clone());
        let row = rows.get(&id);
        assert_eq!(got, row.map(|(_, row)| json!(row.who)), "{}", label("get"));
        // The same condition as text.
        let again: Expr = condition.to_string().parse().unwrap();
        assert_eq!(again, condition);

        let from = coordinate(&mut self.rng, space);
        let k = self.rng.usize(1..12);
        let max = (self.rng.usize(0..3) == 0).then(|| self.rng.f64() * 1e6);
        let mut near: Vec<(f64, u64)> = rows
            .values()
            .filter(|(_, row)| row.n >= n)
            .filter_map(|(_, row)| Some((distance(space, point(from), point(row.point?)), row.id)))
            .filter(|(distance, _)| max.is_none_or(|max| *distance <= max))
            .collect();
        near.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        near.truncate(k);
        let found = snapshot
            .find(field("n").ge(n))
            .nearest(at, from, k, max)
            .unwrap();
        let found: Vec<(f64, u64)> = found
            .iter()
            .map(|near| (near.distance, *near.record.key()))
            .collect();
        assert_eq!(
            found, near,
            "ESKER_SEED={seed}: nearest to {from:?}, at most {max:?}"
        );

        let mut cells: BTreeMap<(i64, i64), u64> = BTreeMap::new();
        for (_, row) in rows.values().filter(|(_, row)| meets(row)) {
            if let Some((x, y)) = row.point {
                let cell = (
                    ((y + 90.0) / 7.0).floor() as i64,
                    ((x + 180.0) / 7.0).floor() as i64,
                );
                *cells.entry(cell).or_default() += 1;
            }
        }
        let found = snapshot.find(condition.clone()).cells(at, 7.0).unwrap();
        assert!(found.is_sorted_by_key(|cell| (u64::MAX - cell.count, cell.row, cell.column)));
        let found: BTreeMap<_, _> = found.iter().map(|c| ((c.row, c.column), c.count)).collect();
        assert_eq!(found, cells, "{}", label("cells"));

        let from = self.rng.i64(0..20);
        let until = from + self.rng.i64(0..25);
        let timed = self.rng.bool();
        let mut latest: BTreeMap<&str, (i64, u64, &Row)> = BTreeMap::new();
        for (write, row) in rows.values() {
            let rank = match timed {
                true if row.time < from || row.time > until => continue,
                true => row.time,
                false => 0,
            };
            let newest = latest.entry(&row.who).or_insert((rank, *write, row));
            if (newest.0, newest.1) < (rank, *write) {
                *newest = (rank, *write, row);
            }
        }
        let mut expected: Vec<u64> = latest
            .values()
            .filter(|(_, _, row)| meets(row))
            .map(|l| l.2.id)
            .collect();
        expected.sort_unstable();
        let ranking = if timed {
            Latest::by_time(path("time"))
                .from(from.to_string())
                .until(until.to_string())
        } else {
            Latest::written()
        };
        let (found, _) = snapshot
            .find(condition.clone())
            .latest_per("who", &ranking)
            .unwrap();
        let found: Vec<u64> = found.iter().map(|record| *record.key()).collect();
        assert_eq!(found, expected, "{}", label("latest per who"));
    }

    fn step(&mut self) {
        match self.rng.usize(0..30) {
            0 => self.db().flush().unwrap(),
            1 => self.db().compact(None).unwrap(),
            2 => self.change(),
            3 if self.rng.usize(0..4) == 0 => self.reopen(),
            4 => {
                let held = (self.dataset().snapshot(), self.rows.clone());
                self.held.push(held);
                self.held.truncate(3);
            }
            5 => self.held.clear(),
            6..12 => self.check_all(),
            _ => self.write(),
        }
    }
}

fn run(seed: u64) {
    let mut run = Run::new(seed);
    for _ in 0..150 {
        run.step();
    }
    run.check_all();
    let report = run.db().check().unwrap();
    assert!(
        report.errors.is_empty(),
        "ESKER_SEED={seed}: {:?}",
        report.errors
    );
    run.reopen();
    run.check_all();
}

#[test]
fn areas_and_neighbours_agree_with_the_model() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    match number("ESKER_SEED") {
        Some(seed) => run(seed),
        None => (0..number("ESKER_SEEDS").unwrap_or(esker_sim::by_tier(6, 60))).for_each(run),
    }
}

/// One index over both, in every layout: it drives the query, and the plan says so; counts need no
/// records if the time is exact.
#[test]
fn an_index_over_place_and_time_prunes_by_both() {
    for layout in Layout::ALL {
        let memory = Memory::new();
        let db = open(Arc::new(memory)).unwrap();
        let def = DatasetDef::new("id", KeyType::Int)
            .index("time", Index::none().time())
            .index("at", Index::spatial())
            .index(
                "at@time",
                Index::new(IndexKind::SpaceTime(layout)).of_type(Type::Point),
            );
        let dataset = db.create_dataset::<u64>("d", def).unwrap();
        let mut rng = Rng::with_seed(3);
        let mut rows = Vec::new();
        for id in 0..4000_u64 {
            let (x, y) = (rng.f64() * 10.0, rng.f64() * 10.0);
            let time = 1_600_000_000 + rng.i64(0..400_000);
            rows.push((x, y, time));
            dataset
                .put(&json!({"id": id, "at": [x, y], "time": time}))
                .unwrap();
        }
        db.flush().unwrap();
        db.compact(None).unwrap();
        for _ in 0..20 {
            let (x, y) = (rng.f64() * 8.0, rng.f64() * 8.0);
            let from = 1_600_000_000 + rng.i64(0..380_000);
            let condition = field("at").within(AreaExpr::rect(x, y, x + 2.0, y + 2.0))
                & field("time").range(from..=from + 20_000);
            let matching = rows.iter().filter(|row| {
                (x..=x + 2.0).contains(&row.0)
                    && (y..=y + 2.0).contains(&row.1)
                    && (from..=from + 20_000).contains(&row.2)
            });
            let expected = matching.count();
            let snapshot = dataset.snapshot();
            let mut answer = snapshot.find(condition.clone()).run().unwrap();
            assert_eq!(answer.by_ref().count(), expected);
            let explain = answer.explain();
            // The records are in no spatial order, so blocks cannot be pruned by place and time.
            if layout != Layout::Embedded {
                let index = explain.plan.index.clone().unwrap_or_default();
                assert_eq!(index.index, "at@time", "{layout:?}: {explain}");
                assert!(index.condition.contains("within") && index.condition.contains("time"));
                assert_eq!(explain.steps.candidates, expected as u64, "{explain}");
            }
            assert_eq!(snapshot.find(condition).count().unwrap(), expected as u64);
        }
        // A query of the place alone uses the other index.
        let area = AreaExpr::rect(0.0, 0.0, 3.0, 3.0);
        let answer = dataset.snapshot().find(field("at").within(area)).run();
        let plan = answer.unwrap().explain().plan;
        assert_eq!(plan.index.unwrap_or_default().index, "at");
    }
}

#[test]
fn an_index_over_place_and_time_needs_both_declared() {
    let db = open(Arc::new(Memory::new())).unwrap();
    let refused = |def: DatasetDef| {
        db.create_dataset::<u64>("d", def)
            .err()
            .unwrap()
            .to_string()
    };
    let def = || DatasetDef::new("id", KeyType::Int);
    let timed = Index::space_time;
    let message = refused(def().index("at@time", timed()));
    assert!(message.contains("declare its time first"), "{message}");
    let message = refused(
        def()
            .index("time", Index::lazy().string())
            .index("at@time", timed()),
    );
    assert!(message.contains("must be of type time"), "{message}");
    let declared = || def().index("time", Index::embedded().time());
    let message = refused(declared().index("at@time", timed().plane()));
    assert!(message.contains("declare its point first"), "{message}");
    let message = refused(declared().index("at", timed()));
    assert!(
        message.contains("place and time are at two paths"),
        "{message}"
    );
    let message = refused(declared().index("at@time", Index::spatial().of_type(Type::PointTime)));
    assert!(message.contains("kind space-time"), "{message}");
    let dataset = db.create_dataset::<u64>("d", declared()).unwrap();
    dataset.add_index("at@time", timed()).run().unwrap();
    let error = dataset.find(field("at@time").eq(3)).run().err().unwrap();
    assert!(error.to_string().contains("two fields"), "{error}");
}

/// All sorts of datasets of points at a time: without an index, with each layout of each kind,
/// stored by place, and by place and time.
fn datasets_of_every_layout(db: &Database) -> Vec<(String, Dataset<u64>)> {
    let def = || {
        DatasetDef::new("id", KeyType::Int)
            .index("time", Index::none().int())
            .index("at", Index::none().of_type(Type::Point))
    };
    let with = |at: &str, kind: IndexKind| {
        let mut def = def();
        def.indexes.retain(|index| index.path != path(at));
        def.index(at, Index::new(kind).of_type(Type::Point))
    };
    let mut defs = vec![("none".to_owned(), def())];
    for layout in Layout::ALL {
        let kinds = [
            ("at", IndexKind::Spatial(layout)),
            ("at@time", IndexKind::SpaceTime(layout)),
        ];
        defs.extend(kinds.map(|(at, kind)| (kind.to_string(), with(at, kind))));
    }
    defs.push(("by place".to_owned(), def().cluster("at")));
    let by_both = def().index("at@time", Index::none().of_type(Type::PointTime));
    defs.push(("by place and time".to_owned(), by_both.cluster("at@time")));
    let made = defs.into_iter().enumerate().map(|(number, (name, def))| {
        let dataset = db.create_dataset(&format!("d{number}"), def);
        (name, dataset.unwrap())
    });
    made.collect()
}

/// Points on the border of an area are in it for every layout, also if the area crosses the
/// meridian of 180 degrees or contains a pole, and if a block and a table have no other points.
#[test]
fn points_on_borders_are_found_in_every_layout() {
    let ring = |corners: &[(f64, f64)]| {
        let all = corners.iter().chain(corners.first());
        let all: Vec<String> = all.map(|(x, y)| format!("[{x},{y}]")).collect();
        let text = format!(
            r#"{{"type":"Polygon","coordinates":[[{}]]}}"#,
            all.join(",")
        );
        AreaExpr::geojson(text)
    };
    let mut cases = Vec::new();
    // Sides whose sums with 360 are rounded, in the east and in the west; the ring begins at
    // either.
    for side in [78.3_f64, 103.3, 33.3] {
        for (west, east) in [(179.9, -side), (side, -179.9)] {
            if west - east <= 180.0 {
                continue;
            }
            let corners = [(west, -20.0), (east, -20.0), (east, -10.0), (west, -10.0)];
            for first in [0, 1] {
                let mut turned = corners;
                turned.rotate_left(first);
                for x in [west, east] {
                    let on = [-20.0, -17.0, -15.5, -10.0].map(|y| (x, y)).to_vec();
                    let out = if x == west {
                        x.next_down()
                    } else {
                        x.next_up()
                    };
                    cases.push((ring(&turned), on, vec![(out, -15.0), (x, -20.1)]));
                }
            }
        }
    }
    // Around a pole: points beside the seam are treated like all others.
    cases.push((
        ring(&[(180.0, 6.0), (-80.0, 10.0), (34.0, 3.0)]),
        vec![(180.0, 6.0), (-180.0, 50.0), (34.0, 3.0), (7.0, 90.0)],
        vec![(180_f64.next_down(), -50.0), (180.0, 5.9)],
    ));
    cases.push((
        ring(&[
            (1e-14, -70.0),
            (90.0, -70.0),
            (180.0, -70.0),
            (-90.0, -70.0),
        ]),
        vec![(0.0, -80.0), (0.0, -70.1), (1e-14, -70.0), (-90.0, -70.0)],
        vec![(0.0, -69.9)],
    ));
    let mut made = 0;
    for (area, on, out) in cases {
        // Each with separate tables: with records only on the border, and with others beside them.
        for with_others in [false, true] {
            let db = open(Arc::new(Memory::new())).unwrap();
            let others = if with_others { &out[..] } else { &[] };
            for (name, dataset) in datasets_of_every_layout(&db) {
                for (id, (x, y)) in on.iter().chain(others).enumerate() {
                    let record = json!({"id": id, "at": [x, y], "time": 1000 + id});
                    dataset.put(&record).unwrap();
                }
                for is_flushed in [false, true] {
                    if is_flushed {
                        db.flush().unwrap();
                    }
                    let within = || field("at").within(area.clone());
                    for condition in [within(), within() & field("time").range(0..=5000)] {
                        let query = || dataset.find(condition.clone());
                        let wanted: Vec<u64> = (0..on.len() as u64).collect();
                        let found = query().run().unwrap().map(|r| *r.unwrap().key());
                        let mut found: Vec<u64> = found.collect();
                        found.sort_unstable();
                        assert_eq!(found, wanted, "{name}, {is_flushed}: {condition}");
                        let count = query().count().unwrap();
                        assert_eq!(count, wanted.len() as u64, "{name}: {condition}");
                        made += 1;
                    }
                }
            }
        }
    }
    assert!(made > 1000, "{made}");
}

//! Orders, projections, pages and aggregates give what a look at each record gives
//! (`evaluator.rs`), for every kind of index and strategy, in snapshots, in reader processes, and
//! within little memory.

mod evaluator;

use std::collections::{BTreeMap, HashSet};
use std::ops::ControlFlow;
use std::path::Path as FsPath;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use esker::fs::Fs;
use esker::request::{Aggregate, Aggregation, FieldOrder, GroupBy};
use esker::{
    Database, DatasetDef, DatasetSnapshot, ErrorKind, Index, IndexKind, KeyType, Query, Type,
};
use esker_sim::by_tier;
use esker_sim::hooked::{Call, Hooked};
use esker_sim::memory::Memory;

use crate::common::{DIR, Doing, converge, open, path, seeds, small, with_strategy};
use evaluator::{By, EIGHTHS, Item, MIXED, Row, TIMES, groups, paths, sort};

/// A field of a record as JSON, if the record has it, and its values.
fn field(rng: &mut fastrand::Rng, items: &[Item]) -> (Option<String>, Vec<Item>) {
    let one = |rng: &mut fastrand::Rng| items[rng.usize(0..items.len())].clone();
    match rng.usize(0..8) {
        0 => (None, Vec::new()),
        1 | 2 => {
            let all: Vec<Item> = (0..rng.usize(0..4)).map(|_| one(rng)).collect();
            let texts: Vec<&str> = all.iter().map(|item| item.json).collect();
            (Some(format!("[{}]", texts.join(", "))), all)
        }
        _ => {
            let item = one(rng);
            (Some(item.json.to_string()), vec![item])
        }
    }
}

fn record(rng: &mut fastrand::Rng) -> Row {
    let id = rng.i64(0..120);
    let mut fields = vec![format!("\"id\": {id}")];
    let mut values = BTreeMap::new();
    for (path, items) in [
        ("n", MIXED.as_slice()),
        ("t", TIMES.as_slice()),
        ("u", MIXED.as_slice()),
        ("o.p", MIXED.as_slice()),
        ("x", EIGHTHS.as_slice()),
    ] {
        let (json, found) = field(rng, items);
        if let Some(json) = json {
            fields.push(match path.split_once('.') {
                Some((above, name)) => format!("\"{above}\":{{\"{name}\":{json}, \"q\":0}}"),
                None => format!("\"{path}\":{json}"),
            });
        }
        values.insert(path, found);
    }
    rng.shuffle(&mut fields);
    let json = format!("{{{}}}", fields.join(","));
    Row { id, json, values }
}

/// A condition, and whether a record meets it.
type Condition = (&'static str, fn(&Row) -> bool);

fn has(row: &Row, path: &str) -> bool {
    // An object is a value of `exists`.
    row.values[path].iter().any(|item| item.json != "null")
}

const CONDITIONS: [Condition; 6] = [
    ("id >= 0", |_| true),
    ("id >= 30 and id < 80", |row| (30..80).contains(&row.id)),
    ("n exists", |row| has(row, "n")),
    ("not u exists or x exists", |row| {
        !has(row, "u") || has(row, "x")
    }),
    ("t exists and not n exists", |row| {
        has(row, "t") && !has(row, "n")
    }),
    ("o.p = \"ab\"", |row| {
        row.values["o.p"].iter().any(|item| item.json == "\"ab\"")
    }),
];

struct Asker<'a> {
    snapshot: DatasetSnapshot,
    rows: Vec<Row>,
    rng: &'a mut fastrand::Rng,
}

impl Asker<'_> {
    fn path(&mut self) -> &'static str {
        let all: Vec<&str> = paths().into_iter().collect();
        all[self.rng.usize(0..all.len())]
    }

    fn condition(&mut self) -> (Query, Vec<Row>) {
        if self.rng.bool() {
            return (self.snapshot.query(), self.rows.clone());
        }
        let (text, meets) = CONDITIONS[self.rng.usize(0..CONDITIONS.len())];
        let rows = self.rows.iter().filter(|row| meets(row)).cloned();
        (self.snapshot.find(text.parse().unwrap()), rows.collect())
    }

    fn order(&mut self) {
        let (query, mut rows) = self.condition();
        let by: Vec<(&str, bool)> = (0..self.rng.usize(1..4))
            .map(|_| (self.path(), self.rng.bool()))
            .collect();
        sort(&mut rows, &by);
        let texts = by
            .iter()
            .map(|(path, ascending)| format!("{path}:{}", if *ascending { "asc" } else { "desc" }));
        let order = texts.collect::<Vec<_>>().join(",");
        let _doing = Doing(format!(
            "order {order}, {:?}",
            query.request().unwrap().condition
        ));
        let query = query.order(order.parse().unwrap());
        let offset = self.rng.usize(0..6);
        let limit = [None, Some(1), Some(7)][self.rng.usize(0..3)];
        let right: Vec<i64> = rows.iter().map(|row| row.id).collect();
        let behind = &right[offset.min(right.len())..];
        let few = &behind[..limit.unwrap_or(usize::MAX).min(behind.len())];
        let query_few = query.clone().offset(offset).limit(limit);
        let found: Vec<(i64, String)> = query_few
            .clone()
            .run()
            .unwrap()
            .map(|record| {
                let record = record.unwrap();
                let json = String::from_utf8(record.json().to_vec()).unwrap();
                (record.key().to_string().parse().unwrap(), json)
            })
            .collect();
        let ids: Vec<i64> = found.iter().map(|(id, _)| *id).collect();
        assert_eq!(ids, few);
        for (id, json) in found {
            assert!(rows.iter().any(|row| row.id == id && row.json == json));
        }
        assert_eq!(query_few.clone().count().unwrap(), few.len() as u64);
        let keys = query_few.clone().keys().unwrap();
        let keys: Vec<i64> = keys
            .map(|key| key.unwrap().to_string().parse().unwrap())
            .collect();
        assert_eq!(keys, few);
        let mut visited: Vec<i64> = Vec::new();
        let select = query_few.select(["id"]);
        select
            .visit(&mut |record| {
                let id = format!("{{\"id\":{}}}", record.key());
                assert_eq!(record.json(), id.as_bytes());
                visited.push(record.key().to_string().parse().unwrap());
                ControlFlow::Continue(())
            })
            .unwrap();
        assert_eq!(visited, few);
        self.pages(&query, &right);
    }

    fn pages(&mut self, query: &Query, right: &[i64]) {
        let size = self.rng.usize(1..30);
        let (mut found, mut token) = (Vec::new(), None);
        loop {
            let mut page = query.clone().limit(size);
            if let Some(token) = token.take() {
                page = page.after(token);
            }
            let mut page = page.run().unwrap();
            let before = found.len();
            for record in page.by_ref() {
                found.push(record.unwrap().key().to_string().parse::<i64>().unwrap());
            }
            if found.len() == before {
                break;
            }
            assert!(found.len() <= right.len(), "more than all");
            token = page.token().map(|token| token.to_string().parse().unwrap());
        }
        assert_eq!(found, right);
    }

    fn groups(&mut self) {
        let (query, rows) = self.condition();
        let mut by: Vec<By> = Vec::new();
        for _ in 0..self.rng.usize(0..3) {
            let one = match self.rng.usize(0..5) {
                0 => By::Day("t"),
                1 => By::Month("t"),
                2 => By::Two(["x", "u"][self.rng.usize(0..2)]),
                _ => By::Value(self.path()),
            };
            if by.iter().all(|known| known.path() != one.path()) {
                by.push(one);
            }
        }
        let mut aggregates: Vec<String> = Vec::new();
        for _ in 0..self.rng.usize(1..6) {
            let path = self.path();
            let text = match self.rng.usize(0..7) {
                0 => "count".to_string(),
                1 => format!("distinct({path})"),
                2 => format!("min({path})"),
                3 => format!("max({path})"),
                4 => "sum(x)".to_string(),
                5 => "avg(x)".to_string(),
                _ => format!("p{}({path})", [1, 50, 95, 100][self.rng.usize(0..4)]),
            };
            if !aggregates.contains(&text) {
                aggregates.push(text);
            }
        }
        let by_text = by.iter().map(|by| by.text()).collect::<Vec<_>>().join(",");
        let all = aggregates.join(",");
        let _doing = Doing(format!(
            "{all} by {by_text}, {:?}",
            query.request().unwrap().condition
        ));
        let mut right = groups(&rows, &by, &aggregates);
        let mut asked = query.aggregate(Aggregate::parse_list(&all).unwrap());
        for by in &by {
            asked = asked.by(by.text().parse::<GroupBy>().unwrap());
        }
        let shown = |groups: Vec<esker::request::Group>| {
            groups
                .iter()
                .map(|group| group.to_json())
                .collect::<Vec<_>>()
        };
        assert_eq!(shown(asked.clone().run().unwrap()), right);
        // The same question as data.
        let data = serde_json::to_string(&asked.aggregation().unwrap()).unwrap();
        let data: Aggregation = serde_json::from_str(&data).unwrap();
        assert_eq!(shown(self.snapshot.aggregation(data).run().unwrap()), right);
        if aggregates.iter().any(|text| text == "count") {
            let count = |line: &String| {
                let (_, rest) = line.rsplit_once("\"count\":").unwrap();
                rest.split([',', '}'])
                    .next()
                    .unwrap()
                    .parse::<u64>()
                    .unwrap()
            };
            // Equal counts stay in the order of their groups.
            right.sort_by_key(|line| std::cmp::Reverse(count(line)));
            let most = self.rng.usize(1..5);
            right.truncate(most);
            let asked = asked.order("count:desc".parse().unwrap()).limit(most);
            assert_eq!(shown(asked.run().unwrap()), right);
        }
    }
}

#[test]
fn every_kind_and_strategy_answers_as_a_look_at_each_record_does() {
    for seed in seeds(by_tier(12, 200)) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let kind = IndexKind::ALL[seed as usize % IndexKind::ALL.len()];
        let _doing = Doing(format!("seed {seed}, {kind}"));
        let def = DatasetDef::new(path("id"), KeyType::Int)
            .index(path("n"), Index::new(kind).of_type(Type::Float).lenient())
            .index(path("t"), Index::new(kind).of_type(Type::TimeS).lenient())
            .index(
                path("o.p"),
                Index::new(kind).of_type(Type::String).lenient(),
            );
        let fs = Arc::new(Memory::new());
        let db = open(fs.clone()).unwrap();
        let def = with_strategy(def, rng.usize(0..50));
        let dataset = db.create_dataset::<esker::Key>("d", def).unwrap();
        let mut model: BTreeMap<i64, Row> = BTreeMap::new();
        let mut askers: Vec<(DatasetSnapshot, Vec<Row>)> = Vec::new();
        // A reader that stays open, as another process has it, is refreshed before each question.
        let mut reader: Option<Database> = None;
        for _ in 0..3 {
            for _ in 0..rng.usize(20..150) {
                let row = record(&mut rng);
                if rng.usize(0..5) == 0 {
                    let key = dataset.parse_key(&row.id.to_string()).unwrap();
                    dataset.delete(&key).unwrap();
                    model.remove(&row.id);
                } else {
                    dataset.put_json(row.json.as_bytes()).unwrap();
                    model.insert(row.id, row);
                }
            }
            if rng.bool() {
                converge(&db);
            }
            let rows: Vec<Row> = model.values().cloned().collect();
            askers.push((dataset.snapshot(), rows.clone()));
            let beside = match reader.take() {
                Some(reader) => reader,
                None => Database::open_reader(FsPath::new(DIR), small(fs.clone())).unwrap(),
            };
            beside.refresh().unwrap();
            let dataset = beside.dataset::<esker::Key>("d").unwrap();
            askers.push((dataset.snapshot(), rows));
            reader = Some(beside).filter(|_| rng.bool());
        }
        for (snapshot, rows) in askers {
            let mut asker = Asker {
                snapshot,
                rows,
                rng: &mut rng,
            };
            for _ in 0..6 {
                asker.order();
                asker.groups();
            }
        }
    }
}

const MANY: u64 = 30_000;

/// A store with more records and groups than a query can borrow memory for.
fn many(fs: Arc<dyn Fs>) -> (esker::Database, esker::Dataset) {
    many_in(open(fs).unwrap())
}

fn many_in(db: esker::Database) -> (esker::Database, esker::Dataset) {
    let def = DatasetDef::new(path("id"), KeyType::Int);
    let dataset = db.create_dataset::<esker::Key>("d", def).unwrap();
    let mut batch = dataset.batch();
    for id in 0..MANY {
        let (n, user) = (id * 7919 % MANY, id * 31 % (MANY / 3));
        let json =
            format!("{{\"id\":{id},\"n\":{n},\"user\":\"user {user:05}\",\"pad\":\"{id:060}\"}}");
        batch.put_json(json.as_bytes()).unwrap();
        if batch.len() >= 1000 {
            batch.commit().unwrap();
        }
    }
    batch.commit().unwrap();
    (db, dataset)
}

fn aggregation(text: &str, by: &str, order: &str) -> Aggregation {
    let mut made = Aggregation::new(Aggregate::parse_list(text).unwrap());
    made.by = GroupBy::parse_list(by).unwrap();
    made.order = vec![order.parse::<FieldOrder>().unwrap()];
    made
}

#[test]
fn more_than_fits_is_sorted_in_files_that_go_away() {
    let fs = Memory::new();
    let hooked = Hooked::new(Arc::new(fs.clone()));
    let (_db, dataset) = many(Arc::new(hooked.clone()));
    let created = Arc::new(AtomicUsize::new(0));
    let count = created.clone();
    hooked.set(move |call, path| {
        if call == Call::Create && path.extension().is_some_and(|e| e == "sort") {
            count.fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    });
    let mut next = 0;
    let by_n = dataset.query().order("n".parse().unwrap());
    by_n.visit(&mut |record| {
        let record: serde_json::Value = record.parse().unwrap();
        assert_eq!(record["n"], next);
        next += 1;
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(next, MANY);
    assert!(created.load(Ordering::SeqCst) > 0, "sorted in memory");
    // The first ones are kept in memory.
    let before = created.load(Ordering::SeqCst);
    let first = dataset
        .query()
        .order("n:desc".parse().unwrap())
        .limit(3)
        .keys()
        .unwrap();
    assert_eq!(first.count(), 3);
    assert_eq!(created.load(Ordering::SeqCst), before);
    let asked = aggregation(
        "count,sum(n),distinct(n),p50(n),max(id)",
        "user",
        "user:desc",
    );
    let mut user = MANY / 3;
    let groups = dataset.aggregation(asked);
    groups
        .visit(&mut |group| {
            user -= 1;
            let ids: Vec<u64> = (0..MANY).filter(|id| id * 31 % (MANY / 3) == user).collect();
            let mut ns: Vec<u64> = ids.iter().map(|id| id * 7919 % MANY).collect();
            ns.sort_unstable();
            let right = format!(
                "{{\"user\":\"user {user:05}\",\"count\":3,\"sum(n)\":{},\"distinct(n)\":3,\"p50(n)\":{},\"max(id)\":{}}}",
                ns.iter().sum::<u64>(),
                ns[1],
                ids[2]
            );
            if user.is_multiple_of(97) {
                assert_eq!(group.to_json(), right);
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(user, 0);
    assert!(created.load(Ordering::SeqCst) > before, "grouped in memory");
    let names = fs.list(FsPath::new(DIR)).unwrap();
    assert!(
        !names
            .iter()
            .any(|name| name.extension().is_some_and(|e| e == "sort"))
    );
}

#[test]
fn a_full_disk_is_an_error_and_the_store_works_on() {
    let fs = Memory::new();
    let hooked = Hooked::new(Arc::new(fs.clone()));
    let (_db, dataset) = many(Arc::new(hooked.clone()));
    type Ask = fn(&esker::Dataset) -> esker::Result<usize>;
    let sorted: Ask = |dataset| {
        let mut seen = 0;
        for record in dataset.query().order("n".parse()?).run()? {
            record?;
            seen += 1;
        }
        Ok(seen)
    };
    let grouped: Ask = |dataset| {
        let asked = aggregation("count,distinct(n)", "user", "count:desc");
        Ok(dataset.aggregation(asked).run()?.len())
    };
    for (name, ask, right) in [("sorted", sorted, MANY), ("grouped", grouped, MANY / 3)] {
        for fails in [Call::Create, Call::Append] {
            let left = AtomicUsize::new(1);
            hooked.set(move |call, path| {
                let is_sort = path.extension().is_some_and(|e| e == "sort");
                let is_first = || left.fetch_sub(1, Ordering::SeqCst) == 1;
                if call == fails && is_sort && is_first() {
                    return Err(std::io::ErrorKind::StorageFull.into());
                }
                Ok(())
            });
            let error = ask(&dataset).unwrap_err();
            assert_eq!(
                error.kind(),
                ErrorKind::DiskFull,
                "{name} {fails:?}: {error}"
            );
            hooked.clear();
            let names = fs.list(FsPath::new(DIR)).unwrap();
            assert!(
                !names
                    .iter()
                    .any(|name| name.extension().is_some_and(|e| e == "sort")),
                "{name} {fails:?}"
            );
            dataset
                .put_json(br#"{"id":0,"n":0,"user":"user 00000"}"#)
                .unwrap();
            assert_eq!(ask(&dataset).unwrap(), right as usize, "{name}");
        }
    }
}

/// Several threads scan a store that has threads. Groups do not depend on how the records are
/// shared out, nor does an error leave anything behind.
#[test]
fn threads_share_a_scan() {
    let fs = Memory::new();
    let hooked = Hooked::new(Arc::new(fs.clone()));
    let opened = |background| {
        let options = small(Arc::new(hooked.clone())).background(background);
        esker::Database::create_or_open(FsPath::new(DIR), options).unwrap()
    };
    let (db, _) = many_in(opened(false));
    converge(&db);
    db.close().unwrap();
    let ask = |db: &esker::Database| {
        let asked = aggregation(
            "count,sum(n),distinct(n),p50(n),approx_distinct(pad)",
            "user",
            "count",
        );
        let dataset = db.dataset::<esker::Key>("d")?;
        let mut found = Vec::new();
        let explain = dataset.aggregation(asked).visit(&mut |group| {
            found.push(group.to_json());
            ControlFlow::Continue(())
        })?;
        Ok::<_, esker::Error>((found, explain.steps))
    };
    let alone = opened(false);
    let (right, steps) = ask(&alone).unwrap();
    assert_eq!(right.len() as u64, MANY / 3);
    assert_eq!((steps.scanned, steps.answers), (MANY, MANY));
    alone.close().unwrap();
    let together = opened(true);
    let threads = Arc::new(Mutex::new(HashSet::new()));
    let seen = threads.clone();
    hooked.set(move |call, path| {
        if call == Call::Create && path.extension().is_some_and(|e| e == "sort") {
            seen.lock().unwrap().insert(std::thread::current().id());
        }
        Ok(())
    });
    assert_eq!(ask(&together).unwrap(), (right.clone(), steps));
    let cores = std::thread::available_parallelism().unwrap().get();
    assert!(threads.lock().unwrap().len() >= cores.min(2));
    let first = std::thread::current().id();
    for fails_first in [true, false] {
        hooked.set(move |call, path| {
            let is_sort = path.extension().is_some_and(|e| e == "sort");
            let is_first = std::thread::current().id() == first;
            if call == Call::Append && is_sort && (is_first == fails_first || cores == 1) {
                return Err(std::io::ErrorKind::StorageFull.into());
            }
            Ok(())
        });
        let error = ask(&together).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DiskFull, "{error}");
        hooked.clear();
        let names = fs.list(FsPath::new(DIR)).unwrap();
        let is_left = |name: &std::path::PathBuf| name.extension().is_some_and(|e| e == "sort");
        assert!(!names.iter().any(is_left));
        assert_eq!(ask(&together).unwrap().0, right);
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let db = open(Arc::new(Memory::new())).unwrap();
    let def = DatasetDef::new(path("id"), KeyType::Int)
        .index("place", Index::spatial())
        .index("at", Index::composite().time());
    let dataset = db.create_dataset::<esker::Key>("d", def).unwrap();
    for json in [
        format!(r#"{{"id":1,"n":{0},"m":{0}}}"#, i128::MAX),
        r#"{"id":2,"n":1,"m":-1,"f":1e300}"#.to_string(),
    ] {
        dataset.put_json(json.as_bytes()).unwrap();
    }
    let ask = |text: &str, by: &str| {
        let aggregates = Aggregate::parse_list(text)?;
        let mut asked = dataset.query().aggregate(aggregates);
        if !by.is_empty() {
            for by in GroupBy::parse_list(by)? {
                asked = asked.by(by);
            }
        }
        let groups = asked.run()?;
        Ok::<_, esker::Error>(
            groups
                .iter()
                .map(|group| group.to_json())
                .collect::<String>(),
        )
    };
    // A sum does not wrap, and is exact where it fits.
    assert_eq!(ask("sum(n)", "").unwrap_err().kind(), ErrorKind::Overflow);
    let fits = format!("{{\"sum(m)\":{}}}", i128::MAX - 1);
    assert_eq!(ask("sum(m)", "").unwrap(), fits);
    // No bucket can begin there.
    assert_eq!(ask("count", "f/1").unwrap(), "{\"f\":null,\"count\":2}");
    for (text, by) in [
        ("total(n)", ""),
        ("p0(n)", ""),
        ("p101(n)", ""),
        ("count,count", ""),
        ("count", "n,n"),
        ("count", "n/0"),
        ("count", "n/-1"),
        ("count", "n/1x"),
        ("count", "n/1@x"),
        ("count", "at/month@5"),
        ("count", "at/0.0000001"),
        ("count", "place"),
        ("min(place)", ""),
    ] {
        let error = ask(text, by).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadInput, "{text} by {by}: {error}");
    }
    for order in ["place", "n,place:desc"] {
        let error = dataset
            .query()
            .order(order.parse().unwrap())
            .run()
            .err()
            .unwrap();
        assert_eq!(error.kind(), ErrorKind::BadInput, "{order}");
    }
    let asked = dataset.query().aggregate(["count".parse().unwrap()]);
    for order in ["sum(n)", "newest"] {
        let error = asked
            .clone()
            .order(order.parse().unwrap())
            .run()
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadInput, "{order}");
    }
    let wrong = dataset.query().select(["a..b"]).run().err().unwrap();
    assert_eq!(wrong.kind(), ErrorKind::BadInput);
}

/// A setting of the records has no meaning for groups of them, and would be ignored.
#[test]
fn aggregates_of_a_query_with_settings_of_records_are_refused() {
    let db = open(Arc::new(Memory::new())).unwrap();
    let def = DatasetDef::new(path("id"), KeyType::Int);
    let dataset = db.create_dataset::<esker::Key>("d", def).unwrap();
    for id in 0..5 {
        dataset.put_json(format!(r#"{{"id":{id}}}"#)).unwrap();
    }
    let found = || dataset.find("id > 0".parse().unwrap());
    let mut page = found().limit(1).run().unwrap();
    page.next().unwrap().unwrap();
    let token = page.token().unwrap();
    for (setting, query) in [
        ("order", found().oldest()),
        ("order", found().order("id".parse().unwrap())),
        ("offset", found().offset(1)),
        ("limit", found().limit(2)),
        ("after", found().after(token)),
        ("select", found().select(["id"])),
    ] {
        let asked = query.aggregate(["count".parse().unwrap()]);
        for error in [
            asked.aggregation().err(),
            asked.clone().run().err(),
            asked.visit(&mut |_| ControlFlow::Continue(())).err(),
        ] {
            let error = error.unwrap_or_else(|| panic!("{setting} is ignored"));
            assert_eq!(error.kind(), ErrorKind::BadInput, "{setting}");
            let text = error.to_string();
            assert!(text.contains(&format!("`{setting}`")), "{setting}: {text}");
        }
    }
    // An earlier error comes first.
    let wrong = found().select(["a..b"]).limit(1);
    let error = wrong.aggregate(["count".parse().unwrap()]).run();
    let text = error.err().unwrap().to_string();
    assert!(text.contains("a..b"), "{text}");
    for query in [found(), found().order(esker::Order::Any)] {
        let groups = query.aggregate(["count".parse().unwrap()]).run().unwrap();
        assert_eq!(groups[0].to_json(), r#"{"count":4}"#);
    }
}

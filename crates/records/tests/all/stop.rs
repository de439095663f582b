//! Cancelled reads, and reads past their deadline: all public ones, with every kind of index,
//! before they begin and at any read of a file. They end soon, return the error once, and leave no
//! files behind.

use crate::common;
use std::ops::ControlFlow;
use std::path::Path as FsPath;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use crate::common::{DIR, Doing, INDEXED, PATHS, TextQuery, path, small, with_strategy};
use esker::fs::Fs;
use esker::maintain::RepairOptions;
use esker::maintain::Validation;
use esker::{
    AggregateQuery, Database, Dataset, DatasetDef, Error, ErrorKind, IndexKind, Key, KeyType,
    Order, Query, Result, Stop, Type,
};
use esker_sim::by_tier;
use esker_sim::hooked::{Call, Hooked};
use esker_sim::memory::Memory;

const RECORDS: u64 = 3000;

/// The maximum number of file reads after a cancellation: a lookup reads several blocks at a time,
/// and opening a table takes some reads.
const MOST_AFTER: u64 = 300;

/// Records in several components of each tree and in the memtables, some of them replaced or
/// deleted.
fn filled(fs: Arc<dyn Fs>, strategy: usize) -> Database {
    filled_with(fs, strategy, RECORDS)
}

fn filled_with(fs: Arc<dyn Fs>, strategy: usize, records: u64) -> Database {
    let options = small(fs).table_size(128 << 10);
    let db = Database::create_or_open(FsPath::new(DIR), options).unwrap();
    let mut def = DatasetDef::new(path("id"), KeyType::Int);
    for (kind, name) in INDEXED.iter().zip(PATHS) {
        def = def.index(path(name), esker::Index::new(*kind).of_type(Type::Int));
    }
    let dataset = db
        .create_dataset::<esker::Key>("d", with_strategy(def, strategy))
        .unwrap();
    let put = |id: u64, other: u64| {
        let values = PATHS
            .map(|name| format!(",\"{name}\":{}", id % 10))
            .concat();
        let pad = "0123456789abcdef".repeat(40);
        let json = format!("{{\"id\":{id},\"other\":{other}{values},\"pad\":\"{pad}\"}}");
        dataset.put_json(json.as_bytes()).unwrap();
    };
    for n in 0..records {
        put(n * 1999 % records, n % 3);
    }
    for id in (0..records).step_by(7) {
        put(id, 3);
    }
    for id in (0..records).step_by(11) {
        let key = key_of(&dataset, id);
        assert!(dataset.delete(&key).unwrap().is_some());
    }
    db
}

fn key_of(dataset: &Dataset, id: u64) -> Key {
    dataset.parse_key(&id.to_string()).unwrap()
}

/// Adds the conditions to a query.
type Narrow = Box<dyn Fn(Query) -> Query>;

type Read = Box<dyn Fn(&Database) -> Result<Vec<String>>>;

/// An iterator returns the error once, and then ends.
fn all<T>(
    mut answer: impl Iterator<Item = Result<T>>,
    text: impl Fn(T) -> String,
) -> Result<Vec<String>> {
    let mut found = Vec::new();
    while let Some(item) = answer.next() {
        match item {
            Ok(item) => found.push(text(item)),
            Err(error) => {
                assert!(answer.next().is_none(), "it goes on behind its error");
                return Err(error);
            }
        }
    }
    Ok(found)
}

/// All reads of large amounts.
fn reads() -> Vec<(String, Read)> {
    let mut reads: Vec<(String, Read)> = Vec::new();
    let mut read = |name: String, read: Read| reads.push((name, read));
    let dataset = |db: &Database| db.dataset::<esker::Key>("d").unwrap();
    let run = |query: Query| all(query.run()?, |r| r.seq().to_string());
    let mut queries: Vec<(String, Narrow)> = Vec::new();
    for name in PATHS {
        let range = |query: Query| query.between(&path(name), "2", "7");
        queries.push((format!("{name} range"), Box::new(range)));
        let one = |query: Query| query.equals(&path(name), "3");
        queries.push((format!("{name} value"), Box::new(one)));
        let other = |query: Query| {
            query
                .between(&path(name), "2", "7")
                .equals(&path("other"), "2")
        };
        queries.push((format!("{name} and another"), Box::new(other)));
    }
    let scan = |query: Query| query.equals(&path("other"), "1");
    queries.push(("no index".to_string(), Box::new(scan)));
    queries.push(("all".to_string(), Box::new(|query| query)));
    for (name, query) in queries {
        let query = Rc::new(query);
        let with = |text: &str, ask: fn(Query) -> Query| {
            let (name, query) = (format!("{name}, {text}"), query.clone());
            (name, move |db: &Database| ask(query(dataset(db).query())))
        };
        for (text, ask) in [
            ("newest", (|q| q) as fn(Query) -> Query),
            ("oldest", |q| q.order(Order::Oldest)),
            ("ten", |q| q.limit(Some(10))),
            ("direct", |q| q.validation(Validation::Direct)),
            ("timestamp", |q| q.validation(Validation::Timestamp)),
        ] {
            let (name, ask) = with(text, ask);
            let query = ask.clone();
            read(
                format!("{name}, records"),
                Box::new(move |db| run(query(db))),
            );
            let query = ask.clone();
            let keys = move |db: &Database| all(query(db).keys()?, |key| key.to_string());
            read(format!("{name}, keys"), Box::new(keys));
            let query = ask.clone();
            let count = move |db: &Database| Ok(vec![query(db).count()?.to_string()]);
            read(format!("{name}, count"), Box::new(count));
            for order in [Order::Any, Order::Key] {
                let query = ask.clone();
                let wanted = order.clone();
                let visit = move |db: &Database| {
                    let mut found = Vec::new();
                    query(db).order(wanted.clone()).visit(&mut |record| {
                        found.push(record.seq().to_string());
                        ControlFlow::Continue(())
                    })?;
                    Ok(found)
                };
                read(format!("{name}, visit {order:?}"), Box::new(visit));
            }
        }
    }
    for reverse in [false, true] {
        let scan = move |db: &Database| {
            let scan = dataset(db).scan(key_of(&dataset(db), 20)..);
            let scan = if reverse { scan.rev() } else { scan };
            all(scan, |r| r.seq().to_string())
        };
        read(format!("scan, {reverse}"), Box::new(scan));
    }
    let get = move |db: &Database| {
        let found = dataset(db).get(key_of(&dataset(db), 5))?;
        let again = dataset(db).snapshot().get(key_of(&dataset(db), 5))?;
        Ok(vec![format!(
            "{:?} {:?}",
            found.map(|r| r.seq()),
            again.map(|r| r.seq())
        )])
    };
    read("get".to_string(), Box::new(get));
    let versions = move |db: &Database| {
        let found = dataset(db)
            .versions(key_of(&dataset(db), 14))
            .latest(3)
            .read()?;
        Ok(vec![found.len().to_string()])
    };
    read("versions of a key".to_string(), Box::new(versions));
    for name in PATHS.into_iter().chain(["other"]) {
        let versions = move |db: &Database| {
            let db = dataset(db);
            let found = db.versions_with(path(name), "2").limit(5000).read()?;
            Ok(vec![found.records.len().to_string()])
        };
        read(format!("versions by {name}"), Box::new(versions));
    }
    let advise = move |db: &Database| Ok(vec![format!("{:?}", dataset(db).advise(None)?.records)]);
    read("advise".to_string(), Box::new(advise));
    let check = |db: &Database| Ok(db.check()?.errors);
    read("check".to_string(), Box::new(check));
    reads
}

/// A fifth of the reads, some of each sort; together, the strategies cover all.
fn reads_under(strategy: usize) -> impl Iterator<Item = (String, Read)> {
    let numbered = reads().into_iter().enumerate();
    let chosen = numbered.filter(move |(n, _)| (n + n / 5) % 5 == strategy);
    chosen.map(|(_, read)| read)
}

fn is_cancelled(result: Result<Vec<String>>, text: &str) {
    let error: Error = result.expect_err("it went on to the end");
    assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}");
    assert_eq!(error.to_string(), text);
}

fn leaves_no_file(fs: &dyn Fs) {
    let names = fs.list(FsPath::new(DIR)).unwrap();
    let sort = |name: &std::path::PathBuf| name.extension().is_some_and(|e| e == "sort");
    assert!(!names.iter().any(sort));
}

/// Three of the strategies; all in the nightly tier.
fn strategies() -> &'static [usize] {
    by_tier(&[0, 2, 4], &[0, 1, 2, 3, 4])
}

#[test]
fn a_read_stopped_before_it_begins_reads_nothing_and_leaves_others_alone() {
    for &strategy in strategies() {
        let memory = Memory::new();
        let records = by_tier(1000, RECORDS);
        let db = filled_with(Arc::new(memory.clone()), strategy, records);
        let cancelled = Stop::new();
        cancelled.cancel();
        let late = Stop::at(Instant::now());
        let early = Stop::after(Duration::MAX);
        for (name, read) in reads_under(strategy) {
            let _doing = Doing(format!("{name}, strategy {strategy}"));
            is_cancelled(read(&db.with_stop(&cancelled)), "cancelled");
            let late = read(&db.with_stop(&late));
            is_cancelled(late, "stopped: the deadline has passed");
            leaves_no_file(&memory);
            assert_eq!(read(&db.with_stop(&early)).unwrap(), read(&db).unwrap());
        }
    }
}

#[test]
fn a_read_cancelled_in_the_middle_ends_soon_and_can_be_repeated() {
    for &strategy in strategies() {
        let memory = Memory::new();
        let fs = Hooked::new(Arc::new(memory.clone()));
        let db = filled(Arc::new(fs.clone()), strategy);
        let mut longest = 0;
        for (name, read) in reads_under(strategy) {
            let _doing = Doing(format!("{name}, strategy {strategy}"));
            let right = read(&db).unwrap();
            let mut at = 1;
            loop {
                let (stop, count) = (Stop::new(), Arc::new(AtomicU64::new(0)));
                let (hooked, counted) = (stop.clone(), count.clone());
                fs.set(move |call, _| {
                    if call == Call::Read && counted.fetch_add(1, SeqCst) + 1 == at {
                        hooked.cancel();
                    }
                    Ok(())
                });
                let found = read(&db.with_stop(&stop));
                fs.clear();
                let count = count.load(SeqCst);
                leaves_no_file(&memory);
                if count < at {
                    assert_eq!(found.unwrap(), right);
                    break;
                }
                longest = longest.max(count);
                assert!(count <= at + MOST_AFTER, "{count} reads, cancelled at {at}");
                // At the last reads the answer may be complete already.
                match found {
                    Ok(found) => assert_eq!(found, right),
                    stopped => is_cancelled(stopped, "cancelled"),
                }
                at *= by_tier(9, 3);
            }
            assert_eq!(read(&db).unwrap(), right);
        }
        assert!(longest > 2 * MOST_AFTER, "nothing was long: {longest}");
        common::check(&db);
    }
}

#[test]
fn an_answer_that_is_cancelled_between_its_records_ends() {
    let db = filled(Arc::new(Memory::new()), 0);
    let dataset = db.dataset::<esker::Key>("d").unwrap();
    let snapshot = dataset.snapshot();
    for name in PATHS {
        let _doing = Doing(name.to_string());
        let stop = Stop::new();
        let query = snapshot.with_stop(&stop).query();
        let mut answer = query.between(&path(name), "0", "9").run().unwrap();
        answer.next().unwrap().unwrap();
        stop.cancel();
        // Records found before are still returned.
        let error = answer.find_map(Result::err).unwrap();
        assert_eq!(error.kind(), ErrorKind::Cancelled);
        assert!(answer.next().is_none());
        let stop = Stop::new();
        let query = snapshot.with_stop(&stop).query();
        let mut seen = 0;
        let visited = query
            .between(&path(name), "0", "9")
            .order(Order::Key)
            .visit(&mut |_| {
                seen += 1;
                stop.cancel();
                ControlFlow::Continue(())
            });
        assert_eq!(visited.unwrap_err().kind(), ErrorKind::Cancelled);
        assert!((1..RECORDS / 2).contains(&seen), "{seen} were given");
    }
    let stop = Stop::new();
    let mut scan = snapshot.with_stop(&stop).scan(..);
    scan.next().unwrap().unwrap();
    stop.cancel();
    assert!(scan.find_map(Result::err).is_some());
    assert!(scan.next().is_none());
}

/// A hook of file calls that cancels at the first call of this kind for a file that is being
/// sorted; and the number of these calls.
fn cancel_at_sorting(fs: &Hooked, kind: Call) -> (Stop, Arc<AtomicU64>) {
    let (stop, calls) = (Stop::new(), Arc::new(AtomicU64::new(0)));
    let (hooked, counted) = (stop.clone(), calls.clone());
    fs.set(move |call, file| {
        if call == kind
            && file
                .extension()
                .is_some_and(|extension| extension == "sort")
        {
            counted.fetch_add(1, SeqCst);
            hooked.cancel();
        }
        Ok(())
    });
    (stop, calls)
}

fn count_by(query: Query, fields: &[&str]) -> AggregateQuery {
    let mut asked = query.aggregate(["count".parse().unwrap()]);
    for field in fields {
        asked = asked.by(field.parse().unwrap());
    }
    asked
}

/// Its groups would fill the disk before the next record is read.
#[test]
fn an_aggregate_is_cancelled_between_the_groups_of_one_record() {
    let memory = Memory::new();
    let fs = Hooked::new(Arc::new(memory.clone()));
    let db = Database::create_or_open(FsPath::new(DIR), small(Arc::new(fs.clone()))).unwrap();
    let def = DatasetDef::new(path("id"), KeyType::Int).index(
        path("n"),
        esker::Index::new(IndexKind::Composite).of_type(Type::Int),
    );
    let dataset = db.create_dataset::<esker::Key>("d", def).unwrap();
    let numbers: Vec<u32> = (0..100).collect();
    let json =
        format!("{{\"id\":1,\"n\":1,\"a\":{numbers:?},\"b\":{numbers:?},\"c\":{numbers:?}}}");
    dataset.put_json(json.as_bytes()).unwrap();
    for by_index in [false, true] {
        let (stop, calls) = cancel_at_sorting(&fs, Call::Append);
        let stopped = dataset.with_stop(&stop);
        let query = stopped.query();
        let query = if by_index {
            query.equals(&path("n"), "1")
        } else {
            query
        };
        let mut seen = 0;
        let answer = count_by(query, &["a", "b", "c"]).visit(&mut |_| {
            seen += 1;
            ControlFlow::Continue(())
        });
        fs.clear();
        assert_eq!(answer.unwrap_err().kind(), ErrorKind::Cancelled);
        assert_eq!(seen, 0);
        let calls = calls.load(SeqCst);
        assert!((1..=4).contains(&calls), "{calls} pieces were written");
        leaves_no_file(&memory);
    }
}

#[test]
fn an_aggregate_is_cancelled_while_its_groups_are_merged_and_passed_on() {
    let memory = Memory::new();
    let fs = Hooked::new(Arc::new(memory.clone()));
    let db = filled(Arc::new(fs.clone()), 0);
    let dataset = db.dataset::<esker::Key>("d").unwrap();
    for (by, order) in [
        ("id", None),
        ("id", Some("count:desc,id")),
        ("lazy", None),
        ("lazy", Some("count:desc,lazy")),
    ] {
        let _doing = Doing(format!("by {by}, order {order:?}"));
        let asked = |stop: &Stop| {
            let asked = count_by(dataset.with_stop(stop).query(), &[by]);
            match order {
                Some(order) => asked.order(order.parse().unwrap()),
                None => asked,
            }
        };
        let stop = Stop::new();
        let mut seen = 0;
        let answer = asked(&stop).visit(&mut |_| {
            seen += 1;
            stop.cancel();
            ControlFlow::Continue(())
        });
        assert_eq!(answer.unwrap_err().kind(), ErrorKind::Cancelled);
        assert_eq!(seen, 1);
        leaves_no_file(&memory);
        if by != "id" {
            // Its groups are few, and come from the index: nothing is sorted in a file.
            continue;
        }
        // The records have been read when a piece of their groups is read again.
        let (stop, calls) = cancel_at_sorting(&fs, Call::Read);
        let mut seen = 0;
        let answer = asked(&stop).visit(&mut |_| {
            seen += 1;
            ControlFlow::Continue(())
        });
        fs.clear();
        assert_eq!(answer.unwrap_err().kind(), ErrorKind::Cancelled);
        assert_eq!(seen, 0);
        assert!(calls.load(SeqCst) > 0, "nothing was sorted in a file");
        leaves_no_file(&memory);
    }
}

#[test]
fn a_backup_that_is_cancelled_leaves_an_empty_folder() {
    let memory = Memory::new();
    let fs = Hooked::new(Arc::new(memory.clone()));
    let db = filled(Arc::new(fs.clone()), 0);
    let copy = FsPath::new("/copy");
    let stop = Stop::new();
    let (hooked, links) = (stop.clone(), Arc::new(AtomicU64::new(0)));
    let counted = links.clone();
    fs.set(move |call, _| {
        if call == Call::Link && counted.fetch_add(1, SeqCst) == 1 {
            hooked.cancel();
        }
        Ok(())
    });
    let error = db.with_stop(&stop).backup(copy).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    assert_eq!(links.load(SeqCst), 2);
    assert!(memory.list(copy).unwrap().is_empty());
    fs.clear();
    db.backup(copy).unwrap();
    let copy = Database::open(copy, small(Arc::new(memory))).unwrap();
    common::check(&copy);
    assert_eq!(
        copy.dataset::<esker::Key>("d")
            .unwrap()
            .query()
            .count()
            .unwrap(),
        db.dataset::<esker::Key>("d")
            .unwrap()
            .query()
            .count()
            .unwrap()
    );
}

#[test]
fn a_stop_is_for_reads_alone() {
    for &strategy in strategies() {
        let db = filled(Arc::new(Memory::new()), strategy);
        let stop = Stop::new();
        stop.cancel();
        let stopped = db.with_stop(&stop);
        let dataset = stopped.dataset::<esker::Key>("d").unwrap();
        let new = format!("{{\"id\":{RECORDS},\"eager\":3,\"filter\":4}}");
        dataset.insert_json(new.as_bytes()).unwrap();
        let error = dataset.insert_json(new.as_bytes()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Exists);
        dataset
            .put_json(b"{\"id\":1,\"eager\":3,\"lazy\":5}")
            .unwrap();
        let key = key_of(&dataset, 2);
        assert!(dataset.delete(&key).unwrap().is_some());
        assert_eq!(dataset.get(&key).unwrap_err().kind(), ErrorKind::Cancelled);
        stopped.flush().unwrap();
        let lazy = path("lazy");
        let go_on = &mut |_| ControlFlow::Continue(());
        dataset
            .switch_index(&lazy, IndexKind::Composite)
            .on_progress(go_on)
            .run()
            .unwrap();
        let go_on = &mut |_| ControlFlow::Continue(());
        if let Err(error) = dataset
            .repair(&RepairOptions::default())
            .on_progress(go_on)
            .run()
        {
            // Not every strategy has one.
            assert_eq!(error.kind(), ErrorKind::BadInput, "{error}");
        }
        stopped.compact(None).unwrap();
        common::check(&db);
        let records = db
            .dataset::<esker::Key>("d")
            .unwrap()
            .query()
            .count()
            .unwrap();
        assert_eq!(records, RECORDS - RECORDS.div_ceil(11));
    }
}

//! Large answers in other orders than recency: exact, in bounded memory, without leftover files.

use std::ops::ControlFlow;
use std::path::Path as FsPath;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use crate::common::{DIR, INDEXED, PATHS, TextQuery, converge, open, path, row};
use esker::fs::Fs;
use esker::{Dataset, DatasetDef, ErrorKind, KeyType, Order, PageToken, Query, Type};
use esker_sim::hooked::{Call, Hooked};
use esker_sim::memory::{Memory, PowerCut};

const RECORDS: u64 = 4000;

/// A copy of a store that is made once.
fn filled() -> (Memory, esker::Database, Dataset) {
    static IMAGE: OnceLock<Memory> = OnceLock::new();
    let fs = IMAGE.get_or_init(image).power_cut(0, PowerCut::Kept);
    let db = open(Arc::new(fs.clone())).unwrap();
    let dataset = db.dataset::<esker::Key>("d").unwrap();
    (fs, db, dataset)
}

/// Records with three values of each attribute; every seventh is written a second time, every
/// eleventh is deleted.
fn image() -> Memory {
    let fs = Memory::new();
    let db = open(Arc::new(fs.clone())).unwrap();
    let mut def = DatasetDef::new(path("id"), KeyType::Int);
    for (kind, name) in INDEXED.iter().zip(PATHS) {
        def = def.index(path(name), esker::Index::new(*kind).of_type(Type::Int));
    }
    let dataset = db.create_dataset::<esker::Key>("d", def).unwrap();
    let put = |id: u64, version: u64| {
        let values = [id % 10, id % 10 + 1, version];
        let attributes = PATHS.map(|name| format!(",\"{name}\":{values:?}")).concat();
        let json = format!("{{\"id\":{id},\"version\":{version}{attributes}}}");
        dataset.put_json(json.as_bytes()).unwrap();
    };
    // Not in key order.
    for n in 0..RECORDS {
        put(n * 1999 % RECORDS, 50);
    }
    converge(&db);
    for id in (0..RECORDS).step_by(7) {
        put(id, 51);
    }
    for id in (0..RECORDS).step_by(11) {
        let key = dataset.parse_key(&id.to_string()).unwrap();
        assert!(dataset.delete(&key).unwrap().is_some());
    }
    drop((db, dataset));
    fs
}

fn ids(query: Query, order: Order) -> Vec<u64> {
    let mut found = Vec::new();
    let visit = &mut |record| {
        found.push(row(Ok(record)).unwrap().0.parse().unwrap());
        ControlFlow::Continue(())
    };
    query.order(order).visit(visit).unwrap();
    found
}

#[test]
fn every_record_comes_once_however_many_entries_it_has() {
    let (fs, _db, dataset) = filled();
    let there = |id: &u64| !id.is_multiple_of(11);
    let all: Vec<u64> = (0..RECORDS).filter(there).collect();
    let new: Vec<u64> = (0..RECORDS).step_by(7).filter(there).collect();
    for name in PATHS {
        let range = |lo: &str, hi: &str| dataset.query().between(&path(name), lo, hi);
        for (query, right) in [(range("0", "60"), &all), (range("51", "60"), &new)] {
            assert_eq!(&ids(query.clone(), Order::Key), right, "{name}");
            let mut any = ids(query.clone(), Order::Any);
            any.sort_unstable();
            assert_eq!(&any, right, "{name}");
            let few = query.limit(Some(100));
            assert_eq!(ids(few.clone(), Order::Key), right[..100], "{name}");
            let mut any = ids(few, Order::Any);
            any.sort_unstable();
            any.dedup();
            assert_eq!(any.len(), 100, "{name}");
        }
        assert!(ids(range("70", "80"), Order::Key).is_empty());
        // A further condition without an index.
        let both = range("0", "60").equals(&path("version"), "51");
        assert_eq!(ids(both, Order::Key), new, "{name}");
    }
    let scanned = dataset.query().equals(&path("version"), "51");
    assert_eq!(ids(scanned, Order::Key), new);
    assert_eq!(ids(dataset.query(), Order::Any), all);
    let names = fs.list(FsPath::new(DIR)).unwrap();
    assert!(
        !names
            .iter()
            .any(|name| name.extension().is_some_and(|e| e == "sort"))
    );
}

/// The file is unlinked when it is created, so that it cannot be left over or removed by another
/// process.
#[test]
fn what_does_not_fit_is_sorted_in_a_file_that_goes_away() {
    let (fs, db, dataset) = filled();
    drop((db, dataset));
    let hooked = Hooked::new(Arc::new(fs.clone()));
    let made = Arc::new(AtomicUsize::new(0));
    let count = made.clone();
    hooked.set(move |call, path| {
        if call == Call::Create && path.extension().is_some_and(|e| e == "sort") {
            count.fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    });
    let db = open(Arc::new(hooked)).unwrap();
    let dataset = db.dataset::<esker::Key>("d").unwrap();
    let files = || {
        let names = fs.list(FsPath::new(DIR)).unwrap();
        let sort = |name: &&std::path::PathBuf| name.extension().is_some_and(|e| e == "sort");
        names.iter().filter(sort).count()
    };
    let query = dataset.query().between(&path("lazy"), "0", "60");
    let mut seen = 0;
    let visit = &mut |_| {
        seen += 1;
        assert_eq!(files(), 0);
        match seen {
            5 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    };
    query.order(Order::Key).visit(visit).unwrap();
    assert_eq!((seen, files()), (5, 0));
    assert_eq!(made.load(Ordering::SeqCst), 1);
}

#[test]
fn a_page_continues_in_any_order_of_visits() {
    let (_fs, _db, dataset) = filled();
    let query = dataset.query().between(&path("lazy"), "0", "60");
    let mut page = query.clone().limit(Some(3)).run().unwrap();
    assert_eq!(page.by_ref().count(), 3);
    let token = page.token().unwrap();
    assert_eq!(token.to_string().parse::<PageToken>().unwrap(), token);
    assert!("x".parse::<PageToken>().is_err());
    let all = query.clone().count().unwrap() as usize;
    let behind = query.clone().after(token.clone());
    assert_eq!(ids(behind, Order::Any).len(), all - 3);
    // A token belongs to the kind of its order.
    let refused = query.clone().after(token).order(Order::Key);
    let error = refused.visit(&mut |_| panic!("given")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadInput);
    let mut page = query.clone().order(Order::Key).limit(3).run().unwrap();
    let first: Vec<u64> = (page.by_ref())
        .map(|record| record.unwrap().key().to_string().parse().unwrap())
        .collect();
    let token = page.token().unwrap();
    assert_eq!(token.to_string().parse::<PageToken>().unwrap(), token);
    let rest = ids(query.clone().after(token.clone()), Order::Key);
    assert_eq!([first, rest].concat(), ids(query.clone(), Order::Key));
    let error = query.after(token).run().err().unwrap();
    assert_eq!(error.kind(), ErrorKind::BadInput);
}

//! The trees of an extension live beside datasets: through flushes, compactions, restarts, copies,
//! snapshots and power cuts, with their own merge operator, in one log.

use crate::common;
use std::collections::BTreeMap;
use std::path::Path as FsPath;
use std::sync::Arc;

use crate::common::{DIR, small};
use esker::extension::merge::MergeOperator;
use esker::extension::{Batch, Cost, Extension, ExtensionStore, Kind, TreeId, TreeOptions};
use esker::{Database, DatasetDef, Durability, ErrorKind, KeyType, Options, Seq};
use esker_sim::memory::{Memory, PowerCut};

/// Inboxes: the messages to a receiver, newest first, and each sent message.
struct Inbox;

impl Extension for Inbox {
    fn name(&self) -> &'static str {
        "inbox"
    }

    fn tree_options(&self, tree: &str, config: &[u8]) -> esker::Result<TreeOptions> {
        match (tree, config) {
            // A tree may have the name of a dataset's data tree.
            ("data", b"lists") => Ok(TreeOptions {
                operator: Some(Arc::new(Lists)),
                ..TreeOptions::default()
            }),
            ("sent", b"") => Ok(TreeOptions::default()),
            _ => Err(esker::Error::BadInput(
                "no tree of the extension".to_string(),
            )),
        }
    }
}

/// Concatenates the pieces of a list.
struct Lists;

impl MergeOperator for Lists {
    fn combine(&self, _: &[u8], newer: &mut Vec<u8>, _: Seq, older: &[u8], _: Seq) -> bool {
        newer.extend_from_slice(older);
        true
    }
}

fn options(memory: &Memory) -> Options {
    small(Arc::new(memory.clone())).extension(Arc::new(Inbox))
}

fn open(memory: &Memory) -> Database {
    Database::create_or_open(FsPath::new(DIR), options(memory)).unwrap()
}

/// The trees `data` and `sent`.
fn trees(store: &ExtensionStore) -> [TreeId; 2] {
    match (store.tree("data"), store.tree("sent")) {
        (Some(data), Some(sent)) => [data, sent],
        _ => {
            let made = store.create_trees(&[("data", b"lists"), ("sent", b"")]);
            made.unwrap().try_into().unwrap()
        }
    }
}

/// Sends: one operand for the receiver, and one entry for the message.
fn send(store: &ExtensionStore, to: u8, message: u8) {
    let [data, sent] = trees(store);
    let mut batch = Batch::new();
    batch.operand(data, &[to], &[message]).unwrap();
    batch.put(sent, &[message], &[to]).unwrap();
    store.write(&mut batch, Durability::Sync).unwrap();
}

/// All lists, newest first, and all sent messages.
fn state(db: &Database) -> (BTreeMap<u8, Vec<u8>>, BTreeMap<u8, u8>) {
    let store = db.extension("inbox").unwrap();
    let [data, sent] = trees(&store);
    let snapshot = store.snapshot();
    let mut lists = BTreeMap::new();
    for to in 0..=255 {
        let mut list = Vec::new();
        let mut walk = snapshot.walk(data, &[to]);
        while let Some(entry) = walk.next_entry().unwrap() {
            assert_eq!(entry.kind, Kind::Operand);
            list.extend_from_slice(&entry.value);
        }
        if !list.is_empty() {
            lists.insert(to, list);
        }
    }
    let one = |message: u8| {
        let found = snapshot.get(sent, &[message], &Cost::default()).unwrap()?;
        Some((message, found.value[0]))
    };
    (lists, (0..=255).filter_map(one).collect())
}

#[test]
fn its_trees_live_through_everything_that_datasets_do() {
    let memory = Memory::new();
    let mut db = open(&memory);
    let def = DatasetDef::new("id", KeyType::Int);
    db.create_dataset::<esker::Key>("d", def).unwrap();
    let (mut lists, mut sent) = (BTreeMap::<u8, Vec<u8>>::new(), BTreeMap::new());
    for message in 0..200 {
        let to = message % 7;
        send(&db.extension("inbox").unwrap(), to, message);
        lists.entry(to).or_default().insert(0, message);
        sent.insert(message, to);
        let record = format!("{{\"id\":{message}}}");
        db.dataset::<esker::Key>("d")
            .unwrap()
            .put_json(record.as_bytes())
            .unwrap();
        match message % 40 {
            10 => db.flush().unwrap(),
            20 => db.compact(None).unwrap(),
            30 => {
                db.close().unwrap();
                db = open(&memory);
            }
            _ => {}
        }
        if message == 100 {
            db.keep_snapshot("then").unwrap();
        }
        assert_eq!(state(&db), (lists.clone(), sent.clone()), "after {message}");
    }
    db.compact(None).unwrap();
    assert_eq!(state(&db), (lists.clone(), sent.clone()));
    let report = db.check().unwrap();
    assert_eq!((report.errors, report.records), (vec![], 200));
    // Combined to one piece.
    let store = db.extension("inbox").unwrap();
    let mut walk = store.snapshot().walk(trees(&store)[0], &[3]);
    assert!(walk.next_entry().unwrap().is_some() && walk.next_entry().unwrap().is_none());

    db.backup(FsPath::new("/copy")).unwrap();
    let copy = Database::open(FsPath::new("/copy"), options(&memory)).unwrap();
    assert_eq!(state(&copy), (lists.clone(), sent.clone()));
    let reader = Database::open_reader(FsPath::new(DIR), options(&memory)).unwrap();
    send(&db.extension("inbox").unwrap(), 250, 250);
    reader.refresh().unwrap();
    assert_eq!(state(&reader).0.get(&250), Some(&vec![250]));
    let error = reader.extension("inbox").unwrap();
    let mut batch = Batch::new();
    batch.put(trees(&error)[1], b"k", b"v").unwrap();
    let error = error.write(&mut batch, Durability::Os).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReadOnly);
}

#[test]
fn a_power_cut_takes_a_batch_whole_or_not_at_all() {
    for seed in common::seeds(60) {
        let memory = Memory::new();
        let db = open(&memory);
        let store = db.extension("inbox").unwrap();
        let [data, sent] = trees(&store);
        for message in 0..(seed % 50) as u8 {
            let mut batch = Batch::new();
            batch.operand(data, &[message % 3], &[message]).unwrap();
            batch.put(sent, &[message], &[message % 3]).unwrap();
            let durability = match message % 5 {
                0 => Durability::Sync,
                _ => Durability::Os,
            };
            store.write(&mut batch, durability).unwrap();
            if message % 17 == 9 {
                db.flush().unwrap();
            }
        }
        let mode = if seed % 2 == 0 {
            PowerCut::Torn
        } else {
            PowerCut::Reordered
        };
        let after = memory.power_cut(seed, mode);
        drop((store, db));
        let db = open(&after);
        let (lists, sent) = state(&db);
        let mut expected = BTreeMap::<u8, Vec<u8>>::new();
        for (message, to) in &sent {
            expected.entry(*to).or_default().insert(0, *message);
        }
        assert_eq!(lists, expected, "seed {seed}");
        // All synced messages are there, and a message is there only with all earlier ones.
        let synced = ((seed % 50) as u8).div_ceil(5);
        let least = if synced == 0 { 0 } else { (synced - 1) * 5 + 1 };
        assert!(
            sent.len() >= usize::from(least),
            "seed {seed}: {} of {least}",
            sent.len()
        );
        assert!(sent.keys().copied().eq(0..sent.len() as u8), "seed {seed}");
    }
}

#[test]
fn a_batch_that_depends_on_what_is_there_is_alone_with_it() {
    let memory = Memory::new();
    let db = open(&memory);
    let store = db.extension("inbox").unwrap();
    let [data, sent] = trees(&store);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let mut batch = Batch::new();
                    batch.operand(data, b"n", b"+").unwrap();
                    let mut count = |batch: &mut Batch, _, before: &esker::extension::Snapshot| {
                        let count = before.get(sent, b"count", &Cost::default())?;
                        let count = count.map_or(0, |found| found.value[0]);
                        batch.put(sent, b"count", &[count + 1])
                    };
                    store
                        .write_with(&mut batch, Durability::Os, &mut count)
                        .unwrap();
                }
            });
        }
    });
    let count = store.snapshot().get(sent, b"count", &Cost::default());
    assert_eq!(count.unwrap().unwrap().value[0], 200);
    let mut batch = Batch::new();
    batch.put(sent, b"count", b"\0").unwrap();
    let refused = store.write_with(&mut batch, Durability::Os, |_, _, _| {
        Err::<(), _>(esker::extension::EngineError::Invalid("no".to_owned()))
    });
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::BadInput);
    let count = store.snapshot().get(sent, b"count", &Cost::default());
    assert_eq!(count.unwrap().unwrap().value[0], 200);
}

#[test]
fn the_log_has_its_commits_among_all_others_in_order() {
    let memory = Memory::new();
    let db = open(&memory);
    let def = DatasetDef::new("id", KeyType::Int);
    let dataset = db.create_dataset::<esker::Key>("d", def).unwrap();
    let store = db.extension("inbox").unwrap();
    let [data, sent] = trees(&store);
    let mut tail = store.tail(store.position()).unwrap();
    let mut changes = dataset.changes(store.position()).unwrap();
    for message in 0..20_u8 {
        match message % 3 {
            0 => {
                let record = format!("{{\"id\":{message}}}");
                dataset.put_json(record.as_bytes()).unwrap();
            }
            _ => send(&store, 1, message),
        }
    }
    let (mut order, mut last) = (Vec::new(), 0);
    while let Some(commit) = tail.next().unwrap() {
        let mut of = None;
        commit.each(&mut |tree, seq, _, _, value| {
            assert!(seq >= last);
            last = seq;
            of = Some(if tree == data {
                value[0]
            } else {
                of.unwrap_or(255)
            });
            let _ = sent;
        });
        order.push(of.unwrap());
    }
    let expected = (0..20).map(|message| if message % 3 == 0 { 255 } else { message });
    assert_eq!(order, expected.collect::<Vec<_>>());
    // The feed of a dataset does not contain the extension's writes.
    let mut keys = Vec::new();
    while let Some(change) = changes.next().unwrap() {
        keys.push(change.key().to_string());
    }
    assert_eq!(keys, ["0", "3", "6", "9", "12", "15", "18"]);
}

#[test]
fn it_touches_nothing_but_its_trees() {
    let memory = Memory::new();
    let db = open(&memory);
    let def = DatasetDef::new("id", KeyType::Int);
    let dataset = db.create_dataset::<esker::Key>("d", def).unwrap();
    dataset.put_json(br#"{"id":1}"#).unwrap();
    let store = db.extension("inbox").unwrap();
    let [_, sent] = trees(&store);
    let snapshot = store.snapshot();
    let records = snapshot.version().trees.values();
    let records = records
        .filter(|tree| tree.name == "d/data")
        .map(|tree| tree.id)
        .next()
        .unwrap();

    let mut batch = Batch::new();
    batch.put(sent, b"k", b"v").unwrap();
    batch.delete(records, b"\x80\0\0\0\0\0\0\x01").unwrap();
    let refusals = [
        store.write(&mut batch, Durability::Os).map(drop),
        store.append(&mut batch, Durability::Os).map(drop),
        store
            .write_with(&mut Batch::new(), Durability::Os, |batch, _, _| {
                batch.put(sent, b"k", b"v")?;
                batch.delete(records, b"k")
            })
            .map(drop),
        store.drop_trees(&[sent, records]),
        store.configure_tree(records, b""),
        store.drop_trees(&[4_000_000]),
    ];
    for refused in refusals {
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadInput, "{error}");
        assert!(
            error
                .to_string()
                .contains("does not belong to the extension `inbox`"),
            "{error}"
        );
    }
    assert_eq!(state(&db).1, BTreeMap::new());
    assert_eq!(db.check().unwrap().records, 1);
    assert_eq!(store.trees().len(), 2);
    assert_eq!(db.dataset_names(), ["d"]);
    store.drop_trees(&[sent]).unwrap();
    assert_eq!(store.tree("sent"), None);
}

#[test]
fn names_and_configurations_are_refused_with_the_reason() {
    let memory = Memory::new();
    let db = open(&memory);
    let store = db.extension("inbox").unwrap();
    trees(&store);
    let refused = store.create_trees(&[("sent", b"")]).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Exists);
    let refused = store.create_trees(&[("more", b"")]).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::BadInput);
    assert!(
        refused
            .to_string()
            .contains("extension `inbox` rejects the configuration of its tree `more`"),
        "{refused}"
    );
    assert_eq!(
        db.extension("other").err().map(|e| e.kind()),
        Some(ErrorKind::BadInput)
    );
    drop((store, db));

    let without = Database::open(FsPath::new(DIR), small(Arc::new(memory.clone())));
    let error = without.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(
        error
            .to_string()
            .contains("belongs to the extension `inbox`"),
        "{error}"
    );

    struct Named(&'static str);
    impl Extension for Named {
        fn name(&self) -> &'static str {
            self.0
        }
        fn tree_options(&self, _: &str, _: &[u8]) -> esker::Result<TreeOptions> {
            Err(esker::Error::BadInput("no tree at all".to_string()))
        }
    }
    for names in [vec![""], vec!["a/b"], vec!["Inbox"], vec!["a", "a"]] {
        let options = names
            .iter()
            .fold(small(Arc::new(Memory::new())), |options, name| {
                options.extension(Arc::new(Named(name)))
            });
        let error = Database::create_or_open(FsPath::new(DIR), options)
            .err()
            .unwrap();
        assert_eq!(error.kind(), ErrorKind::BadInput, "{names:?}");
    }
}

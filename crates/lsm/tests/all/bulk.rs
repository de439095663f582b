//! Runs ingested above or below a tree, rewritten tables, and batches refused because trees have
//! changed.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::common::{DIR, Doing, bytes, seeds, small};
use esker_lsm::attributes::Extractor;
use esker_lsm::fs::Fs;
use esker_lsm::{
    Batch, Cost, Cursor, Durability, Error, Group, Kind, Result, RunSink, Seq, Snapshot, Tiered,
    TreeChange, TreeId, TreeOptions, TreeProvider,
};
use esker_sim::faulty::Faulty;
use esker_sim::memory::{Memory, PowerCut};

/// The first byte of a value is attribute 7.
struct FirstByte;

impl Extractor for FirstByte {
    fn ids(&self) -> &[u32] {
        &[7]
    }

    fn extract(&self, _key: &[u8], value: &[u8], emit: &mut dyn FnMut(usize, &[u8])) {
        if let Some(first) = value.first() {
            emit(0, &[*first]);
        }
    }
}

/// The configuration of a tree lists its properties.
struct Trees;

impl TreeProvider for Trees {
    fn tree_options(&self, _name: &str, config: &[u8]) -> Result<TreeOptions> {
        let is = |what: u8| config.contains(&what);
        let mut options = TreeOptions {
            incomplete: is(b'i'),
            ..TreeOptions::default()
        };
        if is(b'a') {
            options.extractor = Some(Arc::new(FirstByte));
        }
        if is(b't') {
            options.policy = Arc::new(Tiered::default());
        }
        Ok(options)
    }
}

fn open(fs: Arc<dyn Fs>) -> Group {
    Group::open(Path::new(DIR), small(fs), Arc::new(Trees), true).unwrap()
}

fn create(group: &Group, name: &str, config: &[u8]) -> TreeId {
    group
        .create_trees(&[(name.to_string(), config.to_vec())])
        .unwrap()[0]
}

fn put(group: &Group, tree: TreeId, key: &[u8], value: &[u8]) {
    let mut batch = Batch::new();
    batch.put(tree, key, value).unwrap();
    group.write(&mut batch, Durability::Os).unwrap();
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn read(snapshot: &Snapshot, tree: TreeId) -> Model {
    let mut cursor = snapshot.cursor(tree, 0);
    let mut model = Model::new();
    cursor.seek_first().unwrap();
    while cursor.valid() {
        let found = snapshot.get(tree, cursor.key(), &Cost::default()).unwrap();
        let found = found.unwrap();
        assert_eq!((found.seq, &*found.value), (cursor.seq(), cursor.value()));
        model.insert(cursor.key().to_vec(), cursor.value().to_vec());
        cursor.next().unwrap();
    }
    model
}

/// The number of table files, and of tables.
fn tables(memory: &Memory, group: &Group) -> (usize, usize) {
    let paths = memory.paths();
    let files = paths
        .iter()
        .filter(|p| p.extension().is_some_and(|e| e == "tbl"));
    let snapshot = group.snapshot();
    (files.count(), snapshot.version().tables().count())
}

fn no_change() -> Result<TreeChange> {
    Ok(TreeChange::default())
}

type Entry = (Vec<u8>, Seq, Kind, Vec<u8>);

fn give(entries: &[Entry]) -> impl FnMut(&mut RunSink<'_>) -> Result<()> + '_ {
    move |sink| {
        for (key, seq, kind, value) in entries {
            sink(key, *seq, *kind, value)?;
        }
        Ok(())
    }
}

fn entry(key: &str, seq: Seq) -> Entry {
    (key.into(), seq, Kind::Put, b"value".to_vec())
}

fn invalid<T: std::fmt::Debug>(result: Result<T>) {
    match result {
        Err(Error::Invalid(_)) => {}
        other => panic!("{other:?}"),
    }
}

fn change(group: &Group, tree: TreeId, model: &mut Model, rng: &mut fastrand::Rng) {
    match rng.usize(0..20) {
        0 => group.flush().unwrap(),
        1 => {
            group.flush().unwrap();
            group.run_compactions().unwrap();
        }
        2 => group.compact(Some(tree)).unwrap(),
        _ => {
            let mut batch = Batch::new();
            for _ in 0..rng.usize(1..10) {
                let key = format!("{:03}", rng.usize(0..150)).into_bytes();
                if rng.usize(0..3) == 0 {
                    batch.delete(tree, &key).unwrap();
                    model.remove(&key);
                } else {
                    let len = rng.usize(0..100);
                    let value = bytes(rng, len);
                    batch.put(tree, &key, &value).unwrap();
                    model.insert(key, value);
                }
            }
            group.write(&mut batch, Durability::Os).unwrap();
        }
    }
}

#[test]
fn older_entries_are_ingested_below_newer_ones_and_tombstones_cover_them() {
    for seed in seeds(40) {
        let _doing = Doing(&|| format!("ESKER_SEED={seed}"));
        let mut rng = fastrand::Rng::with_seed(seed);
        let memory = Memory::new();
        let mut group = open(Arc::new(memory.clone()));
        let before = create(&group, "before", b"");
        for at in 0..500u32 {
            put(&group, before, &at.to_be_bytes(), b"x");
        }
        let mut since = 0;
        let policy = if rng.bool() { "t" } else { "" };
        let ids = group.change_trees(&mut |last| {
            since = last;
            Ok(TreeChange {
                created: vec![("new".to_string(), format!("{policy}i").into_bytes())],
                ..TreeChange::default()
            })
        });
        let tree = ids.unwrap()[0];
        assert_eq!(since, 500);
        // Every key is first written as an old one, so that it is known which are new.
        let mut newer = Model::new();
        let mut touched = Model::new();
        for _ in 0..rng.usize(0..60) {
            change(&group, tree, &mut newer, &mut rng);
            let mut entries = group.snapshot().entries(tree, 0);
            entries.seek_first().unwrap();
            while entries.valid() {
                touched.insert(entries.key().to_vec(), Vec::new());
                entries.next().unwrap();
            }
            if rng.usize(0..20) == 0 {
                drop(group);
                group = open(Arc::new(memory.clone()));
            }
        }
        let mut old = Vec::new();
        let mut model = newer.clone();
        for key in (0..150).map(|key| format!("{key:03}").into_bytes()) {
            let mut seqs = vec![rng.u64(1..since + 1), rng.u64(1..since + 1)];
            seqs.sort_unstable_by(|a, b| b.cmp(a));
            seqs.dedup();
            for (at, seq) in seqs.into_iter().take(rng.usize(0..3)).enumerate() {
                let value = format!("old {seq}").into_bytes();
                if at == 0 && !touched.contains_key(&key) {
                    model.insert(key.clone(), value.clone());
                }
                old.push((key.clone(), seq, Kind::Put, value));
            }
        }
        let kept = group.snapshot();
        let count = group.ingest_oldest(tree, &mut give(&old), &mut || {
            Ok(TreeChange {
                configured: vec![(tree, policy.as_bytes().to_vec())],
                dropped: vec![before],
                ..TreeChange::default()
            })
        });
        assert_eq!(count.unwrap(), old.len() as u64);
        assert_eq!(group.tree("before"), None);
        assert_eq!(read(&kept, tree), newer);
        assert_eq!(read(&kept, before).len(), 500);
        drop(kept);
        assert_eq!(read(&group.snapshot(), tree), model);
        for _ in 0..30 {
            change(&group, tree, &mut model, &mut rng);
            if rng.usize(0..20) == 0 {
                drop(group);
                group = open(Arc::new(memory.clone()));
            }
            assert_eq!(read(&group.snapshot(), tree), model);
        }
        group.compact(None).unwrap();
        assert_eq!(read(&group.snapshot(), tree), model);
        assert!(group.check().errors.is_empty());
    }
}

#[test]
fn a_run_that_is_out_of_place_is_refused_and_leaves_nothing() {
    let memory = Memory::new();
    let group = open(Arc::new(memory.clone()));
    let tree = create(&group, "t", b"");
    for at in 0..10 {
        put(&group, tree, format!("{at}").as_bytes(), b"x");
    }
    let mut change = no_change;
    for _ in 0..2 {
        // First in the memtable, then in a table.
        let oldest =
            |entries: &[Entry]| group.ingest_oldest(tree, &mut give(entries), &mut no_change);
        invalid(oldest(&[entry("a", 1)]));
        invalid(oldest(&[entry("a", 7)]));
        let newest = |entries: &[Entry]| group.ingest_newest(tree, &mut give(entries));
        invalid(newest(&[entry("a", 10)]));
        // No write has this number yet.
        invalid(newest(&[entry("a", 11)]));
        let (files, tables) = tables(&memory, &group);
        assert_eq!(files, tables);
        group.flush().unwrap();
    }
    let other = create(&group, "o", b"");
    for wrong in [
        [entry("b", 3), entry("a", 2)],
        [entry("a", 3), entry("a", 3)],
        [entry("a", 3), entry("a", 4)],
        [entry("a", 3), entry("b", esker_lsm::MAX_SEQ + 1)],
    ] {
        invalid(group.ingest_newest(other, &mut give(&wrong)));
        invalid(group.ingest_oldest(other, &mut give(&wrong), &mut change));
    }
    invalid(group.ingest_newest(99, &mut give(&[])));
    invalid(
        group.ingest_oldest(other, &mut give(&[entry("a", 3)]), &mut || {
            Err(Error::Invalid("no".to_string()))
        }),
    );
    let (files, tables) = tables(&memory, &group);
    assert_eq!((files, tables), (1, 1));
    let good = [entry("a", 3), entry("a", 1), entry("b", 2)];
    assert_eq!(group.ingest_newest(other, &mut give(&good)).unwrap(), 3);
    invalid(group.ingest_newest(other, &mut give(&[entry("c", 3)])));
    assert_eq!(
        group
            .ingest_newest(other, &mut give(&[entry("a", 4)]))
            .unwrap(),
        1
    );
    let found = group.snapshot().get(other, b"a", &Cost::default()).unwrap();
    assert_eq!(found.unwrap().seq, 4);
    assert_eq!(read(&group.snapshot(), other).len(), 2);
}

#[test]
fn a_batch_is_refused_when_the_trees_have_changed_since_it_was_made() {
    let memory = Memory::new();
    let group = open(Arc::new(memory));
    let tree = create(&group, "t", b"");
    let changes = || group.snapshot().version().changes();
    let steps: [&dyn Fn(); 4] = [
        &|| assert_ne!(create(&group, "u", b""), tree),
        &|| group.configure_tree(tree, b"a".to_vec()).unwrap(),
        &|| group.drop_trees(&[group.tree("u").unwrap()]).unwrap(),
        &|| {
            drop(
                group
                    .change_trees(&mut |_| {
                        Ok(TreeChange {
                            configured: vec![(tree, Vec::new())],
                            ..TreeChange::default()
                        })
                    })
                    .unwrap(),
            )
        },
    ];
    for (at, step) in steps.iter().enumerate() {
        let mut batch = Batch::new();
        batch.put(tree, format!("{at}").as_bytes(), b"1").unwrap();
        batch.made_for(changes());
        let mut shown = Vec::new();
        batch.each(&mut |tree, kind, key, value| {
            shown.push((tree, kind, key.to_vec(), value.to_vec()));
        });
        let key = format!("{at}").into_bytes();
        assert_eq!(shown, [(tree, Kind::Put, key, b"1".to_vec())]);
        // Flushes and compactions change no trees.
        group.compact(None).unwrap();
        step();
        let last = group.snapshot().seq();
        assert!(matches!(
            group.append(&mut batch, Durability::Os),
            Err(Error::Stale)
        ));
        let with = group.append_with(&mut batch, Durability::Os, &mut |_, _, _| panic!("stale"));
        assert!(matches!(with, Err(Error::Stale)));
        assert_eq!(group.snapshot().seq(), last);
        batch.made_for(changes());
        group.write(&mut batch, Durability::Os).unwrap();
        assert_eq!(read(&group.snapshot(), tree).len(), at + 1);
    }
}

#[test]
fn tables_are_written_again_one_by_one_with_new_options_and_the_same_entries() {
    let memory = Memory::new();
    let faulty = Faulty::new(Arc::new(memory.clone()));
    let group = open(Arc::new(faulty.clone()));
    let tree = create(&group, "t", b"");
    let mut rng = fastrand::Rng::with_seed(1);
    let mut model = Model::new();
    for _ in 0..300 {
        change(&group, tree, &mut model, &mut rng);
    }
    group.flush().unwrap();
    let all = |group: &Group| {
        let mut entries = group.snapshot().entries(tree, 0);
        let mut found = Vec::new();
        entries.seek_first().unwrap();
        while entries.valid() {
            let key = entries.key().to_vec();
            found.push((key, entries.seq(), entries.kind(), entries.value().to_vec()));
            entries.next().unwrap();
        }
        found
    };
    let shape = |group: &Group| {
        let snapshot = group.snapshot();
        let runs = &snapshot.version().trees[&tree].runs;
        let shape = runs
            .iter()
            .map(|run| (run.level, run.number, run.component()));
        shape.collect::<Vec<_>>()
    };
    let (before, shape_before) = (all(&group), shape(&group));
    let lacks = |meta: &esker_lsm::table::TableMeta| meta.zones.is_empty();
    let count = tables(&memory, &group).1;
    assert!(count > 3, "{count} tables");
    group.configure_tree(tree, b"a".to_vec()).unwrap();
    let kept = group.snapshot();
    let mut entries = 0;
    for at in 0..count {
        // A rewritten table stays when the next one fails.
        faulty.fail_at(2);
        if at % 2 == 0 {
            group.rewrite_table(tree, &lacks).unwrap_err();
        }
        faulty.clear();
        entries += group.rewrite_table(tree, &lacks).unwrap().unwrap();
    }
    assert_eq!(group.rewrite_table(tree, &lacks).unwrap(), None);
    assert_eq!(entries, before.len() as u64);
    assert!(all(&group) == before, "entries differ");
    assert_eq!(shape(&group), shape_before);
    assert_eq!(read(&kept, tree), model);
    drop(kept);
    let (files, tables) = tables(&memory, &group);
    assert_eq!(files, tables);
    assert!(group.check().errors.is_empty());
    drop(group);
    let group = open(Arc::new(memory.power_cut(3, PowerCut::Lost)));
    // Closing has compacted some of them.
    assert_eq!(read(&group.snapshot(), tree), model);
    assert_eq!(group.rewrite_table(tree, &lacks).unwrap(), None);
}

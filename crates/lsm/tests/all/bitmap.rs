//! Bitmap trees: the drops that compactions report are exactly those they make, snapshots see the
//! bits as of their own time, watermarks and bits survive reopening, and damage in a bitmap tree is
//! an error that names the file. `ESKER_SEEDS=1000 cargo test -p esker-lsm --test all bitmap::`
//! runs more seeds; `ESKER_SEED=17` repeats one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use crate::common::{DIR, Doing, seeds, skewed, small};
use esker_lsm::attributes::Extractor;
use esker_lsm::entry::seq_key;
use esker_lsm::{
    Batch, BitmapMerges, Cost, Cursor, DropPolicy, Durability, Error, Group, Kind, Leveled,
    Options, Result, Seq, Snapshot, SupersededBy, Tiered, TreeId, TreeOptions, TreeProvider,
};
use esker_sim::memory::{Memory, PowerCut};

/// Trees by their drop policy, each with its own bitmap tree.
const TREES: [(&str, DropPolicy); 3] = [
    ("recorded", DropPolicy::Record),
    ("kept", DropPolicy::KeepUntilRepaired),
    ("silent", DropPolicy::Silent),
];

fn bits_of(name: &str) -> String {
    format!("{name}/bits")
}

#[derive(Default)]
struct Trees {
    tiered: bool,
    /// Pauses compactions of the tree `silent`.
    stop: Option<Arc<Stop>>,
}

impl TreeProvider for Trees {
    fn tree_options(&self, name: &str, _: &[u8]) -> Result<TreeOptions> {
        let policy: Arc<dyn esker_lsm::CompactionPolicy> = if self.tiered || name.ends_with("/bits")
        {
            Arc::new(Tiered::default())
        } else {
            Arc::new(Leveled {
                level0_runs: 2,
                level1_bytes: 4 << 10,
                multiplier: 3,
                ..Leveled::default()
            })
        };
        let plain = TreeOptions {
            policy,
            ..TreeOptions::default()
        };
        let Some((_, drop_policy)) = TREES.iter().find(|(tree, _)| *tree == name) else {
            return Ok(TreeOptions {
                bitmap: name.ends_with("/bits"),
                ..plain
            });
        };
        Ok(TreeOptions {
            superseded: Some(SupersededBy {
                tree: bits_of(name),
                drop_policy: *drop_policy,
            }),
            extractor: self
                .stop
                .clone()
                .filter(|_| name == "silent")
                .map(|stop| stop as _),
            ..plain
        })
    }
}

/// A group with the trees of [`TREES`], each before its bits.
fn create(options: Options, trees: Arc<Trees>) -> Group {
    let group = Group::open(Path::new(DIR), options, trees, true).unwrap();
    let names = TREES
        .iter()
        .flat_map(|(name, _)| [(*name).to_string(), bits_of(name)]);
    let names: Vec<(String, Vec<u8>)> = names.map(|name| (name, Vec::new())).collect();
    group.create_trees(&names).unwrap();
    group
}

fn ids(group: &Group, name: &str) -> (TreeId, TreeId) {
    (
        group.tree(name).unwrap(),
        group.tree(&bits_of(name)).unwrap(),
    )
}

/// The writes of a tree, by key, oldest first.
type Past = BTreeMap<Vec<u8>, Vec<(Seq, Kind)>>;

/// Puts with newer writes of their key, and the number of the next one.
fn replaced(past: &Past) -> BTreeMap<Seq, Seq> {
    let pairs = past.values().flat_map(|writes| writes.windows(2));
    let puts = pairs.filter(|pair| pair[0].1 == Kind::Put);
    puts.map(|pair| (pair[0].0, pair[1].0)).collect()
}

/// The numbers of the puts that are stored.
fn stored(snapshot: &Snapshot, tree: TreeId) -> BTreeSet<Seq> {
    let mut stored = BTreeSet::new();
    let mut cursor = snapshot.entries(tree, 0);
    cursor.seek_first().unwrap();
    while cursor.valid() {
        if cursor.kind() == Kind::Put {
            stored.insert(cursor.seq());
        }
        cursor.next().unwrap();
    }
    stored
}

/// The numbers up to `last` in a bitmap tree, probed one by one.
fn bits(snapshot: &Snapshot, tree: TreeId, last: Seq) -> BTreeSet<Seq> {
    let set = snapshot.superseded(tree).unwrap();
    (1..=last + 1).filter(|seq| set.contains(*seq)).collect()
}

/// A snapshot, and its expected contents: the bits and the watermark of each tree.
struct Pinned {
    snapshot: Snapshot,
    shown: Shown,
}

struct Test {
    trees: Arc<Trees>,
    options: Options,
    group: Option<Group>,
    rng: fastrand::Rng,
    past: BTreeMap<&'static str, Past>,
    last: Seq,
    /// The bits set by writers and repairs, per tree.
    set: BTreeMap<&'static str, BTreeSet<Seq>>,
    mark: Seq,
    pinned: Vec<Pinned>,
    /// Named snapshots, and their expected contents: bits and watermarks, and the stored puts.
    kept: BTreeMap<String, (Shown, Vec<BTreeSet<Seq>>)>,
}

/// The bits and the watermark of each tree.
type Shown = Vec<(BTreeSet<Seq>, Seq)>;

impl Test {
    fn new(seed: u64) -> Test {
        let mut rng = fastrand::Rng::with_seed(seed);
        let fs = Memory::new();
        let trees = Arc::new(Trees {
            tiered: rng.bool(),
            stop: None,
        });
        let options = Options {
            table_size: 1 << 10,
            bitmap_merges: [BitmapMerges::SideFile, BitmapMerges::Lock][rng.usize(0..2)],
            // Sweeps run on their own, or only with full compactions.
            bitmap_slack: [0, 200, 1 << 20][rng.usize(0..3)],
            ..small(Arc::new(fs.clone()))
        };
        Test {
            group: Some(create(options.clone(), trees.clone())),
            trees,
            options,
            rng,
            past: TREES.iter().map(|(name, _)| (*name, Past::new())).collect(),
            last: 0,
            set: TREES
                .iter()
                .map(|(name, _)| (*name, BTreeSet::new()))
                .collect(),
            mark: 0,
            pinned: Vec::new(),
            kept: BTreeMap::new(),
        }
    }

    fn group(&self) -> &Group {
        self.group.as_ref().unwrap()
    }

    fn write(&mut self) {
        let mut batch = Batch::new();
        let mut number = self.last;
        for _ in 0..self.rng.usize(1..10) {
            number += 1;
            let name = TREES[self.rng.usize(0..TREES.len())].0;
            let (tree, bits) = ids(self.group(), name);
            let key = format!("key{:02}", skewed(&mut self.rng, 40)).into_bytes();
            let kind = match self.rng.usize(0..5) {
                0 => Kind::Delete,
                _ => Kind::Put,
            };
            let value = vec![b'v'; self.rng.usize(0..100)];
            match kind {
                Kind::Delete => batch.delete(tree, &key).unwrap(),
                _ => batch.put(tree, &key, &value).unwrap(),
            }
            let writes = self.past.get_mut(name).unwrap().entry(key).or_default();
            let old = writes.last().filter(|old| old.1 == Kind::Put).copied();
            writes.push((number, kind));
            // Some writers know which write they replace.
            if let (Some((old, _)), "silent") = (old, name) {
                batch.also(Kind::Put, bits, &seq_key(old), &[]).unwrap();
                self.set.get_mut(name).unwrap().insert(old);
            }
        }
        self.last = self.group().write(&mut batch, Durability::Os).unwrap();
        assert_eq!(self.last, number);
    }

    /// A staged repair: scans for replaced puts, records them, and advances the watermark.
    fn repair(&mut self) {
        let (tree, bits) = ids(self.group(), "kept");
        let snapshot = self.group().snapshot();
        let mut over = BTreeSet::new();
        let (mut cursor, mut last) = (snapshot.entries(tree, 0), None);
        cursor.seek_first().unwrap();
        while cursor.valid() {
            if last.as_deref() == Some(cursor.key()) && cursor.kind() == Kind::Put {
                over.insert(cursor.seq());
            }
            last = Some(cursor.key().to_vec());
            cursor.next().unwrap();
        }
        // Replaced puts that are no longer stored must have been in the set.
        self.mark = match self.rng.usize(0..3) {
            0 => self.rng.u64(self.mark..=self.last),
            _ => self.last,
        };
        let replaced = replaced(&self.past["kept"]);
        over.retain(|seq| replaced[seq] <= self.mark);
        let set = self.set.get_mut("kept").unwrap();
        set.extend(over.iter().copied());
        let mut numbers = over.into_iter().map(Ok);
        self.group
            .as_ref()
            .unwrap()
            .supersede(bits, &mut numbers, Some(self.mark))
            .unwrap();
    }

    fn reopen(&mut self) {
        self.pinned.clear();
        let group = self.group.take().unwrap();
        if self.rng.bool() {
            group.close().unwrap();
        }
        drop(group);
        let group = Group::open(
            Path::new(DIR),
            self.options.clone(),
            self.trees.clone(),
            false,
        );
        self.group = Some(group.unwrap());
        assert_eq!(self.group().snapshot().seq(), self.last);
    }

    fn step(&mut self) {
        match self.rng.usize(0..40) {
            0..=2 => self.group().flush().unwrap(),
            3 => self.group().run_compactions().unwrap(),
            4 => {
                let tree = TREES[self.rng.usize(0..TREES.len())].0;
                let (tree, bits) = ids(self.group(), tree);
                let tree = [None, Some(tree), Some(bits)][self.rng.usize(0..3)];
                self.group().compact(tree).unwrap();
            }
            5 => self.reopen(),
            6 | 7 => self.repair(),
            8..=10 => {
                let snapshot = self.group().snapshot();
                let shown = self.shown(&snapshot);
                self.pinned.push(Pinned { snapshot, shown });
                if self.pinned.len() > 4 {
                    let at = self.rng.usize(0..4);
                    self.pinned.swap_remove(at);
                }
            }
            11..13 => self.use_kept(),
            _ => self.write(),
        }
        self.check();
    }

    /// Keeps a named snapshot, or checks one, and sometimes drops it.
    fn use_kept(&mut self) {
        let name = format!("s{}", self.rng.usize(0..3));
        let trees = TREES.map(|(name, _)| ids(self.group(), name).0);
        let stored = |snapshot: &Snapshot| trees.map(|tree| stored(snapshot, tree)).to_vec();
        if !self.kept.contains_key(&name) {
            self.group().keep_snapshot(&name).unwrap();
            let now = self.group().snapshot();
            let expected = (self.shown(&now), stored(&now));
            self.kept.insert(name.clone(), expected);
        }
        let kept = self.group().kept_snapshot(&name).unwrap();
        let shown = (self.shown(&kept), stored(&kept));
        assert_eq!(shown, self.kept[&name]);
        if self.rng.usize(0..3) == 0 {
            self.group().drop_snapshot(&name).unwrap();
            self.kept.remove(&name);
        }
    }

    fn shown(&self, snapshot: &Snapshot) -> Shown {
        let one = |(name, _): &(&str, DropPolicy)| {
            let (_, tree) = ids(self.group(), name);
            let mark = snapshot.superseded(tree).unwrap().repair_watermark();
            (bits(snapshot, tree, self.last), mark)
        };
        TREES.iter().map(one).collect()
    }

    fn check(&self) {
        let snapshot = self.group().snapshot();
        for (name, drop_policy) in TREES {
            let (tree, bitmap) = ids(self.group(), name);
            let (past, set) = (&self.past[name], &self.set[name]);
            let (stored, bits) = (stored(&snapshot, tree), bits(&snapshot, bitmap, self.last));
            let replaced = replaced(past);
            let mark = snapshot.superseded(bitmap).unwrap().repair_watermark();
            for writes in past.values() {
                let (last, kind) = *writes.last().unwrap();
                assert_eq!(
                    stored.contains(&last),
                    kind == Kind::Put,
                    "{name}: current {last}"
                );
                assert!(
                    !bits.contains(&last),
                    "{name}: the bit of the current {last}"
                );
            }
            match drop_policy {
                // Exactly the dropped puts are recorded, swept ones included.
                DropPolicy::Record => {
                    let left_out = replaced.keys().filter(|seq| !stored.contains(*seq));
                    let left_out: BTreeSet<Seq> = left_out.copied().collect();
                    let noted = snapshot.version().trees[&bitmap].noted();
                    assert!(bits.is_subset(&left_out), "{name}");
                    assert_eq!(noted, left_out.len() as u64, "{name}");
                }
                // Only puts in the set are dropped, and the set is complete up to the watermark.
                DropPolicy::KeepUntilRepaired => {
                    assert_eq!(mark, self.mark, "{name}");
                    for (seq, by) in &replaced {
                        assert!(
                            stored.contains(seq) || set.contains(seq),
                            "{name}: {seq}, replaced by {by}, mark {mark}"
                        );
                        let known = bits.contains(seq) || !stored.contains(seq);
                        assert!(*by > mark || known, "{name}: {seq} by {by}");
                    }
                }
                DropPolicy::Silent | DropPolicy::Regardless => {}
            }
            // No number that is still stored was swept.
            if drop_policy != DropPolicy::Record {
                assert!(bits.is_subset(set), "{name}");
                let forgotten = set.difference(&bits);
                let forgotten: BTreeSet<Seq> = forgotten.copied().collect();
                assert!(forgotten.is_disjoint(&stored), "{name}");
            }
            let held = esker_lsm::held(&snapshot, bitmap).unwrap().unwrap();
            assert!(held.iter().eq(stored), "{name}");
        }
        for pinned in &self.pinned {
            let shown = pinned.shown.iter().zip(self.shown(&pinned.snapshot));
            for (then, now) in shown {
                assert_eq!(then.1, now.1);
                assert!(then.0 == now.0, "{:?} became {:?}", then.0, now.0);
            }
        }
    }
}

#[test]
fn the_bits_are_those_of_the_model() {
    for seed in seeds(esker_sim::by_tier(20, 60)) {
        let _doing = Doing(&|| format!("ESKER_SEED={seed}"));
        let mut test = Test::new(seed);
        for _ in 0..150 {
            test.step();
        }
        test.reopen();
        test.check();
        test.repair();
        test.group().compact(None).unwrap();
        test.check();
        // A single run is compacted again once there is another.
        for (name, _) in TREES {
            put(test.group(), ids(test.group(), name).0, &["zz"]);
        }
        test.group().flush().unwrap();
        test.group().compact(None).unwrap();
        // Obsolete puts are gone, whether a writer, a compaction or a repair set their bits.
        let snapshot = test.group().snapshot();
        for (name, _) in TREES {
            let (tree, bitmap) = ids(test.group(), name);
            let stored = stored(&snapshot, tree);
            assert!(stored.is_disjoint(&test.set[name]), "{name}");
            // Their bits are no longer needed.
            assert!(bits(&snapshot, bitmap, test.last).is_empty(), "{name}");
            assert!(snapshot.version().trees[&bitmap].runs.is_empty());
        }
        let report = test.group().check();
        assert!(report.errors.is_empty(), "{:?}", report.errors);
        let cost = Cost::default();
        for (name, past) in &test.past {
            let (tree, _) = ids(test.group(), name);
            for (key, writes) in past {
                let found = snapshot.get(tree, key, &cost).unwrap();
                let last = writes.last().filter(|last| last.1 == Kind::Put);
                assert_eq!(found.map(|found| found.seq), last.map(|last| last.0));
            }
        }
    }
}

fn put(group: &Group, tree: TreeId, keys: &[&str]) -> Seq {
    let mut batch = Batch::new();
    for key in keys {
        batch.put(tree, key.as_bytes(), b"value").unwrap();
    }
    group.write(&mut batch, Durability::Os).unwrap()
}

#[test]
fn many_bits_of_a_memtable_are_seen_from_their_write_on() {
    let group = create(small(Arc::new(Memory::new())), Arc::default());
    let (_, tree) = ids(&group, "silent");
    let mut batch = Batch::new();
    let mut snapshots = vec![group.snapshot()];
    for seq in 1..=600_u64 {
        batch.clear();
        batch.put(tree, &seq_key(seq * 3), &[]).unwrap();
        // Setting it again changes nothing for snapshots that saw it.
        batch.put(tree, &seq_key(seq), &[]).unwrap();
        group.write(&mut batch, Durability::Os).unwrap();
        if seq % 200 == 0 {
            snapshots.push(group.snapshot());
        }
    }
    for _ in 0..2 {
        for (at, snapshot) in snapshots.iter().enumerate() {
            let upto = at as u64 * 200;
            let set = snapshot.superseded(tree).unwrap();
            for seq in 0..2000 {
                let there =
                    (1..=upto).contains(&seq) || (seq % 3 == 0 && (3..=upto * 3).contains(&seq));
                assert_eq!(set.contains(seq), there, "{seq} at {upto}");
            }
        }
        group.flush().unwrap();
        group.compact(None).unwrap();
    }
}

/// Pauses a compaction at the first entry that it writes once armed, until it is released.
struct Stop {
    armed: AtomicBool,
    reached: Mutex<mpsc::Sender<()>>,
    go_on: Mutex<mpsc::Receiver<()>>,
}

impl Extractor for Stop {
    fn ids(&self) -> &[u32] {
        &[1]
    }
    fn extract(&self, _: &[u8], _: &[u8], _: &mut dyn FnMut(usize, &[u8])) {
        if self.armed.swap(false, Ordering::SeqCst) {
            self.reached.lock().unwrap().send(()).unwrap();
            self.go_on.lock().unwrap().recv().unwrap();
        }
    }
}

/// Tiered trees whose compactions of `silent` pause; what receives when one does, and what releases
/// it.
fn pausing() -> (Arc<Trees>, Arc<Stop>, mpsc::Receiver<()>, mpsc::Sender<()>) {
    let (reached, was_reached) = mpsc::channel();
    let (go_on, goes_on) = mpsc::channel();
    let stop = Arc::new(Stop {
        armed: AtomicBool::new(false),
        reached: Mutex::new(reached),
        go_on: Mutex::new(goes_on),
    });
    let trees = Arc::new(Trees {
        tiered: true,
        stop: Some(stop.clone()),
    });
    (trees, stop, was_reached, go_on)
}

#[test]
fn a_bit_set_during_a_compaction_is_kept_and_applies_at_once_to_a_live_set() {
    for bitmap_merges in [BitmapMerges::SideFile, BitmapMerges::Lock] {
        let (trees, stop, was_reached, go_on) = pausing();
        let options = Options {
            bitmap_merges,
            ..small(Arc::new(Memory::new()))
        };
        let group = create(options, trees);
        let (tree, bitmap) = ids(&group, "silent");
        let z = put(&group, tree, &["a", "z"]);
        group.flush().unwrap();
        put(&group, tree, &["a"]);
        group.flush().unwrap();
        let before = group.snapshot();
        stop.armed.store(true, Ordering::SeqCst);
        std::thread::scope(|scope| {
            let merge = scope.spawn(|| group.compact(Some(tree)).unwrap());
            was_reached.recv().unwrap();
            // The compaction has read past `a`. Now `z` is rewritten, and the bit of its old
            // version set.
            put(&group, tree, &["z"]);
            group.flush().unwrap();
            group
                .supersede(bitmap, &mut [Ok(z)].into_iter(), None)
                .unwrap();
            go_on.send(()).unwrap();
            merge.join().unwrap();
        });
        let after = group.snapshot();
        assert!(after.superseded(bitmap).unwrap().contains(z));
        let at_once = bitmap_merges == BitmapMerges::Lock;
        assert_eq!(
            stored(&after, tree).contains(&z),
            !at_once,
            "{bitmap_merges:?}"
        );
        assert!(!before.superseded(bitmap).unwrap().contains(z));
        assert!(stored(&before, tree).contains(&z));
        group.compact(Some(tree)).unwrap();
        assert!(!stored(&group.snapshot(), tree).contains(&z));
        let cost = Cost::default();
        for key in ["a", "z"] {
            assert!(
                group
                    .snapshot()
                    .get(tree, key.as_bytes(), &cost)
                    .unwrap()
                    .is_some()
            );
        }
    }
}

/// A sweep finds no entry of a write that no table has yet. Were its number removed from the set,
/// the next flush would bring an obsolete entry that counts as current, as an index entry: no newer
/// entry has its key.
#[test]
fn a_sweep_keeps_the_numbers_of_writes_that_only_memtables_have() {
    let (trees, stop, was_reached, go_on) = pausing();
    let group = create(small(Arc::new(Memory::new())), trees);
    let (tree, bitmap) = ids(&group, "silent");
    for keys in [["blue/1", "red/2"], ["blue/3", "red/4"]] {
        put(&group, tree, &keys);
        group.flush().unwrap();
    }
    stop.armed.store(true, Ordering::SeqCst);
    let new = std::thread::scope(|scope| {
        let compaction = scope.spawn(|| group.compact_trees(&[tree, bitmap]).unwrap());
        // The compaction has flushed the memtables, and the sweep comes behind it.
        was_reached.recv().unwrap();
        let old = put(&group, tree, &["red/5"]);
        let new = put(&group, tree, &["blue/5"]);
        group
            .supersede(bitmap, &mut [Ok(old)].into_iter(), Some(new))
            .unwrap();
        go_on.send(()).unwrap();
        compaction.join().unwrap();
        new
    });
    group.flush().unwrap();
    let snapshot = group.snapshot();
    let set = snapshot.superseded(bitmap).unwrap();
    assert_eq!(set.repair_watermark(), new);
    // Up to the watermark, what is not in the set is current.
    let mut current = Vec::new();
    let mut cursor = snapshot.cursor(tree, 0);
    cursor.seek_first().unwrap();
    while cursor.valid() {
        if !set.contains(cursor.seq()) {
            current.push(String::from_utf8(cursor.key().to_vec()).unwrap());
        }
        cursor.next().unwrap();
    }
    assert_eq!(current, ["blue/1", "blue/3", "blue/5", "red/2", "red/4"]);
}

#[test]
fn the_replacing_write_is_durable_before_the_bit() {
    for mode in [PowerCut::Lost, PowerCut::Torn, PowerCut::Reordered] {
        let memory = Memory::new();
        let options = small(Arc::new(memory.clone()));
        let group = create(options, Arc::default());
        let (tree, bitmap) = ids(&group, "silent");
        let old = put(&group, tree, &["k"]);
        group.flush().unwrap();
        let new = put(&group, tree, &["k"]);
        group
            .supersede(bitmap, &mut [Ok(old)].into_iter(), Some(new))
            .unwrap();
        let left = memory.power_cut(1, mode);
        drop(group);
        let options = small(Arc::new(left));
        let group = Group::open(Path::new(DIR), options, Arc::<Trees>::default(), false).unwrap();
        let snapshot = group.snapshot();
        let set = snapshot.superseded(bitmap).unwrap();
        assert!(
            set.repair_watermark() <= snapshot.seq(),
            "{mode:?}: numbers come again"
        );
        let found = snapshot.get(tree, b"k", &Cost::default()).unwrap().unwrap();
        assert!(
            !set.contains(found.seq),
            "{mode:?}: the current write is obsolete"
        );
        assert_eq!((found.seq, set.repair_watermark()), (new, new));
    }
}

#[test]
fn damage_in_a_bitmap_tree_names_its_file_and_only_omits_numbers() {
    let memory = Memory::new();
    let options = || Options {
        share_from: usize::MAX,
        ..small(Arc::new(memory.clone()))
    };
    let group = create(options(), Arc::default());
    let (tree, bitmap) = ids(&group, "recorded");
    for _ in 0..3 {
        put(&group, tree, &["a", "b", "c"]);
    }
    group.close().unwrap();
    drop(group);
    let open = || Group::open(Path::new(DIR), options(), Arc::<Trees>::default(), false);
    let group = open().unwrap();
    group.flush().unwrap();
    let snapshot = group.snapshot();
    let right = bits(&snapshot, bitmap, 9);
    assert_eq!(right, (1..=6).collect());
    let runs = &snapshot.version().trees[&bitmap].runs;
    let paths: Vec<PathBuf> = runs
        .iter()
        .flat_map(|run| run.tables.iter().map(|table| table.path()))
        .collect();
    let [path] = paths.as_slice() else {
        panic!("{paths:?}");
    };
    drop(snapshot);
    group.close().unwrap();
    drop(group);
    let good = memory.read(path).unwrap();
    let names_it = |error: &Error| match error {
        Error::Corruption { path: at, .. }
        | Error::Io { path: at, .. }
        | Error::NewerFormat { path: at, .. } => assert_eq!(at, path),
        other => panic!("{other:?}"),
    };
    let mut errors = 0;
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        memory.write(path, &bad);
        let snapshot = open().unwrap().snapshot();
        let found = bits(&snapshot, bitmap, 9);
        match snapshot.version().trees[&bitmap].damage() {
            Some(error) => {
                names_it(error);
                assert!(!snapshot.superseded(bitmap).unwrap().is_whole());
                assert!(found.iter().all(|seq| right.contains(seq)), "byte {at}");
                errors += 1;
            }
            None => assert_eq!(found, right, "byte {at}"),
        }
    }
    assert!(errors * 2 > good.len(), "{errors} of {}", good.len());
    for len in 0..good.len() {
        memory.write(path, &good[..len]);
        let snapshot = open().unwrap().snapshot();
        names_it(snapshot.version().trees[&bitmap].damage().unwrap());
    }
    memory.write(path, &good);
    assert_eq!(bits(&open().unwrap().snapshot(), bitmap, 9), right);
}

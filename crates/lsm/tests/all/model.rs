//! Random operations compared with a model that remembers every write. `ESKER_SEEDS=1000 cargo test
//! -p esker-lsm --test all model::` runs more seeds; `ESKER_SEED=17` repeats one.

use crate::common;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use crate::common::{DIR, Doing, bytes, is_mapped, seeds, skewed, small};
use esker_lsm::attributes::{Extractor, Summary};
use esker_lsm::fs::Fs;
use esker_lsm::merge::{
    CompactionFilter, CompactionFilterFactory, Decision, FilteredEntry, MergeOperator,
    ObsoleteWrites,
};
use esker_lsm::{
    Batch, Cost, Cursor, Durability, Group, Kind, Leveled, LogMode, MAX_SEQ, Options, Result, Seq,
    Snapshot, Tiered, TreeId, TreeOptions, TreeProvider,
};
use esker_sim::memory::Memory;

/// The kinds of trees in this test; the first word of a tree's name selects one.
const FLAVOURS: [&str; 9] = [
    "plain", "tiered", "list", "many", "expire", "lead", "follow", "lazy", "tiles",
];

/// Appends pieces while they are short.
struct Append;

impl MergeOperator for Append {
    fn combine(
        &self,
        _: &[u8],
        newer: &mut Vec<u8>,
        newer_seq: Seq,
        older: &[u8],
        seq: Seq,
    ) -> bool {
        assert!(seq < newer_seq);
        let fits = newer.len() + older.len() <= 60;
        if fits {
            newer.extend_from_slice(older);
        }
        fits
    }
}

/// Values that start with `x` expire, those with `r` are rewritten as `R`.
struct Expire;

impl CompactionFilterFactory for Expire {
    fn begin(&self, _: &ObsoleteWrites) -> Box<dyn CompactionFilter> {
        Box::new(Expire)
    }
}

impl CompactionFilter for Expire {
    fn decide(&mut self, entry: FilteredEntry<'_>, _: &mut dyn FnMut() -> bool) -> Decision {
        assert_ne!(entry.kind, Kind::Delete);
        match entry.value.first() {
            Some(b'x') => Decision::Drop,
            Some(b'r') => Decision::Rewrite(rewritten(entry.value)),
            _ => Decision::Keep,
        }
    }
}

fn rewritten(value: &[u8]) -> Vec<u8> {
    [b"R", &value[1..]].concat()
}

/// Two attributes: the first byte, and each of the last three.
struct Ends;

impl Extractor for Ends {
    fn ids(&self) -> &[u32] {
        &[7, 3]
    }
    fn summary(&self, slot: usize) -> Summary {
        [Summary::Filters, Summary::Fingerprints][slot]
    }
    fn extract(&self, _: &[u8], value: &[u8], emit: &mut dyn FnMut(usize, &[u8])) {
        if let Some(first) = value.first() {
            emit(0, &[*first]);
        }
        for byte in value.iter().rev().take(3) {
            emit(1, &[*byte]);
        }
    }
}

#[derive(Default)]
struct Trees;

impl TreeProvider for Trees {
    fn tree_options(&self, name: &str, config: &[u8]) -> Result<TreeOptions> {
        assert_eq!(config, name.as_bytes());
        let leveled: Arc<dyn esker_lsm::CompactionPolicy> = Arc::new(Leveled {
            level0_runs: 2,
            level1_bytes: 16 << 10,
            multiplier: 3,
            next: esker_lsm::NextTable::FewestOverlapped,
        });
        let tiered: Arc<dyn esker_lsm::CompactionPolicy> = Arc::new(Tiered {
            ratio: 1.2,
            largest_mergeable: 1 << 20,
        });
        let plain = TreeOptions::default();
        Ok(match flavour(name) {
            "plain" => TreeOptions {
                policy: leveled,
                ..plain
            },
            "tiered" => TreeOptions {
                policy: tiered,
                extractor: Some(Arc::new(Ends)),
                filter_bits_per_key: 0,
                ..plain
            },
            "list" => TreeOptions {
                policy: leveled,
                operator: Some(Arc::new(Append)),
                ..plain
            },
            "many" => TreeOptions {
                policy: leveled,
                versions: 3,
                ..plain
            },
            "expire" => TreeOptions {
                policy: leveled,
                filter: Some(Arc::new(Expire)),
                versions: 1 + usize::from(name.ends_with(['1', '3', '5', '7', '9'])),
                ..plain
            },
            "lazy" => common::lazy(),
            "tiles" => common::toy::tiles(),
            "lead" => TreeOptions {
                policy: tiered,
                ..plain
            },
            _ => TreeOptions {
                policy: tiered,
                follows: Some("lead".to_string()),
                ..plain
            },
        })
    }
}

fn flavour(name: &str) -> &str {
    name.split('-').next().unwrap()
}

type Version = (Seq, Kind, Vec<u8>);

/// A write of a batch: tree, key, and the version with the number in the batch.
type Written = (TreeId, Vec<u8>, Version);

/// Everything written to a tree; per key the oldest first.
#[derive(Default)]
struct Past {
    name: String,
    keys: BTreeMap<Vec<u8>, Vec<Version>>,
}

impl Past {
    /// The versions of a key visible to a snapshot, newest first.
    fn versions(&self, key: &[u8], seq: Seq) -> impl Iterator<Item = &Version> {
        let all = self.keys.get(key).map_or(&[][..], |all| all);
        all.iter().rev().filter(move |version| version.0 <= seq)
    }

    /// The keys with a value at `seq`, with the version that set it.
    fn live(&self, seq: Seq) -> Vec<(&[u8], &Version)> {
        let newest = |key: &Vec<u8>| self.versions(key, seq).next();
        self.keys
            .keys()
            .filter_map(|key| Some((key.as_slice(), newest(key)?)))
            .filter(|(_, version)| version.1 != Kind::Delete)
            .collect()
    }
}

struct Test {
    fs: Memory,
    trees: Arc<Trees>,
    group: Option<Group>,
    past: BTreeMap<TreeId, Past>,
    alive: BTreeSet<TreeId>,
    snapshots: Vec<Snapshot>,
    /// Named snapshots, and their sequence numbers.
    kept: BTreeMap<String, Seq>,
    rng: fastrand::Rng,
    made: usize,
    /// Whether `compact` was called, which compacts everything whether or not a lead needs it.
    compacted: bool,
    last_seq: Seq,
    /// The log, where it is the test's: batches, each with the writes in it.
    log: Option<Vec<Vec<Written>>>,
    mapped_reads: bool,
}

/// The tree with the number of the last batch that was applied, where the log is the test's.
const STATE: &str = "plain-state";
const APPLIED: &[u8] = b"applied";

impl Test {
    fn new(seed: u64, log: LogMode) -> Test {
        let mut test = Test {
            fs: Memory::new(),
            trees: Arc::default(),
            group: None,
            past: BTreeMap::new(),
            alive: BTreeSet::new(),
            snapshots: Vec::new(),
            kept: BTreeMap::new(),
            rng: fastrand::Rng::with_seed(seed),
            made: 0,
            compacted: false,
            last_seq: 0,
            log: (log == LogMode::External).then(Vec::new),
            mapped_reads: is_mapped(seed),
        };
        test.reopen();
        if test.log.is_some() {
            test.create_named(vec![STATE.to_string()]);
        }
        test.create(&["lead", "follow"]);
        let first = FLAVOURS[test.rng.usize(0..5)];
        test.create(&[first, FLAVOURS[2]]);
        test
    }

    fn group(&self) -> &Group {
        self.group.as_ref().unwrap()
    }

    fn reopen(&mut self) {
        self.check_snapshots();
        self.snapshots.clear();
        let (mut is_killed, mut durable) = (false, 0);
        if let Some(group) = self.group.take() {
            match self.rng.usize(0..4) {
                0..2 => group.close().unwrap(),
                2 if self.log.is_some() => {
                    durable = group.durable_seq();
                    group.give_up();
                    is_killed = true;
                }
                _ => {}
            }
        }
        let options = Options {
            log: match self.log {
                Some(_) => LogMode::External,
                None => LogMode::Own,
            },
            mapped_reads: self.mapped_reads,
            ..small(Arc::new(self.fs.clone()))
        };
        let group = Group::open(Path::new(DIR), options, self.trees.clone(), true);
        self.group = Some(group.unwrap());
        if is_killed {
            assert_eq!(self.group().snapshot().seq(), durable);
            self.apply_again();
        }
        assert_eq!(self.group().snapshot().seq(), self.last_seq);
        for id in &self.alive {
            assert_eq!(self.group().tree(&self.past[id].name), Some(*id));
        }
        self.check_kept();
    }

    /// After the process was killed: applies the batches of the log that the trees do not have.
    fn apply_again(&mut self) {
        let snapshot = self.group().snapshot();
        let state = self.group().tree(STATE).unwrap();
        let applied = snapshot.get(state, APPLIED, &Cost::default()).unwrap();
        let applied = applied.map_or(0, |found| {
            usize::from_le_bytes(found.value.as_ref().try_into().unwrap())
        });
        // Lost.
        self.last_seq = snapshot.seq();
        for past in self.past.values_mut() {
            for versions in past.keys.values_mut() {
                versions.retain(|version| version.0 <= snapshot.seq());
            }
            past.keys.retain(|_, versions| !versions.is_empty());
        }
        self.check(&snapshot);
        let rest = self.log.as_ref().unwrap()[applied..].to_vec();
        for written in rest {
            let mut batch = Batch::new();
            let mut number = 0;
            for (tree, key, (of, kind, value)) in &written {
                let is_new = std::mem::replace(&mut number, *of) != *of;
                match (is_new, kind) {
                    (false, _) => batch.also(*kind, *tree, key, value).unwrap(),
                    (true, Kind::Delete) => batch.delete(*tree, key).unwrap(),
                    (true, Kind::Operand) => batch.operand(*tree, key, value).unwrap(),
                    (true, _) => batch.put(*tree, key, value).unwrap(),
                }
            }
            self.commit(&mut batch, Durability::Sync, written, number);
        }
    }

    /// Keeps a named snapshot, or checks or drops one.
    fn use_kept(&mut self) {
        let name = format!("s{}", self.rng.usize(0..6));
        match self.kept.contains_key(&name) {
            false => {
                assert!(self.group().kept_snapshot(&name).is_err());
                assert!(self.group().drop_snapshot(&name).is_err());
                let seq = self.group().keep_snapshot(&name).unwrap();
                assert_eq!(seq, self.last_seq);
                self.kept.insert(name, seq);
            }
            true if self.rng.bool() => {
                assert!(self.group().keep_snapshot(&name).is_err());
                let snapshot = self.group().kept_snapshot(&name).unwrap();
                self.check(&snapshot);
            }
            true => {
                let snapshot = self.group().kept_snapshot(&name).unwrap();
                self.group().drop_snapshot(&name).unwrap();
                self.kept.remove(&name);
                // A held snapshot stays readable.
                if self.rng.bool() {
                    self.check(&snapshot)
                } else {
                    self.snapshots.push(snapshot);
                }
            }
        }
    }

    fn check_kept(&mut self) {
        let listed = self.group().snapshots().into_iter();
        let listed: BTreeMap<String, Seq> = listed.map(|kept| (kept.name, kept.seq)).collect();
        assert_eq!(listed, self.kept);
        for name in listed.keys() {
            let snapshot = self.group().kept_snapshot(name).unwrap();
            assert_eq!(snapshot.seq(), self.kept[name]);
            self.check(&snapshot);
        }
    }

    fn create(&mut self, flavours: &[&str]) {
        let names: Vec<(String, Vec<u8>)> = flavours
            .iter()
            .map(|flavour| {
                self.made += 1;
                match *flavour {
                    "lead" => "lead".to_string(),
                    flavour => format!("{flavour}-{}", self.made),
                }
            })
            .map(|name| (name.clone(), name.into_bytes()))
            .collect();
        self.create_trees(names);
    }

    fn create_named(&mut self, names: Vec<String>) {
        let configured = |name: String| (name.clone(), name.into_bytes());
        self.create_trees(names.into_iter().map(configured).collect());
    }

    fn create_trees(&mut self, names: Vec<(String, Vec<u8>)>) {
        let ids = self.group().create_trees(&names).unwrap();
        for (id, (name, _)) in ids.into_iter().zip(names) {
            let keys = BTreeMap::new();
            assert!(self.past.insert(id, Past { name, keys }).is_none());
            self.alive.insert(id);
        }
    }

    fn drop_one(&mut self) {
        let id = self.any_tree();
        let name = self.past[&id].name.as_str();
        if name != "lead" && name != STATE && self.alive.len() > 3 {
            if self.log.is_some() {
                // No batch that is applied again may write to it.
                self.group().flush().unwrap();
            }
            self.group().drop_trees(&[id]).unwrap();
            self.alive.remove(&id);
            assert_eq!(self.group().tree(&self.past[&id].name), None);
            assert!(self.group().drop_trees(&[id]).is_err());
            let mut batch = Batch::new();
            batch.put(id, b"k", b"v").unwrap();
            assert!(self.group().write(&mut batch, Durability::Os).is_err());
        }
    }

    fn any_tree(&mut self) -> TreeId {
        let at = self.rng.usize(0..self.alive.len());
        *self.alive.iter().nth(at).unwrap()
    }

    fn any_key(&mut self) -> Vec<u8> {
        let n = skewed(&mut self.rng, 60);
        // Keys that are prefixes of others, and an empty one.
        if n < 3 {
            vec![b'k'; n]
        } else {
            format!("k{:03}", n * 7 % 60).into_bytes()
        }
    }

    fn any_value(&mut self) -> Vec<u8> {
        let len = match self.rng.usize(0..20) {
            0 => 0,
            1 => self.rng.usize(1000..5000),
            _ => skewed(&mut self.rng, 300),
        };
        let mut value = bytes(&mut self.rng, len);
        if let Some(first) = value.first_mut() {
            *first = *self.rng.choice(b"xrab".iter()).unwrap();
        }
        value
    }

    fn write(&mut self) {
        let mut batch = Batch::new();
        let mut written: Vec<Written> = Vec::new();
        let mut number = 0;
        for _ in 0..1 + skewed(&mut self.rng, 12) {
            let (tree, key) = (self.any_tree(), self.any_key());
            let list = flavour(&self.past[&tree].name) == "list";
            let kind = match self.rng.usize(0..10) {
                0..3 => Kind::Delete,
                3..9 if list => Kind::Operand,
                _ => Kind::Put,
            };
            let value = match kind {
                Kind::Delete => Vec::new(),
                Kind::Operand => self.rng.u32(..).to_le_bytes().to_vec(),
                _ => self.any_value(),
            };
            let twice = written
                .iter()
                .any(|w| (w.0, &w.1, w.2.0) == (tree, &key, number));
            if number > 0 && !twice && self.rng.bool() {
                batch.also(kind, tree, &key, &value).unwrap();
            } else {
                number += 1;
                match kind {
                    Kind::Delete => batch.delete(tree, &key).unwrap(),
                    Kind::Operand => batch.operand(tree, &key, &value).unwrap(),
                    _ => batch.put(tree, &key, &value).unwrap(),
                }
            }
            written.push((tree, key, (number, kind, value)));
            if self.rng.usize(0..30) == 0 {
                let savepoint = batch.savepoint();
                batch.put(tree, b"never", b"written").unwrap();
                batch.rewind(savepoint);
            }
        }
        let durability = match self.rng.usize(0..3) {
            0 => Durability::Sync,
            1 => Durability::Periodic(std::time::Duration::from_secs(1)),
            _ => Durability::Os,
        };
        if let Some(log) = &mut self.log {
            // In the log first.
            let state = self.group.as_ref().unwrap().tree(STATE).unwrap();
            let applied = (log.len() + 1).to_le_bytes();
            batch.put(state, APPLIED, &applied).unwrap();
            number += 1;
            let version = (number, Kind::Put, applied.to_vec());
            written.push((state, APPLIED.to_vec(), version));
            log.push(written.clone());
        }
        self.commit(&mut batch, durability, written, number);
    }

    /// Writes a batch with so many numbers.
    fn commit(
        &mut self,
        batch: &mut Batch,
        durability: Durability,
        written: Vec<Written>,
        numbers: u64,
    ) {
        let last = self.group().write(batch, durability).unwrap();
        let before = last - numbers;
        // Behind a kill the numbers that were reserved are not used again.
        let fits = match self.log {
            Some(_) => before >= self.last_seq,
            None => before == self.last_seq,
        };
        assert!(fits, "{before} behind {}", self.last_seq);
        for (tree, key, (number, kind, value)) in written {
            let past = self.past.get_mut(&tree).unwrap();
            let versions = past.keys.entry(key).or_default();
            versions.push((before + number, kind, value));
        }
        self.last_seq = last;
    }

    fn step(&mut self) {
        match self.rng.usize(0..100) {
            0..3 => self.group().flush().unwrap(),
            3 => {
                let tree = self.any_tree();
                let tree = self.rng.bool().then_some(tree);
                self.group().compact(tree).unwrap();
                self.compacted = true;
            }
            4..6 => {
                self.group().run_compactions().unwrap();
                if !self.compacted {
                    self.check_components();
                }
            }
            6 => self.reopen(),
            7 => {
                let flavour = FLAVOURS[self.rng.usize(0..FLAVOURS.len())];
                if flavour != "lead" {
                    self.create(&[flavour]);
                }
            }
            8 if self.rng.bool() => self.drop_one(),
            9..12 => {
                let snapshot = self.group().snapshot();
                assert_eq!(snapshot.seq(), self.last_seq);
                self.snapshots.push(snapshot);
                if self.snapshots.len() > 4 {
                    let at = self.rng.usize(0..self.snapshots.len());
                    let old = self.snapshots.swap_remove(at);
                    self.check(&old);
                }
            }
            12..15 => self.use_kept(),
            15..18 => {
                let snapshot = self.group().snapshot();
                self.check(&snapshot);
            }
            _ => self.write(),
        }
    }

    fn check_snapshots(&mut self) {
        for snapshot in std::mem::take(&mut self.snapshots) {
            self.check(&snapshot);
        }
    }

    /// Compares a snapshot with the history.
    fn check(&mut self, snapshot: &Snapshot) {
        let mut rng = self.rng.fork();
        for (id, past) in &self.past {
            if !snapshot.version().trees.contains_key(id) {
                continue;
            }
            check_keys(snapshot, *id, past, &mut rng);
            check_entries(snapshot, *id, past);
            if flavour(&past.name) != "expire" {
                check_cursor(snapshot, *id, past, &mut rng);
            }
        }
    }

    /// Followers have compacted the same components as their lead.
    fn check_components(&self) {
        let snapshot = self.group().snapshot();
        let trees = &snapshot.version().trees;
        let lead = trees.values().find(|tree| tree.name == "lead").unwrap();
        for tree in trees
            .values()
            .filter(|tree| flavour(&tree.name) == "follow")
        {
            for pair in tree.runs.windows(2) {
                let both = pair[0].component().hull(pair[1].component());
                let merged = lead.runs.iter().any(|run| run.component().includes(both));
                assert!(!merged, "{} is behind its lead", tree.name);
            }
            for run in &tree.runs {
                let (component, apart) =
                    (run.component(), |lead: &esker_lsm::version::ComponentId| {
                        lead.max < run.component().min || run.component().max < lead.min
                    });
                let fits = lead.runs.iter().map(|run| run.component()).all(|lead| {
                    lead.includes(component) || component.includes(lead) || apart(&lead)
                });
                assert!(fits, "{} has merged across its lead", tree.name);
            }
        }
    }
}

/// Whether a value can be that of a version, in a tree of this kind.
fn same(past: &Past, version: &Version, kind: Kind, value: &[u8]) -> bool {
    match (flavour(&past.name), version.1) {
        ("list", Kind::Operand) => kind == Kind::Operand && value.starts_with(&version.2),
        ("expire", Kind::Put) if version.2.first() == Some(&b'r') => {
            kind == Kind::Put && (value == version.2 || value == rewritten(&version.2))
        }
        ("expire", Kind::Put) if version.2.first() == Some(&b'x') => {
            (kind == Kind::Put && value == version.2) || (kind == Kind::Delete && value.is_empty())
        }
        (_, is) => kind == is && value == version.2,
    }
}

/// True when a version may be hidden.
fn may_be_gone(past: &Past, version: Option<&Version>) -> bool {
    match version {
        None => true,
        Some((_, Kind::Delete, _)) => true,
        Some((_, _, value)) => flavour(&past.name) == "expire" && value.first() == Some(&b'x'),
    }
}

/// Single keys, batches of keys, and walks.
fn check_keys(snapshot: &Snapshot, id: TreeId, past: &Past, rng: &mut fastrand::Rng) {
    let cost = Cost::default();
    let mut keys: Vec<&[u8]> = past.keys.keys().map(Vec::as_slice).collect();
    keys.extend([&b"absent"[..], b"k0000", b"zz"]);
    keys.retain(|_| rng.usize(0..3) > 0);
    // Some of them twice.
    keys.extend_from_within(..keys.len() / 3);
    keys.sort();
    let mut batched = Vec::new();
    snapshot.get_batch(id, &keys, &mut batched, &cost).unwrap();
    assert_eq!(batched.len(), keys.len());
    for (key, batched) in keys.iter().zip(batched) {
        let found = snapshot.get(id, key, &cost).unwrap();
        assert_eq!(found, batched, "{} {key:?}", past.name);
        let newest = past.versions(key, snapshot.seq()).next();
        match (&found, newest) {
            (Some(found), Some(newest)) => {
                assert_eq!(found.seq, newest.0, "{} {key:?}", past.name);
                assert!(
                    same(past, newest, found.kind, &found.value),
                    "{} {key:?} {found:?} {newest:?}",
                    past.name
                );
            }
            (None, newest) => assert!(may_be_gone(past, newest), "{} {key:?}", past.name),
            (Some(_), None) => panic!("{} {key:?}: {found:?} from nowhere", past.name),
        }
        check_walk(snapshot, id, past, key);
    }
}

fn check_walk(snapshot: &Snapshot, id: TreeId, past: &Past, key: &[u8]) {
    let mut walk = snapshot.walk(id, key);
    let mut walked: Vec<Version> = Vec::new();
    while let Some(entry) = walk.next_entry().unwrap() {
        walked.push((entry.seq, entry.kind, entry.value.to_vec()));
    }
    assert!(walked.windows(2).all(|pair| pair[0].0 > pair[1].0));
    let seq = snapshot.seq();
    check_versions(past, key, seq, &walked);
}

/// Compares the entries of one key, newest first, with the history.
fn check_versions(past: &Past, key: &[u8], seq: Seq, found: &[Version]) {
    let name = &past.name;
    if flavour(name) == "list" {
        let read = list(found.iter());
        let expected = list(past.versions(key, seq));
        assert_eq!(read, expected, "{name} {key:?}");
        return;
    }
    for entry in found {
        let version = past.versions(key, seq).find(|version| version.0 == entry.0);
        let version = version.unwrap_or_else(|| panic!("{name} {key:?}: {entry:?} from nowhere"));
        assert!(
            same(past, version, entry.1, &entry.2),
            "{name} {key:?} {entry:?}"
        );
    }
    let newest = past.versions(key, seq).next();
    match found.first() {
        Some(first) => assert_eq!(
            Some(first.0),
            newest.map(|newest| newest.0),
            "{name} {key:?}"
        ),
        None => assert!(may_be_gone(past, newest), "{name} {key:?}"),
    }
    if flavour(name) == "many" {
        for (entry, version) in found.iter().zip(past.versions(key, seq)).take(3) {
            assert_eq!(entry, version, "{name} {key:?}");
        }
        // A delete without older entries hides nothing.
        let kept: Vec<&Version> = past.versions(key, seq).take(3).collect();
        let there = kept.iter().rposition(|version| version.1 != Kind::Delete);
        let there = there.map_or(0, |last| last + 1);
        assert!(
            found.len() >= there,
            "{name} {key:?}: {} of {there}",
            found.len()
        );
    }
}

/// The combined operands of a key, down to the first put or delete.
fn list<'v>(versions: impl Iterator<Item = &'v Version>) -> Vec<u8> {
    let mut all = Vec::new();
    for (_, kind, value) in versions {
        all.extend_from_slice(value);
        if *kind != Kind::Operand {
            break;
        }
    }
    all
}

/// All entries, forward and backward.
fn check_entries(snapshot: &Snapshot, id: TreeId, past: &Past) {
    let mut cursor = snapshot.entries(id, if id.is_multiple_of(2) { 0 } else { 4096 });
    let mut forward: Vec<(Vec<u8>, Version)> = Vec::new();
    let entry = |cursor: &dyn Cursor| {
        assert_eq!(&*cursor.value_slice(), cursor.value());
        let version = (cursor.seq(), cursor.kind(), cursor.value().to_vec());
        (cursor.key().to_vec(), version)
    };
    cursor.seek_first().unwrap();
    while cursor.valid() {
        forward.push(entry(&cursor));
        cursor.next().unwrap();
    }
    let mut backward = Vec::new();
    cursor.seek_last().unwrap();
    while cursor.valid() {
        backward.push(entry(&cursor));
        cursor.prev().unwrap();
    }
    backward.reverse();
    assert_eq!(forward, backward, "{}", past.name);
    let mut by_key: BTreeMap<Vec<u8>, Vec<Version>> = BTreeMap::new();
    for (key, version) in forward {
        let versions = by_key.entry(key).or_default();
        assert!(versions.last().is_none_or(|last| last.0 > version.0));
        versions.push(version);
    }
    for key in past.keys.keys() {
        let found = by_key.remove(key).unwrap_or_default();
        check_versions(past, key, snapshot.seq(), &found);
    }
    assert!(by_key.is_empty(), "{}: {by_key:?} from nowhere", past.name);
}

/// Random moves of a cursor.
fn check_cursor(snapshot: &Snapshot, id: TreeId, past: &Past, rng: &mut fastrand::Rng) {
    let mut live = past.live(snapshot.seq());
    let mut cursor = snapshot.cursor(id, if rng.bool() { 0 } else { 2048 });
    if rng.bool() {
        let mut bound = || format!("k{:03}", rng.usize(0..64)).into_bytes();
        let (lo, hi) = (bound(), bound());
        let (lo, hi) = match rng.u8(0..4) {
            0 => (Vec::new(), Some(hi)),
            1 => (lo, None),
            _ => (lo, Some(hi)),
        };
        cursor.within(&lo, hi.as_deref());
        let is_before = |key: &[u8]| hi.as_deref().is_none_or(|hi| key < hi);
        live.retain(|(key, _)| *key >= lo.as_slice() && is_before(key));
    }
    let mut at: Option<usize> = None;
    let inside = |at: usize| Some(at).filter(|at| *at < live.len());
    for _ in 0..80 {
        match rng.usize(0..12) {
            0 => {
                cursor.seek_first().unwrap();
                at = inside(0);
            }
            1 => {
                cursor.seek_last().unwrap();
                at = live.len().checked_sub(1);
            }
            2 | 3 => {
                let key = format!("k{:03}", rng.usize(0..64)).into_bytes();
                cursor.seek(&key, MAX_SEQ).unwrap();
                at = inside(live.partition_point(|(live, _)| *live < key.as_slice()));
            }
            4..8 => {
                cursor.next().unwrap();
                at = at.and_then(|at| inside(at + 1));
            }
            _ => {
                cursor.prev().unwrap();
                at = at.and_then(|at| at.checked_sub(1));
            }
        }
        assert_eq!(cursor.valid(), at.is_some(), "{}", past.name);
        if let Some((key, version)) = at.and_then(|at| live.get(at)) {
            assert_eq!(
                (cursor.key(), cursor.seq()),
                (*key, version.0),
                "{}",
                past.name
            );
            assert!(
                same(past, version, cursor.kind(), cursor.value()),
                "{}",
                past.name
            );
            assert_eq!(&*cursor.value_slice(), cursor.value());
        }
    }
}

fn run(seed: u64, log: LogMode) {
    let _doing = Doing(&|| format!("ESKER_SEED={seed}"));
    let mut test = Test::new(seed, log);
    for _ in 0..400 {
        test.step();
    }
    test.check_snapshots();
    test.check_kept();
    let report = test.group().check();
    assert!(report.errors.is_empty(), "{:?}", report.errors);
    test.group().compact(None).unwrap();
    let snapshot = test.group().snapshot();
    test.check(&snapshot);
    test.reopen();
    let snapshot = test.group().snapshot();
    test.check(&snapshot);
    for name in std::mem::take(&mut test.kept).into_keys() {
        test.group().drop_snapshot(&name).unwrap();
    }
    drop(snapshot);
    assert_eq!(test.group().snapshot_bytes(), 0);
    test.group().close().unwrap();
    check_files(&test);
}

/// There are no unneeded table files.
fn check_files(test: &Test) {
    let snapshot = test.group().snapshot();
    let needed: BTreeSet<_> = snapshot.version().tables().map(|t| t.path()).collect();
    let there = test.fs.list(Path::new(DIR)).unwrap().into_iter();
    let there = there.map(|name| Path::new(DIR).join(name));
    let tables: BTreeSet<_> = there
        .filter(|path| path.extension().is_some_and(|e| e == "tbl"))
        .collect();
    assert_eq!(tables, needed);
}

#[test]
fn random_operations_read_as_in_the_model() {
    for seed in seeds(esker_sim::by_tier(20, 60)) {
        run(seed, LogMode::Own);
    }
}

/// With a log that is a `Vec`, and kills, behind which the rest of it is applied again.
#[test]
fn random_operations_read_as_in_the_model_with_a_log_of_the_test() {
    for seed in seeds(esker_sim::by_tier(10, 30)) {
        run(seed, LogMode::External);
    }
}

//! Entries that expire: compared with a model under a clock that steps, forward and back, through
//! flushes, compactions, held snapshots, kills and power cuts; and the store's handling of a wrong
//! clock. `ESKER_SEEDS=1000 cargo test -p esker-lsm --test all expiry::` runs more seeds;
//! `ESKER_SEED=17` repeats one.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::{DIR, Doing, lazy, seeds, skewed, small, toy};
use esker_lsm::entry::MAX_TIME;
use esker_lsm::merge::{
    CompactionFilter, CompactionFilterFactory, Decision, FilteredEntry, Filters, MergeOperator,
    ObsoleteWrites,
};
use esker_lsm::{
    Batch, Cost, Cursor, Durability, Error, Expected, Found, Group, Kind, LARGEST_JUMP, Leveled,
    LookupOptions, Options, Result, Seq, Snapshot, Tiered, Time, TreeId, TreeOptions, TreeProvider,
};
use esker_sim::memory::{Memory, PowerCut};

/// Trees by layout, and two with lists: of operands that expire as a whole, and of elements that
/// do.
const TREES: [&str; 7] = ["leveled", "tiered", "lazy", "tiles", "two", "list", "timed"];

/// Appends operands.
struct Append;

impl MergeOperator for Append {
    fn combine(&self, _: &[u8], newer: &mut Vec<u8>, _: Seq, older: &[u8], _: Seq) -> bool {
        let fits = newer.len() + older.len() <= 40;
        if fits {
            newer.extend_from_slice(older);
        }
        fits
    }
}

/// Appends elements of ten bytes: two of the element, and its expiry time.
struct Elements;

const ELEMENT: usize = 10;

fn element(id: u16, expires: Time) -> Vec<u8> {
    [&id.to_be_bytes()[..], &expires.to_be_bytes()].concat()
}

fn expires(element: &[u8]) -> Time {
    Time::from_be_bytes(element[2..].try_into().unwrap())
}

impl MergeOperator for Elements {
    fn combine(&self, _: &[u8], newer: &mut Vec<u8>, _: Seq, older: &[u8], _: Seq) -> bool {
        let fits = newer.len() + older.len() <= 4 * ELEMENT;
        if fits {
            newer.extend_from_slice(older);
        }
        fits
    }
    fn times_elements(&self) -> bool {
        true
    }
    fn prune(&self, _: &[u8], operand: &[u8], now: Time) -> Option<Vec<u8>> {
        let elements = operand.chunks_exact(ELEMENT);
        let left: Vec<u8> = elements
            .filter(|e| expires(e) > now)
            .flatten()
            .copied()
            .collect();
        (left.len() < operand.len()).then_some(left)
    }
}

struct Trees;

impl TreeProvider for Trees {
    fn tree_options(&self, name: &str, _: &[u8]) -> Result<TreeOptions> {
        let leveled = || {
            TreeOptions::with_policy(Arc::new(Leveled {
                level0_runs: 2,
                level1_bytes: 16 << 10,
                multiplier: 3,
                ..Leveled::default()
            }))
        };
        Ok(match name {
            "tiered" => TreeOptions::with_policy(Arc::new(Tiered::default())),
            "lazy" => lazy(),
            "tiles" => toy::tiles(),
            "two" => TreeOptions {
                versions: 2,
                ..leveled()
            },
            "list" => TreeOptions {
                operator: Some(Arc::new(Append)),
                ..leveled()
            },
            "timed" => TreeOptions {
                operator: Some(Arc::new(Elements)),
                ..leveled()
            },
            _ => leveled(),
        })
    }
}

struct Version {
    seq: Seq,
    kind: Kind,
    value: Vec<u8>,
    expires: Option<Time>,
}

type Past = BTreeMap<Vec<u8>, Vec<Version>>;

/// The expected value or list of a key in a snapshot.
fn seen(name: &str, versions: &[Version], seq: Seq, now: Time) -> Option<Vec<u8>> {
    let gone = |version: &Version| version.expires.is_some_and(|expires| expires <= now);
    let mut there = versions.iter().rev().filter(|version| version.seq <= seq);
    if !matches!(name, "list" | "timed") {
        let newest = there.next()?;
        let is_value = newest.kind == Kind::Put && !gone(newest);
        return is_value.then(|| newest.value.clone());
    }
    let mut all = Vec::new();
    for version in there {
        if version.kind != Kind::Operand {
            break;
        }
        match name {
            "list" if gone(version) => {}
            "list" => all.extend_from_slice(&version.value),
            _ => {
                let elements = version.value.chunks_exact(ELEMENT);
                all.extend(elements.filter(|e| expires(e) > now).flatten().copied());
            }
        }
    }
    (!all.is_empty()).then_some(all)
}

struct Test {
    fs: Memory,
    clock: Arc<AtomicU64>,
    group: Option<Group>,
    rng: fastrand::Rng,
    trees: Vec<TreeId>,
    past: Vec<Past>,
    held: Vec<Snapshot>,
    /// Named snapshots, with their sequence numbers and times.
    kept: BTreeMap<String, (Seq, Time)>,
    /// The latest time that a reader has observed.
    acted: Time,
    drops: u64,
}

const START: Time = 1_700_000_000_000;

impl Test {
    fn new(seed: u64) -> Test {
        let mut test = Test {
            fs: Memory::new(),
            clock: Arc::new(AtomicU64::new(START)),
            group: None,
            rng: fastrand::Rng::with_seed(seed),
            trees: Vec::new(),
            past: Vec::new(),
            held: Vec::new(),
            kept: BTreeMap::new(),
            acted: 0,
            drops: 0,
        };
        test.open();
        let names = TREES.map(|name| (name.to_string(), vec![]));
        test.trees = test.group().create_trees(&names).unwrap();
        test.past = TREES.iter().map(|_| Past::new()).collect();
        test
    }

    fn open(&mut self) {
        let clock = self.clock.clone();
        let options = Options {
            clock: Arc::new(move || clock.load(Ordering::SeqCst)),
            ..small(Arc::new(self.fs.clone()))
        };
        let group = Group::open(Path::new(DIR), options, Arc::new(Trees), true);
        self.group = Some(group.unwrap());
    }

    fn group(&self) -> &Group {
        self.group.as_ref().unwrap()
    }

    fn write(&mut self) {
        let mut batch = Batch::new();
        let mut written = Vec::new();
        let now = self.clock.load(Ordering::SeqCst);
        for at in 0..1 + skewed(&mut self.rng, 12) {
            let tree = self.rng.usize(0..TREES.len());
            let key = format!("k{:02}", skewed(&mut self.rng, 40)).into_bytes();
            let id = self.rng.u16(..);
            let is_list = matches!(TREES[tree], "list" | "timed");
            let kind = match self.rng.usize(0..10) {
                0 => Kind::Delete,
                _ if is_list => Kind::Operand,
                _ => Kind::Put,
            };
            // Some have expired already.
            let until = match self.rng.usize(0..8) {
                0 => None,
                1 => Some(now.saturating_sub(self.rng.u64(0..5))),
                _ => Some(now + self.rng.u64(0..60)),
            };
            let value = match (kind, TREES[tree]) {
                (Kind::Delete, _) => Vec::new(),
                (_, "timed") => element(id, until.unwrap_or(MAX_TIME)),
                (_, "list") => id.to_be_bytes().to_vec(),
                _ => vec![id as u8; self.rng.usize(0..120)],
            };
            let id = self.trees[tree];
            match (kind, until) {
                (Kind::Delete, _) => batch.delete(id, &key).unwrap(),
                (Kind::Put, None) => batch.put(id, &key, &value).unwrap(),
                (Kind::Put, Some(until)) => batch.put_until(id, &key, &value, until).unwrap(),
                (_, None) => batch.operand(id, &key, &value).unwrap(),
                (_, Some(until)) => batch.operand_until(id, &key, &value, until).unwrap(),
            }
            let expires = until.filter(|_| kind != Kind::Delete);
            written.push((at as Seq, tree, key, kind, value, expires));
        }
        let count = u64::from(batch.sequences());
        let last = self.group().write(&mut batch, Durability::Sync).unwrap();
        for (at, tree, key, kind, value, expires) in written {
            let seq = last + 1 - count + at;
            self.past[tree].entry(key).or_default().push(Version {
                seq,
                kind,
                value,
                expires,
            });
        }
    }

    fn tick(&mut self) {
        let now = self.clock.load(Ordering::SeqCst);
        let now = match self.rng.usize(0..10) {
            0 => now - self.rng.u64(0..30),
            _ => now + self.rng.u64(0..12),
        };
        self.clock.store(now, Ordering::SeqCst);
    }

    /// The clock jumps, and is either corrected or confirmed.
    fn jump(&mut self) {
        let before = self.clock.load(Ordering::SeqCst);
        self.group().snapshot();
        self.clock
            .store(before + 3 * LARGEST_JUMP, Ordering::SeqCst);
        if self.group().unconfirmed_time().is_none() {
            // Nothing expires yet.
            self.clock.store(before, Ordering::SeqCst);
            return;
        }
        let jumped = self.group().snapshot();
        assert_eq!(jumped.time(), before + 3 * LARGEST_JUMP);
        self.check(&jumped);
        drop(jumped);
        self.group().flush().unwrap();
        self.group().compact(None).unwrap();
        if self.rng.bool() {
            self.group().confirm_time().unwrap();
            assert_eq!(self.group().unconfirmed_time(), None);
            self.acted = before + 3 * LARGEST_JUMP;
        } else {
            self.clock.store(before, Ordering::SeqCst);
        }
        self.check_now();
    }

    fn reopen(&mut self) {
        self.held.clear();
        self.drops += self.group().stats().drops;
        match self.rng.usize(0..3) {
            0 => {
                self.group = None;
            }
            // Killed: everything written survives.
            1 => {
                let there = self.fs.power_cut(self.rng.u64(..), PowerCut::Kept);
                self.group = None;
                self.fs = there;
            }
            _ => {
                let there = self.fs.power_cut(self.rng.u64(..), PowerCut::Lost);
                self.group = None;
                self.fs = there;
                // A time only used by reads is not durable.
                self.acted = 0;
            }
        }
        // Meanwhile the clock advances, or steps back.
        self.tick();
        self.open();
        self.check_now();
    }

    /// Keeps a named snapshot, or checks one, and sometimes drops it.
    fn use_kept(&mut self) {
        let name = format!("s{}", self.rng.usize(0..3));
        let Some((seq, time)) = self.kept.get(&name).copied() else {
            self.group().keep_snapshot(&name).unwrap();
            let kept = self.group().kept_snapshot(&name).unwrap();
            self.check(&kept);
            self.kept.insert(name, (kept.seq(), kept.time()));
            return;
        };
        let kept = self.group().kept_snapshot(&name).unwrap();
        assert_eq!((kept.seq(), kept.time()), (seq, time));
        self.check(&kept);
        if self.rng.bool() {
            self.group().drop_snapshot(&name).unwrap();
            self.kept.remove(&name);
            self.check(&kept);
        }
    }

    fn check_now(&mut self) {
        let snapshot = self.group().snapshot();
        let now = self.clock.load(Ordering::SeqCst);
        if snapshot.time() > 0 {
            assert!(snapshot.time() >= now);
            let acted = self.acted;
            assert!(
                snapshot.time() >= acted,
                "{} after {acted}",
                snapshot.time()
            );
        }
        self.check(&snapshot);
        if self.group().unconfirmed_time().is_none() {
            self.acted = self.acted.max(self.hidden_by(snapshot.time()));
        }
    }

    /// The latest expiry time of a hidden entry.
    fn hidden_by(&self, now: Time) -> Time {
        let versions = self.past.iter().flat_map(|past| past.values().flatten());
        let expired = versions.filter_map(|version| version.expires.filter(|e| *e <= now));
        // Only the newest entry of a key was certainly read.
        let newest = self.past.iter().flat_map(|past| past.values());
        let newest = newest.filter_map(|versions| versions.last()?.expires.filter(|e| *e <= now));
        newest.max().unwrap_or(0).min(expired.max().unwrap_or(0))
    }

    fn check(&self, snapshot: &Snapshot) {
        for (at, name) in TREES.iter().enumerate() {
            check_tree(snapshot, self.trees[at], name, &self.past[at]);
        }
    }

    fn step(&mut self) {
        match self.rng.usize(0..60) {
            0..4 => self.group().flush().unwrap(),
            4 => self.group().compact(None).unwrap(),
            5..8 => self.group().run_compactions().unwrap(),
            8 => self.reopen(),
            9..13 => {
                let snapshot = self.group().snapshot();
                self.held.push(snapshot);
                if self.held.len() > 3 {
                    let old = self.held.swap_remove(self.rng.usize(0..4));
                    self.check(&old);
                }
            }
            13..18 => self.check_now(),
            18..40 => self.tick(),
            41..43 => self.use_kept(),
            40 if self.rng.usize(0..4) == 0 => self.jump(),
            _ => self.write(),
        }
    }
}

fn check_tree(snapshot: &Snapshot, tree: TreeId, name: &str, past: &Past) {
    let (seq, now) = (snapshot.seq(), snapshot.time());
    let cost = Cost::default();
    let live: BTreeMap<&[u8], Vec<u8>> = past
        .iter()
        .filter_map(|(key, versions)| Some((key.as_slice(), seen(name, versions, seq, now)?)))
        .collect();
    let is_list = matches!(name, "list" | "timed");
    for (key, versions) in past {
        let expected = live.get(key.as_slice());
        let mut walk = snapshot.walk(tree, key);
        let mut walked = Vec::new();
        let mut ended = false;
        while let Some(entry) = walk.next_entry().unwrap() {
            assert_ne!(entry.kind, Kind::Timed);
            ended |= entry.kind != Kind::Operand;
            if is_list && !ended {
                walked.extend_from_slice(&entry.value);
            }
            if !is_list && walked.is_empty() && entry.kind == Kind::Put {
                let version = versions
                    .iter()
                    .find(|version| version.seq == entry.seq)
                    .unwrap();
                assert!(
                    version.expires.is_none_or(|expires| expires > now),
                    "{name} {key:?}"
                );
            }
        }
        let found = snapshot.get(tree, key, &cost).unwrap();
        if is_list {
            assert_eq!(
                Some(walked).filter(|w| !w.is_empty()).as_ref(),
                expected,
                "{name} {key:?}"
            );
            assert_eq!(found.is_some(), expected.is_some(), "{name} {key:?}");
        } else {
            let found = found.map(|found| found.value.to_vec());
            assert_eq!(found.as_ref(), expected, "{name} {key:?} at {seq}, {now}");
        }
    }
    if is_list && name == "timed" {
        return;
    }
    let keys: Vec<&[u8]> = past.keys().map(Vec::as_slice).collect();
    let components = snapshot.components(tree);
    let mut batch: Vec<Option<Found>> = keys.iter().map(|_| None).collect();
    let options = LookupOptions::default();
    snapshot
        .lookup(&components, &keys, Expected::Unknown, options, &cost)
        .visit_all(&mut |at, found| batch[at] = Some(found))
        .unwrap();
    for (key, found) in keys.iter().zip(batch) {
        assert_eq!(found.is_some(), live.contains_key(key), "{name} {key:?}");
        if let Some(found) = found.filter(|_| !is_list) {
            assert_eq!(&*found.value, live[key].as_slice(), "{name} {key:?}");
        }
    }
    let mut cursor = snapshot.cursor(tree, 0);
    let (mut forward, mut backward) = (Vec::new(), Vec::new());
    cursor.seek_first().unwrap();
    while cursor.valid() {
        forward.push((cursor.key().to_vec(), cursor.value().to_vec()));
        assert_eq!(&*cursor.value_slice(), cursor.value());
        cursor.next().unwrap();
    }
    cursor.seek_last().unwrap();
    while cursor.valid() {
        backward.push((cursor.key().to_vec(), cursor.value().to_vec()));
        cursor.prev().unwrap();
    }
    backward.reverse();
    assert_eq!(forward, backward, "{name}");
    let keys: Vec<&[u8]> = forward.iter().map(|(key, _)| key.as_slice()).collect();
    assert_eq!(keys, live.keys().copied().collect::<Vec<_>>(), "{name}");
    if !is_list {
        assert!(
            forward
                .iter()
                .all(|(key, value)| live[key.as_slice()] == *value)
        );
    }
}

#[test]
fn expiry_agrees_with_the_model() {
    let mut drops = 0;
    for seed in seeds(25) {
        let _doing = Doing(&|| format!("ESKER_SEED={seed}"));
        let mut test = Test::new(seed);
        for _ in 0..500 {
            test.step();
        }
        test.check_now();
        for held in std::mem::take(&mut test.held) {
            test.check(&held);
        }
        // In the end no expired entry is left, in trees with one version.
        let later = test.clock.load(Ordering::SeqCst) + 1000;
        test.clock.store(later, Ordering::SeqCst);
        test.group().compact(None).unwrap();
        test.check_now();
        let report = test.group().check();
        assert!(report.errors.is_empty(), "{:?}", report.errors);
        let snapshot = test.group().snapshot();
        for tree in snapshot.version().trees.values() {
            for table in tree.tables() {
                let expiry = table.meta().expiry;
                assert!(
                    expiry.is_none_or(|expiry| expiry.min > later),
                    "{}",
                    tree.name
                );
            }
        }
        drops += test.drops + test.group().stats().drops;
    }
    assert!(
        drops > 0 || seeds(25).count() < 10,
        "no table was dropped whole"
    );
}

fn stopped(fs: &Memory, clock: &Arc<AtomicU64>) -> Group {
    let clock = clock.clone();
    let options = Options {
        clock: Arc::new(move || clock.load(Ordering::SeqCst)),
        ..small(Arc::new(fs.clone()))
    };
    Group::open(Path::new(DIR), options, Arc::new(Trees), true).unwrap()
}

fn put(group: &Group, tree: TreeId, keys: std::ops::Range<u32>, expires: Option<Time>) {
    let mut batch = Batch::new();
    for n in keys {
        let key = format!("{n:06}");
        match expires {
            Some(at) => batch.put_until(tree, key.as_bytes(), &[7; 50], at).unwrap(),
            None => batch.put(tree, key.as_bytes(), &[7; 50]).unwrap(),
        }
    }
    group.write(&mut batch, Durability::Os).unwrap();
    group.flush().unwrap();
}

#[test]
fn an_expired_table_is_dropped_unread_unless_it_hides_something() {
    let (fs, clock) = (Memory::new(), Arc::new(AtomicU64::new(START)));
    let group = stopped(&fs, &clock);
    let tree = group
        .create_trees(&[("tiered".to_string(), vec![])])
        .unwrap()[0];
    put(&group, tree, 0..40, None);
    put(&group, tree, 100..140, Some(START + 10));
    put(&group, tree, 20..30, Some(START + 20));
    let tables = || {
        let snapshot = group.snapshot();
        let tables = snapshot.version().trees[&tree]
            .tables()
            .map(|table| table.path());
        tables.collect::<Vec<_>>()
    };
    let all = tables();
    assert_eq!(all.len(), 3);
    let held = group.snapshot();
    clock.store(START + 30, Ordering::SeqCst);
    // The expired table that hides nothing need not even be readable.
    let over = all.iter().find(|path| {
        let number = held.version().trees[&tree].tables();
        let mut tables = number.filter(|table| table.meta().smallest == b"000100");
        tables.any(|table| table.path() == **path)
    });
    let over = over.unwrap().clone();
    let before = fs.read(&over).unwrap();
    fs.write(&over, b"damaged");
    let read = group.stats().merge_read_bytes;
    group.run_compactions().unwrap();
    assert_eq!(group.stats().drops, 1);
    assert!(!tables().contains(&over));
    // The other one hides live entries: it is not dropped, and the entries it replaced do not
    // reappear.
    assert!(group.stats().merge_read_bytes >= read);
    let (now, cost) = (group.snapshot(), Cost::default());
    assert!(now.get(tree, b"000025", &cost).unwrap().is_none());
    assert!(now.get(tree, b"000010", &cost).unwrap().is_some());
    // Restored for the held snapshot.
    fs.write(&over, &before);
    assert!(held.get(tree, b"000120", &cost).unwrap().is_some());
    assert!(held.get(tree, b"000025", &cost).unwrap().is_some());
    group.compact(None).unwrap();
    let now = group.snapshot();
    assert!(now.get(tree, b"000025", &cost).unwrap().is_none());
    assert_eq!(
        now.version().trees[&tree]
            .tables()
            .map(|t| t.meta().entries)
            .sum::<u64>(),
        30
    );
}

/// What has expired or is deleted behind a range costs a cursor over the range nothing.
#[test]
fn a_bounded_cursor_reads_nothing_outside_its_bounds() {
    let (fs, clock) = (Memory::new(), Arc::new(AtomicU64::new(START)));
    let group = stopped(&fs, &clock);
    let tree = group
        .create_trees(&[("tiered".to_string(), vec![])])
        .unwrap()[0];
    put(&group, tree, 0..1, None);
    put(&group, tree, 1000..5000, Some(START + 10));
    put(&group, tree, 6000..6001, None);
    clock.store(START + 30, Ordering::SeqCst);
    let snapshot = group.snapshot();
    let (lo, hi) = (&b"001500"[..], &b"001510"[..]);
    let found = |cursor: &mut dyn Cursor, backward: bool| {
        if backward {
            cursor.seek_last().unwrap()
        } else {
            cursor.seek_first().unwrap()
        }
        // An entry that has expired is shown as a delete by a cursor over entries, and not at all
        // by one over keys.
        let mut there = 0;
        while cursor.valid() {
            there += 1;
            if backward {
                cursor.prev().unwrap()
            } else {
                cursor.next().unwrap()
            }
        }
        there
    };
    for backward in [false, true] {
        let mut keys = snapshot.cursor(tree, 0);
        keys.within(lo, Some(hi));
        assert_eq!(found(&mut keys, backward), 0);
        let read = keys.cost().data_blocks.get();
        assert!(read <= 4, "{read} blocks");
        let mut all = snapshot.cursor(tree, 0);
        assert_eq!(found(&mut all, backward), 2);
        let read = all.cost().data_blocks.get();
        assert!(read > 100, "{read} blocks: the test shows nothing");
        let mut entries = snapshot.entries(tree, 0);
        entries.within(lo, Some(hi));
        assert_eq!(found(&mut entries, backward), 10);
    }
}

#[test]
fn a_jump_forward_deletes_nothing_until_it_is_confirmed() {
    let (fs, clock) = (Memory::new(), Arc::new(AtomicU64::new(START)));
    let group = stopped(&fs, &clock);
    let tree = group
        .create_trees(&[("leveled".to_string(), vec![])])
        .unwrap()[0];
    put(&group, tree, 0..100, Some(START + 1000));
    let cost = Cost::default();
    let sees = |group: &Group| {
        group
            .snapshot()
            .get(tree, b"000050", &cost)
            .unwrap()
            .is_some()
    };
    assert!(sees(&group));
    assert_eq!(group.unconfirmed_time(), None);
    // Two days: reads follow it, nothing is dropped.
    clock.store(START + 2 * LARGEST_JUMP, Ordering::SeqCst);
    assert!(!sees(&group));
    assert_eq!(group.unconfirmed_time(), Some(START + 2 * LARGEST_JUMP));
    group.compact(None).unwrap();
    drop(group);
    let group = stopped(&fs, &clock);
    assert!(!sees(&group));
    group.compact(None).unwrap();
    // The jump was wrong.
    clock.store(START + 10, Ordering::SeqCst);
    assert!(sees(&group));
    // The jump was right.
    clock.store(START + 2 * LARGEST_JUMP, Ordering::SeqCst);
    group.confirm_time().unwrap();
    assert_eq!(group.unconfirmed_time(), None);
    group.compact(None).unwrap();
    assert_eq!(group.snapshot().version().trees[&tree].tables().count(), 0);
    clock.store(START, Ordering::SeqCst);
    assert!(!sees(&group));
    drop(group);
    assert!(!sees(&stopped(&fs, &clock)));
}

#[test]
fn what_a_read_has_hidden_stays_hidden_when_the_process_is_killed_and_the_clock_steps_back() {
    let (fs, clock) = (Memory::new(), Arc::new(AtomicU64::new(START)));
    let group = stopped(&fs, &clock);
    let tree = group
        .create_trees(&[("leveled".to_string(), vec![])])
        .unwrap()[0];
    let mut batch = Batch::new();
    batch.put_until(tree, b"key", b"value", START + 10).unwrap();
    group.write(&mut batch, Durability::Os).unwrap();
    let cost = Cost::default();
    clock.store(START + 20, Ordering::SeqCst);
    assert!(group.snapshot().get(tree, b"key", &cost).unwrap().is_none());
    let killed = fs.power_cut(1, PowerCut::Kept);
    clock.store(START, Ordering::SeqCst);
    let group = stopped(&killed, &clock);
    assert!(group.snapshot().get(tree, b"key", &cost).unwrap().is_none());
    assert!(group.snapshot().time() >= START + 10);
    // Damage of the file is reported.
    let path = Path::new(DIR).join("TIME");
    clock.store(START + 30, Ordering::SeqCst);
    let mut batch = Batch::new();
    batch
        .put_until(tree, b"other", b"value", START + 25)
        .unwrap();
    group.write(&mut batch, Durability::Os).unwrap();
    assert!(
        group
            .snapshot()
            .get(tree, b"other", &cost)
            .unwrap()
            .is_none()
    );
    drop(group);
    let mut bytes = killed.read(&path).unwrap();
    // An incomplete last record is ignored.
    let whole = bytes.len();
    bytes.extend_from_slice(&[1; 7]);
    killed.write(&path, &bytes);
    drop(stopped(&killed, &clock));
    bytes.truncate(whole);
    bytes.extend_from_within(16..);
    bytes[20] ^= 1;
    killed.write(&path, &bytes);
    let options = small(Arc::new(killed.clone()));
    let error = Group::open(Path::new(DIR), options, Arc::new(Trees), true).err();
    match error {
        Some(Error::Corruption { path: at, .. }) => assert_eq!(at, path),
        // All bytes behind the damage are misaligned: no record there is complete.
        other => assert!(other.is_none(), "{other:?}"),
    }
}

/// A reader beside the writer may have a clock that is behind: it shows nothing that the writer has
/// shown as expired.
#[test]
fn a_reader_learns_at_a_refresh_what_the_writer_has_hidden() {
    let (fs, clock) = (Memory::new(), Arc::new(AtomicU64::new(START)));
    let group = stopped(&fs, &clock);
    let tree = group
        .create_trees(&[("leveled".to_string(), vec![])])
        .unwrap()[0];
    let mut batch = Batch::new();
    batch.put_until(tree, b"key", b"value", START + 10).unwrap();
    group.write(&mut batch, Durability::Os).unwrap();
    let options = Options {
        clock: Arc::new(|| START),
        ..small(Arc::new(fs.clone()))
    };
    let reader = Group::open_reader(Path::new(DIR), options, Arc::new(Trees)).unwrap();
    let shows = |group: &Group| {
        let found = group.snapshot().get(tree, b"key", &Cost::default());
        found.unwrap().is_some()
    };
    assert!(shows(&reader));
    clock.store(START + 20, Ordering::SeqCst);
    assert!(!shows(&group));
    reader.refresh().unwrap();
    assert!(!shows(&reader));
}

/// Drops values that begin with a letter, and prefixes the others with another.
struct Letters(u8, u8);

impl CompactionFilterFactory for Letters {
    fn begin(&self, _: &ObsoleteWrites) -> Box<dyn CompactionFilter> {
        Box::new(Letters(self.0, self.1))
    }
}

impl CompactionFilter for Letters {
    fn decide(&mut self, entry: FilteredEntry<'_>, _: &mut dyn FnMut() -> bool) -> Decision {
        match entry.value.first() {
            Some(first) if *first == self.0 => Decision::Drop,
            _ => Decision::Rewrite([&[self.1], entry.value].concat()),
        }
    }
}

#[test]
fn filters_compose_in_their_order_and_keep_when_an_entry_expires() {
    struct Filtered;
    impl TreeProvider for Filtered {
        fn tree_options(&self, _: &str, _: &[u8]) -> Result<TreeOptions> {
            Ok(TreeOptions {
                filter: Some(Filters::all(vec![
                    Arc::new(Letters(b'x', b'1')),
                    Arc::new(Letters(b'y', b'2')),
                ])),
                ..TreeOptions::default()
            })
        }
    }
    let clock = Arc::new(AtomicU64::new(START));
    let shared = clock.clone();
    let options = Options {
        clock: Arc::new(move || shared.load(Ordering::SeqCst)),
        ..small(Arc::new(Memory::new()))
    };
    let group = Group::open(Path::new(DIR), options, Arc::new(Filtered), true).unwrap();
    let tree = group.create_trees(&[("t".to_string(), vec![])]).unwrap()[0];
    let mut batch = Batch::new();
    for value in ["a", "x", "y"] {
        batch
            .put_until(tree, value.as_bytes(), value.as_bytes(), START + 5)
            .unwrap();
    }
    group.write(&mut batch, Durability::Os).unwrap();
    group.flush().unwrap();
    let get = |key: &str| {
        let found = group.snapshot().get(tree, key.as_bytes(), &Cost::default());
        found
            .unwrap()
            .map(|found| String::from_utf8(found.value.to_vec()).unwrap())
    };
    assert_eq!(get("a").as_deref(), Some("21a"));
    assert_eq!(get("x"), None);
    // The second filter sees the first one's output.
    assert_eq!(get("y").as_deref(), Some("21y"));
    clock.store(START + 5, Ordering::SeqCst);
    assert_eq!(get("a"), None);
}

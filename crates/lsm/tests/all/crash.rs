//! Power cuts and failing calls, at every call of a random workload. Writes acknowledged as synced
//! survive; of the rest a prefix does, batches are atomic, and nothing is invented. Compactions run
//! in one piece or in several, one after the other, and snapshots held across them are checked at
//! the end. `ESKER_SEEDS=200 cargo test -p esker-lsm --test all crash::` runs more seeds;
//! `ESKER_SEED=17` repeats one.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{DIR, Doing, Layouts, bytes, chosen, is_mapped, seeds, skewed, small};
use esker_lsm::fs::Fs;
use esker_lsm::{
    Batch, Cost, Cursor, Durability, Error, Group, Kind, Options, Result, Seq, Snapshot, Stats,
};
use esker_sim::faulty::Faulty;
use esker_sim::memory::{Memory, PowerCut};

const MODES: [PowerCut; 4] = [
    PowerCut::Lost,
    PowerCut::Kept,
    PowerCut::Torn,
    PowerCut::Reordered,
];

/// The trees by name, each with its keys and values. The key `last` of tree `a` holds the number of
/// the last step that wrote, so that each state is distinct. The contents of a named snapshot are a
/// tree named `@SNAPSHOT/TREE`.
type State = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;

const LAST: &[u8] = b"last";

/// A store under test, and its expected contents.
struct Life {
    group: Group,
    rng: fastrand::Rng,
    step: u64,
    /// Every possible state, in order; the last one is what readers see now.
    states: Vec<State>,
    /// The first of `states` that is possible after a power cut.
    durable: usize,
    /// The effect of a step that failed without a definite result.
    maybe: Option<State>,
    failures: Vec<Error>,
    /// Snapshots, and their expected contents.
    held: Vec<(Snapshot, State)>,
}

/// Opens (or creates) a store in `fs`. The seed decides the pieces of compactions, and whether tables
/// are mapped.
fn open(fs: Arc<dyn Fs>, seed: u64) -> Result<Group> {
    let options = Options {
        piece_bytes: [None, Some(512), Some(4 << 10)][(seed % 3) as usize],
        mapped_reads: is_mapped(seed),
        ..small(fs)
    };
    Group::open(Path::new(DIR), options, Arc::new(Layouts), true)
}

impl Life {
    /// Opens the store in `fs`, which must be in one of `states`.
    fn begin(fs: Arc<dyn Fs>, seed: u64, states: &[State]) -> Life {
        let group = open(fs, seed).unwrap_or_else(|error| panic!("open: {error}"));
        let found = read(&group).unwrap_or_else(|error| panic!("read: {error}"));
        let place = states.iter().rposition(|state| *state == found);
        let last = |state: &State| state.get("a").and_then(|a| a.get(LAST).cloned());
        if place.is_none() {
            let like = states.iter().find(|state| last(state) == last(&found));
            let all: Vec<_> = states
                .iter()
                .map(|state| (last(state), state.keys().collect::<Vec<_>>()))
                .collect();
            panic!("{found:?} is not among {all:?}\nlike: {like:?}");
        }
        let report = group.check();
        assert!(report.errors.is_empty(), "{:?}", report.errors);
        Life {
            group,
            rng: fastrand::Rng::with_seed(seed),
            step: seed << 32,
            states: vec![found],
            durable: 0,
            maybe: None,
            failures: Vec::new(),
            held: Vec::new(),
        }
    }

    fn now(&self) -> &State {
        self.states.last().unwrap()
    }

    /// Takes a snapshot, or checks and drops one.
    fn hold(&mut self) {
        if self.held.len() < 3 {
            self.held.push((self.group.snapshot(), self.now().clone()));
        } else {
            self.let_go(1)
        }
    }

    fn let_go(&mut self, most: usize) {
        for (snapshot, state) in self.held.drain(..most.min(self.held.len())) {
            let seen = read_snapshot(&snapshot).unwrap();
            assert!(trees(&seen).eq(trees(&state)), "a held snapshot");
        }
    }

    /// All states possible after a power cut.
    fn after_cut(&self) -> Vec<State> {
        let mut states = self.states[self.durable..].to_vec();
        states.extend(self.maybe.clone());
        states
    }

    /// All states possible after the process was killed.
    fn after_kill(&self) -> Vec<State> {
        let mut states = vec![self.now().clone()];
        states.extend(self.maybe.clone());
        states
    }

    /// Records the result of a step that leads to `state`.
    fn done<T>(&mut self, state: State, durable: bool, result: Result<T>) {
        match result {
            Ok(_) => {
                self.maybe = None;
                self.states.push(state);
                if durable {
                    self.durable = self.states.len() - 1;
                }
            }
            Err(error) => {
                // A poisoned handle did not try.
                if !matches!(error, Error::Poisoned { .. }) {
                    self.maybe = Some(state);
                }
                self.failures.push(error);
            }
        }
    }

    fn tried<T>(&mut self, result: Result<T>) {
        self.failures.extend(result.err());
    }

    fn write(&mut self) {
        let mut state = self.now().clone();
        let trees: Vec<String> = trees(&state).map(|(name, _)| name.clone()).collect();
        let mut batch = Batch::new();
        self.step += 1;
        let a = self.group.tree("a").unwrap();
        let last = self.step.to_le_bytes();
        batch.put(a, LAST, &last).unwrap();
        state
            .get_mut("a")
            .unwrap()
            .insert(LAST.to_vec(), last.to_vec());
        for _ in 0..skewed(&mut self.rng, 8) {
            let name = &trees[self.rng.usize(0..trees.len())];
            let tree = self.group.tree(name).unwrap();
            let keys = state.get_mut(name).unwrap();
            let key = format!("k{:02}", skewed(&mut self.rng, 30)).into_bytes();
            if self.rng.usize(0..4) == 0 {
                batch.delete(tree, &key).unwrap();
                keys.remove(&key);
            } else {
                let len = match self.rng.usize(0..6) {
                    0 => self.rng.usize(0..9000),
                    _ => self.rng.usize(0..100),
                };
                let value = bytes(&mut self.rng, len);
                batch.put(tree, &key, &value).unwrap();
                keys.insert(key, value);
            }
        }
        let durability = match self.rng.usize(0..8) {
            0..2 => Durability::Sync,
            2 => Durability::Periodic(Duration::from_secs(9)),
            _ => Durability::Os,
        };
        let result = self.group.write(&mut batch, durability);
        self.done(state, durability != Durability::Os, result);
    }

    fn ingest(&mut self) {
        let mut state = self.now().clone();
        self.step += 1;
        let mut new = BTreeMap::new();
        for _ in 0..self.rng.usize(0..20) {
            let key = format!("k{:02}", self.rng.usize(0..30)).into_bytes();
            new.insert(key, bytes(&mut self.rng, 50));
        }
        new.insert(LAST.to_vec(), self.step.to_le_bytes().to_vec());
        state.get_mut("a").unwrap().extend(new.clone());
        let mut entries = new.iter().map(|(k, v)| Ok((k.as_slice(), v.as_slice())));
        let a = self.group.tree("a").unwrap();
        let result = self.group.ingest(a, &mut entries);
        self.done(state, true, result);
    }

    fn create(&mut self, name: &str) {
        let mut state = self.now().clone();
        if state.insert(name.to_string(), BTreeMap::new()).is_none() {
            let result = self.group.create_trees(&[(name.to_string(), vec![])]);
            self.done_to_trees(state, result);
        }
    }

    /// Keeps a named snapshot, or drops it.
    fn keep_or_drop(&mut self) {
        let name = ["s", "t"][self.rng.usize(0..2)];
        let mut state = self.now().clone();
        let prefix = format!("@{name}/");
        if state.keys().any(|key| key.starts_with(&prefix)) {
            state.retain(|key, _| !key.starts_with(&prefix));
            let result = self.group.drop_snapshot(name);
            return self.done_to_trees(state, result);
        }
        let seen = trees(self.now()).map(|(tree, keys)| (format!("{prefix}{tree}"), keys.clone()));
        state.extend(seen);
        let result = self.group.keep_snapshot(name);
        self.done(state, true, result);
    }

    /// Trees are created and dropped durably, whatever the log has lost before.
    fn done_to_trees<T>(&mut self, state: State, result: Result<T>) {
        if result.is_ok() {
            let now = state.keys().cloned().collect::<Vec<_>>();
            for earlier in &mut self.states {
                earlier.retain(|name, _| now.contains(name));
                for name in &now {
                    earlier.entry(name.clone()).or_default();
                }
            }
            self.done(state, false, result);
        } else {
            // How much of the earlier log is durable is unknown.
            let mut earlier = self.states.clone();
            for old in &mut earlier {
                for (name, keys) in &state {
                    old.entry(name.clone()).or_insert_with(|| keys.clone());
                }
                old.retain(|name, _| state.contains_key(name));
            }
            let now = self.states.len();
            self.done(state, false, result);
            if self.maybe.is_some() {
                // Kept separate from the states without the change by being placed before them.
                let mut all = earlier.split_off(self.durable);
                all.extend(self.states.split_off(self.durable));
                assert_eq!(all.len(), 2 * (now - self.durable));
                self.states.truncate(self.durable);
                self.states.extend(all);
            }
        }
    }

    fn live(&mut self, steps: usize) {
        self.create("a");
        for _ in 0..steps {
            if self.group.tree("a").is_none() {
                return;
            }
            match self.rng.usize(0..43) {
                0..2 => {
                    let result = self.group.flush();
                    self.tried(result);
                }
                2 => {
                    let result = self.group.compact(None);
                    self.tried(result);
                }
                3 => {
                    let result = self.group.run_compactions();
                    self.tried(result);
                }
                4 => {
                    let result = self.group.sync();
                    if result.is_ok() {
                        self.durable = self.states.len() - 1;
                    }
                    self.tried(result);
                }
                5 => self.ingest(),
                6 => self.create(["b", "c"][self.step as usize % 2]),
                7 if self.rng.usize(0..3) == 0 => {
                    let mut state = self.now().clone();
                    if state.remove("c").is_some() {
                        let c = self.group.tree("c").unwrap();
                        let result = self.group.drop_trees(&[c]);
                        self.done_to_trees(state, result);
                    }
                }
                8..10 => self.keep_or_drop(),
                40.. => self.hold(),
                _ => self.write(),
            }
        }
        self.let_go(usize::MAX);
    }
}

/// The trees of a state without those of named snapshots.
fn trees(state: &State) -> impl Iterator<Item = (&String, &BTreeMap<Vec<u8>, Vec<u8>>)> {
    state.iter().filter(|(name, _)| !name.starts_with('@'))
}

/// The contents of the store, read in several ways that must agree.
fn read(group: &Group) -> Result<State> {
    let mut state = read_snapshot(&group.snapshot())?;
    for kept in group.snapshots() {
        let snapshot = group.kept_snapshot(&kept.name)?;
        assert_eq!(snapshot.seq(), kept.seq);
        let trees = read_snapshot(&snapshot)?.into_iter();
        state.extend(trees.map(|(tree, keys)| (format!("@{}/{tree}", kept.name), keys)));
    }
    Ok(state)
}

fn read_snapshot(snapshot: &Snapshot) -> Result<State> {
    let cost = Cost::default();
    let mut state = State::new();
    for (id, tree) in &snapshot.version().trees {
        let mut keys = BTreeMap::new();
        let mut cursor = snapshot.cursor(*id, 0);
        cursor.seek_first()?;
        while cursor.valid() {
            assert_eq!(cursor.kind(), Kind::Put);
            assert!(cursor.seq() <= snapshot.seq() && cursor.seq() > 0 as Seq);
            let found = snapshot.get(*id, cursor.key(), &cost)?;
            let found = found.map(|found| (found.seq, found.value.to_vec()));
            assert_eq!(found, Some((cursor.seq(), cursor.value().to_vec())));
            keys.insert(cursor.key().to_vec(), cursor.value().to_vec());
            cursor.next()?;
        }
        state.insert(tree.name.clone(), keys);
    }
    Ok(state)
}

fn faulty(memory: &Memory) -> Faulty {
    Faulty::new(Arc::new(memory.clone()))
}

/// The number of changing calls of a life without faults, and its counters.
fn calls(memory: &Memory, seed: u64, states: &[State], steps: usize) -> (u64, Stats) {
    let fs = faulty(memory);
    let mut life = Life::begin(Arc::new(fs.clone()), seed, states);
    life.live(steps);
    assert!(life.failures.is_empty(), "{:?}", life.failures);
    let stats = life.group.stats();
    drop(life);
    (fs.calls(), stats)
}

/// Runs on `memory` until the power cut at call `k`; returns the possible states afterwards.
fn live_until(memory: &Memory, seed: u64, states: &[State], k: u64, steps: usize) -> Vec<State> {
    let fs = faulty(memory);
    let mut life = Life::begin(Arc::new(fs.clone()), seed, states);
    fs.fail_from(k);
    life.live(steps);
    let states = life.after_cut();
    drop(life);
    states
}

#[test]
fn power_cuts_at_every_call_leave_a_prefix() {
    let empty = [State::new()];
    let (mut seen, mut pieces) = (0, 0);
    for seed in seeds(4) {
        let (total, stats) = calls(&Memory::new(), seed, &empty, 60);
        (seen, pieces) = (seen + 1, pieces + stats.pieces);
        for k in chosen(seed, total + 1) {
            let memory = Memory::new();
            let states = live_until(&memory, seed, &empty, k, 60);
            for mode in MODES {
                let _doing = Doing(&|| format!("ESKER_SEED={seed}, call {k} of {total}, {mode:?}"));
                let left = memory.power_cut(seed ^ k, mode);
                let next = seed.wrapping_mul(31) ^ k;
                // Another life, with another cut, somewhere in it (or at its end).
                let again = 1 + next * 7 % 50;
                let states = live_until(&left, next, &states, again, 12);
                let left = left.power_cut(k, MODES[(next % 4) as usize]);
                let mut last = Life::begin(Arc::new(left.clone()), next, &states);
                last.live(6);
                assert!(last.failures.is_empty(), "{:?}", last.failures);
                let states = [last.now().clone()];
                last.group.close().unwrap();
                drop(last);
                Life::begin(Arc::new(left), 0, &states);
            }
        }
    }
    assert!(seen < 8 || pieces > 0, "nothing was merged in pieces");
}

#[test]
fn a_call_that_fails_once_loses_nothing_acknowledged() {
    let empty = [State::new()];
    for seed in seeds(6) {
        let (total, _) = calls(&Memory::new(), seed, &empty, 60);
        for k in chosen(seed, total) {
            let _doing = Doing(&|| format!("ESKER_SEED={seed}, call {k} of {total} fails"));
            let memory = Memory::new();
            let fs = faulty(&memory);
            fs.short_writes(k % 2 == 0);
            let mut life = Life::begin(Arc::new(fs.clone()), seed, &empty);
            fs.fail_at(k);
            life.live(60);
            // Reads continue, and see the acknowledged writes.
            let found = read(&life.group).unwrap();
            assert!(life.after_kill().contains(&found), "{:?}", life.failures);
            let (killed, cut) = (life.after_kill(), life.after_cut());
            drop(life);
            fs.clear();

            let left = memory.power_cut(k, MODES[(k % 4) as usize]);
            let mut after = Life::begin(Arc::new(left), k, &cut);
            after.live(4);
            assert!(after.failures.is_empty(), "{:?}", after.failures);
            drop(after);

            // The process ends, followed by a power cut.
            let fs = faulty(&memory);
            let mut after = Life::begin(Arc::new(fs.clone()), k, &killed);
            after.live(1 + (k % 8) as usize);
            assert!(after.failures.is_empty(), "{:?}", after.failures);
            fs.fail_from(1);
            let mut states = after.after_cut();
            if after.durable == 0 {
                // Nothing was synced since, so the cut may also lose writes from before the end.
                states.extend(cut);
            }
            drop(after);
            Life::begin(Arc::new(memory.power_cut(k, PowerCut::Lost)), k, &states);
        }
    }
}

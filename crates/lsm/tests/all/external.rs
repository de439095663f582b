//! A store whose log is another's: here a `Vec`, which survives everything. After a power cut at
//! any call of the file system the trees hold what follows from a prefix of the log, and say from
//! which; the rest is applied again. `ESKER_SEEDS=200 cargo test -p esker-lsm --test all
//! external::` runs more seeds; `ESKER_SEED=17` repeats one.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::common::{DIR, Doing, Layouts, bytes, chosen, seeds, skewed, small};
use esker_lsm::fs::Fs;
use esker_lsm::{
    Batch, Cost, Cursor, Durability, Error, Group, KeepLog, LogMode, Options, Result, Seq, Snapshot,
};
use esker_sim::faulty::Faulty;
use esker_sim::memory::{Memory, PowerCut};

const MODES: [PowerCut; 4] = [
    PowerCut::Lost,
    PowerCut::Kept,
    PowerCut::Torn,
    PowerCut::Reordered,
];

/// The trees; the first has the number of the last entry that was applied.
const TREES: [&str; 3] = ["a", "b", "c"];
const APPLIED: &[u8] = b"applied";

/// What an entry of the log does: tree, key, and the value that is put, if one is.
type Entry = Vec<(usize, Vec<u8>, Option<Vec<u8>>)>;

/// By tree, the keys and values.
type State = [BTreeMap<Vec<u8>, Vec<u8>>; 3];

fn options(fs: Arc<dyn Fs>, seed: u64) -> Options {
    Options {
        log: LogMode::External,
        piece_bytes: [None, Some(512), Some(4 << 10)][(seed % 3) as usize],
        ..small(fs)
    }
}

fn open(fs: Arc<dyn Fs>, seed: u64) -> Result<Group> {
    Group::open(Path::new(DIR), options(fs, seed), Arc::new(Layouts), true)
}

/// The state that follows from the first entries of a log.
fn follows(log: &[Entry]) -> State {
    let mut state = State::default();
    for (at, entry) in log.iter().enumerate() {
        for (tree, key, value) in entry {
            match value {
                Some(value) => drop(state[*tree].insert(key.clone(), value.clone())),
                None => drop(state[*tree].remove(key)),
            }
        }
        state[0].insert(APPLIED.to_vec(), (at + 1).to_le_bytes().to_vec());
    }
    state
}

/// What a snapshot holds, read by a cursor and key by key. Trees that do not exist are empty.
fn read(snapshot: &Snapshot) -> Result<State> {
    let mut state = State::default();
    for (id, tree) in &snapshot.version().trees {
        let at = TREES.iter().position(|name| *name == tree.name).unwrap();
        let mut cursor = snapshot.cursor(*id, 0);
        cursor.seek_first()?;
        while cursor.valid() {
            let found = snapshot.get(*id, cursor.key(), &Cost::default())?.unwrap();
            assert_eq!(&*found.value, cursor.value());
            state[at].insert(cursor.key().to_vec(), cursor.value().to_vec());
            cursor.next()?;
        }
    }
    Ok(state)
}

fn applied(state: &State) -> usize {
    let number = |value: &Vec<u8>| usize::from_le_bytes(value[..].try_into().unwrap());
    state[0].get(APPLIED).map_or(0, number)
}

/// A store at work, and its log.
struct Life<'l> {
    group: Group,
    log: &'l mut Vec<Entry>,
    /// Entries that the store is known to hold durably.
    durable: usize,
    /// The first number of each entry that was written in this life is behind that of the one
    /// before.
    seqs: Vec<(Seq, usize)>,
    /// Named snapshots, and the entries they have.
    kept: BTreeMap<String, usize>,
    rng: fastrand::Rng,
    failures: Vec<Error>,
}

impl<'l> Life<'l> {
    /// Opens the store in `fs`, which holds at least `durable` entries of the log. Returns it
    /// before the rest is applied again.
    fn begin(fs: Arc<dyn Fs>, seed: u64, log: &'l mut Vec<Entry>, durable: usize) -> Life<'l> {
        let group = open(fs, seed).unwrap_or_else(|error| panic!("open: {error}"));
        let snapshot = group.snapshot();
        let found = read(&snapshot).unwrap();
        let held = applied(&found);
        assert!(
            durable <= held && held <= log.len(),
            "{held} entries, {durable} are durable, the log has {}",
            log.len()
        );
        assert!(found == follows(&log[..held]), "not what {held} entries do");
        let durable_seq = group.durable_seq();
        assert!(
            snapshot.seq() <= durable_seq,
            "all that is found is durable"
        );
        let report = group.check();
        assert!(report.errors.is_empty(), "{:?}", report.errors);
        let mut kept = BTreeMap::new();
        for named in group.snapshots() {
            let state = read(&group.kept_snapshot(&named.name).unwrap()).unwrap();
            let held = applied(&state);
            assert!(state == follows(&log[..held]), "{}: not {held}", named.name);
            kept.insert(named.name, held);
        }
        Life {
            group,
            log,
            durable: held,
            seqs: Vec::new(),
            kept,
            rng: fastrand::Rng::with_seed(seed),
            failures: Vec::new(),
        }
    }

    fn note<T>(&mut self, result: Result<T>) -> bool {
        let is_ok = result.is_ok();
        self.failures.extend(result.err());
        is_ok
    }

    /// Makes the trees that are missing, and applies the entries behind the last one that the store
    /// has. False where it failed.
    fn catch_up(&mut self) -> bool {
        for name in TREES {
            if self.group.tree(name).is_none() {
                let created = self.group.create_trees(&[(name.to_string(), vec![])]);
                if !self.note(created) {
                    return false;
                }
            }
        }
        let Ok(state) = read(&self.group.snapshot()) else {
            return false;
        };
        (applied(&state)..self.log.len()).all(|at| self.apply(at))
    }

    fn apply(&mut self, at: usize) -> bool {
        let trees = TREES.map(|name| self.group.tree(name).unwrap());
        let mut batch = Batch::new();
        for (tree, key, value) in &self.log[at] {
            match value {
                Some(value) => batch.put(trees[*tree], key, value).unwrap(),
                None => batch.delete(trees[*tree], key).unwrap(),
            }
        }
        let number = (at + 1).to_le_bytes();
        batch.put(trees[0], APPLIED, &number).unwrap();
        // Ignored, whatever it says.
        let durability = [Durability::Sync, Durability::Os][at % 2];
        let written = self.group.write(&mut batch, durability);
        if let Ok(seq) = written {
            self.seqs.push((seq, at + 1));
        }
        self.note(written)
    }

    fn write(&mut self) {
        let mut entry = Entry::new();
        for _ in 0..skewed(&mut self.rng, 8) {
            let tree = self.rng.usize(0..TREES.len());
            let key = format!("k{:02}", skewed(&mut self.rng, 30)).into_bytes();
            let len = match self.rng.usize(0..6) {
                0 => self.rng.usize(0..9000),
                _ => self.rng.usize(0..100),
            };
            let value = bytes(&mut self.rng, len);
            entry.push((tree, key, (self.rng.usize(0..4) > 0).then_some(value)));
        }
        self.log.push(entry);
        self.apply(self.log.len() - 1);
    }

    /// What the store says to be durable.
    fn note_durable(&mut self) {
        let upto = self.group.durable_seq();
        let held = self.seqs.iter().filter(|(seq, _)| *seq <= upto);
        let held = held.map(|(_, entries)| *entries).max().unwrap_or(0);
        self.durable = self.durable.max(held);
    }

    fn keep_or_drop(&mut self) {
        let name = ["s", "t"][self.rng.usize(0..2)].to_string();
        if self.kept.contains_key(&name) {
            let dropped = self.group.drop_snapshot(&name);
            if self.note(dropped) {
                self.kept.remove(&name);
            }
        } else {
            let kept = self.group.keep_snapshot(&name);
            if self.note(kept) {
                self.kept.insert(name, self.log.len());
                self.durable = self.log.len();
            }
        }
    }

    fn live(&mut self, steps: usize) {
        if !self.catch_up() {
            return;
        }
        for _ in 0..steps {
            match self.rng.usize(0..40) {
                0..3 => {
                    let flushed = if self.rng.bool() {
                        self.group.flush()
                    } else {
                        self.group.sync()
                    };
                    if self.note(flushed) {
                        self.durable = self.log.len();
                    }
                }
                3 => {
                    let compacted = self.group.compact(None);
                    self.note(compacted);
                }
                4 => {
                    let compacted = self.group.run_compactions();
                    self.note(compacted);
                }
                5..7 => self.keep_or_drop(),
                _ => self.write(),
            }
            self.note_durable();
            if !self.failures.is_empty() {
                return;
            }
        }
    }
}

/// The changing calls of a life without faults.
fn calls(seed: u64, steps: usize) -> u64 {
    let fs = Faulty::new(Arc::new(Memory::new()));
    let mut log = Vec::new();
    let mut life = Life::begin(Arc::new(fs.clone()), seed, &mut log, 0);
    life.live(steps);
    assert!(life.failures.is_empty(), "{:?}", life.failures);
    assert_eq!(life.group.stats().log_bytes, 0);
    drop(life);
    fs.calls()
}

/// Lives until the power is cut at call `k`; returns the entries that are durable.
fn live_until(
    memory: &Memory,
    seed: u64,
    log: &mut Vec<Entry>,
    durable: usize,
    k: u64,
    steps: usize,
) -> usize {
    let fs = Faulty::new(Arc::new(memory.clone()));
    let mut life = Life::begin(Arc::new(fs.clone()), seed, log, durable);
    fs.fail_from(k);
    life.live(steps);
    life.durable
}

#[test]
fn a_power_cut_at_every_call_leaves_what_a_prefix_of_the_log_does() {
    for seed in seeds(4) {
        let total = calls(seed, 80);
        for k in chosen(seed, total + 1) {
            let memory = Memory::new();
            let mut log = Vec::new();
            let durable = live_until(&memory, seed, &mut log, 0, k, 80);
            for mode in MODES {
                let _doing = Doing(&|| format!("ESKER_SEED={seed}, call {k} of {total}, {mode:?}"));
                let left = memory.power_cut(seed ^ k, mode);
                // Another life, with another cut, somewhere in it (or at its end).
                let (next, mut log) = (seed.wrapping_mul(31) ^ k, log.clone());
                let durable = live_until(&left, next, &mut log, durable, 1 + next * 7 % 50, 16);
                let left = left.power_cut(k, MODES[(next % 4) as usize]);
                let mut last = Life::begin(Arc::new(left.clone()), next, &mut log, durable);
                last.live(6);
                assert!(last.failures.is_empty(), "{:?}", last.failures);
                last.group.close().unwrap();
                drop(last);
                // Closing left nothing behind.
                let all = log.len();
                Life::begin(Arc::new(left), 0, &mut log, all);
            }
        }
    }
}

#[test]
fn a_call_that_fails_once_loses_nothing() {
    for seed in seeds(6) {
        let total = calls(seed, 80);
        for k in chosen(seed, total) {
            let _doing = Doing(&|| format!("ESKER_SEED={seed}, call {k} of {total} fails"));
            let memory = Memory::new();
            let fs = Faulty::new(Arc::new(memory.clone()));
            let mut log = Vec::new();
            let mut life = Life::begin(Arc::new(fs.clone()), seed, &mut log, 0);
            fs.fail_at(k);
            life.live(80);
            // Reads continue, and see what was acknowledged.
            let found = read(&life.group.snapshot()).unwrap();
            let held = applied(&found);
            assert!(held + 1 >= life.log.len());
            assert!(found == follows(&life.log[..held]));
            let durable = life.durable;
            drop(life);
            fs.clear();
            let left = memory.power_cut(k, MODES[(k % 4) as usize]);
            for fs in [left, memory] {
                let mut log = log.clone();
                let mut after = Life::begin(Arc::new(fs.clone()), k, &mut log, durable);
                after.live(5);
                assert!(after.failures.is_empty(), "{:?}", after.failures);
                drop(after);
                let all = log.len();
                Life::begin(Arc::new(fs), k, &mut log, all);
            }
        }
    }
}

/// The deliberate faults (`.ci/faults`) fit the sources, where there is git to ask.
#[test]
fn deliberate_faults_still_apply() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut count = 0;
    for file in std::fs::read_dir(folder.join("tests/faults")).unwrap() {
        let path = file.unwrap().path();
        let mut git = std::process::Command::new("git");
        let run = git
            .args(["apply", "--check"])
            .arg(&path)
            .current_dir(folder.join("../.."))
            .output();
        // Without git nothing is known.
        let Ok(output) = run else { return };
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{}: {text}", path.display());
        count += 1;
    }
    assert!(count >= 3, "{count} faults");
}

fn tree(group: &Group) -> u32 {
    match group.tree("a") {
        Some(tree) => tree,
        None => group.create_trees(&[("a".into(), vec![])]).unwrap()[0],
    }
}

fn put(group: &Group, key: &[u8]) -> Seq {
    let mut batch = Batch::new();
    batch.put(tree(group), key, b"value").unwrap();
    group.write(&mut batch, Durability::Sync).unwrap()
}

fn has(group: &Group, key: &[u8]) -> bool {
    let found = group.snapshot().get(tree(group), key, &Cost::default());
    found.unwrap().is_some()
}

#[test]
fn what_reads_the_log_says_that_there_is_none() {
    let memory = Memory::new();
    let fs: Arc<dyn Fs> = Arc::new(memory.clone());
    let group = open(fs.clone(), 0).unwrap();
    put(&group, b"k");
    let needs = |error: Option<Error>| assert!(matches!(error, Some(Error::NoLog { .. })));
    needs(group.tail(group.position()).err());
    needs(group.observe(|_| {}).err());
    needs(group.consume_log("c").err());
    needs(group.keep_log_for("c", group.position(), 1).err());
    assert_eq!(group.log_consumers().unwrap(), []);
    let kept = Options {
        keep_log: KeepLog {
            bytes: 1,
            age: None,
        },
        ..options(fs.clone(), 0)
    };
    needs(Group::open(Path::new("/kept"), kept, Arc::new(Layouts), true).err());
    let reader = |options| Group::open_reader(Path::new(DIR), options, Arc::new(Layouts)).err();
    needs(reader(options(fs.clone(), 0)));
    let other = reader(small(fs));
    assert!(matches!(other, Some(Error::OtherLog { is_own: false, .. })));
    let logs = memory.paths().into_iter();
    let is_log = |path: &std::path::PathBuf| path.extension().is_some_and(|e| e == "log");
    assert_eq!(logs.filter(is_log).count(), 0);
}

#[test]
fn a_store_keeps_the_mode_it_was_created_with() {
    let memory = Memory::new();
    for mode in [LogMode::Own, LogMode::External] {
        let dir = format!("/{mode:?}");
        let open = |log| {
            let options = Options {
                log,
                ..small(Arc::new(memory.clone()))
            };
            Group::open(Path::new(&dir), options, Arc::new(Layouts), true)
        };
        put(&open(mode).unwrap(), b"k");
        let other = match mode {
            LogMode::Own => LogMode::External,
            LogMode::External => LogMode::Own,
        };
        let Err(Error::OtherLog { path, is_own }) = open(other) else {
            panic!("opened with another mode");
        };
        assert_eq!(path, Path::new(&dir));
        assert_eq!(is_own, mode == LogMode::Own);
        // And its copies, too.
        let group = open(mode).unwrap();
        assert!(has(&group, b"k"));
        put(&group, b"in memory");
        let copy = format!("/copy of {mode:?}");
        group.checkpoint(Path::new(&copy)).unwrap();
        let open_copy = |log| {
            let options = Options {
                log,
                ..small(Arc::new(memory.clone()))
            };
            Group::open(Path::new(&copy), options, Arc::new(Layouts), false)
        };
        assert!(open_copy(other).is_err());
        let copy = open_copy(mode).unwrap();
        assert!(has(&copy, b"k") && has(&copy, b"in memory"));
    }
}

#[test]
fn what_is_durable_is_known() {
    let memory = Memory::new();
    let group = open(Arc::new(memory.clone()), 0).unwrap();
    let first = put(&group, b"first");
    assert!(group.durable_seq() < first);
    group.flush().unwrap();
    assert_eq!(group.durable_seq(), first);
    let second = put(&group, b"second");
    assert_eq!(group.durable_seq(), first);
    // A run that is loaded past the log flushes what was written before it.
    let entries: [(&[u8], &[u8]); 1] = [(b"third", b"value")];
    let mut entries = entries.into_iter().map(Ok);
    group.ingest(tree(&group), &mut entries).unwrap();
    assert!(group.durable_seq() > second);
    put(&group, b"lost");
    let left = memory.power_cut(1, PowerCut::Lost);
    let group = open(Arc::new(left), 0).unwrap();
    assert!(has(&group, b"first") && has(&group, b"second") && has(&group, b"third"));
    assert!(!has(&group, b"lost"));
    // The numbers of lost writes are not used again.
    let before = group.snapshot().seq();
    assert!(put(&group, b"lost") > before + 1);
}

//! Many threads on one group with background work: snapshots are consistent over trees, writers see
//! their own writes, and sequence numbers order everything. Bounded by counts, never by time.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::common::{DIR, small};
use esker_lsm::fs::Fs;
use esker_lsm::fs::disk::Disk;
use esker_lsm::{
    Batch, Cost, Cursor, Durability, Error, Group, Kind, Leveled, Options, Result, Snapshot,
    Tiered, TreeId, TreeOptions, TreeProvider,
};
use esker_sim::memory::{Memory, PowerCut};

const ACCOUNTS: u64 = 50;
const START: i64 = 1000;

/// `money` is leveled, its mirror is tiered; both with small sizes.
struct Trees;

impl TreeProvider for Trees {
    fn tree_options(&self, name: &str, _: &[u8]) -> Result<TreeOptions> {
        let policy: Arc<dyn esker_lsm::CompactionPolicy> = if name == "money" {
            Arc::new(Leveled {
                level0_runs: 2,
                level1_bytes: 64 << 10,
                multiplier: 4,
                ..Leveled::default()
            })
        } else {
            Arc::new(Tiered::default())
        };
        Ok(TreeOptions {
            policy,
            ..TreeOptions::default()
        })
    }
}

/// On a disk tables are mapped: others are removed meanwhile, while they are read.
fn open(dir: &Path, fs: Arc<dyn Fs>) -> Group {
    let options = Options {
        background: true,
        mapped_reads: dir != Path::new(DIR),
        ..small(fs)
    };
    Group::open(dir, options, Arc::new(Trees), true).unwrap()
}

fn account(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

/// A balance, with padding so that there is something to flush.
fn balance(amount: i64) -> Vec<u8> {
    let mut value = amount.to_le_bytes().to_vec();
    value.resize(200, amount as u8);
    value
}

fn amount(value: &[u8]) -> i64 {
    i64::from_le_bytes(*value.first_chunk().unwrap())
}

/// The trees: balances, their negatives, and the last action of each writer.
#[derive(Clone, Copy)]
struct Bank {
    money: TreeId,
    mirror: TreeId,
    diary: TreeId,
}

impl Bank {
    fn create(group: &Group) -> Bank {
        let names = ["money", "mirror", "diary"].map(|name| (name.to_string(), vec![]));
        let ids = group.create_trees(&names).unwrap();
        let (money, mirror, diary) = (ids[0], ids[1], ids[2]);
        let mut batch = Batch::new();
        for n in 0..ACCOUNTS {
            batch.put(money, &account(n), &balance(START)).unwrap();
            batch
                .also(Kind::Put, mirror, &account(n), &balance(-START))
                .unwrap();
        }
        group.write(&mut batch, Durability::Os).unwrap();
        Bank {
            money,
            mirror,
            diary,
        }
    }

    /// Moves money between two accounts, in one batch that depends on their balances.
    fn transfer(&self, group: &Group, rng: &mut fastrand::Rng, who: u64, n: u64) -> u64 {
        let (from, to) = (rng.u64(0..ACCOUNTS), rng.u64(0..ACCOUNTS));
        let sum = rng.i64(1..100);
        let mut batch = Batch::new();
        let how = match rng.usize(0..20) {
            0 => Durability::Sync,
            1 => Durability::Periodic(Duration::from_millis(5)),
            _ => Durability::Os,
        };
        let ticket = group.append_with(&mut batch, how, &mut |batch, first, before| {
            assert_eq!(before.seq() + 1, first);
            for (at, change) in [(from, -sum), (to, sum)] {
                if from != to {
                    let old = before
                        .get(self.money, &account(at), &Cost::default())?
                        .unwrap();
                    let new = amount(&old.value) + change;
                    batch.put(self.money, &account(at), &balance(new))?;
                    batch.also(Kind::Put, self.mirror, &account(at), &balance(-new))?;
                }
            }
            batch.put(self.diary, &account(who), &n.to_le_bytes())
        });
        let ticket = ticket.unwrap();
        group.acknowledge(ticket).unwrap();
        ticket.last()
    }

    /// The invariants of any snapshot.
    fn audit(&self, snapshot: &Snapshot, backward: bool) {
        let sum = |tree: TreeId, sign: i64| {
            let mut cursor = snapshot.cursor(tree, 0);
            let (mut sum, mut count) = (0, 0);
            if backward {
                cursor.seek_last().unwrap();
            } else {
                cursor.seek_first().unwrap();
            }
            while cursor.valid() {
                let here = amount(cursor.value());
                sum += here;
                count += 1;
                assert!(cursor.seq() <= snapshot.seq());
                let other = if sign > 0 { self.mirror } else { self.money };
                let other = snapshot.get(other, cursor.key(), &Cost::default());
                let other = other.unwrap().unwrap();
                assert_eq!((other.seq, amount(&other.value)), (cursor.seq(), -here));
                if backward {
                    cursor.prev().unwrap();
                } else {
                    cursor.next().unwrap();
                }
            }
            assert_eq!(count, ACCOUNTS);
            assert_eq!(sum, sign * START * ACCOUNTS as i64);
        };
        sum(self.money, 1);
        sum(self.mirror, -1);
    }

    fn diary(&self, snapshot: &Snapshot, who: u64) -> Option<(u64, u64)> {
        let found = snapshot.get(self.diary, &account(who), &Cost::default());
        let found = found.unwrap()?;
        Some((found.seq, amount(&found.value) as u64))
    }
}

const WRITERS: u64 = 3;
const TRANSFERS: u64 = 1500;

fn run(dir: &Path, fs: Arc<dyn Fs>) {
    let group = open(dir, fs.clone());
    let bank = Bank::create(&group);
    let done = AtomicBool::new(false);
    let written = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let (group, done, written) = (&group, &done, &written);
        let writer = move |who: u64| {
            let mut rng = fastrand::Rng::with_seed(who);
            let mut last = 0;
            for n in 0..TRANSFERS {
                let seq = bank.transfer(group, &mut rng, who, n);
                assert!(seq > last, "sequence numbers rise");
                last = seq;
                written.fetch_max(seq, Ordering::SeqCst);
                let snapshot = group.snapshot();
                assert!(snapshot.seq() >= seq);
                assert_eq!(bank.diary(&snapshot, who), Some((seq, n)), "own writes");
            }
        };
        let writers: Vec<_> = (0..WRITERS)
            .map(|who| scope.spawn(move || writer(who)))
            .collect();
        for reader in 0..3_u64 {
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(100 + reader);
                let mut seen = [0; WRITERS as usize];
                let (mut last, mut kept) = (0, Vec::new());
                for round in 0..100_000 {
                    let known = written.load(Ordering::SeqCst);
                    let snapshot = group.snapshot();
                    assert!(snapshot.seq() >= known.max(last), "time goes forward");
                    last = snapshot.seq();
                    bank.audit(&snapshot, rng.bool());
                    for who in 0..WRITERS {
                        if let Some((seq, n)) = bank.diary(&snapshot, who) {
                            assert!(seq <= last && n >= seen[who as usize]);
                            seen[who as usize] = n;
                        }
                    }
                    if round % 50 == 0 {
                        kept.push(snapshot);
                    }
                    if done.load(Ordering::SeqCst) {
                        break;
                    }
                }
                for snapshot in kept {
                    bank.audit(&snapshot, rng.bool());
                }
            });
        }
        scope.spawn(move || {
            for round in 0..100_000 {
                match round % 4 {
                    0 => group.flush().unwrap(),
                    1 => group.run_compactions().unwrap(),
                    2 => group.sync().unwrap(),
                    _ => group.compact(Some(bank.money)).unwrap(),
                }
                if done.load(Ordering::SeqCst) {
                    break;
                }
                std::thread::yield_now();
            }
        });
        for writer in writers {
            writer.join().unwrap();
        }
        done.store(true, Ordering::SeqCst);
    });
    let end = |group: &Group| {
        let snapshot = group.snapshot();
        bank.audit(&snapshot, false);
        for who in 0..WRITERS {
            assert_eq!(bank.diary(&snapshot, who).unwrap().1, TRANSFERS - 1);
        }
        assert!(group.check().errors.is_empty());
        snapshot.seq()
    };
    let seq = end(&group);
    group.close().unwrap();
    let after = group
        .snapshot()
        .get(bank.money, &account(0), &Cost::default());
    assert!(matches!(after, Err(Error::Closed)), "{after:?}");
    drop(group);
    assert_eq!(end(&open(dir, fs)), seq);
}

#[test]
fn a_bank_in_memory() {
    run(Path::new(DIR), Arc::new(Memory::new()));
}

#[test]
fn a_bank_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    run(dir.path(), Arc::new(Disk::new()));
}

/// A power cut while threads write: everything acknowledged as synced survives, and the total is
/// unchanged.
#[test]
fn a_bank_loses_power() {
    let modes = [
        PowerCut::Lost,
        PowerCut::Kept,
        PowerCut::Torn,
        PowerCut::Reordered,
    ];
    let memory = Memory::new();
    let group = open(Path::new(DIR), Arc::new(memory.clone()));
    let bank = Bank::create(&group);
    group.sync().unwrap();
    let synced: Vec<AtomicU64> = (0..WRITERS).map(|_| AtomicU64::new(0)).collect();
    let left = std::thread::scope(|scope| {
        let writers: Vec<_> = synced
            .iter()
            .zip(0..)
            .map(|(synced, who)| {
                let group = &group;
                scope.spawn(move || {
                    let mut rng = fastrand::Rng::with_seed(who);
                    for n in 1..800 {
                        bank.transfer(group, &mut rng, who, n);
                        if n % 16 == 0 {
                            group.sync().unwrap();
                            synced.store(n, Ordering::SeqCst);
                        }
                    }
                })
            })
            .collect();
        let mut left = Vec::new();
        while writers.iter().any(|writer| !writer.is_finished()) && left.len() < 60 {
            let known: Vec<u64> = synced.iter().map(|n| n.load(Ordering::SeqCst)).collect();
            let seed = left.len() as u64;
            left.push((known, memory.power_cut(seed, modes[left.len() % 4])));
            std::thread::sleep(Duration::from_millis(2));
        }
        left
    });
    assert!(!left.is_empty());
    for (known, memory) in left {
        let group = open(Path::new(DIR), Arc::new(memory));
        let snapshot = group.snapshot();
        bank.audit(&snapshot, false);
        for (who, n) in (0..).zip(known) {
            let found = bank.diary(&snapshot, who).map_or(0, |(_, n)| n);
            assert!(found >= n, "writer {who} synced {n}, and {found} is there");
        }
    }
}

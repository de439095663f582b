//! The run of a seed. Each seed first chooses the profile of its run: the actions and their
//! frequencies, the kinds of index and the strategies, and the sizes. Runs that do everything at
//! once find less.

use fastrand::Rng;

use crate::action::{
    ABSENT, ARRAY, Action, CHOOSE_EVERY, Cell, Change, DECLARED, Def, Fault, Inside, KEEP, Method,
    NULL, ONE, PATHS, Settings, Step, Write,
};
use crate::widen::widen;

/// The profile of a run.
struct Swarm {
    /// The frequency of each action, see [`Swarm::action`].
    weights: [u32; ACTIONS],
    kinds: Vec<u8>,
    strategies: Vec<u8>,
    keys: u8,
    values: u8,
    pad: u16,
    batch: usize,
    keeps: usize,
    arrays: usize,
    deletes: usize,
    inserts: usize,
    durable: usize,
    inside: usize,
    stores: u8,
    sets: u8,
    faults: Vec<Fault>,
    types: Vec<u8>,
}

const ACTIONS: usize = 26;

/// The frequency of each action in runs that have it.
const USUAL: [u32; ACTIONS] = [
    60, // batches
    6,  // prepared ones
    12, // flushes
    6,  // settled merges
    5,  // compactions
    3,  // syncs
    5,  // snapshots
    3,  // given back
    8,  // changes of indexes
    8,  // of strategies
    7,  // repairs
    3,  // backups
    4,  // closed and opened
    2,  // dropped and opened
    3,  // datasets made
    2,  // datasets dropped
    4,  // power cuts
    4,  // failing calls
    2,  // full disks
    3,  // room again
    2,  // damage
    2,  // checks
    2,  // nothing
    4,  // a burst of writes of the same keys
    2,  // everything deleted
    6,  // snapshots kept, and dropped
];

const FAULTS: [Fault; 4] = [Fault::Call, Fault::Short, Fault::Read, Fault::Sync];

/// Some of the numbers below `of`, at least one.
fn some(rng: &mut Rng, of: u8) -> Vec<u8> {
    let all = rng.usize(0..4) == 0;
    let mut chosen: Vec<u8> = (0..of).filter(|_| all || rng.usize(0..3) == 0).collect();
    if chosen.is_empty() {
        chosen.push(rng.u8(0..of));
    }
    chosen
}

impl Swarm {
    fn new(rng: &mut Rng) -> Swarm {
        let mut weights = USUAL;
        for weight in weights.iter_mut().skip(1) {
            *weight *= [0, 0, 1, 1, 2, 4][rng.usize(0..6)];
        }
        // Faults hide later bugs, so at least half of the runs have none.
        if rng.usize(0..2) == 0 {
            weights[16..21].fill(0);
        }
        let faults = some(rng, FAULTS.len() as u8);
        Swarm {
            weights,
            kinds: some(rng, 8),
            strategies: some(rng, 6),
            keys: [3, 8, 20, 70][rng.usize(0..4)],
            values: [1, 2, 4, 16][rng.usize(0..4)],
            pad: [0, 30, 200, 1500][rng.usize(0..4)],
            batch: [1, 3, 8, 30][rng.usize(0..4)],
            keeps: rng.usize(0..8),
            arrays: rng.usize(0..4),
            deletes: [1, 2, 5, 20][rng.usize(0..4)],
            inserts: [0, 0, 1, 3][rng.usize(0..4)],
            durable: [0, 1, 5][rng.usize(0..3)],
            inside: rng.usize(0..6),
            stores: rng.u8(1..4),
            sets: [1, 1, 2, 3][rng.usize(0..4)],
            faults: faults.iter().map(|at| FAULTS[usize::from(*at)]).collect(),
            types: some(rng, 5),
        }
    }

    fn of(&self, rng: &mut Rng, list: &[u8]) -> u8 {
        list[rng.usize(0..list.len())]
    }

    fn kind(&self, rng: &mut Rng) -> u8 {
        match rng.usize(0..10) {
            0 => rng.u8(0..8),
            _ => self.of(rng, &self.kinds),
        }
    }

    fn strategy(&self, rng: &mut Rng) -> u8 {
        match rng.usize(0..10) {
            0 => rng.u8(0..6),
            _ => self.of(rng, &self.strategies),
        }
    }

    fn def(&self, rng: &mut Rng) -> Def {
        let mut def = Def {
            keys: u8::from(rng.usize(0..3) == 0),
            kinds: [0; DECLARED],
            types: [0; DECLARED],
            tokenizers: [0; DECLARED],
            maintenance: self.strategy(rng),
            repair: [0, 0, 1, 2][rng.usize(0..4)],
            merging: rng.u8(0..4),
            versions: [0, 0, 1, 2][rng.usize(0..4)],
            expiry: 0,
            old_records: false,
            point: 0,
            lenient: false,
            unique: 0,
            compound: 0,
        };
        for at in 0..rng.usize(0..=DECLARED).max(rng.usize(0..2)) {
            def.kinds[at] = self.kind(rng) + 1;
            def.types[at] = self.of(rng, &self.types);
            def.tokenizers[at] = [0, 0, 1, 2][rng.usize(0..4)];
        }
        def
    }

    fn cell(&self, rng: &mut Rng) -> Cell {
        match rng.usize(0..20) {
            0 => ABSENT,
            1 => NULL,
            n if n < 2 + self.arrays => ARRAY + rng.u8(0..150),
            n if n < 6 + self.keeps => KEEP,
            _ => ONE + rng.u8(0..self.values),
        }
    }

    fn write(&self, rng: &mut Rng) -> Write {
        let key = if rng.bool() {
            rng.u8(0..self.keys)
        } else {
            rng.u8(0..self.keys.min(4))
        };
        if rng.usize(0..20) < self.deletes {
            return Write::Delete { key };
        }
        if rng.usize(0..60) == 0 {
            return Write::Refused { which: rng.u8(..) };
        }
        if rng.usize(0..30) == 0 {
            let what = rng.u8(0..8);
            return Write::Expect { key, what };
        }
        let cells: [Cell; PATHS.len()] = std::array::from_fn(|_| self.cell(rng));
        let pad = match self.pad {
            0 => 0,
            pad => rng.u16(0..pad),
        };
        let style = rng.u8(0..8) & rng.u8(0..8);
        if rng.usize(0..20) < self.inserts {
            Write::Insert {
                key,
                cells,
                pad,
                style,
            }
        } else {
            Write::Put {
                key,
                cells,
                pad,
                style,
            }
        }
    }

    fn writes(&self, rng: &mut Rng) -> Vec<Write> {
        let count = rng.usize(1..=self.batch);
        (0..count).map(|_| self.write(rng)).collect()
    }

    fn durability(&self, rng: &mut Rng) -> u8 {
        if rng.usize(0..10) < self.durable {
            rng.u8(0..2)
        } else {
            2
        }
    }

    fn inside(&self, rng: &mut Rng, depth: usize) -> Inside {
        let steps = if depth == 0 && rng.usize(0..6) < self.inside {
            rng.usize(1..8)
        } else {
            0
        };
        Inside {
            steps: (0..steps).map(|_| self.step(rng, depth + 1)).collect(),
            stop_after: match rng.usize(0..4) {
                0 => Some([0, 0, 1, 3, 9][rng.usize(0..5)]),
                _ => None,
            },
        }
    }

    fn step(&self, rng: &mut Rng, depth: usize) -> Step {
        let sum: u32 = self.weights.iter().sum();
        let mut at = rng.u32(0..sum);
        let mut number = 0;
        while at >= self.weights[number] {
            at -= self.weights[number];
            number += 1;
        }
        let action = self.action(rng, number, depth);
        let seed = match rng.usize(0..3) {
            0 => 0,
            _ => rng.u16(1..),
        };
        Step(seed, action)
    }

    /// Writes to a full disk, then a close and an immediate power cut.
    fn closed_when_full(&self, rng: &mut Rng) -> Vec<Step> {
        let (store, set) = (rng.u8(0..self.stores), rng.u8(0..self.sets));
        let batch = |rng: &mut Rng| Action::Batch {
            store,
            set,
            writes: self.writes(rng),
            durability: 2,
        };
        let mut actions = vec![batch(rng)];
        if rng.bool() {
            actions.push(Action::SyncLog { store });
        }
        let room = [0, 20, 100, 2000][rng.usize(0..4)];
        actions.push(Action::Full { store, room });
        actions.extend((0..rng.usize(0..3)).map(|_| batch(rng)));
        if rng.bool() {
            // Writes that cannot be flushed wait.
            actions.push(Action::Flush { store });
        }
        actions.push(Action::Reopen { store, close: true });
        actions.push(self.cut_soon(rng, store, 1));
        let steps = actions.into_iter();
        steps.map(|action| Step(1, action)).collect()
    }

    /// A power cut during the next steps: right after a version was installed, or some calls ahead.
    /// Mostly one that takes unsynced bytes.
    fn cut_soon(&self, rng: &mut Rng, store: u8, calls: u16) -> Action {
        let mode = [0, 0, 0, 1, 2, 3][rng.usize(0..6)];
        let seed = rng.u16(..);
        if calls > 1 && rng.usize(0..3) > 0 {
            Action::CutInstalled {
                store,
                after: [0, 0, 1, 2][rng.usize(0..4)],
                mode,
                seed,
            }
        } else {
            Action::Cut {
                store,
                after: rng.u16(0..calls),
                mode,
                seed,
            }
        }
    }

    /// Unsynced writes to many of the existing keys.
    fn unsynced(&self, rng: &mut Rng, store: u8, set: u8) -> Action {
        let durability = 2;
        if rng.usize(0..3) == 0 {
            return Action::Clear {
                store,
                set,
                durability,
            };
        }
        let writes = (0..self.keys.min(20)).filter_map(|key| match rng.usize(0..3) {
            0 => None,
            1 => Some(Write::Delete { key }),
            _ => Some(Write::Put {
                key,
                cells: std::array::from_fn(|_| self.cell(rng)),
                pad: 0,
                style: 0,
            }),
        });
        Action::Batch {
            store,
            set,
            writes: writes.collect(),
            durability,
        }
    }

    /// Writes that a handle could not sync before it ended, a sync by the next handle, and an
    /// immediate power cut.
    fn left_behind(&self, rng: &mut Rng) -> Vec<Step> {
        let (store, set) = (rng.u8(0..self.stores), rng.u8(0..self.sets));
        let mut actions = vec![
            self.unsynced(rng, store, set),
            Action::Fail {
                store,
                after: rng.u16(1..6),
                fault: [Fault::Call, Fault::Sync][rng.usize(0..2)],
            },
            Action::Reopen {
                store,
                close: rng.bool(),
            },
        ];
        actions.push(match rng.usize(0..3) {
            0 => Action::SyncLog { store },
            1 => Action::Flush { store },
            _ => Action::Reopen { store, close: true },
        });
        actions.push(self.cut_soon(rng, store, 1));
        let steps = actions.into_iter();
        steps.map(|action| Step(1, action)).collect()
    }

    /// A stopped change, unsynced writes after it, and a power cut while it resumes or right after:
    /// a sequence that chance alone seldom makes.
    fn overtaken(&self, rng: &mut Rng) -> Vec<Step> {
        let (store, set) = (rng.u8(0..self.stores), rng.u8(0..self.sets));
        let stops = |stop_after| Inside {
            steps: Vec::new(),
            stop_after,
        };
        // Mostly an undeclared attribute and an index with its own tree.
        let path = match rng.usize(0..3) {
            0 => rng.u8(0..PATHS.len() as u8),
            _ => rng.u8(DECLARED as u8..PATHS.len() as u8),
        };
        let kind = match rng.usize(0..3) {
            0 => self.kind(rng),
            _ => rng.u8(4..8),
        };
        // Mostly from a strategy without a key index to one with it.
        let (from, to) = match rng.usize(0..3) {
            0 => (None, self.strategy(rng)),
            _ => (Some(rng.u8(3..5)), rng.u8(0..3)),
        };
        let (is_index, tokenizer) = (rng.bool(), 0);
        let change = |change, inside| {
            if is_index {
                Action::Index {
                    store,
                    set,
                    path,
                    kind,
                    tokenizer,
                    change,
                    inside,
                }
            } else {
                Action::Strategy {
                    store,
                    set,
                    to,
                    inside,
                }
            }
        };
        let add = [Change::Add, Change::Switch][rng.usize(0..2)];
        let last = [None, None, Some(1), Some(3)][rng.usize(0..4)];
        let mut actions = Vec::new();
        if rng.bool() {
            let put = |key| Write::Put {
                key,
                cells: std::array::from_fn(|_| self.cell(rng)),
                pad: 0,
                style: 0,
            };
            actions.push(Action::Batch {
                store,
                set,
                writes: (0..self.keys.min(20)).map(put).collect(),
                durability: 2,
            });
        }
        if let Some(to) = from.filter(|_| !is_index) {
            actions.push(Action::Strategy {
                store,
                set,
                to,
                inside: stops(None),
            });
        }
        actions.push(change(add, stops(Some(0))));
        actions.push(self.unsynced(rng, store, set));
        if rng.usize(0..4) > 0 {
            actions.push(self.cut_soon(rng, store, if is_index { 16 } else { 40 }));
        }
        actions.push(change(Change::Resume, stops(last)));
        actions.push(self.cut_soon(rng, store, 1));
        let steps = actions.into_iter();
        steps.map(|action| Step(1, action)).collect()
    }

    /// Queries that find unsynced obsolete writes, and a power cut while the store saves what they
    /// noted.
    fn noted(&self, rng: &mut Rng) -> Vec<Step> {
        let (store, set) = (rng.u8(0..self.stores), rng.u8(0..self.sets));
        let inside = Inside {
            steps: Vec::new(),
            stop_after: None,
        };
        // Under deferred maintenance, queries note obsolete writes.
        let mut actions = vec![
            Action::Strategy {
                store,
                set,
                to: 3,
                inside: inside.clone(),
            },
            Action::Index {
                store,
                set,
                path: rng.u8(0..PATHS.len() as u8),
                kind: rng.u8(4..8),
                tokenizer: 0,
                change: Change::Add,
                inside,
            },
            Action::Flush { store },
            self.unsynced(rng, store, set),
            Action::Look { store },
            Action::Look { store },
            Action::Look { store },
            self.cut_soon(rng, store, 32),
        ];
        actions.push(match rng.usize(0..4) {
            0 => self.action(rng, 10, 1),
            1 => Action::Reopen { store, close: true },
            _ => Action::Flush { store },
        });
        actions.push(self.cut_soon(rng, store, 1));
        let steps = actions.into_iter();
        steps.map(|action| Step(rng.u16(1..), action)).collect()
    }

    fn action(&self, rng: &mut Rng, number: usize, depth: usize) -> Action {
        let store = rng.u8(0..self.stores);
        let set = rng.u8(0..self.sets);
        match number {
            1 => {
                if rng.bool() {
                    Action::Prepare {
                        store,
                        set,
                        writes: self.writes(rng),
                    }
                } else {
                    Action::Commit {
                        which: rng.u8(0..2),
                        durability: self.durability(rng),
                    }
                }
            }
            2 => Action::Flush { store },
            3 => Action::Settle { store },
            4 => Action::Compact {
                store,
                set: rng.bool().then_some(set),
            },
            5 => Action::SyncLog { store },
            6 => Action::Hold { store, set },
            7 => Action::Release {
                which: rng.u8(0..4),
            },
            8 => Action::Index {
                store,
                set,
                path: rng.u8(0..PATHS.len() as u8 * 3 + 1),
                kind: self.kind(rng),
                tokenizer: [0, 0, 1, 2][rng.usize(0..4)],
                change: [
                    Change::Add,
                    Change::Add,
                    Change::Switch,
                    Change::Switch,
                    Change::DropIndex,
                    Change::Resume,
                    Change::Resume,
                ][rng.usize(0..7)],
                inside: self.inside(rng, depth),
            },
            9 => Action::Strategy {
                store,
                set,
                to: self.strategy(rng),
                inside: self.inside(rng, depth),
            },
            10 => Action::RepairSet {
                store,
                set,
                method: [
                    Method::Auto,
                    Method::Auto,
                    Method::ByKey,
                    Method::ByIndex,
                    Method::Primary,
                    Method::PrimaryBefore,
                    Method::PrimaryAfter,
                ][rng.usize(0..7)],
                memory: [1, 64 << 10, 16 << 20][rng.usize(0..3)],
                lookups: rng.u8(0..3),
                bloom: rng.bool(),
                inside: self.inside(rng, depth),
            },
            11 => match rng.usize(0..3) {
                0 => Action::Backup {
                    store,
                    kept: rng.bool(),
                },
                _ => Action::BackupDuring {
                    store,
                    set,
                    kept: rng.bool(),
                    call: [0, 0, rng.u8(0..16), rng.u8(0..64)][rng.usize(0..4)],
                    writes: self.writes(rng),
                    known: rng.usize(0..4) > 0,
                    flush: rng.bool(),
                },
            },
            12 => Action::Reopen { store, close: true },
            13 => Action::Reopen {
                store,
                close: false,
            },
            14 => Action::Create {
                store,
                name: rng.u8(0..self.sets + 1),
                def: self.def(rng),
            },
            15 => Action::DropSet { store, set },
            16 if rng.usize(0..4) == 0 => Action::CutInstalled {
                store,
                after: rng.u8(0..6),
                mode: rng.u8(0..4),
                seed: rng.u16(..),
            },
            16 => Action::Cut {
                store,
                after: match rng.usize(0..3) {
                    0 => 0,
                    _ => [1, 3, 10, 30, 100][rng.usize(0..5)] + rng.u16(0..20),
                },
                mode: rng.u8(0..4),
                seed: rng.u16(..),
            },
            17 => Action::Fail {
                store,
                after: [1, 3, 10, 30][rng.usize(0..4)] + rng.u16(0..10),
                fault: self.faults[rng.usize(0..self.faults.len())],
            },
            18 => Action::Full {
                store,
                room: [0, 100, 2000, 20_000][rng.usize(0..4)],
            },
            19 => Action::Room { store },
            20 => Action::Damage {
                store,
                file: rng.u16(..),
                at: rng.u32(..),
                cut: rng.usize(0..4) == 0,
                seed: rng.u16(..),
            },
            21 => Action::Check { store },
            22 => Action::Look { store },
            25 => Action::Snapshot {
                store,
                name: rng.u8(0..3),
                drops: rng.usize(0..3) > 0,
            },
            24 => Action::Clear {
                store,
                set,
                durability: self.durability(rng),
            },
            23 => {
                // Uses few keys, repeatedly.
                let cells = std::array::from_fn(|_| self.cell(rng));
                let first = rng.u8(0..self.keys);
                let count = rng.u8(1..20);
                let writes = (0..count).map(|n| match rng.usize(0..12) {
                    0 => Write::Delete {
                        key: first.wrapping_add(n % 8),
                    },
                    _ => Write::Put {
                        key: first.wrapping_add(n % 8),
                        cells,
                        pad: self.pad / 2,
                        style: 0,
                    },
                });
                Action::Batch {
                    store,
                    set,
                    writes: writes.collect(),
                    durability: self.durability(rng),
                }
            }
            _ => Action::Batch {
                store,
                set,
                writes: self.writes(rng),
                durability: self.durability(rng),
            },
        }
    }
}

/// The run of a seed.
pub(crate) fn run(seed: u64) -> (Settings, Vec<Step>) {
    let mut rng = Rng::with_seed(seed);
    let mut settings = Settings {
        table_size: [300, 2 << 10, 8 << 10][rng.usize(0..3)],
        memory: [16 << 10, 24 << 10, 64 << 10, 512 << 10][rng.usize(0..4)],
        lock: rng.bool(),
        choose_every: [8, 40, CHOOSE_EVERY][rng.usize(0..3)],
        piece_bytes: None,
    };
    let swarm = Swarm::new(&mut rng);
    let count = match rng.usize(0..20) {
        0 => rng.usize(80..200),
        _ => rng.usize(15..60),
    };
    let mut steps = Vec::new();
    for name in 0..swarm.sets {
        let def = swarm.def(&mut rng);
        steps.push(Step(
            0,
            Action::Create {
                store: 0,
                name,
                def,
            },
        ));
    }
    steps.extend((0..count).map(|_| swarm.step(&mut rng, 0)));
    type Block = fn(&Swarm, &mut Rng) -> Vec<Step>;
    let blocks: [(usize, Block); 4] = [
        (4, Swarm::overtaken),
        (6, Swarm::noted),
        (6, Swarm::closed_when_full),
        (8, Swarm::left_behind),
    ];
    for (one_in, block) in blocks {
        if rng.usize(0..one_in) == 0 {
            let at = rng.usize(swarm.sets.into()..=steps.len());
            steps.splice(at..at, block(&swarm, &mut rng));
        }
    }
    settings.piece_bytes = [None, Some(512), Some(4 << 10)][rng.usize(0..3)];
    (settings, widen(seed, steps))
}

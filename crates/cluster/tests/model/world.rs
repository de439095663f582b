//! Random runs: clients, what they do, and the end, when all is quiet.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use esker_cluster::{Options, RepairOptions, Store};
use esker_model::definition::{DatasetDef, Index};
use esker_model::schema::KeyType;
use esker_model::tokens::Tokenizer;
use parking_lot::Mutex;

use crate::client::{Client, DATASETS, Do, KEYS, VALUES, key};
use crate::history::{History, Judge, Stamps};
use crate::net::{Net, Skewed, Trouble};

const CLIENTS: usize = 3;
const HOUR: u64 = 3_600_000;
const DAY: u64 = 24 * HOUR;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    pub(crate) trouble: Trouble,
    pub(crate) versions: u32,
    pub(crate) split_at: u64,
    pub(crate) intersect_from: usize,
    pub(crate) remove_from: usize,
    pub(crate) skews: [i64; CLIENTS],
}

/// What a client does, in which dataset.
#[derive(Debug, Clone)]
pub(crate) struct Act(usize, usize, Do);

impl esker_sim::world::Action for Act {}

pub(crate) struct World {
    pub(crate) settings: Settings,
    acts: Vec<Act>,
    pub(crate) net: Arc<Net>,
    pub(crate) history: Mutex<History>,
}

impl World {
    fn create(&self) {
        let clocks = Arc::new(Skewed {
            net: self.net.clone(),
            ahead: 0,
        });
        let options = Options {
            clocks,
            is_reader: false,
            split_at: 1_000,
            intersect_from: 1,
            remove_from: 1,
        };
        let def = DatasetDef::new("id", KeyType::Int)
            .versions(self.settings.versions)
            .index(
                "s",
                Index::composite().string().tokenizer(Tokenizer::Prefix),
            )
            .index("n", Index::composite().int())
            .index("tags", Index::composite().string());
        for name in DATASETS {
            // It may take several tries: the store is troubled from the beginning.
            for _ in 0..50 {
                let store = Store::open(self.net.clone(), true, options.clone());
                let known = store.and_then(|store| store.create_dataset(name, &def));
                if matches!(known, Ok(_) | Err(esker_cluster::Error::Exists(_))) {
                    break;
                }
            }
        }
    }

    fn live(&self) {
        let mut works: Vec<Box<dyn FnOnce() + Send + '_>> = Vec::new();
        for client in 0..CLIENTS {
            works.push(Box::new(move || {
                let skew = self.settings.skews[client];
                let mut process = Client::new(self, skew);
                let mine = self.acts.iter().filter(|act| act.0 == client);
                for (nth, act) in mine.enumerate() {
                    process.act(act.1, act.2);
                    if matches!(act.2, Do::Wait(DAY..)) {
                        // As operators must, within ten days.
                        self.net.mend();
                    }
                    self.net.sleep(1 + (nth as u64 * 37) % 400);
                    if nth % 8 == 7 {
                        process.open = [None, None];
                        self.net.revive();
                    }
                }
            }));
        }
        self.net.run(works);
    }

    /// The timestamps of each key's writes, with their numbers.
    fn stamps(&self) -> Stamps {
        let tables = DATASETS.map(|name| self.net.table_of(name));
        let mut found = Stamps::new();
        for (table, partition, at, write) in self.net.stamps() {
            let dataset = tables.iter().position(|of| *of == Some(table.clone()));
            let key = (0..KEYS).find(|number| key(*number).as_bytes() == partition);
            if let (Some(dataset), Some(key)) = (dataset, key) {
                found.entry((dataset, key)).or_default().push((at, write));
            }
        }
        found
    }

    fn quiet(&self) {
        self.net.heal(4 * HOUR);
        self.net.run(vec![Box::new(|| {
            for dataset in 0..DATASETS.len() {
                self.settle(dataset);
            }
        })]);
    }

    /// Once all is quiet, a repair leaves nothing that is of no use.
    fn settle(&self, dataset: usize) {
        self.net.revive();
        let mut client = Client::new(self, 0);
        let Some(opened) = client.open(dataset) else {
            return;
        };
        let check = || opened.check(&mut |_| ControlFlow::Continue(())).unwrap();
        let before = check();
        assert!(before.errors.is_empty(), "before: {:?}", before.errors);
        let repair = |full| {
            let options = RepairOptions {
                full,
                rows_per_second: None,
            };
            let done = opened.repair(options, &mut |_| ControlFlow::Continue(()));
            let done = done.unwrap();
            assert!(done.complete, "{done:?}");
        };
        repair(false);
        let mut versions: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
        let table = self.net.table_of(DATASETS[dataset]);
        for (of, partition, _) in self.net.rows(false) {
            if Some(of) == table {
                *versions.entry(partition).or_default() += 1;
            }
        }
        let most = versions.values().max().copied().unwrap_or(0);
        let kept = self.settings.versions as usize + 1;
        assert!(most <= kept, "{most} versions after a repair");
        repair(true);
        let after = check();
        assert!(after.errors.is_empty(), "after: {:?}", after.errors);
        let useless = after.obsolete + after.dangling + after.pending;
        assert!(useless == 0, "after the repair: {after:?}");
        for at in 0..KEYS {
            client.act(dataset, Do::Get(at));
            client.act(dataset, Do::Versions { key: at, at: false });
        }
        for value in 0..VALUES {
            for range in [false, true] {
                client.act(dataset, Do::Count { value, range });
                client.act(
                    dataset,
                    Do::Find {
                        value,
                        oldest: false,
                        range,
                        limit: None,
                        waits: false,
                    },
                );
            }
            client.act(dataset, Do::ByValue(value));
        }
        for reverse in [false, true] {
            client.act(dataset, Do::Scan { from: 0, reverse });
        }
    }
}

impl esker_sim::world::World for World {
    type Settings = Settings;
    type Action = Act;

    fn generate(seed: u64) -> (Settings, Vec<Act>) {
        let mut random = fastrand::Rng::with_seed(seed);
        let trouble = Trouble {
            seed,
            bad: [0, 30, 150][random.usize(0..3)],
            pauses: [0, 5, 30][random.usize(0..3)],
            mends: true,
            coarse: [1, 1, 200][random.usize(0..3)],
        };
        let skew = [0, 1_500][random.usize(0..2)];
        let mut skews: [i64; CLIENTS] = std::array::from_fn(|_| random.i64(-skew..=skew));
        if random.u32(0..4) == 0 {
            // Such a clock must be refused.
            let off = random.i64(2_300..90_000);
            skews[random.usize(0..CLIENTS)] = if random.bool() { off } else { -off };
        }
        let settings = Settings {
            trouble,
            versions: [1, 3][random.usize(0..2)],
            split_at: [4, 16, 1_000][random.usize(0..3)],
            intersect_from: [1, 3][(seed % 2) as usize],
            remove_from: [1, 2, 8][(seed % 3) as usize],
            skews,
        };
        let acts = (0..random.usize(10..140)).map(|_| {
            let (at, value) = (random.u64(0..KEYS), random.u64(0..VALUES));
            let dataset = usize::from(random.u32(0..5) == 0);
            Act(
                random.usize(0..CLIENTS),
                dataset,
                act(&mut random, at, value),
            )
        });
        (settings, acts.collect())
    }

    fn new(settings: Settings) -> World {
        let net = Net::new(settings.trouble, CLIENTS);
        World {
            settings,
            acts: Vec::new(),
            net,
            history: Mutex::default(),
        }
    }

    fn step(&mut self, act: &Act) {
        self.acts.push(act.clone());
    }

    fn end(&mut self) {
        self.net.run(vec![Box::new(|| self.create())]);
        self.live();
        self.quiet();
        let judge = Judge {
            history: &self.history.lock(),
            stamps: &self.stamps(),
            kept: self.settings.versions as usize,
        };
        judge.all();
    }

    fn as_test(seed: u64, settings: Settings, acts: &[Act]) -> String {
        format!("seed {seed}: {settings:?}\n{acts:#?}")
    }
}

fn act(random: &mut fastrand::Rng, at: u64, value: u64) -> Do {
    match random.u32(0..54) {
        0..11 => Do::Put(at, value),
        11..15 => Do::Delete(at),
        15..19 => Do::Update(at, value),
        19..22 => Do::Insert(at, value),
        22..24 => Do::PutIf(at, value),
        24..28 => Do::Get(at),
        28..35 => Do::Find {
            value,
            oldest: random.bool(),
            range: random.bool(),
            limit: [None, None, Some(1), Some(3)][random.usize(0..4)],
            waits: random.u32(0..6) == 0,
        },
        35..37 => Do::Count {
            value,
            range: random.bool(),
        },
        37..39 => Do::Scan {
            from: at,
            reverse: random.bool(),
        },
        39..41 => Do::Versions {
            key: at,
            at: random.bool(),
        },
        41 => Do::ByValue(value),
        42..45 => Do::Repair {
            full: random.u32(0..3) == 0,
            stop: random.u32(0..3) == 0,
        },
        45 => Do::Check,
        46..50 => Do::Wait([3_000, 10_000, 70_000, HOUR, 4 * HOUR, 12 * DAY][random.usize(0..6)]),
        50..52 => Do::Kill(random.u32(0..12)),
        _ => Do::DeleteWhere {
            value,
            range: random.bool(),
        },
    }
}

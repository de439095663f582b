//! Clients, what they do, and what must be true of their answers.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use esker_cluster::{Dataset, Options, RepairOptions, Store};
use esker_model::Key;
use esker_model::condition::field;
use esker_model::definition::{DatasetDef, Index};
use esker_model::query::{Order, PageToken, Request};
use esker_model::record::Update;
use esker_model::schema::{KeyType, Value};
use esker_model::tokens::Tokenizer;
use parking_lot::Mutex;

use crate::net::{Net, Skewed, Trouble};

const CLIENTS: usize = 3;
const KEYS: u64 = 6;
const VALUES: u64 = 4;
const HOUR: u64 = 3_600_000;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    trouble: Trouble,
    versions: u32,
    split_at: u64,
    skews: [i64; CLIENTS],
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Do {
    Put(u64, u64),
    Delete(u64),
    Update(u64, u64),
    Insert(u64, u64),
    Get(u64),
    Find {
        value: u64,
        oldest: bool,
        range: bool,
        limit: Option<usize>,
    },
    Repair {
        full: bool,
        stop: bool,
    },
    Wait(u64),
    Kill(u32),
}

#[derive(Debug, Clone)]
pub(crate) struct Act(usize, Do);

impl esker_sim::world::Action for Act {}

/// A write: the number of it is its place.
#[derive(Debug, Clone)]
struct Written {
    key: u64,
    /// `None` for a deletion.
    value: Option<u64>,
    begun: u64,
    acknowledged: Option<u64>,
    /// The number of the write that a conditional one was decided on.
    before: Option<Option<u64>>,
}

/// An answer: for each key that it may have, the number of the write that was found.
#[derive(Debug, Clone)]
struct Answered {
    /// For the text of a failure.
    #[allow(dead_code)]
    what: String,
    keys: Vec<u64>,
    values: BTreeSet<u64>,
    /// Key, number of the write, timestamp.
    found: Vec<(u64, u64, u64)>,
    oldest: bool,
    is_find: bool,
    full: bool,
    begun: u64,
    ended: u64,
}

#[derive(Default)]
struct History {
    writes: Vec<Written>,
    answers: Vec<Answered>,
}

pub(crate) struct World {
    settings: Settings,
    acts: Vec<Act>,
    net: Arc<Net>,
    history: Mutex<History>,
}

fn key(number: u64) -> Key {
    Key::new(KeyType::Int, &Value::Int(i128::from(number))).unwrap()
}

fn json(key: u64, value: u64, write: u64) -> Vec<u8> {
    format!(
        r#"{{"id":{key},"s":"ab{value}","n":{value},"tags":["t{value}","t{}"],"w":{write}}}"#,
        (value + 1) % VALUES
    )
    .into_bytes()
}

fn number(json: &[u8], name: &str) -> u64 {
    let json: serde_json::Value = serde_json::from_slice(json).unwrap();
    json[name].as_u64().unwrap()
}

/// A client's process.
struct Client<'w> {
    world: &'w World,
    skew: i64,
    dataset: Option<Dataset>,
}

impl Client<'_> {
    fn open(&mut self) -> Option<Dataset> {
        if self.dataset.is_none() {
            let net = self.world.net.clone();
            let options = Options {
                clocks: Arc::new(Skewed {
                    net: net.clone(),
                    ahead: self.skew,
                }),
                is_reader: false,
                split_at: self.world.settings.split_at,
            };
            let store = Store::open(net, false, options).ok()?;
            self.dataset = store.dataset("d").ok();
        }
        self.dataset.clone()
    }

    fn now(&self) -> u64 {
        self.world.net.now()
    }

    /// Begins a write.
    fn begin(&self, key: u64, value: Option<u64>) -> u64 {
        let begun = self.now();
        let mut history = self.world.history.lock();
        let (acknowledged, before) = (None, None);
        history.writes.push(Written {
            key,
            value,
            begun,
            acknowledged,
            before,
        });
        let number = history.writes.len() as u64 - 1;
        self.world.net.mark(number);
        number
    }

    fn end(&self, write: u64, is_done: bool, before: Option<Option<u64>>) {
        let now = self.now();
        let mut history = self.world.history.lock();
        let written = &mut history.writes[usize::try_from(write).unwrap()];
        written.acknowledged = is_done.then_some(now);
        written.before = before;
    }

    fn act(&mut self, what: Do) {
        match what {
            Do::Wait(millis) => return self.world.net.sleep(millis),
            Do::Kill(calls) => return self.world.net.kill_in(calls),
            _ => {}
        }
        let Some(dataset) = self.open() else { return };
        match what {
            Do::Put(at, value) => {
                let write = self.begin(at, Some(value));
                let mut batch = dataset.batch();
                let done = batch
                    .put_json(&json(at, value, write))
                    .and_then(|()| batch.commit());
                self.end(write, done.is_ok(), None);
            }
            Do::Delete(at) => {
                let write = self.begin(at, None);
                let mut batch = dataset.batch();
                let done = batch.delete(&key(at)).and_then(|()| batch.commit());
                self.end(write, done.is_ok(), None);
            }
            Do::Insert(at, value) => {
                let write = self.begin(at, Some(value));
                let mut batch = dataset.batch();
                let done = batch
                    .insert_json(&json(at, value, write))
                    .and_then(|()| batch.commit());
                self.end(write, done.is_ok(), Some(None));
            }
            Do::Update(at, value) => {
                let write = self.begin(at, Some(value));
                let done = dataset.update::<esker_cluster::Error>(&key(at), &mut |_| {
                    Ok(Update::Put(json(at, value, write)))
                });
                let before = done
                    .as_ref()
                    .ok()
                    .map(|before| before.as_ref().map(|before| number(before.json(), "w")));
                self.end(write, done.is_ok(), before);
            }
            Do::Get(at) => {
                let begun = self.now();
                if let Ok(found) = dataset.get(&key(at)) {
                    let found = found.iter().map(|r| (at, number(r.json(), "w"), r.seq()));
                    let answer = self.answer("get", begun, found.collect());
                    self.world.history.lock().answers.push(Answered {
                        keys: vec![at],
                        ..answer
                    });
                }
            }
            Do::Find {
                value,
                oldest,
                range,
                limit,
            } => {
                self.find(&dataset, (value, range), oldest, limit);
            }
            Do::Repair { full, stop } => {
                let _ = dataset.repair(
                    RepairOptions {
                        full,
                        rows_per_second: None,
                    },
                    &mut |_| {
                        if stop {
                            ControlFlow::Break(())
                        } else {
                            ControlFlow::Continue(())
                        }
                    },
                );
            }
            Do::Wait(_) | Do::Kill(_) => {}
        }
    }

    fn answer(&self, what: &str, begun: u64, found: Vec<(u64, u64, u64)>) -> Answered {
        Answered {
            what: what.to_string(),
            keys: (0..KEYS).collect(),
            values: (0..VALUES).collect(),
            found,
            oldest: false,
            is_find: false,
            full: true,
            begun,
            ended: self.now(),
        }
    }

    fn find(
        &self,
        dataset: &Dataset,
        (value, range): (u64, bool),
        oldest: bool,
        limit: Option<usize>,
    ) {
        let kind = (value + u64::from(range)) % 3;
        let (condition, values): (_, BTreeSet<u64>) = match (kind, range) {
            (_, true) => (field("n").ge(value as i64), (value..VALUES).collect()),
            (0, _) => (field("s").eq(format!("ab{value}")), [value].into()),
            (1, _) => {
                // Each index has more than the answer: the records decide.
                let next = format!("t{}", (value + 1) % VALUES);
                let both = field("tags").eq(format!("t{value}")) & field("tags").eq(next);
                (both, [value].into())
            }
            (_, _) => (
                field("n").eq(value as i64) | field("n").eq(0),
                [value, 0].into(),
            ),
        };
        let what = format!("{condition} limit {limit:?}");
        let mut request = Request::of(condition);
        request.order = if oldest { Order::Oldest } else { Order::Newest };
        request.limit = limit;
        let begun = self.now();
        let mut found = Vec::new();
        let Ok(mut answer) = dataset.find(&request) else {
            return;
        };
        loop {
            match answer.next_record() {
                Ok(Some(r)) => found.push((number(r.json(), "id"), number(r.json(), "w"), r.seq())),
                Ok(None) => break,
                Err(_) => return,
            }
        }
        let full = limit.is_none_or(|limit| found.len() < limit);
        if !full {
            // The next page is of its own: it begins behind this one.
            request.after = answer.last().map(PageToken);
            let seqs: Vec<u64> = found.iter().map(|(.., at)| *at).collect();
            let Ok(mut next) = dataset.find(&request) else {
                return;
            };
            while let Ok(Some(record)) = next.next_record() {
                assert!(!seqs.contains(&record.seq()), "a page repeats an answer");
            }
        }
        let answer = self.answer(&what, begun, found);
        let answer = Answered {
            values,
            oldest,
            is_find: true,
            full,
            ..answer
        };
        self.world.history.lock().answers.push(answer);
    }
}

impl World {
    fn live(&self) {
        let mut works: Vec<Box<dyn FnOnce() + Send + '_>> = Vec::new();
        for client in 0..CLIENTS {
            works.push(Box::new(move || {
                let skew = self.settings.skews[client];
                let mut process = Client {
                    world: self,
                    skew,
                    dataset: None,
                };
                let mine = self.acts.iter().filter(|act| act.0 == client);
                for (nth, act) in mine.enumerate() {
                    process.act(act.1);
                    self.net.sleep(1 + (nth as u64 * 37) % 400);
                    if nth % 8 == 7 {
                        process.dataset = None;
                        self.net.revive();
                    }
                }
                process.dataset = None;
            }));
        }
        self.net.run(works);
    }

    /// The timestamps of each key's writes, with their numbers.
    fn stamps(&self) -> BTreeMap<u64, Vec<(u64, u64)>> {
        let mut found: BTreeMap<u64, Vec<(u64, u64)>> = BTreeMap::new();
        for (partition, at, write) in self.net.stamps() {
            let key = (0..KEYS).find(|number| key(*number).as_bytes() == partition);
            if let Some(key) = key {
                found.entry(key).or_default().push((at, write));
            }
        }
        found
    }

    fn check(&self) {
        let history = self.history.lock();
        let stamps = self.stamps();
        let none = Vec::new();
        let write = |number: u64| &history.writes[usize::try_from(number).unwrap()];
        for answer in &history.answers {
            let ranks: Vec<u64> = answer.found.iter().map(|(.., at)| *at).collect();
            let in_order = ranks.windows(2).all(|w| (w[0] < w[1]) == answer.oldest);
            assert!(in_order || !answer.is_find, "not in order: {answer:?}");
            let keys: BTreeSet<u64> = answer.found.iter().map(|(key, ..)| *key).collect();
            assert!(keys.len() == answer.found.len(), "found twice: {answer:?}");
            for (key, number, _) in &answer.found {
                let of = write(*number);
                let fits = of.value.is_some_and(|value| answer.values.contains(&value));
                assert!(of.key == *key && fits, "{of:?} does not match: {answer:?}");
            }
            for key in &answer.keys {
                let mine = stamps.get(key).unwrap_or(&none);
                let is_acknowledged = |number: u64| {
                    write(number)
                        .acknowledged
                        .is_some_and(|at| at < answer.begun)
                };
                let last = mine
                    .iter()
                    .filter(|(_, number)| is_acknowledged(*number))
                    .max();
                // A conditional write that was tried again has several timestamps: the last counts.
                let Some((at, last)) = last else { continue };
                let found = answer.found.iter().find(|(found, ..)| found == key);
                let later = |(other, number): &&(u64, u64)| {
                    other > at && write(*number).begun < answer.ended && number != last
                };
                match found {
                    Some((.., seq)) => assert!(seq >= at, "stale: key {key}: {answer:?}"),
                    None => {
                        let of = write(*last);
                        let due = of.value.is_some_and(|value| answer.values.contains(&value));
                        let others: Vec<_> = mine.iter().filter(later).collect();
                        let is_hidden = match answer.is_find {
                            true => !others.is_empty(),
                            false => others.iter().any(|(_, n)| write(*n).value.is_none()),
                        };
                        let is_behind = !answer.full
                            && ranks
                                .last()
                                .is_some_and(|last| (at > last) == answer.oldest);
                        assert!(
                            !due || is_hidden || is_behind,
                            "not found: key {key} at {at}: {of:?} {answer:?} {mine:?}"
                        );
                    }
                }
            }
        }
        // No two acknowledged updates were decided on the same write.
        let mut decided = BTreeMap::new();
        for (number, of) in history.writes.iter().enumerate() {
            let (Some(Some(before)), Some(_)) = (of.before, of.acknowledged) else {
                continue;
            };
            if let Some(other) = decided.insert(before, number) {
                panic!("writes {other} and {number} were decided on {before}");
            }
        }
    }

    fn quiet(&self) {
        self.net.heal(4 * HOUR);
        let failed = Mutex::new(None);
        let work = || {
            self.net.revive();
            let mut client = Client {
                world: self,
                skew: 0,
                dataset: None,
            };
            let Some(dataset) = client.open() else { return };
            let check = || dataset.check(&mut |_| ControlFlow::Continue(())).unwrap();
            let before = check();
            let repair = |full| {
                let options = RepairOptions {
                    full,
                    rows_per_second: None,
                };
                let done = dataset
                    .repair(options, &mut |_| ControlFlow::Continue(()))
                    .unwrap();
                assert!(done.complete, "{done:?}");
            };
            repair(false);
            let mut versions: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
            for (partition, row) in self.net.rows(false) {
                *versions.entry(partition).or_default() += 1;
                let _ = row;
            }
            let most = versions.values().max().copied().unwrap_or(0);
            repair(true);
            *failed.lock() = Some((before, most, check()));
            for at in 0..KEYS {
                client.act(Do::Get(at));
            }
            for value in 0..VALUES {
                for range in [false, true] {
                    client.act(Do::Find {
                        value,
                        oldest: false,
                        range,
                        limit: None,
                    });
                }
            }
        };
        self.net.run(vec![Box::new(work)]);
        let (before, most, after) = failed.into_inner().expect("the store is open");
        assert!(
            before.errors.is_empty(),
            "before the repair: {:?}",
            before.errors
        );
        assert!(
            most <= self.settings.versions as usize + 1,
            "{most} versions after a repair"
        );
        assert!(
            after.errors.is_empty(),
            "after the repair: {:?}",
            after.errors
        );
        let useless = after.obsolete + after.dangling + after.pending;
        assert!(useless == 0, "after the repair: {after:?}");
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
        let settings = Settings {
            trouble,
            versions: [1, 3][random.usize(0..2)],
            split_at: [4, 16, 1_000][random.usize(0..3)],
            skews: std::array::from_fn(|_| random.i64(-skew..=skew)),
        };
        let acts = (0..random.usize(10..120)).map(|_| {
            let (at, value) = (random.u64(0..KEYS), random.u64(0..VALUES));
            let what = match random.u32(0..40) {
                0..12 => Do::Put(at, value),
                12..15 => Do::Delete(at),
                15..19 => Do::Update(at, value),
                19..21 => Do::Insert(at, value),
                21..25 => Do::Get(at),
                25..33 => Do::Find {
                    value,
                    oldest: random.bool(),
                    range: random.bool(),
                    limit: [None, None, Some(1), Some(3)][random.usize(0..4)],
                },
                33..35 => Do::Repair {
                    full: random.u32(0..3) == 0,
                    stop: random.u32(0..3) == 0,
                },
                35..38 => Do::Wait([3_000, 10_000, 70_000, HOUR, 4 * HOUR][random.usize(0..5)]),
                _ => Do::Kill(random.u32(0..12)),
            };
            Act(random.usize(0..CLIENTS), what)
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
        let create = || {
            let options = Options {
                clocks: Arc::new(Skewed {
                    net: self.net.clone(),
                    ahead: 0,
                }),
                is_reader: false,
                split_at: 1_000,
            };
            let def = DatasetDef::new("id", KeyType::Int)
                .versions(self.settings.versions)
                .index(
                    "s",
                    Index::composite().string().tokenizer(Tokenizer::Prefix),
                )
                .index("n", Index::composite().int())
                .index("tags", Index::composite().string());
            // It may take several tries: the store is troubled from the beginning.
            for _ in 0..50 {
                let store = Store::open(self.net.clone(), true, options.clone());
                let known = store.and_then(|store| store.create_dataset("d", &def));
                if matches!(known, Ok(_) | Err(esker_cluster::Error::Exists(_))) {
                    return;
                }
            }
        };
        self.net.run(vec![Box::new(create)]);
        self.live();
        self.quiet();
        self.check();
    }

    fn as_test(seed: u64, settings: Settings, acts: &[Act]) -> String {
        format!("seed {seed}: {settings:?}\n{acts:#?}")
    }
}

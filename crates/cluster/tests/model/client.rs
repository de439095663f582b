//! A client's process, and what it does.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use esker_cluster::{CLOCK_BOUND, Dataset, Error, Options, RepairOptions, Store};
use esker_model::Key;
use esker_model::condition::{Expr, field};
use esker_model::query::{Order, Request};
use esker_model::record::{Record, Update};
use esker_model::schema::{KeyType, Value};

use crate::history::{Answered, Asked, Deletion, Expected, Found, Place, Written};
use crate::net::Skewed;
use crate::world::World;

/// The datasets.
pub(crate) const DATASETS: [&str; 2] = ["d", "e"];
pub(crate) const KEYS: u64 = 6;
pub(crate) const VALUES: u64 = 4;
/// Longer than the versions stay that a query saw at its start.
const WAIT: u64 = 130_000;

/// What a client does, in one of the datasets.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Do {
    Put(u64, u64),
    Delete(u64),
    DeleteWhere {
        value: u64,
        range: bool,
    },
    Update(u64, u64),
    Insert(u64, u64),
    /// Puts if the record is the one that this client saw last.
    PutIf(u64, u64),
    Get(u64),
    Find {
        value: u64,
        oldest: bool,
        range: bool,
        limit: Option<usize>,
        /// Waits before it reads the first answer: repairs go on meanwhile.
        waits: bool,
    },
    Count {
        value: u64,
        range: bool,
    },
    Scan {
        from: u64,
        reverse: bool,
    },
    /// Versions of a key; up to the one that this client saw last, or all.
    Versions {
        key: u64,
        at: bool,
    },
    ByValue(u64),
    Repair {
        full: bool,
        stop: bool,
    },
    Check,
    Wait(u64),
    Kill(u32),
}

pub(crate) fn key(number: u64) -> Key {
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
pub(crate) struct Client<'w> {
    pub(crate) world: &'w World,
    pub(crate) skew: i64,
    pub(crate) open: [Option<Dataset>; 2],
    /// The timestamps of records that it saw last.
    seen: BTreeMap<Place, u64>,
    dataset: usize,
}

impl<'w> Client<'w> {
    pub(crate) fn new(world: &'w World, skew: i64) -> Client<'w> {
        Client {
            world,
            skew,
            open: [None, None],
            seen: BTreeMap::new(),
            dataset: 0,
        }
    }

    pub(crate) fn open(&mut self, dataset: usize) -> Option<Dataset> {
        if self.open[dataset].is_none() {
            let net = self.world.net.clone();
            let options = Options {
                clocks: Arc::new(Skewed {
                    net: net.clone(),
                    ahead: self.skew,
                }),
                is_reader: false,
                split_at: self.world.settings.split_at,
                intersect_from: self.world.settings.intersect_from,
                remove_from: self.world.settings.remove_from,
            };
            let store = Store::open(net, false, options).ok()?;
            self.open = DATASETS.map(|name| store.dataset(name).ok());
        }
        self.open[dataset].clone()
    }

    /// True if its clock is so far off that it must be refused.
    fn is_off(&self) -> bool {
        self.skew.unsigned_abs() > CLOCK_BOUND + self.world.settings.trouble.coarse
    }

    fn now(&self) -> u64 {
        self.world.net.now()
    }

    fn wrong(&self, text: String) {
        self.world.history.lock().wrong.push(text);
    }

    /// Notes what must not be if the clock is off.
    fn done<T>(&self, what: &str, done: &esker_cluster::Result<T>) {
        if self.is_off() && done.is_ok() {
            self.wrong(format!(
                "{what} with a clock that is {} ms ahead",
                self.skew
            ));
        }
    }

    /// Begins a write.
    fn begin(&self, key: u64, value: Option<u64>, expected: Expected) -> u64 {
        let begun = self.now();
        let mut history = self.world.history.lock();
        history.writes.push(Written {
            key: (self.dataset, key),
            value,
            begun,
            acknowledged: None,
            expected,
            refused: None,
            before: None,
        });
        let number = history.writes.len() as u64 - 1;
        self.world.net.mark(number);
        number
    }

    fn end(&self, write: u64, done: &esker_cluster::Result<()>, before: Option<Option<u64>>) {
        self.done("a write", done);
        let now = self.now();
        let mut history = self.world.history.lock();
        let written = &mut history.writes[usize::try_from(write).unwrap()];
        match done {
            Ok(()) => written.acknowledged = Some(now),
            Err(Error::Exists(_) | Error::Conflict { .. }) => written.refused = Some(now),
            Err(_) => {}
        }
        written.before = before;
    }

    pub(crate) fn act(&mut self, dataset: usize, what: Do) {
        self.dataset = dataset;
        match what {
            Do::Wait(millis) => return self.world.net.sleep(millis),
            Do::Kill(calls) => return self.world.net.kill_in(calls),
            _ => {}
        }
        let Some(dataset) = self.open(dataset) else {
            return;
        };
        match what {
            Do::Put(at, value) => self.put(&dataset, at, value, Expected::Nothing),
            Do::Insert(at, value) => self.put(&dataset, at, value, Expected::New),
            Do::PutIf(at, value) => {
                let seen = self.seen.get(&(self.dataset, at));
                let expected = seen.map_or(Expected::New, |seq| Expected::Of(*seq));
                self.put(&dataset, at, value, expected);
            }
            Do::Delete(at) => {
                let write = self.begin(at, None, Expected::Nothing);
                let mut batch = dataset.batch();
                let done = batch.delete(&key(at)).and_then(|()| batch.commit());
                self.end(write, &done, None);
            }
            Do::DeleteWhere { value, range } => {
                self.delete_where(&dataset, condition(value, range));
            }
            Do::Update(at, value) => self.update(&dataset, at, value),
            Do::Get(at) => self.get(&dataset, at),
            Do::Find {
                value,
                oldest,
                range,
                limit,
                waits,
            } => self.find(&dataset, condition(value, range), oldest, limit, waits),
            Do::Count { value, range } => self.count(&dataset, condition(value, range)),
            Do::Scan { from, reverse } => self.scan(&dataset, from, reverse),
            Do::Versions { key, at } => self.versions(&dataset, key, at),
            Do::ByValue(value) => self.by_value(&dataset, value),
            Do::Repair { full, stop } => {
                let options = RepairOptions {
                    full,
                    rows_per_second: None,
                };
                let _ = dataset.repair(options, &mut |_| {
                    if stop {
                        ControlFlow::Break(())
                    } else {
                        ControlFlow::Continue(())
                    }
                });
            }
            Do::Check => {
                if let Ok(checked) = dataset.check(&mut |_| ControlFlow::Continue(()))
                    && !checked.errors.is_empty()
                {
                    self.wrong(format!("amid the run: {:?}", checked.errors));
                }
            }
            Do::Wait(_) | Do::Kill(_) => {}
        }
    }

    fn put(&self, dataset: &Dataset, at: u64, value: u64, expected: Expected) {
        let write = self.begin(at, Some(value), expected);
        let record = json(at, value, write);
        let mut batch = dataset.batch();
        let added = match expected {
            Expected::New => batch.insert_json(&record),
            _ => batch.put_json(&record),
        };
        if let Expected::Of(seq) = expected {
            batch.expect(&key(at), Some(seq));
        }
        let done = added.and_then(|()| batch.commit());
        let before = (expected == Expected::New).then_some(None);
        self.end(write, &done, before);
    }

    /// One write of the history for all keys.
    fn delete_where(&self, dataset: &Dataset, (condition, values): (Expr, BTreeSet<u64>)) {
        let write = self.begin(KEYS, None, Expected::Nothing);
        self.world.history.lock().deletions.push(Deletion {
            write,
            values,
            ahead: self.skew,
        });
        let request = Request::of(condition);
        let done = dataset.delete_where(&request, &mut |_| ControlFlow::Continue(()));
        self.end(write, &done.map(|_| ()), None);
    }

    fn update(&self, dataset: &Dataset, at: u64, value: u64) {
        let write = self.begin(at, Some(value), Expected::Nothing);
        let begun = self.now();
        let done =
            dataset.update::<Error>(&key(at), &mut |_| Ok(Update::Put(json(at, value, write))));
        let of = |before: &Option<Record>| before.as_ref().map(|r| number(r.json(), "w"));
        let before = done.as_ref().ok().map(of);
        if let Ok(found) = &done {
            // What it was decided on is a read.
            let found = found.iter().map(|record| self.found(record));
            self.answered("update", get(), vec![at], found.collect(), begun);
        }
        self.end(write, &done.map(|_| ()), before);
    }

    fn found(&self, record: &Record) -> Found {
        let place = (self.dataset, number(record.json(), "id"));
        (place, number(record.json(), "w"), record.seq())
    }

    fn get(&mut self, dataset: &Dataset, at: u64) {
        let begun = self.now();
        let Ok(found) = dataset.get(&key(at)) else {
            return;
        };
        if let Some(record) = &found {
            self.seen.insert((self.dataset, at), record.seq());
        }
        let found = found.iter().map(|record| self.found(record));
        self.answered("get", get(), vec![at], found.collect(), begun);
    }

    /// Notes an answer about keys.
    fn answered(&self, what: &str, asked: Asked, keys: Vec<u64>, found: Vec<Found>, begun: u64) {
        let answer = self.answer(what, asked, keys, found, begun);
        self.world.history.lock().answers.push(answer);
    }

    fn answer(
        &self,
        what: &str,
        asked: Asked,
        keys: Vec<u64>,
        found: Vec<Found>,
        begun: u64,
    ) -> Answered {
        Answered {
            what: what.to_string(),
            asked,
            keys: keys.into_iter().map(|key| (self.dataset, key)).collect(),
            values: (0..VALUES).collect(),
            ranks: Vec::new(),
            found,
            begun,
            ended: self.now(),
        }
    }

    fn find(
        &self,
        dataset: &Dataset,
        what: (Expr, BTreeSet<u64>),
        oldest: bool,
        limit: Option<usize>,
        waits: bool,
    ) {
        let (condition, values) = what;
        let order = if oldest { "oldest" } else { "newest" };
        let text = format!("{order} {condition} limit {limit:?}");
        let mut request = Request::of(condition);
        request.order = if oldest { Order::Oldest } else { Order::Newest };
        request.limit = limit;
        let begun = self.now();
        let answer = dataset.find(&request);
        self.done("a query", &answer);
        let Ok(mut answer) = answer else { return };
        if waits {
            self.world.net.sleep(WAIT);
        }
        let mut found = Vec::new();
        loop {
            match answer.next_record() {
                Ok(Some(record)) => found.push(self.found(&record)),
                Ok(None) => break,
                Err(_) => return,
            }
        }
        let full = limit.is_none_or(|limit| found.len() < limit);
        let seqs: Vec<u64> = found.iter().map(|(.., at)| *at).collect();
        if !full {
            // The next page is of its own: it begins behind this one.
            request.after = answer.token();
            let Ok(mut next) = dataset.find(&request) else {
                return;
            };
            while let Ok(Some(record)) = next.next_record() {
                if seqs.contains(&record.seq()) {
                    self.wrong(format!("a page repeats an answer: {text}"));
                }
            }
        }
        let rank = |at: &u64| if oldest { *at } else { u64::MAX - *at };
        let ranks = seqs.iter().map(rank).collect();
        let asked = Asked::Records {
            is_find: true,
            full,
        };
        let answer = self.answer(&text, asked, (0..KEYS).collect(), found, begun);
        let answer = Answered {
            values,
            ranks,
            ..answer
        };
        self.world.history.lock().answers.push(answer);
    }

    fn count(&self, dataset: &Dataset, (condition, values): (Expr, BTreeSet<u64>)) {
        let begun = self.now();
        let text = format!("count {condition}");
        let counted = dataset.count(&Request::of(condition));
        self.done("a count", &counted);
        let Ok((count, _)) = counted else { return };
        let keys = (0..KEYS).collect();
        let answer = self.answer(&text, Asked::Count(count), keys, Vec::new(), begun);
        let answer = Answered { values, ..answer };
        self.world.history.lock().answers.push(answer);
    }

    fn scan(&self, dataset: &Dataset, from: u64, reverse: bool) {
        let begun = self.now();
        let range = (Bound::Included(key(from)), Bound::Unbounded);
        let scanned = dataset.scan(range, reverse);
        self.done("a scan", &scanned);
        let Ok(mut scanned) = scanned else { return };
        let mut found = Vec::new();
        loop {
            match scanned.next_record() {
                Ok(Some(record)) => found.push(self.found(&record)),
                Ok(None) => break,
                Err(_) => return,
            }
        }
        let asked = Asked::Records {
            is_find: true,
            full: true,
        };
        let rank = |((_, key), ..): &Found| if reverse { u64::MAX - key } else { *key };
        let ranks = found.iter().map(rank).collect();
        let keys = (from..KEYS).collect();
        let answer = self.answer("scan", asked, keys, found, begun);
        let answer = Answered { ranks, ..answer };
        self.world.history.lock().answers.push(answer);
    }

    fn versions(&self, dataset: &Dataset, at: u64, until_seen: bool) {
        let seen = self.seen.get(&(self.dataset, at)).copied();
        let until = seen.filter(|_| until_seen);
        let begun = self.now();
        let most = self.world.settings.versions as usize;
        let asked = Asked::Versions { most, until };
        let Ok(found) = dataset.versions(&key(at), until, most) else {
            return;
        };
        let ranks = found.iter().map(|record| u64::MAX - record.seq()).collect();
        let found = found.iter().map(|record| self.found(record)).collect();
        let answer = self.answer("versions", asked, vec![at], found, begun);
        let answer = Answered { ranks, ..answer };
        self.world.history.lock().answers.push(answer);
    }

    fn by_value(&self, dataset: &Dataset, value: u64) {
        let begun = self.now();
        let most = self.world.settings.versions as usize;
        let condition = field("n").eq(value as i64);
        let found = dataset.versions_with(condition, None, most, 1_000, None);
        self.done("versions by value", &found);
        let Ok(found) = found else { return };
        let asked = Asked::Versions { most, until: None };
        let ranks = found.iter().map(|record| u64::MAX - record.seq()).collect();
        let found = found.iter().map(|record| self.found(record)).collect();
        let answer = self.answer("by value", asked, (0..KEYS).collect(), found, begun);
        let answer = Answered {
            ranks,
            values: [value].into(),
            ..answer
        };
        self.world.history.lock().answers.push(answer);
    }
}

fn get() -> Asked {
    Asked::Records {
        is_find: false,
        full: true,
    }
}

/// A condition, and the values that satisfy it.
fn condition(value: u64, range: bool) -> (Expr, BTreeSet<u64>) {
    let kind = (value + u64::from(range)) % 4;
    let tag = |value: u64| field("tags").eq(format!("t{}", value % VALUES));
    let text = || field("s").eq(format!("ab{value}"));
    let at_least = || field("n").ge(value as i64);
    match (kind, range) {
        // Of two indexes or of one, each has more than the answer, or less in order.
        (0, true) => (at_least() & tag(value + 1), {
            let has_tag = [value, (value + 1) % VALUES];
            has_tag.into_iter().filter(|of| *of >= value).collect()
        }),
        (1, true) => (tag(value) & at_least() & text(), [value].into()),
        (2, true) => (at_least(), (value..VALUES).collect()),
        (0, _) => (text(), [value].into()),
        (1, _) => (tag(value) & tag(value + 1), [value].into()),
        (2, _) => {
            let either = field("n").eq(value as i64) | field("n").eq(0);
            (either, [value, 0].into())
        }
        // A record may have both.
        (_, _) => (
            tag(value) | tag(value + 1),
            [value + VALUES - 1, value, value + 1]
                .map(|value| value % VALUES)
                .into(),
        ),
    }
}

//! What is written and asked: synthetic tweets, or real events as they were (commits of public
//! repositories, one JSON object a line, time never decreasing).

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use esker::Type;
use fastrand::Rng;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::failure::{Failure, Result};
use crate::model::History;
use crate::workload::plan::{Mix, Op, Plan, Stream};
use crate::workload::profile::Profile;
use crate::workload::{Attribute, Record};

/// Where records come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Set {
    /// The generator.
    Tweets,
    /// A file of events, may be `.zst`.
    Events(PathBuf),
}

impl Set {
    /// Its name in the rows.
    pub fn name(&self) -> &'static str {
        match self {
            Set::Tweets => "tweets",
            Set::Events(_) => "events",
        }
    }

    /// The field of the user, and its type.
    pub fn user(&self) -> (&'static str, Type) {
        match self {
            Set::Tweets => ("user_id", Type::Int),
            Set::Events(_) => ("author", Type::String),
        }
    }

    /// The field of the time.
    pub fn time(&self) -> &'static str {
        match self {
            Set::Tweets => "created_at",
            Set::Events(_) => "time",
        }
    }

    /// A value of an attribute as the records have it.
    pub fn text(&self, attribute: Attribute, value: u64) -> String {
        match (self, attribute) {
            (Set::Events(_), Attribute::User) => format!("u{value:010x}"),
            _ => value.to_string(),
        }
    }
}

/// All writes of a run, the mixed operations, and the records themselves.
#[derive(Debug)]
pub struct Data {
    source: Source,
}

#[derive(Debug)]
enum Source {
    Tweets(Box<Plan>),
    Events(Box<Events>),
}

#[derive(Debug, Default)]
struct Events {
    history: History,
    load: usize,
    ops: Vec<Op>,
    lines: Vec<u8>,
    ends: Vec<usize>,
}

impl Data {
    /// Plans a load of `load` records, then `mixed` operations; fewer where the set has fewer records.
    pub fn new(set: &Set, seed: u64, (load, mixed): (usize, usize), mix: Mix) -> Result<Data> {
        let source = match set {
            Set::Tweets => {
                let writes = load + mixed * (mix.put + mix.update) as usize / 100;
                let profile = Profile::synthetic(writes as u64);
                Source::Tweets(Box::new(Plan::new(seed, profile, load, mixed, mix)))
            }
            Set::Events(file) => {
                Source::Events(Box::new(Events::read(file, seed, (load, mixed), mix)?))
            }
        };
        Ok(Data { source })
    }

    /// Every write, and what answers must be.
    pub fn history(&self) -> &History {
        match &self.source {
            Source::Tweets(plan) => &plan.history,
            Source::Events(events) => &events.history,
        }
    }

    /// Records of the load.
    pub fn load(&self) -> usize {
        match &self.source {
            Source::Tweets(plan) => plan.load,
            Source::Events(events) => events.load,
        }
    }

    /// The mixed operations.
    pub fn ops(&self) -> &[Op] {
        match &self.source {
            Source::Tweets(plan) => &plan.ops,
            Source::Events(events) => &events.ops,
        }
    }

    /// The records, from the first.
    pub fn feed(&self) -> Feed<'_> {
        match &self.source {
            Source::Tweets(plan) => Feed::Tweets(plan.stream()),
            Source::Events(events) => Feed::Events {
                events: events.as_ref(),
                at: 0,
                body: Vec::new(),
            },
        }
    }
}

/// The records of a run, one after the other.
#[derive(Debug)]
pub enum Feed<'d> {
    /// Made again.
    Tweets(Stream<'d>),
    /// Read from memory.
    Events {
        /// The events.
        events: &'d dyn Lines,
        /// The next one.
        at: usize,
        /// Room for one under another key.
        body: Vec<u8>,
    },
}

/// Events by number.
pub trait Lines: std::fmt::Debug {
    /// The line of a write.
    fn line(&self, write: usize) -> &[u8];
    /// The key that the write is to have instead of its own.
    fn replaced(&self, write: usize) -> Option<u64>;
}

impl Lines for Events {
    fn line(&self, write: usize) -> &[u8] {
        let start = write.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.lines[start..self.ends[write]]
    }

    fn replaced(&self, write: usize) -> Option<u64> {
        self.history.replaced(write)
    }
}

impl Feed<'_> {
    /// The next record. What the caller does not need of it, key and attributes, may be 0.
    pub fn next(&mut self) -> Record<'_> {
        match self {
            Feed::Tweets(stream) => stream.next(),
            Feed::Events { events, at, body } => {
                let line = events.line(*at);
                body.clear();
                match events.replaced(*at) {
                    Some(key) => rename(line, key, body),
                    None => body.extend_from_slice(line),
                }
                *at += 1;
                Record {
                    key: 0,
                    user: 0,
                    second: 0,
                    body,
                }
            }
        }
    }
}

/// The event under another key, which is its first field.
fn rename(line: &[u8], key: u64, out: &mut Vec<u8>) {
    let rest = line
        .iter()
        .position(|&byte| byte == b',')
        .unwrap_or_default();
    out.extend_from_slice(format!("{{\"id\":{key}").as_bytes());
    out.extend_from_slice(&line[rest..]);
}

impl Events {
    fn read(file: &Path, seed: u64, (load, mixed): (usize, usize), mix: Mix) -> Result<Events> {
        let context = |e: Failure| e.context(file.display());
        let open = || -> Result<Box<dyn BufRead>> {
            let opened = std::fs::File::open(file)?;
            Ok(match file.extension().is_some_and(|end| end == "zst") {
                true => Box::new(BufReader::new(zstd::Decoder::new(opened)?)),
                false => Box::new(BufReader::new(opened)),
            })
        };
        let mut lines = open().map_err(context)?.lines();
        let mut events = Events::default();
        while events.history.len() < load {
            let Some(line) = lines.next() else { break };
            events.put(&line?, None).map_err(context)?;
        }
        events.load = events.history.len();
        let mut rng = Rng::with_seed(seed ^ 0x6576_656e_7473);
        for _ in 0..mixed {
            let keys = events.history.keys() as u32;
            let op = match rng.u32(0..100) {
                n if n < mix.put => Op::Put,
                n if n < mix.put + mix.update => Op::Update(rng.u32(0..keys)),
                n if n < mix.put + mix.update + mix.get => Op::Get(rng.u32(0..keys)),
                _ => Op::Lookup(rng.u32(0..events.history.len() as u32)),
            };
            let replaced = match op {
                Op::Put => None,
                Op::Update(key) => Some(key as usize),
                Op::Get(_) | Op::Lookup(_) => {
                    events.ops.push(op);
                    continue;
                }
            };
            let Some(line) = lines.next() else { break };
            events.put(&line?, replaced).map_err(context)?;
            events.ops.push(op);
        }
        events.history.seal();
        Ok(events)
    }

    /// Adds a line as the next write.
    fn put(&mut self, line: &str, replaced: Option<usize>) -> Result<()> {
        let json: Value = serde_json::from_str(line)?;
        let wrong =
            |field: &str| Failure::new(format!("an event without a usable `{field}`: {line}"));
        let number = |field: &str| {
            json.get(field)
                .and_then(Value::as_u64)
                .ok_or_else(|| wrong(field))
        };
        let user = json
            .get("author")
            .and_then(Value::as_str)
            .and_then(|author| author.strip_prefix('u'));
        let user = user.and_then(|hex| u64::from_str_radix(hex, 16).ok());
        let mut record = Record {
            key: number("id")?,
            user: user.ok_or_else(|| wrong("author"))?,
            second: number("time")?,
            body: line.as_bytes(),
        };
        self.lines.extend_from_slice(record.body);
        self.ends.push(self.lines.len());
        match replaced {
            None => self.history.put(&record),
            Some(number) => {
                record.key = self.history.key(number);
                let mut body = Vec::new();
                rename(line.as_bytes(), record.key, &mut body);
                self.history.update(
                    number,
                    &Record {
                        body: &body,
                        ..record
                    },
                );
            }
        }
        Ok(())
    }
}

/// Records made ahead of being written, so that making them is not timed.
#[derive(Debug, Default)]
pub struct Ahead {
    bodies: Vec<u8>,
    ends: Vec<usize>,
}

impl Ahead {
    /// Takes the next `count` records.
    pub fn fill(&mut self, feed: &mut Feed<'_>, count: usize) {
        self.bodies.clear();
        self.ends.clear();
        for _ in 0..count {
            self.bodies.extend_from_slice(feed.next().body);
            self.ends.push(self.bodies.len());
        }
    }

    /// The record taken as number `at`.
    pub fn body(&self, at: usize) -> &[u8] {
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bodies[start..self.ends[at]]
    }
}

#[cfg(test)]
#[path = "data_tests.rs"]
mod tests;

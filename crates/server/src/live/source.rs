//! Sources of events, which are read in steps, and the source that reads the changes of a dataset.

use std::sync::Arc;
use std::time::{Duration, Instant};

use esker::changes::{Listening, Wake};
use esker::{
    Change, ChangeKind, Changes, Dataset, Error, Expr, Key, KeyType, Position, Record, Value,
};
use esker_model::condition::Filter;

use super::id::EventId;
use crate::problem::Problem;

/// A step ends when its events have this many bytes.
const STEP: usize = 64 << 10;

/// A step ends after this time, also if it found nothing: a condition may admit few of many
/// changes.
pub(crate) const STEP_TIME: Duration = Duration::from_millis(50);

/// Something that happened.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    /// Where a reader that has it continues.
    pub(crate) id: String,
    pub(crate) name: &'static str,
    /// A JSON object on one line.
    pub(crate) data: Vec<u8>,
}

/// What comes after a step.
#[derive(Debug, Default)]
pub(crate) enum Next {
    /// Another step, at once.
    #[default]
    More,
    /// Another step when there may be something new, or at this time.
    Wait(Option<Instant>),
    /// Nothing.
    End,
    /// Nothing, because of an error.
    Fail(Problem),
}

/// The events that a step has found.
#[derive(Debug, Default)]
pub(crate) struct Step {
    pub(crate) events: Vec<Event>,
    bytes: usize,
    pub(crate) next: Next,
}

impl Step {
    pub(crate) fn push(&mut self, event: Event) {
        self.bytes += event.data.len() + event.id.len() + event.name.len();
        self.events.push(event);
    }

    /// True if the step has enough bytes.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes >= STEP
    }
}

/// Finds events, in steps that run on the engine's threads.
pub(crate) trait Source: Send + 'static {
    /// The next events.
    fn step(&mut self) -> Step;

    /// Calls `wake` whenever there may be a new event, until what it returns is dropped.
    ///
    /// # Errors
    /// Those of the store.
    fn listen(&self, wake: Arc<Wake>) -> Result<Vec<Listening>, Problem>;

    /// Where a reader continues that has every event so far; `None` if events alone say so.
    fn place(&self) -> Option<String>;
}

/// Compiles a condition.
///
/// # Errors
/// 400.
pub(crate) fn condition(text: &str) -> Result<Expr, Problem> {
    let condition = text.parse::<Expr>().map_err(Error::from)?;
    condition.check().map_err(Problem::bad_request)?;
    Ok(condition)
}

/// What a feed has found.
pub(crate) enum Found {
    Change(Box<Change>),
    /// No change that matches, for as long as a step may take.
    Skipped,
    /// No more changes for now.
    Nothing,
}

/// The error of reads of a dataset by a name that it no longer has.
pub(super) fn renamed(name: &str) -> Error {
    Error::UnknownDataset {
        name: name.to_string(),
        meant: None,
    }
}

/// The changes of a dataset that match a condition. They end when the dataset gets another name:
/// who may read them is decided by its name.
pub(crate) struct Feed {
    pub(crate) changes: Changes<Key>,
    filter: Option<Filter>,
    dataset: Dataset<Key>,
    name: String,
}

impl Feed {
    /// A change passes if the record that it stores meets the condition. In a feed with old records
    /// it passes, too, if the record that it replaced or deleted met it (as in
    /// [`pubsub::Watch`]).
    pub(crate) fn new(
        dataset: &Dataset<Key>,
        changes: Changes<Key>,
        condition: Option<&Expr>,
    ) -> Feed {
        Feed {
            changes,
            filter: condition.map(Filter::new),
            dataset: dataset.clone(),
            name: dataset.name(),
        }
    }

    /// The id of an event at a position.
    pub(crate) fn id(&self, position: Position) -> EventId {
        EventId::new(&self.dataset, position)
    }

    /// Where a reader continues that has every change so far.
    pub(crate) fn place(&self) -> EventId {
        self.id(self.changes.position())
    }

    /// The event of a change of this feed.
    pub(crate) fn event(&self, change: &Change) -> Event {
        Event {
            id: self.id(change.position()).to_string(),
            name: kind(change),
            data: change_json(change, None),
        }
    }

    /// The next change that matches, if one is found before `until`.
    ///
    /// # Errors
    /// [`Error::UnknownDataset`] if the dataset has another name now; those of reading changes.
    pub(crate) fn next(&mut self, until: Instant) -> Result<Found, Error> {
        if self.dataset.name() != self.name {
            return Err(renamed(&self.name));
        }
        while let Some(change) = self.changes.next()? {
            if self.matches(&change) {
                return Ok(Found::Change(Box::new(change)));
            }
            if Instant::now() >= until {
                return Ok(Found::Skipped);
            }
        }
        Ok(Found::Nothing)
    }

    fn matches(&self, change: &Change) -> bool {
        let Some(filter) = &self.filter else {
            return true;
        };
        let mut both = [change.record(), change.old()].into_iter().flatten();
        both.any(|record| filter.matches_json(record.json()))
    }
}

/// Adds JSON without line breaks, which mean nothing in it.
pub(crate) fn push_json(out: &mut Vec<u8>, json: &[u8]) {
    out.extend(json.iter().map(|byte| match byte {
        b'\n' | b'\r' => b' ',
        other => *other,
    }));
}

/// A key as JSON.
fn key_text(key: &Key) -> String {
    match key.value() {
        Value::Int(number) => number.to_string(),
        // A key of several fields is a JSON array.
        array if key.key_type() == KeyType::Fields => array.to_string(),
        other => serde_json::Value::String(other.to_string()).to_string(),
    }
}

fn kind(change: &Change) -> &'static str {
    match change.kind() {
        ChangeKind::Put => "put",
        ChangeKind::Expired => "expire",
        _ => "delete",
    }
}

/// A change as `esker changes` prints it; with what a fence says about it.
pub(crate) fn change_json(change: &Change, fence: Option<&str>) -> Vec<u8> {
    let (seq, what, key) = (change.seq(), kind(change), key_text(change.key()));
    let mut out = format!("{{\"seq\":{seq}").into_bytes();
    if let Some(fence) = fence {
        out.extend_from_slice(format!(",\"event\":\"{fence}\"").as_bytes());
    }
    out.extend_from_slice(format!(",\"change\":\"{what}\",\"key\":").as_bytes());
    push_json(&mut out, key.as_bytes());
    let records: [(&str, Option<&Record>); 2] =
        [("record", change.record()), ("old", change.old())];
    for (name, record) in records {
        if let Some(record) = record {
            out.extend_from_slice(format!(",\"{name}\":").as_bytes());
            push_json(&mut out, record.json());
        }
    }
    out.push(b'}');
    out
}

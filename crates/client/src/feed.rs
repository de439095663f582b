//! The changes of a dataset, in order, asked for again and again: each answer has those that there
//! are, or comes when there is one.

use std::collections::VecDeque;
use std::time::Duration;

use esker::{Change, ChangeKind, ChangesFrom, Key, KeyType, Position, Record, Result, Seq};
use serde::Deserialize;
use serde_json::json;

use crate::dataset::Dataset;
use crate::wire::{self, FeedFrom, Poll};

/// The longest wait of one request.
const LONGEST: Duration = Duration::from_secs(20);

/// The changes of a dataset.
pub struct Feed {
    dataset: Dataset,
    with_old: bool,
    consumer: Option<(String, u64)>,
    is_new: bool,
    /// Everything up to here was returned.
    returned: Position,
    /// Everything up to here was read.
    read: Position,
    /// The position that the server keeps for the consumer.
    kept: Position,
    pending: VecDeque<Change>,
}

/// A row of an answer.
enum Row {
    Change(Change),
    Place(Place),
}

/// The place behind the changes of an answer.
#[derive(Debug, Clone, Deserialize)]
struct Place {
    position: String,
}

/// The place of a consumer.
#[derive(Debug, Clone, Deserialize)]
struct Consumer {
    position: String,
    is_new: bool,
}

fn row(key_type: KeyType, kind: u8, frame: &[u8]) -> Option<Row> {
    match kind {
        wire::CHANGE => change(key_type, frame).map(Row::Change),
        wire::JSON => serde_json::from_slice(frame).ok().map(Row::Place),
        _ => None,
    }
}

fn change(key_type: KeyType, frame: &[u8]) -> Option<Change> {
    let (kind, rest) = frame.split_first()?;
    let kind = match kind {
        0 => ChangeKind::Put,
        1 => ChangeKind::Deleted,
        2 => ChangeKind::Expired,
        _ => return None,
    };
    let (history, rest) = wire::take_u64(rest)?;
    let (seq, rest) = wire::take_u64(rest)?;
    let (key, rest) = wire::take_bytes(rest)?;
    let key = Key::from_encoded(key_type, key.to_vec());
    let (new, rest) = record(&key, rest)?;
    let (old, _) = record(&key, rest)?;
    let position = Position { history, seq };
    Some(Change::new(key, position, kind, (new, old)))
}

/// The record that a change made or replaced, if there is one.
fn record<'f>(key: &Key, frame: &'f [u8]) -> Option<(Option<Record>, &'f [u8])> {
    let (is_there, rest) = frame.split_first()?;
    if *is_there == 0 {
        return Some((None, rest));
    }
    let (seq, rest): (Seq, _) = wire::take_u64(rest)?;
    let (json, rest) = wire::take_bytes(rest)?;
    Some((Some(Record::from_json(key.clone(), seq, json)), rest))
}

impl Dataset {
    /// The changes after a position; with `with_old`, each with the record that it replaced.
    ///
    /// # Errors
    /// [`esker::Error::NoOldRecords`]; [`esker::Error::PositionExpired`];
    /// [`esker::Error::OtherHistory`]; [`esker::Error::Unavailable`].
    pub fn changes(&self, from: ChangesFrom, with_old: bool) -> Result<Feed> {
        let (changes, place) = self.poll(FeedFrom::of(from), with_old, Duration::ZERO)?;
        // The position of the first change is not known before it is read.
        let begin = match changes.front() {
            None => place,
            Some(first) => Position {
                history: place.history,
                seq: match from {
                    ChangesFrom::Seq(seq) => seq,
                    ChangesFrom::Position(position) => position.seq,
                    _ => first.seq().saturating_sub(1),
                },
            },
        };
        Ok(Feed {
            dataset: self.clone(),
            with_old,
            consumer: None,
            is_new: false,
            returned: begin,
            read: place,
            kept: begin,
            pending: changes,
        })
    }

    /// The changes for a named consumer, which are kept for it up to `keep` bytes.
    ///
    /// # Errors
    /// As [`Dataset::changes`].
    pub fn consume(
        &self,
        consumer: &str,
        from: Option<ChangesFrom>,
        keep: u64,
        with_old: bool,
    ) -> Result<Feed> {
        if with_old {
            // Checked before a consumer is created, because a consumer retains the log.
            self.poll(FeedFrom::Now, true, Duration::ZERO)?;
        }
        let asked = json!({"consumer": consumer, "keep": keep, "from": from.map(FeedFrom::of)});
        let known: Consumer = self.client().post(&self.path("feed/consumers"), &asked)?;
        let position = self.position(&known.position)?;
        Ok(Feed {
            dataset: self.clone(),
            with_old,
            consumer: Some((consumer.to_string(), keep)),
            is_new: known.is_new,
            returned: position,
            read: position,
            kept: position,
            pending: VecDeque::new(),
        })
    }

    fn position(&self, text: &str) -> Result<Position> {
        let read = text.parse();
        read.map_err(|why: String| self.client().broke_off(&why))
    }

    /// The next changes, and the place behind them.
    fn poll(
        &self,
        from: FeedFrom,
        with_old: bool,
        wait: Duration,
    ) -> Result<(VecDeque<Change>, Position)> {
        let wait_ms = u64::try_from(wait.min(LONGEST).as_millis()).unwrap_or_default();
        let poll = Poll {
            from,
            with_old,
            wait_ms,
        };
        let key_type = self.def().key_type;
        let rows = self.read_rows("feed", &poll, move |kind, frame| row(key_type, kind, frame))?;
        let (mut changes, mut place) = (VecDeque::new(), None);
        for row in rows {
            match row? {
                Row::Change(change) => changes.push_back(change),
                Row::Place(at) => place = Some(self.position(&at.position)?),
            }
        }
        let place = place.ok_or_else(|| self.client().broke_off(&"it has no position"))?;
        Ok((changes, place))
    }
}

impl Feed {
    /// The next change; waits for it for `most` at most.
    ///
    /// # Errors
    /// [`esker::Error::PositionExpired`]; [`esker::Error::UnknownDataset`];
    /// [`esker::Error::Unavailable`].
    pub fn wait(&mut self, most: Duration) -> Result<Option<Change>> {
        if self.pending.is_empty() {
            let from = FeedFrom::of(self.read.into());
            (self.pending, self.read) = self.dataset.poll(from, self.with_old, most)?;
            if self.pending.is_empty() {
                self.returned = self.read;
            }
        }
        let change = self.pending.pop_front();
        if let Some(change) = &change {
            self.returned = if self.pending.is_empty() {
                self.read
            } else {
                change.position()
            };
        }
        Ok(change)
    }

    /// Everything up to this position was returned.
    pub fn position(&self) -> Position {
        self.returned
    }

    /// Stores the position of the consumer, if there is one.
    ///
    /// # Errors
    /// Any error of the server.
    pub fn done(&mut self) -> Result<()> {
        let Some((consumer, keep)) = &self.consumer else {
            return Ok(());
        };
        if self.returned == self.kept {
            return Ok(());
        }
        let from = FeedFrom::of(self.returned.into());
        let asked = json!({"consumer": consumer, "keep": keep, "from": from});
        let path = self.dataset.path("feed/consumers");
        let _: Consumer = self.dataset.client().post(&path, &asked)?;
        self.kept = self.returned;
        Ok(())
    }

    /// True if the feed belongs to a consumer that was new.
    pub fn is_new(&self) -> bool {
        self.is_new
    }
}

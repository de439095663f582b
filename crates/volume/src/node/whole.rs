//! A request of a user that was cut into parts, while they are answered.

use std::collections::BTreeMap;

use super::cutting::{Piece, Rest};
use super::input::Manner;
use crate::wire::{Refusal, Reply};

/// A discard gets no further part while its connection waits for the answers to so many writes and
/// parts of discards, but for one: a range of terabytes has hundreds of thousands of parts.
const MOST_PARTS: usize = 64;

/// A request whose parts are being answered.
pub(super) struct Whole {
    /// How its parts are carried out.
    pub(super) manner: Manner,
    /// Parts that are not answered.
    missing: usize,
    /// Of a discard, what is not asked for yet.
    rest: Option<Rest>,
    /// Bytes that are read.
    length: usize,
    /// They, from the first part's answer on.
    bytes: Vec<u8>,
    runs: BTreeMap<u64, Vec<(u64, bool)>>,
    other: Option<Reply>,
    failed: Option<Refusal>,
    kind: Kind,
}

/// What a request asks for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Bytes,
    Runs,
    Other,
}

impl Whole {
    /// A request without parts yet, of so many bytes where it is a read.
    pub(super) fn new(kind: Kind, length: usize, manner: Manner) -> Whole {
        Whole {
            manner,
            missing: 0,
            rest: None,
            length,
            bytes: Vec::new(),
            runs: BTreeMap::new(),
            other: None,
            failed: None,
            kind,
        }
    }

    /// One more part is asked for.
    pub(super) fn expect(&mut self) {
        self.missing += 1;
    }

    /// More parts follow, which are made when there is room for them.
    pub(super) fn follow(&mut self, rest: Rest) {
        self.rest = Some(rest);
    }

    /// True where parts are to be made.
    pub(super) fn follows(&self) -> bool {
        self.rest.as_ref().is_some_and(|rest| !rest.is_empty())
    }

    /// The next part of the rest, where it is to be asked for now: the connection waits for the
    /// answers to so many writes.
    pub(super) fn next(&mut self, outstanding: usize) -> Option<Piece> {
        let may = self.missing == 0 || outstanding < MOST_PARTS;
        let rest = self.rest.as_mut().filter(|_| may)?;
        let piece = rest.next();
        if rest.is_empty() {
            self.rest = None;
        }
        piece
    }

    /// Adds the answer of the part at this offset; true where it was the last one. After a failure
    /// no further part is asked for.
    pub(super) fn add(&mut self, at: u64, result: Result<Reply, Refusal>) -> bool {
        self.missing -= 1;
        match result {
            // What one part answers is not copied.
            Ok(Reply::Data(data)) if data.len() == self.length => self.bytes = data,
            Ok(Reply::Data(data)) => {
                let start = at as usize;
                self.bytes.resize(self.length, 0);
                if let Some(bytes) = self.bytes.get_mut(start..start + data.len()) {
                    bytes.copy_from_slice(&data);
                }
            }
            Ok(Reply::Runs(runs)) => drop(self.runs.insert(at, runs)),
            Ok(reply) => self.other = Some(reply),
            Err(refusal) => {
                self.failed.get_or_insert(refusal);
                self.rest = None;
            }
        }
        self.missing == 0 && self.rest.is_none()
    }

    /// The answer to the request.
    pub(super) fn result(mut self) -> Result<Reply, Refusal> {
        if let Some(refusal) = self.failed {
            return Err(refusal);
        }
        self.bytes.resize(self.length, 0);
        Ok(match self.kind {
            Kind::Bytes => Reply::Data(self.bytes),
            Kind::Runs => Reply::Runs(joined(self.runs.into_values().flatten())),
            Kind::Other => self.other.unwrap_or(Reply::Done),
        })
    }
}

/// Neighbouring runs of one kind as one.
fn joined(runs: impl Iterator<Item = (u64, bool)>) -> Vec<(u64, bool)> {
    let mut all: Vec<(u64, bool)> = Vec::new();
    for (length, is_data) in runs {
        match all.last_mut() {
            Some(last) if last.1 == is_data => last.0 += length,
            _ => all.push((length, is_data)),
        }
    }
    all
}

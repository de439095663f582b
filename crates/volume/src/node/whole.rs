//! A request of a user that was cut into parts, while they are answered.

use std::collections::BTreeMap;

use crate::wire::{Refusal, Reply};

/// A request whose parts are being answered.
pub(super) struct Whole {
    missing: usize,
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
    /// A request of so many parts, and of so many bytes where it is a read.
    pub(super) fn new(kind: Kind, length: usize, missing: usize) -> Whole {
        Whole {
            missing,
            length,
            bytes: Vec::new(),
            runs: BTreeMap::new(),
            other: None,
            failed: None,
            kind,
        }
    }

    /// Adds the answer of the part at this offset; true where it was the last one.
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
            }
        }
        self.missing == 0
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

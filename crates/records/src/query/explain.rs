//! What a query did and what it cost, as JSON.

use lsm::Cost;
use serde_json::{Value as Json, json};

/// How many candidates passed each step.
#[derive(Debug, Default, Clone)]
pub(super) struct Steps {
    /// Given by the index (or by the scan).
    pub(super) candidates: u64,
    /// Not the newest version of their key.
    pub(super) superseded: u64,
    /// Asked for in a tree of keys.
    pub(super) asked: u64,
    /// Records read for them.
    pub(super) fetched: u64,
    /// Another condition did not hold.
    pub(super) discarded: u64,
    /// Answered.
    pub(super) answers: u64,
    /// Times that the index was asked.
    pub(super) rounds: u64,
}

impl Steps {
    pub(super) fn to_json(&self) -> Json {
        json!({
            "candidates": self.candidates,
            "superseded": self.superseded,
            "asked": self.asked,
            "fetched": self.fetched,
            "discarded": self.discarded,
            "answers": self.answers,
            "rounds": self.rounds,
        })
    }
}

/// The cost of reads in one tree.
pub(super) fn cost(cost: &Cost) -> Json {
    json!({
        "blocks_cached": cost.blocks_cached.get(),
        "blocks_read": cost.blocks_read.get(),
        "bytes_read": cost.bytes_read.get(),
        "data_blocks": cost.data_blocks.get(),
        "filters_asked": cost.filters_asked.get(),
        "filters_negative": cost.filters_negative.get(),
        "filters_false": cost.filters_false.get(),
        "synopses_asked": cost.synopses_asked.get(),
        "synopses_negative": cost.synopses_negative.get(),
    })
}

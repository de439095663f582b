//! Tests of the check of histories.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "mod.rs"]
mod linearizable;

mod examples;
mod generated;
mod search;

//! The tests of publish/subscribe, a module for each subject. The comparison with a model under
//! faults is a program of its own, `tests/model`.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

mod anchors;
mod architecture;
mod config;
mod corners;
mod cuts;
mod examples;
mod expired;
mod failures;
mod follow;
mod inbox;
mod numbers;
mod reads;
mod renewals;
mod syncs;
mod tags;
mod threads;
mod watch;

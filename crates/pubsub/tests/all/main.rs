//! The tests of publish/subscribe, one module a subject. The model with faults is a program of its own beside it.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

mod anchors;
mod architecture;
mod corners;
mod cuts;
mod failures;
mod inbox;
mod reads;
mod renewals;
mod syncs;
mod threads;
mod watch;

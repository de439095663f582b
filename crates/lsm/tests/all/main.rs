//! The tests of the engine, one module a subject. Those that count what the process allocates are
//! programs of their own beside it.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;

mod architecture;
mod bitmap;
mod bulk;
mod closing;
mod commits;
mod consumers;
mod crash;
mod digests;
mod expiry;
mod external;
mod failures;
mod faults;
mod ingest_checkpoint;
mod layouts;
mod listening;
mod lookup;
mod manifest;
mod many;
mod mapped;
mod model;
mod openings;
mod overtaken;
mod parallel;
mod parallel_faults;
mod reader;
mod reader_failures;
mod rename;
mod settings;
mod short_sessions;
mod snapshots;
mod stop;
mod tail;
mod threads;
#[cfg(target_os = "linux")]
mod together;
mod toy_log;

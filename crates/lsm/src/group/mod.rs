//! A tree group: several trees over one log, one sequence, one memory budget.
//!
//! Its parts: the log and commit sequencer (`sequencer.rs`), the version set (`version_set.rs`),
//! the scheduler (`scheduler.rs`), and their shared state (`core.rs`). Operations on several of
//! them have a file each: `open.rs`, `commit.rs`, `flush.rs`, `compact.rs`, `install.rs`,
//! `trees.rs`, `close.rs`, ...
//!
//! Locks, outermost first (a thread acquires them only in this order):
//!
//! | lock | guards | held for |
//! | --- | --- | --- |
//! | `naming` | keeping and dropping named snapshots, one at a time | a flush |
//! | claims (`claims.rs`) | trees: one job at a time works on each | a whole job |
//! | `flushing` | flushes, one at a time | a whole job |
//! | `writer` | the log's tail, the next sequence number, insertion into memtables | one batch |
//! | `log.queue` | the waiters for a sync; one of them syncs, without the lock | no I/O |
//! | `reader` | the progress of a read-only group behind the writer | a refresh |
//! | `manifest` | the manifest's tail; installing a version | one manifest record |
//! | `view_change` | replacing the view | no I/O |
//!
//! Readers take none of them: they load the view (an atomic pointer) and the visible sequence
//! number.

mod bulk;
mod claims;
mod close;
mod commit;
mod compact;
mod consumers;
mod core;
mod failures;
mod flush;
mod handle;
mod inner;
mod install;
mod jobs;
mod log;
mod manifest;
mod open;
mod order;
mod pending;
mod poll;
mod reader;
mod recover;
mod report;
mod rotate;
mod scheduler;
mod sequencer;
mod snapshots;
mod space;
mod sweep;
mod sync;
mod tail;
mod tails;
mod taken;
mod threads;
mod ticket;
mod trees;
mod version_set;

pub use commit::Complete;
pub use consumers::LogConsumer;
pub use failures::{Job, JobFailure, Retry};
pub use handle::Group;
pub use jobs::{EndedJob, JobDescription, JobKind, RunningJob, Why};
pub use snapshots::NamedSnapshot;
pub use tail::{Commit, Observer, ShowOperation, Tail};
pub use ticket::Ticket;
pub use trees::TreeChange;

pub(crate) use handle::Internals;

#[cfg(test)]
mod tests;

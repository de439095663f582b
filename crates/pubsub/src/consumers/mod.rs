//! The readers of publications: inboxes of stored subscriptions, followers of the log, watchers of
//! datasets, and the baseline of repeated queries.

pub(crate) mod fence;
pub(crate) mod follow;
pub(crate) mod inbox;
pub(crate) mod repeated_queries;
pub(crate) mod watch;

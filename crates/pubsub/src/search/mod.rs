//! The two searches: the stored subscriptions that match a publication (`subscribers.rs`), and the
//! stored publications that match a subscription (`publications.rs`, with `prepared.rs` and
//! `self_join.rs`).

pub(crate) mod prepared;
pub(crate) mod publications;
pub(crate) mod self_join;
pub(crate) mod subscribers;

//! The data of publish/subscribe: the hierarchies of topics and cells, the messages
//! of the interface, and the stored elements of value lists with their keys. Nothing here reads a
//! store.

pub(crate) mod anchor;
pub(crate) mod body;
pub(crate) mod cell;
pub(crate) mod config;
pub(crate) mod element;
pub(crate) mod keys;
pub(crate) mod message;
pub(crate) mod place;
pub(crate) mod topic;

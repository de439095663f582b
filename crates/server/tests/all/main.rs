//! The integration tests of this crate: a server that is reached as clients reach it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod architecture;
mod client;
mod common;
mod consumers;
mod dashboard;
mod datasets;
mod events;
mod fence;
mod find;
mod floods;
mod jobs;
mod kills;
mod limits;
mod live;
mod load;
mod model;
mod mqtt;
mod packaging;
mod process;
mod records;
mod reference;
mod tls;
mod tokens;
mod topics;

//! The integration tests of this crate: a server that is reached as clients reach it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod architecture;
mod common;
mod datasets;
mod find;
mod jobs;
mod load;
mod model;
mod records;
mod tls;
mod tokens;

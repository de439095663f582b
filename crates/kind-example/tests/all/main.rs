//! Tests of an index type from another crate.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod every_way;
mod refused;

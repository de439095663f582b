//! Tests of SQL over stores: one program, since linking DataFusion takes long.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod command;
mod moments;
mod pushdown;
mod random;
mod slt;
mod store;

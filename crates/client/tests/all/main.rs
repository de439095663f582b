//! The integration tests of this crate. The client against a server: `crates/server/tests/all/client.rs`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod architecture;

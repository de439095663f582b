//! The integration tests of this crate.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod architecture;
mod calls;
mod conformance;

//! Tests of `esker-volume` that need no process of their own, a module a subject.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod alone;
mod architecture;
mod certificates;
mod client;
mod full;
mod memory;

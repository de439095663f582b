//! A node as a process runs it: the core on one thread at a time, one thread for the disk, some
//! that read, and those of the network.

mod clock;
mod exports;
mod service;
mod start;
#[cfg(test)]
mod tests;
mod work;

pub use start::{Node, NodeOptions};

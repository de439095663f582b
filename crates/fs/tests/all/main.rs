//! The integration tests of the file systems, in one program.

mod architecture;
mod contract;
mod map;

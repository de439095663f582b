//! Apache Cassandra. Each table has three columns, `p` (the partition), `c` (the row) and `v` (the
//! value): `PRIMARY KEY (p, c)`. Timestamps are written with `USING TIMESTAMP`; compare-and-set
//! uses lightweight transactions, in tables that nothing else writes.

mod connect;
mod errors;
mod requests;
mod statements;
mod swaps;
mod writes;

pub use connect::{Cassandra, Settings};

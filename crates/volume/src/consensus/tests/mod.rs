//! The protocol under random networks and disks (`cluster`), and explored exhaustively within
//! bounds (`explore`). `ESKER_SEEDS=20000 cargo test -p esker-volume consensus::` runs more seeds;
//! `ESKER_SEED=17` repeats one.

mod cluster;
mod codec;
mod edges;
mod explore;
mod rules;

//! Indexes that are added, switched and dropped while the dataset is in use.
//! `ESKER_SEEDS=200 cargo test --test change` tries more; `ESKER_SEED=17` repeats one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
mod life;

use common::seeds;
use esker::IndexKind;
use life::live;

#[test]
fn answers_are_those_of_the_model_while_indexes_change() {
    for seed in seeds(12) {
        live(seed, &[], true);
        for kind in IndexKind::ALL {
            live(seed, &[kind], true);
        }
        for other in IndexKind::ALL {
            live(seed, &[IndexKind::Lazy, other], true);
        }
    }
}

//! Compares the modules and locks of this crate with `layers.txt` and `locks.txt`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, dead_code)]

#[path = "../../../../tests/layers.rs"]
mod layers;

use std::path::Path;

#[test]
fn modules_use_only_what_is_below_them() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let uses = layers::assert_layers(here);
    assert!(uses["batch"].contains("uring"), "{uses:?}");
    layers::assert_locks(here);
}

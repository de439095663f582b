//! Compares the modules and locks of this crate with `layers.txt` and `locks.txt`.

#[path = "../../../../tests/layers.rs"]
#[allow(dead_code, reason = "its parts are tested in the engine's crate")]
mod layers;

use std::path::Path;

#[test]
fn modules_use_only_what_is_below_them() {
    let uses = layers::assert_layers(Path::new(env!("CARGO_MANIFEST_DIR")));
    assert!(uses["dataset"].contains("client"), "{uses:?}");
}

#[test]
fn each_lock_is_named() {
    layers::assert_locks(Path::new(env!("CARGO_MANIFEST_DIR")));
}

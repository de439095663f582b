//! Compares the modules of this crate with `layers.txt`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../../../tests/layers.rs"]
#[allow(dead_code, reason = "its parts are tested in the engine's crate")]
mod layers;

use std::path::Path;

#[test]
fn modules_use_only_what_is_below_them() {
    let uses = layers::assert_layers(Path::new(env!("CARGO_MANIFEST_DIR")));
    assert!(uses["load"].contains("resume"), "{uses:?}");
}

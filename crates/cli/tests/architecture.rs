//! The shape that ARCHITECTURE.md claims for this crate, read off its sources.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../../lsm/tests/common/layers.rs"]
mod layers;

#[test]
fn modules_use_only_what_is_below_them() {
    layers::check(
        env!("CARGO_MANIFEST_DIR"),
        "Layers of `crates/cli/src`",
        ("commands", "output"),
    );
}

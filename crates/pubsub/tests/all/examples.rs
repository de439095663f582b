//! The example runs, and what it asserts holds.

#[path = "../../examples/alerts.rs"]
mod alerts;

#[test]
fn the_example_runs() {
    alerts::main().unwrap();
}

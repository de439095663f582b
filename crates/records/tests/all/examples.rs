//! The examples run, and what they assert holds.

#[path = "../../examples/changes.rs"]
mod changes;
#[path = "../../examples/operations.rs"]
mod operations;
#[path = "../../examples/places.rs"]
mod places;
#[path = "../../examples/quickstart.rs"]
mod quickstart;
#[path = "../../examples/typed.rs"]
mod typed;
#[path = "../../examples/updates.rs"]
mod updates;

#[test]
fn each_example_runs() {
    quickstart::main().unwrap();
    typed::main().unwrap();
    updates::main().unwrap();
    changes::main().unwrap();
    places::main().unwrap();
    operations::main().unwrap();
}

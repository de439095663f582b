//! Running a store: an index added while it is in use, a snapshot, a backup, a check, a repair.
//!
//! `cargo run -p esker --example operations`

use std::ops::ControlFlow;

use esker::maintain::RepairOptions;
use esker::{Database, DatasetDef, Index, Options, field};
use serde_json::json;

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let db = Database::create_or_open(folder.path().join("store"), Options::new())?;
    let items = db.dataset_or_create::<u64>("items", DatasetDef::key("id"))?;
    for id in 0..1000_u64 {
        items.put(&json!({"id": id, "colour": if id % 3 == 0 { "red" } else { "blue" }}))?;
    }

    // Readers and writers go on meanwhile; after a crash the build resumes.
    let report = items
        .add_index("colour", Index::composite().string())
        .on_progress(|at| {
            println!("{} of {}", at.done, at.total);
            ControlFlow::Continue(())
        })
        .run()?;
    println!("{} records are in the index", report.records);

    // A named snapshot stays until it is dropped, also through restarts.
    db.keep_snapshot("before")?;
    let red = field("colour").eq("red");
    items.delete_where(red.clone(), &mut |_| ControlFlow::Continue(()))?;
    assert_eq!(items.find(red.clone()).count()?, 0);
    let before = db.kept_snapshot("before")?;
    let then = before.dataset::<u64>("items")?;
    assert_eq!(then.find(red).count()?, 334);
    db.drop_snapshot("before")?;

    // A backup is a store of its own.
    db.backup(folder.path().join("copy"))?;
    items.repair(&RepairOptions::default()).run()?;
    let report = db.check()?;
    assert!(report.errors.is_empty(), "{:?}", report.errors);
    db.close()?;
    let copy = Database::open(folder.path().join("copy"), Options::new())?;
    assert_eq!(copy.dataset::<u64>("items")?.query().count()?, 666);
    Ok(())
}

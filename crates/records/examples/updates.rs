//! Changes that depend on what is there: an update that is repeated on a conflict, a batch over two
//! datasets that expects what was read, and a change of part of a record.
//!
//! `cargo run -p esker --example updates`

use esker::{Database, DatasetDef, Error, Options, Update};
use serde_json::json;

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let db = Database::create_or_open(folder.path().join("jobs"), Options::new())?;
    let waiting = db.dataset_or_create::<u64>("waiting", DatasetDef::key("id"))?;
    let done = db.dataset_or_create::<u64>("done", DatasetDef::key("id"))?;
    waiting.put(&json!({"id": 7, "tries": 0, "note": "first"}))?;

    // The closure sees the record as it is, and runs again if somebody was faster.
    waiting.update(7, |job| {
        let Some(job) = job else {
            return Ok(Update::Keep);
        };
        let mut job: serde_json::Value = job.parse()?;
        job["tries"] = json!(job["tries"].as_u64().unwrap_or(0) + 1);
        Update::put(&job)
    })?;

    // A merge patch: fields that it does not name stay, `null` removes one.
    waiting.merge(7, &json!({"note": null, "by": "worker-3"}))?;

    // Both writes happen, or none, and none if the record has changed since it was read.
    let job = waiting.get(7)?.ok_or("the job is there")?;
    let mut batch = db.batch();
    batch.if_seq(&waiting, 7, job.seq())?;
    batch.delete(&waiting, 7)?;
    batch.insert_json(&done, job.json())?;
    batch.commit()?;
    println!("done: {}", String::from_utf8_lossy(job.json()));

    // The same batch once more is refused, because the record is gone.
    let mut batch = db.batch();
    batch.if_seq(&waiting, 7, job.seq())?;
    batch.delete(&waiting, 7)?;
    assert!(matches!(batch.commit(), Err(Error::Conflict { .. })));
    Ok(())
}

//! Memory of the client, whatever the answer.

use esker_model::query::Request;

use super::data::{Records, all_keys};
use super::server::Kind;
use super::subject::{How, Space};
use super::task::{Task, row, with};
use super::writes::{KEYS, VALUES};
use crate::failure::{Failure, Result};
use crate::run::Job;
use crate::suites::volume::proc;

/// Memory.
pub(super) const MEMORY: &str = "memory";

/// What answers add to the process's memory at most, of more and more records.
pub(super) fn memory(job: &Job, task: &Task) -> Result<()> {
    if task.server.kind == Kind::HBase && task.server.nodes == 3 {
        return Ok(());
    }
    let space = Space::new(&task.server, &format!("bench_memory_{}", job.repeat), "")?;
    let subject = space.subject(How::Esker)?;
    let dataset = subject
        .dataset()
        .ok_or_else(|| Failure::new("no dataset"))?;
    let mut written = 0;
    for step in [1_u64, 2, 5] {
        let keys = task.scaled(KEYS) * step;
        let mut records = Records::new(VALUES, job.seed);
        all_keys(keys, &mut records, &mut |group| {
            let new: Vec<_> = group.iter().filter(|r| r.key >= written).cloned().collect();
            subject.put(&new)
        })?;
        written = keys;
        for (operation, condition) in [
            ("scan", None),
            ("range", Some(esker_model::condition::field("v").ge(0))),
        ] {
            let mut request = Request::default();
            request.condition = condition;
            // From now on the most memory is counted anew.
            std::fs::write("/proc/self/clear_refs", "5")?;
            let before = proc::peak_memory(std::process::id());
            let mut answer = dataset.find(&request)?;
            let mut count = 0;
            while answer.next_record()?.is_some() {
                count += 1;
            }
            let peak = proc::peak_memory(std::process::id());
            if count != keys {
                return Err(Failure::new(format!("{count} records, not {keys}")));
            }
            let mut row = row(job, task, "esker", operation, &[("records", keys.into())]);
            row.ops = count;
            let added = peak.saturating_sub(before) as f64;
            job.report(&with(row, &[("added_memory_bytes", added)]))?;
        }
    }
    Ok(())
}

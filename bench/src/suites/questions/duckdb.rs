//! DuckDB, in a Python that has its module: it reads the records' NDJSON anew for each question.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde::Deserialize;

use super::asked::{ANSWER, OPERATIONS, digest};
use super::records;
use super::task::{State, Task, operation_row};
use crate::failure::{Failure, Result};
use crate::meter::Latency;
use crate::run::Job;

/// Reads questions, a JSON array of operations, and prints seconds, rows and answers.
const SCRIPT: &str = r#"
import duckdb, json, sys, time
db = duckdb.connect()
db.execute("SET threads = 2")
for operation in json.load(sys.stdin):
    took, answers, rows = [], [], 0
    cpu = time.process_time()
    for sql in operation:
        start = time.perf_counter()
        found = db.execute(sql).fetchall()
        took.append(time.perf_counter() - start)
        rows += len(found)
        answers += ["|".join(map(str, row)) + "\n" for row in found]
    cpu = time.process_time() - cpu
    print(json.dumps({"seconds": took, "cpu": cpu, "rows": rows, "answer": "".join(answers)}), flush=True)
"#;

#[derive(Deserialize)]
struct Told {
    seconds: Vec<f64>,
    cpu: f64,
    rows: u64,
    answer: String,
}

/// The version, if this Python has the module.
pub(super) fn version(python: &Path) -> Option<String> {
    let print = "import duckdb; print(duckdb.__version__)";
    let output = Command::new(python).args(["-c", print]).output().ok()?;
    let version = String::from_utf8_lossy(&output.stdout).trim().to_string();
    (output.status.success() && !version.is_empty()).then_some(version)
}

/// Questions that take it seconds each are asked so often.
const TIMES: usize = 5;

/// Asks it of freshly written records.
pub(super) fn child(job: &Job, task: &Task) -> Result<()> {
    let path = job.scratch.join("tweets.ndjson");
    let mut file = std::io::BufWriter::new(std::fs::File::create(&path)?);
    records::first(job.seed, task.len, &mut |record| {
        file.write_all(record.body)?;
        Ok(file.write_all(b"\n")?)
    })?;
    file.flush()?;
    let table = format!(
        "read_json('{}', format = 'nd', columns = {{id: 'UBIGINT', \
         user_id: 'BIGINT', created_at: 'BIGINT', lang: 'VARCHAR', source: 'VARCHAR', \
         retweets: 'BIGINT', likes: 'BIGINT'}})",
        path.display()
    );
    let questions = OPERATIONS.map(|operation| {
        let questions = operation.questions(job.seed, task.len);
        let sql = questions.iter().take(TIMES).map(|q| q.sql(&table, "//"));
        sql.collect::<Vec<String>>()
    });
    let mut python = Command::new(&task.python)
        .args(["-c", SCRIPT])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    if let Some(mut stdin) = python.stdin.take() {
        stdin.write_all(&serde_json::to_vec(&questions)?)?;
    }
    let output = python.wait_with_output()?;
    if !output.status.success() {
        return Err(Failure::new("DuckDB's process failed"));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    for ((operation, asked), line) in OPERATIONS.into_iter().zip(&questions).zip(text.lines()) {
        let told: Told = serde_json::from_str(line)?;
        let mut latency = Latency::new()?;
        for seconds in &told.seconds {
            latency.add(Duration::from_secs_f64(*seconds));
        }
        let cpu = Duration::from_secs_f64(told.cpu);
        let mut row = operation_row(job, operation, State::Fresh, &latency, cpu);
        row.figures.insert("rows".to_string(), told.rows as f64);
        if asked.len() == operation.questions(job.seed, task.len).len() {
            let answer = digest(told.answer.as_bytes());
            row.figures.insert(ANSWER.to_string(), answer);
        }
        job.report(&row)?;
    }
    Ok(())
}

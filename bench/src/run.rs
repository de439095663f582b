//! Runs: each subject's in a process of its own, so that memory, CPU time and input/output are its
//! own, and nothing that one leaves behind is there for the next. The binary starts itself again
//! with a [`Job`]; the child prints a [`Row`] a line.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::failure::Result;
use crate::measure::{Claim, Row, Writer};

/// The hidden subcommand that a child is started with.
pub const CHILD: &str = "child";

/// What a child is to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Job {
    /// The suite whose child this is.
    pub suite: String,
    /// See [`Row::experiment`].
    pub experiment: String,
    /// See [`Row::subject`].
    pub subject: String,
    /// The repeat, from 0.
    pub repeat: u32,
    /// Seed of everything that is drawn.
    pub seed: u64,
    /// What only the suite understands; whatever it has made of its own type.
    pub parameters: Value,
    /// A folder for the child, removed afterwards. Set by [`Runner::run`].
    #[serde(default)]
    pub scratch: PathBuf,
}

impl Job {
    /// The parameters as the suite's own type.
    pub fn parameters<T: serde::de::DeserializeOwned>(&self) -> Result<T> {
        Ok(serde_json::from_value(self.parameters.clone())?)
    }

    /// Hands a row to the parent. Only in a child.
    pub fn report(&self, row: &Row) -> Result<()> {
        let mut line = serde_json::to_vec(row)?;
        line.push(b'\n');
        Ok(std::io::stdout().lock().write_all(&line)?)
    }
}

/// Runs jobs one after the other and writes down what they measure.
#[derive(Debug)]
pub struct Runner {
    out: PathBuf,
    writer: Writer,
    /// What went wrong so far.
    pub failures: Vec<String>,
}

impl Runner {
    /// A runner that writes to `out`, anew.
    pub fn new(out: &Path) -> Result<Runner> {
        Ok(Runner {
            out: out.to_path_buf(),
            writer: Writer::create(out)?,
            failures: Vec::new(),
        })
    }

    /// Writes a setting.
    pub fn setting(&mut self, name: &str, value: impl ToString) -> Result<()> {
        self.writer.setting(name, value)
    }

    /// Writes a claim.
    pub fn claim(&mut self, claim: &Claim) -> Result<()> {
        self.writer.claim(claim)
    }

    /// Runs a job and gives its rows. A job that fails is reported and remembered; the others are
    /// not held up by it.
    pub fn run(&mut self, job: &Job) -> Result<Vec<Row>> {
        let scratch = tempfile::Builder::new()
            .prefix("scratch-")
            .tempdir_in(&self.out)?;
        let job = Job {
            scratch: scratch.path().to_path_buf(),
            ..job.clone()
        };
        let label = format!("{} · {} · {}", job.suite, job.experiment, job.subject);
        eprint!("{label} · repeat {} ... ", job.repeat + 1);
        let start = Instant::now();
        let mut child = Command::new(std::env::current_exe()?)
            .arg(CHILD)
            .arg(serde_json::to_string(&job)?)
            .stdout(Stdio::piped())
            .spawn()?;
        let mut rows = Vec::new();
        if let Some(output) = child.stdout.take() {
            for line in BufReader::new(output).lines() {
                let row: Row = serde_json::from_str(&line?)?;
                self.writer.row(&row)?;
                rows.push(row);
            }
        }
        let status = child.wait()?;
        eprintln!("{:.1} s", start.elapsed().as_secs_f64());
        if !status.success() {
            eprintln!("  FAILED ({status}): what it would have measured is missing below");
            self.failures.push(label);
        }
        Ok(rows)
    }
}

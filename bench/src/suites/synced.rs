//! Synced puts by several threads, and what an unsynced one costs behind them: all stores take turns in one process, so
//! that whatever the disk is like at a moment, it is so for all. Beside them a bare append with a sync each.

use std::fs::File;
use std::io::{Seek, Write};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::session::{Ahead, row};
use super::threads::{Share, Work, rate, round};
use crate::failure::{Failure, Result};
use crate::run::Job;
use crate::subjects::{self, Setup, Subject, Writes};
use crate::workload::plan::{Mix, Plan};
use crate::workload::profile::Profile;

/// The experiment's name.
pub const EXPERIMENT: &str = "synced puts";

/// The stores.
pub const SUBJECTS: [&str; 3] = ["esker none", "rocksdb none", "fjall none"];

/// Numbers of threads that put, each record with a sync.
pub const THREADS: [usize; 4] = [1, 4, 16, 64];

/// Threads whose synced puts an unsynced one stands behind.
pub const BESIDE: [usize; 2] = [0, 3];

/// A bare append, to a file that grows and to one that is there already.
pub const BARE: [&str; 2] = ["append to a growing file", "append to a zero-filled file"];

/// Rounds; figures are medians, percentiles are of all of them.
const ROUNDS: usize = 5;
/// How long a round goes on.
const ROUND: Duration = Duration::from_millis(400);
/// How long whoever does not sync pauses between two puts.
const PAUSE: Duration = Duration::from_micros(100);
/// Records at most, before they are put again.
const RECORDS: usize = 200_000;
/// Bytes of a file that is written over.
const ZEROS: usize = 16 << 20;

/// What a child is told.
#[derive(Debug, Serialize, Deserialize)]
pub struct Parameters {
    /// The stores.
    pub subjects: Vec<String>,
    /// Block cache.
    pub cache_bytes: usize,
    /// How much is done: 1 for what is usual.
    pub scale: f64,
}

/// The name of synced puts by so many threads.
pub fn synced(threads: usize) -> String {
    match threads {
        1 => "synced put by 1 thread".to_string(),
        n => format!("synced put by {n} threads"),
    }
}

/// The name of unsynced puts beside so many threads with synced ones.
pub fn beside(threads: usize) -> String {
    format!("os put beside {threads} synced")
}

/// All operations.
pub fn operations() -> Vec<String> {
    let synced = THREADS.map(synced).into_iter();
    synced.chain(BESIDE.map(beside)).collect()
}

/// Records that threads take one by one.
struct Records {
    all: Ahead,
    len: usize,
}

/// A store, and what it did.
struct Contender {
    name: String,
    subject: Box<dyn Subject>,
    next: AtomicUsize,
    synced: [Vec<Vec<Share>>; THREADS.len()],
    /// Syncs of its log, where it tells.
    syncs: [f64; THREADS.len()],
    beside: [Vec<Vec<Share>>; BESIDE.len()],
}

/// Does the experiment.
pub fn child(job: &Job) -> Result<()> {
    let parameters: Parameters = job.parameters()?;
    let len = ((RECORDS as f64 * parameters.scale) as usize).max(1000);
    let time = ROUND.mul_f64(parameters.scale.min(1.0));
    let plan = Plan::new(
        job.seed,
        Profile::synthetic(len as u64),
        len,
        0,
        Mix::UPDATE_HEAVY,
    );
    let mut all = Ahead::default();
    all.fill(&mut plan.stream(), len);
    let records = Records { all, len };
    let mut contenders = parameters
        .subjects
        .iter()
        .map(|name| Contender::open(name, &parameters, &job.scratch))
        .collect::<Result<Vec<_>>>()?;
    let mut bare: [Vec<Vec<Share>>; 2] = Default::default();
    for _ in 0..ROUNDS {
        for (at, threads) in THREADS.into_iter().enumerate() {
            if threads == 1 {
                for (rounds, zeros) in bare.iter_mut().zip([false, true]) {
                    rounds.push(append(
                        &job.scratch,
                        zeros,
                        time,
                        records.all.record(0).body,
                    )?);
                }
            }
            for contender in &mut contenders {
                let before = contender.log_syncs();
                let shares = contender.round(&records, time, 0, threads)?;
                contender.synced[at].push(shares);
                contender.syncs[at] += contender.log_syncs() - before;
            }
        }
        for (at, threads) in BESIDE.into_iter().enumerate() {
            for contender in &mut contenders {
                let mut shares = contender.round(&records, time, 1, threads)?;
                shares.truncate(1);
                contender.beside[at].push(shares);
            }
        }
    }
    for (name, rounds) in BARE.into_iter().zip(&bare) {
        report(job, name, &synced(1), rounds, 0.0)?;
    }
    for contender in &contenders {
        for (at, threads) in THREADS.into_iter().enumerate() {
            let (rounds, syncs) = (&contender.synced[at], contender.syncs[at]);
            report(job, &contender.name, &synced(threads), rounds, syncs)?;
        }
        for (rounds, threads) in contender.beside.iter().zip(BESIDE) {
            report(job, &contender.name, &beside(threads), rounds, 0.0)?;
        }
    }
    Ok(())
}

impl Contender {
    fn open(name: &str, parameters: &Parameters, scratch: &Path) -> Result<Contender> {
        let setup = Setup {
            dir: scratch.join(name.replace(' ', "-")),
            cache_bytes: parameters.cache_bytes,
            direct: false,
        };
        std::fs::create_dir_all(&setup.dir)?;
        Ok(Contender {
            name: name.to_string(),
            subject: subjects::open(name, &setup)?,
            next: AtomicUsize::new(0),
            synced: Default::default(),
            syncs: Default::default(),
            beside: Default::default(),
        })
    }

    fn log_syncs(&self) -> f64 {
        let counters = self.subject.counters();
        counters.get("log_syncs").copied().unwrap_or_default()
    }

    /// One round of some threads that do not sync, and behind them of some that do.
    fn round(
        &self,
        records: &Records,
        time: Duration,
        unsynced: usize,
        synced: usize,
    ) -> Result<Vec<Share>> {
        let writes: &dyn Writes = self.subject.shared_writes().ok_or_else(|| {
            Failure::new(format!(
                "{} is not written to by several threads",
                self.name
            ))
        })?;
        let next = &self.next;
        round(unsynced + synced, time, &|n| {
            let mut put = writes.writer(n >= unsynced)?;
            let work = Work::new(move || {
                let at = next.fetch_add(1, Ordering::Relaxed);
                put(&records.all.record(at % records.len))
            });
            Ok(match n < unsynced {
                true => work.pausing(PAUSE),
                false => work,
            })
        })
    }
}

/// Appends so many bytes, with a sync each.
fn append(dir: &Path, zeros: bool, time: Duration, bytes: &[u8]) -> Result<Vec<Share>> {
    let path = dir.join("bare");
    let mut file = File::create(&path)?;
    if zeros {
        file.write_all(&vec![0; ZEROS])?;
        file.sync_all()?;
        file.rewind()?;
    }
    let file = &file;
    let shares = round(1, time, &|_| {
        Ok(Work::new(move || {
            let mut file = file;
            file.write_all(bytes)?;
            Ok(file.sync_data()?)
        }))
    })?;
    std::fs::remove_file(&path)?;
    Ok(shares)
}

fn report(
    job: &Job,
    subject: &str,
    operation: &str,
    rounds: &[Vec<Share>],
    syncs: f64,
) -> Result<()> {
    let rate = rate(rounds)?;
    let mut row = row(job, operation, &rate.latency, rate.cpu);
    row.subject = subject.to_string();
    row.seconds = rate.wall.as_secs_f64();
    row.figures
        .insert("per_second".to_string(), rate.per_second);
    if syncs > 0.0 {
        row.figures
            .insert("puts_per_sync".to_string(), row.ops as f64 / syncs);
    }
    job.report(&row)
}

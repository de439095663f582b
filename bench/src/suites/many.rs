//! A store of a thousand datasets beside one of ten: the same records, one by one, each to the next dataset.

use std::path::Path;
use std::time::{Duration, Instant};

use esker::{Database, Dataset, DatasetDef, Durability, IndexKind, KeyType, Options, Type};
use serde::{Deserialize, Serialize};

use super::session::{Ahead, row};
use crate::failure::{Failure, Result};
use crate::measure::median;
use crate::meter::{Latency, process_cpu};
use crate::run::Job;
use crate::workload::plan::{Mix, Plan};
use crate::workload::profile::Profile;

/// The experiment's name.
pub const EXPERIMENT: &str = "many datasets";

/// What is measured.
pub const SUBJECT: &str = "esker composite";

/// Numbers of datasets.
pub const DATASETS: [usize; 2] = [10, 1000];

/// Rounds, each with a store of its own; figures are medians, percentiles are of all of them.
const ROUNDS: usize = 3;
/// Records of a round.
const RECORDS: usize = 200_000;

/// What a child is told.
#[derive(Debug, Serialize, Deserialize)]
pub struct Parameters {
    /// Block cache.
    pub cache_bytes: usize,
    /// How much is done: 1 for what is usual.
    pub scale: f64,
}

/// The name of puts into so many datasets.
pub fn puts(datasets: usize) -> String {
    format!("put into {datasets} datasets")
}

/// All operations.
pub fn operations() -> Vec<String> {
    DATASETS.map(puts).to_vec()
}

/// What was measured with one number of datasets.
struct Measured {
    latency: Latency,
    cpu: Duration,
    per_second: Vec<f64>,
    create_ms: Vec<f64>,
    open_ms: Vec<f64>,
}

/// Does the experiment.
pub fn child(job: &Job) -> Result<()> {
    let parameters: Parameters = job.parameters()?;
    let len = ((RECORDS as f64 * parameters.scale.min(1.0)) as usize).max(10_000);
    let plan = Plan::new(
        job.seed,
        Profile::synthetic(len as u64),
        len,
        0,
        Mix::UPDATE_HEAVY,
    );
    let mut records = Ahead::default();
    records.fill(&mut plan.stream(), len);
    let none = || -> Result<Measured> {
        Ok(Measured {
            latency: Latency::new()?,
            cpu: Duration::ZERO,
            per_second: Vec::new(),
            create_ms: Vec::new(),
            open_ms: Vec::new(),
        })
    };
    let mut measured = [none()?, none()?];
    for number in 0..ROUNDS {
        for (datasets, measured) in DATASETS.into_iter().zip(&mut measured) {
            let dir = job.scratch.join(format!("{number}-{datasets}"));
            measured.round(&dir, datasets, (&records, len), parameters.cache_bytes)?;
            std::fs::remove_dir_all(&dir)?;
        }
    }
    for (datasets, measured) in DATASETS.into_iter().zip(measured) {
        let mut row = row(job, &puts(datasets), &measured.latency, measured.cpu);
        for (name, figure) in [
            ("per_second", median(measured.per_second)),
            ("p9999_us", measured.latency.quantile_us(0.9999)),
            ("create_ms", median(measured.create_ms)),
            ("open_ms", median(measured.open_ms)),
        ] {
            row.figures.insert(name.to_string(), figure);
        }
        job.report(&row)?;
    }
    Ok(())
}

impl Measured {
    fn round(
        &mut self,
        dir: &Path,
        datasets: usize,
        (records, len): (&Ahead, usize),
        cache_bytes: usize,
    ) -> Result<()> {
        let options = || {
            Options::new()
                .memory_budget(cache_bytes * 2)
                .durability(Durability::Os)
        };
        let db = Database::create_or_open(dir, options())?;
        let start = Instant::now();
        let sets = (0..datasets)
            .map(|n| create(&db, n))
            .collect::<Result<Vec<Dataset>>>()?;
        self.create_ms.push(millis(start));
        let (start, cpu) = (Instant::now(), process_cpu());
        for (at, dataset) in (0..len).zip(sets.iter().cycle()) {
            let before = Instant::now();
            dataset.put_json(records.record(at).body)?;
            self.latency.add(before.elapsed());
        }
        self.per_second
            .push(len as f64 / start.elapsed().as_secs_f64());
        self.cpu += process_cpu() - cpu;
        db.flush()?;
        db.group().run_compactions()?;
        drop(sets);
        db.close()?;
        let start = Instant::now();
        let db = Database::open(dir, options())?;
        self.open_ms.push(millis(start));
        let mut found = 0;
        for name in db.dataset_names() {
            found += db.dataset::<esker::Key>(&name)?.query().count()?;
        }
        match found == len as u64 {
            true => Ok(()),
            false => Err(Failure::new(format!("{found} records of {len}"))),
        }
    }
}

fn create(db: &Database, number: usize) -> Result<Dataset> {
    let def = DatasetDef::new("id", KeyType::Int)
        .index(
            "user_id",
            esker::Index::new(IndexKind::Composite).of_type(Type::Int),
        )
        .index(
            "created_at",
            esker::Index::new(IndexKind::Composite).of_type(Type::Int),
        );
    Ok(db.create_dataset::<esker::Key>(&format!("d{number}"), def)?)
}

fn millis(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}

//! What the generator must know of the records it makes: how often each user writes, how many
//! records come in a second, how long they are. Made up, or learned from a seed set of real records
//! (LevelDB++, section 5.1).

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::sample::Sampler;
use crate::failure::{Failure, Result};

const ZIPF_EXPONENT: f64 = 0.95;
const RECORDS_PER_USER: u64 = 30;
const RECORDS_PER_SECOND: f64 = 35.0;
/// Bytes of a record; uniform between these, 540 on average.
const LENGTHS: std::ops::RangeInclusive<u32> = 420..=660;

/// Real records to learn from.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
pub struct SeedSet {
    /// Records as JSON lines (may be .zst); the workload follows their distributions
    #[arg(long = "seed-set", required = false, value_name = "FILE")]
    pub file: PathBuf,

    /// The field of a seed record that is the user
    #[arg(long = "seed-user", default_value = "user_id", value_name = "FIELD")]
    pub user: String,

    /// The field of a seed record that is the time, in whole seconds
    #[arg(long = "seed-time", default_value = "created_at", value_name = "FIELD")]
    pub time: String,
}

/// The distributions that a generator follows.
#[derive(Debug, Clone)]
pub struct Profile {
    /// Users by rank.
    pub users: Sampler,
    /// Records per second on average.
    pub per_second: f64,
    /// Lengths of records in bytes, each as likely as the others.
    pub lengths: Vec<u32>,
}

impl Profile {
    /// Learned from the seed set, if there is one.
    pub fn of(seed_set: Option<&SeedSet>, records: u64) -> Result<Profile> {
        let Some(set) = seed_set else {
            return Ok(Profile::synthetic(records));
        };
        let learn = || -> Result<Profile> {
            let file = File::open(&set.file)?;
            if set.file.extension().is_some_and(|end| end == "zst") {
                let lines = BufReader::new(zstd::Decoder::new(file)?);
                return Profile::learn(lines, &set.user, &set.time);
            }
            Profile::learn(BufReader::new(file), &set.user, &set.time)
        };
        learn().map_err(|failure| failure.context(set.file.display()))
    }

    /// For `records` records: about 30 a user by Zipf's law (0.95), 35 a second, 540 bytes.
    pub fn synthetic(records: u64) -> Profile {
        let users = (records / RECORDS_PER_USER).clamp(1, u64::from(u32::MAX)) as usize;
        Profile {
            users: Sampler::zipf(users, ZIPF_EXPONENT),
            per_second: RECORDS_PER_SECOND,
            lengths: LENGTHS.collect(),
        }
    }

    /// Learned from JSON lines: `user` and `time` (whole seconds) name fields at the top.
    pub fn learn(lines: impl BufRead, user: &str, time: &str) -> Result<Profile> {
        let mut counts: HashMap<String, u64> = HashMap::new();
        let mut lengths = Vec::new();
        let (mut first, mut last) = (u64::MAX, 0);
        for (at, line) in lines.lines().enumerate() {
            let line = line?;
            let record: Value = serde_json::from_str(&line)
                .map_err(|e| Failure::new(format!("line {}: {e}", at + 1)))?;
            if let Some(user) = record.get(user) {
                *counts.entry(user.to_string()).or_default() += 1;
            }
            if let Some(second) = record.get(time).and_then(Value::as_u64) {
                (first, last) = (first.min(second), last.max(second));
            }
            lengths.push(line.len() as u32);
        }
        if counts.is_empty() || first > last {
            return Err(Failure::new(format!(
                "the seed set has no records with `{user}` and `{time}`"
            )));
        }
        let mut weights: Vec<f64> = counts.into_values().map(|count| count as f64).collect();
        weights.sort_by(|a, b| b.total_cmp(a));
        Ok(Profile {
            users: Sampler::new(&weights),
            per_second: lengths.len() as f64 / (last - first + 1) as f64,
            lengths,
        })
    }
}

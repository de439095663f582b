//! The suites: which experiments there are, on which subjects, and what is claimed of the figures.

use std::path::PathBuf;

use crate::workload::profile::SeedSet;

pub mod bars;
pub mod cluster;
pub mod deli;
pub mod leveldbpp;
pub mod luo_carey;
pub mod many;
pub mod peers;
pub mod pubsub;
pub mod questions;
pub mod session;
pub mod spatial;
pub mod synced;
pub mod table;
pub mod threads;
pub mod upkeep;
pub mod volume;

/// How a suite is run.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Size of everything: at 1, a million records
    #[arg(long, default_value_t = 1.0, value_name = "N")]
    pub scale: f64,

    /// Only these subjects, operations or experiments, separated by commas; a part of a name is enough
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    pub only: Vec<String>,

    /// Folder for the results, and for the data while it runs
    #[arg(long, default_value = "out", value_name = "DIR")]
    pub out: PathBuf,

    /// How often everything is measured, subjects taking turns; figures are medians
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub repeat: u32,

    /// Seed of the records and of the questions
    #[arg(long, default_value_t = 7, value_name = "N")]
    pub seed: u64,

    #[command(flatten)]
    pub seed_set: Option<SeedSet>,

    /// Only the experiments with more data than memory
    #[arg(long)]
    pub past_memory: bool,
}

/// What the page shows of the experiments, where a suite says so.
pub fn sheets() -> Vec<crate::report::sheet::Sheet> {
    let mut sheets = leveldbpp::sheets::all();
    sheets.extend(luo_carey::sheets::all());
    sheets.extend(deli::sheets::all());
    sheets.extend(spatial::sheets::all());
    sheets.extend(pubsub::sheets::all());
    sheets.extend(questions::sheets::all());
    sheets.extend(volume::sheets::all());
    sheets.extend(cluster::sheets::all());
    sheets
}

//! Subjects that take turns: all in one process, each a slice of the same operations after the other, so that whatever the
//! machine is like at a moment, it is so for all. A turn ends when nothing is left to do in the background.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::Value as Json;

use super::Task;
use super::brokers::{Esker, Naive, Read, Setup, Subject, Told, Who};
use super::load::{Operation, Operations};
use crate::failure::{Failure, Result};
use crate::measure::{Row, median};
use crate::meter::{self, Latency};
use crate::run::Job;

/// Slices of a run.
pub const SLICES: usize = 15;
/// The first ones, in which lists grow: until what is published first has expired. They are drawn, but not counted.
pub const GROWING: usize = 5;
/// Operations between two looks at how many sorted runs there are, and at the log.
const SAMPLED: usize = 64;
/// Bytes of a block.
const BLOCK: f64 = 4096.0;
/// Kinds of operations: subscriptions, and publications.
const KINDS: [(&str, bool); 2] = [("subscribe", true), ("publish", false)];
/// Levels of cells, or radii.
const CLASSES: usize = 6;

/// What operations of a kind took.
#[derive(Clone)]
struct Cost {
    latency: Latency,
    /// What they took beside: repetitions.
    beside: Duration,
    read: Read,
    /// Bytes that some operations added to the log, and how many these were.
    logged: (u64, u64),
    /// By level, or radius: operations, and their time.
    classes: [(u64, Duration); CLASSES],
}

impl Cost {
    fn new() -> Result<Cost> {
        Ok(Cost {
            latency: Latency::new()?,
            beside: Duration::ZERO,
            read: Read::default(),
            logged: (0, 0),
            classes: Default::default(),
        })
    }

    fn wall(&self) -> Duration {
        self.latency.wall() + self.beside
    }

    fn absorb(&mut self, other: &Cost) -> Result<()> {
        self.latency.absorb(&other.latency)?;
        self.beside += other.beside;
        self.read.walks += other.read.walks;
        self.read.blocks += other.read.blocks;
        self.read.from_files += other.read.from_files;
        self.logged.0 += other.logged.0;
        self.logged.1 += other.logged.1;
        for (class, more) in self.classes.iter_mut().zip(&other.classes) {
            class.0 += more.0;
            class.1 += more.1;
        }
        Ok(())
    }
}

/// A turn, or several together.
#[derive(Clone)]
struct Turn {
    subscribe: Cost,
    publish: Cost,
    settling: Duration,
    cpu: Duration,
    told: Told,
    /// Sorted runs of publications and subscriptions, by samples.
    runs: (f64, f64),
    samples: usize,
}

impl Turn {
    fn new() -> Result<Turn> {
        Ok(Turn {
            subscribe: Cost::new()?,
            publish: Cost::new()?,
            settling: Duration::ZERO,
            cpu: Duration::ZERO,
            told: Told::default(),
            runs: (0.0, 0.0),
            samples: 0,
        })
    }

    fn ops(&self) -> u64 {
        self.subscribe.latency.ops() + self.publish.latency.ops()
    }

    fn wall(&self) -> Duration {
        self.subscribe.wall() + self.publish.wall() + self.settling
    }

    fn kind(&self, is_subscription: bool) -> &Cost {
        match is_subscription {
            true => &self.subscribe,
            false => &self.publish,
        }
    }

    fn all(turns: &[Turn]) -> Result<Turn> {
        let mut all = Turn::new()?;
        for turn in turns {
            all.subscribe.absorb(&turn.subscribe)?;
            all.publish.absorb(&turn.publish)?;
            all.settling += turn.settling;
            all.cpu += turn.cpu;
            all.told.join(&turn.told);
            all.runs.0 += turn.runs.0;
            all.runs.1 += turn.runs.1;
            all.samples += turn.samples;
        }
        Ok(all)
    }
}

/// A subject, and what it took.
struct Player {
    who: Who,
    subject: Box<dyn Subject>,
    turns: Vec<Turn>,
    told: Told,
}

impl Player {
    fn create(job: &Job, task: &Task, who: Who, at: usize) -> Result<Player> {
        let setup = Setup {
            memory: task.memory,
            is_direct: task.is_direct(),
            joins: task.joins,
            load: task.load(),
        };
        let subject: Box<dyn Subject> = match who {
            Who::Memory => Box::new(Naive::new(setup.load.reach)),
            who => {
                let dir = job.scratch.join(at.to_string());
                std::fs::create_dir(&dir)?;
                Box::new(Esker::create(&dir, who, setup)?)
            }
        };
        Ok(Player {
            who,
            subject,
            turns: Vec::new(),
            told: Told::default(),
        })
    }

    fn turn(&mut self, operations: &[Operation]) -> Result<()> {
        let mut turn = Turn::new()?;
        let (cpu, mut harness) = (meter::process_cpu(), Duration::ZERO);
        for (at, operation) in operations.iter().enumerate() {
            let is_sample = at % SAMPLED == 0;
            if is_sample {
                let start = meter::thread_cpu();
                let runs = self.subject.runs();
                turn.runs.0 += runs.0 as f64;
                turn.runs.1 += runs.1 as f64;
                turn.samples += 1;
                harness += meter::thread_cpu() - start;
            }
            let (before, start) = (self.subject.read(), Instant::now());
            // Publications of the moment of a repetition are there before it.
            if self.subject.advance(operation.time - 1, &mut turn.told)? {
                turn.subscribe.beside += start.elapsed();
                note(&mut turn.subscribe, before, self.subject.read());
            }
            let logged = is_sample.then(|| self.subject.logged());
            let before = self.subject.read();
            let start = Instant::now();
            self.subject.act(operation, &mut turn.told)?;
            let took = start.elapsed();
            let cost = match operation.is_subscription {
                true => &mut turn.subscribe,
                false => &mut turn.publish,
            };
            cost.latency.add(took);
            if let Some(before) = logged {
                cost.logged.0 += self.subject.logged().saturating_sub(before);
                cost.logged.1 += 1;
            }
            note(cost, before, self.subject.read());
            if let Some(class) = cost.classes.get_mut(operation.class) {
                class.0 += 1;
                class.1 += took;
            }
        }
        let start = Instant::now();
        self.subject.settle()?;
        turn.settling = start.elapsed();
        turn.cpu = meter::process_cpu().saturating_sub(cpu + harness);
        self.told.join(&turn.told);
        self.turns.push(turn);
        Ok(())
    }

    fn steady(&self) -> &[Turn] {
        self.turns.get(GROWING..).unwrap_or_default()
    }
}

fn note(cost: &mut Cost, before: Read, after: Read) {
    cost.read.walks += after.walks.saturating_sub(before.walks);
    cost.read.blocks += after.blocks.saturating_sub(before.blocks);
    cost.read.from_files += after.from_files.saturating_sub(before.from_files);
}

/// Has the subjects of a task take turns, compares what they told, and reports.
pub fn run(job: &Job, task: &Task) -> Result<()> {
    let players = task.who.iter().enumerate();
    let mut players = players
        .map(|(at, who)| Player::create(job, task, *who, at))
        .collect::<Result<Vec<_>>>()?;
    let mut operations = Operations::new(task.load(), job.seed);
    let mut last = 0;
    for slice in 0..SLICES {
        let operations = operations.take(task.ops / SLICES);
        last = operations.last().map_or(last, |operation| operation.time);
        let count = players.len();
        for turn in 0..count {
            if let Some(player) = players.get_mut((slice + turn) % count) {
                player.turn(&operations)?;
            }
        }
    }
    for player in &mut players {
        // What is repeated has yet to be asked a last time.
        let end = last + task.load().reach + 1;
        player.subject.advance(end, &mut player.told)?;
    }
    compare(job, &players)?;
    report(job, task, &players)
}

/// Fails unless all told the same.
fn compare(job: &Job, players: &[Player]) -> Result<()> {
    let Some(first) = players.first() else {
        return Ok(());
    };
    for player in players {
        if !player.told.is_same(&first.told) {
            return Err(Failure::new(format!(
                "{}: {} told {} times, {} {} times, or others",
                job.experiment,
                player.who.name(),
                player.told.count,
                first.who.name(),
                first.told.count,
            )));
        }
    }
    Ok(())
}

/// A row of some operations that took so long in all.
fn row(job: &Job, task: &Task, who: &str, operation: &str, ops: u64, seconds: f64) -> Row {
    let mean = seconds * 1e6 / ops.max(1) as f64;
    Row {
        suite: job.suite.clone(),
        experiment: task.experiment.clone(),
        subject: who.to_string(),
        operation: operation.to_string(),
        parameters: BTreeMap::from([
            ("workload".to_string(), Json::from(task.workload())),
            ("cache".to_string(), task.cache().into()),
        ]),
        repeat: job.repeat,
        ops,
        seconds,
        cpu_us: 0.0,
        p50_us: 0.0,
        p99_us: 0.0,
        p999_us: 0.0,
        max_us: 0.0,
        figures: BTreeMap::from([("mean_us".to_string(), mean)]),
    }
}

fn report(job: &Job, task: &Task, players: &[Player]) -> Result<()> {
    for player in players {
        let name = player.who.name();
        for (at, turn) in player.turns.iter().enumerate() {
            over_time(job, task, name, at, turn)?;
        }
        let all = Turn::all(player.steady())?;
        let ops = all.ops().max(1) as f64;
        let wall = all.wall().as_secs_f64();
        let mut whole = row(job, task, name, "operation", all.ops(), wall);
        whole.cpu_us = all.cpu.as_secs_f64() * 1e6 / ops;
        percentiles(&mut whole, &[&all.subscribe, &all.publish])?;
        let samples = all.samples.max(1) as f64;
        let blocks = all.subscribe.read.blocks + all.publish.read.blocks;
        let walks = all.subscribe.read.walks + all.publish.read.walks;
        let files = all.subscribe.read.from_files + all.publish.read.from_files;
        whole.figures.extend(
            [
                ("walks", walks as f64 / ops),
                ("blocks", blocks as f64 / ops),
                ("blocks_read_per_op", files as f64 / ops),
                ("told", all.told.count as f64 / ops),
                ("settle_seconds", all.settling.as_secs_f64()),
                ("publication_runs", all.runs.0 / samples),
                ("subscription_runs", all.runs.1 / samples),
            ]
            .map(|(name, value)| (name.to_string(), value)),
        );
        if let Who::Repeated(_) = player.who {
            let late = all.told.late as f64 / all.told.count.max(1) as f64;
            whole.figures.insert("late_ms".to_string(), late);
        }
        paired(&mut whole, players, player);
        job.report(&whole)?;
        for (operation, is_subscription) in KINDS {
            let cost = all.kind(is_subscription);
            let ops = cost.latency.ops();
            let seconds = cost.wall().as_secs_f64();
            let mut part = row(job, task, name, operation, ops, seconds);
            percentiles(&mut part, &[cost])?;
            let of = |count: u64| count as f64 / ops.max(1) as f64;
            let figures = &mut part.figures;
            figures.insert("walks".to_string(), of(cost.read.walks));
            figures.insert("blocks".to_string(), of(cost.read.blocks));
            figures.insert("blocks_read_per_op".to_string(), of(cost.read.from_files));
            job.report(&part)?;
            by_class(job, task, name, operation, cost)?;
            model(job, task, player.who, (operation, is_subscription), &all)?;
        }
    }
    Ok(())
}

fn percentiles(row: &mut Row, costs: &[&Cost]) -> Result<()> {
    let mut latency = Latency::new()?;
    for cost in costs {
        latency.absorb(&cost.latency)?;
    }
    row.p50_us = latency.quantile_us(0.5);
    row.p99_us = latency.quantile_us(0.99);
    row.p999_us = latency.quantile_us(0.999);
    row.max_us = latency.quantile_us(1.0);
    Ok(())
}

/// How many times as long as the first subject of Esker's it took, of the slices in the middle, and of the least and the
/// greatest but one in ten: slice by slice, so that noise of the machine meets both.
fn paired(row: &mut Row, players: &[Player], player: &Player) {
    let Some(dual) = players.iter().find(|other| other.who == Who::Dual) else {
        return;
    };
    for (name, cost) in [
        ("times_dual", (|turn| turn.wall()) as fn(&Turn) -> Duration),
        ("cpu_times_dual", |turn| turn.cpu),
    ] {
        let pairs = player.steady().iter().zip(dual.steady());
        let ratio = |(mine, dual): (&Turn, &Turn)| {
            cost(mine).as_secs_f64() / cost(dual).as_secs_f64().max(1e-9)
        };
        let mut ratios: Vec<f64> = pairs.map(ratio).collect();
        ratios.sort_by(f64::total_cmp);
        let at = |share: usize| ratios.get(ratios.len() * share / 10).copied();
        let figures = [
            (name.to_string(), Some(median(ratios.clone()))),
            (format!("{name}_low"), at(1)),
            (format!("{name}_high"), at(9)),
        ];
        let known = figures
            .into_iter()
            .filter_map(|(name, of)| Some((name, of?)));
        row.figures.extend(known);
    }
}

/// Figures 10 to 15 over time: the mean of each slice.
fn over_time(job: &Job, task: &Task, name: &str, at: usize, turn: &Turn) -> Result<()> {
    let so_far = Json::from((at + 1) * (task.ops / SLICES));
    let whole = (turn.ops(), turn.wall(), "operation");
    let parts = KINDS.map(|(operation, is_subscription)| {
        let cost = turn.kind(is_subscription);
        (cost.latency.ops(), cost.wall(), operation)
    });
    for (ops, wall, operation) in [whole].into_iter().chain(parts) {
        let mut row = row(job, task, name, operation, ops, wall.as_secs_f64());
        row.experiment = format!("{} over time", task.experiment);
        row.parameters
            .insert("operations".to_string(), so_far.clone());
        job.report(&row)?;
    }
    Ok(())
}

/// Figures 16 and 17: by level, or radius.
fn by_class(job: &Job, task: &Task, name: &str, operation: &str, cost: &Cost) -> Result<()> {
    let Some((parameter, values)) = task.classes() else {
        return Ok(());
    };
    for ((ops, wall), value) in cost.classes.iter().zip(values) {
        if *ops > 0 {
            let mut row = row(job, task, name, operation, *ops, wall.as_secs_f64());
            row.experiment = format!("{} by {parameter}", task.experiment);
            row.parameters.insert(parameter.to_string(), value);
            job.report(&row)?;
        }
    }
    Ok(())
}

/// Table 3: the formula, with the runs that this store had, beside the blocks that were needed: those that were read, before
/// the cache, and those that the log was extended by, which the formula counts as one. Merges are left out, as in the paper.
fn model(
    job: &Job,
    task: &Task,
    who: Who,
    (operation, is_subscription): (&str, bool),
    all: &Turn,
) -> Result<()> {
    let samples = all.samples.max(1) as f64;
    let (publications, subscriptions) = (all.runs.0 / samples, all.runs.1 / samples);
    let one = match is_subscription {
        true => publications,
        false => subscriptions,
    };
    let formula = match (who, task.joins) {
        (Who::Dual, _) | (Who::Two, false) => one + 1.0,
        (Who::Two, true) => publications + subscriptions + 1.0,
        // Once for the past, then again and again.
        (Who::Repeated(every), _) if is_subscription => {
            (1.0 + task.load().reach as f64 / every as f64) * one
        }
        (Who::Repeated(_), _) => 1.0,
        (Who::Fixed | Who::Memory, _) => return Ok(()),
    };
    if task.classes().is_some() {
        return Ok(());
    }
    let cost = all.kind(is_subscription);
    let ops = cost.latency.ops();
    let written = cost.logged.0 as f64 / BLOCK / cost.logged.1.max(1) as f64;
    let measured = cost.read.blocks as f64 / ops.max(1) as f64 + written;
    for (name, blocks) in [
        (who.name().to_string(), measured),
        (format!("{}{FORMULA}", who.name()), formula),
    ] {
        let mut row = row(job, task, &name, operation, ops, 0.0);
        row.experiment = TABLE_3.to_string();
        let joins = if task.joins { "self-join" } else { "simple" };
        row.parameters.insert("kind".to_string(), joins.into());
        row.figures.insert("blocks".to_string(), blocks);
        row.figures.remove("mean_us");
        job.report(&row)?;
    }
    Ok(())
}

/// The experiment of what the cost model says.
pub const TABLE_3: &str = "table 3";
/// What the subject of a row is called that a formula made.
pub const FORMULA: &str = ", by the formula";

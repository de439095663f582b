//! `demo`: loads a stream of generated records and queries it in several ways.

use std::path::Path as FilePath;
use std::time::{Duration, Instant};

use esker::{Dataset, DatasetDef, Durability, Explain, Expr, Index, KeyType, Op, Operand, Query};
use serde_json::Value;

use super::demo_folder::DemoFolder;
use super::picture;
use crate::args::{DemoArgs, DemoCommand};
use crate::failure::{Failure, Outcome};
use crate::output::{Output, bytes, counted, shorten, thousands};
use crate::progress::Progress;
use crate::store::{create_or_open_folder, options};
use crate::tweets::{EPOCH, Tweets};
use crate::words::definition;

const SEED: u64 = 2018;
const DATASET: &str = "tweets";
/// The number of characters printed of a record.
const SHOWN: usize = 150;

/// `esker demo [--records N] [--dir DIR]`
pub(crate) fn demo(args: &DemoArgs, memory: usize) -> Result<Outcome, Failure> {
    match &args.other {
        Some(DemoCommand::Pubsub(args)) => {
            let folder = DemoFolder::new(args.dir.as_deref())?;
            let _watch = folder.watch()?;
            return super::city::city(args, &folder.path, memory);
        }
        #[cfg(feature = "server")]
        Some(DemoCommand::Serve(args)) => {
            let folder = DemoFolder::new(args.dir.as_deref())?;
            return super::demo_serve::serve(args, &folder);
        }
        #[cfg(feature = "volume")]
        Some(DemoCommand::Volume(args)) => {
            let folder = DemoFolder::new(args.dir.as_deref())?;
            return super::volume::demo(args, &folder.path, folder.temporary);
        }
        None => {}
    }
    if args.records == 0 {
        return Err(Failure::Usage("--records must be at least 1".to_string()));
    }
    let folder = DemoFolder::new(args.dir.as_deref())?;
    let _watch = folder.watch()?;
    let mut output = Output::new();
    output.line(format_args!("store: {}", folder.path.display()))?;
    output.flush()?;

    let db = create_or_open_folder(&folder.path, options(memory))?;
    let def = DatasetDef::new("id", KeyType::String)
        .index("created_at", Index::embedded().int())
        .index("user_id", Index::lazy().int());
    output.line(format_args!("dataset `{DATASET}`: {}", definition(&def)))?;
    output.flush()?;
    let dataset = db.create_dataset(DATASET, def)?;

    let last_second = fill(&dataset, args.records, &mut output)?;
    let mut tour = Tour {
        dataset: &dataset,
        folder: &folder.path,
        output: &mut output,
    };
    tour.queries(last_second)?;
    tour.writes()?;

    output.line("\nThe sorted runs now, newest first:\n")?;
    output.line(picture::layers(&dataset.stats()).trim_end())?;
    db.close()?;
    if folder.temporary {
        output.line("\nThe store was temporary; `esker demo --dir DIR` keeps it.")?;
    } else {
        let dir = folder.path.display();
        output.line(format_args!(
            "\nThe store stays in {dir}; try: esker lookup {dir} {DATASET} user_id {} --limit 3",
            Tweets::user(0)
        ))?;
    }
    output.finish()?;
    Ok(Outcome::Done)
}

/// Loads the stream and returns the second of the last record.
fn fill(dataset: &Dataset, records: u64, output: &mut Output) -> Result<u64, Failure> {
    let every = Duration::from_millis(1000);
    output.line(format_args!(
        "loading {} tweet-like records, synced every {} ms ...",
        thousands(records),
        every.as_millis()
    ))?;
    output.flush()?;
    let progress = Progress::records(records);
    let mut tweets = Tweets::new(SEED, records);
    let mut record = Vec::new();
    let mut batch = dataset.batch();
    let (mut total, mut second) = (0u64, EPOCH);
    for done in 1..=records {
        second = tweets.next(&mut record);
        total += record.len() as u64;
        batch.put_json(&record)?;
        if batch.len() >= esker_import::BATCH_RECORDS || batch.bytes() >= esker_import::BATCH_BYTES
        {
            batch.durability(Durability::Periodic(every)).commit()?;
            progress.update(done, done);
        }
    }
    if !batch.is_empty() {
        batch.durability(Durability::Periodic(every)).commit()?;
    }
    dataset.sync()?;
    progress.clear();
    let (elapsed, seconds) = progress.elapsed();
    output.line(format_args!(
        "loaded {} records, {}, in {elapsed}: {} records/s",
        thousands(records),
        bytes(total),
        thousands((records as f64 / seconds.max(1e-9)) as u64)
    ))?;
    Ok(second)
}

/// The operations of the demo.
struct Tour<'a> {
    dataset: &'a Dataset,
    folder: &'a FilePath,
    output: &'a mut Output,
}

impl Tour<'_> {
    fn queries(&mut self, last_second: u64) -> Result<(), Failure> {
        let middle = EPOCH + (last_second - EPOCH) / 2;
        let user = Tweets::user(0).to_string();
        let rare = Tweets::user(20).to_string();
        let (lo, hi) = (middle.to_string(), (middle + 59).to_string());

        self.query(
            "the 10 newest records of the most active user (lazy index: one list, newest first)",
            &format!("lookup DIR {DATASET} user_id {user} --limit 10"),
            &[("user_id", Op::Eq, &user)],
            Some(10),
        )?;
        self.query(
            "all records of one minute (embedded index: skips blocks by their least and greatest value)",
            &format!("range DIR {DATASET} created_at {lo} {hi}"),
            &[("created_at", Op::Ge, &lo), ("created_at", Op::Le, &hi)],
            None,
        )?;
        self.query(
            "the newest 5 records of a user since the middle of the stream (both fields)",
            &format!("find DIR {DATASET} user_id={rare} 'created_at>={lo}' --limit 5"),
            &[("user_id", Op::Eq, &rare), ("created_at", Op::Ge, &lo)],
            Some(5),
        )?;
        self.query(
            "3 records by a field without an index (a scan)",
            &format!("lookup DIR {DATASET} lang ja --limit 3"),
            &[("lang", Op::Eq, "ja")],
            Some(3),
        )?;

        self.title(
            "how many records are in that minute",
            &format!("count DIR {DATASET} created_at {lo} {hi}"),
        )?;
        let start = Instant::now();
        let query = self.build(&[("created_at", Op::Ge, &lo), ("created_at", Op::Le, &hi)])?;
        let (count, explain) = query.count_explained()?;
        self.result(&thousands(count), start.elapsed(), Some(&explain))
    }

    fn writes(&mut self) -> Result<(), Failure> {
        self.title("the first 3 keys", &format!("scan DIR {DATASET} --limit 3"))?;
        let start = Instant::now();
        let mut scan = self.dataset.scan(..);
        let records = scan.by_ref().take(3).collect::<Result<Vec<_>, _>>()?;
        let elapsed = start.elapsed();
        let Some(first) = records.first().map(|record| record.json().to_vec()) else {
            return Ok(());
        };
        for record in &records {
            self.body(record.json())?;
        }
        self.result(
            &counted(records.len() as u64, "record"),
            elapsed,
            Some(&scan.explain()),
        )?;

        let old: Value = serde_json::from_slice(&first).unwrap_or_default();
        let id = old
            .get("id")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_string();
        let key = self.dataset.parse_key(&id)?;
        self.title("one record by its key", &format!("get DIR {DATASET} {id}"))?;
        let start = Instant::now();
        let found = self.dataset.get(&key)?;
        let elapsed = start.elapsed();
        if let Some(record) = &found {
            self.body(record.json())?;
        }
        self.result(
            if found.is_some() {
                "1 record"
            } else {
                "nothing"
            },
            elapsed,
            None,
        )?;

        let new_user = "7";
        self.title(
            "the same record with another user: its indexes change in the same atomic batch",
            &format!("put DIR {DATASET}"),
        )?;
        let mut changed = old;
        if let Some(user) = changed.get_mut("user_id") {
            *user = Value::from(7);
        }
        let start = Instant::now();
        let mut batch = self.dataset.batch();
        batch.put_json(changed.to_string().as_bytes())?;
        batch.durability(Durability::Sync).commit()?;
        self.result("put and synced", start.elapsed(), None)?;
        self.query(
            "the records of the new user: the changed record is the newest",
            &format!("lookup DIR {DATASET} user_id {new_user}"),
            &[("user_id", Op::Eq, new_user)],
            None,
        )?;

        self.title("delete it", &format!("delete DIR {DATASET} {id}"))?;
        let start = Instant::now();
        let existed = self.dataset.delete(&key)?;
        self.result(
            if existed.is_some() {
                "deleted"
            } else {
                "nothing"
            },
            start.elapsed(),
            None,
        )?;
        self.query(
            "the records of that user now",
            &format!("lookup DIR {DATASET} user_id {new_user}"),
            &[("user_id", Op::Eq, new_user)],
            None,
        )
    }

    fn query(
        &mut self,
        title: &str,
        command: &str,
        conditions: &[(&str, Op, &str)],
        limit: Option<usize>,
    ) -> Result<(), Failure> {
        self.title(title, command)?;
        let start = Instant::now();
        let mut answer = self.build(conditions)?.limit(limit).run()?;
        let mut shown: Vec<Vec<u8>> = Vec::new();
        let mut count = 0;
        for record in answer.by_ref() {
            let record = record?;
            if count < 3 {
                shown.push(record.json().to_vec());
            }
            count += 1;
        }
        let elapsed = start.elapsed();
        for note in answer.explain().notes {
            self.output.line(format_args!("  note: {note}"))?;
        }
        for body in &shown {
            self.body(body)?;
        }
        if count > shown.len() as u64 {
            self.output.line("  ...")?;
        }
        let summary = match count {
            0 => "nothing".to_string(),
            1 => "1 record".to_string(),
            _ => format!("{} records", thousands(count)),
        };
        self.result(&summary, elapsed, Some(&answer.explain()))
    }

    fn build(&self, conditions: &[(&str, Op, &str)]) -> Result<Query, Failure> {
        let mut query = self.dataset.query();
        for (path, op, value) in conditions {
            query = query.filter(Expr::compare(path.parse()?, *op, Operand::text(*value)));
        }
        Ok(query)
    }

    fn title(&mut self, title: &str, command: &str) -> Result<(), Failure> {
        let command = command.replacen("DIR", &self.folder.display().to_string(), 1);
        self.output
            .line(format_args!("\n# {title}\n$ esker {command}"))
    }

    fn body(&mut self, body: &[u8]) -> Result<(), Failure> {
        self.output.line(format_args!(
            "  {}",
            shorten(&String::from_utf8_lossy(body), SHOWN)
        ))
    }

    fn result(
        &mut self,
        summary: &str,
        elapsed: Duration,
        explain: Option<&Explain>,
    ) -> Result<(), Failure> {
        let micros = elapsed.as_secs_f64() * 1e6;
        let time = match micros {
            0.0..1000.0 => format!("{micros:.0} us"),
            1000.0..1e6 => format!("{:.2} ms", micros / 1e3),
            _ => format!("{:.2} s", micros / 1e6),
        };
        self.output.line(format_args!("  = {summary} in {time}"))?;
        let plan = explain.map(Explain::to_string).unwrap_or_default();
        // Notes are printed before the records.
        for line in plan.lines().filter(|line| !line.starts_with("note: ")) {
            self.output.line(format_args!("  {line}"))?;
        }
        Ok(())
    }
}

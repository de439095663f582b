//! A process is killed with SIGKILL while one thread writes and another changes the kind of an
//! index, many times on the same folder. No acknowledged write is lost, every index agrees with the
//! data as soon as the store is open again, and the change resumes. `ESKER_KILLS=1000 cargo test -p
//! esker --test all change_sigkill::` kills more often.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::ops::ControlFlow;
use std::path::Path as FsPath;
use std::process::{Command, Stdio};

use crate::common::{Doing, TextQuery, check, keys, number, path, scan, seeds};
use esker::{Database, Dataset, DatasetDef, Durability, IndexKind, KeyType, Options, Type};
use esker_sim::by_tier;

/// For the child: the folder of the store, and the first batch to write.
const DIR: &str = "ESKER_CHANGE_DIR";
const FIRST: &str = "ESKER_CHANGE_FIRST";

const KEYS: u64 = 1500;
const VALUES: u64 = 40;

/// The record whose body has the number of the last batch.
const LAST: u64 = KEYS;

/// A small memory budget, so that an index is built in many pieces.
fn options() -> Options {
    Options::new()
        .memory_budget(128 << 10)
        .table_size(16 << 10)
        .durability(Durability::Os)
}

/// The changes of a batch, the same in parent and child: keys with their new values, or deleted.
fn changes(batch: u64) -> Vec<(u64, Option<u64>)> {
    let mut rng = fastrand::Rng::with_seed(batch);
    let most = if batch < 20 { 200 } else { 12 };
    (0..rng.usize(1..most))
        .map(|_| {
            let key = rng.u64(0..KEYS);
            let value = (rng.usize(0..5) > 0).then(|| rng.u64(0..VALUES));
            (key, value)
        })
        .collect()
}

fn body(key: u64, value: u64, batch: u64) -> String {
    let pad = "pq".repeat((key % 50) as usize);
    format!("{{\"id\":{key},\"v\":{value},\"batch\":{batch},\"pad\":\"{pad}\"}}")
}

/// Prints a line in one call, so that a kill cannot cut it.
fn say(line: String) {
    let mut out = std::io::stdout();
    out.write_all(format!("{line}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

fn write_batch(dataset: &Dataset, number: u64) {
    let mut batch = dataset.batch();
    for (key, value) in changes(number) {
        match value {
            Some(value) => batch.put_json(body(key, value, number).as_bytes()).unwrap(),
            None => batch
                .delete(dataset.parse_key(&key.to_string()).unwrap())
                .unwrap(),
        }
    }
    batch
        .put_json(body(LAST, VALUES, number).as_bytes())
        .unwrap();
    batch.durability(Durability::Os).commit().unwrap();
}

/// The child: writes batches, and changes the kind of the index all the time, until it is killed.
/// Without a parent it does nothing.
#[test]
#[ignore = "the child of the other test"]
fn change_until_killed() {
    let (Ok(dir), Ok(first)) = (std::env::var(DIR), std::env::var(FIRST)) else {
        return;
    };
    let first = first.parse::<u64>().unwrap();
    let db = Database::open(FsPath::new(&dir), options()).unwrap();
    let dataset = db.dataset::<esker::Key>("d").unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in first.. {
                write_batch(&dataset, number);
                say(format!("ack {number}"));
            }
        });
        let mut progress = |_| {
            say("step".to_string());
            ControlFlow::Continue(())
        };
        if let Some(done) = dataset
            .resume_index()
            .on_progress(&mut progress)
            .run()
            .unwrap()
        {
            say(format!("resumed {}", done.to));
        }
        for kind in IndexKind::ALL.into_iter().cycle() {
            if dataset.def().indexes[0].kind != kind {
                dataset
                    .switch_index(path("v"), kind)
                    .on_progress(&mut progress)
                    .run()
                    .unwrap();
                say(format!("done {kind}"));
            }
        }
    });
}

/// The output of a child.
#[derive(Default)]
struct Said {
    last: Option<u64>,
    resumed: usize,
    done: usize,
}

/// Runs the child and kills it after this many reported steps.
fn kill_after(dir: &FsPath, first: u64, steps: usize) -> Said {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "change_sigkill::change_until_killed",
            "--nocapture",
            "--ignored",
        ])
        .env(DIR, dir)
        .env(FIRST, first.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let mut said = Said::default();
    let mut seen = 0;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        if let Some((_, number)) = line.split_once("ack ") {
            said.last = number.parse().ok().or(said.last);
            continue;
        }
        if line.contains("resumed ") {
            said.resumed += 1;
        } else if line.contains("done ") {
            said.done += 1;
        } else if !line.contains("step") {
            continue;
        }
        seen += 1;
        // An acknowledgement is needed, so that the parent knows the last batch.
        if seen >= steps && said.last.is_some() {
            // Lines printed before the signal arrives are still read.
            let _ = child.kill();
        }
    }
    let status = child.wait().unwrap();
    assert!(
        status.code().is_none(),
        "the child ended by itself: {status}"
    );
    said
}

#[test]
fn a_killed_change_of_an_index_goes_on_and_is_exact_at_every_moment() {
    if std::env::var(DIR).is_ok() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    // Key -> (value, batch) after all batches before `next`.
    let mut model: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    let apply = |model: &mut BTreeMap<u64, (u64, u64)>, batch| {
        for (key, value) in changes(batch) {
            match value {
                Some(value) => model.insert(key, (value, batch)),
                None => model.remove(&key),
            };
        }
        model.insert(LAST, (VALUES, batch));
    };
    let mut next = 20;
    {
        let def = DatasetDef::new(path("id"), KeyType::Int);
        let def = def.index(
            path("v"),
            esker::Index::new(IndexKind::None).of_type(Type::Int),
        );
        let db = Database::create_or_open(dir, options()).unwrap();
        let dataset = db.create_dataset::<esker::Key>("d", def).unwrap();
        for batch in 0..next {
            write_batch(&dataset, batch);
            apply(&mut model, batch);
        }
        drop(dataset);
        db.close().unwrap();
    }
    let mut rng = fastrand::Rng::with_seed(seeds(1).start);
    let (mut unfinished, mut resumed, mut done) = (0, 0, 0);
    let kills = number("ESKER_KILLS", by_tier(6, 25));
    let mut kill = 0;
    // More kills where the machine has met only some situations so far.
    while kill < kills || (kill < 20 * kills && (unfinished == 0 || resumed == 0 || done == 0)) {
        let steps = rng.usize(1..400);
        let first = next;
        let _doing = Doing(format!("kill {kill}, after {steps} steps from {first}"));
        let said = kill_after(dir, first, steps);
        (resumed, done) = (resumed + said.resumed, done + said.done);
        let last = said.last.unwrap();
        let db = Database::open(dir, options()).unwrap();
        let dataset = db.dataset::<esker::Key>("d").unwrap();
        unfinished += usize::from(dataset.unfinished_index().is_some());
        let found = scan(&dataset.snapshot()).unwrap();
        // The batch after the last acknowledged one may also be there, but no later one.
        let reached = |upto: u64| found.last().unwrap().1 == body(LAST, VALUES, upto);
        let upto = if reached(last) { last } else { last + 1 };
        assert!(reached(upto), "{:?}, not batch {last}", found.last());
        for batch in first..=upto {
            apply(&mut model, batch);
        }
        next = upto + 1;
        let right: Vec<(String, String)> = model
            .iter()
            .map(|(key, (value, batch))| (key.to_string(), body(*key, *value, *batch)))
            .collect();
        assert!(found == right, "records differ after batch {upto}");
        check(&db);
        for value in (kill as u64 % 5..VALUES).step_by(5) {
            let right = model.iter().filter(|(_, (of, _))| *of == value);
            let mut right: Vec<String> = right.map(|(key, _)| key.to_string()).collect();
            right.sort();
            let query = dataset.query().equals(&path("v"), &value.to_string());
            let mut found = keys(query);
            found.sort();
            assert_eq!(found, right, "v = {value}");
        }
        drop(dataset);
        if kill % 10 == 0 {
            db.close().unwrap();
        }
        kill += 1;
    }
    assert!(unfinished > 0 && resumed > 0 && done > 0);
    // An unfinished change is completed.
    let db = Database::open(dir, options()).unwrap();
    let dataset = db.dataset::<esker::Key>("d").unwrap();
    dataset.resume_index().run().unwrap();
    assert_eq!(dataset.unfinished_index(), None);
    check(&db);
    println!(
        "{kill} kills, {unfinished} in a change, {resumed} resumed and {done} complete before the next"
    );
}

//! A process is killed with SIGKILL in the middle of loading, with flushes and compactions running,
//! many times on the same folder, under each maintenance strategy. No acknowledged write is lost,
//! batches are complete, every index agrees with the data, and the obsolete set has no current
//! record. `ESKER_KILLS=1000 cargo test -p esker --test all sigkill::` kills more often.

use crate::common;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path as FsPath;
use std::process::{Command, Stdio};

use crate::common::{
    Doing, INDEXED, PATHS, TextQuery, check, check_set, keys_in_every_way, number, path, scan,
    with_strategy,
};

use esker::schema::{Layout, Maintenance};
use esker::{
    AreaExpr, Database, DatasetDef, Durability, Index, IndexKind, KeyType, Options, Type, field,
};

/// For the child: the folder of the store, and the first batch to load.
const DIR: &str = "ESKER_SIGKILL_DIR";
const FIRST: &str = "ESKER_SIGKILL_FIRST";

const KEYS: u64 = 1000;
const VALUES: u64 = 50;
/// The record whose body has the number of the last batch.
const LAST: u64 = KEYS;

/// Memtables of 64 KiB and tables of 16 KiB, so that flushes and compactions run nearly all the
/// time.
fn options() -> Options {
    Options::new()
        .memory_budget(512 << 10)
        .table_size(16 << 10)
        .durability(Durability::Os)
        // Nearly all compactions run in pieces.
        .engine(|engine| engine.piece_bytes = Some(16 << 10))
}

/// Paths of points, with an index of each layout.
const PLACES: [&str; 4] = ["z", "mbr", "stacked", "boxes"];

/// The point for a value: a grid of degrees, with a row for every ten values.
fn place(value: u64) -> (f64, f64) {
    ((value % 10) as f64, (value / 10) as f64)
}

/// A write of a key: its new value, or `None` for a deletion.
type Change = (u64, Option<u64>);

/// The changes of a batch, the same in parent and child.
fn changes(batch: u64) -> Vec<Change> {
    let mut rng = fastrand::Rng::with_seed(batch);
    let count = rng.usize(1..40);
    (0..count)
        .map(|_| {
            let key = rng.u64(0..KEYS);
            let value = (rng.usize(0..5) > 0).then(|| rng.u64(0..VALUES));
            (key, value)
        })
        .collect()
}

fn body(key: u64, value: u64, batch: u64) -> String {
    let fields: String = PATHS
        .iter()
        .map(|at| format!("\"{at}\":{value},"))
        .collect();
    let (lon, lat) = place(value);
    let places: String = PLACES
        .iter()
        .map(|at| format!("\"{at}\":[{lon},{lat}],"))
        .collect();
    let pad = "pq".repeat((key % 100) as usize);
    format!("{{\"id\":{key},{fields}{places}\"batch\":{batch},\"pad\":\"{pad}\"}}")
}

/// The child: loads batches and acknowledges each, until it is killed. Without a parent it does
/// nothing.
#[test]
#[ignore = "the child of the other test"]
fn load_until_killed() {
    let (Ok(dir), Ok(first)) = (std::env::var(DIR), std::env::var(FIRST)) else {
        return;
    };
    let db = Database::open(FsPath::new(&dir), options()).unwrap();
    let dataset = db.dataset::<esker::Key>("d").unwrap();
    let mut out = std::io::stdout();
    for number in first.parse::<u64>().unwrap().. {
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
        let durability = if number % 32 == 0 {
            Durability::Sync
        } else {
            Durability::Os
        };
        batch.durability(durability).commit().unwrap();
        // In one call, so that a kill cannot leave half a line with a wrong number.
        out.write_all(format!("ack {number}\n").as_bytes()).unwrap();
        out.flush().unwrap();
    }
}

/// Runs the child and kills it after this many acknowledgements; returns the last one.
fn kill_after(dir: &FsPath, first: u64, acknowledgements: usize) -> Option<u64> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "sigkill::load_until_killed",
            "--nocapture",
            "--ignored",
        ])
        .env(DIR, dir)
        .env(FIRST, first.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut last = None;
    let mut seen = 0;
    for line in lines {
        let line = line.unwrap();
        let Some(number) = line
            .split_once("ack ")
            .and_then(|(_, number)| number.parse().ok())
        else {
            continue;
        };
        last = Some(number);
        seen += 1;
        if seen == acknowledgements {
            // Acknowledgements printed before the signal arrives are still read.
            child.kill().unwrap();
        }
    }
    let status = child.wait().unwrap();
    assert!(
        !status.success() && status.code().is_none(),
        "the child ended by itself: {status}"
    );
    last
}

#[test]
fn nothing_acknowledged_is_lost_when_the_process_is_killed() {
    if std::env::var(DIR).is_ok() {
        return;
    }
    let strategies = Maintenance::ALL.len();
    let kills = number("ESKER_KILLS", esker_sim::by_tier(15, 100)) / strategies;
    let mut rng = fastrand::Rng::with_seed(common::seeds(1).start);
    // Chooses the settings that do not alternate with the strategy.
    let turn = rng.usize(0..3);
    // Half of them store the records by location.
    let odd = rng.usize(0..2);
    for strategy in 0..strategies {
        let clustered = strategy % 2 == odd;
        kill_often(strategy + turn * strategies, clustered, kills, &mut rng);
    }
}

fn kill_often(number: usize, clustered: bool, kills: usize, rng: &mut fastrand::Rng) {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let def = with_strategy(DatasetDef::new(path("id"), KeyType::Int), number);
    let strategy = format!("clustered: {clustered}, {def:?}");
    {
        let def = PATHS.iter().zip(INDEXED).fold(def, |def, (at, kind)| {
            def.index(path(at), Index::new(kind).of_type(Type::Int))
        });
        let layouts = PLACES.iter().zip(Layout::ALL);
        let def = layouts.enumerate().fold(def, |def, (nth, (at, layout))| {
            let index = Index::new(IndexKind::Spatial(layout)).of_type(Type::Point);
            if clustered && nth == 0 {
                def.cluster(path(at))
            } else {
                def.index(path(at), index)
            }
        });
        let db = Database::create_or_open(dir, options()).unwrap();
        db.create_dataset::<esker::Key>("d", def).unwrap();
        db.close().unwrap();
    }
    // Key -> (value, batch) after all batches before `next`.
    let mut model: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    let mut next = 0;
    for kill in 0..kills {
        let acknowledgements = rng.usize(1..70);
        let first = next;
        let _doing = Doing(format!(
            "{strategy}: kill {kill}, after {acknowledgements} batches from {first}"
        ));
        let last = kill_after(dir, first, acknowledgements).unwrap();
        let db = Database::open(dir, options()).unwrap();
        let dataset = db.dataset::<esker::Key>("d").unwrap();
        let found = scan(&dataset.snapshot()).unwrap();
        // The batch after the last acknowledged one may also be there, but no later one.
        let reached = |upto: u64| found.last().unwrap().1 == body(LAST, VALUES, upto);
        let upto = if reached(last) { last } else { last + 1 };
        assert!(reached(upto), "{:?}, not batch {last}", found.last());
        for batch in first..=upto {
            for (key, value) in changes(batch) {
                match value {
                    Some(value) => model.insert(key, (value, batch)),
                    None => model.remove(&key),
                };
            }
        }
        next = upto + 1;
        let right: Vec<(String, String)> = model
            .iter()
            .map(|(key, (value, batch))| (key.to_string(), body(*key, *value, *batch)))
            .chain([(LAST.to_string(), body(LAST, VALUES, upto))])
            .collect();
        assert!(found == right, "records differ after batch {upto}");
        check(&db);
        check_set(&db);
        for value in (kill as u64 % 7..VALUES).step_by(7) {
            let mut right: Vec<String> = model
                .iter()
                .filter(|(_, (of, _))| *of == value)
                .map(|(key, _)| key.to_string())
                .collect();
            right.sort();
            for at in PATHS {
                let query = dataset.query().equals(&path(at), &value.to_string());
                let mut found = keys_in_every_way(&query);
                found.sort();
                assert_eq!(found, right, "{at} = {value}");
            }
        }
        // Records move with their values; this area contains a block of the grid.
        let (west, south) = (rng.u64(0..8) as f64, rng.u64(0..4) as f64);
        let inside = |value: u64| {
            let (lon, lat) = place(value);
            (west..=west + 2.0).contains(&lon) && (south..=south + 1.0).contains(&lat)
        };
        let mut right: Vec<String> = model
            .iter()
            .filter(|(_, (value, _))| inside(*value))
            .map(|(key, _)| key.to_string())
            .collect();
        right.extend(inside(VALUES).then(|| LAST.to_string()));
        right.sort();
        for at in PLACES {
            let area = AreaExpr::rect(west, south, west + 2.0, south + 1.0);
            let query = dataset.query().filter(field(at).within(area));
            let mut found = keys_in_every_way(&query);
            found.sort();
            assert_eq!(found, right, "{at} within {west}, {south}");
        }
        drop(dataset);
        if kill % 10 == 0 {
            db.close().unwrap();
        }
    }
    println!("{strategy}: {kills} kills, {next} batches");
}

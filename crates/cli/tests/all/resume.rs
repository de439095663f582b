//! A killed load resumes behind its last commit and loads every line once.
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use crate::common::{Run, command, esker, esker_fed};
use esker::{Database, Options};
use serde_json::Value;
use tempfile::TempDir;

/// The number of lines of a file. Every key occurs in three of them, and a few lines are bad.
const LINES: u64 = 60_000;
const KEYS: u64 = LINES / 3;

/// True for lines that are not records: one in 5,000.
fn is_bad(line: u64) -> bool {
    line % 5000 == 77
}

/// The files of a load: NDJSON, gzip, zstd and CSV, with different keys.
fn files(dir: &Path) -> Vec<PathBuf> {
    let text = |file: u64| -> Vec<u8> {
        let line = |at: u64| {
            if is_bad(at) {
                format!("{{\"id\": bad {at}\n")
            } else {
                let id = file * LINES + at % KEYS;
                format!("{{\"id\":{id},\"line\":{at},\"pad\":\"{:060}\"}}\n", at)
            }
        };
        (0..LINES).flat_map(|at| line(at).into_bytes()).collect()
    };
    let plain = dir.join("a.ndjson");
    fs::write(&plain, text(0)).unwrap();
    let gzip = dir.join("b.ndjson.gz");
    let file = fs::File::create(&gzip).unwrap();
    let mut encoder = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
    encoder.write_all(&text(1)).unwrap();
    encoder.finish().unwrap();
    let zst = dir.join("c.ndjson.zst");
    fs::write(&zst, zstd::stream::encode_all(&text(2)[..], 1).unwrap()).unwrap();
    let csv = dir.join("d.csv");
    let rows = (0..LINES).map(|at| {
        if is_bad(at) {
            format!("{}\n", 3 * LINES)
        } else {
            format!("{},{at},{at:060}\n", 3 * LINES + at % KEYS)
        }
    });
    let rows: String = std::iter::once("id,line,pad\n".to_string())
        .chain(rows)
        .collect();
    fs::write(&csv, rows).unwrap();
    vec![plain, gzip, zst, csv]
}

fn arguments(dir: &TempDir, files: &[PathBuf]) -> Vec<String> {
    let store = dir.path().join("db").display().to_string();
    let head = ["load", &store, "d"].map(str::to_string);
    let files = files.iter().map(|file| file.display().to_string());
    let rest = [
        "--key",
        "id:int",
        "--index",
        "line:lazy:int",
        "--versions",
        "9",
    ];
    let rest = rest
        .into_iter()
        .chain(["--durability", "os", "--progress", "json"]);
    head.into_iter()
        .chain(files)
        .chain(rest.map(str::to_string))
        .collect()
}

/// Loads, and kills the process once it has reported `more` loaded records; true if the load was
/// complete before.
fn load_and_kill(args: &[String], more: u64) -> bool {
    let mut child = command(args).spawn().unwrap();
    let stderr = BufReader::new(child.stderr.take().unwrap());
    let mut first = None;
    for line in stderr.lines() {
        let event: Value = serde_json::from_str(&line.unwrap()).unwrap();
        if event["event"] == "progress" {
            let records = event["records"].as_u64().unwrap();
            let first = *first.get_or_insert(records);
            if records >= first + more {
                child.kill().unwrap();
                break;
            }
        }
    }
    // Some lines are rejected, so the exit code of a complete load is 2.
    child.wait().unwrap().code() == Some(2) || is_complete(Path::new(&args[1]))
}

/// Loads into a new store, killed several times at its first report; returns the number of kills.
fn load_with_kills(args: &[String]) -> u64 {
    let _ = fs::remove_dir_all(&args[1]);
    let mut kills: u64 = 0;
    // After some kills, waits for more and more records, so that the load completes at any speed.
    while !load_and_kill(args, kills.saturating_sub(5) * 4000) {
        kills += 1;
        assert!(kills < 100);
    }
    kills
}

/// True if the process was killed between its last commit and its end: all records are stored, and
/// there is no note of the progress.
fn is_complete(store: &Path) -> bool {
    let Ok(db) = Database::open(store, Options::default()) else {
        return false;
    };
    let Ok(dataset) = db.dataset::<esker::Key>("d") else {
        return false;
    };
    dataset.query().count().unwrap() > 0 && dataset.notes().unwrap().is_empty()
}

/// The numbers of the rejected lines beside a file.
fn rejected(file: &Path) -> Vec<u64> {
    let mut name = file.as_os_str().to_os_string();
    name.push(".rejected");
    let text = fs::read_to_string(name).unwrap();
    let number = |line: &str| serde_json::from_str::<Value>(line).unwrap()["line"].as_u64();
    text.lines().map(|line| number(line).unwrap()).collect()
}

#[test]
pub(crate) fn a_killed_load_resumes_and_loads_every_line_once() {
    let dir = tempfile::tempdir().unwrap();
    let files = files(dir.path());
    let args = arguments(&dir, &files);
    // If the process gets no processor for longer than a load takes, no kill happens: try again.
    let kills = (0..20)
        .map(|_| load_with_kills(&args))
        .find(|kills| *kills > 0);
    assert!(kills.is_some(), "nothing was killed");
    esker(&["check", &args[1]]).expect(0);

    let store = dir.path().join("db");
    let db = Database::open(&store, Options::default()).unwrap();
    let dataset = db.dataset("d").unwrap();
    assert!(dataset.notes().unwrap().is_empty(), "the load is complete");
    // Each version once and in order; a line loaded twice would be there twice.
    for file in 0..4 {
        for key in (0..KEYS).step_by(7).chain([77, 5077, 10_077]) {
            let id = (file * LINES + key).to_string();
            let versions = dataset
                .versions(dataset.parse_key(&id).unwrap())
                .latest(9)
                .read()
                .unwrap();
            let line = |record: &esker::Record| {
                let record: Value = serde_json::from_slice(record.json()).unwrap();
                record["line"].as_u64().unwrap()
            };
            let lines: Vec<u64> = versions.iter().map(line).collect();
            let want = (0..3)
                .rev()
                .map(|turn| key + turn * KEYS)
                .filter(|line| !is_bad(*line));
            assert_eq!(lines, want.collect::<Vec<_>>(), "key {id}");
        }
    }
    drop(dataset);
    db.close().unwrap();
    let bad: Vec<u64> = (0..LINES).filter(|line| is_bad(*line)).collect();
    for file in &files {
        let header = u64::from(file.ends_with("d.csv"));
        let want: Vec<u64> = bad.iter().map(|line| line + 1 + header).collect();
        assert_eq!(rejected(file), want, "{}", file.display());
    }
}

#[test]
fn what_is_not_resumed_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.ndjson");
    let line = |id: u64| format!("{{\"id\":{id},\"v\":1}}\n");
    let lines = |ids: std::ops::Range<u64>| -> String { ids.map(line).collect() };
    // A bad line in the middle stops the load.
    fs::write(
        &file,
        format!("{}bad\n{}", lines(0..2500), lines(2500..3000)),
    )
    .unwrap();
    let store = dir.path().join("db").display().to_string();
    let name = file.display().to_string();
    let load = |more: &[&str]| -> Run {
        esker(&[&["load", &store, "d", &name, "--key", "id:int"][..], more].concat())
    };
    load(&["--strict"]).expect(2);
    let stat = esker(&["stat", &store, "d"]).expect(0).stdout;
    assert!(
        stat.contains("a load was interrupted after 2,500 records"),
        "{stat}"
    );
    // The load resumes behind the loaded lines, or starts over with `--restart`.
    let again = load(&["--strict"]).expect(2);
    assert!(
        again.stderr.contains("resuming after line 2,500"),
        "{}",
        again.stderr
    );
    let over = load(&["--strict", "--restart"]).expect(2);
    assert!(!over.stderr.contains("resuming"), "{}", over.stderr);
    let rest = load(&[]).expect(2);
    assert!(
        rest.stderr.contains("3,000 records loaded, 1 rejected"),
        "{}",
        rest.stderr
    );
    let full = load(&["--allow-rejects"]).expect(0);
    assert!(!full.stderr.contains("resuming"), "{}", full.stderr);
    // A changed file is a different file.
    load(&["--strict"]).expect(2);
    fs::write(&file, lines(0..3100)).unwrap();
    let changed = load(&[]).expect(0);
    assert!(
        changed.stderr.contains("have changed since"),
        "{}",
        changed.stderr
    );
    assert_eq!(esker(&["count", &store, "d"]).expect(0).stdout, "3100\n");
    let stat = esker(&["stat", &store, "d"]).expect(0).stdout;
    assert!(!stat.contains("interrupted"), "{stat}");
    // Standard input cannot be read again.
    let run = esker_fed(&["load", &store, "d", "-"], dir.path(), |stdin| {
        let _ = stdin.write_all(lines(4000..6000).as_bytes());
    });
    assert!(run.expect(0).stderr.contains("cannot be read again"));
    esker(&["check", &store]).expect(0);
}

/// Generated keys: a killed load creates no record twice.
#[test]
pub(crate) fn a_killed_load_makes_no_record_twice() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.json");
    // One line, so that the progress is a value in the line.
    let values: Vec<String> = (0..LINES).map(|at| format!("{{\"line\":{at}}}")).collect();
    fs::write(&file, format!("[{},7]", values.join(","))).unwrap();
    let store = dir.path().join("db").display().to_string();
    let name = file.display().to_string();
    let args = ["load", &store, "d", &name, "--key", "auto", "--durability"];
    let args = args.into_iter().chain(["os", "--progress", "json"]);
    let args: Vec<String> = args.map(str::to_string).collect();
    let kills = (0..20)
        .map(|_| load_with_kills(&args))
        .find(|kills| *kills > 0);
    assert!(kills.is_some(), "nothing was killed");
    let lines = esker(&["scan", &store, "d"]).expect(0).rows();
    let mut lines: Vec<u64> = lines
        .iter()
        .map(|row| row["line"].as_u64().unwrap())
        .collect();
    lines.sort_unstable();
    assert_eq!(lines, (0..LINES).collect::<Vec<_>>());
    assert_eq!(rejected(&file), [1]);
}

/// The advice to resume left the options out by which the file was read, and quotes.
#[test]
fn the_advice_to_resume_can_be_given_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("it's a table");
    let rows: String = (0..3000).map(|id| format!("{id}|{id}\n")).collect();
    // The last row ends a strict load.
    fs::write(&file, format!("id|n\n{rows}x\n")).unwrap();
    let store = dir.path().join("a store").display().to_string();
    let name = file.display().to_string();
    let load = [
        "load",
        &store,
        "d",
        &name,
        "--key",
        "id:int",
        "--delimiter",
        "|",
        "--strict",
    ];
    let failed = esker(&[&load[..], &["--progress", "json"]].concat()).expect(2);
    // It says that it is not complete.
    let events = failed
        .stderr
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let loaded: Vec<Value> = events.filter(|event| event["event"] == "loaded").collect();
    assert_eq!(loaded.len(), 1, "{}", failed.stderr);
    assert_eq!(
        (&loaded[0]["complete"], &loaded[0]["records"]),
        (&false.into(), &3000.into())
    );
    let stat = esker(&["stat", &store, "d"]).expect(0).stdout;
    let advice = stat
        .split("to resume it, esker ")
        .nth(1)
        .unwrap_or_else(|| panic!("{stat}"));
    let advice = advice.lines().next().unwrap();
    let esker_path = env!("CARGO_BIN_EXE_esker");
    let run = std::process::Command::new("sh")
        .args(["-c", &format!("{esker_path} {advice} --allow-rejects")])
        .output()
        .unwrap();
    let said = String::from_utf8(run.stderr).unwrap();
    assert!(said.contains("resuming after line"), "{advice}\n{said}");
    assert_eq!(run.status.code(), Some(0), "{advice}\n{said}");
    let stat = esker(&["stat", &store, "d"]).expect(0).stdout;
    assert!(!stat.contains("to resume it"), "{stat}");
}

//! Unit tests of the command line's own parts.

use std::collections::{HashMap, HashSet};
use std::io::{Cursor, Read, Write};
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use serde_json::Value;

use crate::args::{Cli, Format, durability, duration, size};
use crate::input::{Event, Feed, Message, cell, prepare};
use crate::interrupt::Interrupt;
use crate::rejects::{Rejects, TEXT_MAX, cut};
use crate::tweets::{EPOCH, Tweets};

#[test]
fn the_command_line_is_well_formed() {
    <Cli as clap::CommandFactory>::command().debug_assert();
}

#[test]
fn sizes_and_durability_are_read() {
    assert_eq!(size("4096"), Ok(4096));
    assert_eq!(size("128M"), Ok(128 << 20));
    assert_eq!(size("1GiB"), Ok(1 << 30));
    assert_eq!(size("64MiB"), Ok(64 << 20));
    assert_eq!(size("64 mb"), Ok(64 << 20));
    assert_eq!(size("1.5K"), Ok(1536));
    assert_eq!(size("1T"), Ok(1 << 40));
    for wrong in [
        "0", "", "K", ".", "1..5K", "1K2", "-1", "1e3", "0.1", "1 000",
    ] {
        assert!(size(wrong).is_err(), "{wrong}");
    }
    assert!(size("12X").is_err());
    assert!(size("99999999999999G").is_err());
    assert_eq!(durability("sync"), Ok(esker::Durability::Sync));
    assert!(durability("0").is_err());
    assert!(durability("often").is_err());
    let every = |millis| Ok(esker::Durability::Periodic(Duration::from_millis(millis)));
    assert_eq!(durability("20"), every(20));
    assert_eq!(durability("5ms"), every(5));
    assert_eq!(durability("1.5s"), every(1500));
    for (text, millis) in [
        ("500ms", 500),
        ("10s", 10_000),
        ("10 s", 10_000),
        ("2min", 120_000),
        ("2 days", 172_800_000),
        ("1.5h", 5_400_000),
        ("1h30m", 5_400_000),
        ("1h 30m", 5_400_000),
        ("1w2d", 777_600_000),
    ] {
        assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
    }
    for wrong in [
        "",
        "2",
        "0s",
        "s",
        "1x",
        "1.s",
        "1h30",
        "-1s",
        "1e3s",
        "99999999999999w",
    ] {
        assert!(duration(wrong).is_err(), "{wrong}");
    }
    assert!(duration("2").unwrap_err().contains("has no unit"));
}

#[test]
fn what_was_meant_is_the_most_similar_name() {
    let known = ["user", "user.name", "at"];
    let meant = |name| crate::nearest::nearest(name, known);
    assert_eq!(meant("user.nme"), Some("user.name"));
    assert_eq!(meant("usr.name"), Some("user.name"));
    assert_eq!(meant("name"), Some("user.name"));
    assert_eq!(meant("user.address"), Some("user"));
    assert_eq!(meant("price"), None);
}

fn as_json(text: &str, is_string: bool) -> String {
    let mut json = Vec::new();
    cell(text, is_string, &mut json);
    String::from_utf8(json).unwrap()
}

#[test]
fn a_cell_is_a_number_only_where_json_says_so() {
    for number in ["0", "-1", "12.50", "1e5", "-2.5E-3", "18446744073709551615"] {
        assert_eq!(as_json(number, false), number);
    }
    for text in [
        "007",
        "+1",
        ".5",
        "1.",
        "1e",
        "0x1",
        "NaN",
        "1e999",
        "18446744073709551616",
        "-",
    ] {
        assert_eq!(as_json(text, false), format!("\"{text}\""));
    }
    assert_eq!(as_json("true", false), "true");
    assert_eq!(as_json("True", false), "\"True\"");
    assert_eq!(as_json("12", true), "\"12\"");
    assert_eq!(as_json("a\"b", false), "\"a\\\"b\"");
}

/// All events of a file, as (line, text or reason).
fn events(path: &Path, strings: &[&str]) -> Vec<(u64, Result<String, String>)> {
    let mut feed = Feed::start(prepare(&[path.to_path_buf()], None).unwrap());
    feed.set_string_columns(
        strings
            .iter()
            .map(ToString::to_string)
            .collect::<HashSet<_>>(),
    );
    let mut events = Vec::new();
    while let Some(event) = feed.next() {
        events.push(match event {
            Event::Pause => continue,
            Event::Record { line, text, .. } => {
                (line, Ok(String::from_utf8_lossy(text).into_owned()))
            }
            Event::Bad { line, reason, .. } | Event::Failed { line, reason, .. } => {
                (line, Err(reason))
            }
        });
    }
    events
}

fn gzip(data: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn lines_are_the_same_from_plain_gzip_and_zstd() {
    let dir = tempfile::tempdir().unwrap();
    let text = b"\xEF\xBB\xBF{\"a\":1}\r\n\n   \n{\"a\":2}\n{\"a\":3}";
    let members = [gzip(&text[..9]), gzip(&text[9..])].concat();
    let zstd = zstd::stream::encode_all(&text[..], 3).unwrap();
    let files = [
        ("plain.ndjson", text.to_vec()),
        ("two.ndjson.gz", members.clone()),
        ("frame.ndjson.zst", zstd.clone()),
        // The content counts where the name says nothing.
        ("gz-by-magic", members),
        ("zstd-by-magic", zstd),
    ];
    for (name, bytes) in files {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let seen: Vec<_> = events(&path, &[])
            .into_iter()
            .map(|(l, t)| (l, t.unwrap()))
            .collect();
        let want = [(1, "{\"a\":1}"), (4, "{\"a\":2}"), (5, "{\"a\":3}")];
        assert_eq!(seen, want.map(|(l, t)| (l, t.to_string())), "{name}");
    }
}

#[test]
fn damaged_compression_is_reported_after_what_came_before() {
    let dir = tempfile::tempdir().unwrap();
    let text: String = (0..50_000)
        .map(|i| format!("{{\"a\":{}}}\n", i * 7919 % 50_021))
        .collect();
    for (name, whole) in [
        ("cut.gz", gzip(text.as_bytes())),
        (
            "cut.zst",
            zstd::stream::encode_all(text.as_bytes(), 3).unwrap(),
        ),
    ] {
        let path = dir.path().join(name);
        std::fs::write(&path, &whole[..whole.len() - 20]).unwrap();
        let seen = events(&path, &[]);
        assert!(seen.last().unwrap().1.is_err(), "{name}");
        assert!(
            seen.iter().rev().skip(1).all(|(_, text)| text.is_ok()),
            "{name}"
        );
    }
    let path = dir.path().join("not.gz");
    std::fs::write(&path, "{\"a\":1}\n").unwrap();
    assert!(
        events(&path, &[])[0]
            .1
            .as_ref()
            .unwrap_err()
            .contains("gzip")
    );
}

#[test]
fn csv_rows_become_objects_with_their_lines() {
    let dir = tempfile::tempdir().unwrap();
    let rows = [
        "id,zip,note,ok",
        "7,007,\"two\nlines\",true",
        "",
        "8,123,,false",
        "9,1",
        "10,5,x,",
    ];
    for (end, last) in [("\n", ""), ("\n", "\n"), ("\r\n", ""), ("\r\n", "\r\n")] {
        let path = dir.path().join("rows.csv");
        std::fs::write(&path, rows.join(end) + last).unwrap();
        let want = [
            (
                2,
                Ok(r#"{"id":7,"zip":"007","note":"two\nlines","ok":true}"#.to_string()),
            ),
            (5, Ok(r#"{"id":8,"zip":"123","ok":false}"#.to_string())),
            (6, Err("the row has 2 cells, the header 4".to_string())),
            (7, Ok(r#"{"id":10,"zip":"5","note":"x"}"#.to_string())),
        ];
        assert_eq!(events(&path, &["zip"]), want, "{end:?} {last:?}");
    }
    let path = dir.path().join("twice.csv");
    std::fs::write(&path, "a,a\n1,2\n").unwrap();
    assert!(events(&path, &[])[0].1.is_err());
}

#[test]
fn long_lines_are_skipped_and_counted() {
    let (sender, receiver) = mpsc::sync_channel(1000);
    let long = 3_000_000;
    let head = Cursor::new(b"one\n".to_vec());
    let tail = Cursor::new(b"\nthree\nfour".to_vec());
    let mut reader = head.chain(std::io::repeat(b'x').take(long)).chain(tail);
    crate::input::read_lines(&mut reader, 1 << 20, &sender).unwrap();
    drop(sender);
    let (mut lines, mut skipped) = (Vec::new(), Vec::new());
    for message in receiver {
        match message {
            Message::Lines(chunk) => lines.extend_from_slice(&chunk),
            Message::Long(prefix, length) => {
                lines.extend_from_slice(b"<long>\n");
                skipped.push((prefix.len(), length));
            }
            _ => panic!("unexpected message"),
        }
    }
    assert_eq!(
        String::from_utf8(lines).unwrap(),
        "one\n<long>\nthree\nfour"
    );
    assert_eq!(skipped, [(TEXT_MAX, long)]);
}

#[test]
fn a_sample_takes_nothing_away() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("in");
    std::fs::write(&path, "{\"a\":1}\nnonsense\n[]\n{\"a\":2}\n").unwrap();
    let mut feed = Feed::start(prepare(&[path], Some(Format::Ndjson)).unwrap());
    let sample = feed.sample(10, 1 << 20, |_| false, &Interrupt::watch().unwrap());
    assert_eq!((sample.records.len(), sample.others), (2, 2));
    let mut lines = 0;
    while let Some(event) = feed.next() {
        assert!(matches!(event, Event::Record { .. }));
        lines += 1;
    }
    assert_eq!(lines, 4);
}

#[test]
fn rejects_are_made_anew_and_only_when_needed() {
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("in.ndjson");
    let path = dir.path().join("in.ndjson.rejected");
    assert_eq!(Rejects::beside(Some(&input)).finish().unwrap(), None);
    assert!(!path.exists());
    for _ in 0..2 {
        let mut rejects = Rejects::beside(Some(&input));
        rejects.add(3, "it is \"bad\"", b"\xFF{");
        assert_eq!(rejects.count(), 1);
        assert_eq!(rejects.finish().unwrap().unwrap(), path);
        let text = std::fs::read_to_string(&path).unwrap();
        let entry: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(entry["line"], 3);
        assert_eq!(entry["reason"], "it is \"bad\"");
        assert_eq!(entry["text"], "\u{FFFD}{");
    }
}

#[test]
fn long_texts_are_cut_between_characters() {
    assert_eq!(cut(b"short"), b"short");
    let text = "\u{20AC}".repeat(TEXT_MAX);
    let kept = cut(text.as_bytes());
    assert!(kept.len() <= TEXT_MAX && kept.len() > TEXT_MAX - 3);
    assert!(std::str::from_utf8(kept).is_ok());
}

#[test]
fn tweets_are_what_the_workload_says() {
    const RECORDS: u64 = 60_000;
    let mut tweets = Tweets::new(7, RECORDS);
    let mut again = Tweets::new(7, RECORDS);
    let (mut record, mut same) = (Vec::new(), Vec::new());
    let (mut bytes, mut last) = (0, String::new());
    let mut users: HashMap<u64, u64> = HashMap::new();
    let mut seconds: HashMap<u64, u64> = HashMap::new();
    for _ in 0..RECORDS {
        let second = tweets.next(&mut record);
        again.next(&mut same);
        assert_eq!(record, same);
        bytes += record.len();
        let json: Value = serde_json::from_slice(&record).unwrap();
        let id = json["id"].as_str().unwrap().to_string();
        assert!(id.len() == 20 && id > last, "{id} after {last}");
        last = id;
        assert_eq!(json["created_at"].as_u64(), Some(second));
        *users.entry(json["user_id"].as_u64().unwrap()).or_default() += 1;
        *seconds.entry(second).or_default() += 1;
    }
    let mean = bytes as f64 / RECORDS as f64;
    assert!((mean - 534.0).abs() < 5.0, "mean {mean} bytes");
    assert!(seconds.values().all(|&count| count <= 70));
    let span = seconds.keys().max().unwrap() - EPOCH;
    let rate = RECORDS as f64 / span as f64;
    assert!((rate - 35.0).abs() < 2.0, "{rate} a second");
    // Frequencies by Zipf's law: p(0) / p(9) = 10 ^ 0.95 = 8.9.
    let count = |rank| users.get(&Tweets::user(rank)).copied().unwrap_or(0) as f64;
    let ratio = count(0) / count(9);
    assert!((7.5..10.5).contains(&ratio), "ratio {ratio}");
    assert!(
        users.len() <= (RECORDS / 30) as usize && users.len() > 1500,
        "{} users",
        users.len()
    );
}

#[test]
fn a_definition_is_shown_as_the_arguments_that_make_it() {
    use esker::{DatasetDef, IndexKind, KeyType, Tokenizer, Type};
    let usual = DatasetDef::new("id", KeyType::Int);
    assert_eq!(crate::words::definition(&usual), "--key id:int");
    let def = usual
        .index(
            "at",
            esker::Index::new(IndexKind::Embedded).of_type(Type::Time),
        )
        .index(
            "name",
            esker::Index::new(IndexKind::Lazy)
                .of_type(Type::String)
                .tokenizer(Tokenizer::Prefix),
        )
        .auto();
    assert_eq!(
        crate::words::definition(&def),
        "--key id:int --index at:embedded:time --index name:lazy:string:prefix --maintenance auto"
    );
}

#[test]
fn what_is_advised_is_a_command() {
    use esker::{AdvisedChange, IndexKind};
    let path = "a".parse().unwrap();
    let advice = |change| (&path, IndexKind::Lazy, change);
    let command = |change| crate::words::index_command(advice(change), "db", "d");
    let said = |text: &str| Some(text.to_string());
    assert_eq!(command(AdvisedChange::Add), said("add db d a:lazy"));
    assert_eq!(command(AdvisedChange::Switch), said("switch db d a:lazy"));
    assert_eq!(command(AdvisedChange::Drop), said("drop db d a"));
    assert_eq!(command(AdvisedChange::Keep), None);
}

//! Unit tests of the parts of an import.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use std::collections::HashSet;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use esker_store::{Dataset, Mode, Store, open};
use serde_json::Value;

use crate::feed::{Columns, Event, Feed, Place, TestCells as Cells, cell};
use crate::load::{End, Import};
use crate::observer::{Note, Observer};
use crate::rejects::{Rejects, cut};
use crate::source::{Format, Source, sources};
use crate::text::TEXT_MAX;

fn as_json(text: &str, cells: Cells) -> String {
    let mut json = Vec::new();
    cell(text, cells, &mut json);
    String::from_utf8(json).unwrap()
}

#[test]
fn a_cell_is_a_number_where_it_is_written_like_one() {
    for number in ["0", "-1", "12.50", "1e5", "-2.5E-3", "18446744073709551615"] {
        assert_eq!(as_json(number, Cells::Any), number);
    }
    for (text, number) in [
        (".50", "0.50"),
        ("-.5", "-0.5"),
        ("5.", "5.0"),
        ("+3", "3"),
        ("+.5", "0.5"),
        ("+12345.", "12345.0"),
        (".5e3", "0.5e3"),
    ] {
        assert_eq!(as_json(text, Cells::Any), number);
    }
    for text in [
        "007",
        "1e",
        "0x1",
        "NaN",
        "1e999",
        "18446744073709551616",
        "-",
        "+",
        ".",
        "+007",
        "1,5",
        "+491701234567",
    ] {
        assert_eq!(as_json(text, Cells::Any), format!("\"{text}\""));
    }
    assert_eq!(as_json("+491701234567", Cells::Numbers), "491701234567");
    assert_eq!(as_json("true", Cells::Any), "true");
    assert_eq!(as_json("True", Cells::Any), "\"True\"");
    assert_eq!(as_json("12", Cells::Strings), "\"12\"");
    assert_eq!(as_json("a\"b", Cells::Any), "\"a\\\"b\"");
}

/// All events of a file, as (line, text or reason).
fn events(path: &Path, strings: &[&str]) -> Vec<(u64, Result<String, String>)> {
    let mut feed = Feed::start(sources(&[path.to_path_buf()], None).unwrap());
    feed.set_columns(Columns {
        strings: strings.iter().map(ToString::to_string).collect(),
        numbers: HashSet::new(),
    });
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
        // The content decides if the name does not.
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
}

#[test]
fn a_sample_takes_nothing_away() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("in");
    std::fs::write(&path, "{\"a\":1}\nnonsense\n[]\n{\"a\":2}\n").unwrap();
    let mut feed = Feed::start(sources(&[path], Some(Format::Ndjson)).unwrap());
    let sample = feed.sample(10, 1 << 20, |_| false, || false);
    assert_eq!((sample.records.len(), sample.others), (2, 2));
    let mut lines = 0;
    while let Some(event) = feed.next() {
        assert!(matches!(event, Event::Record { .. } | Event::Bad { .. }));
        lines += 1;
    }
    assert_eq!(lines, 4);
}

/// The place of a line.
fn at(line: u64) -> Place {
    Place {
        source: 0,
        line,
        part: 0,
    }
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
        let added = rejects.add(at(3), "it is \"bad\"", b"\xFF{", &mut |_| {});
        added.unwrap();
        assert_eq!(rejects.count(), 1);
        assert_eq!(rejects.finish().unwrap().unwrap(), path);
        let text = std::fs::read_to_string(&path).unwrap();
        let entry: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(entry["line"], 3);
        assert_eq!(entry["reason"], "it is \"bad\"");
        assert_eq!(entry["text"], "\u{FFFD}{");
    }
}

/// The process may end at any time while an import is resumed.
#[test]
fn the_rejects_of_an_interrupted_import_are_never_away() {
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("in.ndjson");
    let path = dir.path().join("in.ndjson.rejected");
    let mut rejects = Rejects::beside(Some(&input));
    for line in [3, 5, 9] {
        rejects.add(at(line), "bad", b"{", &mut |_| {}).unwrap();
    }
    rejects.finish().unwrap();
    let mut rejects = Rejects::beside(Some(&input));
    rejects.resume(at(5), Some(2), 0).unwrap();
    let lines = || -> Vec<u64> {
        let text = std::fs::read_to_string(&path).unwrap();
        let line = |entry: &str| serde_json::from_str::<Value>(entry).unwrap()["line"].as_u64();
        text.lines().map(|entry| line(entry).unwrap()).collect()
    };
    assert_eq!(lines(), [3, 5]);
    rejects.add(at(7), "bad", b"{", &mut |_| {}).unwrap();
    rejects.finish().unwrap();
    assert_eq!(lines(), [3, 5, 7]);
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 1);
}

/// An import that is complete is not resumed, so its rejects are in the file before.
#[test]
fn the_rejects_are_in_the_file_when_the_last_batch_is_committed() {
    struct AtTheEnd {
        path: PathBuf,
        seen: Vec<usize>,
    }
    impl Observer for AtTheEnd {
        fn progress(&mut self, _: u64, _: u64) {
            let text = std::fs::read_to_string(&self.path).unwrap_or_default();
            self.seen.push(text.lines().count());
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("in.ndjson");
    std::fs::write(&input, "{\"id\":1}\nbad\n{\"id\":2}\n").unwrap();
    let store = format!("plain:{}", dir.path().join("store").display());
    let store = open(store, Mode::Create, esker::Options::default()).unwrap();
    let def = esker::DatasetDef::new("id", esker::KeyType::Int);
    let dataset = store.create_dataset("d", def).unwrap();
    let sources = sources(std::slice::from_ref(&input), None).unwrap();
    let mut observer = AtTheEnd {
        path: dir.path().join("in.ndjson.rejected"),
        seen: Vec::new(),
    };
    let report = Import::new(sources).run(&*dataset, &mut observer);
    assert!(matches!(report.end, End::Complete));
    assert_eq!((report.records, report.rejected), (2, 1));
    // Progress is reported after the last commit, before the import has finished its files.
    assert_eq!(observer.seen, [1]);
}

/// Stops an import after its first batch.
struct StopsEarly(bool);

impl Observer for StopsEarly {
    fn progress(&mut self, _: u64, _: u64) {
        self.0 = true;
    }

    fn is_stopped(&self) -> bool {
        self.0
    }
}

#[test]
fn a_resumed_import_rejects_each_line_once_and_none_of_an_earlier_import() {
    let dir = tempfile::tempdir().unwrap();
    let store = format!("plain:{}", dir.path().join("store").display());
    let store = open(store, Mode::Create, esker::Options::default()).unwrap();
    let def = esker::DatasetDef::new("id", esker::KeyType::Int);
    let dataset = store.create_dataset("d", def).unwrap();
    let [a, b] = ["a.ndjson", "b.ndjson"].map(|name| dir.path().join(name));
    let rejected = |file: &Path| {
        let text = std::fs::read(format!("{}.rejected", file.display()));
        text.map_or(0, |text| text.split(|byte| *byte == b'\n').count() - 1)
    };
    // The file of an earlier import of `a`, whose last entry is torn within a character.
    let entry = br#"{"line":1,"reason":"bad","text":"{"}"#;
    let stale = [&entry[..], b"\n", &entry[..20], &"\u{20AC}".as_bytes()[..1]].concat();
    std::fs::write(format!("{}.rejected", a.display()), stale).unwrap();
    std::fs::write(&a, "{\"id\":-1}\n").unwrap();
    let lines = (0..3000).map(|id| match id {
        7 | 2007 => "bad\n".to_string(),
        _ => format!("{{\"id\":{id}}}\n"),
    });
    std::fs::write(&b, lines.collect::<String>()).unwrap();
    let import = || Import::new(sources(&[a.clone(), b.clone()], None).unwrap());
    let report = import().run(&*dataset, &mut StopsEarly(false));
    assert!(matches!(report.end, End::Stopped { .. }));
    assert_eq!((report.rejected, rejected(&b)), (1, 1));
    let report = import().run(&*dataset, &mut ());
    assert!(matches!(report.end, End::Complete));
    assert_eq!((report.resumed, report.records), (1000, 2999));
    assert_eq!((report.rejected, rejected(&a), rejected(&b)), (2, 0, 2));

    // The value that ends a strict import is read again by the next one, also on the same line.
    let c = dir.path().join("c.json");
    std::fs::write(&c, "[{\"id\":1},{\"id\":2},7]").unwrap();
    let import =
        |strict| Import::new(sources(std::slice::from_ref(&c), None).unwrap()).strict(strict);
    let report = import(true).run(&*dataset, &mut ());
    assert!(matches!(report.end, End::Bad(_)));
    let report = import(false).run(&*dataset, &mut ());
    assert!(matches!(report.end, End::Complete));
    assert_eq!((report.resumed, report.rejected, rejected(&c)), (2, 1, 1));
}

/// Collects notes.
#[derive(Default)]
struct Noted(Vec<String>);

impl Observer for Noted {
    fn note(&mut self, note: &Note) {
        self.0.push(note.to_string());
    }
}

/// A power cut may leave a file of rejected lines shorter than the note of the batch says: an
/// import that resumed was complete without those lines.
#[test]
fn an_import_whose_rejected_lines_are_lost_starts_over() {
    let dir = tempfile::tempdir().unwrap();
    let store = format!("plain:{}", dir.path().join("store").display());
    let store = open(store, Mode::Create, esker::Options::default()).unwrap();
    let def = esker::DatasetDef::new("id", esker::KeyType::Int);
    let dataset = store.create_dataset("d", def).unwrap();
    let input = dir.path().join("in.ndjson");
    let lines = (0..3000).map(|id| match id {
        7 | 9 | 2007 => "bad\n".to_string(),
        _ => format!("{{\"id\":{id}}}\n"),
    });
    std::fs::write(&input, lines.collect::<String>()).unwrap();
    let path = dir.path().join("in.ndjson.rejected");
    let import = || Import::new(sources(std::slice::from_ref(&input), None).unwrap());
    let whole = |text: &[u8]| text.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    for lost in ["all", "one", "a part", "the file"] {
        let report = import()
            .restart(true)
            .run(&*dataset, &mut StopsEarly(false));
        assert!(matches!(report.end, End::Stopped { .. }));
        assert_eq!((report.rejected, rejected_lines(&input)), (2, vec![8, 10]));
        let text = std::fs::read(&path).unwrap();
        match lost {
            "all" => std::fs::write(&path, "").unwrap(),
            "one" => std::fs::write(&path, &text[..whole(&text)]).unwrap(),
            "a part" => std::fs::write(&path, &text[..text.len() - 5]).unwrap(),
            _ => std::fs::remove_file(&path).unwrap(),
        }
        let mut noted = Noted::default();
        let report = import().run(&*dataset, &mut noted);
        assert!(matches!(report.end, End::Complete));
        assert_eq!((report.resumed, report.records), (0, 2997), "{lost}");
        assert_eq!(
            (report.rejected, rejected_lines(&input)),
            (3, vec![8, 10, 2008])
        );
        assert!(
            noted
                .0
                .iter()
                .any(|note| note.contains("in.ndjson.rejected")),
            "{noted:?}",
            noted = noted.0
        );
    }
}

/// The lines that a file of rejected lines names.
fn rejected_lines(input: &Path) -> Vec<u64> {
    let text = std::fs::read_to_string(format!("{}.rejected", input.display()));
    let line = |entry: &str| serde_json::from_str::<Value>(entry).unwrap()["line"].as_u64();
    let text = text.unwrap_or_default();
    text.lines().map(|entry| line(entry).unwrap()).collect()
}

/// A store with a dataset whose values of `v` are unique.
fn with_unique_values(dir: &Path) -> (Box<dyn Store>, Box<dyn Dataset>) {
    let options = esker::Options::default();
    let store = open(dir.join("store"), Mode::Create, options).unwrap();
    let index = esker::Index::composite().int().unique();
    let def = esker::DatasetDef::new("id", esker::KeyType::Int).index("v", index);
    let dataset = store.create_dataset("d", def).unwrap();
    (store, dataset)
}

#[test]
fn a_line_whose_value_is_not_unique_is_rejected_and_nothing_else_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let (_store, dataset) = with_unique_values(dir.path());
    let input = dir.path().join("in.ndjson");
    let import = |strict| {
        let sources = sources(std::slice::from_ref(&input), None).unwrap();
        Import::new(sources).strict(strict)
    };
    // In the first batch, between two batches, and in the last one; a record that replaces itself,
    // and one that replaces another.
    let mut lines: Vec<String> = (1..=2500)
        .map(|id| format!("{{\"id\":{id},\"v\":{id}}}\n"))
        .collect();
    lines[99] = "{\"id\":100,\"v\":7}\n".to_string();
    lines[199] = "bad\n".to_string();
    lines[299] = "{\"id\":3,\"v\":3}\n".to_string();
    lines[399] = "{\"id\":4,\"v\":5}\n".to_string();
    lines[1499] = "{\"id\":1500,\"v\":[1500,3]}\n".to_string();
    lines[2499] = "{\"id\":2500,\"v\":2499}\n".to_string();
    std::fs::write(&input, lines.concat()).unwrap();
    let report = import(false).run(&*dataset, &mut ());
    assert!(matches!(report.end, End::Complete), "{:?}", report.end);
    assert_eq!(
        (report.records, report.rejected, report.replaced),
        (2495, 5, 1)
    );
    let mut rejected = rejected_lines(&input);
    rejected.sort_unstable();
    assert_eq!(rejected, [100, 200, 400, 1500, 2500]);
    assert_eq!(dataset.count(&esker::Request::default()).unwrap().0, 2494);
    // A strict import ends before the first of them, and resumes there once it is repaired.
    let text = "{\"id\":3001,\"v\":3001}\n{\"id\":3002,\"v\":1}\n{\"id\":3003,\"v\":3003}\n";
    std::fs::write(&input, text).unwrap();
    let report = import(true).run(&*dataset, &mut ());
    let End::Bad(why) = report.end else {
        panic!("{:?}", report.end)
    };
    assert!(
        why.contains("line 2") && why.contains("must be unique"),
        "{why}"
    );
    assert_eq!(report.records, 1);
    let mut batch = dataset.batch();
    batch
        .delete(&esker::Key::parse(esker::KeyType::Int, "1").unwrap())
        .unwrap();
    batch.commit().unwrap();
    let report = import(true).run(&*dataset, &mut ());
    assert!(matches!(report.end, End::Complete), "{:?}", report.end);
    assert_eq!((report.resumed, report.records, report.rejected), (1, 3, 0));
    assert!(rejected_lines(&input).is_empty());
}

#[test]
fn a_refused_record_takes_no_other_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let (_store, dataset) = with_unique_values(dir.path());
    let mut batch = dataset.batch();
    for (id, v) in [(1, 1), (2, 2), (100, 7)] {
        let record = format!("{{\"id\":{id},\"v\":{v}}}");
        batch.put_json(record.as_bytes()).unwrap();
    }
    batch.commit().unwrap();
    let input = dir.path().join("in.ndjson");
    let run = |strict| {
        let sources = sources(std::slice::from_ref(&input), None).unwrap();
        Import::new(sources).strict(strict).run(&*dataset, &mut ())
    };
    let load = |text: &str, strict| {
        std::fs::write(&input, text).unwrap();
        run(strict)
    };
    // The batch exchanges two values, which its lines could not one by one.
    let swap = "{\"id\":1,\"v\":2}\n{\"id\":2,\"v\":1}\n{\"id\":3,\"v\":7}\n";
    let report = load(swap, false);
    assert!(matches!(report.end, End::Complete), "{:?}", report.end);
    assert_eq!((report.records, report.replaced), (2, 2));
    assert_eq!(rejected_lines(&input), [3]);
    // More refused lines than are left out by a try each.
    let many: String = (10..60)
        .map(|id| {
            format!(
                "{{\"id\":{id},\"v\":{}}}\n",
                if id % 2 == 0 { 7 } else { id }
            )
        })
        .collect();
    let report = load(&many, false);
    assert!(matches!(report.end, End::Complete), "{:?}", report.end);
    assert_eq!((report.records, report.rejected), (25, 25));
    let mut refused = rejected_lines(&input);
    refused.sort_unstable();
    assert_eq!(refused, (1..50).step_by(2).collect::<Vec<u64>>());
    // Of a line with several records the first one is stored, and the line is read again.
    let several = "{\"id\":70,\"v\":70}\n\
         {\"id\":71,\"v\":71} {\"id\":72,\"v\":7} {\"id\":73,\"v\":73}\n";
    let report = load(several, true);
    assert!(matches!(report.end, End::Bad(_)), "{:?}", report.end);
    assert_eq!(report.records, 1);
    let key = |id: &str| esker::Key::parse(esker::KeyType::Int, id).unwrap();
    let mut batch = dataset.batch();
    batch.delete(&key("100")).unwrap();
    batch.commit().unwrap();
    let report = run(true);
    assert!(matches!(report.end, End::Complete), "{:?}", report.end);
    assert_eq!((report.resumed, report.records), (1, 4));
    for id in ["70", "71", "72", "73"] {
        assert!(dataset.get(&key(id)).unwrap().is_some(), "{id} is lost");
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

/// Returns a few bytes per read.
struct Slowly {
    bytes: Vec<u8>,
    at: usize,
    most: usize,
}

impl Read for Slowly {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let rest = &self.bytes[self.at..];
        let length = self.most.min(rest.len()).min(buffer.len());
        buffer[..length].copy_from_slice(&rest[..length]);
        self.at += length;
        Ok(length)
    }
}

/// Fails, or panics, behind its bytes.
struct Failing {
    bytes: Vec<u8>,
    at: usize,
    panics: bool,
}

impl Read for Failing {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let rest = &self.bytes[self.at..];
        if rest.is_empty() {
            assert!(!self.panics, "a reader that panics");
            return Err(std::io::Error::other("corrupt"));
        }
        let length = rest.len().min(buffer.len());
        buffer[..length].copy_from_slice(&rest[..length]);
        self.at += length;
        Ok(length)
    }
}

/// An error behind a value without a line break, and a thread that panicked, were the end of the
/// input.
#[test]
fn an_input_that_fails_is_not_complete_wherever_it_ends() {
    let texts = [
        (Format::Ndjson, "{\"id\":1}\n{\"id\":2}\nno record"),
        (Format::Ndjson, "no record"),
        (Format::Ndjson, "{\"id\":1}\n{\"id\":2"),
        (Format::Ndjson, "[{\"id\":1},no"),
        (Format::Lines, "{\"id\":1}\nno record"),
        (Format::Csv, "id,n\n1,2\n3,4"),
        (Format::Csv, "id,n\n1,2\n3,\"4"),
    ];
    for (format, text) in texts {
        for panics in [false, true] {
            for records in [None, Some(vec!["Records".to_string()])] {
                let source = Source {
                    path: None,
                    format,
                    size: None,
                    delimiter: None,
                    records,
                    unwraps: true,
                };
                let bytes = text.as_bytes().to_vec();
                let reader = Failing {
                    bytes,
                    at: 0,
                    panics,
                };
                let mut feed = Feed::of(source, Box::new(reader));
                let mut last = None;
                while let Some(event) = feed.next() {
                    last = Some(matches!(event, Event::Failed { .. }));
                    if last == Some(true) {
                        break;
                    }
                }
                assert_eq!(last, Some(true), "{text:?}, a panic: {panics}");
            }
        }
    }
}

#[test]
fn what_is_read_does_not_depend_on_how_it_comes() {
    let json = [
        "{\"id\":1}\n{\"id\":2}{\"id\":3}\n\nbad\n{\"id\":4,\n\"a\":[1,\n{\"id\":9}]}\n{\"id\":5}",
        "[\n {\"id\":1,\"s\":\"]},{\"},\n {\"id\":2 bad},\n {\"id\":3}, 4\n]\n{\"id\":5}\n",
        "{\"type\":\"FeatureCollection\",\"x\":{\"a\":[]},\"features\":[{\"id\":1},\n{\"id\":2}]}\n",
        "{\"Records\":[{\"id\":1},{\"id\":2}]}\n{\"Records\":[{\"id\":3}]}\n",
        "\x1E{\"id\":1}\n\x1E{\"id\":2}\n[{\"id\":3},{\"id\":4}]\n[]\n",
        "{\"id\":1,\n{\"id\":2}\n{\"id\":\"open\n{\"id\":3}\n{\"id\":4",
        "[{\"id\":1},{\"id\":",
        "",
        "\n \n",
    ];
    let csv = [
        "id,n\r\n1,\"a\r\nb\"\r\n\r\n2,\"x\"y\r\n3,z\r\n4,\"open\r\n5,c",
        "id;n\n1;2\n3;\"4\n",
        "sep=|\nid|n\r1|2\r3|4",
    ];
    let texts = json.map(|text| (Format::Ndjson, text)).into_iter();
    let texts = texts.chain(csv.map(|text| (Format::Csv, text)));
    for (format, text) in texts {
        for records in [None, Some(vec!["Records".to_string()])] {
            let events = |most: usize| {
                let source = Source {
                    path: None,
                    format,
                    size: None,
                    delimiter: None,
                    records: records.clone(),
                    unwraps: true,
                };
                let bytes = text.as_bytes().to_vec();
                let mut feed = Feed::of(source, Box::new(Slowly { bytes, at: 0, most }));
                let mut events = Vec::new();
                while let Some(event) = feed.next() {
                    if !matches!(event, Event::Pause) {
                        events.push(format!("{event:?}"));
                    }
                }
                events.extend(feed.take_notes());
                events
            };
            let whole = events(usize::MAX);
            for most in [1, 2, 3, 7] {
                assert_eq!(events(most), whole, "{text:?}, {most} bytes at a time");
            }
        }
    }
}

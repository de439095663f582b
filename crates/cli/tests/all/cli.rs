//! Every form of the command line, and every bad input, over small stores.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used
)]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::common::{Run, command, esker, esker_fed};
use ::esker::IndexKind;
use serde_json::{Value, json};
use tempfile::TempDir;

const KINDS: [&str; 7] = [
    "embedded",
    "eager",
    "lazy",
    "composite",
    "recent",
    "fingerprint",
    "filter",
];

#[test]
fn no_kind_for_values_is_left_out() {
    let mut known: Vec<String> = IndexKind::ALL
        .iter()
        .filter(|kind| **kind != IndexKind::None)
        .map(ToString::to_string)
        .collect();
    let mut listed = KINDS.to_vec();
    known.sort();
    listed.sort_unstable();
    assert_eq!(listed, known);
}

/// A folder for a store and its inputs.
struct Room {
    dir: TempDir,
}

impl Room {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn store(&self) -> String {
        self.path("store").display().to_string()
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        fs::write(self.path(name), bytes).unwrap();
        self.path(name).display().to_string()
    }

    /// `esker VERB STORE ARGS...`
    fn run(&self, verb: &str, args: &[&str]) -> Run {
        let store = self.store();
        let mut all = vec![verb, &store];
        all.extend_from_slice(args);
        esker(&all)
    }

    fn put(&self, dataset: &str, lines: &[u8]) -> Run {
        let store = self.store();
        let lines = lines.to_vec();
        esker_fed(&["put", &store, dataset], self.dir.path(), move |stdin| {
            let _ = stdin.write_all(&lines);
        })
    }

    /// A store with 100 events: id, user = id % 7, at = 1000 + id, name, and score = id / 4.
    fn events(kind: &str) -> Self {
        let room = Self::new();
        let file = room.write("events.ndjson", events(0..100));
        let indexes = ["user", "at", "name", "score"].map(|path| format!("{path}:{kind}"));
        let mut args = vec!["ev", &file, "--key", "id"];
        for index in &indexes {
            args.extend(["--index", index]);
        }
        room.run("load", &args).expect(0);
        room
    }
}

fn event(id: i64) -> Value {
    json!({"id": id, "user": id % 7, "at": 1000 + id, "name": format!("n{:03}", id * 37 % 100),
           "score": id as f64 / 4.0, "big": id > 90, "extra": id % 3})
}

fn events(ids: std::ops::Range<i64>) -> String {
    ids.map(|id| format!("{}\n", event(id))).collect()
}

fn descending(ids: impl Iterator<Item = i64>) -> Vec<i64> {
    let mut ids: Vec<i64> = ids.collect();
    ids.sort_unstable_by(|a, b| b.cmp(a));
    ids
}

#[test]
fn queries_find_records_newest_first_with_every_kind() {
    for kind in KINDS {
        let room = Room::events(kind);
        let found = room.run("get", &["ev", "42"]).expect(0);
        assert_eq!(found.stdout, format!("{}\n", event(42)), "{kind}");
        room.run("get", &["ev", "4242"]).expect(1);

        let want = descending((0..100).filter(|id| id % 7 == 3));
        let run = room.run("lookup", &["ev", "user", "3"]).expect(0);
        assert_eq!(run.ids(), want, "{kind}");
        let run = room
            .run("lookup", &["ev", "user", "3", "--limit", "4"])
            .expect(0);
        assert_eq!(run.ids(), want[..4], "{kind}");
        let run = room.run("lookup", &["ev", "user", "99"]).expect(1);
        assert_eq!(run.stdout, "", "{kind}");

        let run = room.run("range", &["ev", "at", "1010", "1020"]).expect(0);
        assert_eq!(run.ids(), descending(10..21), "{kind}");
        let run = room
            .run("range", &["ev", "score", "0.5", "1.25", "--limit", "2"])
            .expect(0);
        assert_eq!(run.ids(), [5, 4], "{kind}");
        room.run("range", &["ev", "at", "-20", "-10"]).expect(1);
        let run = room.run("range", &["ev", "name", "n010", "n012"]).expect(0);
        let named = |id: &i64| (10..=12).contains(&(id * 37 % 100));
        assert_eq!(run.ids(), descending((0..100).filter(named)), "{kind}");

        for (conditions, want) in [
            (
                vec!["user=3", "at>=1050"],
                (50..100).filter(|id| id % 7 == 3).collect::<Vec<_>>(),
            ),
            (vec!["at>1090", "at<1095"], (91..95).collect()),
            (
                vec!["name^=n01"],
                (0..100).filter(|id| id * 37 % 100 / 10 == 1).collect(),
            ),
            (vec!["score<=1"], (0..5).collect()),
            (
                vec!["user=3", "extra=1"],
                (0..100).filter(|i| i % 7 == 3 && i % 3 == 1).collect(),
            ),
        ] {
            let mut args = vec!["ev"];
            args.extend(&conditions);
            let run = room.run("find", &args).expect(0);
            assert_eq!(
                run.ids(),
                descending(want.iter().copied()),
                "{kind} {conditions:?}"
            );
            args.push("--oldest");
            let run = room.run("find", &args).expect(0);
            assert_eq!(run.ids(), want, "{kind} {conditions:?} --oldest");
            args.pop();
            let by_key = room
                .run("find", &[&args[..], &["--order", "key"]].concat())
                .expect(0);
            assert_eq!(by_key.ids(), want, "{kind} {conditions:?} --order key");
            let any = room
                .run("find", &[&args[..], &["--order", "any"]].concat())
                .expect(0);
            let mut ids = any.ids();
            ids.sort_unstable();
            assert_eq!(ids, want, "{kind} {conditions:?} --order any");
            let few = [&args[..], &["--order", "key", "--limit", "3"]].concat();
            assert_eq!(room.run("find", &few).expect(0).ids(), want[..3], "{kind}");
        }

        let run = room.run("count", &["ev"]).expect(0);
        assert_eq!(run.stdout, "100\n", "{kind}");
        let run = room.run("count", &["ev", "user", "1", "2"]).expect(0);
        assert_eq!(
            run.stdout,
            format!("{}\n", (0..100).filter(|i| matches!(i % 7, 1 | 2)).count())
        );
        let run = room.run("count", &["ev", "at", "1", "2"]).expect(0);
        assert_eq!(run.stdout, "0\n", "{kind}");
    }
}

#[test]
fn scan_goes_by_key_in_both_directions() {
    let room = Room::events("lazy");
    assert_eq!(
        room.run("scan", &["ev"]).expect(0).ids(),
        (0..100).collect::<Vec<_>>()
    );
    let run = room
        .run("scan", &["ev", "--from", "10", "--to", "12"])
        .expect(0);
    assert_eq!(run.ids(), [10, 11, 12]);
    let run = room
        .run("scan", &["ev", "--from", "10", "--reverse", "--limit", "2"])
        .expect(0);
    assert_eq!(run.ids(), [99, 98]);
    let run = room
        .run("scan", &["ev", "--from", "-5", "--limit", "1"])
        .expect(0);
    assert_eq!(run.ids(), [0]);
    room.run("scan", &["ev", "--from", "500"]).expect(1);
    let run = room
        .run("scan", &["ev", "--from", "9", "--to", "3"])
        .expect(2);
    assert!(run.stderr.contains("larger"), "{}", run.stderr);
}

#[test]
fn updates_and_deletes_show_at_once() {
    for kind in KINDS {
        let room = Room::events(kind);
        let mut moved = event(10);
        moved["user"] = json!(77);
        room.put("ev", format!("{moved}\n\n{}\n", event(200)).as_bytes())
            .expect(0);
        assert_eq!(
            room.run("lookup", &["ev", "user", "77"]).expect(0).ids(),
            [10],
            "{kind}"
        );
        let run = room.run("lookup", &["ev", "user", "3"]).expect(0);
        assert!(!run.ids().contains(&10), "{kind}");
        assert_eq!(
            room.run("range", &["ev", "at", "0", "9999"])
                .expect(0)
                .ids()[..2],
            [200, 10]
        );
        room.run("delete", &["ev", "10"]).expect(0);
        room.run("delete", &["ev", "10"]).expect(1);
        room.run("get", &["ev", "10"]).expect(1);
        room.run("lookup", &["ev", "user", "77"]).expect(1);
        assert_eq!(
            room.run("count", &["ev"]).expect(0).stdout,
            "100\n",
            "{kind}"
        );
        room.run("check", &[]).expect(0);
        room.run("compact", &["ev"]).expect(0);
        room.run("lookup", &["ev", "user", "77"]).expect(1);
        assert_eq!(
            room.run("count", &["ev"]).expect(0).stdout,
            "100\n",
            "{kind}"
        );
    }
}

#[test]
fn explain_is_json_on_stderr_and_a_scan_says_so() {
    let room = Room::events("composite");
    for args in [
        &["lookup", "ev", "user", "3"][..],
        &["range", "ev", "at", "1000", "1010"],
        &["find", "ev", "user=3", "at>1050"],
        &["scan", "ev", "--limit", "3"],
        &["count", "ev", "at", "1000", "1010"],
    ] {
        let mut rest = args[1..].to_vec();
        rest.push("--explain");
        let run = room.run(args[0], &rest).expect(0);
        assert!(
            serde_json::from_str::<Value>(&run.stderr).is_ok(),
            "{args:?}: {}",
            run.stderr
        );
    }
    let run = room
        .run("lookup", &["ev", "extra", "1", "--limit", "2"])
        .expect(0);
    assert_eq!(run.ids(), [97, 94]);
    assert!(run.stderr.contains("scan"), "{}", run.stderr);
    let run = room.run("lookup", &["ev", "no_such_path", "1"]).expect(1);
    assert!(run.stderr.contains("scan"), "{}", run.stderr);
}

#[test]
fn a_load_reads_every_form_of_file() {
    let gzip = |text: &str| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    };
    let room = Room::new();
    let members = [gzip(&events(0..10)), gzip(&events(10..20))].concat();
    let zstd = zstd::stream::encode_all(events(20..30).as_bytes(), 3).unwrap();
    let files = [
        room.write("a.ndjson.gz", members),
        room.write("b.ndjson.zst", zstd),
        room.write("c.ndjson", events(30..40)),
    ];
    let run = room
        .run(
            "load",
            &[
                "ev",
                &files[0],
                &files[1],
                &files[2],
                "--key",
                "id",
                "--index",
                "user:lazy",
            ],
        )
        .expect(0);
    assert!(run.stderr.contains("40 records"), "{}", run.stderr);
    assert!(run.stderr.contains("1000 ms"), "{}", run.stderr);
    let store = room.store();
    let run = esker_fed(&["load", &store, "ev", "-"], room.dir.path(), |stdin| {
        stdin.write_all(events(40..50).as_bytes()).unwrap();
    });
    run.expect(0);
    assert_eq!(
        room.run("scan", &["ev"]).expect(0).ids(),
        (0..50).collect::<Vec<_>>()
    );
    // A second load replaces the records.
    room.run("load", &["ev", &files[2], "--durability", "sync"])
        .expect(0);
    room.run("load", &["ev", &files[2], "--durability", "os"])
        .expect(0);
    assert_eq!(room.run("count", &["ev"]).expect(0).stdout, "50\n");
}

#[test]
fn csv_cells_take_the_types_of_their_columns() {
    let room = Room::new();
    let file = room.write(
        "places.csv",
        "code,zip,pop,open,note\n1,007,5,true,\n2,123,6,false,\"a \"\"b\"\"\nc\"\n3,9,7\n4,,8,true,x\n",
    );
    let args = [
        "pl",
        &file,
        "--key",
        "code:string",
        "--index",
        "zip:lazy",
        "--index",
        "pop:eager",
    ];
    let run = room.run("load", &args).expect(2);
    assert!(run.stderr.contains("bad lines: 1,"), "{}", run.stderr);
    let run = room.run("get", &["pl", "1"]).expect(0);
    assert_eq!(
        run.stdout,
        "{\"code\":\"1\",\"zip\":\"007\",\"pop\":5,\"open\":true}\n"
    );
    // The first `zip` is a string, so the column's type is string and 123 is text.
    let run = room.run("lookup", &["pl", "zip", "123"]).expect(0);
    assert_eq!(run.rows()[0]["note"], "a \"b\"\nc");
    let run = room.run("range", &["pl", "pop", "6", "8"]).expect(0);
    let codes: Vec<_> = run.rows().iter().map(|row| row["code"].clone()).collect();
    assert_eq!(codes, ["4", "2"]);
    assert_eq!(rejected(&room.path("places.csv")), [5]);
}

fn rejected(input: &Path) -> Vec<u64> {
    let mut path = input.as_os_str().to_os_string();
    path.push(".rejected");
    let text = fs::read_to_string(path).unwrap();
    let entries = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    entries
        .map(|entry| {
            assert!(!entry["reason"].as_str().unwrap().is_empty());
            assert!(entry["text"].is_string());
            entry["line"].as_u64().unwrap()
        })
        .collect()
}

#[test]
fn bad_lines_are_rejected_with_their_numbers_and_nothing_else_is_lost() {
    let room = Room::new();
    let mut lines: Vec<Vec<u8>> = (0..20)
        .map(|id| event(id).to_string().into_bytes())
        .collect();
    let bad: [&[u8]; 13] = [
        b"{\"id\": 7, \"user\": ",
        b"{\"user\":3}",
        b"{\"id\":null}",
        b"[]",
        b"\"text\"",
        b"42",
        b"{\"id\":\"a string\"}",
        b"{\"id\":1000,\"user\":\"not a number\"}",
        b"{\"id\":1001,\"user\":NaN}",
        b"{\"id\":1002,\"score\":1e999}",
        b"{\"id\":1003,\"name\":\"\xFF\xFE\"}",
        b"\xFF",
        b"{\"id\":1.5}",
    ];
    lines.push(Vec::new());
    lines.push(b"   ".to_vec());
    lines.extend(bad.iter().map(|line| line.to_vec()));
    lines.push(event(99).to_string().into_bytes());
    let file = room.write("in.ndjson", lines.join(&b'\n'));
    let types = [
        "--index",
        "user:lazy:int",
        "--index",
        "name:composite",
        "--index",
        "score:embedded:float",
    ];
    let run = room
        .run(
            "load",
            &[&["ev", &file, "--key", "id:int"][..], &types].concat(),
        )
        .expect(2);
    assert!(run.stderr.contains("13 rejected"), "{}", run.stderr);
    assert_eq!(
        rejected(&room.path("in.ndjson")),
        (23..36).collect::<Vec<_>>()
    );
    assert_eq!(room.run("count", &["ev"]).expect(0).stdout, "21\n");
    room.run("get", &["ev", "99"]).expect(0);
    for id in ["1000", "1001", "1002", "1003"] {
        room.run("get", &["ev", id]).expect(1);
    }
    room.run("check", &[]).expect(0);

    // A file without a valid record: exit code 2, and the store is unchanged.
    let only_bad = room.write("bad.ndjson", bad.join(&b'\n'));
    room.run("load", &["ev", &only_bad]).expect(2);
    assert_eq!(rejected(&room.path("bad.ndjson")).len(), bad.len());
    assert_eq!(room.run("count", &["ev"]).expect(0).stdout, "21\n");

    // --strict stops at the first bad line; the lines before it are kept.
    let text = format!("{}nonsense\n{}", events(200..205), events(205..210));
    let strict = room.write("strict.ndjson", text);
    let run = room.run("load", &["ev", &strict, "--strict"]).expect(2);
    assert!(run.stderr.contains("line 6"), "{}", run.stderr);
    assert_eq!(room.run("count", &["ev"]).expect(0).stdout, "26\n");
}

#[test]
fn a_key_over_64_kib_or_repeated() {
    let room = Room::new();
    let long = format!("{{\"id\":\"{}\",\"v\":1}}\n", "k".repeat(70_000));
    let text = format!("{{\"id\":\"a\",\"v\":1}}\n{long}{{\"id\":\"a\",\"v\":2}}\n");
    let file = room.write("in.ndjson", text);
    room.run("load", &["ev", &file, "--key", "id", "--index", "v:lazy"])
        .expect(2);
    assert_eq!(rejected(&room.path("in.ndjson")), [2]);
    assert_eq!(room.run("count", &["ev"]).expect(0).stdout, "1\n");
    // A repeated key upserts: the last record counts, also in the index.
    assert_eq!(
        room.run("get", &["ev", "a"]).expect(0).stdout,
        "{\"id\":\"a\",\"v\":2}\n"
    );
    room.run("lookup", &["ev", "v", "1"]).expect(1);
    room.run("lookup", &["ev", "v", "2"]).expect(0);
    // A record with a duplicate field is refused or stored completely.
    room.put("ev", b"{\"id\":\"b\",\"id\":\"c\",\"v\":3}\n");
    let both = ["b", "c"].map(|key| room.run("get", &["ev", key]).code);
    assert_ne!(both, [0, 0]);
    room.run("check", &[]).expect(0);
}

#[test]
fn a_line_of_300_mb_is_skipped_in_bounded_memory() {
    let room = Room::new();
    let args = ["load", &room.store(), "ev", "-", "--key", "id:int"].map(str::to_string);
    let run = esker_fed(&args, room.dir.path(), |stdin| {
        stdin.write_all(events(0..3).as_bytes()).unwrap();
        stdin.write_all(b"{\"id\":3,\"text\":\"").unwrap();
        let block = vec![b'x'; 1 << 20];
        (0..300).for_each(|_| stdin.write_all(&block).unwrap());
        stdin.write_all(b"\"}\nnonsense\n").unwrap();
        stdin.write_all(events(4..6).as_bytes()).unwrap();
    });
    run.expect(2);
    assert_eq!(rejected(&room.path("stdin")), [4, 5]);
    assert!(fs::metadata(room.path("stdin.rejected")).unwrap().len() < 70_000);
    assert_eq!(room.run("scan", &["ev"]).expect(0).ids(), [0, 1, 2, 4, 5]);
}

#[test]
fn put_reports_bad_lines_and_puts_the_good_ones() {
    let room = Room::events("lazy");
    let run = room.put(
        "ev",
        b"{\"id\":300,\"user\":1}\n\nbad\n{\"id\":301,\"user\":\"x\"}\n{\"id\":302}\n",
    );
    let run = run.expect(2);
    assert!(
        run.stderr.contains("line 3:") && run.stderr.contains("line 4:"),
        "{}",
        run.stderr
    );
    room.run("get", &["ev", "300"]).expect(0);
    room.run("get", &["ev", "302"]).expect(0);
    room.run("get", &["ev", "301"]).expect(1);
    room.put("nope", b"{\"id\":1}\n").expect(2);
}

#[test]
fn a_definition_belongs_to_the_dataset() {
    let room = Room::events("lazy");
    let file = room.write("more.ndjson", events(100..110));
    // The definition is left out, or repeated as it is.
    room.run("load", &["ev", &file]).expect(0);
    room.run("load", &["ev", &file, "--key", "id:int"])
        .expect(0);
    let same = ["user:lazy", "at:lazy:int", "name:lazy", "score:lazy:float"];
    let same: Vec<&str> = same.iter().flat_map(|index| ["--index", index]).collect();
    room.run("load", &[&["ev", &file, "--key", "id"][..], &same].concat())
        .expect(0);
    for other in [
        &["--key", "at"][..],
        &["--key", "id:string"],
        &["--key", "id", "--index", "user:composite"],
        &["--index", "user:lazy"],
    ] {
        let run = room
            .run("load", &[&["ev", &file][..], other].concat())
            .expect(2);
        assert!(
            run.stderr.contains("existing:") && run.stderr.contains("given:"),
            "{}",
            run.stderr
        );
    }
    // Another dataset in the same store.
    room.run("load", &["other", &file, "--key", "id:int"])
        .expect(0);
    assert_eq!(room.run("count", &["other"]).expect(0).stdout, "10\n");
    assert_eq!(room.run("count", &["ev"]).expect(0).stdout, "110\n");
}

#[test]
fn what_is_refused_makes_no_store() {
    let room = Room::new();
    let file = room.write("in.ndjson", events(0..3));
    let no_key = room.write("nokey.ndjson", "{\"a\":1}\n");
    let garbage = room.write("garbage.ndjson", "a\nb\n");
    let folder = room.dir.path().display().to_string();
    for args in [
        &["ev", "/nonexistent.ndjson", "--key", "id"][..],
        &["ev", &file, "/nonexistent.ndjson", "--key", "id"],
        &["ev", &folder, "--key", "id"],
        &["ev", "-", "-", "--key", "id"],
        &["ev", &file],
        &["ev", &file, "--key", "id:float"],
        &["ev", &file, "--key", "id", "--index", "user:btree"],
        &["ev", &file, "--key", "id", "--index", "user:btree:int"],
        &["ev", &file, "--key", "id", "--index", "user:lazy:integer"],
        &["ev", &file, "--key", "id", "--index", "user:"],
        &[
            "ev",
            &file,
            "--key",
            "id",
            "--index",
            "user:lazy",
            "--index",
            "user:eager",
        ],
        &["ev", &file, "--key", "id", "--durability", "often"],
        &["ev", &file, "--key", "id", "--format", "xml"],
        &["ev", &no_key, "--key", "id"],
        &["ev", &garbage, "--key", "id"],
        &["ev", "--key", "id"],
    ] {
        let run = room.run("load", args).expect(2);
        assert!(run.stderr.trim().len() > 10, "{args:?}");
        assert!(!room.path("store").exists(), "{args:?}");
    }
    for args in [
        &["get", "ev", "1"][..],
        &["lookup", "ev", "user", "1"],
        &["count", "ev"],
        &["scan", "ev"],
        &["stat"],
        &["check"],
        &["compact"],
        &["delete", "ev", "1"],
    ] {
        let run = room.run(args[0], &args[1..]).expect(3);
        assert!(run.stderr.trim().len() > 10, "{args:?}");
        assert!(!room.path("store").exists(), "{args:?}");
    }
}

#[test]
fn bad_questions_get_an_answer_that_says_why() {
    let room = Room::events("embedded");
    for (args, code) in [
        (&["get", "nope", "1"][..], 2),
        (&["get", "ev", "not-an-int"], 2),
        (&["lookup", "ev", "user", "abc"], 2),
        (&["range", "ev", "at", "9", "1"], 2),
        (&["range", "ev", "name", "n9", "n1"], 2),
        (&["count", "ev", "at", "9", "1"], 2),
        (&["count", "ev", "at", "9"], 2),
        (&["count", "ev", "at"], 2),
        (&["find", "ev", "user"], 2),
        (&["find", "ev", "=3"], 2),
        (&["find", "ev", "score>=NaN"], 2),
        (&["scan", "ev", "--from", "x"], 2),
        (&["lookup", "ev", "user", "1", "--limit", "-1"], 2),
        (&["lookup", "ev", "user", "1", "--limit", "0"], 2),
        (&["scan", "ev", "--limit", "0"], 2),
        (&["compact", "nope"], 2),
        (&["stat", "nope"], 2),
    ] {
        let run = room.run(args[0], &args[1..]).expect(code);
        assert_eq!(run.stdout, "", "{args:?}");
        assert!(
            code == 1 || run.stderr.trim().len() > 10,
            "{args:?}: {}",
            run.stderr
        );
    }
    let run = room.run("get", &["nope", "1"]);
    assert!(
        run.stderr.contains("nope") && run.stderr.contains("ev"),
        "{}",
        run.stderr
    );
    esker::<&str>(&[]).expect(2);
    esker(&["frobnicate"]).expect(2);
    esker(&["--memory", "none", "stat", "x"]).expect(2);
    let help = esker(&["--help"]).expect(0);
    assert!(help.stdout.contains("Examples:"));
    for verb in [
        "demo", "load", "put", "get", "delete", "lookup", "range", "find", "scan", "count", "stat",
        "check", "compact", "backup", "copy",
    ] {
        assert!(help.stdout.contains(verb));
        assert!(
            esker(&[verb, "--help"])
                .expect(0)
                .stdout
                .contains("Example"),
            "{verb}"
        );
    }
}

#[test]
fn stat_check_compact_and_backup() {
    let room = Room::events("composite");
    for args in [&[][..], &["ev"]] {
        let table = room.run("stat", args).expect(0).stdout;
        assert!(table.lines().count() > 3, "{table}");
        let json = room
            .run("stat", &[args, &["--json"]].concat())
            .expect(0)
            .stdout;
        assert!(serde_json::from_str::<Value>(&json).unwrap().is_object());
    }
    room.run("check", &[]).expect(0);
    room.run("compact", &[]).expect(0);
    let copy = room.path("copy").display().to_string();
    room.run("backup", &[&copy]).expect(0);
    room.run("backup", &[&copy]).expect(2);
    room.run("delete", &["ev", "5"]).expect(0);
    let run = esker(&["get", &copy, "ev", "5"]).expect(0);
    assert_eq!(run.ids(), [5]);
    esker(&["check", &copy]).expect(0);
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let room = Room::new();
    let file = room.write("many.ndjson", events(0..20_000));
    room.run("load", &["ev", &file, "--key", "id:int"])
        .expect(0);
    let mut child = command(&["scan", &room.store(), "ev"]).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn the_demo_shows_each_operation() {
    let room = Room::new();
    let store = room.store();
    let run = esker(&["demo", "--records", "3000", "--dir", &store]).expect(0);
    for word in [
        "lookup", "range", "find", "count", "scan", "get", "put", "delete", "memory",
    ] {
        assert!(run.stdout.contains(word), "{word}: {}", run.stdout);
    }
    // One record was put again and deleted.
    assert_eq!(room.run("count", &["tweets"]).expect(0).stdout, "2999\n");
    esker(&["demo", "--records", "10", "--dir", &store]).expect(2);
    esker(&["demo", "--records", "0"]).expect(2);

    let run = esker(&["demo", "--records", "500"]).expect(0);
    let temporary = run
        .stdout
        .lines()
        .find_map(|line| line.strip_prefix("store: "))
        .unwrap();
    assert!(!Path::new(temporary).exists(), "{temporary}");
}

/// Commands that only read work while another process, here this one, has the store open for
/// writing.
#[test]
fn a_store_can_be_queried_while_another_process_writes_it() {
    let room = Room::new();
    let file = room.write("some.ndjson", events(0..50));
    room.run("load", &["ev", &file, "--key", "id:int"])
        .expect(0);
    let db = esker::Database::open(room.path("store"), esker::Options::default()).unwrap();
    let ev = db.dataset::<esker::Key>("ev").unwrap();
    for id in 50..60 {
        let mut batch = ev.batch();
        batch
            .put_json(format!("{{\"id\":{id},\"new\":1}}").as_bytes())
            .unwrap();
        let how = [esker::Durability::Os, esker::Durability::Sync][id % 2];
        batch.durability(how).commit().unwrap();
        let count = format!("{}\n", id + 1);
        assert_eq!(room.run("count", &["ev"]).expect(0).stdout, count);
    }
    db.flush().unwrap();
    assert_eq!(room.run("find", &["ev", "new=1"]).expect(0).ids().len(), 10);
    assert_eq!(room.run("get", &["ev", "55"]).expect(0).ids(), [55]);
    assert_eq!(room.run("scan", &["ev"]).expect(0).ids().len(), 60);
    room.run("stat", &[]).expect(0);
    // There can be only one writer.
    let refused = room.run("delete", &["ev", "1"]).expect(3);
    assert!(
        refused.stderr.contains("open for writing already"),
        "{}",
        refused.stderr
    );
    assert!(refused.stdout.is_empty());
    drop(ev);
    db.close().unwrap();
    room.run("delete", &["ev", "1"]).expect(0);
}

//! Standard input that pauses: the lines so far are committed, so they survive the end of the
//! process.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

use crate::common;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::esker;

/// Much longer than any step of these tests.
const LONG: Duration = Duration::from_secs(60);

/// A command whose input is written while it runs.
struct Fed {
    child: Child,
    dir: PathBuf,
}

impl Fed {
    fn start(dir: &Path, args: &[&str]) -> Fed {
        let child = Command::new(env!("CARGO_BIN_EXE_esker"))
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Fed {
            child,
            dir: dir.to_path_buf(),
        }
    }

    fn feed(&mut self, text: &str) {
        self.feed_bytes(text.as_bytes());
    }

    fn feed_bytes(&mut self, bytes: &[u8]) {
        let input = self.child.stdin.as_mut().unwrap();
        input.write_all(bytes).unwrap();
        input.flush().unwrap();
    }

    /// The number of records that another process counts.
    fn counted(&self) -> String {
        let dir = self.dir.display().to_string();
        esker(&["count", &dir, "d"]).stdout.trim().to_string()
    }

    /// Waits until another process counts this many records.
    fn wait_for(&self, records: u64) {
        let begin = Instant::now();
        let mut counted = String::new();
        while begin.elapsed() < LONG {
            counted = self.counted();
            if counted == records.to_string() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("{counted} records, not {records}");
    }

    /// Waits for a line on standard error.
    fn wait_for_line(&mut self) -> String {
        let errors = self.child.stderr.as_mut().unwrap();
        let mut line = Vec::new();
        while line.last() != Some(&b'\n') {
            let mut byte = [0];
            assert_eq!(errors.read(&mut byte).unwrap(), 1);
            line.extend(byte);
        }
        String::from_utf8(line).unwrap()
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args([name, &pid]).status().unwrap();
        assert!(sent.success());
    }

    /// The exit code (`None` for a process ended by a signal), and standard error.
    fn end(mut self) -> (Option<i32>, String) {
        let mut text = String::new();
        // `wait` would close standard input, which would end the stream.
        let _open = self.child.stdin.take();
        let mut errors = self.child.stderr.take().unwrap();
        let status = self.child.wait().unwrap();
        errors.read_to_string(&mut text).unwrap();
        assert!(status.code().is_some() || status.signal().is_some());
        (status.code(), text)
    }
}

fn lines(ids: std::ops::Range<u64>) -> String {
    ids.map(|id| format!("{{\"id\":{id}}}\n")).collect()
}

#[test]
fn what_a_slow_stream_has_given_is_there_meanwhile_and_after_a_kill() {
    for (verb, args) in [
        ("put", &[][..]),
        ("load", &["-", "--key", "id:int"][..]),
        // The type is inferred from the records so far.
        ("load", &["-", "--key", "id"]),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let store = dir.path().join("store");
        let s = store.display().to_string();
        if verb == "put" {
            esker(&["create", &s, "d", "--key", "id:int"]).expect(0);
        }
        let mut fed = Fed::start(&store, &[&[verb, &s, "d"], args].concat());
        fed.feed(&lines(0..5));
        fed.wait_for(5);
        // An incomplete line is not lost.
        fed.feed("{\"id\":");
        fed.feed("5}\n");
        fed.wait_for(6);
        fed.signal("-KILL");
        assert_eq!(fed.end().0, None);
        let counted = esker(&["count", &s, "d"]).expect(0);
        assert_eq!(counted.stdout.trim(), "6", "{verb} {args:?}");
        esker(&["check", &s]).expect(0);
    }
}

#[test]
pub(crate) fn rows_of_a_slow_stream_are_there_meanwhile() {
    for (key, end) in [("id:int", "\n"), ("id", "\n"), ("id", "\r\n")] {
        let dir = tempfile::tempdir().unwrap();
        let store = dir.path().join("store");
        let s = store.display().to_string();
        let args = ["load", &s, "d", "-", "--format", "csv", "--key", key];
        let mut fed = Fed::start(&store, &args);
        let row = |text: &str| format!("{text}{end}");
        fed.feed(&row("id,name"));
        fed.feed(&row("1,a"));
        fed.feed(&[row("2,b"), row("3,\"c\nd\""), "4,".to_string()].concat());
        fed.wait_for(3);
        fed.feed(&row("e"));
        fed.wait_for(4);
        fed.feed(&row("x,y"));
        fed.feed(&row("5,f"));
        fed.wait_for(5);
        fed.signal("-INT");
        let (code, errors) = fed.end();
        assert_eq!(code, Some(130), "{errors}");
        assert!(
            errors.contains("interrupted behind what begins on line 8 of standard input: 5 records are stored; continue behind the row that begins on line 8, with the row of the names before the rest"),
            "{errors}"
        );
        assert!(errors.contains("5 records loaded, 1 rejected"), "{errors}");
        esker(&["check", &s]).expect(0);
    }
}

/// A compressor that is flushed now and then.
trait Compressor: Write {
    fn taken(&mut self) -> Vec<u8>;
}

impl Compressor for flate2::write::GzEncoder<Vec<u8>> {
    fn taken(&mut self) -> Vec<u8> {
        std::mem::take(self.get_mut())
    }
}

impl Compressor for zstd::stream::write::Encoder<'_, Vec<u8>> {
    fn taken(&mut self) -> Vec<u8> {
        std::mem::take(self.get_mut())
    }
}

fn compressors() -> Vec<Box<dyn Compressor>> {
    let gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let zstd = zstd::stream::write::Encoder::new(Vec::new(), 3).unwrap();
    vec![Box::new(gzip), Box::new(zstd)]
}

#[test]
fn what_a_slow_compressed_stream_has_given_is_there_meanwhile() {
    for (verb, args) in [
        ("put", &[][..]),
        ("load", &["-", "--key", "id"][..]),
        ("load", &["-", "--key", "id", "--format", "csv"]),
    ] {
        for mut compressor in compressors() {
            let dir = tempfile::tempdir().unwrap();
            let store = dir.path().join("store");
            let s = store.display().to_string();
            if verb == "put" {
                esker(&["create", &s, "d", "--key", "id:int"]).expect(0);
            }
            let mut fed = Fed::start(&store, &[&[verb, &s, "d"], args].concat());
            let text = |ids: std::ops::Range<u64>| {
                if args.contains(&"csv") {
                    ids.map(|id| format!("{id},x\n")).collect()
                } else {
                    lines(ids)
                }
            };
            if args.contains(&"csv") {
                compressor.write_all(b"id,name\n").unwrap();
            }
            for (from, to) in [(0, 5), (5, 6), (6, 2000), (2000, 2003)] {
                compressor.write_all(text(from..to).as_bytes()).unwrap();
                compressor.flush().unwrap();
                fed.feed_bytes(&compressor.taken());
                fed.wait_for(to);
            }
            fed.signal("-KILL");
            fed.end();
            let counted = esker(&["count", &s, "d"]).expect(0);
            assert_eq!(counted.stdout.trim(), "2003", "{verb} {args:?}");
        }
    }
}

#[test]
fn a_stream_that_never_pauses_for_long_is_stored_meanwhile() {
    for (verb, args) in [("put", &[][..]), ("load", &["-", "--key", "id"][..])] {
        let dir = tempfile::tempdir().unwrap();
        let store = dir.path().join("store");
        let s = store.display().to_string();
        if verb == "put" {
            esker(&["create", &s, "d", "--key", "id:int"]).expect(0);
        }
        let mut fed = Fed::start(&store, &[&[verb, &s, "d"], args].concat());
        // Fewer lines than a batch.
        let mut fed_lines = 0;
        while fed_lines < 900 {
            fed.feed(&lines(fed_lines..fed_lines + 1));
            fed_lines += 1;
            std::thread::sleep(Duration::from_millis(10));
            if fed_lines % 100 == 0 && !["", "0"].contains(&fed.counted().as_str()) {
                break;
            }
        }
        assert!(fed_lines < 900, "{verb}: nothing is stored");
        fed.wait_for(fed_lines);
        fed.signal("-KILL");
        fed.end();
    }
}

#[test]
pub(crate) fn keys_that_a_slow_stream_gives_are_deleted_meanwhile() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    let s = store.display().to_string();
    esker(&["create", &s, "d", "--key", "id:int"]).expect(0);
    let mut put = Fed::start(&store, &["put", &s, "d"]);
    put.feed(&lines(0..10));
    put.wait_for(10);
    put.signal("-KILL");
    put.end();
    let mut delete = Fed::start(&store, &["delete", &s, "d", "-"]);
    // Fewer bytes than are needed to detect the compression.
    delete.feed("3\n");
    delete.wait_for(9);
    delete.feed("4\n");
    delete.wait_for(8);
    delete.signal("-INT");
    let (code, errors) = delete.end();
    assert_eq!(code, Some(130), "{errors}");
    assert!(errors.contains("deleted 2 records"), "{errors}");
}

#[test]
fn a_signal_ends_in_good_order_and_says_how_to_continue() {
    for (signal, code) in [("-INT", 130), ("-TERM", 143)] {
        let dir = tempfile::tempdir().unwrap();
        let store = dir.path().join("store");
        let s = store.display().to_string();
        let mut fed = Fed::start(&store, &["load", &s, "d", "-", "--key", "id:int"]);
        fed.feed(&lines(0..3));
        fed.wait_for(3);
        fed.signal(signal);
        let (ended, errors) = fed.end();
        assert_eq!(ended, Some(code), "{errors}");
        assert!(
            errors.contains("interrupted after line 3 of standard input: 3 records are stored; continue with line 4"),
            "{errors}"
        );
        let mut fed = Fed::start(&store, &["put", &s, "d"]);
        fed.feed(&lines(3..5));
        fed.wait_for(5);
        fed.signal(signal);
        let (ended, errors) = fed.end();
        assert_eq!(ended, Some(code), "{errors}");
        assert!(errors.contains("up to line 2"), "{errors}");
    }
}

/// Waits until a subscriber in another process sees this many publications.
fn wait_for_publications(store: &str, count: usize) {
    let begin = Instant::now();
    let mut seen = 0;
    while begin.elapsed() < LONG {
        let found = esker(&["subscribe", store, "a"]);
        seen = found.stdout.lines().count();
        if seen == count {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("{seen} publications, not {count}");
}

#[test]
fn a_publisher_stores_what_has_come_and_ends_in_good_order() {
    for (signal, code) in [("-INT", Some(130)), ("-TERM", Some(143)), ("-KILL", None)] {
        let dir = tempfile::tempdir().unwrap();
        let store = dir.path().join("store");
        let s = store.display().to_string();
        let mut fed = Fed::start(&store, &["publish", &s, "a/b"]);
        fed.feed(&lines(0..3));
        wait_for_publications(&s, 3);
        // Bad lines are reported and do not delay others.
        fed.feed("\nnot JSON\n{\"id\":");
        fed.feed("3}\n");
        wait_for_publications(&s, 4);
        fed.signal(signal);
        let (ended, errors) = fed.end();
        assert_eq!(ended, code, "{errors}");
        assert!(errors.contains("line 5: not valid JSON"), "{errors}");
        let said = [
            "published 4 to a/b, for 0 subscriptions",
            "interrupted: everything up to line 6 was published or reported; continue with the next line",
        ];
        for said in said.iter().filter(|_| code.is_some()) {
            assert!(errors.contains(said), "{errors}");
        }
        wait_for_publications(&s, 4);
        esker(&["check", &s]).expect(0);
    }
}

#[test]
fn lines_that_cannot_be_published_are_reported_and_the_others_are_published() {
    let dir = tempfile::tempdir().unwrap();
    let s = dir.path().join("store").display().to_string();
    let lines = "{\"lon\":10,\"lat\":53}\n{\"lon\":10}\n{\"lon\":1000,\"lat\":0}\n{}x\n{\"lon\":11,\"lat\":53}";
    let args = ["publish", &s, "a", "--position", "lon,lat"];
    let run = common::esker_fed(&args, dir.path(), |stdin| {
        stdin.write_all(lines.as_bytes()).unwrap();
    });
    let errors = run.expect(2).stderr;
    for said in [
        "line 2: there is no number at `lat`",
        "line 3: ",
        "line 4: not valid JSON",
        "published 2 to a, for 0 subscriptions",
        "3 lines were not published",
    ] {
        assert!(errors.contains(said), "{errors}");
    }
    wait_for_publications(&s, 2);
}

#[test]
fn a_signal_before_the_types_are_known_ends_in_good_order_too() {
    for (signal, code) in [("-INT", 130), ("-TERM", 143)] {
        let dir = tempfile::tempdir().unwrap();
        let store = dir.path().join("store");
        let s = store.display().to_string();
        let args = ["load", &s, "d", "-", "--key", "id", "--index", "later:lazy"];
        let mut fed = Fed::start(&store, &args);
        let line = fed.wait_for_line();
        assert!(line.contains("cannot be read again"), "{line}");
        // No record shows the type of `later`.
        fed.feed(&lines(0..3));
        fed.signal(signal);
        let (ended, errors) = fed.end();
        assert_eq!(ended, Some(code), "{errors}");
        assert!(errors.contains("nothing is stored"), "{errors}");
        assert!(!store.exists());
    }
}

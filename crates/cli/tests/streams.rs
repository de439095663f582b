//! Standard input that pauses: what has come is stored meanwhile, whatever happens to the process then.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

mod common;

use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::esker;

/// Far more than anything here takes.
const LONG: Duration = Duration::from_secs(60);

/// A command that is fed while it runs.
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
        let input = self.child.stdin.as_mut().unwrap();
        input.write_all(text.as_bytes()).unwrap();
        input.flush().unwrap();
    }

    /// Waits until another process counts so many records.
    fn wait_for(&self, records: u64) {
        let (dir, begin) = (self.dir.display().to_string(), Instant::now());
        let mut counted = String::new();
        while begin.elapsed() < LONG {
            counted = esker(&["count", &dir, "d"]).stdout.trim().to_string();
            if counted == records.to_string() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("{counted} records, not {records}");
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args([name, &pid]).status().unwrap();
        assert!(sent.success());
    }

    /// The exit code, or `None` of a process that a signal ended, and standard error.
    fn end(mut self) -> (Option<i32>, String) {
        let mut text = String::new();
        // Waiting would close it, and the stream would have an end.
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
        // The type is told from the records that have come.
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
        // A line that is not whole yet is not lost.
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
fn keys_that_a_slow_stream_gives_are_deleted_meanwhile() {
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
    delete.feed("3\n4\n");
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

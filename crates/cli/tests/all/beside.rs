//! Commands beside another process that has the store open for writing; this process is the writer.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used
)]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use crate::common::esker;
use esker::{Database, DatasetDef, KeyType, Options};

#[test]
fn a_backup_and_a_check_beside_a_writer_are_of_all_that_is_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    let (s, copy) = (store.display().to_string(), dir.path().join("copy"));
    let db = Database::create_or_open(&store, Options::default()).unwrap();
    let data = db
        .create_dataset::<u64>("d", DatasetDef::new("id", KeyType::Int))
        .unwrap();
    for id in 0..20 {
        data.put_json(format!("{{\"id\":{id}}}")).unwrap();
        if id == 9 {
            db.flush().unwrap();
        }
    }
    let checked = esker(&["check", &s]).expect(0);
    assert!(checked.stdout.contains("sound"), "{}", checked.stdout);
    esker(&["backup", &s, &copy.display().to_string()]).expect(0);
    // The copy does not have later writes.
    data.put_json(r#"{"id":20}"#).unwrap();
    let counted = esker(&["count", &copy.display().to_string(), "d"]).expect(0);
    assert_eq!(counted.stdout.trim(), "20");
    esker(&["check", &copy.display().to_string()]).expect(0);
    // A copy is an independent store.
    let own = Database::open(&copy, Options::default()).unwrap();
    let own = own.dataset::<u64>("d").unwrap();
    own.put_json(r#"{"id":77}"#).unwrap();
    assert_eq!(own.query().count().unwrap(), 21);
    assert_eq!(data.query().count().unwrap(), 21);
    assert!(data.get(77).unwrap().is_none());
}

/// Starts a following process, and returns its lines as they arrive.
fn follow(args: &[&str]) -> (Child, mpsc::Receiver<String>) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_esker"))
        .args(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            let _ = send.send(line);
        }
    });
    (child, receive)
}

fn end(mut child: Child, signal: &str) -> Option<i32> {
    let pid = child.id().to_string();
    let sent = Command::new("kill").args([signal, &pid]).status().unwrap();
    assert!(sent.success());
    child.wait().unwrap().code()
}

const WAIT: Duration = Duration::from_secs(60);

/// A consumer beside a writer in another process: it reports its registration, follows, ends in
/// good order on a signal, and can be used by one process at a time. A backup has the consumer and
/// the changes it has not read, and `stat` shows its backlog.
#[test]
fn a_consumer_beside_a_writer() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    let (s, copy) = (store.display().to_string(), dir.path().join("copy"));
    let copy = copy.display().to_string();
    let db = Database::create_or_open(&store, Options::default()).unwrap();
    let def = || DatasetDef::new("id", KeyType::Int);
    let data = db.create_dataset::<u64>("d", def()).unwrap();
    let put = |id: u64| {
        data.put_json(format!("{{\"id\":{id}}}")).unwrap();
        db.flush().unwrap();
    };
    put(0);
    let call = ["changes", &s, "d", "--consumer", "mailer"];
    let made = esker(&call).expect(0);
    assert!(made.stderr.contains("`mailer` is new"), "{}", made.stderr);
    esker(&call).expect(1);
    put(1);
    put(2);

    let unread = esker(&["stat", &s]).expect(0).stdout;
    assert!(unread.contains("consumer mailer: at most"), "{unread}");
    assert!(unread.contains("the oldest change"), "{unread}");
    let keys = |printed: &str| -> Vec<String> {
        let keys = printed
            .lines()
            .map(|line| line.split(r#""key":"#).nth(1).unwrap());
        keys.map(|key| key.split(',').next().unwrap().to_string())
            .collect()
    };
    esker(&["backup", &s, &copy]).expect(0);
    put(3);
    let of_copy = ["changes", &copy, "d", "--consumer", "mailer"];
    assert_eq!(keys(&esker(&of_copy).expect(0).stdout), ["1", "2"]);
    esker(&of_copy).expect(1);
    assert_eq!(keys(&esker(&call).expect(0).stdout), ["1", "2", "3"]);
    let read = esker(&["stat", &s, "d"]).expect(0).stdout;
    assert!(
        read.contains("consumer mailer: has read everything"),
        "{read}"
    );

    let following = [&call[..], &["--follow"]].concat();
    for (signal, code) in [("-TERM", Some(143)), ("-INT", Some(130))] {
        let (child, lines) = follow(&following);
        put(4);
        assert_eq!(keys(&lines.recv_timeout(WAIT).unwrap()), ["4"]);
        let twice = esker(&call).expect(3);
        assert!(twice.stderr.contains("in use already"), "{}", twice.stderr);
        esker(&[&call[..], &["--forget"]].concat()).expect(3);
        assert_eq!(end(child, signal), code);
        esker(&call).expect(1);
    }
    // After a kill it may receive some changes again, but it misses none.
    let (child, lines) = follow(&following);
    put(5);
    assert_eq!(keys(&lines.recv_timeout(WAIT).unwrap()), ["5"]);
    assert_eq!(end(child, "-KILL"), None);
    put(6);
    let rest = keys(&esker(&call).expect(0).stdout);
    assert!(rest == ["6"] || rest == ["5", "6"], "{rest:?}");
    esker(&[&call[..], &["--forget"]].concat()).expect(0);
    assert!(!esker(&["stat", &s]).expect(0).stdout.contains("mailer"));
}

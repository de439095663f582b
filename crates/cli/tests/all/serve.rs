//! `esker serve` as a process: it starts, ends on signals, and loses nothing when it is killed.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::common::{command, esker, esker_fed};

/// A server that is killed at the end.
struct Serving {
    child: Child,
    url: String,
    /// What it says behind its first line.
    log: Option<JoinHandle<String>>,
}

impl Serving {
    fn start(dir: &std::path::Path) -> Serving {
        Serving::with(dir, &[])
    }

    fn with(dir: &std::path::Path, args: &[&str]) -> Serving {
        let serve = ["serve", dir.to_str().unwrap(), "--listen", "127.0.0.1:0"];
        let mut child = command(&[&serve, args].concat())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        // Of a text or of a JSON document.
        let url = line.trim().split(" at ").nth(1);
        let url = url.and_then(|url| url.split('"').next());
        let url = url.unwrap_or_else(|| panic!("{line}")).to_string();
        // The log is read to its end, so that the server does not wait for its reader.
        let log = std::thread::spawn(move || {
            let mut log = Vec::new();
            said.read_to_end(&mut log).unwrap();
            String::from_utf8(log).unwrap()
        });
        let log = Some(log);
        Serving { child, url, log }
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id() as i32).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Waits for its end; the exit code, if it was no signal.
    fn end(&mut self) -> Option<i32> {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(
                begin.elapsed() < Duration::from_secs(120),
                "it does not end"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn put(&self, dataset: &str, record: &str, key: u64) -> Result<u16, ureq::Error> {
        let url = format!("{}/v1/datasets/{dataset}/records/{key}", self.url);
        let agent: ureq::Agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .build()
            .into();
        Ok(agent.put(url).send(record)?.status().as_u16())
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn created(dir: &std::path::Path) {
    let dir = dir.to_str().unwrap();
    esker(&[
        "create",
        dir,
        "visits",
        "--key",
        "id:int",
        "--index",
        "n:recent:int",
    ])
    .expect(0);
}

#[test]
fn a_log_that_no_terminal_shows_has_no_colours() {
    let dir = tempfile::tempdir().unwrap();
    let mut serving = Serving::start(&dir.path().join("db"));
    serving.signal(Signal::TERM);
    assert_eq!(serving.end(), Some(143));
    let log = serving.log.take().unwrap().join().unwrap();
    assert!(log.contains("INFO") && log.contains("ends"), "{log}");
    assert!(!log.contains('\u{1b}'), "{log:?}");
}

#[test]
fn a_log_as_json_has_a_document_a_line() {
    let dir = tempfile::tempdir().unwrap();
    let (db, settings) = (dir.path().join("db"), dir.path().join("esker.toml"));
    std::fs::write(&settings, "[log]\nformat = \"json\"\nrequests = true\n").unwrap();
    created(&db);
    let mut serving = Serving::with(&db, &["--config", settings.to_str().unwrap()]);
    assert_eq!(serving.put("visits", "{\"id\":7,\"n\":1}", 7).unwrap(), 201);
    assert_eq!(serving.put("nothing", "{}", 7).unwrap(), 404);
    serving.signal(Signal::TERM);
    assert_eq!(serving.end(), Some(143));
    let log = serving.log.take().unwrap().join().unwrap();
    let lines = log.lines().map(|line| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(
            line["timestamp"].is_string() && line["level"] == "INFO",
            "{line}"
        );
        line
    });
    let lines: Vec<_> = lines.collect();
    let requests = lines.iter().filter(|line| line["target"] == "requests");
    let requests: Vec<_> = requests
        .map(|line| {
            (
                line["method"].clone(),
                line["path"].clone(),
                line["status"].clone(),
            )
        })
        .collect();
    let put = "/v1/datasets/visits/records/7";
    let asked = ("PUT".into(), put.into(), 201.into());
    assert_eq!(requests.first(), Some(&asked), "{log}");
    assert_eq!(requests.len(), 2);
    let notes = log.contains("without tokens: every program");
    assert!(notes, "{log}");
    let ends = |line: &serde_json::Value| {
        line["message"]
            .as_str()
            .is_some_and(|text| text.contains("ends"))
    };
    assert!(lines.iter().any(ends), "{log}");
}

#[test]
fn what_a_killed_server_acknowledged_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("db");
    created(&db);
    let acknowledged = Mutex::new(Vec::new());
    for round in 0..3 {
        let mut serving = Serving::start(&db);
        let ends = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for client in 0..4_u64 {
                let (serving, ends, acknowledged) = (&serving, &ends, &acknowledged);
                scope.spawn(move || {
                    for n in 0.. {
                        let id = round * 1_000_000 + client * 100_000 + n;
                        let record = format!("{{\"id\":{id},\"n\":{}}}", n % 10);
                        match serving.put("visits", &record, id) {
                            Ok(201) => acknowledged.lock().unwrap().push(id),
                            _ if ends.load(Ordering::SeqCst) => return,
                            other => panic!("{other:?}"),
                        }
                    }
                });
            }
            let begin = acknowledged.lock().unwrap().len();
            while acknowledged.lock().unwrap().len() < begin + 200 {
                std::thread::yield_now();
            }
            ends.store(true, Ordering::SeqCst);
            serving.signal(Signal::KILL);
        });
        assert_eq!(serving.end(), None);
    }
    let db = db.to_str().unwrap();
    let mut found = esker(&["scan", db, "visits"]).expect(0).ids();
    found.sort_unstable();
    for id in acknowledged.into_inner().unwrap() {
        assert!(
            found.binary_search(&(id as i64)).is_ok(),
            "{id} was acknowledged"
        );
    }
    esker(&["check", db]).expect(0);
}

#[test]
fn a_signal_ends_a_server_and_closes_its_store() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("db");
    created(&db);
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let mut serving = Serving::start(&db);
        let put = serving.put("visits", "{\"id\":1,\"n\":1}", 1).unwrap();
        assert!([201, 204].contains(&put), "{put}");
        // Commands that read work beside the server; one that writes says why it cannot.
        let at = db.to_str().unwrap();
        assert_eq!(esker(&["find", at, "visits", "n = 1"]).expect(0).ids(), [1]);
        esker(&["delete", at, "visits", "1"]).expect(3);
        serving.signal(signal);
        assert_eq!(serving.end(), Some(code));
    }
}

#[test]
fn settings_that_are_not_valid_are_refused_with_their_line() {
    let dir = tempfile::tempdir().unwrap();
    let settings = dir.path().join("esker.toml");
    std::fs::write(&settings, "listen = \"127.0.0.1:0\"\n[limits]\nrow = 5\n").unwrap();
    let db = dir.path().join("db");
    let args = [
        "serve",
        db.to_str().unwrap(),
        "--config",
        settings.to_str().unwrap(),
    ];
    let refused = esker(&args).expect(2);
    assert!(
        refused.stderr.contains("row") && refused.stderr.contains("line 3"),
        "{}",
        refused.stderr
    );
    let open = esker(&["serve", db.to_str().unwrap(), "--listen", "0.0.0.0:0"]).expect(2);
    assert!(open.stderr.contains("esker token"), "{}", open.stderr);
    assert!(!db.exists());
}

#[test]
fn a_token_is_printed_once_and_its_hash_belongs_into_the_settings() {
    let made = esker(&[
        "token",
        "collector",
        "--role",
        "write",
        "--dataset",
        "tmp-*",
    ])
    .expect(0);
    assert!(
        made.stdout
            .contains("role = \"write\"\ndatasets = [\"tmp-*\"]"),
        "{}",
        made.stdout
    );
    let token = made.stderr.trim().rsplit(' ').next().unwrap().to_string();
    assert_eq!(token.len(), 64);
    assert!(!made.stdout.contains(&token));
}

#[test]
fn a_user_has_the_hash_of_a_password() {
    let args = [
        "token", "ann", "--user", "--role", "write", "--topic", "road",
    ];
    let dir = tempfile::tempdir().unwrap();
    let made = esker_fed(&args, dir.path(), |input: &mut dyn std::io::Write| {
        let _ = input.write_all(b"secret\n");
    });
    let made = made.expect(0);
    assert!(
        made.stdout
            .starts_with("[[users]]\nname = \"ann\"\npassword = \"$argon2id$"),
        "{}",
        made.stdout
    );
    assert!(
        !made.stdout.contains("secret") && made.stderr.is_empty(),
        "{}",
        made.stderr
    );
}

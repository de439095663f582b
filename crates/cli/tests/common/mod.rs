//! Runs the `esker` binary as a user would.

// Each test binary uses only a part of this module.
#![allow(dead_code)]

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Run {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Run {
    /// The records on standard output.
    pub(crate) fn rows(&self) -> Vec<Value> {
        self.stdout
            .lines()
            .map(|line| serde_json::from_str(line).expect(line))
            .collect()
    }

    /// The integer keys of the records on standard output.
    pub(crate) fn ids(&self) -> Vec<i64> {
        self.rows()
            .iter()
            .map(|row| row["id"].as_i64().expect("an integer id"))
            .collect()
    }

    /// Asserts the exit code, and that no thread panicked.
    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> Self {
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
        assert_eq!(
            self.code, code,
            "stdout: {}\nstderr: {}",
            self.stdout, self.stderr
        );
        self
    }
}

thread_local! {
    /// True while the commands of this thread work on the plain store in memory.
    static PLAIN: Cell<bool> = const { Cell::new(false) };
}

/// Runs a test with the plain store instead of the embedded one: the same commands must print the
/// same.
pub(crate) fn with_plain_store(test: impl FnOnce()) {
    PLAIN.set(true);
    test();
    PLAIN.set(false);
}

thread_local! {
    /// The servers of the folders that the commands of this thread work on, if they work on served
    /// stores.
    static SERVERS: RefCell<Option<HashMap<OsString, Server>>> = const { RefCell::new(None) };
}

/// Runs a test with served stores in place of folders: the same commands must print the same.
#[cfg(feature = "server")]
pub(crate) fn with_served_stores(test: impl FnOnce()) {
    SERVERS.set(Some(HashMap::new()));
    test();
    SERVERS.set(None);
}

/// `esker serve` of a folder; ends when it is dropped.
pub(crate) struct Server {
    child: Child,
    /// Where it serves.
    pub url: String,
}

impl Server {
    /// Serves a folder, with further arguments.
    pub(crate) fn start(folder: &OsStr, args: &[&str]) -> Server {
        let mut child = Command::new(env!("CARGO_BIN_EXE_esker"))
            .arg("serve")
            .arg(folder)
            .args(["--listen", "127.0.0.1:0"])
            .args(args)
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let stderr = child.stderr.take().expect("a pipe");
        let mut lines = BufReader::new(stderr).lines().map_while(Result::ok);
        let url = lines
            .by_ref()
            .find_map(|line| {
                line.split_once(" at http")
                    .map(|(_, rest)| format!("http{rest}"))
            })
            .expect("the server starts");
        // What it says later must not fill the pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Server { child, url }
    }

    /// Ends the server at once.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("a process");
        self.child.wait().expect("a process");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The address of the server of a folder, which is started if there is none.
fn served(folder: &OsStr) -> Option<OsString> {
    SERVERS.with_borrow_mut(|servers| {
        let servers = servers.as_mut()?;
        let server = servers
            .entry(folder.to_os_string())
            .or_insert_with(|| Server::start(folder, &[]));
        Some(OsString::from(server.url.clone()))
    })
}

/// The arguments; with the plain store, the store's folder is replaced by the address of a file,
/// with served stores by that of a server.
fn addressed<S: AsRef<OsStr>>(args: &[S]) -> Vec<OsString> {
    let mut args: Vec<OsString> = args.iter().map(|arg| arg.as_ref().to_os_string()).collect();
    if PLAIN.get()
        && let Some(store) = args
            .get_mut(1)
            .filter(|arg| !arg.as_encoded_bytes().starts_with(b"-"))
    {
        let mut address = OsString::from("plain:");
        address.push(&*store);
        *store = address;
    }
    // `index` has a command of its own before the store.
    let at = match args.first() {
        Some(command) if command == "index" => 2,
        _ => 1,
    };
    if let Some(store) = args
        .get_mut(at)
        .filter(|arg| !arg.as_encoded_bytes().starts_with(b"-"))
        && let Some(address) = served(store)
    {
        *store = address;
    }
    args
}

/// The binary with arguments.
pub(crate) fn command<S: AsRef<OsStr>>(args: &[S]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_esker"));
    command
        .args(addressed(args))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Runs the binary.
pub(crate) fn esker<S: AsRef<OsStr>>(args: &[S]) -> Run {
    finish(command(args).output().expect("the binary runs"))
}

/// Runs the binary in a folder, while `feed` writes its standard input.
pub(crate) fn esker_fed<S: AsRef<OsStr>>(
    args: &[S],
    folder: &Path,
    feed: impl FnOnce(&mut dyn Write) + Send,
) -> Run {
    let mut command = command(args);
    let mut child = command
        .current_dir(folder)
        .stdin(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut stdin = child.stdin.take().expect("a pipe");
    std::thread::scope(|scope| {
        scope.spawn(move || feed(&mut stdin));
        finish(child.wait_with_output().expect("the binary ends"))
    })
}

fn finish(output: std::process::Output) -> Run {
    Run {
        code: output.status.code().expect("an exit code"),
        stdout: String::from_utf8(output.stdout).expect("UTF-8"),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// The real data, and the answers that other software computed for it (`truth.json`): from the
/// folder that `ESKER_DATA` names, which must exist, or from `../shared/data` beside the
/// repository. If that one does not exist, notes on standard error that the test is skipped. An
/// unreadable folder is a failure.
pub(crate) fn real_data(what: &str) -> Option<(PathBuf, Value)> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let named = std::env::var_os("ESKER_DATA").map(PathBuf::from);
    if named.is_none() && !beside.exists() {
        // Written directly, because the test harness would capture it.
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED, NOTHING WAS TESTED: {what}: {} is absent (ESKER_DATA names another folder)",
            beside.display()
        );
        return None;
    }
    let folder = named.unwrap_or(beside);
    let text = std::fs::read_to_string(folder.join("truth.json")).expect("truth.json");
    Some((folder, serde_json::from_str(&text).expect("truth.json")))
}

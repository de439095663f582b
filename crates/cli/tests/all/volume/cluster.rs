//! Clusters of three nodes as processes.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use esker_volume::nbd::Client;
use serde_json::Value;

use crate::common::{Run, command, esker};

/// The longest wait for anything. No result depends on how fast it comes.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn skipped(what: &str, why: &str) {
    // Written directly, because the test harness would capture it.
    let _ = writeln!(
        std::io::stderr(),
        "SKIPPED, NOTHING WAS TESTED: {what}: {why}"
    );
}

/// True where a program can be run.
pub(super) fn has(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok()
}

/// Waits until `is` holds.
#[track_caller]
pub(super) fn until(what: &str, mut is: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is() {
        assert!(Instant::now() < end, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Addresses on loopback with free ports, below those that the kernel gives to outgoing
/// connections: a node that connects to a node that is not up yet could otherwise get that node's
/// port.
pub(super) fn free(count: usize) -> Vec<SocketAddr> {
    let bind = || TcpListener::bind((Ipv4Addr::LOCALHOST, fastrand::u16(20_000..32_000))).ok();
    let held: Vec<TcpListener> = std::iter::repeat_with(bind).flatten().take(count).collect();
    held.iter().map(|one| one.local_addr().unwrap()).collect()
}

/// A process, which ends with this value at the latest.
pub(super) struct Process(Child);

impl Process {
    pub(super) fn start(command: &mut Command) -> Process {
        Process(command.stdin(Stdio::null()).spawn().unwrap())
    }

    pub(super) fn id(&self) -> u32 {
        self.0.id()
    }

    fn signal(&self, signal: &str) {
        let mut command = Command::new("kill");
        command.arg(signal).arg(self.0.id().to_string());
        assert!(command.status().unwrap().success());
    }

    /// Waits until it has ended by itself. The second value is what it wrote to a piped standard
    /// error: little.
    #[track_caller]
    pub(super) fn ended(mut self) -> (ExitStatus, String) {
        let mut status = None;
        until("the process ends", || {
            status = self.0.try_wait().unwrap();
            status.is_some()
        });
        let mut said = String::new();
        if let Some(stderr) = &mut self.0.stderr {
            stderr.read_to_string(&mut said).unwrap();
        }
        (status.unwrap(), said)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Three nodes.
pub(super) struct Cluster {
    pub(super) folder: tempfile::TempDir,
    pub(super) listen: Vec<SocketAddr>,
    pub(super) nbd: Vec<SocketAddr>,
    pub(super) processes: Vec<Option<Process>>,
    /// Arguments of nodes and of commands: certificates.
    pub(super) security: Vec<String>,
}

impl Cluster {
    pub(super) fn new() -> Cluster {
        Cluster::with(&[])
    }

    pub(super) fn with(security: &[String]) -> Cluster {
        let mut cluster = Cluster::idle(security);
        (1..=3).for_each(|node| cluster.start(node));
        cluster
    }

    /// The cluster before its nodes are started.
    pub(super) fn idle(security: &[String]) -> Cluster {
        let addresses = free(6);
        Cluster {
            folder: tempfile::tempdir().unwrap(),
            listen: addresses[..3].to_vec(),
            nbd: addresses[3..].to_vec(),
            processes: vec![None, None, None],
            security: security.to_vec(),
        }
    }

    pub(super) fn peers(&self) -> String {
        let peer = |(node, address)| format!("{node}={address}");
        let peers: Vec<String> = (1..).zip(&self.listen).map(peer).collect::<Vec<String>>();
        peers.join(",")
    }

    pub(super) fn dir(&self, node: usize) -> PathBuf {
        self.folder.path().join(format!("node{node}"))
    }

    pub(super) fn address(&self, node: usize) -> String {
        self.listen[node - 1].to_string()
    }

    /// The arguments that start a node.
    pub(super) fn arguments(&self, node: usize) -> Vec<String> {
        let words = [
            "volume".to_string(),
            "node".to_string(),
            format!("--dir={}", self.dir(node).display()),
            format!("--id={node}"),
            format!("--listen={}", self.listen[node - 1]),
            format!("--peers={}", self.peers()),
            format!("--nbd={}", self.nbd[node - 1]),
        ];
        words.into_iter().chain(self.security.clone()).collect()
    }

    pub(super) fn start(&mut self, node: usize) {
        self.start_by(node, command(&self.arguments(node)));
    }

    /// Starts a node by a command of one's own.
    pub(super) fn start_by(&mut self, node: usize, mut command: Command) {
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.folder.path().join(format!("node{node}.log")))
            .unwrap();
        command.stdout(Stdio::null()).stderr(log);
        self.processes[node - 1] = Some(Process::start(&mut command));
    }

    pub(super) fn process(&self, node: usize) -> &Process {
        self.processes[node - 1].as_ref().unwrap()
    }

    /// Kills a node with SIGKILL.
    pub(super) fn kill(&mut self, node: usize) {
        self.processes[node - 1].take().unwrap();
    }

    /// Stops a node with SIGSTOP, until `go_on`.
    pub(super) fn pause(&self, node: usize) {
        self.process(node).signal("-STOP");
    }

    /// Lets a stopped node go on.
    pub(super) fn go_on(&self, node: usize) {
        self.process(node).signal("-CONT");
    }

    /// Ends a node with SIGTERM, and returns its exit code.
    pub(super) fn end(&mut self, node: usize) -> Option<i32> {
        let process = self.processes[node - 1].take().unwrap();
        process.signal("-TERM");
        process.ended().0.code()
    }

    /// `esker volume ARGUMENTS --node NODE`
    pub(super) fn ask(&self, node: usize, arguments: &[&str]) -> Run {
        let mut all = vec!["volume".to_string()];
        all.extend(arguments.iter().map(|argument| argument.to_string()));
        all.extend(["--node".to_string(), self.address(node)]);
        all.extend(self.security.clone());
        esker(&all)
    }

    /// Creates a volume as soon as the nodes listen.
    #[track_caller]
    pub(super) fn create(&self, name: &str, size: &str) {
        until("a node listens", || self.ask(1, &["list"]).code != 3);
        self.ask(1, &["create", name, "--size", size]).expect(0);
    }

    pub(super) fn status(&self, node: usize) -> Value {
        let run = self.ask(node, &["status", "--json"]).expect(0);
        serde_json::from_str(&run.stdout).unwrap()
    }

    pub(super) fn connect(&self, node: usize, name: &str) -> Client {
        let mut connected = None;
        until("a node serves the volume", || {
            let address = self.nbd[node - 1];
            connected = Client::connect_within(address, name, Some(PATIENCE)).ok();
            connected.is_some()
        });
        connected.unwrap()
    }

    /// The node that leads most groups, once each has a leader.
    pub(super) fn leader(&self, asked: usize) -> usize {
        let mut leader = 0;
        until("every group has a leader", || {
            let status = self.status(asked);
            let groups = status["groups"].as_array().unwrap();
            let leads = |node: &usize| {
                let leads = groups.iter().filter(|group| group["leader"] == *node);
                leads.count()
            };
            leader = (1..=3).max_by_key(leads).unwrap();
            !groups.is_empty() && groups.iter().all(|group| !group["leader"].is_null())
        });
        leader
    }

    /// Waits until a node has applied what any node has.
    pub(super) fn catch_up(&self, node: usize) {
        let applied = |node| {
            let status = self.status(node);
            let groups = status["groups"].as_array().unwrap().clone();
            let applied = groups
                .iter()
                .map(|group| group["applied"].as_u64().unwrap());
            applied.collect::<Vec<u64>>()
        };
        until("the node listens", || self.ask(node, &["status"]).code == 0);
        let runs = |node: &usize| self.processes[node - 1].is_some();
        for other in (1..=3).filter(runs) {
            let goal = applied(other);
            until("the node catches up", || {
                let now = applied(node);
                now.len() == goal.len() && now.iter().zip(&goal).all(|(now, goal)| now >= goal)
            });
        }
    }
}

//! A cluster of three nodes: processes of `esker volume node` on loopback.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use esker_volume::admin::Status;
use esker_volume::client::Client;
use esker_volume::nbd;
use esker_volume::net::Security;
use rustix::process::{Pid, Signal, kill_process};

use super::proc;
use crate::failure::{Failure, Result};

/// How long anything of a cluster may take before it counts as broken.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// The volume's name.
pub const VOLUME: &str = "disk";

/// How the nodes are started.
#[derive(Debug, Clone, Default)]
pub struct Setup {
    /// How many groups; the default of the node if none.
    pub groups: Option<u16>,
    /// Vacuum below this share of live bytes, in percent.
    pub live_percent: Option<u8>,
    /// Vacuum and images without a limit of their rate.
    pub is_unthrottled: bool,
}

/// Three nodes, each in a folder of its own.
pub struct Cluster {
    esker: PathBuf,
    dir: PathBuf,
    setup: Setup,
    listen: Vec<String>,
    nbd: Vec<String>,
    nodes: Vec<Option<Child>>,
}

/// Addresses on loopback that are free now.
pub fn free(count: usize) -> Result<Vec<String>> {
    let listeners = (0..count).map(|_| TcpListener::bind("127.0.0.1:0"));
    let listeners = listeners.collect::<std::io::Result<Vec<_>>>()?;
    let addresses = listeners.iter().map(|l| Ok(l.local_addr()?.to_string()));
    addresses.collect()
}

impl Cluster {
    /// Starts three nodes below `dir`, and creates a volume.
    pub fn start(esker: &Path, dir: &Path, setup: Setup, size: u64) -> Result<Cluster> {
        let addresses = free(6)?;
        let (listen, nbd) = addresses.split_at(3);
        let mut cluster = Cluster {
            esker: esker.to_path_buf(),
            dir: dir.to_path_buf(),
            setup,
            listen: listen.to_vec(),
            nbd: nbd.to_vec(),
            nodes: vec![None, None, None],
        };
        (0..3).try_for_each(|node| cluster.start_node(node))?;
        let end = Instant::now() + PATIENCE;
        let size = size.to_string();
        while !cluster.ask(0, &["create", VOLUME, "--size", &size])? {
            pause_until(end, "no volume could be created")?;
        }
        cluster.settle()?;
        Ok(cluster)
    }

    /// Starts a node that does not run.
    pub fn start_node(&mut self, node: usize) -> Result<()> {
        let peers: Vec<String> = (1..)
            .zip(&self.listen)
            .map(|(id, at)| format!("{id}={at}"))
            .collect();
        let (Some(listen), Some(nbd)) = (self.listen.get(node), self.nbd.get(node)) else {
            return Err(Failure::new("there are three nodes"));
        };
        let mut command = Command::new(&self.esker);
        command
            .args(["volume", "node", "--id", &(node + 1).to_string()])
            .arg("--dir")
            .arg(self.folder(node))
            .args([
                "--listen",
                listen,
                "--nbd",
                nbd,
                "--peers",
                &peers.join(","),
            ]);
        if let Some(groups) = self.setup.groups {
            command.args(["--groups", &groups.to_string()]);
        }
        if let Some(percent) = self.setup.live_percent {
            command.args(["--live-percent", &percent.to_string()]);
        }
        if self.setup.is_unthrottled {
            command.args(["--background", "1T"]);
        }
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let child = child.map_err(|error| {
            Failure::from(error).context(format!("{}: cannot be started", self.esker.display()))
        })?;
        if let Some(place) = self.nodes.get_mut(node) {
            *place = Some(child);
        }
        Ok(())
    }

    /// A node's folder.
    pub fn folder(&self, node: usize) -> PathBuf {
        self.dir.join(format!("node{}", node + 1))
    }

    /// Where a node serves NBD.
    pub fn nbd(&self, node: usize) -> &str {
        self.nbd.get(node).map_or("", String::as_str)
    }

    /// Where a node listens.
    pub fn listen(&self, node: usize) -> &str {
        self.listen.get(node).map_or("", String::as_str)
    }

    /// A connection to the volume at a node.
    pub fn connect(&self, node: usize) -> Result<nbd::Client> {
        let end = Instant::now() + PATIENCE;
        loop {
            match nbd::Client::connect_within(self.nbd(node), VOLUME, Some(PATIENCE)) {
                Ok(client) => return Ok(client),
                Err(error) => pause_until(end, &error.to_string())?,
            }
        }
    }

    /// A client of the cluster that asks this node first.
    pub fn client(&self, node: usize) -> Result<Client> {
        let wait = Duration::from_secs(10);
        Ok(Client::connect(self.listen(node), Security::Plain, wait)?)
    }

    /// Runs `esker volume` with these words and `--node`; true where it succeeded.
    pub fn ask(&self, node: usize, words: &[&str]) -> Result<bool> {
        let mut command = Command::new(&self.esker);
        command
            .arg("volume")
            .args(words)
            .args(["--node", self.listen(node)]);
        let status = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()?;
        Ok(status.success())
    }

    /// How a node is.
    pub fn status(&self, node: usize) -> Result<Status> {
        Ok(self.client(node)?.status()?)
    }

    /// Waits until each group has a leader, that every running node has applied everything, and
    /// leaders are spread. Returns the statuses of the running nodes.
    pub fn settle(&self) -> Result<Vec<Status>> {
        self.agree(true)
    }

    /// As [`Cluster::settle`], wherever the leaders are.
    pub fn catch_up(&self) -> Result<Vec<Status>> {
        self.agree(false)
    }

    fn agree(&self, is_spread: bool) -> Result<Vec<Status>> {
        let end = Instant::now() + PATIENCE;
        loop {
            let running = (0..3).filter(|node| self.pid(*node).is_some());
            let all: Result<Vec<Status>> = running.map(|node| self.status(node)).collect();
            match all {
                Ok(all) if is_settled(&all, is_spread) => return Ok(all),
                Ok(_) => pause_until(end, "the nodes do not come to agree")?,
                Err(error) => pause_until(end, &error.to_string())?,
            }
        }
    }

    /// The node that leads the group of the volume's first bytes, and one that does not.
    pub fn leader(&self) -> Result<(usize, usize)> {
        let all = self.settle()?;
        let groups = all.first().map_or(&[][..], |status| &status.groups);
        let group = groups.iter().find(|group| group.group != 0);
        let leader = group.map_or(0, |group| group.leader).max(1) as usize - 1;
        let other = (0..3).find(|node| *node != leader).unwrap_or(0);
        Ok((leader, other))
    }

    /// The process of a running node.
    pub fn pid(&self, node: usize) -> Option<u32> {
        self.nodes.get(node)?.as_ref().map(Child::id)
    }

    /// The processes that run.
    pub fn pids(&self) -> Vec<u32> {
        (0..3).filter_map(|node| self.pid(node)).collect()
    }

    /// Sends a signal to a node.
    pub fn signal(&self, node: usize, signal: Signal) -> Result<()> {
        let pid = self.pid(node).and_then(|pid| Pid::from_raw(pid as i32));
        let pid = pid.ok_or_else(|| Failure::new("the node does not run"))?;
        Ok(kill_process(pid, signal)?)
    }

    /// Kills a node at once.
    pub fn kill(&mut self, node: usize) -> Result<()> {
        self.signal(node, Signal::KILL)?;
        self.reap(node)
    }

    /// Stops a node in order.
    pub fn stop(&mut self, node: usize) -> Result<()> {
        self.signal(node, Signal::TERM)?;
        self.reap(node)
    }

    fn reap(&mut self, node: usize) -> Result<()> {
        if let Some(mut child) = self.nodes.get_mut(node).and_then(Option::take) {
            child.wait()?;
        }
        Ok(())
    }

    /// Bytes that the nodes passed to write calls for segments and map, and bytes of users' data
    /// that they took, each of all nodes; then, once they have stopped in order, what the map wrote
    /// on closing is added.
    pub fn stop_and_count(mut self) -> Result<(f64, f64)> {
        let all = self.settle()?;
        let mut written: u64 = all.iter().map(|s| s.written + s.map_written).sum();
        let user: u64 = all.iter().map(|s| s.user).sum();
        for node in 0..3 {
            let map = self.folder(node).join("map");
            let before = proc::folder_bytes(&map);
            self.stop(node)?;
            written += proc::folder_bytes(&map).saturating_sub(before);
        }
        Ok((written as f64, user as f64))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for child in self.nodes.iter_mut().flatten() {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn is_settled(all: &[Status], must_be_spread: bool) -> bool {
    let Some(first) = all.first() else {
        return false;
    };
    let mut leaders = [0_u32; 3];
    for group in &first.groups {
        let of = |status: &Status| {
            status
                .groups
                .iter()
                .find(|g| g.group == group.group)
                .cloned()
        };
        let same: Vec<_> = all.iter().filter_map(of).collect();
        let furthest = same.iter().map(|g| g.last).max();
        let agrees = |other: &esker_volume::admin::GroupStatus| {
            other.leader == group.leader && Some(other.applied) == furthest
        };
        if same.len() != all.len() || group.leader == 0 || !same.iter().all(agrees) {
            return false;
        }
        if let Some(count) = leaders.get_mut(group.leader as usize - 1) {
            *count += 1;
        }
    }
    let (most, least) = (leaders.iter().max(), leaders.iter().min());
    let is_spread = match (most, least) {
        (Some(most), Some(least)) => most - least <= 1 || first.groups.len() < 3,
        _ => false,
    };
    !first.groups.is_empty() && (is_spread || !must_be_spread || all.len() < 3)
}

/// Waits a little; fails with this once the time is over.
pub fn pause_until(end: Instant, what: &str) -> Result<()> {
    if Instant::now() >= end {
        return Err(Failure::new(what));
    }
    std::thread::sleep(Duration::from_millis(20));
    Ok(())
}

//! Three nodes as child processes on loopback, for the demo.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use esker_volume::admin::Status;
use esker_volume::client::Client;
use esker_volume::net::Security;

use crate::failure::Failure;

/// Nodes of the demo's cluster.
pub(super) const NODES: u32 = 3;

/// A node: its addresses, and its process while it runs.
struct Place {
    listen: SocketAddr,
    nbd: SocketAddr,
    child: Option<Child>,
}

/// The nodes. Dropping them ends their processes.
pub(super) struct Processes {
    folder: PathBuf,
    places: Vec<Place>,
}

impl Processes {
    /// Starts the nodes 1, 2 and 3, with folders `node1` and so on in `folder`.
    pub(super) fn start(folder: &Path) -> Result<Processes, Failure> {
        let mut processes = Processes {
            folder: folder.to_path_buf(),
            places: free_places()?,
        };
        for node in 1..=NODES {
            processes.spawn(node)?;
        }
        Ok(processes)
    }

    fn place(&self, node: u32) -> Result<&Place, Failure> {
        let place = self.places.get((node as usize).wrapping_sub(1));
        place.ok_or_else(|| Failure::Store(format!("the demo has no node {node}")))
    }

    /// Where a node listens for nodes and clients.
    pub(super) fn address(&self, node: u32) -> Result<String, Failure> {
        Ok(self.place(node)?.listen.to_string())
    }

    /// Where a node serves NBD.
    pub(super) fn nbd(&self, node: u32) -> Result<SocketAddr, Failure> {
        Ok(self.place(node)?.nbd)
    }

    /// The nodes whose processes run.
    pub(super) fn running(&self) -> Vec<u32> {
        let runs = |node: &u32| {
            let place = self.place(*node);
            place.is_ok_and(|place| place.child.is_some())
        };
        (1..=NODES).filter(runs).collect()
    }

    /// The arguments of a node's process.
    fn arguments(&self, node: u32) -> Result<Vec<String>, Failure> {
        let peers: Vec<String> = (1..)
            .zip(&self.places)
            .map(|(id, place)| format!("{id}={}", place.listen))
            .collect();
        let place = self.place(node)?;
        let folder = self.folder.join(format!("node{node}"));
        let arguments = [
            ("--dir", folder.display().to_string()),
            ("--id", node.to_string()),
            ("--listen", place.listen.to_string()),
            ("--peers", peers.join(",")),
            ("--nbd", place.nbd.to_string()),
        ];
        let words = ["volume", "node"].map(str::to_string).into_iter();
        let options = arguments
            .into_iter()
            .flat_map(|(name, value)| [name.to_string(), value]);
        Ok(words.chain(options).collect())
    }

    /// Starts a node's process; its messages go to `nodeN.log`.
    pub(super) fn spawn(&mut self, node: u32) -> Result<(), Failure> {
        let failed = |error| Failure::Store(format!("cannot start node {node}: {error}"));
        let arguments = self.arguments(node)?;
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log(node))
            .map_err(failed)?;
        let program = std::env::current_exe().map_err(failed)?;
        let child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(failed)?;
        if let Some(place) = self.places.get_mut((node as usize).wrapping_sub(1)) {
            place.child = Some(child);
        }
        Ok(())
    }

    fn log(&self, node: u32) -> PathBuf {
        self.folder.join(format!("node{node}.log"))
    }

    /// Kills a node's process with SIGKILL.
    pub(super) fn kill(&mut self, node: u32) -> Result<(), Failure> {
        let place = self.places.get_mut((node as usize).wrapping_sub(1));
        let Some(mut child) = place.and_then(|place| place.child.take()) else {
            return Ok(());
        };
        child
            .kill()
            .and_then(|()| child.wait())
            .map(drop)
            .map_err(|error| Failure::Store(format!("cannot kill node {node}: {error}")))
    }

    /// Fails if a process that should run has ended, with the end of its log.
    pub(super) fn check(&mut self) -> Result<(), Failure> {
        for (node, place) in (1..).zip(&mut self.places) {
            let ended = place.child.as_mut().and_then(|child| child.try_wait().ok());
            if let Some(Some(status)) = ended {
                let log = self.folder.join(format!("node{node}.log"));
                let text = std::fs::read_to_string(log).unwrap_or_default();
                let last = text.lines().last().unwrap_or("its log is empty");
                return Err(Failure::Store(format!("node {node}: {status}: {last}")));
            }
        }
        Ok(())
    }

    /// The status of a node; none if it does not answer.
    pub(super) fn status(&self, node: u32) -> Option<Status> {
        let address = self.address(node).ok()?;
        let mut client = Client::connect(&address, Security::Plain, Duration::ZERO).ok()?;
        client.status().ok()
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for child in self
            .places
            .iter_mut()
            .filter_map(|place| place.child.as_mut())
        {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

/// Addresses with free ports. Another program may take one before the node listens on it; the node
/// then fails with a message.
fn free_places() -> Result<Vec<Place>, Failure> {
    let failed = |error| Failure::Store(format!("no free port on loopback: {error}"));
    let bind = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    // All are held until all are found, so that no two are the same.
    let mut held = Vec::new();
    let mut places = Vec::new();
    for _ in 0..NODES {
        let (listen, nbd) = (bind().map_err(failed)?, bind().map_err(failed)?);
        places.push(Place {
            listen: listen.local_addr().map_err(failed)?,
            nbd: nbd.local_addr().map_err(failed)?,
            child: None,
        });
        held.push((listen, nbd));
    }
    Ok(places)
}

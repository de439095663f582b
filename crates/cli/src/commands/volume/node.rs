//! `esker volume node`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use esker_volume::ids::NodeId;
use esker_volume::node::{Node, NodeOptions, Settings};
use serde::Deserialize;

use crate::args::{NodeArgs, TlsArgs};
use crate::failure::{Failure, Outcome};
use crate::interrupt::Interrupt;

/// The number of groups, where nothing is said.
const GROUPS: u16 = 8;
/// How long requests over NBD wait, in seconds, where nothing is said.
const WAIT: u64 = 30;
/// The least memory of a node, in bytes.
const LEAST_MEMORY: usize = 32 << 20;

/// The settings file.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Config {
    dir: Option<PathBuf>,
    id: Option<u32>,
    listen: Option<String>,
    peers: BTreeMap<String, String>,
    nbd: Option<String>,
    groups: Option<i64>,
    wait: Option<i64>,
    budget: Option<String>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    ca: Option<PathBuf>,
}

fn read_config(path: &std::path::Path) -> Result<Config, Failure> {
    let shown = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::Usage(format!("{shown}: {error}")))?;
    toml::from_str(&text).map_err(|error| Failure::Usage(format!("{shown}: {error}")))
}

/// A setting of the file, checked as the option of its name.
fn setting<T>(
    name: &str,
    text: Option<impl ToString>,
    parse: fn(&str) -> Result<T, String>,
) -> Result<Option<T>, Failure> {
    let value = text.map(|text| parse(&text.to_string())).transpose();
    value.map_err(|error| Failure::Usage(format!("the setting {name}: {error}")))
}

fn missing(what: &str) -> Failure {
    Failure::Usage(format!(
        "the node needs {what}: as an option or in the settings file"
    ))
}

/// `1=HOST:PORT` and so on.
fn parse_peers(peers: &[String]) -> Result<BTreeMap<NodeId, String>, Failure> {
    let mut all = BTreeMap::new();
    for peer in peers {
        let parsed = peer.split_once('=').and_then(|(id, address)| {
            let id = id.trim().parse().ok().filter(|id| *id > 0)?;
            Some((NodeId(id), address.trim().to_string()))
        });
        let Some((id, address)) = parsed else {
            return Err(Failure::Usage(format!("{peer}: a peer is ID=HOST:PORT")));
        };
        if all.insert(id, address).is_some() {
            return Err(Failure::Usage(format!(
                "node {id} is named twice in --peers"
            )));
        }
    }
    Ok(all)
}

/// Begins the program anew with few arenas of the allocator, where nothing is said of them. Threads
/// free in one arena what another one asks for in its own: with glibc's default of eight for each
/// core, a node needs up to twice the memory that it uses. The allocator reads the setting when a
/// process begins, and only then.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn with_few_arenas() {
    use std::os::unix::process::CommandExt as _;
    const SETTING: &str = "MALLOC_ARENA_MAX";
    if std::env::var_os(SETTING).is_some() {
        return;
    }
    if let Ok(program) = std::env::current_exe() {
        let mut anew = std::process::Command::new(program);
        anew.args(std::env::args_os().skip(1)).env(SETTING, "2");
        // It returns where it fails: then the node needs more memory.
        drop(anew.exec());
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn with_few_arenas() {}

/// Runs a node until a signal ends it.
pub(super) fn node(args: &NodeArgs) -> Result<Outcome, Failure> {
    with_few_arenas();
    let config = match &args.config {
        Some(path) => read_config(path)?,
        None => Config::default(),
    };
    let id = args
        .id
        .or(config.id)
        .filter(|id| *id > 0)
        .ok_or_else(|| missing("--id (from 1)"))?;
    let dir = args
        .dir
        .clone()
        .or(config.dir)
        .ok_or_else(|| missing("--dir"))?;
    let listen = args
        .listen
        .clone()
        .or(config.listen)
        .ok_or_else(|| missing("--listen"))?;
    let written: Vec<String> = config
        .peers
        .iter()
        .map(|(id, address)| format!("{id}={address}"))
        .collect();
    let peers = parse_peers(if args.peers.is_empty() {
        &written
    } else {
        &args.peers
    })?;
    if !peers.contains_key(&NodeId(id)) {
        return Err(Failure::Usage(format!(
            "--peers does not name this node, {id}"
        )));
    }
    let tls = TlsArgs {
        cert: args.tls.cert.clone().or(config.cert),
        key: args.tls.key.clone().or(config.key),
        ca: args.tls.ca.clone().or(config.ca),
    };
    let wait = setting("wait", config.wait, crate::args::wait)?;
    let wait = args.wait.or(wait).unwrap_or(WAIT);
    let groups = setting("groups", config.groups, crate::args::groups)?;
    let groups = args.groups.or(groups).unwrap_or(GROUPS);
    let written = setting("budget", config.budget, crate::args::size)?;
    let memory = args
        .budget
        .or(written)
        .unwrap_or(esker_volume::node::MEMORY);
    if memory < LEAST_MEMORY {
        return Err(Failure::Usage("the budget is at least 32M".to_string()));
    }
    let default = Settings::default().within(memory);
    let background = args.background.map(|bytes| bytes as u64);
    let settings = Settings {
        peers,
        cluster_identity: fastrand::u64(1..),
        groups,
        seed: fastrand::u64(..),
        live_percent: args.live_percent.unwrap_or(default.live_percent),
        background_bytes: background.unwrap_or(default.background_bytes),
        ..default
    };
    std::fs::create_dir_all(&dir)
        .map_err(|error| Failure::Store(format!("{}: {error}", dir.display())))?;
    let interrupt = Interrupt::watch()?;
    let options = NodeOptions {
        dir,
        fs: Arc::new(esker_volume::disk()),
        node: NodeId(id),
        listen,
        nbd: args.nbd.clone().or(config.nbd),
        security: super::link::security(&tls)?,
        wait: wait.saturating_mul(1000),
        settings,
    };
    let node = Node::start(options).map_err(|error| Failure::Store(error.to_string()))?;
    let nbd = node
        .nbd_address()
        .map_or(String::new(), |address| format!(", NBD at {address}"));
    crate::output::note(format_args!("node {id} listens at {}{nbd}", node.address()));
    while interrupt.signal().is_none() && !node.has_failed() {
        std::thread::sleep(Duration::from_millis(50));
    }
    let has_failed = node.has_failed();
    node.stop();
    if has_failed {
        let text = "the node failed by an error in it; start it again";
        return Err(Failure::Store(text.to_string()));
    }
    Ok(Outcome::Done)
}

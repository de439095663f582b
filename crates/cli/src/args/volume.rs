//! The arguments of `esker volume`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::values::size;

/// The most groups of a cluster.
const MOST_GROUPS: u16 = 64;
/// The longest wait, in seconds: a year.
const MOST_WAIT: u64 = 365 * 24 * 60 * 60;

/// Examples of `esker volume`.
pub(super) const VOLUME_HELP: &str = "Examples:
  esker volume node --dir d1 --id 1 --listen 127.0.0.1:7101 \\
    --peers 1=127.0.0.1:7101,2=127.0.0.1:7102,3=127.0.0.1:7103 --nbd 127.0.0.1:10801
  esker volume create disk --size 10G --node 127.0.0.1:7101
  esker volume status --node 127.0.0.1:7101";

#[derive(Args)]
pub(crate) struct VolumeArgs {
    #[command(subcommand)]
    pub(crate) command: VolumeCommand,
}

#[derive(Subcommand)]
pub(crate) enum VolumeCommand {
    /// Run a node: serve its part of all volumes, until SIGTERM or SIGINT
    Node(Box<NodeArgs>),
    /// Create a volume; nothing changes where there is one of the same size
    Create(CreateVolumeArgs),
    /// List the volumes and their snapshots
    List(AskArgs),
    /// Show how a node and its groups are
    Status(StatusArgs),
    /// Make a snapshot of a volume; it is read as NAME@SNAPSHOT
    Snapshot(SnapshotVolumeArgs),
    /// Create a volume with the blocks of a snapshot, sharing them
    Clone(CloneArgs),
    /// Make a volume larger
    Grow(GrowArgs),
    /// Give a volume another name
    Rename(RenameVolumeArgs),
    /// Delete a volume with its snapshots, or one snapshot (NAME@SNAPSHOT)
    Delete(DeleteVolumeArgs),
    /// Print where a node has the blocks of a volume
    Map(MapArgs),
    /// Add, remove or replace a member of the cluster
    Member(MemberArgs),
    /// Check every block of a node, and heal damaged ones from other nodes
    Scrub(AskArgs),
}

/// Which node is asked.
#[derive(Args)]
pub(crate) struct AskArgs {
    /// A node of the cluster: where it listens
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) node: String,
    /// How long to wait for a leader, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = wait)]
    pub(crate) wait: u64,
    #[command(flatten)]
    pub(crate) tls: TlsArgs,
}

/// The number of groups of a cluster.
pub(crate) fn groups(text: &str) -> Result<u16, String> {
    let groups = text.parse().ok();
    let groups = groups.filter(|groups| (1..=MOST_GROUPS).contains(groups));
    groups.ok_or_else(|| format!("expected a number from 1 to {MOST_GROUPS}"))
}

/// A time to wait, in seconds.
pub(crate) fn wait(text: &str) -> Result<u64, String> {
    let seconds = text.parse().ok().filter(|seconds| *seconds <= MOST_WAIT);
    seconds.ok_or_else(|| format!("expected a number of seconds up to {MOST_WAIT}, a year"))
}

/// Certificates, as PEM files.
#[derive(Args, Clone, Default)]
pub(crate) struct TlsArgs {
    /// The certificate to show, with those between it and the authority
    #[arg(long, value_name = "FILE", requires_all = ["key", "ca"])]
    pub(crate) cert: Option<PathBuf>,
    /// The certificate's key
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(crate) key: Option<PathBuf>,
    /// The authority whose certificates are accepted
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(crate) ca: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct NodeArgs {
    /// Read these settings from a file: dir, id, listen, peers, nbd, cert, key, ca, groups, wait
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The node's folder
    #[arg(long, required_unless_present = "config")]
    pub(crate) dir: Option<PathBuf>,
    /// The node's number, from 1
    #[arg(long, required_unless_present = "config")]
    pub(crate) id: Option<u32>,
    /// Where to listen for other nodes, and for clients
    #[arg(long, value_name = "HOST:PORT", required_unless_present = "config")]
    pub(crate) listen: Option<String>,
    /// All nodes that form the cluster, this one included
    #[arg(
        long,
        value_name = "ID=HOST:PORT,...",
        value_delimiter = ',',
        required_unless_present = "config"
    )]
    pub(crate) peers: Vec<String>,
    /// Where to serve NBD
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) nbd: Option<String>,
    /// How many groups share the blocks, where this node forms the cluster [default: 8]
    #[arg(long, value_name = "N", value_parser = groups)]
    pub(crate) groups: Option<u16>,
    /// How long requests over NBD wait through a fail-over, in seconds [default: 30]
    #[arg(long, value_name = "SECONDS", value_parser = wait)]
    pub(crate) wait: Option<u64>,
    /// Vacuum while less than this share of the segments' bytes is live, in percent
    #[arg(long, value_name = "PERCENT", hide = true, value_parser = clap::value_parser!(u8).range(1..=95))]
    pub(crate) live_percent: Option<u8>,
    /// Bytes a second that vacuum, scrub and images may each move
    #[arg(long, value_name = "BYTES", hide = true, value_parser = size)]
    pub(crate) background: Option<usize>,
    /// Memory of the node: the map, requests in flight, the log, frames to nodes [default: 256M]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) budget: Option<usize>,
    #[command(flatten)]
    pub(crate) tls: TlsArgs,
}

#[derive(Args)]
pub(crate) struct CreateVolumeArgs {
    /// The volume's name: letters, digits, `.`, `_` and `-`
    pub(crate) name: String,
    /// Its size: bytes, or with a unit, as in 10G (GiB)
    #[arg(long, value_parser = size)]
    pub(crate) size: usize,
    /// Bytes of a block: a power of two from 512 to 65536
    #[arg(long, value_name = "BYTES", default_value_t = 4096)]
    pub(crate) block_size: u32,
    #[command(flatten)]
    pub(crate) ask: AskArgs,
}

#[derive(Args)]
pub(crate) struct StatusArgs {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) ask: AskArgs,
}

#[derive(Args)]
pub(crate) struct SnapshotVolumeArgs {
    /// The volume's name
    pub(crate) name: String,
    /// The snapshot's name
    pub(crate) snapshot: String,
    #[command(flatten)]
    pub(crate) ask: AskArgs,
}

#[derive(Args)]
pub(crate) struct CloneArgs {
    /// The snapshot
    #[arg(value_name = "NAME@SNAPSHOT")]
    pub(crate) from: String,
    /// The new volume's name
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) ask: AskArgs,
}

#[derive(Args)]
pub(crate) struct GrowArgs {
    /// The volume's name
    pub(crate) name: String,
    /// Its new size
    #[arg(long, value_parser = size)]
    pub(crate) size: usize,
    #[command(flatten)]
    pub(crate) ask: AskArgs,
}

#[derive(Args)]
pub(crate) struct RenameVolumeArgs {
    /// The volume's name
    pub(crate) from: String,
    /// Its new name
    pub(crate) to: String,
    #[command(flatten)]
    pub(crate) ask: AskArgs,
}

#[derive(Args)]
pub(crate) struct DeleteVolumeArgs {
    /// The volume, or the snapshot
    #[arg(value_name = "NAME[@SNAPSHOT]")]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) ask: AskArgs,
}

#[derive(Args)]
pub(crate) struct MapArgs {
    /// The volume, or the snapshot
    #[arg(value_name = "NAME[@SNAPSHOT]")]
    pub(crate) name: String,
    /// The first block
    #[arg(long, default_value_t = 0)]
    pub(crate) first: u64,
    /// How many blocks
    #[arg(long, default_value_t = 1024)]
    pub(crate) count: u32,
    #[command(flatten)]
    pub(crate) ask: AskArgs,
}

#[derive(Args)]
pub(crate) struct MemberArgs {
    #[command(subcommand)]
    pub(crate) change: MemberCommand,
}

#[derive(Subcommand)]
pub(crate) enum MemberCommand {
    /// Add a node, which must be running with an empty folder
    Add(MemberAddArgs),
    /// Remove a node
    Remove(MemberRemoveArgs),
    /// Make a node with a new disk a member in place of its old disk
    Replace(MemberAddArgs),
}

#[derive(Args)]
pub(crate) struct MemberAddArgs {
    /// The node's number
    pub(crate) id: u32,
    /// Where it listens
    #[arg(value_name = "HOST:PORT")]
    pub(crate) address: String,
    #[command(flatten)]
    pub(crate) ask: AskArgs,
}

#[derive(Args)]
pub(crate) struct MemberRemoveArgs {
    /// The node's number
    pub(crate) id: u32,
    #[command(flatten)]
    pub(crate) ask: AskArgs,
}

#[derive(Args)]
pub(crate) struct DemoVolumeArgs {
    /// The volume's size
    #[arg(long, value_parser = size, default_value = "256M")]
    pub(crate) size: usize,
    /// Keep the nodes here, in a directory that is new or empty [default: a temporary one]
    #[arg(long)]
    pub(crate) dir: Option<PathBuf>,
}

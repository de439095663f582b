//! The arguments of `serve` and `token`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

pub(super) const SERVE_HELP: &str = "\
Other commands that only read work on DIR while it is served; those that write take the server's address in its place.
Without tokens in the settings, only addresses of this machine are served. The interface is described at /v1/openapi.json.

On SIGTERM or SIGINT the server accepts nothing more, lets requests end, and closes the store; a second signal ends it at
once.

Examples:
  esker serve db
  curl -X PUT localhost:7700/v1/datasets/visits -H 'content-type: application/json' \\
       -d '{\"key\": \"id:int\", \"indexes\": [\"user:recent:string\"]}'
  curl -X POST localhost:7700/v1/datasets/visits/records --data-binary @visits.ndjson
  curl -G localhost:7700/v1/datasets/visits/records --data-urlencode 'where=user = ann' -d limit=10
  curl -N localhost:7700/v1/datasets/visits/changes
  esker find http://localhost:7700 visits 'user = ann'
  esker serve db --config /etc/esker.toml --listen 0.0.0.0:7700";

pub(super) const TOKEN_HELP: &str = "\
Prints the token on standard error, once, and on standard output what belongs into the settings of the server, which has
only the token's hash. A client sends it as `Authorization: Bearer TOKEN`.

Examples:
  esker token collector --role write --dataset visits --dataset 'tmp-*' >> esker.toml
  esker token dashboard --role read >> esker.toml
  esker token ann --user --role write --topic road >> esker.toml < password";

#[derive(Args)]
pub(crate) struct ServeArgs {
    /// The store's directory; it is created if it does not exist
    pub(crate) dir: PathBuf,
    /// A file of settings (TOML): tokens, limits, TLS
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Where HTTP is served [default: 127.0.0.1:7700]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<SocketAddr>,
    /// Where MQTT is served [default: not at all]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) mqtt: Option<SocketAddr>,
    /// Where MQTT is served over TLS, with the certificate of the settings [default: not at all]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) mqtt_tls: Option<SocketAddr>,
    /// Also serve MQTT as a WebSocket, at /mqtt of the address of HTTP
    #[arg(long)]
    pub(crate) mqtt_websocket: bool,
}

#[derive(Args)]
pub(crate) struct DemoServeArgs {
    /// Keep the store here, in a directory that is new or empty [default: a temporary one]
    pub(crate) dir: Option<PathBuf>,
    /// Where HTTP is served
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7700")]
    pub(crate) listen: SocketAddr,
    /// Where MQTT is served
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:1883")]
    pub(crate) mqtt: SocketAddr,
    /// Updates of vehicles in a second
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rate: u32,
    /// The number of vehicles
    #[arg(long, value_name = "N", default_value_t = 400, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) vehicles: u32,
    /// Another seed gives other movements and incidents
    #[arg(long, value_name = "N", default_value_t = 7)]
    pub(crate) seed: u64,
    /// End after so many seconds [default: on Ctrl-C]
    #[arg(long, value_name = "N")]
    pub(crate) seconds: Option<u64>,
}

/// What a token allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TokenRole {
    /// To read records and publications
    Read,
    /// Also to write records and to publish
    Write,
    /// Also to create and drop datasets, to change indexes, and to do what concerns the store
    Admin,
}

#[derive(Args)]
pub(crate) struct TokenArgs {
    /// The name of the client, for logs; with --user the name of the user
    pub(crate) name: String,
    /// A user of MQTT, whose password is the first line of standard input
    #[arg(long)]
    pub(crate) user: bool,
    /// What the token allows
    #[arg(long, value_enum, default_value_t = TokenRole::Read)]
    pub(crate) role: TokenRole,
    /// A dataset, or the beginning of a name and a star [default: all]
    #[arg(long = "dataset", value_name = "NAME")]
    pub(crate) datasets: Vec<String>,
    /// A topic, with those below it [default: all]
    #[arg(long = "topic", value_name = "TOPIC")]
    pub(crate) topics: Vec<String>,
}

//! Starting and stopping a node.

use std::collections::HashMap;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;

use esker_fs::Fs;
use parking_lot::Mutex;

use super::clock;
use super::exports::Volumes;
use super::service::Service;
use super::work::{Event, Pool, Running, Way, disk, run, way};
use crate::budget::Budget;
use crate::error::{Error, Result};
use crate::ids::NodeId;
use crate::nbd;
use crate::net::{Acceptor, Limits, LinkEvent, LinkOptions, Links, Security, check_listen};
use crate::node::settings::Settings;
use crate::wire::Frame;

/// The largest frame: a message of the protocol, and a client's write.
const MOST_FRAME: usize = 40 << 20;

/// How a node is set up.
pub struct NodeOptions {
    /// Its folder.
    pub dir: PathBuf,
    /// The file system.
    pub fs: Arc<dyn Fs>,
    /// Its number.
    pub node: NodeId,
    /// Where it listens for nodes and clients: `HOST:PORT`.
    pub listen: String,
    /// Where it serves NBD: `HOST:PORT`; nowhere if none.
    pub nbd: Option<String>,
    /// TLS between nodes, and for clients.
    pub security: Security,
    /// How long a request of NBD waits through a fail-over, in milliseconds.
    pub wait: u64,
    /// Settings of the core.
    pub settings: Settings,
}

/// A running node.
pub struct Node {
    pub(super) way: Way,
    links: Arc<Links>,
    acceptor: Acceptor,
    nbd: Option<nbd::Server>,
    nbd_address: Option<std::net::SocketAddr>,
    threads: Vec<JoinHandle<()>>,
    budget: Arc<Budget>,
}

fn io(path: &str, op: &'static str) -> impl Fn(std::io::Error) -> Error {
    let path = PathBuf::from(path);
    move |source| Error::Io {
        path: path.clone(),
        op,
        source: Arc::new(source),
    }
}

fn spawn(name: &str, run: Box<dyn FnOnce() + Send>) -> Result<JoinHandle<()>> {
    let built = std::thread::Builder::new()
        .name(name.to_string())
        .spawn(run);
    built.map_err(io(name, "start a thread"))
}

/// The links to other nodes, of which each queues at most `queue` bytes.
fn connect(security: &Security, queue: usize, way: &Way) -> Links {
    let way = way.clone();
    let hello = move |_| {
        let hello = way.look(|core| core.hello());
        hello
            .map(|hello| Frame::Hello(hello).encode().flat())
            .unwrap_or_default()
    };
    let options = LinkOptions {
        most: MOST_FRAME,
        name: Some(crate::net::node_name),
        queue,
        ..LinkOptions::default()
    };
    // What comes back on a link is nothing: the other side has a link of its own.
    let event = |_, _: LinkEvent| {};
    Links::new(security.clone(), options, hello, event)
}

impl Node {
    /// Opens the folder and starts to serve.
    pub fn start(options: NodeOptions) -> Result<Node> {
        Node::start_within(options, Limits::default())
    }

    /// As [`Node::start`], with these limits of incoming connections, but for lengths of frames.
    pub(super) fn start_within(options: NodeOptions, limits: Limits) -> Result<Node> {
        let limits = Limits {
            most: MOST_FRAME,
            queue: MOST_FRAME + (1 << 20),
            ..limits
        };
        let wanted = crate::net::node_name(options.node.0);
        let named = options.security.check_name(&wanted);
        named.map_err(|error| io("the certificate", "use")(error.into()))?;
        let acceptor = Acceptor::bind(&options.listen, options.security.clone(), limits)
            .map_err(io(&options.listen, "listen"))?;
        let nbd_listener = match &options.nbd {
            Some(address) => {
                let listener = listen(address, &options.security);
                Some(listener.map_err(io(address, "listen"))?)
            }
            None => None,
        };
        let (dir, node) = (&options.dir, options.node);
        let mut settings = options.settings;
        let shares = settings.shares();
        settings.first_life = settings.first_life.max(clock::calendar());
        let core = crate::node::open::open(options.fs, dir, node, settings, clock::now())?;
        let (map, _) = core.readers();
        let way = way();
        let links = Arc::new(connect(&options.security, shares.frames, &way));
        let mut threads = Vec::new();
        let (job_sender, job_receiver) = channel();
        let disk_way = way.clone();
        threads.push(spawn(
            "volume-disk",
            Box::new(move || disk(job_receiver, disk_way)),
        )?);
        let reads = Arc::new(Pool::start(&core, &way, 2).map_err(io("read", "start a thread"))?);
        let enders = Arc::new(Mutex::new(HashMap::new()));
        let running = Running {
            core,
            links: links.clone(),
            enders: enders.clone(),
            disk: job_sender,
            reads,
            next_ticket: 0,
            waiting: HashMap::new(),
            look_at: 0,
            may_keep: false,
            kept: None,
            alone: 0,
        };
        let core_way = way.clone();
        threads.push(spawn(
            "volume-core",
            Box::new(move || run(&core_way, running)),
        )?);
        let next = Arc::new(AtomicU64::new(1));
        let budget = Budget::new(shares.requests);
        let is_tls = matches!(options.security, Security::Tls(_));
        let replies = acceptor.replies();
        let service = Service::new(
            map.clone(),
            way.clone(),
            replies,
            next.clone(),
            enders.clone(),
            is_tls,
            budget.clone(),
        );
        let started = acceptor.start(move |id, event| service.event(id, event));
        started.map_err(io(&options.listen, "listen"))?;
        let nbd_address = nbd_listener
            .as_ref()
            .and_then(|listener| listener.local_addr().ok());
        let nbd = match nbd_listener {
            None => None,
            Some(listener) => {
                let (wait, way) = (options.wait, way.clone());
                let exports = Arc::new(Volumes {
                    map,
                    way,
                    next,
                    wait,
                    enders,
                });
                let tls = upgrade(&options.security);
                let limits = nbd::Limits::default();
                let budget = budget.clone();
                let server = nbd::Server::start_within(listener, exports, limits, tls, budget);
                Some(server.map_err(io("nbd", "listen"))?)
            }
        };
        Ok(Node {
            way,
            links,
            acceptor,
            nbd,
            nbd_address,
            threads,
            budget,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> std::net::SocketAddr {
        self.acceptor.address()
    }

    /// Where it serves NBD.
    pub fn nbd_address(&self) -> Option<std::net::SocketAddr> {
        self.nbd_address
    }

    /// True where the node does nothing any more, by an error in it (a panic, which has been
    /// reported). Its process should stop it and end, so that it is started again: what it has
    /// acknowledged is on its disk.
    pub fn has_failed(&self) -> bool {
        self.way.has_failed()
    }

    /// The memory for requests of users.
    pub fn requests(&self) -> &Budget {
        &self.budget
    }

    /// Ends requests that are under way, closes connections and the map.
    pub fn stop(mut self) {
        if let Some(server) = self.nbd.take() {
            server.stop();
        }
        self.acceptor.stop();
        self.links.stop();
        self.way.send(Event::Stop);
        for thread in self.threads.drain(..).rev() {
            drop(thread.join());
        }
    }
}

/// Listens for NBD; beyond loopback only with TLS.
fn listen(address: &str, security: &Security) -> std::io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    check_listen(listener.local_addr()?, security)?;
    Ok(listener)
}

/// TLS of NBD, by the certificates of the node.
fn upgrade(security: &Security) -> Option<Arc<dyn nbd::Upgrade>> {
    struct Tls(Security);
    impl nbd::Upgrade for Tls {
        fn accept(&self, stream: std::net::TcpStream) -> std::io::Result<nbd::Encrypted> {
            let (read, write, name) = crate::net::upgrade(stream, &self.0)?;
            Ok((Box::new(read), Box::new(write), name))
        }

        fn required(&self) -> bool {
            true
        }
    }
    match security {
        Security::Plain => None,
        security => Some(Arc::new(Tls(security.clone()))),
    }
}

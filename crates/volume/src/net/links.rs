//! Connections to peers. Each peer has a thread that connects, sends what is queued, and connects
//! again when the connection ends; and, while connected, a thread that receives.
//!
//! Frames may be lost: when the queue is full, when a connection ends, and when an attempt to
//! connect fails. So a queue never holds frames that are older than one attempt, however long a
//! peer is away. Lost frames are counted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::connection::{Connection, connect};
use super::error::Error;
use super::frame::{DEFAULT_MOST, Receiver, Sender, Unsent};
use super::halves::Closer;
use super::queue::{Part, Queue};
use super::security::Security;

/// What happens on the connection to a peer. Of one peer they come one after another: connected,
/// frames, disconnected, and again.
#[derive(Debug)]
pub enum LinkEvent {
    /// A connection has been made, and the hello is sent. The peer may refuse it yet.
    Connected,
    /// The peer has sent a frame on the connection.
    Frame(Vec<u8>),
    /// The connection has ended.
    Disconnected,
}

/// Limits of links.
#[derive(Debug, Clone)]
pub struct LinkOptions {
    /// The longest payload of a frame in bytes.
    pub most: usize,
    /// The bytes of frames that wait for all peers; each has an equal share.
    pub queue: usize,
    /// How long an attempt to connect may take.
    pub connect: Duration,
    /// How long sent bytes may wait for the peer to take them; then the connection ends.
    pub stuck: Duration,
    /// How long to wait before the second attempt; doubled for each further one.
    pub backoff: Duration,
    /// The longest wait between attempts.
    pub most_backoff: Duration,
    /// The name that a peer's certificate must have, with TLS; any where there is none.
    pub name: Option<fn(u32) -> String>,
}

impl Default for LinkOptions {
    fn default() -> LinkOptions {
        LinkOptions {
            most: DEFAULT_MOST,
            queue: 32 << 20,
            connect: Duration::from_secs(1),
            // The system repeats in ever longer intervals; after an interruption a new connection
            // is sooner of use than an old one.
            stuck: Duration::from_secs(5),
            backoff: Duration::from_millis(50),
            most_backoff: Duration::from_secs(1),
            name: None,
        }
    }
}

/// Connections to peers that are restored when they end. Dropping it stops them.
pub struct Links {
    common: Arc<Common>,
    peers: Mutex<BTreeMap<u32, Arc<Link>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// What all links have.
struct Common {
    security: Security,
    options: LinkOptions,
    hello: Box<dyn Fn(u32) -> Vec<u8> + Send + Sync>,
    event: Box<dyn Fn(u32, LinkEvent) + Send + Sync>,
}

/// The link to one peer.
struct Link {
    peer: u32,
    state: Mutex<State>,
    changed: Condvar,
    /// The present connection's sender. Locked after `state`, or without it.
    sender: Mutex<Option<Sender>>,
}

struct State {
    /// Where the peer is; `None` while it is none of the peers.
    address: Option<String>,
    queue: Queue,
    dropped: u64,
    /// The present connection.
    connection: Option<Closer>,
    /// What a frame that was sent in part has left.
    rest: Vec<u8>,
    /// The peer's thread is sending.
    is_sending: bool,
    /// The present connection is to be ended, or has ended.
    over: bool,
    stopped: bool,
}

impl Links {
    /// Links to no peers. `hello` makes the first frame of each connection to a peer. `event` is
    /// called by the threads of the peers; while it runs, no more is received from that peer.
    pub fn new(
        security: Security,
        options: LinkOptions,
        hello: impl Fn(u32) -> Vec<u8> + Send + Sync + 'static,
        event: impl Fn(u32, LinkEvent) + Send + Sync + 'static,
    ) -> Links {
        Links {
            common: Arc::new(Common {
                security,
                options,
                hello: Box::new(hello),
                event: Box::new(event),
            }),
            peers: Mutex::new(BTreeMap::new()),
            threads: Mutex::new(Vec::new()),
        }
    }

    /// Connects to these peers, by their addresses `HOST:PORT`, and to no others. Connections to
    /// peers whose address is unchanged stay. Fails where a thread cannot be started.
    pub fn set_peers(&self, addresses: BTreeMap<u32, String>) -> std::io::Result<()> {
        let mut peers = self.peers.lock();
        let most = self.common.options.queue / addresses.len().max(1);
        for (peer, link) in peers.iter() {
            link.set_address(addresses.get(peer), most);
        }
        for (peer, address) in addresses {
            if peers.contains_key(&peer) {
                continue;
            }
            let link = Arc::new(Link::new(peer, address, most));
            let (own, common) = (Arc::clone(&link), Arc::clone(&self.common));
            let name = format!("link-{peer}");
            let thread = std::thread::Builder::new().name(name);
            let thread = thread.spawn(move || own.run(&common))?;
            self.threads.lock().push(thread);
            peers.insert(peer, link);
        }
        Ok(())
    }

    /// Queues a frame for a peer, without waiting. False where it was dropped: the queue is full,
    /// the frame is longer than the limit, or there is no such peer. Also a queued frame may be
    /// lost.
    pub fn send(&self, peer: u32, frame: Vec<Part>) -> bool {
        let link = self.peers.lock().get(&peer).map(Arc::clone);
        link.is_some_and(|link| link.send(frame, self.common.options.most))
    }

    /// The frames for a peer that were lost, as far as this side knows.
    pub fn dropped(&self, peer: u32) -> u64 {
        let link = self.peers.lock().get(&peer).map(Arc::clone);
        link.map_or(0, |link| link.state.lock().dropped)
    }

    /// The peers to which there is a connection.
    pub fn connected(&self) -> Vec<u32> {
        let peers = self.peers.lock();
        let connected = peers.values().filter(|link| {
            let state = link.state.lock();
            state.connection.is_some() && !state.over
        });
        connected.map(|link| link.peer).collect()
    }

    /// Ends all connections and waits for their threads (not for the calling one: `event` may call
    /// it). Attempts to connect are waited for.
    pub fn stop(&self) {
        for link in self.peers.lock().values() {
            let mut state = link.state.lock();
            state.stopped = true;
            state.end();
            link.changed.notify_all();
        }
        let threads = std::mem::take(&mut *self.threads.lock());
        let own = std::thread::current().id();
        for thread in threads.into_iter().filter(|t| t.thread().id() != own) {
            // A panic of `event` has been reported by its thread.
            let _ = thread.join();
        }
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        self.stop();
    }
}

impl State {
    /// Ends the present connection, if there is one.
    fn end(&mut self) {
        self.over = true;
        if let Some(connection) = &self.connection {
            connection.end();
        }
    }

    /// Drops what is queued.
    fn drop_queued(&mut self) {
        self.rest = Vec::new();
        self.dropped += self.queue.clear();
    }
}

impl Link {
    fn new(peer: u32, address: String, most: usize) -> Link {
        Link {
            peer,
            state: Mutex::new(State {
                address: Some(address),
                queue: Queue::new(most),
                dropped: 0,
                connection: None,
                rest: Vec::new(),
                is_sending: false,
                over: false,
                stopped: false,
            }),
            changed: Condvar::new(),
            sender: Mutex::new(None),
        }
    }

    fn set_address(&self, address: Option<&String>, most: usize) {
        let mut state = self.state.lock();
        state.queue.set_most(most);
        if state.address.as_ref() != address {
            state.address = address.cloned();
            state.drop_queued();
            state.end();
            self.changed.notify_all();
        }
    }

    fn send(&self, frame: Vec<Part>, most: usize) -> bool {
        let length: usize = frame.iter().map(|part| part.as_ref().len()).sum();
        let mut state = self.state.lock();
        let fits = length <= most && state.address.is_some() && !state.stopped;
        let frame = if fits {
            self.send_at_once(&mut state, frame)
        } else {
            Some(frame)
        };
        let Some(frame) = frame else { return true };
        let queued = fits && state.queue.push(frame).is_ok();
        if queued {
            self.changed.notify_all();
        } else {
            state.dropped += 1;
        }
        queued
    }

    /// Sends a frame where nothing waits before it and the socket takes it, so that no other thread
    /// has to wake up; returns it where that is not so.
    fn send_at_once(&self, state: &mut State, frame: Vec<Part>) -> Option<Vec<Part>> {
        let is_first = state.queue.is_empty() && state.rest.is_empty() && !state.is_sending;
        if !is_first || state.over || state.connection.is_none() {
            return Some(frame);
        }
        let Some(mut sender) = self.sender.try_lock() else {
            return Some(frame);
        };
        let Some(sender) = &mut *sender else {
            return Some(frame);
        };
        match sender.send_some(frame) {
            Ok(Unsent::Frame(frame)) => return Some(frame),
            Ok(Unsent::Bytes(rest)) if rest.is_empty() => {}
            Ok(Unsent::Bytes(rest)) => {
                state.rest = rest;
                self.changed.notify_all();
            }
            Err(_) => {
                state.dropped += 1;
                state.end();
                self.changed.notify_all();
            }
        }
        None
    }

    /// The thread of the peer.
    fn run(self: Arc<Link>, common: &Arc<Common>) {
        let mut backoff = common.options.backoff;
        while let Some(address) = self.address() {
            let options = &common.options;
            if let Ok(connection) = self.connect(&address, common) {
                let began = Instant::now();
                self.use_connection(connection, common);
                // A peer that accepts and then refuses is not to be asked in a tight loop.
                if began.elapsed() >= options.most_backoff {
                    backoff = options.backoff;
                }
            }
            self.pause(&address, backoff);
            backoff = (backoff * 2).min(options.most_backoff);
        }
    }

    /// Connects to the peer. Another one at its address is refused.
    fn connect(&self, address: &str, common: &Common) -> std::io::Result<Connection> {
        let connection = connect(address, &common.security, common.options.connect)?;
        let is_tls = matches!(common.security, Security::Tls(_));
        let Some(name) = common.options.name.filter(|_| is_tls) else {
            return Ok(connection);
        };
        let wanted = name(self.peer);
        match connection.peer {
            Some(ref found) if *found == wanted => Ok(connection),
            found => Err(Error::OtherName { wanted, found }.into()),
        }
    }

    /// Waits for the peer to have an address; `None` when the links are stopped.
    fn address(&self) -> Option<String> {
        let mut state = self.state.lock();
        loop {
            if state.stopped {
                return None;
            }
            if let Some(address) = state.address.clone() {
                state.over = false;
                return Some(address);
            }
            self.changed.wait(&mut state);
        }
    }

    /// Drops what was queued for the connection that ended or could not be made, and waits, though
    /// not when the peer is elsewhere.
    fn pause(&self, address: &str, backoff: Duration) {
        let end = Instant::now() + backoff;
        let mut state = self.state.lock();
        state.drop_queued();
        while !state.stopped && state.address.as_deref() == Some(address) {
            if self.changed.wait_until(&mut state, end).timed_out() {
                return;
            }
        }
    }

    /// Sends hello and then what is queued, until the connection ends.
    fn use_connection(self: &Arc<Link>, connection: Connection, common: &Arc<Common>) {
        let Connection {
            receive, mut send, ..
        } = connection;
        send.set_most(common.options.most);
        let hello = (common.hello)(self.peer);
        let ready = send.set_stuck_timeout(common.options.stuck);
        if ready.and_then(|()| send.send(&[&hello])).is_err() {
            return;
        }
        {
            let mut state = self.state.lock();
            state.connection = Some(send.closer());
            *self.sender.lock() = Some(send);
            // The address changed, or all is stopped, while it connected.
            if state.over {
                state.end();
            }
        }
        (common.event)(self.peer, LinkEvent::Connected);
        let (own, events) = (Arc::clone(self), Arc::clone(common));
        let name = format!("link-{}-in", self.peer);
        let receiver = std::thread::Builder::new().name(name);
        let receiver = receiver.spawn(move || own.receive(receive, &events));
        if receiver.is_ok() {
            while let Some((rest, frames)) = self.next() {
                let count = frames.len() as u64;
                let mut sender = self.sender.lock();
                let sent = sender.as_mut().is_some_and(|sender| {
                    (rest.is_empty() || sender.send_rest(&rest).is_ok())
                        && (frames.is_empty() || sender.send_all(&frames).is_ok())
                });
                drop(sender);
                if !sent {
                    self.state.lock().dropped += count;
                    break;
                }
            }
        }
        {
            let mut state = self.state.lock();
            state.is_sending = false;
            state.end();
        }
        *self.sender.lock() = None;
        if let Ok(receiver) = receiver {
            let _ = receiver.join();
        }
        self.state.lock().connection = None;
        (common.event)(self.peer, LinkEvent::Disconnected);
    }

    /// What is to be sent next: the rest of a frame, and frames; `None` when the connection has
    /// ended.
    fn next(&self) -> Option<(Vec<u8>, Vec<Vec<Part>>)> {
        /// The bytes that are sent in one call.
        const TOGETHER: usize = 256 << 10;
        let mut state = self.state.lock();
        state.is_sending = false;
        while !state.over && state.queue.is_empty() && state.rest.is_empty() {
            self.changed.wait(&mut state);
        }
        if state.over {
            return None;
        }
        state.is_sending = true;
        let rest = std::mem::take(&mut state.rest);
        Some((rest, state.queue.take(TOGETHER)))
    }

    /// The thread that receives from the peer.
    fn receive(&self, mut receive: Receiver, common: &Common) {
        receive.set_most(common.options.most);
        let mut frame = Vec::new();
        while let Ok(true) = receive.receive(&mut frame) {
            (common.event)(self.peer, LinkEvent::Frame(std::mem::take(&mut frame)));
        }
        self.state.lock().end();
        self.changed.notify_all();
    }
}

//! Incoming connections: a thread that listens, and for each connection one that receives and one
//! that sends.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::connection::{Connection, accept};
use super::error::Error;
use super::frame::DEFAULT_MOST;
use super::halves::STUCK;
use super::replies::{ConnectionId, Open, Replies, Table};
use super::security::{Security, check_listen};
use crate::budget::Loan;

/// What happens on an incoming connection. Of one connection they come one after another, each when
/// the function has returned from the one before: opened, frames, closed.
#[derive(Debug)]
pub enum Event {
    /// A connection is made, the other side's certificate is verified.
    Opened {
        /// The name in its certificate, with TLS.
        peer: Option<String>,
        /// Its address.
        address: SocketAddr,
    },
    /// A frame has come.
    Frame(Vec<u8>),
    /// A frame has come on a connection that was admitted within a budget. What is lent for it is
    /// free when the second value is dropped.
    Lent(Vec<u8>, Loan),
    /// The connection has ended.
    Closed,
}

/// Limits of incoming connections.
#[derive(Debug, Clone)]
pub struct Limits {
    /// How many that were admitted within a budget there are at most; those beyond are closed.
    pub connections: usize,
    /// How many there are at most that are not admitted: the one that has waited longest is closed
    /// for one more. So those that say nothing do not keep others out.
    pub unadmitted: usize,
    /// The longest payload of a frame in bytes.
    pub most: usize,
    /// The longest payload in bytes until `Replies::admit`.
    pub most_unadmitted: usize,
    /// How long a connection may send nothing while it waits for no answer (`Replies::asked`); then
    /// it ends.
    pub idle: Duration,
    /// How long it may send nothing until `Replies::admit`.
    pub idle_unadmitted: Duration,
    /// The bytes of replies that wait for the other side.
    pub queue: usize,
    /// How long sent bytes may wait for the other side to take them, and how long its machine may
    /// be away while nothing is sent; then the connection ends.
    pub stuck: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 256,
            unadmitted: 64,
            most: DEFAULT_MOST,
            most_unadmitted: 4 << 10,
            idle: Duration::from_secs(300),
            idle_unadmitted: Duration::from_secs(10),
            queue: 32 << 20,
            stuck: STUCK,
        }
    }
}

/// What is lent for a frame at least: enough for the answer to most.
const LEAST_LOAN: usize = 16 << 10;

/// Accepts connections. Dropping it stops it.
pub struct Acceptor {
    /// Until it is started or stopped.
    listener: Mutex<Option<TcpListener>>,
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    security: Security,
    limits: Limits,
    table: Arc<Table>,
    stopped: AtomicBool,
    last: AtomicU64,
    refused: AtomicU64,
}

type Handler = dyn Fn(ConnectionId, Event) + Send + Sync;

impl Acceptor {
    /// Listens on `HOST:PORT`; port 0 is any free one. Connections are accepted from `start` on.
    /// Fails where the address is beyond loopback without TLS.
    pub fn bind(address: &str, security: Security, limits: Limits) -> io::Result<Acceptor> {
        let addresses: Vec<SocketAddr> = address.to_socket_addrs()?.collect();
        if addresses.is_empty() {
            return Err(Error::Address(address.to_string()).into());
        }
        for address in &addresses {
            check_listen(*address, &security)?;
        }
        let listener = TcpListener::bind(addresses.as_slice())?;
        let table = Arc::new(Table {
            most: limits.most,
            queue: limits.queue,
            connections: limits.connections,
            open: Mutex::default(),
            ended: Condvar::new(),
        });
        Ok(Acceptor {
            address: listener.local_addr()?,
            listener: Mutex::new(Some(listener)),
            shared: Arc::new(Shared {
                security,
                limits,
                table,
                stopped: AtomicBool::new(false),
                last: AtomicU64::new(0),
                refused: AtomicU64::new(0),
            }),
            thread: Mutex::new(None),
        })
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// To send on its connections, also from within its events.
    pub fn replies(&self) -> Replies {
        Replies(Arc::clone(&self.shared.table))
    }

    /// The connections that were refused: too many, or without a certificate that is trusted.
    pub fn refused(&self) -> u64 {
        self.shared.refused.load(Ordering::Relaxed)
    }

    /// Accepts connections from now on. `event` is called by the threads of the connections; while
    /// it runs, no more is received from that connection. Fails where a thread cannot be started,
    /// and where it was started or stopped before.
    pub fn start(
        &self,
        event: impl Fn(ConnectionId, Event) + Send + Sync + 'static,
    ) -> io::Result<()> {
        let listener = self.listener.lock().take();
        let listener = listener.ok_or(io::ErrorKind::NotConnected)?;
        let shared = Arc::clone(&self.shared);
        let event: Arc<Handler> = Arc::new(event);
        let thread = std::thread::Builder::new().name("acceptor".into());
        let thread = thread.spawn(move || shared.listen(&listener, &event))?;
        *self.thread.lock() = Some(thread);
        Ok(())
    }

    /// Accepts no more, ends all connections, and waits for the last `Event::Closed`. Must not be
    /// called by `event`, for which it would wait.
    pub fn stop(&self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.lock().take() {
            self.wake();
            let _ = thread.join();
        }
        *self.listener.lock() = None;
        let table = &self.shared.table;
        let mut open = table.open.lock();
        open.values().for_each(|connection| connection.abort());
        while !open.is_empty() {
            table.ended.wait(&mut open);
        }
    }

    /// A listening thread has no other way to be woken than a connection.
    fn wake(&self) {
        let mut address = self.address;
        if address.ip().is_unspecified() {
            address.set_ip(match address.ip() {
                IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
            });
        }
        // Where it fails because too many connections wait, the thread has something to accept.
        let _ = TcpStream::connect_timeout(&address, Duration::from_secs(1));
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Removes a connection from the table when its thread ends, even by a panic of the user's.
struct Leave<'a> {
    table: &'a Table,
    id: ConnectionId,
    open: &'a Open,
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.open.over();
        self.table.open.lock().remove(&self.id);
        self.table.ended.notify_all();
    }
}

impl Shared {
    /// The thread that listens.
    fn listen(self: Arc<Shared>, listener: &TcpListener, event: &Arc<Handler>) {
        while !self.stopped.load(Ordering::SeqCst) {
            match listener.accept() {
                Ok(_) if self.stopped.load(Ordering::SeqCst) => return,
                Ok((stream, _)) => {
                    if Arc::clone(&self).enter(stream, event).is_err() {
                        self.refused.fetch_add(1, Ordering::Relaxed);
                    }
                }
                // Of one connection, or no descriptors are left; those come back.
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    /// Starts the thread of a new connection. Fails where there are too many whose threads have not
    /// ended yet.
    fn enter(self: Arc<Shared>, stream: TcpStream, event: &Arc<Handler>) -> io::Result<()> {
        let id = ConnectionId(self.last.fetch_add(1, Ordering::Relaxed) + 1);
        let open = Arc::new(Open::new(stream.try_clone()?, self.table.queue));
        {
            let mut all = self.table.open.lock();
            let mut waiting: Vec<_> = all.iter().filter(|(_, open)| !open.is_admitted()).collect();
            if waiting.len() >= 2 * self.limits.unadmitted {
                return Err(io::ErrorKind::QuotaExceeded.into());
            }
            waiting.retain(|(_, open)| !open.is_closing());
            let oldest = waiting.iter().min_by_key(|(id, _)| **id);
            if let Some((_, oldest)) = oldest.filter(|_| waiting.len() >= self.limits.unadmitted) {
                oldest.abort();
                self.refused.fetch_add(1, Ordering::Relaxed);
            }
            all.insert(id, Arc::clone(&open));
        }
        let (table, event) = (Arc::clone(&self.table), Arc::clone(event));
        let thread = std::thread::Builder::new().name(format!("connection-{}", id.0));
        let started = thread.spawn(move || {
            let leave = Leave {
                table: &self.table,
                id,
                open: &open,
            };
            match accept(stream, &self.security) {
                Ok(connection) => self.serve(id, connection, &open, &*event),
                Err(_) => {
                    self.refused.fetch_add(1, Ordering::Relaxed);
                }
            }
            drop(leave);
        });
        if let Err(error) = started {
            table.open.lock().remove(&id);
            return Err(error);
        }
        Ok(())
    }

    /// Receives until the connection ends.
    fn serve(&self, id: ConnectionId, connection: Connection, open: &Arc<Open>, event: &Handler) {
        let Connection {
            mut receive,
            mut send,
            peer,
            address,
        } = connection;
        let limits = &self.limits;
        let ready = send.set_stuck_timeout(limits.stuck);
        let ready = ready.and_then(|()| receive.set_idle_timeout(Some(limits.idle_unadmitted)));
        receive.set_most(limits.most_unadmitted);
        send.set_most(limits.most);
        let writer = Arc::clone(open);
        let thread = std::thread::Builder::new().name(format!("connection-{}-out", id.0));
        let Ok(thread) = ready.and_then(|()| thread.spawn(move || writer.send(send))) else {
            return;
        };
        event(id, Event::Opened { peer, address });
        let (mut frame, mut admitted, mut answered) = (Vec::new(), false, 0);
        loop {
            if !admitted && open.is_admitted() {
                admitted = true;
                receive.set_most(limits.most);
                if receive.set_idle_timeout(Some(limits.idle)).is_err() {
                    break;
                }
            }
            match receive.wait() {
                Ok(true) => {}
                Err(error)
                    if error.kind() == io::ErrorKind::TimedOut
                        && open.may_be_silent(&mut answered) =>
                {
                    continue;
                }
                Ok(false) | Err(_) => break,
            }
            let mut loan = None;
            let mut lend = |bytes: usize| match open.budget() {
                None => true,
                Some(budget) if bytes > budget.limit() => false,
                Some(budget) => {
                    loan = budget.lend(bytes.max(LEAST_LOAN), || open.is_closing());
                    loan.is_some()
                }
            };
            match receive.receive_if(&mut frame, &mut lend) {
                Ok(true) if open.is_closing() => {}
                Ok(true) => {
                    let frame = std::mem::take(&mut frame);
                    open.has_more.store(receive.has_more(), Ordering::Relaxed);
                    match loan {
                        Some(loan) => event(id, Event::Lent(frame, loan)),
                        None => event(id, Event::Frame(frame)),
                    }
                }
                Ok(false) | Err(_) => break,
            }
        }
        open.over();
        let _ = thread.join();
        event(id, Event::Closed);
    }
}

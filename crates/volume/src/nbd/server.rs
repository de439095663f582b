//! The server: accepts connections, runs each on two threads, and ends those that take too long.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rustix::net::sockopt;

use super::arriving::Arriving;
use super::connection::{Connection, Phase};
use super::device::{Device, Exports};
use super::handshake::{Chosen, Handshake, Next, Tls, greet, haggle};
use super::limits::Limits;
use super::transmission::{Stopped, read_requests, write_replies};
use super::upgrade::Upgrade;
use crate::budget::Budget;

/// An NBD server on one address. Stops when it is dropped.
pub struct Server {
    shared: Arc<Shared>,
    threads: Vec<thread::JoinHandle<()>>,
}

struct Shared {
    listener: TcpListener,
    exports: Arc<dyn Exports>,
    limits: Limits,
    tls: Option<Arc<dyn Upgrade>>,
    budget: Arc<Budget>,
    registry: Mutex<Registry>,
    changed: Condvar,
}

#[derive(Default)]
struct Registry {
    is_stopping: bool,
    /// All connections have ended after the stop.
    is_stopped: bool,
    next: u64,
    open: HashMap<u64, Entry>,
}

#[derive(Clone)]
struct Entry {
    connection: Arc<Connection>,
    socket: Arc<TcpStream>,
}

impl Entry {
    /// Ends the connection at once.
    fn end(&self) {
        self.connection.enter(Phase::Over);
        // It fails where the peer has closed already.
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    /// Lets requests in flight end, and begins no other.
    fn drain(&self) {
        self.connection.enter(Phase::Draining);
        let _ = self.socket.shutdown(Shutdown::Read);
    }
}

impl Server {
    /// Serves `exports` on `listener` until it is stopped. Without `tls`, connections are not
    /// encrypted. Fails where the system has no more threads.
    pub fn start(
        listener: TcpListener,
        exports: Arc<dyn Exports>,
        limits: Limits,
        tls: Option<Arc<dyn Upgrade>>,
    ) -> io::Result<Server> {
        let budget = Budget::new(limits.clone().possible().in_flight_bytes);
        Server::start_within(listener, exports, limits, tls, budget)
    }

    /// As [`Server::start`], with memory that others use, too, in place of `in_flight_bytes`.
    pub fn start_within(
        listener: TcpListener,
        exports: Arc<dyn Exports>,
        limits: Limits,
        tls: Option<Arc<dyn Upgrade>>,
        budget: Arc<Budget>,
    ) -> io::Result<Server> {
        listener.set_nonblocking(false)?;
        let limits = Limits {
            in_flight_bytes: budget.limit(),
            ..limits
        }
        .possible();
        let shared = Arc::new(Shared {
            listener,
            exports,
            budget,
            limits,
            tls,
            registry: Mutex::default(),
            changed: Condvar::new(),
        });
        let mut server = Server {
            shared: Arc::clone(&shared),
            threads: Vec::new(),
        };
        // Where the second one fails, the drop of `server` ends the first.
        server.spawn("nbd-deadlines", Shared::watch)?;
        server.spawn("nbd-accept", Shared::accept)?;
        Ok(server)
    }

    fn spawn(&mut self, name: &str, run: fn(&Arc<Shared>)) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let builder = thread::Builder::new().name(name.to_owned());
        self.threads.push(builder.spawn(move || run(&shared))?);
        Ok(())
    }

    /// Where it listens.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.shared.listener.local_addr()
    }

    /// How many connections are open, those in the handshake included.
    pub fn connections(&self) -> usize {
        self.shared.registry.lock().open.len()
    }

    /// Bytes that requests of all connections hold.
    #[cfg(test)]
    pub(super) fn lent(&self) -> usize {
        self.shared.budget.lent()
    }

    /// Stops: no connection is accepted and no request is begun any more; requests in flight end
    /// and are answered, then connections close. Returns when all have closed. Requests that the
    /// devices never end are waited for.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.shared.stop();
        for thread in self.threads.drain(..) {
            // A thread that panicked has ended, too.
            let _ = thread.join();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    fn stop(&self) {
        let mut registry = self.registry.lock();
        registry.is_stopping = true;
        // Ends a wait in `accept`.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
        registry.open.values().for_each(Entry::drain);
        self.changed.notify_all();
        while !registry.open.is_empty() {
            self.changed.wait(&mut registry);
        }
        registry.is_stopped = true;
        self.changed.notify_all();
    }

    fn accept(self: &Arc<Self>) {
        loop {
            let accepted = self.listener.accept();
            if self.registry.lock().is_stopping {
                return;
            }
            match accepted {
                // A connection that cannot be set up is dropped, which closes it.
                Ok((stream, _)) => drop(self.begin(stream)),
                // Mostly no more descriptors: wait until connections end.
                Err(_) => thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    /// Registers a connection and starts its thread.
    fn begin(self: &Arc<Self>, stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        probe(&stream)?;
        let most_bytes = self.limits.in_flight_bytes / 2;
        let budget = Arc::clone(&self.budget);
        let connection = Connection::new(self.limits.in_flight, most_bytes, budget);
        connection.deadlines.read_within(self.limits.handshake);
        let socket = Arc::new(stream);
        let entry = Entry {
            connection: Arc::clone(&connection),
            socket: Arc::clone(&socket),
        };
        let number = {
            let mut registry = self.registry.lock();
            if registry.is_stopping || registry.open.len() >= self.limits.connections {
                return Ok(());
            }
            let number = registry.next;
            registry.next += 1;
            registry.open.insert(number, entry);
            self.changed.notify_all();
            number
        };
        // Dropped with the closure where no thread can be started.
        let registered = Registered {
            shared: Arc::clone(self),
            number,
        };
        thread::Builder::new()
            .name("nbd-requests".to_owned())
            .spawn(move || {
                // A connection that fails ends, and concerns no other.
                let _ = registered.shared.run(&socket, &connection);
                drop(registered);
            })?;
        Ok(())
    }

    /// A connection from its greeting to its end.
    fn run(&self, socket: &Arc<TcpStream>, connection: &Arc<Connection>) -> io::Result<()> {
        let Some((mut reader, writer, chosen)) = self.negotiate(socket)? else {
            return Ok(());
        };
        if reader.is_plain() {
            connection.send_directly(Arc::clone(socket));
        }
        connection.deadlines.has_read();
        let _closing = Closing(Arc::clone(&chosen.device));
        let entry = Entry {
            connection: Arc::clone(connection),
            socket: Arc::clone(socket),
        };
        let of_device = entry.clone();
        chosen.device.begins(Box::new(move || of_device.end()));
        let end = || entry.end();
        thread::scope(|scope| {
            // Also when the device panics: the writer must end, and the scope waits for it.
            let _ending = Ending(&end);
            let write = || {
                if write_replies(writer, connection, &self.limits).is_err() {
                    end();
                }
            };
            let builder = thread::Builder::new().name("nbd-replies".to_owned());
            let writer = builder.spawn_scoped(scope, write)?;
            match read_requests(&mut reader, connection, &chosen, &self.limits) {
                Stopped::Broken => end(),
                Stopped::Orderly => connection.enter(Phase::Draining),
            }
            let _ = writer.join();
            Ok(())
        })
    }

    /// The handshake; `None` where the connection ends with it.
    fn negotiate<'a>(&self, socket: &'a TcpStream) -> io::Result<Option<Negotiated<'a>>> {
        let offer = match &self.tls {
            None => Tls::Absent,
            Some(tls) if tls.required() => Tls::Required,
            Some(_) => Tls::Offered,
        };
        let mut handshake = Handshake::new(&*self.exports, self.limits.request_bytes, offer);
        let mut reader: Box<dyn Read + Send> = Box::new(socket.try_clone()?);
        let mut writer: Box<dyn Write + Send> = Box::new(socket.try_clone()?);
        let mut plain = Some(socket);
        if !greet(&mut handshake, &mut reader, &mut writer)? {
            return Ok(None);
        }
        loop {
            match (haggle(&mut handshake, &mut reader, &mut writer)?, &self.tls) {
                (Next::Encrypt, Some(tls)) => {
                    // Nothing was read ahead, so nothing that was sent in the clear counts as
                    // encrypted.
                    let client;
                    (reader, writer, client) = tls.accept(socket.try_clone()?)?;
                    plain = None;
                    handshake.encrypted(client);
                }
                (Next::Requests, _) => break,
                _ => return Ok(None),
            }
        }
        let reader = Arriving::new(reader, plain);
        Ok(handshake.chosen().map(|chosen| (reader, writer, chosen)))
    }

    /// Ends connections that took too long, until the server has stopped.
    fn watch(self: &Arc<Self>) {
        let Limits {
            idle,
            handshake,
            stall,
            ..
        } = self.limits;
        let shortest = idle.unwrap_or(stall).min(stall).min(handshake);
        let pause = (shortest / 4).clamp(Duration::from_millis(5), Duration::from_secs(1));
        let mut registry = self.registry.lock();
        while !registry.is_stopped {
            if registry.open.is_empty() {
                self.changed.wait(&mut registry);
                continue;
            }
            for entry in registry.open.values() {
                let Connection { deadlines, .. } = &*entry.connection;
                let is_idle = idle.is_some_and(|idle| deadlines.is_idle_for(idle));
                if deadlines.is_stalled() || (is_idle && entry.connection.is_quiet()) {
                    entry.end();
                }
            }
            self.changed.wait_for(&mut registry, pause);
        }
    }
}

type Negotiated<'a> = (Arriving<'a>, Box<dyn Write + Send>, Chosen);

/// Lets TCP find peers that have vanished: probes after a minute of silence, for another minute.
fn probe(stream: &TcpStream) -> io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, Duration::from_secs(60))?;
    sockopt::set_tcp_keepintvl(stream, Duration::from_secs(15))?;
    sockopt::set_tcp_keepcnt(stream, 4)?;
    Ok(())
}

/// Takes a connection out of the registry when its thread ends, in whatever way.
struct Registered {
    shared: Arc<Shared>,
    number: u64,
}

impl Drop for Registered {
    fn drop(&mut self) {
        let entry = self.shared.registry.lock().open.remove(&self.number);
        if let Some(entry) = entry {
            entry.end();
        }
        self.shared.changed.notify_all();
    }
}

/// Tells a device that its connection has ended.
struct Closing(Arc<dyn Device>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.closed();
    }
}

/// Calls a function when it is dropped.
struct Ending<'a>(&'a dyn Fn());

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        (self.0)();
    }
}

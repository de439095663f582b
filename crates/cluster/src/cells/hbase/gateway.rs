//! The gateways of a cluster: settings, connections, requests that are made again.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

use super::connection::Connection;
use super::errors::{failed, may_pass};
use super::wire::{Reader, Writer};
use crate::error::{Error, Result};

/// How long a request is made again while servers do not answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// How long one attempt may take: the gateway waits itself while a region moves.
const ATTEMPT: Duration = Duration::from_secs(15);
/// Requests in flight.
const IN_FLIGHT: usize = 8;
/// Connections that are kept.
const KEPT: usize = 16;
/// The gateway ends connections that were not used for a minute.
const IDLE: Duration = Duration::from_secs(30);

/// Where the coprocessor that repairs inside compactions comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Coprocessor {
    /// From the class path of the region servers.
    Installed,
    /// From a jar at a place that all region servers can read.
    Jar(String),
}

/// Where a cluster is, and how to use it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HBaseSettings {
    /// Its Thrift gateways, `HOST:PORT`.
    pub hosts: Vec<String>,
    /// The namespace.
    pub namespace: String,
    /// A file of certificates (PEM) that the gateways' certificates are checked against; TLS is
    /// used if there is one.
    pub authorities: Option<PathBuf>,
    /// The regions of a table that is made.
    pub regions: u8,
    /// The coprocessor of tables of records that are made.
    pub coprocessor: Option<Coprocessor>,
}

/// A namespace of an HBase cluster.
pub struct HBase {
    pub(super) settings: HBaseSettings,
    tls: Option<Arc<rustls::ClientConfig>>,
    free: Mutex<Vec<(Instant, Connection)>>,
    /// The gateway that new connections go to, by its place in the settings.
    next: AtomicUsize,
    /// What no other process has, and how often the clock was read.
    clock: (String, AtomicUsize),
    /// Tables of which is known whether they have the coprocessor.
    pub(super) hooks: Mutex<HashMap<Arc<str>, bool>>,
}

impl std::fmt::Debug for HBase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HBase")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// How an attempt ended.
enum Attempt<T> {
    Answered(Option<T>),
    Failed(Error),
}

impl HBase {
    /// Connects to a cluster; with `create`, makes the namespace if it does not exist. Waits up to
    /// thirty seconds for a gateway that answers.
    ///
    /// # Errors
    /// [`Error::NoStore`] without the namespace; [`Error::Unavailable`]; [`Error::BadInput`] for a
    /// certificate file that cannot be read.
    pub fn connect(settings: &HBaseSettings, create: bool) -> Result<HBase> {
        let tls = match &settings.authorities {
            Some(path) => Some(super::super::tls::client(path)?),
            None => None,
        };
        let hbase = HBase {
            settings: settings.clone(),
            tls,
            free: Mutex::default(),
            next: AtomicUsize::new(0),
            clock: (own_name(), AtomicUsize::new(0)),
            hooks: Mutex::default(),
        };
        hbase.open_namespace(create)?;
        Ok(hbase)
    }

    /// Makes a request, and makes it again while it may still succeed: it must do no harm if it
    /// takes effect twice, or late.
    pub(super) fn call<T>(
        &self,
        request: Writer,
        read: impl Fn(&mut Reader<'_>, u8) -> std::io::Result<T>,
    ) -> Result<Option<T>> {
        let request = request.finish();
        let begun = Instant::now();
        let mut pause = Duration::from_millis(20);
        loop {
            let error = match self.attempt(&request, &read) {
                Attempt::Answered(answer) => return Ok(answer),
                Attempt::Failed(error) => error,
            };
            if !may_pass(&error) || begun.elapsed() + pause > PATIENCE {
                return Err(error);
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(500));
        }
    }

    /// Makes a request that has a result.
    pub(super) fn ask<T>(
        &self,
        request: Writer,
        read: impl Fn(&mut Reader<'_>, u8) -> std::io::Result<T>,
    ) -> Result<T> {
        let answer = self.call(request, read)?;
        answer.ok_or_else(|| Error::Damaged("the gateway's answer has no result".to_string()))
    }

    /// Makes a request that has no result.
    pub(super) fn tell(&self, request: Writer) -> Result<()> {
        self.call(request, |_, _| Ok(())).map(drop)
    }

    /// Makes a request once.
    pub(super) fn once<T>(
        &self,
        request: Writer,
        read: impl Fn(&mut Reader<'_>, u8) -> std::io::Result<T>,
    ) -> Result<Option<T>> {
        match self.attempt(&request.finish(), &read) {
            Attempt::Answered(answer) => Ok(answer),
            Attempt::Failed(error) => Err(error),
        }
    }

    /// A row that no call has used before.
    pub(super) fn clock_row(&self) -> String {
        let (own, count) = &self.clock;
        format!("clock {own} {}", count.fetch_add(1, Ordering::Relaxed))
    }

    fn attempt<T>(
        &self,
        request: &[u8],
        read: &dyn Fn(&mut Reader<'_>, u8) -> std::io::Result<T>,
    ) -> Attempt<T> {
        let lost = |error: &dyn std::fmt::Display| {
            Attempt::Failed(Error::Unavailable(format!(
                "the gateway did not answer: {error}"
            )))
        };
        let mut connection = match self.connection() {
            Ok(connection) => connection,
            Err(error) => return lost(&error),
        };
        match connection.call(request, read) {
            Ok(answer) => {
                let mut free = self.free.lock();
                if free.len() < KEPT {
                    free.push((Instant::now(), connection));
                }
                match answer {
                    Ok(answer) => Attempt::Answered(answer),
                    Err(refused) => Attempt::Failed(failed(&refused)),
                }
            }
            Err(error) => {
                // The next attempt asks another gateway, if there is one.
                self.next.fetch_add(1, Ordering::Relaxed);
                self.free.lock().clear();
                lost(&error)
            }
        }
    }

    fn connection(&self) -> std::io::Result<Connection> {
        {
            let mut free = self.free.lock();
            free.retain(|(since, _)| since.elapsed() < IDLE);
            if let Some((_, connection)) = free.pop() {
                return Ok(connection);
            }
        }
        let hosts = &self.settings.hosts;
        let at = self.next.load(Ordering::Relaxed) % hosts.len().max(1);
        let host = hosts.get(at).map_or("", String::as_str);
        let opened = Connection::open(host, self.tls.as_ref(), ATTEMPT);
        if opened.is_err() {
            self.next.fetch_add(1, Ordering::Relaxed);
        }
        opened
    }
}

/// A text that no other process has: by its number, and the time.
fn own_name() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let nanos = since.map_or(0, |since| since.as_nanos());
    format!("{} {nanos}", std::process::id())
}

/// Does pieces of work, several at the same time; the order of the results is theirs.
pub(super) fn together<W: Sync, T: Send>(works: &[W], does: impl Fn(&W) -> T + Sync) -> Vec<T> {
    if works.len() < 2 {
        return works.iter().map(does).collect();
    }
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, T)>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..works.len().min(IN_FLIGHT) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(work) = works.get(at) else {
                        return;
                    };
                    let result = does(work);
                    done.lock().push((at, result));
                }
            });
        }
    });
    let mut done = done.into_inner();
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}

//! Volumes as NBD exports: `NAME`, and read-only `NAME@SNAPSHOT`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::work::{Answerer, Enders, Event, Way};
use crate::map::Map;
use crate::nbd::{Device, Done, Ender, Exports, Failure, Refused, Run};
use crate::node::input::{ConnectionId, Input, Manner, Work};
use crate::wire::{Refusal, Reply, Source};

/// The exports of a node.
pub(super) struct Volumes {
    pub(super) map: Arc<Map>,
    pub(super) way: Way,
    pub(super) next: Arc<AtomicU64>,
    pub(super) wait: u64,
    /// How the core ends a connection whose session was forgotten.
    pub(super) enders: Enders,
}

impl Exports for Volumes {
    fn list(&self) -> Vec<String> {
        self.map.system().names()
    }

    fn open(&self, name: &str, client: Option<&str>) -> Result<Arc<dyn Device>, Refused> {
        // A certificate that is named `volume:NAME` is for this volume and its snapshots alone.
        let allowed = client.and_then(|client| client.strip_prefix("volume:"));
        if allowed.is_some_and(|allowed| allowed != name.split('@').next().unwrap_or(name)) {
            let text = "the certificate is for another volume".to_string();
            return Err(Refused::Forbidden(text));
        }
        let system = self.map.system();
        let Some(source) = system.source(name) else {
            return Err(Refused::Unknown);
        };
        let block_size = system.shape(source).map_or(4096, |shape| shape.block_size);
        let connection = ConnectionId(self.next.fetch_add(1, Ordering::Relaxed));
        self.way.input(Input::Open(connection));
        Ok(Arc::new(Export {
            map: self.map.clone(),
            way: self.way.clone(),
            connection,
            source,
            block_size,
            wait: self.wait,
            is_held: AtomicBool::new(false),
            enders: self.enders.clone(),
        }))
    }
}

/// A connection to a volume: a session of its own.
struct Export {
    map: Arc<Map>,
    way: Way,
    connection: ConnectionId,
    source: Source,
    block_size: u32,
    wait: u64,
    enders: Enders,
    /// Other requests follow at once: the core need not run before.
    is_held: AtomicBool,
}

impl Export {
    fn ask<T: 'static>(
        &self,
        work: Work,
        done: Done<T>,
        read: impl FnOnce(Reply) -> Option<T> + Send + 'static,
    ) {
        let event = self.event(work, done, read);
        if self.is_held.load(Ordering::Relaxed) {
            self.way.put(event)
        } else {
            self.way.send(event)
        }
    }

    /// What brings a request to the core.
    fn event<T: 'static>(
        &self,
        work: Work,
        done: Done<T>,
        read: impl FnOnce(Reply) -> Option<T> + Send + 'static,
    ) -> Event {
        let answer: Answerer = Box::new(move |result| {
            done(match result.map(read) {
                Ok(Some(value)) => Ok(value),
                Ok(None) => Err(Failure::new(Failure::EIO, "an answer of the wrong kind")),
                Err(refusal) => Err(failure(&refusal)),
            });
        });
        let manner = Manner {
            wait: self.wait,
            direct: false,
        };
        Event::Request(self.connection, work, manner, answer)
    }

    fn read_work(&self, offset: u64, length: u32) -> Work {
        Work::Read {
            source: self.source,
            offset,
            length,
        }
    }

    fn write_work(&self, offset: u64, data: Vec<u8>) -> Result<Work, Failure> {
        let volume = self.volume();
        let volume =
            volume.ok_or_else(|| Failure::new(Failure::EPERM, "a snapshot is read-only"))?;
        Ok(Work::Write {
            volume,
            offset,
            data: Arc::new(data),
        })
    }

    fn volume(&self) -> Option<crate::ids::VolumeId> {
        match self.source {
            Source::Volume(volume) => Some(volume),
            Source::Layer(..) => None,
        }
    }
}

fn failure(refusal: &Refusal) -> Failure {
    let errno = match refusal {
        Refusal::OutOfRange => Failure::EINVAL,
        Refusal::Busy => Failure::ENOMEM,
        _ => Failure::EIO,
    };
    Failure::new(errno, refusal.to_string())
}

fn nothing(reply: Reply) -> Option<()> {
    matches!(reply, Reply::Done).then_some(())
}

/// The data of a read of so many bytes.
fn data_of(length: u32) -> impl FnOnce(Reply) -> Option<Vec<u8>> {
    move |reply| match reply {
        Reply::Data(data) if data.len() == length as usize => Some(data),
        _ => None,
    }
}

impl Device for Export {
    fn size(&self) -> u64 {
        self.map
            .system()
            .shape(self.source)
            .map_or(0, |shape| shape.size)
    }

    fn block_size(&self) -> u32 {
        self.block_size
    }

    fn read_only(&self) -> bool {
        self.volume().is_none()
    }

    fn read(&self, offset: u64, length: u32, done: Done<Vec<u8>>) {
        self.ask(self.read_work(offset, length), done, data_of(length));
    }

    fn read_alone(&self, offset: u64, length: u32, done: Done<Vec<u8>>) {
        let event = self.event(self.read_work(offset, length), done, data_of(length));
        self.way.send_alone(event);
    }

    fn write(&self, offset: u64, data: Vec<u8>, done: Done<()>) {
        match self.write_work(offset, data) {
            Ok(work) => self.ask(work, done, nothing),
            Err(failure) => done(Err(failure)),
        }
    }

    fn write_alone(&self, offset: u64, data: Vec<u8>, done: Done<()>) {
        match self.write_work(offset, data) {
            Ok(work) => self.way.send_alone(self.event(work, done, nothing)),
            Err(failure) => done(Err(failure)),
        }
    }

    fn discard(&self, offset: u64, length: u64, _zeros: bool, done: Done<()>) {
        let Some(volume) = self.volume() else {
            return done(Err(Failure::new(Failure::EPERM, "a snapshot is read-only")));
        };
        self.ask(
            Work::Discard {
                volume,
                offset,
                length,
            },
            done,
            nothing,
        );
    }

    fn flush(&self, done: Done<()>) {
        // Whatever was acknowledged is durable at a majority.
        done(Ok(()));
    }

    fn extents(&self, offset: u64, length: u64, done: Done<Vec<Run>>) {
        let length = length.min(64 << 20) as u32;
        let work = Work::Allocation {
            source: self.source,
            offset,
            length,
        };
        self.ask(work, done, |reply| match reply {
            Reply::Runs(runs) => {
                let run = |(length, is_data): (u64, bool)| Run {
                    length,
                    is_hole: !is_data,
                };
                Some(runs.into_iter().map(run).collect())
            }
            _ => None,
        });
    }

    fn together(&self, are_more: bool) {
        self.is_held.store(are_more, Ordering::Relaxed);
        if !are_more {
            self.way.go();
        }
    }

    fn begins(&self, end: Ender) {
        self.enders.lock().insert(self.connection, end);
    }

    fn closed(&self) {
        self.way.input(Input::Closed(self.connection));
    }
}

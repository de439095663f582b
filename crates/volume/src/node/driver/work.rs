//! The threads of a node, and what they hand to each other.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;

use super::clock;
use crate::extents::Batch;
use crate::net::{Links, Part};
use crate::node::core::Core;
use crate::node::input::Manner;
use crate::node::input::{Action, ConnectionId, Input, ReadWork, Work};
use crate::node::reading;
use crate::wire::{Refusal, Reply};

/// How often the core hears that time has passed, in milliseconds.
const TICK: u64 = 10;

/// What the core's thread takes.
pub(super) enum Event {
    Input(Input),
    /// A request of a user, with where its answer goes.
    Request(ConnectionId, Work, Manner, Answerer),
    /// Something that looks at the core.
    Look(Box<dyn FnOnce(&mut Core) + Send>),
    Stop,
}

/// Takes the answer of a request.
pub(super) type Answerer = Box<dyn FnOnce(Result<Reply, Refusal>) + Send>;

/// The way to the core's thread.
#[derive(Clone)]
pub(super) struct Way {
    events: Sender<Event>,
}

impl Way {
    /// Hands an event over. After the node has stopped it is dropped.
    pub(super) fn send(&self, event: Event) {
        drop(self.events.send(event));
    }

    pub(super) fn input(&self, input: Input) {
        self.send(Event::Input(input));
    }

    /// Runs something on the core's thread and waits for its result; `None` where the node has
    /// stopped.
    pub(super) fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&mut Core) -> T + Send + 'static,
    ) -> Option<T> {
        let (sender, receiver) = channel();
        self.send(Event::Look(Box::new(move |core| {
            drop(sender.send(look(core)))
        })));
        receiver.recv().ok()
    }
}

/// Ends a connection of a user, by the core's wish.
pub(super) type Enders = Arc<Mutex<HashMap<ConnectionId, Box<dyn Fn() + Send>>>>;

/// The channels of a node's threads.
pub(super) struct Channels {
    pub(super) way: Way,
    pub(super) events: Receiver<Event>,
}

pub(super) fn channels() -> Channels {
    let (sender, events) = channel();
    Channels {
        way: Way { events: sender },
        events,
    }
}

/// The core's thread, until `Stop`.
pub(super) struct CoreThread {
    pub(super) core: Core,
    pub(super) events: Receiver<Event>,
    pub(super) links: Arc<Links>,
    pub(super) enders: Enders,
    pub(super) batches: Sender<Batch>,
    pub(super) reads: Arc<Pool>,
    pub(super) next_ticket: u64,
    pub(super) waiting: HashMap<(ConnectionId, u64), Answerer>,
}

impl CoreThread {
    pub(super) fn run(mut self) {
        let mut ticked = 0;
        let first = self.core.start_actions();
        self.carry_out(first);
        loop {
            let wait = (ticked + TICK).saturating_sub(clock::now());
            let event = self.events.recv_timeout(Duration::from_millis(wait.max(1)));
            match event {
                Ok(Event::Stop) | Err(RecvTimeoutError::Disconnected) => break,
                Ok(event) => self.take(event),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if clock::now() >= ticked + TICK {
                ticked = clock::now();
                let actions = self.core.handle(ticked, Input::Tick);
                self.carry_out(actions);
            }
        }
        for (_, answer) in self.waiting.drain() {
            answer(Err(Refusal::Failed("the node stops".to_string())));
        }
        self.reads.stop();
        self.core.close();
    }

    fn take(&mut self, event: Event) {
        let input = match event {
            Event::Input(input) => input,
            Event::Request(connection, work, manner, answerer) => {
                self.next_ticket += 1;
                let ticket = self.next_ticket;
                self.waiting.insert((connection, ticket), answerer);
                Input::Request {
                    connection,
                    ticket,
                    work,
                    manner,
                }
            }
            Event::Look(look) => return look(&mut self.core),
            Event::Stop => return,
        };
        let closed = match &input {
            Input::Closed(connection) => Some(*connection),
            _ => None,
        };
        let actions = self.core.handle(clock::now(), input);
        self.carry_out(actions);
        if let Some(closed) = closed {
            self.waiting
                .retain(|(connection, _), _| *connection != closed);
            self.enders.lock().remove(&closed);
        }
    }

    fn carry_out(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Send(node, packet) => {
                    let mut parts: Vec<Part> = vec![Part::from(packet.head)];
                    parts.extend(packet.bodies.into_iter().map(Part::from));
                    self.links.send(node.0, parts);
                }
                Action::Batch(batch) => drop(self.batches.send(batch)),
                Action::Read(ticket, work) => self.reads.give(ticket, work),
                Action::Answer {
                    connection,
                    ticket,
                    result,
                } => {
                    if let Some(answer) = self.waiting.remove(&(connection, ticket)) {
                        answer(result);
                    }
                }
                Action::Peers(peers) => {
                    let peers = peers.into_iter().map(|(node, address)| (node.0, address));
                    drop(self.links.set_peers(peers.collect()));
                }
                Action::End(connection) => {
                    if let Some(end) = self.enders.lock().remove(&connection) {
                        end();
                    }
                }
            }
        }
    }
}

/// The disk's thread: batches, one after the other.
pub(super) fn disk(batches: Receiver<Batch>, way: Way) {
    for batch in batches {
        way.input(Input::BatchDone(batch.run()));
    }
}

/// Threads that read.
pub(super) struct Pool {
    work: Mutex<Option<Sender<(u64, ReadWork)>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Pool {
    /// Starts the threads.
    pub(super) fn start(core: &Core, way: &Way, threads: usize) -> std::io::Result<Pool> {
        let (sender, receiver) = channel::<(u64, ReadWork)>();
        let receiver = Arc::new(Mutex::new(receiver));
        let mut all = Vec::new();
        for number in 0..threads {
            let (map, reader) = core.readers();
            let (receiver, way) = (receiver.clone(), way.clone());
            let run = move || {
                loop {
                    let next = receiver.lock().recv();
                    let Ok((ticket, work)) = next else { return };
                    let result = reading::run(&map, &reader, &work);
                    way.input(Input::ReadDone(ticket, result));
                }
            };
            let name = format!("volume-read-{number}");
            all.push(std::thread::Builder::new().name(name).spawn(run)?);
        }
        Ok(Pool {
            work: Mutex::new(Some(sender)),
            threads: Mutex::new(all),
        })
    }

    fn give(&self, ticket: u64, work: ReadWork) {
        if let Some(sender) = &*self.work.lock() {
            drop(sender.send((ticket, work)));
        }
    }

    fn stop(&self) {
        self.work.lock().take();
        for thread in std::mem::take(&mut *self.threads.lock()) {
            drop(thread.join());
        }
    }
}

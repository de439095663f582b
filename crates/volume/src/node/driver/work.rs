//! The threads of a node, and what they hand to each other.

use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::clock;
use crate::extents::{Ahead, Batch, Reader};
use crate::map::Map;
use crate::nbd;
use crate::net::{Links, Part};
use crate::node::core::Core;
use crate::node::input::Manner;
use crate::node::input::{Action, ConnectionId, Input, ReadKind, ReadWork, Work};
use crate::node::reading;
use crate::wire::{Refusal, Reply};

/// How often the core hears that time has passed, in milliseconds.
const TICK: u64 = 10;

/// How often a full disk is looked at, in milliseconds.
const LOOK: u64 = 1_000;

/// What the core takes.
pub(super) enum Event {
    Input(Input),
    /// A request of a user, with where its answer goes.
    Request(ConnectionId, Work, Manner, Answerer),
    /// Something that looks at the core.
    Look(Box<dyn FnOnce(&mut Core) + Send>),
    Stop,
}

impl Event {
    /// The bytes of data that it brings.
    fn bytes(&self) -> usize {
        match self {
            Event::Input(Input::Frame(_, bytes)) => bytes.len(),
            Event::Request(_, Work::Write { data, .. }, ..) => data.len(),
            _ => 0,
        }
    }
}

/// Takes the answer of a request.
pub(super) type Answerer = Box<dyn FnOnce(Result<Reply, Refusal>) + Send>;

/// The way to the core. Only one thread at a time runs it: the one that brings an event where none
/// does, and it takes what others bring meanwhile. So an event mostly needs no other thread to wake
/// up. After [`TURN`] events the core's own thread takes over.
#[derive(Clone)]
pub(super) struct Way {
    turns: Arc<Turns>,
}

struct Turns {
    queue: Mutex<Queue>,
    /// The core's thread has something to do.
    handed: Condvar,
    running: Mutex<Option<Running>>,
}

#[derive(Default)]
struct Queue {
    events: VecDeque<Event>,
    /// A thread runs the core, or the core's own thread is about to.
    is_running: bool,
    /// The core's own thread is to go on.
    is_handed: bool,
    /// Nothing is taken any more.
    is_stopped: bool,
    /// A thread of the node panicked: what the core knows may be wrong.
    has_failed: bool,
}

/// How many events a thread takes that has other things to do.
const TURN: usize = 32;
/// How many events are carried out together at most, and with how many bytes.
const TOGETHER: usize = 16;
const TOGETHER_BYTES: usize = 256 << 10;

impl Way {
    /// Hands an event over, and runs the core where no other thread does. After the node has
    /// stopped the event is dropped.
    pub(super) fn send(&self, event: Event) {
        self.put(event);
        self.go();
    }

    /// Hands an event over. The next `go`, or event of another thread, has it carried out.
    pub(super) fn put(&self, event: Event) {
        let mut queue = self.turns.queue.lock();
        if queue.is_stopped {
            // What it holds may come here again when it is dropped.
            drop(queue);
            return drop(event);
        }
        queue.events.push_back(event);
    }

    /// Runs the core where events wait and no other thread does.
    pub(super) fn go(&self) {
        if !self.turns.begin() {
            return;
        }
        drop(self.turns.run(TURN, false));
    }

    /// As [`Way::send`], of a request or frame that comes alone: where it asks for a read of this
    /// node's disk, or for a batch, this thread carries that out, so that no other one has to wake
    /// up.
    pub(super) fn send_alone(&self, event: Event) {
        self.put(event);
        if !self.turns.begin() {
            return;
        }
        let kept = self.turns.run(TURN, true);
        self.guard(|| match kept {
            Some(Kept::Read(kept)) => self.input(kept.run()),
            Some(Kept::Batch(batch, disk)) => {
                let ahead = batch.ahead();
                self.input(Input::BatchDone(batch.run()));
                if ahead.is_due() {
                    // A disk that has stopped needs no zeros.
                    drop(disk.send(Job::Ahead(ahead)));
                }
            }
            None => {}
        });
    }

    pub(super) fn input(&self, input: Input) {
        self.send(Event::Input(input));
    }

    /// Runs what belongs to the node on this thread. Where that panics, the node has failed: others
    /// would wait for what it owes them.
    pub(super) fn guard<T>(&self, run: impl FnOnce() -> T) -> Option<T> {
        // Nothing that it has changed is used again, and the panic has been reported.
        let done = catch_unwind(AssertUnwindSafe(run));
        if done.is_err() {
            drop(self.turns.fail());
        }
        done.ok()
    }

    /// True where the node has failed by a panic. Nothing is taken any more.
    pub(super) fn has_failed(&self) -> bool {
        self.turns.queue.lock().has_failed
    }

    /// Looks at the core, and waits for what that returns; `None` where the node has stopped.
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

/// What ends the connections of users, by the core's wish.
pub(super) type Enders = Arc<Mutex<HashMap<ConnectionId, nbd::Ender>>>;

/// The way to a core that is not there yet: events wait.
pub(super) fn way() -> Way {
    let queue = Queue {
        is_running: true,
        ..Queue::default()
    };
    Way {
        turns: Arc::new(Turns {
            queue: Mutex::new(queue),
            handed: Condvar::new(),
            running: Mutex::new(None),
        }),
    }
}

impl Turns {
    /// True where this thread is to run the core: events wait, and no other thread does.
    fn begin(&self) -> bool {
        let mut queue = self.queue.lock();
        if queue.is_running || queue.events.is_empty() || queue.is_stopped {
            return false;
        }
        queue.is_running = true;
        true
    }

    /// Takes events until there is none, or `most` of them: then the core's thread goes on. A read
    /// or batch that is to be carried out is returned where this thread `may_keep` one.
    fn run(&self, most: usize, may_keep: bool) -> Option<Kept> {
        let mut running = self.running.lock();
        let core = running.as_mut()?;
        core.may_keep = may_keep;
        // The core is not used again after a panic, and the panic has been reported.
        let taken = catch_unwind(AssertUnwindSafe(|| self.take_all(core, most)));
        if taken.is_err() {
            drop(running);
            drop(self.fail());
            return None;
        }
        core.may_keep = false;
        core.kept.take()
    }

    /// Takes nothing any more, since the core panicked; its own thread ends it. Returns the events
    /// that are left.
    fn fail(&self) -> VecDeque<Event> {
        let mut queue = self.queue.lock();
        (queue.is_stopped, queue.has_failed) = (true, true);
        self.handed.notify_one();
        std::mem::take(&mut queue.events)
    }

    fn take_all(&self, core: &mut Running, most: usize) {
        let mut taken = 0;
        loop {
            let events: Vec<Event> = {
                let mut queue = self.queue.lock();
                let is_stop = matches!(queue.events.front(), Some(Event::Stop));
                if taken >= most || is_stop {
                    queue.is_handed = true;
                    self.handed.notify_one();
                    return;
                }
                if queue.events.is_empty() {
                    queue.is_running = false;
                    return;
                }
                let count = together(&queue.events);
                queue.events.drain(..count).collect()
            };
            taken += events.len();
            core.let_go();
            core.take(events);
        }
    }

    /// Waits until a thread hands over; false after `wait` without that.
    fn is_handed(&self, wait: Duration) -> bool {
        let mut queue = self.queue.lock();
        if !queue.is_handed && !queue.has_failed {
            self.handed.wait_for(&mut queue, wait);
        }
        std::mem::take(&mut queue.is_handed)
    }

    /// True where the next event is the last one.
    fn is_stop(&self) -> bool {
        matches!(self.queue.lock().events.front(), Some(Event::Stop))
    }
}

/// How many of the first events are carried out together: their records are one batch, and their
/// entries one message to each follower. The first ones wait for the last.
fn together(events: &VecDeque<Event>) -> usize {
    let mut bytes = 0;
    let fits = |event: &&Event| {
        let is_first = bytes == 0;
        bytes += event.bytes().max(1);
        is_first || bytes <= TOGETHER_BYTES
    };
    let joined = events.iter().take(TOGETHER);
    let joined = joined.take_while(|event| !matches!(event, Event::Stop));
    joined.take_while(fits).count()
}

/// The core's own thread, until `Stop`: it brings the ticks, and goes on where others hand over.
pub(super) fn run(way: &Way, mut running: Running) {
    let turns = &way.turns;
    way.guard(|| {
        let first = running.core.start_actions();
        running.carry_out(first);
    });
    *turns.running.lock() = Some(running);
    drop(turns.run(TURN, false));
    let mut ticked = 0;
    while !way.has_failed() {
        let wait = (ticked + TICK).saturating_sub(clock::now());
        if turns.is_handed(Duration::from_millis(wait.max(1))) {
            if turns.is_stop() {
                break;
            }
            drop(turns.run(TURN, false));
        }
        if clock::now() >= ticked + TICK {
            ticked = clock::now();
            way.input(Input::Tick);
        }
    }
    let left = {
        let mut queue = turns.queue.lock();
        queue.is_stopped = true;
        std::mem::take(&mut queue.events)
    };
    drop(left);
    let running = turns.running.lock().take();
    if let Some(running) = running {
        let core = running.end();
        if !way.has_failed() {
            core.close();
        }
    }
}

/// The core, and what carries out its actions.
pub(super) struct Running {
    pub(super) core: Core,
    pub(super) links: Arc<Links>,
    pub(super) enders: Enders,
    pub(super) disk: Sender<Job>,
    pub(super) reads: Arc<Pool>,
    pub(super) next_ticket: u64,
    pub(super) waiting: HashMap<(ConnectionId, u64), Answerer>,
    /// When a full disk is looked at next.
    pub(super) look_at: u64,
    /// The thread that runs the core now carries out a read or a batch itself.
    pub(super) may_keep: bool,
    /// That one.
    pub(super) kept: Option<Kept>,
    /// How many batches ended, one after the other, with nothing to be written behind them.
    pub(super) alone: u32,
}

/// For a batch with fewer bytes no other thread wakes up, where so many ended alone before: where
/// more is to be written meanwhile, the thread that brings it has to be free.
const SMALL: u64 = 12 << 10;
const MANY_ALONE: u32 = 4;

/// What the disk's thread does.
pub(super) enum Job {
    Batch(Batch),
    Ahead(Ahead),
}

impl Running {
    /// Answers what waits and ends the threads that read. Returns the core.
    fn end(mut self) -> Core {
        for (_, answer) in self.waiting.drain() {
            answer(Err(Refusal::Failed("the node stops".to_string())));
        }
        self.reads.stop();
        self.core
    }

    /// Takes events, and carries out what follows from all of them.
    fn take(&mut self, events: Vec<Event>) {
        let mut closed = Vec::new();
        let mut has_ended = false;
        for event in events {
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
                Event::Look(look) => {
                    look(&mut self.core);
                    continue;
                }
                Event::Stop => continue,
            };
            if let Input::Closed(connection) = &input {
                closed.push(*connection);
            }
            has_ended |= matches!(input, Input::BatchDone(_));
            self.core.take(clock::now(), input);
        }
        let hasty = self.core.hasten();
        if has_ended {
            let is_more = hasty
                .iter()
                .any(|action| matches!(action, Action::Batch(_)));
            self.alone = if is_more {
                0
            } else {
                self.alone.saturating_add(1)
            };
        }
        self.carry_out(hasty);
        // The leader waits for a batch that this thread carries out; no request waits for what is
        // applied here.
        let is_kept = matches!(self.kept, Some(Kept::Batch(..)));
        if !(is_kept && self.core.may_finish_later()) {
            let rest = self.core.finish();
            self.carry_out(rest);
        }
        self.reopen();
        for closed in closed {
            self.waiting
                .retain(|(connection, _), _| *connection != closed);
            self.enders.lock().remove(&closed);
        }
    }

    /// Where the disk was full and there is room again, the core goes on.
    fn reopen(&mut self) {
        if !self.core.is_full() || clock::now() < self.look_at {
            return;
        }
        if let Some(actions) = self.core.reopen(clock::now()) {
            self.reads.use_reader(&self.core);
            self.carry_out(actions);
        }
        self.look_at = clock::now() + LOOK;
    }

    /// Answers of one connection are sent together.
    fn carry_out(&mut self, actions: Vec<Action>) {
        nbd::replies_together(|| self.carry_out_all(actions));
    }

    fn read(&mut self, ticket: u64, work: ReadWork) {
        let is_bytes = matches!(work.kind, ReadKind::Bytes { .. });
        if is_bytes && self.may_keep && self.kept.is_none() {
            let pool = Arc::clone(&self.reads);
            self.kept = Some(Kept::Read(KeptRead { pool, ticket, work }));
        } else {
            self.reads.give(ticket, work);
        }
    }

    fn write(&mut self, batch: Batch) {
        let is_alone = batch.bytes() < SMALL && self.alone >= MANY_ALONE;
        if is_alone && self.may_keep && self.kept.is_none() {
            self.kept = Some(Kept::Batch(batch, self.disk.clone()));
        } else {
            drop(self.disk.send(Job::Batch(batch)));
        }
    }

    /// Other events come before the batch that was kept: the disk's thread has it.
    fn let_go(&mut self) {
        match self.kept.take() {
            Some(Kept::Batch(batch, disk)) => drop(disk.send(Job::Batch(batch))),
            kept => self.kept = kept,
        }
    }

    fn carry_out_all(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Send(node, packet) => {
                    let mut parts: Vec<Part> = vec![Part::from(packet.head)];
                    let part = if packet.is_checked {
                        Part::Checked as fn(_) -> _
                    } else {
                        Part::Shared
                    };
                    parts.extend(packet.bodies.into_iter().map(part));
                    self.links.send(node.0, parts);
                }
                Action::Batch(batch) => self.write(batch),
                Action::Read(ticket, work) => self.read(ticket, work),
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
                    let end = self.enders.lock().remove(&connection);
                    end.into_iter().for_each(|end| end());
                }
            }
        }
    }
}

/// The disk's thread: batches, one after the other.
pub(super) fn disk(jobs: Receiver<Job>, way: Way) {
    for job in jobs {
        way.guard(|| {
            let ahead = match job {
                Job::Batch(batch) => {
                    let ahead = batch.ahead();
                    way.input(Input::BatchDone(batch.run()));
                    ahead
                }
                Job::Ahead(ahead) => ahead,
            };
            if let Err(error) = ahead.run() {
                way.input(Input::AheadFailed(error));
            }
        });
    }
}

/// What the thread which runs the core carries out itself, afterwards.
pub(super) enum Kept {
    Read(KeptRead),
    Batch(Batch, Sender<Job>),
}

/// A read.
pub(super) struct KeptRead {
    pool: Arc<Pool>,
    ticket: u64,
    work: ReadWork,
}

impl KeptRead {
    fn run(self) -> Input {
        let reader = self.pool.reader.lock().clone();
        let result = reading::run(&self.pool.map, &reader, &self.work);
        Input::ReadDone(self.ticket, result)
    }
}

/// Threads that read.
pub(super) struct Pool {
    work: Mutex<Option<Sender<(u64, ReadWork)>>>,
    map: Arc<Map>,
    reader: Arc<Mutex<Reader>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Pool {
    /// Starts the threads.
    pub(super) fn start(core: &Core, way: &Way, threads: usize) -> std::io::Result<Pool> {
        let (sender, receiver) = channel::<(u64, ReadWork)>();
        let receiver = Arc::new(Mutex::new(receiver));
        let mut all = Vec::new();
        let (map, reader) = core.readers();
        let reader = Arc::new(Mutex::new(reader));
        for number in 0..threads {
            let (map, current) = (map.clone(), reader.clone());
            let (receiver, way) = (receiver.clone(), way.clone());
            let run = move || {
                loop {
                    let next = receiver.lock().recv();
                    let Ok((ticket, work)) = next else { return };
                    let reader = current.lock().clone();
                    way.guard(|| {
                        let result = reading::run(&map, &reader, &work);
                        way.input(Input::ReadDone(ticket, result));
                    });
                }
            };
            let name = format!("volume-read-{number}");
            all.push(std::thread::Builder::new().name(name).spawn(run)?);
        }
        Ok(Pool {
            work: Mutex::new(Some(sender)),
            map,
            reader,
            threads: Mutex::new(all),
        })
    }

    /// The core has opened its segments again.
    fn use_reader(&self, core: &Core) {
        let (_, reader) = core.readers();
        *self.reader.lock() = reader;
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

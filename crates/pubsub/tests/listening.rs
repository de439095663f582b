//! One thread serves ten thousand consumers, and waiting costs next to nothing. A program of its
//! own, since it counts the threads and the processor time of the process; so there is one test.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use esker::changes::Listening;
use esker::options::KeepLog;
use esker::{
    Changes, ChangesFrom, Database, Dataset, DatasetDef, Durability, KeyType, Options, Seq,
};
use esker_pubsub::{Broker, Config, Inbox, PubSub, Publication, Subscription};
use esker_sim::memory::Memory;

const CONSUMERS: usize = 10_000;
/// Inboxes of each topic.
const OF_A_TOPIC: usize = 100;
const LONG: Duration = Duration::from_secs(300);
/// How long an idle process is watched.
const IDLE: Duration = Duration::from_secs(2);

fn options(memory: &Memory) -> Options {
    PubSub::register(
        Options::new()
            .fs(Arc::new(memory.clone()))
            .durability(Durability::Os)
            .keep_log(KeepLog {
                bytes: u64::MAX,
                age: None,
            }),
    )
}

/// Which consumers were woken: each is in the channel once until it is served.
struct Woken {
    sender: Sender<usize>,
    receiver: Receiver<usize>,
    is_due: Vec<Arc<AtomicBool>>,
    /// Calls of wake functions.
    calls: Arc<AtomicUsize>,
}

impl Woken {
    fn new() -> Woken {
        let (sender, receiver) = channel();
        let is_due = (0..CONSUMERS).map(|_| Arc::default()).collect();
        Woken {
            sender,
            receiver,
            is_due,
            calls: Arc::default(),
        }
    }

    fn wake(&self, consumer: usize) -> Arc<esker::changes::Wake> {
        let (sender, calls) = (self.sender.clone(), self.calls.clone());
        let is_due = self.is_due[consumer].clone();
        Arc::new(move || {
            calls.fetch_add(1, SeqCst);
            if !is_due.swap(true, SeqCst) {
                let _ = sender.send(consumer);
            }
        })
    }

    /// Serves consumers by this thread until `serve` says that it is enough. Fails where nobody is
    /// woken for long.
    fn serve(&self, mut serve: impl FnMut(usize) -> bool) {
        loop {
            let consumer = match self.receiver.recv_timeout(LONG) {
                Ok(consumer) => consumer,
                Err(RecvTimeoutError::Timeout) => panic!("consumers sleep, and something is there"),
                Err(error) => panic!("{error}"),
            };
            self.is_due[consumer].store(false, SeqCst);
            if serve(consumer) {
                return;
            }
        }
    }
}

#[cfg(target_os = "linux")]
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

#[cfg(not(target_os = "linux"))]
fn threads() -> usize {
    0
}

fn wait_for_threads(count: usize) {
    let begun = Instant::now();
    while threads() != count {
        assert!(begun.elapsed() < LONG, "the thread does not end");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The processor time of the threads of the process.
#[cfg(target_os = "linux")]
fn processor_time() -> Duration {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let nanos = threads.map(|thread| {
        // Without statistics of the scheduler in the system, nothing is measured.
        let stat = std::fs::read_to_string(thread.unwrap().path().join("schedstat"));
        let stat = stat.unwrap_or_default();
        let nanos = stat.split_whitespace().next();
        nanos.map_or(0, |nanos| nanos.parse().unwrap())
    });
    Duration::from_nanos(nanos.sum())
}

#[cfg(not(target_os = "linux"))]
fn processor_time() -> Duration {
    Duration::ZERO
}

/// In an idle time the process takes less than 1 % of a core.
fn assert_idle(who: &str) {
    let before = processor_time();
    std::thread::sleep(IDLE);
    let took = processor_time().saturating_sub(before);
    assert!(took < IDLE / 100, "{who}: {took:?} in {IDLE:?}");
}

fn put(dataset: &Dataset<u64>, ids: std::ops::Range<u64>) {
    for id in ids {
        dataset.put_json(format!("{{\"id\":{id}}}")).unwrap();
    }
}

/// Takes everything that is there by now, and checks the order.
fn take(changes: &mut Changes<u64>, next: &mut u64) -> usize {
    let mut taken = 0;
    while let Some(change) = changes.next().unwrap() {
        assert_eq!(*change.key(), *next, "each change once, in order");
        *next += 1;
        taken += 1;
    }
    taken
}

struct Feeds {
    feeds: Vec<(Changes<u64>, u64)>,
    listening: Vec<Listening>,
    woken: Woken,
}

impl Feeds {
    fn new(dataset: &Dataset<u64>) -> Feeds {
        let woken = Woken::new();
        let feed = |_| (dataset.changes(ChangesFrom::Oldest).unwrap(), 0);
        let mut feeds: Vec<(Changes<u64>, u64)> = (0..CONSUMERS).map(feed).collect();
        let listen = |(at, (feed, next)): (usize, &mut (Changes<u64>, u64))| {
            let listening = feed.listen(woken.wake(at)).unwrap();
            take(feed, next);
            listening
        };
        let listening = feeds.iter_mut().enumerate().map(listen).collect();
        Feeds {
            feeds,
            listening,
            woken,
        }
    }

    fn serve(&mut self, upto: u64) {
        let left = |next: u64| (upto - next) as usize;
        let mut missing: usize = self.feeds.iter().map(|(_, next)| left(*next)).sum();
        if missing == 0 {
            return;
        }
        let feeds = &mut self.feeds;
        self.woken.serve(|at| {
            // The last wake-up of a feed that has left may come after its last change was taken.
            if let Some((feed, next)) = feeds.get_mut(at) {
                missing -= take(feed, next);
            }
            missing == 0
        });
    }
}

fn one_thread_serves_feeds(db: &Database) {
    let dataset = db
        .create_dataset::<u64>("d", DatasetDef::new("id", KeyType::Int))
        .unwrap();
    put(&dataset, 0..5);
    let before = threads();
    let mut feeds = Feeds::new(&dataset);
    assert_eq!(threads(), before, "listeners of a writing store");
    assert_idle("listeners of a writing store");
    std::thread::scope(|scope| {
        scope.spawn(|| put(&dataset, 5..25));
        feeds.serve(25);
    });
    // Half of them leave: the others go on.
    feeds.listening.truncate(CONSUMERS / 2);
    feeds.feeds.truncate(CONSUMERS / 2);
    put(&dataset, 25..27);
    feeds.serve(27);
}

/// Beside the writer: all listeners share one thread, which ends with the last.
fn listeners_of_a_reader_share_a_thread(db: &Database, memory: &Memory) {
    let written = db.dataset::<u64>("d").unwrap();
    let before = threads();
    let reader = Database::open_reader("/store", options(memory)).unwrap();
    let mut feeds = Feeds::new(&reader.dataset::<u64>("d").unwrap());
    assert_eq!(threads(), before + usize::from(before > 0));
    assert_idle("listeners of a reader");
    put(&written, 27..30);
    feeds.serve(30);
    feeds.listening.clear();
    wait_for_threads(before);
    // And a new one comes with the next.
    let (feed, next) = &mut feeds.feeds[0];
    feeds
        .listening
        .push(feed.listen(feeds.woken.wake(0)).unwrap());
    put(&written, 30..31);
    while take(feed, next) == 0 {
        feeds.woken.serve(|_| true);
    }
    feeds.listening.clear();
    wait_for_threads(before);
}

fn one_thread_serves_inboxes(broker: &Broker) -> (Vec<Inbox>, Vec<Listening>, Woken) {
    let woken = Woken::new();
    let topics = CONSUMERS / OF_A_TOPIC;
    let before = threads();
    let mut inboxes: Vec<Inbox> = (0..CONSUMERS)
        .map(|at| {
            let topic = format!("t/{}", at % topics).parse().unwrap();
            let id = broker.subscribe(&Subscription::to(topic)).unwrap().id;
            broker.inbox(id, None).unwrap()
        })
        .collect();
    let mut listening = Vec::new();
    for (at, inbox) in inboxes.iter_mut().enumerate() {
        listening.push(inbox.listen(woken.wake(at)));
        assert!(inbox.next().unwrap().is_none());
    }
    assert_eq!(threads(), before, "inboxes");
    assert_idle("inboxes");
    let mut expected: Vec<Vec<Seq>> = vec![Vec::new(); topics];
    let mut given: Vec<Vec<Seq>> = vec![Vec::new(); CONSUMERS];
    for turn in 0..3 * topics {
        let topic = turn * 7 % topics;
        let publication = Publication::new(format!("t/{topic}").parse().unwrap(), b"{}");
        expected[topic].push(broker.publish(&publication).unwrap().seq);
    }
    // A publication wakes those that it is for, and nobody else.
    assert_eq!(woken.calls.load(SeqCst), 3 * topics * OF_A_TOPIC);
    let mut missing = 3 * CONSUMERS;
    woken.serve(|at| {
        while let Some(next) = inboxes[at].next().unwrap() {
            given[at].push(next.seq);
            missing -= 1;
        }
        missing == 0
    });
    for (at, given) in given.iter().enumerate() {
        assert_eq!(*given, expected[at % topics], "inbox {at}");
    }
    (inboxes, listening, woken)
}

#[test]
fn one_thread_serves_ten_thousand_consumers() {
    let memory = Memory::new();
    let db = PubSub::create_or_open(Path::new("/store"), options(&memory)).unwrap();
    // Background threads are there from the first write on.
    let broker = Broker::create_or_open(&db, Config::new()).unwrap();
    broker
        .publish(&Publication::new("first".parse().unwrap(), b"{}"))
        .unwrap();
    one_thread_serves_feeds(&db);
    listeners_of_a_reader_share_a_thread(&db, &memory);
    let (inboxes, _listening, woken) = one_thread_serves_inboxes(&broker);
    // All learn that the store is closed.
    db.close().unwrap();
    let mut left = CONSUMERS;
    woken.serve(|at| {
        assert!(inboxes[at].is_ended());
        left -= 1;
        left == 0
    });
}

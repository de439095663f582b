//! Followers.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use esker::{Database, Durability, ErrorKind, Options, Seq};
use esker_pubsub::{Broker, Config, Follow, PubSub, Publication, Subscription};
use esker_sim::hooked::{Call, Hooked};
use esker_sim::memory::{Memory, PowerCut};

const DAY: u64 = 24 * 60 * 60 * 1_000;

fn options(fs: Arc<dyn esker::fs::Fs>, clock: &Arc<AtomicU64>) -> Options {
    let clock = clock.clone();
    PubSub::register(
        Options::new()
            .fs(fs)
            .background(false)
            .durability(Durability::Sync)
            .clock(Arc::new(move || clock.load(Ordering::SeqCst))),
    )
}

fn open(fs: Arc<dyn esker::fs::Fs>, clock: &Arc<AtomicU64>) -> (Database, Broker) {
    let db = PubSub::create_or_open(Path::new("/follow"), options(fs, clock)).unwrap();
    let broker = Broker::create_or_open(&db, Config::new()).unwrap();
    (db, broker)
}

fn asked() -> Subscription {
    Subscription::to("a".parse().unwrap())
}

fn publish(broker: &Broker, expires: i64) -> Seq {
    let new = Publication::new("a".parse().unwrap(), "{}").expires(expires);
    broker.publish(&new).unwrap().seq
}

fn all_of(follow: &mut Follow) -> Vec<Seq> {
    std::iter::from_fn(|| follow.next().unwrap().map(|next| next.seq)).collect()
}

/// A publication in the log that has expired only by a clock that may be wrong is returned: what is
/// skipped does not come again.
#[test]
fn a_wrong_jump_of_the_clock_skips_nothing() {
    let clock = Arc::new(AtomicU64::new(1_000));
    let (db, broker) = open(Arc::new(Memory::new()), &clock);
    let mut follow = broker.follow(&asked(), None).unwrap();
    assert!(follow.next().unwrap().is_none());
    let made = [publish(&broker, 9_000), publish(&broker, 10_000)];
    clock.store(1_001 + 3 * DAY, Ordering::SeqCst);
    assert!(db.unconfirmed_time().is_some());
    assert_eq!(all_of(&mut follow), made);
}

/// What a follower has skipped as expired stays so when power and clock fail together.
#[test]
fn what_a_follower_skips_does_not_come_back() {
    let (memory, clock) = (Memory::new(), Arc::new(AtomicU64::new(1_000)));
    let (_db, broker) = open(Arc::new(memory.clone()), &clock);
    let mut follow = broker.follow(&asked(), None).unwrap();
    publish(&broker, 5_000);
    clock.store(60_000, Ordering::SeqCst);
    assert!(follow.next().unwrap().is_none());
    clock.store(2_000, Ordering::SeqCst);
    let (_db, broker) = open(Arc::new(memory.power_cut(0, PowerCut::Kept)), &clock);
    let again = broker.follow(&asked().from(0), None).unwrap().next();
    assert_eq!(again.unwrap().map(|next| next.seq), None);
}

/// A wait without a limit ends with the subscription's interval.
#[test]
fn a_wait_ends_with_the_interval() {
    let clock = Arc::new(AtomicU64::new(1_000));
    let (_db, broker) = open(Arc::new(Memory::new()), &clock);
    let mut over = broker.follow(&asked().until(2_000), None).unwrap();
    let seq = publish(&broker, 9_000);
    clock.store(2_001, Ordering::SeqCst);
    let mut later = broker.follow(&asked().until(2_005), None).unwrap();
    let waiting = std::thread::spawn(move || {
        let first = over.wait(Duration::MAX).unwrap().map(|next| next.seq);
        let second = over.wait(Duration::MAX).unwrap().map(|next| next.seq);
        (first, second, over.is_over())
    });
    assert_eq!(waiting.join().unwrap(), (Some(seq), None, true));
    // The interval ends while it waits.
    let waiting = std::thread::spawn(move || {
        let next = later.wait(Duration::MAX).unwrap();
        (next.is_none(), later.is_over())
    });
    clock.store(2_006, Ordering::SeqCst);
    assert_eq!(waiting.join().unwrap(), (true, true));
}

/// A publication gets its time before it is visible: an interval is not over while one that belongs
/// to it is being synced.
#[test]
fn an_interval_is_not_over_before_its_last_publication_is_visible() {
    let clock = Arc::new(AtomicU64::new(1_000));
    let fs = Hooked::new(Arc::new(Memory::new()));
    let (_db, broker) = open(Arc::new(fs.clone()), &clock);
    let mut follow = broker.follow(&asked().until(2_000), None).unwrap();
    clock.store(2_000, Ordering::SeqCst);
    let (reached, syncing) = std::sync::mpsc::channel();
    let (go_on, held) = std::sync::mpsc::channel::<()>();
    let held = std::sync::Mutex::new(held);
    fs.set(move |call, path| {
        let is_log = path.extension().is_some_and(|ext| ext == "log");
        if call == Call::Sync && is_log && reached.send(()).is_ok() {
            // An error once the other end is dropped.
            let _ = held.lock().unwrap().recv();
        }
        Ok(())
    });
    std::thread::scope(|scope| {
        let publishing = scope.spawn(|| publish(&broker, 9_000));
        syncing.recv().unwrap();
        clock.store(2_001, Ordering::SeqCst);
        let following = scope.spawn(|| (follow.next().unwrap(), follow.is_over()));
        // Without the guard it ends in this time.
        std::thread::sleep(Duration::from_millis(100));
        drop(go_on);
        let (next, is_over) = following.join().unwrap();
        let seq = publishing.join().unwrap();
        assert_eq!((next.map(|next| next.seq), is_over), (Some(seq), true));
    });
}

/// A wait without a limit ends when the store refuses writes.
#[test]
fn a_wait_ends_when_the_store_refuses_writes() {
    let clock = Arc::new(AtomicU64::new(1_000));
    let fs = Hooked::new(Arc::new(Memory::new()));
    let (_db, broker) = open(Arc::new(fs.clone()), &clock);
    let first = publish(&broker, 9_000);
    let mut follow = broker.follow(&asked().from(0), None).unwrap();
    assert_eq!(all_of(&mut follow), [first]);
    let waiting = std::thread::spawn(move || follow.wait(Duration::MAX).map(|next| next.is_none()));
    fs.set(|call, path| {
        let is_log = path.extension().is_some_and(|ext| ext == "log");
        match call {
            Call::Sync if is_log => Err(std::io::ErrorKind::Other.into()),
            _ => Ok(()),
        }
    });
    let new = Publication::new("a".parse().unwrap(), "{}");
    assert!(broker.publish(&new).is_err());
    assert_eq!(
        broker.publish(&new).unwrap_err().kind(),
        ErrorKind::Poisoned
    );
    assert_eq!(
        waiting.join().unwrap().unwrap_err().kind(),
        ErrorKind::Poisoned
    );
}

/// A follower that resumes reads what comes behind its place, not the whole interval.
#[test]
fn a_follower_that_resumes_reads_the_rest() {
    let clock = Arc::new(AtomicU64::new(1_000));
    let (db, broker) = open(Arc::new(Memory::new()), &clock);
    let body = format!("{{\"text\":\"{}\"}}", "x".repeat(200));
    let publish = || {
        let new = Publication::new("a".parse().unwrap(), body.clone());
        broker.publish(&new).unwrap().seq
    };
    let made: Vec<Seq> = (0..3_000).map(|_| publish()).collect();
    db.flush().unwrap();
    db.compact(None).unwrap();
    let past = asked().from(0);
    let read = |after: Option<Seq>| {
        let before = broker.read_stats().data_blocks;
        let mut follow = broker.follow(&past, after).unwrap();
        let found = all_of(&mut follow).len();
        (found, broker.read_stats().data_blocks - before)
    };
    let (found, all) = read(None);
    assert_eq!(found, 3_000);
    let (found, rest) = read(Some(made[2_989]));
    assert_eq!(found, 10);
    assert!(rest * 10 < all, "{rest} of {all} blocks");
}

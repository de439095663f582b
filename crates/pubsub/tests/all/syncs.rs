//! Changes of subscriptions while a sync is under way: they share syncs, and a later change is
//! based on the state in the log.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use esker::fs::Fs;
use esker::{Database, Durability, ErrorKind, Options, Seq};
use esker_pubsub::{Broker, Config, Place, PubSub, Publication, Region, Subscription};
use esker_sim::hooked::{Call, Hooked};
use esker_sim::memory::{Memory, PowerCut};

const BEGIN: u64 = 1_000_000;

fn open(fs: Arc<dyn Fs>, clock: &Arc<AtomicU64>) -> (Database, Broker) {
    let clock = clock.clone();
    let options = PubSub::register(
        Options::new()
            .fs(fs)
            .durability(Durability::Sync)
            .background(false)
            .clock(Arc::new(move || clock.load(SeqCst))),
    );
    let db = PubSub::create_or_open(Path::new("/syncs"), options).unwrap();
    let broker = Broker::create_or_open(&db, Config::new()).unwrap();
    (db, broker)
}

/// Calls of the log since the last hold, and the condition under which syncs end.
#[derive(Default)]
struct State {
    appended: usize,
    synced: usize,
    /// A sync waits for this many appends, and then fails if `fails` is set.
    expected: usize,
    fails: bool,
}

/// Holds syncs of the log.
#[derive(Clone, Default)]
struct Syncs(Arc<(Mutex<State>, Condvar)>);

impl Syncs {
    /// Long enough for the slowest machine.
    const LONG: Duration = Duration::from_secs(20);

    fn of(fs: &Hooked) -> Syncs {
        let syncs = Syncs::default();
        let held = syncs.clone();
        fs.set(move |call, path| {
            let (state, changed) = &*held.0;
            let mut state = state.lock().unwrap();
            match call {
                _ if path.extension().is_none_or(|ext| ext != "log") => {}
                Call::Append => {
                    state.appended += 1;
                    changed.notify_all();
                }
                Call::Sync => {
                    state.synced += 1;
                    changed.notify_all();
                    let waits = |state: &mut State| state.appended < state.expected;
                    let (state, late) = changed
                        .wait_timeout_while(state, Syncs::LONG, waits)
                        .unwrap();
                    if state.fails || late.timed_out() {
                        return Err(std::io::ErrorKind::Other.into());
                    }
                }
                _ => {}
            }
            Ok(())
        });
        syncs
    }

    /// Holds later syncs until `expected` appends.
    fn hold(&self, expected: usize, fails: bool) {
        *self.0.0.lock().unwrap() = State {
            expected,
            fails,
            ..State::default()
        };
    }

    fn wait_for(&self, wanted: impl Fn(&State) -> bool) {
        let (state, changed) = &*self.0;
        let is_less = |state: &mut State| !wanted(state);
        let state = state.lock().unwrap();
        let (_state, late) = changed
            .wait_timeout_while(state, Syncs::LONG, is_less)
            .unwrap();
        assert!(!late.timed_out(), "the awaited calls do not come");
    }

    fn wait_for_appends(&self, count: usize) {
        self.wait_for(|state| state.appended >= count);
    }

    fn synced(&self) -> usize {
        self.0.0.lock().unwrap().synced
    }
}

fn near(longitude: f64) -> Place {
    Place::Region(Region::Circle {
        longitude,
        latitude: 50.0,
        metres: 10_000.0,
    })
}

fn matched(broker: &Broker, longitude: f64) -> (Seq, Vec<Seq>) {
    let new = Publication::new("a".parse().unwrap(), "{}").at_point(longitude, 50.0);
    let made = broker.publish(&new).unwrap();
    assert!(made.unread.is_none());
    (
        made.seq,
        made.matches.iter().map(|m| m.subscription).collect(),
    )
}

/// While one change waits for its sync, others enter the log: moves, renewals and the end of one
/// subscription.
#[test]
fn changes_of_one_subscription_share_syncs() {
    let (fs, clock) = (
        Hooked::new(Arc::new(Memory::new())),
        Arc::new(AtomicU64::new(BEGIN)),
    );
    let (_db, broker) = open(Arc::new(fs.clone()), &clock);
    let asked = Subscription::to("a".parse().unwrap()).until(BEGIN as i64 + 1_000);
    let id = broker.subscribe(&asked).unwrap().id;
    let syncs = Syncs::of(&fs);
    syncs.hold(6, false);
    std::thread::scope(|scope| {
        let change = |n: usize| {
            let broker = &broker;
            scope.spawn(move || match n % 2 {
                0 => broker.move_to(id, near(n as f64)).unwrap(),
                _ => broker.renew(id, 2_000_000 + n as i64).unwrap().is_some(),
            })
        };
        let mut changes: Vec<_> = Vec::new();
        for n in 0..6 {
            changes.push(change(n));
            // This fixes their order.
            syncs.wait_for_appends(n + 1);
        }
        for change in changes {
            assert!(change.join().unwrap());
        }
    });
    // The first sync may have begun before the other changes were appended.
    assert!(syncs.synced() <= 2, "{} syncs", syncs.synced());
    syncs.hold(0, false);
    clock.store(BEGIN + 2_000, SeqCst);
    for longitude in 0..6 {
        let expected = if longitude == 4 { vec![id] } else { Vec::new() };
        assert_eq!(matched(&broker, f64::from(longitude)).1, expected);
    }
    // One call ends it; the others return false after that end is acknowledged.
    syncs.hold(1, false);
    let mut ended: Vec<bool> = std::thread::scope(|scope| {
        let end = || broker.unsubscribe(id).unwrap();
        let ends: Vec<_> = (0..3).map(|_| scope.spawn(end)).collect();
        ends.into_iter().map(|end| end.join().unwrap()).collect()
    });
    ended.sort_unstable();
    assert_eq!(ended, [false, false, true]);
    assert!(syncs.synced() <= 3);
}

/// A change based on an unsynced change fails with it, and so does an answer based on one.
#[test]
fn a_change_fails_with_the_one_before_it() {
    let (memory, clock) = (Memory::new(), Arc::new(AtomicU64::new(BEGIN)));
    let fs = Hooked::new(Arc::new(memory.clone()));
    let (db, broker) = open(Arc::new(fs.clone()), &clock);
    let asked = Subscription::to("a".parse().unwrap()).at_place(near(1.0));
    let id = broker.subscribe(&asked).unwrap().id;
    let syncs = Syncs::of(&fs);
    syncs.hold(2, true);
    std::thread::scope(|scope| {
        let moved = scope.spawn(|| broker.move_to(id, near(2.0)));
        syncs.wait_for_appends(1);
        let ended = scope.spawn(|| broker.unsubscribe(id));
        assert!(moved.join().unwrap().is_err());
        assert!(ended.join().unwrap().is_err());
    });
    assert!(broker.unsubscribe(id).is_err());
    assert!(broker.renew(id, i64::MAX).is_err());
    fs.clear();
    drop(broker);
    let _ = db.close();
    // Neither change survives, or the first alone: never the second.
    let (_db, broker) = open(Arc::new(memory.power_cut(1, PowerCut::Lost)), &clock);
    assert_eq!(matched(&broker, 1.0).1, [id]);
    assert!(matched(&broker, 2.0).1.is_empty());
    assert!(broker.unsubscribe(id).unwrap());
}

/// A consumer created during a change knows the change even after the subscription has ended.
#[test]
fn a_consumer_created_during_a_change_knows_it() {
    let (fs, clock) = (
        Hooked::new(Arc::new(Memory::new())),
        Arc::new(AtomicU64::new(BEGIN)),
    );
    let (_db, broker) = open(Arc::new(fs.clone()), &clock);
    let asked = Subscription::to("a".parse().unwrap())
        .at_place(near(1.0))
        .until(BEGIN as i64 + 1_000);
    let id = broker.subscribe(&asked).unwrap().id;
    let syncs = Syncs::of(&fs);
    // The sync of the move waits for another append.
    syncs.hold(2, false);
    let mut inbox = std::thread::scope(|scope| {
        let moved = scope.spawn(|| broker.move_to(id, near(2.0)));
        syncs.wait_for(|state| state.synced > 0);
        let inbox = broker.inbox(id, None).unwrap();
        assert!(matched(&broker, 1.0).1.is_empty());
        assert!(moved.join().unwrap().unwrap());
        inbox
    });
    syncs.hold(0, false);
    let (expected, of) = matched(&broker, 2.0);
    assert_eq!(of, [id]);
    clock.store(BEGIN + 5_000, SeqCst);
    assert!(matched(&broker, 2.0).1.is_empty());
    assert!(!broker.unsubscribe(id).unwrap());
    assert_eq!(inbox.next().unwrap().map(|next| next.seq), Some(expected));
    assert!(inbox.next().unwrap().is_none());
}

/// A closed store is an error, not an answer about a subscription.
#[test]
fn a_change_in_a_closed_store_is_an_error() {
    let clock = Arc::new(AtomicU64::new(BEGIN));
    let (db, broker) = open(Arc::new(Memory::new()), &clock);
    let asked = Subscription::to("a".parse().unwrap());
    let id = broker.subscribe(&asked).unwrap().id;
    db.close().unwrap();
    assert_eq!(
        broker.unsubscribe(id).unwrap_err().kind(),
        ErrorKind::Closed
    );
    assert_eq!(broker.renew(id, 5).unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(
        broker.inbox(id, None).err().map(|e| e.kind()),
        Some(ErrorKind::Closed)
    );
}

//! Publish/subscribe with failing calls to the file system, and with closed stores.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::Duration;

use esker::{Database, Durability, ErrorKind, Options, Seq};
use esker_pubsub::{
    Broker, Config, Notification, Notifier, Place, PubSub, Publication, RepeatedQueries,
    Subscription,
};
use esker_sim::hooked::{Call, Hooked};
use esker_sim::memory::{Memory, PowerCut};

fn store(fs: Arc<dyn esker::fs::Fs>) -> Database {
    let options = PubSub::register(
        Options::new()
            .fs(fs)
            .memory_budget(1 << 20)
            .table_size(64 << 10)
            .durability(Durability::Sync)
            .background(false),
    );
    PubSub::create_or_open(Path::new("/failures"), options).unwrap()
}

fn open(fs: Arc<dyn esker::fs::Fs>) -> (Database, Broker) {
    let db = store(fs);
    let broker = Broker::create_or_open(&db, Config::new()).unwrap();
    (db, broker)
}

/// The first element of a shape writes it to the directory. If that write fails on a full disk, the
/// next element writes the shape.
#[test]
fn a_shape_that_a_full_disk_refused_is_written_by_the_next_element() {
    let memory = Memory::new();
    let fs = Hooked::new(Arc::new(memory.clone()));
    let (_db, broker) = open(Arc::new(fs.clone()));
    let publication = Publication::new("a/b/c".parse().unwrap(), "{}").at_point(10.0, 50.0);
    let subscription = Subscription::to("x/+/z".parse().unwrap());
    // Creates the file of the log.
    broker
        .publish(&Publication::new("q".parse().unwrap(), "{}"))
        .unwrap();
    fs.set(|call, path| {
        let is_log = path.extension().is_some_and(|ext| ext == "log");
        if is_log && matches!(call, Call::Append | Call::WriteAhead) {
            Err(std::io::ErrorKind::StorageFull.into())
        } else {
            Ok(())
        }
    });
    let refused = broker.publish(&publication).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::DiskFull);
    assert!(broker.subscribe(&subscription).is_err());
    fs.clear();
    let seq = broker.publish(&publication).unwrap().seq;
    let id = broker.subscribe(&subscription).unwrap().id;
    let (_db, broker) = open(Arc::new(memory.power_cut(1, PowerCut::Reordered)));
    let all = Subscription::to("a".parse().unwrap()).from(0);
    let found = broker.query(&all).unwrap();
    assert_eq!(found.iter().map(|f| f.seq).collect::<Vec<_>>(), [seq]);
    let one = Publication::new("x/y/z".parse().unwrap(), "{}");
    let matches = broker.publish(&one).unwrap().matches;
    assert_eq!(matches.first().map(|m| m.subscription), Some(id));
}

#[test]
fn waiting_consumers_return_when_the_store_is_closed() {
    let (db, broker) = open(Arc::new(Memory::new()));
    let asked = Subscription::to("a".parse().unwrap());
    let id = broker.subscribe(&asked).unwrap().id;
    let mut inbox = broker.inbox(id, None).unwrap();
    let mut follow = broker.follow(&asked, None).unwrap();
    assert!(inbox.next().unwrap().is_none());
    let waits = std::thread::spawn(move || inbox.wait(Duration::MAX).unwrap_err().kind());
    let follows = std::thread::spawn(move || follow.wait(Duration::MAX).unwrap_err().kind());
    let (ended, end) = mpsc::channel::<()>();
    let notifier = broker
        .notify(id, None, move |_| ended.send(()).unwrap())
        .unwrap();
    db.close().unwrap();
    assert_eq!(waits.join().unwrap(), ErrorKind::Closed);
    assert_eq!(follows.join().unwrap(), ErrorKind::Closed);
    // The thread of the notifier ends and drops the callback. A closed store is no error for it.
    assert!(end.recv().is_err());
    drop(notifier);
}

/// A callback may publish, unsubscribe, and drop its notifier.
#[test]
fn a_callback_may_end_itself() {
    let (_db, broker) = open(Arc::new(Memory::new()));
    let asked = Subscription::to("a".parse().unwrap());
    let id = broker.subscribe(&asked).unwrap().id;
    let place = Arc::new(Mutex::new(None::<Notifier>));
    let (own, there) = (place.clone(), broker.clone());
    let (done, is_done) = mpsc::channel();
    let call = move |next: esker::Result<esker_pubsub::Notification>| {
        let again = Publication::new("a".parse().unwrap(), "{}");
        there.publish(&again).unwrap();
        assert!(there.unsubscribe(id).unwrap());
        drop(own.lock().unwrap().take());
        done.send(next.unwrap().seq).unwrap();
    };
    let mut held = place.lock().unwrap();
    *held = Some(broker.notify(id, None, call).unwrap());
    let first = Publication::new("a".parse().unwrap(), "{}");
    let seq = broker.publish(&first).unwrap().seq;
    drop(held);
    assert_eq!(is_done.recv(), Ok(seq));
    assert!(is_done.recv().is_err(), "the callback is called again");
}

/// An element that is stored is reported as stored even if the reads after its write fail. So a
/// caller stores nothing twice and misses nothing.
#[test]
fn a_failed_read_does_not_hide_that_the_write_succeeded() {
    let memory = Memory::new();
    let fs = Hooked::new(Arc::new(memory.clone()));
    let (db, broker) = open(Arc::new(fs.clone()));
    let now = broker.now();
    let asked = Subscription::to("a".parse().unwrap()).until(now + 100_000);
    let id = broker.subscribe(&asked).unwrap().id;
    let later = now + 200_000;
    let ahead = Publication::new("a".parse().unwrap(), "{}").at_time(later);
    let made: Vec<Seq> = (0..200)
        .map(|_| broker.publish(&ahead).unwrap().seq)
        .collect();
    db.flush().unwrap();
    drop(broker);
    db.close().unwrap();
    // Fails all reads of tables after the first few.
    let fail = |fs: &Hooked, but: usize| {
        let left = AtomicUsize::new(but);
        fs.set(move |call, path| {
            let is_table = path.extension().is_none_or(|ext| ext != "log");
            let is_read = is_table && matches!(call, Call::Open | Call::Read);
            let may = |left: usize| left.checked_sub(1);
            if is_read && left.fetch_update(SeqCst, SeqCst, may).is_err() {
                Err(std::io::ErrorKind::Other.into())
            } else {
                Ok(())
            }
        });
    };
    // A new handle, with empty caches.
    let (db, broker) = open(Arc::new(fs.clone()));
    fail(&fs, 0);
    // A publication is stored, and its number returned.
    let new = Publication::new("a".parse().unwrap(), "{}");
    let published = broker.publish(&new).unwrap();
    assert_eq!(published.unread.unwrap().kind(), ErrorKind::Io);
    assert!(published.matches.is_empty());
    // So is a subscription.
    let all = Subscription::to("a".parse().unwrap()).from(0);
    let subscribed = broker.subscribe(&all).unwrap();
    assert_eq!(subscribed.unread.unwrap().kind(), ErrorKind::Io);
    assert!(subscribed.id > published.seq);
    // A subscription that has ended already is not stored: the error is returned.
    let over = Subscription::to("a".parse().unwrap()).from(0).until(later);
    let over = over.at_time(later + 1);
    assert_eq!(broker.subscribe(&over).unwrap_err().kind(), ErrorKind::Io);
    // A renewal returns the missed publications, or fails and changes nothing, at whichever read.
    let missed = (0..100).find_map(|but| {
        fail(&fs, but);
        let renewed = broker.renew(id, later + 1);
        assert!(but > 0 || renewed.is_err());
        renewed.ok()
    });
    fs.clear();
    let missed = missed.unwrap().unwrap();
    assert_eq!(missed.iter().map(|one| one.seq).collect::<Vec<_>>(), made);
    assert_eq!(broker.renew(id, later + 2).unwrap(), Some(Vec::new()));
    let seqs = |found: &[esker_pubsub::Notification]| -> Vec<Seq> {
        found.iter().map(|found| found.seq).collect()
    };
    let mut expected = made.clone();
    expected.push(published.seq);
    assert_eq!(seqs(&broker.query(&all).unwrap()), expected);
    let mut inbox = broker.inbox(id, None).unwrap();
    assert_eq!(inbox.next().unwrap().unwrap().seq, published.seq);
    assert!(inbox.next().unwrap().is_none());
    // The inbox returns the publications that `subscribe` could not read.
    let mut inbox = broker.inbox(subscribed.id, Some(0)).unwrap();
    let got: Vec<Seq> = std::iter::from_fn(|| inbox.next().unwrap())
        .map(|next| next.seq)
        .collect();
    assert_eq!(got, expected);
    assert!(broker.unsubscribe(subscribed.id).unwrap());
    db.close().unwrap();
}

/// Changes of several subscriptions are synced together: while one waits for its sync, others enter
/// the log.
#[test]
fn changes_of_several_subscriptions_share_syncs() {
    let fs = Hooked::new(Arc::new(Memory::new()));
    let (_db, broker) = open(Arc::new(fs.clone()));
    let asked = Subscription::to("a".parse().unwrap()).until(i64::MAX - 1);
    let ids: Vec<Seq> = (0..6)
        .map(|_| broker.subscribe(&asked).unwrap().id)
        .collect();
    // A sync completes only when all changes are in the log.
    let (appended, all) = (Arc::new(Mutex::new(0)), Arc::new(Condvar::new()));
    let (count, more) = (appended.clone(), all.clone());
    let expected = ids.len();
    fs.set(move |call, path| {
        let is_log = path.extension().is_some_and(|ext| ext == "log");
        let mut count = count.lock().unwrap();
        match call {
            Call::Append if is_log => {
                *count += 1;
                more.notify_all();
            }
            Call::Sync if is_log => {
                let wait = Duration::from_secs(20);
                let is_less = |count: &mut usize| *count < expected;
                let (_count, waited) = more.wait_timeout_while(count, wait, is_less).unwrap();
                if waited.timed_out() {
                    return Err(std::io::ErrorKind::TimedOut.into());
                }
            }
            _ => {}
        }
        Ok(())
    });
    std::thread::scope(|scope| {
        let changes: Vec<_> = ids
            .iter()
            .enumerate()
            .map(|(n, id)| {
                let (broker, id) = (&broker, *id);
                scope.spawn(move || match n % 3 {
                    0 => broker.unsubscribe(id),
                    1 => broker.move_to(id, Place::Anywhere),
                    _ => broker.renew(id, i64::MAX).map(|renewed| renewed.is_some()),
                })
            })
            .collect();
        for change in changes {
            assert!(change.join().unwrap().unwrap());
        }
    });
    fs.clear();
    let new = Publication::new("a".parse().unwrap(), "{}");
    assert_eq!(broker.publish(&new).unwrap().matches.len(), 4);
}

/// Changes of one subscription are made one after the other, and none is lost.
#[test]
fn changes_of_one_subscription_follow_each_other() {
    let (_db, broker) = open(Arc::new(Memory::new()));
    let asked = Subscription::to("a".parse().unwrap());
    let id = broker.subscribe(&asked).unwrap().id;
    let ended = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for n in 0..6 {
            let (broker, ended) = (&broker, &ended);
            scope.spawn(move || {
                for _ in 0..20 {
                    let until = broker.now() + 100_000 + n;
                    broker.renew(id, until).unwrap();
                    broker.move_to(id, Place::Anywhere).unwrap();
                }
                let ends = broker.unsubscribe(id).unwrap();
                ended.fetch_add(usize::from(ends), SeqCst);
            });
        }
    });
    assert_eq!(ended.load(SeqCst), 1);
    let new = Publication::new("a".parse().unwrap(), "{}");
    assert!(broker.publish(&new).unwrap().matches.is_empty());
}

/// A renewal reads the missed publications before it is written, and returns those published in
/// between as well.
#[test]
fn a_renewal_returns_publications_made_while_it_reads() {
    let memory = Memory::new();
    let fs = Hooked::new(Arc::new(memory.clone()));
    let (db, broker) = open(Arc::new(fs.clone()));
    let now = broker.now();
    let asked = Subscription::to("a".parse().unwrap()).until(now + 100_000);
    let id = broker.subscribe(&asked).unwrap().id;
    let later = now + 200_000;
    let ahead = Publication::new("a".parse().unwrap(), "{}").at_time(later);
    let mut expected: Vec<Seq> = (0..20)
        .map(|_| broker.publish(&ahead).unwrap().seq)
        .collect();
    db.flush().unwrap();
    drop(broker);
    db.close().unwrap();
    let (_db, broker) = open(Arc::new(fs.clone()));
    let between = Arc::new(Mutex::new(Vec::new()));
    let (publisher, told, is_first) = (broker.clone(), between.clone(), AtomicUsize::new(0));
    fs.set(move |call, path| {
        let is_table = path.extension().is_none_or(|ext| ext != "log");
        if is_table && call == Call::Read && is_first.fetch_add(1, SeqCst) == 0 {
            let published = publisher.publish(&ahead).unwrap();
            told.lock().unwrap().push(published.seq);
        }
        Ok(())
    });
    let missed = broker.renew(id, later).unwrap().unwrap();
    fs.clear();
    expected.extend(between.lock().unwrap().iter());
    assert_eq!(expected.len(), 21);
    assert_eq!(
        missed.iter().map(|one| one.seq).collect::<Vec<_>>(),
        expected
    );
    let again = broker.renew(id, later + 1).unwrap();
    assert_eq!(again, Some(Vec::new()));
    let mut inbox = broker.inbox(id, None).unwrap();
    assert!(inbox.next().unwrap().is_none());
}

/// Fails all reads of tables.
fn fail_tables(fs: &Hooked) {
    fs.set(|call, path| {
        let is_table = path.extension().is_none_or(|ext| ext != "log");
        if is_table && matches!(call, Call::Open | Call::Read) {
            Err(std::io::ErrorKind::Other.into())
        } else {
            Ok(())
        }
    });
}

/// If the log does not go back to a follower's place any more, and the lists cannot be read at
/// first, the follower reads them in its next call, and misses nothing.
#[test]
fn a_follower_that_could_not_read_the_lists_reads_them_again() {
    let fs = Hooked::new(Arc::new(Memory::new()));
    let (db, broker) = open(Arc::new(fs.clone()));
    let asked = Subscription::to("a".parse().unwrap()).from(0);
    let publish = || {
        let new = Publication::new("a".parse().unwrap(), "{}");
        broker.publish(&new).unwrap().seq
    };
    for reads_first in [false, true] {
        let mut follow = broker.follow(&asked, None).unwrap();
        let before = std::iter::from_fn(|| follow.next().unwrap()).count();
        let mut expected: Vec<Seq> = Vec::new();
        if reads_first {
            // One publication is returned, and another is found in the log, but not returned.
            let first = [publish(), publish()];
            assert_eq!(follow.next().unwrap().unwrap().seq, first[0]);
            expected.push(first[1]);
        }
        // A flush removes the log up to it.
        for _ in 0..3 {
            expected.push(publish());
            db.flush().unwrap();
        }
        db.compact(None).unwrap();
        let seen = follow.seen();
        fail_tables(&fs);
        for _ in 0..2 {
            let failed = follow.next().map(|next| next.map(|next| next.seq));
            assert_eq!(failed.unwrap_err().kind(), ErrorKind::Io, "after {before}");
            assert_eq!(follow.seen(), seen);
        }
        fs.clear();
        let got: Vec<Seq> = std::iter::from_fn(|| follow.next().unwrap())
            .map(|next| next.seq)
            .collect();
        assert_eq!(got, expected, "after {before}");
    }
}

/// A repeated query whose read failed stays due, with all that it knew, also of its user.
#[test]
fn a_repeated_query_that_failed_is_repeated() {
    let fs = Hooked::new(Arc::new(Memory::new()));
    let (db, broker) = open(Arc::new(fs.clone()));
    let now = broker.now();
    let asked = Subscription::to("a".parse().unwrap())
        .at_time(now)
        .until(now + 100)
        .user("ann");
    let mut queries = RepeatedQueries::new(&broker, 10);
    let mut got = Vec::new();
    let mut note = |id: u64, _: &[u8], found: &Notification| got.push((id, found.seq));
    let first = queries.subscribe(&asked, &mut note).unwrap();
    let joins = queries.subscribe(&asked.join(), &mut note).unwrap();
    let publish = |time| {
        let new = Publication::new("a".parse().unwrap(), "{}").at_time(time);
        let seq = broker.publish(&new).unwrap().seq;
        db.flush().unwrap();
        db.compact(None).unwrap();
        seq
    };
    let made = publish(now + 5);
    fail_tables(&fs);
    for _ in 0..2 {
        let failed = queries.advance(now + 10, &mut note).unwrap_err();
        assert_eq!(failed.kind(), ErrorKind::Io);
        assert_eq!(queries.next_due(), Some(now + 10));
    }
    fs.clear();
    queries.advance(now + 10, &mut note).unwrap();
    let later = publish(now + 15);
    queries.finish(now + 200, &mut note).unwrap();
    assert_eq!(queries.next_due(), None);
    assert_eq!(
        got,
        [(first, made), (first, later)],
        "{joins} is a self-join"
    );
}

/// While a broker is created in one store, a call of whose file system takes long, another store of
/// the process opens its own.
#[test]
fn the_brokers_of_two_stores_do_not_wait_for_each_other() {
    let fs = Hooked::new(Arc::new(Memory::new()));
    let slow = store(Arc::new(fs.clone()));
    let quick = store(Arc::new(Memory::new()));
    let waiting = Mutex::new(Some(quick.clone()));
    fs.set(move |_, _| {
        let Some(quick) = waiting.lock().unwrap().take() else {
            return Ok(());
        };
        let (done, opened) = mpsc::channel();
        std::thread::spawn(move || {
            let broker = Broker::create_or_open(&quick, Config::new());
            let _ = done.send(broker.map(|_| ()));
        });
        let opened = opened.recv_timeout(Duration::from_secs(20));
        let opened = opened.map_err(|_| std::io::Error::from(std::io::ErrorKind::TimedOut))?;
        opened.unwrap();
        Ok(())
    });
    Broker::create_or_open(&slow, Config::new()).unwrap();
    fs.clear();
    assert!(Broker::is_there(&quick).unwrap());
    assert!(Broker::is_there(&slow).unwrap());
}

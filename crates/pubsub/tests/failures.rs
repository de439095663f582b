//! Publish/subscribe where calls to the file system fail and stores are closed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use esker::fs::hooked::{Call, Hooked};
use esker::fs::memory::{Memory, PowerCut};
use esker::{Database, Durability, ErrorKind, Options};
use esker_pubsub::{Broker, Config, Notifier, PubSub, Publication, Subscription};

fn open(fs: Arc<dyn esker::fs::Fs>) -> (Database, Broker) {
    let options = PubSub::with(Options {
        fs,
        memory_budget: 1 << 20,
        table_size: 64 << 10,
        durability: Durability::Sync,
        background: false,
        ..Options::default()
    });
    let db = PubSub::create_or_open(Path::new("/failures"), options).unwrap();
    let broker = Broker::create_or_open(&db, Config::new()).unwrap();
    (db, broker)
}

/// What is written beside the first publication or subscription of its shape is not taken for written where the disk was full.
#[test]
fn what_a_full_disk_refused_is_written_with_the_next() {
    let memory = Memory::new();
    let fs = Hooked::new(Arc::new(memory.clone()));
    let (_db, broker) = open(Arc::new(fs.clone()));
    let publication = Publication::new("a/b/c".parse().unwrap(), "{}").at_point(10.0, 50.0);
    let subscription = Subscription::to("x/+/z".parse().unwrap());
    // The log has its file.
    broker
        .publish(&Publication::new("q".parse().unwrap(), "{}"))
        .unwrap();
    fs.set(|call, path| {
        let is_log = path.extension().is_some_and(|ext| ext == "log");
        match is_log && matches!(call, Call::Append | Call::WriteAhead) {
            true => Err(std::io::ErrorKind::StorageFull.into()),
            false => Ok(()),
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
fn consumers_that_wait_learn_that_the_store_is_closed() {
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
    // Its thread ends, and with it what it calls; a store that is closed is no error for it.
    assert!(end.recv().is_err());
    drop(notifier);
}

/// A callback may publish, unsubscribe, and drop what calls it.
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
    assert!(is_done.recv().is_err(), "it is called again");
}

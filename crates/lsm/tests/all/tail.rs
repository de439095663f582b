//! Following the order of commits: a tail returns every batch once and in order, across flushes,
//! restarts and power cuts, as far back as the log is retained; numbers that a reader has seen
//! never name other writes; positions of other histories are recognised.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use crate::common::{DIR, Doing, seeds, small};
use esker_lsm::{
    Batch, Commit, Durability, Error, Group, KeepLog, Kind, Options, PlainTrees, Position, Tail,
    TreeId,
};
use esker_sim::faulty::Faulty;
use esker_sim::memory::{Memory, PowerCut};

const WAIT: Duration = Duration::from_secs(60);

fn open_with(options: Options) -> Group {
    Group::open(Path::new(DIR), options, Arc::new(PlainTrees), true).unwrap()
}

fn options(fs: &Memory, keep_log: KeepLog) -> Options {
    Options {
        keep_log,
        ..small(Arc::new(fs.clone()))
    }
}

const LAST_MIB: KeepLog = KeepLog {
    bytes: 1 << 20,
    age: None,
};

fn tree(group: &Group) -> TreeId {
    match group.tree("t") {
        Some(tree) => tree,
        None => group.create_trees(&[("t".into(), vec![])]).unwrap()[0],
    }
}

fn put(group: &Group, key: &[u8], how: Durability) -> u64 {
    let mut batch = Batch::new();
    batch.put(tree(group), key, b"value").unwrap();
    group.write(&mut batch, how).unwrap()
}

/// The keys that a commit puts.
fn keys(commit: &Commit) -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    commit.each(&mut |_, seq, kind, key, value| {
        assert!(kind == Kind::Put && value == b"value" && seq <= commit.position().seq);
        keys.push(key.to_vec());
    });
    keys
}

fn all(tail: &mut Tail) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    while let Some(commit) = tail.next().unwrap() {
        assert_eq!(commit.position(), tail.position());
        found.extend(keys(&commit));
    }
    found
}

#[test]
fn a_tail_returns_each_commit_once_and_then_waits_for_more() {
    let fs = Memory::new();
    let group = open_with(options(&fs, KeepLog::default()));
    tree(&group);
    let mut tail = group.tail(group.position()).unwrap();
    assert_eq!(tail.next().unwrap(), None);
    put(&group, b"a", Durability::Os);
    let mut batch = Batch::new();
    for key in [b"b", b"c"] {
        batch.put(tree(&group), key, b"value").unwrap();
    }
    group.write(&mut batch, Durability::Sync).unwrap();
    let mut again = group.tail(tail.position()).unwrap();
    assert_eq!(all(&mut tail), [b"a", b"b", b"c"]);
    assert_eq!(tail.position(), group.position());
    // From a position within a batch the whole batch is returned.
    assert_eq!(keys(&again.next().unwrap().unwrap()), [b"a"]);
    assert_eq!(keys(&again.next().unwrap().unwrap()), [b"b", b"c"]);

    let waited = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| tail.wait(WAIT).unwrap().unwrap());
        put(&group, b"d", Durability::Os);
        waiting.join().unwrap()
    });
    assert_eq!(keys(&waited), [b"d"]);
    assert_eq!(tail.wait(Duration::ZERO).unwrap(), None);
    group.close().unwrap();
    assert!(matches!(tail.wait(WAIT), Err(Error::Closed)));
    assert_eq!(all(&mut again), [b"d"]);
}

/// Neither a wait that has begun by then, nor a later one, waits for what does not come any more.
#[test]
fn a_wait_ends_when_the_group_refuses_writes() {
    let memory = Memory::new();
    let fs = Faulty::new(Arc::new(memory.clone()));
    let group = open_with(small(Arc::new(fs.clone())));
    put(&group, b"a", Durability::Sync);
    let mut tail = group.tail(group.position()).unwrap();
    let mut behind = group.tail(group.position()).unwrap();
    put(&group, b"b", Durability::Sync);
    assert_eq!(all(&mut tail), [b"b"]);
    let (tell, told) = mpsc::channel();
    let observer = group.observe(move |commit| {
        let refused = matches!(commit, Err(Error::Poisoned { .. }));
        tell.send(refused).unwrap();
    });
    let observer = observer.unwrap();
    let waiting = std::thread::spawn(move || tail.wait(Duration::MAX));
    fs.fail_sync_once();
    let mut batch = Batch::new();
    batch.put(tree(&group), b"c", b"value").unwrap();
    assert!(group.write(&mut batch, Durability::Sync).is_err());
    let ended = waiting.join().unwrap();
    assert!(matches!(ended, Err(Error::Poisoned { .. })), "{ended:?}");
    // What is visible is returned first.
    assert_eq!(keys(&behind.wait(WAIT).unwrap().unwrap()), [b"b"]);
    let ended = behind.wait(WAIT);
    assert!(matches!(ended, Err(Error::Poisoned { .. })), "{ended:?}");
    // It is the last call of an observer.
    assert!(told.recv().unwrap());
    assert!(told.recv().is_err());
    drop(observer);
}

#[test]
fn a_commit_that_is_not_acknowledged_is_not_given() {
    let fs = Memory::new();
    let group = open_with(options(&fs, KeepLog::default()));
    tree(&group);
    let mut tail = group.tail(group.position()).unwrap();
    let mut batch = Batch::new();
    batch.put(tree(&group), b"a", b"value").unwrap();
    let ticket = group.append(&mut batch, Durability::Sync).unwrap();
    assert_eq!(tail.next().unwrap(), None);
    group.acknowledge(ticket).unwrap();
    assert_eq!(all(&mut tail), [b"a"]);
}

#[test]
fn an_expired_position_is_reported_with_the_oldest_one() {
    let fs = Memory::new();
    let group = open_with(options(&fs, KeepLog::default()));
    tree(&group);
    let start = group.position();
    let mut late = group.tail(start).unwrap();
    put(&group, b"a", Durability::Os);
    group.flush().unwrap();
    put(&group, b"b", Durability::Os);
    let Err(Error::PositionExpired { oldest }) = late.next() else {
        panic!("it is gone")
    };
    assert_eq!(oldest, group.oldest_position());
    assert!(matches!(group.tail(start), Err(Error::PositionExpired { oldest: o }) if o == oldest));
    assert_eq!(all(&mut group.tail(oldest).unwrap()), [b"b"]);
}

#[test]
fn the_log_is_kept_by_bytes_by_age_and_for_consumers_each_up_to_its_bound() {
    let now = Arc::new(AtomicU64::new(1_000_000));
    let clock = now.clone();
    let fs = Memory::new();
    let with = |keep_log| {
        let clock = clock.clone();
        open_with(Options {
            clock: Arc::new(move || clock.load(Ordering::SeqCst)),
            ..options(&fs, keep_log)
        })
    };
    let segment = |group: &Group, key: u8| {
        put(group, &[key; 900], Durability::Os);
        group.flush().unwrap();
        group.position()
    };
    let logs = || {
        let paths = fs.paths();
        let logs = paths
            .iter()
            .filter(|p| p.extension().is_some_and(|e| e == "log"));
        logs.count()
    };
    // By bytes: two segments of a thousand each fit, and stay through a restart.
    let bytes = KeepLog {
        bytes: 2500,
        age: None,
    };
    let group = with(bytes);
    tree(&group);
    let places: Vec<Position> = (0..5).map(|key| segment(&group, key)).collect();
    assert_eq!(group.oldest_position(), places[2]);
    assert_eq!(logs(), 3);
    group.close().unwrap();
    drop(group);
    let group = with(bytes);
    assert_eq!(group.oldest_position(), places[2]);
    let found = all(&mut group.tail(places[2]).unwrap());
    assert_eq!(found, [[3; 900], [4; 900]]);
    group.close().unwrap();
    drop(group);

    // By age, up to a bound in bytes.
    let group = with(KeepLog {
        bytes: 0,
        age: Some((Duration::from_secs(10), 3500)),
    });
    let before = segment(&group, 5);
    now.fetch_add(8000, Ordering::SeqCst);
    let old = segment(&group, 6);
    assert_ne!(group.oldest_position(), before);
    now.fetch_add(8000, Ordering::SeqCst);
    let young = segment(&group, 7);
    assert_eq!(group.oldest_position(), before);
    now.fetch_add(8000, Ordering::SeqCst);
    segment(&group, 8);
    assert_eq!(group.oldest_position(), old);
    for key in 9..14 {
        segment(&group, key);
    }
    assert!(group.oldest_position().seq > young.seq);
    group.close().unwrap();
    drop(group);

    // For a named consumer: until it advances, up to its bound, through restarts.
    let group = with(KeepLog::default());
    let place = segment(&group, 20);
    group.keep_log_for("feed", place, 3500).unwrap();
    let place2 = segment(&group, 21);
    group.close().unwrap();
    drop(group);
    let group = with(KeepLog::default());
    assert_eq!(
        group.log_consumers().unwrap(),
        [("feed".to_string(), place, 3500)]
    );
    segment(&group, 22);
    assert_eq!(all(&mut group.tail(place).unwrap()), [[21; 900], [22; 900]]);
    group.keep_log_for("feed", place2, 3500).unwrap();
    assert_eq!(group.oldest_position(), place2);
    for key in 23..30 {
        segment(&group, key);
    }
    let Err(Error::PositionExpired { oldest }) = group.tail(place2) else {
        panic!("over its bound")
    };
    assert_eq!(all(&mut group.tail(oldest).unwrap()).len(), 3);
    assert!(group.release_log("feed").unwrap() && !group.release_log("feed").unwrap());
    segment(&group, 30);
    assert_eq!(group.oldest_position(), group.position());
    let long = "x".repeat(289);
    let refused = group.keep_log_for(&long, group.position(), 1);
    assert!(matches!(refused, Err(Error::Limit { .. })));
}

#[test]
fn positions_of_other_histories_are_recognised() {
    let fs = Memory::new();
    let group = open_with(options(&fs, LAST_MIB));
    tree(&group);
    let shared = group.position();
    put(&group, b"a", Durability::Sync);
    let position = group.position();
    assert_eq!(position.to_string().parse::<Position>().unwrap(), position);
    assert!("12-3".parse::<Position>().is_err());
    group.checkpoint(Path::new("/copy")).unwrap();
    let copy = Group::open(
        Path::new("/copy"),
        options(&fs, LAST_MIB),
        Arc::new(PlainTrees),
        false,
    )
    .unwrap();
    for other in [position, shared] {
        let refused = copy.tail(other);
        assert!(matches!(refused, Err(Error::OtherHistory { .. })));
    }
    // The copy's numbers continue from its last write, and its positions are its own.
    let next = put(&copy, b"b", Durability::Os);
    assert!(next > position.seq);
    assert!(matches!(
        group.tail(copy.position()),
        Err(Error::OtherHistory { .. })
    ));
    let unreached = Position {
        seq: position.seq + 1,
        ..position
    };
    assert!(matches!(
        group.tail(unreached),
        Err(Error::OtherHistory { .. })
    ));
}

#[test]
fn numbers_lost_in_a_power_cut_are_never_reused() {
    let fs = Memory::new();
    let group = open_with(options(&fs, LAST_MIB));
    tree(&group);
    put(&group, b"a", Durability::Sync);
    let mut kept = group.position();
    for _ in 0..3 {
        put(&group, b"b", Durability::Os);
    }
    let seen = group.position();
    let mut left = fs.power_cut(1, PowerCut::Lost);
    drop(group);
    for round in 0..3 {
        let group = open_with(options(&left, LAST_MIB));
        assert_eq!(group.position(), kept, "round {round}");
        // A consumer that saw a lost write gets an error, one that did not continues.
        assert!(matches!(group.tail(seen), Err(Error::OtherHistory { .. })));
        let mut tail = group.tail(kept).unwrap();
        assert_eq!(tail.next().unwrap(), None);
        if round == 1 {
            // A handle that writes nothing changes nothing, and the numbers it found lost are lost
            // to the next one, too.
            left = left.power_cut(2, PowerCut::Lost);
            continue;
        }
        let next = put(&group, b"c", Durability::Os);
        assert!(next > seen.seq);
        assert_eq!(all(&mut tail), [b"c"]);
        assert!(matches!(group.tail(seen), Err(Error::OtherHistory { .. })));
        left = left.power_cut(3, PowerCut::Lost);
        // It was synced meanwhile, when the log found at opening was flushed and kept.
        kept = group.position();
    }
}

#[test]
fn a_batch_without_writes_moves_no_tail_to_a_lost_number() {
    let fs = Memory::new();
    let group = open_with(options(&fs, LAST_MIB));
    tree(&group);
    put(&group, b"a", Durability::Sync);
    let kept = group.position();
    put(&group, b"b", Durability::Os);
    let left = fs.power_cut(1, PowerCut::Lost);
    let group = open_with(options(&left, LAST_MIB));
    for how in [Durability::Os, Durability::Sync] {
        group.write(&mut Batch::new(), how).unwrap();
        assert_eq!(group.position(), kept);
        group.tail(group.position()).unwrap();
    }
}

#[test]
fn observers_are_called_in_order_and_delay_no_writer() {
    let fs = Memory::new();
    let group = open_with(Options {
        background: true,
        ..options(&fs, KeepLog::default())
    });
    let tree = tree(&group);
    put(&group, b"before", Durability::Os);
    let (go, wait) = mpsc::channel::<()>();
    let (tell, seen) = mpsc::channel();
    let waited = AtomicBool::new(false);
    let observer = group
        .observe(move |commit| {
            if !waited.swap(true, Ordering::SeqCst) {
                // The first call takes as long as the test decides.
                let _ = wait.recv_timeout(WAIT);
            }
            tell.send(keys(commit.unwrap())).unwrap();
        })
        .unwrap();
    for n in 0..2000_u32 {
        put(&group, &n.to_be_bytes(), Durability::Os);
        if n % 300 == 0 {
            group.flush().unwrap();
        }
    }
    assert!(seen.try_recv().is_err(), "a writer waited for the observer");
    go.send(()).unwrap();
    for n in 0..2000_u32 {
        assert_eq!(seen.recv_timeout(WAIT).unwrap(), [n.to_be_bytes()]);
    }
    drop(observer);
    put(&group, b"after", Durability::Os);
    assert!(seen.recv_timeout(WAIT).is_err());
    // The log retained for it is released.
    group.flush().unwrap();
    assert_eq!(group.oldest_position(), group.position());
    let _ = tree;
}

#[test]
fn the_number_of_a_run_that_could_not_be_ingested_is_not_given_out_again() {
    let mut cases = 0;
    for call in 1..40 {
        let memory = Memory::new();
        let fs = Faulty::new(Arc::new(memory.clone()));
        let open = || {
            open_with(Options {
                fs: Arc::new(fs.clone()),
                ..options(&memory, KeepLog::default())
            })
        };
        let group = open();
        let t = tree(&group);
        put(&group, b"a", Durability::Sync);
        let before = group.position();
        fs.fail_at(call);
        let mut entries = [(&b"bulk"[..], &b"run"[..])].into_iter().map(Ok);
        let done = group.ingest(t, &mut entries);
        fs.clear();
        let seen = group.position();
        cases += u32::from(done.is_err() && seen != before && group.sync().is_ok());
        let _ = group.close();
        drop(group);
        let next = put(&open(), b"b", Durability::Sync);
        assert!(next > seen.seq, "call {call}: {next}, {seen}");
    }
    assert!(cases > 0);
}

/// Compared with a model: a list of the commits.
#[test]
fn a_tail_agrees_with_a_model_through_flushes_restarts_and_power_cuts() {
    for seed in seeds(60) {
        let _doing = Doing(&|| format!("ESKER_SEED={seed}"));
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut fs = Memory::new();
        let keep = |rng: &mut fastrand::Rng| KeepLog {
            bytes: [0, 500, 3000, 1 << 20][rng.usize(..4)],
            age: None,
        };
        let mut group = open_with(options(&fs, keep(&mut rng)));
        let t = tree(&group);
        group.sync().unwrap();
        // The position behind each commit, and its key; how many of them are durable.
        let mut model: Vec<(Position, Vec<u8>)> = Vec::new();
        let mut durable = 0;
        let mut lost: Vec<Position> = Vec::new();
        let mut tail = group.tail(group.position()).unwrap();
        let mut given = 0;
        for step in 0..120_u32 {
            match rng.u8(..20) {
                0..=9 => {
                    let how = if rng.bool() {
                        Durability::Os
                    } else {
                        Durability::Sync
                    };
                    let key = [&step.to_be_bytes()[..], &vec![7; rng.usize(..400)]].concat();
                    let mut batch = Batch::new();
                    batch.put(t, &key, b"value").unwrap();
                    group.write(&mut batch, how).unwrap();
                    model.push((group.position(), key));
                    if how == Durability::Sync {
                        durable = model.len();
                    }
                }
                10 | 11 => {
                    group.flush().unwrap();
                    durable = model.len();
                }
                12 => group.compact(None).unwrap(),
                13 => group
                    .checkpoint(Path::new(&format!("/copy{step}")))
                    .unwrap(),
                14 => {
                    let name = ["x", "y"][rng.usize(..2)];
                    let from = group.oldest_position();
                    group.keep_log_for(name, from, rng.u64(..4000)).unwrap();
                }
                15 => {
                    group.release_log(["x", "y"][rng.usize(..2)]).unwrap();
                }
                16 => {
                    drop(tail);
                    group.close().unwrap();
                    drop(group);
                    durable = model.len();
                    group = open_with(options(&fs, keep(&mut rng)));
                    tail = group.tail(group.position()).unwrap();
                    given = model.len();
                }
                17 => {
                    let mode = [
                        PowerCut::Lost,
                        PowerCut::Kept,
                        PowerCut::Torn,
                        PowerCut::Reordered,
                    ][rng.usize(..4)];
                    let left = fs.power_cut(rng.u64(..), mode);
                    drop(tail);
                    drop(group);
                    fs = left;
                    group = open_with(options(&fs, keep(&mut rng)));
                    let now = group.position();
                    let there = model.partition_point(|(position, _)| position.seq <= now.seq);
                    assert!(there >= durable, "{there} of {durable}");
                    lost.extend(model.drain(there..).map(|(position, _)| position));
                    durable = there;
                    tail = group.tail(now).unwrap();
                    given = there;
                }
                _ => match tail.next() {
                    Ok(commit) => {
                        let expected = model.get(given);
                        assert_eq!(
                            commit.as_ref().map(Commit::position),
                            expected.map(|(position, _)| *position)
                        );
                        if let (Some(commit), Some((_, key))) = (&commit, expected) {
                            assert_eq!(&keys(commit)[..], std::slice::from_ref(key));
                            given += 1;
                        }
                    }
                    Err(Error::PositionExpired { oldest }) => {
                        tail = group.tail(oldest).unwrap();
                        given = model.partition_point(|(position, _)| position.seq <= oldest.seq);
                    }
                    Err(error) => panic!("{error}"),
                },
            }
            if step % 10 == 0 {
                audit(&group, &model, &lost);
            }
        }
        audit(&group, &model, &lost);
    }
}

/// From each position, the tail returns the rest of the model; or the position has expired, and all
/// later ones work.
fn audit(group: &Group, model: &[(Position, Vec<u8>)], lost: &[Position]) {
    let oldest = group.oldest_position();
    let mut from_oldest = group.tail(oldest).unwrap();
    let rest = model
        .iter()
        .filter(|(position, _)| position.seq > oldest.seq);
    let expected: Vec<Vec<u8>> = rest.map(|(_, key)| key.clone()).collect();
    assert_eq!(all(&mut from_oldest), expected);
    for (at, (position, _)) in model.iter().enumerate().step_by(7) {
        match group.tail(*position) {
            Ok(mut tail) => {
                assert!(position.seq >= oldest.seq);
                let rest: Vec<_> = model[at + 1..].iter().map(|(_, key)| key.clone()).collect();
                assert_eq!(all(&mut tail), rest);
            }
            Err(Error::PositionExpired { oldest: said }) => {
                assert!(position.seq < oldest.seq && said == oldest);
            }
            Err(error) => panic!("{error}"),
        }
    }
    for position in lost {
        let refused = group.tail(*position);
        assert!(
            matches!(refused, Err(Error::OtherHistory { .. })),
            "{position}"
        );
    }
}

//! Consumers of the log, noted by the writer or by a reader beside it: what is behind the place of
//! one is kept, from the moment that its registration returned, whatever the writer does; each is
//! one at a time.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use crate::common::{DIR, Doing, seeds, small};
use esker_lsm::fs::Fs;
use esker_lsm::{
    Batch, Durability, Error, Group, KeepLog, Options, PlainTrees, Position, Result, TreeId,
};
use esker_sim::hooked::{Call, Hooked};
use esker_sim::memory::{Memory, PowerCut};

const KEEP: u64 = 1 << 20;

fn write_to(fs: Arc<dyn Fs>) -> Group {
    Group::open(Path::new(DIR), small(fs), Arc::new(PlainTrees), true).unwrap()
}

fn reader(fs: &Memory) -> Group {
    let fs = Arc::new(fs.clone());
    Group::open_reader(Path::new(DIR), small(fs), Arc::new(PlainTrees)).unwrap()
}

fn tree(group: &Group) -> TreeId {
    match group.tree("t") {
        Some(tree) => tree,
        None => group.create_trees(&[("t".into(), vec![])]).unwrap()[0],
    }
}

fn put(group: &Group, number: u32, how: Durability) -> Position {
    let mut batch = Batch::new();
    batch.put(tree(group), &number.to_be_bytes(), b"v").unwrap();
    group.write(&mut batch, how).unwrap();
    group.position()
}

/// The numbers put behind a place.
fn behind(group: &Group, place: Position) -> Result<Vec<u32>> {
    let mut found = Vec::new();
    let mut tail = group.tail(place)?;
    while let Some(commit) = tail.next()? {
        commit.each(&mut |_, _, _, key, _| {
            found.push(u32::from_be_bytes(key.try_into().unwrap()));
        });
    }
    Ok(found)
}

fn place_of(group: &Group, name: &str) -> Option<Position> {
    let all = group.log_consumers().unwrap();
    all.into_iter()
        .find_map(|(other, place, _)| (other == name).then_some(place))
}

#[test]
fn a_reader_has_the_log_kept_by_the_writer() {
    let fs = Memory::new();
    let writer = write_to(Arc::new(fs.clone()));
    put(&writer, 0, Durability::Os);
    let beside = reader(&fs);
    let place = beside.position();
    beside.keep_log_for("me", place, KEEP).unwrap();
    for number in 1..10 {
        put(&writer, number, Durability::Os);
        writer.flush().unwrap();
    }
    let all: Vec<u32> = (1..10).collect();
    assert_eq!(behind(&beside, place).unwrap(), all);
    // Through another writer, and as that and its own reader see it.
    writer.close().unwrap();
    let writer = write_to(Arc::new(fs.clone()));
    put(&writer, 10, Durability::Os);
    writer.flush().unwrap();
    assert_eq!(place_of(&writer, "me"), Some(place));
    let again = reader(&fs);
    assert_eq!(behind(&again, place).unwrap(), (1..11).collect::<Vec<_>>());
    // It advances beside the writer, who lets go of what is read.
    again.keep_log_for("me", again.position(), KEEP).unwrap();
    put(&writer, 11, Durability::Os);
    writer.flush().unwrap();
    let gone = behind(&again, place);
    assert!(
        matches!(gone, Err(Error::PositionExpired { .. })),
        "{gone:?}"
    );
    let late = again.keep_log_for("me", place, KEEP);
    assert!(matches!(late, Err(Error::PositionExpired { .. })));
    let here = place_of(&again, "me").unwrap();
    assert_eq!(behind(&again, here).unwrap(), [11]);
    assert!(again.release_log("me").unwrap() && !again.release_log("me").unwrap());
    assert!(writer.log_consumers().unwrap().is_empty());
    put(&writer, 12, Durability::Os);
    writer.flush().unwrap();
    assert_eq!(writer.oldest_position(), writer.position());
}

#[test]
fn a_consumer_is_one_at_a_time() {
    let fs = Memory::new();
    let writer = write_to(Arc::new(fs.clone()));
    let here = put(&writer, 0, Durability::Os);
    let beside = reader(&fs);
    let held = beside.consume_log("me").unwrap();
    assert_eq!(held.place().unwrap(), None);
    for other in [&writer, &beside] {
        let refused = other.consume_log("me").map(|_| ());
        assert!(matches!(refused, Err(Error::ConsumerInUse { name }) if name == "me"));
        let refused = other.keep_log_for("me", here, KEEP);
        assert!(matches!(refused, Err(Error::ConsumerInUse { .. })));
    }
    held.keep(None, here, KEEP).unwrap();
    assert_eq!(held.place().unwrap(), Some((here, KEEP)));
    let refused = writer.release_log("me");
    assert!(matches!(refused, Err(Error::ConsumerInUse { .. })));
    writer.keep_log_for("you", here, KEEP).unwrap();
    drop(held);
    writer.consume_log("me").unwrap().release().unwrap();
    // One without a place leaves nothing.
    drop(beside.consume_log("nobody").unwrap());
    let names: Vec<_> = fs.list(&Path::new(DIR).join("consumers")).unwrap();
    assert_eq!(
        names.len(),
        3,
        "LOCK, the place of `you` and its lock: {names:?}"
    );
    // The owner of a consumer that others end hears of it by its place.
    let you = beside.consume_log("you").unwrap();
    assert_eq!(writer.release_logs(&mut |name| name == "you").unwrap(), 1);
    assert_eq!(you.place().unwrap(), None);
    writer.close().unwrap();
    for refused in [
        writer.consume_log("me").map(|_| ()),
        writer.keep_log_for("me", here, KEEP),
    ] {
        assert!(matches!(refused, Err(Error::Closed)), "{refused:?}");
    }
}

/// A time is said of changes that were written then only: not of those that were written later,
/// while nobody wanted to know it, also in a copy, and after a write that failed.
#[test]
fn a_time_is_that_of_the_change() {
    let fs = Memory::new();
    let hooked = Hooked::new(Arc::new(fs.clone()));
    let now = Arc::new(AtomicU64::new(1_000_000));
    let of_group = now.clone();
    let options = Options {
        clock: Arc::new(move || of_group.load(Ordering::SeqCst)),
        keep_log: KeepLog {
            bytes: u64::MAX,
            age: None,
        },
        ..small(Arc::new(hooked.clone()))
    };
    let open = |dir: &str| Group::open(Path::new(dir), options.clone(), Arc::new(PlainTrees), true);
    let writer = open(DIR).unwrap();
    tree(&writer);
    let first = writer.position();
    let mut written = Vec::new();
    let mut write = |number: u32| {
        put(&writer, number, Durability::Os);
        written.push(now.load(Ordering::SeqCst));
    };
    let later = || now.fetch_add(100_000, Ordering::SeqCst);
    writer.keep_log_for("a", first, KEEP).unwrap();
    write(0);
    writer.release_log("a").unwrap();
    later();
    write(1);
    // In the same second.
    writer.keep_log_for("b", writer.position(), KEEP).unwrap();
    write(2);
    later();
    write(3);
    writer.release_log("b").unwrap();
    writer.flush().unwrap();
    later();
    write(4);
    writer.keep_log_for("c", first, KEEP).unwrap();
    later();
    hooked.set(|call, _| match call {
        Call::Append => Err(std::io::ErrorKind::StorageFull.into()),
        _ => Ok(()),
    });
    let mut batch = Batch::new();
    batch.put(tree(&writer), b"lost", b"v").unwrap();
    writer.write(&mut batch, Durability::Os).unwrap_err();
    hooked.clear();
    write(5);
    writer.checkpoint(Path::new("/copy")).unwrap();
    let copy = open("/copy").unwrap();
    for (group, from) in [(&writer, first), (&copy, place_of(&copy, "c").unwrap())] {
        let mut tail = group.tail(from).unwrap();
        for (at, when) in written.iter().enumerate() {
            tail.next().unwrap().unwrap();
            assert!(
                tail.time().is_none_or(|time| time == *when),
                "{at}: {:?}, {when}",
                tail.time()
            );
            let is_known = tail.time().is_some();
            assert!(is_known || ![0, 3, 5].contains(&at), "{at}");
        }
        assert_eq!(tail.next().unwrap(), None);
    }
}

/// Whoever closes, the writer or a reader, is no consumer any more, whatever handles still live:
/// they answer `Closed`, and neither keep others from being that consumer nor write where others
/// do.
#[test]
fn closing_gives_up_consumers() {
    for by_writer in [true, false] {
        let fs = Memory::new();
        let writer = write_to(Arc::new(fs.clone()));
        let here = put(&writer, 0, Durability::Os);
        let beside = reader(&fs);
        let group = if by_writer { &writer } else { &beside };
        let held = group.consume_log("me").unwrap();
        held.keep(None, here, KEEP).unwrap();
        let without_place = group.consume_log("new").unwrap();
        group.close().unwrap();
        let again = if by_writer {
            write_to(Arc::new(fs.clone()))
        } else {
            reader(&fs)
        };
        let next = again.consume_log("me").unwrap();
        let next_new = again.consume_log("new").unwrap();
        let there = put_by(&again, &writer, 1);
        next.keep(None, there, KEEP).unwrap();
        for refused in [
            held.place().map(|_| ()),
            held.keep(None, here, KEEP),
            held.release().map(|_| ()),
            without_place.release().map(|_| ()),
            group.log_consumers().map(|_| ()),
            group.release_log("me").map(|_| ()),
            group.release_logs(&mut |_| true).map(|_| ()),
        ] {
            assert!(matches!(refused, Err(Error::Closed)), "{refused:?}");
        }
        assert_eq!(next.place().unwrap(), Some((there, KEEP)));
        for name in ["me", "new"] {
            let refused = again.consume_log(name).map(|_| ());
            assert!(matches!(refused, Err(Error::ConsumerInUse { .. })));
        }
        drop((next, next_new));
    }
}

/// Writes with the first of two groups that can, and returns what the first sees then.
fn put_by(seen: &Group, other: &Group, number: u32) -> Position {
    if !seen.is_reader() {
        return put(seen, number, Durability::Os);
    }
    put(other, number, Durability::Os);
    seen.refresh().unwrap();
    seen.position()
}

#[test]
fn a_place_that_is_damaged_is_said_and_stops_nobody_else() {
    let fs = Memory::new();
    let writer = write_to(Arc::new(fs.clone()));
    let here = put(&writer, 0, Durability::Os);
    writer.keep_log_for("me", here, KEEP).unwrap();
    writer.keep_log_for("you", here, KEEP).unwrap();
    let folder = Path::new(DIR).join("consumers");
    let files = fs.paths().into_iter();
    let files: Vec<_> = files
        .filter(|path| path.starts_with(&folder) && path.extension().is_none())
        .filter(|path| !path.ends_with("LOCK"))
        .collect();
    assert_eq!(files.len(), 2);
    let whole = fs.read(&files[0]).unwrap();
    let other = fs.read(&files[1]).unwrap();
    for len in 0..whole.len() {
        for bytes in [
            &whole[..len],
            &[&whole[..len], &b"\xff"[..]].concat(),
            &other,
        ] {
            fs.write(&files[0], bytes);
            let said = writer.check().errors;
            let [Error::Corruption { path, .. }] = &said[..] else {
                panic!("{said:?}")
            };
            assert_eq!(*path, files[0]);
            assert_eq!(writer.log_consumers().unwrap().len(), 1);
        }
    }
    put(&writer, 1, Durability::Os);
    writer.flush().unwrap();
    assert_eq!(behind(&writer, here).unwrap(), [1]);
    // It can be noted anew, or ended.
    for name in ["me", "you"] {
        writer.keep_log_for(name, here, KEEP).unwrap();
    }
    assert!(writer.check().errors.is_empty());
    fs.write(&files[0], b"?");
    for name in ["me", "you"] {
        assert!(writer.release_log(name).unwrap());
    }
}

/// At each call of a flush that removes a segment, another process registers behind the oldest
/// place: either it is refused, or it gets all.
#[test]
fn a_registration_beside_a_flush_is_refused_or_kept() {
    let (mut refused, mut kept) = (0, 0);
    for at in 0.. {
        let memory = Memory::new();
        let hooked = Hooked::new(Arc::new(memory.clone()));
        let writer = write_to(Arc::new(hooked.clone()));
        let first = put(&writer, 0, Durability::Os);
        let (call, over) = (AtomicU64::new(0), Mutex::new(None::<mpsc::Receiver<_>>));
        let over = Arc::new(over);
        let (beside, slot) = (Arc::new(reader(&memory)), over.clone());
        put(&writer, 1, Durability::Os);
        put(&writer, 2, Durability::Os);
        hooked.set(move |_, path| {
            // A call of the registration itself goes past this file system.
            assert!(path.starts_with(DIR));
            if call.fetch_add(1, Ordering::SeqCst) != at {
                return Ok(());
            }
            let (done, wait) = mpsc::channel();
            let beside = beside.clone();
            std::thread::spawn(move || {
                let kept = beside.keep_log_for("me", first, KEEP);
                let _ = done.send(kept);
            });
            // It ends here, or waits for the flush.
            let ended = wait.recv_timeout(Duration::from_millis(20));
            let (again, rest) = mpsc::channel();
            if let Ok(ended) = ended {
                let _ = again.send(ended);
                *slot.lock().unwrap() = Some(rest);
            } else {
                *slot.lock().unwrap() = Some(wait);
            }
            Ok(())
        });
        writer.flush().unwrap();
        hooked.clear();
        let Some(wait) = over.lock().unwrap().take() else {
            assert!(at > 10, "{at}");
            break;
        };
        let registered = wait.recv_timeout(Duration::from_secs(60)).unwrap();
        put(&writer, 3, Durability::Os);
        writer.flush().unwrap();
        let _doing = Doing(&|| format!("call {at}"));
        match registered {
            Ok(()) => {
                assert_eq!(behind(&reader(&memory), first).unwrap(), [1, 2, 3]);
                kept += 1;
            }
            Err(Error::PositionExpired { .. }) => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(refused > 0 && kept > 0, "{refused} refused, {kept} kept");
}

/// A segment that a flush kept only because somebody was noting a place is not durable: nobody
/// waited for it. Who waits for it later has it made durable.
#[test]
fn what_was_kept_without_a_sync_is_durable_once_somebody_waits_for_it() {
    for mode in [PowerCut::Lost, PowerCut::Torn, PowerCut::Reordered] {
        for by_writer in [true, false] {
            let fs = Memory::new();
            let writer = write_to(Arc::new(fs.clone()));
            let first = put(&writer, 0, Durability::Sync);
            for number in 1..5 {
                put(&writer, number, Durability::Os);
            }
            let beside = reader(&fs);
            // Makes the folder.
            drop(beside.consume_log("other").unwrap());
            let noting = fs.lock(&Path::new(DIR).join("consumers/LOCK")).unwrap();
            writer.flush().unwrap();
            drop(noting);
            let group = if by_writer { &writer } else { &beside };
            group.keep_log_for("me", first, KEEP).unwrap();
            let left = fs.power_cut(0, mode);
            let again = write_to(Arc::new(left));
            assert_eq!(behind(&again, first).unwrap(), [1, 2, 3, 4]);
        }
    }
}

/// A consumer's new place, or its removal, that could not be made durable is undone by a power cut:
/// the writer keeps what the old place needs until it has made the change durable itself.
#[test]
fn what_is_removed_for_a_place_waits_until_the_place_is_durable() {
    for (released, mode) in [
        (false, PowerCut::Lost),
        (true, PowerCut::Lost),
        (false, PowerCut::Kept),
    ] {
        let memory = Memory::new();
        let hooked = Hooked::new(Arc::new(memory.clone()));
        let group = write_to(Arc::new(hooked.clone()));
        let old = put(&group, 0, Durability::Sync);
        group.keep_log_for("me", old, u64::MAX).unwrap();
        let new = put(&group, 1, Durability::Sync);
        let no_folder = |call, path: &Path| match call {
            Call::SyncDir if path.ends_with("consumers") => Err(std::io::Error::other("worn")),
            _ => Ok(()),
        };
        hooked.set(no_folder);
        let changed = if released {
            group.release_log("me").map(drop)
        } else {
            group.keep_log_for("me", new, u64::MAX)
        };
        assert!(matches!(changed, Err(Error::Io { .. })), "{changed:?}");
        // The folder cannot be made durable: the whole log stays.
        drop(group);
        let group = write_to(Arc::new(hooked.clone()));
        put(&group, 2, Durability::Sync);
        group.flush().unwrap();
        let left = write_to(Arc::new(memory.power_cut(0, mode)));
        let place = place_of(&left, "me").unwrap();
        assert_eq!(behind(&left, old).unwrap(), [1, 2]);
        drop(left);
        // It can again: what no durable place needs is removed.
        hooked.clear();
        put(&group, 3, Durability::Sync);
        group.flush().unwrap();
        let gone = behind(&group, old);
        assert!(
            matches!(gone, Err(Error::PositionExpired { .. })),
            "{gone:?}"
        );
        let left = write_to(Arc::new(memory.power_cut(0, PowerCut::Lost)));
        match place_of(&left, "me") {
            Some(place) => assert_eq!(behind(&left, place).unwrap(), [2, 3]),
            None => assert!(released),
        }
        assert_eq!(place == old, mode == PowerCut::Lost);
    }
}

/// A consumer that goes on, past what the reader has seen, while a reader makes a copy is a
/// consumer of the copy, too.
#[test]
fn a_copy_by_a_reader_has_a_consumer_that_goes_on_meanwhile() {
    let fs = Memory::new();
    let writer = Arc::new(write_to(Arc::new(fs.clone())));
    let here = put(&writer, 0, Durability::Os);
    writer.keep_log_for("me", here, KEEP).unwrap();
    let hooked = Hooked::new(Arc::new(fs.clone()));
    let options = small(Arc::new(hooked.clone()));
    let beside = Group::open_reader(Path::new(DIR), options, Arc::new(PlainTrees)).unwrap();
    let (once, going_on) = (AtomicBool::new(false), writer.clone());
    hooked.set(move |call, path| {
        let is_place =
            call == Call::Open && path.parent().is_some_and(|at| at.ends_with("consumers"));
        if is_place && !once.swap(true, Ordering::SeqCst) {
            let here = put(&going_on, 1, Durability::Os);
            going_on.keep_log_for("me", here, KEEP).unwrap();
        }
        Ok(())
    });
    let to = Path::new("/copy");
    beside.checkpoint(to).unwrap();
    hooked.clear();
    let copy = Group::open(to, small(Arc::new(fs.clone())), Arc::new(PlainTrees), false).unwrap();
    let place = place_of(&copy, "me").unwrap();
    assert_eq!(behind(&copy, place).unwrap(), []);
    put(&copy, 2, Durability::Os);
    assert_eq!(behind(&copy, place).unwrap(), [2]);
}

/// Random work of a writer, and of consumers in its process and beside it, over flushes, reopenings
/// and power cuts: what is behind each place is there, whole and in order.
#[test]
fn consumers_miss_nothing() {
    for seed in seeds(esker_sim::by_tier(35, 80)) {
        let _doing = Doing(&|| format!("ESKER_SEED={seed}"));
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut fs = Memory::new();
        let mut writer = write_to(Arc::new(fs.clone()));
        tree(&writer);
        writer.sync().unwrap();
        let mut beside = reader(&fs);
        let mut model: Vec<(u64, u32)> = Vec::new();
        let mut durable = 0;
        // What each has: its place, or none.
        let mut places: [Option<Position>; 3] = [None; 3];
        let name = |at: usize| ["x", "y", "z"][at].to_string();
        for step in 0..150_u32 {
            match rng.u8(..20) {
                0..=6 => {
                    let how = [Durability::Os, Durability::Sync][rng.usize(..2)];
                    let place = put(&writer, step, how);
                    model.push((place.seq, step));
                    if how == Durability::Sync {
                        durable = model.len();
                    }
                }
                7..=9 => {
                    writer.flush().unwrap();
                    durable = model.len();
                }
                10 | 11 => {
                    // A new one begins now; another reads on for a while.
                    let at = rng.usize(..3);
                    let group = if rng.bool() { &writer } else { &beside };
                    group.refresh().unwrap();
                    let place = match places[at] {
                        None => group.position(),
                        Some(place) => {
                            let mut tail = group.tail(place).unwrap();
                            for _ in 0..rng.usize(..4) {
                                let _ = tail.next().unwrap();
                            }
                            tail.position()
                        }
                    };
                    group.keep_log_for(&name(at), place, KEEP).unwrap();
                    places[at] = Some(place);
                }
                12 => {
                    let at = rng.usize(..3);
                    let group = if rng.bool() { &writer } else { &beside };
                    let known = group.release_log(&name(at)).unwrap();
                    assert_eq!(known, places[at].take().is_some());
                }
                13 => {
                    writer.close().unwrap();
                    durable = model.len();
                    writer = write_to(Arc::new(fs.clone()));
                }
                14 => beside = reader(&fs),
                16 => {
                    let group = if rng.bool() { &writer } else { &beside };
                    let to = format!("/copy{step}");
                    let seen = group.position().seq;
                    group.checkpoint(Path::new(&to)).unwrap();
                    goes_on(&fs, Path::new(&to), &model, seen, &places, &name);
                }
                15 if rng.bool() => {
                    let mode = [PowerCut::Lost, PowerCut::Torn, PowerCut::Reordered];
                    let left = fs.power_cut(rng.u64(..), mode[rng.usize(..3)]);
                    drop(writer);
                    fs = left;
                    writer = write_to(Arc::new(fs.clone()));
                    let now = writer.position().seq;
                    let there = model.partition_point(|(seq, _)| *seq <= now);
                    assert!(there >= durable, "{there} of {durable}");
                    model.truncate(there);
                    durable = there;
                    // A place behind what was lost is of another history, and is noted anew.
                    for (at, place) in places.iter_mut().enumerate() {
                        if place.is_some_and(|place| place.seq > now) {
                            let lost = writer.tail(place.unwrap()).map(|_| ());
                            assert!(matches!(lost, Err(Error::OtherHistory { .. })));
                            // It is said in a copy, too.
                            let to = format!("/copy{step}-{at}");
                            writer.checkpoint(Path::new(&to)).unwrap();
                            let copy = Group::open_reader(
                                Path::new(&to),
                                small(Arc::new(fs.clone())),
                                Arc::new(PlainTrees),
                            );
                            let copy = copy.unwrap();
                            let there = place_of(&copy, &name(at)).unwrap();
                            let lost = copy.tail(there).map(|_| ());
                            assert!(matches!(lost, Err(Error::OtherHistory { .. })));
                            let here = writer.position();
                            writer.keep_log_for(&name(at), here, KEEP).unwrap();
                            *place = Some(here);
                        }
                    }
                    beside = reader(&fs);
                }
                _ => {
                    beside.refresh().unwrap();
                    for group in [&writer, &beside] {
                        for (at, place) in places.iter().enumerate() {
                            assert_eq!(place_of(group, &name(at)), *place);
                            let Some(place) = place else { continue };
                            let rest = rest(&model, *place, u64::MAX);
                            assert_eq!(behind(group, *place).unwrap(), rest);
                        }
                    }
                }
            }
        }
    }
}

/// The numbers of the model behind a place, up to a write.
fn rest(model: &[(u64, u32)], place: Position, last: u64) -> Vec<u32> {
    let is_behind = |seq: u64| place.seq < seq && seq <= last;
    let rest = model.iter().filter(|(seq, _)| is_behind(*seq));
    rest.map(|(_, number)| *number).collect()
}

/// In a copy each consumer is where it was, and gets what it has not read of that, then what is
/// written there.
fn goes_on(
    fs: &Memory,
    copy: &Path,
    model: &[(u64, u32)],
    seen: u64,
    places: &[Option<Position>],
    name: &dyn Fn(usize) -> String,
) {
    let open = || {
        Group::open(
            copy,
            small(Arc::new(fs.clone())),
            Arc::new(PlainTrees),
            false,
        )
    };
    let group = open().unwrap();
    let check = |group: &Group, new: &[u32]| {
        for (at, place) in places.iter().enumerate() {
            let there = place_of(group, &name(at));
            assert_eq!(there.is_some(), place.is_some());
            if let (Some(there), Some(place)) = (there, place) {
                assert_ne!(there.history, place.history);
                let rest = [&rest(model, *place, seen)[..], new].concat();
                assert_eq!(behind(group, there).unwrap(), rest);
            }
        }
    };
    check(&group, &[]);
    put(&group, 1000, Durability::Os);
    group.flush().unwrap();
    check(&group, &[1000]);
    drop(group);
    let group = open().unwrap();
    put(&group, 1001, Durability::Os);
    check(&group, &[1000, 1001]);
    assert!(group.check().errors.is_empty());
}

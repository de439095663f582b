//! Closing is a protocol: once `close` has returned nothing is installed, whatever was running, and
//! every running job has either ended before the seal or fails with `Error::Closed`. The store can
//! always be opened again.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::ThreadId;
use std::time::Duration;

use crate::common::{DIR, Doing, seeds, small};
use esker_lsm::fs::Fs;
use esker_lsm::{
    Batch, Cost, DropPolicy, Durability, Error, Group, Kind, Leveled, Options, Result,
    SupersededBy, TreeChange, TreeId, TreeOptions, TreeProvider,
};
use esker_sim::faulty::Faulty;
use esker_sim::hooked::{Call, Hooked};
use esker_sim::memory::{Memory, PowerCut};

/// A tree compacts two runs of level 0; `bits` is a bitmap tree.
struct Trees;

impl TreeProvider for Trees {
    fn tree_options(&self, name: &str, _: &[u8]) -> Result<TreeOptions> {
        Ok(TreeOptions {
            policy: Arc::new(Leveled {
                level0_runs: 2,
                ..Leveled::default()
            }),
            bitmap: name == "bits",
            superseded: (name == "data").then(|| SupersededBy {
                tree: "bits".to_string(),
                drop_policy: DropPolicy::Silent,
            }),
            ..TreeOptions::default()
        })
    }
}

fn open_with(options: Options) -> Group {
    Group::open(Path::new(DIR), options, Arc::new(Trees), true).unwrap()
}

fn open(fs: Arc<dyn Fs>) -> Group {
    open_with(small(fs))
}

fn put(group: &Group, tree: TreeId, key: &str, how: Durability) -> Result<u64> {
    let mut batch = Batch::new();
    batch.put(tree, key.as_bytes(), &[b'v'; 100]).unwrap();
    group.write(&mut batch, how)
}

fn holds(group: &Group, tree: TreeId, key: &str) -> bool {
    let found = group.snapshot().get(tree, key.as_bytes(), &Cost::default());
    found.unwrap().is_some()
}

fn create(group: &Group) -> (TreeId, TreeId) {
    let names = ["data", "bits"].map(|name| (name.to_string(), vec![]));
    let ids = group.create_trees(&names).unwrap();
    (ids[0], ids[1])
}

/// Runs `work` on a separate thread, and fails when it does not end: detects a wait that must not
/// happen.
fn ends<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, ended) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let _ = done.send(work());
    });
    match ended.recv_timeout(Duration::from_secs(60)) {
        Ok(result) => {
            thread.join().unwrap();
            result
        }
        Err(error) => panic!("{what} does not end: {error}"),
    }
}

type Work = fn(&Group, TreeId, TreeId) -> Result<()>;

/// The operations that install versions, except the flush: each of them writes a table first.
const JOBS: [(&str, Work); 7] = [
    ("compact", |group, data, _| group.compact(Some(data))),
    ("drop_obsolete", |group, data, _| {
        group.drop_obsolete(&[data])
    }),
    ("rewrite_table", |group, data, _| {
        group.rewrite_table(data, &|_| true).map(|_| ())
    }),
    ("supersede", |group, _, bits| {
        group.supersede(bits, &mut (998..1000).map(Ok), Some(2))
    }),
    ("ingest_newest", |group, data, _| {
        let seq = group.snapshot().seq();
        let write = &mut |sink: &mut esker_lsm::RunSink<'_>| sink(b"new", seq, Kind::Put, b"");
        group.ingest_newest(data, write).map(|_| ())
    }),
    ("ingest_oldest", |group, data, _| {
        let write = &mut |sink: &mut esker_lsm::RunSink<'_>| sink(b"old", 1, Kind::Put, b"");
        let change = &mut || Ok(TreeChange::default());
        group.ingest_oldest(data, write, change).map(|_| ())
    }),
    ("ingest", |group, data, _| {
        let mut entries = [(&b"bulk"[..], &b""[..])].into_iter().map(Ok);
        group.ingest(data, &mut entries).map(|_| ())
    }),
];

/// A job is paused where it creates its table, `close` is called and returns, and the job resumes.
#[test]
fn a_job_that_close_did_not_wait_for_fails_and_changes_nothing() {
    for (name, work) in JOBS {
        let _doing = Doing(&|| name.to_string());
        let memory = Memory::new();
        let fs = Hooked::new(Arc::new(memory.clone()));
        let group = Arc::new(open(Arc::new(fs.clone())));
        let (data, bits) = create(&group);
        for n in 0..2 {
            put(&group, data, "k", Durability::Os).unwrap();
            put(&group, data, &format!("k{n}"), Durability::Os).unwrap();
            group.flush().unwrap();
        }
        // So that a run below the whole tree fits there.
        if name == "ingest_oldest" {
            group.drop_trees(&[data]).unwrap();
        }
        let data = group.tree("data").unwrap_or_else(|| {
            let ids = group.create_trees(&[("data".to_string(), vec![])]).unwrap();
            ids[0]
        });
        // So that a number above the whole tree exists.
        let other = group
            .create_trees(&[("other".to_string(), vec![])])
            .unwrap()[0];
        put(&group, other, "k", Durability::Os).unwrap();
        group.flush().unwrap();
        // A later bit covers an entry of a table, so that `drop_obsolete` has work to do.
        let k1 = group.snapshot().get(data, b"k1", &Cost::default()).unwrap();
        let held = k1.map_or(999, |found| found.seq);
        group
            .supersede(bits, &mut [Ok(held)].into_iter(), None)
            .unwrap();
        let (at_work, reached) = mpsc::channel();
        let (closed, goes_on) = mpsc::channel();
        let stop = Mutex::new(Some((at_work, goes_on)));
        fs.set(move |call, path| {
            if call == Call::Create && path.extension().is_some_and(|e| e == "tbl") {
                let first = stop.lock().unwrap().take();
                if let Some((at_work, goes_on)) = first {
                    at_work.send(()).unwrap();
                    let _: std::result::Result<(), _> = goes_on.recv();
                }
            }
            Ok(())
        });
        let job = {
            let group = group.clone();
            std::thread::spawn(move || work(&group, data, bits))
        };
        let timeout = Duration::from_secs(60);
        reached.recv_timeout(timeout).unwrap();
        let result = {
            let group = group.clone();
            ends("close", move || group.close())
        };
        result.unwrap();
        let before = memory.paths();
        closed.send(()).unwrap();
        let result = job.join().unwrap();
        assert!(matches!(result, Err(Error::Closed)), "{result:?}");
        fs.clear();
        let after = memory.paths();
        let extra: Vec<_> = after.iter().filter(|p| !before.contains(p)).collect();
        assert!(extra.is_empty(), "left behind: {extra:?}");
        drop(group);
        let group = open(Arc::new(memory));
        assert!(group.check().errors.is_empty());
        assert!(name == "ingest_oldest" || holds(&group, data, "k0"));
    }
}

/// Closing runs its last compaction; meanwhile another thread's flush begins, and resumes when
/// `close` has returned.
#[test]
fn a_flush_that_begins_while_the_store_closes_installs_nothing_behind_the_seal() {
    let memory = Memory::new();
    let fs = Hooked::new(Arc::new(memory.clone()));
    let group = Arc::new(open(Arc::new(fs.clone())));
    let (data, _) = create(&group);
    for n in 0..3 {
        put(&group, data, &format!("k{n}"), Durability::Os).unwrap();
        group.flush().unwrap();
    }
    put(&group, data, "last", Durability::Os).unwrap();
    let closer = std::thread::current().id();
    let (to_flush, begin) = mpsc::channel();
    let (at_work, reached) = mpsc::channel();
    let (closed, goes_on) = mpsc::channel::<()>();
    let (reached, goes_on) = (Mutex::new(reached), Mutex::new(goes_on));
    let once = (AtomicBool::new(false), AtomicBool::new(false));
    let is_closer = move |id: ThreadId| id == closer;
    fs.set(move |call, path| {
        if call == Call::Create && path.extension().is_some_and(|e| e == "tbl") {
            if is_closer(std::thread::current().id()) {
                if !once.0.swap(true, Ordering::SeqCst) {
                    to_flush.send(()).unwrap();
                    reached.lock().unwrap().recv().unwrap();
                }
            } else if !once.1.swap(true, Ordering::SeqCst) {
                at_work.send(()).unwrap();
                goes_on.lock().unwrap().recv().unwrap();
            }
        }
        Ok(())
    });
    let flush = {
        let group = group.clone();
        std::thread::spawn(move || {
            begin.recv().unwrap();
            group.flush()
        })
    };
    group.close().unwrap();
    closed.send(()).unwrap();
    let result = flush.join().unwrap();
    assert!(matches!(result, Err(Error::Closed)), "{result:?}");
    drop(group);
    for mode in [PowerCut::Lost, PowerCut::Kept] {
        let group = open(Arc::new(memory.power_cut(1, mode)));
        assert!(group.check().errors.is_empty());
        for key in ["k0", "k1", "k2", "last"] {
            assert!(holds(&group, data, key), "{mode:?}: {key}");
        }
    }
}

/// Stores are closed at any moment, while other threads write, flush, compact and repair.
#[test]
fn stores_that_are_closed_beside_other_work_open_again() {
    for seed in seeds(60) {
        let _doing = Doing(&|| format!("ESKER_SEED={seed}"));
        let mut rng = fastrand::Rng::with_seed(seed);
        let memory = Memory::new();
        let background = rng.bool();
        let group = open_with(Options {
            background,
            memory_budget: 1,
            ..small(Arc::new(memory.clone()))
        });
        let (data, bits) = create(&group);
        for n in 0..4 {
            put(&group, data, &format!("k{n}"), Durability::Os).unwrap();
            group.flush().unwrap();
        }
        let rounds = rng.usize(0..20);
        std::thread::scope(|scope| {
            let (group, (ready, begin)) = (&group, mpsc::channel());
            for job in 0..4 {
                let ready = ready.clone();
                scope.spawn(move || {
                    for n in 0.. {
                        if n == rounds {
                            let _ = ready.send(());
                        }
                        let key = format!("{job}-{n}");
                        let result =
                            put(group, data, &key, Durability::Os).and_then(|seq| match job {
                                0 => group.flush(),
                                1 => group.compact(None),
                                2 => group.supersede(bits, &mut [Ok(seq)].into_iter(), Some(seq)),
                                _ => group.rewrite_table(data, &|_| true).map(|_| ()),
                            });
                        match result {
                            Ok(()) => {}
                            Err(Error::Closed) => break,
                            Err(error) => panic!("{error}"),
                        }
                    }
                    let _ = ready.send(());
                });
            }
            begin.recv().unwrap();
            group.close().unwrap();
        });
        drop(group);
        let memory = memory.power_cut(seed, PowerCut::Lost);
        let group = open(Arc::new(memory));
        assert!(group.check().errors.is_empty());
        for n in 0..4 {
            assert!(holds(&group, data, &format!("k{n}")));
        }
    }
}

/// When no flush is possible the log is still synced, the store is sealed, and `close` reports the
/// failure.
#[test]
fn a_close_that_cannot_flush_syncs_the_log_and_seals() {
    for background in [false, true] {
        let memory = Memory::new();
        let fs = Hooked::new(Arc::new(memory.clone()));
        let group = open_with(Options {
            background,
            ..small(Arc::new(fs.clone()))
        });
        let (data, _) = create(&group);
        // More than closing leaves in the log.
        let mut batch = Batch::new();
        for n in 0..300_u32 {
            batch.put(data, &n.to_be_bytes(), &[7; 2000]).unwrap();
        }
        fs.set(|call, path| match call {
            Call::Create if path.extension().is_some_and(|e| e == "tbl") => {
                Err(std::io::ErrorKind::StorageFull.into())
            }
            _ => Ok(()),
        });
        group.write(&mut batch, Durability::Os).unwrap();
        let result = group.close();
        assert!(result.is_err_and(|error| error.is_disk_full()));
        let cut = open(Arc::new(memory.power_cut(1, PowerCut::Lost)));
        for n in 0..300_u32 {
            let found = cut.snapshot().get(data, &n.to_be_bytes(), &Cost::default());
            assert!(found.unwrap().is_some(), "the log was not synced");
        }
        drop(cut);
        let result = put(&group, data, "later", Durability::Os);
        assert!(matches!(result, Err(Error::Closed)));
        fs.clear();
        group.close().unwrap();
        drop(group);
        let group = open(Arc::new(memory.power_cut(3, PowerCut::Lost)));
        for n in 0..300_u32 {
            let found = group
                .snapshot()
                .get(data, &n.to_be_bytes(), &Cost::default());
            assert!(found.unwrap().is_some());
        }
        // The whole log was sealed: a segment that is truncated later is damage.
        let log = memory
            .paths()
            .into_iter()
            .filter(|p| p.extension().is_some_and(|e| e == "log"));
        for path in log {
            let bytes = memory.read(&path).unwrap();
            let cut = memory.power_cut(4, PowerCut::Kept);
            cut.write(&path, &bytes[..bytes.len() - 1]);
            let opened = Group::open(Path::new(DIR), small(Arc::new(cut)), Arc::new(Trees), false);
            assert!(opened.is_err_and(|e| e.is_damage()), "{}", path.display());
        }
    }
}

/// Without space even for `CURRENT`, `close` fails, the log is durable, and closing can be retried.
#[test]
fn a_close_that_cannot_seal_can_be_tried_again() {
    let memory = Memory::new();
    let fs = Faulty::new(Arc::new(memory.clone()));
    let group = open(Arc::new(fs.clone()));
    let (data, _) = create(&group);
    put(&group, data, "k", Durability::Os).unwrap();
    fs.set_capacity(fs.used());
    assert!(group.close().is_err_and(|error| error.is_disk_full()));
    let cut = open(Arc::new(memory.power_cut(1, PowerCut::Lost)));
    assert!(holds(&cut, data, "k"), "the log was not synced");
    drop(cut);
    assert!(matches!(group.flush(), Err(Error::Closed) | Ok(())));
    fs.clear();
    group.close().unwrap();
    group.close().unwrap();
    drop(group);
    let group = open(Arc::new(memory));
    assert!(holds(&group, data, "k"));
}

/// A handle that has written nothing must still make durable what it shows: the log that a killed
/// process left is only in the system's cache, and so is the last edit of a manifest whose sync
/// failed.
#[test]
fn unsynced_writes_of_an_earlier_handle_are_durable_after_a_sync_a_flush_or_a_close() {
    type Step = fn(&Group) -> Result<()>;
    let steps: [(&str, Step); 4] = [
        ("sync", Group::sync),
        ("flush", Group::flush),
        ("close", Group::close),
        ("nothing", |_| Ok(())),
    ];
    for (name, step) in steps {
        let memory = Memory::new();
        let faulty = Faulty::new(Arc::new(memory.clone()));
        let group = open(Arc::new(faulty.clone()));
        let (data, other) = create(&group);
        put(&group, data, "a", Durability::Os).unwrap();
        // As when the process is killed: closing can do nothing any more.
        faulty.fail_from(0);
        drop(group);
        let group = open(Arc::new(memory.clone()));
        assert!(holds(&group, data, "a"));
        step(&group).unwrap();
        let left = memory.power_cut(1, PowerCut::Lost);
        drop(group);
        let group = open(Arc::new(left));
        assert_eq!(holds(&group, data, "a"), name != "nothing", "{name}");
        drop(group);

        // The manifest's last edit, of a drop whose sync failed.
        let faulty = Faulty::new(Arc::new(memory.clone()));
        let group = open(Arc::new(faulty.clone()));
        put(&group, data, "b", Durability::Sync).unwrap();
        faulty.fail_sync_once();
        group.drop_trees(&[other]).unwrap_err();
        drop(group);
        let group = open(Arc::new(memory.clone()));
        assert_eq!(group.tree("bits"), None);
        step(&group).unwrap();
        let left = memory.power_cut(1, PowerCut::Lost);
        drop(group);
        let group = open(Arc::new(left));
        assert_eq!(group.tree("bits").is_some(), name == "nothing", "{name}");
    }
}

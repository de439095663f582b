//! Lists of actions that run repeatedly, each time with a power cut at another call; and a check
//! that lists are deterministic.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use esker_sim::by_tier;

use crate::action::{
    Action, CHOOSE_EVERY, Change, DECLARED, Def, Inside, Method, PATHS, Settings, Step, Write,
};
use crate::common::{number, seeds};
use crate::crash::{MODES, is_install};
use crate::generate;
use crate::runner::{as_case, attempt, caught};
use crate::world::World;

/// The default step between two calls at which the power is cut. No multiple of the number of
/// modes, which take turns.
fn stride() -> u64 {
    by_tier(43, 5)
}

fn nothing() -> Inside {
    Inside {
        steps: vec![],
        stop_after: None,
    }
}

/// A batch of `count` consecutive keys.
fn puts(first: u8, count: u8, cell: u8, durability: u8) -> Step {
    let put = |key| Write::Put {
        key,
        cells: [cell; PATHS.len()],
        pad: 40,
        style: 0,
    };
    batch((first..first + count).map(put).collect(), durability)
}

fn deletes(first: u8, count: u8) -> Step {
    let delete = |key| Write::Delete { key };
    batch((first..first + count).map(delete).collect(), 2)
}

fn batch(writes: Vec<Write>, durability: u8) -> Step {
    Step(
        0,
        Action::Batch {
            store: 0,
            set: 0,
            writes,
            durability,
        },
    )
}

fn create(maintenance: u8, kinds: [u8; DECLARED]) -> Step {
    let def = Def {
        keys: 0,
        kinds,
        types: [0; DECLARED],
        tokenizers: [0; DECLARED],
        maintenance,
        repair: 0,
        merging: maintenance,
        versions: 0,
        expiry: 0,
        old_records: false,
        point: 0,
        lenient: false,
        unique: 0,
        // With one of the strategies also an index of several fields.
        compound: u8::from(maintenance == 1) * 5,
    };
    Step(
        0,
        Action::Create {
            store: 0,
            name: 0,
            def,
        },
    )
}

fn index(kind: u8, change: Change, inside: Inside) -> Step {
    Step(
        7,
        Action::Index {
            store: 0,
            set: 0,
            path: 3,
            kind,
            tokenizer: 0,
            change,
            inside,
        },
    )
}

/// Writes, deletions and other actions between those of a list.
fn between(stop_after: Option<u8>) -> Inside {
    Inside {
        steps: vec![
            puts(3, 4, 4, 2),
            deletes(6, 3),
            puts(20, 2, 3, 0),
            Step(0, Action::Flush { store: 0 }),
            puts(1, 2, 5, 2),
        ],
        stop_after,
    }
}

/// An index that is built, stopped, resumed, switched and dropped while records are written.
fn index_build(kind: u8) -> Vec<Step> {
    vec![
        create(kind, [5, 0, 0]),
        puts(0, 20, 2, 2),
        Step(0, Action::Flush { store: 0 }),
        puts(10, 12, 3, 2),
        index(kind, Change::Add, between(Some(1))),
        Step(
            0,
            Action::Clear {
                store: 0,
                set: 0,
                durability: 2,
            },
        ),
        index(kind, Change::Resume, nothing()),
        puts(0, 9, 4, 2),
        index(kind + 1, Change::Switch, between(None)),
        puts(4, 3, 2, 2),
        index(0, Change::DropIndex, nothing()),
        Step(9, Action::Settle { store: 0 }),
        puts(5, 3, 2, 2),
    ]
}

/// An index that is built over deletions that are not durable.
fn index_build_overtaken(kind: u8) -> Vec<Step> {
    vec![
        create(1, [5, 0, 0]),
        puts(0, 20, 2, 0),
        index(
            kind,
            Change::Add,
            Inside {
                stop_after: Some(0),
                ..nothing()
            },
        ),
        deletes(5, 9),
        index(kind, Change::Resume, nothing()),
        puts(18, 3, 2, 2),
    ]
}

fn strategy_change(from: u8, to: u8) -> Vec<Step> {
    let change = |to, inside| {
        let strategy = Action::Strategy {
            store: 0,
            set: 0,
            to,
            inside,
        };
        Step(5, strategy)
    };
    vec![
        create(from, [5, 7, 4]),
        puts(0, 16, 2, 2),
        Step(0, Action::Flush { store: 0 }),
        puts(8, 12, 3, 2),
        change(to, between(Some(0))),
        deletes(0, 6),
        change(to, between(None)),
        puts(2, 8, 4, 2),
        Step(0, Action::Settle { store: 0 }),
        change(from, nothing()),
        puts(2, 5, 3, 2),
    ]
}

fn repair(maintenance: u8, method: Method) -> Vec<Step> {
    let repair = |inside| {
        let repair = Action::RepairSet {
            store: 0,
            set: 0,
            method,
            memory: 1,
            lookups: 0,
            bloom: false,
            inside,
        };
        Step(3, repair)
    };
    vec![
        create(maintenance, [5, 7, 6]),
        puts(0, 20, 2, 2),
        Step(0, Action::Flush { store: 0 }),
        puts(8, 12, 3, 2),
        repair(between(Some(0))),
        deletes(0, 6),
        repair(between(None)),
        Step(
            0,
            Action::Compact {
                store: 0,
                set: None,
            },
        ),
        puts(0, 5, 3, 2),
        repair(nothing()),
    ]
}

fn backup() -> Vec<Step> {
    let kept = Action::Backup {
        store: 0,
        kept: false,
    };
    let close = Action::Reopen {
        store: 0,
        close: true,
    };
    vec![
        create(1, [5, 6, 7]),
        puts(0, 12, 2, 2),
        Step(0, kept.clone()),
        puts(3, 8, 3, 2),
        Step(0, close.clone()),
        deletes(1, 3),
        Step(5, kept),
        puts(3, 2, 3, 0),
        Step(0, close),
        puts(3, 2, 3, 2),
    ]
}

/// Snapshots that are kept, read and dropped while definitions change.
fn snapshots() -> Vec<Step> {
    let snapshot = |name, drops| {
        Step(
            5,
            Action::Snapshot {
                store: 0,
                name,
                drops,
            },
        )
    };
    let compact = Step(
        0,
        Action::Compact {
            store: 0,
            set: None,
        },
    );
    vec![
        create(3, [5, 6, 7]),
        puts(0, 12, 2, 2),
        snapshot(0, false),
        puts(3, 8, 3, 2),
        index(4, Change::Add, nothing()),
        snapshot(1, false),
        deletes(1, 3),
        compact.clone(),
        snapshot(0, true),
        Step(0, Action::DropSet { store: 0, set: 0 }),
        snapshot(0, false),
        compact,
        snapshot(1, true),
        snapshot(1, false),
    ]
}

/// Consumers that begin, read on and are released while the log is flushed.
fn consumers() -> Vec<Step> {
    let consume = |most, forget| {
        let consume = Action::Consume {
            store: 0,
            set: 0,
            name: 0,
            bytes: 0,
            most,
            forget,
        };
        Step(5, consume)
    };
    let flush = Step(0, Action::Flush { store: 0 });
    vec![
        create(1, [5, 0, 0]),
        puts(0, 6, 2, 2),
        consume(None, false),
        puts(3, 4, 3, 0),
        flush.clone(),
        deletes(1, 4),
        consume(Some(2), false),
        flush,
        Step(
            0,
            Action::Reopen {
                store: 0,
                close: true,
            },
        ),
        puts(0, 2, 4, 2),
        consume(Some(3), false),
        consume(None, false),
        puts(5, 2, 3, 2),
        consume(None, true),
        consume(None, false),
    ]
}

/// A dataset that is renamed while its index changes, records are written, and a snapshot, a
/// consumer and a copy use it.
fn renames() -> Vec<Step> {
    let rename = |name| {
        let rename = Action::Rename {
            store: 0,
            set: 0,
            name,
        };
        Step(5, rename)
    };
    let consume = Action::Consume {
        store: 0,
        set: 0,
        name: 0,
        bytes: 0,
        most: None,
        forget: false,
    };
    let snapshot = Action::Snapshot {
        store: 0,
        name: 0,
        drops: false,
    };
    let compact = Action::Compact {
        store: 0,
        set: Some(0),
    };
    vec![
        create(3, [5, 6, 1]),
        puts(0, 12, 2, 2),
        Step(0, consume.clone()),
        Step(0, Action::Hold { store: 0, set: 0 }),
        index(4, Change::Add, between(Some(1))),
        rename(1),
        index(4, Change::Resume, nothing()),
        puts(3, 8, 3, 2),
        Step(5, snapshot.clone()),
        rename(2),
        deletes(1, 3),
        Step(5, compact),
        Step(5, consume),
        rename(0),
        Step(5, snapshot),
    ]
}

/// The lists of each test by name, and further ones from seeds.
fn lists() -> Vec<(String, Settings, Vec<Step>)> {
    let settings = |table_size, memory| Settings {
        table_size,
        memory,
        lock: false,
        choose_every: CHOOSE_EVERY,
        piece_bytes: Some(512),
    };
    let mut lists = Vec::new();
    for kind in [1, 4, 5, 6] {
        let name = format!("an index build, kind {kind}");
        lists.push((name, settings(1 << 10, 16 << 10), index_build(kind)));
    }
    let overtaken = index_build_overtaken(5);
    lists.push((
        "an index build that is overtaken".to_string(),
        settings(1 << 10, 16 << 10),
        overtaken,
    ));
    for (from, to) in [(3, 1), (1, 0), (4, 2)] {
        let name = format!("a migration, {from} to {to}");
        lists.push((name, settings(2 << 10, 64 << 10), strategy_change(from, to)));
    }
    for (maintenance, method) in [
        (1, Method::ByKey),
        (3, Method::PrimaryAfter),
        (4, Method::ByIndex),
    ] {
        let name = format!("repairs, {method:?}");
        lists.push((
            name,
            settings(2 << 10, 64 << 10),
            repair(maintenance, method),
        ));
    }
    lists.push(("backups".to_string(), settings(2 << 10, 64 << 10), backup()));
    let kept = settings(300, 16 << 10);
    lists.push(("snapshots".to_string(), kept, snapshots()));
    lists.push(("consumers".to_string(), kept, consumers()));
    lists.push(("renames".to_string(), kept, renames()));
    for seed in seeds(0).start..seeds(0).start + number("ESKER_SIM_LISTS", 2) as u64 {
        let (settings, steps) = generate::run(seed);
        let quiet = |step: &Step| {
            let fault = matches!(
                step.1,
                Action::Cut { .. }
                    | Action::CutInstalled { .. }
                    | Action::Fail { .. }
                    | Action::Full { .. }
                    | Action::Damage { .. }
            );
            !fault
        };
        let steps = steps.into_iter().filter(quiet).take(15).collect();
        lists.push((format!("seed {seed}"), settings, steps));
    }
    lists
}

#[test]
fn a_power_cut_at_any_call_leaves_a_state_that_may_be_there() {
    let mut cuts = 0;
    let all = std::env::var("ESKER_SIM_MODES").is_ok();
    for (turn, (name, settings, steps)) in lists().into_iter().enumerate() {
        let counted = caught(|| {
            let mut world = World::new(settings);
            let installs = Arc::new(AtomicU64::new(0));
            let store = &world.stores[0];
            let (count, dir) = (installs.clone(), store.dir.clone());
            store.hooked.set(move |call, path| {
                count.fetch_add(is_install(call, path, &dir).into(), SeqCst);
                Ok(())
            });
            for step in &steps {
                world.step(step);
            }
            (world.stores[0].faulty.calls(), installs.load(SeqCst))
        });
        let (calls, installs) = counted.unwrap_or_else(|failure| panic!("{name}: {failure:?}"));
        let mut cut = |cut| {
            let mut steps = steps.clone();
            steps.insert(0, Step(0, cut));
            cuts += 1;
            if let Err(failure) = attempt(settings, &steps) {
                eprintln!("{}", as_case(0, settings, &steps));
                panic!("{name}: {}: {}", failure.place, failure.text);
            }
        };
        // The installed version survives, unsynced writes are lost.
        for after in 0..installs.min(255) {
            cut(Action::CutInstalled {
                store: 0,
                after: after as u8,
                mode: 0,
                seed: 0,
            });
        }
        // A long run (`all`) cuts at every call, a short one at some calls of each list.
        let step = if all { 1 } else { stride() };
        for after in (turn as u64 % step..=calls).step_by(step as usize) {
            for mode in 0..if all { MODES.len() } else { 1 } {
                cut(Action::Cut {
                    store: 0,
                    after: after as u16,
                    mode: (after as usize + turn + mode) as u8,
                    seed: after as u16,
                });
            }
        }
    }
    println!("{cuts} power cuts");
}

/// All files of a run's stores.
fn files(seed: u64) -> Vec<BTreeMap<PathBuf, Vec<u8>>> {
    let (settings, steps) = generate::run(seed);
    let mut world = World::new(settings);
    for step in &steps {
        world.step(step);
    }
    let stores = world.stores.iter().map(|store| {
        let paths = store.memory.paths().into_iter();
        paths
            .map(|path| (path.clone(), store.memory.read(&path).unwrap_or_default()))
            .collect()
    });
    stores.collect()
}

#[test]
fn a_seed_does_the_same_each_time() {
    for seed in seeds(20) {
        let Ok(first) = caught(|| files(seed)) else {
            // The other test reports this failure.
            continue;
        };
        let again = caught(|| files(seed)).unwrap();
        for (first, again) in first.iter().zip(&again) {
            let names =
                |files: &BTreeMap<PathBuf, Vec<u8>>| files.keys().cloned().collect::<Vec<_>>();
            assert_eq!(names(first), names(again), "ESKER_SEED={seed}");
            for (path, bytes) in first {
                assert!(
                    bytes == &again[path],
                    "ESKER_SEED={seed}: {}",
                    path.display()
                );
            }
        }
    }
}

/// The deliberate faults apply to the sources, if git is available.
#[test]
fn deliberate_faults_still_apply() {
    let faults = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sim/faults");
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut count = 0;
    for file in std::fs::read_dir(faults).unwrap() {
        let path = file.unwrap().path();
        let mut git = std::process::Command::new("git");
        let run = git
            .args(["apply", "--check"])
            .arg(&path)
            .current_dir(&root)
            .output();
        // Without git, or with a fault applied to the sources, the test checks nothing.
        let Ok(output) = run else { return };
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{}: {text}", path.display());
        count += 1;
    }
    assert!(count >= 20, "{count} faults");
}

//! Runs lists of actions, and many seeds: in parallel, with a watchdog, with failures shrunk and told as tests, and with a
//! log of what is done, so that a long series can be gone on with.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt::Write as _;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, Once};
use std::time::{Duration, Instant};

use crate::action::{CHOOSE_EVERY, Settings, Step};
use crate::generate;
use crate::shrink::shrink;
use crate::world::World;

/// No run takes so long.
const LONGEST: Duration = Duration::from_secs(60);

/// Failures after which a series ends.
const MOST_FAILURES: u64 = 20;

static COUNTS: Mutex<BTreeMap<&str, u64>> = Mutex::new(BTreeMap::new());

/// Counts what happens, so that it shows what runs come to: `ESKER_SIM_COUNTS=1` prints it.
pub(crate) fn count(what: &'static str) {
    *COUNTS.lock().unwrap().entry(what).or_default() += 1;
}

/// How a run failed.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    /// The place in the sources.
    pub(crate) place: String,
    pub(crate) text: String,
}

thread_local! {
    static CAUGHT: RefCell<Option<Failure>> = const { RefCell::new(None) };
    static QUIET: RefCell<bool> = const { RefCell::new(false) };
}

/// Panics of runs are kept and not printed.
fn hush() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !QUIET.with(|quiet| *quiet.borrow()) {
                return usual(info);
            }
            let text = info.payload().downcast_ref::<String>().cloned();
            let text = text.or_else(|| {
                let text = info.payload().downcast_ref::<&str>();
                text.map(|text| (*text).to_string())
            });
            let place = info.location().map(ToString::to_string);
            let failure = Failure {
                place: place.unwrap_or_default(),
                text: text.unwrap_or_default(),
            };
            CAUGHT.with(|caught| {
                caught.borrow_mut().get_or_insert(failure);
            });
        }));
    });
}

/// Does what may panic.
pub(crate) fn caught<T>(work: impl FnOnce() -> T) -> Result<T, Failure> {
    hush();
    CAUGHT.with(|caught| caught.borrow_mut().take());
    QUIET.with(|quiet| *quiet.borrow_mut() = true);
    let result = catch_unwind(AssertUnwindSafe(work));
    QUIET.with(|quiet| *quiet.borrow_mut() = false);
    result.map_err(|_| {
        let failure = CAUGHT.with(|caught| caught.borrow_mut().take());
        failure.unwrap_or_else(|| Failure {
            place: String::new(),
            text: "a panic without a text".to_string(),
        })
    })
}

fn live(world: &mut World, steps: &[Step]) {
    for step in steps {
        world.step(step);
    }
    world.end();
}

/// Runs a list.
pub(crate) fn attempt(settings: Settings, steps: &[Step]) -> Result<(), Failure> {
    caught(|| live(&mut World::new(settings), steps))
}

/// What was done, and how it ended, of a list that fails.
pub(crate) fn story(settings: Settings, steps: &[Step]) -> String {
    let told: Mutex<Vec<String>> = Mutex::default();
    let _ = caught(|| {
        let mut world = World::new(settings);
        world.story = Some(Vec::new());
        let result = catch_unwind(AssertUnwindSafe(|| live(&mut world, steps)));
        *told.lock().unwrap() = world.story.take().unwrap();
        drop(result);
    });
    told.into_inner().unwrap().join("\n")
}

/// Runs a list that is to succeed: what a shrunk failure calls.
#[allow(dead_code)]
pub(crate) fn run(table_size: u64, memory: usize, lock: bool, steps: &[Step]) {
    let settings = Settings {
        table_size,
        memory,
        lock,
        choose_every: CHOOSE_EVERY,
        piece_bytes: None,
    };
    run_with(settings, steps);
}

/// The same with settings of its own.
pub(crate) fn run_with(settings: Settings, steps: &[Step]) {
    if let Err(failure) = attempt(settings, steps) {
        eprintln!("{}", story(settings, steps));
        panic!("{}: {}", failure.place, failure.text);
    }
}

/// A failing list, as a test.
pub(crate) fn as_test(seed: u64, settings: Settings, steps: &[Step]) -> String {
    let Settings {
        table_size,
        memory,
        lock,
        choose_every,
        piece_bytes,
    } = settings;
    let settings = match (choose_every, piece_bytes) {
        (CHOOSE_EVERY, None) => format!("run({table_size}, {memory}, {lock}"),
        _ => format!("run_with({settings:?}"),
    };
    let mut text = format!("#[test]\nfn seed_{seed}() {{\n    {settings}, &[\n");
    for step in steps {
        let _ = writeln!(text, "        {step:?},");
    }
    text + "    ]);\n}\n"
}

/// Runs a seed; a failure is shrunk and told.
pub(crate) fn seed(number: u64) -> Result<(), (Failure, String)> {
    let (settings, steps) = generate::run(number);
    let Err(failure) = attempt(settings, &steps) else {
        return Ok(());
    };
    let unshrunk = std::env::var("ESKER_SIM_QUICK").is_ok() || first_only();
    let (steps, failure) = match unshrunk {
        true => (steps, failure),
        false => shrink(settings, steps, failure),
    };
    let report = format!(
        "ESKER_SEED={number}\n{}: {}\n{}\n{}",
        failure.place,
        failure.text,
        as_test(number, settings, &steps),
        match unshrunk {
            true => String::new(),
            false => story(settings, &steps),
        }
    );
    Err((failure, report))
}

/// Whether a series ends with its first failure, which is not shrunk: for deliberate faults.
fn first_only() -> bool {
    std::env::var("ESKER_SIM_FIRST").is_ok()
}

/// What a series of seeds has done before, by the lines of its log: `done FIRST LAST`.
fn done_before(log: &str) -> Vec<(u64, u64)> {
    let lines = log.lines().filter_map(|line| {
        let mut words = line.strip_prefix("done ")?.split(' ');
        Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
    });
    lines.collect()
}

/// Runs seeds in parallel, each once. Returns the failures, by place.
pub(crate) fn series(first: u64, count: u64, threads: usize) -> BTreeMap<String, String> {
    let log = std::env::var("ESKER_SIM_LOG").ok();
    let before = log
        .as_ref()
        .and_then(|log| std::fs::read_to_string(log).ok());
    let done = done_before(&before.unwrap_or_default());
    let write = |line: &str| {
        if let Some(log) = &log {
            let mut options = std::fs::OpenOptions::new();
            let file = options.create(true).append(true).open(log);
            file.unwrap().write_all(line.as_bytes()).unwrap();
        }
    };
    // Of the first failure it is told how many seeds it took.
    let (chunk, most) = if first_only() {
        (1, 1)
    } else {
        (100, MOST_FAILURES)
    };
    let next = AtomicU64::new(first);
    let failed: Mutex<BTreeMap<String, String>> = Mutex::default();
    let failures = AtomicU64::new(0);
    let running: Vec<Mutex<Option<(u64, Instant)>>> =
        (0..threads).map(|_| Mutex::default()).collect();
    let over = AtomicBool::new(false);
    let began = Instant::now();
    let ran = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let (next, failed, failures, running) = (&next, &failed, &failures, &running);
                let (done, write, ran) = (&done, &write, &ran);
                scope.spawn(move || {
                    while failures.load(SeqCst) < most {
                        let from = next.fetch_add(chunk, SeqCst);
                        let to = (from + chunk).min(first + count);
                        if from >= to {
                            break;
                        }
                        for number in from..to {
                            if done.iter().any(|(a, b)| (*a..=*b).contains(&number)) {
                                continue;
                            }
                            *running[thread].lock().unwrap() = Some((number, Instant::now()));
                            let result = seed(number);
                            ran.fetch_add(1, SeqCst);
                            let Err((failure, report)) = result else {
                                continue;
                            };
                            failures.fetch_add(1, SeqCst);
                            if first_only() {
                                eprintln!("found after {} seeds", number - first + 1);
                            }
                            let mut failed = failed.lock().unwrap();
                            let short = format!("failed {number} {}\n", failure.place);
                            match failed.entry(failure.place) {
                                Entry::Occupied(known) => {
                                    eprintln!("ESKER_SEED={number}: as before, {}", known.key());
                                    write(&short);
                                }
                                Entry::Vacant(new) => {
                                    eprintln!("{report}");
                                    write(&format!("{short}{report}\n"));
                                    new.insert(report);
                                }
                            }
                        }
                        *running[thread].lock().unwrap() = None;
                        write(&format!("done {from} {}\n", to - 1));
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !over.load(SeqCst) {
                std::thread::sleep(Duration::from_millis(100));
                for at in &running {
                    let Some((number, since)) = *at.lock().unwrap() else {
                        continue;
                    };
                    // Shrinking takes as long again.
                    if since.elapsed() > LONGEST * 3 {
                        eprintln!("ESKER_SEED={number} does not end");
                        std::process::abort();
                    }
                }
            }
        });
        let results: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        over.store(true, SeqCst);
        assert!(results.iter().all(Result::is_ok));
    });
    if std::env::var("ESKER_SIM_COUNTS").is_ok() {
        let counts = COUNTS.lock().unwrap();
        counts
            .iter()
            .for_each(|(what, n)| eprintln!("{n:9} {what}"));
    }
    let (ran, took) = (ran.load(SeqCst), began.elapsed());
    eprintln!(
        "{ran} seeds from {first} in {:.1} s, {:.1} ms each on {threads} threads",
        took.as_secs_f64(),
        took.as_secs_f64() * 1e3 * threads as f64 / ran.max(1) as f64
    );
    failed.into_inner().unwrap()
}

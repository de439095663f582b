//! Runs random lists of actions, and many seeds of them: in parallel, with a watchdog, with
//! failures shrunk and printed as tests, and with a log of finished seeds, so that a long series
//! can be resumed.
//!
//! | variable | effect |
//! | --- | --- |
//! | `ESKER_SIM_LOG=FILE` | finished seeds are skipped, and failures appended |
//! | `ESKER_SIM_QUICK=1` | failures are not shrunk |
//! | `ESKER_SIM_FIRST=1` | ends with the first failure, unshrunk, and prints after how many seeds |
//! | `ESKER_SIM_COUNTS=1` | prints what runs counted ([`crate::world::count`]) |

#![allow(
    clippy::unwrap_used,
    reason = "it is part of tests, and a failure is a panic"
)]

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use crate::shrink::shrink;
use crate::world::{Failure, World, attempt, counts, story};

/// No run takes so long.
const LONGEST: Duration = Duration::from_secs(60);

/// A run that has begun.
#[derive(Clone, Copy)]
struct Begun {
    number: u64,
    at: Instant,
    /// The processor time of the process at that moment.
    used: Option<Duration>,
}

impl Begun {
    fn now(number: u64) -> Begun {
        Begun {
            number,
            at: Instant::now(),
            used: processor_time(),
        }
    }

    /// True if the run takes longer than `longest`, and not because the process hardly gets a
    /// processor: it has used a third of that time, or next to nothing, since it waits for itself.
    fn is_endless(&self, longest: Duration) -> bool {
        let passed = self.at.elapsed();
        if passed <= longest {
            return false;
        }
        let used = processor_time().zip(self.used);
        let used = used.map(|(now, before)| now.saturating_sub(before));
        let is_starved = used.is_some_and(|used| used < longest / 3 && used > passed / 1000);
        !is_starved
    }
}

/// The processor time that this process has used; `None` where the system does not say.
fn processor_time() -> Option<Duration> {
    /// Of the clock in which Linux states it.
    const MILLIS_PER_TICK: u64 = 10;
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The fields behind the name, which is in parentheses: user and system time are the twelfth and
    // thirteenth.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut times = fields.split_whitespace().skip(11).map(str::parse::<u64>);
    let ticks = times.next()?.ok()? + times.next()?.ok()?;
    Some(Duration::from_millis(ticks * MILLIS_PER_TICK))
}

/// Failures after which a series ends.
const MOST_FAILURES: u64 = 20;

/// Runs a seed. The error of a failure has a report: the seed, the shrunk list as a test, and what
/// it does.
pub fn seed<W: World>(number: u64) -> Result<(), (Failure, String)> {
    let (settings, actions) = W::generate(number);
    let Err(failure) = attempt::<W>(settings, &actions) else {
        return Ok(());
    };
    let unshrunk = std::env::var("ESKER_SIM_QUICK").is_ok() || first_only();
    let (actions, failure) = if unshrunk {
        (actions, failure)
    } else {
        shrink::<W>(settings, actions, failure)
    };
    let report = format!(
        "ESKER_SEED={number}\n{}: {}\n{}\n{}",
        failure.place,
        failure.text,
        W::as_test(number, settings, &actions),
        if unshrunk {
            String::new()
        } else {
            story::<W>(settings, &actions)
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

/// A series of seeds at work.
struct Series {
    first: u64,
    end: u64,
    next: AtomicU64,
    /// Seeds that a thread takes at a time.
    chunk: u64,
    log: Option<String>,
    /// Finished before, by the log.
    done: Vec<(u64, u64)>,
    /// Reports, by the place of the failure.
    failed: Mutex<BTreeMap<String, String>>,
    failures: AtomicU64,
    /// Failures after which it ends.
    most: u64,
    /// By thread: the seed that it runs, and since when.
    running: Vec<Mutex<Option<Begun>>>,
    ended: AtomicBool,
    ran: AtomicU64,
}

impl Series {
    fn new(first: u64, count: u64, threads: usize) -> Series {
        let log = std::env::var("ESKER_SIM_LOG").ok();
        let before = log
            .as_ref()
            .and_then(|log| std::fs::read_to_string(log).ok());
        // One at a time, so that it is known how many seeds the first failure took.
        let (chunk, most) = if first_only() {
            (1, 1)
        } else {
            (100, MOST_FAILURES)
        };
        Series {
            first,
            end: first + count,
            next: AtomicU64::new(first),
            chunk,
            done: done_before(&before.unwrap_or_default()),
            log,
            failed: Mutex::default(),
            failures: AtomicU64::new(0),
            most,
            running: (0..threads).map(|_| Mutex::default()).collect(),
            ended: AtomicBool::new(false),
            ran: AtomicU64::new(0),
        }
    }

    fn write(&self, line: &str) {
        if let Some(log) = &self.log {
            let mut options = std::fs::OpenOptions::new();
            let file = options.create(true).append(true).open(log);
            file.unwrap().write_all(line.as_bytes()).unwrap();
        }
    }

    /// The work of a thread.
    fn work<W: World>(&self, running: &Mutex<Option<Begun>>) {
        while self.failures.load(SeqCst) < self.most {
            let from = self.next.fetch_add(self.chunk, SeqCst);
            let to = (from + self.chunk).min(self.end);
            if from >= to {
                break;
            }
            for number in from..to {
                if self.done.iter().any(|(a, b)| (*a..=*b).contains(&number)) {
                    continue;
                }
                *running.lock().unwrap() = Some(Begun::now(number));
                let result = seed::<W>(number);
                self.ran.fetch_add(1, SeqCst);
                if let Err((failure, report)) = result {
                    self.note(number, failure, report);
                }
            }
            *running.lock().unwrap() = None;
            self.write(&format!("done {from} {}\n", to - 1));
        }
    }

    fn note(&self, number: u64, failure: Failure, report: String) {
        self.failures.fetch_add(1, SeqCst);
        if first_only() {
            eprintln!("found after {} seeds", number - self.first + 1);
        }
        let mut failed = self.failed.lock().unwrap();
        let short = format!("failed {number} {}\n", failure.place);
        match failed.entry(failure.place) {
            Entry::Occupied(known) => {
                eprintln!("ESKER_SEED={number}: as before, {}", known.key());
                self.write(&short);
            }
            Entry::Vacant(new) => {
                eprintln!("{report}");
                self.write(&format!("{short}{report}\n"));
                new.insert(report);
            }
        }
    }

    /// Ends the process when a run does not end.
    fn watch(&self) {
        while !self.ended.load(SeqCst) {
            std::thread::sleep(Duration::from_millis(100));
            for at in &self.running {
                let Some(begun) = *at.lock().unwrap() else {
                    continue;
                };
                // Shrinking takes as long again.
                if begun.is_endless(LONGEST * 3) {
                    eprintln!("ESKER_SEED={} does not end", begun.number);
                    std::process::abort();
                }
            }
        }
    }
}

/// Runs `count` seeds from `first` on in parallel, each once. Returns the reports of failures, by
/// place.
pub fn series<W: World>(first: u64, count: u64, threads: usize) -> BTreeMap<String, String> {
    let series = Series::new(first, count, threads);
    let began = Instant::now();
    std::thread::scope(|scope| {
        let works = series.running.iter().map(|running| {
            let series = &series;
            scope.spawn(move || series.work::<W>(running))
        });
        let works: Vec<_> = works.collect();
        scope.spawn(|| series.watch());
        let results: Vec<_> = works.into_iter().map(|work| work.join()).collect();
        series.ended.store(true, SeqCst);
        assert!(results.iter().all(Result::is_ok));
    });
    if std::env::var("ESKER_SIM_COUNTS").is_ok() {
        for (n, what) in counts() {
            eprintln!("{n:9} {what}");
        }
    }
    let (ran, took) = (series.ran.load(SeqCst), began.elapsed());
    eprintln!(
        "{ran} seeds from {first} in {:.1} s, {:.1} ms each on {threads} threads",
        took.as_secs_f64(),
        took.as_secs_f64() * 1e3 * threads as f64 / ran.max(1) as f64
    );
    series.failed.into_inner().unwrap()
}

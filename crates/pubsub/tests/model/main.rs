//! The broker against a model that compares all publications with all subscriptions: random
//! operations of all kinds, inboxes, a dataset in the same store, a clock that steps back, flushes,
//! compactions (of which the last drops all that has expired), reopenings, power cuts at any call,
//! backups that the run continues with, and failing reads; and threads, with syncs that the run
//! holds. `ESKER_SEEDS=400 cargo test -p esker-pubsub --test model` runs more seeds;
//! `ESKER_SEED=17 ESKER_SEEDS=1` repeats one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod cells;
mod expired;
mod held;
mod kills;
mod mail;
mod meaning;
mod run;
mod threads;
mod world;

use std::sync::atomic::Ordering;

use esker_sim::runner::seed as run_seed;
use esker_sim::{by_tier, seeds};
use parking_lot::Mutex;

use run::Run;

/// What all runs of this process came to.
#[derive(Default)]
struct Totals {
    counts: [usize; 2],
    failed: [usize; 2],
    done: [usize; 4],
}

static TOTALS: Mutex<Totals> = Mutex::new(Totals {
    counts: [0; 2],
    failed: [0; 2],
    done: [0; 4],
});

impl Totals {
    fn add(&mut self, run: &Run) {
        let add = |all: &mut [usize], one: &[usize]| {
            all.iter_mut().zip(one).for_each(|(all, one)| *all += one);
        };
        add(&mut self.counts, &run.world.counts);
        add(&mut self.done, &run.done);
        let failed = [&run.failed[0], &run.failed[1]].map(|n| n.load(Ordering::SeqCst));
        add(&mut self.failed, &failed);
    }
}

#[test]
fn everything_meets_exactly_once() {
    for seed in seeds(by_tier(12, 24)) {
        println!("seed {seed}");
        if let Err((_, report)) = run_seed::<Run>(seed) {
            panic!("{report}");
        }
    }
    let Totals {
        counts,
        failed,
        done,
    } = std::mem::take(&mut *TOTALS.lock());
    println!("{counts:?} told, {failed:?} failed, {done:?} read, cut, taken, continued");
    if std::env::var("ESKER_SEED").is_ok() {
        return;
    }
    assert!(failed[1] > 10, "{failed:?}");
    assert!(counts.iter().all(|count| *count > 100), "{counts:?}");
    assert!(done.iter().all(|count| *count > 10), "{done:?}");
}

/// Threads, slow syncs and reads, and a power cut. A seed repeats a run as far as threads can.
#[test]
fn threads_meet_exactly_once() {
    let (mut given, mut cuts) = (0, 0);
    for seed in seeds(by_tier(5, 12)) {
        println!("seed {seed}");
        let (of_run, is_cut) = threads::run(seed);
        given += of_run;
        cuts += usize::from(is_cut);
    }
    println!("{given} given, {cuts} cuts");
    assert!(given > 100, "{given}");
}

/// The patches of deliberate faults (`.ci/faults`) apply to the sources. Checked only with git.
#[test]
fn deliberate_faults_still_apply() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut count = 0;
    for file in std::fs::read_dir(folder.join("tests/model/faults")).unwrap() {
        let path = file.unwrap().path();
        let mut git = std::process::Command::new("git");
        let run = git
            .args(["apply", "--check"])
            .arg(&path)
            .current_dir(folder.join("../.."))
            .output();
        // Without git the check is skipped.
        let Ok(output) = run else { return };
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{}: {text}", path.display());
        count += 1;
    }
    assert!(count >= 10, "{count} faults");
}

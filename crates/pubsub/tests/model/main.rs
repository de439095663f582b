//! The broker against a model that compares all publications with all subscriptions: random
//! operations of all kinds, inboxes, a dataset in the same store, a clock that steps back, flushes,
//! compactions, reopenings, power cuts at any call, backups that the run continues with, and
//! failing reads; and threads, with syncs that the run holds. `ESKER_SEEDS=400 cargo test -p
//! esker-pubsub --test model` runs more seeds; `ESKER_SEED=17 ESKER_SEEDS=1` repeats one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod held;
mod kills;
mod mail;
mod meaning;
mod run;
mod threads;
mod world;

use std::sync::atomic::Ordering;

use fastrand::Rng;

use run::Run;

fn seeds(default: u64) -> std::ops::Range<u64> {
    let number =
        |name: &str, default| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let first = number("ESKER_SEED", 0);
    first..first + number("ESKER_SEEDS", default)
}

#[test]
fn everything_meets_exactly_once() {
    let (mut counts, mut failed, mut done) = ([0; 2], [0; 2], [0; 4]);
    for seed in seeds(24) {
        println!("seed {seed}");
        let mut rng = Rng::with_seed(seed);
        let mut run = Run::new(seed);
        for _ in 0..400 {
            run.step(&mut rng);
        }
        run.compare_records();
        let report = run.db().check().unwrap();
        assert_eq!(report.errors, Vec::<String>::new(), "seed {seed}");
        let add = |all: &mut [usize], one: &[usize]| {
            all.iter_mut().zip(one).for_each(|(all, one)| *all += one);
        };
        add(&mut counts, &run.world.counts);
        add(&mut done, &run.done);
        let of_run = [&run.failed[0], &run.failed[1]].map(|n| n.load(Ordering::SeqCst));
        add(&mut failed, &of_run);
    }
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
    for seed in seeds(12) {
        println!("seed {seed}");
        let (of_run, is_cut) = threads::run(seed);
        given += of_run;
        cuts += usize::from(is_cut);
    }
    println!("{given} given, {cuts} cuts");
    assert!(given > 100, "{given}");
}

/// The patches of deliberate faults (`run-faults`) apply to the sources. Checked only with git.
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

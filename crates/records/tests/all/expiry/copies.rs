//! Backups and named snapshots of expiring records, and advice about them, beside the model: a
//! record that had expired when the copy was made does not come back in it, whatever happens to the
//! store and the clock; the other records are there.

use std::collections::BTreeSet;
use std::path::{Path as FsPath, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use esker::maintain::RepairOptions;
use esker::{Database, DatasetDef, Index, IndexKind, Key, KeyType, Type, field};
use esker_sim::by_tier;
use esker_sim::clock::TestClock;
use esker_sim::memory::Memory;

use super::world::{Live, START, World, ask};
use crate::common::{check, check_set, path, seeds, small, with_strategy};

/// A dataset whose kind of index, strategy and forms of expiry depend on the seed.
fn world(seed: u64, rng: &mut fastrand::Rng) -> World {
    let kind = IndexKind::ALL[seed as usize % IndexKind::ALL.len()];
    let def = DatasetDef::new(path("id"), KeyType::Int)
        .index(path("n"), Index::new(kind).of_type(Type::Int))
        .expires_at(path("until"));
    let def = with_strategy(def, seed as usize / IndexKind::ALL.len());
    World::new(if rng.bool() {
        def.ttl(Duration::from_millis(rng.u64(1..5_000)))
    } else {
        def
    })
}

/// The live records at a time.
fn live_at(all: &Live, time: u64) -> Live {
    let lives = |expires: Option<u64>| expires.is_none_or(|expires| expires > time);
    let live = all.iter().filter(|(_, stored)| lives(stored.expires));
    live.cloned().collect()
}

fn at(dir: &FsPath, memory: &Memory, hand: &TestClock) -> Database {
    let options = small(Arc::new(memory.clone())).clock(hand.function());
    Database::open(dir, options).unwrap()
}

/// A named snapshot, and its expected content.
struct Kept {
    name: String,
    live: Live,
}

fn prove_kept(db: &Database, kept: &[Kept], rng: &mut fastrand::Rng) {
    for Kept { name, live } in kept {
        let snapshot = db.kept_snapshot(name).unwrap();
        ask(&snapshot.dataset::<Key>("d").unwrap(), live, rng);
    }
}

/// Checks a backup made at time `made` of the records `stored`, under earlier and later clocks.
fn prove_backup(
    world: &World,
    dir: &FsPath,
    (stored, made): (&Live, u64),
    kept: &[Kept],
    rng: &mut fastrand::Rng,
) {
    for time in [START, made, made + rng.u64(0..5_000)] {
        let hand = TestClock::new(START);
        hand.set(time);
        let db = at(dir, &world.memory, &hand);
        let dataset = db.dataset::<Key>("d").unwrap();
        let live = live_at(stored, made.max(time));
        ask(&dataset.snapshot(), &live, rng);
        prove_kept(&db, kept, rng);
        check(&db);
        check_set(&db);
        if time > made {
            // Deleting expired records, and the work after it, changes no answer in the backup or
            // its named snapshots.
            let due = stored.len() - live.len();
            assert_eq!(dataset.expire_now().unwrap(), due as u64);
            ask(&dataset.snapshot(), &live, rng);
            db.compact(None).unwrap();
            ask(&dataset.snapshot(), &live, rng);
            prove_kept(&db, kept, rng);
            check(&db);
            check_set(&db);
        }
        db.close().unwrap();
    }
}

#[test]
fn what_had_expired_comes_back_in_no_backup_and_no_named_snapshot() {
    let (mut backups, mut hidden) = (0, 0);
    for seed in seeds(32) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut world = world(seed, &mut rng);
        let mut kept: Vec<Kept> = Vec::new();
        for round in 0..by_tier(80, 160) {
            world.tick(&mut rng);
            world.write(&mut rng);
            world.disturb(&mut rng);
            match rng.usize(0..16) {
                0 => {
                    world.tick(&mut rng);
                    let name = format!("s{round}");
                    world.db.keep_snapshot(&name).unwrap();
                    let live = world.live().map(|(k, s)| (*k, s.clone())).collect();
                    kept.push(Kept { name, live });
                }
                1 if !kept.is_empty() => {
                    let dropped = kept.swap_remove(rng.usize(0..kept.len()));
                    world.db.drop_snapshot(&dropped.name).unwrap();
                }
                2 => prove_kept(&world.db, &kept, &mut rng),
                3 => {
                    world.hand.add(rng.u64(0..2_000));
                    world.tick(&mut rng);
                    world.read_feed();
                    let stored: Live = world.stored.iter().map(|(k, s)| (*k, s.clone())).collect();
                    let dir = PathBuf::from(format!("/backup{round}"));
                    world.db.backup(&dir).unwrap();
                    backups += 1;
                    hidden += stored.len() - live_at(&stored, world.now).len();
                    prove_backup(&world, &dir, (&stored, world.now), &kept, &mut rng);
                }
                _ => {}
            }
        }
        prove_kept(&world.db, &kept, &mut rng);
        check(&world.db);
    }
    assert!(
        backups > by_tier(50, 100) && hidden > by_tier(100, 200),
        "{backups} backups, {hidden} hidden"
    );
}

#[test]
fn advice_counts_the_records_that_are_live() {
    let mut hidden = 0;
    for seed in seeds(48) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut world = world(seed, &mut rng);
        for _ in 0..120 {
            world.tick(&mut rng);
            world.write(&mut rng);
            world.disturb(&mut rng);
        }
        let found = world.dataset.find(field("absent").eq(1)).count().unwrap();
        assert_eq!(found, 0);
        // In one component without obsolete entries the sample is complete, so the figures are
        // exact.
        let repair = RepairOptions::default();
        world.dataset.repair(&repair).run().unwrap();
        world.db.compact(None).unwrap();
        world.hand.add(rng.u64(0..8_000));
        world.tick(&mut rng);
        world.read_feed();
        let live: Live = world.live().map(|(k, s)| (*k, s.clone())).collect();
        hidden += world.stored.len() - live.len();
        let advice = world.dataset.advise(None).unwrap();
        assert_eq!(advice.records, live.len() as u64, "{seed}");
        let n = advice
            .attributes
            .iter()
            .find(|a| a.path == path("n"))
            .unwrap();
        let values: BTreeSet<i64> = live.iter().map(|(_, stored)| stored.n).collect();
        assert_eq!(
            (n.records, n.distinct),
            (live.len() as u64, values.len() as u64),
            "{seed}"
        );
        // When all records have expired, there is no data to measure.
        world.hand.add(100_000);
        world.tick(&mut rng);
        let live = world.live().count() as u64;
        assert_eq!(world.dataset.advise(None).unwrap().records, live, "{seed}");
    }
    assert!(hidden > 20, "{hidden}");
}

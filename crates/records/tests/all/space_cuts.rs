//! A power cut before every call to the file system while points are written, moved and deleted,
//! tables are flushed and compacted, and the spatial index is added, switched between layouts,
//! repaired and dropped. Acknowledged writes are found by area and by distance; an unacknowledged
//! one is there completely or not at all. `ESKER_SEEDS=40 cargo test -p esker --test all
//! space_cuts::` runs more seeds; `ESKER_SEED=17` repeats one.

use std::collections::BTreeMap;
use std::path::Path as FsPath;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::common::{DIR, path, small};
use esker::fs::Fs;
use esker::maintain::RepairOptions;
use esker::schema::{Layout, Maintenance};
use esker::{
    AreaExpr, Database, Dataset, DatasetDef, Durability, Index, IndexKind, KeyType, Type, field,
};
use esker_sim::hooked::Hooked;
use esker_sim::memory::{Memory, PowerCut};
use fastrand::Rng;

/// By key: the point.
type Rows = BTreeMap<u64, (f64, f64)>;

#[derive(Debug, Clone)]
enum Op {
    /// Puts and deletions.
    Write(Vec<(u64, Option<(f64, f64)>)>),
    /// Switches to a layout, or adds the index if there is none. Not if the records are stored by
    /// location.
    Index(Layout),
    Drop,
    Repair,
    Flush,
    Compact,
}

fn script(rng: &mut Rng) -> Vec<Op> {
    let op = |rng: &mut Rng| match rng.u8(0..14) {
        0..8 => {
            let point = |rng: &mut Rng| (f64::from(rng.u8(0..10)), rng.f64() * 10.0);
            let one = |rng: &mut Rng| {
                let is_there = rng.u8(0..5) > 0;
                (rng.u64(0..60), is_there.then(|| point(rng)))
            };
            Op::Write((0..rng.usize(1..40)).map(|_| one(rng)).collect())
        }
        8 | 9 => Op::Index(Layout::ALL[rng.usize(..Layout::ALL.len())]),
        10 => Op::Drop,
        11 => Op::Repair,
        12 => Op::Compact,
        _ => Op::Flush,
    };
    (0..14).map(|_| op(rng)).collect()
}

fn open(fs: Arc<dyn Fs>) -> Database {
    let options = small(fs).durability(Durability::Sync);
    Database::create_or_open(FsPath::new(DIR), options).unwrap()
}

fn apply(dataset: &Dataset<u64>, op: &Op, rows: &mut Rows) {
    let def = dataset.def();
    let now = def.indexes.iter().find(|index| index.kind.is_indexed());
    let is_clustered = now.is_some_and(|now| now.kind.is_clustered());
    match op {
        // Adds or drops another index instead, of a field that is not in the stubs.
        Op::Index(_) if is_clustered => {
            let known = def.indexes.iter().any(|index| index.path == path("n"));
            if known && def.indexes.iter().all(|index| index.kind.is_indexed()) {
                drop(dataset.drop_index("n").unwrap())
            } else {
                drop(dataset.add_index("n", Index::lazy().int()).run().unwrap())
            }
        }
        Op::Drop if is_clustered => {}
        Op::Write(changes) => {
            let mut batch = dataset.batch();
            for (id, point) in changes {
                match point {
                    Some((x, y)) => {
                        batch
                            .put(&serde_json::json!({"id": id, "at": [x, y], "n": id % 3}))
                            .unwrap();
                        rows.insert(*id, (*x, *y));
                    }
                    None => {
                        batch.delete(*id).unwrap();
                        rows.remove(id);
                    }
                }
            }
            batch.durability(Durability::Sync).commit().unwrap();
        }
        Op::Index(layout) => {
            let kind = IndexKind::Spatial(*layout);
            match now {
                None => {
                    let index = Index::new(kind).of_type(Type::Point);
                    dataset.add_index("at", index).run().unwrap();
                }
                Some(now) if now.kind != kind => {
                    dataset.switch_index("at", kind).run().unwrap();
                }
                Some(_) => {}
            }
        }
        Op::Drop if now.is_some() => {
            dataset.drop_index("at").unwrap();
        }
        Op::Drop => {}
        Op::Repair => {
            dataset.repair(&RepairOptions::default()).run().unwrap();
        }
        Op::Flush | Op::Compact => {}
    }
}

/// Compares the answers of a store with the expected ones.
fn compare(dataset: &Dataset<u64>, rows: &Rows) -> Result<(), String> {
    for (west, south, east, north) in [
        (0.0, 0.0, 10.0, 10.0),
        (2.0, 1.5, 5.0, 6.0),
        (7.0, 0.0, 7.0, 10.0),
    ] {
        let area = field("at").within(AreaExpr::rect(west, south, east, north));
        let mut found: Vec<u64> = dataset
            .find(area)
            .run()
            .unwrap()
            .map(|r| *r.unwrap().key())
            .collect();
        found.sort_unstable();
        let inside = |(x, y): &(f64, f64)| (west..=east).contains(x) && (south..=north).contains(y);
        let wanted: Vec<u64> = rows
            .iter()
            .filter(|(_, point)| inside(point))
            .map(|(id, _)| *id)
            .collect();
        if found != wanted {
            return Err(format!(
                "in {west},{south},{east},{north}: {found:?}, not {wanted:?}"
            ));
        }
    }
    // Every record is complete, and at its place.
    for record in dataset.scan(..) {
        let record = record.map_err(|error| error.to_string())?;
        let json: serde_json::Value = record.parse().unwrap();
        let wanted = rows.get(record.key());
        if json["n"] != record.key() % 3 || wanted.map(|(x, _)| json["at"][0] == *x) != Some(true) {
            return Err(format!("{json}, not {wanted:?}"));
        }
    }
    let thirds = rows.keys().filter(|id| *id % 3 == 1).count();
    if dataset.find(field("n").eq(1)).count().unwrap() != thirds as u64 {
        return Err(format!("not {thirds} records with n 1"));
    }
    let near = dataset
        .query()
        .nearest("at", (5.0, 5.0), 1000, None)
        .unwrap();
    if near.len() == rows.len() && near.is_sorted_by(|a, b| a.distance <= b.distance) {
        Ok(())
    } else {
        Err(format!("{} nearest of {}", near.len(), rows.len()))
    }
}

fn run(seed: u64) -> usize {
    let mut rng = Rng::with_seed(seed);
    let ops = script(&mut rng);
    let memory = Memory::new();
    let hooked = Hooked::new(Arc::new(memory.clone()));
    let db = open(Arc::new(hooked.clone()));
    let maintenance = Maintenance::ALL[seed as usize / 2 % Maintenance::ALL.len()];
    let def = DatasetDef::new("id", KeyType::Int).maintenance(maintenance);
    let def = match seed % 2 {
        0 => def.index("at", Index::spatial()),
        _ => def.cluster("at"),
    };
    let dataset = db.create_dataset::<u64>("d", def).unwrap();
    db.sync().unwrap();
    // The image that a cut would leave before each call, and the number of operations that had
    // returned.
    let done = Arc::new(AtomicUsize::new(0));
    let cuts: Arc<Mutex<Vec<(usize, Memory)>>> = Arc::default();
    let (acknowledged, found) = (done.clone(), cuts.clone());
    hooked.set(move |_, _| {
        let mut cuts = found.lock().unwrap();
        let nth = cuts.len() as u64;
        let mode = [PowerCut::Lost, PowerCut::Reordered, PowerCut::Kept][nth as usize % 3];
        let left = memory.power_cut(seed << 20 | nth, mode);
        cuts.push((acknowledged.load(Ordering::SeqCst), left));
        Ok(())
    });
    let mut rows = Rows::new();
    let mut expected = vec![rows.clone()];
    for (at, op) in ops.iter().enumerate() {
        match op {
            Op::Flush => db.flush().unwrap(),
            Op::Compact => db.compact(None).unwrap(),
            op => apply(&dataset, op, &mut rows),
        }
        expected.push(rows.clone());
        done.store(at + 1, Ordering::SeqCst);
    }
    hooked.clear();
    compare(&dataset, &rows).unwrap();
    let cuts = std::mem::take(&mut *cuts.lock().unwrap());
    // In the usual tier every other one, beginning with the first or the second.
    let step = esker_sim::by_tier(2, 1);
    let chosen = cuts.iter().enumerate().skip(seed as usize % step);
    for (nth, (acknowledged, left)) in chosen.step_by(step) {
        let db = open(Arc::new(left.clone()));
        let dataset = db.dataset::<u64>("d").unwrap();
        let what = format!(
            "ESKER_SEED={seed}: a cut before call {nth}, in {:?}",
            ops.get(*acknowledged)
        );
        // One of the two states holds, also for all later queries.
        let before = compare(&dataset, &expected[*acknowledged]);
        let after = expected.get(acknowledged + 1);
        let rows = match (&before, after) {
            (Ok(()), _) => &expected[*acknowledged],
            (Err(_), Some(after)) => after,
            (Err(why), None) => panic!("{what}: {why}"),
        };
        compare(&dataset, rows).unwrap_or_else(|why| panic!("{what}: {before:?}, and {why}"));
        dataset.resume_index().run().unwrap();
        db.compact(None).unwrap();
        compare(&dataset, rows).unwrap_or_else(|why| panic!("{what}, compacted: {why}"));
        let report = db.check().unwrap();
        assert!(report.errors.is_empty(), "{what}: {:?}", report.errors);
    }
    cuts.len()
}

#[test]
fn a_power_cut_before_any_call_loses_no_point() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let calls: usize = match number("ESKER_SEED") {
        Some(seed) => run(seed),
        None => (0..number("ESKER_SEEDS").unwrap_or(esker_sim::by_tier(5, 20)))
            .map(run)
            .sum(),
    };
    assert!(calls > 50, "{calls} calls: nothing was tested");
}

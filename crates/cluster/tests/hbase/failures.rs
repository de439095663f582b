//! Three region servers, of which one is killed and another hangs while clients write, query and
//! repair, and the regions are split.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use esker_cluster::{Dataset, RepairOptions};
use esker_model::condition::field;

use crate::layer::{checked, definition, ids, json, key, repaired, settle};
use crate::server::Cluster;

const WRITERS: i64 = 3;

/// The last acknowledged record of each key, and those written since with an unknown outcome.
type Known = BTreeMap<i64, (Option<(String, i64)>, Vec<(String, i64)>)>;

pub(crate) fn all(cluster: &Cluster) {
    let store = cluster.store("failures");
    let dataset = store.create_dataset("d", &definition(1)).unwrap();
    let ends = AtomicBool::new(false);
    let (written, failed, asked) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let known: Known = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (ends, written, failed) = (&ends, &written, &failed);
                scope.spawn(move || write(cluster, writer, ends, written, failed))
            })
            .collect();
        scope.spawn(|| query(&dataset, &ends, &asked));
        scope.spawn(|| repair(&dataset, &ends));
        // What the servers go through.
        std::thread::sleep(Duration::from_secs(3));
        let table = cluster.table_of("failures", "d");
        cluster.admin("split", &table);
        cluster.run(&["kill", "2"]);
        std::thread::sleep(Duration::from_secs(12));
        cluster.run(&["pause", "3"]);
        std::thread::sleep(Duration::from_secs(2));
        cluster.run(&["resume", "3"]);
        cluster.admin("split", &format!("{table}_index_0_0"));
        cluster.run(&["start", "2"]);
        std::thread::sleep(Duration::from_secs(3));
        ends.store(true, Ordering::Relaxed);
        writers
            .into_iter()
            .flat_map(|writer| writer.join().unwrap())
            .collect()
    });
    let (written, failed) = (written.into_inner(), failed.into_inner());
    println!(
        "{written} writes acknowledged, {failed} not; {} queries",
        asked.into_inner()
    );
    assert!(written > 100);
    acknowledged_writes_are_found(&dataset, &known);
    settle();
    repaired(&dataset);
    checked(&dataset);
    acknowledged_writes_are_found(&dataset, &known);
}

fn write(
    cluster: &Cluster,
    writer: i64,
    ends: &AtomicBool,
    written: &AtomicU64,
    failed: &AtomicU64,
) -> Known {
    let store = cluster.store("failures");
    let dataset = store.dataset("d").unwrap();
    let mut random = fastrand::Rng::with_seed(writer as u64);
    let mut known = Known::new();
    while !ends.load(Ordering::Relaxed) {
        let mut batch = dataset.batch();
        let mut records = BTreeMap::new();
        for _ in 0..10 {
            let id = random.i64(0..200) * WRITERS + writer;
            let record = (format!("s{}", random.u32(0..20)), random.i64(0..1000));
            records.insert(id, record);
        }
        for (id, record) in &records {
            batch.put_json(json(*id, record).as_bytes()).unwrap();
        }
        match batch.commit() {
            Ok(()) => {
                written.fetch_add(records.len() as u64, Ordering::Relaxed);
                known.extend(
                    records
                        .into_iter()
                        .map(|(id, r)| (id, (Some(r), Vec::new()))),
                );
            }
            Err(error) => {
                eprintln!("not acknowledged: {error}");
                failed.fetch_add(records.len() as u64, Ordering::Relaxed);
                for (id, record) in records {
                    known.entry(id).or_default().1.push(record);
                }
            }
        }
    }
    known
}

fn query(dataset: &Dataset, ends: &AtomicBool, asked: &AtomicU64) {
    let mut longest = Duration::ZERO;
    while !ends.load(Ordering::Relaxed) {
        let begun = Instant::now();
        let value = format!("s{}", asked.load(Ordering::Relaxed) % 20);
        let request = esker_model::query::Request::of(field("s").eq(value.as_str()));
        let all = || -> esker_cluster::Result<()> {
            let mut answer = dataset.find(&request)?;
            while let Some(record) = answer.next_record()? {
                let json = String::from_utf8(record.json().to_vec()).unwrap();
                assert!(
                    json.contains(&format!(r#""s":"{value}""#)),
                    "{value}: {json}"
                );
            }
            Ok(())
        };
        match all() {
            Ok(()) => {
                asked.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => eprintln!("a query failed: {error}"),
        }
        longest = longest.max(begun.elapsed());
    }
    println!("the longest query took {} ms", longest.as_millis());
}

fn repair(dataset: &Dataset, ends: &AtomicBool) {
    while !ends.load(Ordering::Relaxed) {
        let options = RepairOptions {
            full: false,
            rows_per_second: Some(2000),
        };
        let stops = |_: &_| {
            if ends.load(Ordering::Relaxed) {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        };
        let mut stops = stops;
        if let Err(error) = dataset.repair(options, &mut stops) {
            eprintln!("a repair failed: {error}");
        }
        std::thread::sleep(Duration::from_millis(500));
    }
}

/// By key, and by each index: the last acknowledged write, or a later one of unknown outcome.
fn acknowledged_writes_are_found(dataset: &Dataset, known: &Known) {
    let mut by_text: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    let mut by_number: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    let keys: Vec<_> = known.keys().map(|id| key(*id)).collect();
    let records = dataset.get_many(&keys).unwrap();
    for ((id, (last, later)), record) in known.iter().zip(records) {
        let found = record.map(|record| String::from_utf8(record.json().to_vec()).unwrap());
        let allowed = last.iter().chain(later);
        let mut present = allowed.filter(|record| found.as_deref() == Some(&json(*id, record)));
        let Some((s, n)) = present.next_back() else {
            assert!(
                last.is_none() && found.is_none(),
                "key {id}: {found:?} for {last:?}"
            );
            continue;
        };
        by_text.entry(s.clone()).or_default().push(*id);
        by_number.entry(*n).or_default().push(*id);
    }
    for (s, expected) in by_text {
        assert_eq!(ids(dataset, field("s").eq(s.as_str())), expected, "s={s}");
    }
    for (n, expected) in by_number {
        assert_eq!(ids(dataset, field("n").eq(n)), expected, "n={n}");
    }
}

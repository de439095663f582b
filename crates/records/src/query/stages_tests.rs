//! The stages one by one: the records of a scan and its end, the candidates, counts and notes of a
//! fetch, and the decisions of admission.

use std::ops::ControlFlow;
use std::path::Path as FsPath;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use esker_lsm::{Cursor, LookupOptions, Seq, Slice};
use esker_model::definition::{DatasetDef, Index, Maintenance};
use esker_model::query::{Compiled, NoEstimates};
use esker_model::schema::KeyType;
use esker_sim::memory::Memory;

use super::explain::Steps;
use super::scan_matching::ScanMatching;
use super::stages::{
    Admission, AnswerContent, BulkOrder, Decision, Fetch, Needs, TakeCurrent, TakeScanned,
};
use crate::error::Result;
use crate::store::View;
use crate::{Database, Dataset, Expr, Options};

const START: u64 = 1_700_000_000_000;

/// Twelve records, of which every third has `a` 1; those from 9 on expire a second later.
fn dataset(clock: &Arc<AtomicU64>) -> Dataset {
    let clock = clock.clone();
    let options = Options::new()
        .fs(Arc::new(Memory::new()))
        .background(false)
        .clock(Arc::new(move || clock.load(Ordering::SeqCst)));
    let db = Database::create_or_open(FsPath::new("/store"), options).unwrap();
    let def = DatasetDef::new("id", KeyType::Int)
        .index("a", Index::composite().int())
        .expires_at("until")
        .maintenance(Maintenance::Deferred);
    let dataset = db.create_dataset("d", def).unwrap();
    for id in 0..12 {
        let until = if id < 9 {
            "null".to_string()
        } else {
            (START / 1000 + 1).to_string()
        };
        let a = u64::from(id % 3 == 0);
        let record = format!("{{\"id\":{id},\"a\":{a},\"x\":{id},\"until\":{until}}}");
        dataset.put_json(record).unwrap();
    }
    dataset
}

fn compiled(view: &View, condition: &str) -> Compiled {
    let condition: Expr = condition.parse().unwrap();
    Compiled::new(&view.layout.shape, Some(condition), &mut NoEstimates).unwrap()
}

/// The writes that a scan passed on: the first `most` after `after`.
struct Taken {
    after: Seq,
    most: usize,
    seqs: Vec<Seq>,
}

impl TakeScanned for Taken {
    fn wants(&mut self, seq: Seq) -> bool {
        seq > self.after
    }

    fn take(
        &mut self,
        _: &[u8],
        seq: Seq,
        _: &mut dyn FnMut() -> Slice,
    ) -> Result<ControlFlow<()>> {
        self.seqs.push(seq);
        if self.seqs.len() < self.most {
            Ok(ControlFlow::Continue(()))
        } else {
            Ok(ControlFlow::Break(()))
        }
    }
}

#[test]
fn a_scan_offers_wanted_live_records_that_meet_the_condition_until_it_breaks() {
    let clock = Arc::new(AtomicU64::new(START));
    let dataset = dataset(&clock);
    let first = dataset.get(dataset.parse_key("0").unwrap()).unwrap();
    let first = first.unwrap().seq();
    for (time, after, most, wanted, scanned) in [
        (START, 0, 99, vec![0, 3, 6, 9], 12),
        (START, first + 3, 99, vec![6, 9], 12),
        (START, 0, 2, vec![0, 3], 4),
        // Time does not go back.
        (START + 1000, 0, 99, vec![0, 3, 6], 12),
    ] {
        clock.store(time, Ordering::SeqCst);
        let view = dataset.handle.now();
        let mut taken = Taken {
            after,
            most,
            seqs: Vec::new(),
        };
        let cost = view.snapshot.cost();
        let scan = ScanMatching {
            limit: None,
            view: &view,
            compiled: &compiled(&view, "a = 1"),
            order: BulkOrder::Key,
            content: AnswerContent::Records,
            cost: &cost,
            body_cost: &cost,
        };
        assert_eq!(scan.run(&mut taken).unwrap(), scanned);
        let seqs: Vec<Seq> = wanted.iter().map(|id| first + id).collect();
        assert_eq!(taken.seqs, seqs);
    }
}

#[test]
fn admission_names_the_reason_of_a_rejection() {
    let clock = Arc::new(AtomicU64::new(START + 1000));
    let dataset = dataset(&clock);
    let view = dataset.handle.now();
    let compiled = compiled(&view, "a = 1 and x < 5");
    let stored = |id: u64| {
        let key = dataset.parse_key(&id.to_string()).unwrap();
        let cost = view.snapshot.cost();
        let found = view.snapshot.get(view.layout.data, key.as_bytes(), &cost);
        found.unwrap().unwrap().value
    };
    let admission = |driver, all_answered| Admission {
        driver,
        all_answered,
        ..Admission::of_all(&view, &compiled)
    };
    for (id, driver, answered, decision) in [
        (3, None, false, Decision::Admitted),
        (1, None, false, Decision::Discarded),
        (6, None, false, Decision::Discarded),
        // The index has answered `a`, or all of it.
        (1, Some(0), false, Decision::Admitted),
        (6, Some(0), false, Decision::Discarded),
        (6, Some(0), true, Decision::Admitted),
        // An expired record is never an answer.
        (9, Some(0), true, Decision::Expired),
    ] {
        let admission = admission(driver, answered);
        assert_eq!(admission.decide(&stored(id)).unwrap(), decision, "{id}");
        let mut steps = Steps::default();
        let admits = admission.admits(&stored(id), &mut steps).unwrap();
        assert_eq!(admits, decision == Decision::Admitted);
        let counted = (steps.obsolete, steps.discarded);
        let expected = (
            u64::from(decision == Decision::Expired),
            u64::from(decision == Decision::Discarded),
        );
        assert_eq!(counted, expected, "{id}");
    }
}

/// The positions of the current candidates, by batch.
#[derive(Default)]
struct Batches {
    now: Vec<usize>,
    ended: Vec<Vec<usize>>,
    most: usize,
}

impl TakeCurrent for Batches {
    fn take(&mut self, at: usize, _record: Slice) -> Result<()> {
        self.now.push(at);
        Ok(())
    }

    fn end_batch(&mut self) -> Result<ControlFlow<()>> {
        self.ended.push(std::mem::take(&mut self.now));
        if self.ended.len() < self.most {
            Ok(ControlFlow::Continue(()))
        } else {
            Ok(ControlFlow::Break(()))
        }
    }
}

#[test]
fn a_fetch_gives_current_candidates_counts_the_others_and_notes_them() {
    let clock = Arc::new(AtomicU64::new(START));
    let dataset = dataset(&clock);
    let old = dataset.handle.now();
    // Older candidates: 2 was replaced and 4 deleted since.
    let mut candidates: Vec<(Vec<u8>, Seq)> = Vec::new();
    let mut cursor = old.snapshot.cursor(old.layout.data, 0);
    cursor.seek_first().unwrap();
    while cursor.valid() {
        candidates.push((cursor.key().to_vec(), cursor.seq()));
        cursor.next().unwrap();
    }
    dataset.put_json(r#"{"id":2,"a":0}"#).unwrap();
    dataset.delete(dataset.parse_key("4").unwrap()).unwrap();
    let view = dataset.handle.now();
    let keys: Vec<&[u8]> = candidates.iter().map(|(key, _)| key.as_slice()).collect();
    let seqs: Vec<Seq> = candidates.iter().map(|(_, seq)| *seq).collect();
    let components = view.snapshot.components(view.layout.data);
    let cost = view.snapshot.cost();
    let run = |batch_bytes, most| {
        let fetch = Fetch {
            view: &view,
            components: &components,
            all_current: false,
            options: LookupOptions {
                batch_bytes,
                ..LookupOptions::default()
            },
            cost: &cost,
            needs: Needs::None,
            body_cost: &cost,
        };
        let mut batches = Batches {
            most,
            ..Batches::default()
        };
        let fetched = fetch.run(&keys, &seqs, &mut batches).unwrap();
        let mut steps = Steps::default();
        fetched.count_in(&mut steps);
        (batches.ended, steps)
    };
    let current: Vec<usize> = (0..12).filter(|at| ![2, 4].contains(at)).collect();
    for batch_bytes in [1 << 20, 1] {
        let (batches, steps) = run(batch_bytes, usize::MAX);
        assert_eq!(batches.concat(), current);
        assert_eq!(batches.len() > 1, batch_bytes == 1);
        assert_eq!((steps.fetched, steps.obsolete, steps.wasted), (12, 2, 2));
    }
    // Stopped after the first three, one at a time.
    let (batches, steps) = run(1, 3);
    assert_eq!(batches, [vec![0], vec![1], vec![]]);
    assert_eq!((steps.fetched, steps.obsolete, steps.wasted), (3, 1, 1));
    // Obsolete candidates are noted, so that the next query drops them.
    let notes = view.dataset.state.findings.notes();
    assert!(notes.unwrap().is_obsolete(candidates[2].1, view.seq()));
}

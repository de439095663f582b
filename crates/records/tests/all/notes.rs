//! Notes beside the records of a dataset are written in the commit of its records, or not at all.

use std::path::Path as FsPath;
use std::sync::Arc;

use crate::common::{DIR, small};
use esker::schema::Maintenance;
use esker::{Database, DatasetDef, Durability, ErrorKind, Index, IndexKind, Key, KeyType, Type};
use esker_sim::memory::{Memory, PowerCut};

fn def() -> DatasetDef {
    DatasetDef::new("id", KeyType::Int)
        .index("v", Index::new(IndexKind::Composite).of_type(Type::Int))
}

fn record(id: u64) -> Vec<u8> {
    format!("{{\"id\":{id},\"v\":{}}}", id % 5).into_bytes()
}

#[test]
fn a_note_is_as_new_as_the_records_whatever_a_power_cut_takes() {
    let modes = [
        PowerCut::Lost,
        PowerCut::Kept,
        PowerCut::Torn,
        PowerCut::Reordered,
    ];
    for (seed, mode) in (0..).zip(modes.into_iter().cycle().take(40)) {
        let fs = Arc::new(Memory::new());
        let db = Database::create_or_open(FsPath::new(DIR), small(fs.clone())).unwrap();
        let dataset = db.create_dataset::<Key>("d", def()).unwrap();
        for at in 0..53 {
            let mut batch = dataset.batch();
            batch.durability(match at % 7 {
                0 => Durability::Sync,
                _ => Durability::Os,
            });
            batch.put_json(record(at)).unwrap();
            batch.note("at", Some(at.to_string().as_bytes())).unwrap();
            batch.commit().unwrap();
            if at == 30 {
                db.flush().unwrap();
            }
        }
        let left = Arc::new(fs.power_cut(seed, mode));
        drop((dataset, db));
        let db = Database::open(FsPath::new(DIR), small(left)).unwrap();
        let dataset = db.dataset::<Key>("d").unwrap();
        let noted = dataset.notes().unwrap();
        let noted: u64 = String::from_utf8(noted["at"].clone())
            .unwrap()
            .parse()
            .unwrap();
        assert_eq!(dataset.query().count().unwrap(), noted + 1);
        assert!(noted >= 49, "{noted} was acknowledged after a sync");
        assert!(db.check().unwrap().errors.is_empty());
    }
}

#[test]
fn notes_live_beside_everything_that_is_done_to_a_dataset() {
    let fs = Arc::new(Memory::new());
    let db = Database::create_or_open(FsPath::new(DIR), small(fs.clone())).unwrap();
    let dataset = db.create_dataset::<Key>("d", def()).unwrap();
    assert!(dataset.notes().unwrap().is_empty());
    let mut batch = dataset.batch();
    batch.put_json(record(1)).unwrap();
    batch.note("one", Some(b"1")).unwrap();
    batch.note("two", Some(b"")).unwrap();
    batch.note("one", Some(b"2")).unwrap();
    batch.commit().unwrap();
    // A failed batch writes no note.
    batch.insert_json(record(1)).unwrap();
    batch.note("one", Some(b"3")).unwrap();
    assert_eq!(batch.commit().unwrap_err().kind(), ErrorKind::Exists);
    batch.clear();
    let noted = |dataset: &esker::Dataset| -> Vec<(String, Vec<u8>)> {
        dataset.notes().unwrap().into_iter().collect()
    };
    let want = [
        ("one".to_string(), b"2".to_vec()),
        ("two".to_string(), Vec::new()),
    ];
    assert_eq!(noted(&dataset), want);
    let go = &mut |_| std::ops::ControlFlow::Continue(());
    dataset
        .switch_index("v", IndexKind::Lazy)
        .on_progress(go)
        .run()
        .unwrap();
    let go = &mut |_| std::ops::ControlFlow::Continue(());
    dataset
        .set_maintenance(Maintenance::MutableBitmap)
        .on_progress(go)
        .run()
        .unwrap();
    db.compact(None).unwrap();
    assert_eq!(noted(&dataset), want);
    // A batch may consist of notes only.
    batch.note("two", None).unwrap();
    batch.commit().unwrap();
    assert_eq!(noted(&dataset), want[..1]);
    assert_eq!(
        batch.note("", None).unwrap_err().kind(),
        ErrorKind::BadInput
    );
    drop(batch);
    drop(dataset);
    db.close().unwrap();
    let db = Database::open(FsPath::new(DIR), small(fs)).unwrap();
    assert_eq!(noted(&db.dataset::<Key>("d").unwrap()), want[..1]);
    assert!(db.check().unwrap().errors.is_empty());
    db.drop_dataset("d").unwrap();
    let dataset = db.create_dataset::<Key>("d", def()).unwrap();
    assert!(dataset.notes().unwrap().is_empty(), "dropped with it");
}

/// Batches under eager maintenance, and with eager lists, are built again when another one
/// overtakes them.
#[test]
fn batches_that_are_made_again_keep_their_notes() {
    let fs = Arc::new(Memory::new());
    let db = Database::create_or_open(FsPath::new(DIR), small(fs)).unwrap();
    let def = DatasetDef::new("id", KeyType::Int)
        .index("v", Index::new(IndexKind::Eager).of_type(Type::Int))
        .maintenance(Maintenance::Eager);
    let dataset = db.create_dataset::<Key>("d", def).unwrap();
    std::thread::scope(|threads| {
        for name in ["a", "b", "c", "d"] {
            let dataset = &dataset;
            threads.spawn(move || {
                for at in 0..400_u64 {
                    let mut batch = dataset.batch();
                    batch.put_json(record(at % 3)).unwrap();
                    let noted = at.to_string();
                    let deleted = at % 10 == 9;
                    batch
                        .note(name, Some(noted.as_bytes()).filter(|_| !deleted))
                        .unwrap();
                    batch.commit().unwrap();
                    let found = dataset.notes().unwrap().remove(name);
                    let expected = Some(noted.into_bytes()).filter(|_| !deleted);
                    assert_eq!(found, expected, "{name}, batch {at}");
                }
            });
        }
    });
    assert!(db.check().unwrap().errors.is_empty());
}

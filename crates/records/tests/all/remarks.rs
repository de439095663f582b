//! Remarks about accepted records are made once for each field, whatever its place in the dataset.

use std::path::Path;
use std::sync::Arc;

use crate::common::{DIR, small};
use esker::{Database, Dataset, DatasetDef, Index, Type};
use esker_sim::memory::Memory;

const NOON: &str = "2024-05-01 12:00:00";

fn dataset(def: DatasetDef) -> Dataset<u64> {
    let options = small(Arc::new(Memory::new()));
    let db = Database::create_or_open(Path::new(DIR), options).unwrap();
    db.create_dataset::<u64>("d", def).unwrap()
}

/// The remark about times of a field.
fn no_offset(path: &str) -> String {
    format!("`{path}` has times without an offset: they are read as UTC")
}

#[test]
fn a_remark_about_the_first_field_does_not_stand_for_the_sixty_fifth() {
    let mut def = DatasetDef::key("id").expires_at("until");
    for nth in 0..64 {
        def = def.index(&format!("t{nth}"), Index::none().of_type(Type::Time));
    }
    let dataset = dataset(def);
    for (n, path) in ["t0", "t63", "until", "t1"].into_iter().enumerate() {
        for round in 0..2 {
            let id = 2 * n + round;
            let json = format!("{{\"id\":{id},\"{path}\":\"{NOON}\"}}");
            dataset.put_json(json).unwrap();
        }
        assert_eq!(dataset.remarks(), [no_offset(path)]);
    }
}

#[test]
fn a_field_that_takes_the_place_of_another_one_has_its_own_remarks() {
    let dataset = dataset(DatasetDef::key("id").expires_at("until"));
    let put = |id: u64, path: &str| {
        let json = format!("{{\"id\":{id},\"{path}\":\"{NOON}\"}}");
        dataset.put_json(json).unwrap();
        dataset.remarks()
    };
    assert_eq!(put(1, "until"), [no_offset("until")]);
    let add = dataset.add_index("at", Index::none().of_type(Type::Time));
    add.run().unwrap();
    assert_eq!(put(2, "at"), [no_offset("at")]);
    assert!(put(3, "until").is_empty() && put(4, "at").is_empty());
}

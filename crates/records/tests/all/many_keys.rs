//! Reads of several keys at once, and of the first match.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use esker::{Database, DatasetDef, Index, KeyType, Options, field};

#[test]
fn several_keys_are_read_at_once_and_the_first_match_alone() {
    for clustered in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let db = Database::create_or_open(dir.path(), Options::default()).unwrap();
        let mut def = DatasetDef::new("id", KeyType::Int).index("n", Index::recent().int());
        if clustered {
            def = def.cluster("lon,lat");
        }
        let dataset = db.create_dataset::<u64>("d", def).unwrap();
        for id in 0..200_u64 {
            let (n, lon) = (id % 5, (id % 90) as f64);
            let record = serde_json::json!({"id": id, "n": n, "lon": lon, "lat": 1.5});
            dataset.put(&record).unwrap();
        }
        db.flush().unwrap();
        for id in (0..200).step_by(7) {
            dataset.delete(id).unwrap();
        }
        let keys = [150_u64, 3, 7, 3, 999, 0, 14, 151, 1];
        let found = dataset.get_many(keys).unwrap();
        let each: Vec<_> = keys.iter().map(|key| dataset.get(key).unwrap()).collect();
        assert_eq!(found, each);
        assert_eq!(found.iter().flatten().count(), 5);
        assert_eq!(dataset.snapshot().get_many(keys).unwrap(), each);
        assert!(dataset.get_many([0_u64; 0]).unwrap().is_empty());

        let newest = dataset.find(field("n").eq(4)).first().unwrap();
        assert_eq!(newest.map(|record| *record.key()), Some(199));
        let oldest = dataset.find(field("n").eq(4)).oldest().first().unwrap();
        assert_eq!(oldest.map(|record| *record.key()), Some(4));
        assert!(dataset.find(field("n").eq(4)).exists().unwrap());
        assert!(!dataset.find(field("n").eq(5)).exists().unwrap());
        assert!(dataset.find(field("n").eq(5)).first().unwrap().is_none());
        let none = || dataset.find(field("n").eq(4)).limit(0);
        assert!(none().first().unwrap().is_none());
        assert!(!none().exists().unwrap());
    }
}

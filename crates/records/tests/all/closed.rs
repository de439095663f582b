//! After `close` the folder can be opened again while old handles exist, and each of them returns
//! `Closed`.

use std::sync::Arc;

use esker::{Database, Dataset, DatasetDef, ErrorKind, Index, KeyType, Options, field};
use esker_sim::memory::Memory;

fn options(fs: &Memory) -> Options {
    Options::new().fs(Arc::new(fs.clone()))
}

fn filled(fs: &Memory) -> (Database, Dataset<u64>) {
    let db = Database::create_or_open("/store", options(fs)).unwrap();
    let mut def = DatasetDef::new("id", KeyType::Int);
    def = def.index("n", Index::lazy().int());
    def = def.index("m", Index::embedded().int());
    let data = db.create_dataset::<u64>("d", def).unwrap();
    for id in 0..100 {
        data.put_json(format!(r#"{{"id":{id},"n":{},"m":{id}}}"#, id % 7))
            .unwrap();
    }
    db.flush().unwrap();
    (db, data)
}

#[test]
fn handles_that_live_longer_answer_closed_and_the_folder_is_free() {
    let fs = Memory::new();
    let (db, data) = filled(&fs);
    let other = db.clone();
    let snapshot = data.snapshot();
    let mut batch = data.batch();
    batch.put_json(r#"{"id":1000}"#).unwrap();
    db.close().unwrap();

    // While all these handles exist.
    let again = Database::open("/store", options(&fs)).unwrap();
    let fresh = again.dataset::<u64>("d").unwrap();
    fresh.put_json(r#"{"id":100,"n":1,"m":100}"#).unwrap();

    let closed = |what: &str, kind: ErrorKind| assert_eq!(kind, ErrorKind::Closed, "{what}");
    closed("get", data.get(5).unwrap_err().kind());
    closed("put", data.put_json(r#"{"id":5}"#).unwrap_err().kind());
    closed("delete", data.delete(5).unwrap_err().kind());
    closed(
        "update",
        data.update(5, |_| "{}".to_string()).unwrap_err().kind(),
    );
    closed("batch", batch.commit().unwrap_err().kind());
    closed(
        "query",
        data.query()
            .filter(field("n").eq(3))
            .run()
            .err()
            .unwrap()
            .kind(),
    );
    let nothing = data.query().filter(field("m").eq(-3)).count();
    closed("count of nothing", nothing.unwrap_err().kind());
    closed("count", data.query().count().unwrap_err().kind());
    closed("scan", data.scan(..).next().unwrap().unwrap_err().kind());
    closed("snapshot get", snapshot.get(5).unwrap_err().kind());
    closed(
        "snapshot query",
        snapshot
            .query()
            .filter(field("n").eq(3))
            .run()
            .err()
            .unwrap()
            .kind(),
    );
    closed(
        "snapshot scan",
        snapshot.scan(..).next().unwrap().unwrap_err().kind(),
    );
    closed("flush", other.flush().unwrap_err().kind());
    closed("compact", other.compact(None).unwrap_err().kind());
    closed("expire", data.expire_now().unwrap_err().kind());
    closed("drop", other.drop_dataset("d").unwrap_err().kind());
    let made = other.create_dataset::<u64>("e", DatasetDef::new("id", KeyType::Int));
    closed("create", made.err().unwrap().kind());
    closed("sync", other.sync().unwrap_err().kind());
    let added = data.add_index("o", Index::lazy().int());
    closed("an index", added.run().unwrap_err().kind());

    // The end of the first handle does not touch the second one's folder.
    drop((other, snapshot, batch, data));
    fresh.put_json(r#"{"id":101,"n":2,"m":101}"#).unwrap();
    again.compact(None).unwrap();
    assert_eq!(fresh.query().count().unwrap(), 102);
    assert_eq!(again.check().unwrap().errors, Vec::<String>::new());
    again.close().unwrap();
}

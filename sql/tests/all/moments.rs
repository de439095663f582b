//! Each statement reads one moment of the store.

use esker::Index;

use crate::store::Store;

#[test]
fn a_statement_reads_the_moment_at_which_it_was_planned() {
    let store = Store::new();
    let (a, b) = (store.dataset("a", |def| def), store.dataset("b", |def| def));
    a.put_json(r#"{"id": 1}"#).unwrap();
    b.put_json(r#"{"id": 1}"#).unwrap();
    let sql = "select (select count(*) from a) as a, (select count(*) from b) as b";
    let planned = store.run(store.session.sql(sql)).unwrap();
    let mut batch = store.db.batch();
    batch.put_json(&a, r#"{"id": 2}"#).unwrap();
    batch.put_json(&b, r#"{"id": 2}"#).unwrap();
    batch.commit().unwrap();
    let batches = store.run(planned.collect()).unwrap();
    assert_eq!(crate::store::texts(&batches[0]).unwrap(), [["1", "1"]]);
    assert_eq!(store.ask(sql).unwrap().rows, [["2", "2"]]);
}

#[test]
fn a_prepared_statement_reads_one_moment() {
    let store = Store::new();
    let (a, b) = (store.dataset("a", |def| def), store.dataset("b", |def| def));
    a.put_json(r#"{"id": 0}"#).unwrap();
    b.put_json(r#"{"id": 0}"#).unwrap();
    let sql = "select (select count(*) from a) as a, (select count(*) from b where id >= $1) as b";
    store.ask(&format!("prepare p(int) as {sql}")).unwrap();
    let planned = store.run(store.session.sql("execute p(0)")).unwrap();
    let mut batch = store.db.batch();
    batch.put_json(&a, r#"{"id": 1}"#).unwrap();
    batch.put_json(&b, r#"{"id": 1}"#).unwrap();
    batch.commit().unwrap();
    let batches = store.run(planned.collect()).unwrap();
    assert_eq!(crate::store::texts(&batches[0]).unwrap(), [["1", "1"]]);
    assert_eq!(store.ask("execute p(0)").unwrap().rows, [["2", "2"]]);
}

#[test]
fn an_index_that_is_declared_later_does_not_change_what_a_view_means() {
    let store = Store::new();
    let t = store.dataset("t", |def| def);
    for (id, at) in ["2026-11-21T05:00:00Z", "2026-11-21T07:00:00+03:00"]
        .iter()
        .enumerate()
    {
        t.put_json(format!(r#"{{"id": {id}, "at": "{at}"}}"#))
            .unwrap();
    }
    let sql = "select id from t where at > '2026-11-21T05:00:00Z'";
    store.ask(&format!("create view v as {sql}")).unwrap();
    store.ask(&format!("prepare p as {sql}")).unwrap();
    assert_eq!(store.first("select id from v"), ["1"]);
    assert_eq!(store.first("execute p"), ["1"]);
    // From now on the dataset compares times there. Nothing is written for it.
    let seq = store.db.snapshot().seq();
    t.add_index("at", Index::embedded().time()).run().unwrap();
    assert_eq!(store.db.snapshot().seq(), seq);
    for statement in ["select id from v", "execute p"] {
        let answer = store.ask(statement).map(|answer| answer.rows);
        let error = answer.unwrap_err().to_string();
        assert!(error.contains("the definition of `t`"), "{error}");
    }
    store
        .ask(&format!("create or replace view v as {sql}"))
        .unwrap();
    assert_eq!(store.first("select id from v"), ["1"]);
}

#[test]
fn a_view_reads_the_moment_of_the_statement() {
    let store = Store::new();
    let t = store.dataset("t", |def| def);
    t.put_json(r#"{"id": 1, "n": 5, "o": {"x": 1}}"#).unwrap();
    store
        .ask("create view v as select id, n, o from t where n > 3")
        .unwrap();
    assert_eq!(store.first("select count(*) from v"), ["1"]);
    // Further fields do no harm.
    t.put_json(r#"{"id": 2, "n": 6, "more": true, "o": {"x": 2, "y": 3}}"#)
        .unwrap();
    assert_eq!(store.first("select n from v order by n"), ["5", "6"]);
    assert_eq!(store.first("select o.x from v order by 1"), ["1", "2"]);
    // Values of another type are not read as what they are not.
    t.put_json(r#"{"id": 3, "n": "seven"}"#).unwrap();
    let error = store.ask("select n from v").err().unwrap().to_string();
    assert!(
        error.contains("`n` of `t` has values of other types"),
        "{error}"
    );
    store
        .ask("create or replace view v as select id, n from t")
        .unwrap();
    assert_eq!(
        store.first("select n from v order by id"),
        ["5", "6", "\"seven\""]
    );
}

#[test]
fn tables_and_settings_of_a_session_stay() {
    let store = Store::new();
    let t = store.dataset("t", |def| def);
    for id in 0..10 {
        t.put_json(format!(r#"{{"id": {id}}}"#)).unwrap();
    }
    store
        .ask("create table copy as select id from t where id > 3")
        .unwrap();
    t.put_json(r#"{"id": 11}"#).unwrap();
    assert_eq!(store.first("select count(*) from copy"), ["6"]);
    store.ask("create schema s").unwrap();
    store.ask("create table s.u as select 1 as one").unwrap();
    assert_eq!(store.first("select one from s.u"), ["1"]);
    store.ask("drop table copy").unwrap();
    assert!(store.ask("select * from copy").is_err());
    store
        .ask("set datafusion.execution.batch_size = 3")
        .unwrap();
    let answer = store.ask("select id from t").unwrap();
    assert!(answer.batches.iter().all(|batch| batch.num_rows() <= 3));
    store
        .ask("prepare p(int) as select count(*) from t where id > $1")
        .unwrap();
    assert_eq!(store.first("execute p(5)"), ["5"]);
    t.put_json(r#"{"id": 12}"#).unwrap();
    assert_eq!(store.first("execute p(5)"), ["6"]);
    for refused in [
        "drop table t",
        "create table t as select 1",
        "insert into t (id) values (1)",
    ] {
        let error = store.ask(refused).err().unwrap().to_string();
        assert!(
            !error.contains("Internal") && !error.contains("bug"),
            "{error}"
        );
    }
    assert_eq!(store.first("select count(*) from t"), ["12"]);
}

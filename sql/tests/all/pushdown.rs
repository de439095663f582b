//! What a dataset answers itself, by the number of records that are read.

use datafusion::arrow::array::RecordBatch;
use esker::schema::Maintenance;
use esker::{Dataset, Index};

use crate::store::Store;

const RECORDS: usize = 2000;

/// A dataset of which the indexes can answer conditions on `n` and `name`.
fn filled() -> (Store, Dataset) {
    let store = Store::new();
    let dataset = store.dataset("t", |def| {
        def.index("n", Index::composite().int())
            .index("o.name", Index::lazy().string())
            .index("tags", Index::lazy().string())
            .maintenance(Maintenance::MutableBitmap)
    });
    let mut batch = dataset.batch();
    for id in 0..RECORDS {
        let (n, name, tag) = (id % 100, id % 50, id % 40);
        batch
            .put_json(format!(
                r#"{{"id":{id},"n":{n},"o":{{"name":"u{name}","x":{id}}},"tags":["t{tag}","all"],"v":{}}}"#,
                id % 7
            ))
            .unwrap();
    }
    batch.commit().unwrap();
    store.db.flush().unwrap();
    (store, dataset)
}

#[test]
fn conditions_that_an_index_answers_read_the_records_that_meet_them() {
    let (store, _) = filled();
    for (condition, found) in [
        ("n = 5", 20),
        ("5 = n", 20),
        ("n between 3 and 4", 40),
        ("n > 97.5", 40),
        ("n in (1, 2, 3, 4, 5)", 100),
        ("o.name = 'u3'", 40),
        ("o.name like 'u1_' and n = 12", 20),
        ("array_has(tags, 't9')", 50),
        ("n = 5 or o.name = 'u7'", 60),
    ] {
        let sql = format!("select id, v from t where {condition}");
        let answer = store.ask(&sql).unwrap();
        assert_eq!(answer.rows.len(), found, "{sql}");
        assert!(
            answer.records_read <= found,
            "{sql}: {} of {found}",
            answer.records_read
        );
        assert!(
            !answer.plan.contains("FilterExec") || sql.contains('_'),
            "{}",
            answer.plan
        );
    }
}

#[test]
fn what_sql_means_in_another_way_is_left_to_datafusion() {
    let (store, _) = filled();
    for condition in [
        "n + 1 = 5",
        "upper(o.name) = 'U3'",
        "tags = ['t9', 'all']",
        "n = v",
        "n is distinct from 5",
    ] {
        let sql = format!("select id from t where {condition}");
        let answer = store.ask(&sql).unwrap();
        assert!(answer.plan.contains("FilterExec"), "{}", answer.plan);
        assert!(
            answer.records_read >= RECORDS,
            "{sql}: {}",
            answer.records_read
        );
    }
}

#[test]
fn counts_read_no_records_where_an_index_shows_them() {
    let (store, dataset) = filled();
    let answer = store.ask("select count(*) from t where n < 50").unwrap();
    assert_eq!(answer.rows, [["1000"]]);
    assert_eq!(answer.records_read, 0, "{}", answer.plan);
    assert!(answer.plan.contains("counted"), "{}", answer.plan);
    dataset.put_json(r#"{"id": 1, "n": 77}"#).unwrap();
    let answer = store.ask("select count(*) from t where n < 50").unwrap();
    assert_eq!(
        (answer.rows, answer.records_read),
        (vec![vec!["999".to_string()]], 0)
    );
    let all = store.ask("select count(*), count(1) from t").unwrap();
    assert_eq!(all.rows, [["2000", "2000"]]);
}

#[test]
fn the_first_of_an_order_are_read_from_its_index() {
    let (store, _) = filled();
    let sql = "select id, n from t order by n desc, id limit 5";
    let answer = store.ask(sql).unwrap();
    let ids: Vec<&str> = answer.rows.iter().map(|row| row[0].as_str()).collect();
    assert_eq!(ids, ["99", "199", "299", "399", "499"]);
    assert!(
        answer.records_read <= 25,
        "{}: {}",
        answer.plan,
        answer.records_read
    );
    assert!(!answer.plan.contains("SortExec"), "{}", answer.plan);
    let nested = store
        .ask("select o.name as who, id from t where v = 3 order by o.name, id desc limit 3")
        .unwrap();
    assert!(!nested.plan.contains("SortExec"), "{}", nested.plan);
    assert!(
        nested.plan.contains("order=[o.name:asc,id:desc]"),
        "{}",
        nested.plan
    );
    assert_eq!(nested.rows[0], ["u0", "1900"]);
    // The other way round is not an order of a dataset.
    let first = store
        .ask("select id from t order by n desc nulls first, id limit 5")
        .unwrap();
    assert!(first.plan.contains("SortExec"), "{}", first.plan);
    // The first of a limit are sorted, and not the first of the order taken.
    let limited = store
        .ask("select n from (select n from t limit 3) order by n limit 2")
        .unwrap();
    assert_eq!(limited.rows.len(), 2);
    assert!(limited.plan.contains("SortExec"), "{}", limited.plan);
}

#[test]
fn a_limit_ends_the_reading() {
    let (store, _) = filled();
    let answer = store.ask("select id from t where v = 3 limit 4").unwrap();
    assert_eq!(answer.rows.len(), 4);
    assert!(answer.records_read < RECORDS / 2, "{}", answer.records_read);
    assert!(store.first("select id from t limit 0").is_empty());
}

#[test]
fn only_the_fields_that_a_statement_names_are_read() {
    let (store, _) = filled();
    let answer = store
        .ask("select o.name, count(*) from t group by o.name")
        .unwrap();
    assert_eq!(answer.rows.len(), 50);
    assert!(answer.plan.contains("columns=[o.name]"), "{}", answer.plan);
}

#[test]
fn times_in_text_are_found_by_their_index_and_compared_by_sql() {
    let store = Store::new();
    let dataset = store.dataset("t", |def| def.index("at", Index::composite().time()));
    let mut batch = dataset.batch();
    for id in 0..1000 {
        let (hour, minute) = (id / 60 % 24, id % 60);
        let at = match id % 3 {
            0 => format!("2026-11-21T{hour:02}:{minute:02}:00Z"),
            1 => format!("2026-11-21 {hour:02}:{minute:02}:00.250"),
            _ => format!("2026-11-21T{hour:02}:{minute:02}:00+00:00"),
        };
        batch
            .put_json(format!(r#"{{"id":{id},"at":"{at}"}}"#))
            .unwrap();
    }
    batch.commit().unwrap();
    let answer = store
        .ask("select id from t where at::timestamp >= '2026-11-21T05:00:00' and at::timestamp < '2026-11-21T05:10:00.1'")
        .unwrap();
    assert_eq!(answer.rows.len(), 10 + usize::from(610 % 3 != 1));
    assert!(
        answer.records_read <= 14,
        "{}: {}",
        answer.records_read,
        answer.plan
    );
    let same =
        store.first("select count(*) from t where to_timestamp(at) = '2026-11-21T05:01:00.25'");
    assert_eq!(same, ["1"]);
    // Text is compared as text, whatever the dataset declares.
    let text = store
        .ask("select id from t where at < '2026-11-21T'")
        .unwrap();
    assert!(
        text.rows
            .iter()
            .all(|row| row[0].parse::<usize>().unwrap() % 3 == 1)
    );
    assert_eq!(text.rows.len(), 333);
}

#[test]
fn times_without_an_offset_are_read_in_the_zone_of_the_session() {
    let store = Store::new();
    let dataset = store.dataset("t", |def| def.index("at", Index::composite().time()));
    let mut batch = dataset.batch();
    for id in 0..24 {
        let zone = ["", "Z", "+02:00"][id % 3];
        let record = format!(r#"{{"id":{id},"at":"2026-11-21T{id:02}:00:00{zone}"}}"#);
        batch.put_json(record).unwrap();
    }
    batch.commit().unwrap();
    store.ask("create table copy as select * from t").unwrap();
    store.ask("set timezone = '+02:00'").unwrap();
    for field in [
        "to_timestamp(at)",
        "at::timestamptz",
        "at::timestamp",
        "cast(at as timestamp)::timestamptz",
    ] {
        for literal in [
            "'2026-11-21T12:00:00'",
            "'2026-11-21T12:00:00Z'",
            "'2026-11-21T12:00:00'::timestamp",
            "'2026-11-21T12:00:00'::timestamptz",
        ] {
            for op in ["=", "<", ">="] {
                let sql = format!("select id from t where {field} {op} {literal} order by id");
                let ask = |sql: &str| match store.ask(sql) {
                    Ok(answer) => answer.rows,
                    Err(error) => vec![vec![error.to_string()]],
                };
                let copy = ask(&sql.replace("from t", "from copy"));
                assert_eq!(ask(&sql), copy, "{sql}");
            }
        }
    }
}

#[test]
fn batches_of_many_columns_are_small() {
    let store = Store::new();
    let dataset = store.dataset("t", |def| def);
    let fields = |from: usize, to: usize| {
        let fields: Vec<String> = (from..to).map(|at| format!(r#""f{at}":{at}"#)).collect();
        fields.join(",")
    };
    let wide = format!(
        r#"{{"id":0,{},"l":[{{{}}}]}}"#,
        fields(0, 400),
        fields(400, 800)
    );
    dataset.put_json(wide).unwrap();
    let mut batch = dataset.batch();
    for id in 1..1000 {
        batch.put_json(format!(r#"{{"id":{id}}}"#)).unwrap();
    }
    for id in 1000..1040 {
        let list = vec!["{}"; 100].join(",");
        batch
            .put_json(format!(r#"{{"id":{id},"l":[{list}]}}"#))
            .unwrap();
    }
    batch.commit().unwrap();
    let answer = store.ask("select * from t").unwrap();
    assert_eq!(answer.rows.len(), 1040);
    let sizes = answer
        .batches
        .iter()
        .map(RecordBatch::get_array_memory_size);
    let largest = sizes.max();
    assert!(largest < Some(4 << 20), "{largest:?}");
    let lists = store.ask("select l from t").unwrap();
    let sizes = lists.batches.iter().map(RecordBatch::get_array_memory_size);
    let largest = sizes.max();
    assert!(largest < Some(4 << 20), "{largest:?}");
}

#[test]
fn batches_of_large_records_are_small() {
    let store = Store::new();
    let dataset = store.dataset("t", |def| def);
    for id in 0..60 {
        let text = "x".repeat(100 << 10);
        dataset
            .put_json(format!(r#"{{"id":{id},"text":"{text}"}}"#))
            .unwrap();
    }
    let answer = store.ask("select * from t").unwrap();
    assert_eq!(answer.rows.len(), 60);
    let largest = answer.batches.iter().map(|batch| batch.num_rows()).max();
    assert!(largest < Some(12), "{largest:?}");
}

//! The command.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::store::Store;

fn run(dir: &Path, args: &[&str], input: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_esker-sql"));
    command.args(args).current_dir(dir);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(input.as_bytes())
        .unwrap();
    child.wait_with_output().unwrap()
}

fn printed(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn refused(output: &Output, code: i32) -> String {
    assert_eq!(output.status.code(), Some(code));
    assert!(output.stdout.is_empty());
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// A store beside whose writer the command reads.
fn filled() -> Store {
    let store = Store::new();
    let t = store.dataset("t", |def| def);
    for (id, more) in [
        r#""s": "a,b", "o": {"x": 1, "y": null}, "l": [1, 2]"#,
        r#""s": "", "f": 1.5"#,
        r#""s": null, "big": 18446744073709551615"#,
    ]
    .iter()
    .enumerate()
    {
        t.put_json(format!(r#"{{"id": {id}, {more}}}"#)).unwrap();
    }
    store
}

#[test]
fn rows_are_printed_in_each_format() {
    let store = filled();
    let sql = "select id, s, o, l, big from t order by id";
    let print =
        |format: &str| printed(&run(store.dir.path(), &["db", sql, "--format", format], ""));
    assert_eq!(
        print("csv"),
        "id,s,o,l,big\n0,\"a,b\",\"{\"\"x\"\":1}\",\"[1,2]\",\n1,,,,\n2,,,,18446744073709551615\n"
    );
    assert_eq!(
        print("json"),
        "[{\"id\":0,\"s\":\"a,b\",\"o\":{\"x\":1},\"l\":[1,2]},{\"id\":1,\"s\":\"\"},\
         {\"id\":2,\"big\":\"18446744073709551615\"}]\n"
    );
    assert_eq!(print("nd-json").lines().count(), 3);
    assert_eq!(print("tsv").lines().next(), Some("id\ts\to\tl\tbig"));
    let table = print("automatic");
    assert!(table.contains("| 2  | NULL |"), "{table}");
    let none = run(
        store.dir.path(),
        &["db", "select id from t where false", "--format", "csv"],
        "",
    );
    assert_eq!(printed(&none), "id\n");
    let none = run(
        store.dir.path(),
        &["db", "select id from t where false", "--format", "json"],
        "",
    );
    assert_eq!(printed(&none), "[]\n");
    let few = run(
        store.dir.path(),
        &["db", "select id from t order by id", "--maxrows", "2"],
        "",
    );
    let cut = String::from_utf8_lossy(&few.stderr).into_owned();
    assert_eq!(cut, "the first 2 rows; --maxrows prints more\n");
    assert!(!printed(&few).contains("| 2 "));
}

#[test]
fn statements_come_from_arguments_files_and_standard_input() {
    let store = filled();
    let dir = store.dir.path();
    let file = "-- a remark; with a semicolon\ncreate table c as\n  select id from t where id > 0;\nselect count(*) as n from c;\n";
    std::fs::write(dir.join("two.sql"), file).unwrap();
    let csv = ["--format", "csv"];
    let args = |more: &[&'static str]| [&["db"][..], more, &csv].concat();
    assert_eq!(printed(&run(dir, &args(&["-f", "two.sql"]), "")), "n\n2\n");
    assert_eq!(printed(&run(dir, &args(&["-f", "-"]), file)), "n\n2\n");
    assert_eq!(printed(&run(dir, &args(&[]), file)), "n\n2\n");
    assert_eq!(
        printed(&run(
            dir,
            &args(&["select 1 a; select 2 b", "select 3 c"]),
            ""
        )),
        "a\n1\nb\n2\nc\n3\n"
    );
}

#[test]
fn files_are_written_and_read() {
    let store = filled();
    let dir = store.dir.path();
    for file in ["x.parquet", "x.arrow", "x.json"] {
        let copy = format!("copy (select id, s, o, l from t) to '{file}'");
        printed(&run(dir, &["db", &copy], ""));
        let read = format!(
            "select f.id, f.s, f.o, f.l, t.f from '{file}' f join t on t.id = f.id order by 1"
        );
        let read = printed(&run(dir, &["db", &read, "--format", "nd-json"], ""));
        assert_eq!(
            read,
            "{\"id\":0,\"s\":\"a,b\",\"o\":{\"x\":1},\"l\":[1,2]}\n{\"id\":1,\"s\":\"\",\"f\":1.5}\n{\"id\":2}\n",
            "{file}"
        );
    }
    printed(&run(
        dir,
        &["db", "copy (select id, s from t) to 'x.csv'"],
        "",
    ));
    let read = run(
        dir,
        &[
            "db",
            "select count(*) n, count(s) s from 'x.csv'",
            "--format",
            "csv",
        ],
        "",
    );
    assert_eq!(printed(&read).lines().next(), Some("n,s"));
}

#[test]
fn what_fails_is_a_sentence_with_an_exit_code() {
    let store = filled();
    let dir = store.dir.path();
    for (sql, why) in [
        ("selec 1", "Expected: an SQL statement"),
        ("select nope from t", "No field named nope"),
        ("select * from nope", "nope' not found"),
        (
            "select s::int from t where id = 0",
            "Cannot cast string 'a,b'",
        ),
        ("insert into t (id) values (7)", "not"),
        ("drop table t", "which SQL only reads"),
        ("copy (select 1) to 'x.odt'", "format"),
    ] {
        let error = refused(&run(dir, &["db", sql], ""), 2);
        assert!(
            error.starts_with("esker-sql: ") && error.contains(why),
            "{sql}: {error}"
        );
        assert!(!error.contains("panicked"), "{error}");
    }
    let address = refused(&run(dir, &["cassandra://db1/shop", "select 1"], ""), 2);
    assert!(
        address.contains("esker find") && address.contains("esker copy"),
        "{address}"
    );
    let nothing = refused(&run(dir, &["nodb", "select 1"], ""), 3);
    assert!(nothing.contains("no store"), "{nothing}");
    let little = refused(&run(dir, &["db", "select 1", "--memory", "7Q"], ""), 2);
    assert!(little.contains("unknown unit `Q`"), "{little}");
    let lost = refused(&run(dir, &["db", "-f", "lost.sql"], ""), 2);
    assert!(lost.contains("lost.sql"), "{lost}");
}

#[test]
fn topics_are_tables_of_their_publications() {
    use esker_pubsub::{Broker, Config, Publication};
    let store = Store::new();
    let broker = Broker::create_or_open(&store.db, Config::new()).unwrap();
    let publish = |topic: &str, body: &str| {
        let publication = Publication::new(topic.parse().unwrap(), body).at_point(9.5, 53.5);
        broker.publish(&publication).unwrap();
    };
    publish("traffic/a7", r#"{"lanes": 2, "_topic": "hidden"}"#);
    publish("traffic/a1", r#"{"lanes": 1.5, "closed": true}"#);
    publish("traffic", "no object");
    let sql = r#"select _topic, lanes, closed, _longitude, _expires, _record from topics."traffic/#" order by _topic"#;
    let expected = [
        ["traffic", "NULL", "NULL", "9.5", "NULL", "no object"],
        [
            "traffic/a1",
            "1.5",
            "true",
            "9.5",
            "NULL",
            r#"{"lanes": 1.5, "closed": true}"#,
        ],
        [
            "traffic/a7",
            "2.0",
            "NULL",
            "9.5",
            "NULL",
            r#"{"lanes": 2, "_topic": "hidden"}"#,
        ],
    ];
    assert_eq!(store.ask(sql).unwrap().rows, expected);
    assert_eq!(
        store.first(r#"select lanes from topics."traffic/a7""#),
        ["2"]
    );
    let names =
        "select table_name from information_schema.tables where table_schema = 'topics' order by 1";
    assert_eq!(store.first(names), ["traffic", "traffic/a1", "traffic/a7"]);
    // From another process, beside the one that publishes.
    let sql = r#"select count(*) as n from topics."traffic/+""#;
    assert_eq!(
        printed(&run(store.dir.path(), &["db", sql, "--format", "csv"], "")),
        "n\n2\n"
    );
}

#[test]
fn bodies_that_cannot_be_read_have_no_fields() {
    use esker_pubsub::{Broker, Config, Publication};
    let store = Store::new();
    let broker = Broker::create_or_open(&store.db, Config::new()).unwrap();
    let deep = format!(
        r#"{{"n": 9, "deep": {}1{}}}"#,
        "[".repeat(200),
        "]".repeat(200)
    );
    for (topic, body) in [
        ("a", r#"{"n": 1, "s": "x"}"#),
        ("b", r#"{"n": 2, "s": "\ud800"}"#),
        ("c", r#"{"n": 3, "\ud800": 1}"#),
        ("d", r#"{"n": 1e400}"#),
        ("e", r#"{"n": 5, "n": "five"}"#),
        ("f", deep.as_str()),
        ("g", r#"{"n": 7, "o": {"s": ["\udead"]}}"#),
    ] {
        let publication = Publication::new(topic.parse().unwrap(), body);
        broker.publish(&publication).unwrap();
    }
    let sql = r##"select _topic, s from topics."#" order by _topic"##;
    let rows = store.ask(sql).unwrap().rows;
    assert_eq!(rows.len(), 7, "{rows:?}");
    assert_eq!(rows[0], ["a", "x"]);
    assert!(rows[1..].iter().all(|row| row[1] == "NULL"), "{rows:?}");
    for (topic, n) in [("a", "1"), ("e", "\"five\"")] {
        let sql = format!(r#"select n from topics."{topic}""#);
        assert_eq!(store.first(&sql), [n]);
    }
    // They have the columns of every publication.
    for topic in ["b", "c", "d", "f", "g"] {
        let answer = store
            .ask(&format!(r#"select * from topics."{topic}""#))
            .unwrap();
        assert_eq!(answer.rows[0].len(), 6, "{topic}: {:?}", answer.rows);
    }
    let columns = "select column_name from information_schema.columns where table_name = 'a' order by ordinal_position";
    assert_eq!(
        store.first(columns)[4..],
        ["_latitude", "n", "s", "_record"]
    );
}

#[test]
fn columns_are_listed_without_the_rows_of_topics() {
    use esker_pubsub::{Broker, Config, Publication};
    let store = Store::new();
    let broker = Broker::create_or_open(&store.db, Config::new()).unwrap();
    for id in 0..40 {
        let body = format!(r#"{{"id": {id}, "text": "{}"}}"#, "x".repeat(100 << 10));
        broker
            .publish(&Publication::new("large".parse().unwrap(), body))
            .unwrap();
    }
    let little = esker_sql::Session::new(store.db.clone(), 2 << 20).unwrap();
    let ask = |sql: &str| {
        let rows = async { little.sql(sql).await?.collect().await };
        store.run(rows).map(|batches| {
            let rows = batches
                .iter()
                .map(|batch| crate::store::texts(batch).unwrap());
            rows.flatten().flatten().collect::<Vec<String>>()
        })
    };
    let columns =
        "select column_name from information_schema.columns where table_schema = 'topics'";
    assert_eq!(
        ask(columns).unwrap()[4..],
        ["_latitude", "id", "text", "_record"]
    );
    let tables = ask("show tables").unwrap();
    assert!(tables.contains(&"large".to_string()), "{tables:?}");
    // A statement that does read them says what there is too little of.
    let error = ask("select max(text) from topics.large")
        .err()
        .unwrap()
        .to_string();
    assert!(
        error.contains("memory") || error.contains("Resources exhausted"),
        "{error}"
    );
}

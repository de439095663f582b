//! Values as people have them: numbers of any length, names that come twice, objects and positions that are none under an index.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

mod common;

use common::esker;

/// A store with the records of these lines; what the load printed is returned, too.
struct Loaded {
    room: tempfile::TempDir,
    store: String,
    stderr: String,
}

fn load(records: &str, arguments: &[&str]) -> Loaded {
    load_file("rows.ndjson", records, arguments)
}

fn load_file(name: &str, records: &str, arguments: &[&str]) -> Loaded {
    let room = tempfile::tempdir().unwrap();
    let store = room.path().join("store").display().to_string();
    let file = room.path().join(name);
    std::fs::write(&file, records).unwrap();
    let file = file.display().to_string();
    let start = [
        "load",
        &store,
        "d",
        &file,
        "--progress",
        "none",
        "--key",
        "id",
    ];
    let run = esker(&[&start[..], arguments].concat());
    Loaded {
        room,
        store,
        stderr: run.stderr,
    }
}

impl Loaded {
    /// The keys that a condition finds, and counts.
    fn find(&self, condition: &str) -> String {
        let find = [
            "find",
            &self.store,
            "d",
            condition,
            "--oldest",
            "--keys-only",
        ];
        let run = esker(&find);
        assert!(run.code <= 1, "{condition}: {}", run.stderr);
        let keys: Vec<&str> = run.stdout.lines().collect();
        let count = esker(&["count", &self.store, "d", "--where", condition]).expect(0);
        assert_eq!(count.stdout.trim(), keys.len().to_string(), "{condition}");
        keys.join(" ")
    }
}

#[test]
fn numbers_of_any_length_are_compared_by_their_values() {
    let records = r#"{"id":1,"weight":211230200427052203004205123}
{"id":2,"weight":211230200427052203004205124}
{"id":3,"weight":18446744073709551615}
{"id":4,"weight":18446744073709551616}
{"id":5,"weight":0.12345678901234567891}
{"id":6,"weight":0.1}
{"id":7,"weight":9007199254740993}
"#;
    for index in [
        "weight:none:float",
        "weight",
        "weight:composite",
        "weight:recent",
        "weight:embedded",
        "weight:fingerprint",
        "weight:filter",
        "other:lazy:string",
    ] {
        let loaded = load(records, &["--index", index]);
        for (condition, keys) in [
            ("weight = 211230200427052203004205123", "1"),
            ("weight != 211230200427052203004205123", "2 3 4 5 6 7"),
            ("weight > 211230200427052203004205123", "2"),
            ("weight >= 211230200427052203004205123", "1 2"),
            ("weight in (211230200427052203004205124, 0.10)", "2 6"),
            ("weight = 18446744073709551616", "4"),
            ("weight < 18446744073709551616 and weight > 1", "3 7"),
            ("weight = 0.12345678901234567891", "5"),
            ("weight = 0.12345678901234568", ""),
            ("weight < 0.12345678901234567892 and weight > 0.1", "5"),
            ("weight = 9007199254740992", ""),
            ("weight = 9.007199254740993e15", "7"),
            ("not weight = 9007199254740993", "1 2 3 4 5 6"),
        ] {
            assert_eq!(loaded.find(condition), keys, "{index}: {condition}");
        }
        let check = esker(&["check", &loaded.store]).expect(0);
        assert!(!check.stdout.contains("error"), "{}", check.stdout);
    }
}

#[test]
fn an_int_index_takes_the_operands_that_a_scan_takes() {
    let records = "{\"id\":1,\"n\":2}\n{\"id\":2,\"n\":3}\n{\"id\":3,\"n\":1000}\n";
    for index in ["n:lazy:int", "n:embedded:int", "other:lazy:string"] {
        let loaded = load(records, &["--index", index]);
        for (condition, keys) in [
            ("n = 2.0", "1"),
            ("n > 2.5", "2 3"),
            ("n < 2.5", "1"),
            ("n = 2.5", ""),
            ("n != 2.5", "1 2 3"),
            ("n = 1e3", "3"),
            ("n in (1e3, 2.5, 3)", "2 3"),
            ("n < 99999999999999999999999", "1 2 3"),
            ("n = 99999999999999999999999", ""),
            ("n > -99999999999999999999999.5", "1 2 3"),
        ] {
            assert_eq!(loaded.find(condition), keys, "{index}: {condition}");
        }
    }
}

#[test]
fn of_a_name_that_comes_twice_the_last_value_counts() {
    let records = "{\"id\":1,\"size\":9798,\"t\":27,\"size\":3266}\n{\"id\":2,\"size\":13064}\n\
        {\"id\":3,\"o\":{\"size\":1},\"o\":{\"x\":2}}\n";
    for index in [
        None,
        Some("size"),
        Some("size:embedded:int"),
        Some("o.size:lazy:int"),
    ] {
        let index = index.map(|index| ["--index", index]);
        let loaded = load(records, index.as_ref().map_or(&[], |index| &index[..]));
        assert_eq!(loaded.find("size = 9798"), "", "{}", loaded.stderr);
        assert_eq!(loaded.find("size = 3266"), "1");
        assert_eq!(loaded.find("size > 3000 and size < 10000"), "1");
        assert_eq!(loaded.find("o.size exists"), "");
        assert_eq!(loaded.find("o.x = 2"), "3");
        let run = esker(&["get", &loaded.store, "d", "1"]).expect(0);
        assert_eq!(
            run.stdout,
            "{\"id\":1,\"size\":9798,\"t\":27,\"size\":3266}\n"
        );
    }
    let loaded = load(records, &[]);
    esker(&["index", "add", &loaded.store, "d", "size:lazy:int"]).expect(0);
    assert_eq!(loaded.find("size = 3266"), "1");
    assert_eq!(loaded.find("size = 9798"), "");
}

#[test]
fn records_with_an_object_under_an_index_are_kept_and_counted() {
    let records = r#"{"id":"e1","customer":"c_1"}
{"id":"e2","customer":{"id":"c_2","name":"N"}}
{"id":"e3","customer":null}
{"id":"e4","customer":["c_1",{"id":"c_3"}]}
"#;
    for index in [
        "customer",
        "customer:composite",
        "customer:embedded",
        "customer:recent",
    ] {
        let loaded = load(records, &["--index", index]);
        assert!(
            loaded.stderr.contains("4 records loaded, 0 rejected"),
            "{}",
            loaded.stderr
        );
        for (condition, keys) in [
            ("customer = c_1", "e1 e4"),
            ("customer != c_1", "e2 e4"),
            ("customer exists", "e1 e2 e4"),
            ("customer is null", "e3"),
            ("not customer = c_1", "e2 e3"),
            ("customer.id = c_2", "e2"),
        ] {
            assert_eq!(loaded.find(condition), keys, "{index}: {condition}");
        }
        let stat = esker(&["stat", &loaded.store, "d"]).expect(0).stdout;
        let said = "not indexed: 2 records have an object or no valid position at `customer`";
        assert!(stat.contains(said), "{stat}");
        let stat = esker(&["stat", &loaded.store, "d", "--json"])
            .expect(0)
            .stdout;
        let stat: serde_json::Value = serde_json::from_str(&stat).unwrap();
        assert_eq!(stat["unindexed"]["customer"], 2);
    }
    let later = load(records, &[]);
    esker(&["index", "add", &later.store, "d", "customer:lazy:string"]).expect(0);
    assert_eq!(later.find("customer != c_1"), "e2 e4");
    let stat = esker(&["stat", &later.store, "d"]).expect(0).stdout;
    assert!(stat.contains("not indexed: 2 records"), "{stat}");
    // Once they are replaced, nothing is counted.
    let fixed = later.room.path().join("fixed.ndjson");
    std::fs::write(
        &fixed,
        "{\"id\":\"e2\",\"customer\":\"c_2\"}\n{\"id\":\"e4\"}\n",
    )
    .unwrap();
    let fixed = fixed.display().to_string();
    esker(&["load", &later.store, "d", &fixed, "--progress", "none"]).expect(0);
    let stat = esker(&["stat", &later.store, "d"]).expect(0).stdout;
    assert!(!stat.contains("not indexed"), "{stat}");
    assert_eq!(later.find("customer = c_2"), "e2");
}

#[test]
fn reports_without_a_position_are_kept_and_counted() {
    let records = r#"{"id":1,"Lat":53.5,"Lon":9.9,"p":[9.9,53.5]}
{"id":2,"Lat":91,"Lon":181,"p":[181,91]}
{"id":3,"Lat":null,"Lon":null,"p":null}
{"id":4,"p":{"type":"LineString","coordinates":[[9,53],[10,54]]}}
"#;
    for layout in ["spatial", "spatial:mbr", "spatial:embedded"] {
        let (pair, point) = (format!("Lon,Lat:{layout}"), format!("p:{layout}"));
        let loaded = load(records, &["--index", &pair, "--index", &point]);
        assert!(
            loaded.stderr.contains("4 records loaded, 0 rejected"),
            "{}",
            loaded.stderr
        );
        for path in ["Lon,Lat", "p"] {
            let within = [
                "within",
                &loaded.store,
                "d",
                path,
                "--rect=9,53,11,54",
                "--keys-only",
            ];
            assert_eq!(esker(&within).expect(0).stdout, "1\n");
        }
        assert_eq!(loaded.find("p exists"), "1 2 4");
        assert_eq!(loaded.find("Lon > 180"), "2");
        let stat = esker(&["stat", &loaded.store, "d"]).expect(0).stdout;
        assert!(stat.contains("not indexed: 1 record has"), "{stat}");
        assert!(stat.contains("not indexed: 2 records have"), "{stat}");
    }
    // A dataset that is stored by place has them, too.
    let loaded = load(records, &["--cluster", "p"]);
    assert!(
        loaded.stderr.contains("4 records loaded, 0 rejected"),
        "{}",
        loaded.stderr
    );
    assert_eq!(loaded.find("p exists"), "1 2 4");
    assert_eq!(loaded.find("within(p, rect(9,53,11,54))"), "1");
    let check = esker(&["check", &loaded.store]).expect(0);
    assert!(!check.stdout.contains("error"), "{}", check.stdout);
    // A value of another type is refused still.
    let loaded = load("{\"id\":1,\"p\":\"9,53\"}\n", &["--index", "p:spatial"]);
    assert!(
        loaded.stderr.contains("0 records loaded, 1 rejected"),
        "{}",
        loaded.stderr
    );
}

//! Values from real life: numbers of any length, duplicate names, and objects and invalid positions
//! under an index.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

use crate::common::esker;

/// A store with the records on these lines, and the output of the load.
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
    /// The keys that `find` and `count` agree on for a condition.
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
pub(crate) fn an_int_index_takes_the_operands_that_a_scan_takes() {
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
    // After they are replaced, the count is zero.
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
    // A dataset stored by location has the same counts.
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
    // A value of another type is still refused.
    let loaded = load("{\"id\":1,\"p\":\"9,53\"}\n", &["--index", "p:spatial"]);
    assert!(
        loaded.stderr.contains("0 records loaded, 1 rejected"),
        "{}",
        loaded.stderr
    );
}

#[test]
fn times_take_their_unit_from_the_first_values() {
    // 2023-11-14T22:13:20.123Z and 2027-01-15T08:00:00.123Z.
    let units: [(&str, &str, i128); 4] = [
        ("time_s", "", 1),
        ("time_ms", "123", 1000),
        ("time_us", "123000", 1_000_000),
        ("time_ns", "123000000", 1_000_000_000),
    ];
    for (ty, fraction, per_second) in units {
        let records = format!(
            "{{\"id\":1,\"at\":1700000000{fraction}}}\n{{\"id\":2,\"at\":1800000000{fraction}}}\n{{\"id\":3,\"at\":\"2023-11-14T00:00:00Z\"}}\n"
        );
        for kind in ["embedded", "lazy"] {
            let loaded = load(&records, &["--index", &format!("at:{kind}:time")]);
            let said = format!("--index at:{kind}:{ty}");
            assert!(loaded.stderr.contains(&said), "{}", loaded.stderr);
            assert_eq!(loaded.find("at >= 2023-11-14 and at < 2023-11-15"), "1 3");
            assert_eq!(loaded.find("at > 2023-11-14T22:13:20.124Z"), "2");
            // A number is in the unit of the field, as in the records.
            assert_eq!(
                loaded.find(&format!("at >= {}", 1_750_000_000 * per_second)),
                "2"
            );
            assert_eq!(loaded.find(&format!("at = 1700000000{fraction}")), "1");
            let stat = esker(&["stat", &loaded.store, "d"]).expect(0).stdout;
            assert!(stat.contains(ty), "{stat}");
            // For an existing dataset, the given type may leave the unit open.
            let again = loaded.room.path().join("rows.ndjson").display().to_string();
            let index = format!("at:{kind}:time");
            let load = [
                "load",
                &loaded.store,
                "d",
                &again,
                "--index",
                &index,
                "--restart",
            ];
            esker(&load).expect(0);
        }
        let added = load(&records, &[]);
        esker(&["index", "add", &added.store, "d", "at:lazy:time"]).expect(0);
        assert_eq!(added.find("at >= 2023-11-14 and at < 2023-11-15"), "1 3");
        let stat = esker(&["stat", &added.store, "d"]).expect(0).stdout;
        assert!(stat.contains(ty), "{stat}");
    }
    // Text with a time far away gets no note about numbers.
    let loaded = load(
        "{\"id\":1,\"at\":\"0001-01-01T00:00:00Z\"}\n",
        &["--index", "at:lazy:time"],
    );
    let said = "note: `at` has a time of the year 1\n";
    assert!(loaded.stderr.contains(said), "{}", loaded.stderr);
    // Text has no unit.
    let loaded = load(
        "{\"id\":1,\"at\":\"2024-05-01\"}\n",
        &["--index", "at:lazy:time"],
    );
    assert!(
        loaded.stderr.contains("--index at:lazy:time\n"),
        "{}",
        loaded.stderr
    );
}

#[test]
fn records_expire_at_a_time_in_the_unit_that_is_said_or_shown() {
    let records =
        "{\"id\":1,\"until\":1577836800000}\n{\"id\":2,\"until\":32503680000000}\n{\"id\":3}\n";
    for expires in ["until", "until:time", "until:time_ms"] {
        let loaded = load(records, &["--expires", expires]);
        assert!(
            loaded.stderr.contains("--expires until:time_ms"),
            "{}",
            loaded.stderr
        );
        let count = esker(&["count", &loaded.store, "d"]).expect(0);
        assert_eq!(count.stdout, "2\n");
    }
    let loaded = load(records, &["--expires", "until:time_s"]);
    let said = "note: `until` has a time of the year 51969: the number 1577836800000 counts seconds since 1970; as `time_ms` (milliseconds) it would be the year 2020";
    assert!(loaded.stderr.contains(said), "{}", loaded.stderr);
    assert_eq!(loaded.stderr.matches("note: `until`").count(), 1);
    let refused = load(records, &["--expires", "until:int"]);
    assert!(
        refused.stderr.contains("is not a type of times"),
        "{}",
        refused.stderr
    );
    // An object is not a time; the record would never expire.
    let refused = load("{\"id\":1,\"until\":{}}\n", &["--expires", "until"]);
    assert!(
        refused.stderr.contains("0 records loaded, 1 rejected"),
        "{}",
        refused.stderr
    );
}

#[test]
fn text_without_an_offset_is_utc_and_that_is_said_once() {
    let csv = "id,pickup,miles\n1,2016-01-01 00:00:00,1.10\n2,2016-01-01 23:59:59,2.2\n3,2016-01-02 00:00:00,3.3\n";
    for index in ["pickup:embedded:time", "pickup:lazy:time"] {
        let loaded = load_file("trips.csv", csv, &["--index", index]);
        let said = "note: `pickup` has times without an offset: they are read as UTC";
        assert_eq!(loaded.stderr.matches(said).count(), 1, "{}", loaded.stderr);
        assert_eq!(
            loaded.find("pickup >= 2016-01-01 and pickup < 2016-01-02"),
            "1 2"
        );
        assert_eq!(loaded.find("pickup = \"2016-01-01 00:00:00\""), "1");
    }
    let records = r#"{"id":1,"at":"2022-12-29 18:22:32.318353 +0000 UTC"}
{"id":2,"at":"2022-12-29T19:22:32+01"}
{"id":3,"at":"2022-12-29T19:22:32.5+0100"}
{"id":4,"at":"2022/12/29 18:22:33 GMT"}
{"id":5,"at":"20221229T182234Z"}
{"id":6,"at":"2022-12-29 18:22:35,250"}
{"id":7,"at":"2022-12-29T19:22:36+01:00[Europe/Paris]"}
{"id":8,"at":"2022-12-29T18:23"}
"#;
    let loaded = load(records, &["--index", "at:lazy:time"]);
    assert!(
        loaded.stderr.contains("8 records loaded, 0 rejected"),
        "{}",
        loaded.stderr
    );
    assert_eq!(
        loaded.find("at >= 2022-12-29T18:22:32Z and at < 2022-12-29T18:22:33Z"),
        "1 2 3"
    );
    assert_eq!(loaded.find("at > 2022-12-29T18:22:35.2Z"), "6 7 8");
    let refused = load(
        "{\"id\":1,\"at\":\"29/12/2022\"}\n",
        &["--index", "at:lazy:time"],
    );
    assert!(
        refused.stderr.contains("0 records loaded, 1 rejected"),
        "{}",
        refused.stderr
    );
}

#[test]
pub(crate) fn conditions_take_times_relative_to_now() {
    let now = std::time::SystemTime::now();
    let now = now.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let records = format!(
        "{{\"id\":1,\"at\":{},\"name\":\"now\"}}\n{{\"id\":2,\"at\":{}}}\n{{\"id\":3,\"at\":{}}}\n",
        now - 3 * 86_400,
        now - 1800,
        now + 3 * 86_400
    );
    for index in ["at:lazy:time", "at:embedded:time", "other:lazy:string"] {
        let loaded = load(&records, &["--index", index]);
        assert_eq!(loaded.find("at < now"), "1 2", "{index}");
        assert_eq!(loaded.find("at > now-1h"), "2 3");
        assert_eq!(loaded.find("at > now-1h and at <= now"), "2");
        assert_eq!(loaded.find("at > now-1w and at < now-1d12h"), "1");
        assert_eq!(loaded.find("at > now+2d"), "3");
        assert_eq!(loaded.find("at > now - 1h and (at <= now)"), "2");
        assert_eq!(loaded.find("(at > now - 1w1d)"), "1 2 3");
        // Compared with the text `now`.
        assert_eq!(loaded.find("name = now"), "1");
    }
}

#[test]
fn a_lenient_index_keeps_values_of_other_types_and_finds_them() {
    let records = r#"{"id":1,"code":404}
{"id":2,"code":"404"}
{"id":3,"code":"not found"}
{"id":4,"code":[500,"x"]}
{"id":5,"code":null}
{"id":6,"code":{"n":1}}
{"id":7,"code":500.5}
{"id":8,"code":true}
"#;
    let strict = load(records, &["--index", "code:lazy:int"]);
    assert!(
        strict.stderr.contains("3 records loaded, 5 rejected"),
        "{}",
        strict.stderr
    );
    let rejects = std::fs::read_to_string(strict.room.path().join("rows.ndjson.rejected")).unwrap();
    let hint = "field code must be of type int, found string; an index of `code?` keeps such records, as in code?:lazy:int";
    assert!(rejects.contains(hint), "{rejects}");
    let run = esker(&[
        "index",
        "add",
        &load(records, &[]).store,
        "d",
        "code:lazy:int",
    ]);
    assert!(run.stderr.contains("an index of `code?`"), "{}", run.stderr);
    for index in [
        "code?:lazy:int",
        "code?:composite:int",
        "code?:recent:int",
        "code?:embedded:int",
        "code?:fingerprint:int",
        "code?:none:int",
        "code?:lazy:string",
        "code?:lazy:float",
        "other:lazy:string",
    ] {
        let loaded = load(records, &["--index", index]);
        assert!(
            loaded.stderr.contains("8 records loaded, 0 rejected"),
            "{index}: {}",
            loaded.stderr
        );
        for (condition, keys) in [
            ("code = 404", "1 2"),
            ("code = \"not found\"", "3"),
            ("code > 500", "3 4 7"),
            ("code >= 500 and code < 501", "4 7"),
            ("code != 404", "3 4 6 7 8"),
            ("code exists", "1 2 3 4 6 7 8"),
            ("code is null", "5"),
            ("code = true", "8"),
            ("code in (x, 404)", "1 2 4"),
            ("code ^= not", "3"),
            ("not code = 404", "3 4 5 6 7 8"),
        ] {
            // A quoted number is text for an undeclared type, and may be a number for a declared
            // one.
            let declared_as_string = index.contains("string") && index.starts_with("code");
            if declared_as_string && condition.contains(">") {
                continue;
            }
            assert_eq!(loaded.find(condition), keys, "{index}: {condition}");
        }
        if index.starts_with("code") {
            let stat = esker(&["stat", &loaded.store, "d", "--json"])
                .expect(0)
                .stdout;
            let stat: serde_json::Value = serde_json::from_str(&stat).unwrap();
            let arguments = stat["arguments"].as_str().unwrap();
            assert!(arguments.contains(index), "{arguments}");
        }
    }
    // The same for an index added later.
    let later = load(records, &[]);
    esker(&["index", "add", &later.store, "d", "code?:lazy:int"]).expect(0);
    assert_eq!(later.find("code = 404"), "1 2");
    esker(&["index", "switch", &later.store, "d", "code:composite"]).expect(0);
    assert_eq!(later.find("code = 404"), "1 2");
    assert_eq!(later.find("code > 500"), "3 4 7");
    let stat = esker(&["stat", &later.store, "d"]).expect(0).stdout;
    assert!(stat.contains("int, lenient"), "{stat}");
    let run = esker(&["index", "add", &later.store, "d", "p?:spatial"]).expect(2);
    assert!(run.stderr.contains("cannot be lenient"), "{}", run.stderr);
}

#[test]
pub(crate) fn the_columns_that_a_note_proposes_print_the_values() {
    for records in [
        "{\"id\":1,\"a,b\":2,\"c.d\":3}\n{\"id\":2,\"e\":1}\n",
        "{\"id\":1,\"a\\\\b\":2,\"it's\":3}\n{\"id\":2,\"x=y <z>\":1}\n",
        "{\"id\":1,\"\":0,\"a\":2,\"b\":3}\n{\"id\":2,\"e\":1}\n",
    ] {
        let loaded = load(records, &[]);
        let scan = ["scan", &loaded.store, "d", "--format", "csv"];
        let run = esker(&scan).expect(0);
        let (_, hint) = run.stderr.split_once("--select ").unwrap();
        let hint = hint.lines().next().unwrap();
        // With its quotes, and as a shell passes it on.
        for hint in [hint, hint.trim_matches('\'')] {
            let run = esker(&[&scan[..], &["--select", hint]].concat()).expect(0);
            assert_eq!(run.stdout.lines().nth(1), Some("1,2,3,"), "{hint}");
            assert!(!run.stdout.starts_with('\''), "{}", run.stdout);
        }
    }
}

#[test]
pub(crate) fn a_field_that_a_record_has_is_not_said_to_be_in_none() {
    let votes: Vec<String> = (0..12_000).map(|i| format!("\"user{i}\":1")).collect();
    let records = format!(
        "{{\"id\":1,\"votes\":{{{}}}}}\n{{\"id\":2,\"status\":\"open\",\"of\":[{{\"who\":null}}]}}\n",
        votes.join(",")
    );
    let loaded = load(&records, &[]);
    let noted = |condition: &str| {
        let run = esker(&["find", &loaded.store, "d", condition]).expect(1);
        run.stderr
    };
    for condition in ["status = closed", "of.who = ann", "votes.user11999 = 2"] {
        let noted = noted(condition);
        assert!(!noted.contains("no record has"), "{condition}: {noted}");
    }
    let noted = noted("statsu = open");
    assert!(
        noted.contains("no record has the field `statsu`: did you mean `status`?"),
        "{noted}"
    );
}

#[test]
pub(crate) fn contains_finds_parts_of_texts_and_null_is_null() {
    let records = r#"{"id":1,"page":"/docs/go","ms":3,"tags":["new","mobile"]}
{"id":2,"page":null,"ms":4,"tags":["newest"]}
{"id":3,"page":"/buy","ms":33,"tags":[]}
{"id":4,"page":["/docs","/x"],"ms":null}
{"id":5,"page":"null","users":[{"name":"ann"},{"name":"bob"}]}
"#;
    for indexes in [
        &[
            "page",
            "ms",
            "tags:lazy:string",
            "users.name:composite:string",
        ][..],
        &["page:embedded", "ms:composite", "tags:recent:string:prefix"],
        &["page?:lazy:string", "ms?:lazy:int"],
        &[],
    ] {
        let indexes: Vec<&str> = indexes
            .iter()
            .flat_map(|index| ["--index", *index])
            .collect();
        let loaded = load(records, &indexes);
        for (condition, keys) in [
            ("page contains docs", "1"),
            ("page contains \"/docs/go\"", "1"),
            // `contains` compares whole elements of an array.
            ("page contains /docs", "1 4"),
            ("page contains /x", "4"),
            ("tags contains new", "1"),
            ("not tags contains new", "2 3 4 5"),
            ("users.name contains n", "5"),
            ("users.name contains nn", "5"),
            ("ms contains 3", "1"),
            ("page = null", "2"),
            ("page != null", "1 3 4 5"),
            ("page = NULL or ms = null", "2 4 5"),
            ("page = \"null\"", "5"),
            ("tags = null", "3 4 5"),
            ("page in (null, /buy)", "2 3"),
            ("page not in (null, /buy)", "1 4 5"),
            ("missing = null", "1 2 3 4 5"),
        ] {
            assert_eq!(loaded.find(condition), keys, "{indexes:?}: {condition}");
        }
    }
}

#[test]
pub(crate) fn ranges_as_arguments_are_compared_by_value_too() {
    let records = "{\"id\":1,\"w\":211230200427052203004205123}\n{\"id\":2,\"w\":211230200427052203004205124}\n{\"id\":3,\"w\":0.5}\n";
    for index in ["w:lazy:float", "w:embedded:float", "other:lazy:string"] {
        let loaded = load(records, &["--index", index]);
        let (lo, hi) = ("211230200427052203004205123", "211230200427052203004205123");
        let range = ["range", &loaded.store, "d", "w", lo, hi, "--keys-only"];
        assert_eq!(esker(&range).expect(0).stdout, "1\n", "{index}");
        let count = ["count", &loaded.store, "d", "w", "0.1", lo];
        assert_eq!(esker(&count).expect(0).stdout, "2\n", "{index}");
        let lookup = [
            "lookup",
            &loaded.store,
            "d",
            "w",
            "211230200427052203004205124",
            "--keys-only",
        ];
        assert_eq!(esker(&lookup).expect(0).stdout, "2\n", "{index}");
    }
}

#[test]
pub(crate) fn a_field_that_has_objects_alone_is_not_said_to_be_missing() {
    let loaded = load(
        "{\"id\":1,\"c\":{\"x\":1}}\n{\"id\":2,\"c\":null}\n",
        &["--index", "c"],
    );
    assert!(
        loaded.stderr.contains("2 records loaded, 0 rejected"),
        "{}",
        loaded.stderr
    );
    assert!(
        !loaded.stderr.contains("none of the first"),
        "{}",
        loaded.stderr
    );
    assert!(
        loaded
            .stderr
            .contains("`c` has no text, number or truth value"),
        "{}",
        loaded.stderr
    );
}

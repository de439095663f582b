//! Orders, projections and aggregates on the command line.

use crate::common::{Run, esker};

/// Lines of numbers, text, times and arrays.
const RECORDS: &str = r#"{"id":1,"user":"ann","n":3,"at":1714521600,"tags":["x","y","x"]}
{"id":2,"user":"bob","n":2.5,"at":1714525200,"tags":[]}
{"id":3,"user":"ann","n":"many","at":1714608000,"deep":{"a":[1,7],"b":{"c":true}}}
{"id":4,"n":-1,"at":1717200000,"tags":"y"}
{"id":5,"user":null,"n":10,"at":1714521601,"deep":{"a":4}}
"#;

fn ask(args: &[&str]) -> Run {
    ask_with(&["user:recent", "at:embedded:time_s"], args)
}

/// A dataset of the records, in a folder of its own.
struct Loaded {
    store: String,
    _dir: tempfile::TempDir,
}

impl Loaded {
    fn with(indexes: &[&str]) -> Loaded {
        let dir = tempfile::tempdir().unwrap();
        let [file, store] =
            ["records.ndjson", "db"].map(|n| dir.path().join(n).display().to_string());
        std::fs::write(&file, RECORDS).unwrap();
        let indexes: Vec<&str> = indexes.iter().flat_map(|i| ["--index", i]).collect();
        let load = [&["load", &store, "d", &file, "--key", "id"], &indexes[..]].concat();
        esker(&load).expect(0);
        Loaded { store, _dir: dir }
    }

    /// Loads further records.
    fn load(&self, lines: &str) {
        let file = format!("{}.more", self.store);
        std::fs::write(&file, lines).unwrap();
        self.ask(&["load", &file]).expect(0);
    }

    fn ask(&self, args: &[&str]) -> Run {
        let (verb, rest) = args.split_first().unwrap();
        esker(&[&[verb, self.store.as_str(), "d"][..], rest].concat())
    }
}

/// Asks a dataset with these indexes.
fn ask_with(indexes: &[&str], args: &[&str]) -> Run {
    Loaded::with(indexes).ask(args)
}

fn lines(args: &[&str]) -> Vec<String> {
    let run = ask(args).expect(0);
    run.stdout.lines().map(str::to_string).collect()
}

fn ids(args: &[&str]) -> Vec<i64> {
    ask(args).expect(0).ids()
}

#[test]
pub(crate) fn answers_are_sorted_by_fields() {
    assert_eq!(ids(&["find", "--order", "n"]), [4, 2, 1, 5, 3]);
    assert_eq!(ids(&["find", "--order", "n:desc"]), [3, 5, 1, 2, 4]);
    assert_eq!(
        ids(&["find", "--order", "user:desc,at:desc"]),
        [2, 3, 1, 4, 5]
    );
    assert_eq!(ids(&["find", "--order", "deep.a", "deep exists"]), [3, 5]);
    assert_eq!(
        ids(&["find", "--order", "deep.a:desc", "deep exists"]),
        [3, 5]
    );
    assert_eq!(ids(&["find", "--order", "tags"]), [1, 4, 2, 3, 5]);
    assert_eq!(
        ids(&["find", "user = ann", "at > 1714521600", "--order", "id"]),
        [3]
    );
    let page = [
        "find", "--order", "id:desc", "--offset", "1", "--limit", "2",
    ];
    assert_eq!(ids(&page), [4, 3]);
    let keys = ["find", "--order", "n:desc", "--limit", "2", "--keys-only"];
    assert_eq!(ask(&keys).expect(0).stdout, "3\n5\n");
    // A field that is called as an order is has a direction.
    assert_eq!(ids(&["find", "--order", "key:desc"]), [1, 2, 3, 4, 5]);
    assert_eq!(ids(&["find", "--order", "key"]), [1, 2, 3, 4, 5]);
    assert_eq!(ids(&["find", "--order", "oldest", "--offset", "3"]), [4, 5]);
    assert!(
        ask(&["find", "--order", "a..b"])
            .expect(2)
            .stderr
            .contains("a field name is empty")
    );
}

#[test]
fn a_plan_names_the_index_of_an_order_and_each_note_once() {
    let store = Loaded::with(&["id:composite:int", "user:recent"]);
    let lines: Vec<String> = (6..500)
        .map(|id| format!(r#"{{"id":{id},"n":{}}}"#, id % 7))
        .collect();
    store.load(&lines.join("\n"));
    for (condition, form) in [("id exists", ""), ("n >= 0", ""), ("n >= 0", "=text")] {
        let explain = format!("--explain{form}");
        let asked = [
            "find", condition, "--order", "id:desc", "--limit", "2", &explain,
        ];
        let run = store.ask(&asked).expect(0);
        assert_eq!(run.ids(), [499, 498]);
        let plan = run.stderr.as_str();
        assert!(!plan.contains("scan"), "{condition}: {plan}");
        let shown = match form {
            "" => "\"order\": \"id:desc\"",
            _ => "composite index of id in the order id:desc: all values\n",
        };
        assert!(plan.contains(shown), "{condition}: {plan}");
    }
    // Each note of a plan in text is printed once.
    for asked in [
        &["find", "n = 3"][..],
        &["find", "n = 3", "--order", "n", "--keys-only"],
        &["count", "--where", "n = 3"],
        &["aggregate", "count", "n = 3"],
    ] {
        let run = store.ask(&[asked, &["--explain=text"]].concat()).expect(0);
        let notes = run.stderr.matches("note: no index on `n`").count();
        assert_eq!(notes, 1, "{asked:?}: {}", run.stderr);
        // Without a plan they are printed, too.
        let run = store.ask(asked).expect(0);
        let notes = run.stderr.matches("note: no index on `n`").count();
        assert_eq!(notes, 1, "{asked:?}: {}", run.stderr);
    }
}

#[test]
pub(crate) fn some_fields_keep_their_nesting() {
    let some = ["find", "--order", "id", "--select", "deep.b.c,n,deep.a"];
    assert_eq!(
        lines(&some),
        [
            r#"{"n":3}"#,
            r#"{"n":2.5}"#,
            r#"{"n":"many","deep":{"a":[1,7],"b":{"c":true}}}"#,
            r#"{"n":-1}"#,
            r#"{"n":10,"deep":{"a":4}}"#,
        ]
    );
    let table = [
        "find", "id < 3", "--order", "id", "--select", "n,id", "--format", "csv",
    ];
    assert_eq!(lines(&table), ["n,id", "3,1", "2.5,2"]);
}

#[test]
pub(crate) fn aggregates_are_one_object_a_group() {
    assert_eq!(
        lines(&[
            "aggregate",
            "count,distinct(user),min(n),max(n),sum(n),avg(n),p50(n)"
        ]),
        [
            r#"{"count":5,"distinct(user)":2,"min(n)":-1,"max(n)":"many","sum(n)":14.5,"avg(n)":3.625,"p50(n)":3}"#
        ]
    );
    assert_eq!(
        lines(&["aggregate", "count,sum(id)", "--by", "user"]),
        [
            r#"{"user":"ann","count":2,"sum(id)":4}"#,
            r#"{"user":"bob","count":1,"sum(id)":2}"#,
            r#"{"user":null,"count":2,"sum(id)":9}"#,
        ]
    );
    let most = [
        "aggregate",
        "count",
        "user exists",
        "--by",
        "user",
        "--order",
        "count:desc",
        "--limit",
        "1",
    ];
    assert_eq!(lines(&most), [r#"{"user":"ann","count":2}"#]);
    // An array counts once in each group of its different elements.
    assert_eq!(
        lines(&["aggregate", "count", "--by", "tags"]),
        [
            r#"{"tags":"x","count":1}"#,
            r#"{"tags":"y","count":2}"#,
            r#"{"tags":null,"count":3}"#
        ]
    );
    assert_eq!(
        lines(&["aggregate", "count", "--by", "at/1d"]),
        [
            r#"{"at":1714521600,"count":3}"#,
            r#"{"at":1714608000,"count":1}"#,
            r#"{"at":1717200000,"count":1}"#,
        ]
    );
    assert_eq!(
        lines(&["aggregate", "count", "--by", "at/month,user", "id < 3"]),
        [
            r#"{"at":1714521600,"user":"ann","count":1}"#,
            r#"{"at":1714521600,"user":"bob","count":1}"#,
        ]
    );
    assert_eq!(
        lines(&["aggregate", "count", "--by", "id/2@1", "--order", "id:desc"]),
        [
            r#"{"id":5,"count":1}"#,
            r#"{"id":3,"count":2}"#,
            r#"{"id":1,"count":2}"#
        ]
    );
    // Of no records there is one group, or none.
    assert_eq!(
        lines(&["aggregate", "count,sum(n),distinct(n)", "id > 9"]),
        [r#"{"count":0,"sum(n)":null,"distinct(n)":0}"#]
    );
    assert_eq!(
        ask(&["aggregate", "count", "id > 9", "--by", "user"])
            .expect(1)
            .stdout,
        ""
    );
    let table = [
        "aggregate",
        "count,max(n)",
        "--by",
        "user",
        "--format",
        "csv",
    ];
    assert_eq!(
        lines(&table),
        ["user,count,max(n)", "ann,2,many", "bob,1,2.5", ",2,10"]
    );
}

#[test]
pub(crate) fn the_latest_of_each_value_is_found_with_any_index_and_none() {
    for kind in [
        "",
        "lazy",
        "recent",
        "composite",
        "embedded",
        "fingerprint",
        "filter",
    ] {
        let index = format!("user:{kind}");
        let indexes: &[&str] = if kind.is_empty() { &[] } else { &[&index] };
        let loaded = Loaded::with(indexes);
        let ask = |args: &[&str]| loaded.ask(&[&["find", "--latest-per", "user"], args].concat());
        assert_eq!(ask(&[]).expect(0).ids(), [2, 3], "{kind}");
        assert_eq!(ask(&["--offset", "1"]).expect(0).ids(), [3], "{kind}");
        assert_eq!(ask(&["--limit", "1"]).expect(0).ids(), [2], "{kind}");
        assert_eq!(ask(&["--keys-only"]).expect(0).stdout, "2\n3\n", "{kind}");
        assert_eq!(ask(&["--count"]).expect(0).stdout, "2\n", "{kind}");
        // The latest first, then the condition: the latest of ann is not the first.
        assert_eq!(ask(&["id < 3"]).expect(0).ids(), [2], "{kind}");
        assert_eq!(
            ask(&["id < 3", "--count"]).expect(0).stdout,
            "1\n",
            "{kind}"
        );
        let until = ["--time", "at", "--as-of", "1714530000"];
        assert_eq!(ask(&until).expect(0).ids(), [1, 2], "{kind}");
        assert_eq!(ask(&["id > 9", "--keys-only"]).expect(1).stdout, "");
        ask(&["--order", "id"]).expect(2);
        ask(&["--count", "--keys-only"]).expect(2);
    }
    ask(&["find", "--count"]).expect(2);
}

#[test]
pub(crate) fn an_age_is_one_of_time_whatever_the_unit_of_the_field() {
    let dir = tempfile::tempdir().unwrap();
    let [file, store] = ["records.ndjson", "db"].map(|n| dir.path().join(n).display().to_string());
    let record = |id: i64, seconds: i64| {
        let (ms, us) = (seconds * 1000, seconds * 1_000_000);
        format!(r#"{{"id":{id},"lon":1,"lat":1,"s":{seconds},"ms":{ms},"us":{us}}}"#)
    };
    // 23 hours, an hour and a minute before the last one.
    let records = [
        (1, 3_600),
        (2, 86_400 - 3_600),
        (3, 86_400 - 60),
        (4, 86_400),
    ];
    let records = records.map(|(id, seconds)| record(id, seconds));
    std::fs::write(&file, records.join("\n")).unwrap();
    let indexes = ["lon,lat:spatial", "ms:none:time_ms", "us:composite:time_us"];
    let indexes: Vec<&str> = indexes.iter().flat_map(|i| ["--index", i]).collect();
    let load = [&["load", &store, "d", &file, "--key", "id"], &indexes[..]].concat();
    esker(&load).expect(0);
    for (field, as_of) in [
        ("s", "86400"),
        ("s", "1970-01-02"),
        ("ms", "86400000"),
        ("ms", "1970-01-02T00:00:00Z"),
        ("us", "86400000000"),
        ("us", "86400000000.2"),
    ] {
        for (age, expected) in [
            ("59.5", &[4][..]),
            ("1m", &[3, 4]),
            ("3600", &[2, 3, 4]),
            ("1h", &[2, 3, 4]),
            ("1d", &[1, 2, 3, 4]),
        ] {
            let latest = [
                "--latest-per",
                "id",
                "--time",
                field,
                "--as-of",
                as_of,
                "--max-age",
                age,
            ];
            let find = ["find", &store, "d", "lat = 1"];
            let found = esker(&[&find[..], &latest].concat()).expect(0).ids();
            assert_eq!(found, expected, "find {field} {as_of} {age}");
            let within = ["within", &store, "d", "lon,lat", "--rect=0,0,2,2"];
            let mut found = esker(&[&within[..], &latest].concat()).expect(0).ids();
            found.sort_unstable();
            assert_eq!(found, expected, "within {field} {as_of} {age}");
        }
    }
    for (as_of, age, why) in [
        ("yesterday", "1h", "s: "),
        ("1", "-1", "age"),
        ("1", "nan", "age"),
    ] {
        let as_of = format!("--as-of={as_of}");
        let age = format!("--max-age={age}");
        let latest = ["--latest-per", "id", "--time", "s", &as_of, &age];
        let refused = esker(&[&["find", &store, "d"][..], &latest].concat()).expect(2);
        assert!(refused.stderr.contains(why), "{}", refused.stderr);
    }
}

#[test]
pub(crate) fn what_is_no_aggregate_is_refused() {
    for (args, why) in [
        (
            &["aggregate", "total(n)"][..],
            "`total(n)` is not an aggregate",
        ),
        (
            &["aggregate", "count", "--by", "n/0"],
            "`0` is not a period",
        ),
        (
            &["aggregate", "count", "--by", "n,n"],
            "two columns are named `n`",
        ),
        (
            &["aggregate", "count", "--order", "sum(n)"],
            "an order by `sum(n)`, which is no column",
        ),
    ] {
        let said = ask(args).expect(2).stderr;
        assert!(said.contains(why), "{said}");
    }
    let help = esker(&["aggregate", "--help"]).expect(0).stdout;
    assert!(help.contains("approx_distinct(F)"), "{help}");
}

#[test]
fn json_is_one_array() {
    let array = |args: &[&str]| -> serde_json::Value {
        let run = ask(&[args, &["--format", "json"]].concat());
        serde_json::from_str(&run.stdout).unwrap_or_else(|error| panic!("{error}: {}", run.stdout))
    };
    let found = array(&["find", "--order", "id", "--select", "id,deep.a"]);
    let expected = serde_json::json!([
        {"id": 1}, {"id": 2}, {"id": 3, "deep": {"a": [1, 7]}}, {"id": 4}, {"id": 5, "deep": {"a": 4}}
    ]);
    assert_eq!(found, expected);
    assert_eq!(array(&["find", "id = 77"]), serde_json::json!([]));
    let groups = array(&[
        "aggregate",
        "count",
        "user exists",
        "--by",
        "user",
        "--order",
        "user",
    ]);
    let expected = serde_json::json!([
        {"user": "ann", "count": 2}, {"user": "bob", "count": 1}
    ]);
    assert_eq!(groups, expected);
    assert_eq!(array(&["get", "4"])[0]["tags"], "y");
}

#[test]
fn a_few_different_values_are_estimated_as_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("db").display().to_string();
    for number in 1..=20 {
        let record = format!("{{\"id\":{number},\"v\":\"value {number}\"}}\n");
        let load = ["load", &store, "d", "-", "--key", "id"];
        let feed = |out: &mut dyn std::io::Write| out.write_all(record.as_bytes()).unwrap();
        crate::common::esker_fed(&load, dir.path(), feed).expect(0);
        let estimate = esker(&["aggregate", &store, "d", "approx_distinct(v)"]).expect(0);
        let expected = format!("{{\"approx_distinct(v)\":{number}}}\n");
        assert_eq!(estimate.stdout, expected);
    }
}

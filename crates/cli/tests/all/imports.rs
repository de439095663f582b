//! Files from real life: the records that `load` makes of them, its notes, and its exit codes.
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::common::{Run, esker, esker_fed};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A folder with one input file.
struct Input {
    dir: TempDir,
    file: PathBuf,
}

impl Input {
    fn new(name: &str, content: impl AsRef<[u8]>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(name);
        fs::write(&file, content).unwrap();
        Self { dir, file }
    }

    fn store(&self) -> String {
        self.dir.path().join("db").display().to_string()
    }

    /// Loads the file into the dataset `d`.
    fn load(&self, more: &[&str]) -> Run {
        let (store, file) = (self.store(), self.file.display().to_string());
        esker(&[&["load", &store, "d", &file][..], more].concat())
    }

    fn count(&self) -> String {
        esker(&["count", &self.store(), "d"])
            .expect(0)
            .stdout
            .trim()
            .to_string()
    }

    fn keys(&self, condition: &str) -> Vec<String> {
        let find = [
            "find",
            &self.store(),
            "d",
            condition,
            "--oldest",
            "--keys-only",
        ];
        let found = esker(&find);
        found.stdout.lines().map(str::to_string).collect()
    }

    fn rows(&self) -> Vec<Value> {
        esker(&["scan", &self.store(), "d"]).rows()
    }

    /// The lines and reasons of the rejected lines.
    fn rejected(&self) -> Vec<(u64, String)> {
        let text = fs::read_to_string(rejected(&self.file)).unwrap_or_default();
        let entry = |line: &str| {
            let entry: Value = serde_json::from_str(line).unwrap();
            let reason = entry["reason"].as_str().unwrap().to_string();
            (entry["line"].as_u64().unwrap(), reason)
        };
        text.lines().map(entry).collect()
    }

    fn rejected_lines(&self) -> Vec<u64> {
        self.rejected().into_iter().map(|(line, _)| line).collect()
    }
}

fn rejected(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_os_string();
    name.push(".rejected");
    name.into()
}

#[track_caller]
fn says(run: &Run, what: &str) {
    assert!(run.stderr.contains(what), "{what}: {}", run.stderr);
}

#[test]
pub(crate) fn a_byte_order_mark_takes_no_record() {
    let two = "\u{FEFF}{\"code\":\"A7\",\"floor\":5}\n{\"code\":\"12\"}\n";
    let input = Input::new("a.ndjson", two);
    let run = input.load(&["--key", "code", "--index", "floor"]).expect(0);
    says(&run, "2 records loaded, 0 rejected");
    says(&run, "--key code:string --index floor:lazy:int");
    assert_eq!(input.keys("floor = 5"), ["A7"]);
    // Concatenated files, each with a byte order mark.
    let input = Input::new("a.ndjson", [two, two].concat().replace("12", "13"));
    input.load(&["--key", "code"]).expect(0);
    // UTF-16 as PowerShell writes it, as NDJSON and CSV.
    let utf16 = |text: &str, little: bool| -> Vec<u8> {
        let units = text.encode_utf16();
        units
            .flat_map(|unit| {
                if little {
                    unit.to_le_bytes()
                } else {
                    unit.to_be_bytes()
                }
            })
            .collect()
    };
    for little in [true, false] {
        let input = Input::new("a.ndjson", utf16(two, little));
        input.load(&["--key", "code"]).expect(0);
        assert_eq!(input.count(), "2");
        let input = Input::new("a.csv", utf16("\u{FEFF}id,n\n1,\u{1F600}\n2,b\n", little));
        input.load(&["--key", "id"]).expect(0);
        assert_eq!(input.rows()[0], json!({"id": 1, "n": "\u{1F600}"}));
    }
    let input = Input::new("a.csv", "\u{FEFF}id,n\r\n1,a\r\n");
    input.load(&["--key", "id"]).expect(0);
}

#[test]
pub(crate) fn an_array_is_read_as_records() {
    let shapes = [
        "[{\"id\":1},{\"id\":2},{\"id\":3}]",
        "[\n  {\"id\":1},\n  {\"id\":2},\n  {\"id\":3}\n]\n",
        "\n[\n{\"id\":1}\n,{\"id\":2}\n,{\"id\":3}]",
        "[\n  {\n    \"id\": 1\n  },\n  {\n    \"id\": 2, \"n\": [\n{\"id\": 7}\n]\n  },\n  {\"id\": 3}\n]",
        "\u{FEFF}[{\"id\":1},\r\n{\"id\":2},\r\n{\"id\":3}]\r\n",
    ];
    for text in shapes {
        let input = Input::new("a.json", text);
        let run = input.load(&["--key", "id"]).expect(0);
        says(&run, "3 records loaded, 0 rejected");
        says(&run, "the file is an array: its elements are the records");
        assert_eq!(input.count(), "3", "{text}");
    }
    // A line that is not a record is rejected with its number; the others are loaded.
    let text = "[\n  {\"id\":1},\n  {\"id\":2 bad},\n  {\"id\":3},\n  7,\n  {\"id\":4}\n]\n";
    let input = Input::new("a.json", text);
    let run = input.load(&["--key", "id"]).expect(2);
    says(&run, "3 records loaded, 2 rejected");
    assert_eq!(input.rejected_lines(), [3, 5]);
    // A truncated file.
    let input = Input::new("a.json", "[\n{\"id\":1},\n{\"id\":2},\n");
    input.load(&["--key", "id"]).expect(2);
    assert_eq!(input.count(), "2");
    assert!(input.rejected()[0].1.contains("cut off"));
    // Also from a stream, and into an existing dataset.
    let folder = input.dir.path().to_path_buf();
    let run = esker_fed(&["load", "db", "d", "-"], &folder, |stdin| {
        let _ = stdin.write_all(b"[{\"id\":8},\n {\"id\":9}]");
    });
    run.expect(0);
    assert_eq!(input.count(), "4");
    let run = esker_fed(&["put", "db", "d"], &folder, |stdin| {
        let _ = stdin.write_all(b"[{\"id\":10},\n {\"id\":11}]");
    });
    says(&run.expect(0), "an array: its elements are the records");
    assert_eq!(input.count(), "6");
}

#[test]
pub(crate) fn an_object_that_is_there_for_an_array_is_read_as_its_records() {
    let shapes = [
        "{\"Records\":[{\"id\":1},{\"id\":2}]}",
        "{\n  \"Records\": [\n    {\"id\": 1},\n    {\n      \"id\": 2\n    }\n  ]\n}\n",
    ];
    for text in shapes {
        let input = Input::new("a.json", text);
        let run = input.load(&["--key", "id"]).expect(0);
        says(&run, "the elements of `Records` are the records");
        assert_eq!(input.count(), "2");
    }
    let features = "{\"type\":\"Feature\",\"id\":1},\n{\"type\":\"Feature\",\"id\":2}";
    let shapes = [
        format!("{{\"type\":\"FeatureCollection\",\"features\":[{features}]}}"),
        format!("{{\"features\":[{features}],\"type\":\"FeatureCollection\"}}"),
        format!(
            "{{\n\"crs\":{{\"type\":\"name\"}},\n\"type\": \"FeatureCollection\",\n\"features\": [\n{features}\n]\n}}\n"
        ),
    ];
    for text in shapes {
        let input = Input::new("a.geojson", &text);
        let run = input.load(&["--key", "id"]).expect(0);
        says(&run, "FeatureCollection: its features are the records");
        assert_eq!(input.count(), "2", "{text}");
        assert_eq!(
            run.stderr.contains("not loaded: `crs`"),
            text.contains("crs")
        );
    }
    // One object per line, each with an array of records.
    let line = |id: u64| format!("{{\"Records\":[{{\"id\":{id}}},{{\"id\":{}}}]}}\n", id + 1);
    let input = Input::new("a.ndjson", line(1) + &line(3));
    input.load(&["--key", "id"]).expect(0);
    assert_eq!(input.count(), "4");
    // With further members it is unclear which array has the records.
    let input = Input::new(
        "a.json",
        "{\"count\":2,\"results\":[{\"id\":1},{\"id\":2}]}",
    );
    let run = input.load(&["--key", "id"]).expect(2);
    says(&run, "--records results");
    let input = Input::new("a.json", "{\"hits\":{\"total\":1,\"hits\":[{\"id\":1}]}}");
    says(
        &input.load(&["--key", "id"]).expect(2),
        "--records hits.hits",
    );
}

#[test]
fn records_at_a_path() {
    let text = "{\"count\":2,\"results\":[{\"id\":1},{\"id\":2}]}";
    let input = Input::new("a.json", text);
    let run = input
        .load(&["--key", "id", "--records", "results"])
        .expect(0);
    assert_eq!(input.count(), "2");
    says(&run, "not loaded: `count`");
    // Paths through arrays; one object per line, and objects over several lines.
    let line = |id: u64| {
        format!(
            "{{\"logs\":[{{\"scope\":{{\"records\":[{{\"id\":{id}}},\n{{\"id\":{}}}]}}}},{{\"scope\":{{\"records\":[{{\"id\":{}}}]}}}}]}}\n",
            id + 1,
            id + 2
        )
    };
    let input = Input::new("a.ndjson", line(1) + &line(4) + "{\"other\":1}\n");
    input
        .load(&["--key", "id", "--records", "logs.scope.records"])
        .expect(2);
    assert_eq!(input.count(), "6");
    assert_eq!(input.rejected_lines(), [5]);
    assert!(input.rejected()[0].1.contains("logs.scope.records"));
    // With `.` each value is a record.
    let text = "{\"Records\":[{\"id\":1}]}\n";
    let input = Input::new("a.json", text);
    input.load(&["--key", "auto", "--records", "."]).expect(0);
    assert_eq!(input.rows()[0]["Records"], json!([{"id": 1}]));
    let input = Input::new("a.csv", "id\n1\n");
    input.load(&["--key", "id", "--records", "x"]).expect(2);
}

#[test]
pub(crate) fn objects_over_lines_and_several_on_one() {
    let pretty = "{\n  \"id\": 1,\n  \"sub\": [\n    {\"id\": 9}\n  ]\n}\n{\n  \"id\": 2\n}\n";
    let input = Input::new("a.json", pretty);
    input.load(&["--key", "id"]).expect(0);
    assert_eq!(input.rows().len(), 2);
    // Anywhere in a file, also behind bad lines.
    let text = format!(
        "{{\"id\":11}}\n{{\"id\":12}} {{\"id\":13}}{{\"id\":14}}\n{pretty}nonsense\n{{\"id\": bad\n{{\"id\":15}},\n{{\"id\":16}}\n"
    );
    let input = Input::new("a.ndjson", &text);
    let run = input.load(&["--key", "id"]).expect(2);
    says(&run, "8 records loaded, 2 rejected");
    assert_eq!(input.rejected_lines(), [12, 13]);
    let strings = "{\"id\":1,\"s\":\"}{\"} {\"id\":2,\"s\":\"\\\"}\"}\n";
    let input = Input::new("a.ndjson", strings);
    input.load(&["--key", "id"]).expect(0);
    assert_eq!(input.count(), "2");
    let put = esker_fed(&["put", &input.store(), "d"], input.dir.path(), |stdin| {
        let _ =
            stdin.write_all(b"[{\"id\":3},\n{\"id\":4}]\n{\"id\":5} {\"id\":6}\n{\n\"id\":7}\n");
    });
    says(&put.expect(0), "put 5 records");
    // Record separators (RFC 8142), and commas.
    let input = Input::new(
        "a.geojsons",
        "\x1E{\"id\":1}\n\x1E{\"id\":2}\n\x1E{\n\"id\":3}\n",
    );
    input.load(&["--key", "id"]).expect(0);
    assert_eq!(input.count(), "3");
    // A broken record over several lines does not affect the other records.
    let text = "{\n \"id\": 1,\n \"a\": \"open\n}\n{\n \"id\": 2\n}\n{\n \"id\": 3,\n}\n{\n \"id\": 4\n}\n";
    let input = Input::new("a.json", text);
    input.load(&["--key", "id"]).expect(2);
    assert_eq!(input.rows(), [json!({"id": 2}), json!({"id": 4})]);
    assert_eq!(input.rejected_lines(), [1, 8]);
}

#[test]
pub(crate) fn quotes_of_csv_swallow_no_rows() {
    let text = "id,note\n1,\"monitor, 19 inch\n2,desk\n3,chair\n4,lamp\n";
    let input = Input::new("a.csv", text);
    let run = input.load(&["--key", "id"]).expect(2);
    says(&run, "3 records loaded, 1 rejected");
    assert_eq!(input.rejected_lines(), [2]);
    assert!(input.rejected()[0].1.contains("never closes"));
    let run = input.load(&["--strict"]).expect(2);
    says(
        &run,
        "line 2: the quote that opens here never closes (column `note`)",
    );

    let text = "id,note\n1,\"a\"b\n2,\"ok\nover\"\n3,\"open\n4,\"x\"\n5,\"two\n\"\"quotes\"\"\"\n6,5\" pipe\n7,\"x\n8,y\",z\n9,z\n";
    let input = Input::new("a.csv", text);
    input.load(&["--key", "id"]).expect(2);
    assert_eq!(input.rejected_lines(), [2, 5, 10, 11]);
    assert_eq!(input.keys("note is not null"), ["2", "4", "5", "6", "9"]);
    let multi = &input.rows()[0]["note"];
    assert_eq!(multi, "ok\nover");
}

#[test]
pub(crate) fn separators_of_csv_are_found_or_said() {
    for (name, text, by) in [
        ("a.csv", "id;name;price\n1;Anna;1,50\n2;Bert;2,75\n", "`;`"),
        ("a.csv", "id\tname\n1\ta\n2\tb\n", "tabs"),
        ("a.csv", "id|name\n1|a\n2|b\n", "`|`"),
        ("a.csv", "id;a,b;c,d\n1;x;y\n2;x;y\n", "`;`"),
    ] {
        let input = Input::new(name, text);
        let run = input.load(&["--key", "id"]).expect(0);
        says(&run, &format!("the columns are separated by {by}"));
        assert_eq!(input.count(), "2", "{text}");
    }
    let input = Input::new("a.tsv", "id\tname\n1\ta,b\n");
    let run = input.load(&["--key", "id"]).expect(0);
    assert!(!run.stderr.contains("separated"), "{}", run.stderr);
    assert_eq!(input.rows(), [json!({"id": 1, "name": "a,b"})]);
    let input = Input::new("a.csv", "sep=;\r\nid;name\r\n1;a,b\r\n");
    input.load(&["--key", "id"]).expect(0);
    assert_eq!(input.rows(), [json!({"id": 1, "name": "a,b"})]);
    let input = Input::new("a.txt", "id:name\n1:a\n");
    input.load(&["--key", "id", "--delimiter", ":"]).expect(0);
    assert_eq!(input.count(), "1");
    input.load(&["--delimiter", "::"]).expect(2);
    let input = Input::new("a.txt", "id,name\n1,a\n");
    let run = input.load(&["--key", "id"]).expect(2);
    says(&run, "--format csv");
}

#[test]
pub(crate) fn columns_and_rows_that_do_not_fit() {
    let input = Input::new("a.csv", ",a,a,\n1,2,3,\n4,5,6\n7,8,9,10\n11,12\n");
    let run = input.load(&["--key", "column_1"]).expect(2);
    says(&run, "column 1 has no name: it is called `column_1`");
    says(&run, "another column `a` is called `a_2`");
    let rows = [
        json!({"column_1": 1, "a": 2, "a_2": 3}),
        json!({"column_1": 4, "a": 5, "a_2": 6}),
        json!({"column_1": 7, "a": 8, "a_2": 9, "column_4": 10}),
    ];
    assert_eq!(input.rows(), rows);
    assert_eq!(input.rejected_lines(), [5]);
    // Separators behind the last column are ignored; a cell is an error.
    let input = Input::new("a.csv", "id,a\n1,2,,\n3,4,5\n6\n");
    input.load(&["--key", "id"]).expect(2);
    assert_eq!(input.rejected_lines(), [3, 4]);
}

#[test]
pub(crate) fn decimals_as_people_write_them() {
    let text = "trip,miles,phone\n1,1.10,+491701234567\n2,.50,\n3,-.5,\n4,5.,\n5,+3,\n";
    let input = Input::new("a.csv", text);
    input.load(&["--key", "trip"]).expect(0);
    assert_eq!(input.keys("miles < 1"), ["2", "3"]);
    assert_eq!(input.keys("miles >= 3"), ["4", "5"]);
    assert_eq!(input.rows()[0]["phone"], "+491701234567");
    let input = Input::new("a.csv", text);
    let index = "miles:composite:float";
    let run = input.load(&["--key", "trip", "--index", index]).expect(0);
    says(&run, "5 records loaded, 0 rejected");
    assert_eq!(input.keys("miles > 0.4"), ["1", "2", "4", "5"]);
}

#[test]
pub(crate) fn a_file_without_a_good_line_is_a_failure_that_keeps_the_lines() {
    for (name, text, lines) in [
        ("a.ndjson", "bad\n[]\n\"x\"\n", vec![1, 2, 3]),
        ("a.csv", "id,n\n1\n2\n", vec![2, 3]),
    ] {
        for types in [&["--key", "id"], &["--key", "id:int"]] {
            let input = Input::new(name, text);
            let run = input.load(types).expect(2);
            assert!(!run.stderr.contains("no records"), "{}", run.stderr);
            assert_eq!(input.rejected_lines(), lines, "{name} {types:?}");
            input
                .load(&[types, &["--allow-rejects"][..]].concat())
                .expect(2);
        }
    }
    let input = Input::new("a.ndjson", "\n");
    input.load(&["--key", "id"]).expect(0);
}

#[test]
pub(crate) fn the_exit_code_reports_rejected_lines() {
    let input = Input::new("a.ndjson", "{\"id\":1}\nbad\n{\"id\":2}\n");
    let run = input.load(&["--key", "id"]).expect(2);
    says(&run, "2 records loaded, 1 rejected");
    says(&run, "1 line was rejected");
    input.load(&["--allow-rejects"]).expect(0);
    assert!(rejected(&input.file).exists());
    // A load without rejected lines removes the file of rejected lines, but no other file of that
    // name.
    fs::write(&input.file, "{\"id\":1}\n{\"id\":3}\n").unwrap();
    input.load(&[]).expect(0);
    assert!(!rejected(&input.file).exists());
    fs::write(rejected(&input.file), "mine\n").unwrap();
    input.load(&[]).expect(0);
    assert!(rejected(&input.file).exists());
}

#[test]
pub(crate) fn a_load_says_how_many_records_it_replaced() {
    let input = Input::new(
        "a.ndjson",
        "{\"id\":\"a\",\"s\":1}\n{\"id\":\"a\",\"s\":2}\n{\"id\":\"b\"}\n{\"id\":\"b\"}\n",
    );
    let run = input.load(&["--key", "id"]).expect(0);
    says(&run, "4 records loaded, 0 rejected, 2 replaced");
    let run = input.load(&["--progress", "json"]).expect(0);
    says(&run, "\"replaced\":4");
    // Records with ascending keys replace none; a second load of them does, over several batches.
    let lines = |ids: &mut dyn Iterator<Item = u64>| -> String {
        ids.map(|id| format!("{{\"id\":{id}}}\n")).collect()
    };
    let input = Input::new("a.ndjson", lines(&mut (0..3500)));
    let run = input.load(&["--key", "id"]).expect(0);
    assert!(!run.stderr.contains("replaced"), "{}", run.stderr);
    fs::write(&input.file, lines(&mut (3000..5000).rev())).unwrap();
    let run = input.load(&[]).expect(0);
    says(&run, "2,000 records loaded, 0 rejected, 500 replaced");
    // Unordered keys, over several batches of a new dataset; they repeat after 4,001.
    let input2 = Input::new("b.ndjson", lines(&mut (0..5000).map(|at| at * 7919 % 4001)));
    says(&input2.load(&["--key", "id"]).expect(0), " 999 replaced");
    // Ordered keys at first, then unordered ones.
    let ids = (0..3000).chain((1500..4000).rev());
    let input2 = Input::new("b.ndjson", lines(&mut ids.into_iter()));
    says(&input2.load(&["--key", "id"]).expect(0), " 1,500 replaced");
    fs::write(
        &input.file,
        lines(&mut [9000, 9001, 9000, 8999, 9001].into_iter()),
    )
    .unwrap();
    says(&input.load(&[]).expect(0), "2 replaced");
}

#[test]
fn a_key_of_several_fields_is_a_json_array() {
    let text = "{\"c\":\"x\",\"at\":{\"i\":10}}\n{\"c\":\"x\",\"at\":{\"i\":2}}\n{\"c\":\"x\"}\n{\"c\":\"w\",\"at\":{\"i\":\"2\"}}\n";
    let input = Input::new("a.ndjson", text);
    let store = input.store();
    let run = input.load(&["--key", "c,at.i"]).expect(2);
    says(&run, "dataset `d` is new: --key c,at.i\n");
    assert!(
        input.rejected()[0].1.contains("the key at.i is missing"),
        "{:?}",
        input.rejected()
    );
    // Ordered by the fields; numbers by value.
    let keys = esker(&["scan", &store, "d", "--keys-only"])
        .expect(0)
        .stdout;
    assert_eq!(keys, "[\"w\",\"2\"]\n[\"x\",2]\n[\"x\",10]\n");
    let get = esker(&["get", &store, "d", "[\"x\", 2]"]).expect(0);
    assert_eq!(get.rows(), [json!({"c": "x", "at": {"i": 2}})]);
    esker(&["get", &store, "d", "[\"x\",\"2\"]"]).expect(1);
    // A condition on the first fields reads only their records.
    for (condition, scan, found) in [
        ("c = x and at.i = 2", "the records of 2 keys", 1),
        ("c = x", "the records in a range of keys", 2),
        ("at.i = 2", "all records", 2),
    ] {
        let run = esker(&["find", &store, "d", condition, "--explain=text"]).expect(0);
        says(&run, scan);
        assert_eq!(run.rows().len(), found, "{condition}");
    }
    says(&esker(&["get", &store, "d", "x"]).expect(2), "a JSON array");
    let changes = esker(&["changes", &store, "d"]).expect(0).rows();
    assert_eq!(changes[0]["key"], json!(["x", 10]));
    assert_eq!(input.keys("c = x"), ["[\"x\",10]", "[\"x\",2]"]);
    esker(&["delete", &store, "d", "[\"x\",2]"]).expect(0);
    let fed = esker_fed(&["delete", &store, "d", "-"], input.dir.path(), |stdin| {
        let _ = stdin.write_all(b"[\"x\",10]\n");
    });
    fed.expect(0);
    assert_eq!(input.count(), "1");
    // A second load; `create` makes such a dataset, too.
    input
        .load(&["--key", "c,at.i", "--allow-rejects"])
        .expect(0);
    input.load(&["--key", "c"]).expect(2);
    esker(&["create", &store, "e", "--key", "a,b"]).expect(0);
    esker(&["check", &store]).expect(0);
    let run = esker(&["create", &store, "f", "--key", "a,a"]).expect(2);
    says(&run, "each field only once");
    let table = Input::new("a.csv", "c,i,v\nx,1,a\nx,2,b\nx,1,c\n");
    says(&table.load(&["--key", "c,i"]).expect(0), "1 replaced");
    assert_eq!(table.keys("v = c"), ["[\"x\",1]"]);
    // The same in Rust.
    let db = esker::Database::open(&store, esker::Options::default()).unwrap();
    let dataset = db.dataset::<esker::Key>("d").unwrap();
    let key = dataset.parse_key("[\"x\",10]").unwrap();
    assert_eq!(
        dataset.get(&key).unwrap().unwrap().key().to_string(),
        "[\"x\",10]"
    );
}

#[test]
fn a_key_that_is_made() {
    let text = "{\"a\":1}\n{}\n{\"_id\":\"mine\"}\n  {\"a\":2}\n";
    let input = Input::new("a.ndjson", text);
    let run = input.load(&["--key", "auto"]).expect(0);
    says(&run, "dataset `d` is new: --key auto\n");
    let keys: Vec<String> = input
        .rows()
        .iter()
        .map(|row| row["_id"].as_str().unwrap().to_string())
        .collect();
    assert_eq!((keys.len(), keys[3].as_str()), (4, "mine"));
    // UUIDs of version 7, in ascending order.
    assert!(keys.is_sorted(), "{keys:?}");
    for key in &keys[..3] {
        let is_uuid = key.len() == 36 && &key[14..15] == "7" && "89ab".contains(&key[19..20]);
        assert!(is_uuid, "{key}");
    }
    // It is a property of the dataset: later loads and `put` do not need the option.
    input.load(&[]).expect(0);
    let put = esker_fed(&["put", &input.store(), "d"], input.dir.path(), |stdin| {
        let _ = stdin.write_all(b"{\"b\":1}\n");
    });
    put.expect(0);
    assert_eq!(input.count(), "8");
    let input = Input::new("a.csv", "a,b\n1,2\n3,4\n");
    input.load(&["--key", "auto"]).expect(0);
    assert_eq!(input.count(), "2");
    // In other datasets a record without a key is refused.
    let input = Input::new("a.ndjson", "{\"_id\":\"x\"}\n{}\n");
    input.load(&["--key", "_id"]).expect(2);
}

#[test]
pub(crate) fn types_are_those_of_most_records() {
    let bytes: Vec<String> = (0..40).map(|byte| byte.to_string()).collect();
    let text: String = (0..9)
        .map(|id| match id {
            4 => format!("{{\"id\":{id},\"m\":[{}]}}\n", bytes.join(",")),
            _ => format!("{{\"id\":{id},\"m\":\"text\"}}\n"),
        })
        .collect();
    let input = Input::new("a.ndjson", text);
    let run = input.load(&["--key", "id", "--index", "m"]).expect(2);
    says(&run, "--index m:lazy:string");
    says(&run, "8 records loaded, 1 rejected");
    says(
        &run,
        "most of the first 9 records have a value of type string at `m`; 1 has one of another type",
    );
}

#[test]
pub(crate) fn compressed_files_with_members_padding_and_cut_ends() {
    let text: String = (0..2000).map(|id| format!("{{\"id\":{id}}}\n")).collect();
    let gzip = |text: &str| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    };
    let zstd = |text: &str| zstd::stream::encode_all(text.as_bytes(), 3).unwrap();
    let (first, second) = text.split_at(5003);
    let skippable = [&[0x50, 0x2A, 0x4D, 0x18, 3, 0, 0, 0][..], b"abc"].concat();
    let whole = [
        ("a.ndjson.gz", [gzip(first), gzip(second)].concat()),
        (
            "a.ndjson.gz",
            [gzip(first), gzip(""), gzip(second), vec![0; 700]].concat(),
        ),
        (
            "a.ndjson.zst",
            [zstd(first), skippable, zstd(second)].concat(),
        ),
        (
            "a.ndjson.zst",
            [zstd(first), zstd(second), vec![0; 700]].concat(),
        ),
    ];
    for (name, bytes) in whole {
        let input = Input::new(name, bytes);
        input.load(&["--key", "id"]).expect(0);
        assert_eq!(input.count(), "2000", "{name}");
    }
    for (name, bytes) in [("a.ndjson.gz", gzip(&text)), ("a.ndjson.zst", zstd(&text))] {
        let input = Input::new(name, &bytes[..bytes.len() - 9]);
        let run = input.load(&["--key", "id:int"]).expect(2);
        says(&run, "is cut off");
        let input = Input::new(name, [&bytes[..], b"garbage"].concat());
        let run = input.load(&["--key", "id:int"]).expect(2);
        says(&run, "other data follows the end of its");
        assert_eq!(input.count(), "2000", "{name}");
    }
    for (name, bytes, what) in [
        ("a.bz2", &b"BZh91AY&SY"[..], "bzip2 -dc"),
        ("a.xz", b"\xFD7zXZ\0\0\x04", "xz -dc"),
        ("a", b"\x04\x22\x4D\x18dd", "lz4 -dc"),
        ("a.zip", b"PK\x03\x04\x14\0", "a zip archive"),
        ("a.ndjson.br", b"\x0b\x02\x80", "brotli -dc"),
        ("a.parquet", b"PAR1\x15\x04", "a Parquet file"),
        ("a.tar", b"a.json\0\0\0", "a tar archive"),
    ] {
        let input = Input::new(name, bytes);
        let run = input.load(&["--key", "id"]).expect(2);
        says(&run, what);
    }
}

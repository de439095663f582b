//! `fields`, the notes on conditions that are mistaken, and tables on terminals.

use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::common::{Run, esker, esker_fed};

const RECORDS: &str = concat!(
    "{\"id\": 1, \"user\": {\"name\": \"ann\"}, \"ms\": 12, \"tags\": [\"new\"]}\n",
    "{\"id\": 2, \"user\": {\"name\": \"bob\"}, \"ms\": 2.5, \"note\": null}\n",
    "{\"id\": 3, \"ms\": 40, \"name\": \"",
    "a name that is much too long for a column of a terminal, and longer still\"}\n",
);

struct Store(TempDir);

impl Store {
    fn new() -> Store {
        let store = Store(tempfile::tempdir().unwrap());
        store.fed("load", &["visits", "-", "--key", "id"], RECORDS);
        store
    }

    fn dir(&self) -> String {
        self.0.path().join("db").display().to_string()
    }

    fn run(&self, verb: &str, args: &[&str]) -> Run {
        esker(&[&[verb, self.dir().as_str()][..], args].concat())
    }

    fn fed(&self, verb: &str, args: &[&str], input: &str) {
        let dir = self.dir();
        let args = [&[verb, dir.as_str()][..], args].concat();
        let run = esker_fed(&args, self.0.path(), |stdin| {
            let _ = std::io::Write::write_all(stdin, input.as_bytes());
        });
        run.expect(0);
    }
}

#[test]
pub(crate) fn fields_are_listed_with_their_types() {
    let store = Store::new();
    let listed = store.run("fields", &["visits"]).expect(0).stdout;
    let expected = [
        "id         int",
        "ms         int, float",
        "name       text",
        "note       null",
        "tags       array",
        "tags[]     text",
        "user       object",
        "user.name  text",
        "",
    ];
    assert_eq!(listed, expected.join("\n"));
    let document = store.run("fields", &["visits", "--json"]).expect(0).stdout;
    let document: Value = serde_json::from_str(&document).unwrap();
    assert_eq!(document["more"], json!(false));
    assert_eq!(
        document["fields"][1],
        json!({"path": "ms", "types": ["int", "float"]})
    );
    // They follow the records: at once with new ones, after a compaction without old ones.
    store.fed("put", &["visits"], "{\"id\": 2, \"new\": true}\n");
    let listed = store.run("fields", &["visits"]).expect(0).stdout;
    assert!(
        listed.contains("new        bool\nnote       null"),
        "{listed}"
    );
    store.run("compact", &[]).expect(0);
    let listed = store.run("fields", &["visits"]).expect(0).stdout;
    assert!(
        !listed.contains("note") && listed.contains("ms         int\n"),
        "{listed}"
    );
    store.run("fields", &["vists"]).expect(2);
}

#[test]
pub(crate) fn conditions_that_cannot_hold_are_noted() {
    let store = Store::new();
    for (condition, code, noted) in [
        (
            "usr.name = ann",
            1,
            "no record has the field `usr.name`: did you mean `user.name`?",
        ),
        // Also where others of its parts are met.
        (
            "ms > 3 or usr = ann",
            0,
            "no record has the field `usr`: did you mean `user`?",
        ),
        (
            "not nme = ann",
            0,
            "no record has the field `nme`: did you mean `name`?",
        ),
        (
            "ms = ann",
            1,
            "all values of `ms` are numbers, and `ann` is text",
        ),
        (
            "ms = 2026-01-01",
            1,
            "all values of `ms` are numbers, and `2026-01-01` is text",
        ),
        (
            "ms = \"12\"",
            1,
            "and \"12\" in quotes is text: write it without quotes",
        ),
        (
            "id = 1 or ms in (ann, 12)",
            0,
            "all values of `ms` are numbers, and `ann` is text",
        ),
        (
            "user = ann",
            1,
            "`user` holds objects: did you mean `user.name`?",
        ),
        // The key has its type, too.
        (
            "id = ann",
            1,
            "all values of `id` are numbers, and `ann` is text",
        ),
        (
            "id = \"1\"",
            1,
            "and \"1\" in quotes is text: write it without quotes",
        ),
        (
            "ms = 12 or id in (3, bob)",
            0,
            "all values of `id` are numbers, and `bob` is text",
        ),
    ] {
        let run = store.run("find", &["visits", condition]).expect(code);
        assert!(run.stderr.contains(noted), "{condition}: {}", run.stderr);
        let run = store
            .run("count", &["visits", "--where", condition])
            .expect(0);
        assert!(run.stderr.contains(noted), "{condition}: {}", run.stderr);
        let run = store.run("aggregate", &["visits", "count", condition]);
        assert!(run.stderr.contains(noted), "{condition}: {}", run.stderr);
    }
    for condition in [
        "ms > 100",
        "ms = 12",
        "tags = new",
        "name = x or ms = 40",
        "not note exists",
        "id = 1",
        "id in (1, 77)",
        "id > 100 or ms = 12",
    ] {
        let run = store.run("find", &["visits", condition]);
        let said = run
            .stderr
            .replace("note: no index", "")
            .replace("note: the scan", "");
        assert!(!said.contains("note: "), "{condition}: {said}");
    }
}

#[test]
pub(crate) fn an_order_by_no_field_or_in_no_direction_is_noted() {
    let store = Store::new();
    let noted = "no record has the field `usr.name`: did you mean `user.name`?";
    for asked in [
        &["find", "--order", "usr.name"][..],
        &["find", "--order", "ms:desc,usr.name:asc", "--limit", "1"],
        &["find", "ms > 3", "--order", "usr.name", "--keys-only"],
        &["lookup", "ms", "12", "--order", "usr.name"],
        &["aggregate", "count", "--by", "usr.name"],
        &["aggregate", "max(usr.name)"],
    ] {
        let (verb, rest) = asked.split_first().unwrap();
        let run = store.run(verb, &[&["visits"], rest].concat()).expect(0);
        assert_eq!(
            run.stderr.matches(noted).count(),
            1,
            "{asked:?}: {}",
            run.stderr
        );
    }
    // Also beside an answer without records.
    for condition in ["ms > 100", "usr.name = ann"] {
        let asked = ["visits", condition, "--order", "usr.name"];
        let run = store.run("find", &asked).expect(1);
        assert_eq!(run.stderr.matches(noted).count(), 1, "{}", run.stderr);
    }
    for order in ["ms", "name", "user.name:desc", "tags", "key", "newest"] {
        let run = store.run("find", &["visits", "--order", order]).expect(0);
        assert_eq!(run.stderr, "", "{order}");
    }
    for (verb, order) in [
        ("find", "user.name:up"),
        ("find", "ms:desc,user.name:up"),
        ("aggregate", "count:up"),
    ] {
        let mut args = vec!["visits", "--order", order];
        if verb == "aggregate" {
            args.insert(1, "count");
        }
        let run = store.run(verb, &args).expect(2);
        let said = "`up` is no direction: use `asc` or `desc`";
        assert!(run.stderr.contains(said), "{order}: {}", run.stderr);
    }
    // Such a field is named with a backslash.
    store.fed("put", &["visits"], "{\"id\": 9, \"user:up\": 1}\n");
    let asked = ["visits", "--order", r"user\:up"];
    let run = store.run("find", &asked).expect(0);
    assert_eq!((run.ids()[0], run.stderr.as_str()), (9, ""));
}

/// Runs a command with a terminal of so many columns as its standard output.
fn on_a_terminal(columns: usize, args: &[&str]) -> Option<String> {
    let quoted: Vec<String> = args.iter().map(|arg| format!("'{arg}'")).collect();
    let command = format!(
        "stty cols {columns}; {} {} 2>/dev/null",
        env!("CARGO_BIN_EXE_esker"),
        quoted.join(" ")
    );
    let script = Command::new("script")
        .args(["-qec", &command, "/dev/null"])
        .env("NO_COLOR", "1")
        .stdin(std::process::Stdio::null())
        .output();
    match script {
        Ok(output) => Some(String::from_utf8(output.stdout).unwrap().replace('\r', "")),
        Err(_) => {
            eprintln!("there is no script(1) here: nothing was tested on a terminal");
            None
        }
    }
}

#[test]
fn several_records_are_a_table_on_a_terminal() {
    let store = Store::new();
    let dir = store.dir();
    let find = ["find", &dir, "visits", "ms > 3", "--order", "key"];
    let select = [&find[..], &["--select", "id,ms,name"]].concat();
    let Some(table) = on_a_terminal(40, &select) else {
        return;
    };
    let expected = [
        "id  ms  name",
        " 1  12",
        " 3  40  a name that is much too long fo\u{2026}",
        "",
    ];
    assert_eq!(table, expected.join("\n"));
    let wide = on_a_terminal(40, &[&select[..], &["--width", "100"]].concat()).unwrap();
    assert!(wide.contains("longer still"), "{wide}");
    // The form that is asked for, and single records, are as ever.
    let asked = on_a_terminal(40, &[&find[..], &["--format", "ndjson"]].concat()).unwrap();
    assert_eq!(asked, store.run("find", &find[2..]).stdout);
    let single = on_a_terminal(40, &["get", &dir, "visits", "3"]).unwrap();
    assert_eq!(single, store.run("get", &["visits", "3"]).stdout);
}

#[test]
fn a_width_is_kept_where_there_is_no_terminal() {
    let store = Store::new();
    let table = ["visits", "--format", "table", "--select", "id,name"];
    let narrow = store.run("scan", &[&table[..], &["--width", "20"]].concat());
    let narrow = narrow.expect(0).stdout;
    assert!(narrow.contains(" 3  a name that is\u{2026}"), "{narrow}");
    assert!(
        narrow.lines().all(|line| line.chars().count() <= 20),
        "{narrow}"
    );
    let usual = store.run("scan", &table).expect(0).stdout;
    assert!(usual.ends_with("a column of a\u{2026}\n"), "{usual}");
    store.run("scan", &["visits", "--width", "3"]).expect(2);
}

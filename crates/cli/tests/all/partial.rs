//! `esker update`, `put --merge` and `delete --where`: partial changes of records, and deletion by
//! a condition.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used
)]

use crate::common::{Run, esker, esker_fed};
use serde_json::{Value, json};

struct Room(tempfile::TempDir);

impl Room {
    fn store(&self) -> String {
        self.0.path().join("store").display().to_string()
    }

    /// Feeds lines to a command.
    fn feed(&self, args: &[&str], lines: &str) -> Run {
        let lines = lines.to_string();
        esker_fed(args, self.0.path(), move |input| {
            input.write_all(lines.as_bytes()).unwrap();
        })
    }

    fn get(&self, key: &str) -> Value {
        esker(&["get", &self.store(), "d", key]).expect(0).rows()[0].clone()
    }

    fn update(&self, args: &[&str]) -> Run {
        esker(&[&["update", &self.store(), "d"], args].concat())
    }

    fn count(&self, args: &[&str]) -> String {
        esker(&[&["count", &self.store(), "d"], args].concat())
            .expect(0)
            .stdout
    }
}

/// A dataset with these records, and indexes of strings and numbers.
fn room(records: &str) -> Room {
    let room = Room(tempfile::tempdir().unwrap());
    let store = room.store();
    let args = [
        "create",
        &store,
        "d",
        "--key",
        "id:int",
        "--index",
        "name:lazy:string",
    ];
    esker(&[&args[..], &["--index", "n:composite:int"]].concat()).expect(0);
    room.feed(&["put", &store, "d"], records).expect(0);
    room
}

#[test]
pub(crate) fn fields_of_a_record_are_set_and_taken_away() {
    let room = room(
        "{\"id\":7, \"name\":\"ann\", \"at\":{\"city\":\"Oslo\",\"zip\":\"0150\"}, \"nick\":\"a\", \"big\":12345678901234567890123.50}\n",
    );
    let done = room
        .update(&[
            "7",
            "name=007",
            "at.zip=150",
            "nick=null",
            "tags=[\"x\", 1]",
            "new.a.b=two words",
            "n=-5",
            "q=\"4\"",
        ])
        .expect(0);
    assert_eq!(done.stderr, "updated the record with key 7\n");
    let got = esker(&["get", &room.store(), "d", "7"]).expect(0);
    assert_eq!(
        got.stdout,
        "{\"id\":7,\"name\":\"007\",\"at\":{\"city\":\"Oslo\",\"zip\":150},\"big\":12345678901234567890123.50,\"tags\":[\"x\", 1],\"new\":{\"a\":{\"b\":\"two words\"}},\"n\":-5,\"q\":\"4\"}\n"
    );
    // The indexes are updated.
    assert_eq!(room.count(&["--where", "name = 007 and n < 0"]), "1\n");
    // In a declared string field any value is text, except null.
    room.update(&["7", "name=true"]).expect(0);
    assert_eq!(room.get("7")["name"], "true");
    room.update(&["7", "name=\"null\""]).expect(0);
    assert_eq!(room.get("7")["name"], "null");
    room.update(&["7", "name=null", "empty=", "eq=a=b"])
        .expect(0);
    let record = room.get("7");
    assert_eq!(
        (record.get("name"), &record["empty"], &record["eq"]),
        (None, &json!(""), &json!("a=b"))
    );
    // A name with a dot or an equals sign.
    room.update(&["7", "a\\.b=1", "c\\=d=2"]).expect(0);
    let record = room.get("7");
    assert_eq!((&record["a.b"], &record["c=d"]), (&json!(1), &json!(2)));
}

#[test]
fn an_update_that_does_not_fit_changes_nothing() {
    let record = "{\"id\":7,\"name\":\"ann\",\"n\":1,\"tags\":[{\"t\":1}]}\n";
    let room = room(record);
    for (args, code, said) in [
        (vec!["8", "n=1"], 1, "no record with key 8"),
        (vec!["x", "n=1"], 2, "not of type int"),
        (vec!["7", "n"], 2, "`n` is not FIELD=VALUE"),
        (vec!["7", "=1"], 2, "`=1` is not FIELD=VALUE"),
        (vec!["7", "n=2", "n=ten"], 2, "field n must be of type int"),
        (vec!["7", "id=8"], 2, "has another key, 8"),
        (vec!["7", "id=null"], 2, "the key id is missing"),
        (
            vec!["7", "tags.t=2"],
            2,
            "`tags.t` cannot be set: `tags` holds an array; give `tags` as a whole",
        ),
        (vec!["7", "name.first=x"], 2, "`name` holds a string"),
        (vec!["7"], 2, "FIELD=VALUE"),
    ] {
        let refused = room.update(&args).expect(code);
        assert!(
            refused.stderr.contains(said),
            "{args:?}: {}",
            refused.stderr
        );
    }
    let got = esker(&["get", &room.store(), "d", "7"]).expect(0);
    assert_eq!(got.stdout, record);
}

#[test]
pub(crate) fn lines_are_merged_into_records() {
    let room =
        room("{\"id\":1,\"name\":\"ann\",\"at\":{\"a\":1,\"b\":2}}\n{\"id\":2,\"name\":\"bob\"}\n");
    let store = room.store();
    let lines = "{\"id\":1,\"at\":{\"a\":null,\"c\":3},\"n\":5}\n\
                 {\"id\":1,\"n\":6,\"name\":null}\n\
                 {\"id\":3,\"n\":null,\"name\":\"cid\"}\n\
                 {\"n\":4}\n\
                 [1]\n\
                 {\"id\":2,\"n\":\"two\"}\n\
                 {\"id\":3,\"n\":9}\n";
    let done = room.feed(&["put", &store, "d", "--merge"], lines).expect(2);
    assert!(done.stderr.contains("put 4 records"), "{}", done.stderr);
    for said in [
        "line 4: the key id is missing",
        "line 5: ",
        "line 6: record 2: field n must be",
        "3 lines were not put",
    ] {
        assert!(done.stderr.contains(said), "{said}: {}", done.stderr);
    }
    assert_eq!(room.get("1"), json!({"id":1,"at":{"b":2,"c":3},"n":6}));
    assert_eq!(room.get("2"), json!({"id":2,"name":"bob"}));
    assert_eq!(room.get("3"), json!({"id":3,"name":"cid","n":9}));
    // Over several batches; each line applies to the result of the lines before it.
    let many: String = (0..5000)
        .map(|i| format!("{{\"id\":{},\"f{}\":{i}}}\n", i % 2 + 1, i % 10))
        .collect();
    room.feed(&["put", &store, "d", "--merge"], &many).expect(0);
    let (one, two) = (room.get("1"), room.get("2"));
    assert_eq!(
        (&one["f8"], &two["f9"], &one["at"]),
        (&json!(4998), &json!(4999), &json!({"b":2,"c":3}))
    );
    // Without --merge a record replaces.
    room.feed(&["put", &store, "d"], "{\"id\":1,\"n\":1}\n")
        .expect(0);
    assert_eq!(room.get("1"), json!({"id":1,"n":1}));
}

#[test]
fn records_are_deleted_by_a_condition() {
    let records: String = (0..5500)
        .map(|id| {
            format!(
                "{{\"id\":{id},\"name\":\"{}\",\"n\":{},\"m\":{}}}\n",
                ["ann", "bob"][id % 2],
                id % 11,
                id % 5
            )
        })
        .collect();
    let room = room(&records);
    let store = room.store();
    let delete =
        |args: &[&str], code| esker(&[&["delete", &store, "d"], args].concat()).expect(code);
    // By an index, by a scan, and by two conditions that must both hold.
    let done = delete(&["--where", "name = ann"], 0);
    assert_eq!(done.stderr, "deleted 2,750 records\n");
    let done = delete(&["--where", "m = 1"], 0);
    assert!(
        done.stderr.contains("deleted 550 records"),
        "{}",
        done.stderr
    );
    assert!(done.stderr.contains("no index on `m`"), "{}", done.stderr);
    delete(&["--where", "n >= 6", "--where", "m = 0 or m = 2"], 0);
    assert_eq!(room.count(&[]), "1700\n");
    assert_eq!(room.count(&["--where", "name = ann"]), "0\n");
    // A second time: no record is left, which is not a failure.
    let done = delete(&["--where", "name = ann"], 0);
    assert_eq!(done.stderr, "deleted 0 records\n");
    let done = delete(&["--where", "nam = ann"], 0);
    assert!(
        done.stderr.contains("did you mean `name`?"),
        "{}",
        done.stderr
    );
    let refused = delete(&["--where", "name ="], 2);
    assert!(!refused.stderr.contains("deleted"), "{}", refused.stderr);
    delete(&["--where", "n = 1", "7"], 2);
    delete(&[], 2);
    assert_eq!(room.count(&[]), "1700\n");
    delete(&["--where", "id exists"], 0);
    assert_eq!(room.count(&[]), "0\n");
    esker(&["check", &store]).expect(0);
}

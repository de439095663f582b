//! Everyday use: pages, notes about scans, distances and cells, durations and sizes, singular and
//! plural.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used
)]

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::common::{Run, command, esker, esker_fed};
use serde_json::{Value, json};

struct Room(tempfile::TempDir);

impl Room {
    fn store(&self) -> String {
        self.0.path().join("store").display().to_string()
    }

    fn feed(&self, args: &[&str], lines: &str) -> Run {
        let lines = lines.to_string();
        esker_fed(args, self.0.path(), move |input| {
            // A command that refuses its arguments does not read its input.
            let _ = input.write_all(lines.as_bytes());
        })
    }

    /// Runs `esker VERB STORE d ...`.
    fn run(&self, verb: &str, args: &[&str]) -> Run {
        esker(&[&[verb, &self.store(), "d"], args].concat())
    }
}

fn room(indexes: &[&str], records: &str) -> Room {
    let room = Room(tempfile::tempdir().unwrap());
    let store = room.store();
    let mut args = vec!["create", &store, "d", "--key", "id:int"];
    args.extend(indexes.iter().flat_map(|index| ["--index", index]));
    esker(&args).expect(0);
    room.feed(&["put", &store, "d"], records).expect(0);
    room
}

fn numbered(records: u64) -> String {
    let line = |id| {
        format!(
            "{{\"id\":{id},\"kind\":\"{}\",\"n\":{}}}\n",
            ["a", "b"][id as usize % 2],
            id % 10
        )
    };
    (0..records).map(line).collect()
}

/// The token in the last line on standard error.
fn token(run: &Run) -> Option<String> {
    let line = run.stderr.lines().last()?;
    Some(line.split_once("--after ")?.1.to_string())
}

#[test]
pub(crate) fn pages_go_on_where_the_last_one_ended() {
    let room = room(&["kind:lazy:string"], &numbered(95));
    for (condition, order, all) in [
        (
            "kind = a",
            "newest",
            (0..95).rev().step_by(2).collect::<Vec<i64>>(),
        ),
        ("kind = a", "oldest", (0..95).step_by(2).collect()),
        ("kind = a", "key", (0..95).step_by(2).collect()),
        ("kind = a", "n:desc,id:desc", {
            let mut all: Vec<i64> = (0..95).rev().step_by(2).collect();
            all.sort_by_key(|id| -(id % 10));
            all
        }),
        // Without an index.
        (
            "n = 3",
            "newest",
            (0..95).rev().filter(|id| id % 10 == 3).collect(),
        ),
    ] {
        for keys_only in [false, true] {
            let (mut found, mut after, mut pages) = (Vec::new(), None, 0);
            loop {
                let mut args = vec![condition, "--order", order, "--limit", "4"];
                args.extend(keys_only.then_some("--keys-only"));
                args.extend(after.as_ref().map(|_| "--after"));
                args.extend(after.as_deref());
                let run = room.run("find", &args);
                assert!(run.code <= 1, "{run:?}");
                if keys_only {
                    found.extend(run.stdout.lines().map(|line| line.parse::<i64>().unwrap()));
                } else {
                    found.extend(run.ids());
                }
                pages += 1;
                after = token(&run);
                if after.is_none() {
                    break;
                }
            }
            assert_eq!(found, all, "{condition} {order}");
            assert!(pages > 2);
        }
    }
    // `lookup`, `range` and `within` have pages, too; no particular order has none.
    let first = room.run("lookup", &["kind", "a", "--limit", "2"]).expect(0);
    let next = room
        .run(
            "lookup",
            &[
                "kind",
                "a",
                "--limit",
                "2",
                "--after",
                &token(&first).unwrap(),
            ],
        )
        .expect(0);
    assert_eq!((first.ids(), next.ids()), (vec![94, 92], vec![90, 88]));
    let refused = room
        .run("find", &["kind = a", "--order", "any", "--after", "7"])
        .expect(2);
    assert!(
        refused
            .stderr
            .contains("--after needs another order than any"),
        "{}",
        refused.stderr
    );
    let refused = room.run("find", &["kind = a", "--after", "x"]).expect(2);
    assert!(refused.stderr.contains("not a token"), "{}", refused.stderr);
    // A complete answer has no next page.
    let all = room
        .run("find", &["kind = a and n = 2", "--limit", "50"])
        .expect(0);
    assert_eq!(token(&all), None, "{}", all.stderr);
}

#[test]
fn a_scan_says_what_it_read_and_how_it_would_read_less() {
    let room = room(&["kind:lazy:string"], &numbered(300));
    let run = room.run("find", &["n = 3", "--limit", "2"]).expect(0);
    assert!(
        run.stderr.contains("note: no index on `n`: answered by a scan\nnote: the scan read 300 records; with --order any it would stop at the first 2 matches\n"),
        "{}", run.stderr
    );
    let run = room
        .run("find", &["n = 3", "--limit", "1", "--keys-only"])
        .expect(0);
    assert!(
        run.stderr
            .contains("with --order any it would stop at the first match\n"),
        "{}",
        run.stderr
    );
    let run = room
        .run("find", &["n = 3", "--limit", "2", "--order", "any"])
        .expect(0);
    assert!(
        run.stderr.contains("note: the scan read 14 records\n"),
        "{}",
        run.stderr
    );
    for args in [vec!["n = 3"], vec!["n = 3", "--order", "key"]] {
        let run = room.run("find", &args).expect(0);
        assert!(
            run.stderr.contains("note: the scan read 300 records\n"),
            "{}",
            run.stderr
        );
    }
    let run = room.run("find", &["n = 3", "--explain=text"]).expect(0);
    assert!(
        run.stderr.contains("scan of all records: 300 were read\n"),
        "{}",
        run.stderr
    );
    let run = room.run("count", &["--where", "n = 3"]).expect(0);
    assert!(
        run.stderr.contains("note: the scan read 300 records\n"),
        "{}",
        run.stderr
    );
    // With an index, few keys or no condition there is no note.
    for args in [
        ["kind = a", "--limit=2000"],
        ["id in (5, 7)", "--limit=3"],
        ["id = 5 or id = 7", "--limit=3"],
    ] {
        let run = room.run("find", &args).expect(0);
        assert_eq!(run.stderr, "", "{args:?}");
    }
}

const STOPS: &str = "{\"id\":1,\"at\":[2.336,48.861]}\n{\"id\":2,\"at\":[2.369,48.853],\"distance\":7}\n{\"id\":3,\"at\":[180,90]}\n{\"id\":4,\"at\":[-180,-90]}\n{\"id\":5,\"at\":[-176,89]}\n";

#[test]
pub(crate) fn the_nearest_are_printed_with_their_distances() {
    let room = room(&["at:spatial"], STOPS);
    let near = room
        .run("near", &["at", "2.336,48.861", "--k", "2"])
        .expect(0);
    let rows = near.rows();
    assert_eq!(near.ids(), [1, 2]);
    assert_eq!(rows[0]["distance"], json!(0));
    // About 2.6 km, by any great-circle formula.
    let metres = rows[1]["_distance"].as_f64().unwrap();
    assert!((2500.0..2700.0).contains(&metres), "{metres}");
    assert_eq!(rows[1]["distance"], 7);
    assert!(
        near.stdout
            .starts_with("{\"id\":1,\"at\":[2.336,48.861],\"distance\":0}\n"),
        "{}",
        near.stdout
    );
    let csv = room
        .run(
            "near",
            &["at", "2.336,48.861", "--k", "1", "--format", "csv"],
        )
        .expect(0);
    assert_eq!(csv.stdout, "id,at,distance\n1,\"[2.336,48.861]\",0\n");
    let keys = room
        .run("near", &["at", "2.336,48.861", "--k", "2", "--keys-only"])
        .expect(0);
    assert_eq!(keys.stdout, "1\n2\n");
    let within = room
        .run(
            "within",
            &["at", "--circle=2.336,48.861,9000", "--order", "distance"],
        )
        .expect(0);
    assert_eq!(within.rows()[0]["distance"], json!(0));
}

#[test]
pub(crate) fn a_point_without_an_index_is_noted() {
    let room = room(
        &["lon,lat:spatial"],
        "{\"id\":1,\"lon\":2.3,\"lat\":48.8}\n",
    );
    let run = room
        .run("near", &["lat,lon", "2.3,48.8", "--k", "1"])
        .expect(0);
    assert!(
        run.stderr
            .contains("no index on `lat,lon`: answered by a scan: did you mean `lon,lat`?"),
        "{}",
        run.stderr
    );
    let run = room
        .run("near", &["lon,lat", "2.3,48.8", "--k", "1"])
        .expect(0);
    assert_eq!(run.stderr, "");
}

#[test]
pub(crate) fn cells_say_where_they_are_and_the_borders_are_in_the_last() {
    let room = room(&["at:spatial"], STOPS);
    let cells = |degrees: &str| {
        room.run(
            "within",
            &["at", "--rect=-180,-90,180,90", "--cells", degrees],
        )
        .expect(0)
        .rows()
    };
    let all = cells("10");
    assert_eq!(
        all[0],
        json!({"row":13,"column":18,"count":2,"west":0,"south":40,"degrees":10})
    );
    assert!(
        all.contains(&json!({"row":17,"column":35,"count":1,"west":170,"south":80,"degrees":10})),
        "{all:?}"
    );
    assert!(
        all.contains(&json!({"row":0,"column":0,"count":1,"west":-180,"south":-90,"degrees":10})),
        "{all:?}"
    );
    for degrees in ["0.1", "0.25", "0.3", "7", "100", "360"] {
        let size: f64 = degrees.parse().unwrap();
        for cell in cells(degrees) {
            let (west, south) = (
                cell["west"].as_f64().unwrap(),
                cell["south"].as_f64().unwrap(),
            );
            assert!(west < 180.0 && south < 90.0, "{degrees}: {cell}");
            assert!((west - (cell["column"].as_f64().unwrap() * size - 180.0)).abs() < 1e-6);
        }
    }
    let tenths = cells("0.1");
    assert!(
        tenths
            .iter()
            .any(|cell| cell["west"] == json!(2.3) && cell["south"] == json!(48.8)),
        "{tenths:?}"
    );
}

#[test]
fn durations_and_sizes_have_one_form_everywhere() {
    let room = room(&["at:spatial"], STOPS);
    let store = room.store();
    let put = |durability: &str| {
        room.feed(
            &["put", &store, "d", "--durability", durability],
            "{\"id\":9}\n",
        )
    };
    for durability in ["sync", "os", "5s", "5ms", "1000", "1.5s", "1m30s"] {
        put(durability).expect(0);
    }
    for wrong in ["0", "5x", "often", "5 6"] {
        let refused = put(wrong).expect(2);
        assert!(refused.stderr.contains("ms"), "{}", refused.stderr);
    }
    for ttl in ["7d", "90s", "1h30m", "500ms", "1.5h"] {
        room.run("ttl", &[ttl]).expect(0);
    }
    let refused = room.run("ttl", &["2"]).expect(2);
    assert!(
        refused.stderr.contains("`2` has no unit"),
        "{}",
        refused.stderr
    );
    room.run("ttl", &["none"]).expect(0);
    // The first time that there is, too.
    let ages = ["60", "60s", "1m", "0.5", "2h"].map(|age| ("100", age));
    for (as_of, age) in ages.into_iter().chain([("-9223372036854", "60")]) {
        let as_of = format!("--as-of={as_of}");
        let args = [
            "at",
            "--rect=0,0,1,1",
            "--latest-per",
            "id",
            "--time",
            "t",
            &as_of,
            "--max-age",
            age,
        ];
        room.run("within", &args).expect(1);
    }
    for memory in ["64M", "64MiB", "67108864", "0.5G", "64mb"] {
        room.run("count", &["--memory", memory]).expect(0);
    }
    let refused = room.run("count", &["--memory", "64X"]).expect(2);
    assert!(
        refused.stderr.contains("unknown unit `X`"),
        "{}",
        refused.stderr
    );
}

/// The next line that a child prints.
fn line(of: &mut impl BufRead) -> String {
    let mut line = String::new();
    of.read_line(&mut line).unwrap();
    line
}

#[test]
fn a_subscriber_waits_for_a_store_and_a_first_publication() {
    for makes_store in [false, true] {
        let room = Room(tempfile::tempdir().unwrap());
        let store = room.store();
        if makes_store {
            esker(&["create", &store, "d", "--key", "id:int"]).expect(0);
        }
        let mut child = command(&["subscribe", &store, "t", "--follow"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let waiting = line(&mut said);
        let what = if makes_store {
            "a first publication"
        } else {
            "a store"
        };
        assert!(
            waiting.contains(&format!("waiting for {what}")),
            "{waiting}"
        );
        room.feed(&["publish", &store, "t"], "{\"n\":1}\n{\"n\":2}\n")
            .expect(0);
        let mut printed = BufReader::new(child.stdout.take().unwrap());
        assert_eq!(line(&mut printed), "{\"n\":1}\n");
        assert_eq!(line(&mut printed), "{\"n\":2}\n");
        room.feed(&["publish", &store, "t/x"], "{\"n\":3}\n")
            .expect(0);
        assert_eq!(line(&mut printed), "{\"n\":3}\n");
        child.kill().unwrap();
        child.wait().unwrap();
    }
    // A wait that ends, and a command that does not wait.
    let room = Room(tempfile::tempdir().unwrap());
    let ended = esker(&["subscribe", &room.store(), "t", "--for", "1ms"]).expect(1);
    assert!(
        ended.stderr.contains("waiting for a store"),
        "{}",
        ended.stderr
    );
    esker(&["subscribe", &room.store(), "t"]).expect(3);
}

#[test]
fn publish_goes_on_after_bad_lines_and_counts() {
    let room = Room(tempfile::tempdir().unwrap());
    let store = room.store();
    let lines = "{\"n\":1,\"lon\":1,\"lat\":2}\nbad\n\n{\"n\":2}\n{\"n\":3,\"lon\":181,\"lat\":0}\n{\"n\":4,\"lon\":null,\"lat\":0}\n{\"n\":5,\"lon\":-1,\"lat\":-2}\n\"text\"\n\u{1}\n{\"n\":6,\"lon\":1,\"lat\":2}";
    let run = room
        .feed(&["publish", &store, "t", "--position", "lon,lat"], lines)
        .expect(2);
    for said in [
        "line 2: ",
        "line 4: there is no number at `lon`",
        "line 5: ",
        "line 6: ",
        "published 3 to t, for 0 subscriptions",
        "6 lines were not published",
    ] {
        assert!(run.stderr.contains(said), "{said}: {}", run.stderr);
    }
    let got = esker(&["subscribe", &store, "t"]).expect(0);
    let numbers: Vec<Value> = got.rows().iter().map(|row| row["n"].clone()).collect();
    assert_eq!(numbers, [1, 5, 6]);
    let one = room
        .feed(&["publish", &store, "t"], "{\"n\":7}\nbad\n")
        .expect(2);
    assert!(
        one.stderr.contains("1 line was not published"),
        "{}",
        one.stderr
    );

    // `stat` counts the publications.
    room.feed(&["publish", &store, "t/x"], "{\"n\":8}\n")
        .expect(0);
    let stat = esker(&["stat", &store]).expect(0);
    assert!(
        stat.stdout
            .contains("publish/subscribe: 5 publications to 2 topics, 0 subscriptions\n"),
        "{}",
        stat.stdout
    );
    let json: Value =
        serde_json::from_str(&esker(&["stat", &store, "--json"]).expect(0).stdout).unwrap();
    assert_eq!(
        json["pubsub"],
        json!({"topics":2,"publications":5,"subscriptions":0})
    );
}

#[test]
fn one_thing_is_no_plural() {
    let room = room(&["kind:lazy:string"], &numbered(1));
    let stat = room.run("stat", &[]).expect(0);
    assert!(stat.stdout.starts_with("d: 1 record, "), "{}", stat.stdout);
    let advice = room.run("advise", &[]).expect(0);
    assert!(
        advice.stdout.contains("d: about 1 record. "),
        "{}",
        advice.stdout
    );
    // The count is exact, however often records were replaced.
    for _ in 0..3 {
        room.feed(&["put", &room.store(), "d"], &numbered(4))
            .expect(0);
        esker(&["compact", &room.store()]).expect(0);
    }
    room.feed(&["put", &room.store(), "d"], &numbered(4))
        .expect(0);
    let advice = room.run("advise", &[]).expect(0);
    assert!(
        advice.stdout.contains("d: about 4 records. "),
        "{}",
        advice.stdout
    );
    let expired = room.run("expire", &[]).expect(0);
    assert!(
        expired.stderr.contains("0 records had expired"),
        "{}",
        expired.stderr
    );
}

#[test]
fn manual_pages_name_their_program_and_version() {
    let dir = tempfile::tempdir().unwrap();
    esker(&["man", &dir.path().display().to_string()]).expect(0);
    for page in ["esker.1", "esker-find.1", "esker-index-add.1"] {
        let text = std::fs::read_to_string(dir.path().join(page)).unwrap();
        let title = text.lines().find(|line| line.starts_with(".TH")).unwrap();
        assert!(
            title.contains(&format!("esker {}", env!("CARGO_PKG_VERSION"))),
            "{page}: {title}"
        );
    }
}

#[test]
fn an_index_on_the_key_and_too_little_memory_are_noted() {
    let room = room(&[], &numbered(3));
    let run = room.run("index", &[]);
    drop(run);
    let store = room.store();
    let run = esker(&["index", "add", &store, "d", "id:composite"]).expect(0);
    assert!(
        run.stderr.contains("note: `id` is the primary key"),
        "{}",
        run.stderr
    );
    let run = room.run("count", &["--memory", "1K"]).expect(0);
    assert!(
        run.stderr
            .contains("note: --memory of 1.0 KiB is less than"),
        "{}",
        run.stderr
    );
    let run = room.run("count", &["--memory", "64M"]).expect(0);
    assert_eq!(run.stderr, "");
}

#[test]
pub(crate) fn a_condition_on_an_object_names_its_fields() {
    let room = room(
        &[],
        "{\"id\":1,\"user\":{\"name\":\"ann\",\"zip\":{\"a\":1}}}\n",
    );
    let run = room.run("find", &["user = ann"]).expect(1);
    assert!(
        run.stderr
            .contains("`user` holds objects: did you mean `user.name`"),
        "{}",
        run.stderr
    );
}

/// The words that the shell would offer for the last word.
fn offered(folder: &std::path::Path, words: &[&str]) -> Vec<String> {
    let mut shell = command(&[&["--", "esker"], words].concat());
    let output = shell
        .current_dir(folder)
        .env("COMPLETE", "fish")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let names = text.lines().map(|line| line.split('\t').next().unwrap());
    // Options are also offered wherever one is allowed.
    let is_option = words.last().is_some_and(|word| word.starts_with('-'));
    let names = names.filter(|name| is_option || !name.starts_with('-'));
    names.map(String::from).collect()
}

#[test]
fn shells_are_offered_names_of_datasets_and_fields() {
    let room = room(
        &["user.name:lazy:string"],
        "{\"id\":1,\"user\":{\"name\":\"ann\"},\"uid\":7}\n",
    );
    let store = room.store();
    esker(&["create", &store, "days", "--key", "id:int"]).expect(0);
    esker(&["snapshot", &store, "before"]).expect(0);
    room.run("changes", &["--consumer", "mailer"]).expect(0);
    let offers = |words: &[&str]| offered(room.0.path(), words);
    assert_eq!(offers(&["find", "store", ""]), ["d", "days"]);
    assert_eq!(offers(&["find", "store", "da"]), ["days"]);
    assert_eq!(offers(&["rename", "store", "da"]), ["days"]);
    assert_eq!(offers(&["index", "add", "store", "da"]), ["days"]);
    assert_eq!(
        offers(&["find", "store", "d", "u"]),
        ["uid", "user", "user.name"]
    );
    assert_eq!(offers(&["lookup", &store, "d", "ui"]), ["uid"]);
    assert_eq!(
        offers(&["count", "store", "d", "--where", "user."]),
        ["user.name"]
    );
    assert_eq!(
        offers(&["index", "add", "store", "d", "uid:comp"]),
        ["uid:composite"]
    );
    assert_eq!(
        offers(&["get", "store", "d", "1", "--snapshot", "b"]),
        ["before"]
    );
    assert_eq!(
        offers(&["changes", "store", "d", "--consumer", "m"]),
        ["mailer"]
    );
    assert!(offers(&["looku"]).contains(&"lookup".to_string()));
    assert!(offers(&["find", "--lim"]).contains(&"--limit".to_string()));
    // Without a store or dataset there are no offers and no messages.
    assert!(offers(&["find", "nothing", ""]).is_empty());
    assert!(offers(&["find", "store", "x", "u"]).is_empty());
}

#[test]
fn help_and_plans_say_what_a_user_types() {
    let find = esker(&["find", "--help"]).expect(0).stdout;
    assert!(
        find.contains("within(PATH, AREA)") && find.contains("is not null"),
        "{find}"
    );
    for command in ["add", "switch"] {
        let help = esker(&["index", command, "--help"]).expect(0).stdout;
        assert!(
            help.contains("KIND is one of") && help.contains("Example"),
            "{help}"
        );
        assert!(!help.contains("[default: lazy]"), "{help}");
    }
    for command in ["publish", "subscribe"] {
        let help = esker(&[command, "--help"]).expect(0).stdout;
        assert!(help.contains("The empty topic ''"), "{help}");
    }
    // Conditions in a plan have no types.
    let room = room(&["n:composite:int", "kind:composite:string"], &numbered(50));
    let run = room
        .run("find", &["n > 3 and kind = a", "--explain=text"])
        .expect(0);
    assert!(
        run.stderr.contains("expected of n > 3 in the index of n: "),
        "{}",
        run.stderr
    );
    assert!(!run.stderr.contains("int("), "{}", run.stderr);
}

/// The headings of the demo's tables stand above their columns.
#[test]
fn the_demo_has_its_headings_above_its_columns() {
    let demo = esker(&["demo", "--records", "3000"]).expect(0).stdout;
    let lines: Vec<&str> = demo.lines().collect();
    let mut tables = 0;
    for pair in lines.windows(2) {
        if let [heading, first] = pair
            && heading.ends_with("entries        bytes  files")
        {
            let number_ends = first
                .find("KiB")
                .or_else(|| first.find(" B"))
                .or_else(|| first.find("MiB"));
            let end = number_ends.unwrap() + if first.contains("iB") { 3 } else { 2 };
            assert_eq!(
                heading.find("bytes").unwrap() + 5,
                end,
                "{heading}\n{first}"
            );
            tables += 1;
        }
    }
    assert!(tables >= 2, "{demo}");
}

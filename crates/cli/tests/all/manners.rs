//! The behaviour towards people and programs: forms of output, state of a store, typing errors,
//! progress, completions, deletions.
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

use std::fs;
use std::path::PathBuf;

use crate::common::{Run, esker, esker_fed};
use serde_json::{Value, json};
use tempfile::TempDir;

const VISITS: &str = r#"{"id": 1, "user": {"name": "ann"}, "page": "/", "ms": 12, "tags": ["new"]}
{"id": 2, "user": {"name": "bob"}, "page": "/docs", "ms": 8, "tags": ["new", "mobile"]}
{"id": 3, "user": {"name": "ann"}, "page": "say \"hi\", twice", "ms": 35, "tags": []}
{"id": 4, "user": {"name": "cid"}, "page": "/buy", "ms": 240, "extra": null}
"#;

/// A store of visits.
struct Site {
    dir: TempDir,
}

impl Site {
    fn new() -> Site {
        let site = Site {
            dir: tempfile::tempdir().unwrap(),
        };
        let file = site.path("visits.ndjson");
        fs::write(&file, VISITS).unwrap();
        let file = file.display().to_string();
        let indexes = ["--index", "user.name:lazy", "--index", "ms:embedded:int"];
        let load = [&["visits", &file, "--key", "id"][..], &indexes].concat();
        site.run("load", &load).expect(0);
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn store(&self) -> String {
        self.path("db").display().to_string()
    }

    fn run(&self, verb: &str, args: &[&str]) -> Run {
        let store = self.store();
        esker(&[&[verb, store.as_str()][..], args].concat())
    }

    fn fed(&self, verb: &str, args: &[&str], input: &str) -> Run {
        let store = self.store();
        let args = [&[verb, store.as_str()][..], args].concat();
        esker_fed(&args, self.dir.path(), |stdin| {
            let _ = stdin.write_all(input.as_bytes());
        })
    }
}

#[test]
fn records_are_printed_as_csv() {
    let site = Site::new();
    let csv = site.run("scan", &["visits", "--format", "csv"]).expect(0);
    assert_eq!(
        csv.stdout,
        "id,user,page,ms,tags\n\
         1,\"{\"\"name\"\":\"\"ann\"\"}\",/,12,\"[\"\"new\"\"]\"\n\
         2,\"{\"\"name\"\":\"\"bob\"\"}\",/docs,8,\"[\"\"new\"\",\"\"mobile\"\"]\"\n\
         3,\"{\"\"name\"\":\"\"ann\"\"}\",\"say \"\"hi\"\", twice\",35,[]\n\
         4,\"{\"\"name\"\":\"\"cid\"\"}\",/buy,240,\n"
    );
    // A field that the first record lacks has no column, which is reported once.
    assert_eq!(csv.stderr.matches("`extra`").count(), 1, "{}", csv.stderr);
    assert!(
        csv.stderr.contains("--select id,user,page,ms,tags,extra"),
        "{}",
        csv.stderr
    );

    let named = [
        "visits",
        "--format",
        "csv",
        "--select",
        "ms,user.name,tags,nothing",
    ];
    let csv = site.run("scan", &named).expect(0);
    assert_eq!(
        csv.stdout,
        "ms,user.name,tags,nothing\n12,ann,\"[\"\"new\"\"]\",\n8,bob,\"[\"\"new\"\",\"\"mobile\"\"]\",\n35,ann,[],\n240,cid,,\n"
    );
    assert_eq!(csv.stderr, "");
    // Every command that prints records has the option; newest first, where that is the command's
    // order.
    let two = ["--format", "csv", "--select", "id,ms"];
    for (verb, args, want) in [
        ("get", &["visits", "3"][..], "id,ms\n3,35\n"),
        (
            "lookup",
            &["visits", "user.name", "ann"],
            "id,ms\n3,35\n1,12\n",
        ),
        ("range", &["visits", "ms", "8", "12"], "id,ms\n2,8\n1,12\n"),
        ("find", &["visits", "ms > 30"], "id,ms\n4,240\n3,35\n"),
        (
            "find",
            &["visits", "ms > 30", "--order", "key"],
            "id,ms\n3,35\n4,240\n",
        ),
    ] {
        let csv = site.run(verb, &[args, &two].concat()).expect(0);
        assert_eq!(csv.stdout, want, "{verb}");
    }
    let version = site
        .run("read-key", &[&["visits", "3"][..], &two].concat())
        .expect(0);
    assert_eq!(version.stdout, "seq,id,ms\n3,3,35\n");
    // The printed CSV can be loaded again.
    let plain = ["visits", "--format", "csv", "--columns", "id,page,ms"];
    let csv = site.run("scan", &plain).expect(0).stdout;
    fs::write(site.path("again.csv"), csv).unwrap();
    let again = site.path("again.csv").display().to_string();
    site.run("load", &["again", &again, "--key", "id"])
        .expect(0);
    let back = site.run("get", &["again", "3"]).expect(0);
    assert_eq!(back.rows()[0]["page"], "say \"hi\", twice");

    // NDJSON keeps the objects around a field, and leaves out those that a record does not have.
    let some = ["visits", "--select", "tags,user.name,nothing"];
    let some = site.run("scan", &some).expect(0).stdout;
    assert_eq!(
        some.lines().nth(1),
        Some(r#"{"user":{"name":"bob"},"tags":["new", "mobile"]}"#)
    );
    assert_eq!(some.lines().last(), Some(r#"{"user":{"name":"cid"}}"#));
    let one = site
        .run("get", &["visits", "3", "--select", "id"])
        .expect(0);
    assert_eq!(one.stdout, "{\"id\":3}\n");
    site.run("scan", &["visits", "--keys-only", "--format", "csv"])
        .expect(2);
    site.run("scan", &["visits", "--format", "xml"]).expect(2);
}

#[test]
fn records_are_printed_as_a_table() {
    let site = Site::new();
    let columns = ["--format", "table", "--columns", "id,page,ms"];
    let table = site
        .run("scan", &[&["visits"][..], &columns].concat())
        .expect(0);
    assert_eq!(
        table.stdout,
        "id  page              ms\n \
         1  /                 12\n \
         2  /docs              8\n \
         3  say \"hi\", twice   35\n \
         4  /buy             240\n"
    );
    // Control characters are not printed, and long values are cut.
    let odd = json!({"id": 9, "page": format!("a\nb\u{1b}[2J{}", "x".repeat(100)), "ms": 1});
    site.fed("put", &["visits"], &format!("{odd}\n")).expect(0);
    let table = site
        .run("scan", &[&["visits"][..], &columns].concat())
        .expect(0);
    let last = table.stdout.lines().last().unwrap();
    assert!(
        last.contains("a b [2Jxxx") && last.contains("xxx\u{2026}"),
        "{last}"
    );
    assert!(last.len() < 80, "{last}");
    assert_eq!(table.stdout.lines().count(), 6);
    site.run(
        "lookup",
        &["visits", "user.name", "zoe", "--format", "table"],
    )
    .expect(1);
}

#[test]
fn stat_begins_with_what_a_person_wants_to_know() {
    let site = Site::new();
    let stat = site.run("stat", &[]).expect(0).stdout;
    assert!(stat.contains("1 dataset, "), "{stat}");
    assert!(stat.contains("visits: 4 records, "), "{stat}");
    for line in ["health: ok", "advice: nothing to do"] {
        assert!(stat.contains(line), "{stat}");
    }
    let indexed = |path: &str| {
        let line = stat
            .lines()
            .find(|line| line.trim_start().starts_with(path));
        line.unwrap_or_else(|| panic!("{path}: {stat}")).to_string()
    };
    assert!(indexed("user.name").contains("lazy") && indexed("user.name").contains("ready"));
    assert!(indexed("ms").contains("within the records"), "{stat}");
    assert!(!stat.contains("memtable"), "{stat}");
    let verbose = site.run("stat", &["visits", "--verbose"]).expect(0).stdout;
    assert!(
        verbose.contains("memtable") && verbose.contains("visits: 4 records"),
        "{verbose}"
    );

    let json = site.run("stat", &["visits", "--json"]).expect(0).stdout;
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (json["records"].as_u64(), json["health"].as_str()),
        (Some(4), Some("ok"))
    );
    assert_eq!(json["indexes"][0]["path"], "user.name");
    assert_eq!(json["indexes"][0]["state"], "ready");
    assert!(json["trees"].is_array());
    let all = site.run("stat", &["--json"]).expect(0).stdout;
    let all: Value = serde_json::from_str(&all).unwrap();
    assert_eq!(all["datasets"]["visits"]["records"], 4);
}

#[test]
fn stat_names_a_damaged_index_and_the_command_that_mends_it() {
    let site = Site::new();
    site.run("compact", &[]).expect(0);
    // The tables of both trees; one of the trees is the index.
    let json = site.run("stat", &["visits", "--json"]).expect(0).stdout;
    let before: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(before["health"], "ok");
    let tables = fs::read_dir(site.path("db"))
        .unwrap()
        .map(|file| file.unwrap().path());
    let tables: Vec<PathBuf> = tables
        .filter(|path| path.extension().is_some_and(|extension| extension == "tbl"))
        .collect();
    assert!(!tables.is_empty(), "no table has been written");
    let mut damaged = false;
    for table in tables {
        let bytes = fs::read(&table).unwrap();
        fs::write(&table, &bytes[..bytes.len() / 2]).unwrap();
        let stat = site.run("stat", &["visits"]).expect(0).stdout;
        assert!(stat.contains("health: damaged"), "{stat}");
        if stat.contains("--rebuild-index user.name") {
            damaged = true;
            let line = stat
                .lines()
                .find(|line| line.trim_start().starts_with("user.name"));
            assert!(line.unwrap().contains("damaged"), "{stat}");
        }
        fs::write(&table, bytes).unwrap();
    }
    assert!(damaged, "no table was the index's");
    assert!(
        site.run("stat", &["visits"])
            .expect(0)
            .stdout
            .contains("health: ok")
    );
}

#[test]
fn a_plan_is_text_for_people_and_json_for_programs() {
    let site = Site::new();
    let explained = |form: &str| {
        let run = site.run("lookup", &["visits", "user.name", "ann", form]);
        run.expect(0).stderr
    };
    let json: Value = serde_json::from_str(&explained("--explain")).unwrap();
    assert!(json["steps"].is_object());
    let text = explained("--explain=text");
    let plan = "lazy index of user.name: user.name = ann\n";
    assert!(text.starts_with(plan), "{text}");
    assert!(text.contains("answers: 2"), "{text}");
    serde_json::from_str::<Value>(&explained("--explain=json")).unwrap();
    let scan = ["visits", "page", "/buy", "--explain=text"];
    let scan = site.run("lookup", &scan).expect(0).stderr;
    assert!(scan.contains("scan of all records"), "{scan}");
    let order = site.run("scan", &["visits", "--explain=text"]).expect(0);
    assert!(
        order.stderr.contains("scan of keys, ascending"),
        "{}",
        order.stderr
    );
    site.run("scan", &["visits", "--explain=xml"]).expect(2);
}

#[test]
fn mistakes_are_answered_with_what_would_be_right() {
    let site = Site::new();
    let file = site.path("visits.ndjson").display().to_string();
    let nowhere = site.path("nowhere").display().to_string();
    let refused = |args: &[&str], code, why: &str| {
        let said = esker(args).expect(code).stderr;
        assert!(said.contains(why), "{args:?}: {said}");
    };
    refused(
        &["get", &file, "visits", "1"],
        2,
        "is a file: the first argument is the store's folder",
    );
    for args in [
        &["load", &file, "visits", &file, "--key", "id"][..],
        &["create", &file, "visits", "--key", "id:int"],
        &["publish", &file, "topic"],
    ] {
        refused(
            args,
            2,
            "is a file: the first argument is the store's folder",
        );
    }
    refused(&["get", &nowhere, "visits", "1"], 3, "`esker load`");
    let split = ["visits", "user.name", "=", "ann"];
    let said = site.run("find", &split).expect(2).stderr;
    assert!(said.contains("as in 'user.name = ann'"), "{said}");
    let add = ["add", &site.store(), "visits", "user.nme"];
    let said = esker(&[&["index"][..], &add].concat()).expect(2).stderr;
    assert!(said.contains("did you mean `user.name`"), "{said}");
    for (condition, why) in [
        ("ms == 12", "equality is written `=`"),
        ("ms > 1 && ms < 9", "`and` or `or`, which join conditions"),
        ("ms >> 1", "one that begins with an operator is quoted"),
    ] {
        let said = site.run("find", &["visits", condition]).expect(2).stderr;
        assert!(said.contains(why), "{condition}: {said}");
    }
    let said = site.run("find", &["visits", "user.nme = ann"]).expect(1);
    assert!(said.stderr.contains("`user.name`"), "{}", said.stderr);
    let repair = ["visits", "--rebuild-index", "usr.name"];
    let said = site.run("repair", &repair).expect(2).stderr;
    assert!(said.contains("has no index"), "{said}");
}

#[test]
fn a_typo_is_answered_with_the_nearest_known_name() {
    let site = Site::new();
    let file = site.path("visits.ndjson").display().to_string();
    for (verb, args, code, meant) in [
        ("count", &["vists"][..], 2, "did you mean `visits`"),
        (
            "lookup",
            &["visits", "usr.name", "ann"],
            1,
            "did you mean `user.name`",
        ),
        (
            "lookup",
            &["visits", "name", "ann"],
            1,
            "did you mean `user.name`",
        ),
        (
            "range",
            &["visits", "pag", "a", "b"],
            1,
            "did you mean `page`",
        ),
        ("find", &["visits", "mss > 10"], 1, "did you mean `ms`"),
        (
            "within",
            &["visits", "pag", "--rect=1,2,3,4"],
            1,
            "did you mean `page`",
        ),
        (
            "count",
            &["visits", "--where", "not mss is null"],
            0,
            "did you mean `ms`",
        ),
        ("index", &[], 2, "Usage"),
        (
            "load",
            &["new", &file, "--key", "idd"],
            2,
            "did you mean `id`",
        ),
        (
            "load",
            &["new", &file, "--key", "id:strng"],
            2,
            "did you mean `string`",
        ),
        (
            "load",
            &["new", &file, "--key", "id", "--index", "page:compsite"],
            2,
            "did you mean `composite`",
        ),
        (
            "load",
            &["new", &file, "--key", "id", "--index", "page:lazy:strin"],
            2,
            "did you mean `string`",
        ),
        (
            "load",
            &["new", &file, "--key", "id", "--maintenance", "defered"],
            2,
            "'deferred'",
        ),
        (
            "maintain",
            &["visits", "mutable-bitmp"],
            2,
            "'mutable-bitmap'",
        ),
        (
            "get",
            &["visits", "1", "--snapshot", "none"],
            2,
            "there is no snapshot `none`",
        ),
    ] {
        let run = site.run(verb, args).expect(code);
        assert!(
            run.stderr.contains(meant),
            "{verb} {args:?}: {}",
            run.stderr
        );
    }
    let run = esker(&["lokup"]).expect(2);
    assert!(run.stderr.contains("'lookup'"), "{}", run.stderr);
    // An existing path gets no note, even if there are no matches.
    let run = site.run("lookup", &["visits", "page", "/none"]).expect(1);
    assert!(!run.stderr.contains("has the field"), "{}", run.stderr);
    let run = site
        .run("lookup", &["visits", "nothing.like.it", "1"])
        .expect(1);
    assert!(
        run.stderr
            .contains("no record has the field `nothing.like.it`"),
        "{}",
        run.stderr
    );
}

#[test]
fn delete_takes_several_keys_and_a_stream_of_them() {
    let site = Site::new();
    let run = site.run("delete", &["visits", "1", "77", "2"]).expect(1);
    assert!(
        run.stderr.contains("no record with key 77"),
        "{}",
        run.stderr
    );
    assert!(run.stderr.contains("deleted 2 records"), "{}", run.stderr);
    // A malformed key is reported before a record is deleted.
    site.run("delete", &["visits", "3", "x"]).expect(2);
    site.run("get", &["visits", "3"]).expect(0);
    // The second deletion finds no record.
    let run = site.run("delete", &["visits", "3", "3"]).expect(1);
    assert!(run.stderr.contains("deleted 1 record\n"), "{}", run.stderr);

    let lines: String = (100..2600).map(|id| format!("{{\"id\":{id}}}\n")).collect();
    site.fed("put", &["visits"], &lines).expect(0);
    let keys = site
        .run("scan", &["visits", "--from", "100", "--keys-only"])
        .expect(0)
        .stdout;
    let run = site.fed("delete", &["visits", "-"], &keys).expect(0);
    assert!(
        run.stderr.contains("deleted 2,500 records"),
        "{}",
        run.stderr
    );
    let run = site
        .fed("delete", &["visits", "-"], "4\r\n\nno key\n99\n")
        .expect(2);
    assert!(run.stderr.contains("line 3:"), "{}", run.stderr);
    assert!(
        run.stderr.contains("no record with key 99"),
        "{}",
        run.stderr
    );
    assert_eq!(site.run("count", &["visits"]).expect(0).stdout, "0\n");
    site.run("check", &[]).expect(0);
}

#[test]
fn a_dataset_is_made_without_records() {
    let site = Site::new();
    let args = [
        "jobs",
        "--key",
        "id:string",
        "--index",
        "state:composite:string",
        "--maintenance",
        "auto",
    ];
    let run = site.run("create", &args).expect(0);
    assert!(
        run.stderr
            .contains("created dataset `jobs`: --key id:string"),
        "{}",
        run.stderr
    );
    assert_eq!(site.run("count", &["jobs"]).expect(0).stdout, "0\n");
    site.fed("put", &["jobs"], "{\"id\":\"a\",\"state\":\"new\"}\n")
        .expect(0);
    site.run("lookup", &["jobs", "state", "new"]).expect(0);
    // It exists, or its types are missing.
    site.run("create", &args).expect(2);
    let run = site.run("create", &["other", "--key", "id"]).expect(2);
    assert!(run.stderr.contains("--key id:int"), "{}", run.stderr);
    let run = site
        .run("create", &["other", "--key", "id:int", "--index", "a:lazy"])
        .expect(2);
    assert!(
        run.stderr.contains("--index a:lazy:string"),
        "{}",
        run.stderr
    );
    site.run("create", &["other"]).expect(2);
}

#[test]
fn progress_for_programs_is_a_json_object_a_line() {
    let site = Site::new();
    let file = site.path("visits.ndjson").display().to_string();
    let events = |run: &Run| -> Vec<Value> {
        let lines = run.stderr.lines();
        lines
            .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}")))
            .collect()
    };
    let run = site
        .run(
            "load",
            &["more", &file, "--key", "id", "--progress", "json"],
        )
        .expect(0);
    let all = events(&run);
    let named = |event: &str| all.iter().filter(|line| line["event"] == event).count();
    assert!(named("note") > 0 && named("progress") > 0, "{all:?}");
    let last = all
        .iter()
        .rfind(|line| line["event"] == "progress")
        .unwrap();
    assert_eq!(
        (last["records"].as_u64(), last["unit"].as_str()),
        (Some(4), Some("bytes"))
    );
    assert_eq!(last["done"].as_u64(), Some(VISITS.len() as u64));
    let loaded = all.iter().find(|line| line["event"] == "loaded").unwrap();
    assert_eq!(
        (loaded["records"].as_u64(), loaded["rejected"].as_u64()),
        (Some(4), Some(0))
    );

    let run = site.run("index", &["add", "more", "page:lazy"]);
    assert_ne!(
        run.code, 0,
        "the store's directory comes behind the subcommand"
    );
    let store = site.store();
    let run = esker(&[
        "index",
        "add",
        &store,
        "more",
        "page:lazy",
        "--progress",
        "json",
    ])
    .expect(0);
    assert!(events(&run).iter().any(|line| line["event"] == "progress"));
    let run = site
        .run(
            "lookup",
            &["more", "ms", "8", "--explain", "--progress", "json"],
        )
        .expect(0);
    assert!(events(&run).iter().any(|line| line["event"] == "plan"));
    let run = site
        .run("get", &["nope", "1", "--progress", "json"])
        .expect(2);
    assert_eq!(events(&run)[0]["event"], "error");
    let quiet = site
        .run("load", &["more", &file, "--progress", "none"])
        .expect(0);
    assert!(
        quiet.stderr.contains("4 records loaded"),
        "{}",
        quiet.stderr
    );
}

#[test]
fn shells_and_manuals_know_every_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = esker(&["completions", shell]).expect(0).stdout;
        for word in ["COMPLETE", "esker"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    esker(&["completions", "csh"]).expect(2);
    let site = Site::new();
    let man = site.path("man");
    esker(&["man", &man.display().to_string()]).expect(0);
    for page in [
        "esker",
        "esker-load",
        "esker-find",
        "esker-index",
        "esker-index-add",
    ] {
        let text = fs::read_to_string(man.join(format!("{page}.1"))).expect(page);
        assert!(text.starts_with(".") && text.contains(".TH "), "{page}");
    }
}

#[test]
fn help_speaks_of_what_a_user_chooses() {
    for command in ["load", "create"] {
        let short = esker(&[command, "-h"]).expect(0).stdout;
        for word in ["eager ", "deleted-key", "staged", "correlated", "--repair"] {
            assert!(!short.contains(word), "{command} -h: {word}\n{short}");
        }
        for word in [
            "lazy",
            "recent",
            "composite",
            "embedded",
            "fingerprint",
            "filter",
            "auto",
        ] {
            assert!(short.contains(word), "{command} -h: {word}\n{short}");
        }
        let long = esker(&[command, "--help"]).expect(0).stdout;
        for word in [
            "KIND eager",
            "deleted-key",
            "staged",
            "correlated",
            "--repair",
        ] {
            assert!(!long.contains(word), "{command} --help: {word}\n{long}");
        }
        // Only once, in the program's help.
        assert!(
            !long.contains("--memory <") && !long.contains("--progress <"),
            "{long}"
        );
    }
    for page in [&["help", "baselines"][..], &["baselines"]] {
        let page = esker(page).expect(0).stdout;
        for word in [
            "eager",
            "deleted-key",
            "--repair",
            "--merging",
            "--compaction",
            "--no-bloom",
            "--lookups",
            "--validation",
        ] {
            assert!(page.contains(word), "{word}\n{page}");
        }
    }
    let help = esker(&["--help"]).expect(0).stdout;
    assert!(
        !help.contains("eager") && !help.contains("deleted-key"),
        "{help}"
    );
    assert!(
        help.contains("--memory") && help.contains("--progress"),
        "{help}"
    );
    // Baselines are accepted anyway.
    let site = Site::new();
    let baseline = [
        "b",
        "--key",
        "id:int",
        "--index",
        "a:eager:int",
        "--maintenance",
        "deleted-key",
    ];
    site.run("create", &baseline).expect(0);
}

#[test]
fn no_colour_where_it_is_not_wanted() {
    let site = Site::new();
    for args in [&["stat"][..], &["scan", "visits", "--format", "table"]] {
        let run = site.run(args[0], &args[1..]).expect(0);
        assert!(!run.stdout.contains('\u{1b}'), "{}", run.stdout);
    }
    assert!(!esker(&["lokup"]).expect(2).stderr.contains('\u{1b}'));
}

#[test]
fn publications_are_not_put_into_a_folder_of_the_name_of_a_cluster() {
    let dir = tempfile::tempdir().unwrap();
    for args in [
        &["publish", "cassandra://h/x", "t"][..],
        &["subscribe", "hbase://h/x", "t"],
        &["topics", "cassandra://h/x"],
        &["serve", "cassandra://h/x"],
    ] {
        let mut command = crate::common::command(args);
        let command = command.current_dir(dir.path());
        let run = command.stdin(std::process::Stdio::null()).output().unwrap();
        let said = String::from_utf8(run.stderr).unwrap();
        assert_eq!(run.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains("this command works on a folder"), "{said}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

//! The address of a server stands where a folder stands: the same commands print the same.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;

use crate::common::{Run, Server, esker as run, esker_fed, with_served_stores};

macro_rules! with_served {
    ($($module:ident: $($test:ident),+;)+) => {$(
        mod $module {
            $(
                #[test]
                fn $test() {
                    super::with_served_stores(crate::$module::$test);
                }
            )+
        }
    )+};
}

with_served! {
    conditions:
        find_takes_conditions_with_and_or_not_and_brackets;
    datasets:
        a_load_goes_on_under_the_new_name,
        a_name_that_is_taken_or_no_name_is_refused;
    everyday:
        a_condition_on_an_object_names_its_fields,
        cells_say_where_they_are_and_the_borders_are_in_the_last,
        pages_go_on_where_the_last_one_ended,
        the_nearest_are_printed_with_their_distances;
    imports:
        a_load_says_how_many_records_it_replaced,
        compressed_files_with_members_padding_and_cut_ends,
        quotes_of_csv_swallow_no_rows,
        the_exit_code_reports_rejected_lines,
        types_are_those_of_most_records;
    partial:
        fields_of_a_record_are_set_and_taken_away,
        lines_are_merged_into_records;
    questions:
        aggregates_are_one_object_a_group,
        answers_are_sorted_by_fields,
        some_fields_keep_their_nesting,
        the_latest_of_each_value_is_found_with_any_index_and_none,
        what_is_no_aggregate_is_refused;
    versions:
        versions_are_read_by_key_and_by_value;
    index:
        indexes_are_added_switched_and_dropped,
        a_second_record_with_a_unique_value_is_refused,
        a_compound_index_is_loaded_explained_changed_and_dropped;
    expiry:
        records_expire_by_their_age_and_by_what_they_say;
    repair:
        the_strategy_is_changed_and_keys_come_without_records;
    fields:
        fields_are_listed_with_their_types,
        conditions_that_cannot_hold_are_noted;
    edges:
        a_record_that_no_reader_can_read_is_rejected_with_its_line;
    puts:
        a_value_that_is_not_unique_is_one_bad_line,
        a_record_with_one_member_is_a_record_where_keys_are_generated;
    values:
        an_int_index_takes_the_operands_that_a_scan_takes,
        contains_finds_parts_of_texts_and_null_is_null,
        ranges_as_arguments_are_compared_by_value_too;
}

/// The records of the test: points, times, arrays, missing fields.
fn records() -> String {
    let line = |id: u32| {
        let user = ["ann", "bob", "cy"][id as usize % 3];
        let tags = match id % 4 {
            0 => r#","tags":["a","b"]"#,
            1 => r#","tags":["b"]"#,
            _ => "",
        };
        format!(
            "{{\"id\":{id},\"user\":\"{user}\",\"n\":{},\"at\":\"2026-01-{:02}T00:00:00Z\",\"place\":[{},{}]{tags}}}\n",
            id % 10,
            id % 28 + 1,
            id % 20,
            id % 15
        )
    };
    (0..300).map(line).collect()
}

/// A message without what differs from run to run: the address and numbers.
fn steady(text: &str, store: &str) -> String {
    let text = text.replace(store, "STORE");
    let mut steady = String::new();
    for c in text.chars() {
        let c = if c.is_ascii_digit() || c == '.' {
            '#'
        } else {
            c
        };
        if c != '#' || !steady.ends_with('#') {
            steady.push(c);
        }
    }
    steady
}

fn fed(args: &[&str], folder: &Path, input: &'static str) -> Run {
    esker_fed(args, folder, move |to| {
        to.write_all(input.as_bytes()).unwrap()
    })
}

/// Commands, in their order; `DIR` stands for the store.
const COMMANDS: &[&str] = &[
    "create DIR empty --key id:int",
    "load DIR visits visits.ndjson --key id:int --index user --index n:embedded --index place:spatial --index at:recent:time",
    "load DIR visits visits.ndjson",
    "list DIR",
    "get DIR visits 17",
    "get DIR visits 1700",
    "get DIR visits seven",
    "get DIR visit 7",
    "lookup DIR visits user ann --limit 5 --explain",
    "lookup DIR visits user nobody",
    "range DIR visits n 3 5 --limit 20",
    "range DIR visits n 5 3",
    "find DIR visits user=ann --limit 7",
    "find DIR visits n>7 --order any",
    "find DIR visits n>7 --order key --limit 11",
    "find DIR visits n>7 --order n:desc,user --select user,n --offset 3",
    "find DIR visits n>7 --keys-only --explain",
    "find DIR visits n>7 --format csv",
    "find DIR visits nothing=7",
    "find DIR visits n>",
    "find DIR visits tags=b --limit 3 --explain",
    "within DIR visits place --circle 3,3,400000",
    "near DIR visits place 3,3 -k 4",
    "scan DIR visits --from 100 --to 110 --reverse",
    "scan DIR visits --limit 3 --keys-only",
    "count DIR visits",
    "count DIR visits --where user=ann",
    "count DIR visits n 2 4",
    "aggregate DIR visits --by user --agg count,avg(n),max(at)",
    "aggregate DIR visits --by at/1w --agg count --order count:desc --limit 3",
    "fields DIR visits",
    "read-key DIR visits 17 --latest 2",
    "read-value DIR visits user ann",
    "update DIR visits 17 n=70 extra.deep=true",
    "get DIR visits 17",
    "delete DIR visits 18 19",
    "delete DIR visits --where n=3",
    "snapshot DIR monday",
    "delete DIR visits 20",
    "count DIR visits --snapshot monday",
    "list DIR --snapshot monday",
    "count DIR visits --snapshot tuesday",
    "index add DIR visits tags:lazy:string",
    "index switch DIR visits n:composite",
    "index drop DIR visits at",
    "index resume DIR",
    "find DIR visits tags=b --limit 3",
    "list DIR",
    "advise DIR empty --json",
    "repair DIR visits",
    "maintain DIR visits eager",
    "ttl DIR visits 30d",
    "list DIR",
    "expire DIR",
    "compact DIR visits",
    "check DIR",
    "changes DIR visits --consumer me",
    "update DIR visits 21 n=71",
    "changes DIR visits --consumer me",
    "changes DIR visits --consumer me --forget",
    "changes DIR visits --consumer me --forget",
    "rename DIR empty other",
    "stat DIR visits",
    "drop DIR other",
    "drop DIR nothing",
    "snapshot DIR monday --drop",
    "list DIR",
];

#[test]
fn commands_print_the_same_for_a_folder_and_for_a_server() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("visits.ndjson"), records()).unwrap();
    let folder = dir.path().join("folder").display().to_string();
    let server = Server::start(dir.path().join("served").as_os_str(), &[]);
    let mut differing = Vec::new();
    for command in COMMANDS {
        let runs = [&folder, &server.url].map(|store| {
            let args: Vec<&str> = command.split(' ').collect();
            let args: Vec<&str> = args
                .into_iter()
                .map(|arg| if arg == "DIR" { store.as_str() } else { arg })
                .collect();
            let run = esker_fed(&args, dir.path(), |_| {});
            assert!(!run.stderr.contains("panicked"), "{}", run.stderr);
            // `advise` and `stat` measure and count; `check` says the name of the store.
            let stdout = match args.first() {
                Some(&("advise" | "stat" | "check")) => steady(&run.stdout, store),
                Some(&("read-key" | "read-value")) => run.stdout.replace('\t', " "),
                _ => run.stdout,
            };
            (run.code, stdout, steady(&run.stderr, store))
        });
        if runs[0] != runs[1] {
            differing.push(format!("{command}\n  {:?}\n  {:?}", runs[0], runs[1]));
        }
    }
    assert!(differing.is_empty(), "{}", differing.join("\n\n"));
}

#[test]
fn records_are_copied_to_a_server_and_back() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("visits.ndjson"), records()).unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let (first, last) = (path("first"), path("last"));
    run(&[
        "load",
        &first,
        "visits",
        &path("visits.ndjson"),
        "--key",
        "id:int",
        "--index",
        "user",
    ])
    .expect(0);
    let server = Server::start(OsStr::new(&path("served")), &[]);
    let to = run(&["copy", &first, &server.url]).expect(0);
    assert!(
        to.stderr.contains("both sides are equal: 300"),
        "{}",
        to.stderr
    );
    let back = run(&["copy", &server.url, &last]).expect(0);
    assert!(
        back.stderr.contains("both sides are equal: 300"),
        "{}",
        back.stderr
    );
    let printed = [&first, &server.url, &last].map(|store| {
        let scanned = run(&["scan", store, "visits"]).expect(0).stdout;
        (scanned, run(&["list", store]).expect(0).stdout)
    });
    assert_eq!(printed[0], printed[1]);
    assert_eq!(printed[0], printed[2]);
}

/// Loads a file until the first progress, and kills the load; true if it was not complete.
fn load_and_kill(args: &[&str]) -> bool {
    let mut child = crate::common::command(args)
        .args(["--progress", "json"])
        .spawn()
        .unwrap();
    let stderr = BufReader::new(child.stderr.take().unwrap());
    let mut lines = stderr.lines().map_while(Result::ok);
    let is_begun = |line: &String| {
        let event: serde_json::Value = serde_json::from_str(line).unwrap_or_default();
        event["records"].as_u64().is_some_and(|records| records > 0)
    };
    let _ = lines.find(is_begun);
    child.kill().unwrap();
    !child.wait().unwrap().success()
}

#[test]
fn a_killed_load_into_a_server_resumes() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path().join("db").as_os_str(), &[]);
    let file = dir.path().join("lines.ndjson").display().to_string();
    let line = |id: u64| format!("{{\"id\":{id},\"pad\":\"{id:0100}\"}}\n");
    let lines: u64 = 120_000;
    fs::write(&file, (0..lines).map(line).collect::<String>()).unwrap();
    let resumed = (0..20).find_map(|at| {
        let name = format!("d{at}");
        let args = ["load", &server.url, &name, &file, "--key", "auto"];
        if !load_and_kill(&args) {
            return None;
        }
        let again = run(&args).expect(0);
        let counted = run(&["count", &server.url, &name]).expect(0).stdout;
        assert_eq!(counted, format!("{lines}\n"), "{}", again.stderr);
        again.stderr.contains("resuming after line").then_some(())
    });
    assert!(resumed.is_some(), "no load was killed in its middle");
}

#[test]
fn a_locked_store_says_where_it_is_served() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("db").display().to_string();
    run(&["create", &folder, "d", "--key", "id:int"]).expect(0);
    let put = |input| fed(&["put", &folder, "d"], dir.path(), input);
    let server = Server::start(OsStr::new(&folder), &[]);
    let refused = put("{\"id\":1}\n").expect(3);
    assert!(refused.stderr.contains(&server.url), "{}", refused.stderr);
    // Reads work beside the server.
    assert_eq!(run(&["count", &folder, "d"]).expect(0).stdout, "0\n");
    server.kill();
    put("{\"id\":1}\n").expect(0);
    // Another writer, which serves nothing: the file of the killed server says nothing.
    assert!(Path::new(&folder).join("SERVED").exists());
    let held = esker::Database::open(&folder, esker::Options::default()).unwrap();
    let refused = put("{\"id\":2}\n");
    held.close().unwrap();
    let refused = refused.expect(3);
    assert!(
        refused.stderr.contains("one process writes"),
        "{}",
        refused.stderr
    );
    assert!(!refused.stderr.contains("http"), "{}", refused.stderr);
}

#[test]
fn what_needs_a_folder_says_what_to_use() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path().join("db").as_os_str(), &[]);
    let url = server.url.as_str();
    for (args, hint) in [
        (vec!["publish", url, "t"], "/v1/topics"),
        (vec!["topics", url], "/v1/topics"),
        (vec!["subscribe", url, "t"], "/v1/topics"),
        (vec!["serve", url], "a server serves a folder"),
        (vec!["backup", url, "x"], "/v1/backups"),
    ] {
        let run = esker_fed(&args, dir.path(), |_| {});
        assert!(run.code == 2 || run.code == 3, "{args:?}: {}", run.stderr);
        assert!(run.stderr.contains(hint), "{args:?}: {}", run.stderr);
    }
    // No folder was made of an address.
    assert!(!dir.path().join("http:").exists());
}

#[test]
fn a_token_comes_from_the_environment_or_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let made = run(&["token", "me", "--role", "admin"]).expect(0);
    let token = made.stderr.rsplit(' ').next().unwrap().trim().to_string();
    let config = dir.path().join("esker.toml");
    fs::write(&config, &made.stdout).unwrap();
    let file = dir.path().join("token");
    fs::write(&file, format!("{token}\n")).unwrap();
    let settings = ["--config", config.to_str().unwrap()];
    let server = Server::start(dir.path().join("db").as_os_str(), &settings);
    let refused = run(&["list", &server.url]).expect(3);
    assert!(
        refused.stderr.contains("--token-file"),
        "{}",
        refused.stderr
    );
    let file = file.to_str().unwrap();
    run(&[
        "create",
        &server.url,
        "d",
        "--key",
        "id:int",
        "--token-file",
        file,
    ])
    .expect(0);
    let listed = crate::common::command(&["list", &server.url])
        .env("ESKER_TOKEN", &token)
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8(listed.stdout).unwrap(),
        "d\t--key id:int\n"
    );
    run(&["list", &server.url, "--token-file", "/nothing"]).expect(2);
}

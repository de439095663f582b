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
        an_order_by_no_field_or_in_no_direction_is_noted,
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

/// Records with a key and a name.
fn records() -> String {
    let line = |id: u32| format!("{{\"id\":{id},\"user\":\"user {}\"}}\n", id % 3);
    (0..300).map(line).collect()
}

fn fed(args: &[&str], folder: &Path, input: &'static str) -> Run {
    esker_fed(args, folder, move |to| {
        to.write_all(input.as_bytes()).unwrap()
    })
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

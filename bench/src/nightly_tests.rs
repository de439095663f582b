use std::cell::Cell;

use super::*;
use crate::measure::{Claim, Writer};

fn row(suite: &str, operation: &str, bits: u32, data: &str) -> Row {
    Row {
        suite: suite.into(),
        experiment: "filter-length".into(),
        subject: "embedded".into(),
        operation: operation.into(),
        parameters: BTreeMap::from([
            ("bits".into(), Json::from(bits)),
            ("data".into(), Json::from(data)),
        ]),
        repeat: 0,
        ops: 10,
        seconds: 1.0,
        cpu_us: 1.0,
        p50_us: 1.0,
        p99_us: 1.0,
        p999_us: 1.0,
        max_us: 1.0,
        figures: BTreeMap::new(),
    }
}

fn claim(text: &str, held: bool) -> Claim {
    Claim {
        suite: "deli".into(),
        experiment: "filter-length".into(),
        text: text.into(),
        source: "paper table 8".into(),
        expected: "twice".into(),
        measured: "once".into(),
        held,
        why: String::new(),
    }
}

fn results(rows: &[Row], claims: &[Claim]) -> Results {
    Results {
        rows: rows.to_vec(),
        claims: claims.to_vec(),
        settings: Vec::new(),
    }
}

#[test]
fn a_row_that_is_missing_and_a_statement_that_fell_are_named_and_nothing_else() {
    let rows = |bits: &[u32]| -> Vec<Row> {
        bits.iter()
            .map(|bits| row("deli", "lookup", *bits, ""))
            .collect()
    };
    let before = results(
        &rows(&[50, 100]),
        &[claim("longer is faster", true), claim("wanders", false)],
    );
    let expected = Expected::of(&before);
    assert_eq!(expected.missed(&before), Missed::default());

    let now = results(
        &rows(&[50]),
        &[claim("longer is faster", false), claim("wanders", true)],
    );
    let lines = expected.missed(&now).lines("deli");
    assert_eq!(
        lines,
        [
            "not measured: deli: filter-length · embedded · lookup: 1 of 2 rows",
            "no longer holds: deli: filter-length: longer is faster: once",
        ]
    );
    // Who does not look does not see that something fell.
    let blind = results(&rows(&[50, 100]), &[claim("wanders", true)]);
    let lines = expected.missed(&blind).lines("deli");
    assert_eq!(
        lines,
        ["not measured: deli: filter-length: longer is faster (not looked at)"]
    );
}

#[test]
fn a_list_comes_back_as_it_was_written_and_what_held_only_once_does_not_have_to() {
    let one = Expected::of(&results(
        &[
            row("deli", "get", 2, "tweets"),
            row("deli", "get", 5, "tweets"),
        ],
        &[claim("often", true), claim("always", true)],
    ));
    let other = Expected::of(&results(
        &[
            row("deli", "get", 2, "tweets"),
            row("deli", "put", 2, "events"),
        ],
        &[claim("often", false), claim("always", true)],
    ));
    let both = one.and(other);
    let text = both.text();
    assert_eq!(
        text,
        "row\tfilter-length\tembedded\tget\ttweets\t1\n\
         row\tfilter-length\tembedded\tput\tevents\t1\n\
         holds\tfilter-length\talways\n\
         varies\tfilter-length\toften\n"
    );
    assert_eq!(Expected::parse(&text), Ok(both.clone()));
    assert!(Expected::parse("row\tfew\n").is_err());
    assert!(Expected::parse("row\ta\tb\tc\td\tmany\n").is_err());

    let left = both.without(&["events".to_string()]);
    assert_eq!(left.rows.len(), 1);
    let none = left.without(&["embedded".to_string(), "always".to_string()]);
    assert_eq!((none.rows.len(), none.statements.len()), (0, 1));
}

/// A night in which the `at`-th run of a suite has the statements `held[at]`; how often it ran, and what came of it.
fn night(list: &str, held: &[bool], failures: &[&str]) -> (usize, Result<()>) {
    let dir = tempfile::tempdir().unwrap();
    let expected = Expected::parse(list).unwrap();
    let runs = Cell::new(0);
    let options = Options {
        only: vec!["deli".into()],
        without: Vec::new(),
        out: dir.path().to_path_buf(),
    };
    let ended = run_with(
        &options,
        |_| Ok(expected.clone()),
        |arguments| {
            assert_eq!(arguments[..4], ["deli", "--scale", "0.05", "--out"]);
            let mut writer = Writer::create(Path::new(&arguments[4])).unwrap();
            writer.row(&row("deli", "get", 2, "")).unwrap();
            writer
                .claim(&claim("faster", held[runs.get().min(held.len() - 1)]))
                .unwrap();
            runs.set(runs.get() + 1);
            Ok(failures.iter().map(|name| name.to_string()).collect())
        },
    );
    (runs.get(), ended)
}

#[test]
fn a_night_tries_again_what_may_be_chance_and_fails_where_it_is_not() {
    let list = "row\tfilter-length\tembedded\tget\t\t1\nholds\tfilter-length\tfaster\n";
    assert!(matches!(night(list, &[true], &[]), (1, Ok(()))));
    assert!(matches!(night(list, &[false, true], &[]), (2, Ok(()))));
    let (runs, ended) = night(list, &[false], &[]);
    assert_eq!(runs, TRIES);
    let said = ended.unwrap_err().to_string();
    assert!(
        said.contains("no longer holds: deli: filter-length: faster: once; again once"),
        "{said}"
    );
    // What was not measured is no chance.
    let more = format!("{list}row\tfilter-length\tembedded\tput\t\t1\n");
    let (runs, ended) = night(&more, &[false], &[]);
    assert_eq!(runs, 1);
    let said = ended.unwrap_err().to_string();
    assert!(said.contains("embedded · put: 0 of 1 rows"), "{said}");
    let (runs, ended) = night(list, &[true], &["deli · mix · sqlite"]);
    assert_eq!(runs, 1);
    assert!(
        ended
            .unwrap_err()
            .to_string()
            .contains("not measured: deli: deli · mix · sqlite")
    );
    assert!(night("", &[false], &[]).1.is_ok());
}

#[test]
fn every_suite_has_a_list_of_which_something_has_to_hold() {
    for (suite, _) in SUITES {
        let expected = Expected::read(&list(suite)).unwrap();
        assert!(!expected.rows.is_empty(), "{suite}");
        assert!(expected.statements.values().any(|held| *held), "{suite}");
    }
    let lengths = Expected::read(&list("leveldbpp")).unwrap();
    let lookups = lengths
        .rows
        .iter()
        .filter(|(name, _)| name[0] == "filter-length");
    // Six lengths, up to 100 bits.
    assert!(lookups.clone().count() > 0 && lookups.clone().all(|(_, count)| *count % 6 == 0));
}

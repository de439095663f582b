use std::collections::BTreeMap;

use super::scale::{Scale, short, thousands};
use super::sheet::{Chart, Form, Measure, Sheet, label};
use crate::measure::{Claim, Row, Writer};

fn row(subject: &str, operation: &str, k: u64, cpu_us: f64) -> Row {
    Row {
        suite: "s".to_string(),
        experiment: "e".to_string(),
        subject: subject.to_string(),
        operation: operation.to_string(),
        parameters: BTreeMap::from([("K".to_string(), k.into())]),
        repeat: 0,
        ops: 1000,
        seconds: 0.5,
        cpu_us,
        p50_us: cpu_us * 0.9,
        p99_us: cpu_us * 2.0,
        p999_us: cpu_us * 3.0,
        max_us: cpu_us * 4.0,
        figures: BTreeMap::from([("disk_bytes".to_string(), 2097152.0)]),
    }
}

fn claim(text: &str, held: bool) -> Claim {
    Claim {
        suite: "s".to_string(),
        experiment: "e".to_string(),
        text: text.to_string(),
        source: "figure 1".to_string(),
        expected: "a < b".to_string(),
        measured: "a = 1 & b = 2".to_string(),
        held,
        why: if held {
            String::new()
        } else {
            "because <it> is so".to_string()
        },
    }
}

#[test]
fn linear_axes_begin_at_zero_and_wide_ranges_are_logarithmic() {
    let linear = Scale::of([2.0, 10.0].into_iter());
    assert!(!linear.log && linear.place(0.0) == 0.0 && linear.place(10.0) > 0.95);
    assert_eq!(linear.ticks(5).first(), Some(&0.0));
    let log = Scale::of([0.5, 900.0].into_iter());
    assert!(log.log && log.place(0.1) == 0.0);
    let (a, b, c) = (log.place(1.0), log.place(10.0), log.place(100.0));
    assert!(((b - a) - (c - b)).abs() < 1e-9);
    assert!(log.ticks(5).contains(&100.0));
    let none = Scale::of(std::iter::empty());
    assert_eq!(none.place(0.0), 0.0);
}

#[test]
fn numbers_are_short() {
    let cases = [
        (0.0, "0"),
        (0.08333, "0.0833"),
        (0.5, "0.5"),
        (4.2, "4.2"),
        (9.999, "10"),
        (35.14, "35.1"),
        (140.4, "140"),
        (9999.0, "9999"),
        (13_900.0, "13.9k"),
        (1_437_000.0, "1437k"),
        (14_370_000.0, "14.4M"),
    ];
    for (value, text) in cases {
        assert_eq!(short(value), text);
    }
    assert_eq!(
        [0, 999, 1000, 1234567].map(thousands),
        ["0", "999", "1,000", "1,234,567"]
    );
}

#[test]
fn labels_name_numbers_only() {
    let mut row = row("a", "range", 10, 1.0);
    row.parameters.insert("data".to_string(), "tweets".into());
    assert_eq!(
        label(&row, &["operation", "data", "K", "absent"]),
        "range, tweets, K=10"
    );
    row.parameters.insert("K".to_string(), "all".into());
    assert_eq!(label(&row, &["K"]), "K=all");
}

#[test]
fn the_report_holds_every_row_and_claim_and_needs_nothing_else() {
    let out = tempfile::tempdir().unwrap();
    let mut writer = Writer::create(out.path()).unwrap();
    for repeat in 0..3 {
        for (subject, cpu) in [("esker lazy", 5.0), ("rocksdb blind", 10.0)] {
            for (operation, k) in [("put", 0), ("lookup", 10), ("lookup", 100)] {
                let cpu_us = cpu + f64::from(repeat);
                writer
                    .row(&Row {
                        repeat,
                        ..row(subject, operation, k, cpu_us)
                    })
                    .unwrap();
            }
        }
    }
    writer.claim(&claim("first holds", true)).unwrap();
    writer.claim(&claim("second <fails>", false)).unwrap();
    writer.setting("machine", "two cores").unwrap();
    let chart = |form| Chart {
        title: "lookups",
        operations: &["lookup"],
        split: &[],
        group: &[],
        measure: Measure::Cpu,
        form,
    };
    let sheet = Sheet {
        suite: "s",
        experiment: "e",
        title: "An experiment",
        asks: "Who wins?",
        charts: vec![
            chart(Form::Bars),
            chart(Form::Lines("K", "records asked for")),
        ],
        table: true,
        headline: true,
    };
    super::make(out.path(), &[sheet]).unwrap();

    let read = |name: &str| std::fs::read_to_string(out.path().join(name)).unwrap();
    let csv = read("results.csv");
    assert_eq!(csv.lines().count(), 1 + 18);
    assert!(csv.starts_with("suite,experiment,subject,operation,K,repeat,ops,"));
    let page = read("index.html");
    for part in [
        "An experiment",
        "Who wins?",
        "<b>1</b> of <b>2</b> claims held",
        "second &lt;fails&gt;",
        "because &lt;it&gt; is so",
        "a = 1 &amp; b = 2",
        "two cores",
        "1.83×",
        "<td>2\n",
    ] {
        assert!(page.contains(part), "{part} is not on the page");
    }
    let elsewhere = page.replace("http://www.w3.org/2000/svg", "");
    for part in ["http", "<script", "<link", "url(", "src="] {
        assert!(!elsewhere.contains(part), "the page has {part}");
    }
    assert_eq!(page.matches("<figure>").count(), 2);
    let document = read("README.md");
    let charts: Vec<_> = std::fs::read_dir(out.path().join("charts"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(charts.len(), 2, "{charts:?}");
    for file in charts {
        assert!(
            document.contains(&format!("](charts/{file})")),
            "{document}"
        );
        let svg = read(&format!("charts/{file}"));
        assert!(
            svg.starts_with("<svg ") && svg.contains("rocksdb blind") && !svg.contains("#010101")
        );
    }
}

#[test]
fn experiments_without_a_sheet_get_a_picture_for_each_operation() {
    let rows = [
        row("a", "put", 1, 5.0),
        row("b", "put", 1, 6.0),
        row("a", "get", 1, 7.0),
    ];
    let sections = super::figures::sections(&rows, &[], &[]).unwrap();
    let captions: Vec<&str> = sections[0]
        .pictures
        .iter()
        .map(|p| p.caption.as_str())
        .collect();
    assert_eq!(captions, ["put", "get"]);
}

#[test]
fn a_subject_has_one_colour_and_kinds_have_different_ones() {
    use super::colours::of;
    assert_eq!(of("esker lazy"), of("lazy"));
    assert_ne!(of("rocksdb eager"), of("eager"));
    assert_eq!(of("RocksDB none"), of("rocksdb, no index"));
    let kinds = [
        "none",
        "embedded",
        "fingerprint",
        "eager",
        "lazy",
        "composite",
        "recent",
    ];
    for (at, kind) in kinds.iter().enumerate() {
        assert!(kinds[..at].iter().all(|other| of(other) != of(kind)));
    }
}

#[test]
fn the_committed_run_makes_the_committed_figures() {
    let committed = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/results/peers");
    let again = tempfile::tempdir().unwrap();
    let results = crate::measure::RESULTS;
    std::fs::copy(committed.join(results), again.path().join(results)).unwrap();
    super::make(again.path(), &crate::suites::sheets()).unwrap();
    let read = |path: std::path::PathBuf| {
        std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    };
    let text = read(again.path().join("README.md"));
    assert_eq!(text, read(committed.join("README.md")));
    for chart in std::fs::read_dir(again.path().join("charts")).unwrap() {
        let name = std::path::Path::new("charts").join(chart.unwrap().file_name());
        assert_eq!(read(again.path().join(&name)), read(committed.join(&name)));
    }
    // What the guide shows is there.
    let guide = read(committed.join("../../performance.md"));
    let shown: Vec<&str> = guide
        .split("](results/peers/charts/")
        .skip(1)
        .filter_map(|rest| rest.split(')').next())
        .collect();
    assert!(shown.len() > 5);
    for name in shown {
        read(committed.join("charts").join(name));
    }
}

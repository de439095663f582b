use super::*;

fn row(operation: &str, repeat: u32, p50_us: f64, seconds: f64) -> Row {
    Row {
        suite: "peers".into(),
        experiment: "1M cached".into(),
        subject: "esker lazy".into(),
        operation: operation.into(),
        parameters: BTreeMap::from([("kind".into(), Value::from("lazy"))]),
        repeat,
        ops: 100,
        seconds,
        cpu_us: p50_us,
        p50_us,
        p99_us: p50_us * 2.0,
        p999_us: p50_us * 3.0,
        max_us: p50_us * 4.0,
        figures: BTreeMap::from([("disk_bytes".into(), p50_us * 10.0)]),
    }
}

#[test]
fn results_come_back_as_they_were_written() {
    let dir = tempfile::tempdir().unwrap();
    let claim = Claim {
        suite: "peers".into(),
        experiment: "1M cached".into(),
        text: "gets are faster".into(),
        source: "goal".into(),
        expected: "1.3x".into(),
        measured: "1.2x".into(),
        held: false,
        why: "one block too many".into(),
    };
    let mut writer = Writer::create(dir.path()).unwrap();
    writer.setting("cores", 2).unwrap();
    writer.row(&row("get", 0, 5.25, 0.1)).unwrap();
    writer.claim(&claim).unwrap();
    let results = Results::read(dir.path()).unwrap();
    assert_eq!(results.rows, [row("get", 0, 5.25, 0.1)]);
    assert_eq!(results.claims, [claim]);
    assert_eq!(results.settings[0].value, "2");
}

#[test]
fn medians_are_taken_over_repeats_only() {
    let results = Results {
        rows: vec![
            row("get", 0, 5.0, 1.0),
            row("load", 0, 1.0, 1.0),
            row("get", 1, 9.0, 3.0),
            row("get", 2, 6.0, 2.0),
        ],
        ..Results::default()
    };
    let medians = results.medians();
    assert_eq!(medians.len(), 2);
    assert_eq!((medians[0].p50_us, medians[0].repeat), (6.0, 3));
    assert!((medians[0].ops_per_second() - 50.0).abs() < 1e-9);
    assert_eq!(medians[0].figures["disk_bytes"], 60.0);
    assert_eq!(medians[1].p50_us, 1.0);
}

#[test]
fn a_median_of_an_even_number_is_between() {
    assert_eq!(median(vec![4.0, 1.0]), 2.5);
    assert_eq!(median(vec![]), 0.0);
}

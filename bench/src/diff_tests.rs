use std::collections::BTreeMap;

use super::*;

/// Runs with a row for each repeat's CPU time.
fn results(operation: &str, cpu: &[f64]) -> Results {
    let row = |(repeat, cpu_us): (u32, &f64)| Row {
        suite: "s".to_string(),
        experiment: "e".to_string(),
        subject: "a".to_string(),
        operation: operation.to_string(),
        parameters: BTreeMap::from([("K".to_string(), 10.into())]),
        repeat,
        ops: 1,
        seconds: 1.0,
        cpu_us: *cpu_us,
        p50_us: 7.0,
        p99_us: 8.0,
        p999_us: 9.0,
        max_us: 10.0,
        figures: BTreeMap::new(),
    };
    let rows = (0..).zip(cpu).map(row).collect();
    Results {
        rows,
        ..Results::default()
    }
}

fn verdict(before: &[f64], after: &[f64]) -> Verdict {
    let changes = compare(&results("get", before), &results("get", after));
    assert_eq!(changes.len(), 1);
    changes[0].verdict()
}

#[test]
fn a_change_counts_when_it_is_larger_than_the_repeats_lie_apart() {
    assert_eq!(verdict(&[5.0, 5.1, 5.0], &[6.0, 6.1, 6.0]), Verdict::Slower);
    assert_eq!(verdict(&[6.0, 6.1, 6.0], &[5.0, 5.1, 5.0]), Verdict::Faster);
    assert_eq!(verdict(&[4.0, 5.0, 6.0], &[5.0, 6.0, 7.0]), Verdict::Same);
    assert_eq!(verdict(&[5.0, 5.0], &[5.1, 5.1]), Verdict::Same);
}

#[test]
fn a_single_run_is_believed_by_more_than_a_tenth_only() {
    assert_eq!(verdict(&[5.0], &[5.4]), Verdict::Same);
    assert_eq!(verdict(&[5.0], &[6.0]), Verdict::Slower);
}

#[test]
fn only_what_both_runs_measured_is_compared() {
    assert!(compare(&results("get", &[5.0]), &results("put", &[5.0])).is_empty());
    let mut other = results("get", &[5.0]);
    other.rows[0].parameters.insert("K".to_string(), 100.into());
    assert!(compare(&results("get", &[5.0]), &other).is_empty());
}

#[test]
fn the_worst_ratio_is_of_what_got_slower() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    for (folder, cpu) in folders.iter().zip([5.0, 10.0]) {
        let mut writer = crate::measure::Writer::create(folder.path()).unwrap();
        for row in &results("get", &[cpu, cpu]).rows {
            writer.row(row).unwrap();
        }
    }
    let (text, worst) = diff(folders[0].path(), folders[1].path()).unwrap();
    assert_eq!(worst, 2.0);
    assert!(
        text.contains("SLOWER") && text.contains("1 slower and 0 faster"),
        "{text}"
    );
    let (_, worst) = diff(folders[1].path(), folders[0].path()).unwrap();
    assert_eq!(worst, 1.0);
}

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::*;

fn row(
    experiment: &str,
    subject: &str,
    operation: &str,
    cpu_us: f64,
    parameters: &[(&str, Json)],
) -> Row {
    let mut all = BTreeMap::from([("data".to_string(), Json::from("tweets"))]);
    all.extend(
        parameters
            .iter()
            .map(|(name, value)| (name.to_string(), value.clone())),
    );
    Row {
        suite: SUITE.to_string(),
        experiment: experiment.to_string(),
        subject: subject.to_string(),
        operation: operation.to_string(),
        parameters: all,
        repeat: 1,
        ops: 100,
        seconds: 1.0,
        cpu_us,
        p50_us: cpu_us,
        p99_us: cpu_us,
        p999_us: cpu_us,
        max_us: cpu_us,
        figures: BTreeMap::from([("blocks".to_string(), 1.0)]),
    }
}

fn lookups(embedded: f64, lazy: f64, composite: f64) -> Vec<Row> {
    let parameters = [("K", Json::from(10)), ("selectivity", "1 value".into())];
    [
        ("embedded", embedded),
        ("lazy", lazy),
        ("composite", composite),
    ]
    .map(|(kind, cpu)| row("by-user", kind, "lookup", cpu, &parameters))
    .to_vec()
}

fn of<'c>(claims: &'c [Claim], part: &str) -> &'c Claim {
    claims
        .iter()
        .find(|claim| claim.text.contains(part))
        .unwrap()
}

#[test]
fn the_winner_decides_and_a_miss_says_why() {
    let claims = all(&lookups(100.0, 10.0, 50.0));
    let lazy = of(&claims, "lazy is best at small K");
    assert!(lazy.held && lazy.why.is_empty() && lazy.measured.contains("lazy 10"));
    assert!(!of(&claims, "embedded beats composite").held);

    let claims = all(&lookups(20.0, 60.0, 50.0));
    let lazy = of(&claims, "lazy is best at small K");
    assert!(!lazy.held && !lazy.why.is_empty());
    assert!(of(&claims, "embedded beats composite").held);
}

#[test]
fn level_is_as_good_as_ahead() {
    let claims = all(&lookups(100.0, 10.4, 10.0));
    assert!(of(&claims, "lazy is best at small K").held);
}

#[test]
fn what_was_not_measured_is_not_claimed() {
    assert!(all(&[]).is_empty());
    let mut rows = lookups(1.0, 2.0, 3.0);
    rows.remove(0);
    assert!(all(&rows).is_empty());
}

#[test]
fn puts_that_rise_are_noticed() {
    let windows = |kind: &str, rise: f64| -> Vec<Row> {
        let window = |at: u64| {
            let parameters = [("index", Json::from("user")), ("records", at.into())];
            row(
                "put-over-time",
                kind,
                "put",
                5.0 + rise * at as f64,
                &parameters,
            )
        };
        (0..20).map(window).collect()
    };
    let held = |lazy: f64, eager: f64| {
        let kinds = [
            ("embedded", 0.0),
            ("lazy", lazy),
            ("composite", 0.0),
            ("eager", eager),
        ];
        let rows: Vec<Row> = kinds
            .into_iter()
            .flat_map(|(kind, rise)| windows(kind, rise))
            .collect();
        of(&all(&rows), "as the store grows").held
    };
    assert!(held(0.0, 1.0));
    assert!(!held(0.0, 0.0));
    assert!(!held(1.0, 1.0));
}

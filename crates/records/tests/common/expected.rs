//! Compares the planner's estimates for an index with the results. The command line's tests use it,
//! too, with real data.

use esker::{Dataset, Expr};

/// Estimates and results below this count as equal.
const FEW: u64 = 10;

/// The allowed factor between an estimate and the result: for ranges and for values of similar
/// frequency, and for values of attributes with very uneven frequencies.
pub(crate) const EVEN: f64 = 3.0;
pub(crate) const SKEWED: f64 = 10.0;

const CONDITIONS: usize = 200;

/// The blocks that the estimate of a condition may read: more than one only if that shows little.
const BLOCKS: u64 = 3;

/// Returns the estimates that are too far off.
pub(crate) fn compare(
    dataset: &Dataset<u64>,
    condition: &mut dyn FnMut() -> (String, f64),
    what: &str,
) -> Vec<String> {
    let (mut wrong, mut far) = (Vec::new(), Vec::new());
    for _ in 0..CONDITIONS {
        let (text, bound) = condition();
        let term: Expr = text.parse().unwrap();
        let mut alone = dataset.find(term.clone()).run().unwrap();
        let answers = alone
            .by_ref()
            .inspect(|record| assert!(record.is_ok()))
            .count() as u64;
        let there = alone.explain().steps.candidates;
        let both = term & "all >= 0".parse::<Expr>().unwrap();
        let explain = dataset.find(both).limit(0).run().unwrap().explain();
        let compared = explain.plan.compared.iter();
        let compared: Vec<_> = compared
            .filter(|c| !c.condition.starts_with("all"))
            .collect();
        let [compared] = compared.as_slice() else {
            panic!("{text}: {explain:?}");
        };
        let read = explain.cost.index.unwrap().data_blocks + explain.cost.data.data_blocks;
        assert!(
            read <= BLOCKS * explain.plan.compared.len() as u64,
            "{what}: {text}: {read} blocks read"
        );
        let (expected, there) = (compared.expected.max(FEW) as f64, there.max(FEW) as f64);
        let off = (expected / there).max(there / expected);
        far.push(off);
        if off > bound {
            wrong.push(format!(
                "{what}: {text}: {} expected, {there} there, {answers} of them answers",
                compared.expected
            ));
        }
    }
    far.sort_by(f64::total_cmp);
    println!(
        "{what}: half within {:.2}, nine of ten within {:.2}, all within {:.2}",
        far[CONDITIONS / 2],
        far[CONDITIONS * 9 / 10],
        far[CONDITIONS - 1]
    );
    wrong
}

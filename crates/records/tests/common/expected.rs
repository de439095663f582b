//! What the planner expects of an index, beside what the index gives. Also of the command line's tests, which have real data.

use esker::{Dataset, Expr};

/// So few are as good as none.
const FEW: u64 = 10;

/// How far what is expected may be from what there is: of ranges and of values that are about as frequent as others; and of values
/// of attributes of which some are far more frequent than others.
pub(crate) const EVEN: f64 = 3.0;
pub(crate) const SKEWED: f64 = 10.0;

const CONDITIONS: usize = 200;

/// What differs too much, of conditions whose index reads at most a block to tell.
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
            read <= explain.plan.compared.len() as u64,
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

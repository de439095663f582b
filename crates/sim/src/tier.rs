//! How much a test does: what a change needs, or what a night has time for.

/// True with `ESKER_TIER=nightly`: sweeps in small steps, and products in full.
pub fn is_nightly() -> bool {
    std::env::var("ESKER_TIER").is_ok_and(|tier| tier == "nightly")
}

/// A number of runs or the length of a step: `usual`, or `nightly` in that tier.
pub fn by_tier<T>(usual: T, nightly: T) -> T {
    if is_nightly() { nightly } else { usual }
}

/// Combinations of choices: row by row, the index of a choice for each of `sizes`, without the rows
/// that `is_possible` rejects. In the nightly tier these are all combinations; else each pair of
/// choices of two positions is in at least one of them, if any possible row has it.
///
/// ```
/// let rows = esker_sim::combinations(&[3, 3, 2], &|_| true);
/// assert!(rows.len() < 3 * 3 * 2 && rows.iter().any(|row| row[0] == 2 && row[1] == 1));
/// ```
pub fn combinations(sizes: &[usize], is_possible: &dyn Fn(&[usize]) -> bool) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new()];
    for size in sizes {
        let longer = all
            .iter()
            .flat_map(|row| (0..*size).map(move |choice| [row.as_slice(), &[choice]].concat()));
        all = longer.collect();
    }
    all.retain(|row| is_possible(row));
    if is_nightly() {
        return all;
    }
    covering(all)
}

/// Pairs of a row: two positions, and the choices there.
fn pairs(row: &[usize]) -> impl Iterator<Item = (usize, usize, usize, usize)> {
    (0..row.len()).flat_map(move |a| (a + 1..row.len()).map(move |b| (a, row[a], b, row[b])))
}

/// Some of the rows, with all pairs of all rows: greedily the row with the most pairs that are
/// missing, the first of several.
fn covering(all: Vec<Vec<usize>>) -> Vec<Vec<usize>> {
    let mut missing: std::collections::BTreeSet<_> =
        all.iter().flat_map(|row| pairs(row)).collect();
    let mut rows = Vec::new();
    while !missing.is_empty() {
        let new = |row: &Vec<usize>| pairs(row).filter(|pair| missing.contains(pair)).count();
        // The last of equal ones is taken by `max_by_key`.
        let Some(best) = all.iter().rev().max_by_key(|row| new(row)) else {
            break;
        };
        for pair in pairs(best) {
            missing.remove(&pair);
        }
        rows.push(best.clone());
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_possible_pair_is_in_a_row_and_no_impossible_row_is() {
        let sizes = [9, 3, 5, 5, 2, 2];
        let possible = |row: &[usize]| row[2] != row[3];
        let mut all = Vec::new();
        for n in 0..sizes.iter().product::<usize>() {
            let mut rest = n;
            let row = sizes.map(|size| {
                let choice = rest % size;
                rest /= size;
                choice
            });
            all.push(row.to_vec());
        }
        let rows = covering(all.iter().filter(|row| possible(row)).cloned().collect());
        assert!(rows.len() < 100, "{}", rows.len());
        assert!(rows.iter().all(|row| possible(row)));
        for pair in all
            .iter()
            .filter(|row| possible(row))
            .flat_map(|row| pairs(row))
        {
            assert!(rows.iter().any(|row| pairs(row).any(|other| other == pair)));
        }
    }
}

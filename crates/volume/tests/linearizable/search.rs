//! The check beside a search of all orders, on small histories.

use super::linearizable::{Action, Operation, ZEROS, check};

/// True where some order of the operations of a block explains all reads.
fn search(history: &[Operation], done: u32, value: u64, seen: &mut Vec<(u32, u64)>) -> bool {
    let open = |at: &usize| done & 1 << at == 0;
    let all = 0..history.len();
    if all
        .clone()
        .filter(open)
        .all(|at| history[at].responded.is_none())
    {
        return true;
    }
    if seen.contains(&(done, value)) {
        return false;
    }
    seen.push((done, value));
    let ends = all
        .clone()
        .filter(open)
        .filter_map(|at| history[at].responded);
    let end = ends.min().unwrap_or(u64::MAX);
    let next = all.filter(open).filter(|at| history[*at].invoked <= end);
    let mut next = next.collect::<Vec<_>>().into_iter();
    next.any(|at| {
        let after = match history[at].action {
            Action::Write(value) => value,
            Action::Discard => ZEROS,
            Action::Read(read) if read == value => value,
            Action::Read(_) => return false,
        };
        search(history, done | 1 << at, after, seen)
    })
}

fn random_history(random: &mut fastrand::Rng) -> Vec<Operation> {
    let count = random.usize(1..=9);
    let times = random.u64(2..=14);
    let longest = random.u64(1..=times);
    let values = random.u64(0..=3);
    let (discards, no_response) = (random.u8(1..=3), random.u8(2..12));
    let mut written = 0;
    let operation = |_| {
        let invoked = random.u64(..times);
        let action = match random.u8(..6) {
            0 | 1 if written < values => {
                written += 1;
                Action::Write(written)
            }
            at if (2..2 + discards).contains(&at) => Action::Discard,
            _ => Action::Read(random.u64(..=values)),
        };
        let responded = invoked + random.u64(..=longest);
        let unknown = random.u8(..no_response) == 0;
        Operation {
            block: 0,
            action,
            invoked,
            responded: (!unknown).then_some(responded),
        }
    };
    (0..count).map(operation).collect()
}

#[test]
fn the_check_agrees_with_a_search_of_all_orders() {
    let mut verdicts = [0, 0];
    for seed in esker_sim::seeds(400) {
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..500 {
            let history = random_history(&mut random);
            let found = search(&history, 0, ZEROS, &mut Vec::new());
            let checked = check(&history);
            let right = checked.is_ok() == found;
            assert!(right, "ESKER_SEED={seed}: {checked:?}, {history:#?}");
            verdicts[usize::from(found)] += 1;
        }
    }
    let least = verdicts.iter().min();
    assert!(least > Some(&100), "{verdicts:?}");
}

//! Long histories of blocks that are executed, and the same with one wrong read.

use super::linearizable::{Action, Operation, Reason, ZEROS, check};

/// What a history is made of.
struct Shape {
    clients: usize,
    operations: usize,
    blocks: u64,
    /// The longest operation.
    longest: u64,
    /// One in so many operations has no response; it may happen much later, or never.
    unknown: u64,
}

fn random_shape(random: &mut fastrand::Rng) -> Shape {
    Shape {
        clients: random.usize(1..20),
        operations: random.usize(1..3000),
        blocks: random.u64(1..4),
        longest: random.u64(1..100),
        unknown: random.u64(2..30),
    }
}

/// Executes operations, each at one moment between its invocation and its response.
fn execute(random: &mut fastrand::Rng, shape: &Shape) -> Vec<Operation> {
    // Of each client, when its next operation may begin.
    let mut free = vec![0; shape.clients];
    // The moments at which operations happen, and the operations, without what they read.
    let mut moments = Vec::new();
    for at in 0..shape.operations {
        let client = random.usize(..shape.clients);
        let invoked = free[client] + random.u64(..5);
        let responded = invoked + random.u64(..=shape.longest);
        let unknown = random.u64(..shape.unknown) == 0;
        free[client] = responded + 1;
        let action = match random.u8(..10) {
            0..3 => Action::Write(at as u64 + 1),
            3 => Action::Discard,
            _ => Action::Read(ZEROS),
        };
        let moment = if unknown {
            invoked + random.u64(..shape.longest * 20)
        } else {
            random.u64(invoked..=responded)
        };
        let operation = Operation {
            block: random.u64(..shape.blocks),
            action,
            invoked,
            responded: (!unknown).then_some(responded),
        };
        let never = unknown && random.bool();
        moments.push((moment, random.u64(..), never, operation));
    }
    moments.sort_by_key(|(moment, tie, ..)| (*moment, *tie));
    let mut values = vec![ZEROS; shape.blocks as usize];
    let mut history = Vec::new();
    for (_, _, never, mut operation) in moments {
        let value = &mut values[operation.block as usize];
        match &mut operation.action {
            Action::Read(read) => *read = *value,
            Action::Write(_) | Action::Discard if never => {}
            Action::Write(written) => *value = *written,
            Action::Discard => *value = ZEROS,
        }
        history.push(operation);
    }
    random.shuffle(&mut history);
    history
}

#[test]
fn what_was_executed_is_linearizable() {
    for seed in esker_sim::seeds(200) {
        let mut random = fastrand::Rng::with_seed(seed);
        let shape = random_shape(&mut random);
        let history = execute(&mut random, &shape);
        if let Err(violation) = check(&history) {
            panic!("ESKER_SEED={seed}: {violation}");
        }
    }
}

/// The writes and discards that ended before `time`, of a block, by their ends.
fn ended(history: &[Operation], block: u64, time: u64) -> Vec<(u64, Operation)> {
    let of_block = history.iter().filter(|operation| operation.block == block);
    let ended = of_block.filter_map(|operation| {
        let is_read = matches!(operation.action, Action::Read(_));
        let end = operation.responded.filter(|end| !is_read && *end < time);
        end.map(|end| (end, *operation))
    });
    let mut ended: Vec<_> = ended.collect();
    ended.sort_by_key(|(end, operation)| (*end, operation.invoked));
    ended
}

#[test]
fn a_stale_read_is_found_in_a_long_history() {
    let mut found = 0;
    for seed in esker_sim::seeds(200) {
        let mut random = fastrand::Rng::with_seed(seed);
        let shape = random_shape(&mut random);
        let mut history = execute(&mut random, &shape);
        let reads: Vec<usize> = (0..history.len())
            .filter(|at| {
                let Operation {
                    action, responded, ..
                } = history[*at];
                matches!(action, Action::Read(_)) && responded.is_some()
            })
            .collect();
        let Some(&read) = random.choice(&reads) else {
            continue;
        };
        let ended = ended(&history, history[read].block, history[read].invoked);
        // A write that was overwritten before the read began.
        let stale = ended.iter().find_map(|(end, old)| match old.action {
            Action::Write(value) if ended.iter().any(|(_, new)| new.invoked > *end) => Some(value),
            _ => None,
        });
        let Some(stale) = stale else {
            continue;
        };
        history[read].action = Action::Read(stale);
        let violation = check(&history).expect_err(&format!("ESKER_SEED={seed}"));
        assert!(
            violation.operations.len() <= 6 && violation.to_string().contains("block"),
            "ESKER_SEED={seed}: {violation}"
        );
        found += 1;
    }
    assert!(found > 0);
}

#[test]
fn a_write_that_is_lost_is_found_in_a_long_history() {
    for seed in esker_sim::seeds(100) {
        let mut random = fastrand::Rng::with_seed(seed);
        let shape = random_shape(&mut random);
        let mut history = execute(&mut random, &shape);
        // Without discards, nothing explains the zeros.
        history.retain(|operation| operation.action != Action::Discard);
        history.retain(|operation| operation.action != Action::Read(ZEROS));
        assert_eq!(check(&history), Ok(()), "ESKER_SEED={seed}");
        let last = history.iter().filter_map(|operation| operation.responded);
        let last = last.max().unwrap_or(0);
        let value = shape.operations as u64 + 1;
        for (action, invoked) in [
            (Action::Write(value), last),
            (Action::Read(ZEROS), last + 2),
        ] {
            let at = random.usize(..=history.len());
            history.insert(
                at,
                Operation {
                    block: 0,
                    action,
                    invoked,
                    responded: Some(invoked + 1),
                },
            );
        }
        let violation = check(&history).unwrap_err();
        assert_eq!(violation.reason, Reason::NoDiscard, "ESKER_SEED={seed}");
    }
}

#[test]
fn hundred_thousand_operations_of_one_block_are_checked_at_once() {
    let shape = Shape {
        clients: 64,
        operations: 100_000,
        blocks: 1,
        longest: 50,
        unknown: 10,
    };
    let history = execute(&mut fastrand::Rng::with_seed(1), &shape);
    assert_eq!(check(&history), Ok(()));
}

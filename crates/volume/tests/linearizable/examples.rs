//! Right and wrong histories of one block, one of each kind.

use super::linearizable::{Action, Operation, Reason, ZEROS, check};

use Action::{Discard, Read, Write};

/// An operation from one time to another.
fn op(action: Action, invoked: u64, responded: u64) -> Operation {
    Operation {
        block: 3,
        action,
        invoked,
        responded: Some(responded),
    }
}

/// An operation without a response.
fn unknown(action: Action, invoked: u64) -> Operation {
    Operation {
        block: 3,
        action,
        invoked,
        responded: None,
    }
}

fn right(history: &[Operation]) {
    if let Err(violation) = check(history) {
        panic!("{violation}");
    }
}

fn wrong(history: &[Operation], reason: Reason) {
    let violation = check(history).expect_err("it is wrong");
    assert_eq!(violation.reason, reason, "{violation}");
    // Other blocks, and further reads that agree, do not hide it.
    let mut more = history.to_vec();
    for block in [2, 4] {
        let write = op(Write(1), 0, 1);
        more.insert(0, Operation { block, ..write });
    }
    assert_eq!(check(&more).expect_err("it is wrong").reason, reason);
}

#[test]
fn operations_one_after_another() {
    right(&[]);
    right(&[op(Read(ZEROS), 0, 1), op(Write(1), 2, 3), op(Read(1), 4, 5)]);
    right(&[op(Write(1), 0, 1), op(Discard, 2, 3), op(Read(ZEROS), 4, 5)]);
    wrong(
        &[op(Write(1), 0, 1), op(Read(ZEROS), 2, 3)],
        Reason::NoDiscard,
    );
    wrong(
        &[op(Write(1), 0, 1), op(Discard, 2, 3), op(Read(1), 4, 5)],
        Reason::Within,
    );
}

#[test]
fn a_stale_read() {
    let writes = [op(Write(1), 0, 1), op(Write(2), 2, 3)];
    let history = |read| [&writes[..], &[read]].concat();
    wrong(&history(op(Read(1), 4, 5)), Reason::Within);
    right(&history(op(Read(1), 3, 5)));
    right(&history(op(Read(2), 4, 5)));
    let mut read_twice = history(op(Read(1), 6, 7));
    read_twice.push(op(Read(2), 4, 5));
    wrong(&read_twice, Reason::Interleaved);
}

#[test]
fn a_lost_write() {
    let lost = [op(Write(1), 0, 1), op(Write(2), 2, 3), op(Read(2), 4, 5)];
    right(&lost);
    wrong(
        &[&lost[..], &[op(Write(3), 6, 7), op(Read(2), 8, 9)]].concat(),
        Reason::Within,
    );
    wrong(
        &[&lost[..], &[op(Read(ZEROS), 8, 9)]].concat(),
        Reason::NoDiscard,
    );
}

#[test]
fn a_read_from_the_future_and_of_what_is_not_written() {
    wrong(&[op(Read(1), 0, 1), op(Write(1), 2, 3)], Reason::Future);
    right(&[op(Read(1), 0, 2), op(Write(1), 2, 3)]);
    wrong(&[op(Read(1), 0, 1), unknown(Write(1), 2)], Reason::Future);
    wrong(&[op(Write(1), 0, 1), op(Read(2), 2, 3)], Reason::Unwritten);
}

#[test]
fn a_value_that_comes_back() {
    let gone = [
        op(Write(1), 0, 10),
        op(Write(2), 0, 10),
        op(Read(1), 1, 2),
        op(Read(2), 3, 4),
    ];
    right(&gone);
    wrong(&[&gone[..], &[op(Read(1), 5, 6)]].concat(), Reason::Within);
    let both = [op(Read(1), 5, 6), op(Read(2), 7, 8)];
    wrong(&[&gone[..], &both].concat(), Reason::Interleaved);
    // It is discarded, and is there again.
    let discarded = [op(Write(1), 0, 10), op(Discard, 3, 4), op(Read(1), 1, 2)];
    right(&discarded);
    wrong(
        &[&discarded[..], &[op(Read(1), 5, 6)]].concat(),
        Reason::Within,
    );
}

#[test]
fn two_reads_in_opposite_orders() {
    let writes = [op(Write(1), 0, 10), op(Write(2), 0, 10)];
    let one = [op(Read(1), 1, 2), op(Read(2), 3, 4)];
    let other = [op(Read(2), 1, 2), op(Read(1), 3, 4)];
    right(&[&writes[..], &one].concat());
    right(&[&writes[..], &other].concat());
    wrong(&[&writes[..], &one, &other].concat(), Reason::Interleaved);
}

#[test]
fn operations_of_unknown_outcome() {
    let before = [op(Write(1), 0, 1), unknown(Write(2), 2)];
    let history = |reads: &[Operation]| [&before[..], reads].concat();
    right(&history(&[op(Read(1), 100, 101)]));
    right(&history(&[op(Read(1), 100, 101), op(Read(2), 102, 103)]));
    let back = [op(Read(2), 100, 101), op(Read(1), 102, 103)];
    wrong(&history(&back), Reason::Within);
    // A discard that happens once, late.
    let discard = unknown(Discard, 2);
    let zeros = op(Read(ZEROS), 10, 11);
    right(&[op(Write(1), 0, 1), op(Read(1), 5, 6), discard, zeros]);
    let again = [op(Write(3), 12, 13), op(Read(ZEROS), 14, 15)];
    let once = [op(Write(1), 0, 1), op(Read(1), 5, 6), discard, zeros];
    wrong(&[&once[..], &again].concat(), Reason::NoDiscard);
    right(&[&once[..], &again, &[unknown(Discard, 3)]].concat());
    // A read without a response says nothing.
    right(&[unknown(Read(17), 0)]);
}

#[test]
fn discards_are_each_used_once_and_within_their_time() {
    // Two writes with a read of zeros behind each need two discards.
    let pieces = [
        op(Write(1), 0, 1),
        op(Read(ZEROS), 2, 3),
        op(Write(2), 4, 5),
        op(Read(ZEROS), 6, 7),
    ];
    let history = |discards: &[Operation]| [&pieces[..], discards].concat();
    wrong(&history(&[op(Discard, 0, 9)]), Reason::NoDiscard);
    right(&history(&[op(Discard, 0, 9), op(Discard, 0, 9)]));
    // The one that must happen early is used first.
    right(&history(&[op(Discard, 0, 9), op(Discard, 0, 3)]));
    right(&history(&[op(Discard, 0, 3), op(Discard, 0, 9)]));
    wrong(
        &history(&[op(Discard, 0, 3), op(Discard, 0, 3)]),
        Reason::NoDiscard,
    );
    wrong(
        &history(&[op(Discard, 4, 9), op(Discard, 4, 9)]),
        Reason::NoDiscard,
    );
}

#[test]
fn a_violation_says_which_operations() {
    let history = [op(Write(1), 0, 1), op(Read(1), 2, 3), op(Read(ZEROS), 4, 5)];
    let violation = check(&history).unwrap_err();
    assert_eq!(
        violation.to_string(),
        "block 3: a read returned zeros without a discard after the write\n  \
         #0 Write(1) from 0 to 1\n  #1 Read(1) from 2 to 3\n  #2 Read(0) from 4 to 5"
    );
}

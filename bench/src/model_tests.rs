use std::collections::HashMap;

use super::*;
use crate::workload::plan::{Mix, Plan};
use crate::workload::profile::Profile;

/// The state after `writes` writes, the plain way: (key, user, second, digest), newest first.
fn state(plan: &Plan, writes: usize) -> Vec<(u64, u64, u64, u64)> {
    let mut stream = plan.stream();
    let mut state: HashMap<u64, (usize, u64, u64, u64)> = HashMap::new();
    for write in 0..writes {
        let r = stream.next();
        state.insert(r.key, (write, r.user, r.second, digest(r.body)));
    }
    let mut rows: Vec<_> = state.into_iter().collect();
    rows.sort_by_key(|(_, (write, ..))| std::cmp::Reverse(*write));
    rows.into_iter()
        .map(|(key, (_, user, second, body))| (key, user, second, body))
        .collect()
}

#[test]
fn answers_are_those_of_a_plain_replay_at_any_moment() {
    let plan = Plan::new(5, Profile::synthetic(600), 600, 900, Mix::UPDATE_HEAVY);
    let history = &plan.history;
    let users = history.users();
    for writes in [0, 1, 599, 600, 601, 900, history.len()] {
        let state = state(&plan, writes);
        for (attribute, lo, hi) in [
            (Attribute::User, users[0], users[0]),
            (Attribute::User, users[3], users[9]),
            (Attribute::User, 0, u64::MAX),
            (Attribute::Time, history.second(100), history.second(300)),
            (
                Attribute::Time,
                history.second(620),
                history.second(620) + 2,
            ),
        ] {
            for limit in [None, Some(0), Some(1), Some(10)] {
                let find = Find {
                    attribute,
                    lo,
                    hi,
                    limit,
                };
                let expected: Vec<u64> = state
                    .iter()
                    .filter(|(_, user, second, _)| {
                        let value = if attribute == Attribute::User {
                            user
                        } else {
                            second
                        };
                        (lo..=hi).contains(value)
                    })
                    .map(|row| row.3)
                    .take(limit.unwrap_or(usize::MAX))
                    .collect();
                assert_eq!(
                    history.find(&find, writes),
                    expected,
                    "{find:?} after {writes}"
                );
            }
        }
        assert_eq!(history.keys_after(writes), state.len());
        for key in 0..history.keys() {
            let expected = state
                .iter()
                .find(|row| row.0 == history.key(key))
                .map(|row| row.3);
            assert_eq!(history.get(key, writes), expected);
        }
    }
}

//! Index entries that queries found to be of no use (DELI's online repair). They are collected and
//! removed together: what makes that safe costs a reader as much for one as for many.

use std::sync::Arc;

use crate::bound::Bound;
use crate::judge::remove;
use crate::shared::Shared;
use crate::verdict::{Candidate, Useless, Verdict};

/// Adds entries, and removes all if there are many.
pub(crate) fn add(shared: &Shared, bound: &Arc<Bound>, found: Vec<(Candidate, Verdict)>) {
    let most = shared.options.remove_from.max(1);
    let is_full = {
        let mut held = shared.useless.lock();
        for (candidate, verdict) in found {
            // Until it is removed, each query of its value finds it.
            let is_known = |known: &Useless| {
                known.candidate == candidate && known.bound.state.id == bound.state.id
            };
            if !held.iter().take(most).any(is_known) {
                let bound = bound.clone();
                held.push(Useless {
                    bound,
                    candidate,
                    verdict,
                });
            }
        }
        held.len() >= most
    };
    if is_full {
        remove_all(shared);
    }
}

/// Removes all that was found. An error does no harm: the next reader finds them again.
pub(crate) fn remove_all(shared: &Shared) {
    let mut held = std::mem::take(&mut *shared.useless.lock());
    while let Some(first) = held.first() {
        let bound = first.bound.clone();
        // Places of indexes are those of one definition.
        let (mine, others): (Vec<Useless>, Vec<Useless>) = held
            .into_iter()
            .partition(|useless| Arc::ptr_eq(&useless.bound, &bound));
        held = others;
        let mine = mine.into_iter();
        let mine: Vec<(Candidate, Verdict)> = mine
            .map(|useless| (useless.candidate, useless.verdict))
            .collect();
        remove(shared, &bound, &mine);
    }
}

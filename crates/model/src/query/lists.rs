//! Lists of index entries, combined by the numbers of their writes before a record is read.
//!
//! A record and its index entries share one sequence number, and an index that can drive a query
//! offers every current match under the number of its record. So a record that meets two conditions
//! is in both lists under the same number, whatever the kinds of the two indexes are, whether they
//! were built later, and however many values the record has: the numbers that both lists have
//! include all matches. Obsolete entries may be in one list and not in the other, and are ruled out
//! then, too.
//!
//! A negation is taken out only where a single number decides: the index answers the negated
//! condition, so that the record of each entry meets it if it is current. That a list lacks a
//! number proves nothing here: negations are confirmed on the record.

/// Lists, by the places of their constraints in
/// [`Compiled::constraints`](super::Compiled::constraints).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lists {
    /// The entries of one constraint.
    One(usize),
    /// The entries of any of these.
    Any(Vec<Lists>),
    /// The entries that all of some lists have.
    All {
        /// These, the one with the fewest expected entries first; at least one.
        of: Vec<Lists>,
        /// Without the entries of these constraints.
        but: Vec<usize>,
    },
}

impl Lists {
    /// The constraints of all lists, in order, each once.
    pub fn constraints(&self) -> Vec<usize> {
        let mut all = Vec::new();
        self.add_constraints(&mut all);
        all.sort_unstable();
        all.dedup();
        all
    }

    fn add_constraints(&self, all: &mut Vec<usize>) {
        match self {
            Lists::One(at) => all.push(*at),
            Lists::Any(parts) => parts.iter().for_each(|part| part.add_constraints(all)),
            Lists::All { of, but } => {
                of.iter().for_each(|part| part.add_constraints(all));
                all.extend(but);
            }
        }
    }

    /// The constraints whose lists together have everything that the combination has.
    pub fn base(&self) -> Vec<usize> {
        let mut base = match self {
            Lists::One(at) => vec![*at],
            Lists::Any(parts) => parts.iter().flat_map(Lists::base).collect(),
            Lists::All { of, .. } => of.first().map(Lists::base).unwrap_or_default(),
        };
        base.sort_unstable();
        base.dedup();
        base
    }

    /// True if the combination has an entry that the lists of some constraints have: `has` tells
    /// which.
    pub fn admits(&self, has: &dyn Fn(usize) -> bool) -> bool {
        match self {
            Lists::One(at) => has(*at),
            Lists::Any(parts) => parts.iter().any(|part| part.admits(has)),
            Lists::All { of, but } => {
                of.iter().all(|part| part.admits(has)) && !but.iter().any(|at| has(*at))
            }
        }
    }

    /// True if a list rules out entries of another one.
    pub(super) fn rules_out(&self) -> bool {
        match self {
            Lists::One(_) => false,
            Lists::Any(parts) => parts.iter().any(Lists::rules_out),
            Lists::All { of, but } => of.len() > 1 || !but.is_empty(),
        }
    }
}

/// Combined lists as the source of candidates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Combined {
    /// The lists.
    pub lists: Lists,
    /// About how many entries of the base there are for each one that is left.
    pub ratio: u64,
    base: Vec<usize>,
}

impl Combined {
    pub(super) fn new(lists: Lists, ratio: u64) -> Combined {
        Combined {
            base: lists.base(),
            lists,
            ratio,
        }
    }

    /// [`Lists::base`].
    pub fn base(&self) -> &[usize] {
        &self.base
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_combination_admits_what_its_formula_does() {
        let both = Lists::All {
            of: vec![
                Lists::One(0),
                Lists::Any(vec![Lists::One(1), Lists::One(2)]),
            ],
            but: vec![3],
        };
        assert_eq!(both.base(), [0]);
        assert_eq!(both.constraints(), [0, 1, 2, 3]);
        let either = Lists::Any(vec![both.clone(), Lists::One(4)]);
        assert_eq!(either.base(), [0, 4]);
        for bits in 0..32u32 {
            let has = |at: usize| bits & (1 << at) != 0;
            let right = has(0) && (has(1) || has(2)) && !has(3);
            assert_eq!(both.admits(&has), right, "{bits:b}");
            assert_eq!(either.admits(&has), right || has(4), "{bits:b}");
        }
        assert!(either.rules_out());
        assert!(!Lists::Any(vec![Lists::One(0), Lists::One(1)]).rules_out());
    }
}

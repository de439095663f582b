//! The source of a query's candidates.

use super::lists::Combined;

/// The source of candidates. Constraints are named by their places in
/// [`Compiled::constraints`](super::Compiled::constraints).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Driver {
    /// The index of the attribute of this constraint, read for one range.
    Index(usize),
    /// The indexes of these constraints, read for each of their ranges.
    Union(Vec<usize>),
    /// Several indexes, whose entries rule each other out before a record is read. Only for stores
    /// whose estimates tell what reading a list alone costs
    /// ([`Expected::listing`](super::Expected::listing)).
    Combined(Combined),
    /// All records.
    Scan,
}

impl Driver {
    /// The constraints whose indexes have all candidates.
    pub fn constraints(&self) -> &[usize] {
        match self {
            Driver::Index(at) => std::slice::from_ref(at),
            Driver::Union(all) => all,
            Driver::Combined(combined) => combined.base(),
            Driver::Scan => &[],
        }
    }

    /// The constraint whose index is read, if that is a single index and range.
    pub fn single(&self) -> Option<usize> {
        match self {
            Driver::Index(at) => Some(*at),
            Driver::Union(_) | Driver::Combined(_) | Driver::Scan => None,
        }
    }

    /// The lists that rule each other out, if there are any.
    pub fn combined(&self) -> Option<&Combined> {
        match self {
            Driver::Combined(combined) => Some(combined),
            Driver::Index(_) | Driver::Union(_) | Driver::Scan => None,
        }
    }
}

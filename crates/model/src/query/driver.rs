//! The source of a query's candidates.

/// The source of candidates. Constraints are named by their places in
/// [`Compiled::constraints`](super::Compiled::constraints).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Driver {
    /// The index of the attribute of this constraint, read for one range.
    Index(usize),
    /// The indexes of these constraints, read for each of their ranges.
    Union(Vec<usize>),
    /// All records.
    Scan,
}

impl Driver {
    /// The constraints whose indexes are read.
    pub fn constraints(&self) -> &[usize] {
        match self {
            Driver::Index(at) => std::slice::from_ref(at),
            Driver::Union(all) => all,
            Driver::Scan => &[],
        }
    }

    /// The constraint whose index is read, if that is a single index and range.
    pub fn single(&self) -> Option<usize> {
        match self {
            Driver::Index(at) => Some(*at),
            Driver::Union(_) | Driver::Scan => None,
        }
    }
}

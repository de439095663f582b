//! The results of a query or a scan.

use esker::{Explain, PageToken, Result};

/// The results of a query or a scan, found during iteration.
pub trait Answer<T>: Iterator<Item = Result<T>> + Send {
    /// The steps so far, and their cost.
    fn explain(&self) -> Explain;

    /// The place in the answer: a request with it continues from here. `None` for a scan.
    fn token(&self) -> Option<PageToken>;
}

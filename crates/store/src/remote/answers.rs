//! Rows that arrive, as answers.

use esker::{Explain, PageToken, Result};
use esker_client::Rows;

use crate::answer::Answer;

/// An answer that arrives.
pub(super) struct Arriving<T>(pub(super) Rows<T>);

impl<T> Iterator for Arriving<T> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Result<T>> {
        self.0.next()
    }
}

impl<T> Answer<T> for Arriving<T> {
    fn explain(&self) -> Explain {
        self.0.explain()
    }

    fn token(&self) -> Option<PageToken> {
        self.0.token()
    }
}

//! The ends of pages, as text that can be handed out.

use std::fmt;
use std::str::FromStr;

use esker_coding::Seq;

use crate::error::{Error, Result};

/// The end of a page: its last record, whose number is the token's text. Valid for the same query
/// on the same snapshot; with a named snapshot also in another process.
///
/// ```
/// use esker_model::query::PageToken;
///
/// let token: PageToken = "42".parse()?;
/// assert_eq!(token.to_string(), "42");
/// # Ok::<(), esker_model::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PageToken(pub Seq);

impl fmt::Display for PageToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for PageToken {
    type Err = Error;
    fn from_str(text: &str) -> Result<PageToken> {
        let seq = text.parse().ok().map(PageToken);
        seq.ok_or_else(|| not_a_token(text))
    }
}

/// The end of a page of versions: the moment of the query, and the page's last version. It stays
/// valid, in other processes too, and pages continue as if nothing had been written since; only
/// versions that the dataset no longer keeps are missing. As text, `MOMENT.LAST`, or
/// `MOMENT.LAST.TS` if the query was as of a later write `TS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ValueToken {
    /// The last write that the query saw.
    pub at: Seq,
    /// The write of the page's last version.
    pub after: Seq,
    /// The write that the query named: `at`, or a later one.
    pub as_of: Seq,
}

impl fmt::Display for ValueToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.at, self.after)?;
        if self.as_of > self.at {
            write!(f, ".{}", self.as_of)
        } else {
            Ok(())
        }
    }
}

impl FromStr for ValueToken {
    type Err = Error;
    fn from_str(text: &str) -> Result<ValueToken> {
        let parts: Option<Vec<Seq>> = text.split('.').map(|part| part.parse().ok()).collect();
        match parts.as_deref() {
            Some(&[at, after]) => Ok(ValueToken {
                at,
                after,
                as_of: at,
            }),
            Some(&[at, after, as_of]) if as_of > at => Ok(ValueToken { at, after, as_of }),
            _ => Err(not_a_token(text)),
        }
    }
}

fn not_a_token(text: &str) -> Error {
    Error::bad_input(format!("`{text}` is not a token of a page"))
}

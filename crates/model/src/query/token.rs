//! The ends of pages, as text that can be handed out.

use std::fmt;
use std::str::FromStr;

use esker_coding::Seq;

use crate::error::{Error, Result};

/// The end of a page. Valid for the same query on the same snapshot; with a named snapshot also in
/// another process.
///
/// ```
/// use esker_model::query::PageToken;
///
/// let token: PageToken = "42".parse()?;
/// assert_eq!(token, PageToken::Write(42));
/// assert_eq!(token.to_string(), "42");
/// # Ok::<(), esker_model::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PageToken {
    /// The sequence number of the last record, in an order of writes. As text, the number.
    Write(Seq),
    /// The last record's values and key, in an order of fields or keys: its
    /// [rank](super::Ranking::rank). As text `r`, and the bytes in hexadecimal.
    Row(Vec<u8>),
}

impl PageToken {
    /// The write of a token of an order of writes.
    ///
    /// # Errors
    /// [`Error::BadInput`] for the token of another order.
    pub fn write(&self) -> Result<Seq> {
        match self {
            PageToken::Write(seq) => Ok(*seq),
            PageToken::Row(_) => Err(of_another_order()),
        }
    }

    /// The rank of a token of an order of fields or keys.
    ///
    /// # Errors
    /// [`Error::BadInput`] for the token of another order.
    pub fn row(&self) -> Result<&[u8]> {
        match self {
            PageToken::Row(rank) => Ok(rank),
            PageToken::Write(_) => Err(of_another_order()),
        }
    }
}

pub(super) fn of_another_order() -> Error {
    Error::bad_input("the token is that of a page in another order")
}

impl fmt::Display for PageToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PageToken::Write(seq) => seq.fmt(f),
            PageToken::Row(rank) => {
                f.write_str("r")?;
                rank.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }
    }
}

impl FromStr for PageToken {
    type Err = Error;
    fn from_str(text: &str) -> Result<PageToken> {
        let token = match text.strip_prefix('r') {
            Some(hex) => bytes(hex).map(PageToken::Row),
            None => text.parse().ok().map(PageToken::Write),
        };
        token.ok_or_else(|| not_a_token(text))
    }
}

/// The bytes of a text in hexadecimal.
fn bytes(hex: &str) -> Option<Vec<u8>> {
    let pairs = hex.as_bytes().chunks(2);
    let byte = |pair: &[u8]| {
        let text = std::str::from_utf8(pair).ok()?;
        let is_hex = pair.len() == 2 && pair.iter().all(u8::is_ascii_hexdigit);
        u8::from_str_radix(text, 16).ok().filter(|_| is_hex)
    };
    pairs.map(byte).collect()
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

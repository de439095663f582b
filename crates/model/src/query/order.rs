//! The order of an answer.

use std::fmt;
use std::str::FromStr;

use super::Recency;
use super::list::{escape, split_list};
use crate::error::{Error, Result};
use crate::schema::{IntoPath, Path};

/// The order of an answer. As text `newest`, `oldest`, `any`, `key`, or fields, as in
/// `delay:desc,dest`; a field of such a name has a direction, as in `key:asc`. A colon in a name
/// has a backslash before it, unless a direction follows.
///
/// # The order of values
///
/// Fields compare as conditions compare them: numbers by value, text by code points, times by the
/// moment where the field is declared as a time. Values of several types are in the order booleans,
/// numbers, times, text. An array counts by its least value in an ascending order, and by its
/// greatest in a descending one. Records without a value come last, in both directions: those
/// without the field, with null, an object or an empty array there. Equal records are in the order
/// of their keys.
///
/// ```
/// use esker_model::query::{Direction, Order};
///
/// let order = Order::by("delay", Direction::Descending)?.then("dest", Direction::Ascending)?;
/// assert_eq!(order.to_string(), "delay:desc,dest:asc");
/// assert_eq!("delay:desc,dest".parse::<Order>()?, order);
/// assert_eq!("newest".parse::<Order>()?, Order::Newest);
/// # Ok::<(), esker_model::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Order {
    /// The most recently written first.
    #[default]
    Newest,
    /// The least recently written first.
    Oldest,
    /// In no particular order: the fastest for large answers.
    Any,
    /// By primary key, ascending.
    Key,
    /// By the values of fields; equal records by primary key.
    Fields(Vec<FieldOrder>),
}

/// A field of an order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldOrder {
    /// The path of the field.
    pub path: Path,
    /// Its direction.
    pub direction: Direction,
}

/// The direction of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Direction {
    /// The least first.
    #[default]
    Ascending,
    /// The greatest first.
    Descending,
}

impl Order {
    /// By the values of a field.
    ///
    /// # Errors
    /// [`Error::BadInput`] if the text is not a path.
    pub fn by(path: impl IntoPath, direction: Direction) -> Result<Order> {
        Order::Fields(Vec::new()).then(path, direction)
    }

    /// In this order; equal records by the values of a further field. An order that is not by
    /// fields is replaced.
    ///
    /// # Errors
    /// [`Error::BadInput`] if the text is not a path.
    pub fn then(self, path: impl IntoPath, direction: Direction) -> Result<Order> {
        let mut fields = match self {
            Order::Fields(fields) => fields,
            _ => Vec::new(),
        };
        let path = path.into_path()?;
        fields.push(FieldOrder { path, direction });
        Ok(Order::Fields(fields))
    }

    /// The order of writes in which candidates are read: oldest first if that is requested,
    /// otherwise newest first.
    pub fn recency(&self) -> Recency {
        match self {
            Order::Oldest => Recency::Oldest,
            _ => Recency::Newest,
        }
    }

    /// True for the orders by key or fields, in which an answer is sorted before its first record
    /// is known.
    pub fn is_sorted(&self) -> bool {
        matches!(self, Order::Key | Order::Fields(_))
    }

    /// The fields of the order; none for other orders.
    pub fn fields(&self) -> &[FieldOrder] {
        match self {
            Order::Fields(fields) => fields,
            _ => &[],
        }
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Order::Newest => f.write_str("newest"),
            Order::Oldest => f.write_str("oldest"),
            Order::Any => f.write_str("any"),
            Order::Key => f.write_str("key"),
            Order::Fields(fields) if fields.is_empty() => f.write_str("key"),
            Order::Fields(fields) => {
                for (at, field) in fields.iter().enumerate() {
                    if at > 0 {
                        f.write_str(",")?;
                    }
                    field.fmt(f)?;
                }
                Ok(())
            }
        }
    }
}

impl FromStr for Order {
    type Err = Error;

    fn from_str(text: &str) -> Result<Order> {
        match text {
            "newest" => Ok(Order::Newest),
            "oldest" => Ok(Order::Oldest),
            "any" => Ok(Order::Any),
            "key" => Ok(Order::Key),
            _ => Ok(Order::Fields(FieldOrder::parse_list(text)?)),
        }
    }
}

impl FieldOrder {
    /// Parses fields with commas between them: `delay:desc,dest`. Words such as `key` are fields
    /// here.
    ///
    /// # Errors
    /// [`Error::BadInput`] for a path that is not valid, and a direction other than `asc` and
    /// `desc`.
    pub fn parse_list(text: &str) -> Result<Vec<FieldOrder>> {
        split_list(text).map(str::parse::<FieldOrder>).collect()
    }
}

impl fmt::Display for FieldOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let direction = match self.direction {
            Direction::Ascending => "asc",
            Direction::Descending => "desc",
        };
        write!(f, "{}:{direction}", escape(&self.path))
    }
}

impl FromStr for FieldOrder {
    type Err = Error;

    fn from_str(text: &str) -> Result<FieldOrder> {
        let (path, direction) = match split_direction(text) {
            Some((path, "asc")) => (path, Direction::Ascending),
            Some((path, "desc")) => (path, Direction::Descending),
            Some((path, other)) => {
                return Err(Error::bad_input(format!(
                    "`{other}` is no direction: use `asc` or `desc`; a field named `{text}` is `{path}\\:{other}`"
                )));
            }
            None => (text, Direction::Ascending),
        };
        let path = path.trim().parse()?;
        Ok(FieldOrder { path, direction })
    }
}

/// The text before and behind its last colon; `None` if that is part of a name: behind a backslash,
/// or in brackets, as in the column `sum(a:b)`.
fn split_direction(text: &str) -> Option<(&str, &str)> {
    let (path, direction) = text.rsplit_once(':')?;
    let backslashes = path.len() - path.trim_end_matches('\\').len();
    let is_in_name = !backslashes.is_multiple_of(2) || direction.contains(')');
    (!is_in_name).then_some((path, direction.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_colon_begins_a_direction_or_is_part_of_a_name() {
        let read = |text: &str| text.parse::<FieldOrder>().map(|order| order.to_string());
        for (text, same) in [
            ("user", "user:asc"),
            ("user:desc", "user:desc"),
            ("user: asc", "user:asc"),
            (r"dc\:title", r"dc\:title:asc"),
            ("dc:title:desc", r"dc\:title:desc"),
            ("sum(a:b)", r"sum\(a\:b\):asc"),
            ("sum(a:b):desc", r"sum\(a\:b\):desc"),
        ] {
            assert_eq!(read(text).unwrap(), same, "{text}");
            assert_eq!(read(same).unwrap(), same);
        }
        for (text, word) in [
            ("user:up", "up"),
            ("user:DESC", "DESC"),
            ("user:", ""),
            ("a,b:dsc", "dsc"),
        ] {
            let error = text.parse::<Order>().unwrap_err().to_string();
            let begin = format!("`{word}` is no direction: use `asc` or `desc`");
            assert!(error.contains(&begin), "{text}: {error}");
        }
    }
}

//! Builders for conditions in programs.

use std::ops::{BitAnd, BitOr, Bound, Not, RangeBounds};

use super::expr::Node;
use super::{AreaExpr, Expr, Op, Operand, Predicate};
use crate::schema::{IntoPath, Path};

/// The field at a path, the left side of a comparison.
#[derive(Debug, Clone)]
pub struct Field(Result<Path, String>);

/// The field at `path` (names joined by dots). A malformed path is reported by the query.
///
/// ```
/// use esker_model::condition::field;
///
/// let ann = field("user.name").eq("ann") & field("n").range(1..5);
/// let condition = ann | !field("tags").contains("new");
/// let written = r#"user.name = "ann" and n >= int(1) and n < int(5) or not tags = "new""#;
/// assert_eq!(condition.to_string(), written);
/// assert_eq!(written.parse::<esker_model::condition::Expr>()?, condition);
/// # Ok::<(), esker_model::condition::ParseError>(())
/// ```
pub fn field(path: impl IntoPath) -> Field {
    Field(path.into_path().map_err(|error| error.to_string()))
}

impl From<Path> for Field {
    fn from(path: Path) -> Field {
        Field(Ok(path))
    }
}

impl Field {
    fn test(self, predicate: Predicate) -> Expr {
        match self.0 {
            Ok(path) => Expr::test(path, predicate),
            Err(why) => Expr::invalid(why),
        }
    }

    /// Some value satisfies the comparison `op` with `operand`.
    pub fn compare(self, op: Op, operand: impl Into<Operand>) -> Expr {
        self.test(Predicate::Compare(op, operand.into()))
    }

    /// A value equals `operand`.
    pub fn eq(self, operand: impl Into<Operand>) -> Expr {
        self.compare(Op::Eq, operand)
    }

    /// A value exists that does not equal `operand`.
    pub fn ne(self, operand: impl Into<Operand>) -> Expr {
        self.compare(Op::Ne, operand)
    }

    /// A value is below `operand`.
    pub fn lt(self, operand: impl Into<Operand>) -> Expr {
        self.compare(Op::Lt, operand)
    }

    /// A value is below or equal to `operand`.
    pub fn le(self, operand: impl Into<Operand>) -> Expr {
        self.compare(Op::Le, operand)
    }

    /// A value is above `operand`.
    pub fn gt(self, operand: impl Into<Operand>) -> Expr {
        self.compare(Op::Gt, operand)
    }

    /// A value is above or equal to `operand`.
    pub fn ge(self, operand: impl Into<Operand>) -> Expr {
        self.compare(Op::Ge, operand)
    }

    /// A value is in the range; for `..` this is [`Field::exists`].
    pub fn range<T: Into<Operand> + Clone>(self, range: impl RangeBounds<T>) -> Expr {
        let lower = match range.start_bound() {
            Bound::Included(lo) => Some((Op::Ge, lo.clone())),
            Bound::Excluded(lo) => Some((Op::Gt, lo.clone())),
            Bound::Unbounded => None,
        };
        let upper = match range.end_bound() {
            Bound::Included(hi) => Some((Op::Le, hi.clone())),
            Bound::Excluded(hi) => Some((Op::Lt, hi.clone())),
            Bound::Unbounded => None,
        };
        match (lower, upper) {
            (None, None) => self.exists(),
            (Some((op, bound)), None) | (None, Some((op, bound))) => self.compare(op, bound),
            (Some((lower, lo)), Some((upper, hi))) => {
                self.clone().compare(lower, lo) & self.compare(upper, hi)
            }
        }
    }

    /// A value is text that begins with `prefix`.
    pub fn prefix(self, prefix: impl Into<String>) -> Expr {
        self.compare(Op::Prefix, prefix.into())
    }

    /// The array contains the element; for a value outside an array, the same as [`Field::eq`]. An
    /// index can answer it. For parts of text see [`Field::contains_text`].
    pub fn contains(self, element: impl Into<Operand>) -> Expr {
        self.eq(element)
    }

    /// The same as `contains` in conditions written as text: the array contains the element, or the
    /// text (not in an array) contains this part. An index of text cannot answer it.
    pub fn contains_text(self, part: impl Into<Operand>) -> Expr {
        self.test(Predicate::Contains(part.into()))
    }

    /// A value equals one of these.
    pub fn one_of<T: Into<Operand>>(self, operands: impl IntoIterator<Item = T>) -> Expr {
        self.test(Predicate::In(
            operands.into_iter().map(Into::into).collect(),
        ))
    }

    /// The point at the path lies in the area. If longitude and latitude are separate fields, the
    /// path is both, joined by a comma.
    pub fn within(self, area: AreaExpr) -> Expr {
        self.test(Predicate::Within(area))
    }

    /// A non-null value exists.
    pub fn exists(self) -> Expr {
        self.test(Predicate::Exists)
    }

    /// The field is absent or null.
    pub fn is_null(self) -> Expr {
        !self.exists()
    }
}

/// The parts of both sides, and the maximum of their levels.
fn parts(sides: [Expr; 2], inner: fn(Node) -> Result<Vec<Expr>, Node>) -> (Vec<Expr>, usize) {
    let mut deepest = 0;
    let each = sides.map(|Expr { node, depth }| match inner(node) {
        Ok(parts) => {
            deepest = deepest.max(depth - 1);
            parts
        }
        Err(node) => {
            deepest = deepest.max(depth);
            vec![Expr { node, depth }]
        }
    });
    let [mut all, more] = each;
    all.extend(more);
    (all, deepest)
}

impl BitAnd for Expr {
    type Output = Expr;

    fn bitand(self, other: Expr) -> Expr {
        let (all, deepest) = parts([self, other], |node| match node {
            Node::And(all) => Ok(all),
            other => Err(other),
        });
        Expr::above(deepest, Node::And(all))
    }
}

impl BitOr for Expr {
    type Output = Expr;

    fn bitor(self, other: Expr) -> Expr {
        let (any, deepest) = parts([self, other], |node| match node {
            Node::Or(any) => Ok(any),
            other => Err(other),
        });
        Expr::above(deepest, Node::Or(any))
    }
}

impl Not for Expr {
    type Output = Expr;

    fn not(self) -> Expr {
        match self.node {
            // Not where that would let bounds join those beside it, which must hold for one value
            // together: twice negated they are a condition of their own.
            Node::Not(inner) if !inner.joins() => *inner,
            Node::Invalid(_) => self,
            _ => Expr::above(self.depth, Node::Not(Box::new(self))),
        }
    }
}

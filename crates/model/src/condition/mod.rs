//! Conditions on records: comparisons of the values at a path, joined by and, or and not. Programs build them
//! (`field("user.name").eq("ann") & !field("tags").contains("new")`), people write them
//! (`user.name = ann and not tags contains new`); both give an [`Expr`].
//!
//! ```text
//! condition := all ("or" all)*
//! all       := one ("and" one)*
//! one       := "not" one | "(" condition ")" | test
//! test      := PATH ("=" | "!=" | "<" | "<=" | ">" | ">=" | "^=") VALUE
//!            | PATH "contains" VALUE
//!            | PATH ["not"] "in" "(" [VALUE ("," VALUE)*] ")"
//!            | PATH "exists" | PATH "is" ["not"] "null"
//! PATH      := names joined by dots | the same in quotes
//! VALUE     := text up to a blank or ")" (in a list also ",") | text in quotes
//!            | int(N) | float(N) | bool(B) | time(T) | text(T)
//! ```
//!
//! Keywords are the same in capitals. In quotes, `\"` is the quote and `\\` a backslash. A path that is a
//! keyword or holds a blank, a bracket or a quote is quoted; a backslash before an operator in a path makes it a
//! part of the name.
//!
//! # When a condition holds
//!
//! Two truth values, no third. A path reaches the elements of arrays on it, at its end too, one by one. Nulls count
//! as absent, so an empty array, and one of nulls alone, are absent values too.
//! - `exists` holds where there is a value, `is null` where there is none.
//! - A comparison holds when it holds for some value there. So each, `!=` too, is false where there is none,
//!   and `a = 1 and a = 2` finds arrays that have both. `contains` is `=`; `in` is `=` with one of several.
//! - Bounds (`<`, `<=`, `>`, `>=`) on one path that one chain of `and` joins, whether brackets group it or not, make
//!   one range: they must hold for one value together. `n > 3 and n < 5` does not find `[1, 9]`.
//! - `not` negates the result: `not a = 1` finds the records without `a`, `a != 1` does not.
//!
//! # What is compared with what
//!
//! An operand is of a type (from a program, or written `int(5)`), or text in quotes (from a program: a
//! string), or text without quotes, which takes the type of what it is compared with.
//!
//! Where the path is not declared the type is that of each JSON value:
//!
//! | operand | number | string | bool | object |
//! | --- | --- | --- | --- | --- |
//! | text without quotes | as a number if it is one | as text | if it is `true` or `false` | never |
//! | text in quotes, string | never | as text | never | never |
//! | int, float | exactly, across the two types | never | never | never |
//! | bool | never | never | yes | never |
//! | time | as seconds since 1970 | if it is an RFC 3339 time | never | never |
//!
//! "Never" means that `=`, the bounds and `^=` are false. `!=` holds for each value that `=` does not hold for, of
//! whatever type. Text is ordered by code points. `^=` is for text alone.
//!
//! Where the path is declared all values are of the declared type, and an operand that cannot be compared is an
//! error of the query:
//!
//! | operand | int | float | string | bool | time |
//! | --- | --- | --- | --- | --- | --- |
//! | text, quoted or not; string | read as int | read as float | text | `true`, `false` | RFC 3339, or seconds |
//! | int | exactly | rounded, as records are | error | error | seconds since 1970 |
//! | float | exactly (`n < 2.5` is `n <= 2`) | yes | error | error | seconds since 1970 |
//! | bool | error | error | error | yes | error |
//! | time | error | error | error | error | exactly |

mod build;
mod display;
mod filter;
mod number;
mod operand;
mod parse;
mod ranges;

pub use build::{Field, field};
pub use filter::{Filter, Formula, Test};
pub use operand::Operand;
pub use parse::ParseError;

use std::fmt;

use crate::schema::Path;

/// Levels of `and`, `or`, `not` and brackets that a condition may have.
pub const MAX_DEPTH: usize = 64;

/// How a value must relate to the operand of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Op {
    /// Equal to it.
    Eq,
    /// Not equal to it.
    Ne,
    /// It or above.
    Ge,
    /// It or below.
    Le,
    /// Above it.
    Gt,
    /// Below it.
    Lt,
    /// A string that begins with it.
    Prefix,
}

impl Op {
    /// Those of two characters first.
    const ALL: [Op; 7] = [Op::Ge, Op::Le, Op::Prefix, Op::Ne, Op::Eq, Op::Gt, Op::Lt];

    fn symbol(self) -> &'static str {
        match self {
            Op::Eq => "=",
            Op::Ne => "!=",
            Op::Ge => ">=",
            Op::Le => "<=",
            Op::Gt => ">",
            Op::Lt => "<",
            Op::Prefix => "^=",
        }
    }

    /// True for operators that bound a range: those on one path must hold for one value together.
    pub fn bounds_a_range(self) -> bool {
        matches!(self, Op::Ge | Op::Le | Op::Gt | Op::Lt)
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.symbol())
    }
}

/// What one value at a path must satisfy.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Predicate {
    /// It relates so to an operand.
    Compare(Op, Operand),
    /// It equals one of these.
    In(Vec<Operand>),
    /// It is not null.
    Exists,
}

impl Predicate {
    /// What values are compared with.
    pub fn operands(&self) -> &[Operand] {
        match self {
            Predicate::Compare(_, operand) => std::slice::from_ref(operand),
            Predicate::In(operands) => operands,
            Predicate::Exists => &[],
        }
    }
}

/// A condition: a tree of tests. Made by [`field`] and `&`, `|`, `!`, or read from text.
#[derive(Debug, Clone, PartialEq)]
pub struct Expr {
    node: Node,
    /// Levels of the tree, so that no walk of it goes deeper.
    depth: usize,
}

#[derive(Debug, Clone, PartialEq)]
enum Node {
    Test(Path, Predicate),
    /// Two or more, none an `And`.
    And(Vec<Expr>),
    /// Two or more, none an `Or`.
    Or(Vec<Expr>),
    /// Not of a `Not`.
    Not(Box<Expr>),
    /// What could not be built, and why.
    Invalid(String),
}

impl Expr {
    /// The condition that some value at `path` satisfies the predicate.
    pub fn test(path: Path, predicate: Predicate) -> Expr {
        Expr::leaf(Node::Test(path, predicate))
    }

    /// The condition that some value at `path` relates so to an operand.
    pub fn compare(path: Path, op: Op, operand: impl Into<Operand>) -> Expr {
        Expr::test(path, Predicate::Compare(op, operand.into()))
    }

    /// The mistake that was made while the condition was built, if there was one: a bad path, too many
    /// levels, a float that is not finite. Queries refuse such a condition.
    ///
    /// # Errors
    /// That mistake.
    pub fn check(&self) -> Result<(), String> {
        match &self.node {
            Node::Invalid(why) => Err(why.clone()),
            Node::Test(_, predicate) => predicate.operands().iter().try_for_each(Operand::check),
            Node::And(all) | Node::Or(all) => all.iter().try_for_each(Expr::check),
            Node::Not(inner) => inner.check(),
        }
    }

    /// The paths of its tests, in the order in which it names them.
    pub fn paths(&self) -> Vec<&Path> {
        match &self.node {
            Node::Invalid(_) => Vec::new(),
            Node::Test(path, _) => vec![path],
            Node::And(all) | Node::Or(all) => all.iter().flat_map(Expr::paths).collect(),
            Node::Not(inner) => inner.paths(),
        }
    }

    fn leaf(node: Node) -> Expr {
        Expr { node, depth: 1 }
    }

    fn invalid(why: impl Into<String>) -> Expr {
        Expr::leaf(Node::Invalid(why.into()))
    }

    /// One level above `depth`, or an error in the place of too many.
    fn above(depth: usize, node: Node) -> Expr {
        if depth >= MAX_DEPTH {
            return Expr::invalid(format!("a condition has more than {MAX_DEPTH} levels"));
        }
        let depth = depth + 1;
        Expr { node, depth }
    }
}

#[cfg(test)]
mod tests;

//! Conditions on records: comparisons of the values at a path, joined by and, or and not. Programs
//! build them (`field("user.name").eq("ann") & !field("tags").contains("new")`), people write them
//! (`user.name = ann and not tags contains new`); both give an [`Expr`].
//!
//! ```text
//! condition := all ("or" all)*
//! all       := one ("and" one)*
//! one       := "not" one | "(" condition ")" | test
//! test      := PATH ("=" | "!=" | "<" | "<=" | ">" | ">=" | "^=") VALUE
//!            | PATH "contains" VALUE
//!            | PATH ("=" | "!=") "null"
//!            | PATH ["not"] "in" "(" [VALUE ("," VALUE)*] ")"
//!            | PATH "exists" | PATH "is" ["not"] "null"
//!            | "within" "(" POINT "," AREA ")"
//! POINT     := PATH of a GeoJSON point or of an array of two numbers
//!            | PATH "," PATH of longitude and latitude
//! AREA      := "rect(WEST,SOUTH,EAST,NORTH)" | "circle(LON,LAT,METRES)"
//!            | "polygon([[LON,LAT],...])"
//!            | "polygon(" GeoJSON ")"
//! PATH      := names joined by dots | the same in quotes
//! VALUE     := text up to a blank or ")" (in a list also ",") | text in quotes
//!            | "now" | "now-1h" | "now+1d12h"
//!            (behind `<`, `<=`, `>`, `>=`; units: w, d, h, m, s, ms)
//!            | int(N) | float(N) | bool(B) | time(T) | point(X,Y) | plane(X,Y) | text(T)
//! ```
//!
//! Keywords may be in capitals. In quotes, `\"` is the quote and `\\` a backslash. A path that is a
//! keyword or contains a blank, a bracket or a quote is quoted; a backslash before an operator in a
//! path makes it a part of the name.
//!
//! # When a condition holds
//!
//! Two truth values, no third. A path reaches the elements of arrays on it, at its end too, one by
//! one. Nulls count as absent, so an empty array, and an array of nulls, are absent values, too.
//! - `exists` holds where there is a value, `is null` where there is none.
//! - A comparison holds when it holds for some value at the path. So each, including `!=`, is false
//!   where there is none, and `a = 1 and a = 2` finds arrays that contain both. `in` is `=` with
//!   one of several.
//! - `contains` is `=` for the elements of an array and for values that are no text; text that is
//!   not in an array contains its parts.
//! - `= null` is `is null`, `!= null` is `exists`, and `null` in a list of `in` stands for `is
//!   null`, too. The text is quoted: `"null"`.
//! - `within` holds where there is a point, and it lies in the area or on its border. A point is a
//!   place of its own: where there is an array of several, there is none.
//! - Bounds (`<`, `<=`, `>`, `>=`) on one path in one chain of `and`, grouped by brackets or not,
//!   form one range: they must hold for one value together. `n > 3 and n < 5` does not find `[1,
//!   9]`.
//! - `not` negates the result: `not a = 1` finds the records without `a`, `a != 1` does not. Bounds
//!   that are negated, twice too, are no part of a range: `n > 3 and not (not n < 5)` finds `[1,
//!   9]`.
//!
//! # Types in comparisons
//!
//! An operand has a type (from a program, or written `int(5)`), or is text in quotes (from a
//! program: a string), or text without quotes, which takes the type of the value it is compared
//! with.
//!
//! Where the path is not declared, the type is that of each JSON value:
//!
//! | operand | number | string | bool | object |
//! | --- | --- | --- | --- | --- |
//! | text without quotes | if it is a number | as text | if `true` or `false` | never |
//! | text in quotes, string | never | as text | never | never |
//! | int, float | exactly, across the two types | never | never | never |
//! | bool | never | never | yes | never |
//! | time | as seconds since 1970 | if it is a [time](crate::schema::Type::Time) | never | never |
//!
//! Numbers in records and in text without quotes are compared by their values, whatever their
//! length: `n = 0.1` finds `0.10` and `1e-1`, and of two numbers of thirty digits that differ in
//! the last one only the one that is asked for. A float of a program is compared with the float
//! nearest to the number in the record, and exactly with integers of 64 bits.
//!
//! "Never" means that `=`, the bounds and `^=` are false. `!=` holds for each value for which `=`
//! does not, of any type. Text is ordered by code points. `^=` is for text only.
//!
//! Where the path is declared, all values have the declared type, and an operand that is not
//! comparable with it is an error of the query:
//!
//! | operand | int | float | string | bool | time |
//! | --- | --- | --- | --- | --- | --- |
//! | text, string | by value | by value | text | `true`, `false` | text of a time, or a number |
//! | int | exactly | exactly | error | error | a number |
//! | float | exactly | yes | error | error | a number |
//! | bool | error | error | error | yes | error |
//! | time | error | error | error | error | exactly |
//!
//! Text may be quoted or not. An operand that no integer equals keeps its meaning: `n < 2.5` is
//! `n <= 2`. A number is a time in the unit of the declared type.

mod area;
mod build;
mod display;
mod filter;
mod number;
mod operand;
mod parse;
mod ranges;

pub use area::AreaExpr;
pub use build::{Field, field};
pub use filter::{Filter, Formula, Residual, Test};
pub use operand::Operand;
pub use parse::ParseError;

use std::fmt;

use crate::schema::{Path, coordinate_paths};

/// The maximum number of levels of `and`, `or`, `not` and brackets in a condition.
pub const MAX_DEPTH: usize = 64;

/// The relation of a value to the operand of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Op {
    /// Equal.
    Eq,
    /// Not equal.
    Ne,
    /// Greater or equal.
    Ge,
    /// Less or equal.
    Le,
    /// Greater.
    Gt,
    /// Less.
    Lt,
    /// A string that begins with the operand.
    Prefix,
}

impl Op {
    /// Operators of two characters first.
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

    /// True for operators that bound a range: on the same path, one value must satisfy all of them.
    pub fn bounds_a_range(self) -> bool {
        matches!(self, Op::Ge | Op::Le | Op::Gt | Op::Lt)
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.symbol())
    }
}

/// The condition on one value at a path.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Predicate {
    /// It satisfies a comparison.
    Compare(Op, Operand),
    /// It equals one of these.
    In(Vec<Operand>),
    /// It is an element of an array, or a single value, that equals this; or it is text, not in an
    /// array, that contains this.
    Contains(Operand),
    /// It is not null.
    Exists,
    /// It is a point in an area.
    Within(AreaExpr),
}

impl Predicate {
    /// The operands of comparisons.
    pub fn operands(&self) -> &[Operand] {
        match self {
            Predicate::Compare(_, operand) | Predicate::Contains(operand) => {
                std::slice::from_ref(operand)
            }
            Predicate::In(operands) => operands,
            Predicate::Exists | Predicate::Within(_) => &[],
        }
    }
}

/// A condition: a tree of tests. Built with [`field`] and `&`, `|`, `!`, or parsed from text.
#[derive(Debug, Clone, PartialEq)]
pub struct Expr {
    node: Node,
    /// Levels of the tree, which bound every recursion.
    depth: usize,
}

#[derive(Debug, Clone, PartialEq)]
enum Node {
    Test(Path, Predicate),
    /// Two or more, none of them an `And`.
    And(Vec<Expr>),
    /// Two or more, none of them an `Or`.
    Or(Vec<Expr>),
    /// Of a `Not` only where what that negates would join a chain ([`Expr::joins`]).
    Not(Box<Expr>),
    /// A part that could not be built, and the reason.
    Invalid(String),
}

impl Expr {
    /// The condition that some value at `path` satisfies the predicate.
    pub fn test(path: Path, predicate: Predicate) -> Expr {
        Expr::leaf(Node::Test(path, predicate))
    }

    /// The condition that some value at `path` satisfies a comparison.
    pub fn compare(path: Path, op: Op, operand: impl Into<Operand>) -> Expr {
        Expr::test(path, Predicate::Compare(op, operand.into()))
    }

    /// Checks for errors made while the condition was built: a malformed path, too many levels, a
    /// float that is not finite. Queries reject such a condition.
    ///
    /// # Errors
    /// The first such error.
    pub fn check(&self) -> Result<(), String> {
        match &self.node {
            Node::Invalid(why) => Err(why.clone()),
            Node::Test(path, Predicate::Within(area)) => {
                coordinate_paths(path).map_err(|error| error.to_string())?;
                area.check()
            }
            Node::Test(_, predicate) => predicate.operands().iter().try_for_each(Operand::check),
            Node::And(all) | Node::Or(all) => all.iter().try_for_each(Expr::check),
            Node::Not(inner) => inner.check(),
        }
    }

    /// The paths of its tests, in the order of the tests.
    pub fn paths(&self) -> Vec<&Path> {
        match &self.node {
            Node::Invalid(_) => Vec::new(),
            Node::Test(path, _) => vec![path],
            Node::And(all) | Node::Or(all) => all.iter().flat_map(Expr::paths).collect(),
            Node::Not(inner) => inner.paths(),
        }
    }

    /// True where bounds in it form one range with those beside it in a chain of `and`.
    fn joins(&self) -> bool {
        match &self.node {
            Node::Test(_, Predicate::Compare(op, _)) => op.bounds_a_range(),
            Node::And(parts) => parts.iter().any(Expr::joins),
            _ => false,
        }
    }

    fn leaf(node: Node) -> Expr {
        Expr { node, depth: 1 }
    }

    fn invalid(why: impl Into<String>) -> Expr {
        Expr::leaf(Node::Invalid(why.into()))
    }

    /// A node one level above `depth`, or an error when there are too many.
    fn above(depth: usize, node: Node) -> Expr {
        if depth >= MAX_DEPTH {
            return Expr::invalid(format!(
                "the condition has more than {MAX_DEPTH} levels of `and`, `or`, `not` and brackets"
            ));
        }
        let depth = depth + 1;
        Expr { node, depth }
    }
}

#[cfg(test)]
mod tests;

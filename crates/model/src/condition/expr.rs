//! A condition as a tree of tests.

use std::fmt;

use super::area::AreaExpr;
use super::operand::Operand;
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
    pub(super) const ALL: [Op; 7] = [Op::Ge, Op::Le, Op::Prefix, Op::Ne, Op::Eq, Op::Gt, Op::Lt];

    pub(super) fn symbol(self) -> &'static str {
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

/// A condition: a tree of tests. Built with [`field`](super::field) and `&`, `|`, `!`, or parsed
/// from text.
#[derive(Debug, Clone, PartialEq)]
pub struct Expr {
    pub(super) node: Node,
    /// Levels of the tree, which bound every recursion.
    pub(super) depth: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Node {
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

    /// Its tests, in their order: paths, and the conditions on a value there.
    pub fn tests(&self) -> Vec<(&Path, &Predicate)> {
        match &self.node {
            Node::Invalid(_) => Vec::new(),
            Node::Test(path, predicate) => vec![(path, predicate)],
            Node::And(all) | Node::Or(all) => all.iter().flat_map(Expr::tests).collect(),
            Node::Not(inner) => inner.tests(),
        }
    }

    /// True if a record that satisfies the condition satisfies each of its tests: it has neither
    /// `or` nor `not`.
    pub fn needs_all_tests(&self) -> bool {
        match &self.node {
            Node::Test(..) => true,
            Node::And(all) => all.iter().all(Expr::needs_all_tests),
            Node::Or(_) | Node::Not(_) | Node::Invalid(_) => false,
        }
    }

    /// True where bounds in it form one range with those beside it in a chain of `and`.
    pub(super) fn joins(&self) -> bool {
        match &self.node {
            Node::Test(_, Predicate::Compare(op, _)) => op.bounds_a_range(),
            Node::And(parts) => parts.iter().any(Expr::joins),
            _ => false,
        }
    }

    pub(super) fn leaf(node: Node) -> Expr {
        Expr { node, depth: 1 }
    }

    pub(super) fn invalid(why: impl Into<String>) -> Expr {
        Expr::leaf(Node::Invalid(why.into()))
    }

    /// A node one level above `depth`, or an error when there are too many.
    pub(super) fn above(depth: usize, node: Node) -> Expr {
        if depth >= MAX_DEPTH {
            return Expr::invalid(format!(
                "the condition has more than {MAX_DEPTH} levels of `and`, `or`, `not` and brackets"
            ));
        }
        let depth = depth + 1;
        Expr { node, depth }
    }
}

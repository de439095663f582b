//! Conditions with `or`, `not` and other operators, and their evaluation on a model.

use esker::{Expr, Op, Operand, Value, field};

use super::{Put, Wanted, meets, path};

/// A condition that can also be evaluated on a model.
#[derive(Debug, Clone)]
pub(crate) enum Tree {
    /// All of these comparisons and of these trees.
    All(Vec<Wanted>, Vec<Tree>),
    /// One of these.
    Any(Vec<Tree>),
    /// Not this.
    Not(Box<Tree>),
    /// A value equals one of these.
    In(String, Vec<Value>),
    /// A value differs from this one.
    Ne(String, Value),
    /// The path has a value.
    Exists(String),
}

impl Tree {
    /// The condition; `None` if it is empty.
    pub(crate) fn expr(&self) -> Option<Expr> {
        match self {
            Tree::All(wanted, trees) => {
                let wanted = wanted.iter().map(Wanted::condition);
                let all = wanted.chain(trees.iter().filter_map(Tree::expr));
                all.reduce(|a, b| a & b)
            }
            Tree::Any(trees) => trees.iter().filter_map(Tree::expr).reduce(|a, b| a | b),
            Tree::Not(tree) => tree.expr().map(|expr| !expr),
            Tree::In(name, values) => {
                // Alternates between operands of programs and operands written by people.
                let operands = values.iter().enumerate().map(|(at, value)| match at % 2 {
                    0 => Operand::from(value.clone()),
                    _ => Operand::text(value.to_string()),
                });
                Some(field(name).one_of(operands))
            }
            Tree::Ne(name, value) => Some(Expr::compare(
                path(name),
                Op::Ne,
                Operand::from(value.clone()),
            )),
            Tree::Exists(name) => Some(field(name).exists()),
        }
    }

    /// True when the record meets it.
    pub(crate) fn meets(&self, put: &Put) -> bool {
        let values = |name: &String| put.values.get(name).into_iter().flatten();
        match self {
            Tree::All(wanted, trees) => {
                meets(put, wanted) && trees.iter().all(|tree| tree.meets(put))
            }
            Tree::Any(trees) => trees.iter().any(|tree| tree.meets(put)),
            Tree::Not(tree) => !tree.meets(put),
            Tree::In(name, any) => values(name).any(|value| any.contains(value)),
            Tree::Ne(name, other) => values(name).any(|value| value != other),
            Tree::Exists(name) => values(name).next().is_some(),
        }
    }

    /// Random trees: `some` returns comparisons of distinct paths, at least one; `value` returns a
    /// path and values that it may have.
    pub(crate) fn random(
        rng: &mut fastrand::Rng,
        depth: usize,
        some: &mut dyn FnMut(&mut fastrand::Rng) -> Vec<Wanted>,
        value: &mut dyn FnMut(&mut fastrand::Rng) -> (String, Vec<Value>),
    ) -> Tree {
        match rng.usize(0..if depth == 0 { 6 } else { 11 }) {
            0 | 1 => Tree::All(some(rng), Vec::new()),
            2 | 3 => {
                let (name, values) = value(rng);
                Tree::In(name, values)
            }
            4 => {
                let (name, values) = value(rng);
                Tree::Ne(name, values[0].clone())
            }
            5 => Tree::Exists(value(rng).0),
            6 => Tree::Not(Box::new(Tree::random(rng, depth - 1, some, value))),
            7..=9 => {
                let count = rng.usize(2..4);
                let each = (0..count).map(|_| Tree::random(rng, depth - 1, some, value));
                Tree::Any(each.collect())
            }
            // Bounds of one path in several chains would be joined to one range.
            _ => {
                let each = (0..2).map(|_| match Tree::random(rng, depth - 1, some, value) {
                    all @ Tree::All(..) => Tree::Not(Box::new(all)),
                    Tree::Not(_) => Tree::Exists(value(rng).0),
                    other => other,
                });
                let each = each.collect();
                Tree::All(some(rng), each)
            }
        }
    }
}

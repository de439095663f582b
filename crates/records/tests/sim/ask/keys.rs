//! Conditions on the primary key, or on the fields of one, beside their oracle.

use esker::{Expr, KeyType, Op, Operand, Path, Value};

use super::Asker;
use crate::common::path;
use crate::model::{K, KEYS, key};

/// Comparisons of the parts of a key.
#[derive(Debug)]
pub(super) struct OfKey(Vec<(Path, Op, Value)>);

impl OfKey {
    pub(super) fn condition(&self) -> Option<Expr> {
        let each = self.0.iter().map(|(path, op, value)| {
            Expr::compare(path.clone(), *op, Operand::from(value.clone()))
        });
        each.reduce(|a, b| a & b)
    }

    pub(super) fn accepts(&self, key: &K) -> bool {
        self.0.iter().all(|(at, op, wanted)| {
            let mut parts = parts(key).into_iter();
            let part = parts.find(|(path, _)| path == at);
            part.is_some_and(|(_, value)| match (op, &value, wanted) {
                (Op::Prefix, Value::String(text), Value::String(begin)) => text.starts_with(begin),
                (Op::Ge, ..) => value >= *wanted,
                (Op::Lt, ..) => value < *wanted,
                (Op::Le, ..) => value <= *wanted,
                _ => value == *wanted,
            })
        })
    }
}

fn parts(key: &K) -> Vec<(Path, Value)> {
    match key {
        K::Int(id) => vec![(path("id"), Value::Int(*id))],
        K::Text(id) => vec![(path("id"), Value::String(id.clone()))],
        K::Fields(id, k) => vec![
            (path("id"), Value::Int(*id)),
            (path("k"), Value::String(k.clone())),
        ],
    }
}

impl Asker<'_> {
    /// Sometimes a condition on the key, of what one key is.
    pub(super) fn of_key(&mut self) -> OfKey {
        if self.rng.usize(0..5) > 0 {
            return OfKey(Vec::new());
        }
        let mut parts = parts(&key(self.view.key_type, self.rng.u8(0..KEYS)));
        if self.rng.bool() && self.view.key_type == KeyType::Fields {
            parts.swap_remove(self.rng.usize(0..parts.len()));
        }
        let compared = parts.into_iter().map(|(path, value)| {
            let op = match (self.rng.usize(0..8), &value) {
                (0, _) => Op::Ge,
                (1, _) => Op::Lt,
                (2, _) => Op::Le,
                (3, Value::String(_)) => Op::Prefix,
                _ => Op::Eq,
            };
            (path, op, value)
        });
        OfKey(compared.collect())
    }
}

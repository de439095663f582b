//! Questions that a life is asked, with the answers of the model.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use esker::{BulkOrder, DatasetSnapshot, LookupOptions, Op, Order, Type, Validation};

use super::{K, Life};
use crate::common::{
    Doing, Model, Row, Wanted, check, domain, expected, meets, row, rows, scan, skewed,
};

impl Life {
    fn wanted(&mut self) -> Vec<Wanted> {
        let mut paths: Vec<(String, Type)> = self
            .attributes
            .iter()
            .map(|a| (a.0.to_string(), a.2))
            .collect();
        let none = paths.is_empty();
        if let Some((at, ty)) = self.rng.choice(&self.undeclared)
            && (none || self.rng.usize(0..4) == 0)
        {
            paths.push((at.to_string(), *ty));
        }
        self.rng.shuffle(&mut paths);
        let count = self.rng.usize(0..=paths.len());
        let mut wanted = Vec::new();
        for (at, ty) in paths.into_iter().take(count.max(1)) {
            let domain = domain(ty);
            let value = |rng: &mut fastrand::Rng| domain[skewed(rng, domain.len())].clone();
            let one = |op, value| Wanted {
                path: at.clone(),
                op,
                value,
            };
            match self.rng.usize(0..10) {
                0..=2 => wanted.push(one(Op::Eq, value(&mut self.rng))),
                3..=6 => {
                    let (mut lo, mut hi) = (value(&mut self.rng), value(&mut self.rng));
                    if lo > hi {
                        std::mem::swap(&mut lo, &mut hi);
                    }
                    let below = [Op::Ge, Op::Gt][self.rng.usize(0..2)];
                    let above = [Op::Le, Op::Lt][self.rng.usize(0..2)];
                    wanted.push(one(below, lo));
                    wanted.push(one(above, hi));
                }
                7 => {
                    let op = [Op::Ge, Op::Gt, Op::Le, Op::Lt][self.rng.usize(0..4)];
                    wanted.push(one(op, value(&mut self.rng)));
                }
                8 if ty == Type::String => wanted.push(one(Op::Prefix, value(&mut self.rng))),
                _ => {
                    wanted.push(one(Op::Eq, value(&mut self.rng)));
                    wanted.push(one(Op::Eq, value(&mut self.rng)));
                }
            }
        }
        wanted
    }

    /// Asks a snapshot `times` random questions.
    pub(super) fn ask(&mut self, snapshot: &DatasetSnapshot, model: &Model<K>, times: usize) {
        for _ in 0..times {
            let wanted = self.wanted();
            let limit = [None, Some(0), Some(1), Some(3)][self.rng.usize(0..4)];
            self.ask_one(snapshot, model, &wanted, limit);
        }
        let key = self.key();
        let found = snapshot.get(&self.api_key(&key)).unwrap();
        let found = found.map(|record| String::from_utf8(record.body().to_vec()).unwrap());
        assert_eq!(found, model.get(&key).map(|put| put.body.clone()));
        self.scan_some(snapshot, model);
    }

    fn ask_one(
        &mut self,
        snapshot: &DatasetSnapshot,
        model: &Model<K>,
        wanted: &[Wanted],
        limit: Option<usize>,
    ) {
        let order = if self.rng.usize(0..3) == 0 {
            Order::Oldest
        } else {
            Order::Newest
        };
        let _doing = Doing(format!("asked {wanted:?} {order:?} limit {limit:?}"));
        let lookup = LookupOptions {
            batch_bytes: [0, 1000, 16 << 20][self.rng.usize(0..3)],
            stateful: self.rng.bool(),
            hints: self.rng.bool(),
        };
        let mut query = snapshot.query().order(order).lookup(lookup);
        for condition in wanted {
            query = query.condition(condition.condition());
        }
        let found = rows(&self.dataset, query.clone().limit(limit));
        let right = expected(model, wanted, order, limit);
        same(&found, &right);
        // By any means, with the records and without.
        let validations = [Validation::Auto, Validation::Direct, Validation::Timestamp];
        let validation = validations[self.rng.usize(0..3)];
        let _doing = Doing(format!("by {validation:?}"));
        let query = query.validation(validation);
        let (count, _) = query.clone().limit(limit).count().unwrap();
        assert_eq!(count, right.len() as u64, "count");
        same(&rows(&self.dataset, query.clone().limit(limit)), &right);
        let keys = query.clone().limit(limit).keys().unwrap();
        let keys: Vec<String> = keys.map(|key| key.unwrap().to_string()).collect();
        assert!(
            keys.iter().eq(right.iter().map(|row| &row.0)),
            "keys alone: {keys:?}, not {:?}",
            right.iter().map(|row| &row.0).collect::<Vec<_>>()
        );
        // The same, in other orders.
        let in_bulk = |order| {
            let mut found: Vec<Row> = Vec::new();
            let visit = &mut |record| {
                found.push(row(&self.dataset, Ok(record)).unwrap());
                ControlFlow::Continue(())
            };
            query.clone().limit(limit).visit(order, visit).unwrap();
            found
        };
        let meeting = model.iter().filter(|(_, put)| meets(put, wanted));
        let by_key: Vec<Row> = meeting
            .map(|(key, put)| (key.to_string(), put.body.clone()))
            .collect();
        let few = &by_key[..right.len()];
        same(&in_bulk(BulkOrder::Key), few);
        let any: BTreeSet<Row> = in_bulk(BulkOrder::Any).into_iter().collect();
        assert_eq!(any.len(), right.len(), "in any order, {lookup:?}");
        assert!(any.iter().all(|row| by_key.contains(row)), "{lookup:?}");
        // The same, page by page.
        if self.rng.usize(0..2) == 0 {
            let size = self.rng.usize(1..6);
            let mut pages: Vec<Row> = Vec::new();
            let mut token = None;
            loop {
                let mut page = query.clone().limit(Some(size));
                if let Some(token) = token {
                    page = page.after(token);
                }
                let mut answer = page.run().unwrap();
                let found: Vec<Row> = answer
                    .by_ref()
                    .map(|record| row(&self.dataset, record).unwrap())
                    .collect();
                if found.is_empty() {
                    break;
                }
                pages.extend(found);
                token = answer.token();
            }
            same(&pages, &expected(model, wanted, order, None));
        }
    }

    fn scan_some(&mut self, snapshot: &DatasetSnapshot, model: &Model<K>) {
        let (mut from, mut to) = (self.key(), self.key());
        if from > to {
            std::mem::swap(&mut from, &mut to);
        }
        let from = self.rng.bool().then_some(from);
        let to = self.rng.bool().then_some(to);
        let reverse = self.rng.bool();
        let mut right: Vec<Row> = model
            .iter()
            .filter(|(key, _)| from.as_ref().is_none_or(|from| *key >= from))
            .filter(|(key, _)| to.as_ref().is_none_or(|to| *key <= to))
            .map(|(key, put)| (key.to_string(), put.body.clone()))
            .collect();
        if reverse {
            right.reverse();
        }
        let key = |key: &Option<K>| key.as_ref().map(|key| self.api_key(key));
        let found: Vec<Row> = snapshot
            .scan(key(&from), key(&to), reverse)
            .unwrap()
            .map(|record| row(&self.dataset, record).unwrap())
            .collect();
        let _doing = Doing(format!("scan {from:?} {to:?} reverse {reverse}"));
        same(&found, &right);
    }

    /// Everything: each value of each attribute, and the whole range.
    pub(super) fn ask_everything(&mut self) {
        let snapshot = self.dataset.snapshot();
        let model = std::mem::take(&mut self.model);
        for (at, _, ty) in self.attributes.clone() {
            for value in domain(ty) {
                for op in [Op::Eq, Op::Ge, Op::Gt, Op::Le, Op::Lt] {
                    let value = value.clone();
                    let path = at.to_string();
                    self.ask_one(&snapshot, &model, &[Wanted { path, op, value }], None);
                }
            }
        }
        let all = scan(&self.dataset, &snapshot).unwrap();
        let right: Vec<Row> = model
            .iter()
            .map(|(key, put)| (key.to_string(), put.body.clone()))
            .collect();
        same(&all, &right);
        assert_eq!(rows(&self.dataset, snapshot.query()).len(), model.len());
        assert_eq!(snapshot.query().count().unwrap().0, model.len() as u64);
        self.model = model;
        check(&self.db);
        self.known.see(&self.db, self.upkeep.is_exact());
    }
}

/// Rows are long: of those that differ only the first is told, and the keys of all.
fn same(found: &[Row], right: &[Row]) {
    if found == right {
        return;
    }
    let keys = |rows: &[Row]| rows.iter().map(|row| row.0.clone()).collect::<Vec<_>>();
    let first = found
        .iter()
        .zip(right)
        .find(|(found, right)| found != right);
    let cut = |row: &Row| row.1.chars().take(200).collect::<String>();
    let first = first.map(|(found, right)| format!("{}\nnot {}", cut(found), cut(right)));
    panic!(
        "found {:?},\nnot   {:?}\n{}",
        keys(found),
        keys(right),
        first.unwrap_or_default()
    );
}

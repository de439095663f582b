//! Orders and groups by the values of a path, beside the model's values.

use std::cmp::Ordering;
use std::ops::ControlFlow;

use esker::explain::Note;
use esker::request::{Aggregate, Direction, GroupBy};
use esker::{Explain, Op, Order, Query, Result, Value};

use super::Asker;
use crate::action::PATHS;
use crate::common::tree::Tree;
use crate::common::{Wanted, domain, path};
use crate::compound;
use crate::model::K;
use crate::runner::count;

/// Compares values of any types.
pub(super) fn compare(a: &Value, b: &Value) -> Ordering {
    let class = |value: &Value| match value {
        Value::Bool(_) => 0,
        Value::Int(_) | Value::Float(_) => 1,
        Value::Time(_) => 2,
        _ => 3,
    };
    let mixed = |a: i128, b: f64| {
        let whole = b.floor();
        let order = match whole {
            large if large >= 1e30 => Ordering::Less,
            small if small <= -1e30 => Ordering::Greater,
            _ => a.cmp(&(whole as i128)),
        };
        order.then(if b > whole {
            Ordering::Less
        } else {
            Ordering::Equal
        })
    };
    class(a).cmp(&class(b)).then_with(|| match (a, b) {
        (Value::Int(a), Value::Float(b)) => mixed(*a, *b),
        (Value::Float(a), Value::Int(b)) => mixed(*b, *a).reverse(),
        _ => a.partial_cmp(b).unwrap(),
    })
}

/// What is checked of an answer.
pub(super) struct Sorting<'a> {
    pub(super) query: &'a Query,
    /// The keys of the matching records, in their order.
    pub(super) keys: Vec<&'a K>,
    pub(super) limit: Option<usize>,
}

/// Counts an answer that a compound index gave in its order.
fn count_order(explain: &Explain) {
    let is_of_several = |note: &Note| match note {
        Note::InIndexOrder { path } => path.to_string().contains(','),
        _ => false,
    };
    if explain.notes.iter().any(is_of_several) {
        count("order: of a compound index");
    }
}

impl Asker<'_> {
    /// A path whose values have the types of the model: times that are not declared are numbers or
    /// text.
    fn sortable(&self, rng: &mut fastrand::Rng) -> Option<&'static str> {
        let at = match compound::fields_in(&self.view.def).get(1) {
            Some(second) if rng.bool() => *second,
            _ => rng.usize(0..PATHS.len()),
        };
        let mut indexes = self.view.def.indexes.iter();
        let declared = indexes.find(|index| index.path == path(PATHS[at]));
        let is_clear = match declared {
            Some(index) => !index.ty.has_place(),
            None => !self.view.types[at].is_time(),
        };
        is_clear.then_some(PATHS[at])
    }

    pub(super) fn values(&self, key: &K, path: &str) -> Vec<Value> {
        let (_, row) = self.records.current(key).unwrap();
        let mut values = row.put.values[path].clone();
        values.sort_by(compare);
        values
    }

    pub(super) fn sorted(&self, sorting: &Sorting<'_>, rng: &mut fastrand::Rng) -> Result<()> {
        let Some(by) = self.sortable(rng) else {
            return Ok(());
        };
        self.in_order(sorting, by, rng)?;
        self.in_groups(sorting, by)?;
        self.totals(sorting, by)?;
        self.buckets(sorting, by)
    }

    /// The keys in the order of a field.
    fn ranked(&self, keys: &[&K], by: &str, direction: Direction) -> Vec<String> {
        let mut right: Vec<(Option<Value>, &K)> = (keys.iter())
            .map(|key| {
                let values = self.values(key, by);
                let value = match direction {
                    Direction::Ascending => values.first().cloned(),
                    Direction::Descending => values.last().cloned(),
                };
                (value, *key)
            })
            .collect();
        right.sort_by(|(a, _), (b, _)| match (a, b, direction) {
            (None, None, _) => Ordering::Equal,
            (None, ..) => Ordering::Greater,
            (_, None, _) => Ordering::Less,
            (Some(a), Some(b), Direction::Ascending) => compare(a, b),
            (Some(a), Some(b), Direction::Descending) => compare(b, a),
        });
        right.iter().map(|(_, key)| key.to_string()).collect()
    }

    /// The first rows of a value of a compound index's first field, in the order of its second from
    /// a bound on.
    pub(super) fn first_of_fields(&self, rng: &mut fastrand::Rng) -> Result<()> {
        let fields = compound::fields_in(&self.view.def);
        let rows: Vec<_> = self.records.rows().collect();
        let ([first, second, ..], false) = (fields.as_slice(), rows.is_empty()) else {
            return Ok(());
        };
        let (_, _, put) = rows[rng.usize(0..rows.len())];
        let ty = self.view.types[*first];
        let mut values = put.values[PATHS[*first]].iter();
        let Some(value) = values.find(|value| value.type_of() == ty) else {
            return Ok(());
        };
        let bounds = domain(self.view.types[*second]);
        let (direction, ops) = match rng.usize(0..2) {
            0 => (Direction::Ascending, [Op::Gt, Op::Ge]),
            _ => (Direction::Descending, [Op::Lt, Op::Le]),
        };
        let one = |at: usize, op, value| Wanted {
            path: PATHS[at].to_string(),
            op,
            value,
        };
        let wanted = vec![
            one(*first, Op::Eq, value.clone()),
            one(
                *second,
                ops[rng.usize(0..2)],
                bounds[rng.usize(0..bounds.len())].clone(),
            ),
        ];
        let wanted = Tree::All(wanted, Vec::new());
        let found = self.records.meeting(&wanted);
        let keys: Vec<&K> = found.iter().map(|(key, ..)| *key).collect();
        let by = PATHS[*second];
        let mut right = self.ranked(&keys, by, direction);
        let limit = rng.usize(1..3);
        right.truncate(limit);
        let query = self.snapshot.find(wanted.expr().unwrap());
        let mut answer = query.order_by(by, direction).limit(limit).run()?;
        let keys = answer.by_ref().map(|record| Ok(record?.key().to_string()));
        let keys = keys.collect::<Result<Vec<String>>>()?;
        count_order(&answer.explain());
        assert_eq!(keys, right, "{wanted:?} by {by} {direction:?}, {limit}");
        Ok(())
    }

    fn in_order(&self, sorting: &Sorting<'_>, by: &str, rng: &mut fastrand::Rng) -> Result<()> {
        let (direction, offset) = if rng.bool() {
            (Direction::Ascending, rng.usize(0..3))
        } else {
            (Direction::Descending, 0)
        };
        let right = self.ranked(&sorting.keys, by, direction);
        let what = format!(
            "{:?} by {by} {direction:?}",
            sorting.query.request().unwrap()
        );
        let query = || sorting.query.clone().order_by(by, direction);
        let limit = sorting.limit.unwrap_or(usize::MAX);
        let few: Vec<&String> = right.iter().skip(offset).take(limit).collect();
        let keys = query().offset(offset).limit(sorting.limit).keys()?;
        let keys = keys.map(|key| Ok(key?.to_string()));
        let keys = keys.collect::<Result<Vec<String>>>()?;
        assert_eq!(keys.iter().collect::<Vec<_>>(), few, "{what}");
        let (mut found, mut token) = (Vec::new(), None);
        // An index is read in its order for few of many rows.
        let is_second = compound::fields_in(&self.view.def)
            .get(1)
            .is_some_and(|at| PATHS[*at] == by);
        let size = rng.usize(1..if is_second { 3 } else { 8 });
        loop {
            let mut page = query().limit(size);
            if let Some(token) = token {
                page = page.after(token);
            }
            let mut page = page.run()?;
            let before = found.len();
            for record in page.by_ref() {
                found.push(record?.key().to_string());
            }
            count_order(&page.explain());
            if found.len() == before {
                break;
            }
            assert!(found.len() <= right.len(), "pages of {what}: more than all");
            token = page.token();
        }
        assert_eq!(found, right, "pages of {what}");
        Ok(())
    }

    fn in_groups(&self, sorting: &Sorting<'_>, by: &str) -> Result<()> {
        let mut groups: Vec<(Option<Value>, i128)> = Vec::new();
        let mut all: Vec<Value> = Vec::new();
        for key in &sorting.keys {
            let mut values = self.values(key, by);
            all.extend(values.iter().cloned());
            values.dedup_by(|a, b| compare(a, b).is_eq());
            let mut parts: Vec<Option<Value>> = values.into_iter().map(Some).collect();
            if parts.is_empty() {
                parts.push(None);
            }
            for part in parts {
                let is_same = |(known, _): &&mut (Option<Value>, i128)| match (known, &part) {
                    (Some(known), Some(part)) => compare(known, part).is_eq(),
                    (known, part) => known.is_none() && part.is_none(),
                };
                match groups.iter_mut().find(is_same) {
                    Some((_, count)) => *count += 1,
                    None => groups.push((part, 1)),
                }
            }
        }
        groups.sort_by(|(a, _), (b, _)| match (a, b) {
            (Some(a), Some(b)) => compare(a, b),
            (a, b) => a.is_none().cmp(&b.is_none()),
        });
        all.sort_by(compare);
        let what = format!("{:?} by {by}", sorting.query.request().unwrap());
        let is_same = |a: Option<&Value>, b: Option<&Value>| match (a, b) {
            (Some(a), Some(b)) => compare(a, b).is_eq(),
            (a, b) => a.is_none() && b.is_none(),
        };
        let mut left = groups.iter();
        // Groups of records have no order of records.
        let query = sorting.query.clone().order(Order::Any);
        let counted = query.clone().aggregate(["count".parse()?]);
        counted.by(by.parse::<GroupBy>()?).visit(&mut |group| {
            let (value, count) = left.next().unwrap_or_else(|| panic!("{what}: {group:?}"));
            assert!(
                is_same(group.value(by).as_ref(), value.as_ref()),
                "{what}: {group:?}"
            );
            assert_eq!(
                group.value("count"),
                Some(Value::Int(*count)),
                "{what}: {group:?}"
            );
            ControlFlow::Continue(())
        })?;
        assert_eq!(left.next(), None, "{what}");
        let texts = format!("count,distinct({by}),min({by}),max({by}),p50({by})");
        let aggregates = Aggregate::parse_list(&texts)?;
        let found = query.aggregate(aggregates).run()?;
        let [found] = found.as_slice() else {
            panic!("{what}: {found:?}");
        };
        let middle = all.len().div_ceil(2).checked_sub(1).map(|at| &all[at]);
        for (name, right) in [("min", all.first()), ("p50", middle), ("max", all.last())] {
            let value = found.value(&format!("{name}({by})"));
            assert!(is_same(value.as_ref(), right), "{what}: {name}, {found:?}");
        }
        all.dedup_by(|a, b| compare(a, b).is_eq());
        for (name, right) in [
            ("count".to_string(), sorting.keys.len()),
            (format!("distinct({by})"), all.len()),
        ] {
            let right = Some(Value::Int(right as i128));
            assert_eq!(found.value(&name), right, "{what}: {found:?}");
        }
        Ok(())
    }
}

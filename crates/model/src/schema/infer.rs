//! Type inference from the first records of a load.

use std::borrow::Cow;

use serde_json::Value as Json;

use super::path::Path;
use super::readable::without_negative_zeros;
use super::time;
use super::types::{KeyType, Type};

/// The type that most records of `samples` have at `path`; of equally frequent types, the first.
/// Each record has one vote, even with an array of values. Integers and floats count together, as
/// float if any value is a float. Nulls are ignored, and strings never count as times. `None` if no
/// sample has a value. Samples that are not JSON are skipped.
///
/// Parses every sample completely; meant for some hundreds of them.
pub fn infer(samples: &[&[u8]], path: &Path) -> Option<Type> {
    infer_counted(samples, path).map(|(ty, _)| ty)
}

/// As [`infer`]; also returns the number of records that have a value of another type.
pub fn infer_counted(samples: &[&[u8]], path: &Path) -> Option<(Type, usize)> {
    let mut votes: Vec<(Type, usize)> = Vec::new();
    let records = records(samples, path);
    for record in &records {
        if let Some(most) = most(&record.counts) {
            count(&mut votes, most);
        }
    }
    let ty = most(&votes)?;
    let others = records.iter().filter(|record| record.has_other(ty)).count();
    let is_float = ty == Type::Int && records.iter().any(|record| record.has_float);
    Some((if is_float { Type::Float } else { ty }, others))
}

/// The type for the primary key at `path`, and the number of samples that have a value of another
/// type: int if most values there are integers, otherwise string. `None` if no sample has a value.
pub fn infer_key(samples: &[&[u8]], path: &Path) -> Option<(KeyType, usize)> {
    let records = records(samples, path);
    let values = records.iter().filter(|record| !record.counts.is_empty());
    let is_integer = |record: &&Record| !record.has_other(Type::Int) && !record.has_float;
    let (mut all, mut integers, mut strings) = (0, 0, 0);
    for record in values {
        all += 1;
        integers += usize::from(is_integer(&record));
        strings += usize::from(!record.has_other(Type::String));
    }
    match all {
        0 => None,
        all if integers * 2 > all => Some((KeyType::Int, all - integers)),
        all => Some((KeyType::String, all - strings)),
    }
}

/// The values of a record at a path.
struct Record {
    /// The number of values by type; all numbers count as `Int`.
    counts: Vec<(Type, usize)>,
    has_float: bool,
}

impl Record {
    fn has_other(&self, ty: Type) -> bool {
        self.counts.iter().any(|(found, _)| *found != ty)
    }
}

fn records(samples: &[&[u8]], path: &Path) -> Vec<Record> {
    let of = |sample: &&[u8]| {
        let mut record = Record {
            counts: Vec::new(),
            has_float: false,
        };
        each_scalar(&[sample], path, &mut |scalar| {
            record.has_float |= scalar.is_f64();
            let ty = match scalar {
                Json::Bool(_) => Type::Bool,
                Json::String(_) => Type::String,
                _ => Type::Int,
            };
            count(&mut record.counts, ty);
        });
        record
    };
    samples.iter().map(of).collect()
}

fn count(counts: &mut Vec<(Type, usize)>, ty: Type) {
    match counts.iter_mut().find(|(known, _)| *known == ty) {
        Some((_, count)) => *count += 1,
        None => counts.push((ty, 1)),
    }
}

/// The most frequent type, the first of equally frequent ones.
fn most(counts: &[(Type, usize)]) -> Option<Type> {
    // For equal counts `max_by_key` returns the last element.
    let most = counts.iter().rev().max_by_key(|(_, count)| *count);
    most.map(|(ty, _)| *ty)
}

/// The type of the times at `path` in `samples`: its unit is the largest in which most of the
/// numbers are times of the years 1900 to
/// 2500. [`Type::Time`] if there are no numbers except 0.
pub fn infer_time(samples: &[&[u8]], path: &Path) -> Type {
    let mut votes = [0_usize; Type::TIMES.len()];
    each_scalar(samples, path, &mut |scalar| {
        let Some(number) = scalar.as_f64().filter(|number| *number != 0.0) else {
            return;
        };
        let fits = |ty: &Type| {
            let micros = time::from_decimal(*ty, number);
            micros.is_some_and(|micros| (1900..=2500).contains(&time::year_of(micros)))
        };
        let unit = Type::TIMES.iter().position(fits);
        if let Some(votes) = unit.and_then(|unit| votes.get_mut(unit)) {
            *votes += 1;
        }
    });
    // For equal counts `max_by_key` returns the last element, which is the larger unit.
    let most = Type::TIMES
        .iter()
        .zip(votes)
        .rev()
        .max_by_key(|(_, votes)| *votes);
    match most {
        Some((ty, votes)) if votes > 0 => *ty,
        _ => Type::Time,
    }
}

fn each_scalar(samples: &[&[u8]], path: &Path, see: &mut dyn FnMut(&Json)) {
    let names: Vec<&str> = path.names().collect();
    for sample in samples {
        let Ok(text) = std::str::from_utf8(sample) else {
            continue;
        };
        let text = without_negative_zeros(text).map_or(Cow::Borrowed(text), Cow::Owned);
        if let Ok(json) = serde_json::from_str(&text) {
            walk(&json, &names, see);
        }
    }
}

fn walk(json: &Json, names: &[&str], see: &mut dyn FnMut(&Json)) {
    match (json, names.split_first()) {
        (Json::Array(elements), _) => elements.iter().for_each(|e| walk(e, names, see)),
        (Json::Object(fields), Some((name, rest))) => {
            if let Some(value) = fields.get(*name) {
                walk(value, rest, see);
            }
        }
        (Json::Null | Json::Object(_), _) | (_, Some(_)) => {}
        (scalar, None) => see(scalar),
    }
}

//! Type inference from the first records of a load.

use std::borrow::Cow;

use serde_json::Value as Json;

use super::path::Path;
use super::readable::without_negative_zeros;
use super::time;
use super::types::{KeyType, Type};

/// The type that most records of `samples` have at `path`, the first of equally frequent ones: each record has one vote, however many
/// values an array has. Integers and floats count together, as float when any is one. Nulls are ignored; strings are never taken for
/// times. `None` when no sample has a value. Samples that are not JSON are skipped.
///
/// Parses every sample completely: meant for some hundred of them.
pub fn infer(samples: &[&[u8]], path: &Path) -> Option<Type> {
    let mut votes: Vec<(Type, usize)> = Vec::new();
    let mut any_float = false;
    for sample in samples {
        let mut counts = Vec::new();
        each_scalar(&[sample], path, &mut |scalar| {
            any_float |= scalar.is_f64();
            count(&mut counts, type_of(scalar));
        });
        if let Some(most) = most(&counts) {
            count(&mut votes, most);
        }
    }
    match most(&votes)? {
        Type::Int if any_float => Some(Type::Float),
        most => Some(most),
    }
}

/// How many records of `samples` have a value at `path` that is not of this type, which [`infer`] found.
pub fn dissent(samples: &[&[u8]], path: &Path, found: Type) -> usize {
    let found = match found {
        Type::Float => Type::Int,
        found => found,
    };
    let dissents = |sample: &&&[u8]| {
        let mut is_other = false;
        each_scalar(&[sample], path, &mut |scalar| {
            is_other |= type_of(scalar) != found;
        });
        is_other
    };
    samples.iter().filter(dissents).count()
}

/// The type of a scalar; of any number `Int`.
fn type_of(scalar: &Json) -> Type {
    match scalar {
        Json::Bool(_) => Type::Bool,
        Json::String(_) => Type::String,
        _ => Type::Int,
    }
}

fn count(counts: &mut Vec<(Type, usize)>, ty: Type) {
    match counts.iter_mut().find(|(known, _)| *known == ty) {
        Some((_, count)) => *count += 1,
        None => counts.push((ty, 1)),
    }
}

/// The most frequent type, the first of equally frequent ones.
fn most(counts: &[(Type, usize)]) -> Option<Type> {
    // For equal counts `max_by_key` returns the last.
    let most = counts.iter().rev().max_by_key(|(_, count)| *count);
    most.map(|(ty, _)| *ty)
}

/// The type of the times at `path` in `samples`: that of the unit in which most of the numbers there are times of the years 1900 to 2500,
/// the largest such unit; [`Type::Time`] where there are no numbers but 0.
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
    // For equal counts `max_by_key` returns the last: the larger unit comes first.
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

/// The type for the primary key at `path`: int when most of the samples' values there are integers,
/// else string.
pub fn infer_key(samples: &[&[u8]], path: &Path) -> KeyType {
    let (mut values, mut integers) = (0, 0);
    each_scalar(samples, path, &mut |scalar| {
        values += 1;
        integers += usize::from(scalar.is_i64() || scalar.is_u64());
    });
    if integers * 2 > values {
        KeyType::Int
    } else {
        KeyType::String
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

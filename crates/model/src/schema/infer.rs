//! Type inference from the first records of a load.

use std::borrow::Cow;
use std::ops::ControlFlow;

use serde_json::Value as Json;

use super::at_path::Found;
use super::exact;
use super::path::Path;
use super::readable::without_negative_zeros;
use super::time;
use super::types::{KeyType, Type};
use super::walk::{Numbers, Rest, Sink, Trie};

/// The type that most records of `samples` have at `path`; of equally frequent types, the first.
/// Each record has one vote, even with an array of values. Integers and floats count together, as
/// float if any value is a float. Nulls are ignored, and strings never count as times. `None` if no
/// sample has a value. Samples that are not JSON are skipped.
///
/// Reads every sample completely; meant for some thousands of them.
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
    let mut records = Vec::with_capacity(samples.len());
    each_record(samples, path, &mut |scalars| {
        let mut record = Record {
            counts: Vec::new(),
            has_float: false,
        };
        for scalar in scalars {
            let ty = match scalar {
                Scalar::Bool => Type::Bool,
                Scalar::Text => Type::String,
                Scalar::Int(_) => Type::Int,
                Scalar::Float(_) => {
                    record.has_float = true;
                    Type::Int
                }
            };
            count(&mut record.counts, ty);
        }
        records.push(record);
    });
    records
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
    each_record(samples, path, &mut |scalars| {
        let numbers = scalars.iter().filter_map(|scalar| match scalar {
            Scalar::Int(number) | Scalar::Float(number) => Some(*number),
            Scalar::Bool | Scalar::Text => None,
        });
        for number in numbers.filter(|number| *number != 0.0) {
            let fits = |ty: &Type| {
                let micros = time::from_decimal(*ty, number);
                micros.is_some_and(|micros| (1900..=2500).contains(&time::year_of(micros)))
            };
            let unit = Type::TIMES.iter().position(fits);
            if let Some(votes) = unit.and_then(|unit| votes.get_mut(unit)) {
                *votes += 1;
            }
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

/// A value that is no null, object or array. What a text says does not matter here.
#[cfg_attr(test, derive(Debug, PartialEq))]
enum Scalar {
    Bool,
    Text,
    Int(f64),
    Float(f64),
}

/// The scalars of a record at the path, in order. Stops where the parser would read something else
/// than is stored: a name that is repeated, and a zero with a minus.
#[derive(Default)]
struct Scalars(Vec<Scalar>);

impl Sink for Scalars {
    fn found(&mut self, _targets: &[u32], found: Found<'_>) -> ControlFlow<()> {
        self.0.push(match found {
            Found::Bool(_) => Scalar::Bool,
            Found::Str(_) => Scalar::Text,
            Found::Int(int) => Scalar::Int(int as f64),
            Found::Float(float) if float == 0.0 && float.is_sign_negative() => {
                return ControlFlow::Break(());
            }
            Found::Float(float) | Found::Long(_, float) => Scalar::Float(float),
            Found::Null | Found::Object => return ControlFlow::Continue(()),
        });
        ControlFlow::Continue(())
    }

    fn repeated(&mut self) -> ControlFlow<()> {
        ControlFlow::Break(())
    }
}

/// Calls `see` with the scalars of each sample at the path; with none if it is not JSON.
fn each_record(samples: &[&[u8]], path: &Path, see: &mut dyn FnMut(&[Scalar])) {
    let mut trie = Trie::new();
    trie.add(path, 0, Numbers::Parsed);
    let names: Vec<&str> = path.names().collect();
    let mut scalars = Scalars::default();
    for sample in samples {
        scalars.0.clear();
        if let Ok(text) = std::str::from_utf8(sample) {
            let mut input = serde_json::Deserializer::from_str(text);
            let walked = trie.walk(&mut input, Rest::Read, &mut scalars);
            if walked.and_then(|()| input.end()).is_err() {
                scalars.0.clear();
                read_whole(text, &names, &mut scalars.0);
            }
        }
        see(&scalars.0);
    }
}

/// Reads the scalars of a text that is no JSON, or not as the parser reads it.
fn read_whole(text: &str, names: &[&str], scalars: &mut Vec<Scalar>) {
    let text = without_negative_zeros(text).map_or(Cow::Borrowed(text), Cow::Owned);
    if let Ok(json) = serde_json::from_str(&text) {
        walk(&json, names, scalars);
    }
}

fn walk(json: &Json, names: &[&str], scalars: &mut Vec<Scalar>) {
    match (json, names.split_first()) {
        (Json::Array(elements), _) => elements.iter().for_each(|e| walk(e, names, scalars)),
        (Json::Object(fields), Some((name, rest))) => {
            if let Some(value) = fields.get(*name) {
                walk(value, rest, scalars);
            }
        }
        (Json::Null | Json::Object(_), _) | (_, Some(_)) => {}
        (Json::Bool(_), None) => scalars.push(Scalar::Bool),
        (Json::String(_), None) => scalars.push(Scalar::Text),
        (Json::Number(number), None) => scalars.extend(match exact::number(&number.to_string()) {
            Some(Found::Int(v)) => Some(Scalar::Int(v as f64)),
            Some(Found::Float(v) | Found::Long(_, v)) => Some(Scalar::Float(v)),
            _ => None,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the walk finds is what is found in the whole value.
    #[test]
    fn scalars_are_those_of_the_parsed_value() {
        let path = Path::parse("a.b").unwrap();
        let names: Vec<&str> = path.names().collect();
        let values = [
            "1",
            "-0",
            "-0.0",
            "0.0",
            "1.5",
            "1e3",
            "1e400",
            "18446744073709551615",
            "18446744073709551616",
            "-9223372036854775809",
            "true",
            "null",
            "\"x\"",
            "\"\\ud800\"",
            "[1,[2,\"y\",null],{\"b\":3}]",
            "{\"b\":4}",
            "[]",
            "{}",
            "broken",
            "",
        ];
        let (mut compared, mut some) = (0, 0);
        for value in values {
            for form in [
                "{\"a\":{\"b\":V}}",
                "{\"a\":[{\"b\":V},{\"c\":1},{\"b\":2}]}",
                "{\"a\":{\"b\":7,\"b\":V}}",
                "{\"a\":{\"b\":7},\"a\":V}",
                "{\"z\":V,\"a\":{\"b\":8}}",
                "[{\"a\":{\"b\":V}}]",
                "{\"a\":{\"b\":V}} trailing",
                "V",
            ] {
                let text = form.replace('V', value);
                let mut whole = Vec::new();
                read_whole(&text, &names, &mut whole);
                each_record(&[text.as_bytes()], &path, &mut |found| {
                    assert_eq!(found, whole, "{text}");
                    compared += 1;
                    some += usize::from(!found.is_empty());
                });
            }
        }
        assert!(compared == values.len() * 8 && some > 50, "{some}");
        each_record(&[b"{\"a\":{\"b\":\"\xff\"}}"], &path, &mut |found| {
            assert!(found.is_empty())
        });
    }
}

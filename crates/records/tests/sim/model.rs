//! The contents of datasets by brute force: the entries of each key that count, newest first, with
//! the numbers that the store assigned.

use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

use esker::{KeyType, Type, Value};
use serde_json::{Map, Value as Json, json};

use crate::action::{ABSENT, ARRAY, Cell, KEEP, NULL, ONE, OTHER, PATHS};
use crate::common::tree::Tree;
use crate::common::{Put, domain, place, to_json};
use crate::space::{self, Tenths};

/// A key, in the order of its dataset.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum K {
    Int(i128),
    Text(String),
    Fields(i128, String),
}

impl fmt::Display for K {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            K::Int(key) => write!(f, "{key}"),
            K::Text(key) => f.write_str(key),
            K::Fields(id, k) => write!(f, "{}", json!([whole(*id), k])),
        }
    }
}

fn whole(n: i128) -> Json {
    to_json(&Value::Int(n), &mut fastrand::Rng::with_seed(0))
}

pub(crate) const KEYS: u8 = 70;

/// The key of a number: keys of each sign, close together and far apart, and those that an encoding
/// could get wrong.
pub(crate) fn key(ty: KeyType, number: u8) -> K {
    let n = i128::from(number % KEYS);
    match ty {
        KeyType::Int if n == 0 => K::Int(i128::from(u64::MAX)),
        KeyType::Int => K::Int((n - 20) * (n % 3 * 1000 + 1)),
        KeyType::Fields if n == 0 => K::Fields(i128::from(u64::MAX), String::new()),
        KeyType::Fields => {
            let text = format!("{}\"\0", "p".repeat(n as usize % 4));
            K::Fields((n % 5 - 2) * 300, [text, (n / 5).to_string()].concat())
        }
        KeyType::String if n == 0 => K::Text("\u{10ffff}".to_string()),
        _ => K::Text(format!("{}\"k\0{}", "p".repeat(n as usize % 4), n / 3)),
    }
}

/// A record: the value that was put, and its values in the record.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) put: Put,
    /// The expiry time of the record.
    pub(crate) expires: Option<u64>,
    /// The point of the record.
    pub(crate) point: Option<Tenths>,
    pub(crate) times: Vec<i64>,
    fields: [Option<Json>; PATHS.len()],
}

/// A write of a key: a record, or a deletion.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) seq: u64,
    pub(crate) row: Option<Rc<Row>>,
}

/// The records of a dataset.
#[derive(Debug, Clone, Default)]
pub(crate) struct Records {
    /// Newest first, as many as the dataset keeps.
    pub(crate) keys: BTreeMap<K, Vec<Entry>>,
    /// The notes of the dataset.
    pub(crate) notes: BTreeMap<String, Vec<u8>>,
}

impl Records {
    /// The write of the current record of `key`.
    pub(crate) fn current(&self, key: &K) -> Option<(u64, &Rc<Row>)> {
        let newest = self.keys.get(key)?.first()?;
        Some((newest.seq, newest.row.as_ref()?))
    }

    /// The stored records, expired or not, in key order.
    pub(crate) fn stored(&self) -> impl Iterator<Item = (&K, u64, &Row)> {
        self.keys.iter().filter_map(|(key, entries)| {
            let newest = entries.first()?;
            Some((key, newest.seq, newest.row.as_deref()?))
        })
    }

    /// The records at a time: expired ones count as deleted.
    pub(crate) fn at(self: &Rc<Records>, time: u64) -> Rc<Records> {
        let has_expired = |entry: &Entry| {
            let expires = entry.row.as_ref().and_then(|row| row.expires);
            expires.is_some_and(|expires| expires <= time)
        };
        if !self.keys.values().flatten().any(has_expired) {
            return self.clone();
        }
        let mut seen = Records::clone(self);
        for entry in seen.keys.values_mut().flatten() {
            if has_expired(entry) {
                entry.row = None;
            }
        }
        Rc::new(seen)
    }

    /// The current records in key order.
    pub(crate) fn rows(&self) -> impl DoubleEndedIterator<Item = (&K, u64, &Put)> {
        self.keys.iter().filter_map(|(key, entries)| {
            let newest = entries.first()?;
            Some((key, newest.seq, &newest.row.as_ref()?.put))
        })
    }

    pub(crate) fn write(&mut self, key: K, entry: Entry, kept: usize) {
        let entries = self.keys.entry(key.clone()).or_default();
        entries.insert(0, entry);
        entries.truncate(kept);
        if entries.iter().all(|entry| entry.row.is_none()) {
            self.keys.remove(&key);
        }
    }

    /// The versions of a key as of a write: the kept ones that are not newer, down to a deletion.
    pub(crate) fn versions(&self, key: &K, at: u64, m: usize) -> Vec<(u64, &Row)> {
        let entries = self.keys.get(key).into_iter().flatten();
        let there = entries.filter(|entry| entry.seq <= at);
        let versions = there.map_while(|entry| Some((entry.seq, entry.row.as_deref()?)));
        versions.take(m).collect()
    }

    /// The current records that satisfy all conditions: key, write number, body, in key order.
    pub(crate) fn meeting(&self, wanted: &Tree) -> Vec<(&K, u64, &str)> {
        let rows = self.rows().filter(|(_, _, put)| wanted.meets(put));
        rows.map(|(key, seq, put)| (key, seq, put.body.as_str()))
            .collect()
    }
}

/// The types of the values of a dataset's records.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Types {
    pub(crate) of: [Type; PATHS.len()],
    /// Some values have other types.
    pub(crate) lenient: bool,
    /// The number of the path whose values are unique.
    pub(crate) unique: Option<usize>,
    /// The number of the compound index.
    pub(crate) compound: u8,
}

/// A value of another type that equals no value of this type, as a program or as a person writes
/// it.
fn other(ty: Type, cell: Cell) -> Value {
    match (ty, cell % 2) {
        (Type::Bool, _) => Value::Int(7),
        (Type::Int, 0) => Value::Float(2.5),
        (_, odd) => Value::Bool(odd == 1),
    }
}

/// The meaning of a cell: its values, and their JSON.
fn field(ty: Type, lenient: bool, cell: Cell) -> (Vec<Value>, Option<Json>) {
    let domain = domain(ty);
    let one = |number: usize, rng: &mut fastrand::Rng| {
        let value = domain[number % domain.len()].clone();
        let json = to_json(&value, rng);
        (value, json)
    };
    let mut rng = fastrand::Rng::with_seed(u64::from(cell));
    match cell {
        ABSENT => (vec![], None),
        NULL => (vec![], Some(Json::Null)),
        OTHER..ARRAY if lenient => {
            let other = other(ty, cell);
            let json = to_json(&other, &mut rng);
            match cell % 3 {
                0 => {
                    let (value, second) = one(usize::from(cell), &mut rng);
                    (vec![other, value], Some(json!([json, second])))
                }
                _ => (vec![other], Some(json)),
            }
        }
        ONE..ARRAY => {
            let (value, json) = one(usize::from(cell - ONE), &mut rng);
            (vec![value], Some(json))
        }
        _ => {
            let (mut values, mut elements) = (Vec::new(), Vec::new());
            for _ in 0..rng.usize(0..5) {
                if rng.usize(0..6) == 0 {
                    elements.push(Json::Null);
                    continue;
                }
                let number = rng.usize(0..domain.len().min(6));
                let (value, json) = one(number, &mut rng);
                values.push(value);
                elements.push(json);
            }
            (values, Some(Json::Array(elements)))
        }
    }
}

/// A record of these cells; [`KEEP`](crate::action::KEEP) takes the cell of `old`. `number` makes
/// it unique.
pub(crate) fn row(
    key: &K,
    types: &Types,
    cells: &[Cell; PATHS.len()],
    (pad, style, until): (u16, u8, Option<u64>),
    old: Option<&Row>,
    number: u64,
) -> Row {
    let mut rng = fastrand::Rng::with_seed(number);
    let mut object = Map::new();
    let mut values = BTreeMap::new();
    let id = match key {
        K::Int(key) | K::Fields(key, _) => to_json(&Value::Int(*key), &mut rng),
        K::Text(key) => json!(key),
    };
    object.insert("id".to_string(), id);
    if let K::Fields(_, k) = key {
        object.insert("k".to_string(), json!(k));
    }
    let mut fields: [Option<Json>; PATHS.len()] = Default::default();
    for (at, name) in PATHS.iter().enumerate() {
        let (found, field) = match (cells[at], old) {
            (KEEP, Some(old)) => (old.put.values[*name].clone(), old.fields[at].clone()),
            (KEEP, None) => (vec![], None),
            (cell, _) => field(types.of[at], types.lenient, cell),
        };
        if let Some(field) = &field {
            let names: Vec<&str> = name.split('.').collect();
            place(&mut object, &names, field.clone());
        }
        values.insert((*name).to_string(), found);
        fields[at] = field;
    }
    // The same values, through an array of objects.
    if style & 2 != 0
        && let Some(nested) = object.get_mut("n")
    {
        *nested = json!([{}, nested.take(), 7]);
    }
    object.insert("o".to_string(), json!(number));
    let point = (style & space::STYLE != 0).then(|| space::point(number));
    if let Some((x, y)) = point {
        let point = [x, y].map(space::degrees);
        object.insert(space::POINT.to_string(), json!(point));
    }
    let times = match point {
        Some(_) => space::times(number),
        None => Vec::new(),
    };
    match times.as_slice() {
        [] => {}
        [time] => drop(object.insert(space::TIME.to_string(), json!(time))),
        times => drop(object.insert(space::TIME.to_string(), json!(times))),
    }
    if let Some(until) = until {
        object.insert("until".to_string(), json!(until as f64 / 1000.0));
    }
    let pad: String = (0..pad).map(|_| rng.alphanumeric()).collect();
    object.insert("pad".to_string(), json!(pad));
    let mut body = Json::Object(object).to_string();
    if style & 1 != 0 {
        body = format!(" {} \t", body.replacen(':', " :  ", 1));
    }
    let put = Put {
        order: number,
        body,
        values,
    };
    Row {
        put,
        expires: None,
        point,
        times,
        fields,
    }
}

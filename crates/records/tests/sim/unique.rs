//! Unique values, by brute force: which batches and builds must be refused.

use esker::schema::{IndexDef, Tokenizer};
use esker::{ErrorKind, IndexKind, Type, Value};

use crate::action::PATHS;
use crate::data::Effects;
use crate::model::{K, Records, Row, Types};
use crate::world::{Set, Store, World};

/// Whether a batch is refused because two records would share a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Clash {
    No,
    /// The index is being built, and may find the duplicate later.
    May,
    Must,
}

/// True if an index of this path, kind and tokenizer is unique in a dataset whose path of this
/// number is.
pub(crate) fn is_unique(
    unique: Option<usize>,
    at: usize,
    kind: IndexKind,
    tokenizer: Tokenizer,
) -> bool {
    let fits = kind.can_be_unique() && tokenizer == Tokenizer::Exact;
    unique == Some(at) && fits
}

/// The values of a record that an index of this type can compare.
fn values<'r>(row: &'r Row, name: &str, ty: Type) -> impl Iterator<Item = &'r Value> + use<'r> {
    let values = row.put.values.get(name).into_iter().flatten();
    values.filter(move |value| value.type_of() == ty)
}

/// True if both records have a value of the index; of a compound one, a combination, as each has
/// all combinations of its values.
fn share(one: &Row, other: &Row, index: &IndexDef, types: &Types) -> bool {
    let paths = index.path.to_string();
    let mut names = paths.split(',').map(|name| {
        let at = PATHS.into_iter().position(|known| known == name);
        at.expect("a path of the model")
    });
    names.all(|at| {
        let (name, ty) = (PATHS[at], types.of[at]);
        let mut mine = values(one, name, ty);
        mine.any(|value| values(other, name, ty).any(|other| other == value))
    })
}

/// The current records.
fn current(records: &Records, time: u64) -> impl Iterator<Item = (&K, &Row)> + Clone {
    let stored = records.stored();
    let stored: Vec<(&K, &Row)> = stored
        .filter(|(_, _, row)| row.expires.is_none_or(|expires| expires > time))
        .map(|(key, _, row)| (key, row))
        .collect();
    stored.into_iter()
}

/// Two current records with the same value, and whether one of them expires: then a power cut may
/// have made the store forget that it had expired.
fn duplicate(
    records: &Records,
    time: u64,
    index: &IndexDef,
    types: &Types,
) -> Option<(K, K, bool)> {
    let all = current(records, time);
    for (at, (key, row)) in all.clone().enumerate() {
        let mut later = all.clone().skip(at + 1);
        if let Some((other, second)) = later.find(|(_, other)| share(row, other, index, types)) {
            let expires = row.expires.or(second.expires).is_some();
            return Some((key.clone(), other.clone(), expires));
        }
    }
    None
}

impl Store {
    /// The time up to which records that expire hold no values.
    fn believed(&self) -> u64 {
        self.db.as_ref().map_or(0, |db| db.group().believed_time())
    }

    /// Whether a part of a batch would give a record a value that another one has.
    pub(crate) fn clash(&self, part: &Effects) -> Clash {
        let set = self.sets.iter().find(|set| set.uid == part.uid).unwrap();
        let Some(dataset) = self.handle(&set.name) else {
            return Clash::No;
        };
        let indexes = dataset.def().indexes;
        let complete: Vec<IndexDef> = indexes.into_iter().filter(|i| i.unique).collect();
        let building = dataset.unfinished_index().filter(|i| i.unique);
        let becomes = building.filter(|b| complete.iter().all(|index| index.path != b.path));
        if complete.is_empty() && becomes.is_none() {
            return Clash::No;
        }
        let mut after = Records::clone(&self.records(part.uid));
        let touched = part.write_to(&mut after);
        let time = self.believed();
        let clashes = |index: &IndexDef| {
            let all = current(&after, time);
            let mut mine = all.clone().filter(|(key, _)| touched.contains(key));
            mine.any(|(key, row)| {
                let mut others = all.clone().filter(|(other, _)| *other != key);
                others.any(|(_, other)| share(row, other, index, &set.types))
            })
        };
        match becomes {
            _ if complete.iter().any(clashes) => Clash::Must,
            Some(index) if clashes(&index) => Clash::May,
            _ => Clash::No,
        }
    }

    /// The number of indexes with duplicates.
    pub(crate) fn duplicates(&self) -> usize {
        let time = self.believed();
        let of = |set: &Set| {
            let indexes = set.def.indexes.iter().filter(|index| index.unique);
            let records = self.records(set.uid);
            let has = |index: &&IndexDef| match duplicate(&records, time, index, &set.types) {
                Some((one, other, expires)) => {
                    assert!(expires, "{one} and {other} share a value of {}", index.path);
                    true
                }
                None => false,
            };
            indexes.filter(has).count()
        };
        self.sets.iter().map(of).sum()
    }
}

impl World {
    /// Compares the result of the build of a unique index with the model. Without `writes` during
    /// the build a refusal has a reason that is still there.
    pub(crate) fn compare_build(
        &self,
        at: usize,
        uid: u32,
        index: &IndexDef,
        refused: bool,
        writes: bool,
    ) {
        let store = &self.stores[at];
        let Some(set) = store.sets.iter().find(|set| set.uid == uid) else {
            return;
        };
        let found = duplicate(&store.records(uid), store.believed(), index, &set.types);
        if refused {
            assert!(writes || found.is_some(), "no duplicate in {}", index.path);
        } else if let Some((one, other, expires)) = found {
            assert!(
                expires && writes,
                "{one} and {other} share a value of {}",
                index.path
            );
        }
    }
}

/// True if an error refuses two records with the same value.
pub(crate) fn is_refusal<T>(result: &esker::Result<T>) -> bool {
    matches!(result, Err(error) if error.kind() == ErrorKind::NotUnique)
}

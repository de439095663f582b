//! Compound indexes of a dataset, as numbers.

use esker::{DatasetDef, IndexKind, Type};

use crate::action::{PATHS, pick};
use crate::common::path;

/// Used instead of a path's number: the compound index of the dataset.
pub(crate) const COMPOUND_NUMBER: u8 = 202;

/// The fields, by their numbers.
const FIELDS: [&[usize]; 8] = [
    &[0, 1],
    &[1, 0],
    &[0, 2],
    &[2, 0],
    &[0, 1, 2],
    &[2, 1, 0],
    &[1, 3],
    &[4, 0],
];

const KINDS: [IndexKind; 4] = [
    IndexKind::Composite,
    IndexKind::Lazy,
    IndexKind::Recent,
    IndexKind::Eager,
];

/// The numbers of compound indexes, without 0, which is none.
pub(crate) const MOST: u8 = (FIELDS.len() * KINDS.len()) as u8;

/// The bit of a number that makes the combinations of values unique.
pub(crate) const UNIQUE: u8 = 128;

/// The numbers of the fields of a compound index; none for the number 0.
pub(crate) fn fields(number: u8) -> &'static [usize] {
    match (number & !UNIQUE).checked_sub(1) {
        Some(number) => FIELDS[usize::from(number) % FIELDS.len()],
        None => &[],
    }
}

/// The numbers of the fields of a dataset's compound index, if it has one.
pub(crate) fn fields_in(def: &DatasetDef) -> Vec<usize> {
    let compound = def.indexes.iter().find(|index| index.ty.is_compound());
    let names = compound.map(|index| index.path.to_string());
    let names = names.iter().flat_map(|names| names.split(','));
    let places = names.map(|name| PATHS.iter().position(|path| *path == name));
    places.collect::<Option<_>>().unwrap_or_default()
}

/// The path of a compound index.
pub(crate) fn path_of(number: u8) -> esker::Path {
    let names: Vec<&str> = fields(number).iter().map(|at| PATHS[*at]).collect();
    path(&names.join(","))
}

/// Adds the index, and declares its fields where they are not.
pub(crate) fn declare(
    mut def: DatasetDef,
    number: u8,
    types: &[Type; PATHS.len()],
    lenient: bool,
) -> DatasetDef {
    if fields(number).is_empty() {
        return def;
    }
    for at in fields(number) {
        let name = path(PATHS[*at]);
        if def.indexes.iter().all(|index| index.path != name) {
            let none = esker::Index::none().of_type(types[*at]);
            def = def.index(name, none.lenient_if(lenient));
        }
    }
    let kind = pick(&KINDS, ((number & !UNIQUE) - 1) / FIELDS.len() as u8);
    let index = esker::Index::new(kind).compound();
    def.index(path_of(number), index.unique_if(number & UNIQUE != 0))
}

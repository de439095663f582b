//! Checks of an attribute: its type, its place and time, and its tokenizer.

use super::IndexKind;
use crate::error::{Error, Result};
use crate::geometry::Space;
use crate::schema::{Path, Type, compound_paths, coordinate_paths, point_time_paths};
use crate::tokens::Tokenizer;

/// Rejects points without a spatial index, spatial indexes of other types, and invalid paths of
/// points.
pub fn check_type(path: &Path, kind: IndexKind, ty: Type) -> Result<()> {
    let refused = |goes: &str| {
        Err(Error::bad_input(format!(
            "attribute `{path}`: an index of kind {kind} does not fit type {ty}: {goes}"
        )))
    };
    if ty.is_compound() {
        if !kind.can_be_compound() {
            return Err(Error::bad_input(format!(
                "attribute `{path}`: an index of kind {kind} cannot be of several fields: use lazy, composite, recent or eager"
            )));
        }
        return compound_paths(path).map(|_| ());
    }
    let is_timed = ty.timed_space().is_some();
    match (ty.has_place(), kind) {
        (true, IndexKind::SpaceTime(_)) if is_timed => point_time_paths(path)
            .and_then(|(point, _)| coordinate_paths(&point))
            .map(|_| ()),
        (true, IndexKind::None) if is_timed => point_time_paths(path).map(|_| ()),
        (true, IndexKind::None | IndexKind::Spatial(_)) if !is_timed => {
            coordinate_paths(path).map(|_| ())
        }
        (true, _) if is_timed => refused("points at a time have indexes of kind space-time"),
        (true, _) => refused("points have indexes of kind spatial"),
        (false, _) if kind.is_spatial() => refused("it is for types point and plane"),
        (false, _) => Ok(()),
    }
}

/// Rejects an attribute of place and time if its parts are declared with other types, or if its
/// time is not declared: the meaning of a comparison depends on the type of the time.
pub fn check_place_and_time(
    path: &Path,
    ty: Type,
    declared: impl Fn(&Path) -> Option<Type>,
) -> Result<()> {
    let Some(space) = ty.timed_space() else {
        return Ok(());
    };
    let (point, time) = point_time_paths(path)?;
    match declared(&time) {
        Some(ty) if ty.is_time() || matches!(ty, Type::Int | Type::Float) => {}
        Some(other) => {
            return Err(Error::bad_input(format!(
                "attribute `{path}`: `{time}` is of type {other}, but must be of type time, int or float"
            )));
        }
        None => {
            return Err(Error::bad_input(format!(
                "attribute `{path}`: declare its time first, as in {time}:none:time"
            )));
        }
    }
    match declared(&point).map(|ty| ty.space()) {
        Some(known) if known != Some(space) => Err(Error::bad_input(format!(
            "attribute `{path}` is of type {ty}, but `{point}` is declared with another type"
        ))),
        None if space == Space::Plane => Err(Error::bad_input(format!(
            "attribute `{path}`: declare its point first, as in {point}:none:plane"
        ))),
        _ => Ok(()),
    }
}

/// Rejects a compound index if one of its fields is not declared, or declared as one that has no
/// order of its own: the meaning of a comparison depends on the type of the field.
pub fn check_fields(path: &Path, ty: Type, declared: impl Fn(&Path) -> Option<Type>) -> Result<()> {
    if !ty.is_compound() {
        return Ok(());
    }
    for field in compound_paths(path)? {
        match declared(&field) {
            None => {
                return Err(Error::bad_input(format!(
                    "attribute `{path}`: declare its field `{field}` first, as in {field}:none"
                )));
            }
            Some(ty) if ty.has_place() || ty.is_compound() => {
                return Err(Error::bad_input(format!(
                    "attribute `{path}`: `{field}` is of type {ty}, but the fields of a compound index must be of type string, int, float, bool or time"
                )));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// Rejects a tokenizer that does not fit the kind of index or the type.
pub fn check_tokenizer(tokenizer: Tokenizer, kind: IndexKind, ty: Type) -> Result<()> {
    let fits = match tokenizer {
        Tokenizer::Exact => return Ok(()),
        _ if ty.is_compound() => {
            return Err(Error::bad_input(format!(
                "the tokenizer {tokenizer} does not fit a compound index: its fields are indexed as they are"
            )));
        }
        Tokenizer::Prefix => ty == Type::String,
        Tokenizer::Number => ty.is_time() || matches!(ty, Type::Int | Type::Float),
    };
    if !fits {
        return Err(Error::bad_input(format!(
            "the tokenizer {tokenizer} does not fit type {ty}: prefix is for string, number for int, float and time"
        )));
    }
    if !kind.is_standalone() {
        return Err(Error::bad_input(format!(
            "the tokenizer {tokenizer} does not fit an index of kind {kind}: it is for lazy, composite, recent and eager"
        )));
    }
    Ok(())
}

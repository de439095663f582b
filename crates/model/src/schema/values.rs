//! The scalar values at given paths of JSON texts.

use std::ops::ControlFlow;

use super::path::Path;
use super::walk::{Found, Numbers, Rest, Sink, Trie};

/// A value that is no object, array or null.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scalar<'a> {
    /// True or false.
    Bool(bool),
    /// A number without fraction.
    Int(i128),
    /// Any other number.
    Float(f64),
    /// A string.
    Str(&'a str),
}

impl Scalar<'_> {
    /// The number, rounded to the nearest float.
    pub fn as_f64(self) -> Option<f64> {
        match self {
            Scalar::Int(v) => Some(v as f64),
            Scalar::Float(v) => Some(v),
            Scalar::Bool(_) | Scalar::Str(_) => None,
        }
    }
}

/// Reads the values at some paths, in one pass over a text.
///
/// ```
/// use model::schema::{Path, Scalar, Values};
///
/// let values = Values::new(&[Path::parse("user.name").unwrap(), Path::parse("tags").unwrap()]);
/// let mut found = Vec::new();
/// values.visit(br#"{"user": {"name": "ann"}, "tags": [1, null, "x"]}"#, &mut |path, value| {
///     found.push((path, format!("{value:?}")));
/// });
/// assert_eq!(found, [(0, "Str(\"ann\")".to_owned()), (1, "Int(1)".to_owned()), (1, "Str(\"x\")".to_owned())]);
/// ```
#[derive(Debug, Clone)]
pub struct Values(Trie);

impl Values {
    /// Prepares the paths.
    pub fn new(paths: &[Path]) -> Values {
        let mut trie = Trie::new();
        for (at, path) in paths.iter().enumerate() {
            trie.add(path, at as u32, Numbers::Exact);
        }
        Values(trie)
    }

    /// Calls `visit` with the number of a path and a scalar value there, for each, in the order of the text; the
    /// elements of an array come one by one. False when the text is not JSON: then some values may have been visited.
    pub fn visit(&self, json: &[u8], visit: &mut dyn FnMut(usize, Scalar<'_>)) -> bool {
        let mut input = serde_json::Deserializer::from_slice(json);
        self.0
            .walk(&mut input, Rest::Skipped, &mut Visit(visit))
            .is_ok()
    }
}

struct Visit<'v>(&'v mut dyn FnMut(usize, Scalar<'_>));

impl Sink for Visit<'_> {
    fn found(&mut self, targets: &[u32], found: Found<'_>) -> ControlFlow<()> {
        let scalar = match found {
            Found::Bool(v) => Scalar::Bool(v),
            Found::Int(v) => Scalar::Int(v),
            Found::Float(v) => Scalar::Float(v),
            Found::Str(v) => Scalar::Str(v),
            Found::Null | Found::Object => return ControlFlow::Continue(()),
        };
        for target in targets {
            (self.0)(*target as usize, scalar);
        }
        ControlFlow::Continue(())
    }
}

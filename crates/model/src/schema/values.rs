//! The scalar values at given paths of JSON texts.

use std::ops::ControlFlow;

use super::at_path::Found;
use super::path::Path;
use super::readable::without_repeated_names;
use super::walk::{Numbers, Rest, Sink, Trie};

/// A value that is not an object, an array or null.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scalar<'a> {
    /// True or false.
    Bool(bool),
    /// A number without a fraction.
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
/// use esker_model::schema::{Path, Scalar, Values};
///
/// let values = Values::new(&[Path::parse("user.name").unwrap(), Path::parse("tags").unwrap()]);
/// let mut found = Vec::new();
/// values.visit(br#"{"user": {"name": "ann"}, "tags": [1, null, "x"]}"#, &mut |path, value| {
///     found.push((path, format!("{value:?}")));
/// });
/// let values = ["Str(\"ann\")", "Int(1)", "Str(\"x\")"].map(String::from);
/// assert_eq!(found, [0, 1, 1].into_iter().zip(values).collect::<Vec<_>>());
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

    /// Calls `visit` for each scalar value at one of the paths, with the number of the path, in the
    /// order of the text; the elements of an array are visited one by one. If an object has several
    /// fields of one name, the last one counts. Returns false if the text is not JSON; then no
    /// value is visited.
    pub fn visit(&self, json: &[u8], visit: &mut dyn FnMut(usize, Scalar<'_>)) -> bool {
        let mut gather = Gather::default();
        let mut input = serde_json::Deserializer::from_slice(json);
        let mut walked = self.0.walk(&mut input, Rest::Skipped, &mut gather).is_ok();
        if gather.is_repeated {
            let text = std::str::from_utf8(json).ok();
            gather = Gather::default();
            walked = text.and_then(without_repeated_names).is_some_and(|text| {
                let mut input = serde_json::Deserializer::from_str(&text);
                self.0.walk(&mut input, Rest::Skipped, &mut gather).is_ok()
            });
        }
        if walked {
            for (path, kept) in &gather.found {
                let scalar = match kept {
                    Kept::Bool(v) => Scalar::Bool(*v),
                    Kept::Int(v) => Scalar::Int(*v),
                    Kept::Float(v) => Scalar::Float(*v),
                    Kept::Text { from, to } => Scalar::Str(&gather.texts[*from..*to]),
                };
                visit(*path as usize, scalar);
            }
        }
        walked
    }
}

/// Keeps the values found by a walk until the walk has succeeded.
#[derive(Default)]
struct Gather {
    found: Vec<(u32, Kept)>,
    texts: String,
    is_repeated: bool,
}

#[derive(Clone, Copy)]
enum Kept {
    Bool(bool),
    Int(i128),
    Float(f64),
    /// A range of `texts`.
    Text {
        from: usize,
        to: usize,
    },
}

impl Sink for Gather {
    fn found(&mut self, targets: &[u32], found: Found<'_>) -> ControlFlow<()> {
        let kept = match found {
            Found::Bool(v) => Kept::Bool(v),
            Found::Int(v) => Kept::Int(v),
            Found::Float(v) | Found::Long(_, v) => Kept::Float(v),
            Found::Str(text) => {
                let from = self.texts.len();
                self.texts.push_str(text);
                Kept::Text {
                    from,
                    to: self.texts.len(),
                }
            }
            Found::Null | Found::Object => return ControlFlow::Continue(()),
        };
        self.found
            .extend(targets.iter().map(|target| (*target, kept)));
        ControlFlow::Continue(())
    }

    fn repeated(&mut self) -> ControlFlow<()> {
        self.is_repeated = true;
        ControlFlow::Break(())
    }
}

//! One pass over a JSON text, which visits the values at given paths and skips the rest.
//!
//! The paths are compiled into a trie; the parser (serde_json's streaming deserializer) traverses
//! text and trie together. Nothing is allocated for skipped values, nor for strings and names
//! without escapes.

use std::fmt;
use std::ops::ControlFlow;

use esker_coding::Own;
use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor,
};

use serde_json::value::RawValue;

use super::at_path::Found;
use super::exact;
use super::path::Path;
use super::readable::{Everything, NUMBER, NumberText};

/// How a walk reads the numbers at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Numbers {
    /// As the parser does; floats may be off in the last bits. For paths where floats are not used.
    Parsed,
    /// Exact to the last bit.
    Exact,
}

/// How a walk treats values outside of the paths.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Rest {
    /// Skips them by the grammar.
    Skipped,
    /// Decodes them, so that invalid ones are errors.
    Read,
}

/// Receives the values that a walk finds. `Break` ends the walk with an error.
pub(crate) trait Sink {
    /// Receives a value at the path of each of `targets`.
    fn found(&mut self, targets: &[u32], found: Found<'_>) -> ControlFlow<()>;

    /// As `found`, for an element of an array.
    fn element(&mut self, targets: &[u32], found: Found<'_>) -> ControlFlow<()> {
        self.found(targets, found)
    }

    /// Receives an array at `node`; its elements follow.
    fn array(&mut self, node: u32) -> ControlFlow<()> {
        let _ = node;
        ControlFlow::Continue(())
    }

    /// A name on a path occurs again in the same object; its value follows. The last value counts,
    /// so the values found earlier are void: see [`super::readable::without_repeated_names`].
    fn repeated(&mut self) -> ControlFlow<()>;
}

/// The paths to visit.
#[derive(Debug, Clone)]
pub(crate) struct Trie {
    nodes: Vec<Node>,
}

#[derive(Debug, Clone, Default)]
struct Node {
    children: Vec<Child>,
    targets: Vec<u32>,
    /// Numbers at this node are read to the last bit.
    exact: bool,
}

#[derive(Debug, Clone)]
struct Child {
    name: Box<str>,
    node: u32,
}

impl Trie {
    /// The root, which stands for the whole text.
    pub(crate) const ROOT: u32 = 0;

    pub(crate) fn new() -> Trie {
        Trie {
            nodes: vec![Node::default()],
        }
    }

    /// Adds `path`; its values are reported for `target`.
    pub(crate) fn add(&mut self, path: &Path, target: u32, numbers: Numbers) {
        let mut at = Trie::ROOT;
        for name in path.names() {
            at = self.child(at, name);
        }
        let node = self.nodes.own_mut(at as usize);
        node.targets.push(target);
        node.exact |= numbers == Numbers::Exact;
    }

    fn child(&mut self, parent: u32, name: &str) -> u32 {
        if let Some((_, child)) = self.node(parent).find(name) {
            return child;
        }
        let new = self.nodes.len() as u32;
        if let Some(node) = self.nodes.get_mut(parent as usize) {
            node.children.push(Child {
                name: name.into(),
                node: new,
            });
        }
        self.nodes.push(Node::default());
        new
    }

    #[inline]
    fn node(&self, at: u32) -> &Node {
        static NOWHERE: Node = Node {
            children: Vec::new(),
            targets: Vec::new(),
            exact: false,
        };
        self.nodes.get(at as usize).unwrap_or(&NOWHERE)
    }

    /// The nodes along `path`, without the root; its own is the last.
    pub(crate) fn nodes_of(&self, path: &Path) -> Vec<u32> {
        let mut at = Some(Trie::ROOT);
        path.names()
            .filter_map(|name| {
                at = at
                    .and_then(|at| self.node(at).find(name))
                    .map(|(_, node)| node);
                at
            })
            .collect()
    }

    /// Walks the value in `input`, and reports to `sink`. Values outside of the paths are treated
    /// as `rest` says.
    pub(crate) fn walk<'de, D, S>(&self, input: D, rest: Rest, sink: &mut S) -> Result<(), D::Error>
    where
        D: Deserializer<'de>,
        S: Sink,
    {
        Step {
            trie: self,
            node: self.node(Trie::ROOT),
            at: Trie::ROOT,
            is_element: false,
            rest,
            sink,
        }
        .deserialize(input)
    }
}

impl Node {
    /// The child called `name`: its index among the children, and its node.
    #[inline]
    fn find(&self, name: &str) -> Option<(usize, u32)> {
        let (place, child) = self
            .children
            .iter()
            .enumerate()
            .find(|(_, c)| *c.name == *name)?;
        Some((place, child.node))
    }
}

/// A set of small numbers; allocates only for numbers over 63.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bits {
    low: u64,
    high: Vec<bool>,
}

impl Bits {
    /// Adds `i`; true if it is new.
    #[inline]
    pub(crate) fn insert(&mut self, i: usize) -> bool {
        if i < 64 {
            let new = self.low & 1 << i == 0;
            self.low |= 1 << i;
            return new;
        }
        let i = i - 64;
        if self.high.len() <= i {
            self.high.resize(i + 1, false);
        }
        self.high
            .get_mut(i)
            .is_some_and(|bit| !std::mem::replace(bit, true))
    }

    /// True if `i` is in the set.
    #[inline]
    pub(crate) fn contains(&self, i: usize) -> bool {
        if i < 64 {
            self.low & 1 << i != 0
        } else {
            self.high.get(i - 64) == Some(&true)
        }
    }
}

/// The parser stands before the value of `node`.
struct Step<'w, S> {
    trie: &'w Trie,
    node: &'w Node,
    at: u32,
    /// The value is an element of an array.
    is_element: bool,
    rest: Rest,
    sink: &'w mut S,
}

impl<S: Sink> Step<'_, S> {
    #[inline]
    fn report<E: Error>(self, found: Found<'_>) -> Result<(), E> {
        if self.node.targets.is_empty() {
            return Ok(());
        }
        go_on(if self.is_element {
            self.sink.element(&self.node.targets, found)
        } else {
            self.sink.found(&self.node.targets, found)
        })
    }
}

impl<S: Sink> Step<'_, S> {
    /// Reports the value with this text, which is grammatical JSON.
    fn exactly<E: Error>(self, text: &str) -> Result<(), E> {
        if let Some(number) = exact::number(text) {
            return self.report(number);
        }
        if let Some(string) = exact::plain_string(text) {
            return self.report(Found::Str(string));
        }
        if text.starts_with(|c: char| c == '-' || c.is_ascii_digit()) {
            return Err(out_of_range());
        }
        let mut input = serde_json::Deserializer::from_str(text);
        input.deserialize_any(self).map_err(|error| {
            // The parser of the whole text adds its own position.
            let (text, line, column) = (error.to_string(), error.line(), error.column());
            let place = format!(" at line {line} column {column}");
            E::custom(text.strip_suffix(&place).unwrap_or(&text))
        })
    }
}

#[cold]
fn out_of_range<E: Error>() -> E {
    E::custom("number out of range")
}

#[inline]
fn go_on<E: Error>(flow: ControlFlow<()>) -> Result<(), E> {
    match flow {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(E::custom("stopped")),
    }
}

impl<'de, S: Sink> DeserializeSeed<'de> for Step<'_, S> {
    type Value = ();

    #[inline]
    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<(), D::Error> {
        if self.node.exact {
            return self.exactly(<&RawValue>::deserialize(input)?.get());
        }
        input.deserialize_any(self)
    }
}

impl<'de, S: Sink> Visitor<'de> for Step<'_, S> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.report(Found::Null)
    }

    fn visit_bool<E: Error>(self, v: bool) -> Result<(), E> {
        self.report(Found::Bool(v))
    }

    fn visit_i64<E: Error>(self, v: i64) -> Result<(), E> {
        self.report(Found::Int(i128::from(v)))
    }

    fn visit_u64<E: Error>(self, v: u64) -> Result<(), E> {
        self.report(Found::Int(i128::from(v)))
    }

    fn visit_f64<E: Error>(self, v: f64) -> Result<(), E> {
        self.report(Found::Float(v))
    }

    fn visit_str<E: Error>(self, v: &str) -> Result<(), E> {
        self.report(Found::Str(v))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<(), A::Error> {
        let Step {
            trie,
            node,
            at,
            is_element: _,
            rest,
            sink,
        } = self;
        go_on(sink.array(at))?;
        while elements
            .next_element_seed(Step {
                trie,
                node,
                at,
                is_element: true,
                rest,
                sink: &mut *sink,
            })?
            .is_some()
        {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        let mut name = fields.next_key_seed(Name(self.node))?;
        if matches!(name, Some(Named::Number)) {
            if let Some(text) = fields.next_value::<NumberText>()?.0 {
                let number = exact::number(&text);
                return self.report(number.ok_or_else(out_of_range)?);
            }
            name = fields.next_key_seed(Name(self.node))?;
        }
        let Step {
            trie,
            node,
            is_element,
            rest,
            sink,
            ..
        } = self;
        if !node.targets.is_empty() {
            go_on(if is_element {
                sink.element(&node.targets, Found::Object)
            } else {
                sink.found(&node.targets, Found::Object)
            })?;
        }
        let mut seen = Bits::default();
        while let Some(named) = name {
            match (named, rest) {
                (Named::Child(place, at), _) => {
                    if !seen.insert(place) {
                        go_on(sink.repeated())?;
                    }
                    fields.next_value_seed(Step {
                        trie,
                        node: trie.node(at),
                        at,
                        is_element: false,
                        rest,
                        sink: &mut *sink,
                    })?;
                }
                (_, Rest::Skipped) => fields.next_value::<IgnoredAny>().map(|_| ())?,
                (_, Rest::Read) => fields.next_value::<Everything>().map(|_| ())?,
            }
            name = fields.next_key_seed(Name(node))?;
        }
        Ok(())
    }
}

/// What a field name stands for.
enum Named {
    /// The child with this index, and its node.
    Child(usize, u32),
    /// The value may be the text of a number, and the object none.
    Number,
    Other,
}

/// Finds the child for a field name.
struct Name<'w>(&'w Node);

impl<'de> DeserializeSeed<'de> for Name<'_> {
    type Value = Named;

    #[inline]
    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<Named, D::Error> {
        input.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Name<'_> {
    type Value = Named;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a field name")
    }

    #[inline]
    fn visit_str<E: Error>(self, name: &str) -> Result<Named, E> {
        Ok(match self.0.find(name) {
            Some((place, at)) => Named::Child(place, at),
            None if name == NUMBER => Named::Number,
            None => Named::Other,
        })
    }
}

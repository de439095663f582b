//! The set of fields: a tree of names.

use std::collections::HashMap;

use esker_coding::Own;

use super::types::JsonTypes;
use crate::schema::Path;

/// The most fields of a set, and elements of arrays among them.
pub(super) const MAX_FIELDS: usize = 1000;
/// The most bytes of all names of a set.
pub(super) const MAX_NAMES: usize = 64 << 10;
/// The most names and elements on the way to a field.
pub(super) const MAX_LEVELS: usize = 16;
/// An object with more fields has a map of their names.
const MAPPED_FROM: usize = 16;

/// The fields of records: see the [module](super).
///
/// ```
/// use esker_model::fields::{Fields, JsonTypes};
///
/// let mut fields = Fields::default();
/// fields.add(br#"{"id": 1, "user": {"name": "ann"}, "tags": ["a", 7]}"#);
/// fields.add(br#"{"id": 2.5, "user": null}"#);
/// let list: Vec<String> = fields
///     .list()
///     .map(|field| format!("{}: {}", field.path(), field.types()))
///     .collect();
/// let expected = [
///     "id: int, float",
///     "tags: array",
///     "tags[]: int, text",
///     "user: null, object",
///     "user.name: text",
/// ];
/// assert_eq!(list, expected);
/// assert_eq!(fields.types_at(&"tags".parse()?), JsonTypes::INT | JsonTypes::TEXT);
/// # Ok::<(), esker_model::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Fields {
    /// The first is the record itself.
    pub(super) nodes: Vec<Node>,
    /// Bytes of all names.
    names: usize,
    /// Whether something was left out.
    pub(super) more: bool,
}

/// What is known of the values at one place.
#[derive(Debug, Clone, Default)]
pub(super) struct Node {
    name: Box<str>,
    /// Whether it can be written without an escape.
    pub(super) is_plain: bool,
    pub(super) types: JsonTypes,
    /// The elements of arrays here.
    pub(super) elements: Option<u32>,
    /// The fields of objects here, in the order in which they were found.
    pub(super) children: Vec<u32>,
    /// The same by name, where there are many.
    map: HashMap<Box<str>, u32>,
}

impl Default for Fields {
    fn default() -> Fields {
        Fields {
            nodes: vec![Node::default()],
            names: 0,
            more: false,
        }
    }
}

impl Fields {
    /// The number of the record itself.
    pub(super) const ROOT: u32 = 0;

    /// True if the records may have fields that are not in the set: there are more than it can
    /// have, or they lie too deep.
    pub fn has_more(&self) -> bool {
        self.more
    }

    /// True without a field.
    pub fn is_empty(&self) -> bool {
        self.nodes.len() == 1 && !self.more
    }

    /// The record itself, whose fields are the outermost.
    pub fn record(&self) -> FieldNode<'_> {
        FieldNode {
            fields: self,
            node: self.nodes.own(Fields::ROOT as usize),
        }
    }

    /// All fields by name, each before the fields in it; an array before its elements.
    pub fn list(&self) -> FieldsOf<'_> {
        FieldsOf {
            rest: vec![(String::new(), self.record())],
        }
    }

    /// The types of the values at a path. An array on the way is passed, as conditions do: the
    /// types are those of its elements. Empty if no record has the field, and also if it only has
    /// empty arrays.
    pub fn types_at(&self, path: &Path) -> JsonTypes {
        let mut types = JsonTypes::default();
        for node in self.at(path) {
            types |= node.types().without(JsonTypes::ARRAY);
        }
        types
    }

    /// True if a record has the field, with any value.
    pub fn has(&self, path: &Path) -> bool {
        !self.at(path).is_empty()
    }

    /// The places of a path, elements of arrays included.
    fn at(&self, path: &Path) -> Vec<FieldNode<'_>> {
        let mut at = vec![self.record()];
        for name in path.names() {
            let below = at.iter().flat_map(|node| node.children());
            let below = below.filter(|child| child.name() == name);
            let mut found: Vec<FieldNode<'_>> = below.collect();
            let mut next = 0;
            while let Some(node) = found.get(next) {
                found.extend(node.elements());
                next += 1;
            }
            at = found;
        }
        at
    }

    /// True if the set has all fields of another one.
    pub fn covers(&self, other: &Fields) -> bool {
        let mut both = self.clone();
        both.absorb(other);
        self.more || both == *self
    }

    /// Adds the fields of another set.
    pub fn absorb(&mut self, other: &Fields) {
        self.more |= other.more;
        let mut rest = vec![(Fields::ROOT, Fields::ROOT)];
        while let Some((to, from)) = rest.pop() {
            let from = other.nodes.own(from as usize);
            self.nodes.own_mut(to as usize).types |= from.types;
            if let Some(elements) = from.elements
                && let Some(own) = self.elements(to)
            {
                rest.push((own, elements));
            }
            for child in &from.children {
                let name = other.nodes.own(*child as usize).name();
                if let Some(own) = self.child(to, name) {
                    rest.push((own, *child));
                }
            }
        }
    }

    /// The elements of arrays at a node, created if necessary; `None` if there is no room.
    pub(super) fn elements(&mut self, of: u32) -> Option<u32> {
        if let Some(known) = self.nodes.own(of as usize).elements {
            return Some(known);
        }
        let new = self.new_node("")?;
        self.nodes.own_mut(of as usize).elements = Some(new);
        Some(new)
    }

    /// The field of this name in objects at a node, created if necessary; `None` if there is no
    /// room.
    pub(super) fn child(&mut self, of: u32, name: &str) -> Option<u32> {
        let node = self.nodes.own(of as usize);
        let known = if node.map.is_empty() {
            let named = |child: &&u32| self.nodes.own(**child as usize).name() == name;
            node.children.iter().find(named)
        } else {
            node.map.get(name)
        };
        if let Some(known) = known {
            return Some(*known);
        }
        let new = self.new_node(name)?;
        let children = &self.nodes.own(of as usize).children;
        let mapped: Vec<u32> = match children.len() {
            0..MAPPED_FROM => Vec::new(),
            MAPPED_FROM => children.iter().copied().chain([new]).collect(),
            _ => vec![new],
        };
        for child in mapped {
            let name = self.nodes.own(child as usize).name.clone();
            self.nodes.own_mut(of as usize).map.insert(name, child);
        }
        self.nodes.own_mut(of as usize).children.push(new);
        Some(new)
    }

    fn new_node(&mut self, name: &str) -> Option<u32> {
        if self.nodes.len() > MAX_FIELDS || self.names + name.len() > MAX_NAMES {
            self.more = true;
            return None;
        }
        self.names += name.len();
        self.nodes.push(Node {
            name: name.into(),
            is_plain: !name.contains(['\\', '"']),
            ..Node::default()
        });
        Some((self.nodes.len() - 1) as u32)
    }
}

impl Node {
    #[inline]
    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

impl PartialEq for Fields {
    fn eq(&self, other: &Fields) -> bool {
        let list = |fields: &Fields| -> Vec<(String, JsonTypes)> {
            let all = fields.list();
            all.map(|field| (field.path, field.node.types())).collect()
        };
        self.more == other.more && list(self) == list(other)
    }
}

impl Eq for Fields {}

/// What is known of the values at one place: of a field, or of the elements of an array.
#[derive(Debug, Clone, Copy)]
pub struct FieldNode<'f> {
    fields: &'f Fields,
    node: &'f Node,
}

impl<'f> FieldNode<'f> {
    /// The name of the field; empty for elements of an array, and for the record itself.
    pub fn name(&self) -> &'f str {
        self.node.name()
    }

    /// The types of the values.
    pub fn types(&self) -> JsonTypes {
        self.node.types
    }

    /// The elements of the arrays here, if one has elements.
    pub fn elements(&self) -> Option<FieldNode<'f>> {
        self.node.elements.map(|node| self.at(node))
    }

    /// The fields of the objects here, by name.
    pub fn children(&self) -> Vec<FieldNode<'f>> {
        let children = self.node.children.iter().map(|node| self.at(*node));
        let mut children: Vec<FieldNode<'f>> = children.collect();
        children.sort_unstable_by_key(FieldNode::name);
        children
    }

    fn at(&self, node: u32) -> FieldNode<'f> {
        FieldNode {
            fields: self.fields,
            node: self.fields.nodes.own(node as usize),
        }
    }
}

/// A field with its path as text.
#[derive(Debug, Clone)]
pub struct Field<'f> {
    path: String,
    node: FieldNode<'f>,
}

impl Field<'_> {
    /// The path as people write it, with `[]` behind an array for its elements: `items[].price`.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The types of its values.
    pub fn types(&self) -> JsonTypes {
        self.node.types()
    }
}

/// The fields of a set: [`Fields::list`].
#[derive(Debug, Clone)]
pub struct FieldsOf<'f> {
    /// Those to come, the next one last. The record itself is the first.
    rest: Vec<(String, FieldNode<'f>)>,
}

impl<'f> Iterator for FieldsOf<'f> {
    type Item = Field<'f>;

    fn next(&mut self) -> Option<Field<'f>> {
        loop {
            let (path, node) = self.rest.pop()?;
            let is_record = std::ptr::eq(node.node, node.fields.record().node);
            for child in node.children().into_iter().rev() {
                let name = escaped(child.name());
                let below = if is_record {
                    name
                } else {
                    format!("{path}.{name}")
                };
                self.rest.push((below, child));
            }
            if let Some(elements) = node.elements() {
                self.rest.push((format!("{path}[]"), elements));
            }
            if !is_record {
                return Some(Field { path, node });
            }
        }
    }
}

/// A name as part of a path.
fn escaped(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for c in name.chars() {
        if ".\\=<>^".contains(c) {
            text.push('\\');
        }
        text.push(c);
    }
    text
}

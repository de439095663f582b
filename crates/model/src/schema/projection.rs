//! Some fields of a record, as JSON.

use std::fmt;

use esker_coding::Own;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::path::Path;
use crate::error::{Error, Result};

/// Some fields of records, with the objects around them. Values stay as they were written; fields
/// that a record does not have, and objects and elements of arrays in which nothing is selected,
/// are left out.
///
/// ```
/// use esker_model::schema::Projection;
///
/// let of = Projection::new(&["id".parse()?, "user.name".parse()?, "tags.text".parse()?]);
/// let record = br#"{"id": 1.50, "user": {"name": "ann", "at": 3}, "tags": [{"text": "x"}, 7]}"#;
/// let selected = of.apply(record)?;
/// assert_eq!(selected, br#"{"id":1.50,"user":{"name":"ann"},"tags":[{"text":"x"}]}"#);
/// assert_eq!(of.apply(br#"{"user": {"at": 3}}"#)?, b"{}");
/// # Ok::<(), esker_model::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Projection(Node);

#[derive(Debug, Clone, Default)]
struct Node {
    /// True if the whole value is selected.
    is_whole: bool,
    children: Vec<(Box<str>, Node)>,
}

impl Node {
    fn child(&mut self, name: &str) -> &mut Node {
        let known = self.children.iter().position(|(known, _)| **known == *name);
        let at = known.unwrap_or_else(|| {
            self.children.push((name.into(), Node::default()));
            self.children.len() - 1
        });
        let (_, child) = self.children.own_mut(at);
        child
    }
}

impl Projection {
    /// The fields at these paths.
    pub fn new(paths: &[Path]) -> Projection {
        let mut root = Node::default();
        for path in paths {
            let at = path.names().fold(&mut root, Node::child);
            at.is_whole = true;
        }
        Projection(root)
    }

    /// The selected fields of a record, in the record's order. If an object has several fields of
    /// one name, the last one counts.
    ///
    /// # Errors
    /// [`Error::Damaged`] if the text is not a JSON object.
    pub fn apply(&self, json: &[u8]) -> Result<Vec<u8>> {
        let not_json = || Error::damaged("a stored record is not JSON");
        let text = std::str::from_utf8(json).map_err(|_| not_json())?;
        let mut out = Vec::with_capacity(json.len() / 4);
        let written = write(&self.0, text, &mut out).map_err(|_| not_json())?;
        if !written {
            out.extend_from_slice(b"{}");
        }
        Ok(out)
    }
}

/// Appends what is selected of a value; false if that is nothing.
fn write(node: &Node, text: &str, out: &mut Vec<u8>) -> serde_json::Result<bool> {
    let text = text.trim_ascii();
    if node.is_whole {
        out.extend_from_slice(text.as_bytes());
        return Ok(true);
    }
    let (open, close) = match text.as_bytes().first() {
        Some(b'{') => (b'{', b'}'),
        Some(b'[') => (b'[', b']'),
        _ => return Ok(false),
    };
    let begin = out.len();
    let mut separator = open;
    let mut part = |node: &Node, name: Option<&str>, value: &RawValue, out: &mut Vec<u8>| {
        let before = out.len();
        out.push(separator);
        if let Some(name) = name {
            serde_json::to_writer(&mut *out, name)?;
            out.push(b':');
        }
        if write(node, value.get(), out)? {
            separator = b',';
        } else {
            out.truncate(before);
        }
        Ok::<_, serde_json::Error>(())
    };
    if open == b'{' {
        let fields = Fields(node).deserialize(&mut serde_json::Deserializer::from_str(text))?;
        for (name, child, value) in fields {
            part(child, Some(name), value, out)?;
        }
    } else {
        for element in serde_json::from_str::<Vec<&RawValue>>(text)? {
            part(node, None, element, out)?;
        }
    }
    let is_something = out.len() > begin;
    if is_something {
        out.push(close);
    }
    Ok(is_something)
}

/// The fields of an object that have a node: each name once, with its last value.
struct Fields<'n>(&'n Node);

type Field<'n, 'de> = (&'n str, &'n Node, &'de RawValue);

impl<'de, 'n> DeserializeSeed<'de> for Fields<'n> {
    type Value = Vec<Field<'n, 'de>>;

    fn deserialize<D: Deserializer<'de>>(
        self,
        input: D,
    ) -> std::result::Result<Self::Value, D::Error> {
        input.deserialize_map(self)
    }
}

impl<'de, 'n> Visitor<'de> for Fields<'n> {
    type Value = Vec<Field<'n, 'de>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(
        self,
        mut fields: A,
    ) -> std::result::Result<Self::Value, A::Error> {
        let mut found: Vec<Field<'n, 'de>> = Vec::with_capacity(self.0.children.len());
        while let Some(child) = fields.next_key_seed(Name(self.0))? {
            let Some((name, node)) = child else {
                fields.next_value::<IgnoredAny>()?;
                continue;
            };
            let value = fields.next_value::<&RawValue>()?;
            match found.iter_mut().find(|(known, _, _)| *known == name) {
                Some((_, _, before)) => *before = value,
                None => found.push((name, node, value)),
            }
        }
        Ok(found)
    }
}

/// Finds the child for a field name.
struct Name<'n>(&'n Node);

impl<'de, 'n> DeserializeSeed<'de> for Name<'n> {
    type Value = Option<(&'n str, &'n Node)>;

    fn deserialize<D: Deserializer<'de>>(
        self,
        input: D,
    ) -> std::result::Result<Self::Value, D::Error> {
        input.deserialize_str(self)
    }
}

impl<'de, 'n> Visitor<'de> for Name<'n> {
    type Value = Option<(&'n str, &'n Node)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a field name")
    }

    fn visit_str<E: serde::de::Error>(self, name: &str) -> std::result::Result<Self::Value, E> {
        let known = self.0.children.iter().find(|(known, _)| **known == *name);
        Ok(known.map(|(name, node)| (&**name, node)))
    }
}

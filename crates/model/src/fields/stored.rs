//! The stored form of a set of fields.
//!
//! ```text
//! u8       1 if fields were left out, else 0
//! node     the record itself
//!
//! node     u8, a bit per type: null, bool, int, float, text, object, array, big int; a node
//!          with the bit of arrays is followed by u8, 1 with a node of elements, else 0, and
//!          that node; one with the bit of objects by varint, the number of fields, and for
//!          each its name (bytes) and its node
//! ```

use esker_coding::{Own, Reader, put_bytes, put_varint};

use super::tree::{Fields, MAX_FIELDS, MAX_LEVELS};
use super::types::JsonTypes;

impl Fields {
    /// Appends the stored form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.more));
        self.encode_node(Fields::ROOT, out);
    }

    fn encode_node(&self, at: u32, out: &mut Vec<u8>) {
        let node = self.nodes.own(at as usize);
        out.push(node.types.bits());
        if node.types.has(JsonTypes::ARRAY) {
            out.push(u8::from(node.elements.is_some()));
            if let Some(elements) = node.elements {
                self.encode_node(elements, out);
            }
        }
        if node.types.has(JsonTypes::OBJECT) {
            put_varint(out, node.children.len() as u64);
            for child in &node.children {
                put_bytes(out, self.nodes.own(*child as usize).name().as_bytes());
                self.encode_node(*child, out);
            }
        }
    }

    /// Reads a stored form; `None` if it is malformed.
    pub fn decode(bytes: &[u8]) -> Option<Fields> {
        let mut input = Reader::new(bytes);
        let mut fields = Fields::default();
        let more = match input.u8()? {
            0 => false,
            1 => true,
            _ => return None,
        };
        fields.decode_node(Fields::ROOT, &mut input, 0)?;
        // Left out by this build: the form is not one that it writes.
        if fields.more || !input.is_empty() {
            return None;
        }
        fields.more = more;
        Some(fields)
    }

    fn decode_node(&mut self, at: u32, input: &mut Reader<'_>, level: usize) -> Option<()> {
        if level > MAX_LEVELS {
            return None;
        }
        let types = JsonTypes::from_bits(input.u8()?);
        self.nodes.own_mut(at as usize).types = types;
        if types.has(JsonTypes::ARRAY) {
            match input.u8()? {
                0 => {}
                1 => {
                    let elements = self.elements(at)?;
                    self.decode_node(elements, input, level + 1)?;
                }
                _ => return None,
            }
        }
        if types.has(JsonTypes::OBJECT) {
            let fields = usize::try_from(input.varint()?).ok()?;
            if fields > MAX_FIELDS {
                return None;
            }
            for _ in 0..fields {
                let name = std::str::from_utf8(input.bytes()?).ok()?;
                let known = self.nodes.len();
                let child = self.child(at, name)?;
                if self.nodes.len() == known {
                    return None;
                }
                self.decode_node(child, input, level + 1)?;
            }
        }
        Some(())
    }
}

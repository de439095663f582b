//! The fields of a record's JSON, read in one pass.
//!
//! Every record that is flushed passes here, so this is no parser: bodies were checked when they
//! were put ([`crate::schema::Extraction::extract_new`]), and only names and the first bytes of
//! values matter. Records of a dataset resemble each other, so a field is first compared with the
//! one that followed the same field before. Text that is no JSON ends the pass of its record, and
//! the set then says that it may lack fields.

use esker_coding::Own;
use memchr::{memchr, memchr2};

use super::tree::{Fields, MAX_LEVELS};
use super::types::JsonTypes;
use crate::schema::MAX_DEPTH;

/// An integer of so many characters fits 64 bits.
const SURELY_FITS: usize = 18;

/// A string is searched for its end by so many words before the search is set up for long ones.
const SHORT: usize = 4;

impl Fields {
    /// Adds the fields of a record. Of a field that an object has several times, all values count.
    pub fn add(&mut self, json: &[u8]) {
        self.add_with(json, &mut None);
    }

    /// As [`Fields::add`]; notes in `slots` where the values are, outside of arrays. `None` then if
    /// a value has no place in the set.
    pub(super) fn add_with(&mut self, json: &[u8], slots: &mut Option<Vec<(Slot, usize, usize)>>) {
        let mut scan = Scan::new(self, json);
        scan.slots = slots.take();
        let done = scan.value(Some(Fields::ROOT), 0);
        *slots = scan.slots.take().filter(|_| done.is_some());
        if done.is_none() {
            self.more = true;
        }
    }
}

/// The place of a value: its node, and its level.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slot {
    node: u32,
    level: usize,
}

pub(super) struct Scan<'s> {
    fields: &'s mut Fields,
    text: &'s [u8],
    at: usize,
    slots: Option<Vec<(Slot, usize, usize)>>,
}

impl<'s> Scan<'s> {
    pub(super) fn new(fields: &'s mut Fields, text: &'s [u8]) -> Scan<'s> {
        Scan {
            fields,
            text,
            at: 0,
            slots: None,
        }
    }

    /// Passes this text, if it is next.
    #[inline]
    pub(super) fn is_next(&mut self, text: &[u8]) -> bool {
        let end = self.at + text.len();
        let next = self.text.get(self.at..end);
        self.at = end;
        next.is_some_and(|next| is_same(next, text))
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.at == self.text.len()
    }

    /// Passes a value at a place that is known.
    #[inline]
    pub(super) fn known(&mut self, slot: Slot) -> Option<()> {
        let types = match self.text.get(self.at)? {
            b'"' => {
                self.at += 1;
                self.string_end()?;
                JsonTypes::TEXT
            }
            b'-' | b'0'..=b'9' => self.number(),
            _ => return self.value(Some(slot.node), slot.level),
        };
        self.found(Some(slot.node), types);
        Some(())
    }

    /// The next byte that is no white space.
    #[inline]
    fn next_byte(&mut self) -> Option<u8> {
        loop {
            let byte = *self.text.get(self.at)?;
            if byte > b' ' {
                return Some(byte);
            }
            self.at += 1;
        }
    }

    /// Passes a value at a node; without a node, a value that is not in the set.
    fn value(&mut self, node: Option<u32>, level: usize) -> Option<()> {
        let types = match self.next_byte()? {
            b'"' => {
                self.at += 1;
                self.string_end()?;
                JsonTypes::TEXT
            }
            b'{' => {
                self.at += 1;
                self.found(node, JsonTypes::OBJECT);
                return self.object(node, level);
            }
            b'[' => {
                self.at += 1;
                self.found(node, JsonTypes::ARRAY);
                return self.array(node, level);
            }
            b't' => self.word(b"true", JsonTypes::BOOL)?,
            b'f' => self.word(b"false", JsonTypes::BOOL)?,
            b'n' => self.word(b"null", JsonTypes::NULL)?,
            b'-' | b'0'..=b'9' => self.number(),
            _ => return None,
        };
        self.found(node, types);
        Some(())
    }

    #[inline]
    fn found(&mut self, node: Option<u32>, types: JsonTypes) {
        if let Some(node) = node {
            self.fields.nodes.own_mut(node as usize).types |= types;
        }
    }

    #[inline]
    fn word(&mut self, word: &[u8], types: JsonTypes) -> Option<JsonTypes> {
        let rest = self.text.get(self.at..)?;
        self.at += word.len();
        rest.starts_with(word).then_some(types)
    }

    /// The next eight bytes, if there are as many.
    #[inline]
    fn eight(&self) -> Option<u64> {
        let eight = self.text.get(self.at..)?.first_chunk()?;
        Some(u64::from_le_bytes(*eight))
    }

    #[inline]
    fn number(&mut self) -> JsonTypes {
        let begin = self.at;
        self.at += usize::from(self.text.get(self.at) == Some(&b'-'));
        while let Some(eight) = self.eight() {
            let digits = digits_of(eight);
            self.at += digits;
            if digits < 8 {
                break;
            }
        }
        // The last bytes of the text, and what is no digit.
        let mut is_int = true;
        while let Some(byte) = self.text.get(self.at) {
            match byte {
                b'0'..=b'9' => {}
                b'.' | b'e' | b'E' | b'+' | b'-' => is_int = false,
                _ => break,
            }
            self.at += 1;
        }
        if !is_int {
            JsonTypes::FLOAT
        } else if self.at - begin <= SURELY_FITS {
            JsonTypes::INT
        } else {
            long_int(self.text.own(begin..self.at))
        }
    }

    /// Passes the rest of a string, its closing quote included.
    #[inline]
    fn string_end(&mut self) -> Option<()> {
        loop {
            let found = self.string_mark()?;
            let is_end = self.text.get(self.at + found) == Some(&b'"');
            if is_end {
                self.at += found + 1;
                return Some(());
            }
            self.at += found + 2;
        }
    }

    /// The distance to the next quote or backslash; may pass bytes before it.
    #[inline]
    fn string_mark(&mut self) -> Option<usize> {
        // Most strings are short.
        for _ in 0..SHORT {
            let Some(eight) = self.eight() else { break };
            match ends_of(eight) {
                0 => self.at += 8,
                marks => return Some(marks.trailing_zeros() as usize / 8),
            }
        }
        memchr2(b'"', b'\\', self.text.get(self.at..)?)
    }

    fn array(&mut self, node: Option<u32>, level: usize) -> Option<()> {
        if self.next_byte()? == b']' {
            self.at += 1;
            return Some(());
        }
        if level > MAX_DEPTH {
            return None;
        }
        let elements = match node {
            Some(node) if level < MAX_LEVELS => self.fields.elements(node),
            Some(_) => self.left_out(),
            None => None,
        };
        let slots = self.slots.take();
        loop {
            self.value(elements, level + 1)?;
            let byte = self.next_byte()?;
            self.at += 1;
            match byte {
                b',' => {}
                b']' => break,
                _ => return None,
            }
        }
        self.slots = slots;
        Some(())
    }

    fn object(&mut self, node: Option<u32>, level: usize) -> Option<()> {
        if self.next_byte()? == b'}' {
            self.at += 1;
            return Some(());
        }
        if level > MAX_DEPTH {
            return None;
        }
        let node = match node {
            Some(_) if level >= MAX_LEVELS => self.left_out(),
            node => node,
        };
        let mut place = 0;
        loop {
            if self.next_byte()? != b'"' {
                return None;
            }
            self.at += 1;
            let child = match node {
                Some(node) => self.name(node, &mut place)?,
                None => {
                    self.string_end()?;
                    None
                }
            };
            if self.next_byte()? != b':' {
                return None;
            }
            self.at += 1;
            let first = self.next_byte()?;
            let begin = self.at;
            self.value(child, level + 1)?;
            if first != b'{' {
                self.note(child, level + 1, begin);
            }
            let byte = self.next_byte()?;
            self.at += 1;
            match byte {
                b',' => {}
                b'}' => return Some(()),
                _ => return None,
            }
        }
    }

    /// Notes the value that ends here.
    #[inline]
    fn note(&mut self, node: Option<u32>, level: usize, begin: usize) {
        match (node, &mut self.slots) {
            (Some(node), Some(slots)) => slots.push((Slot { node, level }, begin, self.at)),
            (None, slots) => *slots = None,
            (Some(_), None) => {}
        }
    }

    #[cold]
    fn left_out(&mut self) -> Option<u32> {
        self.fields.more = true;
        None
    }

    /// The field whose name begins here; `place` is where it should be among those of the object.
    #[inline]
    fn name(&mut self, of: u32, place: &mut usize) -> Option<Option<u32>> {
        let children = &self.fields.nodes.own(of as usize).children;
        if let Some(child) = children.get(*place) {
            let node = self.fields.nodes.own(*child as usize);
            let rest = self.text.get(self.at..)?;
            let name = node.name().as_bytes();
            if node.is_plain && rest.get(name.len()) == Some(&b'"') && rest.starts_with(name) {
                let child = *child;
                self.at += name.len() + 1;
                *place += 1;
                return Some(Some(child));
            }
        }
        let child = self.other_name(of)?;
        let children = &self.fields.nodes.own(of as usize).children;
        *place = match child {
            Some(child) => children.iter().position(|known| *known == child)? + 1,
            None => *place,
        };
        Some(child)
    }

    /// As [`Scan::name`], for a field that is not where it was expected.
    fn other_name(&mut self, of: u32) -> Option<Option<u32>> {
        let begin = self.at;
        self.string_end()?;
        let raw = self.text.own(begin..self.at - 1);
        if memchr(b'\\', raw).is_some() {
            let quoted = self.text.own(begin - 1..self.at);
            let name: String = serde_json::from_slice(quoted).ok()?;
            return Some(self.fields.child(of, &name));
        }
        let name = std::str::from_utf8(raw).ok()?;
        Some(self.fields.child(of, name))
    }
}

/// True if two texts of the same length are equal. Most are so short that two words compare them.
#[inline]
fn is_same(one: &[u8], other: &[u8]) -> bool {
    if one.len() <= 16
        && let (Some(begin), Some(end)) = (one.first_chunk::<8>(), one.last_chunk::<8>())
    {
        return other.first_chunk() == Some(begin) && other.last_chunk() == Some(end);
    }
    one == other
}

/// The number of digits at the beginning of eight bytes.
#[inline]
fn digits_of(eight: u64) -> usize {
    const HIGH: u64 = 0xf0f0_f0f0_f0f0_f0f0;
    const THREES: u64 = 0x3030_3030_3030_3030;
    // A digit has a 3 in its upper half, also when 6 is added to the lower.
    let upper = (eight & HIGH) ^ THREES;
    let lower = (eight.wrapping_add(0x0606_0606_0606_0606) & HIGH) ^ THREES;
    ((upper | lower).trailing_zeros() / 8) as usize
}

/// A bit at the first quote or backslash of eight bytes, if there is one; also at others perhaps.
#[inline]
fn ends_of(eight: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const TOP: u64 = 0x8080_8080_8080_8080;
    let zeros = |bytes: u64| bytes.wrapping_sub(ONES) & !bytes & TOP;
    zeros(eight ^ (ONES * b'"' as u64)) | zeros(eight ^ (ONES * b'\\' as u64))
}

/// The type of an integer of more characters than surely fit.
fn long_int(text: &[u8]) -> JsonTypes {
    // 64 bits with a sign have all of 19 digits up to this first one.
    if text.len() == 19 && matches!(text.first(), Some(b'1'..=b'8')) {
        return JsonTypes::INT;
    }
    let text = std::str::from_utf8(text).unwrap_or_default();
    if text.parse::<i64>().is_ok() {
        JsonTypes::INT
    } else {
        JsonTypes::BIG_INT
    }
}

//! The walk through plain JSON, as most records are: no escapes in strings, no exponents, no integers beyond 19 digits, little nesting. It costs a
//! fifth of a pass of the streaming parser, which knows all of JSON; what is not plain is left to that, from the beginning. So it decides
//! nothing: it takes only texts that the parser takes as well, and tells the same of them (`plain_tests.rs` compares the two).

use super::exact;
use super::walk::{Bits, Found, Node, Sink, Trie};

/// Objects and arrays within each other.
const MAX_DEPTH: usize = 32;
/// Digits of an integer that always fit 64 bits, behind a sign and without.
const MAX_DIGITS: (usize, usize) = (18, 19);
/// Digits behind a point: no number of so few is beyond all floats.
const MAX_FRACTION: usize = 40;

/// Walks an object and tells `sink` what [`Trie::walk`] would, whatever the rest of its values is to be checked for. False when the text is not
/// plain, not JSON, or the sink ended the walk: then what it was told is void.
pub(super) fn walk<S: Sink>(trie: &Trie, text: &str, sink: &mut S) -> bool {
    let bytes = text.as_bytes();
    let at = 0;
    let mut walk = Walk {
        trie,
        text,
        bytes,
        at,
        sink,
    };
    let is_object = walk.next() == Some(b'{');
    is_object && walk.object(Some(Trie::ROOT), 1).is_some() && walk.next().is_none()
}

/// The parser is at `at`. Its methods return `None` for what is not plain.
struct Walk<'w, 't, S> {
    trie: &'w Trie,
    text: &'t str,
    bytes: &'t [u8],
    at: usize,
    sink: &'w mut S,
}

impl<'w, 't, S: Sink> Walk<'w, 't, S> {
    /// The next byte that is no blank, which is passed.
    #[inline]
    fn next(&mut self) -> Option<u8> {
        loop {
            let byte = *self.bytes.get(self.at)?;
            self.at += 1;
            if !matches!(byte, b' ' | b'\n' | b'\r' | b'\t') {
                return Some(byte);
            }
        }
    }

    #[inline]
    fn take(&mut self, wanted: &[u8]) -> Option<()> {
        let found = self.bytes.get(self.at..)?.starts_with(wanted);
        self.at += wanted.len();
        found.then_some(())
    }

    /// The value that begins with `first`, which was passed. Without a node it is skipped.
    fn value(&mut self, first: u8, node: Option<u32>, depth: usize) -> Option<()> {
        match first {
            b'"' => {
                let string = self.string()?;
                self.tell(node, Found::Str(string))
            }
            b'-' | b'0'..=b'9' => self.number(node),
            b'{' if depth < MAX_DEPTH => self.object(node, depth + 1),
            b'[' if depth < MAX_DEPTH => self.array(node, depth + 1),
            b't' => {
                self.take(b"rue")?;
                self.tell(node, Found::Bool(true))
            }
            b'f' => {
                self.take(b"alse")?;
                self.tell(node, Found::Bool(false))
            }
            b'n' => {
                self.take(b"ull")?;
                self.tell(node, Found::Null)
            }
            _ => None,
        }
    }

    fn object(&mut self, at: Option<u32>, depth: usize) -> Option<()> {
        self.tell(at, Found::Object)?;
        let node: Option<&Node> = at.map(|at| self.trie.node(at));
        let mut seen = Bits::default();
        let mut next = self.next()?;
        if next == b'}' {
            return Some(());
        }
        loop {
            if next != b'"' {
                return None;
            }
            let name = self.string()?;
            let child = node.and_then(|node| node.find(name));
            if let Some((place, child)) = child
                && !seen.insert(place)
            {
                self.sink.repeated(child).continue_value()?;
            }
            if self.next()? != b':' {
                return None;
            }
            let first = self.next()?;
            self.value(first, child.map(|(_, child)| child), depth)?;
            match self.next()? {
                b',' => next = self.next()?,
                b'}' => return Some(()),
                _ => return None,
            }
        }
    }

    fn array(&mut self, node: Option<u32>, depth: usize) -> Option<()> {
        if let Some(node) = node {
            self.sink.array(node).continue_value()?;
        }
        let mut first = self.next()?;
        if first == b']' {
            return Some(());
        }
        loop {
            self.value(first, node, depth)?;
            match self.next()? {
                b',' => first = self.next()?,
                b']' => return Some(()),
                _ => return None,
            }
        }
    }

    /// The string whose quote was passed.
    #[inline]
    fn string(&mut self) -> Option<&'t str> {
        let start = self.at;
        let end = start + plain_len(self.bytes.get(start..)?);
        if *self.bytes.get(end)? != b'"' {
            return None;
        }
        self.at = end + 1;
        self.text.get(start..end)
    }

    /// The number whose first byte was passed.
    #[inline]
    fn number(&mut self, node: Option<u32>) -> Option<()> {
        let start = self.at - 1;
        let is_negative = *self.bytes.get(start)? == b'-';
        self.at = start + usize::from(is_negative);
        let leads_with_zero = self.bytes.get(self.at) == Some(&b'0');
        let (value, digits) = self.digits();
        let most = if is_negative {
            MAX_DIGITS.0
        } else {
            MAX_DIGITS.1
        };
        if digits == 0 || digits > most || (leads_with_zero && digits > 1) {
            return None;
        }
        let is_whole = self.bytes.get(self.at) != Some(&b'.');
        if !is_whole {
            self.at += 1;
            let (_, digits) = self.digits();
            if digits == 0 || digits > MAX_FRACTION {
                return None;
            }
        }
        if matches!(self.bytes.get(self.at), Some(b'e' | b'E')) {
            return None;
        }
        let value = i128::from(value);
        let found = match (is_whole, is_negative) {
            (true, false) => Found::Int(value),
            // The parser takes `-0` for a float.
            (true, true) if value != 0 => Found::Int(-value),
            (true, true) => return None,
            (false, _) => match node {
                Some(node) if self.trie.node(node).is_exact() => {
                    exact::number(self.text.get(start..self.at)?)?
                }
                // Whoever is told of it wants the parser's.
                Some(node) if !self.trie.node(node).targets().is_empty() => return None,
                _ => return Some(()),
            },
        };
        self.tell(node, found)
    }

    /// Passes digits: their value, which is right for up to 19, and their number.
    #[inline]
    fn digits(&mut self) -> (u64, usize) {
        let (mut value, mut digits) = (0_u64, 0);
        for byte in self.bytes.get(self.at..).unwrap_or_default() {
            let digit = byte.wrapping_sub(b'0');
            if digit > 9 {
                break;
            }
            value = value.wrapping_mul(10).wrapping_add(u64::from(digit));
            digits += 1;
        }
        self.at += digits;
        (value, digits)
    }

    #[inline]
    fn tell(&mut self, node: Option<u32>, found: Found<'_>) -> Option<()> {
        match node.map(|node| self.trie.node(node).targets()) {
            None | Some([]) => Some(()),
            Some(targets) => self.sink.found(targets, found).continue_value(),
        }
    }
}

/// How many bytes precede the first quote, backslash or control character.
#[inline]
pub(super) fn plain_len(bytes: &[u8]) -> usize {
    const WORD: usize = 8;
    const WIDE: usize = 32;
    let mut len = 0;
    while let Some(piece) = bytes.get(len..).and_then(<[u8]>::first_chunk::<WORD>) {
        let ends = ends_in(u64::from_le_bytes(*piece));
        if ends != 0 {
            return len + ends.trailing_zeros() as usize / 8;
        }
        len += WORD;
        if len != 2 * WORD {
            continue;
        }
        // A long string. All of a piece at once: this becomes vector instructions.
        while let Some(piece) = bytes.get(len..).and_then(<[u8]>::first_chunk::<WIDE>) {
            let ends = piece.iter().fold(0, |ends, byte| ends | is_end(*byte));
            if ends != 0 {
                break;
            }
            len += WIDE;
        }
    }
    let rest = bytes.get(len..).unwrap_or_default();
    let end = rest.iter().position(|byte| is_end(*byte) != 0);
    len + end.unwrap_or(rest.len())
}

#[inline]
fn is_end(byte: u8) -> u8 {
    u8::from(byte < b' ') | u8::from(byte == b'"') | u8::from(byte == b'\\')
}

/// The high bits of the bytes of a word at which a plain string ends: the lowest of them is right, those above need not be.
#[inline]
fn ends_in(word: u64) -> u64 {
    const ONES: u64 = u64::MAX / 255;
    let below = |word: u64, limit: u8| word.wrapping_sub(ONES * u64::from(limit)) & !word;
    let is = |byte: u8| below(word ^ (ONES * u64::from(byte)), 1);
    (below(word, b' ') | is(b'"') | is(b'\\')) & (ONES << 7)
}

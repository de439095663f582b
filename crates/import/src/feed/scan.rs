//! Finds the end of a JSON value by JSON's grammar, incrementally. A value is broken at the first
//! byte that cannot belong to it.

/// The state of a scan, which sees a value byte by byte.
pub(super) struct Scan {
    /// The open brackets.
    open: Vec<u8>,
    expects: Expects,
    /// The number of bytes seen.
    seen: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expects {
    Value,
    /// A value, or the end of an empty array.
    ValueOrEnd,
    Name,
    /// A name, or the end of an empty object.
    NameOrEnd,
    Colon,
    CommaOrEnd,
    /// The rest of a string, which may be a name; the last byte may be a backslash.
    Text {
        is_name: bool,
        is_escaped: bool,
    },
    /// The rest of a number or a literal.
    Word,
}

/// The result for the bytes so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// A whole value of this length.
    Whole(usize),
    /// The beginning of a value.
    Part,
    /// No value.
    Broken,
}

/// The maximum nesting depth; records with deeper nesting are refused anyway.
const DEEPEST: usize = 4096;

impl Scan {
    /// Begins at a value.
    pub(super) fn new() -> Self {
        Self {
            open: Vec::new(),
            expects: Expects::Value,
            seen: 0,
        }
    }

    /// Continues with new bytes; `bytes` has all bytes of the value so far.
    pub(super) fn go_on(&mut self, bytes: &[u8]) -> Seen {
        while let Some(&byte) = bytes.get(self.seen) {
            if let Expects::Text {
                is_name,
                is_escaped: false,
            } = self.expects
            {
                let rest = bytes.get(self.seen..).unwrap_or_default();
                let plain = rest.iter().position(|b| matches!(b, b'"' | b'\\' | b'\n'));
                self.seen += plain.unwrap_or(rest.len());
                match bytes.get(self.seen) {
                    None => return Seen::Part,
                    Some(b'"') => {
                        self.expects = if is_name {
                            Expects::Colon
                        } else {
                            Expects::CommaOrEnd
                        }
                    }
                    Some(b'\\') => {
                        self.expects = Expects::Text {
                            is_name,
                            is_escaped: true,
                        }
                    }
                    Some(_) => return Seen::Broken,
                }
                self.seen += 1;
                if !is_name && self.is_done() {
                    return Seen::Whole(self.seen);
                }
                continue;
            }
            if self.expects == Expects::Word {
                if matches!(byte, b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'-' | b'+' | b'.') {
                    self.seen += 1;
                    continue;
                }
                self.expects = Expects::CommaOrEnd;
                if self.is_done() {
                    return Seen::Whole(self.seen);
                }
            }
            if !self.step(byte) {
                return Seen::Broken;
            }
            self.seen += 1;
            if self.is_done() {
                return Seen::Whole(self.seen);
            }
        }
        Seen::Part
    }

    /// The result if no byte follows.
    pub(super) fn end(&self) -> Seen {
        if self.open.is_empty() && self.expects == Expects::Word {
            Seen::Whole(self.seen)
        } else {
            Seen::Broken
        }
    }

    fn is_done(&self) -> bool {
        self.open.is_empty() && self.expects == Expects::CommaOrEnd
    }

    /// Consumes a byte outside of strings and words; false if it is not allowed here.
    fn step(&mut self, byte: u8) -> bool {
        use Expects::*;
        if let Text { is_name, .. } = self.expects {
            self.expects = Text {
                is_name,
                is_escaped: false,
            };
            return byte != b'\n';
        }
        if matches!(byte, b' ' | b'\t' | b'\r' | b'\n') {
            return true;
        }
        self.expects = match (self.expects, byte) {
            (Name | NameOrEnd, b'"') => Text {
                is_name: true,
                is_escaped: false,
            },
            (Colon, b':') => Value,
            (CommaOrEnd, b',') if self.open.last() == Some(&b'{') => Name,
            (CommaOrEnd, b',') if self.open.last() == Some(&b'[') => Value,
            (CommaOrEnd | NameOrEnd, b'}') if self.open.last() == Some(&b'{') => {
                self.open.pop();
                CommaOrEnd
            }
            (CommaOrEnd | ValueOrEnd, b']') if self.open.last() == Some(&b'[') => {
                self.open.pop();
                CommaOrEnd
            }
            (Value | ValueOrEnd, b'{' | b'[') if self.open.len() < DEEPEST => {
                self.open.push(byte);
                match byte {
                    b'{' => NameOrEnd,
                    _ => ValueOrEnd,
                }
            }
            (Value | ValueOrEnd, b'"') => Text {
                is_name: false,
                is_escaped: false,
            },
            (Value | ValueOrEnd, b'-' | b'0'..=b'9' | b't' | b'f' | b'n') => Word,
            _ => return false,
        };
        true
    }
}

/// Scans a complete text.
pub(super) fn scan(bytes: &[u8]) -> Seen {
    let mut scan = Scan::new();
    match scan.go_on(bytes) {
        Seen::Part => scan.end(),
        seen => seen,
    }
}

/// White space between values: JSON's, and the separator of text sequences (RFC 7464 and 8142).
pub(super) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | 0x1E)
}

/// An object that wraps an array of objects, which are the records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wrapper {
    /// A GeoJSON FeatureCollection.
    Collection,
    /// An object with this array as its only member; the name of the member.
    Only(String),
}

impl Wrapper {
    /// The name of the member with the records.
    pub(super) fn member(&self) -> &str {
        match self {
            Self::Collection => "features",
            Self::Only(name) => name,
        }
    }
}

/// Whether an object wraps an array of records, by its bytes or, if it is large, its first bytes.
pub(super) fn wrapper(bytes: &[u8]) -> Option<Wrapper> {
    let mut at = 1;
    let mut members = 0;
    let (mut is_collection, mut has_features) = (false, false);
    let mut first = None;
    loop {
        at = behind_space(bytes, at);
        match bytes.get(at) {
            Some(b',') => {
                at += 1;
                continue;
            }
            Some(b'"') => {}
            // The end of the object, or of the given bytes.
            _ => break,
        }
        let Seen::Whole(length) = scan(bytes.get(at..)?) else {
            break;
        };
        let name: String = serde_json::from_slice(bytes.get(at..at + length)?).ok()?;
        at = behind_space(bytes, at + length);
        if bytes.get(at) != Some(&b':') {
            break;
        }
        at = behind_space(bytes, at + 1);
        let value = bytes.get(at..)?;
        members += 1;
        let is_array = value.first() == Some(&b'[');
        let is_of_objects = is_array && value.get(behind_space(value, 1)) == Some(&b'{');
        has_features |= is_array && name == "features";
        let Seen::Whole(length) = scan(value) else {
            if members == 1 && is_of_objects {
                first = Some(name);
            }
            break;
        };
        is_collection |= name == "type" && value.get(..length) == Some(b"\"FeatureCollection\"");
        if members == 1 && is_of_objects {
            first = Some(name);
        }
        at += length;
    }
    if is_collection && has_features {
        return Some(Wrapper::Collection);
    }
    first.filter(|_| members == 1).map(Wrapper::Only)
}

fn behind_space(bytes: &[u8], at: usize) -> usize {
    let rest = bytes.get(at..).unwrap_or_default();
    at + rest
        .iter()
        .position(|byte| !is_space(*byte))
        .unwrap_or(rest.len())
}

/// The ranges of the values in a line with several values, or of the records in a line that is an
/// array or wraps one. `None` if the line is one value, or is broken.
pub(crate) fn parts(line: &[u8]) -> Option<Vec<std::ops::Range<usize>>> {
    let mut parts = Vec::new();
    let mut at = 0;
    loop {
        at = behind_space(line, at);
        match line.get(at) {
            None => break,
            Some(b',') if !parts.is_empty() => {
                at += 1;
                continue;
            }
            Some(_) => {}
        }
        let Seen::Whole(length) = scan(line.get(at..)?) else {
            return None;
        };
        parts.push(at..at + length);
        at += length;
    }
    let [only] = parts.as_slice() else {
        let is_object = |part: &std::ops::Range<usize>| line.get(part.start) == Some(&b'{');
        return (parts.len() > 1 && parts.iter().all(is_object)).then_some(parts);
    };
    let value = line.get(only.clone())?;
    let mut at = match value.first()? {
        b'[' => 1,
        b'{' => array(value, wrapper(value)?.member())? + 1,
        _ => return None,
    };
    let mut elements = Vec::new();
    loop {
        at = behind_space(value, at);
        match value.get(at)? {
            b']' => break,
            b',' => {
                at += 1;
                continue;
            }
            b'{' => {}
            _ => return None,
        }
        let Seen::Whole(length) = scan(value.get(at..)?) else {
            return None;
        };
        elements.push(only.start + at..only.start + at + length);
        at += length;
    }
    (!elements.is_empty()).then_some(elements)
}

/// The position of the array in a member of an object.
fn array(object: &[u8], member: &str) -> Option<usize> {
    let mut at = 1;
    loop {
        at = behind_space(object, at);
        if object.get(at)? == &b',' {
            at += 1;
            continue;
        }
        let Seen::Whole(length) = scan(object.get(at..)?) else {
            return None;
        };
        let name: String = serde_json::from_slice(object.get(at..at + length)?).ok()?;
        at = behind_space(object, at + length);
        at = behind_space(object, at + 1);
        if name == member {
            return (object.get(at) == Some(&b'[')).then_some(at);
        }
        let Seen::Whole(length) = scan(object.get(at..)?) else {
            return None;
        };
        at += length;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random changes of values: if the parser finds a value, the scan finds the same end.
    #[test]
    fn a_value_ends_where_the_parser_says() {
        let texts = [
            "{\"a\":[1,-2.5e+3,true,null],\"b\":{\"c\":\"x\\\"}\\u00e9\"}} {\"d\":1}",
            "[[],{},[{\"a\":[{}]}],\"\",0]\n[1]",
            "\"text\" 12 false",
        ];
        let bytes = b"{}[]\":,\\1e-. \nat";
        let mut seed = 7u64;
        let mut next = |below: usize| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1);
            (seed >> 33) as usize % below
        };
        let (mut whole, mut broken) = (0, 0);
        for turn in 0..60_000 {
            let mut text = texts[turn % texts.len()].as_bytes().to_vec();
            for _ in 0..next(4) {
                let at = next(text.len());
                match next(3) {
                    0 => text[at] = bytes[next(bytes.len())],
                    1 => text.insert(at, bytes[next(bytes.len())]),
                    _ => drop(text.remove(at)),
                }
            }
            let mut values =
                serde_json::Deserializer::from_slice(&text).into_iter::<serde_json::Value>();
            let parsed = values.next();
            let begin = text.iter().position(|b| !b.is_ascii_whitespace());
            let (Some(begin), Some(parsed)) = (begin, parsed) else {
                continue;
            };
            match (parsed, scan(&text[begin..])) {
                (Ok(_), Seen::Whole(length)) => {
                    assert_eq!(
                        begin + length,
                        values.byte_offset(),
                        "{:?}",
                        text.as_slice()
                    );
                    whole += 1;
                }
                // The scan does not check the grammar of numbers and words.
                (Ok(value), seen) => assert!(!value.is_array() && !value.is_object(), "{seen:?}"),
                (Err(_), _) => broken += 1,
            }
        }
        assert!(whole > 10_000 && broken > 10_000, "{whole} {broken}");
    }

    #[test]
    fn what_an_object_is_there_for() {
        let only = |name: &str| Some(Wrapper::Only(name.to_string()));
        for (text, found) in [
            ("{\"a\":[{}]}", only("a")),
            ("{\"a\":[{},", only("a")),
            ("{\"a\":[{}],\"b\":1}", None),
            ("{\"a\":[1]}", None),
            ("{\"a\":[]}", None),
            ("{}", None),
            (
                "{\"features\":[],\"type\":\"FeatureCollection\"}",
                Some(Wrapper::Collection),
            ),
            (
                "{\"type\":\"FeatureCollection\",\"features\":[{",
                Some(Wrapper::Collection),
            ),
            ("{\"type\":\"Feature\",\"features\":[{}]}", None),
        ] {
            assert_eq!(wrapper(text.as_bytes()), found, "{text}");
        }
        let parts = |text: &str| parts(text.as_bytes()).map(|parts| parts.len());
        assert_eq!(parts("{\"a\":1}"), None);
        assert_eq!(parts("{\"a\":1} {\"a\":2}, {}"), Some(3));
        assert_eq!(parts("[{},{}]"), Some(2));
        assert_eq!(parts("{\"x\":[{},{}]}"), Some(2));
        assert_eq!(parts("{} bad"), None);
        assert_eq!(parts("[1]"), None);
    }
}

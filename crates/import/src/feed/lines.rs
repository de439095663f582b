//! NDJSON: lines that look like one object each are sent unparsed, in chunks. Anything else is
//! split into values here: an object over several lines, several on one line, an array, an object
//! that wraps an array of records.

use std::io;

use memchr::memchr;

use super::input::Input;
use super::message::{Message, Shape};
use super::scan::{Scan, Seen, Wrapper, is_space, wrapper};
use crate::text::TEXT_MAX;

/// The number of bytes of an object that are read to decide whether it wraps an array of records.
const LARGE: usize = 4 << 20;

/// How to read the lines.
pub(super) struct Reading<'a> {
    /// Of a line with more bytes, only the beginning is kept.
    pub(super) max: usize,
    /// Every line is returned as it is.
    pub(super) is_plain: bool,
    /// The records are in an array at this path of each value.
    pub(super) records: Option<&'a [String]>,
    /// An object that is alone may wrap an array of records as its only member.
    pub(super) unwraps: bool,
    /// The source gives its values over time: none waits for what follows it.
    pub(super) is_stream: bool,
}

/// Sends the content of a JSON source.
pub(super) fn read(input: &mut Input<'_>, reading: &Reading<'_>) -> io::Result<()> {
    if let Some(path) = reading.records {
        return Values::new(input, reading).at(path);
    }
    if !reading.is_plain && begins_otherwise(input)? {
        Values::new(input, reading).until_lines(true)?;
    }
    loop {
        let (bytes, lines, next) = plain_lines(input, reading);
        if lines > 0 {
            send(input, bytes, lines);
        }
        match next {
            Next::Values => Values::new(input, reading).until_lines(false)?,
            Next::More => {
                let seen = input.rest().len();
                if seen > reading.max {
                    skip_line(input)?;
                } else if !more(input, seen, reading.max)? {
                    let rest = input.rest();
                    if reading.is_plain || rest.is_empty() || looks_whole(rest) {
                        let length = rest.len();
                        if length > 0 {
                            send(input, length, 1);
                        }
                        return Ok(());
                    }
                    Values::new(input, reading).until_lines(false)?;
                    if input.rest().is_empty() {
                        return Ok(());
                    }
                }
            }
        }
    }
}

/// Reads more, until the current line ends or is longer than `max`; its first `seen` bytes have no
/// line break. False at the end of the source.
fn more(input: &mut Input<'_>, mut seen: usize, max: usize) -> io::Result<bool> {
    loop {
        if !input.fill()? {
            return Ok(false);
        }
        let rest = input.rest();
        if memchr(b'\n', rest.get(seen..).unwrap_or_default()).is_some() || rest.len() > max {
            return Ok(true);
        }
        seen = rest.len();
    }
}

fn send(input: &mut Input<'_>, bytes: usize, lines: u64) {
    let first = input.line();
    let text = input.take_lines(bytes, lines);
    input.say(Message::Lines { first, text });
}

enum Next {
    /// The next line is incomplete.
    More,
    /// The next line must be split into values.
    Values,
}

/// The number of bytes and lines before the first line that is incomplete or must be split.
fn plain_lines(input: &Input<'_>, reading: &Reading<'_>) -> (usize, u64, Next) {
    let rest = input.rest();
    let (mut at, mut lines) = (0, 0);
    loop {
        let behind = rest.get(at..).unwrap_or_default();
        let Some(end) = memchr(b'\n', behind) else {
            return (at, lines, Next::More);
        };
        let line = behind.get(..end).unwrap_or_default();
        if !reading.is_plain && !looks_whole(line) {
            return (at, lines, Next::Values);
        }
        at += end + 1;
        lines += 1;
    }
}

/// True if the line may be one object, or is no part of JSON over several lines.
fn looks_whole(line: &[u8]) -> bool {
    match line.first() {
        Some(b'{') => {}
        Some(b' ' | b'\t' | b'[' | 0x1E) => {
            let text = line.trim_ascii_start();
            let text = text.strip_prefix(b"\x1E").unwrap_or(text);
            match text.first() {
                Some(b'{') if text.len() == line.trim_ascii_start().len() => {}
                Some(b'{' | b'[') => return false,
                _ => return true,
            }
        }
        _ => return true,
    }
    let end = match line {
        [.., end, b'\r'] | [.., end] => *end,
        [] => return true,
    };
    end == b'}' || matches!(end, b' ' | b'\t' | b'\r') && line.trim_ascii_end().ends_with(b"}")
}

/// True if the source begins with an array, or with an object that wraps an array of records or
/// spans several lines. Skips a byte order mark.
fn begins_otherwise(input: &mut Input<'_>) -> io::Result<bool> {
    if input.byte(0)? == Some(0xEF) && input.byte(1)? == Some(0xBB) && input.byte(2)? == Some(0xBF)
    {
        input.skip(3);
    }
    let mut at = 0;
    while let Some(byte) = input.byte(at)? {
        if !is_space(byte) {
            break;
        }
        at += 1;
    }
    match input.byte(at)? {
        Some(b'[') => return Ok(true),
        Some(b'{') => {}
        _ => return Ok(false),
    }
    loop {
        let rest = input.rest().get(at..).unwrap_or_default();
        if memchr(b'\n', rest).is_some() || rest.len() >= LARGE || !input.fill()? {
            break;
        }
    }
    let rest = input.rest().get(at..).unwrap_or_default();
    let line = memchr(b'\n', rest).unwrap_or(rest.len());
    let line = rest.get(..line).unwrap_or_default();
    Ok(wrapper(line).is_some() || !looks_whole(line))
}

/// Skips the rest of a long line and reports it.
fn skip_line(input: &mut Input<'_>) -> io::Result<()> {
    let line = input.line();
    let text = input.rest().get(..TEXT_MAX).unwrap_or_default().to_vec();
    let mut length = 0;
    loop {
        let rest = input.rest();
        let end = memchr(b'\n', rest);
        let bytes = end.unwrap_or(rest.len());
        length += bytes as u64;
        input.skip(bytes);
        if end.is_some() {
            input.take(1);
            break;
        }
        if !input.fill()? {
            break;
        }
    }
    input.say(Message::Long { line, text, length });
    Ok(())
}

/// Splits a source into values.
struct Values<'a, 'b> {
    input: &'a mut Input<'b>,
    max: usize,
    unwraps: bool,
    is_stream: bool,
}

impl<'a, 'b> Values<'a, 'b> {
    fn new(input: &'a mut Input<'b>, reading: &Reading<'_>) -> Self {
        Self {
            input,
            max: reading.max,
            unwraps: reading.unwraps,
            is_stream: reading.is_stream,
        }
    }

    /// Takes values until one ends with its line. The first value of a source may be an object that
    /// wraps an array of records.
    fn until_lines(&mut self, mut is_first: bool) -> io::Result<()> {
        loop {
            self.indent(Some(0))?;
            match self.next()? {
                None => return Ok(()),
                Some(b'[') => self.array(is_first)?,
                Some(b'{') => self.object(is_first)?,
                Some(_) => self.line()?,
            }
            is_first = false;
            self.input.flush_large();
            // Only blanks may stand between the value and the end of its line.
            let mut at = 0;
            loop {
                match self.input.byte(at)? {
                    Some(b' ' | b'\t' | b'\r' | b',') => at += 1,
                    Some(b'\n') => {
                        self.input.take(at + 1);
                        return Ok(());
                    }
                    _ => break,
                }
            }
        }
    }

    /// Takes the records at a path of each value.
    fn at(&mut self, path: &[String]) -> io::Result<()> {
        loop {
            self.indent(Some(0))?;
            match self.next()? {
                None => return Ok(()),
                Some(b'{' | b'[') if !path.is_empty() => {
                    let found = self.parsed();
                    let line = self.input.line();
                    let missing = format!("it has no `{}`", path.join("."));
                    let is_whole = self.target(path)?;
                    if is_whole && found == self.parsed() {
                        self.input.parsed().bad(line, b"", missing);
                    }
                    Ok(())
                }
                Some(b'{') => self.value(),
                Some(b'[') => self.elements(&[]).map(|_| ()),
                Some(_) => self.line(),
            }?;
            self.input.flush_large();
        }
    }

    /// The number of values found so far.
    fn parsed(&mut self) -> u64 {
        self.input.parsed().given
    }

    /// Skips separators, and returns the first byte of the next value.
    fn next(&mut self) -> io::Result<Option<u8>> {
        loop {
            match self.input.byte(0)? {
                Some(byte) if is_space(byte) || byte == b',' => self.input.take(1),
                Some(0xEF) if self.input.rest().starts_with(b"\xEF\xBB\xBF") => self.input.skip(3),
                byte => return Ok(byte.filter(|_| !self.input.is_deaf())),
            }
        }
    }

    /// Takes a line that is no value as a value; parsing it as a record will give the reason.
    fn line(&mut self) -> io::Result<()> {
        loop {
            let rest = self.input.rest();
            match memchr(b'\n', rest) {
                Some(end) => {
                    self.input.give(end);
                    return Ok(());
                }
                None if rest.len() > self.max || !self.input.fill()? => {
                    let length = self.input.rest().len();
                    self.input.give(length);
                    return Ok(());
                }
                None => {}
            }
        }
    }

    /// Takes an array at the top level.
    fn array(&mut self, is_first: bool) -> io::Result<()> {
        let (line, given) = (self.input.line(), self.parsed());
        if is_first {
            self.input.say(Message::Read(Shape::Array));
        }
        self.elements(&[])?;
        if !is_first && self.parsed() == given {
            let reason = "an empty array holds no record".to_string();
            self.input.parsed().bad(line, b"[]", reason);
        } else if !is_first && !std::mem::replace(&mut self.input.parsed().is_array_said, true) {
            self.input.say(Message::Read(Shape::Arrays(line)));
        }
        Ok(())
    }

    /// Takes an object at the top level.
    fn object(&mut self, is_first: bool) -> io::Result<()> {
        if !is_first {
            return self.value();
        }
        let mut scan = Scan::new();
        let seen = self.go_on(&mut scan, LARGE)?;
        let Some(found) = wrapper(self.input.rest()).filter(|_| seen != Seen::Broken) else {
            return self.value();
        };
        if let Wrapper::Only(name) = &found {
            // The first of several records is one of them.
            let is_alone = self.is_stream || self.is_alone(seen)?;
            if is_alone && !self.unwraps && !self.is_stream {
                self.input.say(Message::Read(Shape::Whole(name.clone())));
            }
            if !(is_alone && self.unwraps) {
                return self.value();
            }
        }
        let path = [found.member().to_string()];
        self.input.say(Message::Read(match found {
            Wrapper::Collection => Shape::Collection,
            Wrapper::Only(name) => Shape::Member(name),
        }));
        self.members(&path).map(|_| ())
    }

    /// True if no value follows the current one, or if that is too large to look behind it.
    fn is_alone(&mut self, seen: Seen) -> io::Result<bool> {
        let Seen::Whole(mut at) = seen else {
            return Ok(true);
        };
        loop {
            match self.input.byte(at)? {
                None => return Ok(true),
                Some(byte) if is_space(byte) => at += 1,
                Some(_) => return Ok(false),
            }
        }
    }

    /// Scans a value until it ends, or has more than `most` bytes.
    fn go_on(&mut self, scan: &mut Scan, most: usize) -> io::Result<Seen> {
        loop {
            match scan.go_on(self.input.rest()) {
                Seen::Part if self.input.rest().len() > most => return Ok(Seen::Part),
                Seen::Part => {
                    if !self.input.fill()? {
                        return Ok(scan.end());
                    }
                }
                seen => return Ok(seen),
            }
        }
    }

    /// Takes a value that should be a record. A broken value extends to the next line that may
    /// begin one; parsing it as a record will give the reason.
    fn value(&mut self) -> io::Result<()> {
        let mut scan = Scan::new();
        match self.go_on(&mut scan, self.max)? {
            Seen::Whole(length) => self.input.give(length),
            Seen::Part => {
                let line = self.input.line();
                let text = self.input.rest().get(..TEXT_MAX).unwrap_or_default();
                let (text, length) = (text.to_vec(), self.input.rest().len() as u64);
                self.input.say(Message::Long { line, text, length });
                let length = self.broken()?;
                self.input.take(length);
            }
            Seen::Broken => {
                let length = self.broken()?;
                self.input.give(length);
            }
        }
        Ok(())
    }

    /// The length of a broken value: up to the next line that begins with a bracket and is not
    /// indented more than the value's first line.
    fn broken(&mut self) -> io::Result<usize> {
        let indent = self.input.parsed().indent;
        let mut at = 0;
        loop {
            match memchr(b'\n', self.input.rest().get(at..).unwrap_or_default()) {
                None if self.input.rest().len() > self.max => return Ok(self.input.rest().len()),
                None => {
                    if !self.input.fill()? {
                        return Ok(self.input.rest().len());
                    }
                    continue;
                }
                Some(end) => at += end + 1,
            }
            let mut blanks = 0;
            while matches!(self.input.byte(at + blanks)?, Some(b' ' | b'\t')) {
                blanks += 1;
            }
            let byte = self.input.byte(at + blanks)?;
            let begins = matches!(byte, Some(b'{' | b'[' | 0x1E)) && blanks <= indent
                || matches!(byte, Some(b']')) && blanks < indent.max(1)
                // A word at the margin cannot be part of JSON over several lines.
                || byte.is_some_and(|byte| byte.is_ascii_alphabetic()) && blanks == 0;
            if begins {
                return Ok(at);
            }
        }
    }

    /// Takes the elements of an array, or the records at a path of each; false if the array cannot
    /// be read further.
    fn elements(&mut self, path: &[String]) -> io::Result<bool> {
        let begins = self.input.line();
        self.input.take(1);
        loop {
            self.indent(None)?;
            match self.next()? {
                None => {
                    let reason = format!(
                        "the array that begins on line {begins} does not end: the file is cut off"
                    );
                    let line = self.input.line();
                    self.input.parsed().bad(line, b"", reason);
                    return Ok(false);
                }
                Some(b']') => {
                    self.input.take(1);
                    return Ok(true);
                }
                Some(b'{' | b'[') if !path.is_empty() => {
                    if !self.target(path)? {
                        return Ok(false);
                    }
                }
                Some(b'{' | b'[' | b'"' | b'-' | b'0'..=b'9' | b't' | b'f' | b'n') => {
                    self.value()?;
                }
                Some(_) => self.line()?,
            }
            self.input.flush_large();
        }
    }

    /// Sets the indentation of the next value, if it begins a line; `indent` is 0 if the input is
    /// at the beginning of a line.
    fn indent(&mut self, mut indent: Option<usize>) -> io::Result<()> {
        let mut at = 0;
        loop {
            match self.input.byte(at)? {
                Some(b'\n') => indent = Some(0),
                Some(b' ' | b'\t') => indent = indent.map(|indent| indent + 1),
                Some(b'\r' | b',') => {}
                _ => break,
            }
            at += 1;
        }
        if let Some(indent) = indent {
            self.input.parsed().indent = indent;
        }
        Ok(())
    }

    /// Takes the records at a path of a value; false if the value cannot be read further.
    fn target(&mut self, path: &[String]) -> io::Result<bool> {
        match (self.input.byte(0)?, path.is_empty()) {
            (Some(b'['), _) => self.elements(path),
            (Some(b'{'), true) => self.value().map(|()| true),
            (Some(b'{'), false) => self.members(path),
            (Some(b'n'), _) | (_, false) => self.pass_over(),
            (_, true) => self.value().map(|()| true),
        }
    }

    /// Finds the first name of a path among the members of an object, and takes the records there;
    /// false if the object cannot be read further.
    fn members(&mut self, path: &[String]) -> io::Result<bool> {
        let Some((wanted, below)) = path.split_first() else {
            return self.value().map(|()| true);
        };
        self.input.take(1);
        loop {
            match self.next()? {
                Some(b'}') => {
                    self.input.take(1);
                    return Ok(true);
                }
                Some(b'"') => {}
                _ => return self.give_up(),
            }
            let mut scan = Scan::new();
            let Seen::Whole(length) = self.go_on(&mut scan, LARGE)? else {
                return self.give_up();
            };
            let name = self.input.rest().get(..length).unwrap_or_default();
            let name: String = serde_json::from_slice(name).unwrap_or_default();
            self.input.take(length);
            if self.next()? != Some(b':') {
                return self.give_up();
            }
            self.input.take(1);
            self.next()?;
            let is_read = if name == *wanted {
                self.target(below)?
            } else {
                self.input.parsed().leave_out(&name);
                self.pass_over()?
            };
            if !is_read {
                return Ok(false);
            }
        }
    }

    /// Skips a value of any size.
    fn pass_over(&mut self) -> io::Result<bool> {
        let mut scan = Scan::new();
        match self.go_on(&mut scan, self.max)? {
            Seen::Whole(length) => {
                self.input.take(length);
                Ok(true)
            }
            _ => self.give_up(),
        }
    }

    /// Reports that the object around the records cannot be read further, and continues on the next
    /// line.
    fn give_up(&mut self) -> io::Result<bool> {
        let line = self.input.line();
        let reason = "the object around the records is not valid JSON from here on".to_string();
        self.input.parsed().bad(line, b"", reason);
        loop {
            let rest = self.input.rest();
            if let Some(end) = memchr(b'\n', rest) {
                self.input.take(end + 1);
                return Ok(false);
            }
            let length = rest.len();
            self.input.take(length);
            if !self.input.fill()? {
                return Ok(false);
            }
        }
    }
}

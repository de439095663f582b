//! The bytes of a source for its parser, which may request more of them at any time, and their line
//! numbers.

use std::io::{self, Read};

use memchr::memchr_iter;

use super::message::{CHUNK, Message, Sender, Shape};
use super::parsed::Parsed;

/// A source, read in chunks. Parsed items are sent before each read, which may wait for a slow
/// stream.
pub(super) struct Input<'a> {
    reader: &'a mut dyn Read,
    scratch: Vec<u8>,
    buffer: Vec<u8>,
    /// The bytes before this position are taken.
    start: usize,
    is_ended: bool,
    /// The line number at `start`, from 1.
    line: u64,
    sender: &'a Sender,
    parsed: Parsed,
    /// The feed was dropped.
    is_deaf: bool,
}

impl<'a> Input<'a> {
    pub(super) fn new(reader: &'a mut dyn Read, sender: &'a Sender) -> Self {
        Self {
            reader,
            // Reused between reads: a pipe returns only part of it, and a new buffer would be
            // cleared each time.
            scratch: vec![0; CHUNK],
            buffer: Vec::new(),
            start: 0,
            is_ended: false,
            line: 1,
            sender,
            parsed: Parsed::default(),
            is_deaf: false,
        }
    }

    /// The bytes read but not taken.
    pub(super) fn rest(&self) -> &[u8] {
        self.buffer.get(self.start..).unwrap_or_default()
    }

    /// The byte at this distance behind the taken ones, reading more if necessary; `None` behind
    /// the end.
    pub(super) fn byte(&mut self, at: usize) -> io::Result<Option<u8>> {
        while self.start + at >= self.buffer.len() {
            if !self.fill()? {
                return Ok(None);
            }
        }
        Ok(self.buffer.get(self.start + at).copied())
    }

    /// The line number of the next byte.
    pub(super) fn line(&self) -> u64 {
        self.line
    }

    /// Reads more; false at the end.
    pub(super) fn fill(&mut self) -> io::Result<bool> {
        if self.is_ended {
            return Ok(false);
        }
        self.flush();
        if self.is_deaf {
            self.end();
            return Ok(false);
        }
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        loop {
            match self.reader.read(&mut self.scratch) {
                Ok(read) => {
                    let bytes = self.scratch.get(..read).unwrap_or_default();
                    self.buffer.extend_from_slice(bytes);
                    self.is_ended = read == 0;
                    return Ok(read > 0);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Discards the rest of the source.
    fn end(&mut self) {
        self.is_ended = true;
        self.buffer.clear();
        self.start = 0;
    }

    /// True if the feed was dropped.
    pub(super) fn is_deaf(&self) -> bool {
        self.is_deaf
    }

    /// Takes bytes, and counts their lines.
    pub(super) fn take(&mut self, bytes: usize) {
        let taken = self.rest().get(..bytes).unwrap_or_default();
        self.line += memchr_iter(b'\n', taken).count() as u64;
        self.skip(bytes);
    }

    /// Takes bytes without counting their lines; the caller does.
    pub(super) fn skip(&mut self, bytes: usize) {
        self.start = self.buffer.len().min(self.start + bytes);
    }

    /// Counts lines that were skipped.
    pub(super) fn count_lines(&mut self, lines: u64) {
        self.line += lines;
    }

    /// Takes whole lines as a separate chunk, and counts them.
    pub(super) fn take_lines(&mut self, bytes: usize, lines: u64) -> Vec<u8> {
        self.line += lines;
        if self.start > 0 {
            let chunk = self.rest().get(..bytes).unwrap_or_default().to_vec();
            self.skip(bytes);
            return chunk;
        }
        let rest = self.buffer.split_off(bytes.min(self.buffer.len()));
        std::mem::replace(&mut self.buffer, rest)
    }

    /// Takes this many bytes as a value.
    pub(super) fn give(&mut self, length: usize) {
        let text = self.buffer.get(self.start..).unwrap_or_default();
        let text = text.get(..length).unwrap_or_default();
        self.parsed.value(self.line, text.trim_ascii_end());
        self.take(length);
    }

    /// The parsed items that are not sent yet.
    pub(super) fn parsed(&mut self) -> &mut Parsed {
        &mut self.parsed
    }

    /// Sends the parsed items if they are large.
    pub(super) fn flush_large(&mut self) {
        if self.parsed.bytes() >= CHUNK {
            self.flush();
        }
    }

    /// Sends the parsed items.
    pub(super) fn flush(&mut self) {
        if let Some(message) = self.parsed.message() {
            self.send(message);
        }
    }

    /// Sends a message behind the parsed items.
    pub(super) fn say(&mut self, message: Message) {
        self.flush();
        self.send(message);
    }

    /// Sends the remaining items at the end of the source.
    pub(super) fn finish(&mut self) {
        self.flush();
        let left_out = self.parsed.take_left_out();
        if !left_out.is_empty() {
            self.send(Message::Read(Shape::LeftOut(left_out)));
        }
    }

    fn send(&mut self, message: Message) {
        self.is_deaf |= self.sender.send(message).is_err();
    }
}

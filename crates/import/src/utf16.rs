//! Text as UTF-8 without a byte order mark. UTF-16 is recognised by its mark and converted; Windows
//! PowerShell and spreadsheets write it.

use std::io::{self, Read};

/// A reader that converts to UTF-8.
pub(crate) struct Text<R> {
    inner: R,
    form: Form,
    /// Bytes read but not decoded.
    raw: Vec<u8>,
    /// Bytes decoded, or read ahead; `given` of them are returned.
    ready: Vec<u8>,
    given: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// No byte was read yet.
    Unknown,
    /// UTF-8, or unknown bytes: returned as they are.
    Bytes,
    Little,
    Big,
}

/// The byte order marks and their forms.
const MARKS: [(&[u8], Form); 3] = [
    (b"\xEF\xBB\xBF", Form::Bytes),
    (b"\xFF\xFE", Form::Little),
    (b"\xFE\xFF", Form::Big),
];

/// The number of bytes per read.
const CHUNK: usize = 32 << 10;

impl<R: Read> Text<R> {
    pub(crate) fn new(inner: R) -> Self {
        Self {
            inner,
            form: Form::Unknown,
            raw: Vec::new(),
            ready: Vec::new(),
            given: 0,
        }
    }

    /// Reads the first bytes and detects the form. It requests a whole chunk, because a
    /// decompressor that returned one byte may wait for more input before it returns the next byte,
    /// although that is available.
    fn begin(&mut self) -> io::Result<()> {
        let goes_on = |raw: &[u8]| {
            let mut marks = MARKS.iter();
            marks.any(|(mark, _)| mark.len() > raw.len() && mark.starts_with(raw))
        };
        while goes_on(&self.raw) {
            if !self.read_raw()? {
                break;
            }
        }
        let mark = MARKS.iter().find(|(mark, _)| self.raw.starts_with(mark));
        if let Some((mark, form)) = mark {
            self.form = *form;
            self.raw.drain(..mark.len());
        } else {
            self.form = Form::Bytes;
        }
        if self.form == Form::Bytes {
            self.ready = std::mem::take(&mut self.raw);
        }
        Ok(())
    }

    /// Reads more; false at the end.
    fn read_raw(&mut self) -> io::Result<bool> {
        let begin = self.raw.len();
        self.raw.resize(begin + CHUNK, 0);
        let read = self
            .inner
            .read(self.raw.get_mut(begin..).unwrap_or_default());
        self.raw.truncate(begin + *read.as_ref().unwrap_or(&0));
        Ok(read? > 0)
    }

    /// Decodes the next chunk; false at the end.
    fn decode(&mut self) -> io::Result<bool> {
        let is_end = !self.read_raw()?;
        let is_little = self.form == Form::Little;
        let units = self.raw.chunks_exact(2).map(|pair| match *pair {
            [a, b] if is_little => u16::from_le_bytes([a, b]),
            [a, b] => u16::from_be_bytes([a, b]),
            _ => 0,
        });
        let mut units: Vec<u16> = units.collect();
        // The first half of a surrogate pair waits for the second.
        if !is_end
            && units
                .last()
                .is_some_and(|unit| (0xD800..0xDC00).contains(unit))
        {
            units.pop();
        }
        let taken = units.len() * 2;
        let text = char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER));
        self.ready = text.collect::<String>().into_bytes();
        self.given = 0;
        self.raw.drain(..taken);
        Ok(!is_end)
    }
}

impl<R: Read> Read for Text<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.form == Form::Unknown {
            self.begin()?;
        }
        loop {
            let ready = self.ready.get(self.given..).unwrap_or_default();
            if !ready.is_empty() {
                let length = ready.len().min(buffer.len());
                let (Some(to), Some(from)) = (buffer.get_mut(..length), ready.get(..length)) else {
                    return Ok(0);
                };
                to.copy_from_slice(from);
                self.given += length;
                return Ok(length);
            }
            if self.form == Form::Bytes {
                return self.inner.read(buffer);
            }
            if !self.decode()? && self.ready.is_empty() {
                return Ok(0);
            }
        }
    }
}

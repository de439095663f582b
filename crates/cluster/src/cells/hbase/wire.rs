//! Thrift's binary protocol, strict form, as far as the messages need it.

use std::io::{Error, ErrorKind, Read, Result};

/// The types of fields.
pub(super) mod kind {
    pub(crate) const BOOL: u8 = 2;
    pub(crate) const BYTE: u8 = 3;
    pub(crate) const DOUBLE: u8 = 4;
    pub(crate) const I16: u8 = 6;
    pub(crate) const I32: u8 = 8;
    pub(crate) const I64: u8 = 10;
    pub(crate) const BINARY: u8 = 11;
    pub(crate) const STRUCT: u8 = 12;
    pub(crate) const MAP: u8 = 13;
    pub(crate) const SET: u8 = 14;
    pub(crate) const LIST: u8 = 15;
}

const VERSION: u32 = 0x8001_0000;
const CALL: u32 = 1;
pub(super) const REPLY: u32 = 2;
pub(super) const EXCEPTION: u32 = 3;
const STOP: u8 = 0;
/// Structs within structs.
const DEPTH: usize = 16;
/// The most bytes of an answer.
const MOST: u64 = 512 << 20;

/// A message that is being written.
#[derive(Debug, Default, Clone)]
pub(super) struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// A call of the function `name`; its arguments follow as fields.
    pub(super) fn call(name: &str) -> Writer {
        let mut writer = Writer::default();
        writer.u32(VERSION | CALL);
        writer.bytes(name.as_bytes());
        writer.u32(0);
        writer
    }

    /// The message, with the end of its arguments.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.bytes.push(STOP);
        self.bytes
    }

    fn u32(&mut self, value: u32) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    fn bytes(&mut self, value: &[u8]) {
        self.u32(u32::try_from(value.len()).unwrap_or(u32::MAX));
        self.bytes.extend_from_slice(value);
    }

    fn field(&mut self, kind: u8, id: i16) {
        self.bytes.push(kind);
        self.bytes.extend_from_slice(&id.to_be_bytes());
    }

    pub(super) fn binary(&mut self, id: i16, value: &[u8]) {
        self.field(kind::BINARY, id);
        self.bytes(value);
    }

    pub(super) fn i32(&mut self, id: i16, value: i32) {
        self.field(kind::I32, id);
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    pub(super) fn i64(&mut self, id: i16, value: i64) {
        self.field(kind::I64, id);
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    pub(super) fn structure(&mut self, id: i16, fields: impl FnOnce(&mut Writer)) {
        self.field(kind::STRUCT, id);
        fields(self);
        self.bytes.push(STOP);
    }

    fn list_of(&mut self, id: i16, of: u8, count: usize) {
        self.field(kind::LIST, id);
        self.bytes.push(of);
        self.u32(u32::try_from(count).unwrap_or(u32::MAX));
    }

    pub(super) fn structures<T>(&mut self, id: i16, items: &[T], fields: impl Fn(&mut Writer, &T)) {
        self.list_of(id, kind::STRUCT, items.len());
        for item in items {
            fields(self, item);
            self.bytes.push(STOP);
        }
    }

    pub(super) fn binaries(&mut self, id: i16, items: &[Vec<u8>]) {
        self.list_of(id, kind::BINARY, items.len());
        items.iter().for_each(|item| self.bytes(item));
    }

    pub(super) fn map(&mut self, id: i16, items: &[(&[u8], &[u8])]) {
        self.field(kind::MAP, id);
        self.bytes.extend_from_slice(&[kind::BINARY, kind::BINARY]);
        self.u32(u32::try_from(items.len()).unwrap_or(u32::MAX));
        for (key, value) in items {
            self.bytes(key);
            self.bytes(value);
        }
    }
}

/// The items of a map.
pub(super) type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// An answer that is being read.
pub(super) struct Reader<'r> {
    from: &'r mut dyn Read,
    left: u64,
}

pub(super) fn malformed(what: &str) -> Error {
    Error::new(ErrorKind::InvalidData, format!("malformed: {what}"))
}

impl<'r> Reader<'r> {
    pub(super) fn new(from: &'r mut dyn Read) -> Reader<'r> {
        Reader { from, left: MOST }
    }

    /// The kind of the answer.
    pub(super) fn begin(&mut self) -> Result<u32> {
        let first = u32::from_be_bytes(self.array()?);
        if first & 0xffff_0000 != VERSION {
            return Err(malformed("it does not speak Thrift's binary protocol"));
        }
        self.bytes()?;
        self.array::<4>()?;
        Ok(first & 0xff)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        self.left = self
            .left
            .checked_sub(N as u64)
            .ok_or_else(|| malformed("it is too long"))?;
        let mut bytes = [0; N];
        self.from.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn length(&mut self) -> Result<u64> {
        let length = u64::from(u32::from_be_bytes(self.array()?));
        if length <= self.left {
            Ok(length)
        } else {
            Err(malformed("a length exceeds the answer"))
        }
    }

    /// Bytes. Space is taken as they arrive, not by the length that is announced.
    pub(super) fn bytes(&mut self) -> Result<Vec<u8>> {
        let length = self.length()?;
        let mut bytes = Vec::new();
        (&mut *self.from).take(length).read_to_end(&mut bytes)?;
        if bytes.len() as u64 != length {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        self.left -= length;
        Ok(bytes)
    }

    pub(super) fn bool(&mut self) -> Result<bool> {
        Ok(self.array::<1>()? != [0])
    }

    pub(super) fn i64(&mut self) -> Result<i64> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    /// Reads the fields of a struct: `field` reads those that it knows, by number and type, and
    /// returns false for others.
    pub(super) fn structure(
        &mut self,
        mut field: impl FnMut(&mut Reader<'r>, i16, u8) -> Result<bool>,
    ) -> Result<()> {
        loop {
            let [kind] = self.array::<1>()?;
            if kind == STOP {
                return Ok(());
            }
            let id = i16::from_be_bytes(self.array()?);
            if !field(self, id, kind)? {
                self.skip(kind, 0)?;
            }
        }
    }

    /// Reads a list of structs.
    pub(super) fn structures<T>(
        &mut self,
        mut item: impl FnMut(&mut Reader<'r>) -> Result<T>,
    ) -> Result<Vec<T>> {
        let [kind] = self.array::<1>()?;
        let count = self.length()?;
        if kind != kind::STRUCT && count > 0 {
            return Err(malformed("a list is of other items"));
        }
        (0..count).map(|_| item(self)).collect()
    }

    /// Reads a list of bytes.
    pub(super) fn binaries(&mut self) -> Result<Vec<Vec<u8>>> {
        let [kind] = self.array::<1>()?;
        let count = self.length()?;
        if kind != kind::BINARY && count > 0 {
            return Err(malformed("a list is of other items"));
        }
        (0..count).map(|_| self.bytes()).collect()
    }

    /// Reads a map from bytes to bytes.
    pub(super) fn map(&mut self) -> Result<Pairs> {
        let kinds = self.array::<2>()?;
        let count = self.length()?;
        if kinds != [kind::BINARY; 2] && count > 0 {
            return Err(malformed("a map is of other items"));
        }
        (0..count)
            .map(|_| Ok((self.bytes()?, self.bytes()?)))
            .collect()
    }

    fn skip(&mut self, kind: u8, depth: usize) -> Result<()> {
        if depth > DEPTH {
            return Err(malformed("it is nested too deeply"));
        }
        match kind {
            kind::BOOL | kind::BYTE => self.array::<1>().map(drop),
            kind::I16 => self.array::<2>().map(drop),
            kind::I32 => self.array::<4>().map(drop),
            kind::I64 | kind::DOUBLE => self.array::<8>().map(drop),
            kind::BINARY => self.bytes().map(drop),
            kind::STRUCT => loop {
                let [kind] = self.array::<1>()?;
                if kind == STOP {
                    return Ok(());
                }
                self.array::<2>()?;
                self.skip(kind, depth + 1)?;
            },
            kind::LIST | kind::SET => {
                let [kind] = self.array::<1>()?;
                let count = self.length()?;
                (0..count).try_for_each(|_| self.skip(kind, depth + 1))
            }
            kind::MAP => {
                let [key, value] = self.array::<2>()?;
                let count = self.length()?;
                (0..count).try_for_each(|_| {
                    self.skip(key, depth + 1)?;
                    self.skip(value, depth + 1)
                })
            }
            _ => Err(malformed("a field has an unknown type")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<u8> {
        let mut writer = Writer::call("f");
        writer.binary(1, b"abc");
        writer.i32(2, -7);
        writer.i64(3, 1 << 40);
        writer.structure(5, |s| s.structures(1, &[1, 2], |s, n| s.i32(1, *n)));
        writer.binaries(6, &[b"x".to_vec(), Vec::new()]);
        writer.map(7, &[(b"k", b"v")]);
        writer.finish()
    }

    fn read(mut bytes: &[u8]) -> Result<(Vec<u8>, i64, Pairs)> {
        let mut reader = Reader::new(&mut bytes);
        assert_eq!(reader.begin()?, CALL);
        let mut found = (Vec::new(), 0, Vec::new());
        reader.structure(|reader, id, kind| {
            match (id, kind) {
                (1, kind::BINARY) => found.0 = reader.bytes()?,
                (3, kind::I64) => found.1 = reader.i64()?,
                (7, kind::MAP) => found.2 = reader.map()?,
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(found)
    }

    #[test]
    fn what_is_written_is_read_and_the_unknown_is_skipped() {
        let (abc, number, map) = read(&sample()).unwrap();
        assert_eq!((abc.as_slice(), number), (&b"abc"[..], 1 << 40));
        assert_eq!(map, [(b"k".to_vec(), b"v".to_vec())]);
    }

    #[test]
    fn any_bytes_are_read_without_a_panic() {
        let bytes = sample();
        for seed in esker_sim::seeds(200) {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut changed = bytes.clone();
            // The kind of the message is asserted above.
            for _ in 0..random.usize(1..4) {
                let at = random.usize(4..changed.len());
                changed[at] = random.u8(..);
            }
            changed.truncate(random.usize(4..=changed.len()));
            let _ = read(&changed);
        }
        assert!(read(&bytes[..bytes.len() - 1]).is_err());
    }
}

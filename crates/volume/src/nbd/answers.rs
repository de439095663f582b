//! Replies to requests, as a client reads them: simple ones, and structured ones put together from
//! their chunks.

use std::collections::{BTreeMap, HashMap};
use std::io::Read;

use super::device::{Failure, Run};
use super::error::ClientError;
use super::protocol::{Fields, HOLE_AND_ZERO, ReplyHead, Request, chunk, command};

/// The longest payload of a chunk with an error: its text, and fixed fields.
const LONGEST_ERROR: u32 = 4096 + 64;
/// The longest payload of a chunk with a status: 2^20 descriptors.
const LONGEST_STATUS: u32 = 4 + (8 << 20);

/// What a client waits for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Expected {
    kind: u16,
    offset: u64,
    length: u32,
    /// The metadata context whose status was asked for.
    context: Option<u32>,
}

impl Expected {
    pub(super) fn of(request: &Request, context: Option<u32>) -> Expected {
        Expected {
            kind: request.kind,
            offset: request.offset,
            length: request.length,
            context,
        }
    }
}

/// The answer to a request that succeeded.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The data of a read; empty for other requests.
    Data(Vec<u8>),
    /// The allocation.
    Runs(Vec<Run>),
}

/// A structured reply of which not all chunks are there.
#[derive(Default)]
pub(super) struct Begun {
    data: Vec<u8>,
    /// The ends of the ranges that are there, by their starts.
    ranges: BTreeMap<u64, u64>,
    runs: Vec<Run>,
    failure: Option<Failure>,
}

/// The cookie of a request, and how it ended.
pub(super) type Ended = (u64, Result<Answer, Failure>);

/// Reads until a reply is complete. `begun` keeps the incomplete ones; `expect` knows what is
/// waited for.
pub(super) fn read_answer(
    reader: &mut dyn Read,
    is_structured: bool,
    begun: &mut HashMap<u64, Begun>,
    expect: impl Fn(u64) -> Option<Expected>,
) -> Result<Ended, ClientError> {
    let unknown = || ClientError::Protocol("a reply to no request");
    loop {
        let mut head = [0; ReplyHead::BYTES];
        reader.read_exact(&mut head)?;
        let head = ReplyHead::decode(&head);
        match head.ok_or(ClientError::Protocol("bytes that are no reply"))? {
            ReplyHead::Simple { error, cookie } => {
                let expected = expect(cookie).ok_or_else(unknown)?;
                if begun.contains_key(&cookie) {
                    return Err(ClientError::Protocol("replies of both kinds to a request"));
                }
                let result = simple(reader, is_structured, error, expected)?;
                return Ok((cookie, result));
            }
            ReplyHead::Chunk { .. } if !is_structured => {
                return Err(ClientError::Protocol("a chunk that was not negotiated"));
            }
            ReplyHead::Chunk {
                flags,
                kind,
                cookie,
            } => {
                let expected = expect(cookie).ok_or_else(unknown)?;
                let part = begun.entry(cookie).or_default();
                part.add(reader, kind, expected)?;
                if flags & chunk::DONE != 0 {
                    let part = begun.remove(&cookie).unwrap_or_default();
                    return Ok((cookie, part.end(expected)?));
                }
                if kind == chunk::NONE {
                    return Err(ClientError::Protocol("an empty chunk that is not the last"));
                }
            }
        }
    }
}

fn simple(
    reader: &mut dyn Read,
    is_structured: bool,
    error: u32,
    expected: Expected,
) -> Result<Result<Answer, Failure>, ClientError> {
    let needs_chunks = matches!(expected.kind, command::READ | command::BLOCK_STATUS);
    if is_structured && needs_chunks {
        return Err(ClientError::Protocol("a simple reply to a read"));
    }
    if error != 0 {
        return Ok(Err(Failure::new(error, "the server gives no reason")));
    }
    let mut data = Vec::new();
    if expected.kind == command::READ {
        data.resize(expected.length as usize, 0);
        reader.read_exact(&mut data)?;
    }
    Ok(Ok(Answer::Data(data)))
}

impl Begun {
    /// Reads the rest of a chunk.
    fn add(
        &mut self,
        reader: &mut dyn Read,
        kind: u16,
        expected: Expected,
    ) -> Result<(), ClientError> {
        let mut length = [0; 4];
        reader.read_exact(&mut length)?;
        let length = u32::from_be_bytes(length);
        match (kind, expected.kind) {
            (chunk::NONE, _) if length == 0 => Ok(()),
            (chunk::OFFSET_DATA, command::READ) if length >= 9 => {
                let mut offset = [0; 8];
                reader.read_exact(&mut offset)?;
                let range = self.cover(u64::from_be_bytes(offset), length - 8, expected)?;
                Ok(reader.read_exact(range)?)
            }
            (chunk::OFFSET_HOLE, command::READ) if length == 12 => {
                let payload = payload(reader, length, length)?;
                let mut fields = Fields::new(&payload);
                let (Some(offset), Some(size)) = (fields.u64(), fields.u32()) else {
                    return Err(ClientError::Protocol("a malformed hole"));
                };
                self.cover(offset, size, expected)?.fill(0);
                Ok(())
            }
            (chunk::BLOCK_STATUS, command::BLOCK_STATUS) => {
                let payload = payload(reader, length, LONGEST_STATUS)?;
                let runs = status(&payload, expected.context);
                let is_first = self.runs.is_empty();
                self.runs = runs
                    .filter(|_| is_first)
                    .ok_or(ClientError::Protocol("a malformed status"))?;
                Ok(())
            }
            (kind, _) if kind & chunk::ERR != 0 => {
                let payload = payload(reader, length, LONGEST_ERROR)?;
                let failure = failure(&payload);
                self.failure = Some(failure.ok_or(ClientError::Protocol("a malformed error"))?);
                Ok(())
            }
            _ => Err(ClientError::Protocol("an unexpected chunk")),
        }
    }

    /// The place for data of a read. Fails where it was there before, or was not asked for.
    fn cover(
        &mut self,
        offset: u64,
        size: u32,
        expected: Expected,
    ) -> Result<&mut [u8], ClientError> {
        let wrong = ClientError::Protocol("data that were not asked for, or twice");
        let start = offset.checked_sub(expected.offset);
        let range = start.and_then(|start| Some((start, start.checked_add(u64::from(size))?)));
        let Some((start, end)) = range.filter(|(_, end)| *end <= u64::from(expected.length)) else {
            return Err(wrong);
        };
        let before = self.ranges.range(..end).next_back();
        if size == 0 || before.is_some_and(|(_, before)| *before > start) {
            return Err(wrong);
        }
        self.ranges.insert(start, end);
        self.data.resize(expected.length as usize, 0);
        self.data.get_mut(start as usize..end as usize).ok_or(wrong)
    }

    fn end(self, expected: Expected) -> Result<Result<Answer, Failure>, ClientError> {
        if let Some(failure) = self.failure {
            return Ok(Err(failure));
        }
        let covered: u64 = self.ranges.iter().map(|(start, end)| end - start).sum();
        match expected.kind {
            command::READ if covered != u64::from(expected.length) => {
                Err(ClientError::Protocol("data are missing"))
            }
            command::BLOCK_STATUS if self.runs.is_empty() => {
                Err(ClientError::Protocol("the status is missing"))
            }
            command::BLOCK_STATUS => Ok(Ok(Answer::Runs(self.runs))),
            _ => Ok(Ok(Answer::Data(self.data))),
        }
    }
}

fn payload(reader: &mut dyn Read, length: u32, most: u32) -> Result<Vec<u8>, ClientError> {
    if length > most {
        return Err(ClientError::Protocol("a chunk that is too long"));
    }
    let mut payload = vec![0; length as usize];
    reader.read_exact(&mut payload)?;
    Ok(payload)
}

fn status(payload: &[u8], context: Option<u32>) -> Option<Vec<Run>> {
    let mut fields = Fields::new(payload);
    if fields.u32() != context {
        return None;
    }
    let mut runs = Vec::new();
    while !fields.rest().is_empty() {
        let length = u64::from(fields.u32()?);
        let is_hole = fields.u32()? & HOLE_AND_ZERO == HOLE_AND_ZERO;
        if length == 0 {
            return None;
        }
        runs.push(Run { length, is_hole });
    }
    Some(runs)
}

fn failure(payload: &[u8]) -> Option<Failure> {
    let mut fields = Fields::new(payload);
    let errno = fields.u32()?;
    let length = fields.u16()?;
    let text = String::from_utf8_lossy(fields.bytes(usize::from(length))?);
    Some(Failure::new(errno, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: Expected = Expected {
        kind: command::READ,
        offset: 100,
        length: 10,
        context: None,
    };

    fn chunk(flags: u16, kind: u16, payload: &[u8]) -> Vec<u8> {
        let mut out = super::super::protocol::CHUNK_MAGIC.to_be_bytes().to_vec();
        out.extend_from_slice(&flags.to_be_bytes());
        out.extend_from_slice(&kind.to_be_bytes());
        out.extend_from_slice(&7_u64.to_be_bytes());
        out.extend_from_slice(&u32::try_from(payload.len()).unwrap().to_be_bytes());
        out.extend_from_slice(payload);
        out
    }

    fn data(flags: u16, offset: u64, data: &[u8]) -> Vec<u8> {
        let payload = [offset.to_be_bytes().as_slice(), data].concat();
        chunk(flags, chunk::OFFSET_DATA, &payload)
    }

    fn hole(flags: u16, offset: u64, size: u32) -> Vec<u8> {
        let payload = [offset.to_be_bytes().as_slice(), &size.to_be_bytes()].concat();
        chunk(flags, chunk::OFFSET_HOLE, &payload)
    }

    fn read(bytes: &[u8], expected: Expected) -> Result<Result<Answer, Failure>, ClientError> {
        let expect = |cookie| (cookie == 7).then_some(expected);
        let (cookie, result) = read_answer(&mut &bytes[..], true, &mut HashMap::new(), expect)?;
        assert_eq!(cookie, 7);
        Ok(result)
    }

    #[test]
    fn a_read_is_put_together_from_chunks_in_any_order() {
        let bytes = [hole(0, 104, 3), data(0, 107, b"xyz"), data(1, 100, b"abcd")].concat();
        let answer = read(&bytes, READ).unwrap().unwrap();
        assert_eq!(answer, Answer::Data(b"abcd\0\0\0xyz".to_vec()));
        for end in 0..bytes.len() {
            let error = read(&bytes[..end], READ).unwrap_err();
            assert!(
                matches!(error, ClientError::Connection(_)),
                "{end}: {error}"
            );
        }
    }

    #[test]
    fn wrong_chunks_end_the_connection() {
        let wrong = [
            data(1, 100, b"abc"),
            data(1, 99, b"0123456789"),
            data(1, 101, b"0123456789"),
            data(1, u64::MAX, b"0123456789"),
            [data(0, 100, b"01234567"), data(1, 107, b"789")].concat(),
            [hole(0, 102, 8), hole(1, 100, 3)].concat(),
            hole(1, 100, 0),
            hole(1, 100, u32::MAX),
            chunk(0, chunk::NONE, &[]),
            chunk(1, chunk::NONE, &[1]),
            chunk(1, chunk::ERROR, &[0; 5]),
            chunk(1, chunk::ERROR, &[0, 0, 0, 5, 0, 1]),
            chunk(1, chunk::BLOCK_STATUS, &[0; 12]),
            chunk(1, 77, &[]),
            b"0123456789012345".to_vec(),
        ];
        for bytes in wrong {
            let error = read(&bytes, READ).unwrap_err();
            assert!(
                matches!(error, ClientError::Protocol(_)),
                "{bytes:x?}: {error}"
            );
        }
    }

    #[test]
    fn an_error_among_chunks_fails_the_read() {
        let error = chunk(0, chunk::ERROR, b"\0\0\0\x05\0\x03bad");
        let bytes = [error, data(1, 100, b"0123456789")].concat();
        let failure = read(&bytes, READ).unwrap().unwrap_err();
        assert_eq!(failure, Failure::new(5, "bad"));
        let unknown = chunk(1, chunk::ERR | 99, b"\0\0\0\x16\0\0more");
        assert_eq!(read(&unknown, READ).unwrap().unwrap_err().errno, 22);
    }
}

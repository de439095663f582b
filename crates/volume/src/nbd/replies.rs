//! Replies to requests, as a server encodes them.

use super::device::{Failure, MOST_RUNS, Run};
use super::protocol::{
    ALLOCATION_ID, CHUNK_MAGIC, HOLE_AND_ZERO, LONGEST_STRING, SIMPLE_REPLY_MAGIC, chunk,
    length_of, shorten,
};

/// An encoded reply. The data of a read are kept apart, so that they are not copied.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) head: Vec<u8>,
    pub(super) data: Vec<u8>,
}

impl Reply {
    /// The bytes of the encoding.
    pub(super) fn len(&self) -> usize {
        self.head.len() + self.data.len()
    }

    /// The first bytes were sent.
    pub(super) fn skip(&mut self, bytes: usize) {
        let of_head = bytes.min(self.head.len());
        self.head.drain(..of_head);
        let of_data = (bytes - of_head).min(self.data.len());
        if of_data > 0 {
            self.data.drain(..of_data);
        }
    }

    /// Success without data, of any request but a read.
    pub(super) fn success(cookie: u64) -> Reply {
        Reply {
            head: simple(0, cookie),
            data: Vec::new(),
        }
    }

    /// The data of a read, which are not empty where the reply is structured.
    pub(super) fn data(cookie: u64, is_structured: bool, offset: u64, data: Vec<u8>) -> Reply {
        if !is_structured {
            let head = simple(0, cookie);
            return Reply { head, data };
        }
        if data.is_empty() {
            return Reply {
                head: chunk_head(chunk::NONE, cookie, 0),
                data,
            };
        }
        let length = length_of(&data).saturating_add(8);
        let mut head = chunk_head(chunk::OFFSET_DATA, cookie, length);
        head.extend_from_slice(&offset.to_be_bytes());
        Reply { head, data }
    }

    /// A failure; its text is sent where the reply is structured.
    pub(super) fn failure(cookie: u64, is_structured: bool, failure: &Failure) -> Reply {
        let errno = allowed(failure.errno);
        if !is_structured {
            return Reply {
                head: simple(errno, cookie),
                data: Vec::new(),
            };
        }
        let text = shorten(&failure.text, LONGEST_STRING).as_bytes();
        let length = u16::try_from(text.len()).unwrap_or(0);
        let mut head = chunk_head(chunk::ERROR, cookie, 6 + u32::from(length));
        head.extend_from_slice(&errno.to_be_bytes());
        head.extend_from_slice(&length.to_be_bytes());
        head.extend_from_slice(text);
        let data = Vec::new();
        Reply { head, data }
    }

    /// The allocation of a range that was asked for: of `length` bytes, in one descriptor where
    /// `is_one`. Where `runs` say nothing, the whole range counts as allocated.
    pub(super) fn extents(cookie: u64, length: u32, is_one: bool, runs: &[Run]) -> Reply {
        let mut left = u64::from(length);
        let mut merged: Vec<Run> = Vec::new();
        for run in runs.iter().take(MOST_RUNS) {
            let length = run.length.min(left);
            left -= length;
            match merged.last_mut() {
                Some(last) if last.is_hole == run.is_hole => last.length += length,
                _ if length == 0 => {}
                _ => merged.push(Run { length, ..*run }),
            }
        }
        if merged.is_empty() {
            merged.push(Run {
                length: u64::from(length),
                is_hole: false,
            });
        }
        merged.truncate(if is_one { 1 } else { MOST_RUNS });
        let payload = 4 + 8 * u32::try_from(merged.len()).unwrap_or(0);
        let mut head = chunk_head(chunk::BLOCK_STATUS, cookie, payload);
        head.extend_from_slice(&ALLOCATION_ID.to_be_bytes());
        for run in merged {
            let length = u32::try_from(run.length).unwrap_or(length);
            let status = if run.is_hole { HOLE_AND_ZERO } else { 0 };
            head.extend_from_slice(&length.to_be_bytes());
            head.extend_from_slice(&status.to_be_bytes());
        }
        let data = Vec::new();
        Reply { head, data }
    }
}

fn simple(errno: u32, cookie: u64) -> Vec<u8> {
    let mut head = SIMPLE_REPLY_MAGIC.to_be_bytes().to_vec();
    head.extend_from_slice(&errno.to_be_bytes());
    head.extend_from_slice(&cookie.to_be_bytes());
    head
}

/// The head of the only chunk of a reply.
fn chunk_head(kind: u16, cookie: u64, length: u32) -> Vec<u8> {
    let mut head = CHUNK_MAGIC.to_be_bytes().to_vec();
    head.extend_from_slice(&chunk::DONE.to_be_bytes());
    head.extend_from_slice(&kind.to_be_bytes());
    head.extend_from_slice(&cookie.to_be_bytes());
    head.extend_from_slice(&length.to_be_bytes());
    head
}

/// The error number, or the nearest one that the protocol has.
fn allowed(errno: u32) -> u32 {
    const EFBIG: u32 = 27;
    const EROFS: u32 = 30;
    const EDQUOT: u32 = 122;
    match errno {
        Failure::EPERM
        | Failure::EIO
        | Failure::ENOMEM
        | Failure::EINVAL
        | Failure::ENOSPC
        | Failure::EOVERFLOW
        | Failure::ENOTSUP
        | Failure::ESHUTDOWN => errno,
        EFBIG | EDQUOT => Failure::ENOSPC,
        EROFS => Failure::EPERM,
        _ => Failure::EIO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(length: u64, is_hole: bool) -> Run {
        Run { length, is_hole }
    }

    /// The descriptors of a reply of extents.
    fn descriptors(reply: &Reply) -> Vec<(u32, u32)> {
        let number = |at: usize| u32::from_be_bytes(reply.head[at..at + 4].try_into().unwrap());
        assert_eq!(number(16) as usize, reply.head.len() - 20);
        assert_eq!(number(20), ALLOCATION_ID);
        let starts = (24..reply.head.len()).step_by(8);
        starts.map(|at| (number(at), number(at + 4))).collect()
    }

    #[test]
    fn extents_are_cut_to_what_was_asked() {
        let runs = [
            run(0, true),
            run(10, false),
            run(20, false),
            run(1 << 40, true),
        ];
        let reply = Reply::extents(1, 100, false, &runs);
        assert_eq!(descriptors(&reply), [(30, 0), (70, 3)]);
        let reply = Reply::extents(1, 100, true, &runs);
        assert_eq!(descriptors(&reply), [(30, 0)]);
        let reply = Reply::extents(1, u32::MAX, true, &[run(u64::MAX, true)]);
        assert_eq!(descriptors(&reply), [(u32::MAX, 3)]);
        let reply = Reply::extents(1, 100, true, &[]);
        assert_eq!(descriptors(&reply), [(100, 0)]);
        let many: Vec<Run> = (0..10_000).map(|n| run(1, n % 2 == 0)).collect();
        let reply = Reply::extents(1, 10_000, false, &many);
        assert_eq!(descriptors(&reply).len(), MOST_RUNS);
    }

    #[test]
    fn unknown_error_numbers_and_long_texts_are_made_to_fit() {
        for (errno, sent) in [(0, 5), (27, 28), (30, 1), (122, 28), (22, 22), (9999, 5)] {
            let reply = Reply::failure(7, false, &Failure::new(errno, ""));
            assert_eq!(reply.head[4..8], u32::to_be_bytes(sent));
        }
        let reply = Reply::failure(7, true, &Failure::new(5, "ü".repeat(4000) + "\0"));
        assert_eq!(reply.head[24..26], 4096_u16.to_be_bytes());
        assert_eq!(reply.head.len(), 26 + 4096);
    }
}

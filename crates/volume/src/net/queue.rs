//! Frames that wait to be sent.

use std::collections::VecDeque;

use crate::bytes::Bytes;

/// A part of a frame.
#[derive(Debug, Clone)]
pub enum Part {
    /// Bytes of this frame alone.
    Owned(Vec<u8>),
    /// Bytes that several frames have.
    Shared(Bytes),
}

impl From<Vec<u8>> for Part {
    fn from(bytes: Vec<u8>) -> Part {
        Part::Owned(bytes)
    }
}

impl From<Bytes> for Part {
    fn from(bytes: Bytes) -> Part {
        Part::Shared(bytes)
    }
}

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        match self {
            Part::Owned(bytes) => bytes,
            Part::Shared(bytes) => bytes,
        }
    }
}

/// What a frame costs beside its bytes.
const EACH: usize = 64;

/// The bytes that a frame is counted with.
fn cost(frame: &[Part]) -> usize {
    frame
        .iter()
        .fold(EACH, |sum, part| sum.saturating_add(part.as_ref().len()))
}

/// The frames for one connection, in order, up to a limit of bytes.
pub(super) struct Queue {
    frames: VecDeque<Vec<Part>>,
    bytes: usize,
    most: usize,
}

impl Queue {
    pub(super) fn new(most: usize) -> Queue {
        Queue {
            frames: VecDeque::new(),
            bytes: 0,
            most,
        }
    }

    /// Appends a frame; false where there is no room for it.
    pub(super) fn push(&mut self, frame: Vec<Part>) -> bool {
        let bytes = self.bytes.saturating_add(cost(&frame));
        if bytes > self.most {
            return false;
        }
        self.bytes = bytes;
        self.frames.push_back(frame);
        true
    }

    /// Takes the first frames, as many as have `some` bytes together, and at least one.
    pub(super) fn take(&mut self, some: usize) -> Vec<Vec<Part>> {
        let (mut taken, mut bytes) = (Vec::new(), 0);
        while let Some(frame) = self.frames.pop_front() {
            let cost = cost(&frame);
            if !taken.is_empty() && bytes + cost > some {
                self.frames.push_front(frame);
                break;
            }
            bytes += cost;
            taken.push(frame);
        }
        self.bytes -= bytes;
        taken
    }

    /// Drops all frames; how many there were.
    pub(super) fn clear(&mut self) -> u64 {
        self.bytes = 0;
        let count = self.frames.len() as u64;
        self.frames = VecDeque::new();
        count
    }

    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_keeps_its_order_and_its_limit() {
        let mut queue = Queue::new(10 * (100 + EACH));
        let frame = |n: u8| {
            vec![
                Part::from(vec![n; 60]),
                Part::from(Bytes::from(vec![n; 40])),
            ]
        };
        assert!((0..10).all(|n| queue.push(frame(n))));
        assert!(!queue.push(vec![]));
        let first = queue.take(2 * (100 + EACH) + 1);
        let firsts: Vec<u8> = first.iter().map(|frame| frame[0].as_ref()[0]).collect();
        assert_eq!(firsts, [0, 1]);
        assert_eq!(queue.take(1).len(), 1, "at least one");
        assert!((10..13).all(|n| queue.push(frame(n))));
        assert!(!queue.push(vec![]));
        assert_eq!(queue.clear(), 10);
        assert!(queue.is_empty() && queue.push(frame(1)));
    }
}

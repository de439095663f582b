//! Frames that wait to be sent.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::budget::Loan;
use crate::bytes::Bytes;

/// A part of a frame.
#[derive(Debug, Clone)]
pub enum Part {
    /// Bytes of this frame alone.
    Owned(Vec<u8>),
    /// Bytes that several frames have.
    Shared(Bytes),
    /// Such bytes, of which an earlier part has a checksum: that of the frame leaves them out. Only
    /// such parts follow it.
    Checked(Bytes),
    /// Bytes whose memory is lent until they are sent.
    Lent(Arc<(Vec<u8>, Loan)>),
}

impl Part {
    /// Bytes with what is lent for them.
    pub fn lent(bytes: Vec<u8>, loan: Option<Loan>) -> Part {
        match loan {
            Some(loan) => Part::Lent(Arc::new((bytes, loan))),
            None => Part::Owned(bytes),
        }
    }
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
            Part::Shared(bytes) | Part::Checked(bytes) => bytes,
            Part::Lent(lent) => &lent.0,
        }
    }
}

/// What a frame is made of.
pub trait FramePart: AsRef<[u8]> {
    /// True for [`Part::Checked`].
    fn is_checked(&self) -> bool {
        false
    }
}

impl FramePart for Part {
    fn is_checked(&self) -> bool {
        matches!(self, Part::Checked(_))
    }
}

impl FramePart for &[u8] {}

impl FramePart for Vec<u8> {}

/// What a frame costs beside its bytes.
const EACH: usize = 64;

/// The most bytes that wait on one connection, those that others hold, too, included; unless the
/// limit for the others is higher.
const MOST_IN_ALL: usize = 32 << 20;

/// A frame that waits.
struct Waiting {
    frame: Vec<Part>,
    /// Its bytes that nothing else holds, and all of them.
    cost: Cost,
}

#[derive(Clone, Copy, Default)]
struct Cost {
    own: usize,
    all: usize,
}

impl Cost {
    fn of(frame: &[Part]) -> Cost {
        let mut cost = Cost {
            own: EACH,
            all: EACH,
        };
        for part in frame {
            let bytes = part.as_ref().len();
            let is_held =
                matches!(part, Part::Shared(bytes) | Part::Checked(bytes) if bytes.is_held());
            cost.all = cost.all.saturating_add(bytes);
            if !is_held {
                cost.own = cost.own.saturating_add(bytes);
            }
        }
        cost
    }
}

/// The frames for one connection, in order, up to a limit of bytes. Bytes that something else holds
/// as well, a request or the log, are that one's; they have a limit that is looser.
pub(super) struct Queue {
    frames: VecDeque<Waiting>,
    held: Cost,
    most: usize,
}

impl Queue {
    pub(super) fn new(most: usize) -> Queue {
        Queue {
            frames: VecDeque::new(),
            held: Cost::default(),
            most,
        }
    }

    /// Appends a frame; returns it where there is no room for it.
    pub(super) fn push(&mut self, frame: Vec<Part>) -> Result<(), Vec<Part>> {
        let cost = Cost::of(&frame);
        let own = self.held.own.saturating_add(cost.own);
        let all = self.held.all.saturating_add(cost.all);
        if own > self.most || all > self.most.max(MOST_IN_ALL) {
            return Err(frame);
        }
        self.held = Cost { own, all };
        self.frames.push_back(Waiting { frame, cost });
        Ok(())
    }

    /// Another limit, for frames that come from now on.
    pub(super) fn set_most(&mut self, most: usize) {
        self.most = most;
    }

    /// Takes the first frames, as many as have `some` bytes together, and at least one.
    pub(super) fn take(&mut self, some: usize) -> Vec<Vec<Part>> {
        let (mut taken, mut bytes) = (Vec::new(), 0);
        while let Some(Waiting { frame, cost }) = self
            .frames
            .pop_front_if(|next| bytes == 0 || bytes + next.cost.all <= some)
        {
            bytes += cost.all;
            self.held.own -= cost.own;
            self.held.all -= cost.all;
            taken.push(frame);
        }
        taken
    }

    /// Drops all frames; how many there were.
    pub(super) fn clear(&mut self) -> u64 {
        self.held = Cost::default();
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
        assert!((0..10).all(|n| queue.push(frame(n)).is_ok()));
        assert!(queue.push(vec![]).is_err());
        let first = queue.take(2 * (100 + EACH) + 1);
        let firsts: Vec<u8> = first.iter().map(|frame| frame[0].as_ref()[0]).collect();
        assert_eq!(firsts, [0, 1]);
        assert_eq!(queue.take(1).len(), 1, "at least one");
        assert!((10..13).all(|n| queue.push(frame(n)).is_ok()));
        assert!(queue.push(vec![]).is_err());
        assert_eq!(queue.clear(), 10);
        assert!(queue.is_empty() && queue.push(frame(1)).is_ok());
    }

    #[test]
    fn bytes_that_others_hold_are_not_counted_twice() {
        let mut queue = Queue::new(1000 + 12 * EACH);
        let held = Bytes::from(vec![1; 600]);
        for _ in 0..10 {
            assert!(queue.push(vec![Part::from(held.clone())]).is_ok());
        }
        drop(held);
        let alone = || vec![Part::from(Bytes::from(vec![2; 1000]))];
        assert!(queue.push(alone()).is_ok());
        assert!(queue.push(alone()).is_err());
        // What a frame is counted with does not change while it waits.
        assert_eq!(queue.take(usize::MAX).len(), 11);
        assert!(queue.push(alone()).is_ok());
        assert!(queue.push(alone()).is_err());
        let large = Bytes::from(vec![3; 20 << 20]);
        assert!(queue.push(vec![Part::from(large.clone())]).is_ok());
        assert!(queue.push(vec![Part::from(large.clone())]).is_err());
    }
}

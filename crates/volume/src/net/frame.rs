//! Frames on a connection: `u32` length of the payload, `u32` how many of its first bytes the
//! checksum is of, `u64` XXH3 of those, the payload. Bytes behind those have checksums of their own
//! among them. Numbers are little-endian. A damaged or too long frame ends the connection, since
//! what is behind it cannot be trusted.

use std::io::{self, BufRead, BufReader, IoSlice, Read};
use std::time::Duration;

use xxhash_rust::xxh3::Xxh3;

use super::error::Error;
use super::halves::{Closer, ReadHalf, WriteHalf};
use super::queue::{FramePart, Part};

/// The bytes before a payload.
pub const HEADER: usize = 16;

/// The longest payload in bytes, unless a connection has another limit.
pub const DEFAULT_MOST: usize = 4 << 20;

/// The bytes that are read ahead.
const AHEAD: usize = 32 << 10;

/// The bytes of a frame that are waited for with memory at hand: a piece of an image, and what
/// comes with it.
const STEP: usize = 640 << 10;

/// Receives frames.
pub struct Receiver {
    from: BufReader<ReadHalf>,
    most: usize,
}

/// What [`Sender::send_some`] has left.
pub(super) enum Unsent {
    /// The last bytes of the frame; none where it was sent.
    Bytes(Vec<u8>),
    /// Everything.
    Frame(Vec<Part>),
}

/// Sends frames.
pub struct Sender {
    to: WriteHalf,
    most: usize,
}

impl Receiver {
    pub(super) fn new(from: ReadHalf) -> Receiver {
        Receiver {
            from: BufReader::with_capacity(AHEAD, from),
            most: DEFAULT_MOST,
        }
    }

    /// The longest payload in bytes that is received from now on.
    pub fn set_most(&mut self, most: usize) {
        self.most = most;
    }

    /// The longest that `receive` waits for a byte; then it fails with `TimedOut`.
    pub fn set_idle_timeout(&self, longest: Option<Duration>) -> io::Result<()> {
        self.from.get_ref().set_idle_timeout(longest)
    }

    /// Ends the connection from other threads.
    pub fn closer(&self) -> Closer {
        self.from.get_ref().closer()
    }

    /// True where bytes behind the last frame have arrived.
    pub fn has_more(&self) -> bool {
        !self.from.buffer().is_empty() || self.from.get_ref().has_more()
    }

    /// True where the connection has ended, as far as that is known without waiting, and no frame
    /// is left.
    pub fn has_ended(&mut self) -> bool {
        self.from.buffer().is_empty() && self.from.get_mut().has_ended()
    }

    /// Waits for the first byte of a frame. False where the other side has closed the connection.
    /// It fails as `receive`, but the connection is not ended.
    pub(super) fn wait(&mut self) -> io::Result<bool> {
        loop {
            match self.from.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                arrived => return arrived.map(|bytes| !bytes.is_empty()),
            }
        }
    }

    /// Replaces `into` by the next frame's payload. False where the other side has closed the
    /// connection behind a whole frame. After an error the connection is ended.
    pub fn receive(&mut self, into: &mut Vec<u8>) -> io::Result<bool> {
        self.receive_if(into, &mut |_| true)
    }

    /// As [`Receiver::receive`]. `may` is asked before there is memory for so many bytes; where it
    /// says no, that is an error.
    pub fn receive_if(
        &mut self,
        into: &mut Vec<u8>,
        may: &mut dyn FnMut(usize) -> bool,
    ) -> io::Result<bool> {
        let received = self.next(into, may);
        if received.is_err() {
            into.clear();
            self.closer().end();
        }
        received
    }

    fn next(&mut self, into: &mut Vec<u8>, may: &mut dyn FnMut(usize) -> bool) -> io::Result<bool> {
        into.clear();
        let (mut length, mut covered, mut sum) = ([0; 4], [0; 4], [0; 8]);
        let (first, rest) = length.split_at_mut(1);
        if read_some(&mut self.from, first)? == 0 {
            return Ok(false);
        }
        self.from.read_exact(rest)?;
        self.from.read_exact(&mut covered)?;
        self.from.read_exact(&mut sum)?;
        let length = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
        let covered = usize::try_from(u32::from_le_bytes(covered)).unwrap_or(usize::MAX);
        let most = self.most;
        if length > most {
            return Err(Error::TooLong { length, most }.into());
        }
        if !may(length) {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        // Memory grows with what has come: a header alone must not cost much.
        while into.len() < length {
            let from = into.len();
            let upto = length.min(from + from.max(STEP));
            into.reserve_exact(upto - from);
            into.resize(upto, 0);
            self.from
                .read_exact(into.get_mut(from..).unwrap_or_default())?;
        }
        let covered = into.get(..covered).map(crate::command::checksum);
        if covered != Some(u64::from_le_bytes(sum)) {
            return Err(Error::Damaged { length }.into());
        }
        Ok(true)
    }
}

fn read_some(from: &mut impl Read, into: &mut [u8]) -> io::Result<usize> {
    loop {
        match from.read(into) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

impl Sender {
    pub(super) fn new(to: WriteHalf) -> Sender {
        Sender {
            to,
            most: DEFAULT_MOST,
        }
    }

    /// The longest payload in bytes that is sent from now on.
    pub fn set_most(&mut self, most: usize) {
        self.most = most;
    }

    /// How long sent bytes may wait for the other side to take them, and how long its machine may
    /// be away while nothing is sent; then the connection ends.
    pub fn set_stuck_timeout(&self, longest: Duration) -> io::Result<()> {
        self.to.set_stuck_timeout(longest)?;
        self.to.probe_within(longest)
    }

    /// How long the system waits before it probes; `None` where it does not.
    #[cfg(test)]
    pub(super) fn probed_after(&self) -> Option<Duration> {
        self.to.probed_after()
    }

    /// Ends the connection from other threads.
    pub fn closer(&self) -> Closer {
        self.to.closer()
    }

    /// Sends one frame, whose payload is the parts together, in one call of the system unless the
    /// socket is full. A frame that is too long is refused, and nothing is sent; after any other
    /// error the connection is ended.
    pub fn send(&mut self, frame: &[&[u8]]) -> io::Result<()> {
        self.send_all(&[frame])
    }

    /// As [`Sender::send`], for several frames in one call of the system.
    pub fn send_all<F: AsRef<[P]>, P: FramePart>(&mut self, frames: &[F]) -> io::Result<()> {
        let mut headers = Vec::with_capacity(frames.len());
        for frame in frames {
            headers.push(header(frame.as_ref(), self.most)?);
        }
        let mut slices = Vec::with_capacity(frames.len() * 3);
        for (header, frame) in headers.iter().zip(frames) {
            slices.push(IoSlice::new(header));
            let parts = frame.as_ref().iter();
            slices.extend(parts.map(|part| IoSlice::new(part.as_ref())));
        }
        self.to.write_parts(&mut slices)
    }

    /// Sends as much of a frame as the socket takes at once: returns the bytes that are left, none
    /// where all was sent; and the frame where nothing could be.
    pub(super) fn send_some(&mut self, frame: Vec<Part>) -> io::Result<Unsent> {
        let header = header(&frame, self.most)?;
        let mut slices = Vec::with_capacity(frame.len() + 1);
        slices.push(IoSlice::new(&header));
        slices.extend(frame.iter().map(|part| IoSlice::new(part.as_ref())));
        let Some(mut sent) = self.to.write_some(&slices)?.filter(|sent| *sent > 0) else {
            return Ok(Unsent::Frame(frame));
        };
        let mut rest = Vec::new();
        for slice in slices {
            rest.extend_from_slice(slice.get(sent..).unwrap_or_default());
            sent = sent.saturating_sub(slice.len());
        }
        Ok(Unsent::Bytes(rest))
    }

    /// Sends the bytes that [`Sender::send_some`] has left.
    pub(super) fn send_rest(&mut self, rest: &[u8]) -> io::Result<()> {
        self.to.write_parts(&mut [IoSlice::new(rest)])
    }

    /// Says to the other side that no more frames come. Frames of the other side still arrive.
    pub fn close(&mut self) -> io::Result<()> {
        self.to.close()
    }
}

/// The header of a frame.
pub(super) fn header<P: FramePart>(parts: &[P], most: usize) -> Result<[u8; HEADER], Error> {
    let mut sum = Xxh3::new();
    let (mut length, mut covered) = (0_usize, 0_usize);
    for part in parts {
        length += part.as_ref().len();
        if !part.is_checked() {
            debug_assert_eq!(covered + part.as_ref().len(), length, "those come last");
            covered = length;
            sum.update(part.as_ref());
        }
    }
    let short = u32::try_from(length).ok().filter(|_| length <= most);
    let short = short.ok_or(Error::TooLong { length, most })?;
    let covered = u32::try_from(covered).unwrap_or(short);
    let mut header = [0; HEADER];
    let (lengths, last) = header.split_at_mut(8);
    let (first, second) = lengths.split_at_mut(4);
    first.copy_from_slice(&short.to_le_bytes());
    second.copy_from_slice(&covered.to_le_bytes());
    last.copy_from_slice(&sum.digest().to_le_bytes());
    Ok(header)
}

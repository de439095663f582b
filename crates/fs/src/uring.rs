//! Batches of reads through Linux's io_uring.
//!
//! The kernel writes into memory while requests are in flight, so that memory must be neither freed
//! nor accessed before they have ended. Ownership guarantees both: requests only point into the
//! buffer of the [`Ring`] that carries them, a ring's buffer is not touched while a request is in
//! flight, and the buffer of a ring that failed with requests in flight is leaked.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;

use io_uring::{opcode, types};

use crate::Descriptor;
use crate::faults::RingFaults;
use crate::request::{ReadRequest, VisitRead, read_one};
use crate::rings::{ALIGNMENT, DEPTH, Ring, Rings, SPAN};

/// The place of a request's bytes in the buffer.
struct Slot {
    /// The request's position.
    at: usize,
    /// The begin and length of the aligned range in the buffer.
    start: usize,
    len: usize,
    /// Bytes before the requested ones in the aligned range.
    skip: usize,
    /// The offset of the aligned range in the file.
    from: u64,
    /// Bytes read; negative is an error.
    result: i32,
}

/// Reads all requests; false when io_uring is unavailable and nothing was read.
pub(crate) fn read_many(requests: &[ReadRequest<'_>], visit: &mut VisitRead<'_>) -> bool {
    let mut descriptors = requests.iter().filter_map(|read| read.file.descriptor());
    let Some(Descriptor { rings, .. }) = descriptors.next() else {
        return false;
    };
    let Some(mut ring) = rings.take() else {
        return false;
    };
    let mut slots: Vec<Slot> = Vec::with_capacity(requests.len().min(DEPTH));
    let mut filled = 0;
    let mut intact = true;
    for (at, request) in requests.iter().enumerate() {
        let descriptor = request.file.descriptor();
        let Some(descriptor) = descriptor.filter(|own| std::ptr::eq(own.rings, rings)) else {
            read_one(at, request, visit);
            continue;
        };
        let alignment = descriptor.alignment.clamp(1, ALIGNMENT);
        let offset = descriptor.base.saturating_add(request.offset);
        let skip = (offset % alignment as u64) as usize;
        let len = (skip + request.len).next_multiple_of(alignment);
        if slots.len() == DEPTH || (filled > 0 && filled + len > SPAN) {
            intact = rings.run(&mut ring, requests, &mut slots, visit);
            filled = 0;
            if !intact {
                // The remaining requests are plain reads.
                for (at, request) in requests.iter().enumerate().skip(at) {
                    read_one(at, request, visit);
                }
                break;
            }
        }
        slots.push(Slot {
            at,
            start: filled,
            len,
            skip,
            from: offset - skip as u64,
            result: -1,
        });
        filled += len.next_multiple_of(ALIGNMENT);
    }
    if intact && rings.run(&mut ring, requests, &mut slots, visit) {
        rings.return_memory(ring);
    }
    true
}

impl Rings {
    /// Reads the slots' requests and visits them; leaves no slot. False when the ring must not be
    /// used again (it is leaked then).
    fn run(
        &self,
        ring: &mut Ring,
        requests: &[ReadRequest<'_>],
        slots: &mut Vec<Slot>,
        visit: &mut VisitRead<'_>,
    ) -> bool {
        let intact = ring
            .transfer(requests, slots, self.faults.as_deref())
            .is_ok();
        if !intact {
            // The kernel may still write to the old buffer: it is leaked. No further ring is set
            // up.
            self.refused.store(true, Ordering::Relaxed);
            std::mem::forget(std::mem::take(&mut ring.buffer));
        }
        let base = ring.base();
        for slot in slots.drain(..) {
            let Some(request) = requests.get(slot.at) else {
                continue;
            };
            let wanted = slot.skip + request.len;
            let from = base + slot.start;
            match ring.buffer.get(from + slot.skip..from + wanted) {
                Some(bytes)
                    if intact && usize::try_from(slot.result).is_ok_and(|n| n >= wanted) =>
                {
                    visit(slot.at, Ok(bytes));
                }
                // Refused, interrupted or short: a plain read returns the proper error.
                _ => read_one(slot.at, request, visit),
            }
        }
        intact
    }
}

impl Ring {
    /// The begin of the buffer's aligned part.
    fn base(&self) -> usize {
        self.buffer.as_ptr().align_offset(ALIGNMENT)
    }

    /// Lets the kernel fill the slots; returns when no request is in flight, or with an error when
    /// that is unknown.
    fn transfer(
        &mut self,
        requests: &[ReadRequest<'_>],
        slots: &mut [Slot],
        faults: Option<&dyn RingFaults>,
    ) -> io::Result<()> {
        let Some(last) = slots.last() else {
            return Ok(());
        };
        let room = last.start + last.len + ALIGNMENT;
        if self.buffer.len() < room {
            self.buffer = vec![0; room];
        }
        let base = self.base();
        let mut queued = 0;
        for (n, slot) in slots.iter().enumerate() {
            let Some(request) = requests.get(slot.at) else {
                continue;
            };
            let (Some(descriptor), Some(piece)) = (
                request.file.descriptor(),
                self.buffer
                    .get_mut(base + slot.start..base + slot.start + slot.len),
            ) else {
                continue;
            };
            let fd = types::Fd(descriptor.file.as_raw_fd());
            let entry = opcode::Read::new(fd, piece.as_mut_ptr(), piece.len() as u32)
                .offset(slot.from)
                .build()
                .user_data(n as u64);
            // SAFETY: the range lies in `self.buffer`, which is neither moved, freed nor accessed
            // before all requests in flight have ended (the loop below), and leaked if that fails;
            // ranges of different slots do not overlap. The file is borrowed by the caller until
            // then, so its descriptor stays open.
            let pushed = unsafe { self.uring.submission().push(&entry) };
            queued += usize::from(pushed.is_ok());
        }
        let mut ended = 0;
        while ended < queued {
            match self.uring.submit_and_wait(queued - ended) {
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
            if let Some(fault) = faults.and_then(RingFaults::lose) {
                return Err(io::Error::from_raw_os_error(fault));
            }
            for completion in self.uring.completion() {
                ended += 1;
                if let Some(slot) = slots.get_mut(completion.user_data() as usize) {
                    let result = completion.result();
                    slot.result = faults.map_or(result, |faults| faults.end(result));
                }
            }
        }
        Ok(())
    }
}

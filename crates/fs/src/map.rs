//! Files of the operating system as memory, on Linux.
//!
//! The memory is read-only and belongs to the map until it is dropped, so a reference to it is good
//! for as long as the map is borrowed. What the type system cannot see is the file behind it:
//!
//! - **The bytes must not change.** Files are written once and then immutable (the rule of this
//!   crate), and a map is made of a finished file only.
//! - **The file must not become shorter.** The engine removes names and never truncates a file that
//!   it maps. Where others could truncate it, the file is not mapped: on file systems that other
//!   machines write to, and where any user may write to the file ([`is_ours`]).
//! - **An I/O error cannot be returned.** Where the kernel cannot read a page, the access ends with
//!   SIGBUS, which ends the process unless the program handles it. This crate installs no handler.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::ptr::NonNull;

use rustix::fs::fstatfs;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use crate::Mapped;

/// The bytes of a file, mapped.
pub(crate) struct Map {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory is only read, from its creation on until the map is dropped.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

/// File systems that other machines write to: NFS, SMB (three numbers), FUSE, 9P, Ceph, AFS (two),
/// OCFS2, GFS2, Lustre.
const SHARED: [u32; 12] = [
    0x6969,
    0x517b,
    0xff53_4d42,
    0xfe53_4d42,
    0x6573_5546,
    0x0102_1997,
    0x00c3_6400,
    0x5346_414f,
    0x6b41_4653,
    0x7461_636f,
    0x0116_1970,
    0x0bd0_0bd0,
];

/// Write permission for all users.
const OTHERS_WRITE: u32 = 0o002;

/// False where others may truncate the file while it is mapped.
fn is_ours(file: &File) -> io::Result<bool> {
    let kind = fstatfs(file)?.f_type as u32;
    Ok(!SHARED.contains(&kind) && file.metadata()?.mode() & OTHERS_WRITE == 0)
}

impl Map {
    /// Maps all of a file that is finished. `None` where others may truncate it, or it has no
    /// bytes.
    pub(crate) fn new(file: &File) -> io::Result<Option<Map>> {
        let len = usize::try_from(file.metadata()?.len()).unwrap_or(0);
        if len == 0 || !is_ours(file)? {
            return Ok(None);
        }
        // SAFETY: a new range of the address space is asked for, so no memory of the program is
        // replaced.
        let start = unsafe {
            let (read, shared) = (ProtFlags::READ, MapFlags::SHARED);
            mmap(std::ptr::null_mut(), len, read, shared, file, 0)
        }?;
        let Some(start) = NonNull::new(start.cast()) else {
            return Ok(None);
        };
        let map = Map { start, len };
        // Point reads fetch the page that they need; who reads in order says so (`will_need`).
        map.advise(0..len, Advice::Random);
        Ok(Some(map))
    }

    fn advise(&self, range: Range<usize>, advice: Advice) {
        let start = self.start.as_ptr().wrapping_add(range.start);
        // SAFETY: the range lies in the map, whose contents the advice does not change: neither
        // `Random` nor `WillNeed` drops or alters a page. A hint that is refused changes nothing.
        let _ = unsafe { madvise(start.cast(), range.len(), advice) };
    }
}

impl AsRef<[u8]> for Map {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        // SAFETY: `start` and `len` are those of a mapping that lives as long as `self`; it is
        // readable, aligned for bytes, shorter than the address space, and not written to (the
        // head of this file).
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl Mapped for Map {
    #[inline]
    fn touch(&self, range: Range<u64>) -> io::Result<&[u8]> {
        crate::traits::part(self.as_ref(), range)
    }

    fn will_need(&self, range: Range<u64>) {
        const PAGE: u64 = 4096;
        let end = range.end.min(self.len as u64);
        // Advice begins with a page. With larger pages than this it may be refused.
        let start = range.start / PAGE * PAGE;
        // A single page is read by the access itself.
        if start.saturating_add(PAGE) < end {
            self.advise(start as usize..end as usize, Advice::WillNeed);
        }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the range is that of the mapping, and what was borrowed from `self` is gone.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}

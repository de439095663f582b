//! A bump allocator whose memory is freed all at once.
//!
//! Chunks start at 1 KiB, because most trees of a group hold next to nothing, and grow with the
//! arena up to 1 MiB. An allocation that is large for a shared chunk gets one of its own, of
//! exactly its size; so less than a quarter of a full chunk is unused, and usually next to nothing.
//!
//! A shared chunk is allocated from both ends: what searches read from the front, and what they
//! skip from the back, so that the former lies close together in caches and pages.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// The alignment of allocations from the front, in bytes.
pub(super) const ALIGN: usize = 8;

const SMALLEST_CHUNK: usize = 1 << 10;
const LARGEST_CHUNK: usize = 1 << 20;

/// A bump allocator. Allocations live as long as the arena does; they are not dropped.
pub(super) struct Arena {
    chunks: Vec<(NonNull<u8>, Layout)>,
    /// The unused middle of the newest shared chunk.
    free: NonNull<u8>,
    free_len: usize,
    memory: usize,
}

// SAFETY: the arena owns its chunks as a Vec<Vec<u8>> would; nothing in it is bound to a thread.
unsafe impl Send for Arena {}

impl Arena {
    pub(super) fn new() -> Arena {
        Arena {
            chunks: Vec::new(),
            free: NonNull::dangling(),
            free_len: 0,
            memory: 0,
        }
    }

    /// Bytes obtained from the allocator.
    pub(super) fn memory(&self) -> usize {
        self.memory
    }

    /// Allocates `size` uninitialised bytes, aligned to [`ALIGN`] and exclusive.
    ///
    /// # Panics
    /// When `size` is near `isize::MAX`.
    #[inline]
    pub(super) fn front(&mut self, size: usize) -> NonNull<u8> {
        assert!(size <= isize::MAX as usize - LARGEST_CHUNK);
        let size = size.next_multiple_of(ALIGN);
        if size > self.free_len
            && let Some(own) = self.grow(size)
        {
            return own;
        }
        let piece = self.free;
        // SAFETY: `free` starts a run of `free_len` bytes of one chunk, and `size <= free_len`.
        self.free = unsafe { piece.add(size) };
        self.free_len -= size;
        piece
    }

    /// Allocates `size` uninitialised bytes, unaligned and exclusive.
    ///
    /// # Panics
    /// When `size` is near `isize::MAX`.
    #[inline]
    pub(super) fn back(&mut self, size: usize) -> NonNull<u8> {
        assert!(size <= isize::MAX as usize - LARGEST_CHUNK);
        if size > self.free_len
            && let Some(own) = self.grow(size)
        {
            return own;
        }
        self.free_len -= size;
        // SAFETY: `free` starts a run of bytes of one chunk, of which `free_len + size` are left.
        unsafe { self.free.add(self.free_len) }
    }

    /// A chunk for one allocation of `size` bytes; or `None`, after starting a shared chunk that
    /// has room for it.
    #[cold]
    fn grow(&mut self, size: usize) -> Option<NonNull<u8>> {
        // As large as the arena so far: the chunks double, whether or not they are shared.
        let shared = self.memory.clamp(SMALLEST_CHUNK, LARGEST_CHUNK);
        let shared = shared.next_power_of_two();
        if size > shared / 4 {
            return Some(self.obtain(size));
        }
        self.free = self.obtain(shared);
        self.free_len = shared;
        None
    }

    /// A new chunk of `size` bytes, which must be more than 0.
    fn obtain(&mut self, size: usize) -> NonNull<u8> {
        debug_assert!(size > 0);
        // SAFETY: ALIGN is a power of two, and callers keep sizes well under isize::MAX.
        let layout = unsafe { Layout::from_size_align_unchecked(size, ALIGN) };
        // SAFETY: the layout's size is not 0: allocations that do not fit `free_len` are not empty.
        let Some(chunk) = NonNull::new(unsafe { alloc(layout) }) else {
            handle_alloc_error(layout);
        };
        self.chunks.push((chunk, layout));
        self.memory += size;
        chunk
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        for (chunk, layout) in self.chunks.drain(..) {
            // SAFETY: `obtain` got the chunk from `alloc` with this layout, and it is freed once.
            unsafe { dealloc(chunk.as_ptr(), layout) };
        }
    }
}

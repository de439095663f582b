//! A range of a file, read as if it were a file of its own.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::traits::part;
use crate::{Descriptor, Mapped, ReadFile};

/// `len` bytes of a file from `base` on. Offsets are relative to `base`; nothing beyond the range
/// is read, and a file that ends before the range makes it shorter.
pub struct Extent {
    file: Arc<dyn ReadFile>,
    base: u64,
    len: u64,
}

impl Extent {
    /// The range of `len` bytes of `file` that begins at `base`.
    pub fn new(file: Arc<dyn ReadFile>, base: u64, len: u64) -> Extent {
        Extent { file, base, len }
    }
}

impl ReadFile for Extent {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let inside = offset.checked_add(buf.len() as u64);
        if inside.is_none_or(|end| end > self.len) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.file.read_at(self.base.saturating_add(offset), buf)
    }

    fn len(&self) -> io::Result<u64> {
        let rest = self.file.len()?.saturating_sub(self.base);
        Ok(rest.min(self.len))
    }

    fn descriptor(&self) -> Option<Descriptor<'_>> {
        let whole = self.file.descriptor()?;
        Some(Descriptor {
            base: whole.base.saturating_add(self.base),
            ..whole
        })
    }
    fn map(&self) -> Option<Arc<dyn Mapped>> {
        Some(Arc::new(MappedExtent {
            whole: self.file.map()?,
            base: self.base,
            len: self.len,
        }))
    }
}

/// A range of a mapped file.
struct MappedExtent {
    whole: Arc<dyn Mapped>,
    base: u64,
    len: u64,
}

impl MappedExtent {
    /// The range in the whole file.
    fn in_whole(&self, range: Range<u64>) -> Range<u64> {
        self.base.saturating_add(range.start)..self.base.saturating_add(range.end)
    }
}

impl AsRef<[u8]> for MappedExtent {
    fn as_ref(&self) -> &[u8] {
        let whole = (*self.whole).as_ref();
        let end = self.base.saturating_add(self.len).min(whole.len() as u64);
        part(whole, self.base.min(end)..end).unwrap_or_default()
    }
}

impl Mapped for MappedExtent {
    fn touch(&self, range: Range<u64>) -> io::Result<&[u8]> {
        if range.end > self.len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.whole.touch(self.in_whole(range))
    }

    fn will_need(&self, range: Range<u64>) {
        self.whole.will_need(self.in_whole(range));
    }
}

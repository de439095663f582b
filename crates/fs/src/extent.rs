//! A range of a file, read as if it were a file of its own.

use std::io;
use std::sync::Arc;

use crate::{Descriptor, ReadFile};

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
}

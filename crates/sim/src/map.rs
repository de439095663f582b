//! A file in memory as a map: what is changed in the file shows in the map, as with one of the
//! operating system, so that a test can damage a file that is mapped.

use std::io;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use esker_fs::Mapped;

/// The bytes of a file.
pub trait Source: Send + Sync {
    /// Shows the bytes.
    fn with(&self, see: &mut dyn FnMut(&[u8]));
}

/// A map of a file. It keeps a copy for each change that it has seen, since bytes that were shown
/// stay borrowed.
pub struct Map {
    file: Arc<dyn Source>,
    first: Copied,
}

/// The bytes of the file at a time, and those after the next change that was seen.
struct Copied {
    bytes: Vec<u8>,
    next: OnceLock<Box<Copied>>,
}

impl Map {
    /// A map of the file.
    pub fn new(file: Arc<dyn Source>) -> Map {
        let mut first = Copied::of(&[]);
        file.with(&mut |bytes| first = Copied::of(bytes));
        Map { file, first }
    }

    fn newest(&self) -> &Copied {
        let mut newest = &self.first;
        while let Some(next) = newest.next.get() {
            newest = next;
        }
        newest
    }
}

impl Copied {
    fn of(bytes: &[u8]) -> Copied {
        Copied {
            bytes: bytes.to_vec(),
            next: OnceLock::new(),
        }
    }

    fn part(&self, range: &Range<u64>) -> Option<&[u8]> {
        part(&self.bytes, range)
    }
}

fn part<'b>(bytes: &'b [u8], range: &Range<u64>) -> Option<&'b [u8]> {
    let at = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX);
    bytes.get(at(range.start)..at(range.end))
}

impl AsRef<[u8]> for Map {
    fn as_ref(&self) -> &[u8] {
        &self.newest().bytes
    }
}

impl Mapped for Map {
    fn touch(&self, range: Range<u64>) -> io::Result<&[u8]> {
        let mut newest = self.newest();
        loop {
            let mut changed = None;
            self.file.with(&mut |bytes| {
                if part(bytes, &range) != newest.part(&range) {
                    changed = Some(Copied::of(bytes));
                }
            });
            let Some(changed) = changed else {
                let part = newest.part(&range);
                return part.ok_or_else(|| io::ErrorKind::UnexpectedEof.into());
            };
            // Another thread may have seen a change, too: then this compares again.
            newest = newest.next.get_or_init(|| Box::new(changed));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use esker_fs::Fs;

    use crate::memory::Memory;

    #[test]
    fn a_map_shows_what_is_changed_and_outlives_the_name() {
        let fs = Memory::new();
        let path = Path::new("/file");
        fs.write(path, b"0123456789");
        let map = fs.open(path).unwrap().map().unwrap();
        let before = map.touch(2..5).unwrap();
        fs.write(path, b"01x3456789");
        assert_eq!(map.touch(2..5).unwrap(), b"x34");
        assert_eq!((before, (*map).as_ref()), (&b"234"[..], &b"01x3456789"[..]));
        fs.write(path, b"01");
        let cut = map.touch(0..3).map_err(|error| error.kind());
        assert_eq!(cut, Err(std::io::ErrorKind::UnexpectedEof));
        assert_eq!(map.touch(0..2).unwrap(), b"01");
        fs.remove(path).unwrap();
        assert_eq!(map.touch(0..2).unwrap(), b"01");
    }
}

//! The framing of a table file: header, footer, and sealed blocks. All integers little-endian.
//!
//! ```text
//! header   magic "ESKERTBL", version u32, zero u32, file number u64,
//!          xxh3 of the 24 bytes before u64
//! blocks   payload, type u8 (0 raw, 1 LZ4), checksum u32
//! footer   top-level index handle, properties handle (offset u64, stored u32, raw u32 each),
//!          file number u64, version u32, zero u32, xxh3 of the 48 bytes before u64, magic
//! ```
//!
//! A block's checksum is the low half of the xxh3 of payload and type, seeded with the file's
//! number and the block's offset, so that a misplaced block is detected like a flipped bit.

use std::path::Path;

use lzzzz::lz4;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::coding::{Own, Reader, put_varint};
use crate::entry::MAX_VALUE_LEN;
use crate::error::{Error, Result};

/// First and last bytes of a table.
const MAGIC: &[u8; 8] = b"ESKERTBL";
/// The format of a table without a digest.
pub(super) const PLAIN: u32 = 1;
/// The format of a table with a digest.
pub(super) const WITH_DIGEST: u32 = 2;
/// The newest format that this build reads.
const VERSION: u32 = WITH_DIGEST;
/// Bytes of the header.
pub(super) const HEADER_LEN: usize = 32;
/// Bytes of the footer.
pub(super) const FOOTER_LEN: usize = 64;
/// Bytes behind a block's payload: type and checksum.
pub(super) const TRAILER_LEN: usize = 5;
/// The longest block before compression: the longest value, its key, and their frame.
pub(super) const MAX_BLOCK_LEN: usize = MAX_VALUE_LEN + (1 << 20);

const RAW: u8 = 0;
const LZ4: u8 = 1;

/// The compressor's effort: its default.
const ACCELERATION: i32 = lz4::ACC_LEVEL_DEFAULT;

/// The location of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Handle {
    /// The offset of the payload in the file.
    pub(super) offset: u64,
    /// Bytes of the payload as stored; the trailer comes on top.
    pub(super) stored: u32,
    /// Bytes of the payload when expanded.
    pub(super) raw: u32,
}

impl Handle {
    /// No block: offset 0 is the header.
    pub(super) const NONE: Handle = Handle {
        offset: 0,
        stored: 0,
        raw: 0,
    };

    /// Bytes in the file, trailer included.
    pub(super) fn sealed_len(&self) -> usize {
        self.stored as usize + TRAILER_LEN
    }

    /// True when the lengths are those of a payload without compression, which is never longer
    /// when compressed.
    #[inline]
    pub(super) fn is_stored_raw(&self) -> bool {
        self.stored == self.raw
    }

    /// Where the next block begins.
    pub(super) fn end(&self) -> u64 {
        self.offset.saturating_add(self.sealed_len() as u64)
    }

    /// The error of a handle in a file of `size` bytes. Checked before any allocation.
    #[inline]
    pub(super) fn check(&self, size: u64) -> std::result::Result<(), &'static str> {
        let (stored, raw) = (self.stored as usize, self.raw as usize);
        if self.offset < HEADER_LEN as u64 || self.end() > size.saturating_sub(FOOTER_LEN as u64) {
            return Err("a block handle points outside of the file");
        }
        if raw > MAX_BLOCK_LEN || raw > stored.saturating_mul(255).saturating_add(64) {
            return Err("a block handle claims an impossible length");
        }
        Ok(())
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.offset);
        put_varint(out, u64::from(self.stored));
        put_varint(out, u64::from(self.raw));
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Option<Handle> {
        Some(Handle {
            offset: reader.varint()?,
            stored: reader.varint()?.try_into().ok()?,
            raw: reader.varint()?.try_into().ok()?,
        })
    }

    pub(super) fn put_fixed(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.offset.to_le_bytes());
        out.extend_from_slice(&self.stored.to_le_bytes());
        out.extend_from_slice(&self.raw.to_le_bytes());
    }

    #[inline]
    pub(super) fn read_fixed(reader: &mut Reader<'_>) -> Option<Handle> {
        Some(Handle {
            offset: reader.u64()?,
            stored: reader.u32()?,
            raw: reader.u32()?,
        })
    }
}

/// The header of table `number`.
pub(super) fn header(number: u64, version: u32) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER_LEN);
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&version.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&number.to_le_bytes());
    let sum = xxh3_64(&out);
    out.extend_from_slice(&sum.to_le_bytes());
    out
}

/// Checks the header of table `number`, which begins at `offset`. Returns its format.
pub(super) fn check_header(
    bytes: &[u8; HEADER_LEN],
    path: &Path,
    number: u64,
    offset: u64,
) -> Result<u32> {
    let damaged = |what: &str| Error::corruption(path, offset, what);
    let parse = || {
        let mut reader = Reader::new(bytes);
        let magic = reader.take(8)?;
        let version = reader.u32()?;
        reader.u32()?;
        Some((magic, version, reader.u64()?, reader.u64()?))
    };
    let (magic, version, found, sum) = parse().ok_or_else(|| damaged("the header is short"))?;
    if magic != MAGIC {
        return Err(damaged("this is not a table: wrong magic number"));
    }
    if sum != xxh3_64(bytes.split_at(HEADER_LEN - 8).0) {
        return Err(damaged("the header's checksum does not match"));
    }
    check_version(version, path, offset)?;
    check_number(found, number, path, offset)?;
    Ok(version)
}

fn check_version(found: u32, path: &Path, offset: u64) -> Result<()> {
    match found {
        PLAIN..=VERSION => Ok(()),
        0 => Err(Error::corruption(path, offset, "format version 0")),
        _ => Err(Error::NewerFormat {
            path: path.to_path_buf(),
            found,
            supported: VERSION,
        }),
    }
}

fn check_number(found: u64, number: u64, path: &Path, offset: u64) -> Result<()> {
    if found == number {
        return Ok(());
    }
    Err(Error::corruption(
        path,
        offset,
        format!("this is table {found}, not table {number}"),
    ))
}

/// The locations of the two blocks from which a table is read, and its format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Footer {
    pub(super) top: Handle,
    pub(super) properties: Handle,
    pub(super) version: u32,
}

impl Footer {
    pub(super) fn encode(&self, number: u64) -> Vec<u8> {
        let mut out = Vec::with_capacity(FOOTER_LEN);
        self.top.put_fixed(&mut out);
        self.properties.put_fixed(&mut out);
        out.extend_from_slice(&number.to_le_bytes());
        out.extend_from_slice(&self.version.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        let sum = xxh3_64(&out);
        out.extend_from_slice(&sum.to_le_bytes());
        out.extend_from_slice(MAGIC);
        out
    }

    /// Reads and checks the footer of table `number`, which begins at `offset`.
    pub(super) fn decode(
        bytes: &[u8; FOOTER_LEN],
        path: &Path,
        number: u64,
        offset: u64,
    ) -> Result<Footer> {
        let damaged = |what: &str| Error::corruption(path, offset, what);
        let parse = || {
            let mut reader = Reader::new(bytes);
            let top = Handle::read_fixed(&mut reader)?;
            let properties = Handle::read_fixed(&mut reader)?;
            let (found, version) = (reader.u64()?, reader.u32()?);
            reader.u32()?;
            let sum = reader.u64()?;
            let footer = Footer {
                top,
                properties,
                version,
            };
            Some((footer, found, sum, reader.rest()))
        };
        let (footer, found, sum, magic) = parse().ok_or_else(|| damaged("the footer is short"))?;
        if magic != MAGIC {
            return Err(damaged(
                "the end of the table is missing: wrong magic number",
            ));
        }
        if sum != xxh3_64(bytes.split_at(FOOTER_LEN - 16).0) {
            return Err(damaged("the footer's checksum does not match"));
        }
        check_version(footer.version, path, offset)?;
        check_number(found, number, path, offset)?;
        Ok(footer)
    }
}

/// The checksum of a block's payload and type.
#[inline]
pub(super) fn checksum(payload_and_type: &[u8], number: u64, offset: u64) -> u32 {
    let seed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ offset;
    xxh3_64_with_seed(payload_and_type, seed) as u32
}

/// Compresses and seals blocks, reusing its buffer.
#[derive(Default)]
pub(super) struct Sealer {
    scratch: Vec<u8>,
}

impl Sealer {
    /// Appends `payload` to `out` as the block at `offset` of file `number`. Compressed only where
    /// that saves an eighth: a smaller saving is not worth decompressing on every read.
    pub(super) fn seal(
        &mut self,
        out: &mut Vec<u8>,
        payload: &[u8],
        compress: bool,
        number: u64,
        offset: u64,
    ) -> Handle {
        let start = out.len();
        let packed = if compress { self.pack(payload) } else { None };
        match packed {
            Some(packed) => {
                out.extend_from_slice(packed);
                out.push(LZ4);
            }
            None => {
                out.extend_from_slice(payload);
                out.push(RAW);
            }
        }
        let sum = checksum(out.own(start..), number, offset);
        let stored = (out.len() - start - 1) as u32;
        out.extend_from_slice(&sum.to_le_bytes());
        Handle {
            offset,
            stored,
            raw: payload.len() as u32,
        }
    }

    fn pack(&mut self, payload: &[u8]) -> Option<&[u8]> {
        // Where less than an eighth is saved the compressor runs out of space, which has the same
        // result.
        let room = payload.len() - payload.len() / 8;
        if self.scratch.len() < room {
            self.scratch.resize(room, 0);
        }
        let scratch = self.scratch.get_mut(..room)?;
        let packed = lz4::compress(payload, scratch, ACCELERATION).ok()?;
        self.scratch
            .get(..packed)
            .filter(|packed| !packed.is_empty())
    }
}

/// How a sealed block's payload is stored.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Packing {
    Raw,
    Lz4,
}

/// Verifies a sealed block (payload and trailer) against its handle, and returns its packing.
#[inline]
pub(super) fn unseal(
    sealed: &[u8],
    handle: Handle,
    number: u64,
) -> std::result::Result<Packing, &'static str> {
    const MISMATCH: &str = "a block's checksum does not match";
    let (body, sum) = sealed.split_last_chunk::<4>().ok_or(MISMATCH)?;
    if body.len() != handle.stored as usize + 1
        || checksum(body, number, handle.offset) != u32::from_le_bytes(*sum)
    {
        return Err(MISMATCH);
    }
    match body.last() {
        Some(&RAW) if handle.raw == handle.stored => Ok(Packing::Raw),
        Some(&LZ4) => Ok(Packing::Lz4),
        Some(&RAW) => Err("a block's length does not match its handle"),
        _ => Err("a block has an unknown type"),
    }
}

/// Decompresses the payload of a verified sealed block into `out`, replacing its contents.
pub(super) fn expand(
    sealed: &[u8],
    handle: Handle,
    packing: Packing,
    out: &mut Vec<u8>,
) -> std::result::Result<(), &'static str> {
    let payload = sealed.get(..handle.stored as usize);
    let payload = payload.ok_or("a block is shorter than its payload")?;
    match packing {
        Packing::Raw => {
            out.clear();
            out.extend_from_slice(payload);
        }
        Packing::Lz4 => {
            out.resize(handle.raw as usize, 0);
            let expanded = lz4::decompress(payload, out);
            if expanded.ok() != Some(handle.raw as usize) {
                return Err("a block does not expand to its length");
            }
        }
    }
    Ok(())
}

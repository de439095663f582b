//! The file `CURRENT`: names the current manifest, and records the lengths of all growing files
//! after a clean close. With that seal a file that is truncated later is damage, not a torn tail.
//!
//! ```text
//! magic "ESKERCUR" | format version u32 | state u8 (0 running, 1 sealed) | manifest number u64
//! | manifest length u64 (0 when running) | logs varint, each: number varint, length varint
//! | checksum u64 (xxh3_64 of all before)
//! ```

use std::path::Path;

use xxhash_rust::xxh3::xxh3_64;

use super::limits::MAX_FILE;
use crate::coding::{Reader, put_varint};
use crate::error::{Error, Result};
use crate::fs::Fs;

const MAGIC: &[u8; 8] = b"ESKERCUR";
const FORMAT: u32 = 1;
const NAME: &str = "CURRENT";
const TEMPORARY: &str = "CURRENT.new";

/// The lengths of the growing files at a clean close.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Seal {
    pub(crate) manifest_len: u64,
    /// Segments that still need replay: (number, length).
    pub(crate) logs: Vec<(u64, u64)>,
}

/// The content of `CURRENT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Current {
    pub(crate) manifest: u64,
    /// `None` while a writing handle is open, and after a crash.
    pub(crate) seal: Option<Seal>,
}

impl Current {
    /// True when `dir` holds a store.
    pub(crate) fn exists(fs: &dyn Fs, dir: &Path) -> bool {
        fs.exists(&dir.join(NAME))
    }

    pub(crate) fn read(fs: &dyn Fs, dir: &Path) -> Result<Current> {
        let path = dir.join(NAME);
        let file = fs.open(&path).map_err(|e| Error::io(&path, "open", e))?;
        let len = file.len().map_err(|e| Error::io(&path, "stat", e))?;
        if len > 1 << 20 {
            return Err(Error::corruption(&path, 0, format!("{len} bytes long")));
        }
        let mut bytes = vec![0; len as usize];
        file.read_at(0, &mut bytes)
            .map_err(|e| Error::io(&path, "read", e))?;
        Current::decode(&bytes, &path)
    }

    /// Replaces `CURRENT`, durably.
    pub(crate) fn write(&self, fs: &dyn Fs, dir: &Path) -> Result<()> {
        self.prepare(fs, dir)?;
        Current::replace(fs, dir)
    }

    /// The first half of [`Current::write`]: on failure `CURRENT` is unchanged.
    pub(crate) fn prepare(&self, fs: &dyn Fs, dir: &Path) -> Result<()> {
        let temporary = dir.join(TEMPORARY);
        let file = fs
            .create(&temporary)
            .map_err(|e| Error::io(&temporary, "create", e))?;
        file.append(&self.encode())
            .map_err(|e| Error::io(&temporary, "append", e))?;
        file.sync().map_err(|e| Error::io(&temporary, "sync", e))
    }

    /// The second half: on failure it is unknown which of the two a power cut leaves.
    pub(crate) fn replace(fs: &dyn Fs, dir: &Path) -> Result<()> {
        let (path, temporary) = (dir.join(NAME), dir.join(TEMPORARY));
        fs.rename(&temporary, &path)
            .map_err(|e| Error::io(&path, "rename", e))?;
        fs.sync_dir(dir).map_err(|e| Error::io(dir, "sync", e))
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&FORMAT.to_le_bytes());
        out.push(u8::from(self.seal.is_some()));
        out.extend_from_slice(&self.manifest.to_le_bytes());
        let seal = self.seal.clone().unwrap_or_default();
        out.extend_from_slice(&seal.manifest_len.to_le_bytes());
        put_varint(&mut out, seal.logs.len() as u64);
        for (number, len) in seal.logs {
            put_varint(&mut out, number);
            put_varint(&mut out, len);
        }
        let checksum = xxh3_64(&out);
        out.extend_from_slice(&checksum.to_le_bytes());
        out
    }

    fn decode(bytes: &[u8], path: &Path) -> Result<Current> {
        let damaged = |what: &str| Error::corruption(path, 0, what);
        let (body, checksum) = bytes
            .split_last_chunk::<8>()
            .ok_or_else(|| damaged("too short"))?;
        if xxh3_64(body) != u64::from_le_bytes(*checksum) {
            return Err(damaged("checksum mismatch"));
        }
        let mut reader = Reader::new(body);
        if reader.take(8) != Some(MAGIC) {
            return Err(damaged("not a CURRENT file"));
        }
        let found = reader.u32().ok_or_else(|| damaged("too short"))?;
        if found > FORMAT {
            return Err(Error::NewerFormat {
                path: path.to_path_buf(),
                found,
                supported: FORMAT,
            });
        }
        Current::decode_body(&mut reader).ok_or_else(|| damaged("malformed"))
    }

    fn decode_body(reader: &mut Reader<'_>) -> Option<Current> {
        let sealed = reader.u8()? == 1;
        let manifest = reader.u64().filter(|number| *number <= MAX_FILE)?;
        let mut seal = Seal {
            manifest_len: reader.u64()?,
            logs: Vec::new(),
        };
        for _ in 0..reader.varint()? {
            seal.logs.push((reader.varint()?, reader.varint()?));
        }
        reader.is_empty().then_some(Current {
            manifest,
            seal: sealed.then_some(seal),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_and_refuses_changes() {
        let path = Path::new("CURRENT");
        for seal in [
            None,
            Some(Seal {
                manifest_len: 77,
                logs: vec![(3, 48), (9, 1 << 40)],
            }),
        ] {
            let current = Current { manifest: 12, seal };
            let bytes = current.encode();
            assert_eq!(Current::decode(&bytes, path).unwrap(), current);
            for at in 0..bytes.len() {
                let mut changed = bytes.clone();
                changed[at] ^= 0x10;
                assert!(Current::decode(&changed, path).is_err());
                assert!(Current::decode(&bytes[..at], path).is_err());
            }
        }
    }
}

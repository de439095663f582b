//! The table builder: writes a table front to back, in one pass.

use std::path::{Path, PathBuf};

use super::block::BlockBuilder;
use super::digest::{DigestPlace, DigestSource};
use super::filter;
use super::format::{
    FOOTER_LEN, Footer, Handle, MAX_BLOCK_LEN, PLAIN, Sealer, TRAILER_LEN, WITH_DIGEST, header,
};
use super::index::{IndexBuilder, Map, MapPlace, Partition, Top, push_zones, separator};
use super::meta::{Expiry, TableMeta};
use super::options::TableOptions;
use super::samples::Samples;
use crate::attributes::{Extractor, Summary};
use crate::coding::put_varint;
use crate::digest::Digest;
use crate::entry::{Kind, MAX_KEY_LEN, MAX_SEQ, MAX_VALUE_LEN, Seq, Timed, compare};
use crate::error::{Error, Result};
use crate::fs::{Fs, WriteFile};
use crate::synopsis::{SampleBuilder, SynopsisBuilder, Zone};

/// Bytes buffered before they are appended to the file.
const APPEND_LEN: usize = 256 << 10;

/// A partition ends when its index, filter and synopsis blocks reach this size, in bytes: they are
/// read whole.
const MAX_DESCRIPTION_LEN: usize = 16 << 10;

/// Builds one table. Entries come in the order of [`crate::entry::compare`]; memory is bounded by a
/// data block, the index, filter and synopsis of a partition, and the top-level index. A builder
/// that is dropped, or that has returned an error, leaves an unfinished file behind for its owner
/// to remove.
pub struct TableBuilder<'f> {
    out: Output<'f>,
    options: TableOptions,
    meta: TableMeta,
    data: BlockBuilder,
    // The previous entry.
    last_key: Vec<u8>,
    last_seq: Seq,
    /// The previous data block, written, but without a separator until the next key is known.
    pending: Option<(Handle, usize)>,
    // State of the open partition.
    index: IndexBuilder,
    hashes: Vec<u64>,
    synopsis: SynopsisBuilder,
    // State of the table.
    sample: SampleBuilder,
    top: Top,
    /// The digest of the entries, if the table gets one of them.
    digest: Option<Box<dyn Digest>>,
    data_blocks: u64,
    key_bytes: u64,
    value_bytes: u64,
    scratch: Vec<u8>,
    separator: Vec<u8>,
}

impl<'f> TableBuilder<'f> {
    /// Begins table `number`, whose file is at `path` if it gets one of its own: the file is
    /// created when the first part of the table is written.
    pub fn begin(
        fs: &'f dyn Fs,
        path: &Path,
        number: u64,
        options: &TableOptions,
    ) -> TableBuilder<'f> {
        let extractor = options.extractor.as_deref();
        let ids: &[u32] = extractor.map_or(&[], Extractor::ids);
        let summaries: Vec<Summary> = (0..ids.len())
            .filter_map(|slot| Some(extractor?.summary(slot)))
            .collect();
        TableBuilder {
            out: Output {
                fs,
                file: None,
                path: path.to_path_buf(),
                buffer: header(number, version(options)),
                flushed: 0,
                number,
                sealer: Sealer::default(),
            },
            options: options.clone(),
            meta: TableMeta {
                number,
                min_seq: MAX_SEQ,
                zones: ids.iter().map(|&id| (id, None)).collect(),
                ..TableMeta::default()
            },
            data: BlockBuilder::default(),
            last_key: Vec::new(),
            last_seq: MAX_SEQ,
            pending: None,
            index: IndexBuilder::default(),
            hashes: Vec::new(),
            synopsis: SynopsisBuilder::new(
                &summaries,
                options.partition_blocks,
                options.value_filter_bits,
            ),
            sample: SampleBuilder::new(ids.len()),
            top: Top::new(ids.len()),
            digest: match &options.digest {
                Some(DigestSource::Entries(digester)) => Some(digester.begin()),
                Some(DigestSource::Inherited(_)) | None => None,
            },
            data_blocks: 0,
            key_bytes: 0,
            value_bytes: 0,
            scratch: Vec::new(),
            separator: Vec::new(),
        }
    }

    /// Adds an entry, which must follow the previous one in order. Attributes are extracted from
    /// all but deletes.
    ///
    /// # Errors
    /// [`Error::Limit`] for a key, value or sequence number over its limit; [`Error::Io`] when the
    /// file cannot be written.
    pub fn add(&mut self, key: &[u8], seq: Seq, kind: Kind, value: &[u8]) -> Result<()> {
        check_limits(key, seq, value)?;
        debug_assert!(
            self.is_empty() || compare(&self.last_key, self.last_seq, key, seq).is_lt(),
            "entries out of order"
        );
        // A large entry gets its own block, so that its small neighbours stay cheap to read.
        let room = self.options.block_size + self.options.block_size / 4;
        if !self.data.is_empty() && self.data.size() + key.len() + value.len() > room {
            self.end_block()?;
        }
        if self.data.is_empty() {
            self.place_pending(Some(key))?;
        }

        if self.is_empty() {
            self.meta.smallest = key.to_vec();
        }
        // A key continued from the previous partition is in this one's filter, too.
        if self.options.filter_bits_per_key > 0
            && (self.hashes.is_empty() || key != self.last_key.as_slice())
        {
            self.hashes.push(filter::hash(key));
        }
        self.data.add(&self.last_key, key, seq, kind, value);
        self.synopsis.add_seq(seq);
        self.meta.entries += 1;
        self.key_bytes += key.len() as u64;
        self.value_bytes += value.len() as u64;
        let (kind, expires, value) = Timed::of(kind, value);
        if let Some(expires) = expires {
            self.meta.expiry = Some(Expiry::with(self.meta.expiry, expires));
        }
        match kind {
            Kind::Delete => self.meta.deletes += 1,
            Kind::Operand => self.meta.operands += 1,
            Kind::Put | Kind::Timed => {}
        }
        if kind != Kind::Delete
            && let Some(extractor) = &self.options.extractor
        {
            let (synopsis, sample) = (&mut self.synopsis, &mut self.sample);
            sample.begin(filter::hash(key));
            extractor.extract(key, value, &mut |slot, v| {
                synopsis.add_value(slot, v);
                sample.add(slot, v);
            });
        }
        if kind != Kind::Delete
            && let Some(digest) = &mut self.digest
        {
            digest.add(key, value);
        }
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        self.last_seq = seq;
        if self.data.size() >= self.options.block_size {
            self.end_block()?;
        }
        Ok(())
    }

    /// The approximate file size if the table were finished now.
    pub fn estimated_size(&self) -> u64 {
        let describing = self.index.size()
            + self.synopsis.size()
            + self.hashes.len() * self.options.filter_bits_per_key / 8;
        let table = self.synopsis.map_size() + self.top.size();
        self.out.offset() + (self.data.size() + describing + table) as u64
    }

    /// True until the first entry is added.
    pub fn is_empty(&self) -> bool {
        self.meta.entries == 0
    }

    /// Completes the file and makes it durable (its name becomes durable with the folder).
    ///
    /// # Errors
    /// [`Error::Io`] when the file cannot be written; [`Error::Limit`] when its top-level index is
    /// longer than a block may be.
    pub fn finish(mut self) -> Result<TableMeta> {
        self.complete()?;
        self.meta.size = self.out.finish()?;
        Ok(self.meta)
    }

    /// As [`TableBuilder::finish`], but a table that is still wholly in memory gets no file: its
    /// bytes are returned, for a shared file.
    ///
    /// # Errors
    /// Those of [`TableBuilder::finish`].
    pub(crate) fn finish_small(mut self) -> Result<(TableMeta, Option<Vec<u8>>)> {
        self.complete()?;
        if self.out.file.is_none() {
            self.meta.size = self.out.offset();
            return Ok((self.meta, Some(self.out.buffer)));
        }
        self.meta.size = self.out.finish()?;
        Ok((self.meta, None))
    }

    /// Writes everything behind the entries.
    fn complete(&mut self) -> Result<()> {
        if !self.data.is_empty() {
            self.end_block()?;
        }
        self.place_pending(None)?;
        self.end_partition()?;
        self.write_maps()?;
        let samples = self.write_samples()?;
        let digest = self.write_digest()?;

        self.meta.largest = std::mem::take(&mut self.last_key);
        if self.is_empty() {
            self.meta.min_seq = 0;
        }
        debug_assert!(
            self.meta.min_seq <= self.meta.max_seq && self.meta.smallest <= self.meta.largest
        );
        for (slot, (_, held)) in self.meta.zones.iter_mut().enumerate() {
            *held = self.synopsis.take_zone(slot);
        }

        self.scratch.clear();
        self.top.encode(&mut self.scratch);
        if self.scratch.len() > MAX_BLOCK_LEN {
            return Err(Error::Limit {
                what: "the top-level index of a table, in bytes,",
                limit: MAX_BLOCK_LEN as u64,
                value: self.scratch.len() as u64,
            });
        }
        let compress = self.options.compress;
        let top = self.out.write_block(&self.scratch, compress)?;
        // The size is 0 in the file: it is the length of the file.
        self.scratch.clear();
        self.meta.encode(&mut self.scratch);
        put_varint(&mut self.scratch, self.data_blocks);
        put_varint(&mut self.scratch, self.key_bytes);
        put_varint(&mut self.scratch, self.value_bytes);
        if let Some(digest) = digest {
            digest.encode(&mut self.scratch);
        }
        samples.encode(&mut self.scratch);
        let properties = self.out.write_block(&self.scratch, compress)?;
        let footer = Footer {
            top,
            properties,
            version: version(&self.options),
        }
        .encode(self.meta.number);
        debug_assert_eq!(footer.len(), FOOTER_LEN);
        self.out.buffer.extend_from_slice(&footer);
        Ok(())
    }

    /// Writes the fingerprint maps.
    fn write_maps(&mut self) -> Result<()> {
        let shift = self.synopsis.shift();
        for slot in 0..self.meta.zones.len() {
            let Some(map) = self.synopsis.take_map(slot) else {
                continue;
            };
            let (out, mut pages) = (&mut self.out, Vec::new());
            let complete = map.finish(|least, page| {
                let handle = out.write_block(page, false)?;
                pages.push(MapPlace { least, handle });
                Ok::<(), Error>(())
            })?;
            if complete {
                self.top.push_map(Map { slot, shift, pages });
            }
        }
        Ok(())
    }

    /// Writes the samples of the values.
    fn write_samples(&mut self) -> Result<Samples> {
        let mut samples = Samples::default();
        for slot in 0..self.meta.zones.len() {
            self.scratch.clear();
            if self.sample.encode(slot, &mut self.scratch) {
                let compress = self.options.compress;
                samples.push(slot, self.out.write_block(&self.scratch, compress)?);
            }
        }
        Ok(samples)
    }

    /// Writes the digest, if the table gets one.
    fn write_digest(&mut self) -> Result<Option<DigestPlace>> {
        let compress = self.options.compress;
        self.scratch.clear();
        let (bytes, is_inherited) = match (&self.digest, &self.options.digest) {
            (Some(digest), _) => {
                digest.encode(&mut self.scratch);
                (&self.scratch, false)
            }
            (None, Some(DigestSource::Inherited(bytes))) => (&**bytes, true),
            (None, _) => return Ok(None),
        };
        Ok(Some(DigestPlace {
            is_inherited,
            handle: self.out.write_block(bytes, compress)?,
        }))
    }

    /// Writes the open data block.
    fn end_block(&mut self) -> Result<()> {
        let entries = self.data.entries();
        let handle = self
            .out
            .write_block(self.data.finish(), self.options.compress)?;
        self.data.clear();
        self.synopsis.end_block();
        self.data_blocks += 1;
        self.pending = Some((handle, entries));
        Ok(())
    }

    /// Indexes the previous data block, now that the next key is known, and ends the partition when
    /// it is full. `None`: there is no next key.
    fn place_pending(&mut self, next: Option<&[u8]>) -> Result<()> {
        let Some((handle, entries)) = self.pending.take() else {
            return Ok(());
        };
        let next = next.unwrap_or(&self.last_key);
        let seq = separator(&self.last_key, self.last_seq, next, &mut self.separator);
        self.index.add(&self.separator, seq, handle, entries);
        let describing = self.index.size()
            + self.synopsis.size()
            + self.hashes.len() * self.options.filter_bits_per_key / 8;
        if self.index.blocks() >= self.options.partition_blocks || describing >= MAX_DESCRIPTION_LEN
        {
            self.end_partition_at(seq)?;
        }
        Ok(())
    }

    /// Writes index, filter and synopsis of the open partition, if it has a block.
    fn end_partition(&mut self) -> Result<()> {
        if self.index.blocks() == 0 {
            Ok(())
        } else {
            self.end_partition_at(self.last_seq)
        }
    }

    /// Ends the partition at its last separator, whose sequence number is `last_seq`.
    fn end_partition_at(&mut self, last_seq: Seq) -> Result<()> {
        let entries = self.index.entries();
        self.scratch.clear();
        self.index.finish(&mut self.scratch);
        let index = self.out.write_block(&self.scratch, self.options.compress)?;

        let filter = if self.hashes.is_empty() {
            Handle::NONE
        } else {
            self.scratch.clear();
            filter::build(
                &self.hashes,
                self.options.filter_bits_per_key,
                self.options.blocked_filter,
                &mut self.scratch,
            );
            self.hashes.clear();
            self.out.write_block(&self.scratch, false)?
        };

        let mut zones: Vec<Option<Zone>> = vec![None; self.meta.zones.len()];
        self.scratch.clear();
        let (min_seq, max_seq) = self.synopsis.finish(&mut self.scratch, |slot, zone| {
            if let Some(held) = zones.get_mut(slot) {
                *held = zone;
            }
        });
        let synopsis = self.out.write_block(&self.scratch, false)?;

        let part = Partition {
            last_seq,
            index,
            filter,
            synopsis,
            min_seq,
            max_seq,
            entries,
            before: 0,
        };
        self.top.push(&self.separator, part);
        push_zones(&mut self.top, &zones);
        self.meta.min_seq = self.meta.min_seq.min(min_seq);
        self.meta.max_seq = self.meta.max_seq.max(max_seq);
        Ok(())
    }
}

/// The format of a table with these options: one without a digest is readable by programs that know
/// of none.
fn version(options: &TableOptions) -> u32 {
    match options.digest {
        Some(_) => WITH_DIGEST,
        None => PLAIN,
    }
}

fn check_limits(key: &[u8], seq: Seq, value: &[u8]) -> Result<()> {
    for (what, limit, value) in [
        (
            "the length of a key, in bytes,",
            MAX_KEY_LEN as u64,
            key.len() as u64,
        ),
        (
            "the length of a value, in bytes,",
            MAX_VALUE_LEN as u64,
            value.len() as u64,
        ),
        ("a sequence number", MAX_SEQ, seq),
    ] {
        if value > limit {
            return Err(Error::Limit { what, limit, value });
        }
    }
    Ok(())
}

/// The buffered file.
struct Output<'f> {
    fs: &'f dyn Fs,
    /// `None` while the buffer holds everything.
    file: Option<Box<dyn WriteFile>>,
    path: PathBuf,
    buffer: Vec<u8>,
    flushed: u64,
    number: u64,
    sealer: Sealer,
}

impl Output<'_> {
    fn offset(&self) -> u64 {
        self.flushed + self.buffer.len() as u64
    }

    fn write_block(&mut self, payload: &[u8], compress: bool) -> Result<Handle> {
        let offset = self.offset();
        let handle = self
            .sealer
            .seal(&mut self.buffer, payload, compress, self.number, offset);
        debug_assert_eq!(handle.end(), self.offset());
        debug_assert!(handle.sealed_len() >= TRAILER_LEN);
        if self.buffer.len() >= APPEND_LEN {
            self.flush()?;
        }
        Ok(handle)
    }

    fn flush(&mut self) -> Result<()> {
        let file = match &self.file {
            Some(file) => file,
            None => {
                let made = self.fs.create(&self.path);
                let made = made.map_err(|e| Error::io(&self.path, "create", e))?;
                self.file.insert(made)
            }
        };
        file.append(&self.buffer)
            .map_err(|e| Error::io(&self.path, "append", e))?;
        self.flushed += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Returns the length of the file.
    fn finish(&mut self) -> Result<u64> {
        self.flush()?;
        if let Some(file) = &self.file {
            file.sync().map_err(|e| Error::io(&self.path, "sync", e))?;
        }
        Ok(self.flushed)
    }
}

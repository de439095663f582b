//! Writing the first tables of an index from existing index entries.

use esker_lsm::coding::Misplaced;
use esker_lsm::{RunSink, Seq};
use esker_model::posting::{Posting, PostingWriter};

/// Writes the first tables of an index from existing records. It receives the index entries ordered
/// by [`IndexType::head`](super::IndexType::head) of the value, and then by key
/// ([`IndexType::is_built_by_key`](super::IndexType::is_built_by_key)) or from the newest to the
/// oldest.
pub trait Build {
    /// Receives the next index entry.
    fn add(
        &mut self,
        value: &[u8],
        key: &[u8],
        seq: Seq,
        sink: &mut RunSink<'_>,
    ) -> esker_lsm::Result<()>;

    /// Writes the entries that it still holds.
    fn finish(&mut self, _sink: &mut RunSink<'_>) -> esker_lsm::Result<()> {
        Ok(())
    }
}

/// Collects index entries in posting lists, and writes each full piece.
pub(super) struct ListBuilder<W> {
    /// The size of a full piece, in bytes.
    full: usize,
    /// The unfinished piece.
    list: PostingWriter,
    /// The value of the unfinished piece.
    value: Vec<u8>,
    /// The number of its newest posting; `None` if there is no unfinished piece.
    newest: Option<Seq>,
    /// A buffer for the encoded piece.
    out: Vec<u8>,
    write: W,
}

/// Writes the pieces of posting lists. The pieces of a value arrive one after the other, newest
/// postings first.
pub(super) trait WritePiece {
    /// Writes a piece of the list of `value`. Its newest posting is the write `newest`.
    fn write(
        &mut self,
        value: &[u8],
        newest: Seq,
        piece: &[u8],
        sink: &mut RunSink<'_>,
    ) -> esker_lsm::Result<()>;
}

impl<W: WritePiece> ListBuilder<W> {
    /// A builder of pieces of about `full` bytes.
    pub(super) fn new(full: usize, write: W) -> ListBuilder<W> {
        ListBuilder {
            full,
            list: PostingWriter::new(),
            value: Vec::new(),
            newest: None,
            out: Vec::new(),
            write,
        }
    }
}

impl<W: WritePiece> Build for ListBuilder<W> {
    fn add(
        &mut self,
        value: &[u8],
        key: &[u8],
        seq: Seq,
        sink: &mut RunSink<'_>,
    ) -> esker_lsm::Result<()> {
        if value != self.value || self.list.len() >= self.full {
            self.finish(sink)?;
        }
        if value != self.value {
            self.value.clear();
            self.value.extend_from_slice(value);
        }
        self.newest.get_or_insert(seq);
        let posting = Posting {
            seq,
            key,
            cancel: false,
        };
        if self.list.push(posting) {
            return Ok(());
        }
        // The staging tree is in order, and no stored key is too long for a list.
        Err(Misplaced::here().into())
    }

    /// Writes the unfinished piece.
    fn finish(&mut self, sink: &mut RunSink<'_>) -> esker_lsm::Result<()> {
        let Some(newest) = self.newest.take() else {
            return Ok(());
        };
        self.out.clear();
        self.list.finish(true, &mut self.out);
        self.write.write(&self.value, newest, &self.out, sink)
    }
}

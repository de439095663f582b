//! The obsolete set: the numbers of obsolete writes, for all trees of a dataset at once.
//!
//! A record and its index entries share a sequence number, so one set of numbers says which of them
//! are obsolete, in every component of every tree, and however often these were compacted. (The
//! validity bitmaps of Luo & Carey, sections 4.4 and 5, have a bit per entry of a component, and
//! positions change with each component; a number never changes.)
//!
//! # Representation
//!
//! - *In memory*: a [`SeqSet`] (`set.rs`), a part of the version: the numbers in its tables.
//! - *On disk*: a *bitmap tree* ([`crate::TreeOptions::bitmap`]). Its memtables hold single
//!   numbers, inserted by writers; its tables hold a Roaring container for each chunk of 65,536
//!   numbers (`chunk.rs`). A flush or compaction of the tree reads its inputs as a set, and writes
//!   chunks; so tables created before there were chunks are converted, too.
//! - *In a snapshot*: [`Superseded`] (`superseded.rs`), the version's set and the memtable numbers
//!   visible to the snapshot. So a number hides a write only from readers that see its replacement.
//!
//! `version/bitmap.rs` reads the set when a group is opened, which costs time by chunks; later each
//! version inherits the set of the version before and adds the numbers in new tables.
//!
//! # Users
//!
//! The trees that name the set in their options ([`crate::SupersededBy`]) are its *holders*: they
//! hold entries of the writes that it covers. Flushes and compactions of a holder drop puts whose
//! number is in the set ([`ObsoleteWrites`]; lists are cleaned by their filter), and may report
//! their drops to it, in the same edit ([`crate::DropPolicy::Record`]). Queries skip candidates
//! that are in it.
//!
//! # Sweeps
//!
//! A number without entries in any holder is never probed again. A *sweep* (`compaction/sweep.rs`,
//! `group/sweep.rs`) finds such numbers and removes them. It is due when the set has grown by more
//! than a few bytes per entry of its holders, and is a part of each full compaction. A sweep takes
//! the current set as its *candidates*, and goes through the tables of all holders:
//!
//! - a table that a flush or compaction of this process wrote with all candidates in its set has no
//!   entries of them ([`TableFile::saw`](crate::version::TableFile));
//! - neither has a table of plain entries whose span contains none of the candidates;
//! - any other table is read, once, in steps between compactions. Candidates that are found stay.
//!
//! At the end, with compactions of all holders locked out (it has claimed them, and the set) and no
//! write in progress, the memtables are checked. Those of plain entries only have unflushed
//! numbers, which all stay; lists hold older ones, and are read. Then the candidates that were not
//! found are removed, in one edit which replaces the tables of the set.
//!
//! *Correctness*: let `n` be removed by the version `v`. In the view that `v` was made from no
//! holder has an entry of `n`: each table was written without `n`, or read; each memtable was read,
//! or only has unflushed numbers. Afterwards nothing can bring an entry of `n` back. New writes
//! have new numbers. Flushes, compactions and writers that copy older postings into a new entry
//! (eager lists, under the writer lock) copy from that view. Entries that an index build collected
//! earlier go to a tree that is [`incomplete`](crate::TreeOptions::incomplete) until they are
//! installed: while a holder is incomplete, no number is removed. Later builds wait for the sweep's
//! claim, and read from `v` or later. A snapshot taken before has its own version, with `n` in its
//! set. A reader of such a snapshot may find `n` obsolete and add it again: that is correct,
//! useless, and undone by the next sweep.
//!
//! So for a number that is not in the set the guarantee is as before: either it was not replaced as
//! far as the set is complete (up to the repair watermark, or always), or no tree has an entry of
//! it.

mod chunk;
mod set;
mod superseded;
#[cfg(test)]
mod tests;
mod writes;

pub(crate) use chunk::{decode, encode, entries};
pub use set::SeqSet;
pub use superseded::Superseded;
pub use writes::ObsoleteWrites;
pub(crate) use writes::Source;

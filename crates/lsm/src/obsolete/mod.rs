//! The obsolete set: which writes are obsolete, for all trees of a dataset at once.
//!
//! A record and its index entries share a sequence number, so one set of numbers tells of all of them which are
//! obsolete, in whatever component of whatever tree they are, and however often these were merged. (The validity
//! bitmaps of Luo & Carey, sections 4.4 and 5, have a bit for each entry of a component. A position must be found anew in each component;
//! a number stays what it is.)
//!
//! # Where it is
//!
//! - *In memory*: a [`SeqSet`] (`set.rs`), a part of the version: that of the tables.
//! - *On disk*: a *bitmap tree* ([`crate::TreeOptions::bitmap`]). Its memtables hold single numbers, which writers put there; its tables
//!   hold a Roaring container for each chunk of 65,536 numbers (`chunk.rs`). A flush or merge of the tree reads what it has as a set, and
//!   writes chunks; so tables of stores from before there were chunks become chunks too.
//! - *In a snapshot*: [`Superseded`] (`superseded.rs`), the version's set and of the memtables what the snapshot sees. So a number hides
//!   a write only from those who see what replaced it.
//!
//! `version/bitmap.rs` reads the set when a group is opened, which costs by chunks; later each version takes over that of the version before
//! and adds what new tables have.
//!
//! # Who uses it
//!
//! The trees that name the set in their options ([`crate::SupersededBy`]) are its *holders*: they hold entries of the writes that it speaks of.
//! Flushes and merges of a holder leave out puts whose number is in the set ([`ObsoleteWrites`]; lists are cleaned by their
//! filter), and may report what they drop to it, in the same edit ([`crate::DropPolicy::Record`]). Queries pass over candidates that are in it.
//!
//! # What is forgotten
//!
//! A number whose write no holder has anything of is never asked about again. A *sweep* (`compaction/sweep.rs`, `group/sweep.rs`) finds
//! such numbers and takes them out. It is due when the set has grown by more than a few bytes for each entry that its holders have, and a part of
//! each compaction. A sweep takes the set as it is for its *candidates*, and goes through the tables of all holders:
//!
//! - a table that a flush or merge of this process wrote while it had all the candidates has nothing of them
//!   ([`TableFile::saw`](crate::version::TableFile));
//! - one of plain entries that spans none of the candidates neither;
//! - any other is read, once, in steps between merges. Candidates that are found stay.
//!
//! At the end, with merges of all holders locked out (it has claimed them, and the set) and no write on its way, the memtables are looked at. Those of plain entries have numbers
//! only that were not flushed yet, and these all stay; lists hold older ones, and are read. Then what was not found goes, in one
//! edit which replaces the tables of the set.
//!
//! *Why that is right*: let `n` be forgotten by the version `v`. In the view that `v` was made from no holder has an entry of `n`: each table was
//! written without `n`, or read; each memtable was read, or has numbers only that are not flushed. Afterwards nothing can bring
//! an entry of `n` back. New writes have new numbers. Flushes, merges and writers that work older postings into a new entry (eager lists, under the
//! writer lock) copy from what is in the view. What was gathered earlier to be brought in later, by the build of an index, goes to a tree
//! that is [`incomplete`](crate::TreeOptions::incomplete) until it has arrived: as long as a holder is, nothing is forgotten. Builds that begin
//! later wait for the sweep's claim, and gather from `v` or later. A snapshot that was taken before has its own version, with `n` in its set. And whoever finds by such a snapshot
//! that `n` is obsolete may add it again: that is true, of use to nobody, and goes with the next sweep.
//!
//! So of a number that is not in the set it is known as before: either it was not replaced as far as the set is complete (up to the repair
//! watermark, or always), or no tree has an entry of it.

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

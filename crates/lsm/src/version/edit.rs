//! An edit: the difference between two versions, as one manifest record.
//!
//! ```text
//! edit  := item*
//! item  := tag u8, then
//!   1 created     tree varint | name bytes | configuration bytes
//!   2 dropped     tree varint
//!   3 configured  tree varint | configuration bytes
//!   4 added       tree varint | level varint | run varint | component min, max varint | table meta
//!   5 removed     tree varint | table number varint
//!   6 cursor      tree varint | level varint | key bytes
//!   7 log         number varint: segments before it are no longer needed
//!   8 next        next file number varint | next tree number varint
//!   9 sequence    last sequence number in tables varint
//!   10 mark       tree varint | sequence number varint: the repair watermark of a bitmap tree
//!   11 synced     sequence number varint: the log is durable up to this write, or tables have it
//!   12 forgotten  tree varint | count varint: how many numbers a bitmap tree has dropped so far
//!   13 kept       name bytes | sequence number varint | time varint | edit bytes: a named
//!                 snapshot: its last write, its time, and the edit that creates its version
//!                 (items 1, 4 with its 15 to 17, 10 and 12)
//!   14 order      the order of commits (`order.rs`)
//!   15 shared     file number varint | offset varint | bytes of the file varint: the location of
//!                 the table of the preceding item (4); without it, the table is the whole file of
//!                 its own number
//!   16 bounds     partitioner varint | bytes: the range of the table of the preceding item (4, or
//!                 its 15) in the order of a partitioner
//!   17 expiry     entries, first time, last time varint: of the table of the preceding item (4, or
//!                 its 15 or 16): the number and the expiry times of its entries that expire
//!   18 released   name bytes: a named snapshot that is dropped
//!   19 time       varint: entries that expire up to then have been dropped, or are about to be
//!   20 renamed    tree varint | name bytes
//!   21 external   the store has no log of its own: in the first edit of each of its manifests
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::component::ComponentId;
use super::file::NewTable;
use super::limits::{MAX_FILE, MAX_SNAPSHOT_NAME, MAX_TREE};
use super::order::Order;
use super::partition::MAX_BOUNDS;
use super::paths::Place;
use super::version::Version;
use crate::batch::TreeId;
use crate::coding::{Reader, put_bytes, put_varint};
use crate::entry::{MAX_SEQ, MAX_TIME, Seq, Time};
use crate::obsolete::SeqSet;
use crate::table::{Bounds, Expiry, TableMeta};

/// The limit of a table's bytes and entries, so that sums over many tables cannot overflow.
const MAX_TABLE: u64 = 1 << 48;

/// A table removed from a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TableAt {
    pub(crate) tree: TreeId,
    pub(crate) number: u64,
}

/// The difference between two versions, applied atomically.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Edit {
    pub(crate) created: Vec<(TreeId, String, Vec<u8>)>,
    pub(crate) dropped: Vec<TreeId>,
    pub(crate) configured: Vec<(TreeId, Vec<u8>)>,
    pub(crate) renamed: Vec<(TreeId, String)>,
    pub(crate) added: Vec<NewTable>,
    pub(crate) removed: Vec<TableAt>,
    pub(crate) cursors: Vec<(TreeId, u32, Vec<u8>)>,
    pub(crate) log: Option<u64>,
    pub(crate) next_file: Option<u64>,
    pub(crate) next_tree: Option<TreeId>,
    pub(crate) last_seq: Option<Seq>,
    pub(crate) repair_watermarks: Vec<(TreeId, Seq)>,
    /// The numbers in the added tables of bitmap trees, if new to their tree. Not part of the
    /// record: a reader of the manifest reads them from the tables.
    pub(crate) bits: BTreeMap<TreeId, SeqSet>,
    /// The files created for the added tables. Not part of the record either.
    pub(crate) files: Vec<u64>,
    /// The last write that was durable in the log before the edit: a shorter log is damaged, not
    /// torn.
    pub(crate) synced: Option<Seq>,
    pub(crate) order: Option<Order>,
    /// The time up to which expired entries were dropped.
    pub(crate) time: Option<Time>,
    /// Not on disk: for new tables, the version whose obsolete set they were written with.
    pub(crate) saw: BTreeMap<u64, u64>,
    /// How many numbers a bitmap tree has dropped so far.
    pub(crate) forgotten: Vec<(TreeId, u64)>,
    /// Not on disk: the swept bitmap trees.
    pub(crate) swept: BTreeMap<TreeId, SweptSet>,
    /// Named snapshots that are added.
    pub(crate) kept: Vec<NewKept>,
    /// Names of snapshots that are dropped.
    pub(crate) released: Vec<String>,
    /// The store has no log of its own.
    pub(crate) external_log: bool,
}

/// A kept version in an edit.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NewKept {
    pub(crate) name: String,
    pub(crate) seq: Seq,
    pub(crate) time: Time,
    /// Created trees, added tables, watermarks and counts of dropped numbers, and nothing else.
    pub(crate) picture: Edit,
    /// Not on disk: the version of the snapshot. The newest one may lack some of its tables by now.
    pub(crate) of: Pictured,
}

/// The version of a snapshot, if known. Ignored in comparisons: it is not part of the edit.
#[derive(Clone, Default)]
pub(crate) struct Pictured(pub(crate) Option<Arc<Version>>);

impl PartialEq for Pictured {
    fn eq(&self, _: &Pictured) -> bool {
        true
    }
}

impl std::fmt::Debug for Pictured {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("..")
    }
}

/// The result of sweeping a set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SweptSet {
    /// The numbers in the tables that the edit removes.
    pub(crate) before: Arc<SeqSet>,
    /// The remaining numbers, in the tables that it adds.
    pub(crate) left: Arc<SeqSet>,
}

impl Edit {
    /// The trees whose tables or options change.
    pub(crate) fn touched(&self) -> BTreeSet<TreeId> {
        let configured = self.configured.iter().map(|(id, _)| *id);
        let renamed = self.renamed.iter().map(|(id, _)| *id);
        let added = self.added.iter().map(|new| new.tree);
        let removed = self.removed.iter().map(|at| at.tree);
        let of_trees = configured.chain(renamed);
        of_trees.chain(added).chain(removed).collect()
    }

    /// True when an added table has entries that expire.
    pub(crate) fn expires(&self) -> bool {
        self.added.iter().any(|new| new.meta.expiry.is_some())
    }

    /// Adds another edit, of other trees.
    pub(crate) fn absorb(&mut self, part: Edit) {
        self.added.extend(part.added);
        self.removed.extend(part.removed);
        self.cursors.extend(part.cursors);
        self.files.extend(part.files);
        self.saw.extend(part.saw);
        for (tree, bits) in part.bits {
            self.add_bits(tree, &bits);
        }
    }

    /// Records that added tables of a bitmap tree have these numbers.
    pub(crate) fn add_bits(&mut self, tree: TreeId, bits: &SeqSet) {
        if !bits.is_empty() {
            self.bits.entry(tree).or_default().add_all(bits);
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.put_trees(&mut out);
        self.put_tables(&mut out);
        self.put_numbers(&mut out);
        self.put_snapshots(&mut out);
        out
    }

    fn put_trees(&self, out: &mut Vec<u8>) {
        if self.external_log {
            out.push(tag::EXTERNAL_LOG);
        }
        for (tree, name, config) in &self.created {
            put_tagged(out, tag::CREATED, *tree);
            put_bytes(out, name.as_bytes());
            put_bytes(out, config);
        }
        for tree in &self.dropped {
            put_tagged(out, tag::DROPPED, *tree);
        }
        for (tree, config) in &self.configured {
            put_tagged(out, tag::CONFIGURED, *tree);
            put_bytes(out, config);
        }
        for (tree, name) in &self.renamed {
            put_tagged(out, tag::RENAMED, *tree);
            put_bytes(out, name.as_bytes());
        }
    }

    fn put_tables(&self, out: &mut Vec<u8>) {
        for new in &self.added {
            put_tagged(out, tag::ADDED, new.tree);
            put_varint(out, u64::from(new.level));
            put_varint(out, new.run);
            put_varint(out, new.component.min);
            put_varint(out, new.component.max);
            new.meta.encode(out);
            if let Some(place) = new.place {
                out.push(tag::PLACE);
                put_varint(out, place.file);
                put_varint(out, place.offset);
                put_varint(out, place.len);
            }
            if let Some(bounds) = &new.meta.bounds {
                put_tagged(out, tag::BOUNDS, bounds.partitioner);
                put_bytes(out, &bounds.bytes);
            }
            if let Some(expiry) = &new.meta.expiry {
                out.push(tag::EXPIRY);
                put_varint(out, expiry.entries);
                put_varint(out, expiry.min);
                put_varint(out, expiry.max);
            }
        }
        for at in &self.removed {
            put_tagged(out, tag::REMOVED, at.tree);
            put_varint(out, at.number);
        }
        for (tree, level, key) in &self.cursors {
            put_tagged(out, tag::CURSOR, *tree);
            put_varint(out, u64::from(*level));
            put_bytes(out, key);
        }
    }

    fn put_numbers(&self, out: &mut Vec<u8>) {
        put_number(out, tag::LOG, self.log);
        if self.next_file.is_some() || self.next_tree.is_some() {
            // Numbers of files and of trees begin at 1; 0 stands for none.
            put_tagged(out, tag::NEXT, self.next_file.unwrap_or(0));
            put_varint(out, u64::from(self.next_tree.unwrap_or(0)));
        }
        put_number(out, tag::LAST_SEQ, self.last_seq);
        for (tree, seq) in &self.repair_watermarks {
            put_tagged(out, tag::REPAIR_WATERMARK, *tree);
            put_varint(out, *seq);
        }
        put_number(out, tag::SYNCED, self.synced);
        put_number(out, tag::TIME, self.time);
        if let Some(order) = &self.order {
            out.push(tag::ORDER);
            order.encode(out);
        }
        for (tree, count) in &self.forgotten {
            put_tagged(out, tag::FORGOTTEN, *tree);
            put_varint(out, *count);
        }
    }

    fn put_snapshots(&self, out: &mut Vec<u8>) {
        for name in &self.released {
            out.push(tag::RELEASED);
            put_bytes(out, name.as_bytes());
        }
        for kept in &self.kept {
            out.push(tag::KEPT);
            put_bytes(out, kept.name.as_bytes());
            put_varint(out, kept.seq);
            put_varint(out, kept.time);
            put_bytes(out, &kept.picture.encode());
        }
    }

    /// True when it has only the items of a named snapshot's version.
    fn is_picture(&self) -> bool {
        let picture = Edit {
            created: self.created.clone(),
            added: self.added.clone(),
            repair_watermarks: self.repair_watermarks.clone(),
            forgotten: self.forgotten.clone(),
            ..Edit::default()
        };
        *self == picture
    }

    /// Decodes a manifest record; `None` when it is malformed.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Edit> {
        Edit::decode_part(bytes, false)
    }

    /// Decodes an edit, or the version of a named snapshot inside of one, which cannot be nested.
    fn decode_part(bytes: &[u8], is_inside: bool) -> Option<Edit> {
        let mut edit = Edit::default();
        let mut reader = Reader::new(bytes);
        while !reader.is_empty() {
            match reader.u8()? {
                tag::KEPT if is_inside => return None,
                tag @ (tag::ADDED | tag::REMOVED | tag::CURSOR) => {
                    edit.read_table(tag, &mut reader)?;
                }
                tag @ (tag::PLACE | tag::BOUNDS | tag::EXPIRY) => {
                    read_of_table(tag, edit.added.last_mut()?, &mut reader)?;
                }
                tag @ (tag::RELEASED | tag::KEPT) => edit.read_snapshot(tag, &mut reader)?,
                tag => edit.read_tree_or_number(tag, &mut reader)?,
            }
        }
        Some(edit)
    }

    fn read_tree_or_number(&mut self, tag: u8, reader: &mut Reader<'_>) -> Option<()> {
        match tag {
            tag::CREATED => {
                let (tree, name) = (tree_id(reader)?, text(reader)?);
                self.created.push((tree, name, reader.bytes()?.to_vec()));
            }
            tag::DROPPED => self.dropped.push(tree_id(reader)?),
            tag::EXTERNAL_LOG => self.external_log = true,
            tag::CONFIGURED => {
                let tree = tree_id(reader)?;
                self.configured.push((tree, reader.bytes()?.to_vec()));
            }
            tag::RENAMED => self.renamed.push((tree_id(reader)?, text(reader)?)),
            tag::LOG => self.log = Some(up_to(reader, MAX_FILE)?),
            tag::NEXT => {
                let (file, tree) = (up_to(reader, MAX_FILE)?, tree_id(reader)?);
                self.next_file = (file > 0).then_some(file);
                self.next_tree = (tree > 0).then_some(tree);
            }
            tag::LAST_SEQ => self.last_seq = Some(seq(reader)?),
            tag::REPAIR_WATERMARK => {
                let tree = tree_id(reader)?;
                self.repair_watermarks.push((tree, seq(reader)?));
            }
            tag::SYNCED => self.synced = Some(seq(reader)?),
            tag::TIME => self.time = Some(up_to(reader, MAX_TIME)?),
            tag::ORDER => self.order = Some(Order::decode(reader)?),
            tag::FORGOTTEN => {
                let tree = tree_id(reader)?;
                self.forgotten.push((tree, seq(reader)?));
            }
            _ => return None,
        }
        Some(())
    }

    fn read_table(&mut self, tag: u8, reader: &mut Reader<'_>) -> Option<()> {
        let tree = tree_id(reader)?;
        match tag {
            tag::REMOVED => {
                let number = reader.varint()?;
                self.removed.push(TableAt { tree, number });
            }
            tag::CURSOR => {
                let level = u32::try_from(reader.varint()?).ok()?;
                self.cursors.push((tree, level, reader.bytes()?.to_vec()));
            }
            _ => {
                let level = u32::try_from(reader.varint()?).ok()?;
                let run = reader.varint()?;
                let component = ComponentId {
                    min: seq(reader)?,
                    max: seq(reader)?,
                };
                let meta = TableMeta::decode(reader)?;
                if meta.number > MAX_FILE
                    || meta.max_seq > MAX_SEQ
                    || meta.size.max(meta.entries) > MAX_TABLE
                {
                    return None;
                }
                self.added.push(NewTable {
                    tree,
                    level,
                    run,
                    component,
                    meta: Arc::new(meta),
                    place: None,
                });
            }
        }
        Some(())
    }

    fn read_snapshot(&mut self, tag: u8, reader: &mut Reader<'_>) -> Option<()> {
        let name = snapshot_name(reader)?;
        if tag == tag::RELEASED {
            self.released.push(name);
        } else {
            self.kept.push(NewKept {
                name,
                seq: seq(reader)?,
                time: up_to(reader, MAX_TIME)?,
                picture: Edit::decode_part(reader.bytes()?, true).filter(Edit::is_picture)?,
                of: Pictured::default(),
            });
        }
        Some(())
    }
}

/// What the items of an edit begin with. The numbers are part of the format.
mod tag {
    pub(super) const CREATED: u8 = 1;
    pub(super) const DROPPED: u8 = 2;
    pub(super) const CONFIGURED: u8 = 3;
    pub(super) const ADDED: u8 = 4;
    pub(super) const REMOVED: u8 = 5;
    pub(super) const CURSOR: u8 = 6;
    pub(super) const LOG: u8 = 7;
    pub(super) const NEXT: u8 = 8;
    pub(super) const LAST_SEQ: u8 = 9;
    pub(super) const REPAIR_WATERMARK: u8 = 10;
    pub(super) const SYNCED: u8 = 11;
    pub(super) const FORGOTTEN: u8 = 12;
    pub(super) const KEPT: u8 = 13;
    pub(super) const ORDER: u8 = 14;
    /// These three complete the table added before them.
    pub(super) const PLACE: u8 = 15;
    pub(super) const BOUNDS: u8 = 16;
    pub(super) const EXPIRY: u8 = 17;
    pub(super) const RELEASED: u8 = 18;
    pub(super) const TIME: u8 = 19;
    pub(super) const RENAMED: u8 = 20;
    pub(super) const EXTERNAL_LOG: u8 = 21;
}

fn put_tagged(out: &mut Vec<u8>, tag: u8, number: impl Into<u64>) {
    out.push(tag);
    put_varint(out, number.into());
}

fn put_number(out: &mut Vec<u8>, tag: u8, number: Option<u64>) {
    if let Some(number) = number {
        put_tagged(out, tag, number);
    }
}

/// Reads an item that completes an added table, and that it must not have yet.
fn read_of_table(tag: u8, new: &mut NewTable, reader: &mut Reader<'_>) -> Option<()> {
    let is_first = match tag {
        tag::PLACE => {
            let place = Place {
                file: up_to(reader, MAX_FILE)?,
                offset: up_to(reader, MAX_TABLE)?,
                len: up_to(reader, MAX_TABLE)?,
            };
            // Within the file, so that sums cannot overflow.
            let end = place.offset.checked_add(new.meta.size)?;
            end <= place.len && new.place.replace(place).is_none()
        }
        tag::BOUNDS => {
            let bounds = Bounds {
                partitioner: u32::try_from(reader.varint()?).ok()?,
                bytes: reader.bytes().filter(|b| b.len() <= MAX_BOUNDS)?.to_vec(),
            };
            let meta = Arc::make_mut(&mut new.meta);
            meta.bounds.replace(bounds).is_none()
        }
        _ => {
            let expiry = Expiry {
                entries: up_to(reader, MAX_TABLE).filter(|n| *n > 0)?,
                min: up_to(reader, MAX_TIME)?,
                max: up_to(reader, MAX_TIME)?,
            };
            let meta = Arc::make_mut(&mut new.meta);
            expiry.min <= expiry.max && meta.expiry.replace(expiry).is_none()
        }
    };
    is_first.then_some(())
}

fn up_to(reader: &mut Reader<'_>, max: u64) -> Option<u64> {
    reader.varint().filter(|number| *number <= max)
}

fn tree_id(reader: &mut Reader<'_>) -> Option<TreeId> {
    TreeId::try_from(up_to(reader, MAX_TREE.into())?).ok()
}

fn seq(reader: &mut Reader<'_>) -> Option<u64> {
    up_to(reader, MAX_SEQ)
}

fn text(reader: &mut Reader<'_>) -> Option<String> {
    String::from_utf8(reader.bytes()?.to_vec()).ok()
}

fn snapshot_name(reader: &mut Reader<'_>) -> Option<String> {
    let bytes = reader.bytes()?;
    let fits = (1..=MAX_SNAPSHOT_NAME).contains(&bytes.len());
    String::from_utf8(bytes.to_vec()).ok().filter(|_| fits)
}

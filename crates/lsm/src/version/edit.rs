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
        if self.external_log {
            out.push(21);
        }
        for (tree, name, config) in &self.created {
            out.push(1);
            put_varint(&mut out, u64::from(*tree));
            put_bytes(&mut out, name.as_bytes());
            put_bytes(&mut out, config);
        }
        for tree in &self.dropped {
            out.push(2);
            put_varint(&mut out, u64::from(*tree));
        }
        for (tree, config) in &self.configured {
            out.push(3);
            put_varint(&mut out, u64::from(*tree));
            put_bytes(&mut out, config);
        }
        for (tree, name) in &self.renamed {
            out.push(20);
            put_varint(&mut out, u64::from(*tree));
            put_bytes(&mut out, name.as_bytes());
        }
        for new in &self.added {
            out.push(4);
            put_varint(&mut out, u64::from(new.tree));
            put_varint(&mut out, u64::from(new.level));
            put_varint(&mut out, new.run);
            put_varint(&mut out, new.component.min);
            put_varint(&mut out, new.component.max);
            new.meta.encode(&mut out);
            if let Some(place) = new.place {
                out.push(15);
                put_varint(&mut out, place.file);
                put_varint(&mut out, place.offset);
                put_varint(&mut out, place.len);
            }
            if let Some(bounds) = &new.meta.bounds {
                out.push(16);
                put_varint(&mut out, bounds.partitioner.into());
                put_bytes(&mut out, &bounds.bytes);
            }
            if let Some(expiry) = &new.meta.expiry {
                out.push(17);
                put_varint(&mut out, expiry.entries);
                put_varint(&mut out, expiry.min);
                put_varint(&mut out, expiry.max);
            }
        }
        for at in &self.removed {
            out.push(5);
            put_varint(&mut out, u64::from(at.tree));
            put_varint(&mut out, at.number);
        }
        for (tree, level, key) in &self.cursors {
            out.push(6);
            put_varint(&mut out, u64::from(*tree));
            put_varint(&mut out, u64::from(*level));
            put_bytes(&mut out, key);
        }
        if let Some(log) = self.log {
            out.push(7);
            put_varint(&mut out, log);
        }
        if self.next_file.is_some() || self.next_tree.is_some() {
            out.push(8);
            put_varint(&mut out, self.next_file.unwrap_or(0));
            put_varint(&mut out, u64::from(self.next_tree.unwrap_or(0)));
        }
        if let Some(seq) = self.last_seq {
            out.push(9);
            put_varint(&mut out, seq);
        }
        for (tree, seq) in &self.repair_watermarks {
            out.push(10);
            put_varint(&mut out, u64::from(*tree));
            put_varint(&mut out, *seq);
        }
        if let Some(seq) = self.synced {
            out.push(11);
            put_varint(&mut out, seq);
        }
        if let Some(time) = self.time {
            out.push(19);
            put_varint(&mut out, time);
        }
        if let Some(order) = &self.order {
            out.push(14);
            order.encode(&mut out);
        }
        for (tree, count) in &self.forgotten {
            out.push(12);
            put_varint(&mut out, u64::from(*tree));
            put_varint(&mut out, *count);
        }
        for name in &self.released {
            out.push(18);
            put_bytes(&mut out, name.as_bytes());
        }
        for kept in &self.kept {
            out.push(13);
            put_bytes(&mut out, kept.name.as_bytes());
            put_varint(&mut out, kept.seq);
            put_varint(&mut out, kept.time);
            put_bytes(&mut out, &kept.picture.encode());
        }
        out
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
        let up_to = |reader: &mut Reader<'_>, max| reader.varint().filter(|n| *n <= max);
        let tree_id = |reader: &mut Reader<'_>| Some(up_to(reader, MAX_TREE.into())? as TreeId);
        let file = |reader: &mut Reader<'_>| up_to(reader, MAX_FILE);
        let seq = |reader: &mut Reader<'_>| up_to(reader, MAX_SEQ);
        while !reader.is_empty() {
            match reader.u8()? {
                1 => {
                    let tree = tree_id(&mut reader)?;
                    let name = String::from_utf8(reader.bytes()?.to_vec()).ok()?;
                    edit.created.push((tree, name, reader.bytes()?.to_vec()));
                }
                2 => edit.dropped.push(tree_id(&mut reader)?),
                21 => edit.external_log = true,
                3 => {
                    let tree = tree_id(&mut reader)?;
                    edit.configured.push((tree, reader.bytes()?.to_vec()));
                }
                20 => {
                    let tree = tree_id(&mut reader)?;
                    let name = String::from_utf8(reader.bytes()?.to_vec()).ok()?;
                    edit.renamed.push((tree, name));
                }
                4 => {
                    let tree = tree_id(&mut reader)?;
                    let level = u32::try_from(reader.varint()?).ok()?;
                    let run = reader.varint()?;
                    let component = ComponentId {
                        min: seq(&mut reader)?,
                        max: seq(&mut reader)?,
                    };
                    let meta = TableMeta::decode(&mut reader)?;
                    if meta.number > MAX_FILE
                        || meta.max_seq > MAX_SEQ
                        || meta.size.max(meta.entries) > MAX_TABLE
                    {
                        return None;
                    }
                    edit.added.push(NewTable {
                        tree,
                        level,
                        run,
                        component,
                        meta: Arc::new(meta),
                        place: None,
                    });
                }
                5 => {
                    let tree = tree_id(&mut reader)?;
                    edit.removed.push(TableAt {
                        tree,
                        number: reader.varint()?,
                    });
                }
                6 => {
                    let tree = tree_id(&mut reader)?;
                    let level = u32::try_from(reader.varint()?).ok()?;
                    edit.cursors.push((tree, level, reader.bytes()?.to_vec()));
                }
                7 => edit.log = Some(file(&mut reader)?),
                8 => {
                    let (file, tree) = (file(&mut reader)?, tree_id(&mut reader)?);
                    edit.next_file = (file > 0).then_some(file);
                    edit.next_tree = (tree > 0).then_some(tree);
                }
                9 => edit.last_seq = Some(seq(&mut reader)?),
                10 => {
                    let tree = tree_id(&mut reader)?;
                    edit.repair_watermarks.push((tree, seq(&mut reader)?));
                }
                11 => edit.synced = Some(seq(&mut reader)?),
                15 => {
                    let place = Place {
                        file: file(&mut reader)?,
                        offset: up_to(&mut reader, MAX_TABLE)?,
                        len: up_to(&mut reader, MAX_TABLE)?,
                    };
                    let new = edit.added.last_mut().filter(|new| new.place.is_none())?;
                    // Within the file, so that sums cannot overflow.
                    place
                        .offset
                        .checked_add(new.meta.size)
                        .filter(|end| *end <= place.len)?;
                    new.place = Some(place);
                }
                16 => {
                    let bounds = Bounds {
                        partitioner: u32::try_from(reader.varint()?).ok()?,
                        bytes: reader.bytes().filter(|b| b.len() <= MAX_BOUNDS)?.to_vec(),
                    };
                    let new = edit.added.last_mut()?;
                    let meta = Arc::make_mut(&mut new.meta);
                    if meta.bounds.replace(bounds).is_some() {
                        return None;
                    }
                }
                17 => {
                    let expiry = Expiry {
                        entries: up_to(&mut reader, MAX_TABLE).filter(|n| *n > 0)?,
                        min: up_to(&mut reader, MAX_TIME)?,
                        max: up_to(&mut reader, MAX_TIME)?,
                    };
                    let new = edit.added.last_mut()?;
                    let meta = Arc::make_mut(&mut new.meta);
                    if expiry.min > expiry.max || meta.expiry.replace(expiry).is_some() {
                        return None;
                    }
                }
                19 => edit.time = Some(up_to(&mut reader, MAX_TIME)?),
                14 => edit.order = Some(Order::decode(&mut reader)?),
                12 => {
                    let tree = tree_id(&mut reader)?;
                    edit.forgotten.push((tree, seq(&mut reader)?));
                }
                13 if !is_inside => edit.kept.push(NewKept {
                    name: snapshot_name(&mut reader)?,
                    seq: seq(&mut reader)?,
                    time: up_to(&mut reader, MAX_TIME)?,
                    picture: Edit::decode_part(reader.bytes()?, true).filter(Edit::is_picture)?,
                    of: Pictured::default(),
                }),
                18 => edit.released.push(snapshot_name(&mut reader)?),
                _ => return None,
            }
        }
        Some(edit)
    }
}

fn snapshot_name(reader: &mut Reader<'_>) -> Option<String> {
    let bytes = reader.bytes()?;
    let fits = (1..=MAX_SNAPSHOT_NAME).contains(&bytes.len());
    String::from_utf8(bytes.to_vec()).ok().filter(|_| fits)
}

//! Bodies on the write path: in a batch, and in the commit that it becomes.

use std::collections::HashMap;

use esker_lsm::coding::Misplaced;
use esker_lsm::{Batch, Commit, Kind, Seq};
use esker_model::record::RecordRef;
use esker_model::schema::Extracted;

use crate::catalog::Layout;
use crate::error::Result;

/// Adds a record to the data tree. In a dataset stored by location, a record with a point adds only
/// its head: then the caller adds the record to the location tree, with the index entry of its
/// point. Returns the index of the point among the extracted attributes; `None` for a whole record.
#[inline]
pub(crate) fn put(
    batch: &mut Batch,
    layout: &Layout,
    extracted: &Extracted,
    head: &[u8],
    json: &[u8],
) -> Result<Option<usize>> {
    let point_at = layout.clustered_at();
    let point_at = point_at.filter(|at| extracted.values(*at).next().is_some());
    let body = if point_at.is_some() { &[][..] } else { json };
    batch.put_parts(layout.data, extracted.key(), &[head, body])?;
    Ok(point_at)
}

/// Receives a write of a batch: its ordinal, its key, and its JSON (`None` if it is a deletion).
pub(crate) type VisitWrite<'v> = dyn FnMut(u32, &[u8], Option<&[u8]>) + 'v;

/// Visits the writes of a batch that was encoded for `layout`, in the order in which they were
/// added. The operation on the location tree that completes a head counts as part of its write.
///
/// # Errors
/// [`Misplaced`] if a put is not a record, or a head is not followed by its record.
pub(crate) fn each_write(batch: &Batch, layout: &Layout, visit: &mut VisitWrite<'_>) -> Result<()> {
    let location_tree = layout.clustered().and_then(|attribute| attribute.tree);
    let mut ordinal = 0;
    // The key of the last head, until the operation with its record.
    let mut head: Option<Vec<u8>> = None;
    let mut defect = None;
    batch.each(&mut |tree, kind, key, value| {
        if tree == layout.data {
            // The record of a head comes before the next write.
            if head.is_some() {
                defect = Some(Misplaced::here());
            }
            match (kind, RecordRef::body_of(value)) {
                (Kind::Put, Some([])) => {
                    head = Some(key.to_vec());
                    return;
                }
                (Kind::Put, Some(body)) => visit(ordinal, key, Some(body)),
                (Kind::Delete, _) => visit(ordinal, key, None),
                _ => defect = Some(Misplaced::here()),
            }
            ordinal += 1;
        } else if Some(tree) == location_tree
            && kind == Kind::Put
            && let Some(key) = head.take()
        {
            match RecordRef::body_of(value) {
                Some(body) => visit(ordinal, &key, Some(body)),
                None => defect = Some(Misplaced::here()),
            }
            ordinal += 1;
        }
    });
    if head.is_some() {
        defect = Some(Misplaced::here());
    }
    defect.map_or(Ok(()), |defect| Err(defect.into()))
}

/// The bodies of a commit.
pub(crate) struct CommitBodies {
    /// By write number: the puts in the location tree.
    records: HashMap<Seq, Vec<u8>>,
}

impl CommitBodies {
    /// Collects the bodies of a commit to a dataset with this layout.
    pub(crate) fn of(commit: &Commit, layout: &Layout) -> CommitBodies {
        let mut records = HashMap::new();
        if let Some(tree) = layout.clustered().and_then(|attribute| attribute.tree) {
            commit.each(&mut |written, seq, kind, _, value| {
                if written == tree && kind == Kind::Put {
                    records.insert(seq, value.to_vec());
                }
            });
        }
        CommitBodies { records }
    }

    /// The stored record with its body. A head whose record is not in the commit stays a head,
    /// which [`Record::new`](esker_model::Record::new) refuses as damaged.
    pub(crate) fn with_body<'s>(&'s self, seq: Seq, stored: &'s [u8]) -> &'s [u8] {
        if self.records.is_empty() || !RecordRef::lacks_body(stored) {
            return stored;
        }
        self.records.get(&seq).map_or(stored, Vec::as_slice)
    }
}

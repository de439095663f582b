//! The composite index (LevelDB++ section 4.2): a tree whose keys are value and primary key
//! together, without values. The type's encoding delimits the value, so no separator can be mistaken
//! and no value is found under another that it begins with.

use lsm::Kind;
use model::schema::Value;

use super::walk::{Tells, walk};
use super::{Best, Fact, Index, Lookup, Range, Writes, also, estimate_tree, tree_of};
use crate::catalog::Attribute;
use crate::error::Result;

pub(super) struct Composite;

impl Index for Composite {
    fn add(&self, writes: &mut Writes, fact: Fact<'_>) -> Result<()> {
        write(writes, Kind::Put, fact)
    }

    fn cancel(&self, writes: &mut Writes, fact: Fact<'_>) -> Result<()> {
        write(writes, Kind::Delete, fact)
    }

    /// A superseded entry is as good a candidate as any other, because the pipeline asks the data
    /// anyway. What is older than the K best is skipped by sequence bounds.
    fn candidates(
        &self,
        lookup: &Lookup<'_>,
        attribute: &Attribute,
        range: &Range,
        best: &mut Best,
    ) -> Result<()> {
        let (lo, hi) = range.key_bounds();
        let bounds = (lo.as_slice(), hi.as_deref());
        let tree = tree_of(attribute)?;
        walk(
            lookup,
            tree,
            bounds,
            Tells::One,
            best,
            &mut |entry, best| {
                if entry.kind == Kind::Put
                    && let Some((_, key)) = Value::split(attribute.ty, entry.key)
                {
                    best.offer(entry.seq, key);
                }
                Ok(())
            },
        )
    }

    fn estimate(&self, lookup: &Lookup<'_>, attribute: &Attribute, range: &Range) -> Result<u64> {
        estimate_tree(lookup, attribute, range)
    }
}

fn write(writes: &mut Writes, kind: Kind, fact: Fact<'_>) -> Result<()> {
    let mut key = std::mem::take(&mut writes.scratch);
    key.clear();
    key.extend_from_slice(fact.value);
    key.extend_from_slice(fact.key);
    let result = also(writes, kind, tree_of(fact.attribute)?, &key, &[]);
    writes.scratch = key;
    result
}

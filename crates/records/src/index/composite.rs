//! The composite index (LevelDB++ section 4.2): a tree whose keys are value and primary key
//! together, without values. The type's encoding delimits the value, so no separator can be mistaken
//! and no value is found under another that it begins with.

use lsm::entry::MAX_SEQ;
use lsm::table::ReadOptions;
use lsm::{Cursor, Kind};

use super::{Best, Fact, Index, Lookup, Range, Writes, also, estimate_tree, tree_of};
use crate::error::Result;
use crate::layout::Attribute;
use crate::schema::Value;

pub(super) struct Composite;

impl Index for Composite {
    fn add(&self, writes: &mut Writes, fact: Fact<'_>) -> Result<()> {
        write(writes, Kind::Put, fact)
    }

    fn cancel(&self, writes: &mut Writes, fact: Fact<'_>) -> Result<()> {
        write(writes, Kind::Delete, fact)
    }

    /// Reads the range in each component by itself: a superseded entry is as good a candidate as any
    /// other, because the pipeline asks the data anyway. What is older than the K best is skipped by
    /// the sequence bounds of components and tables.
    fn candidates(
        &self,
        lookup: &Lookup<'_>,
        attribute: &Attribute,
        range: &Range,
        best: &mut Best,
    ) -> Result<()> {
        let (lo, hi) = range.key_bounds();
        let options = ReadOptions {
            fill_cache: true,
            readahead: 0,
        };
        let components = lookup.snapshot.components(tree_of(attribute)?);
        let mut parts: Vec<_> = components
            .iter()
            .flat_map(|component| component.parts(&lo, hi.as_deref()))
            .map(|part| (part.seq_bounds(), part))
            .collect();
        // Best first: the sooner the K best are here, the more of the rest is skipped.
        parts.sort_by_key(|((min, max), _)| best.order().best_rank(*min, *max));
        for ((min, max), part) in parts {
            if !best.admits_span(min, max) {
                best.note_skipped();
                continue;
            }
            let mut cursor = part.cursor(options);
            cursor.seek(&lo, MAX_SEQ)?;
            while cursor.valid() && hi.as_deref().is_none_or(|hi| cursor.key() < hi) {
                let seq = cursor.seq();
                if cursor.kind() == Kind::Put
                    && seq <= lookup.snapshot.seq()
                    && let Some((_, key)) = Value::split(attribute.ty, cursor.key())
                {
                    best.offer(seq, key);
                }
                cursor.next()?;
            }
            lookup.index_cost.absorb(&cursor.cost());
        }
        Ok(())
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

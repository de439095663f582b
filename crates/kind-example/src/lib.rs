//! A kind of index from another crate: `by-hash`, a tree of (hash of the value, value, primary
//! key), without values.
//!
//! It answers lookups of a value like the composite index. Values that are written together (times,
//! counters, names imported in order) lie far apart in its tree, so writes spread over the whole
//! tree. For the same reason a range query reads the whole tree, and the planner, which compares
//! estimates, rarely chooses the index for one.
//!
//! It shows that a kind needs only [`IndexType`]: the library does not know it. Its tests cover
//! everything that the tests of built-in kinds with a tree cover.
//!
//! ```
//! use esker::{Database, DatasetDef, Index, IndexKind, Options, field};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! let options = Options::new().index_types(kind_example::index_types()?);
//! let db = Database::create_or_open(dir.path(), options)?;
//! let by_hash: IndexKind = kind_example::NAME.parse()?;
//! let def = DatasetDef::key("id").index("city", Index::new(by_hash).string());
//! let people = db.create_dataset::<u64>("people", def)?;
//! people.put_json(br#"{"id": 1, "city": "Ulm"}"#)?;
//!
//! let query = people.find(field("city").eq("Ulm"));
//! assert_eq!(query.explain()?.plan.index.map(|index| index.kind).as_deref(), Some("by-hash"));
//! assert_eq!(query.count()?, 1);
//! # Ok(())
//! # }
//! ```

use esker::extension::index::{
    Access, Attribute, BestCandidates, Build, Entry, EntryWrites, Figures, IndexEntry, IndexType,
    IndexTypes, Lookup, Range, RunSink, TreeRange, VisitPosting, Writes,
};
use esker::extension::{EngineError, Kind, TreeOptions};
use esker::{Result, Seq, Type, Value};

/// The name of the kind, in definitions and on disk.
pub const NAME: &str = "by-hash";

/// Bytes of a hash.
const HASH: usize = 4;

/// The index types to open a store with.
///
/// # Errors
/// Those of [`IndexTypes::with`] for an invalid name; [`NAME`] is a valid one.
pub fn index_types() -> Result<IndexTypes> {
    IndexTypes::new().with(NAME, ByHash)
}

/// The index type.
pub struct ByHash;

impl IndexType for ByHash {
    fn add(&self, writes: &mut Writes, entry: IndexEntry<'_>) -> Result<()> {
        writes.write(entry.attribute, Kind::Put, &self.key(entry), &[])
    }

    fn cancel(&self, writes: &mut Writes, entry: IndexEntry<'_>) -> Result<()> {
        writes.write(entry.attribute, Kind::Delete, &self.key(entry), &[])
    }

    fn candidates(
        &self,
        lookup: &Lookup<'_>,
        attribute: &Attribute,
        range: &Range,
        best: &mut BestCandidates,
    ) -> Result<()> {
        for TreeRange { lo, hi, exact } in self.bounds(range) {
            let bounds = (lo.as_slice(), hi.as_deref());
            lookup.walk(
                attribute,
                bounds,
                EntryWrites::One,
                best,
                &mut |entry, best| {
                    if entry.kind == Kind::Put
                        && let Some((value, key)) = self.split(attribute.ty, entry.key)
                        && (exact || range.contains(value))
                    {
                        best.offer(entry.seq, key);
                    }
                    Ok(())
                },
            )?;
        }
        Ok(())
    }

    fn estimate(&self, lookup: &Lookup<'_>, attribute: &Attribute, range: &Range) -> Result<u64> {
        let mut expected = 0;
        for TreeRange { lo, hi, .. } in self.bounds(range) {
            expected += lookup.approximate(attribute, (&lo, hi.as_deref()))?;
        }
        Ok(expected)
    }

    fn head(&self, value: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(&hash(value));
        out.extend_from_slice(value);
    }

    fn split<'k>(&self, ty: Type, key: &'k [u8]) -> Option<(&'k [u8], &'k [u8])> {
        Value::split(ty, key.get(HASH..)?)
    }

    /// For a single value, the keys that begin with its head; for a range, all keys.
    fn bounds(&self, range: &Range) -> Vec<TreeRange> {
        let Some(value) = range.point() else {
            return vec![TreeRange {
                lo: Vec::new(),
                hi: None,
                exact: false,
            }];
        };
        let mut head = Vec::new();
        self.head(value, &mut head);
        vec![Range::exactly(head).key_bounds().into()]
    }

    fn tree_options(&self, versions: usize) -> Option<TreeOptions> {
        Some(TreeOptions {
            // Keys are searched by prefix only.
            filter_bits_per_key: 0,
            versions,
            ..TreeOptions::default()
        })
    }

    fn entries_of(
        &self,
        _attribute: &Attribute,
        entry: Entry<'_>,
        visit: &mut VisitPosting<'_>,
    ) -> Result<()> {
        visit(entry.value, entry.rest, entry.seq, false)
    }

    fn builder(&self) -> Option<Box<dyn Build>> {
        Some(Box::new(Builder::default()))
    }

    fn is_built_by_key(&self) -> bool {
        true
    }

    fn figures(&self) -> Figures {
        Figures {
            access: Access::Entries,
            write: 1.2,
            lookup: 45.0,
            row: 5.0,
            entry: 0.05,
            bytes: 7.0,
        }
    }
}

impl ByHash {
    fn key(&self, entry: IndexEntry<'_>) -> Vec<u8> {
        let mut key = Vec::with_capacity(HASH + entry.value.len() + entry.key.len());
        self.head(entry.value, &mut key);
        key.extend_from_slice(entry.key);
        key
    }
}

/// Writes an entry for each index entry in the given order, which is by head, then by key.
#[derive(Default)]
struct Builder {
    key: Vec<u8>,
}

impl Build for Builder {
    fn add(
        &mut self,
        value: &[u8],
        key: &[u8],
        seq: Seq,
        sink: &mut RunSink<'_>,
    ) -> std::result::Result<(), EngineError> {
        self.key.clear();
        ByHash.head(value, &mut self.key);
        self.key.extend_from_slice(key);
        sink(&self.key, seq, Kind::Put, &[])
    }
}

/// FNV-1a. Written out here, because the hash is stored on disk and must not change.
fn hash(value: &[u8]) -> [u8; HASH] {
    let step = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    value.iter().fold(0x811c_9dc5_u32, step).to_be_bytes()
}

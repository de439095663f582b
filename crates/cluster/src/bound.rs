//! A dataset as one version of the catalog defines it, compiled.

use std::sync::Arc;

use esker_coding::{Seq, put_varint};
use esker_model::definition::{IndexKind, StoredDef};
use esker_model::query::Shape;
use esker_model::record::{self, RecordRef, UNINDEXED};
use esker_model::schema::{Extracted, Extraction, KeyType};

use crate::catalog::{Catalog, DatasetState, Edition};
use crate::cells::{Read, Write};
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::rows::{Entry, Version, entry_row, newest_first};

/// The most bytes of a record: by their default settings HBase takes values of up to 10 MiB, and
/// Cassandra writes of up to 16.
const MOST_BYTES: usize = 8 << 20;

/// A dataset.
pub(crate) struct Bound {
    pub(crate) edition: Edition,
    pub(crate) name: String,
    pub(crate) state: DatasetState,
    pub(crate) stored: StoredDef,
    /// What queries are compiled against: an index that is being filled is none here.
    pub(crate) shape: Shape,
    pub(crate) data: Arc<str>,
    pub(crate) heads: Arc<str>,
    /// The indexes that writes add entries to.
    pub(crate) indexes: Vec<BoundIndex>,
    extraction: Extraction,
    /// The number of each extracted attribute.
    ids: Vec<u32>,
}

/// An index of a dataset.
pub(crate) struct BoundIndex {
    /// The place of its attribute in the definition.
    pub(crate) place: usize,
    pub(crate) table: Arc<str>,
    pub(crate) since: Seq,
    pub(crate) layout: Layout,
}

/// A record that is to be written.
pub(crate) struct NewRecord {
    pub(crate) key: Vec<u8>,
    pub(crate) stored: Vec<u8>,
    /// Places in [`Bound::indexes`], and tokens.
    pub(crate) tokens: Vec<(usize, Vec<u8>)>,
}

impl Bound {
    pub(crate) fn new(catalog: &Catalog, name: &str) -> Result<Bound> {
        let state = catalog.dataset(name)?.clone();
        let stored = state.def()?;
        let mut indexes = Vec::new();
        let mut shown = stored.clone();
        for (place, attribute) in shown.attributes.iter_mut().enumerate() {
            let Some(index) = state.indexes.get(&attribute.id) else {
                attribute.def.kind = IndexKind::None;
                continue;
            };
            indexes.push(BoundIndex {
                place,
                table: state.index_table(attribute.id, index),
                since: index.since,
                layout: index.layout.clone(),
            });
            if !index.is_ready {
                attribute.def.kind = IndexKind::None;
            }
        }
        let wanted = stored.attributes.iter().map(|a| stored.wanted(&a.def));
        Ok(Bound {
            edition: catalog.edition(),
            name: name.to_string(),
            shape: Shape::new(&shown),
            data: state.data(),
            heads: state.heads(),
            extraction: Extraction::of((stored.key.clone(), stored.key_type), wanted.collect()),
            ids: stored.attributes.iter().map(|a| a.id).collect(),
            indexes,
            stored,
            state,
        })
    }

    pub(crate) fn key_type(&self) -> KeyType {
        self.stored.key_type
    }

    /// The index of an attribute, by its place in the definition.
    pub(crate) fn index_at(&self, place: usize) -> Option<&BoundIndex> {
        self.indexes.iter().find(|index| index.place == place)
    }

    /// How many versions of a record are kept.
    pub(crate) fn versions(&self) -> usize {
        self.stored.settings.versions.max(1) as usize
    }

    /// Reads a record's JSON; `out` is a buffer.
    pub(crate) fn read_json(&self, json: &[u8], out: &mut Extracted) -> Result<NewRecord> {
        self.extraction.extract_new(json, out)?;
        let attributes = out
            .iter()
            .filter_map(|(at, value)| Some((*self.ids.get(at)?, value)));
        let mut unindexed = Vec::new();
        for id in out.unindexed().filter_map(|at| self.ids.get(at)) {
            put_varint(&mut unindexed, u64::from(*id));
        }
        let listed = (!unindexed.is_empty()).then_some((UNINDEXED, unindexed.as_slice()));
        let attributes = listed.into_iter().chain(attributes);
        let mut stored = Vec::with_capacity(json.len() + 32);
        record::encode(&mut stored, self.stored.next_id, attributes, json);
        if stored.len() > MOST_BYTES {
            let (bytes, most) = (stored.len(), MOST_BYTES >> 20);
            let text = format!("the record has {bytes} bytes: a cluster takes {most} MiB at most");
            return Err(Error::BadInput(text));
        }
        let key = out.key().to_vec();
        let tokens = RecordRef::parse(&stored).map(|record| self.tokens(&record));
        Ok(NewRecord {
            key,
            tokens: tokens.unwrap_or_default(),
            stored,
        })
    }

    /// The tokens of a record: places in [`Bound::indexes`], and tokens.
    pub(crate) fn tokens(&self, record: &RecordRef<'_>) -> Vec<(usize, Vec<u8>)> {
        let mut tokens = Vec::new();
        for (place, index) in self.indexes.iter().enumerate() {
            if let Some(attribute) = self.shape.attribute(index.place) {
                attribute.each_token(record, &mut |token| tokens.push((place, token.to_vec())));
            }
        }
        tokens.dedup();
        tokens
    }

    /// The put of an entry, or its deletion.
    pub(crate) fn entry(&self, index: usize, entry: Entry<'_>, is_put: bool) -> Option<Write> {
        let Entry { token, at, key } = entry;
        let index = self.indexes.get(index)?;
        Some(Write {
            table: index.table.clone(),
            partition: index.layout.partition(token, at, key),
            row: entry_row(token, at, key),
            value: is_put.then(Vec::new),
            at,
        })
    }

    /// The put of a version; without `stored`, of a deletion.
    pub(crate) fn version(&self, key: &[u8], at: Seq, stored: Option<&[u8]>) -> Write {
        let version = match stored {
            Some(_) => Version::record(at),
            None => Version::deletion(at),
        };
        let value = Some(stored.unwrap_or_default().to_vec());
        self.write(key, version, value)
    }

    /// Removes a version, also if its put arrives later.
    pub(crate) fn forget(&self, key: &[u8], version: Version) -> Write {
        self.write(key, version, None)
    }

    fn write(&self, key: &[u8], version: Version, value: Option<Vec<u8>>) -> Write {
        Write {
            table: self.data.clone(),
            partition: key.to_vec(),
            row: version.row(),
            value,
            at: version.at,
        }
    }

    /// A read of versions of a key, newest first, that are not newer than `until`.
    pub(crate) fn versions_of(&self, key: &[u8], until: Seq, most: usize, rows_only: bool) -> Read {
        Read {
            table: self.data.clone(),
            partition: key.to_vec(),
            from: newest_first(until).to_vec(),
            to: None,
            most,
            reverse: false,
            rows_only,
        }
    }
}

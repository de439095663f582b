//! The messages of the interface `THBaseService` that are used, by the numbers of their fields.

use std::io::Result;

use super::wire::{Pairs, Reader, Writer, kind};

/// The family of all columns.
pub(super) const FAMILY: &[u8] = b"d";
/// `DELETE_COLUMNS`: all versions of a column up to the timestamp.
const UP_TO: i32 = 1;
/// `FAST_DIFF`: the names of rows and columns repeat each other.
const ENCODING: i32 = 4;
/// The attribute of a put that says after how many milliseconds it expires.
const EXPIRY: &[u8] = b"_ttl";

/// Puts of columns of a row.
#[derive(Debug, Clone, Default)]
pub(super) struct Put {
    pub(super) row: Vec<u8>,
    /// Column, value, timestamp; without one, the server's time.
    pub(super) columns: Vec<(Vec<u8>, Vec<u8>, Option<i64>)>,
    pub(super) expires_in: Option<u64>,
}

/// Deletions of columns of a row, each up to a timestamp.
#[derive(Debug, Clone, Default)]
pub(super) struct Delete {
    pub(super) row: Vec<u8>,
    pub(super) columns: Vec<(Vec<u8>, i64)>,
}

/// A read of columns of a row.
#[derive(Debug, Clone, Default)]
pub(super) struct Get {
    pub(super) row: Vec<u8>,
    pub(super) filter: Option<Vec<u8>>,
    pub(super) most: Option<i32>,
}

/// A read of rows.
#[derive(Debug, Clone, Default)]
pub(super) struct Scan {
    pub(super) from: Vec<u8>,
    /// The first row behind; empty for none.
    pub(super) to: Vec<u8>,
    pub(super) filter: Option<Vec<u8>>,
    /// The most columns of a result.
    pub(super) together: i32,
    /// The most results.
    pub(super) most: i32,
}

/// Columns of a row.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) row: Vec<u8>,
    pub(super) columns: Vec<Column>,
}

/// A column.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) name: Vec<u8>,
    pub(super) value: Vec<u8>,
    pub(super) at: i64,
}

/// A table that is made.
#[derive(Debug, Clone, Default)]
pub(super) struct NewTable {
    pub(super) namespace: Vec<u8>,
    pub(super) name: Vec<u8>,
    /// The family's configuration.
    pub(super) configuration: Vec<(&'static str, String)>,
    /// The table's attributes.
    pub(super) attributes: Pairs,
    /// Where regions begin.
    pub(super) splits: Vec<Vec<u8>>,
}

impl Put {
    pub(super) fn write(&self, to: &mut Writer) {
        to.binary(1, &self.row);
        to.structures(2, &self.columns, |to, (name, value, at)| {
            to.binary(1, FAMILY);
            to.binary(2, name);
            to.binary(3, value);
            if let Some(at) = at {
                to.i64(4, *at);
            }
        });
        if let Some(millis) = self.expires_in {
            to.map(5, &[(EXPIRY, &millis.to_be_bytes())]);
        }
    }
}

impl Delete {
    pub(super) fn write(&self, to: &mut Writer) {
        to.binary(1, &self.row);
        to.structures(2, &self.columns, |to, (name, at)| {
            to.binary(1, FAMILY);
            to.binary(2, name);
            to.i64(3, *at);
        });
        to.i32(4, UP_TO);
    }
}

fn family(to: &mut Writer, id: i16) {
    to.structures(id, &[FAMILY], |to, family| to.binary(1, family));
}

impl Get {
    pub(super) fn write(&self, to: &mut Writer) {
        to.binary(1, &self.row);
        family(to, 2);
        if let Some(most) = self.most {
            to.i32(12, most);
        }
        if let Some(filter) = &self.filter {
            to.binary(15, filter);
        }
    }
}

impl Scan {
    pub(super) fn write(&self, to: &mut Writer) {
        to.binary(1, &self.from);
        if !self.to.is_empty() {
            to.binary(2, &self.to);
        }
        family(to, 3);
        to.i32(4, self.most);
        to.i32(8, self.together);
        to.i32(15, self.most);
        if let Some(filter) = &self.filter {
            to.binary(18, filter);
        }
    }
}

impl Found {
    pub(super) fn read(from: &mut Reader<'_>) -> Result<Found> {
        let mut found = Found::default();
        from.structure(|from, id, of| {
            match (id, of) {
                (1, kind::BINARY) => found.row = from.bytes()?,
                (2, kind::LIST) => found.columns = from.structures(Column::read)?,
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(found)
    }
}

impl Column {
    fn read(from: &mut Reader<'_>) -> Result<Column> {
        let mut column = Column::default();
        from.structure(|from, id, of| {
            match (id, of) {
                (2, kind::BINARY) => column.name = from.bytes()?,
                (3, kind::BINARY) => column.value = from.bytes()?,
                (4, kind::I64) => column.at = from.i64()?,
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(column)
    }
}

impl NewTable {
    pub(super) fn write(&self, to: &mut Writer) {
        to.structure(1, |to| {
            to.structure(1, |to| table_name(to, &self.namespace, &self.name));
            to.structures(2, &[()], |to, ()| {
                to.binary(1, FAMILY);
                let configuration: Vec<(&[u8], &[u8])> = self
                    .configuration
                    .iter()
                    .map(|(key, value)| (key.as_bytes(), value.as_bytes()))
                    .collect();
                to.map(3, &configuration);
                to.i32(8, ENCODING);
                to.i32(10, 1);
            });
            let attributes: Vec<(&[u8], &[u8])> = self
                .attributes
                .iter()
                .map(|(key, value)| (key.as_slice(), value.as_slice()))
                .collect();
            to.map(3, &attributes);
        });
        if !self.splits.is_empty() {
            to.binaries(2, &self.splits);
        }
    }
}

/// The fields of a table's name.
pub(super) fn table_name(to: &mut Writer, namespace: &[u8], name: &[u8]) {
    to.binary(1, namespace);
    to.binary(2, name);
}

/// The attributes of a table's description.
pub(super) fn read_attributes(from: &mut Reader<'_>) -> Result<Pairs> {
    let mut attributes = Vec::new();
    from.structure(|from, id, of| match (id, of) {
        (3, kind::MAP) => {
            attributes = from.map()?;
            Ok(true)
        }
        _ => Ok(false),
    })?;
    Ok(attributes)
}

//! Names of tables and rows.

use xxhash_rust::xxh3::xxh3_64;

use crate::error::{Error, Result};

/// The parts of a table: rows of 16 first bytes each.
pub(super) const PARTS: u32 = 16;
/// The most bytes of the name of an HBase row are 32,767.
const LONGEST: usize = 32_000;

/// The HBase row of a partition.
pub(super) fn row(partition: &[u8]) -> Result<Vec<u8>> {
    if partition.len() > LONGEST {
        return Err(Error::BadInput(format!(
            "a key or an indexed value has {} bytes: HBase takes at most {LONGEST}",
            partition.len()
        )));
    }
    let [hash, ..] = xxh3_64(partition).to_be_bytes();
    Ok([&[hash], partition].concat())
}

/// The partition of an HBase row.
pub(super) fn partition(row: &[u8]) -> Result<Vec<u8>> {
    match row.split_first() {
        Some((_, partition)) => Ok(partition.to_vec()),
        None => Err(Error::Damaged("a row of HBase has no name".to_string())),
    }
}

/// The first row of a part, and the first one behind it; empty at the end of the table.
pub(super) fn rows_of(part: u32) -> (Vec<u8>, Vec<u8>) {
    let width = 256 / PARTS;
    let row = |at: u32| u8::try_from(at).map_or_else(|_| Vec::new(), |first| vec![first]);
    (row(part * width), row((part + 1) * width))
}

/// Where the regions of a new table begin, apart from the first one.
pub(super) fn splits(regions: u8) -> Vec<Vec<u8>> {
    let regions = u32::from(regions.max(1));
    let begins = (1..regions).filter_map(|n| u8::try_from(n * 256 / regions).ok());
    begins.map(|first| vec![first]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_all_rows_once() {
        let mut next = vec![0];
        for part in 0..PARTS {
            let (from, to) = rows_of(part);
            assert_eq!(from, next);
            next = to;
        }
        assert!(next.is_empty());
    }

    #[test]
    fn a_partition_is_read_from_its_row() {
        for text in ["", "a", "another"] {
            let row = row(text.as_bytes()).unwrap();
            assert_eq!(partition(&row).unwrap(), text.as_bytes());
        }
        assert!(row(&[0; 40_000]).is_err());
        assert!(partition(&[]).is_err());
    }

    /// The coprocessor reads it.
    #[test]
    fn the_catalog_has_a_known_row() {
        assert_eq!(row(b"catalog").unwrap(), b"\xbfcatalog");
    }

    #[test]
    fn regions_divide_the_rows() {
        assert!(splits(1).is_empty());
        assert_eq!(splits(4), [[64], [128], [192]]);
    }
}

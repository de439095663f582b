//! What a cell holds: a byte that says what, and the value.

use super::notes;
use crate::error::{Error, Result};

/// There is no value: what stands for a row that a compare-and-set has removed.
const NONE: u8 = 0;
/// A value.
const PLAIN: u8 = 1;
/// A value, a note of the index entries of the version ([`notes`]), and its length (4 bytes).
const NOTED: u8 = 2;

/// The cell of a value.
pub(super) fn plain(value: &[u8]) -> Vec<u8> {
    [&[PLAIN], value].concat()
}

/// The cell of a version of a record with a note of its index entries.
pub(super) fn noted(value: &[u8], note: &[u8]) -> Vec<u8> {
    let length = u32::try_from(note.len()).unwrap_or(u32::MAX).to_be_bytes();
    [&[NOTED], value, note, &length].concat()
}

/// The cell of a row that may be none.
pub(super) fn swapped(value: Option<&[u8]>) -> Vec<u8> {
    value.map_or_else(|| vec![NONE], plain)
}

/// The value of a cell; `None` if there is none.
pub(super) fn read(cell: Vec<u8>) -> Result<Option<Vec<u8>>> {
    let damaged = || Error::Damaged("a cell of HBase is malformed".to_string());
    match cell.split_first() {
        Some((&NONE, [])) => Ok(None),
        Some((&PLAIN, value)) => Ok(Some(value.to_vec())),
        Some((&NOTED, rest)) => {
            let (value, _) = notes::split(rest).ok_or_else(damaged)?;
            Ok(Some(value.to_vec()))
        }
        _ => Err(damaged()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_again() {
        for value in [&b""[..], b"x", b"a longer one"] {
            assert_eq!(read(plain(value)).unwrap().unwrap(), value);
            assert_eq!(read(noted(value, b"note")).unwrap().unwrap(), value);
            assert_eq!(read(swapped(Some(value))).unwrap().unwrap(), value);
        }
        assert_eq!(read(swapped(None)), Ok(None));
    }

    #[test]
    fn malformed_cells_are_errors() {
        for cell in [
            &b""[..],
            b"\0x",
            b"\x02",
            b"\x02abc",
            b"\x02\0\0\0\x01",
            b"\x07",
        ] {
            assert!(read(cell.to_vec()).is_err(), "{cell:?}");
        }
    }
}

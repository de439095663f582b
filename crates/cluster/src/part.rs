//! The records of a part of a dataset, as the partitions come, and a place to continue from.
//!
//! ```text
//! mark   length of a key (4 bytes, big-endian), the key: its versions may continue behind the mark
//!        the rest: the mark of the store
//! ```

use std::collections::VecDeque;
use std::sync::Arc;

use esker_model::record::Record;

use crate::bound::Bound;
use crate::cells::Mark;
use crate::dataset::Dataset;
use crate::error::{Error, Result};
use crate::hit::Hit;
use crate::scan::{Place, Scan};
use crate::shared::Shared;
use crate::view::View;

/// The records of a part. Each is as it is when it is read.
pub struct PartScan {
    shared: Arc<Shared>,
    bound: Arc<Bound>,
    part: u32,
    scan: Scan,
    /// Where the page of `hits` began.
    begun: Place,
    hits: VecDeque<Hit>,
}

impl std::fmt::Debug for PartScan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PartScan")
            .field("part", &self.part)
            .finish_non_exhaustive()
    }
}

impl PartScan {
    /// The next record.
    ///
    /// # Errors
    /// [`Error::Unavailable`]; [`Error::Damaged`].
    pub fn next_record(&mut self) -> Result<Option<Record>> {
        loop {
            if let Some(hit) = self.hits.pop_front() {
                return hit.record(&self.bound).map(Some);
            }
            let (part, place) = self.scan.place();
            if part != self.part {
                return Ok(None);
            }
            let next = self.scan.next(&self.shared, &self.bound, &|_| true)?;
            (self.begun, self.hits) = (place, next.unwrap_or_default());
        }
    }

    /// Where [`Dataset::part`] continues: at the page of the last record.
    pub fn mark(&self) -> Vec<u8> {
        let place = match self.scan.place() {
            (part, place) if part == self.part && self.hits.is_empty() => place,
            _ => self.begun.clone(),
        };
        encode(&place)
    }
}

impl Dataset {
    /// The number of parts in which all records can be read beside each other.
    pub fn parts(&self) -> u32 {
        self.shared.cells.parts()
    }

    /// The records of a part, from a mark of [`PartScan::mark`] on.
    ///
    /// # Errors
    /// [`Error::Unavailable`]; [`Error::BadInput`] for bytes that are no mark.
    pub fn part(&self, part: u32, from: Option<&[u8]>) -> Result<PartScan> {
        let place = match from {
            Some(mark) => decode(mark)?,
            None => Place::default(),
        };
        Ok(PartScan {
            shared: self.shared.clone(),
            bound: self.bound()?,
            part,
            scan: Scan::from_place(View::LATEST, part, place.clone()),
            begun: place,
            hits: VecDeque::new(),
        })
    }
}

/// A key is never empty, and neither is the mark of a store: empty ones stand for none.
fn encode(place: &Place) -> Vec<u8> {
    let last = place.last.as_deref().unwrap_or_default();
    let mark = place
        .mark
        .as_ref()
        .map_or(&[][..], |mark| mark.0.as_slice());
    let length = u32::try_from(last.len()).unwrap_or(u32::MAX).to_be_bytes();
    [&length, last, mark].concat()
}

fn decode(mark: &[u8]) -> Result<Place> {
    let read = || {
        let (length, rest) = mark.split_first_chunk::<4>()?;
        let (last, mark) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
        let some = |bytes: &[u8]| (!bytes.is_empty()).then(|| bytes.to_vec());
        Some(Place {
            last: some(last),
            mark: some(mark).map(Mark),
        })
    };
    read().ok_or_else(|| Error::BadInput("the mark of a scan is malformed".to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_again() {
        for last in [None, Some(b"key".to_vec())] {
            for mark in [None, Some(Mark(vec![0, 9]))] {
                let last = last.clone();
                let place = Place { last, mark };
                assert_eq!(decode(&encode(&place)), Ok(place));
            }
        }
        assert!(decode(&[0, 0, 0, 9, 1]).is_err());
        assert!(decode(&[7]).is_err());
    }
}

//! Remarks about accepted records: values that may be mistakes, such as a time in the year 50000.
//! Each kind of remark is made once for an attribute.

use std::sync::atomic::{AtomicU64, Ordering};

use esker_lsm::coding::Own;
use esker_model::schema::{Path, Remark, Type};
use parking_lot::Mutex;

/// Remarks that wait to be taken, and a record of the remarks made before.
#[derive(Default)]
pub(crate) struct Remarks {
    /// For each kind of remark, a bit per attribute; attributes whose places differ by a multiple
    /// of 64 share one.
    made: [AtomicU64; 5],
    waiting: Mutex<Vec<String>>,
}

impl Remarks {
    /// Adds a remark about the attribute at index `place` of the layout, unless it was made before.
    pub(crate) fn add(&self, place: usize, path: &Path, ty: Type, remark: Remark) {
        let kind = match remark {
            Remark::NoOffset => 0,
            Remark::FarNumber(_) => 1,
            Remark::Object => 2,
            Remark::NoPoint => 3,
            Remark::FarText(_) => 4,
        };
        let bit = 1 << (place % 64);
        let made = self.made.own(kind);
        if made.load(Ordering::Relaxed) & bit == 0
            && made.fetch_or(bit, Ordering::Relaxed) & bit == 0
        {
            let text = text(path, ty, remark);
            let mut waiting = self.waiting.lock();
            // The same field may be indexed and be the expiry time, which makes one remark twice.
            if !waiting.contains(&text) {
                waiting.push(text);
            }
        }
    }

    /// The remarks since the last call.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.waiting.lock())
    }
}

/// The remark, for people.
fn text(path: &Path, ty: Type, remark: Remark) -> String {
    match remark {
        Remark::NoOffset => format!("`{path}` has times without an offset: they are read as UTC"),
        Remark::FarText(micros) => {
            format!(
                "`{path}` has a time of the year {}",
                Type::TimeUs.year_of(micros.into())
            )
        }
        Remark::FarNumber(micros) => {
            let number = ty.number_of(micros);
            let unit = ty.unit_name();
            let other = (Type::TIMES.into_iter())
                .find(|other| !ty.is_allowed_by(*other) && other.is_usual_year(number));
            let hint = other.map(|other| {
                let unit = other.unit_name();
                format!(
                    "; as `{other}` ({unit}) it would be the year {}",
                    other.year_of(number)
                )
            });
            format!(
                "`{path}` has a time of the year {}: the number {number} counts {unit} since 1970{}",
                ty.year_of(number),
                hint.unwrap_or_default()
            )
        }
        Remark::Object => format!(
            "`{path}` has an object where a value of type {ty} is indexed: the record is kept, and the index leaves the object out"
        ),
        Remark::NoPoint => format!(
            "`{path}` has no valid position in some record (longitude from -180 to 180 first, latitude from -90 to 90): such records are kept, and the index leaves them out"
        ),
    }
}

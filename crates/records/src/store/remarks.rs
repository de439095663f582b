//! Remarks about accepted records: values that may be mistakes, such as a time in the year 50000.
//! Each kind of remark is made once for an attribute.

use std::collections::BTreeSet;

use esker_lsm::coding::Own;
use esker_model::schema::{Path, Remark, Type};
use parking_lot::{Mutex, RwLock};

/// Remarks that wait to be taken, and a record of the remarks made before.
#[derive(Default)]
pub(crate) struct Remarks {
    /// For each kind of remark, the fields about which it was made. By path, because the places of
    /// attributes change when an attribute is added or dropped.
    reported: [RwLock<BTreeSet<Path>>; 5],
    waiting: Mutex<Vec<String>>,
}

impl Remarks {
    /// Adds a remark about the field at `path`, unless it was made before.
    pub(crate) fn add(&self, path: &Path, ty: Type, remark: Remark) {
        let kind = match remark {
            Remark::NoOffset => 0,
            Remark::FarNumber(_) => 1,
            Remark::Object => 2,
            Remark::NoPoint => 3,
            Remark::FarText(_) => 4,
        };
        let reported = self.reported.own(kind);
        let is_known = reported.read().contains(path);
        if !is_known && reported.write().insert(path.clone()) {
            self.waiting.lock().push(text(path, ty, remark));
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

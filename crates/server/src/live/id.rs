//! The ids of events of a dataset's changes.

use std::fmt;
use std::str::FromStr;

use axum::http::StatusCode;
use esker::{Dataset, Key, Position};

use crate::problem::Problem;

/// Where a reader of a dataset's changes stands: the number of the dataset and a position, as
/// `7-3a820af785d0b9f8-648`. The number stays when the dataset is renamed, and no other dataset has
/// it, also none that gets its name later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EventId {
    pub(crate) dataset: u64,
    pub(crate) position: Position,
}

impl EventId {
    pub(crate) fn new(dataset: &Dataset<Key>, position: Position) -> EventId {
        EventId {
            dataset: dataset.number(),
            position,
        }
    }

    /// The position, for a reader of this dataset.
    ///
    /// # Errors
    /// 409 if the id is one of another dataset.
    pub(crate) fn position_in(&self, dataset: &Dataset<Key>) -> Result<Position, Problem> {
        if self.dataset == dataset.number() {
            return Ok(self.position);
        }
        let detail = format!(
            "the event {self} is of another dataset than `{}`, or of one that had its name before",
            dataset.name()
        );
        Err(Problem::new(StatusCode::CONFLICT, "other-dataset", detail))
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.dataset, self.position)
    }
}

impl FromStr for EventId {
    type Err = String;

    fn from_str(text: &str) -> Result<EventId, String> {
        let wrong = || format!("`{text}` is no id of an event");
        let (dataset, position) = text.split_once('-').ok_or_else(wrong)?;
        let is_plain = dataset.bytes().all(|byte| byte.is_ascii_digit());
        Ok(EventId {
            dataset: dataset
                .parse()
                .ok()
                .filter(|_| is_plain)
                .ok_or_else(wrong)?,
            position: position.parse().map_err(|_| wrong())?,
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_as_they_are_written() {
        let id = EventId {
            dataset: 7,
            position: Position {
                history: 0x3a,
                seq: 648,
            },
        };
        assert_eq!(id.to_string(), "7-000000000000003a-648");
        assert_eq!(id.to_string().parse(), Ok(id));
        // A position alone says nothing of its dataset.
        for wrong in [
            "",
            "7",
            "7-",
            "-",
            "+7-000000000000003a-1",
            "000000000000003a-648",
        ] {
            assert!(wrong.parse::<EventId>().is_err(), "{wrong}");
        }
    }
}

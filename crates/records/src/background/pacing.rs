//! When a repair is due: a pure function.
//!
//! The rule of ski rental: a repair is due when queries have wasted as much work as the repair is expected to cost, so the
//! total is at most twice the optimum. By key it is also due when many keys are new since the last repair, so that it stays small
//! beside the writes, and compactions know what they can drop.

use crate::maintenance::cost::{ASK, FETCH};

/// By key: due when this part of all keys was written since the last.
const PART: u64 = 4;

/// By key: fewer writes than this are not worth a repair of their own.
const LEAST: u64 = 4096;

/// Microseconds per entry that a repair goes through, where none was measured.
const ENTRY: f64 = 0.3;

/// What a repair would do, and what was done since the last.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Backlog {
    /// Records written.
    pub(crate) written: u64,
    /// Entries of the primary-key index (or the data, or the indexes) in all, and those that the repair begins with.
    pub(crate) entries: u64,
    pub(crate) new: u64,
    /// Keys that were probed, and records that were fetched of what was obsolete.
    pub(crate) asked: u64,
    pub(crate) wasted: u64,
    /// The repair is by key.
    pub(crate) by_key: bool,
    /// Microseconds per entry of the last repair, where time may matter.
    pub(crate) per_entry: Option<f64>,
}

impl Backlog {
    /// Microseconds that a repair is expected to take.
    pub(crate) fn cost(&self) -> f64 {
        let entries = match self.by_key {
            // Older keys are looked up, or gone through when that is less.
            true => {
                self.new
                    + (self.new.saturating_mul(PART)).min(self.entries - self.new.min(self.entries))
            }
            false => self.entries,
        };
        entries as f64 * self.per_entry.unwrap_or(ENTRY).clamp(0.05, 20.0)
    }

    /// Microseconds that were wasted.
    pub(crate) fn waste(&self) -> f64 {
        self.asked as f64 * ASK + self.wasted as f64 * FETCH
    }
}

/// Why a repair is due; `None` when it is not.
pub(crate) fn due(backlog: &Backlog) -> Option<&'static str> {
    if backlog.new == 0 || backlog.written == 0 {
        return None;
    }
    if backlog.waste() >= backlog.cost() {
        return Some("queries wasted as much time as a repair takes");
    }
    let many = backlog.written >= LEAST && backlog.written.saturating_mul(PART) >= backlog.entries;
    (backlog.by_key && many).then_some("many keys are new since the last repair")
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: Backlog = Backlog {
        written: 10_000,
        entries: 1_000_000,
        new: 10_000,
        asked: 0,
        wasted: 0,
        by_key: true,
        per_entry: None,
    };

    #[test]
    fn nothing_is_due_while_nobody_asks_and_little_is_new() {
        assert_eq!(due(&QUIET), None);
        assert_eq!(
            due(&Backlog {
                new: 0,
                wasted: u64::MAX >> 8,
                ..QUIET
            }),
            None
        );
    }

    #[test]
    fn queries_that_waste_make_it_due_and_an_expensive_repair_waits_longer() {
        let asked = Backlog {
            wasted: 4000,
            ..QUIET
        };
        assert!(due(&asked).unwrap().contains("wasted"));
        assert_eq!(
            due(&Backlog {
                per_entry: Some(3.0),
                ..asked
            }),
            None
        );
        // By index everything is gone through.
        assert_eq!(
            due(&Backlog {
                by_key: false,
                ..asked
            }),
            None
        );
    }

    #[test]
    fn many_new_keys_make_it_due() {
        let many = Backlog {
            written: 250_000,
            new: 250_000,
            ..QUIET
        };
        assert!(due(&many).unwrap().contains("new"));
        assert_eq!(
            due(&Backlog {
                by_key: false,
                ..many
            }),
            None
        );
        // A compaction that takes new and old keys together is no write.
        assert_eq!(
            due(&Backlog {
                new: 900_000,
                ..QUIET
            }),
            None
        );
    }
}

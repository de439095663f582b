//! The decision when a repair is due: a pure function.
//!
//! By the rule of ski rental, a repair is due when queries have wasted as much work as the repair
//! is expected to cost: the total is at most twice the optimum. A repair by key is also due when
//! many keys are new since the last repair, so that it stays cheap compared to the writes, and
//! compactions know which entries they can drop.

use crate::maintenance::cost::{FETCH, PROBE};

/// A repair by key is due when one in this many of all keys was written since the last repair.
const NEW_KEYS_PART: u64 = 4;

/// Fewer writes than this do not justify a repair by key.
const MIN_WRITES: u64 = 4096;

/// The assumed microseconds per entry of a repair, before any was measured.
const ASSUMED_PER_ENTRY: f64 = 0.3;

/// The work of the next repair, and the writes and waste since the last one.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Backlog {
    /// Records written.
    pub(crate) written: u64,
    /// All entries of the primary-key index, or of the data if there is none.
    pub(crate) entries: u64,
    /// Of these, the entries that are new.
    pub(crate) new: u64,
    /// Keys that queries probed.
    pub(crate) probed: u64,
    /// Obsolete records that queries fetched.
    pub(crate) wasted: u64,
    /// The repair works by key.
    pub(crate) by_key: bool,
    /// Microseconds per entry of the last repair, if decisions may depend on time.
    pub(crate) per_entry: Option<f64>,
}

impl Backlog {
    /// The expected duration of the repair in microseconds.
    pub(crate) fn cost(&self) -> f64 {
        let entries = if self.by_key {
            // Older keys are looked up, or scanned if that is less.
            let older = self.entries.saturating_sub(self.new);
            self.new + self.new.saturating_mul(NEW_KEYS_PART).min(older)
        } else {
            self.entries
        };
        let per_entry = self.per_entry.unwrap_or(ASSUMED_PER_ENTRY);
        // Within the limits of what a measurement can mean.
        entries as f64 * per_entry.clamp(0.05, 20.0)
    }

    /// The wasted time in microseconds.
    pub(crate) fn waste(&self) -> f64 {
        self.probed as f64 * PROBE + self.wasted as f64 * FETCH
    }
}

/// Why a repair is due; `None` if it is not.
pub(crate) fn due(backlog: &Backlog) -> Option<&'static str> {
    if backlog.new == 0 || backlog.written == 0 {
        return None;
    }
    if backlog.waste() >= backlog.cost() {
        return Some("queries wasted as much time as a repair takes");
    }
    let many = backlog.written >= MIN_WRITES
        && backlog.written.saturating_mul(NEW_KEYS_PART) >= backlog.entries;
    (backlog.by_key && many).then_some("many keys are new since the last repair")
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: Backlog = Backlog {
        written: 10_000,
        entries: 1_000_000,
        new: 10_000,
        probed: 0,
        wasted: 0,
        by_key: true,
        per_entry: None,
    };

    #[test]
    fn nothing_is_due_without_queries_and_with_few_new_keys() {
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
    fn wasted_queries_make_a_repair_due_and_an_expensive_repair_waits_longer() {
        let wasteful = Backlog {
            wasted: 4000,
            ..QUIET
        };
        assert!(due(&wasteful).unwrap().contains("wasted"));
        assert_eq!(
            due(&Backlog {
                per_entry: Some(3.0),
                ..wasteful
            }),
            None
        );
        // A repair by index reads everything.
        assert_eq!(
            due(&Backlog {
                by_key: false,
                ..wasteful
            }),
            None
        );
    }

    #[test]
    fn many_new_keys_make_a_repair_due() {
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
        // A compaction that combines new and old keys is not a write.
        assert_eq!(
            due(&Backlog {
                new: 900_000,
                ..QUIET
            }),
            None
        );
    }
}

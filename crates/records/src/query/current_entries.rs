//! Which entries of a stand-alone index are current, decided without the records: for counts and
//! aggregates. The obsolete set decides at once, if the strategy keeps it complete; otherwise the
//! keys of the remaining entries are looked up in the primary-key index, many together, by key.

use esker_lsm::{Cost, Seq, SeqSet};

use super::explain::Steps;
use crate::error::Result;
use crate::maintenance::Validity;

/// The most undecided entries whose keys are looked up together, and the most bytes of them.
const MAX_UNDECIDED: usize = 64 << 10;
const MAX_UNDECIDED_BYTES: usize = 4 << 20;

/// Receives the current entries.
pub(super) trait TakeCurrentEntry {
    /// What an entry counts for.
    type Group;

    /// Takes an entry that is current. Entries that are looked up come later than others, by key.
    fn take(&mut self, group: Self::Group, key: &[u8], seq: Seq);
}

/// Decides which entries are current.
pub(super) struct CurrentEntries<'a, G = ()> {
    validity: &'a Validity,
    /// The expired writes; `None` if none are, or if records decide what has expired.
    expired: Option<&'a SeqSet>,
    /// The cost of reading keys.
    cost: &'a Cost,
    pub(super) steps: &'a mut Steps,
    undecided: Vec<UndecidedEntry<G>>,
    /// The bytes of these entries, and the most of them.
    undecided_bytes: usize,
    max_bytes: usize,
}

/// An entry whose key is to be looked up.
struct UndecidedEntry<G> {
    key: Vec<u8>,
    seq: Seq,
    group: G,
}

impl<'a, G> CurrentEntries<'a, G> {
    /// `validity` decides all entries only if [`Validity::validates_without_records`].
    pub(super) fn new(
        validity: &'a Validity,
        expired: Option<&'a SeqSet>,
        cost: &'a Cost,
        steps: &'a mut Steps,
    ) -> CurrentEntries<'a, G> {
        CurrentEntries {
            validity,
            expired,
            cost,
            steps,
            undecided: Vec::new(),
            undecided_bytes: 0,
            max_bytes: MAX_UNDECIDED_BYTES,
        }
    }

    /// Holds at most so many bytes of undecided entries, but for the last one.
    pub(super) fn within(self, bytes: usize) -> CurrentEntries<'a, G> {
        CurrentEntries {
            max_bytes: self.max_bytes.min(bytes),
            ..self
        }
    }

    /// To be called first, with the expected number of entries: builds the key filter that they are
    /// worth.
    pub(super) fn prepare(&self, entries: u64) -> Result<()> {
        self.validity.prepare(entries, self.cost)
    }

    /// True if the entry is known not to be current.
    #[inline]
    fn is_hidden(&self, seq: Seq) -> bool {
        self.validity.is_obsolete(seq) || self.expired.is_some_and(|set| set.contains(seq))
    }

    /// Passes the entry to `to` if it is current: at once, or when its key has been looked up.
    /// `group` is called, in the order of the index, for each entry that may be current.
    #[inline]
    pub(super) fn offer<T: TakeCurrentEntry<Group = G>>(
        &mut self,
        key: &[u8],
        seq: Seq,
        to: &mut T,
        group: impl FnOnce(&mut T) -> G,
    ) -> Result<()> {
        self.steps.candidates += 1;
        if self.is_hidden(seq) {
            self.steps.obsolete += 1;
            return Ok(());
        }
        let group = group(to);
        if self.validity.is_exact() {
            to.take(group, key, seq);
            return Ok(());
        }
        match self.validity.is_superseded_in_memory(seq, key) {
            Some(false) => to.take(group, key, seq),
            Some(true) => self.steps.obsolete += 1,
            None => {
                self.undecided_bytes += key.len() + size_of::<UndecidedEntry<G>>();
                let key = key.to_vec();
                self.undecided.push(UndecidedEntry { key, seq, group });
                self.steps.probed += 1;
                let is_full =
                    self.undecided.len() >= MAX_UNDECIDED || self.undecided_bytes >= self.max_bytes;
                if is_full {
                    return self.finish(to);
                }
            }
        }
        Ok(())
    }

    /// Decides all entries that were offered.
    ///
    /// # Errors
    /// Any read error.
    pub(super) fn finish(&mut self, to: &mut impl TakeCurrentEntry<Group = G>) -> Result<()> {
        self.validity
            .prepare(self.undecided.len() as u64, self.cost)?;
        self.undecided.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        self.undecided_bytes = 0;
        for UndecidedEntry { key, seq, group } in self.undecided.drain(..) {
            if self.validity.is_superseded(seq, &key, self.cost)? {
                self.steps.obsolete += 1;
            } else {
                to.take(group, &key, seq);
            }
        }
        Ok(())
    }
}

impl CurrentEntries<'_> {
    /// True if an entry is current; looks its key up at once if that is needed.
    pub(super) fn is_current(&mut self, key: &[u8], seq: Seq) -> Result<bool> {
        self.steps.candidates += 1;
        let is_current = !self.is_hidden(seq)
            && (self.validity.is_exact() || {
                self.steps.probed += 1;
                !self.validity.is_superseded(seq, key, self.cost)?
            });
        self.steps.obsolete += u64::from(!is_current);
        Ok(is_current)
    }
}

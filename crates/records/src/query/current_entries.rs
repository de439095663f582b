//! Which entries of a stand-alone index are current, as far as the strategy tells it without the
//! records: for counts and aggregates.

use esker_lsm::{Cost, Seq, SeqSet};

use super::explain::Steps;
use crate::error::Result;
use crate::maintenance::Validity;

/// Entries whose keys are looked up together.
const DOUBTFUL: usize = 64 << 10;

/// Receives the current entries.
pub(super) trait TakeCurrentEntry {
    /// Called for each entry that may be current, in the order of the index, with its value, and
    /// whether all entries before are decided. Returns what the entry is taken with.
    fn mark(&mut self, value: &[u8], all_decided: bool) -> Result<u32>;

    /// Takes an entry that is current.
    fn take(&mut self, mark: u32, key: &[u8], seq: Seq);
}

/// Decides which entries are current.
pub(super) struct CurrentEntries<'a> {
    validity: &'a Validity,
    /// The expired writes.
    pub(super) expired: Option<&'a SeqSet>,
    /// The cost of reading keys.
    cost: &'a Cost,
    pub(super) steps: &'a mut Steps,
    doubtful: Vec<Doubtful>,
}

/// An entry whose key is to be looked up.
struct Doubtful {
    key: Vec<u8>,
    seq: Seq,
    mark: u32,
}

impl<'a> CurrentEntries<'a> {
    /// `validity` must [validate without records](Validity::validates_without_records).
    pub(super) fn new(
        validity: &'a Validity,
        cost: &'a Cost,
        steps: &'a mut Steps,
    ) -> CurrentEntries<'a> {
        CurrentEntries {
            validity,
            expired: None,
            cost,
            steps,
            doubtful: Vec::new(),
        }
    }

    /// To be called first, with the expected number of entries.
    pub(super) fn expect(&self, entries: u64) -> Result<()> {
        self.validity.prepare(entries, self.cost)
    }

    /// True if the entry is known not to be current.
    #[inline]
    fn is_out(&self, seq: Seq) -> bool {
        self.validity.is_obsolete(seq) || self.expired.is_some_and(|set| set.contains(seq))
    }

    /// Passes the entry on if it is current, now or later.
    #[inline]
    pub(super) fn offer(
        &mut self,
        value: &[u8],
        key: &[u8],
        seq: Seq,
        to: &mut impl TakeCurrentEntry,
    ) -> Result<()> {
        self.steps.candidates += 1;
        if self.is_out(seq) {
            self.steps.obsolete += 1;
            return Ok(());
        }
        let mark = to.mark(value, self.doubtful.is_empty())?;
        if self.validity.is_exact() {
            to.take(mark, key, seq);
            return Ok(());
        }
        match self.validity.is_superseded_in_memory(seq, key) {
            Some(false) => to.take(mark, key, seq),
            Some(true) => {}
            None => {
                let key = key.to_vec();
                self.doubtful.push(Doubtful { key, seq, mark });
                self.steps.probed += 1;
                if self.doubtful.len() >= DOUBTFUL {
                    return self.settle(to);
                }
            }
        }
        Ok(())
    }

    /// Decides the entries that are left.
    pub(super) fn settle(&mut self, to: &mut impl TakeCurrentEntry) -> Result<()> {
        self.validity
            .prepare(self.doubtful.len() as u64, self.cost)?;
        self.doubtful.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        for Doubtful { key, seq, mark } in self.doubtful.drain(..) {
            if !self.validity.is_superseded(seq, &key, self.cost)? {
                to.take(mark, &key, seq);
            }
        }
        Ok(())
    }

    /// True if an entry is current, decided at once.
    pub(super) fn is_current(&mut self, key: &[u8], seq: Seq) -> Result<bool> {
        self.steps.candidates += 1;
        let is_current = !self.is_out(seq)
            && (self.validity.is_exact() || {
                self.steps.probed += 1;
                !self.validity.is_superseded(seq, key, self.cost)?
            });
        self.steps.obsolete += u64::from(!is_current);
        Ok(is_current)
    }
}

//! Whether an index entry is of a version that counts.

use std::collections::{HashMap, HashSet};

use esker_coding::Seq;

use crate::bound::Bound;
use crate::cells::Cell;
use crate::error::Result;
use crate::removals;
use crate::rows::Version;
use crate::shared::Shared;
use crate::time::{GRACE, millis};
use crate::verdict::{Candidate, Verdict};
use crate::view::View;

/// The verdict for a reader of the writes up to `until`, by the versions of the key, newest first,
/// of which at most `kept` count. `now` is in milliseconds since 1970, and not ahead of the
/// cluster's clock by more than its bound.
pub(crate) fn judge(
    at: Seq,
    versions: &[Cell],
    until: Seq,
    kept: usize,
    now: u64,
) -> Result<Verdict> {
    let (mut newer, mut is_newest) = (0, true);
    for cell in versions {
        let version = Version::of(&cell.row)?;
        if version.at < at {
            break;
        }
        if version.at == at && !version.is_deletion {
            return Ok(if is_newest {
                Verdict::Newest(cell.value.clone())
            } else {
                Verdict::Kept(cell.value.clone())
            });
        }
        newer += 1;
        is_newest &= version.at > until;
        if version.is_deletion || newer >= kept {
            return Ok(Verdict::Obsolete);
        }
    }
    Ok(if millis(at) + GRACE < now {
        Verdict::Dangling
    } else {
        Verdict::Pending
    })
}

/// Judges entries by the versions of their keys.
pub(crate) fn judge_all(
    shared: &Shared,
    bound: &Bound,
    candidates: &[Candidate],
    view: &View,
    rows_only: bool,
) -> Result<Vec<Verdict>> {
    let kept = bound.versions();
    // One read of a key for all its entries: two reads could differ, and show a record twice.
    let mut keys: Vec<&[u8]> = candidates.iter().map(|c| c.key.as_slice()).collect();
    keys.sort_unstable();
    keys.dedup();
    let now = shared.clocks().wall();
    let read = view.read(shared, bound, &keys, kept, rows_only);
    let versions: HashMap<&[u8], Result<Vec<Cell>>> = keys.into_iter().zip(read).collect();
    let judged = candidates
        .iter()
        .map(|candidate| match versions.get(candidate.key.as_slice()) {
            Some(Ok(versions)) => judge(candidate.at, versions, view.until, kept, now),
            Some(Err(error)) => Err(error.clone()),
            None => Ok(Verdict::Pending),
        });
    judged.collect()
}

/// Removes entries that are of no use (DELI's online repair), and the versions of those whose
/// writer is gone, so that its put stays dead if it arrives later. Returns how many are removed; an
/// error does no harm: the next reader finds the entries again.
pub(crate) fn remove(shared: &Shared, bound: &Bound, useless: &[(Candidate, Verdict)]) -> u64 {
    let (dangling, obsolete): (Vec<_>, Vec<_>) = useless
        .iter()
        .partition(|(_, verdict)| *verdict == Verdict::Dangling);
    let mut removed: Vec<Candidate> = Vec::new();
    if let Ok(gone) = forget(shared, bound, &dangling) {
        let is_gone = |of: &Candidate| gone.contains(&(of.key.clone(), of.at));
        let dangling = dangling.into_iter().map(|(candidate, _)| candidate);
        removed.extend(dangling.filter(|candidate| is_gone(candidate)).cloned());
    }
    if !obsolete.is_empty()
        && let Ok(announced) = removals::announced(shared, bound)
    {
        let obsolete = obsolete.into_iter().map(|(candidate, _)| candidate);
        let obsolete: Vec<Candidate> = obsolete
            .filter(|candidate| !announced.contains(&candidate.key))
            .cloned()
            .collect();
        // What hid them may have been removed before that: only what does so still counts.
        if let Ok(verdicts) = judge_all(shared, bound, &obsolete, &View::LATEST, true) {
            let still = obsolete.into_iter().zip(verdicts);
            let still = still.filter(|(_, verdict)| *verdict == Verdict::Obsolete);
            removed.extend(still.map(|(candidate, _)| candidate));
        }
    }
    let entries = removed
        .into_iter()
        .filter_map(|candidate| bound.entry(candidate.index, candidate.entry(), false));
    let written = shared.cells.write(entries.collect());
    written.iter().filter(|outcome| outcome.is_ok()).count() as u64
}

/// Deletes versions for good whose entries are dangling; returns which.
fn forget(
    shared: &Shared,
    bound: &Bound,
    dangling: &[&(Candidate, Verdict)],
) -> Result<HashSet<removals::Place>> {
    if dangling.is_empty() {
        return Ok(HashSet::new());
    }
    // This machine's clock may be behind the cluster's: that one decides.
    let now = shared.cells.now()?;
    let gone = dangling
        .iter()
        .filter(|(candidate, _)| millis(candidate.at) + GRACE < now);
    let mut gone: Vec<removals::Place> = gone
        .map(|(candidate, _)| (candidate.key.clone(), candidate.at))
        .collect();
    gone.sort_unstable();
    gone.dedup();
    removals::forget(shared, bound, gone, now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::stamp;

    const NOW: u64 = 1_800_000_000_000;

    fn versions(all: &[Version]) -> Vec<Cell> {
        let cell = |version: &Version| Cell {
            partition: Vec::new(),
            row: version.row(),
            value: vec![1],
        };
        all.iter().map(cell).collect()
    }

    fn of(at: Seq, all: &[Version], kept: usize) -> Verdict {
        judge(at, &versions(all), Seq::MAX, kept, NOW).unwrap()
    }

    #[test]
    fn an_entry_is_judged_by_what_is_newer() {
        let at = |seconds: u64| stamp(NOW - seconds * 1000);
        let (record, deletion) = (Version::record, Version::deletion);
        assert_eq!(of(at(5), &[record(at(5))], 1), Verdict::Newest(vec![1]));
        assert_eq!(of(at(5), &[record(at(4))], 1), Verdict::Obsolete);
        let two = [record(at(4)), record(at(5))];
        assert_eq!(of(at(5), &two, 2), Verdict::Kept(vec![1]));
        let deleted = [deletion(at(4)), record(at(5))];
        assert_eq!(of(at(5), &deleted, 2), Verdict::Obsolete);
        // One newer version does not make a missing one obsolete where two are kept.
        assert_eq!(of(at(5), &[record(at(4))], 2), Verdict::Pending);
    }

    /// Algorithm 2 of the paper removes an entry that is newer than all versions, though its writer
    /// may be between its two puts.
    #[test]
    fn an_entry_of_a_writer_between_its_puts_stays() {
        let at = |seconds: u64| stamp(NOW - seconds * 1000);
        let before = [Version::record(at(100))];
        assert_eq!(of(at(1), &before, 1), Verdict::Pending);
        assert_eq!(of(at(59), &before, 1), Verdict::Pending);
        assert_eq!(of(at(61), &before, 1), Verdict::Dangling);
    }
}

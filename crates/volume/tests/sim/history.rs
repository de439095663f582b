//! What clients saw, checked: each sector is a register.

use std::collections::BTreeMap;

use super::clients::{Answered, Kind, value};
use super::linearizable::{Action, Operation, ZEROS, check};
use super::world::World;

impl World {
    /// The number of a sector over all volumes.
    fn register(volume: usize, sector: u64) -> u64 {
        (volume as u64) << 40 | sector
    }

    /// The history of all sectors. Reads that may be stale are left out.
    fn history(&self, last: u64) -> Vec<Operation> {
        let mut history = Vec::new();
        for (at, volume) in self.volumes.iter().enumerate() {
            for (sector, value) in &volume.first {
                history.push(Operation {
                    block: Self::register(at, *sector),
                    action: Action::Write(*value),
                    invoked: 0,
                    responded: Some(0),
                });
            }
        }
        for (number, call) in self.calls.iter().enumerate() {
            let responded = call.is_done().then_some(call.responded);
            let mut add = |sector, action, responded| {
                history.push(Operation {
                    block: Self::register(call.volume, sector),
                    action,
                    invoked: call.invoked,
                    responded,
                });
            };
            match (&call.kind, &call.answered) {
                (Kind::Write, _) => {
                    let sectors = call.sectors.clone();
                    sectors.for_each(|sector| add(sector, Action::Write(value(number)), responded));
                }
                (Kind::Discard, _) => {
                    let sectors = call.sectors.clone();
                    sectors.for_each(|sector| add(sector, Action::Discard, responded));
                }
                (Kind::Read, Some(Answered::Values(values))) => {
                    let may_be_stale = self.settings.wild && self.settings.lease;
                    if may_be_stale && call.invoked < last {
                        continue;
                    }
                    for (sector, value) in call.sectors.clone().zip(values) {
                        add(sector, Action::Read(*value), Some(call.responded));
                    }
                }
                _ => {}
            }
        }
        for taken in &self.snapshots {
            // A snapshot is a read of all sectors.
            let (Some(from), Some(until), false) =
                (taken.asked, taken.done, taken.contents.is_empty())
            else {
                continue;
            };
            for (sector, value) in &taken.contents {
                history.push(Operation {
                    block: Self::register(taken.volume, *sector),
                    action: Action::Read(*value),
                    invoked: from,
                    responded: Some(until),
                });
            }
        }
        history
    }

    pub(crate) fn check_history(&mut self) {
        let history = self.history(self.healed_at);
        if let Err(violation) = check(&history) {
            panic!("not linearizable: {violation}");
        }
        self.check_local();
        self.check_contents();
    }

    /// Local reads return what was written at some time.
    fn check_local(&self) {
        for call in self.calls.iter().filter(|call| call.kind == Kind::Local) {
            let Some(Answered::Values(values)) = &call.answered else {
                continue;
            };
            for (sector, value) in call.sectors.clone().zip(values) {
                let first = &self.volumes[call.volume].first;
                let is_known = *value == ZEROS
                    || first.contains(&(sector, *value))
                    || self.calls.get(*value as usize - 1).is_some_and(|write| {
                        write.kind == Kind::Write
                            && write.volume == call.volume
                            && write.sectors.contains(&sector)
                            && write.invoked < call.responded
                    });
                assert!(
                    is_known,
                    "sector {sector} has {value}, which was not written: {call:?}"
                );
            }
        }
    }

    /// No write is in a snapshot that began after the acknowledgement of one that is not.
    pub(crate) fn check_snapshots(&mut self) {
        for taken in &self.snapshots {
            let contents: BTreeMap<u64, u64> = taken.contents.iter().copied().collect();
            let mut last_in = (0, 0);
            let mut first_out = (u64::MAX, 0);
            for (sector, found) in &contents {
                let known = found
                    .checked_sub(1)
                    .and_then(|call| self.calls.get(call as usize));
                let known = known.filter(|call| call.volume == taken.volume);
                if let Some(call) = known {
                    last_in = last_in.max((call.invoked, *sector));
                }
                let since = known
                    .filter(|call| call.is_done())
                    .map(|call| call.responded);
                let was_discarded = self.calls.iter().any(|call| {
                    call.kind == Kind::Discard
                        && call.volume == taken.volume
                        && call.sectors.contains(sector)
                });
                for (number, call) in self.calls.iter().enumerate() {
                    let writes = call.kind == Kind::Write
                        && call.volume == taken.volume
                        && call.is_done()
                        && call.sectors.contains(sector)
                        && value(number) != *found;
                    let is_out = match (*found, since) {
                        // Without a discard, zeros are from before all writes.
                        (ZEROS, _) => !was_discarded,
                        (_, Some(since)) => since < call.invoked,
                        _ => false,
                    };
                    if writes && is_out {
                        first_out = first_out.min((call.responded, *sector));
                    }
                }
            }
            assert!(
                last_in.0 <= first_out.0,
                "snapshot {} of {}: a write to sector {} began at {} and is in it, one to sector {} \
                 was acknowledged at {} and is not: {:?} {:?}",
                taken.name,
                taken.volume,
                last_in.1,
                last_in.0,
                first_out.1,
                first_out.0,
                self.calls.iter().position(|call| call.invoked == last_in.0),
                self.calls
                    .iter()
                    .position(|call| call.responded == first_out.0),
            );
        }
    }
}

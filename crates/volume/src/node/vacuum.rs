//! Cutting the log, removing segments, vacuum and scrub, step by step.

use std::collections::BTreeMap;

use super::core::Core;
use super::heal::Wanted;
use super::input::{LiveBlock, ReadKind, ReadWork};
use super::running::ReadFor;
use super::space::{Copying, IDLE, LOOK, PASS_AGAIN, PIECE_BYTES, SCRUB_AGAIN, Scrub};
use crate::error::Error;
use crate::extents::Kind;
use crate::ids::{Ballot, GroupId, LayerId, Slot};
use crate::place::Place;

/// So many entries of all logs are kept at most for replicas that get an image: each has some
/// hundred bytes in memory.
const MOST_ENTRIES: usize = 1 << 17;

impl Core {
    /// Looks after space.
    pub(super) fn tick_space(&mut self) {
        if self.failed.is_some() || self.formation.is_none() {
            return;
        }
        let appended = self.extents.end().saturating_sub(self.vacuum.flushed_at);
        if appended > self.settings.flush_bytes {
            self.flush_map();
        }
        if self.now >= self.vacuum.looked + LOOK {
            self.vacuum.looked = self.now;
            self.cut_logs();
            self.remove_free();
            self.choose();
            self.merge_layers();
        }
        self.copy_on();
        self.scrub_on();
        self.state_sync();
    }

    /// After a pause, a record says that everything before it is durable: rot in the last batch is
    /// not taken for a torn end then.
    fn state_sync(&mut self) {
        let end = self.extents.end();
        if end != self.vacuum.seen_end {
            self.vacuum.seen_end = end;
            self.vacuum.seen_at = self.now;
        }
        let is_idle = self.extents.synced() == end && self.now >= self.vacuum.seen_at + IDLE;
        if is_idle && self.vacuum.stated_end != end {
            self.append(Kind::Sync, GroupId::SYSTEM, 0, Ballot(0), &[]);
            self.vacuum.stated_end = self.extents.end();
        }
    }

    /// Writes the map's memtables to tables, on a thread that reads.
    fn flush_map(&mut self) {
        if self.vacuum.is_flushing {
            return;
        }
        self.vacuum.is_flushing = true;
        self.vacuum.flushed_at = self.extents.end();
        self.maintain(ReadKind::Flush);
    }

    fn merge_layers(&mut self) {
        if !self.vacuum.is_merging && self.map.has_layers_to_merge() {
            self.vacuum.is_merging = true;
            self.maintain(ReadKind::Merge);
        }
    }

    fn maintain(&mut self, kind: ReadKind) {
        let ticket = self.ticket();
        let group = GroupId::SYSTEM;
        self.start_read(ticket, ReadFor::Upkeep, ReadWork { group, kind });
    }

    /// The last segment that is not kept for replicas that are behind.
    fn last_old_segment(&self) -> Option<u32> {
        let newest = self.extents.newest()?;
        newest.checked_sub(self.settings.log_segments.max(1))
    }

    /// Forgets the part of each log that is state, durably, and old enough.
    fn cut_logs(&mut self) {
        let Some(old) = self.last_old_segment() else {
            return;
        };
        let entries: usize = self.groups.values().map(|group| group.log.len()).sum();
        for (id, durable) in self.map.durable() {
            let Some(group) = self.groups.get_mut(&id) else {
                continue;
            };
            let upto = group.log.last_within(old).min(durable).min(group.applied);
            let consensus = &group.consensus;
            let last = consensus.last().0;
            let matched = |node| consensus.matched(node);
            let needed = self.images.needs_log(id, self.now, last, matched);
            let upto = match needed {
                Some(needed) if entries < MOST_ENTRIES => upto.min(needed),
                _ => upto,
            };
            if upto > group.log.base().0 {
                group.log.cut(upto);
                group.consensus.cut(upto);
            }
        }
    }

    /// Removes segments that nothing refers to.
    fn remove_free(&mut self) {
        let Some(old) = self.last_old_segment() else {
            return;
        };
        let usage = self.map.usage();
        let durable: BTreeMap<GroupId, Slot> = self.map.durable().into_iter().collect();
        let (mut waits, mut unlinked) = (false, Vec::new());
        for segment in self.extents.segments() {
            let number = segment.number;
            if number > old || !segment.is_removable || usage.contains_key(&number) {
                continue;
            }
            // The log may have been cut further than the map is durable, where an entry was
            // damaged.
            let (mut is_log, mut is_state) = (false, false);
            for (id, slot) in &segment.slots {
                let Some(group) = self.groups.get(id) else {
                    continue;
                };
                let have = durable.get(id).copied().unwrap_or_default();
                is_log |= group.log.base().0.min(have).0 < *slot;
                is_state |= have.0 < *slot && *slot <= group.applied.0;
            }
            let is_free = self.map.is_free(number);
            if is_log || !is_free {
                // Only what is state becomes durable by that, and that of no incomplete group.
                waits |= is_state || !is_free;
                continue;
            }
            if self.images.pins(number) || segment.pins > 0 {
                continue;
            }
            match self.extents.give_up(number) {
                Ok(()) => {
                    unlinked.push(number);
                    self.vacuum.freed += 1;
                    self.map.forget_segment(number);
                }
                // Not yet: nothing later is known to be durable.
                Err(Error::InUse { .. }) => {}
                Err(error) if error.may_pass() => {}
                Err(error) => return self.fail(error),
            }
        }
        // Large files take their time, so a thread that reads does it.
        if !unlinked.is_empty() {
            self.maintain(ReadKind::Unlink { segments: unlinked });
        }
        // What is garbage becomes free when the map is flushed.
        if waits && self.vacuum.copying.is_none() {
            self.flush_map();
        }
    }

    /// Chooses a segment to copy out of: the one with the least live bytes, where too much is
    /// garbage.
    fn choose(&mut self) {
        if self.vacuum.copying.is_some() {
            return;
        }
        let Some(old) = self.last_old_segment() else {
            return;
        };
        let usage = self.map.usage();
        let segments = self.extents.segments();
        let of = |number: u32| usage.get(&number).copied().unwrap_or(0);
        let sizes = segments.iter().map(|segment| Size {
            is_old: segment.number <= old,
            bytes: segment.bytes,
            live: of(segment.number),
        });
        if !is_due(sizes, self.settings.live_percent) {
            return;
        }
        let now = self.now;
        let passed = &mut self.vacuum.passed;
        passed.retain(|number, at| *at + PASS_AGAIN > now && of(*number) > 0);
        let candidates = segments.iter().filter(|segment| {
            let number = segment.number;
            // Those without live bytes are removed without copying.
            let has_live = of(number) > 0 && !passed.contains_key(&number);
            number <= old && segment.is_removable && has_live
        });
        let share = |segment: &&crate::extents::SegmentInfo| {
            of(segment.number) * 1000 / segment.bytes.max(1)
        };
        let least = candidates.min_by_key(share);
        // A segment that is nearly full of live blocks gains nothing.
        if let Some(segment) = least.filter(|segment| share(segment) < 950) {
            let (segment, is_reading) = (segment.number, false);
            let next = crate::extents::FIRST_RECORD;
            self.vacuum.copying = Some(Copying {
                segment,
                next,
                is_reading,
            });
        }
    }

    fn copy_on(&mut self) {
        if self.now < self.vacuum.not_before {
            return;
        }
        let Some(copying) = self
            .vacuum
            .copying
            .as_mut()
            .filter(|copying| !copying.is_reading)
        else {
            return;
        };
        copying.is_reading = true;
        let (segment, from) = (copying.segment, copying.next);
        self.maintain(ReadKind::Live { segment, from });
    }

    /// Live blocks of a segment were read: they are written anew.
    pub(super) fn copy(&mut self, segment: u32, live: Vec<LiveBlock>, next: Option<u32>) {
        let mut bytes = 0;
        for block in live {
            let sum = crate::command::checksum(&block.data);
            bytes += block.data.len() as u64;
            let wanted = Wanted {
                group: block.group,
                layer: block.layer,
                block: block.block,
                checksum: block.checksum.unwrap_or(sum),
                place: block.place,
            };
            match self.map.at_layer(block.group, block.layer, block.block) {
                // What the map says is right: a copy has no checksum of its own beside it.
                Ok(Some(extent)) if extent.place == block.place && extent.checksum == sum => {
                    self.rewrite(wanted, &block.data, false, None);
                }
                Ok(Some(extent)) if extent.place == block.place => {
                    let wanted = Wanted {
                        checksum: extent.checksum,
                        ..wanted
                    };
                    self.fetch_anew(wanted, None);
                }
                Ok(_) => {}
                // An image replaces the state: a later pass finds what it has here.
                Err(Error::Incomplete { .. }) => {}
                Err(error) if error.may_pass() => {
                    return self.end_pass();
                }
                Err(error) => return self.fail(error),
            }
        }
        self.vacuum.moved += bytes;
        // Half of the rate is for reading; segments that are nearly empty are passed quickly.
        let rate = self.settings.background_bytes.max(1);
        self.vacuum.not_before = self.now + bytes * 1000 / rate;
        match next {
            None => self.end_pass(),
            Some(next) => {
                self.vacuum.copying = Some(Copying {
                    segment,
                    next,
                    is_reading: false,
                })
            }
        }
    }

    /// A task of upkeep has ended.
    pub(super) fn upkeep_done(&mut self, kind: &ReadKind, failed: bool) {
        match kind {
            ReadKind::Flush => self.vacuum.is_flushing = false,
            ReadKind::Merge => self.vacuum.is_merging = false,
            ReadKind::Live { .. } if failed => self.end_pass(),
            ReadKind::Scrub { .. } if failed => {
                // It goes on where it was.
                if let Some(scrub) = &mut self.vacuum.scrub {
                    scrub.is_reading = false;
                    scrub.not_before = self.now + SCRUB_AGAIN;
                }
            }
            _ => {}
        }
    }

    /// The segment that was copied has been passed. What could not be moved stays in it.
    fn end_pass(&mut self) {
        if let Some(copying) = self.vacuum.copying.take() {
            self.vacuum.passed.insert(copying.segment, self.now);
        }
    }

    /// Begins to check every block.
    pub fn start_scrub(&mut self) {
        if self.vacuum.scrub.is_none() {
            let (after, is_reading, not_before) = (None, false, self.now);
            self.vacuum.scrub = Some(Scrub {
                after,
                is_reading,
                not_before,
            });
            self.vacuum.scrubbed = 0;
        }
    }

    fn scrub_on(&mut self) {
        let now = self.now;
        let Some(scrub) = &mut self.vacuum.scrub else {
            return;
        };
        if scrub.is_reading || scrub.not_before > now {
            return;
        }
        scrub.is_reading = true;
        let after = scrub.after;
        self.maintain(ReadKind::Scrub { after });
    }

    /// Blocks were checked.
    pub(super) fn scrubbed(
        &mut self,
        damaged: Vec<(GroupId, LayerId, u64, u64, Place)>,
        checked: u64,
        last: Option<(GroupId, LayerId, u64)>,
    ) {
        self.vacuum.scrubbed += checked;
        for (group, layer, block, checksum, place) in damaged {
            self.fetch_anew(
                Wanted {
                    group,
                    layer,
                    block,
                    checksum,
                    place,
                },
                None,
            );
        }
        let rate = self.settings.background_bytes.max(1);
        let not_before = self.now + u64::from(PIECE_BYTES) * 1000 / rate;
        self.vacuum.scrub = last.map(|last| Scrub {
            after: Some(last),
            is_reading: false,
            not_before,
        });
    }
}

/// What a segment has, for the decision whether to copy.
struct Size {
    /// It is not kept for replicas that are behind.
    is_old: bool,
    bytes: u64,
    live: u64,
}

/// True where less than `percent` of the segments is live. An old one without live bytes does not
/// count: it only waits for its removal, and is no reason to copy more.
fn is_due(segments: impl Iterator<Item = Size>, percent: u8) -> bool {
    let counted = segments.filter(|segment| !segment.is_old || segment.live > 0);
    let (bytes, live) = counted.fold((0, 0), |(bytes, live), segment| {
        (bytes + segment.bytes, live + segment.live)
    });
    live * 100 < bytes * u64::from(percent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_that_wait_for_their_removal_are_no_reason_to_copy_more() {
        let size = |is_old, live| Size {
            is_old,
            bytes: 100,
            live,
        };
        let due = |sizes: [Size; 3]| is_due(sizes.into_iter(), 70);
        assert!(!due([size(true, 0), size(true, 80), size(false, 70)]));
        assert!(due([size(true, 1), size(true, 80), size(false, 70)]));
        assert!(due([size(false, 0), size(true, 80), size(false, 70)]));
    }
}

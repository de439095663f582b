//! Where moments, discards and reads of zeros can be between the zones.
//!
//! Time is swept once, with a state: zeros, or a value. These choices lose nothing:
//!
//! - Reads of zeros happen as soon as the state is zeros, and moments as soon as it is a value.
//! - Zeros are at least as good as a value: the next moment that must happen makes them a value,
//!   and all moments that can then happen do. So a moment that would end zeros happens at its
//!   latest.
//! - A discard happens at its latest, too (and moments that can happen do just before it, so that
//!   they end no zeros), or when a read of zeros must happen and there is a
//!   value. Then of those that can happen it is the one whose latest time is earliest: another one
//!   could take its place later, but perhaps not the reverse.
//! - In a zone nothing else happens. What can happen until then, and must before the zone's end,
//!   must happen before its beginning.

use std::collections::BTreeSet;

use super::clusters::Cluster;
use super::{Action, Found, Operation, Reason, ZEROS};

/// What is to be placed between the zones.
#[derive(Clone, Copy)]
enum Kind {
    /// All operations of a cluster.
    Moment(usize),
    Discard(usize),
    /// Of zeros.
    Read(usize),
}

/// What happens at a time, in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    ZoneEnds(usize),
    Possible(usize),
    MomentDue(usize),
    DiscardDue(usize),
    ReadDue(usize),
    ZoneBegins(usize),
}

/// Something with the time in which it can happen.
struct Item {
    kind: Kind,
    from: u64,
    to: Option<u64>,
}

struct Sweep<'a> {
    clusters: &'a [Cluster],
    items: Vec<Item>,
    is_zeros: bool,
    /// The operations of the cluster that ended the last zeros.
    ended_by: Vec<usize>,
    moments: BTreeSet<usize>,
    reads: BTreeSet<usize>,
    /// By the latest time.
    discards: BTreeSet<(u64, usize)>,
}

/// Checks what is outside of the zones, which do not overlap and are ordered by time.
pub(crate) fn check(
    history: &[Operation],
    operations: &[usize],
    clusters: &[Cluster],
    zones: &[&Cluster],
) -> Result<(), Found> {
    let mut items = items(history, operations, clusters);
    for item in &mut items {
        fit(item, clusters, zones)?;
    }
    let mut steps = Vec::new();
    for (at, zone) in zones.iter().enumerate() {
        steps.push((zone.first.0, Step::ZoneBegins(at)));
        steps.push((zone.last.0, Step::ZoneEnds(at)));
    }
    for (at, item) in items.iter().enumerate() {
        steps.push((item.from, Step::Possible(at)));
        if let Some(to) = item.to {
            steps.push((
                to,
                match item.kind {
                    Kind::Moment(_) => Step::MomentDue(at),
                    Kind::Discard(_) => Step::DiscardDue(at),
                    Kind::Read(_) => Step::ReadDue(at),
                },
            ));
        }
    }
    steps.sort_unstable();
    let mut sweep = Sweep {
        clusters,
        items,
        is_zeros: true,
        ended_by: Vec::new(),
        moments: BTreeSet::new(),
        reads: BTreeSet::new(),
        discards: BTreeSet::new(),
    };
    for (_, step) in steps {
        sweep.step(step, zones)?;
    }
    Ok(())
}

fn items(history: &[Operation], operations: &[usize], clusters: &[Cluster]) -> Vec<Item> {
    let moments = clusters.iter().enumerate().filter(|(_, c)| !c.is_zone());
    let moments = moments.map(|(at, cluster)| Item {
        kind: Kind::Moment(at),
        from: cluster.last.0,
        to: Some(cluster.first.0),
    });
    let others = operations.iter().filter_map(|&at| {
        let Operation {
            action,
            invoked,
            responded,
            ..
        } = history[at];
        let kind = match action {
            Action::Discard => Kind::Discard(at),
            Action::Read(ZEROS) if responded.is_some() => Kind::Read(at),
            Action::Read(_) | Action::Write(_) => return None,
        };
        Some(Item {
            kind,
            from: invoked,
            to: responded,
        })
    });
    moments.chain(others).collect()
}

/// The zone that a time is inside of; both of its ends are outside.
fn around<'a>(time: u64, zones: &[&'a Cluster]) -> Option<&'a Cluster> {
    let next = zones.partition_point(|zone| zone.first.0 < time);
    let zone = zones[..next].last()?;
    (time < zone.last.0).then_some(*zone)
}

/// Takes the zones off both ends of the time in which something can happen.
fn fit(item: &mut Item, clusters: &[Cluster], zones: &[&Cluster]) -> Result<(), Found> {
    let (begin, end) = (
        around(item.from, zones),
        item.to.and_then(|to| around(to, zones)),
    );
    item.from = begin.map_or(item.from, |zone| zone.last.0);
    if let Some(zone) = end {
        item.to = Some(zone.first.0);
        if item.from > zone.first.0 {
            let mut involved = zone.involved();
            match item.kind {
                Kind::Moment(at) => involved.extend(clusters[at].involved()),
                Kind::Discard(at) | Kind::Read(at) => involved.push(at),
            }
            return Err((Reason::Within, involved));
        }
    }
    Ok(())
}

impl Sweep<'_> {
    fn step(&mut self, step: Step, zones: &[&Cluster]) -> Result<(), Found> {
        match step {
            Step::ZoneEnds(_) => {}
            Step::Possible(item) => self.possible(item),
            Step::MomentDue(item) => {
                if let (true, Kind::Moment(at)) =
                    (self.moments.contains(&item), self.items[item].kind)
                {
                    self.value(self.clusters[at].involved());
                }
            }
            Step::DiscardDue(item) => {
                if self.discards.remove(&self.latest(item)) {
                    self.zeros();
                }
            }
            Step::ReadDue(item) => {
                if self.reads.contains(&item) {
                    self.discard_for(item)?;
                }
            }
            Step::ZoneBegins(zone) => self.value(zones[zone].involved()),
        }
        Ok(())
    }

    fn latest(&self, item: usize) -> (u64, usize) {
        (self.items[item].to.unwrap_or(u64::MAX), item)
    }

    fn possible(&mut self, item: usize) {
        match self.items[item].kind {
            Kind::Moment(_) if self.is_zeros => {
                self.moments.insert(item);
            }
            Kind::Read(_) if !self.is_zeros => {
                self.reads.insert(item);
            }
            Kind::Moment(at) => self.ended_by = self.clusters[at].involved(),
            Kind::Read(_) => {}
            Kind::Discard(_) => {
                self.discards.insert(self.latest(item));
            }
        }
    }

    /// A value is written, and all other moments that can happen do.
    fn value(&mut self, by: Vec<usize>) {
        self.is_zeros = false;
        self.moments.clear();
        self.ended_by = by;
    }

    /// Zeros are written: all moments that can happen do before, all reads of zeros after.
    fn zeros(&mut self) {
        self.is_zeros = true;
        self.moments.clear();
        self.reads.clear();
    }

    /// Discards so that a read returns zeros.
    fn discard_for(&mut self, read: usize) -> Result<(), Found> {
        if self.discards.pop_first().is_some() {
            self.zeros();
            return Ok(());
        }
        let mut involved = self.ended_by.clone();
        if let Kind::Read(at) = self.items[read].kind {
            involved.push(at);
        }
        Err((Reason::NoDiscard, involved))
    }
}

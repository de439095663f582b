//! Values that are written once: each with its write and its reads is a cluster, whose operations
//! are next to each other in any linearization (Gibbons and Korach, "Testing shared memories").
//!
//! Let *first* be the earliest response in a cluster and *last* the latest invocation. If first is
//! before last, the value is there all the time from first to last: a zone, and zones must not
//! overlap. Otherwise all its operations can happen at one moment from last to first: a *moment*.

use std::collections::HashMap;

use super::{Action, Found, Operation, Reason, ZEROS};

/// A write and its reads.
pub(crate) struct Cluster {
    /// The place of the write in the history.
    write: usize,
    /// The earliest response, and whose it is.
    pub(crate) first: (u64, usize),
    /// The latest invocation, and whose it is.
    pub(crate) last: (u64, usize),
}

impl Cluster {
    /// Its write, and the operations that say when its value was there.
    pub(crate) fn involved(&self) -> Vec<usize> {
        vec![self.write, self.first.1, self.last.1]
    }

    /// True where its value is there for some time for certain.
    pub(crate) fn is_zone(&self) -> bool {
        self.first.0 < self.last.0
    }
}

/// The clusters of a block, without writes that may never have happened: without reads they are of
/// no use to any other operation, so they need not have happened.
pub(crate) fn clusters(history: &[Operation], operations: &[usize]) -> Result<Vec<Cluster>, Found> {
    let mut clusters: HashMap<u64, Cluster> = HashMap::new();
    for &at in operations {
        if let Action::Write(value) = history[at].action {
            assert_ne!(value, ZEROS, "a write of zeros is a discard");
            let cluster = Cluster {
                write: at,
                first: (history[at].responded.unwrap_or(u64::MAX), at),
                last: (history[at].invoked, at),
            };
            let other = clusters.insert(value, cluster);
            assert!(other.is_none(), "{value} is written twice");
        }
    }
    for &at in operations {
        let Operation {
            action: Action::Read(value),
            invoked,
            responded: Some(responded),
            ..
        } = history[at]
        else {
            continue;
        };
        if value == ZEROS {
            continue;
        }
        let Some(cluster) = clusters.get_mut(&value) else {
            return Err((Reason::Unwritten, vec![at]));
        };
        if responded < history[cluster.write].invoked {
            return Err((Reason::Future, vec![at, cluster.write]));
        }
        cluster.first = cluster.first.min((responded, at));
        cluster.last = cluster.last.max((invoked, at));
    }
    let mut clusters: Vec<Cluster> = clusters.into_values().collect();
    clusters.retain(|cluster| {
        history[cluster.write].responded.is_some() || cluster.first.1 != cluster.write
    });
    // By anything that does not depend on the order of a hash map.
    clusters.sort_by_key(|cluster| (cluster.first, cluster.last));
    Ok(clusters)
}

/// The clusters that are zones, by time.
pub(crate) fn zones(clusters: &[Cluster]) -> Result<Vec<&Cluster>, Found> {
    let zones: Vec<&Cluster> = clusters.iter().filter(|c| c.is_zone()).collect();
    for pair in zones.windows(2) {
        if pair[0].last.0 > pair[1].first.0 {
            let involved = [pair[0].involved(), pair[1].involved()].concat();
            return Err((Reason::Interleaved, involved));
        }
    }
    Ok(zones)
}

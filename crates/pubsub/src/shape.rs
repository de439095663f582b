//! The shapes of what is stored: at which levels of topics and cells, and under which anchors, there are lists at all.
//!
//! A publication at `a/b/c` and a point could meet subscriptions to `a/b/c`, `a/b`, `a` and the root, each in as many
//! cells as there are levels, each under any anchor. It looks only where something of that shape was stored and may be
//! alive: a handful of keys in practice, whatever the depth. (Classifiers of packets know this as tuple space search.)
//!
//! A shape is written to the directory, with the time until which it is needed, in the batch of the first element of
//! that shape; the time is stretched generously, so that few elements have to write it again.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use arc_swap::ArcSwap;
use esker_coding::{Reader, put_bytes};
use esker_model::schema::{Path, Values};
use parking_lot::Mutex;

use crate::anchor::{AnchorShape, Filing};
use crate::element::{NEVER, Time};
use crate::topic::Reach;

/// A level of topics, and one of cells.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Shape {
    Publications {
        levels: u8,
        cell: u8,
    },
    Subscriptions {
        reach: Reach,
        levels: u8,
        /// The levels that are `+`, as bits.
        wild: u64,
        cell: u8,
        anchor: Option<AnchorShape>,
        /// Some of them ask for changes of a number.
        changes: bool,
    },
}

/// The most paths by which conditions are filed; those on further ones are evaluated one by one.
const MOST_PATHS: usize = 64;

/// The shapes that may be alive, and what is derived from them.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) publications: Vec<(u8, u8)>,
    /// Each with the number of its anchor's path in `values`.
    pub(crate) subscriptions: Vec<(Shape, Option<usize>)>,
    pub(crate) values: Option<Values>,
    pub(crate) has_changes: bool,
    /// All of them in their order, each with the time until which it is needed by the directory.
    until: Vec<(Shape, Time)>,
}

/// The shapes of a broker.
#[derive(Default)]
pub(crate) struct Shapes {
    until: Mutex<HashMap<Shape, Until>>,
    known: ArcSwap<Known>,
}

/// Until when a shape is needed.
#[derive(Debug, Clone, Copy)]
struct Until {
    /// By what was to be written: it is not forgotten before.
    promised: Time,
    /// By what the directory says. A write can fail.
    written: Time,
}

impl Shapes {
    /// Takes up what the directory says.
    pub(crate) fn load(found: impl IntoIterator<Item = (Shape, Time)>) -> Shapes {
        let shapes = Shapes::default();
        shapes.merge(found);
        shapes
    }

    /// Adds what the directory says.
    pub(crate) fn merge(&self, found: impl IntoIterator<Item = (Shape, Time)>) {
        let mut until = self.until.lock();
        let before = until.len();
        until.extend(found.into_iter().map(|(shape, written)| {
            let promised = written;
            (shape, Until { promised, written })
        }));
        if until.len() != before {
            self.known.store(Arc::new(Known::of(&until)));
        }
    }

    pub(crate) fn known(&self) -> Arc<Known> {
        self.known.load_full()
    }

    /// True when conditions on this path may be filed.
    pub(crate) fn takes(&self, path: &str) -> bool {
        let until = self.until.lock();
        let paths: BTreeSet<&str> = until.keys().filter_map(Shape::path).collect();
        paths.contains(path) || paths.len() < MOST_PATHS
    }

    /// Called in the order of commits, before an element that is needed until `needed` is in the log: the shapes that
    /// are to be written with it, each with the time that is promised for it, and [confirmed](Shapes::confirm) then. Those
    /// that have ended are forgotten where `forgets` is true.
    pub(crate) fn need(
        &self,
        shapes: &[Shape],
        now: Time,
        needed: Time,
        forgets: &dyn Fn() -> bool,
    ) -> Vec<(Shape, Time)> {
        let is_there = |known: &Known, shape: &Shape| {
            let at = known.until.binary_search_by(|(other, _)| other.cmp(shape));
            let found = at.ok().and_then(|at| known.until.get(at));
            found.is_some_and(|(_, until)| *until >= needed)
        };
        let known = self.known.load();
        if shapes.iter().all(|shape| is_there(&known, shape)) {
            return Vec::new();
        }
        let mut until = self.until.lock();
        let before = until.len();
        if forgets() {
            // A clock does not go below 0, and times may: at 0 none of them has passed for certain.
            let lasts = |time: Time| now == 0 || time == NEVER || time >= now;
            until.retain(|_, until| lasts(until.promised));
        }
        let mut is_changed = until.len() != before;
        let mut written = Vec::new();
        for shape in shapes.iter().filter(|shape| !is_there(&known, shape)) {
            let ahead = needed.saturating_sub(now).max(0);
            let of = until.entry(shape.clone()).or_insert_with(|| {
                is_changed = true;
                Until {
                    promised: Time::MIN,
                    written: Time::MIN,
                }
            });
            // Never less than another write under way: the last one counts.
            of.promised = of.promised.max(needed.saturating_add(ahead));
            written.push((shape.clone(), of.promised));
        }
        if is_changed {
            self.known.store(Arc::new(Known::of(&until)));
        }
        written
    }

    /// These are in the directory.
    pub(crate) fn confirm(&self, written: Vec<(Shape, Time)>) {
        if written.is_empty() {
            return;
        }
        let mut until = self.until.lock();
        for (shape, time) in written {
            if let Some(until) = until.get_mut(&shape) {
                until.written = until.written.max(time);
            }
        }
        self.known.store(Arc::new(Known::of(&until)));
    }
}

impl Known {
    fn of(shapes: &HashMap<Shape, Until>) -> Known {
        let mut known = Known {
            until: shapes
                .iter()
                .map(|(shape, until)| (shape.clone(), until.written))
                .collect(),
            ..Known::default()
        };
        known.until.sort_unstable();
        let mut paths: Vec<Arc<str>> = Vec::new();
        for shape in shapes.keys() {
            match shape {
                Shape::Publications { levels, cell } => known.publications.push((*levels, *cell)),
                Shape::Subscriptions {
                    anchor, changes, ..
                } => {
                    let path = anchor.as_ref().map(|anchor| {
                        let known = paths.iter().position(|path| *path == anchor.path);
                        known.unwrap_or_else(|| {
                            paths.push(anchor.path.clone());
                            paths.len() - 1
                        })
                    });
                    known.has_changes |= changes;
                    known.subscriptions.push((shape.clone(), path));
                }
            }
        }
        let parsed: Option<Vec<Path>> = paths.iter().map(|path| Path::parse(path).ok()).collect();
        known.values = parsed
            .filter(|paths| !paths.is_empty())
            .map(|paths| Values::new(&paths));
        known
    }
}

impl Shape {
    fn path(&self) -> Option<&str> {
        match self {
            Shape::Subscriptions {
                anchor: Some(anchor),
                ..
            } => Some(&anchor.path),
            _ => None,
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Shape::Publications { levels, cell } => out.extend([1, *levels, *cell]),
            Shape::Subscriptions {
                reach,
                levels,
                wild,
                cell,
                anchor,
                changes,
            } => {
                let reach = match reach {
                    Reach::Overlap => 0,
                    Reach::Exact => 1,
                    Reach::Below => 2,
                };
                out.extend([2, reach, *levels, *cell, u8::from(*changes)]);
                out.extend_from_slice(&wild.to_le_bytes());
                if let Some(anchor) = anchor {
                    let (filing, bits) = match anchor.filing {
                        Filing::Equal => (1, 0),
                        Filing::AnyString => (2, 0),
                        Filing::AtLeast => (3, 0),
                        Filing::AtMost => (4, 0),
                        Filing::Block(bits) => (5, bits),
                    };
                    out.extend([filing, bits]);
                    put_bytes(&mut out, anchor.path.as_bytes());
                }
            }
        }
        out
    }

    pub(crate) fn decode(stored: &[u8]) -> Option<Shape> {
        let mut input = Reader::new(stored);
        if input.u8()? == 1 {
            let (levels, cell) = (input.u8()?, input.u8()?);
            return Some(Shape::Publications { levels, cell });
        }
        let reach = match input.u8()? {
            0 => Reach::Overlap,
            1 => Reach::Exact,
            2 => Reach::Below,
            _ => return None,
        };
        let (levels, cell, changes) = (input.u8()?, input.u8()?, input.u8()? != 0);
        let wild = input.u64()?;
        let anchor = match input.is_empty() {
            true => None,
            false => {
                let (filing, bits) = (input.u8()?, input.u8()?);
                let filing = match filing {
                    1 => Filing::Equal,
                    2 => Filing::AnyString,
                    3 => Filing::AtLeast,
                    4 => Filing::AtMost,
                    5 if bits <= 64 => Filing::Block(bits),
                    _ => return None,
                };
                let path = std::str::from_utf8(input.bytes()?).ok()?.into();
                Some(AnchorShape { path, filing })
            }
        };
        Some(Shape::Subscriptions {
            reach,
            levels,
            wild,
            cell,
            anchor,
            changes,
        })
    }
}

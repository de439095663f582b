//! Shapes: the combinations of topic level, cell level and anchor for which lists exist.
//!
//! A publication to `a/b/c` at a point could meet subscriptions to `a/b/c`, `a/b`, `a` and the
//! root, each in as many cells as there are levels, each under any anchor. It reads only lists of
//! shapes that were stored and may be alive: a handful of keys in practice, at any depth. (Packet
//! classifiers call this tuple space search.)
//!
//! The first element of a shape writes it to the directory, in the same batch, with the time until
//! which it is needed. This time is extended generously, so that few later elements must write the
//! shape again.
//!
//! A shape is *known* from before the write that brings it until its time has passed, so publishers
//! miss no list. It counts as *written* only after that write, which can fail.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use arc_swap::ArcSwap;
use esker_coding::{Reader, put_bytes};
use esker_model::schema::{Path, Values};
use parking_lot::Mutex;

use crate::anchor::{AnchorShape, Filing};
use crate::element::{NEVER, Time};
use crate::topic::Reach;

/// The levels of topics and cells, and the anchor, of a set of lists.
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
        /// True for subscriptions to changes of a number.
        changes: bool,
    },
}

/// The maximum number of paths under which conditions are filed; conditions on other paths are
/// evaluated one by one.
const MOST_PATHS: usize = 64;

/// The shapes that may be alive, and data derived from them.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// The levels of topics and of cells.
    pub(crate) publications: Vec<(u8, u8)>,
    /// Each with the number of its anchor's path in `values`.
    pub(crate) subscriptions: Vec<(Shape, Option<usize>)>,
    pub(crate) values: Option<Values>,
    pub(crate) has_changes: bool,
    /// All shapes, sorted, each with the time that is written for it.
    until: Vec<(Shape, Time)>,
}

/// The shapes of a broker.
#[derive(Default)]
pub(crate) struct Shapes {
    until: Mutex<HashMap<Shape, Until>>,
    known: ArcSwap<Known>,
}

/// The time until which a shape is needed.
#[derive(Debug, Clone, Copy)]
struct Until {
    /// The latest time that a write was to store. The shape is known until then.
    promised: Time,
    /// The time in the directory. A write can fail.
    written: Time,
}

impl Shapes {
    /// Begins with the shapes in the directory.
    pub(crate) fn load(found: impl IntoIterator<Item = (Shape, Time)>) -> Shapes {
        let shapes = Shapes::default();
        shapes.merge(found);
        shapes
    }

    /// Adds shapes that another process has written.
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

    /// True if conditions on this path may be filed.
    pub(crate) fn takes(&self, path: &str) -> bool {
        let until = self.until.lock();
        let paths: BTreeSet<&str> = until.keys().filter_map(Shape::path).collect();
        paths.contains(path) || paths.len() < MOST_PATHS
    }

    /// Returns the shapes to write with an element that is needed until `needed`, each with the
    /// time to write. Called in the order of commits, before the element is in the log. After the
    /// write the caller [confirms](Shapes::confirm) them. If `forgets` returns true, drops shapes
    /// whose time has passed.
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
            // The clock does not go below 0, but times may: at 0, a negative time may not have
            // passed.
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
            // The last write stays in the directory: it must not promise less than another under
            // way.
            of.promised = of.promised.max(needed.saturating_add(ahead));
            written.push((shape.clone(), of.promised));
        }
        if is_changed {
            self.known.store(Arc::new(Known::of(&until)));
        }
        written
    }

    /// Records that these shapes are in the directory.
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
        let anchor = if input.is_empty() {
            None
        } else {
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

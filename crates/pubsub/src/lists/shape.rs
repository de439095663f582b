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
//! A shape becomes *known* before its directory entry is written, and stays known at least until
//! its time has passed, so publishers miss no list. It is *written* once that write has succeeded.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use arc_swap::ArcSwap;
use esker_coding::{Own, Reader, put_bytes};
use esker_model::schema::{Path, Values};
use parking_lot::Mutex;

use crate::forms::anchor::{AnchorPath, AnchorShape, Filing};
use crate::forms::element::{NEVER, Time};
use crate::forms::topic::{PatternLevels, Reach};

/// The shape of a set of lists.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Shape {
    Publications(PublicationShape),
    Subscriptions(SubscriptionShape),
}

/// The shape of lists of publications.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct PublicationShape {
    /// The number of levels of the topic.
    pub(crate) levels: u8,
    pub(crate) cell_level: u8,
}

/// The shape of lists of subscriptions.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct SubscriptionShape {
    pub(crate) reach: Reach,
    pub(crate) pattern_levels: PatternLevels,
    pub(crate) cell_level: u8,
    pub(crate) anchor: Option<AnchorShape>,
    /// True for subscriptions to changes of a number.
    pub(crate) changes: bool,
}

/// The kinds of shapes, as stored.
const PUBLICATIONS: u8 = 1;
const SUBSCRIPTIONS: u8 = 2;

/// A shape as the directory stores it: needed until a time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ShapeUntil {
    pub(crate) shape: Shape,
    pub(crate) until: Time,
}

/// The maximum number of paths under which conditions are filed; conditions on other paths are
/// evaluated one by one. Subscriptions that are made at the same time may exceed it.
const MAX_FILED_PATHS: usize = 64;

/// The shapes that may be alive, and data derived from them.
#[derive(Debug, Default)]
pub(crate) struct KnownShapes {
    pub(crate) publications: Vec<PublicationShape>,
    pub(crate) subscriptions: Vec<KnownSubscriptions>,
    /// Finds the values of a body at the paths of all anchors; `None` if no shape has an anchor.
    pub(crate) value_finder: Option<Values>,
    /// True if a subscription to changes of a number may be alive.
    pub(crate) has_changes: bool,
    /// The shapes that are confirmed to be in the directory, sorted, each with its stored time.
    written: Vec<ShapeUntil>,
}

/// A known shape of subscriptions.
#[derive(Debug)]
pub(crate) struct KnownSubscriptions {
    pub(crate) shape: SubscriptionShape,
    /// The shape's anchor, if it has one, prepared for publications.
    pub(crate) known_anchor: Option<KnownAnchor>,
}

/// The anchor of a known shape, prepared for publications.
#[derive(Debug)]
pub(crate) struct KnownAnchor {
    pub(crate) shape: AnchorShape,
    /// [`AnchorShape::prefix`].
    pub(crate) prefix: Vec<u8>,
    /// The number of its path in [`KnownShapes::value_finder`].
    pub(crate) path_number: usize,
}

/// The shapes of a broker. `known` is derived from `lifetimes`, and replaced under its lock.
#[derive(Default)]
pub(crate) struct Shapes {
    lifetimes: Mutex<HashMap<Shape, Lifetime>>,
    known: ArcSwap<KnownShapes>,
}

/// How long a shape is needed.
#[derive(Debug, Clone, Copy)]
struct Lifetime {
    /// The latest time that was given to any write of the shape, finished or not. The shape stays
    /// known at least until then.
    promised: Time,
    /// The latest time in the directory; `None` before the first write succeeds. Earlier than
    /// `promised` after a write that failed.
    written: Option<Time>,
}

impl Lifetime {
    /// True until its time has passed.
    fn lasts(&self, now: Time) -> bool {
        // The clock does not go below 0, but times may: at 0, a negative time may not have passed.
        now == 0 || self.promised == NEVER || self.promised >= now
    }
}

impl Shapes {
    /// Begins with the shapes in the directory.
    pub(crate) fn load(stored: impl IntoIterator<Item = ShapeUntil>) -> Shapes {
        let shapes = Shapes::default();
        shapes.merge(stored, Time::MIN, false);
        shapes
    }

    /// Adds the shapes in the directory, which another process writes. If `may_drop`, drops shapes
    /// whose time has passed and that are not in the directory any more.
    pub(crate) fn merge(
        &self,
        stored: impl IntoIterator<Item = ShapeUntil>,
        now: Time,
        may_drop: bool,
    ) {
        let stored: HashMap<Shape, Time> = stored
            .into_iter()
            .map(|stored| (stored.shape, stored.until))
            .collect();
        let mut lifetimes = self.lifetimes.lock();
        let before = lifetimes.len();
        if may_drop {
            // The directory may be one of before another thread's: what lasts stays known.
            lifetimes.retain(|shape, lifetime| lifetime.lasts(now) || stored.contains_key(shape));
        }
        let mut is_changed = lifetimes.len() != before;
        for (shape, until) in stored {
            let lifetime = lifetimes.entry(shape).or_insert(Lifetime {
                promised: until,
                written: None,
            });
            is_changed |= lifetime.written < Some(until);
            lifetime.promised = lifetime.promised.max(until);
            lifetime.written = lifetime.written.max(Some(until));
        }
        if is_changed {
            self.known.store(Arc::new(KnownShapes::of(&lifetimes)));
        }
    }

    /// The shapes that may be alive now.
    pub(crate) fn known(&self) -> Arc<KnownShapes> {
        self.known.load_full()
    }

    /// True if conditions on this path may be filed: the path has filed conditions already, or
    /// fewer than [`MAX_FILED_PATHS`] paths have.
    pub(crate) fn may_file_under(&self, path: &AnchorPath) -> bool {
        let lifetimes = self.lifetimes.lock();
        let paths: BTreeSet<&AnchorPath> =
            lifetimes.keys().filter_map(Shape::anchor_path).collect();
        paths.contains(path) || paths.len() < MAX_FILED_PATHS
    }

    /// Returns the shapes to write with an element that is needed until `needed_until`, each with
    /// the time to write. Called under the writer lock of the store, before the element is in the
    /// log. After the write the caller [confirms](Shapes::confirm) them. If `may_drop` returns
    /// true, drops shapes whose time has passed.
    pub(crate) fn extend_lifetimes(
        &self,
        shapes: &[Shape],
        now: Time,
        needed_until: Time,
        may_drop: &dyn Fn() -> bool,
    ) -> Vec<ShapeUntil> {
        let known = self.known.load();
        let is_written = |shape: &Shape| known.is_written(shape, needed_until);
        if shapes.iter().all(is_written) {
            return Vec::new();
        }
        let mut lifetimes = self.lifetimes.lock();
        let before = lifetimes.len();
        if may_drop() {
            lifetimes.retain(|_, lifetime| lifetime.lasts(now));
        }
        let mut is_changed = lifetimes.len() != before;
        let mut to_write = Vec::new();
        for shape in shapes.iter().filter(|shape| !is_written(shape)) {
            let ahead = needed_until.saturating_sub(now).max(0);
            let promised = needed_until.saturating_add(ahead);
            let lifetime = lifetimes.entry(shape.clone()).or_insert_with(|| {
                is_changed = true;
                Lifetime {
                    promised,
                    written: None,
                }
            });
            // Concurrent writes overwrite each other's entry, so each stores the latest time of
            // all.
            lifetime.promised = lifetime.promised.max(promised);
            debug_assert!(
                lifetime.promised >= needed_until,
                "the entry outlives the element"
            );
            to_write.push(ShapeUntil {
                shape: shape.clone(),
                until: lifetime.promised,
            });
        }
        if is_changed {
            self.known.store(Arc::new(KnownShapes::of(&lifetimes)));
        }
        to_write
    }

    /// Records that these shapes are in the directory.
    pub(crate) fn confirm(&self, written: Vec<ShapeUntil>) {
        if written.is_empty() {
            return;
        }
        let mut lifetimes = self.lifetimes.lock();
        for confirmed in written {
            // The shape may have been dropped meanwhile, if its time has passed.
            if let Some(lifetime) = lifetimes.get_mut(&confirmed.shape) {
                lifetime.written = lifetime.written.max(Some(confirmed.until));
            }
        }
        self.known.store(Arc::new(KnownShapes::of(&lifetimes)));
    }
}

impl KnownShapes {
    fn of(lifetimes: &HashMap<Shape, Lifetime>) -> KnownShapes {
        let mut known = KnownShapes::default();
        let mut paths: Vec<Path> = Vec::new();
        for (shape, lifetime) in lifetimes {
            if let Some(until) = lifetime.written {
                let shape = shape.clone();
                known.written.push(ShapeUntil { shape, until });
            }
            match shape {
                Shape::Publications(publications) => known.publications.push(*publications),
                Shape::Subscriptions(subscriptions) => {
                    known.has_changes |= subscriptions.changes;
                    let anchor = subscriptions.anchor.as_ref();
                    known.subscriptions.push(KnownSubscriptions {
                        shape: subscriptions.clone(),
                        known_anchor: anchor.map(|anchor| KnownAnchor::new(anchor, &mut paths)),
                    });
                }
            }
        }
        known.written.sort_unstable();
        known.value_finder = (!paths.is_empty()).then(|| Values::new(&paths));
        known
    }

    /// True if the directory has this shape until `needed_until` or longer.
    fn is_written(&self, shape: &Shape, needed_until: Time) -> bool {
        let at = (self.written).binary_search_by(|written| written.shape.cmp(shape));
        at.is_ok_and(|at| self.written.own(at).until >= needed_until)
    }
}

impl KnownAnchor {
    /// Prepares an anchor, and adds its path to those of all anchors if it is not among them.
    fn new(anchor: &AnchorShape, paths: &mut Vec<Path>) -> KnownAnchor {
        let position = paths.iter().position(|path| path == anchor.path.path());
        let path_number = position.unwrap_or_else(|| {
            paths.push(anchor.path.path().clone());
            paths.len() - 1
        });
        KnownAnchor {
            shape: anchor.clone(),
            prefix: anchor.prefix(),
            path_number,
        }
    }
}

impl Shape {
    /// The anchor's path; `None` without an anchor.
    fn anchor_path(&self) -> Option<&AnchorPath> {
        match self {
            Shape::Subscriptions(shape) => Some(&shape.anchor.as_ref()?.path),
            Shape::Publications(_) => None,
        }
    }

    /// The stored form, the key of the shape in the directory.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Shape::Publications(shape) => {
                out.extend([PUBLICATIONS, shape.levels, shape.cell_level])
            }
            Shape::Subscriptions(shape) => {
                out.push(SUBSCRIPTIONS);
                shape.encode(&mut out);
            }
        }
        out
    }

    /// Decodes a stored shape; `None` if it is malformed.
    pub(crate) fn decode(stored: &[u8]) -> Option<Shape> {
        let mut input = Reader::new(stored);
        let shape = match input.u8()? {
            PUBLICATIONS => Shape::Publications(PublicationShape {
                levels: input.u8()?,
                cell_level: input.u8()?,
            }),
            SUBSCRIPTIONS => Shape::Subscriptions(SubscriptionShape::decode(&mut input)?),
            _ => return None,
        };
        input.is_empty().then_some(shape)
    }
}

impl SubscriptionShape {
    fn encode(&self, out: &mut Vec<u8>) {
        let PatternLevels { count, wild } = self.pattern_levels;
        out.extend([self.reach.byte(), count, self.cell_level]);
        out.push(u8::from(self.changes));
        out.extend_from_slice(&wild.to_le_bytes());
        if let Some(anchor) = &self.anchor {
            out.extend(anchor.filing.encode());
            put_bytes(out, anchor.path.text().as_bytes());
        }
    }

    fn decode(input: &mut Reader<'_>) -> Option<SubscriptionShape> {
        let reach = Reach::from_byte(input.u8()?)?;
        let (count, cell_level) = (input.u8()?, input.u8()?);
        let changes = match input.u8()? {
            0 => false,
            1 => true,
            _ => return None,
        };
        let wild = input.u64()?;
        let anchor = if input.is_empty() {
            None
        } else {
            let filing = Filing::decode([input.u8()?, input.u8()?])?;
            let path = AnchorPath::decode(input.bytes()?)?;
            Some(AnchorShape { path, filing })
        };
        Some(SubscriptionShape {
            reach,
            pattern_levels: PatternLevels::decode(count, wild)?,
            cell_level,
            anchor,
            changes,
        })
    }
}

#[cfg(test)]
#[path = "shape_tests.rs"]
mod tests;

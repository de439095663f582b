//! The point of a record: its coordinates, as an extraction or a scan finds them.

use std::ops::ControlFlow;

use esker_coding::Own;

use super::at_path::Found;
use super::found::{describe, nearest_float};
use super::path::Path;
use super::point::{COORDINATES, coordinate_paths};
use super::readable::without_repeated_names;
use super::types::Type;
use super::walk::{Numbers, Rest, Sink, Trie};
use crate::error::Result;
use crate::geometry::{Point, Space};

/// A part of a point, by the path of its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// The first coordinate.
    X,
    /// The second coordinate.
    Y,
    /// The next coordinate of an array.
    Next,
    /// The same, or a GeoJSON object around the array.
    Place,
}

/// The coordinates found for a point of a record.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Coordinates {
    x: Option<f64>,
    y: Option<f64>,
    /// The number of coordinates found; a third one may be an altitude.
    found: u8,
    /// An object was found at the path, which may be a GeoJSON point.
    is_object: bool,
    /// The first value found that cannot be a coordinate.
    wrong: Option<&'static str>,
}

impl Coordinates {
    /// Takes a number: the first (`Some(true)`) or the second coordinate, or the next one of an
    /// array.
    fn take(&mut self, first: Option<bool>, value: f64) {
        let place = match first {
            Some(true) => &mut self.x,
            Some(false) => &mut self.y,
            None if self.found == 0 => &mut self.x,
            None if self.found == 1 => &mut self.y,
            None => {
                self.found = self.found.saturating_add(1);
                if self.found > 3 {
                    self.refuse("more than one point");
                }
                return;
            }
        };
        if place.replace(value).is_some() {
            self.refuse("more than one point");
        }
        self.found = self.found.saturating_add(1);
    }

    /// Notes that an object begins at the path.
    fn begin(&mut self) {
        if std::mem::replace(&mut self.is_object, true) {
            self.refuse("more than one point");
        }
    }

    fn refuse(&mut self, found: &'static str) {
        self.wrong.get_or_insert(found);
    }

    /// Takes the value of a part of the point.
    pub(super) fn see(&mut self, part: Part, found: Found<'_>) {
        let first = match part {
            Part::X => Some(true),
            Part::Y => Some(false),
            Part::Next | Part::Place => None,
        };
        match found {
            Found::Null => {}
            Found::Object if part == Part::Place => self.begin(),
            Found::Int(v) => self.take(first, nearest_float(v)),
            Found::Float(v) | Found::Long(_, v) => self.take(first, v),
            found => self.refuse(describe(Type::Float, found)),
        }
    }

    /// The place. The error names the value that cannot be a part of a point.
    pub(super) fn point(&self, space: Space) -> std::result::Result<Place, &'static str> {
        match (self.wrong, self.x, self.y) {
            // A GeoJSON object of another type, or another object.
            (Some(_), _, _) if self.is_object => Ok(Place::NoPoint),
            (Some(wrong), _, _) => Err(wrong),
            (None, None, None) if self.is_object => Ok(Place::NoPoint),
            (None, None, None) => Ok(Place::Nowhere),
            (None, Some(x), Some(y)) => match Point::new(space, x, y) {
                Ok(point) => Ok(Place::At(point)),
                Err(_) => Ok(Place::NoPoint),
            },
            _ if self.is_object => Ok(Place::NoPoint),
            _ => Err("one coordinate without the other"),
        }
    }
}

/// The result of the coordinates found.
pub(super) enum Place {
    /// There are no coordinates.
    Nowhere,
    At(Point),
    /// There is no valid point: an object of another kind, or coordinates out of range.
    NoPoint,
}

/// Reads the point at a path in JSON texts.
#[derive(Debug, Clone)]
pub struct PointAt {
    trie: Trie,
    /// The parts at each target of the trie.
    parts: [Part; 2],
}

impl PointAt {
    /// Prepares a path: of a GeoJSON point, an array of two numbers, or `LON_PATH,LAT_PATH`.
    ///
    /// # Errors
    /// The errors of [`coordinate_paths`].
    pub fn new(path: &Path) -> Result<PointAt> {
        let mut trie = Trie::new();
        let mut parts = [Part::X, Part::Y];
        let mut paths = coordinate_paths(path)?;
        if paths.len() == 1 {
            parts = [Part::Place, Part::Next];
            paths.push(path.child(COORDINATES));
        }
        for (path, target) in paths.iter().zip(0..) {
            trie.add(path, target, Numbers::Exact);
        }
        Ok(PointAt { trie, parts })
    }

    /// The point; `None` if there is nothing at the path, or no valid point.
    pub fn find(&self, space: Space, json: &[u8]) -> Option<Point> {
        let text = std::str::from_utf8(json).ok()?;
        let mut found = self.walk(text)?;
        if found.is_repeated {
            found = self.walk(&without_repeated_names(text)?)?;
        }
        match found.coordinates.point(space) {
            Ok(Place::At(point)) => Some(point),
            _ => None,
        }
    }

    /// What is found in a text; `None` if it is not JSON.
    fn walk(&self, text: &str) -> Option<Seen> {
        let mut seen = Seen {
            parts: self.parts,
            coordinates: Coordinates::default(),
            is_repeated: false,
        };
        let mut input = serde_json::Deserializer::from_str(text);
        let walked = self.trie.walk(&mut input, Rest::Skipped, &mut seen);
        (walked.is_ok() || seen.is_repeated).then_some(seen)
    }
}

/// The parts of a point that a walk finds.
struct Seen {
    parts: [Part; 2],
    coordinates: Coordinates,
    is_repeated: bool,
}

impl Sink for Seen {
    fn found(&mut self, targets: &[u32], found: Found<'_>) -> ControlFlow<()> {
        for target in targets {
            let part = self.parts.own(*target as usize);
            self.coordinates.see(*part, found);
        }
        ControlFlow::Continue(())
    }

    fn repeated(&mut self) -> ControlFlow<()> {
        self.is_repeated = true;
        ControlFlow::Break(())
    }
}

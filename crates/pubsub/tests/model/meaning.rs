//! The meaning of topics, conditions and places, by their texts and shapes: no cells, no lists.

use esker_model::geometry::{Area, Point, Space, distance};
use esker_pubsub::{Cell, Place, Region};
use fastrand::Rng;

pub(crate) const DIR: &str = "/broker";
pub(crate) const DEPTH: u8 = 5;

pub(crate) const TOPICS: [&str; 12] = [
    "", "a", "a/b", "a/b/c", "a/c", "a/10", "a/2", "b", "b/c", "$sys", "$sys/a", "a//b",
];
pub(crate) const FILTERS: [&str; 10] = [
    "a/+", "a/#", "+/b", "#", "+", "a/+/c", "+/+", "b/#", "$sys/#", "a/b/#",
];

/// Whether a filter matches a topic, by the documentation's rules on their texts.
pub(crate) fn takes(filter: &str, exact: bool, topic: &str) -> bool {
    let levels = |text: &str| -> Vec<String> {
        match text {
            "" => Vec::new(),
            text => text.split('/').map(str::to_owned).collect(),
        }
    };
    let (wanted, given) = (levels(filter), levels(topic));
    if !exact && !filter.contains(['+', '#']) {
        let common = wanted.len().min(given.len());
        return wanted[..common] == given[..common];
    }
    if topic.starts_with('$') && filter.starts_with(['+', '#']) {
        return false;
    }
    if exact && filter.is_empty() && topic.starts_with('$') {
        return false;
    }
    let mut at = 0;
    for level in &wanted {
        match level.as_str() {
            "#" => return true,
            "+" if at < given.len() => {}
            level if given.get(at).is_some_and(|given| given == level) => {}
            _ => return false,
        }
        at += 1;
    }
    at == given.len()
}

#[derive(Clone, Debug)]
pub(crate) struct Condition {
    pub(crate) text: String,
    pub(crate) kind: u8,
    pub(crate) n: i64,
    pub(crate) s: &'static str,
}

#[derive(Clone, Debug)]
pub(crate) struct Body {
    pub(crate) n: Option<i64>,
    pub(crate) s: Option<&'static str>,
    pub(crate) p: Option<f64>,
}

impl Body {
    pub(crate) fn json(&self) -> String {
        let mut parts = Vec::new();
        parts.extend(self.n.map(|n| format!("\"n\":{n}")));
        parts.extend(self.s.map(|s| format!("\"s\":\"{s}\"")));
        parts.extend(self.p.map(|p| format!("\"p\":{p:?}")));
        format!("{{{}}}", parts.join(","))
    }
}

impl Condition {
    pub(crate) fn any(rng: &mut Rng) -> Option<Condition> {
        let (kind, n) = (rng.u8(0..14), rng.i64(-3..9));
        let s = ["x", "y", "7"][rng.usize(0..3)];
        let text = match kind {
            0 => format!("n >= {n}"),
            1 => format!("n < {n}"),
            2 => format!("n >= {n} and n <= {}", n + 2),
            3 => format!("s = {s}"),
            4 => format!("s in (\"{s}\", \"y\")"),
            5 => format!("s = \"{s}\" and n > {n}"),
            6 => format!("not s = {s}"),
            7 => format!("s = {s} or n = {n}"),
            8 => "s > \"x\"".to_owned(),
            _ => return None,
        };
        Some(Condition { text, kind, n, s })
    }

    pub(crate) fn holds(&self, body: &Body) -> bool {
        let (n, s) = (body.n, body.s);
        match self.kind {
            0 => n.is_some_and(|n| n >= self.n),
            1 => n.is_some_and(|n| n < self.n),
            2 => n.is_some_and(|n| n >= self.n && n <= self.n + 2),
            3 => s == Some(self.s),
            4 => s == Some(self.s) || s == Some("y"),
            5 => s == Some(self.s) && n.is_some_and(|n| n > self.n),
            6 => s != Some(self.s),
            7 => s == Some(self.s) || n == Some(self.n),
            _ => s.is_some_and(|s| s > "x"),
        }
    }
}

pub(crate) fn point(longitude: f64, latitude: f64) -> Point {
    Point::new(Space::Sphere, longitude, latitude).unwrap()
}

/// Longitudes and latitudes.
const SPOTS: [[f64; 2]; 6] = [
    [10.0, 50.0],
    [179.9, 0.0],
    [-179.9, 0.1],
    [0.0, 89.5],
    [0.0, -90.0],
    [-74.0, 40.7],
];

pub(crate) fn place(rng: &mut Rng, is_publication: bool) -> Place {
    let spot = rng.usize(0..SPOTS.len());
    place_at(rng, spot, is_publication)
}

/// A place near the spot with this number.
pub(crate) fn place_at(rng: &mut Rng, spot: usize, is_publication: bool) -> Place {
    let [x, y] = SPOTS[spot];
    let near = |rng: &mut Rng, middle: f64, limit: f64| {
        let off = f64::from(rng.i32(-4..=4)) * 0.25;
        (middle + off).clamp(-limit, limit)
    };
    let (longitude, latitude) = (near(rng, x, 180.0), near(rng, y, 90.0));
    let kind = if is_publication {
        [0, 1, 1, 1, 2, 3, 4][rng.usize(0..7)]
    } else {
        [0, 0, 1, 2, 3, 3, 4, 4][rng.usize(0..8)]
    };
    match kind {
        0 => Place::Anywhere,
        1 => Place::Point {
            longitude,
            latitude,
        },
        2 => Place::Cell(Cell::of(point(longitude, latitude), rng.u8(0..=DEPTH))),
        3 => {
            let (w, h) = (
                f64::from(rng.u8(0..8)) * 0.25,
                f64::from(rng.u8(0..8)) * 0.25,
            );
            let east = longitude + w;
            Place::Region(Region::Rect {
                west: longitude,
                south: latitude,
                east: if east > 180.0 { east - 360.0 } else { east },
                north: (latitude + h).min(90.0),
            })
        }
        _ => Place::Region(Region::Circle {
            longitude,
            latitude,
            metres: [0.0, 20_000.0, 60_000.0, 300_000.0][rng.usize(0..4)],
        }),
    }
}

/// True if a publication at `given` reaches a subscription to `wanted`, without cells.
pub(crate) fn is_for(given: &Place, wanted: &Place) -> bool {
    let area = |place: &Place| -> Area {
        match place {
            Place::Point {
                longitude,
                latitude,
            } => Area::circle(Space::Sphere, point(*longitude, *latitude), 0.0).unwrap(),
            Place::Region(region) => region.area().unwrap(),
            _ => unreachable!(),
        }
    };
    match (given, wanted) {
        (_, Place::Anywhere) => true,
        (Place::Anywhere, _) => false,
        (Place::Cell(a), Place::Cell(b)) => a.holds(b) || b.holds(a),
        (
            Place::Cell(cell),
            Place::Point {
                longitude,
                latitude,
            },
        )
        | (
            Place::Point {
                longitude,
                latitude,
            },
            Place::Cell(cell),
        ) => Cell::of(point(*longitude, *latitude), cell.level()) == *cell,
        (
            Place::Point {
                longitude: a,
                latitude: b,
            },
            Place::Point {
                longitude: c,
                latitude: d,
            },
        ) => point(*a, *b) == point(*c, *d),
        (
            Place::Point {
                longitude,
                latitude,
            },
            Place::Region(region),
        )
        | (
            Place::Region(region),
            Place::Point {
                longitude,
                latitude,
            },
        ) => region
            .area()
            .unwrap()
            .contains(point(*longitude, *latitude)),
        (Place::Cell(cell), Place::Region(region)) | (Place::Region(region), Place::Cell(cell)) => {
            region.area().unwrap().relation(&cell.bounds())
                != esker_model::geometry::Relation::Outside
        }
        (
            Place::Region(Region::Circle {
                longitude: a,
                latitude: b,
                metres: r,
            }),
            Place::Region(Region::Circle {
                longitude: c,
                latitude: d,
                metres: s,
            }),
        ) => distance(Space::Sphere, point(*a, *b), point(*c, *d)) <= r + s,
        (first, second) => {
            let (a, b) = (area(first), area(second));
            let is_rect = |place: &Place| matches!(place, Place::Region(Region::Rect { .. }));
            let (rect, other) = if is_rect(first) { (a, b) } else { (b, a) };
            rect.boxes()
                .iter()
                .any(|part| other.relation(part) != esker_model::geometry::Relation::Outside)
        }
    }
}

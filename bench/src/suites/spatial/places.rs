//! The points of a run: real ones, or many spread about places; which records lie in a rectangle; and rectangles that hold a
//! share of the records. Coordinates are whole millionths of a degree, so that every subject and the model compare the same
//! numbers.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use fastrand::Rng;
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Result};

/// Millionths in a degree.
const DEGREE: i32 = 1_000_000;
/// Where there are no real places, points are spread about so many.
const TOWNS: usize = 2000;
/// How far from its place a point lies at most, in degrees: about a town, and about a town where only those few are.
const NEAR: f64 = 0.15;
const FAR: f64 = 1.2;
/// Bytes of a record. Its fields take about 90 of them; the rest is a note.
pub const RECORD: usize = 120;
/// Entries that are looked at one by one.
const LEAF: usize = 16;

/// A place on the earth, in millionths of a degree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Place {
    /// The longitude.
    pub lon: i32,
    /// The latitude.
    pub lat: i32,
}

impl Place {
    /// The nearest place to these degrees, within the world.
    fn of(lon: f64, lat: f64) -> Place {
        let whole = |degrees: f64, most: i32| {
            let most = most * DEGREE;
            ((degrees * f64::from(DEGREE)).round() as i32).clamp(-most, most)
        };
        Place {
            lon: whole(lon, 180),
            lat: whole(lat, 90),
        }
    }

    /// Longitude and latitude in degrees.
    pub fn degrees(self) -> (f64, f64) {
        (degrees(self.lon), degrees(self.lat))
    }

    /// The place so far away.
    fn moved(self, lon: f64, lat: f64) -> Place {
        let (x, y) = self.degrees();
        Place::of(x + lon, y + lat)
    }

    /// Its number in z-order: a bit of the longitude before one of the latitude, from the highest. As Esker's indexes have it,
    /// so that the ranges of `esker-model` fit.
    pub fn z(self) -> u64 {
        let cell = |value: f64, half: f64| {
            // At the upper end the conversion saturates.
            ((value + half) / (2.0 * half) * 4_294_967_296.0) as u32
        };
        let (lon, lat) = self.degrees();
        spread(cell(lon, 180.0)) << 1 | spread(cell(lat, 90.0))
    }
}

/// Degrees of a whole coordinate.
pub fn degrees(whole: i32) -> f64 {
    f64::from(whole) / f64::from(DEGREE)
}

/// The bits of a number with a zero before each.
fn spread(v: u32) -> u64 {
    let mut v = u64::from(v);
    for (by, mask) in [
        (16, 0x0000_ffff_0000_ffff),
        (8, 0x00ff_00ff_00ff_00ff),
        (4, 0x0f0f_0f0f_0f0f_0f0f),
        (2, 0x3333_3333_3333_3333),
        (1, 0x5555_5555_5555_5555),
    ] {
        v = (v | v << by) & mask;
    }
    v
}

/// A rectangle, borders included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rect {
    /// The corner in the southwest.
    pub low: Place,
    /// The corner in the northeast.
    pub high: Place,
}

impl Rect {
    /// The square about a place, as far as it lies in the world.
    fn about(at: Place, half: i32) -> Rect {
        let within =
            |v: i32, by: i32, most: i32| v.saturating_add(by).clamp(-most * DEGREE, most * DEGREE);
        Rect {
            low: Place {
                lon: within(at.lon, -half, 180),
                lat: within(at.lat, -half, 90),
            },
            high: Place {
                lon: within(at.lon, half, 180),
                lat: within(at.lat, half, 90),
            },
        }
    }

    /// Whether a place lies in it.
    pub fn holds(&self, at: Place) -> bool {
        (self.low.lon..=self.high.lon).contains(&at.lon)
            && (self.low.lat..=self.high.lat).contains(&at.lat)
    }

    /// West, south, east and north, in degrees.
    pub fn degrees(&self) -> [f64; 4] {
        let [(west, south), (east, north)] = [self.low.degrees(), self.high.degrees()];
        [west, south, east, north]
    }
}

/// Where points come from. A number of points is what a run is to have; real data may have fewer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Source {
    /// The populated places of the world: JSON lines with `lat` and `lon`.
    Real(PathBuf),
    /// So many points, spread about real places or, without a file, about invented ones.
    Spread(Option<PathBuf>),
}

impl Source {
    /// Its name in the rows.
    pub fn name(&self) -> &'static str {
        match self {
            Source::Real(_) => "real",
            Source::Spread(_) => "spread",
        }
    }

    /// How many points there are, of so many at most.
    pub fn most(&self, most: usize) -> Result<usize> {
        match self {
            Source::Real(_) => Ok(self.read(0, most)?.len()),
            Source::Spread(_) => Ok(most),
        }
    }

    /// At most so many points, in the order in which they are written.
    pub fn read(&self, seed: u64, most: usize) -> Result<Vec<Place>> {
        match self {
            Source::Real(file) => {
                let mut places = Vec::new();
                each_line(file, most, |line| places.push(line.place()))?;
                Ok(places)
            }
            Source::Spread(file) => {
                let mut rng = Rng::with_seed(seed);
                let (towns, far) = match file {
                    Some(file) => {
                        let mut towns = Vec::new();
                        each_line(file, usize::MAX, |line| towns.push(line.place()))?;
                        (towns, NEAR)
                    }
                    None => {
                        let town =
                            |_| Place::of(rng.f64() * 340.0 - 170.0, rng.f64() * 130.0 - 60.0);
                        ((0..TOWNS).map(town).collect(), FAR)
                    }
                };
                let by = |rng: &mut Rng| (rng.f64() + rng.f64() + rng.f64() - 1.5) / 1.5 * far;
                let point = |_| {
                    let town = towns[rng.usize(0..towns.len())];
                    let lon = by(&mut rng);
                    town.moved(lon, by(&mut rng))
                };
                Ok((0..most).map(point).collect())
            }
        }
    }
}

/// A line of a file of points.
#[derive(Debug, Deserialize)]
struct Line {
    lat: f64,
    lon: f64,
    #[serde(default)]
    icao24: String,
}

impl Line {
    fn place(&self) -> Place {
        Place::of(self.lon, self.lat)
    }
}

fn each_line(file: &Path, most: usize, mut each: impl FnMut(&Line)) -> Result<()> {
    let open = || -> Result<Box<dyn BufRead>> {
        let plain = File::open(file)?;
        Ok(match file.extension().is_some_and(|end| end == "zst") {
            true => Box::new(BufReader::new(zstd::Decoder::new(plain)?)),
            false => Box::new(BufReader::new(plain)),
        })
    };
    let lines = open().map_err(|failure| failure.context(file.display()))?;
    for line in lines.lines().take(most) {
        each(&serde_json::from_str(&line?)?);
    }
    Ok(())
}

/// Where moves come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Moving {
    /// Positions of aircraft, in the order of time: JSON lines with `icao24`, `lat` and `lon`.
    Real(PathBuf),
    /// Objects at points of a source, each moved so often on average, a little at a time.
    Objects(Source, usize),
}

/// Objects and what becomes of them.
#[derive(Debug, Default)]
pub struct Moves {
    /// Where each is at first.
    pub start: Vec<Place>,
    /// Who moves, and where to.
    pub steps: Vec<(u32, Place)>,
}

impl Moving {
    /// Its name in the rows.
    pub fn name(&self) -> &'static str {
        match self {
            Moving::Real(_) => "aircraft",
            Moving::Objects(..) => "objects",
        }
    }

    /// The moves of at most so many objects.
    pub fn read(&self, seed: u64, most: usize) -> Result<Moves> {
        match self {
            Moving::Real(file) => {
                let mut known = std::collections::HashMap::new();
                let mut moves = Moves::default();
                each_line(file, usize::MAX, |line| {
                    let next = known.len() as u32;
                    let object = *known.entry(line.icao24.clone()).or_insert(next);
                    match object == next {
                        true => moves.start.push(line.place()),
                        false => moves.steps.push((object, line.place())),
                    }
                })?;
                Ok(moves)
            }
            Moving::Objects(source, times) => {
                let start = source.read(seed, most)?;
                let mut rng = Rng::with_seed(seed ^ 1);
                let mut now = start.clone();
                let step = |_| {
                    let object = rng.usize(0..now.len());
                    let mut by = || (rng.f64() - 0.5) / 50.0;
                    now[object] = now[object].moved(by(), by());
                    (object as u32, now[object])
                };
                let steps = (0..start.len() * times).map(step).collect();
                Ok(Moves { start, steps })
            }
        }
    }
}

/// Appends the JSON of a record; `moved` says how often it was before.
pub fn record(id: u64, at: Place, moved: u32, out: &mut Vec<u8>) {
    let begin = out.len();
    let (lon, lat) = at.degrees();
    let text = format!(
        "{{\"id\":{id},\"lon\":{lon:.6},\"lat\":{lat:.6},\"moved\":{moved},\"name\":\"place {id}\",\"note\":\""
    );
    out.extend_from_slice(text.as_bytes());
    let room = (begin + RECORD).saturating_sub(out.len() + 2);
    let words = b"about here, as far as anybody knows, and ".iter();
    out.extend(words.cycle().take(room));
    out.extend_from_slice(b"\"}");
}

/// Points as a tree of halves, by longitude and latitude in turn: counts what lies in a rectangle.
#[derive(Debug, Default)]
pub struct Halves {
    entries: Vec<Place>,
}

/// The world and more.
const EVERYWHERE: Rect = Rect {
    low: Place {
        lon: i32::MIN,
        lat: i32::MIN,
    },
    high: Place {
        lon: i32::MAX,
        lat: i32::MAX,
    },
};

fn coordinate(at: Place, by_lon: bool) -> i32 {
    if by_lon { at.lon } else { at.lat }
}

fn coordinate_mut(at: &mut Place, by_lon: bool) -> &mut i32 {
    if by_lon { &mut at.lon } else { &mut at.lat }
}

impl Halves {
    /// Of these points.
    pub fn new(places: &[Place]) -> Halves {
        let mut entries = places.to_vec();
        halve(&mut entries, true);
        Halves { entries }
    }

    /// How many points lie in a rectangle.
    pub fn count(&self, rect: &Rect) -> usize {
        let mut count = 0;
        search(&self.entries, true, EVERYWHERE, rect, &mut |part, all| {
            count += match all {
                true => part.len(),
                false => part.iter().filter(|at| rect.holds(**at)).count(),
            };
        });
        count
    }

    /// A square about one of the points that holds about so many of them, never fewer; of one, the point itself.
    pub fn square(&self, rng: &mut Rng, records: usize) -> Rect {
        let Some(at) = self.entries.get(rng.usize(0..self.entries.len().max(1))) else {
            return EVERYWHERE;
        };
        let (mut few, mut enough) = (-1, 360 * DEGREE);
        while enough - few > 1 && records > 1 {
            let half = few + (enough - few) / 2;
            let count = self.count(&Rect::about(*at, half));
            match count < records {
                true => few = half,
                false => enough = half,
            }
            if count >= records && count <= records + records / 20 {
                break;
            }
        }
        Rect::about(*at, if records > 1 { enough } else { 0 })
    }
}

fn halve(entries: &mut [Place], by_lon: bool) {
    if entries.len() <= LEAF {
        return;
    }
    let middle = entries.len() / 2;
    let (low, _, high) = entries.select_nth_unstable_by_key(middle, |at| coordinate(*at, by_lon));
    halve(low, !by_lon);
    halve(high, !by_lon);
}

/// Gives parts of the tree to `visit`: those that lie in the rectangle as a whole, and those that may have something of it.
fn search(
    entries: &[Place],
    by_lon: bool,
    bounds: Rect,
    rect: &Rect,
    visit: &mut dyn FnMut(&[Place], bool),
) {
    if rect.holds(bounds.low) && rect.holds(bounds.high) {
        return visit(entries, true);
    }
    if entries.len() <= LEAF {
        return visit(entries, false);
    }
    let middle = entries.len() / 2;
    let (low, rest) = entries.split_at(middle);
    let (one, high) = rest.split_at(1);
    visit(one, false);
    let cut = one.first().map_or(0, |at| coordinate(*at, by_lon));
    if coordinate(rect.low, by_lon) <= cut {
        let mut bounds = bounds;
        *coordinate_mut(&mut bounds.high, by_lon) = cut;
        search(low, !by_lon, bounds, rect, visit);
    }
    if coordinate(rect.high, by_lon) >= cut {
        let mut bounds = bounds;
        *coordinate_mut(&mut bounds.low, by_lon) = cut;
        search(high, !by_lon, bounds, rect, visit);
    }
}

/// The metres between two places on the earth.
pub fn metres(a: Place, b: Place) -> f64 {
    const RADIUS: f64 = 6_371_008.8;
    let [(a_lon, a_lat), (b_lon, b_lat)] = [a, b].map(|at| {
        let (lon, lat) = at.degrees();
        (lon.to_radians(), lat.to_radians())
    });
    let half = |from: f64, to: f64| ((to - from) / 2.0).sin().powi(2);
    let part = half(a_lat, b_lat) + a_lat.cos() * b_lat.cos() * half(a_lon, b_lon);
    2.0 * RADIUS * part.sqrt().min(1.0).asin()
}

/// A file of the project's data, if it is there.
pub fn file(folder: Option<&Path>, name: &str) -> Result<Option<PathBuf>> {
    let default = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/data");
    let path = folder.unwrap_or(Path::new(default)).join(name);
    match (path.exists(), folder) {
        (true, _) => Ok(Some(path)),
        (false, None) => Ok(None),
        (false, Some(_)) => Err(Failure::new(format!("{} is missing", path.display()))),
    }
}

#[cfg(test)]
#[path = "places_tests.rs"]
mod tests;

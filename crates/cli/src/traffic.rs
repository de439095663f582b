//! A seeded generator of traffic in Hamburg: vehicles that run between stations, and incidents at
//! them. The stations and the lines are real, the way between two stations is straight, and the
//! timetable is invented.

use fastrand::Rng;
use serde_json::{Value, json};

/// A place: longitude and latitude.
pub(crate) type Place = [f64; 2];

/// The central station.
pub(crate) const CENTRE: Place = [10.0069, 53.553];

/// The time that passes between two updates of a vehicle, in seconds.
const STEP: f64 = 20.0;
/// The metres of a degree of latitude.
const DEGREE: f64 = 111_195.0;
/// Kinds of incidents; each is a topic below `incidents`.
const KINDS: [&str; 5] = ["accident", "roadwork", "fog", "signal", "crowd"];

/// A line: its name, its kind, the speed in metres a second, and its stations.
struct Line {
    name: &'static str,
    kind: &'static str,
    speed: f64,
    stations: &'static [(&'static str, Place)],
}

const LINES: [Line; 6] = [
    Line {
        name: "U1",
        kind: "train",
        speed: 14.0,
        stations: &[
            ("Ohlsdorf", [10.0316, 53.6206]),
            ("Kellinghusenstrasse", [9.991, 53.589]),
            ("Jungfernstieg", [9.9937, 53.5523]),
            ("Hauptbahnhof", CENTRE),
            ("Berliner Tor", [10.0244, 53.5526]),
            ("Wandsbek Markt", [10.067, 53.5722]),
            ("Farmsen", [10.1191, 53.6065]),
        ],
    },
    Line {
        name: "U3",
        kind: "train",
        speed: 12.0,
        stations: &[
            ("Barmbek", [10.0444, 53.5873]),
            ("Berliner Tor", [10.0244, 53.5526]),
            ("Hauptbahnhof", CENTRE),
            ("Rathaus", [9.9937, 53.5503]),
            ("Landungsbruecken", [9.9706, 53.5459]),
            ("St. Pauli", [9.9701, 53.5504]),
            ("Schlump", [9.9698, 53.5677]),
            ("Kellinghusenstrasse", [9.991, 53.589]),
        ],
    },
    Line {
        name: "S1",
        kind: "train",
        speed: 18.0,
        stations: &[
            ("Blankenese", [9.814, 53.564]),
            ("Altona", [9.9354, 53.5527]),
            ("Landungsbruecken", [9.9706, 53.5459]),
            ("Hauptbahnhof", CENTRE),
            ("Barmbek", [10.0444, 53.5873]),
            ("Airport", [10.0062, 53.6323]),
        ],
    },
    Line {
        name: "S3",
        kind: "train",
        speed: 18.0,
        stations: &[
            ("Altona", [9.9354, 53.5527]),
            ("Dammtor", [9.9896, 53.5607]),
            ("Hauptbahnhof", CENTRE),
            ("Elbbruecken", [10.0246, 53.5345]),
            ("Harburg", [9.9917, 53.456]),
        ],
    },
    Line {
        name: "bus 5",
        kind: "bus",
        speed: 7.0,
        stations: &[
            ("Hagenbecks Tierpark", [9.9433, 53.5931]),
            ("Schlump", [9.9698, 53.5677]),
            ("Dammtor", [9.9896, 53.5607]),
            ("Rathaus", [9.9937, 53.5503]),
            ("Hauptbahnhof", CENTRE),
        ],
    },
    Line {
        name: "ferry 72",
        kind: "ferry",
        speed: 5.0,
        stations: &[
            ("Landungsbruecken", [9.9706, 53.5459]),
            ("Elbphilharmonie", [9.9846, 53.5402]),
        ],
    },
];

/// A vehicle on its line.
struct Vehicle {
    line: usize,
    /// The station behind it.
    leg: usize,
    /// How far it is on the way to the next one, from 0 to 1.
    along: f64,
    /// True from the last station to the first.
    returns: bool,
    delay: i64,
}

/// An incident.
pub(crate) struct Incident {
    pub(crate) kind: &'static str,
    pub(crate) at: Place,
    /// How long it lasts, in seconds.
    pub(crate) lasts: u64,
    pub(crate) record: Value,
}

/// The generator. Generators with the same seed and number of vehicles produce the same movements
/// and incidents; only the times in them are those of the caller.
pub(crate) struct Traffic {
    rng: Rng,
    vehicles: Vec<Vehicle>,
    next: usize,
    incidents: u64,
}

impl Traffic {
    pub(crate) fn new(seed: u64, vehicles: u32) -> Traffic {
        let mut rng = Rng::with_seed(seed);
        let vehicles = (0..vehicles).map(|number| {
            let line = number as usize % LINES.len();
            let legs = LINES.get(line).map_or(1, |line| line.stations.len() - 1);
            Vehicle {
                line,
                leg: rng.usize(0..legs.max(1)),
                along: rng.f64(),
                returns: rng.bool(),
                delay: rng.i64(0..60),
            }
        });
        let vehicles = vehicles.collect();
        Traffic {
            rng,
            vehicles,
            next: 0,
            incidents: 0,
        }
    }

    /// The number of vehicles.
    pub(crate) fn len(&self) -> usize {
        self.vehicles.len()
    }

    /// Moves the next vehicle, in turn, and returns its record; `now` in seconds since 1970.
    pub(crate) fn step(&mut self, now: u64) -> Option<Value> {
        let number = self.next;
        self.next = (number + 1) % self.vehicles.len().max(1);
        let vehicle = self.vehicles.get_mut(number)?;
        let line = LINES.get(vehicle.line)?;
        vehicle.delay = (vehicle.delay + self.rng.i64(-12..=14)).clamp(0, 900);
        vehicle.advance(line);
        let at = vehicle.at(line)?;
        Some(json!({
            "id": number + 1,
            "line": line.name,
            "kind": line.kind,
            "at": at,
            "next": vehicle.next(line),
            "delay": vehicle.delay,
            "riders": self.rng.u32(0..180),
            "seen": now,
        }))
    }

    /// A new incident near a station; `now` in seconds since 1970.
    pub(crate) fn incident(&mut self, now: u64) -> Option<Incident> {
        let line = LINES.get(self.rng.usize(0..LINES.len()))?;
        let (station, place) = line.stations.get(self.rng.usize(0..line.stations.len()))?;
        let kind = KINDS.get(self.rng.usize(0..KINDS.len())).copied()?;
        let mut away = || (self.rng.f64() - 0.5) * 0.01;
        let [lon, lat] = *place;
        let at = [rounded(lon + away()), rounded(lat + away())];
        let lasts = self.rng.u64(30..180);
        self.incidents += 1;
        let record = json!({
            "id": self.incidents,
            "kind": kind,
            "near": station,
            "at": at,
            "severity": self.rng.u32(1..=5),
            "since": now,
            "until": now + lasts,
        });
        Some(Incident {
            kind,
            at,
            lasts,
            record,
        })
    }

    /// The name of a line, by any number.
    pub(crate) fn line(number: u64) -> &'static str {
        let at = usize::try_from(number).unwrap_or_default() % LINES.len();
        LINES.get(at).map_or("", |line| line.name)
    }

    /// A kind of incidents, by any number.
    pub(crate) fn kind(number: u64) -> &'static str {
        let at = usize::try_from(number).unwrap_or_default() % KINDS.len();
        KINDS.get(at).copied().unwrap_or_default()
    }
}

impl Vehicle {
    /// The two ends of the way that it is on.
    fn ends(&self, line: &Line) -> Option<(Place, Place)> {
        let (_, from) = line.stations.get(self.leg)?;
        let (_, to) = line.stations.get(self.leg + 1)?;
        Some(if self.returns {
            (*to, *from)
        } else {
            (*from, *to)
        })
    }

    fn advance(&mut self, line: &Line) {
        let Some((from, to)) = self.ends(line) else {
            return;
        };
        self.along += line.speed * STEP / metres(from, to).max(1.0);
        if self.along < 1.0 {
            return;
        }
        self.along = 0.0;
        let last = line.stations.len().saturating_sub(2);
        let (leg, returns) = match self.leg {
            0 if self.returns => (0, false),
            leg if self.returns => (leg - 1, true),
            leg if leg >= last => (last, true),
            leg => (leg + 1, false),
        };
        (self.leg, self.returns) = (leg, returns);
    }

    fn at(&self, line: &Line) -> Option<Place> {
        let ([x, y], [to_x, to_y]) = self.ends(line)?;
        let between = |from: f64, to: f64| rounded(from + (to - from) * self.along);
        Some([between(x, to_x), between(y, to_y)])
    }

    /// The name of the next station.
    fn next(&self, line: &Line) -> &'static str {
        let next = self.leg + usize::from(!self.returns);
        line.stations.get(next).map_or("", |(name, _)| name)
    }
}

/// The distance of two places of the city, in metres.
fn metres([x, y]: Place, [to_x, to_y]: Place) -> f64 {
    let east = (to_x - x) * y.to_radians().cos();
    (east.hypot(to_y - y)) * DEGREE
}

/// Five digits: about a metre.
fn rounded(degrees: f64) -> f64 {
    (degrees * 1e5).round() / 1e5
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Vehicles stay in the city and visit the ends of their lines; a seed repeats a run.
    #[test]
    fn vehicles_run_from_one_end_to_the_other() {
        let (mut one, mut same, mut other) = (
            Traffic::new(7, 60),
            Traffic::new(7, 60),
            Traffic::new(8, 60),
        );
        let mut differs = false;
        let mut visited = std::collections::BTreeSet::new();
        for step in 0..60 * 400 {
            let record = one.step(step).unwrap();
            assert_eq!(Some(&record), same.step(step).as_ref());
            differs |= Some(&record) != other.step(step).as_ref();
            let (x, y) = (
                record["at"][0].as_f64().unwrap(),
                record["at"][1].as_f64().unwrap(),
            );
            assert!((9.8..10.13).contains(&x) && (53.45..53.64).contains(&y));
            visited.insert(record["next"].as_str().unwrap().to_string());
        }
        assert!(differs);
        for line in &LINES {
            for (name, _) in line.stations {
                assert!(visited.contains(*name), "{name}");
            }
        }
        let incident = one.incident(100).unwrap();
        assert_eq!(incident.record["until"], 100 + incident.lasts);
        assert!(same.incident(100).unwrap().record == incident.record);
    }
}

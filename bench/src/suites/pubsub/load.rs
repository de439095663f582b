//! What is subscribed to and published, where, and when. Time is simulated: so many operations are a second.

use fastrand::Rng;

/// Operations alive by cells of the grid: as many as with the paper's 250,000 cells, at 30,000 operations a second.
const ALIVE_BY_CELLS: f64 = 2.6;
/// Levels of the quad-tree of the experiments on granularity.
pub const DEPTH: u8 = 5;
/// Metres along the shorter side of the smallest cell of that tree: the paper's `R`.
const SMALLEST: f64 = 625_474.0;
/// The radii of circles, by `R`.
pub const RADII: [f64; 5] = [0.25, 0.5, 1.0, 2.0, 4.0];
/// Operations alive by users, where subscriptions of a user are joined.
const ALIVE_BY_USERS: f64 = 8.0;
/// The first moment, in milliseconds.
const BEGIN: i64 = 1_000_000;
/// Bytes of text in a publication: a tweet of the paper's.
const TEXT: usize = 140;

/// Where operations are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Places {
    /// In cells of a grid, of which some are more crowded than others: a topic each.
    Grid,
    /// In cells of a quad-tree of any level, the deeper the likelier (section 7.2.3).
    Levels,
    /// In circles about a point.
    Circles,
}

/// A workload.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Operations of a simulated second.
    pub per_second: u64,
    /// Of so many operations, how many are subscriptions, and how many publications.
    pub shares: (u32, u32),
    /// Where they are.
    pub places: Places,
    /// How far a subscription reaches into the past, and into the future, in milliseconds. Publications live for both together.
    pub reach: i64,
}

impl Load {
    /// Operations that are made while a publication lives.
    fn alive(&self) -> f64 {
        (self.per_second as i64 * 2 * self.reach) as f64 / 1000.0
    }

    /// Cells of the grid along each axis.
    fn side(&self) -> f64 {
        (self.alive() / ALIVE_BY_CELLS).sqrt().ceil().max(1.0)
    }

    fn users(&self) -> u32 {
        (self.alive() / ALIVE_BY_USERS) as u32 + 1
    }
}

/// A place.
#[derive(Debug, Clone, PartialEq)]
pub enum At {
    /// A cell of the grid, by its number.
    Grid(u64),
    /// A cell of the quad-tree, by the quarters that lead to it.
    Cell(Vec<u8>),
    /// A circle: longitude, latitude, metres.
    Circle(f64, f64, f64),
}

/// Something to be done.
#[derive(Debug, Clone, PartialEq)]
pub struct Operation {
    /// Its number, from 0.
    pub number: u64,
    /// When it is done.
    pub time: i64,
    /// Whether it is a subscription.
    pub is_subscription: bool,
    /// Where it is.
    pub at: At,
    /// The level of its cell, or the number of its radius.
    pub class: usize,
    /// Of a subscription: whose it is.
    pub user: u32,
    /// Of a publication: what is published, JSON that begins with its number.
    pub body: Vec<u8>,
}

/// The operations of a workload, one after the other. The same for the same seed.
#[derive(Debug)]
pub struct Operations {
    load: Load,
    rng: Rng,
    next: u64,
}

impl Operations {
    /// From the first one on.
    pub fn new(load: Load, seed: u64) -> Operations {
        Operations {
            load,
            rng: Rng::with_seed(seed),
            next: 0,
        }
    }

    /// The next so many.
    pub fn take(&mut self, count: usize) -> Vec<Operation> {
        (0..count).map(|_| self.one()).collect()
    }

    fn one(&mut self) -> Operation {
        let number = self.next;
        self.next += 1;
        let (subscriptions, publications) = self.load.shares;
        let is_subscription = self.rng.u32(0..subscriptions + publications) < subscriptions;
        let (at, class) = self.place();
        Operation {
            number,
            time: BEGIN + (number * 1000 / self.load.per_second) as i64,
            is_subscription,
            at,
            class,
            user: self.rng.u32(0..self.load.users()),
            body: match is_subscription {
                true => Vec::new(),
                false => self.body(number),
            },
        }
    }

    fn place(&mut self) -> (At, usize) {
        match self.load.places {
            Places::Grid => {
                let side = self.load.side();
                let mut skewed = || (self.rng.f64() * self.rng.f64() * side) as u64;
                (At::Grid(skewed() * side as u64 + skewed()), 0)
            }
            Places::Levels => {
                let mut level = DEPTH;
                while level > 0 && self.rng.bool() {
                    level -= 1;
                }
                let quarters = (0..level).map(|_| self.rng.u8(1..=4)).collect();
                (At::Cell(quarters), usize::from(level))
            }
            Places::Circles => {
                let class = self.rng.usize(0..RADII.len());
                let metres = SMALLEST * RADII.get(class).copied().unwrap_or(1.0);
                let longitude = self.rng.f64() * 360.0 - 180.0;
                // As many on each square kilometre, but for the poles.
                let latitude = (self.rng.f64() * 1.8 - 0.9).asin().to_degrees();
                (At::Circle(longitude, latitude, metres), class)
            }
        }
    }

    fn body(&mut self, number: u64) -> Vec<u8> {
        let value = self.rng.u32(100..1000);
        let mut body = format!("{{\"n\":\"{number:010}\",\"v\":{value},\"text\":\"").into_bytes();
        body.extend((0..TEXT).map(|_| self.rng.lowercase() as u8));
        body.extend_from_slice(b"\"}");
        body
    }
}

/// The number of a publication, by its body.
pub fn number_of(body: &[u8]) -> u64 {
    let digits = body.get(6..16).unwrap_or_default();
    digits
        .iter()
        .fold(0, |number, digit| number * 10 + u64::from(digit & 15))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(places: Places) -> Load {
        Load {
            per_second: 1000,
            shares: (3, 1),
            places,
            reach: 10_000,
        }
    }

    #[test]
    fn operations_are_the_same_for_a_seed_and_keep_to_the_shares() {
        let all = |seed| Operations::new(load(Places::Grid), seed).take(10_000);
        assert_eq!(all(1), all(1));
        assert_ne!(all(1), all(2));
        let subscriptions = all(1).iter().filter(|o| o.is_subscription).count();
        assert!((7_300..7_700).contains(&subscriptions), "{subscriptions}");
        assert_eq!(all(1)[9_000].time - all(1)[0].time, 9_000);
    }

    #[test]
    fn deep_cells_are_likelier_and_circles_have_all_radii() {
        let mut levels = [0; 6];
        let mut radii = [0; 5];
        for operation in Operations::new(load(Places::Levels), 1).take(10_000) {
            levels[operation.class] += 1;
        }
        for operation in Operations::new(load(Places::Circles), 1).take(10_000) {
            radii[operation.class] += 1;
        }
        assert!(levels[5] > 4_500 && levels[4] > 2_200 && levels[1] < levels[2]);
        assert!(radii.iter().all(|count| *count > 1_800));
    }

    #[test]
    fn a_publication_says_its_number() {
        let operations = Operations::new(load(Places::Grid), 3).take(2_000);
        for operation in operations.iter().filter(|o| !o.is_subscription) {
            assert_eq!(number_of(&operation.body), operation.number);
        }
    }
}

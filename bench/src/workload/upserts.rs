//! Upserts (Luo & Carey, section 6.1; DELI, section VI): records of 450 to 550 bytes under random 64-bit
//! keys, some of which were there before. A record is a function of the seed and of the number of its
//! write, so that a run of millions is planned in four bytes a write, and any record can be made again.

use fastrand::Rng;
use serde::{Deserialize, Serialize};

use super::tweets::{EPOCH, decimal, words};

/// The attributes that are indexed, in the order in which experiments add them. Each is uniform in
/// `0..VALUES`.
pub const ATTRIBUTES: [&str; 5] = ["user_id", "location", "topic", "device", "thread"];
/// How many values an attribute has.
pub const VALUES: u64 = 100_000;
/// The attribute that rises with every write, by one.
pub const TIME: &str = "creation_time";
/// Bytes of a record: so many, and up to `LENGTH_SPREAD` more.
const LENGTH: usize = 450;
const LENGTH_SPREAD: usize = 100;
/// Texts are slices of this many bytes of random words.
const POOL: usize = 1 << 20;
/// The exponent of Zipf's law, as in YCSB.
const THETA: f64 = 0.99;
/// Keys have this many bits, so that every subject can hold them as signed integers.
const KEY_BITS: u32 = 63;

/// Which key an update is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Skew {
    /// All past keys alike.
    Uniform,
    /// Recent keys more often, by Zipf's law (0.99).
    Zipf,
}

impl Skew {
    /// Its name in the rows.
    pub fn name(self) -> &'static str {
        match self {
            Skew::Uniform => "uniform",
            Skew::Zipf => "zipf",
        }
    }
}

/// All writes of a run, numbered from 0; keys are numbered in order of their first write.
#[derive(Debug)]
pub struct Upserts {
    seed: u64,
    pool: Vec<u8>,
    /// The key of each write.
    keys: Vec<u32>,
}

impl Upserts {
    /// So many writes, of which the share `updates` is of a key that was there.
    pub fn new(seed: u64, writes: usize, updates: f64, skew: Skew) -> Upserts {
        let mut rng = Rng::with_seed(seed);
        let pool = words(&mut rng, POOL + LENGTH + LENGTH_SPREAD);
        let mut keys = Vec::with_capacity(writes);
        let mut ranks = Zipf::default();
        for _ in 0..writes {
            let known = ranks.len;
            let key = if known > 0 && rng.f64() < updates {
                match skew {
                    Skew::Uniform => rng.u32(0..known),
                    Skew::Zipf => known - 1 - ranks.sample(&mut rng),
                }
            } else {
                ranks.grow();
                known
            };
            keys.push(key);
        }
        Upserts { seed, pool, keys }
    }

    /// So many writes, each of a key drawn from `keys` by Zipf's law, whichever were there.
    pub fn of_keys(seed: u64, writes: usize, keys: usize) -> Upserts {
        let mut upserts = Upserts::new(seed, 0, 0.0, Skew::Zipf);
        let mut rng = Rng::with_seed(seed);
        let mut ranks = Zipf::default();
        (0..keys).for_each(|_| ranks.grow());
        let (mut numbers, mut known) = (vec![None; keys], 0);
        for _ in 0..writes {
            let number = *numbers[ranks.sample(&mut rng) as usize].get_or_insert_with(|| {
                known += 1;
                known - 1
            });
            upserts.keys.push(number);
        }
        upserts
    }

    /// The number of writes.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// The number of the key of a write.
    pub fn number(&self, write: usize) -> usize {
        self.keys[write] as usize
    }

    /// The key with this number.
    pub fn key(&self, number: usize) -> u64 {
        // Each step is a bijection on the bits of a key: keys differ and look random.
        let mask = (1 << KEY_BITS) - 1;
        let mut key = (number as u64).wrapping_add(self.seed) & mask;
        for factor in [0x9e37_79b9_7f4a_7c15_u64, 0xbf58_476d_1ce4_e5b9] {
            key ^= key >> 31;
            key = key.wrapping_mul(factor) & mask;
        }
        key ^ key >> 31
    }

    /// The value that a write gives to the attribute with this place in [`ATTRIBUTES`].
    pub fn value(&self, write: usize, attribute: usize) -> u64 {
        let mut rng = self.rng(write);
        let mut values = std::iter::repeat_with(|| rng.u64(0..VALUES));
        values.nth(attribute).unwrap_or_default()
    }

    /// The value of [`TIME`] of a write.
    pub fn time(&self, write: usize) -> u64 {
        EPOCH + write as u64
    }

    /// Puts the JSON of a write in `body`.
    pub fn record(&self, write: usize, body: &mut Vec<u8>) {
        let mut rng = self.rng(write);
        body.clear();
        body.extend_from_slice(b"{\"id\":");
        decimal(body, self.key(self.number(write)));
        for name in ATTRIBUTES {
            body.extend_from_slice(b",\"");
            body.extend_from_slice(name.as_bytes());
            body.extend_from_slice(b"\":");
            decimal(body, rng.u64(0..VALUES));
        }
        body.extend_from_slice(b",\"");
        body.extend_from_slice(TIME.as_bytes());
        body.extend_from_slice(b"\":");
        decimal(body, self.time(write));
        body.extend_from_slice(b",\"message_text\":\"");
        let length = LENGTH + rng.usize(0..=LENGTH_SPREAD);
        let text = length.saturating_sub(body.len() + 2);
        let start = rng.usize(0..POOL);
        body.extend_from_slice(&self.pool[start..start + text]);
        body.extend_from_slice(b"\"}");
    }

    /// What is drawn for a write; attributes first.
    fn rng(&self, write: usize) -> Rng {
        Rng::with_seed(self.seed ^ (write as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }
}

/// Ranks from 0 of a set that grows, by Zipf's law (Gray et al., "Quickly generating billion-record synthetic
/// databases"; as in YCSB).
#[derive(Debug, Default)]
struct Zipf {
    len: u32,
    zeta: f64,
}

impl Zipf {
    fn grow(&mut self) {
        self.len += 1;
        self.zeta += f64::from(self.len).powf(-THETA);
    }

    /// The set must not be empty.
    fn sample(&self, rng: &mut Rng) -> u32 {
        let uniform = rng.f64();
        let second = 0.5f64.powf(THETA);
        let rank = match uniform * self.zeta {
            share if share < 1.0 => 0.0,
            share if share < 1.0 + second => 1.0,
            _ => {
                let n = f64::from(self.len);
                let eta = (1.0 - (2.0 / n).powf(1.0 - THETA)) / (1.0 - (1.0 + second) / self.zeta);
                n * (eta * uniform - eta + 1.0).powf(1.0 / (1.0 - THETA))
            }
        };
        (rank as u32).min(self.len - 1)
    }
}

#[cfg(test)]
#[path = "upserts_tests.rs"]
mod tests;

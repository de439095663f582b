//! A seeded generator of tweet-like records, the workload of the LevelDB++ paper (section 5.1): 534
//! bytes on average, keys that grow with time, user ids by a Zipf law with about 30 records a user,
//! and a number of records per second uniform in `[0, 2 x 35]`.

use std::io::Write;

use fastrand::Rng;

const ZIPF_EXPONENT: f64 = 0.95;
const RECORDS_PER_USER: u64 = 30;
const PER_SECOND_MAX: u32 = 70;
/// The first record's `created_at`, in seconds since 1970.
pub(crate) const EPOCH: u64 = 1_700_000_000;
/// Size of the pool of random words that texts are slices of. It is far larger than a block, so
/// that compression gains no more than with real text.
const POOL: usize = 1 << 20;
const WORDS: usize = 4096;
const TEXT_MIN: usize = 241;
const TEXT_MAX: usize = 481;
const LANGUAGES: [&str; 8] = ["en", "en", "en", "es", "pt", "ja", "ar", "fr"];
const SOURCES: [&str; 4] = ["web", "android", "iphone", "tweetdeck"];

/// The generator. Generators with the same seed and size produce the same records.
pub(crate) struct Tweets {
    rng: Rng,
    users: Zipf,
    pool: Vec<u8>,
    second: u64,
    left_in_second: u32,
    in_second: u64,
}

impl Tweets {
    /// A stream sized for about `records` records; callers may take more.
    pub(crate) fn new(seed: u64, records: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let users = Zipf::new((records / RECORDS_PER_USER).clamp(1, u64::from(u32::MAX - 1)));
        let pool = words(&mut rng);
        Self {
            rng,
            users,
            pool,
            second: EPOCH,
            left_in_second: 0,
            in_second: 0,
        }
    }

    /// The user id with this rank by frequency, from 0.
    pub(crate) fn user(rank: u64) -> u64 {
        // An odd factor is a bijection on 32 bits, so that ids do not show their rank.
        u64::from((rank as u32 + 1).wrapping_mul(2_654_435_761))
    }

    /// Replaces `record` by the next record, and returns its `created_at`.
    pub(crate) fn next(&mut self, record: &mut Vec<u8>) -> u64 {
        while self.left_in_second == 0 {
            self.second += 1;
            self.in_second = 0;
            self.left_in_second = self.rng.u32(0..=PER_SECOND_MAX);
        }
        self.left_in_second -= 1;
        self.in_second += 1;

        let noise = self.rng.u64(..);
        // 10 digits of time, 2 of order within the second, 8 random ones.
        let id = self.second * 10_000_000_000 + self.in_second * 100_000_000 + noise % 100_000_000;
        let user = Self::user(self.users.sample(&mut self.rng));
        let length = TEXT_MIN + ((noise >> 32) as usize) % (TEXT_MAX - TEXT_MIN + 1);
        let start = self.rng.usize(0..POOL - TEXT_MAX);
        let pick = self.rng.u64(..);
        let language = LANGUAGES.get((pick & 7) as usize).copied().unwrap_or("en");
        let source = SOURCES
            .get((pick >> 3 & 3) as usize)
            .copied()
            .unwrap_or("web");

        record.clear();
        record.extend_from_slice(b"{\"id\":\"");
        decimal(record, id);
        record.extend_from_slice(b"\",\"user_id\":");
        decimal(record, user);
        record.extend_from_slice(b",\"created_at\":");
        decimal(record, self.second);
        record.extend_from_slice(b",\"lang\":\"");
        record.extend_from_slice(language.as_bytes());
        record.extend_from_slice(b"\",\"source\":\"");
        record.extend_from_slice(source.as_bytes());
        record.extend_from_slice(b"\",\"retweets\":");
        decimal(record, (pick >> 8) & 63);
        record.extend_from_slice(b",\"likes\":");
        decimal(record, (pick >> 16) & 1023);
        record.extend_from_slice(b",\"reply_to\":\"");
        decimal(record, id - 60 * 10_000_000_000);
        record.extend_from_slice(b"\",\"text\":\"");
        record.extend_from_slice(self.pool.get(start..start + length).unwrap_or_default());
        record.extend_from_slice(b"\"}");
        self.second
    }
}

/// Appends a number in decimal; `write!` would cost more than the rest of the record.
fn decimal(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [b'0'; 20];
    let mut used = 0;
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
        used += 1;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(digits.get(digits.len() - used..).unwrap_or_default());
}

/// `POOL` bytes of made-up words with Zipf frequencies, sometimes with a mention or tag mark.
fn words(rng: &mut Rng) -> Vec<u8> {
    let vocabulary: Vec<String> = (0..WORDS)
        .map(|_| (0..rng.usize(2..=9)).map(|_| rng.lowercase()).collect())
        .collect();
    let ranks = Zipf::new(WORDS as u64);
    let mut pool = Vec::with_capacity(POOL + 32);
    while pool.len() < POOL {
        let word = vocabulary
            .get(ranks.sample(rng) as usize)
            .map_or("a", String::as_str);
        let mark = match rng.u8(..) {
            0..8 => "@",
            8..16 => "#",
            _ => "",
        };
        let _ = write!(pool, "{mark}{word} ");
    }
    pool.truncate(POOL);
    pool
}

/// Ranks `0..n` with probabilities proportional to `1 / (rank + 1) ^ ZIPF_EXPONENT`, by Walker's
/// alias method: O(n) to build, two table reads to sample.
struct Zipf {
    /// For each column: the share of its own rank in 2^32, and the rank that has the rest.
    columns: Vec<(u32, u32)>,
}

impl Zipf {
    fn new(n: u64) -> Self {
        let weights: Vec<f64> = (1..=n).map(|k| (k as f64).powf(-ZIPF_EXPONENT)).collect();
        let total: f64 = weights.iter().sum();
        let mut shares: Vec<f64> = weights.iter().map(|w| w / total * n as f64).collect();
        let mut columns: Vec<(u32, u32)> = (0..n as u32).map(|rank| (u32::MAX, rank)).collect();
        let (mut small, mut large): (Vec<usize>, Vec<usize>) =
            (0..shares.len()).partition(|&rank| shares[rank] < 1.0);
        while let (Some(&giver), Some(taker)) = (large.last(), small.pop()) {
            columns[taker] = ((shares[taker] * f64::from(u32::MAX)) as u32, giver as u32);
            shares[giver] -= 1.0 - shares[taker];
            if shares[giver] < 1.0 {
                large.pop();
                small.push(giver);
            }
        }
        Self { columns }
    }

    #[inline]
    fn sample(&self, rng: &mut Rng) -> u64 {
        let column = rng.usize(0..self.columns.len());
        let (share, other) = self.columns[column];
        if rng.u32(..) <= share {
            column as u64
        } else {
            u64::from(other)
        }
    }
}

//! The generator of tweet-like records (LevelDB++, section 5.1): keys that grow with time, attributes
//! by a [`Profile`], a number of records per second uniform between none and twice the mean.

use std::io::Write;

use fastrand::Rng;

use super::Record;
use super::profile::Profile;
use super::sample::Sampler;

/// `created_at` just before the first record.
pub const EPOCH: u64 = 1_700_000_000;
/// Texts are slices of this many bytes of random words: far more than a block holds, so that
/// compression finds no more in them than in real text.
const POOL: usize = 1 << 20;
const WORDS: usize = 4096;
const LANGUAGES: [&str; 8] = ["en", "en", "en", "es", "pt", "ja", "ar", "fr"];
const SOURCES: [&str; 4] = ["web", "android", "iphone", "tweetdeck"];
/// The low bits of a key: a number within the second, and random ones.
const KEY_SECOND: u32 = 32;
const KEY_ORDER: u32 = 18;

/// The generator; two with the same seed and profile give the same records.
#[derive(Debug, Clone)]
pub struct Tweets {
    rng: Rng,
    profile: Profile,
    pool: Vec<u8>,
    second: u64,
    left_in_second: u64,
    in_second: u64,
    body: Vec<u8>,
}

impl Tweets {
    /// A stream without end.
    pub fn new(seed: u64, profile: Profile) -> Tweets {
        let mut rng = Rng::with_seed(seed);
        let longest = profile.lengths.iter().copied().max().unwrap_or_default() as usize;
        let pool = words(&mut rng, POOL + longest);
        Tweets {
            rng,
            profile,
            pool,
            second: EPOCH,
            left_in_second: 0,
            in_second: 0,
            body: Vec::new(),
        }
    }

    /// The user id with a rank by frequency, from 0.
    pub fn user(rank: usize) -> u64 {
        // An odd factor is a bijection on 32 bits, so that ids do not show their rank.
        u64::from((rank as u32).wrapping_add(1).wrapping_mul(2_654_435_761))
    }

    /// The next record: under a new key, or in the place of the record with the key `replaced`.
    /// Attributes and text are new in any case.
    pub fn next(&mut self, replaced: Option<u64>) -> Record<'_> {
        self.advance();
        let noise = self.rng.u64(..);
        let new = (self.second << KEY_SECOND)
            | (self.in_second << KEY_ORDER)
            | (noise & ((1 << KEY_ORDER) - 1));
        let key = replaced.unwrap_or(new);
        let user = Tweets::user(self.profile.users.sample(&mut self.rng));
        let length = self
            .rng
            .choice(&self.profile.lengths)
            .map_or(0, |&n| n as usize);
        let start = self.rng.usize(0..POOL);
        let pick = self.rng.u64(..);
        let language = LANGUAGES[(pick & 7) as usize];
        let source = SOURCES[(pick >> 3 & 3) as usize];

        let body = &mut self.body;
        body.clear();
        body.extend_from_slice(b"{\"id\":");
        decimal(body, key);
        body.extend_from_slice(b",\"user_id\":");
        decimal(body, user);
        body.extend_from_slice(b",\"created_at\":");
        decimal(body, self.second);
        body.extend_from_slice(b",\"lang\":\"");
        body.extend_from_slice(language.as_bytes());
        body.extend_from_slice(b"\",\"source\":\"");
        body.extend_from_slice(source.as_bytes());
        body.extend_from_slice(b"\",\"retweets\":");
        decimal(body, (pick >> 8) & 63);
        body.extend_from_slice(b",\"likes\":");
        decimal(body, (pick >> 16) & 1023);
        body.extend_from_slice(b",\"reply_to\":");
        decimal(body, new - (60 << KEY_SECOND));
        body.extend_from_slice(b",\"text\":\"");
        let text = length.saturating_sub(body.len() + 2);
        body.extend_from_slice(&self.pool[start..start + text]);
        body.extend_from_slice(b"\"}");
        Record {
            key,
            user,
            second: self.second,
            body: &self.body,
        }
    }

    /// Goes on to the second of the next record.
    fn advance(&mut self) {
        let mean = self.profile.per_second;
        while self.left_in_second == 0 {
            self.in_second = 0;
            if mean >= 1.0 {
                self.second += 1;
                let most = ((2.0 * mean).round() as u64).min((1 << (KEY_SECOND - KEY_ORDER)) - 2);
                self.left_in_second = self.rng.u64(0..=most);
            } else {
                self.second += self.rng.u64(1..=(2.0 / mean) as u64);
                self.left_in_second = 1;
            }
        }
        self.left_in_second -= 1;
        self.in_second += 1;
    }
}

/// Appends a number in decimal; `write!` would cost more than all the rest of a record.
pub(super) fn decimal(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [b'0'; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// So many bytes of words of a made-up vocabulary, frequent ones more often, with a mention or tag
/// now and then.
pub(super) fn words(rng: &mut Rng, bytes: usize) -> Vec<u8> {
    let vocabulary: Vec<String> = (0..WORDS)
        .map(|_| (0..rng.usize(2..=9)).map(|_| rng.lowercase()).collect())
        .collect();
    let ranks = Sampler::zipf(WORDS, 0.95);
    let mut pool = Vec::with_capacity(bytes + 32);
    while pool.len() < bytes {
        let word = &vocabulary[ranks.sample(rng)];
        let mark = match rng.u8(..) {
            0..8 => "@",
            8..16 => "#",
            _ => "",
        };
        // Writing to a vector does not fail.
        let _ = write!(pool, "{mark}{word} ");
    }
    pool.truncate(bytes);
    pool
}

#[cfg(test)]
#[path = "tweets_tests.rs"]
mod tests;

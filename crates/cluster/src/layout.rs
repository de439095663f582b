//! Where the entries of an index lie: in buckets of tokens that are adjacent, and each bucket in
//! shards.
//!
//! A bucket begins at a token and ends where the next one begins. A bucket that has become large is
//! split: from a moment in the future on, new entries of its upper tokens go to a bucket of their
//! own, or, if they all have one token, to more shards. The place of an entry follows from its
//! token, its timestamp and its key, so that a reader, a writer and a repair compute the same
//! place, and entries never move. Every process knows a split before its moment
//! ([`LEAD`](crate::time::LEAD)).

use esker_coding::Seq;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::rows::entry_partition;

/// The most shards of a bucket.
const MOST_SHARDS: u16 = 1024;

/// The layout of an index.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Layout {
    /// In the order in which they were decided.
    splits: Vec<Split>,
}

/// Entries from a moment on, from a token on, go to a bucket of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Split {
    from: Seq,
    #[serde(with = "hex")]
    at: Vec<u8>,
    shards: u16,
    /// The last token of the bucket that was split, as of a time when all writes from before the
    /// split had ended: that bucket has no later token, today and for ever. Not known at first.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "hex_or_none")]
    left: Option<Vec<u8>>,
}

/// A bucket: its first token, and its shards at some time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bucket {
    pub(crate) at: Vec<u8>,
    pub(crate) shards: u16,
}

impl Bucket {
    /// The partitions.
    pub(crate) fn partitions(&self) -> impl Iterator<Item = Vec<u8>> {
        (0..self.shards).map(|shard| entry_partition(shard, &self.at))
    }
}

impl Layout {
    /// The layout of an index whose tokens are known: buckets begin at these.
    pub(crate) fn beginning_at(tokens: impl Iterator<Item = Vec<u8>>) -> Layout {
        let splits = tokens.map(|at| Split {
            from: 0,
            at,
            shards: 1,
            left: None,
        });
        Layout {
            splits: splits.collect(),
        }
    }

    /// The bucket of new entries of a token.
    pub(crate) fn bucket(&self, token: &[u8], at: Seq) -> Bucket {
        let known = self.splits.iter().enumerate();
        let known = known.filter(|(_, s)| s.from <= at && s.at.as_slice() <= token);
        // Of two splits at one token the later one counts.
        let found = known.max_by(|(i, a), (j, b)| (&a.at, a.from, i).cmp(&(&b.at, b.from, j)));
        match found {
            Some((_, split)) => Bucket {
                at: split.at.clone(),
                shards: split.shards,
            },
            None => Bucket {
                at: Vec::new(),
                shards: 1,
            },
        }
    }

    /// The partition of an entry.
    pub(crate) fn partition(&self, token: &[u8], at: Seq, key: &[u8]) -> Vec<u8> {
        let bucket = self.bucket(token, at);
        let shard = match bucket.shards {
            0 | 1 => 0,
            shards => (xxh3_64(key) % u64::from(shards)) as u16,
        };
        entry_partition(shard, &bucket.at)
    }

    /// The buckets that can have entries of tokens from `lo` on and before `hi`, of any time; each
    /// with the most shards that it ever had.
    pub(crate) fn buckets(&self, lo: &[u8], hi: Option<&[u8]>) -> Vec<Bucket> {
        let mut found: Vec<Bucket> = Vec::new();
        let mut add = |at: &[u8], shards: u16| match found.iter_mut().find(|b| b.at == at) {
            Some(bucket) => bucket.shards = bucket.shards.max(shards),
            None => found.push(Bucket {
                at: at.to_vec(),
                shards,
            }),
        };
        let is_before = |at: &[u8]| hi.is_none_or(|hi| at < hi);
        for split in &self.splits {
            if split.at.as_slice() > lo && is_before(&split.at) {
                add(&split.at, split.shards);
            }
        }
        // Of the buckets below `lo`, the one that begins last has the entries since its first
        // split, the one before it those before that, and so on; but none beyond its last token at
        // that time.
        let mut below: Vec<&Split> = self.splits.iter().collect();
        below.retain(|split| split.at.as_slice() <= lo);
        below.sort_by(|a, b| (&b.at, a.from).cmp(&(&a.at, b.from)));
        let mut until = Seq::MAX;
        let mut left: Option<&[u8]> = None;
        for splits in below.chunk_by(|a, b| a.at == b.at) {
            let Some(first) = splits.first().filter(|first| first.from < until) else {
                continue;
            };
            if left.is_none_or(|left| lo <= left) {
                let before = splits.iter().filter(|split| split.from < until);
                before.for_each(|split| add(&split.at, split.shards));
            }
            (until, left) = (first.from, first.left.as_deref());
        }
        if until > 0 && left.is_none_or(|left| lo <= left) {
            add(&[], 1);
        }
        found.sort_by(|a, b| a.at.cmp(&b.at));
        found
    }

    /// True if the bucket of a token will be another soon: a split of it has not begun.
    pub(crate) fn is_splitting(&self, bucket: &[u8], now: Seq) -> bool {
        let end = self.splits.iter().map(|split| &split.at);
        let end = end.filter(|at| at.as_slice() > bucket).min();
        let mut splits = self.splits.iter();
        splits.any(|s| {
            s.from > now && s.at.as_slice() >= bucket && end.is_none_or(|end| s.at <= *end)
        })
    }

    /// Splits a bucket from the moment `from` on. `tokens` are some of its tokens. Returns false if
    /// that changes nothing.
    pub(crate) fn split(&mut self, bucket: &[u8], mut tokens: Vec<Vec<u8>>, from: Seq) -> bool {
        tokens.sort_unstable();
        let (Some(first), Some(last)) = (tokens.first().cloned(), tokens.last().cloned()) else {
            return false;
        };
        let middle = tokens.get(tokens.len() / 2).cloned().unwrap_or_default();
        let common = tokens.iter().filter(|token| **token == middle).count();
        if common * 2 > tokens.len() || first == last {
            // Half of the bucket is one token: its keys are spread over more shards.
            let shards = self.bucket(&middle, from).shards;
            let more = if middle == bucket { shards * 2 } else { 2 };
            if more > MOST_SHARDS {
                return false;
            }
            if let Some(next) = esker_model::range::after_prefix(&middle)
                && self.bucket(&next, from).at != next
            {
                let shards = self.bucket(&next, from).shards;
                self.push(from, next, if middle == bucket { 1 } else { shards });
            }
            self.push(from, middle, more);
            return true;
        }
        let at = if middle == first { last } else { middle };
        if at.as_slice() <= bucket {
            return false;
        }
        self.push(from, at, 1);
        true
    }

    fn push(&mut self, from: Seq, at: Vec<u8>, shards: u16) {
        let left = None;
        self.splits.push(Split {
            from,
            at,
            shards,
            left,
        });
    }

    /// The first tokens of buckets that began before the moment `before`, and of which it is not
    /// known what the bucket that they were split from has; with that bucket as it was then.
    pub(crate) fn open_splits(&self, before: Seq) -> Vec<(Vec<u8>, Bucket)> {
        let open = self.splits.iter().filter(|split| {
            let is_first = |other: &&Split| other.at == split.at && other.from < split.from;
            split.left.is_none() && split.from < before && !self.splits.iter().any(|s| is_first(&s))
        });
        let with_parent = open.filter(|split| split.from > 0).map(|split| {
            let parent = self.bucket(&split.at, split.from - 1);
            (split.at.clone(), parent)
        });
        with_parent.collect()
    }

    /// Notes the last token of the bucket that was split at `at`.
    pub(crate) fn close_split(&mut self, at: &[u8], left: &[u8]) {
        let mine = self.splits.iter_mut().filter(|split| split.at == at);
        if let Some(first) = mine.min_by_key(|split| split.from) {
            first.left = Some(left.to_vec());
        }
    }
}

/// Bytes as text of hexadecimal digits.
mod hex {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        to.serialize_str(&text)
    }

    pub(super) fn deserialize<'d, D: Deserializer<'d>>(from: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(from)?;
        let pairs = text.as_bytes().chunks(2);
        let bytes = pairs.map(|pair| {
            let digits = std::str::from_utf8(pair).ok()?;
            u8::from_str_radix(digits, 16).ok()
        });
        let bytes: Option<Vec<u8>> = bytes.collect();
        bytes.ok_or_else(|| serde::de::Error::custom("not hexadecimal"))
    }
}

/// As [`hex`], where there may be none.
mod hex_or_none {
    use serde::{Deserialize, Deserializer, Serializer};

    #[derive(Deserialize)]
    struct Hex(#[serde(with = "super::hex")] Vec<u8>);

    pub(super) fn serialize<S: Serializer>(
        bytes: &Option<Vec<u8>>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        super::hex::serialize(bytes.as_deref().unwrap_or_default(), to)
    }

    pub(super) fn deserialize<'d, D: Deserializer<'d>>(
        from: D,
    ) -> Result<Option<Vec<u8>>, D::Error> {
        Ok(Some(Hex::deserialize(from)?.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each entry, written at any time, lies in a partition that readers of its token and of every
    /// range with its token ask.
    #[test]
    fn readers_ask_the_partition_of_every_entry() {
        for seed in esker_sim::seeds(esker_sim::by_tier(80, 200)) {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut layout = Layout::default();
            let mut now = 1;
            #[allow(clippy::type_complexity)]
            let mut written: Vec<(Vec<u8>, Seq, Vec<u8>, Vec<u8>)> = Vec::new();
            for _ in 0..random.usize(1..40) {
                for _ in 0..random.usize(0..20) {
                    now += 1;
                    let token = vec![random.u8(0..6), random.u8(0..3)];
                    let key = vec![random.u8(..)];
                    let partition = layout.partition(&token, now, &key);
                    written.push((token, now, key, partition));
                }
                let of = vec![random.u8(0..6), random.u8(0..3)];
                let bucket = layout.bucket(&of, now).at;
                let mine = written
                    .iter()
                    .filter(|(token, at, ..)| layout.bucket(token, *at).at == bucket);
                let tokens: Vec<_> = mine.map(|(token, ..)| token.clone()).collect();
                if !layout.is_splitting(&bucket, now) {
                    layout.split(&bucket, tokens, now + 1 + random.u64(0..10));
                }
                for (at, parent) in layout.open_splits(now) {
                    let mine = written
                        .iter()
                        .filter(|(.., partition)| parent.partitions().any(|p| p == *partition));
                    let left = mine.map(|(token, ..)| token.clone()).max();
                    layout.close_split(&at, &left.unwrap_or_default());
                }
            }
            for (token, at, key, partition) in &written {
                assert_eq!(*partition, layout.partition(token, *at, key), "seed {seed}");
                let asks = |lo: &[u8], hi: Option<&[u8]>| {
                    let buckets = layout.buckets(lo, hi);
                    buckets
                        .iter()
                        .any(|b| b.partitions().any(|p| p == *partition))
                };
                let next = esker_model::range::after_prefix(token);
                assert!(
                    asks(token, next.as_deref()),
                    "seed {seed}: {token:?} at {at}"
                );
                assert!(asks(&[], None), "seed {seed}");
                assert!(asks(&[token[0]], None), "seed {seed}");
            }
        }
    }

    #[test]
    fn a_hot_token_gets_shards_and_the_next_one_a_bucket() {
        let mut layout = Layout::default();
        let hot = vec![b"m".to_vec(); 9];
        assert!(layout.split(b"", hot.clone(), 100));
        assert!(layout.is_splitting(b"", 99));
        assert_eq!(layout.bucket(b"m", 99).shards, 1);
        assert_eq!(
            layout.bucket(b"m", 100),
            Bucket {
                at: b"m".to_vec(),
                shards: 2
            }
        );
        assert_eq!(layout.bucket(b"n", 100).shards, 1);
        assert!(layout.split(b"m", hot, 200));
        assert_eq!(layout.bucket(b"m", 200).shards, 4);
        // Nothing else is asked for the token but its bucket, and the one that all were in before.
        assert_eq!(layout.buckets(b"m", Some(b"n")).len(), 2);
    }

    #[test]
    fn times_that_ascend_leave_buckets_behind() {
        let mut layout = Layout::default();
        for step in 0..20_u8 {
            let tokens: Vec<Vec<u8>> = (0..10).map(|i| vec![step * 10 + i]).collect();
            let bucket = layout.bucket(&tokens[9], u64::from(step)).at;
            assert!(layout.split(&bucket, tokens, u64::from(step) + 1));
        }
        assert_eq!(layout.buckets(&[], None).len(), 21);
        assert_eq!(layout.buckets(&[195], Some(&[196])).len(), 21);
        for (at, _) in layout.open_splits(100) {
            let left = [at[0] + 4];
            layout.close_split(&at, &left);
        }
        assert!(layout.buckets(&[195], Some(&[196])).len() <= 3);
    }

    #[test]
    fn the_stored_form_is_read_again() {
        let layout = Layout::beginning_at([vec![0, 255], vec![7]].into_iter());
        let text = serde_json::to_string(&layout).unwrap();
        assert_eq!(serde_json::from_str::<Layout>(&text).unwrap(), layout);
        assert!(serde_json::from_str::<Layout>(&text.replace("00ff", "0")).is_ok());
        assert!(serde_json::from_str::<Layout>(&text.replace("00ff", "zz")).is_err());
    }
}

//! Sampling from a discrete distribution by Walker's alias method: O(n) to build, two table reads to
//! sample.

use fastrand::Rng;

/// A distribution over the indexes of the weights it was made of.
#[derive(Debug, Clone)]
pub struct Sampler {
    /// For each column: the share of its own index in 2^32, and the index that has the rest.
    columns: Vec<(u32, u32)>,
}

impl Sampler {
    /// Index `i` comes with probability proportional to `weights[i]`. Without weights, always 0.
    pub fn new(weights: &[f64]) -> Sampler {
        let total: f64 = weights.iter().sum();
        let scale = weights.len() as f64 / total;
        let mut shares: Vec<f64> = weights.iter().map(|weight| weight * scale).collect();
        let mut columns: Vec<(u32, u32)> = (0..weights.len() as u32)
            .map(|index| (u32::MAX, index))
            .collect();
        if columns.is_empty() {
            columns.push((u32::MAX, 0));
        }
        let (mut small, mut large): (Vec<usize>, Vec<usize>) =
            (0..shares.len()).partition(|&index| shares[index] < 1.0);
        while let (Some(&giver), Some(taker)) = (large.last(), small.pop()) {
            columns[taker] = ((shares[taker] * f64::from(u32::MAX)) as u32, giver as u32);
            shares[giver] -= 1.0 - shares[taker];
            if shares[giver] < 1.0 {
                large.pop();
                small.push(giver);
            }
        }
        Sampler { columns }
    }

    /// Rank `r` of `n` with probability proportional to `1 / (r + 1) ^ exponent`.
    pub fn zipf(n: usize, exponent: f64) -> Sampler {
        let weights: Vec<f64> = (1..=n).map(|rank| (rank as f64).powf(-exponent)).collect();
        Sampler::new(&weights)
    }

    /// An index.
    #[inline]
    pub fn sample(&self, rng: &mut Rng) -> usize {
        let column = rng.usize(0..self.columns.len());
        let (share, other) = self.columns[column];
        if rng.u32(..) <= share {
            column
        } else {
            other as usize
        }
    }
}

//! A simple mutation driver, for use without a fuzzing engine: deterministic for a seed.

/// Values at which decoders tend to fail.
const EDGES: [u64; 12] = [
    0,
    1,
    0x7f,
    0x80,
    0xff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    (1 << 56) - 1,
    1 << 63,
    u64::MAX - 1,
    u64::MAX,
];

/// Prints the input when its target panics.
struct Input<'a> {
    seed: u64,
    round: u64,
    bytes: &'a [u8],
}

impl Drop for Input<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let text = self.bytes.escape_ascii();
            eprintln!("seed {}, round {}: b\"{text}\"", self.seed, self.round);
        }
    }
}

/// xorshift64*
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let bits = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32;
        (bits as usize * n.max(1)) >> 32
    }
}

/// Runs `target` on each input of `corpus`, and then on `rounds` mutations of them. When it panics,
/// the input is printed on standard error. `ESKER_FUZZ=20` in the environment multiplies the rounds
/// by 20.
pub fn campaign(seed: u64, rounds: u64, corpus: &[Vec<u8>], target: &mut dyn FnMut(&[u8])) {
    let times = std::env::var("ESKER_FUZZ").ok();
    let rounds = rounds * times.and_then(|times| times.parse().ok()).unwrap_or(1);
    let mut rng = Rng(seed.wrapping_mul(2) + 1);
    for bytes in corpus {
        target(bytes);
    }
    for round in 0..rounds {
        let mut bytes = corpus
            .get(rng.below(corpus.len()))
            .cloned()
            .unwrap_or_default();
        for _ in 0..1 + rng.below(4) {
            mutate(&mut rng, &mut bytes, corpus);
        }
        let input = Input {
            seed,
            round,
            bytes: &bytes,
        };
        target(input.bytes);
    }
}

fn mutate(rng: &mut Rng, bytes: &mut Vec<u8>, corpus: &[Vec<u8>]) {
    let at = rng.below(bytes.len());
    let len = rng.below(9).min(bytes.len() - at);
    let edge = EDGES.get(rng.below(EDGES.len())).copied().unwrap_or(0);
    match rng.below(9) {
        0 | 1 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << rng.below(8);
            }
        }
        2 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = edge as u8;
            }
        }
        3 => {
            let width = [1, 2, 4, 8].get(rng.below(4)).copied().unwrap_or(1);
            let edge = edge.to_le_bytes();
            for (byte, edge) in bytes.iter_mut().skip(at).zip(edge.iter().take(width)) {
                *byte = *edge;
            }
        }
        4 => {
            let mut varint = Vec::new();
            crate::coding::put_varint(&mut varint, edge);
            bytes.splice(at..at + len.min(1), varint);
        }
        5 => {
            bytes.drain(at..at + len);
        }
        6 => {
            let copy: Vec<u8> = bytes.iter().skip(at).take(len).copied().collect();
            let to = rng.below(bytes.len() + 1);
            bytes.splice(to..to, copy);
        }
        7 => bytes.truncate(at),
        _ => {
            let other = corpus.get(rng.below(corpus.len()));
            let other = other.map(Vec::as_slice).unwrap_or_default();
            let tail = other.get(rng.below(other.len())..).unwrap_or_default();
            bytes.truncate(at);
            bytes.extend_from_slice(tail);
        }
    }
}

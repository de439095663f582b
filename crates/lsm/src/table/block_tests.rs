use super::*;

#[test]
fn numbers_are_read_the_short_way_as_the_long_way() {
    let mut rng = fastrand::Rng::with_seed(11);
    let mut short = 0;
    for _ in 0..20_000 {
        let mut number = || rng.u64(..) >> rng.u32(40..64);
        let numbers = [number(), number(), number(), number()];
        let mut bytes = Vec::new();
        for number in numbers {
            put_varint(&mut bytes, number);
        }
        let len = bytes.len();
        bytes.extend_from_slice(&[rng.u8(..); 8]);
        let word = u64::from_le_bytes(*bytes.first_chunk::<8>().unwrap());
        let long = Numbers::read(&bytes).unwrap();
        let read = [
            long.shared as u64,
            long.key_len as u64,
            long.value_len as u64,
            long.stamp,
        ];
        assert_eq!((read, long.len), (numbers, len));
        let fits = numbers[0] < 1 << 7
            && numbers[1] < 1 << 7
            && numbers[2] < 1 << 14
            && numbers[3] < 1 << 21;
        assert_eq!(Numbers::short(word), fits.then_some(long), "{numbers:?}");
        short += u32::from(fits);
    }
    assert!(short > 1000, "{short}");
}

fn random_bytes(rng: &mut fastrand::Rng, len: usize, letters: u8) -> Vec<u8> {
    (0..len).map(|_| rng.u8(..letters)).collect()
}

type Entry = (Vec<u8>, Seq, Kind, Vec<u8>);

/// Entries in order: keys of few letters and all lengths, some with many versions, and values of
/// all lengths.
fn random_entries(rng: &mut fastrand::Rng) -> Vec<Entry> {
    let (letters, longest) = (rng.u8(1..=5), [4, 12, 130, 300][rng.usize(..4)]);
    let largest = [1, 100, 600, 5000][rng.usize(..4)];
    let bits = rng.u32(8..=56);
    let mut keys: Vec<Vec<u8>> = Vec::new();
    for _ in 0..rng.usize(1..60) {
        let mut key = match keys.get(rng.usize(..keys.len().max(1))) {
            Some(key) if rng.bool() => key[..rng.usize(..=key.len())].to_vec(),
            _ => Vec::new(),
        };
        let len = rng.usize(..=longest);
        key.extend(random_bytes(rng, len.saturating_sub(key.len()), letters));
        keys.push(key);
    }
    let mut entries = Vec::new();
    for key in keys {
        for _ in 0..if rng.u8(..6) == 0 {
            rng.usize(1..40)
        } else {
            1
        } {
            let len = rng.usize(..largest);
            let kind = [Kind::Put, Kind::Delete, Kind::Operand, Kind::Timed][rng.usize(..4)];
            let seq = rng.u64(..) & ((1 << bits) - 1);
            entries.push((key.clone(), seq, kind, random_bytes(rng, len, 255)));
        }
    }
    entries.sort_by(|a, b| (&a.0, b.1).cmp(&(&b.0, a.1)));
    entries.dedup_by(|a, b| (&a.0, a.1) == (&b.0, b.1));
    entries
}

fn block_of(entries: &[Entry]) -> Vec<u8> {
    let mut builder = BlockBuilder::default();
    let mut before: &[u8] = &[];
    for (key, seq, kind, value) in entries {
        builder.add(before, key, *seq, *kind, value);
        before = key;
    }
    let size = builder.size();
    let bytes = builder.finish().to_vec();
    assert_eq!(bytes.len(), size);
    bytes
}

/// Keys of entries, and others close to them.
fn probes(rng: &mut fastrand::Rng, entries: &[Entry]) -> Vec<Vec<u8>> {
    let mut probes = vec![Vec::new(), vec![255; 3]];
    for (key, ..) in entries {
        probes.push(key.clone());
        probes.push([key.as_slice(), &[0]].concat());
        probes.push(key[..rng.usize(..=key.len())].to_vec());
        let mut other = key.clone();
        if let Some(last) = other.last_mut() {
            *last = last.wrapping_add(rng.u8(..3)).wrapping_sub(1);
        }
        probes.push(other);
    }
    probes.sort();
    probes
}

#[test]
fn searches_of_a_block_find_what_a_look_at_every_entry_finds() {
    for seed in 0..esker_sim::by_tier(12, 30) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let entries = random_entries(&mut rng);
        let bytes = Arc::new(block_of(&entries));
        let layout = Layout::parse(&bytes).unwrap();
        let mut cursor = BlockCursor::new();
        cursor.load(Arc::clone(&bytes)).unwrap();
        let here = |cursor: &BlockCursor| {
            let key = cursor.key().to_vec();
            (key, cursor.seq(), cursor.kind(), cursor.value().to_vec())
        };
        for entry in &entries {
            assert_eq!(cursor.next(), Some(true));
            assert_eq!(here(&cursor), *entry, "seed {seed}");
        }
        assert_eq!(cursor.next(), Some(false));
        assert_eq!(cursor.last(), Some(true));
        for (i, entry) in entries.iter().enumerate().rev() {
            assert_eq!(here(&cursor), *entry, "seed {seed}");
            assert_eq!(cursor.prev(), Some(i > 0), "seed {seed}");
        }
        let probes = probes(&mut rng, &entries);
        for key in &probes {
            let at = entries.partition_point(|e| e.0 < *key);
            let seqs = entries[at..]
                .iter()
                .map_while(|e| (e.0 == *key).then_some(e.1));
            let seqs: Vec<Seq> = seqs.flat_map(|s| [s, s.saturating_sub(1), s + 1]).collect();
            for seq in seqs
                .into_iter()
                .filter(|s| *s <= MAX_SEQ)
                .chain([0, MAX_SEQ])
            {
                let wanted = entries.iter().find(|e| (&e.0, seq) >= (key, e.1));
                assert_eq!(cursor.seek(key, seq), Some(wanted.is_some()));
                if let Some(wanted) = wanted {
                    assert_eq!(here(&cursor), *wanted, "seed {seed}");
                }
            }
        }
        // Every so many of them.
        for every in [1, 2, 3, 7, 20, 90] {
            let mut near = None;
            let mut i = rng.usize(..every);
            while let Some(key) = probes.get(i) {
                let wanted = entries.iter().find(|e| e.0 >= *key);
                let place = layout.seek_near(&bytes, &mut near, key).unwrap();
                assert_eq!(place.is_some(), wanted.is_some(), "seed {seed}");
                if let (Some(place), Some(wanted)) = (place, wanted) {
                    assert_eq!(place.is_of(&bytes, key), wanted.0 == *key, "seed {seed}");
                    let value = &bytes[place.value..place.value_end];
                    assert_eq!((place.seq, place.kind), (wanted.1, wanted.2), "seed {seed}");
                    assert_eq!(value, wanted.3);
                }
                i += rng.usize(1..=every);
            }
        }
    }
}

#[test]
fn damaged_blocks_do_not_panic() {
    for seed in 0..30 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let entries = random_entries(&mut rng);
        let whole = block_of(&entries);
        let keys_at = whole.len().saturating_sub(entries.len() * 8 + 40);
        for _ in 0..40 {
            let mut bytes = whole.clone();
            for _ in 0..rng.usize(1..4) {
                let at = if rng.bool() {
                    rng.usize(..bytes.len())
                } else {
                    rng.usize(keys_at.min(bytes.len() - 1)..bytes.len())
                };
                bytes[at] = if rng.bool() {
                    rng.u8(..)
                } else {
                    bytes[at] ^ 1 << rng.u8(..8)
                };
            }
            if rng.u8(..5) == 0 {
                bytes.truncate(rng.usize(..bytes.len()));
            }
            let Some(layout) = Layout::parse(&bytes) else {
                continue;
            };
            let bytes = Arc::new(bytes);
            let probes = probes(&mut rng, &entries);
            let mut near = None;
            for key in probes.iter().step_by(rng.usize(1..9)) {
                if layout.seek_near(&bytes, &mut near, key).is_none() {
                    near = None;
                }
                layout.seek(&bytes, key, rng.u64(..=MAX_SEQ));
            }
            let mut cursor = BlockCursor::new();
            cursor.load(Arc::clone(&bytes)).unwrap();
            let mut n = 0;
            while cursor.next() == Some(true) {
                n += 1;
                assert!(n < 100_000, "seed {seed}");
                let _ = (cursor.key(), cursor.value());
            }
            let _ = cursor.last();
            n = 0;
            while cursor.prev() == Some(true) {
                n += 1;
                assert!(n < 100_000, "seed {seed}");
            }
            for key in probes.iter().step_by(5) {
                cursor.seek(key, rng.u64(..=MAX_SEQ));
                let _ = (cursor.key(), cursor.value());
                cursor.prev();
            }
        }
    }
}

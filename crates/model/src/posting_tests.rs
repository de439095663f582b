use super::*;

const SEED: u64 = 0x5eed_0004;

/// The sequence number of the entry, for fragments without their own.
const ENTRY: Seq = 77;

type Owned = (Seq, Vec<u8>, bool);

fn fragment(postings: &[Owned]) -> Vec<u8> {
    let mut writer = PostingWriter::new();
    for (seq, key, cancel) in postings {
        assert!(writer.push(Posting {
            seq: *seq,
            key,
            cancel: *cancel
        }));
    }
    let mut out = Vec::new();
    writer.finish(false, &mut out);
    out
}

fn single(posting: &Owned) -> Vec<u8> {
    let mut out = Vec::new();
    Posting {
        seq: posting.0,
        key: &posting.1,
        cancel: posting.2,
    }
    .encode(&mut out);
    out
}

fn read(fragment: &[u8]) -> Result<Vec<Owned>, Malformed> {
    let list = PostingList::parse(fragment, ENTRY)?;
    let mut reader = list.reader();
    let mut all = Vec::new();
    while let Some(p) = reader.next()? {
        all.push((p.seq, p.key.to_vec(), p.cancel));
    }
    assert_eq!(list.newest(), all[0].0);
    assert_eq!(list.oldest(), all[all.len() - 1].0);
    Ok(all)
}

/// The postings of a list that must be kept, by definition.
fn model(postings: &[Owned], oldest: bool) -> Vec<Owned> {
    let newest_of = |i: usize| !postings[..i].iter().any(|p| p.1 == postings[i].1);
    let kept = (0..postings.len())
        .filter(|i| newest_of(*i))
        .map(|i| postings[i].clone());
    kept.filter(|p| !(oldest && p.2)).collect()
}

fn random_postings(rng: &mut fastrand::Rng, count: usize, keys: u32) -> Vec<Owned> {
    let mut seq = rng.u64(1 << 20..MAX_SEQ);
    let stem = "k".repeat(rng.usize(..40));
    (0..count)
        .map(|_| {
            seq -= 1 + (rng.u64(..1 << 10) >> rng.u32(..10));
            let n = rng.u32(..keys);
            let key = format!("{stem}{n}{}", "x".repeat((n % 5 * 9) as usize));
            (seq, key.into_bytes(), rng.u32(..4) == 0)
        })
        .collect()
}

#[test]
fn postings_come_back() {
    let mut rng = fastrand::Rng::with_seed(SEED);
    for round in 0..500 {
        let count = rng.usize(1..60);
        let postings = random_postings(&mut rng, count, 1000);
        assert_eq!(
            read(&fragment(&postings)),
            Ok(postings.clone()),
            "round {round}, seed {SEED}"
        );
        assert_eq!(read(&single(&postings[0])), Ok(postings[..1].to_vec()));
    }
    let longest = (5, vec![1; MAX_PRIMARY_KEY], false);
    assert_eq!(read(&single(&longest)), Ok(vec![longest.clone()]));
    assert_eq!(
        read(&single(&(IMPLIED, Vec::new(), true))),
        Ok(vec![(ENTRY, Vec::new(), true)])
    );
}

#[test]
fn a_posting_costs_little() {
    let keys = (0..100u64).map(|i| {
        (
            1_000_000 - i,
            format!("user{:08}", i * 37).into_bytes(),
            false,
        )
    });
    let bytes = fragment(&keys.collect::<Vec<_>>()).len();
    assert!(bytes < 700, "{bytes} bytes for 100 keys of 12");
}

#[test]
fn the_writer_wants_descending_sequence_numbers() {
    let mut writer = PostingWriter::new();
    let posting = |seq| Posting {
        seq,
        key: b"k",
        cancel: false,
    };
    assert!(writer.body.is_empty());
    assert!(writer.push(posting(5)));
    assert!(!writer.push(posting(5)));
    assert!(!writer.push(posting(6)));
    assert!(writer.push(posting(4)));
    let mut out = Vec::new();
    writer.finish(true, &mut out);
    assert!(writer.body.is_empty());
    writer.finish(true, &mut out);
    assert_eq!(read(&out).unwrap().len(), 2);
}

#[test]
fn merges_agree_with_the_model() {
    let mut rng = fastrand::Rng::with_seed(SEED + 1);
    let operator = PostingMerge {
        chunk_bytes: usize::MAX,
        versions: 1,
    };
    for round in 0..1_000 {
        let count = rng.usize(1..80);
        let keys = rng.u32(1..60);
        let postings = random_postings(&mut rng, count, keys);
        // The list is cut anywhere, an earlier compaction has normalised some pieces, and pieces
        // are combined in any grouping.
        let mut pieces = Vec::new();
        let mut rest = &postings[..];
        while !rest.is_empty() {
            let (piece, tail) = rest.split_at(rng.usize(1..=rest.len().min(20)));
            let mut bytes = if piece.len() == 1 {
                single(&piece[0])
            } else {
                fragment(piece)
            };
            if rng.bool() {
                assert!(operator.finish(0, &mut bytes, false));
            }
            pieces.push(bytes);
            rest = tail;
        }
        while pieces.len() > 1 {
            let i = rng.usize(..pieces.len() - 1);
            let older = pieces.remove(i + 1);
            assert!(
                operator.combine(&mut pieces[i], ENTRY, &older, ENTRY),
                "round {round}, seed {SEED}"
            );
        }
        let mut list = pieces.remove(0);
        assert!(operator.finish(0, &mut list, false));
        assert_eq!(
            read(&list),
            Ok(model(&postings, false)),
            "round {round}, seed {SEED}"
        );
        let normalised = list.clone();
        assert!(operator.finish(0, &mut list, false));
        assert_eq!(list, normalised, "normalising again changes nothing");
        let last = model(&postings, true);
        assert_eq!(operator.finish(0, &mut list, true), !last.is_empty());
        if !last.is_empty() {
            assert_eq!(read(&list), Ok(last), "round {round}, seed {SEED}");
        }
    }
}

#[test]
fn grouping_makes_no_difference() {
    let mut rng = fastrand::Rng::with_seed(SEED + 2);
    let postings = random_postings(&mut rng, 3, 2);
    let [a, b, c] = [0, 1, 2].map(|i| single(&postings[i]));
    let mut left = a.clone();
    assert!(append(&mut left, ENTRY, &b, ENTRY) && append(&mut left, ENTRY, &c, ENTRY));
    let mut right = b;
    assert!(append(&mut right, ENTRY, &c, ENTRY));
    let mut all = a;
    assert!(append(&mut all, ENTRY, &right, ENTRY));
    assert_eq!(left, all);
}

#[test]
fn a_full_chunk_takes_no_more() {
    let operator = PostingMerge {
        chunk_bytes: 10,
        versions: 1,
    };
    let mut newer = single(&(9, b"123".to_vec(), false));
    assert!(operator.combine(
        &mut newer,
        ENTRY,
        &single(&(8, b"456".to_vec(), false)),
        ENTRY
    ));
    let full = newer.clone();
    assert!(!operator.combine(
        &mut newer,
        ENTRY,
        &single(&(7, b"789".to_vec(), false)),
        ENTRY
    ));
    assert_eq!(newer, full);
}

#[test]
fn what_cannot_be_joined_stays_apart() {
    let newer = fragment(&[(9, b"a".to_vec(), false), (7, b"b".to_vec(), false)]);
    let mut cut = newer.clone();
    cut.truncate(2);
    for (a, b) in [
        (newer.clone(), single(&(7, b"c".to_vec(), false))),
        (newer.clone(), single(&(8, b"c".to_vec(), false))),
        (newer.clone(), Vec::new()),
        (Vec::new(), newer.clone()),
        (cut, single(&(1, b"c".to_vec(), false))),
    ] {
        let mut joined = a.clone();
        assert!(!append(&mut joined, ENTRY, &b, ENTRY));
        assert_eq!(joined, a);
    }
}

#[test]
fn damage_is_found_or_harmless() {
    let mut rng = fastrand::Rng::with_seed(SEED + 4);
    for _ in 0..30_000 {
        let mut bytes = if rng.bool() {
            let count = rng.usize(1..20);
            fragment(&random_postings(&mut rng, count, 10))
        } else {
            (0..rng.usize(..24))
                .map(|_| rng.u8(..) >> rng.u32(..8))
                .collect()
        };
        if !bytes.is_empty() {
            let at = rng.usize(..bytes.len());
            if rng.bool() {
                bytes[at] ^= 1 << rng.u32(..8)
            } else {
                bytes.truncate(at)
            }
        }
        if let Ok(all) = read(&bytes) {
            assert!(all.is_sorted_by(|a, b| a.0 > b.0));
        }
        let mut joined = bytes.clone();
        append(
            &mut joined,
            ENTRY,
            &single(&(1, b"k".to_vec(), false)),
            ENTRY,
        );
        let mut joined = single(&(MAX_SEQ, b"k".to_vec(), false));
        append(&mut joined, ENTRY, &bytes, ENTRY);
        normalise(&mut joined, ENTRY, rng.bool(), 1);
        normalise(&mut bytes, ENTRY, rng.bool(), 1);
    }
}

#[test]
fn keys_that_unpack_without_bound_are_left_alone() {
    let mut bytes = fragment(&[(10_000, vec![b'k'; MAX_PRIMARY_KEY], false)]);
    // Each further posting repeats the whole key in a few bytes.
    let list = PostingList::parse(&bytes, ENTRY).unwrap();
    let mut bomb = Vec::new();
    put_head(&mut bomb, list.newest(), list.newest() - 5_000, CANCELS);
    bomb.extend_from_slice(list.body);
    bytes.resize(MAX_PRIMARY_KEY, b'k');
    for _ in 0..5_000 {
        let posting = Posting {
            seq: 0,
            key: &[b'k'; MAX_PRIMARY_KEY],
            cancel: false,
        };
        put_posting(&mut bomb, 1, &posting, MAX_PRIMARY_KEY);
    }
    let before = bomb.clone();
    assert!(normalise(&mut bomb, ENTRY, false, 1));
    assert_eq!(bomb, before);
}

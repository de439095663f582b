//! Followers of a damaged log.

use std::path::Path;
use std::sync::Arc;

use esker::extension::{Batch, Kind, Snapshot};
use esker::{Durability, Options, Seq};
use esker_sim::memory::Memory;

use crate::forms::element::{Element, NEVER, StoredPublication};
use crate::forms::keys::{self, List};
use crate::{Broker, Config, Place, PubSub, Publication, Subscription, Topic};

fn topic() -> Topic {
    "a".parse().unwrap()
}

/// Writes a batch with these operands, each under a key.
fn write(broker: &Broker, operands: impl Fn(Seq) -> Vec<(Vec<u8>, Vec<u8>)>) {
    let inner = &*broker.inner;
    let complete = |batch: &mut Batch, first: Seq, _: &Snapshot| {
        for (key, operand) in operands(first) {
            let until = inner.drop_time(NEVER);
            let tree = inner.trees.publications;
            batch.also_until(Kind::Operand, tree, &key, &operand, until)?;
        }
        Ok(())
    };
    let mut batch = Batch::new();
    inner
        .store
        .write_with(&mut batch, Durability::Os, complete)
        .unwrap();
}

fn element(seq: Seq) -> Vec<u8> {
    let mut operand = Vec::new();
    let element = Element::Publication(StoredPublication {
        time: 1,
        latest: 1,
        expires: NEVER,
        place: Place::Anywhere,
        tag: &[],
        body: b"{}",
    });
    element.encode(seq, u64::MAX, &mut operand);
    operand
}

/// Returns the text of each error, and the numbers of the publications behind it.
fn follow(operands: impl Fn(Seq) -> Vec<(Vec<u8>, Vec<u8>)>) -> (Vec<String>, usize) {
    let options = PubSub::register(Options::new().fs(Arc::new(Memory::new())).background(false));
    let db = PubSub::create_or_open(Path::new("/damaged"), options).unwrap();
    let broker = Broker::create_or_open(&db, Config::new()).unwrap();
    let all = Subscription::to(topic().into()).from(0);
    let mut follow = broker.follow(&all, None).unwrap();
    write(&broker, operands);
    let last = broker.publish(&Publication::new(topic(), "{}")).unwrap();
    let (mut errors, mut found) = (Vec::new(), 0);
    loop {
        match follow.next() {
            Ok(Some(_)) => found += 1,
            Ok(None) => break,
            Err(error) => errors.push(error.to_string()),
        }
    }
    assert_eq!(follow.seen(), last.seq);
    (errors, found)
}

fn key(cell: &[u8]) -> Vec<u8> {
    keys::list(topic().encoded(), cell, List::Publications)
}

/// Of several damaged elements in a commit the first is reported, once. What is readable in the
/// commit, and what comes behind it, is returned.
#[test]
fn the_first_damage_in_a_commit_is_reported_once() {
    let (errors, found) = follow(|seq| {
        // A length behind the end; then an element whose content is cut.
        let malformed = vec![200, 1];
        let mut cut = vec![17, 1];
        cut.extend_from_slice(&seq.to_le_bytes());
        cut.extend_from_slice(&u64::MAX.to_le_bytes());
        vec![
            (key(&[]), malformed),
            (key(&[1]), cut),
            (key(&[2]), element(seq)),
        ]
    });
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(
        errors[0].contains("an element of a value list is malformed"),
        "{errors:?}"
    );
    assert_eq!(found, 2);
}

/// A malformed key is damage, not a list of something else.
#[test]
fn a_malformed_key_is_reported() {
    let wild = [topic().encoded(), &[4]].concat();
    let wild = keys::list(&wild, &[], List::Publications);
    let mut unknown = key(&[]);
    unknown.pop();
    unknown.push(9);
    for bad in [unknown, vec![1], wild] {
        let (errors, found) = follow(|seq| vec![(bad.clone(), element(seq))]);
        assert_eq!((errors.len(), found), (1, 1), "{bad:?}: {errors:?}");
        assert!(errors[0].contains("malformed"), "{errors:?}");
    }
}

/// Readers of the lists report malformed keys, too.
#[test]
fn a_malformed_key_in_the_lists_is_reported() {
    let below = [topic().encoded(), "b".parse::<Topic>().unwrap().encoded()].concat();
    let mut unknown = keys::list(&below, &[], List::Publications);
    unknown.pop();
    unknown.push(9);
    let wild = [topic().encoded(), &[4]].concat();
    let wild = keys::list(&wild, &[], List::Publications);
    for bad in [unknown, wild] {
        let options =
            PubSub::register(Options::new().fs(Arc::new(Memory::new())).background(false));
        let db = PubSub::create_or_open(Path::new("/damaged"), options).unwrap();
        let broker = Broker::create_or_open(&db, Config::new()).unwrap();
        // So that topics of two levels are known.
        let other = Publication::new("a/c".parse().unwrap(), "{}");
        broker.publish(&other).unwrap();
        let all = Subscription::to(topic().into()).from(0);
        assert_eq!(broker.query(&all).unwrap().len(), 1);
        write(&broker, |seq| vec![(bad.clone(), element(seq))]);
        let failed = broker.query(&all).map(|found| found.len());
        let text = failed.unwrap_err().to_string();
        assert!(text.contains("malformed"), "{text}");
    }
}

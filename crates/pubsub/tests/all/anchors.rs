//! Anchors against evaluation: a publication finds exactly the subscriptions that evaluating every
//! condition finds, for bodies with any values.

use std::path::Path;
use std::sync::Arc;

use esker::Options;
use esker_pubsub::{Broker, Config, PubSub, Publication, Subscription};
use esker_sim::memory::Memory;
use fastrand::Rng;

const VALUES: [&str; 26] = [
    "0",
    "-0.0",
    "0.0",
    "1",
    "1.0",
    "1e0",
    "1.5",
    "-1",
    "9007199254740992",
    "9007199254740993",
    "9007199254740994",
    "18446744073709551615",
    "-9223372036854775808",
    "1e300",
    "true",
    "false",
    "null",
    "\"\"",
    "\"1\"",
    "\"true\"",
    "\"abc\"",
    "\"\\u0061bc\"",
    "\"x\\\"y\"",
    "\"aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeeffffffffffgggggggggg1\"",
    "\"aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeeffffffffffgggggggggg2\"",
    "\"zz\"",
];

const OPERANDS: [&str; 22] = [
    "0",
    "-0.0",
    "1",
    "1.0",
    "1.5",
    "-1",
    "2",
    "9007199254740992",
    "9007199254740993",
    "9007199254740994",
    "18446744073709551615",
    "-9223372036854775808",
    "1e300",
    "true",
    "false",
    "\"\"",
    "\"1\"",
    "\"true\"",
    "\"abc\"",
    "\"aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeeffffffffffgggggggggg1\"",
    "\"x\\\"y\"",
    "abc",
];

fn condition(rng: &mut Rng) -> String {
    let path = |rng: &mut Rng| ["n", "n", "m.n", "s"][rng.usize(..4)];
    let operand = |rng: &mut Rng| OPERANDS[rng.usize(..OPERANDS.len())];
    let test = |rng: &mut Rng| {
        let path = path(rng);
        match rng.u8(0..9) {
            0..3 => format!("{path} = {}", operand(rng)),
            3 => format!("{path} >= {}", operand(rng)),
            4 => format!("{path} < {}", operand(rng)),
            5 => format!("{path} > {}", operand(rng)),
            6 => format!("{path} <= {}", operand(rng)),
            7 => format!("{path} in ({}, {})", operand(rng), operand(rng)),
            _ => format!("{path} >= {} and {path} <= {}", operand(rng), operand(rng)),
        }
    };
    match rng.u8(0..3) {
        0 => format!("{} and {}", test(rng), test(rng)),
        _ => test(rng),
    }
}

fn body(rng: &mut Rng) -> String {
    let value = |rng: &mut Rng| {
        let one = |rng: &mut Rng| VALUES[rng.usize(..VALUES.len())];
        match rng.u8(0..6) {
            0 => format!("[{},{}]", one(rng), one(rng)),
            1 => format!("[[{}],{{\"n\":{}}}]", one(rng), one(rng)),
            _ => one(rng).to_owned(),
        }
    };
    let fields: Vec<String> = (0..rng.usize(0..4))
        .map(|_| {
            let name = ["n", "s", "m", "\\u006e"][rng.usize(..4)];
            let value = value(rng);
            match name {
                "m" => format!("\"m\":{{\"n\":{value}}}"),
                name => format!("\"{name}\":{value}"),
            }
        })
        .collect();
    match rng.u8(0..30) {
        0 => "no JSON".to_owned(),
        1 => fields.join(","),
        _ => format!("{{{}}}", fields.join(",")),
    }
}

#[test]
fn anchors_find_exactly_the_conditions_that_a_body_satisfies() {
    for seed in 0..esker_sim::by_tier(8, 20) {
        let mut rng = Rng::with_seed(seed);
        let options = PubSub::register(Options::new().fs(Arc::new(Memory::new())));
        let db = PubSub::create_or_open(Path::new("/anchors"), options).unwrap();
        let broker = Broker::create_or_open(&db, Config::new()).unwrap();
        let mut made = Vec::new();
        for _ in 0..100 {
            let text = condition(&mut rng);
            let Ok(condition) = text.parse() else {
                continue;
            };
            let asked = Subscription::to("a".parse().unwrap()).matching(condition);
            let id = broker.subscribe(&asked).unwrap().id;
            made.push((id, text, asked.from(0)));
        }
        assert!(made.len() > 50, "{}", made.len());
        for _ in 0..30 {
            let body = body(&mut rng);
            let new = Publication::new("a".parse().unwrap(), body.clone());
            let published = broker.publish(&new).unwrap();
            for (id, text, asked) in &made {
                let is_told = published.matches.iter().any(|m| m.subscription == *id);
                // A query reads the publications, and evaluates the condition.
                let found = broker.query(asked).unwrap();
                let is_found = found.iter().any(|found| found.seq == published.seq);
                assert_eq!(is_told, is_found, "seed {seed}: {text} of {body}");
            }
        }
    }
}

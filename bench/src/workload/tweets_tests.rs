use std::collections::HashMap;

use serde_json::Value;

use super::*;
use crate::workload::plan::{Mix, Plan};

fn first(seed: u64, records: usize) -> Vec<(u64, u64, u64, Vec<u8>)> {
    let mut tweets = Tweets::new(seed, Profile::synthetic(records as u64));
    let mut made = Vec::new();
    for _ in 0..records {
        let record = tweets.next(None);
        made.push((record.key, record.user, record.second, record.body.to_vec()));
    }
    made
}

#[test]
fn a_seed_always_gives_the_same_records_and_another_seed_others() {
    assert_eq!(first(7, 500), first(7, 500));
    assert_ne!(first(7, 500), first(8, 500));
}

#[test]
fn records_are_json_with_the_attributes_they_are_handed_over_with() {
    for (key, user, second, body) in first(7, 2000) {
        let json: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(json["id"].as_u64(), Some(key));
        assert_eq!(json["user_id"].as_u64(), Some(user));
        assert_eq!(json["created_at"].as_u64(), Some(second));
        assert!(i64::try_from(key).is_ok());
    }
}

#[test]
fn keys_grow_and_attributes_follow_the_profile() {
    let records = first(7, 60_000);
    assert!(records.windows(2).all(|pair| pair[0].0 < pair[1].0));
    let bytes: usize = records.iter().map(|r| r.3.len()).sum();
    let mean = bytes as f64 / records.len() as f64;
    assert!((530.0..550.0).contains(&mean), "{mean} bytes a record");
    let seconds = (records[59_999].2 - records[0].2 + 1) as f64;
    let rate = records.len() as f64 / seconds;
    assert!((33.0..37.0).contains(&rate), "{rate} records a second");
    let mut users: HashMap<u64, u32> = HashMap::new();
    for record in &records {
        *users.entry(record.1).or_default() += 1;
    }
    let top = users.values().copied().max().unwrap();
    assert!(
        users.len() > 1_700 && users.len() <= 2_000,
        "{} users",
        users.len()
    );
    assert!(
        (4_000..8_000).contains(&top),
        "the most frequent user has {top}"
    );
}

#[test]
fn a_profile_is_learned_from_a_seed_set() {
    let seeds = concat!(
        r#"{"id":1,"time":100,"author":"a","x":"................"}"#,
        "\n",
        r#"{"id":2,"time":101,"author":"a"}"#,
        "\n",
        r#"{"id":3,"time":102,"author":"a"}"#,
        "\n",
        r#"{"id":4,"time":103,"author":"b"}"#,
        "\n",
    );
    let profile = Profile::learn(seeds.as_bytes(), "author", "time").unwrap();
    assert_eq!(profile.per_second, 1.0);
    let mut tweets = Tweets::new(1, profile);
    let frequent = (0..4000)
        .filter(|_| tweets.next(None).user == Tweets::user(0))
        .count();
    assert!((2_850..3_150).contains(&frequent), "{frequent} of 4000");
    assert!(Profile::learn("{}\n".as_bytes(), "author", "time").is_err());
}

#[test]
fn a_plan_streams_the_records_that_its_history_knows() {
    let plan = Plan::new(3, Profile::synthetic(3000), 3000, 2000, Mix::UPDATE_HEAVY);
    let writes = plan.history.len();
    assert!(writes > 4_400 && writes < 4_800, "{writes} writes");
    let mut stream = plan.stream();
    let mut last: HashMap<u64, u64> = HashMap::new();
    for write in 0..writes {
        let record = stream.next();
        assert_eq!(
            (record.user, record.second),
            (plan.history.user(write), plan.history.second(write))
        );
        assert_eq!(
            plan.history.replaced(write).is_some(),
            last.contains_key(&record.key)
        );
        last.insert(record.key, crate::model::digest(record.body));
    }
    for key in 0..plan.history.keys() {
        assert_eq!(
            plan.history.get(key, writes),
            last.get(&plan.history.key(key)).copied()
        );
    }
}

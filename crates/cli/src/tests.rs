//! Unit tests of the command line's own parts.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::Value;

use crate::args::{Cli, durability, duration, size};
use crate::tweets::{EPOCH, Tweets};

#[test]
fn the_command_line_is_well_formed() {
    <Cli as clap::CommandFactory>::command().debug_assert();
}

#[test]
fn sizes_and_durability_are_read() {
    assert_eq!(size("4096"), Ok(4096));
    assert_eq!(size("128M"), Ok(128 << 20));
    assert_eq!(size("1GiB"), Ok(1 << 30));
    assert_eq!(size("64MiB"), Ok(64 << 20));
    assert_eq!(size("64 mb"), Ok(64 << 20));
    assert_eq!(size("1.5K"), Ok(1536));
    assert_eq!(size("1T"), Ok(1 << 40));
    for wrong in [
        "0", "", "K", ".", "1..5K", "1K2", "-1", "1e3", "0.1", "1 000",
    ] {
        assert!(size(wrong).is_err(), "{wrong}");
    }
    assert!(size("12X").is_err());
    assert!(size("99999999999999G").is_err());
    assert_eq!(durability("sync"), Ok(esker::Durability::Sync));
    assert!(durability("0").is_err());
    assert!(durability("often").is_err());
    let every = |millis| Ok(esker::Durability::Periodic(Duration::from_millis(millis)));
    assert_eq!(durability("20"), every(20));
    assert_eq!(durability("5ms"), every(5));
    assert_eq!(durability("1.5s"), every(1500));
    for (text, millis) in [
        ("500ms", 500),
        ("10s", 10_000),
        ("10 s", 10_000),
        ("2min", 120_000),
        ("2 days", 172_800_000),
        ("1.5h", 5_400_000),
        ("1h30m", 5_400_000),
        ("1h 30m", 5_400_000),
        ("1w2d", 777_600_000),
    ] {
        assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
    }
    for wrong in [
        "",
        "2",
        "0s",
        "s",
        "1x",
        "1.s",
        "1h30",
        "-1s",
        "1e3s",
        "99999999999999w",
    ] {
        assert!(duration(wrong).is_err(), "{wrong}");
    }
    assert!(duration("2").unwrap_err().contains("has no unit"));
}

#[test]
fn what_was_meant_is_the_most_similar_name() {
    let known = ["user", "user.name", "at"];
    let meant = |name| crate::nearest::nearest(name, known);
    assert_eq!(meant("user.nme"), Some("user.name"));
    assert_eq!(meant("usr.name"), Some("user.name"));
    assert_eq!(meant("name"), Some("user.name"));
    assert_eq!(meant("user.address"), Some("user"));
    assert_eq!(meant("price"), None);
}

#[test]
fn tweets_are_what_the_workload_says() {
    const RECORDS: u64 = 60_000;
    let mut tweets = Tweets::new(7, RECORDS);
    let mut again = Tweets::new(7, RECORDS);
    let (mut record, mut same) = (Vec::new(), Vec::new());
    let (mut bytes, mut last) = (0, String::new());
    let mut users: HashMap<u64, u64> = HashMap::new();
    let mut seconds: HashMap<u64, u64> = HashMap::new();
    for _ in 0..RECORDS {
        let second = tweets.next(&mut record);
        again.next(&mut same);
        assert_eq!(record, same);
        bytes += record.len();
        let json: Value = serde_json::from_slice(&record).unwrap();
        let id = json["id"].as_str().unwrap().to_string();
        assert!(id.len() == 20 && id > last, "{id} after {last}");
        last = id;
        assert_eq!(json["created_at"].as_u64(), Some(second));
        *users.entry(json["user_id"].as_u64().unwrap()).or_default() += 1;
        *seconds.entry(second).or_default() += 1;
    }
    let mean = bytes as f64 / RECORDS as f64;
    assert!((mean - 534.0).abs() < 5.0, "mean {mean} bytes");
    assert!(seconds.values().all(|&count| count <= 70));
    let span = seconds.keys().max().unwrap() - EPOCH;
    let rate = RECORDS as f64 / span as f64;
    assert!((rate - 35.0).abs() < 2.0, "{rate} a second");
    // Frequencies by Zipf's law: p(0) / p(9) = 10 ^ 0.95 = 8.9.
    let count = |rank| users.get(&Tweets::user(rank)).copied().unwrap_or(0) as f64;
    let ratio = count(0) / count(9);
    assert!((7.5..10.5).contains(&ratio), "ratio {ratio}");
    assert!(
        users.len() <= (RECORDS / 30) as usize && users.len() > 1500,
        "{} users",
        users.len()
    );
}

#[test]
fn a_definition_is_shown_as_the_arguments_that_make_it() {
    use esker::schema::Tokenizer;
    use esker::{DatasetDef, IndexKind, KeyType, Type};
    let usual = DatasetDef::new("id", KeyType::Int);
    assert_eq!(crate::words::definition(&usual), "--key id:int");
    let def = usual
        .index(
            "at",
            esker::Index::new(IndexKind::Embedded).of_type(Type::Time),
        )
        .index(
            "name",
            esker::Index::new(IndexKind::Lazy)
                .of_type(Type::String)
                .tokenizer(Tokenizer::Prefix),
        )
        .auto();
    assert_eq!(
        crate::words::definition(&def),
        "--key id:int --index at:embedded:time --index name:lazy:string:prefix --maintenance auto"
    );
}

#[test]
fn what_is_advised_is_a_command() {
    use esker::IndexKind;
    use esker::advise::AdvisedChange;
    let path = "a".parse().unwrap();
    let command = |change| crate::words::index_command(&path, IndexKind::Lazy, change, "db", "d");
    let said = |text: &str| Some(text.to_string());
    assert_eq!(command(AdvisedChange::Add), said("add db d a:lazy"));
    assert_eq!(command(AdvisedChange::Switch), said("switch db d a:lazy"));
    assert_eq!(command(AdvisedChange::Drop), said("drop db d a"));
    assert_eq!(command(AdvisedChange::Keep), None);
}

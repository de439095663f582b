use super::*;
use crate::model::digest;

fn file(lines: usize) -> (tempfile::TempDir, Set) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("events.ndjson");
    let line = |id: usize| {
        format!(
            "{{\"id\":{id},\"time\":{},\"author\":\"u{:010x}\",\"text\":\"a, b\"}}\n",
            100 + id / 3,
            id % 7
        )
    };
    std::fs::write(&path, (1..=lines).map(line).collect::<String>()).unwrap();
    (dir, Set::Events(path))
}

#[test]
fn events_come_as_they_are_and_updates_under_the_key_that_they_replace() {
    let (_dir, set) = file(400);
    let data = Data::new(&set, 3, (100, 300), Mix::UPDATE_HEAVY).unwrap();
    let history = data.history();
    assert_eq!((data.load(), data.ops().len()), (100, 300));
    let mut feed = data.feed();
    let mut updates = 0;
    for write in 0..history.len() {
        let body = feed.next().body.to_vec();
        let json: Value = serde_json::from_slice(&body).unwrap();
        updates += usize::from(history.replaced(write).is_some());
        let key = history.replaced(write).unwrap_or(write as u64 + 1);
        assert_eq!(json["id"], key);
        assert_eq!(
            json["author"],
            set.text(Attribute::User, history.user(write))
        );
        assert_eq!(
            json["time"].to_string(),
            set.text(Attribute::Time, history.second(write))
        );
        let number = (0..history.keys())
            .find(|&number| history.key(number) == key)
            .unwrap();
        assert_eq!(history.get(number, write + 1), Some(digest(&body)));
    }
    assert!(updates > 50);
}

#[test]
fn a_set_that_is_too_short_is_used_up() {
    let (_dir, set) = file(50);
    let data = Data::new(&set, 3, (80, 10), Mix::WRITE_HEAVY).unwrap();
    assert_eq!((data.load(), data.history().len()), (50, 50));
    assert!(Data::new(&Set::Events("absent".into()), 3, (1, 0), Mix::WRITE_HEAVY).is_err());
}

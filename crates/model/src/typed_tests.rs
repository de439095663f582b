#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::ops::Bound;

use super::{AsKey, KeyRange, PrimaryKey};
use crate::key::Key;
use crate::schema::KeyType;

fn key_of<K>(key: impl AsKey<K>, ty: KeyType) -> Result<Key, String> {
    key.as_key(ty).map_err(|error| error.to_string())
}

#[test]
fn keys_go_there_and_back() {
    for value in [0, 7, u64::MAX] {
        let key = key_of::<u64>(value, KeyType::Int).unwrap();
        assert_eq!(u64::from_key(key), Ok(value));
    }
    for value in [i64::MIN, -1, i64::MAX] {
        let key = key_of::<i64>(value, KeyType::Int).unwrap();
        assert_eq!(i64::from_key(key.clone()), Ok(value));
        assert_eq!(Key::from_key(key.clone()), Ok(key.clone()));
        assert_eq!(u64::from_key(key).is_ok(), value >= 0);
    }
    let ann = key_of::<String>("ann", KeyType::String).unwrap();
    assert_eq!(String::from_key(ann.clone()), Ok("ann".to_string()));
    assert!(u32::from_key(ann.clone()).is_err());
    assert_eq!(key_of::<Key>(&ann, KeyType::String), Ok(ann.clone()));
    assert_eq!(key_of::<Key>("ann", KeyType::String), Ok(ann));
}

#[test]
fn what_is_no_key_is_refused() {
    assert!(key_of::<Key>(7, KeyType::String).is_err());
    assert!(key_of::<Key>("7", KeyType::Int).is_err());
    assert!(key_of::<String>("", KeyType::String).is_err());
    let number = key_of::<u8>(7, KeyType::Int).unwrap();
    assert!(key_of::<Key>(&number, KeyType::String).is_err());
    assert!(String::from_key(number).is_err());
}

#[test]
fn ranges_of_the_standard_library_are_ranges_of_keys() {
    fn text<K>(range: impl KeyRange<K>, ty: KeyType) -> String {
        let (lo, hi) = range.bounds(ty).unwrap();
        let side = |bound: Bound<Key>| match bound {
            Bound::Included(key) => format!("{key}="),
            Bound::Excluded(key) => format!("{key}"),
            Bound::Unbounded => String::new(),
        };
        format!("{}..{}", side(lo), side(hi))
    }
    assert_eq!(text::<u64>(.., KeyType::Int), "..");
    assert_eq!(text::<u64>(1..5, KeyType::Int), "1=..5");
    assert_eq!(text::<u64>(1..=5, KeyType::Int), "1=..5=");
    assert_eq!(text::<Key>(1.., KeyType::Int), "1=..");
    assert_eq!(text::<String>(.."b", KeyType::String), "..b");
    assert_eq!(text::<String>(..="b", KeyType::String), "..b=");
    let bounds = (Bound::Excluded("a"), Bound::Unbounded);
    assert_eq!(text::<String>(bounds, KeyType::String), "a..");
}

//! JSON merge patches (RFC 7396), from text to text. Members that a patch does not name keep their
//! bytes, so numbers of any length and the order of members survive.

use std::collections::{HashMap, HashSet};

use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The maximum depth of a patch; deeper JSON could not be a record.
const MAX_DEPTH: usize = 128;

/// Applies `patch` to `target` (JSON merge patch, RFC 7396). Null in the patch removes the target's
/// member, an object is applied to the target's member in turn, and any other value replaces it. A
/// target that is missing or is not an object counts as an empty object.
///
/// # Errors
/// If one of the two is not JSON, or the patch is nested too deeply; the text says why.
pub fn merge_patch(target: Option<&[u8]>, patch: &[u8]) -> Result<Vec<u8>, String> {
    let raw = |json| serde_json::from_slice::<&RawValue>(json);
    let not_json = |error: serde_json::Error| format!("not valid JSON: {error}");
    let patch = raw(patch).map_err(not_json)?;
    let target = target.map(raw).transpose().map_err(not_json)?;
    let mut out = String::new();
    merge(target, patch, MAX_DEPTH, &mut out)?;
    Ok(out.into_bytes())
}

fn merge(
    target: Option<&RawValue>,
    patch: &RawValue,
    depth: usize,
    out: &mut String,
) -> Result<(), String> {
    if !is_object(patch) {
        out.push_str(patch.get());
        return Ok(());
    }
    let depth = depth
        .checked_sub(1)
        .ok_or("the patch is nested too deeply")?;
    let patch = members(patch)?;
    let target = target.filter(|target| is_object(target));
    let target = target.map(members).transpose()?.unwrap_or_default();
    // Both may have many members.
    let patches: HashMap<&str, &RawValue> =
        (patch.iter().map(|(name, value)| (name.as_str(), *value))).collect();
    let known: HashSet<&str> = target.iter().map(|(name, _)| name.as_str()).collect();
    let mut begin = '{';
    let mut member = |name: &str, out: &mut String| -> Result<(), String> {
        out.push(begin);
        begin = ',';
        out.push_str(&serde_json::to_string(name).map_err(|error| error.to_string())?);
        out.push(':');
        Ok(())
    };
    for (name, value) in &target {
        match patches.get(name.as_str()) {
            None => {
                member(name, out)?;
                out.push_str(value.get());
            }
            Some(patch) if is_null(patch) => {}
            Some(patch) => {
                member(name, out)?;
                merge(Some(value), patch, depth, out)?;
            }
        }
    }
    for (name, value) in &patch {
        if !is_null(value) && !known.contains(name.as_str()) {
            member(name, out)?;
            merge(None, value, depth, out)?;
        }
    }
    if begin == '{' {
        out.push('{');
    }
    out.push('}');
    Ok(())
}

fn is_object(value: &RawValue) -> bool {
    value.get().starts_with('{')
}

fn is_null(value: &RawValue) -> bool {
    value.get() == "null"
}

/// The members of an object: each name once, with its last value, as JSON parsers read it.
fn members(object: &RawValue) -> Result<Vec<(String, &RawValue)>, String> {
    struct Members;
    impl<'de> Visitor<'de> for Members {
        type Value = Vec<(String, &'de RawValue)>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut members: Vec<(String, &'de RawValue)> = Vec::new();
            let mut places = HashMap::new();
            while let Some((name, value)) = map.next_entry::<String, &'de RawValue>()? {
                let place = *places.entry(name.clone()).or_insert(members.len());
                match members.get_mut(place) {
                    Some(known) => known.1 = value,
                    None => members.push((name, value)),
                }
            }
            Ok(members)
        }
    }
    let mut json = serde_json::Deserializer::from_str(object.get());
    json.deserialize_map(Members)
        .map_err(|error| format!("not valid JSON: {error}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::merge_patch;

    fn merged(target: &str, patch: &str) -> String {
        let merged = merge_patch(Some(target.as_bytes()), patch.as_bytes()).unwrap();
        String::from_utf8(merged).unwrap()
    }

    /// The table of RFC 7396, appendix A.
    #[test]
    fn the_examples_of_the_standard() {
        for (target, patch, result) in [
            (r#"{"a":"b"}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"b":"c"}"#, r#"{"a":"b","b":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"a":null}"#, "{}"),
            (r#"{"a":"b","b":"c"}"#, r#"{"a":null}"#, r#"{"b":"c"}"#),
            (r#"{"a":["b"]}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"c"}"#, r#"{"a":["b"]}"#, r#"{"a":["b"]}"#),
            (
                r#"{"a":{"b":"c"}}"#,
                r#"{"a":{"b":"d","c":null}}"#,
                r#"{"a":{"b":"d"}}"#,
            ),
            (r#"{"a":[{"b":"c"}]}"#, r#"{"a":[1]}"#, r#"{"a":[1]}"#),
            (r#"["a","b"]"#, r#"["c","d"]"#, r#"["c","d"]"#),
            (r#"{"a":"b"}"#, r#"["c"]"#, r#"["c"]"#),
            (r#"{"a":"foo"}"#, "null", "null"),
            (r#"{"a":"foo"}"#, r#""bar""#, r#""bar""#),
            (r#"{"e":null}"#, r#"{"a":1}"#, r#"{"e":null,"a":1}"#),
            ("[1,2]", r#"{"a":"b","c":null}"#, r#"{"a":"b"}"#),
            ("{}", r#"{"a":{"bb":{"ccc":null}}}"#, r#"{"a":{"bb":{}}}"#),
        ] {
            assert_eq!(merged(target, patch), result, "{target} with {patch}");
        }
    }

    #[test]
    fn what_is_not_named_stays_to_the_byte() {
        let target = r#"{ "n": 123456789012345678901234567890.50, "t": [1.0,  2] , "a\u0062": "\u00e9", "x": 1 }"#;
        let result = r#"{"n":123456789012345678901234567890.50,"t":[1.0,  2],"ab":"\u00e9","x":2}"#;
        assert_eq!(merged(target, r#"{"x":2}"#), result);
        // If a name occurs twice, its last value counts, in the target and in the patch.
        assert_eq!(merged(r#"{"a":1,"b":2,"a":3}"#, "{}"), r#"{"a":3,"b":2}"#);
        assert_eq!(merged("{}", r#"{"a":null,"a":4}"#), r#"{"a":4}"#);
        assert_eq!(merged(r#"{"a":1}"#, r#"{"a":4,"a":null}"#), "{}");
    }

    /// Each name with each would take minutes.
    #[test]
    fn many_members_are_merged_with_many() {
        const MANY: usize = 1 << 17;
        let object = |from: usize, value: &str| {
            let members = (from..from + MANY).map(|n| format!("\"member-{n}\":{value}"));
            format!("{{{}}}", members.collect::<Vec<_>>().join(","))
        };
        let merged = merged(&object(0, "1"), &object(MANY / 2, "[]"));
        let (half, rest) = (merged.matches(":1").count(), merged.matches(":[]").count());
        assert_eq!((half, rest), (MANY / 2, MANY));
    }

    #[test]
    fn nothing_there_counts_as_an_empty_object() {
        let merged = merge_patch(None, br#"{"a":{"b":null,"c":1}}"#).unwrap();
        assert_eq!(merged, br#"{"a":{"c":1}}"#);
    }

    #[test]
    fn what_is_no_json_or_too_deep_is_refused() {
        assert!(merge_patch(None, b"{").is_err());
        assert!(merge_patch(Some(b"nonsense"), b"{}").is_err());
        assert!(merge_patch(None, b"{\"a\":1}x").is_err());
        let deep = format!("{}1{}", r#"{"a":"#.repeat(5000), "}".repeat(5000));
        assert!(merge_patch(None, deep.as_bytes()).is_err());
    }
}

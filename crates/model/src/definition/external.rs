//! Names of index kinds from other crates.

use std::fmt;

use crate::error::{Error, Result};

/// The maximum length of a name in bytes.
const MAX_NAME: usize = 32;

/// The only name of a built-in kind with a `-`.
const SPACE_TIME: &str = "space-time";

/// An index kind from another crate: its name. Whether a store has the kind is seen when the name
/// is used there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExternalKind {
    /// The name, with zeros behind it. The order of these bytes is that of the names.
    bytes: [u8; MAX_NAME],
}

impl ExternalKind {
    /// The kind of this name.
    ///
    /// # Errors
    /// [`Error::BadInput`] if the name is invalid (see [`ExternalKind::is_name`]).
    pub fn new(name: &str) -> Result<ExternalKind> {
        if !ExternalKind::is_name(name) {
            return Err(Error::bad_input(format!(
                "index kind `{name}`: a name is 3 to {MAX_NAME} lower-case letters, digits and `-`, with a letter first and a `-` inside, and not `{SPACE_TIME}`"
            )));
        }
        let mut bytes = [0; MAX_NAME];
        for (to, from) in bytes.iter_mut().zip(name.bytes()) {
            *to = from;
        }
        Ok(ExternalKind { bytes })
    }

    /// True for a valid name of such a kind: lower-case letters, digits and `-`, a letter first and
    /// a `-` inside, and not `space-time`. No other built-in kind has a `-` in its name, now or
    /// later, so a name on disk never changes its meaning.
    pub fn is_name(text: &str) -> bool {
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let inside = text.trim_matches('-');
        text.len() <= MAX_NAME
            && text.chars().all(fits)
            && text.starts_with(|first: char| first.is_ascii_lowercase())
            && inside.len() == text.len()
            && inside.contains('-')
            && text != SPACE_TIME
    }

    /// The name.
    pub fn name(&self) -> &str {
        let end = self.bytes.iter().position(|byte| *byte == 0);
        let name = self.bytes.get(..end.unwrap_or(MAX_NAME));
        let name = name.and_then(|name| std::str::from_utf8(name).ok());
        debug_assert!(name.is_some(), "a name is ASCII");
        name.unwrap_or_default()
    }
}

impl fmt::Debug for ExternalKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::IndexKind;

    #[test]
    fn names_parse_as_kinds_with_a_tree() {
        let longest = format!("a-{}", "b".repeat(MAX_NAME - 2));
        for name in ["unit-test", longest.as_str()] {
            let kind = ExternalKind::new(name).unwrap();
            assert_eq!(kind.name(), name);
            let parsed: IndexKind = name.parse().unwrap();
            assert_eq!(parsed, IndexKind::External(kind));
            assert_eq!(parsed.to_string(), name);
            assert!(parsed.is_standalone() && parsed.is_indexed() && !parsed.is_embedded());
        }
        let named = |name| ExternalKind::new(name).unwrap();
        assert!(named("a-b") < named("a-bc") && named("a-bc") < named("b-a"));
    }

    #[test]
    fn a_name_has_a_hyphen_inside_and_is_no_built_in_kind() {
        for name in ["a-b", "by-hash", "acme-geo2"] {
            assert!(ExternalKind::is_name(name), "{name}");
        }
        for name in [
            "",
            "hash",
            "-a",
            "a-",
            "A-b",
            "a b-c",
            "1-a",
            "a-\u{e9}",
            "a_b-c:d",
            "space-time",
        ] {
            assert!(!ExternalKind::is_name(name), "{name}");
            assert!(ExternalKind::new(name).is_err(), "{name}");
        }
        assert!(!ExternalKind::is_name(&format!(
            "a-{}",
            "b".repeat(MAX_NAME)
        )));
        for kind in IndexKind::ALL {
            assert!(!ExternalKind::is_name(&kind.to_string()));
        }
    }
}

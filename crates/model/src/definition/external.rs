//! Index kinds from other crates: the names registered in this process, and their implementations.
//! The type of an implementation is known to the storage crate and opaque here.

use std::any::Any;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Mutex, PoisonError};

use crate::error::{Error, Result};

/// The maximum length of a registered name in bytes.
const MAX_NAME: usize = 32;

/// An index kind from another crate, registered in this process under its name.
#[derive(Clone, Copy)]
pub struct ExternalKind(&'static Registered);

struct Registered {
    name: String,
    implementation: Box<dyn Any + Send + Sync>,
}

/// The only name of a built-in kind with a `-`.
const SPACE_TIME: &str = "space-time";

/// The list is short, and kinds are never removed: a definition may name a kind as long as the
/// process runs.
static REGISTERED: Mutex<Vec<ExternalKind>> = Mutex::new(Vec::new());

impl ExternalKind {
    /// Registers a kind for the rest of the process; `implementation` is its implementation for the
    /// storage.
    ///
    /// # Errors
    /// [`Error::BadInput`] if the name is invalid (see [`ExternalKind::is_name`]) or registered
    /// already.
    pub fn register(
        name: &str,
        implementation: Box<dyn Any + Send + Sync>,
    ) -> Result<ExternalKind> {
        if !ExternalKind::is_name(name) {
            return Err(Error::bad_input(format!(
                "index kind `{name}`: a name is 3 to {MAX_NAME} lower-case letters, digits and `-`, with a letter first and a `-` inside, and not `{SPACE_TIME}`"
            )));
        }
        let mut registered = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
        if registered.iter().any(|kind| kind.name() == name) {
            return Err(Error::bad_input(format!(
                "index kind `{name}` is registered already"
            )));
        }
        let kind = ExternalKind(Box::leak(Box::new(Registered {
            name: name.to_string(),
            implementation,
        })));
        registered.push(kind);
        Ok(kind)
    }

    /// The registered kind of this name, if any.
    pub fn named(name: &str) -> Option<ExternalKind> {
        let registered = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
        registered.iter().copied().find(|kind| kind.name() == name)
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
    pub fn name(self) -> &'static str {
        &self.0.name
    }

    /// The implementation.
    pub fn implementation(self) -> &'static (dyn Any + Send + Sync) {
        self.0.implementation.as_ref()
    }
}

impl fmt::Debug for ExternalKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

// A name is registered only once, so it identifies the kind.
impl PartialEq for ExternalKind {
    fn eq(&self, other: &ExternalKind) -> bool {
        self.name() == other.name()
    }
}
impl Eq for ExternalKind {}
impl PartialOrd for ExternalKind {
    fn partial_cmp(&self, other: &ExternalKind) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for ExternalKind {
    fn cmp(&self, other: &ExternalKind) -> Ordering {
        self.name().cmp(other.name())
    }
}
impl Hash for ExternalKind {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::IndexKind;

    #[test]
    fn names_are_registered_once_and_parse_from_then_on() {
        assert!("unit-test".parse::<IndexKind>().is_err());
        let kind = ExternalKind::register("unit-test", Box::new(7_u8)).unwrap();
        assert!(ExternalKind::register("unit-test", Box::new(8_u8)).is_err());
        let parsed: IndexKind = "unit-test".parse().unwrap();
        assert_eq!(parsed, IndexKind::External(kind));
        assert_eq!(parsed.to_string(), "unit-test");
        assert!(parsed.is_standalone() && parsed.is_indexed() && !parsed.is_embedded());
        assert_eq!(kind.implementation().downcast_ref(), Some(&7_u8));
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
            assert!(
                ExternalKind::register(name, Box::new(())).is_err(),
                "{name}"
            );
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

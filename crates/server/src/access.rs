//! Who may do what: bearer tokens and users with roles.
//!
//! **Invariants.** Tokens are kept as their SHA-256 alone: they have 256 random bits, so that a
//! hash cannot be searched. What a caller may not read is answered as if it did not exist.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::problem::Problem;

/// What a caller may do. Each role has the rights of those before it.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Reads records, definitions and publications.
    Read,
    /// Also writes records and publishes.
    Write,
    /// Also creates and drops datasets, changes indexes, and does what concerns the whole store.
    Admin,
}

/// The rights of a token or a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The name, for logs.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// The datasets, as names or beginnings of names with a `*` behind; all by default.
    pub datasets: Option<Vec<String>>,
    /// The topics: each with those below it; all by default.
    pub topics: Option<Vec<String>>,
}

impl Grant {
    /// The rights in settings. A grant that is limited to datasets has no topics but those that are
    /// named, and the other way round.
    pub(crate) fn new(
        name: &str,
        role: Role,
        datasets: &Option<Vec<String>>,
        topics: &Option<Vec<String>>,
    ) -> Grant {
        let is_all = |all: &&Vec<String>| all.iter().any(|one| one == "*");
        let limited = |own: &Option<Vec<String>>, other: &Option<Vec<String>>| match own {
            Some(own) => Some(own.clone()).filter(|own| !is_all(&own)),
            None => other.as_ref().map(|_| Vec::new()),
        };
        Grant {
            name: name.to_string(),
            role,
            datasets: limited(datasets, topics),
            topics: limited(topics, datasets),
        }
    }
}

/// A token of the settings, with its rights as in [`Grant`].
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenSettings {
    /// The name, for logs.
    pub name: String,
    /// The SHA-256 of the token, in hexadecimal digits.
    pub sha256: String,
    /// What it may do.
    pub role: Role,
    /// The datasets; `["*"]` are all.
    #[serde(default)]
    pub datasets: Option<Vec<String>>,
    /// The topics; `["*"]` are all. Without datasets and topics, it is all of both.
    #[serde(default)]
    pub topics: Option<Vec<String>>,
}

impl TokenSettings {
    fn grant(&self) -> Grant {
        Grant::new(&self.name, self.role, &self.datasets, &self.topics)
    }
}

/// The datasets in which the server keeps sessions and retained messages of MQTT. Only those who
/// administer the whole store see them.
pub(crate) const OF_SERVER: [&str; 2] = [SESSIONS, RETAINED];

/// The sessions of MQTT.
pub(crate) const SESSIONS: &str = "mqtt-sessions";

/// The retained messages of MQTT.
pub(crate) const RETAINED: &str = "mqtt-retained";

/// All tokens.
#[derive(Debug, Default)]
pub(crate) struct Tokens {
    by_hash: HashMap<[u8; 32], Caller>,
}

/// Who makes a request.
#[derive(Debug, Clone)]
pub(crate) struct Caller(Arc<Grant>);

/// The SHA-256 of a token, in hexadecimal digits, as the settings have it.
pub fn hash_of(token: &str) -> String {
    let mut text = String::new();
    for byte in Sha256::digest(token.as_bytes()) {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The bytes of a hash in hexadecimal digits.
pub(crate) fn bytes_of_hash(hex: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    let (pairs, rest) = hex.as_bytes().as_chunks::<2>();
    if pairs.len() != bytes.len() || !rest.is_empty() {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(pairs) {
        let pair = std::str::from_utf8(pair).ok()?;
        *byte = u8::from_str_radix(pair, 16).ok()?;
    }
    Some(bytes)
}

impl Tokens {
    /// The tokens of the settings.
    ///
    /// # Errors
    /// A sentence, for a hash that is none, or two tokens with the same.
    pub(crate) fn new(settings: &[TokenSettings]) -> Result<Tokens, String> {
        let mut by_hash = HashMap::new();
        for token in settings {
            let name = &token.name;
            let hash = bytes_of_hash(&token.sha256).ok_or_else(|| {
                format!(
                    "token `{name}`: sha256 is not 64 hexadecimal digits (`esker token` makes one)"
                )
            })?;
            let caller = Caller(Arc::new(token.grant()));
            if by_hash.insert(hash, caller).is_some() {
                return Err(format!("token `{name}`: another one has the same sha256"));
            }
        }
        Ok(Tokens { by_hash })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_hash.is_empty()
    }

    /// The caller with this token, if it is one.
    pub(crate) fn caller(&self, token: &str) -> Option<Caller> {
        let hash: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        self.by_hash.get(&hash).cloned()
    }
}

impl Caller {
    /// The caller of a server without tokens, who may do everything.
    pub(crate) fn anyone() -> Caller {
        Caller(Arc::new(Grant {
            name: "anyone".to_string(),
            role: Role::Admin,
            datasets: None,
            topics: None,
        }))
    }

    /// A caller without a token, where others have one: it may read what concerns no dataset.
    pub(crate) fn stranger() -> Caller {
        Caller(Arc::new(Grant {
            name: "stranger".to_string(),
            role: Role::Read,
            datasets: Some(Vec::new()),
            topics: Some(Vec::new()),
        }))
    }

    pub(crate) fn with(grant: Grant) -> Caller {
        Caller(Arc::new(grant))
    }

    /// The name, for logs.
    pub(crate) fn name(&self) -> &str {
        &self.0.name
    }

    pub(crate) fn grant(&self) -> &Grant {
        &self.0
    }

    /// Succeeds if the caller has this role for the dataset.
    ///
    /// # Errors
    /// 404 if it may not read it, 403 if it may not do more.
    pub(crate) fn may(&self, role: Role, dataset: &str) -> Result<(), Problem> {
        if !self.sees(dataset) {
            return Err(Problem::unknown_dataset(dataset));
        }
        self.has(role)
    }

    /// True if the caller may read the dataset.
    pub(crate) fn sees(&self, dataset: &str) -> bool {
        if OF_SERVER.contains(&dataset) {
            // They tell of all topics, and what is in them acts for any user.
            return self.may_all(Role::Admin).is_ok();
        }
        (self.0.datasets.as_ref()).is_none_or(|all| all.iter().any(|one| covers(one, dataset)))
    }

    /// Succeeds if the caller has this role for a topic and those below it.
    ///
    /// # Errors
    /// 403.
    pub(crate) fn may_topic(&self, role: Role, topic: &str) -> Result<(), Problem> {
        self.has(role)?;
        if self.sees_topic(topic) {
            return Ok(());
        }
        Err(Problem::forbidden(format!("topic `{topic}` is not yours")))
    }

    /// True if a topic and those below it are the caller's.
    pub(crate) fn sees_topic(&self, topic: &str) -> bool {
        (self.0.topics.as_ref()).is_none_or(|all| all.iter().any(|one| is_below(topic, one)))
    }

    /// Succeeds if the caller has this role for the whole store.
    ///
    /// # Errors
    /// 403.
    pub(crate) fn may_all(&self, role: Role) -> Result<(), Problem> {
        self.has(role)?;
        if self.0.datasets.is_some() || self.0.topics.is_some() {
            let detail = "this concerns the whole store, and your token only parts of it";
            return Err(Problem::forbidden(detail));
        }
        Ok(())
    }

    /// Succeeds if the caller has this role for something.
    ///
    /// # Errors
    /// 403.
    pub(crate) fn has(&self, role: Role) -> Result<(), Problem> {
        if self.0.role >= role {
            return Ok(());
        }
        let needed = match role {
            Role::Read => "read",
            Role::Write => "write",
            Role::Admin => "admin",
        };
        Err(Problem::forbidden(format!("this needs the role {needed}")))
    }
}

/// True if a name is `pattern`, or begins as it does before a `*` at its end.
fn covers(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => name == pattern,
    }
}

/// True if a topic is `top`, or lies below it. An empty `top` covers no topic.
fn is_below(topic: &str, top: &str) -> bool {
    let top = top.trim_end_matches('/');
    if top.is_empty() {
        return false;
    }
    let rest = topic.strip_prefix(top);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(datasets: &[&str], topics: &[&str]) -> Caller {
        let owned = |all: &[&str]| Some(all.iter().map(ToString::to_string).collect());
        Caller::with(Grant {
            name: "reader".to_string(),
            role: Role::Read,
            datasets: owned(datasets),
            topics: owned(topics),
        })
    }

    #[test]
    fn datasets_that_a_caller_may_not_see_do_not_exist_for_it() {
        let caller = reader(&["visits", "tmp-*"], &[]);
        assert!(caller.may(Role::Read, "visits").is_ok());
        assert!(caller.may(Role::Read, "tmp-1").is_ok());
        let refused = caller.may(Role::Read, "visitors").unwrap_err();
        assert_eq!(refused.status().as_u16(), 404);
        let refused = caller.may(Role::Write, "visits").unwrap_err();
        assert_eq!(refused.status().as_u16(), 403);
        assert_eq!(
            caller.may_all(Role::Read).unwrap_err().status().as_u16(),
            403
        );
    }

    #[test]
    fn datasets_of_the_server_are_for_its_administrators() {
        for dataset in OF_SERVER {
            assert!(Caller::anyone().sees(dataset));
            for all in [&["*"][..], &["mqtt*"], &[dataset]] {
                assert!(!reader(all, &[]).sees(dataset), "{all:?}");
            }
            let writer = Grant::new("writer", Role::Write, &None, &None);
            assert!(!Caller::with(writer).sees(dataset));
        }
    }

    #[test]
    fn a_grant_of_no_topic_covers_none() {
        for top in ["", "/", "//"] {
            let caller = reader(&[], &[top]);
            for topic in ["", "a", "/a", "a/b"] {
                assert!(!caller.sees_topic(topic), "{top:?} {topic:?}");
            }
        }
    }

    #[test]
    fn a_topic_covers_those_below_it_and_no_other() {
        let caller = reader(&[], &["traffic", "city/north/"]);
        for (topic, sees) in [
            ("traffic", true),
            ("traffic/accident", true),
            ("trafficlight", false),
            ("city", false),
            ("city/north", true),
            ("city/north/1", true),
            ("city/northern", false),
        ] {
            assert_eq!(caller.sees_topic(topic), sees, "{topic}");
        }
    }

    #[test]
    fn a_token_is_known_by_its_hash() {
        let settings = |sha256: String| TokenSettings {
            name: "one".to_string(),
            sha256,
            role: Role::Write,
            datasets: None,
            topics: None,
        };
        let tokens = Tokens::new(&[settings(hash_of("secret"))]).unwrap();
        assert_eq!(tokens.caller("secret").unwrap().name(), "one");
        assert!(tokens.caller("Secret").is_none());
        assert!(Tokens::new(&[settings("secret".to_string())]).is_err());
        let twice = [settings(hash_of("secret")), settings(hash_of("secret"))];
        assert!(Tokens::new(&twice).is_err());
    }
}

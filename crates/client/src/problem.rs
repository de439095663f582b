//! Errors: the problem that a server answers with becomes the error of its kind again.

use esker::{Error, Key, KeyType, NotUnique, Path};
use serde::Deserialize;
use serde_json::{Map, Value};

/// The document of a problem (`application/problem+json`).
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct Problem {
    #[serde(rename = "type", default)]
    pub(crate) kind: String,
    #[serde(default)]
    pub(crate) detail: String,
    #[serde(flatten)]
    more: Map<String, Value>,
}

impl Problem {
    fn text(&self, name: &str) -> Option<&str> {
        self.more.get(name)?.as_str()
    }

    fn key(&self, name: &str, key_type: Option<KeyType>) -> Option<Key> {
        Key::parse(key_type?, self.text(name)?).ok()
    }

    /// The name between the first two backquotes of the text.
    fn quoted(&self) -> String {
        let mut parts = self.detail.split('`').skip(1);
        parts.next().unwrap_or_default().to_string()
    }

    /// The error, of a dataset whose keys have a type. The text is that of the problem.
    pub(crate) fn error(self, key_type: Option<KeyType>) -> Error {
        self.same(key_type).unwrap_or_else(|| match &*self.kind {
            "no-token" => Error::Unavailable(format!(
                "{} (ESKER_TOKEN has it, or the file of --token-file)",
                self.detail
            )),
            "forbidden" => Error::Unsupported(self.detail),
            _ => Error::Unavailable(self.detail),
        })
    }

    /// The error of this kind, if the problem has what belongs to it.
    fn same(&self, key_type: Option<KeyType>) -> Option<Error> {
        let detail = || self.detail.clone();
        Some(match &*self.kind {
            "bad-input" | "rejected" | "too-large" => Error::BadInput(detail()),
            "unsupported" | "no-method" | "no-backups" => Error::Unsupported(detail()),
            "unknown-dataset" => Error::UnknownDataset {
                name: self.quoted(),
                meant: None,
            },
            "unknown-snapshot" => Error::UnknownSnapshot {
                name: self.quoted(),
            },
            "exists" => Error::Exists(detail()),
            // The server itself may be busy, too: then there is no such error of a store.
            "busy" if self.more.get("status").and_then(Value::as_u64) == Some(409) => {
                Error::Busy(detail())
            }
            "overflow" => Error::Overflow(detail()),
            "read-only" => Error::ReadOnly,
            "closed" => Error::Closed,
            "cancelled" => Error::Cancelled { deadline: false },
            "too-slow" => Error::Cancelled { deadline: true },
            "conflict" => match self.key("key", key_type) {
                Some(key) => {
                    let before = format!("key {key} is not in the expected state: ");
                    let what = self.detail.strip_prefix(&before)?.to_string();
                    let key = Some(Box::new(key));
                    Error::Conflict { key, what }
                }
                None => Error::Conflict {
                    key: None,
                    what: detail(),
                },
            },
            "not-unique" => {
                let of = (self.text("dataset")?.to_string(), self.path()?);
                let keys = (self.key("key", key_type)?, self.key("holder", key_type)?);
                let value = self.text("value")?.to_string();
                Error::NotUnique(Box::new(NotUnique::new(of, value, keys)))
            }
            "no-old-records" => Error::NoOldRecords {
                dataset: self.quoted(),
            },
            "position-expired" => Error::PositionExpired {
                oldest: self.text("oldest")?.parse().ok()?,
            },
            "other-history" => Error::OtherHistory {
                position: self.text("position")?.parse().ok()?,
                current: self.text("current")?.parse().ok()?,
            },
            "poisoned" => {
                let before = "the store refuses writes until it is reopened, because: ";
                let cause = self.detail.strip_prefix(before)?.to_string();
                Error::Poisoned { cause }
            }
            "disk-full" => {
                let path = self.detail.strip_suffix(": there is no room on the disk")?;
                Error::DiskFull { path: path.into() }
            }
            "damaged" => Error::Damaged {
                path: None,
                offset: None,
                what: detail(),
            },
            "internal" => Error::Internal { what: detail() },
            _ => return None,
        })
    }

    fn path(&self) -> Option<Path> {
        Path::parse(self.text("path")?).ok()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_becomes_the_error_of_its_kind_with_its_text() {
        for (document, kind) in [
            (
                r#"{"type":"bad-input","detail":"no"}"#,
                esker::ErrorKind::BadInput,
            ),
            (
                r#"{"type":"conflict","key":"5","detail":"key 5 is not in the expected state: it has no record"}"#,
                esker::ErrorKind::Conflict,
            ),
            (
                r#"{"type":"not-unique","dataset":"d","path":"n","value":"7","key":"1","holder":"2","detail":"dataset `d`: `n` must be unique, and the records of keys 1 and 2 would both have \"7\""}"#,
                esker::ErrorKind::NotUnique,
            ),
            (
                r#"{"type":"unknown-dataset","detail":"there is no dataset `x`"}"#,
                esker::ErrorKind::UnknownDataset,
            ),
            (
                r#"{"type":"too-slow","detail":"stopped: the deadline has passed"}"#,
                esker::ErrorKind::Cancelled,
            ),
            (
                r#"{"type":"io","detail":"/x: cannot read: gone"}"#,
                esker::ErrorKind::Unavailable,
            ),
            (
                r#"{"type":"new-kind","detail":"why"}"#,
                esker::ErrorKind::Unavailable,
            ),
        ] {
            let problem: Problem = serde_json::from_str(document).unwrap();
            let text = problem.detail.clone();
            let error = problem.error(Some(KeyType::Int));
            assert_eq!((error.to_string(), error.kind()), (text, kind));
        }
    }
}

//! The errors of this crate: one enum whose variants name the object that they concern, its classes
//! for comparing, and the conversions from the engine's and the model's errors.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use esker_lsm::Position;
use esker_lsm::coding::{Misplaced, Own};
use esker_model::Key;
use esker_model::condition::ParseError;
use esker_model::schema::{KeyError, Path, RecordError};

/// The result of a call.
pub type Result<T> = std::result::Result<T, Error>;

/// An error; each variant names the object that it concerns.
///
/// ```
/// use esker::{Database, Error, Options};
///
/// # let dir = tempfile::tempdir().unwrap();
/// match Database::open(dir.path(), Options::default()) {
///     Err(Error::NoStore { folder }) => println!("nothing in {} yet", folder.display()),
///     Err(Error::Locked { .. }) => println!("another process has it"),
///     Err(error) => println!("{error}"),
///     Ok(_) => unreachable!(),
/// }
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Error {
    /// The folder holds no store.
    NoStore {
        /// The folder.
        folder: PathBuf,
    },
    /// The store or the snapshot has no dataset of that name, or the dataset was dropped.
    UnknownDataset {
        /// The name.
        name: String,
        /// A dataset with a similar name, if there is one.
        meant: Option<String>,
    },
    /// The store keeps no snapshot of that name.
    UnknownSnapshot {
        /// The name.
        name: String,
    },
    /// Something with that name or key exists already; the text says what.
    Exists(String),
    /// The input does not fit: a key, a condition's values, a name, a limit. The text says what and
    /// why.
    BadInput(String),
    /// A sum is too large to be represented exactly. The text says of which field.
    Overflow(String),
    /// A record is not valid JSON, or does not fit the dataset.
    Record(RecordError),
    /// The text of a condition has a syntax error.
    Condition(ParseError),
    /// A newer version wrote the store, or it has trees of an extension that this program did not
    /// register.
    Unsupported(String),
    /// Stored data is damaged.
    Damaged {
        /// The damaged file, if known.
        path: Option<PathBuf>,
        /// The offset in the file at which the damaged unit (block, record) begins.
        offset: Option<u64>,
        /// The damage.
        what: String,
    },
    /// Another process, or another handle in this process, has the store open for writing.
    Locked {
        /// The store's folder.
        folder: PathBuf,
    },
    /// The store is closed, or being closed.
    Closed,
    /// The store was opened for reading ([`crate::Database::open_reader`]); it refuses writes.
    ReadOnly,
    /// A change of the dataset is running or unfinished. Nothing is wrong: try again later.
    Busy(String),
    /// Another writer changed the data first. The same call may succeed if it is made again.
    Conflict {
        /// The key whose record is not as the batch expected, if the conflict concerns one key.
        key: Option<Box<Key>>,
        /// The actual state.
        what: String,
    },
    /// A record would have a value that another record has, in an index with unique values
    /// ([`Index::unique`](crate::Index::unique)).
    NotUnique(Box<NotUnique>),
    /// The disk is full. Reads continue; writes continue once there is space again.
    DiskFull {
        /// The file or folder that could not be written to.
        path: PathBuf,
    },
    /// An earlier failure left the log in an unknown state. The store refuses writes until it is
    /// reopened; reads continue.
    Poisoned {
        /// The first failure.
        cause: String,
    },
    /// A defect of Esker: its own bookkeeping does not fit together.
    Internal {
        /// The place in the source code.
        what: String,
    },
    /// The caller stopped the operation, or its deadline has passed. Nothing is wrong.
    Cancelled {
        /// True if the deadline has passed.
        deadline: bool,
    },
    /// The change feed of the dataset has no old records: the dataset was not created with
    /// [`DatasetDef::keep_old_records`](crate::DatasetDef::keep_old_records).
    NoOldRecords {
        /// The dataset.
        dataset: String,
    },
    /// The log no longer reaches back to the position.
    PositionExpired {
        /// The earliest position that is available.
        oldest: Position,
    },
    /// The position belongs to another store, to a copy that has diverged, or lies after writes
    /// that a power cut destroyed.
    OtherHistory {
        /// The position.
        position: Position,
        /// The current position of this store.
        current: Position,
    },
    /// A cluster did not answer in time, or too few of its nodes are alive. Writes that failed so
    /// may still take effect.
    Unavailable(String),
    /// A call of the operating system failed.
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The failed operation: "open", "read", "append", "sync", ...
        op: &'static str,
        /// The error of the operating system.
        source: Arc<io::Error>,
    },
}

/// Two records with the same value, in an index with unique values.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NotUnique {
    /// The dataset.
    pub dataset: String,
    /// The path of the index.
    pub path: Path,
    /// The value, as text.
    pub value: String,
    /// The key of the record that was refused.
    pub key: Key,
    /// The key of the record that has the value; of another record of the batch, if both are in it.
    pub holder: Key,
}

impl NotUnique {
    /// For stores of other crates: the values that `dataset` has at `path` must be unique, and the
    /// records of `key` and `holder` would both have `value`.
    pub fn new(
        (dataset, path): (String, Path),
        value: String,
        (key, holder): (Key, Key),
    ) -> NotUnique {
        NotUnique {
            dataset,
            path,
            value,
            key,
            holder,
        }
    }
}

impl fmt::Display for NotUnique {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NotUnique {
            dataset,
            path,
            value,
            key,
            holder,
        } = self;
        write!(
            f,
            "dataset `{dataset}`: `{path}` must be unique, and the records of keys {key} and {holder} would both have {value:?}"
        )
    }
}

/// The class of an [`Error`], for comparing and counting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// [`Error::NoStore`].
    NoStore,
    /// [`Error::UnknownDataset`].
    UnknownDataset,
    /// [`Error::UnknownSnapshot`].
    UnknownSnapshot,
    /// [`Error::Exists`].
    Exists,
    /// [`Error::BadInput`], [`Error::Record`], [`Error::Condition`]: the input does not fit.
    BadInput,
    /// [`Error::Overflow`].
    Overflow,
    /// [`Error::Unsupported`].
    Unsupported,
    /// [`Error::Damaged`].
    Damaged,
    /// [`Error::Locked`].
    Locked,
    /// [`Error::Closed`].
    Closed,
    /// [`Error::ReadOnly`].
    ReadOnly,
    /// [`Error::Busy`].
    Busy,
    /// [`Error::Conflict`].
    Conflict,
    /// [`Error::NotUnique`].
    NotUnique,
    /// [`Error::DiskFull`].
    DiskFull,
    /// [`Error::Poisoned`].
    Poisoned,
    /// [`Error::Internal`].
    Internal,
    /// [`Error::Cancelled`].
    Cancelled,
    /// [`Error::NoOldRecords`].
    NoOldRecords,
    /// [`Error::PositionExpired`].
    PositionExpired,
    /// [`Error::OtherHistory`].
    OtherHistory,
    /// [`Error::Unavailable`].
    Unavailable,
    /// [`Error::Io`].
    Io,
}

/// A longer name, in bytes, than that of any dataset suggests none.
const LONGEST_MEANT: usize = 128;

impl Error {
    /// [`Error::Exists`], with this text.
    pub(crate) fn exists(what: impl Into<String>) -> Error {
        Error::Exists(what.into())
    }

    /// [`Error::UnknownDataset`], without a suggestion.
    pub(crate) fn unknown_dataset(name: impl Into<String>) -> Error {
        Error::UnknownDataset {
            name: name.into(),
            meant: None,
        }
    }

    /// As [`Error::unknown_dataset`], with a suggestion from the names of known datasets.
    pub(crate) fn unknown_dataset_among<'a>(
        name: &str,
        known: impl Iterator<Item = &'a String>,
    ) -> Error {
        if name.len() > LONGEST_MEANT {
            return Error::unknown_dataset(name);
        }
        let limit = 1 + name.chars().count() / 4;
        let near = known
            .map(|known| (distance(name, known), known))
            .filter(|(distance, _)| *distance <= limit)
            .min();
        Error::UnknownDataset {
            name: name.to_string(),
            meant: near.map(|(_, known)| known.clone()),
        }
    }

    /// [`Error::Conflict`]: the record of `key` is not as expected. `what` is its actual state.
    pub(crate) fn conflict_of(key: Key, what: String) -> Error {
        Error::Conflict {
            key: Some(Box::new(key)),
            what,
        }
    }

    /// [`Error::Conflict`] about no key in particular: other writers changed the data first.
    pub(crate) fn overtaken(what: impl Into<String>) -> Error {
        Error::Conflict {
            key: None,
            what: what.into(),
        }
    }

    /// [`Error::Busy`], with this text.
    pub(crate) fn busy(text: impl Into<String>) -> Error {
        Error::Busy(text.into())
    }

    /// [`Error::BadInput`], with this text.
    pub(crate) fn bad_input(text: impl Into<String>) -> Error {
        Error::BadInput(text.into())
    }

    /// [`Error::Damaged`], where the damage is not attributed to one file.
    pub(crate) fn damaged(what: impl Into<String>) -> Error {
        Error::Damaged {
            path: None,
            offset: None,
            what: what.into(),
        }
    }

    /// The class of the error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::NoStore { .. } => ErrorKind::NoStore,
            Error::UnknownDataset { .. } => ErrorKind::UnknownDataset,
            Error::UnknownSnapshot { .. } => ErrorKind::UnknownSnapshot,
            Error::Exists(_) => ErrorKind::Exists,
            Error::BadInput(_) | Error::Record(_) | Error::Condition(_) => ErrorKind::BadInput,
            Error::Overflow(_) => ErrorKind::Overflow,
            Error::Unsupported(_) => ErrorKind::Unsupported,
            Error::Damaged { .. } => ErrorKind::Damaged,
            Error::Locked { .. } => ErrorKind::Locked,
            Error::Closed => ErrorKind::Closed,
            Error::ReadOnly => ErrorKind::ReadOnly,
            Error::Busy(_) => ErrorKind::Busy,
            Error::Conflict { .. } => ErrorKind::Conflict,
            Error::NotUnique(_) => ErrorKind::NotUnique,
            Error::DiskFull { .. } => ErrorKind::DiskFull,
            Error::Poisoned { .. } => ErrorKind::Poisoned,
            Error::Internal { .. } => ErrorKind::Internal,
            Error::Cancelled { .. } => ErrorKind::Cancelled,
            Error::NoOldRecords { .. } => ErrorKind::NoOldRecords,
            Error::PositionExpired { .. } => ErrorKind::PositionExpired,
            Error::OtherHistory { .. } => ErrorKind::OtherHistory,
            Error::Unavailable(_) => ErrorKind::Unavailable,
            Error::Io { .. } => ErrorKind::Io,
        }
    }

    /// The key whose record was not as expected, if this is an [`Error::Conflict`] about one key.
    pub fn conflict(&self) -> Option<&Key> {
        match self {
            Error::Conflict { key, .. } => key.as_deref(),
            _ => None,
        }
    }
}

/// The number of characters to change, add or remove to get from one name to the other
/// (Levenshtein's distance), in time and space of the product and the length of the names.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, c) in a.chars().enumerate() {
        let mut left = i + 1;
        let mut next = vec![left];
        for ((above, diagonal), other) in row.iter().skip(1).zip(&row).zip(&b) {
            let changed = diagonal + usize::from(c != *other);
            left = changed.min(above + 1).min(left + 1);
            next.push(left);
        }
        row = next;
    }
    *row.own(b.len())
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NoStore { folder } => write!(f, "{}: no store here", folder.display()),
            Error::UnknownDataset { name, meant } => {
                write!(f, "there is no dataset `{name}`")?;
                match meant {
                    Some(meant) => write!(f, ": did you mean `{meant}`?"),
                    None => Ok(()),
                }
            }
            Error::UnknownSnapshot { name } => write!(f, "there is no snapshot `{name}`"),
            Error::Exists(text)
            | Error::BadInput(text)
            | Error::Overflow(text)
            | Error::Unsupported(text)
            | Error::Unavailable(text)
            | Error::Busy(text) => f.write_str(text),
            Error::Record(error) => error.fmt(f),
            Error::Condition(error) => error.fmt(f),
            Error::Damaged { path, offset, what } => {
                if let Some(path) = path {
                    write!(f, "{}: ", path.display())?;
                }
                match offset {
                    Some(offset) => write!(f, "damaged at offset {offset}: {what}"),
                    None => f.write_str(what),
                }
            }
            Error::Locked { folder } => write!(
                f,
                "{}: the store is open for writing already, by another process or another handle",
                folder.display()
            ),
            Error::Closed => f.write_str("the store is closed"),
            Error::ReadOnly => f.write_str("the store was opened for reading only"),
            Error::Conflict {
                key: Some(key),
                what,
            } => write!(f, "key {key} is not in the expected state: {what}"),
            Error::Conflict { key: None, what } => f.write_str(what),
            Error::NotUnique(not_unique) => not_unique.fmt(f),
            Error::DiskFull { path } => {
                write!(f, "{}: there is no room on the disk", path.display())
            }
            Error::Internal { what } => f.write_str(what),
            Error::Poisoned { cause } => write!(
                f,
                "the store refuses writes until it is reopened, because: {cause}"
            ),
            Error::Cancelled { deadline: true } => f.write_str("stopped: the deadline has passed"),
            Error::Cancelled { deadline: false } => f.write_str("cancelled"),
            Error::NoOldRecords { dataset } => write!(
                f,
                "the changes of dataset `{dataset}` have no old records: the dataset was created without them, and this cannot be changed later"
            ),
            Error::PositionExpired { oldest } => write!(
                f,
                "the log no longer reaches back to this position; the oldest position is {oldest}"
            ),
            Error::OtherHistory { position, current } => {
                f.write_str(&position.unknown_at(*current))
            }
            Error::Io { path, op, source } => {
                write!(f, "{}: cannot {op}: {source}", path.display())
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io { source, .. } => Some(&**source),
            _ => None,
        }
    }
}

impl From<esker_lsm::Error> for Error {
    fn from(error: esker_lsm::Error) -> Error {
        let text = error.to_string();
        match error {
            esker_lsm::Error::NoStore { path } => Error::NoStore { folder: path },
            esker_lsm::Error::Locked { path } => Error::Locked { folder: path },
            esker_lsm::Error::Corruption { path, offset, what } => Error::Damaged {
                path: Some(path),
                offset: Some(offset),
                what,
            },
            esker_lsm::Error::NewerFormat { .. } | esker_lsm::Error::Unsupported(_) => {
                Error::Unsupported(text)
            }
            // The manifest lists the file, so its absence is damage.
            esker_lsm::Error::Io { path, op, source }
                if op != "lock" && source.kind() == io::ErrorKind::NotFound =>
            {
                Error::Damaged {
                    path: Some(path),
                    offset: None,
                    what: format!("cannot {op}: {source}"),
                }
            }
            esker_lsm::Error::Io { path, op, source } => Error::Io { path, op, source },
            esker_lsm::Error::DiskFull { path } => Error::DiskFull { path },
            esker_lsm::Error::SnapshotExists { .. } => Error::Exists(text),
            esker_lsm::Error::ConsumerInUse { .. } => Error::Busy(text),
            esker_lsm::Error::UnknownSnapshot { name } => Error::UnknownSnapshot { name },
            esker_lsm::Error::Closed => Error::Closed,
            esker_lsm::Error::ReadOnly => Error::ReadOnly,
            esker_lsm::Error::Cancelled { deadline } => Error::Cancelled { deadline },
            esker_lsm::Error::Conflict(_) | esker_lsm::Error::Stale => Error::overtaken(text),
            esker_lsm::Error::Internal(_) => Error::Internal { what: text },
            esker_lsm::Error::Poisoned { cause } => Error::Poisoned { cause },
            esker_lsm::Error::PositionExpired { oldest } => Error::PositionExpired { oldest },
            esker_lsm::Error::OtherHistory { position, current } => {
                Error::OtherHistory { position, current }
            }
            // Those about arguments: `Limit`, `Invalid`, and the use of a log that is not there.
            _ => Error::BadInput(text),
        }
    }
}

impl From<Misplaced> for Error {
    fn from(defect: Misplaced) -> Error {
        let what = defect.to_string();
        Error::Internal { what }
    }
}

impl From<ParseError> for Error {
    fn from(error: ParseError) -> Error {
        Error::Condition(error)
    }
}

impl From<esker_model::Error> for Error {
    fn from(error: esker_model::Error) -> Error {
        match error {
            esker_model::Error::Damaged(what) => Error::damaged(what),
            esker_model::Error::Overflow(what) => Error::Overflow(what),
            error => Error::BadInput(error.to_string()),
        }
    }
}

impl From<KeyError> for Error {
    fn from(error: KeyError) -> Error {
        Error::BadInput(error.into())
    }
}

impl From<RecordError> for Error {
    fn from(error: RecordError) -> Error {
        Error::Record(error)
    }
}

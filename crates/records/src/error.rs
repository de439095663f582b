//! What can go wrong with records.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use lsm::Position;
use model::Key;
use model::condition::ParseError;
use model::schema::{KeyError, RecordError};

/// The result of a call.
pub type Result<T> = std::result::Result<T, Error>;

/// What can go wrong, with the thing it is about.
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
    /// There is no store in the folder.
    NoStore {
        /// The folder.
        folder: PathBuf,
    },
    /// The store, or the snapshot, has no dataset of that name, or it was dropped.
    UnknownDataset {
        /// The name.
        name: String,
        /// The dataset that is called nearly so, if there is one.
        meant: Option<String>,
    },
    /// No snapshot of that name is kept.
    UnknownSnapshot {
        /// The name.
        name: String,
    },
    /// There is something of that name or key already: the text says what.
    Exists(String),
    /// The input does not fit: a key, a condition's values, a name, a limit. The text says what and why.
    BadInput(String),
    /// A record is not valid JSON, or does not fit the dataset.
    Record(RecordError),
    /// The text of a condition is not one.
    Condition(ParseError),
    /// The store was written by a newer version, or has trees of an extension that this program does not bring along.
    Unsupported(String),
    /// What is stored is damaged.
    Damaged {
        /// The file, where the damage is known to be in one.
        path: Option<PathBuf>,
        /// Where the damaged unit (block, record) begins in it.
        offset: Option<u64>,
        /// The damage.
        what: String,
    },
    /// Another process, or another handle of this one, has the store.
    Locked {
        /// The store's folder.
        folder: PathBuf,
    },
    /// The store is closed, or about to be.
    Closed,
    /// The store was opened to read it beside the one who writes it.
    ReadOnly,
    /// Somebody is changing the dataset, or has not finished that: nothing is wrong, later it will be possible.
    Busy(String),
    /// Somebody else's write came in between. The same call may succeed when it is made again, with what is there now.
    Conflict {
        /// The key that is not as a batch expects it, where it is about one.
        key: Option<Box<Key>>,
        /// What is there instead.
        what: String,
    },
    /// There is no room on the disk. Reads continue, and writes continue when there is room again.
    DiskFull {
        /// The file or folder that could not be written to.
        path: PathBuf,
    },
    /// An earlier failure left the log in an unknown state: writes are refused until the store is reopened. Reads continue.
    Poisoned {
        /// The first failure.
        cause: String,
    },
    /// The caller had it stopped, or its deadline has passed. Nothing is wrong.
    Cancelled {
        /// True when the deadline has passed.
        deadline: bool,
    },
    /// The change feed of the dataset has no old records: it was not made with
    /// [`DatasetDef::keep_old_records`](crate::DatasetDef::keep_old_records).
    NoOldRecords {
        /// The dataset.
        dataset: String,
    },
    /// The log does not go back to the position any more.
    PositionExpired {
        /// The earliest position that is available.
        oldest: Position,
    },
    /// A position of another store, of a copy that went its own way, or behind writes that a power cut took.
    OtherHistory {
        /// The position.
        position: Position,
        /// Where this store is.
        current: Position,
    },
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

/// The class of an [`Error`] alone, to compare and to count by.
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
    /// [`Error::BadInput`], [`Error::Record`], [`Error::Condition`]: what was given does not fit.
    BadInput,
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
    /// [`Error::DiskFull`].
    DiskFull,
    /// [`Error::Poisoned`].
    Poisoned,
    /// [`Error::Cancelled`].
    Cancelled,
    /// [`Error::NoOldRecords`].
    NoOldRecords,
    /// [`Error::PositionExpired`].
    PositionExpired,
    /// [`Error::OtherHistory`].
    OtherHistory,
    /// [`Error::Io`].
    Io,
}

impl Error {
    pub(crate) fn exists(what: impl Into<String>) -> Error {
        Error::Exists(what.into())
    }

    pub(crate) fn unknown_dataset(name: impl Into<String>) -> Error {
        Error::UnknownDataset {
            name: name.into(),
            meant: None,
        }
    }

    /// The same, among datasets of these names.
    pub(crate) fn unknown_among<'a>(name: &str, known: impl Iterator<Item = &'a String>) -> Error {
        let most = 1 + name.chars().count() / 4;
        let near = known.map(|known| (distance(name, known), known));
        let near = near.filter(|(distance, _)| *distance <= most).min();
        Error::UnknownDataset {
            name: name.to_string(),
            meant: near.map(|(_, known)| known.clone()),
        }
    }

    /// A key is not as it was expected to be.
    pub(crate) fn conflict_of(key: Key, what: String) -> Error {
        Error::Conflict {
            key: Some(Box::new(key)),
            what,
        }
    }

    /// Others were faster.
    pub(crate) fn overtaken(what: impl Into<String>) -> Error {
        Error::Conflict {
            key: None,
            what: what.into(),
        }
    }

    pub(crate) fn busy(text: impl Into<String>) -> Error {
        Error::Busy(text.into())
    }

    pub(crate) fn bad_input(text: impl Into<String>) -> Error {
        Error::BadInput(text.into())
    }

    /// Damage that is not known to be in one file.
    pub(crate) fn damaged(what: impl Into<String>) -> Error {
        Error::Damaged {
            path: None,
            offset: None,
            what: what.into(),
        }
    }

    /// Its class.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::NoStore { .. } => ErrorKind::NoStore,
            Error::UnknownDataset { .. } => ErrorKind::UnknownDataset,
            Error::UnknownSnapshot { .. } => ErrorKind::UnknownSnapshot,
            Error::Exists(_) => ErrorKind::Exists,
            Error::BadInput(_) | Error::Record(_) | Error::Condition(_) => ErrorKind::BadInput,
            Error::Unsupported(_) => ErrorKind::Unsupported,
            Error::Damaged { .. } => ErrorKind::Damaged,
            Error::Locked { .. } => ErrorKind::Locked,
            Error::Closed => ErrorKind::Closed,
            Error::ReadOnly => ErrorKind::ReadOnly,
            Error::Busy(_) => ErrorKind::Busy,
            Error::Conflict { .. } => ErrorKind::Conflict,
            Error::DiskFull { .. } => ErrorKind::DiskFull,
            Error::Poisoned { .. } => ErrorKind::Poisoned,
            Error::Cancelled { .. } => ErrorKind::Cancelled,
            Error::NoOldRecords { .. } => ErrorKind::NoOldRecords,
            Error::PositionExpired { .. } => ErrorKind::PositionExpired,
            Error::OtherHistory { .. } => ErrorKind::OtherHistory,
            Error::Io { .. } => ErrorKind::Io,
        }
    }

    /// Of an [`Error::Conflict`] the key that is not as it was expected to be, where it is about one.
    pub fn conflict(&self) -> Option<&Key> {
        match self {
            Error::Conflict { key, .. } => key.as_deref(),
            _ => None,
        }
    }
}

/// How many characters are to be changed, added or taken away to make one name of the other.
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
    row.last().copied().unwrap_or_default()
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
            Error::UnknownSnapshot { name } => write!(f, "no snapshot called `{name}` is kept"),
            Error::Exists(text)
            | Error::BadInput(text)
            | Error::Unsupported(text)
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
            } => write!(f, "key {key} is not as it was expected to be: {what}"),
            Error::Conflict { key: None, what } => f.write_str(what),
            Error::DiskFull { path } => {
                write!(f, "{}: there is no room on the disk", path.display())
            }
            Error::Poisoned { cause } => write!(
                f,
                "the store refuses writes until it is reopened, because: {cause}"
            ),
            Error::Cancelled { deadline: true } => f.write_str("stopped: the deadline has passed"),
            Error::Cancelled { deadline: false } => f.write_str("cancelled"),
            Error::NoOldRecords { dataset } => write!(
                f,
                "the changes of dataset `{dataset}` have no old records: whether they do is said when a dataset is created, and this one was created without them"
            ),
            Error::PositionExpired { oldest } => write!(
                f,
                "the log is not kept so far back; the oldest position is {oldest}"
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

impl From<lsm::Error> for Error {
    fn from(error: lsm::Error) -> Error {
        let text = error.to_string();
        match error {
            lsm::Error::NoStore { path } => Error::NoStore { folder: path },
            lsm::Error::Locked { path } => Error::Locked { folder: path },
            lsm::Error::Corruption { path, offset, what } => Error::Damaged {
                path: Some(path),
                offset: Some(offset),
                what,
            },
            lsm::Error::NewerFormat { .. } | lsm::Error::Unsupported(_) => Error::Unsupported(text),
            // A file that the store says is there.
            lsm::Error::Io { path, op, source }
                if op != "lock" && source.kind() == io::ErrorKind::NotFound =>
            {
                Error::Damaged {
                    path: Some(path),
                    offset: None,
                    what: format!("cannot {op}: {source}"),
                }
            }
            lsm::Error::Io { path, op, source } => Error::Io { path, op, source },
            lsm::Error::DiskFull { path } => Error::DiskFull { path },
            lsm::Error::SnapshotExists { .. } => Error::Exists(text),
            lsm::Error::UnknownSnapshot { name } => Error::UnknownSnapshot { name },
            lsm::Error::Closed => Error::Closed,
            lsm::Error::ReadOnly => Error::ReadOnly,
            lsm::Error::Cancelled { deadline } => Error::Cancelled { deadline },
            lsm::Error::Conflict(_) | lsm::Error::Stale => Error::overtaken(text),
            lsm::Error::Poisoned { cause } => Error::Poisoned { cause },
            lsm::Error::PositionExpired { oldest } => Error::PositionExpired { oldest },
            lsm::Error::OtherHistory { position, current } => {
                Error::OtherHistory { position, current }
            }
            _ => Error::BadInput(text),
        }
    }
}

impl From<ParseError> for Error {
    fn from(error: ParseError) -> Error {
        Error::Condition(error)
    }
}

impl From<model::Error> for Error {
    fn from(error: model::Error) -> Error {
        match error {
            model::Error::Damaged(what) => Error::damaged(what),
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

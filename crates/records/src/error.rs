//! What can go wrong with records.

use std::fmt;

use model::Key;

/// The result of a call.
pub type Result<T> = std::result::Result<T, Error>;

/// A class of errors, for programs that act on them. What is behind it (path, offset, position) is in
/// [`Error::engine`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// There is no store in the folder.
    NoStore,
    /// The store has no dataset of that name.
    UnknownDataset,
    /// No snapshot of that name is kept.
    UnknownSnapshot,
    /// There is something of that name or key already.
    Exists,
    /// The input does not fit: a record, a key, a condition, a name, a limit.
    BadInput,
    /// A file is damaged, missing, or of a newer format.
    Damaged,
    /// Another process, or another handle of this one, has the store.
    Locked,
    /// The store is closed, or about to be.
    Closed,
    /// The store was opened to read it beside the one who writes it.
    ReadOnly,
    /// Somebody is changing the dataset, or has not finished that: nothing is wrong, later it will be possible.
    Busy,
    /// Somebody else's write came in between: a key is not as a batch expects it ([`Error::conflict`] tells which), or an update was overtaken too
    /// often. The same call may succeed when it is made again, with what is there now.
    Conflict,
    /// There is no room on the disk. Reads go on, and writes go on when there is room again.
    DiskFull,
    /// An earlier failure left the log in an unknown state: writes are refused until the store is reopened. Reads go on.
    Poisoned,
    /// The caller had it stopped, or its deadline has passed: the text says which. Nothing is wrong.
    Cancelled,
    /// The log does not go back to the position any more.
    PositionExpired,
    /// A position of another store, of a copy that went its own way, or behind writes that a power cut took.
    OtherHistory,
    /// A call of the operating system failed.
    Io,
}

/// An error, with the thing it is about in its text.
#[derive(Debug, Clone)]
pub struct Error {
    kind: ErrorKind,
    text: String,
    source: Option<lsm::Error>,
    key: Option<Box<Key>>,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, text: impl Into<String>) -> Error {
        Error {
            kind,
            text: text.into(),
            source: None,
            key: None,
        }
    }

    /// A key is not as it was expected to be.
    pub(crate) fn conflict_of(key: Key, there: String) -> Error {
        let text = format!("key {key} is not as it was expected to be: {there}");
        Error {
            key: Some(Box::new(key)),
            ..Error::new(ErrorKind::Conflict, text)
        }
    }

    /// Of an [`ErrorKind::Conflict`] the key that is not as it was expected to be, where it is about one.
    pub fn conflict(&self) -> Option<&Key> {
        self.key.as_deref()
    }

    /// Somebody is changing the dataset, or has not finished that: nothing is wrong, later it will be possible.
    pub(crate) fn busy(text: impl Into<String>) -> Error {
        Error::new(ErrorKind::Busy, text)
    }

    pub(crate) fn bad_input(text: impl Into<String>) -> Error {
        Error::new(ErrorKind::BadInput, text)
    }

    pub(crate) fn damaged(text: impl Into<String>) -> Error {
        Error::new(ErrorKind::Damaged, text)
    }

    /// Its class.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// True when it says that the caller had it stopped.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.kind == ErrorKind::Cancelled
    }

    /// True for an [`Error::busy`].
    pub(crate) fn is_busy(&self) -> bool {
        self.kind == ErrorKind::Busy
    }

    /// True when a batch was made for trees that are not what they were.
    pub(crate) fn is_stale(&self) -> bool {
        matches!(self.source, Some(lsm::Error::Stale))
    }

    /// The engine's error behind it, if it is one.
    pub fn engine(&self) -> Option<&lsm::Error> {
        self.source.as_ref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}

impl From<lsm::Error> for Error {
    fn from(source: lsm::Error) -> Error {
        let kind = match &source {
            lsm::Error::NoStore { .. } => ErrorKind::NoStore,
            lsm::Error::Corruption { .. } | lsm::Error::NewerFormat { .. } => ErrorKind::Damaged,
            lsm::Error::Io { source, op, .. }
                if *op != "lock" && source.kind() == std::io::ErrorKind::NotFound =>
            {
                ErrorKind::Damaged
            }
            lsm::Error::Limit { .. } | lsm::Error::Invalid(_) | lsm::Error::Unsupported(_) => {
                ErrorKind::BadInput
            }
            lsm::Error::SnapshotExists { .. } => ErrorKind::Exists,
            lsm::Error::UnknownSnapshot { .. } => ErrorKind::UnknownSnapshot,
            lsm::Error::Locked { .. } => ErrorKind::Locked,
            lsm::Error::Closed => ErrorKind::Closed,
            lsm::Error::ReadOnly => ErrorKind::ReadOnly,
            lsm::Error::Cancelled { .. } => ErrorKind::Cancelled,
            lsm::Error::Conflict(_) | lsm::Error::Stale => ErrorKind::Conflict,
            lsm::Error::DiskFull { .. } => ErrorKind::DiskFull,
            lsm::Error::Poisoned { .. } => ErrorKind::Poisoned,
            lsm::Error::PositionExpired { .. } => ErrorKind::PositionExpired,
            lsm::Error::OtherHistory { .. } => ErrorKind::OtherHistory,
            _ => ErrorKind::Io,
        };
        Error {
            kind,
            text: source.to_string(),
            source: Some(source),
            key: None,
        }
    }
}

impl From<model::condition::ParseError> for Error {
    fn from(error: model::condition::ParseError) -> Error {
        Error::bad_input(error.to_string())
    }
}

impl From<model::Error> for Error {
    fn from(error: model::Error) -> Error {
        let kind = match error {
            model::Error::Damaged(_) => ErrorKind::Damaged,
            _ => ErrorKind::BadInput,
        };
        Error::new(kind, error.to_string())
    }
}

impl From<model::schema::RecordError> for Error {
    fn from(error: model::schema::RecordError) -> Error {
        model::Error::from(error).into()
    }
}

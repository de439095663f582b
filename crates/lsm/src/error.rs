//! The engine's errors. Each names its subject (file and offset, limit and value).

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::coding::Misplaced;
use crate::entry::Position;

/// The result of an engine call.
pub type Result<T> = std::result::Result<T, Error>;

/// What can go wrong in the engine.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Error {
    /// A file-system call failed.
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The failed operation: "open", "read", "append", "sync", ...
        op: &'static str,
        /// The error of the operating system.
        source: std::sync::Arc<io::Error>,
    },
    /// The disk, or the user's share of it, is full. Reads continue, and writes succeed again once
    /// there is room.
    DiskFull {
        /// The file or folder that could not be written to.
        path: PathBuf,
    },
    /// Bytes on disk differ from what was written.
    Corruption {
        /// The damaged file.
        path: PathBuf,
        /// Where the damaged unit (block, record) begins in the file.
        offset: u64,
        /// Description of the damage.
        what: String,
    },
    /// The file was written by a newer Esker.
    NewerFormat {
        /// The file.
        path: PathBuf,
        /// Its format version.
        found: u32,
        /// The newest version that this build reads.
        supported: u32,
    },
    /// Another process (or another handle of this one) has the store open.
    Locked {
        /// The store's folder.
        path: PathBuf,
    },
    /// The consumer of the log is in use: by another process, or another handle of this one.
    ConsumerInUse {
        /// Its name.
        name: String,
    },
    /// There is no store here.
    NoStore {
        /// The folder.
        path: PathBuf,
    },
    /// An argument exceeds a limit.
    Limit {
        /// The limited quantity, with its unit.
        what: &'static str,
        /// The maximum.
        limit: u64,
        /// The value given.
        value: u64,
    },
    /// An earlier failure left the log in an unknown state; the store must be reopened.
    Poisoned {
        /// The first failure.
        cause: String,
    },
    /// The trees have changed since the batch was bound to them ([`crate::Batch::made_for`]);
    /// nothing was written.
    Stale,
    /// The store is closed or closing: it accepts no writes.
    Closed,
    /// The store was opened read-only, beside its writer.
    ReadOnly,
    /// This reads the log, and the log of the store is the caller's.
    NoLog {
        /// What was to be done.
        what: &'static str,
    },
    /// The store was created with the other mode of its log.
    OtherLog {
        /// The store's folder.
        path: PathBuf,
        /// True when it was created with a log of its own.
        is_own: bool,
    },
    /// The read was stopped by its [`crate::Stop`].
    Cancelled {
        /// True when the deadline has passed, false when the token was cancelled.
        deadline: bool,
    },
    /// The log no longer reaches back to the position.
    PositionExpired {
        /// The earliest position that is available.
        oldest: Position,
    },
    /// The position belongs to another store, to a copy whose history has diverged, or to writes
    /// lost in a power cut.
    OtherHistory {
        /// The position.
        position: Position,
        /// The current position of this store.
        current: Position,
    },
    /// A snapshot of that name exists already.
    SnapshotExists {
        /// The name.
        name: String,
    },
    /// There is no snapshot of that name.
    UnknownSnapshot {
        /// The name.
        name: String,
    },
    /// The call conflicts with concurrent work of another thread; it may succeed when repeated.
    Conflict(String),
    /// The call does not fit the state of the store.
    Invalid(String),
    /// A tree belongs to a capability that this program does not provide ([`crate::TreeProvider`]).
    Unsupported(String),
    /// A defect of Esker: its own bookkeeping does not fit together.
    Internal(Misplaced),
}

impl Error {
    /// An I/O error at `path` while doing `op`.
    pub fn io(path: &Path, op: &'static str, source: io::Error) -> Error {
        let given_up = source.get_ref();
        if given_up.is_some_and(|e| e.is::<crate::fs::GivenUp>()) {
            return Error::Closed;
        }
        let path = path.to_path_buf();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Error::DiskFull { path },
            _ => Error::Io {
                path,
                op,
                source: std::sync::Arc::new(source),
            },
        }
    }

    /// Damage found in `path` at `offset`.
    pub fn corruption(path: &Path, offset: u64, what: impl Into<String>) -> Error {
        Error::Corruption {
            path: path.to_path_buf(),
            offset,
            what: what.into(),
        }
    }

    /// True when the cause is a full disk: reads continue, and writes succeed again once there is
    /// room.
    pub fn is_disk_full(&self) -> bool {
        matches!(self, Error::DiskFull { .. })
    }

    /// True when the error reports damage on disk (corruption, a missing or unreadable file, a
    /// newer format).
    pub fn is_damage(&self) -> bool {
        matches!(self, Error::Corruption { .. } | Error::NewerFormat { .. })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io { path, op, source } => {
                write!(f, "{}: cannot {op}: {source}", path.display())
            }
            Error::DiskFull { path } => {
                write!(f, "{}: there is no room on the disk", path.display())
            }
            Error::Corruption { path, offset, what } => {
                write!(f, "{}: damaged at offset {offset}: {what}", path.display())
            }
            Error::NewerFormat {
                path,
                found,
                supported,
            } => write!(
                f,
                "{}: written by a newer version (format {found}; this build reads up to {supported})",
                path.display()
            ),
            Error::ConsumerInUse { name } => {
                write!(
                    f,
                    "the consumer {name:?} is in use, by another process or another handle"
                )
            }
            Error::Locked { path } => {
                write!(
                    f,
                    "{}: the store is open for writing already, by another process or another handle",
                    path.display()
                )
            }
            Error::NoStore { path } => write!(f, "{}: no store here", path.display()),
            Error::Limit { what, limit, value } => {
                write!(f, "{what} is {value}, over the limit of {limit}")
            }
            Error::Poisoned { cause } => {
                write!(
                    f,
                    "the store refuses writes until it is reopened, because: {cause}"
                )
            }
            Error::Stale => f.write_str("the trees have changed since the batch was made"),
            Error::Closed => f.write_str("the store is closed"),
            Error::ReadOnly => f.write_str("the store was opened for reading only"),
            Error::NoLog { what } => {
                write!(
                    f,
                    "{what}: the store has no log of its own that it could read"
                )
            }
            Error::OtherLog { path, is_own } => {
                let whose = if *is_own {
                    "a log of its own"
                } else {
                    "the log of another"
                };
                write!(f, "{}: the store was created with {whose}", path.display())
            }
            Error::Cancelled { deadline: true } => f.write_str("stopped: the deadline has passed"),
            Error::Cancelled { deadline: false } => f.write_str("cancelled"),
            Error::PositionExpired { oldest } => {
                write!(
                    f,
                    "the log is not kept so far back; the oldest position is {oldest}"
                )
            }
            Error::OtherHistory { position, current } => {
                f.write_str(&position.unknown_at(*current))
            }
            Error::SnapshotExists { name } => {
                write!(f, "a snapshot called `{name}` is kept already")
            }
            Error::UnknownSnapshot { name } => write!(f, "no snapshot called `{name}` is kept"),
            Error::Conflict(what) | Error::Invalid(what) | Error::Unsupported(what) => {
                f.write_str(what)
            }
            Error::Internal(defect) => defect.fmt(f),
        }
    }
}

impl From<Misplaced> for Error {
    fn from(defect: Misplaced) -> Error {
        Error::Internal(defect)
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

//! The engine's errors: each names the thing (file and offset, limit and value).

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

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
        /// What was tried: "open", "read", "append", "sync", ...
        op: &'static str,
        /// The operating system's answer.
        source: std::sync::Arc<io::Error>,
    },
    /// There is no room on the disk, or the user's share of it is used up. Reads go on, and writes go on when there is
    /// room again.
    DiskFull {
        /// The file or folder that could not be written to.
        path: PathBuf,
    },
    /// Bytes on disk are not what was written.
    Corruption {
        /// The damaged file.
        path: PathBuf,
        /// Where in the file the damaged unit (block, record) begins.
        offset: u64,
        /// What is wrong with it.
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
    /// There is no store here.
    NoStore {
        /// The folder.
        path: PathBuf,
    },
    /// An argument exceeds a limit.
    Limit {
        /// What is limited, with its unit.
        what: &'static str,
        /// The most that is allowed.
        limit: u64,
        /// What was asked for.
        value: u64,
    },
    /// An earlier failure left the log in an unknown state; reopen the store to go on.
    Poisoned {
        /// The failure that came first.
        cause: String,
    },
    /// The group's trees are not those any more that the batch was made for
    /// ([`crate::Batch::made_for`]); nothing was written.
    Stale,
    /// The store is closed, or about to be: nothing is written any more.
    Closed,
    /// The store was opened to read it beside the one who writes it.
    ReadOnly,
    /// The read was stopped by the [`crate::Stop`] that it was given.
    Cancelled {
        /// True when the deadline has passed, false when somebody cancelled it.
        deadline: bool,
    },
    /// The log does not go back to the position any more: it is kept for no longer, or never was.
    PositionExpired {
        /// The earliest position that one can start from.
        oldest: Position,
    },
    /// A position of another store, of a copy that went its own way, or behind writes that a power cut took.
    OtherHistory {
        /// The position.
        position: Position,
        /// Where this store is.
        current: Position,
    },
    /// A snapshot of that name is kept already.
    SnapshotExists {
        /// The name.
        name: String,
    },
    /// No snapshot of that name is kept.
    UnknownSnapshot {
        /// The name.
        name: String,
    },
    /// Another thread's work came in between; the same call may succeed when it is made again.
    Conflict(String),
    /// The call does not fit the state of the store.
    Invalid(String),
    /// A tree belongs to something that this program does not bring along ([`crate::TreeProvider`]).
    Unsupported(String),
}

impl Error {
    /// An I/O error at `path` while doing `op`.
    pub fn io(path: &Path, op: &'static str, source: io::Error) -> Error {
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

    /// True when the cause is a full disk: reads go on, and writes go on when there is room again.
    pub fn is_disk_full(&self) -> bool {
        matches!(self, Error::DiskFull { .. })
    }

    /// True when the error tells of damage on disk (corruption, a missing or unreadable file, a newer format).
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
            Error::Locked { path } => {
                write!(
                    f,
                    "{}: the store is open in another process",
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
            Error::Cancelled { deadline: true } => f.write_str("stopped: the deadline has passed"),
            Error::Cancelled { deadline: false } => f.write_str("cancelled"),
            Error::PositionExpired { oldest } => {
                write!(
                    f,
                    "the log is not kept so far back; the oldest position is {oldest}"
                )
            }
            Error::OtherHistory { position, current } => write!(
                f,
                "{position} is a position of another history; this store is at {current}"
            ),
            Error::SnapshotExists { name } => {
                write!(f, "a snapshot called `{name}` is kept already")
            }
            Error::UnknownSnapshot { name } => write!(f, "no snapshot called `{name}` is kept"),
            Error::Conflict(what) | Error::Invalid(what) | Error::Unsupported(what) => {
                f.write_str(what)
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

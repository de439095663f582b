//! The errors of this crate. Each names its subject (file and offset, limit and value).

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::ids::{DiskId, GroupId, LayerId, Slot, VolumeId};

/// The result of a call of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What can go wrong on a node.
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
        source: Arc<io::Error>,
    },
    /// The disk, or the user's share of it, is full.
    DiskFull {
        /// The file or folder that could not be written to.
        path: PathBuf,
    },
    /// Bytes on disk differ from what was written.
    Corruption {
        /// The damaged file.
        path: PathBuf,
        /// Where the damaged unit (header, record, block) begins in the file.
        offset: u64,
        /// Description of the damage.
        what: String,
    },
    /// The engine that holds the map failed.
    Engine(esker_lsm::Error),
    /// The file was written by a newer Esker.
    NewerFormat {
        /// The file.
        path: PathBuf,
        /// Its format version.
        found: u32,
        /// The newest version that this build reads.
        supported: u32,
    },
    /// The file belongs to another disk: it was copied into this folder.
    OtherDisk {
        /// The file.
        path: PathBuf,
        /// The disk that the file names.
        found: DiskId,
        /// The disk that the folder was formatted as.
        expected: DiskId,
    },
    /// The folder is not formatted.
    NotFormatted {
        /// The folder.
        path: PathBuf,
    },
    /// The folder is formatted already.
    Formatted {
        /// The folder.
        path: PathBuf,
    },
    /// The segment was removed, after its live data had been moved: the caller looks the block up
    /// again.
    Gone {
        /// The segment's number.
        segment: u32,
    },
    /// The segment cannot be removed yet: it is being written, or nothing later is known to be
    /// durable.
    InUse {
        /// The segment's number.
        segment: u32,
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
    /// The command is not for the slot behind the last applied one.
    NotNext {
        /// The group.
        group: GroupId,
        /// The slot of the command.
        slot: Slot,
        /// The last applied slot.
        applied: Slot,
    },
    /// A write without the place of its data, or with a place that its data cannot have.
    BadPlace {
        /// The group.
        group: GroupId,
        /// The slot of the write.
        slot: Slot,
    },
    /// The group has no such volume.
    UnknownVolume {
        /// The group.
        group: GroupId,
        /// The volume.
        volume: VolumeId,
    },
    /// The group has no snapshot with that layer.
    UnknownLayer {
        /// The group.
        group: GroupId,
        /// The layer.
        layer: LayerId,
    },
    /// The state of the group is being replaced by an image, or that was interrupted and must begin
    /// again.
    Incomplete {
        /// The group.
        group: GroupId,
    },
    /// The image is of an earlier slot than the group's state.
    OldImage {
        /// The group.
        group: GroupId,
        /// The slot of the image.
        slot: Slot,
        /// The last applied slot.
        applied: Slot,
    },
    /// The group is not being replaced by an image.
    NotInstalling {
        /// The group.
        group: GroupId,
    },
    /// An earlier failure left what is on disk unknown: nothing more is appended until the folder
    /// is opened again.
    Poisoned {
        /// The first failure.
        cause: String,
    },
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
                source: Arc::new(source),
            },
        }
    }

    /// True where bytes are damaged, or the disk cannot read them back: others have them.
    pub(crate) fn is_damage(&self) -> bool {
        match self {
            Error::Corruption { .. } => true,
            Error::Io { source, .. } => is_unreadable(source),
            _ => false,
        }
    }

    /// True for a read that failed though nothing is known to be wrong with the bytes: for a lack
    /// of file descriptors or memory, or while an image replaces the state.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Error::Incomplete { .. } => true,
            Error::Io { source, .. } | Error::Engine(esker_lsm::Error::Io { source, .. }) => {
                !is_unreadable(source)
            }
            _ => false,
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

    /// True where tables of the map are damaged, or the disk cannot read them back.
    pub(crate) fn is_damaged_map(&self) -> bool {
        match self {
            Error::Engine(esker_lsm::Error::Io { source, .. }) => is_unreadable(source),
            Error::Engine(error) => error.is_damage(),
            _ => false,
        }
    }

    /// True when the cause is a full disk.
    pub fn is_disk_full(&self) -> bool {
        match self {
            Error::DiskFull { .. } => true,
            Error::Engine(error) => error.is_disk_full(),
            _ => false,
        }
    }
}

/// True for the error of a disk that cannot read what it was given.
fn is_unreadable(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error())
}

impl From<esker_lsm::Error> for Error {
    fn from(error: esker_lsm::Error) -> Error {
        Error::Engine(error)
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
            Error::Engine(error) => write!(f, "{error}"),
            Error::NewerFormat {
                path,
                found,
                supported,
            } => {
                let age = if found > supported {
                    "a newer"
                } else {
                    "an older"
                };
                let path = path.display();
                write!(
                    f,
                    "{path}: written by {age} version (format {found}; this build reads {supported})"
                )
            }
            Error::OtherDisk {
                path,
                found,
                expected,
            } => write!(
                f,
                "{}: belongs to disk {found}, but the folder is disk {expected}",
                path.display()
            ),
            Error::NotFormatted { path } => write!(f, "{}: is not formatted", path.display()),
            Error::Formatted { path } => write!(f, "{}: is formatted already", path.display()),
            Error::Gone { segment } => write!(f, "segment {segment} was removed"),
            Error::InUse { segment } => write!(f, "segment {segment} cannot be removed yet"),
            Error::Limit { what, limit, value } => {
                write!(f, "{what} is {value}, over the limit of {limit}")
            }
            Error::NotNext {
                group,
                slot,
                applied,
            } => write!(f, "group {group}: slot {slot} does not follow {applied}"),
            Error::BadPlace { group, slot } => {
                write!(f, "group {group}, slot {slot}: no possible place of data")
            }
            Error::UnknownVolume { group, volume } => {
                write!(f, "group {group} has no volume {volume}")
            }
            Error::UnknownLayer { group, layer } => {
                write!(f, "group {group} has no snapshot with layer {layer}")
            }
            Error::Incomplete { group } => {
                write!(
                    f,
                    "the state of group {group} is incomplete: an image is due"
                )
            }
            Error::OldImage {
                group,
                slot,
                applied,
            } => write!(
                f,
                "group {group}: an image as of slot {slot} is older than {applied}"
            ),
            Error::NotInstalling { group } => {
                write!(f, "no image of group {group} is being installed")
            }
            Error::Poisoned { cause } => {
                write!(
                    f,
                    "nothing is written until the node restarts, because: {cause}"
                )
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io { source, .. } => Some(&**source),
            Error::Engine(error) => Some(error),
            _ => None,
        }
    }
}

//! What can go wrong in a node.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::ids::{GroupId, LayerId, Slot, VolumeId};

/// The result of a call of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What can go wrong in a node.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Error {
    /// An error of the engine that keeps the map.
    Engine(esker_lsm::Error),
    /// Bytes on disk differ from what was written.
    Corruption {
        /// The damaged file, or the folder of the map.
        path: PathBuf,
        /// Where the damaged unit begins in the file; 0 where the engine found its bytes to be
        /// intact.
        offset: u64,
        /// What is damaged, and how.
        what: String,
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
}

impl Error {
    /// Damage found in `path` at `offset`.
    pub fn corruption(path: &Path, offset: u64, what: impl Into<String>) -> Error {
        Error::Corruption {
            path: path.to_path_buf(),
            offset,
            what: what.into(),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Engine(error) => error.fmt(f),
            Error::Corruption { path, offset, what } => {
                write!(f, "{} at {offset}: {what}", path.display())
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
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Engine(error) => Some(error),
            _ => None,
        }
    }
}

impl From<esker_lsm::Error> for Error {
    fn from(error: esker_lsm::Error) -> Error {
        Error::Engine(error)
    }
}

//! Replicated block volumes: a disk on three or five machines that survives the loss of a minority
//! (Hydra, chapter 6 of the thesis behind Esker). The data of a write are written once: the log of
//! the group and the volume refer to the same bytes.
//!
//! The design: `../DESIGN.md`.

// The layers of these modules: `../layers.txt`.

pub mod admin;
pub mod body;
pub mod budget;
pub mod bytes;
pub mod client;
pub mod command;
pub mod consensus;
pub mod error;
pub mod extents;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod ids;
pub mod map;
pub mod members;
pub mod nbd;
pub mod net;
pub mod node;
pub mod place;
pub mod system;
pub mod wire;

/// The file system of the operating system, for [`node::NodeOptions`].
pub fn disk() -> impl esker_fs::Fs {
    esker_fs::disk::Disk::new()
}

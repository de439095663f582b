//! Replicated block volumes: a disk on three or five machines that survives the loss of a minority (Hydra, chapter 6 of
//! the thesis behind Esker). The data of a write are written once: the log of the group and the volume refer to the same
//! bytes.
//!
//! The design: `../DESIGN.md`.

// The layers of these modules: `../layers.txt`.

pub mod command;
pub mod ids;
pub mod members;
pub mod nbd;

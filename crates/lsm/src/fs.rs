//! The file systems of [`esker_fs`], as the engine uses them: all disk access goes through the
//! trait [`Fs`].

pub use esker_fs::{
    Descriptor, Fs, Lock, Mapped, ReadFile, ReadRequest, RingFaults, Rings, WriteFile, disk,
    read_many,
};
pub(crate) use esker_fs::{Extent, Gate, GivenUp};

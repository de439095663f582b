//! File systems: the trait [`Fs`], behind which all disk access of Esker's engine lies, the
//! operating system's ([`disk`]), reads of many ranges at a time ([`read_many`]), and files as
//! memory ([`Mapped`]).
//!
//! Files are written once, front to back, and immutable afterwards; the only exceptions are the
//! log's tail (truncated after a failed append) and names, which are replaced atomically by
//! `rename`.
//!
//! [`Extent`] and [`Gate`] are what the engine uses: a range of a file as a file of its own, and
//! the file system of a folder that is held and can be given up.

mod batch;
pub mod disk;
mod extent;
mod faults;
mod gate;
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
mod map;
mod request;
#[cfg(target_os = "linux")]
mod rings;
#[cfg(not(target_os = "linux"))]
#[path = "no_rings.rs"]
mod rings;
mod traits;
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
mod uring;

pub use batch::read_many;
pub use extent::Extent;
pub use faults::RingFaults;
pub use gate::{Gate, GivenUp};
pub use request::ReadRequest;
pub use rings::Rings;
pub use traits::{Descriptor, Fs, Lock, Mapped, ReadFile, WriteFile};

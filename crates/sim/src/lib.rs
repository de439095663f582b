//! What Esker's tests share: file systems that a test controls ([`memory`], [`faulty`],
//! [`hooked`]), a [`clock`] that it sets, the [`seeds()`] that it runs, how
//! much it does ([`by_tier`], [`combinations`]), and lists of random actions
//! ([`world`]), which a [`runner`] runs and a failing one of which it makes small ([`shrink`]).
//!
//! This crate knows [`esker_fs`] and nothing else of Esker, so every crate's tests can use it. No
//! release build contains it: it is a dependency of tests, and of the entry points for fuzzing.
//!
//! ```
//! use std::path::Path;
//! use esker_fs::Fs;
//! use esker_sim::memory::{Memory, PowerCut};
//!
//! # fn main() -> std::io::Result<()> {
//! let fs = Memory::new();
//! fs.create(Path::new("/file"))?.append(b"not synced")?;
//! let after = fs.power_cut(17, PowerCut::Lost);
//! assert!(fs.exists(Path::new("/file")) && !after.exists(Path::new("/file")));
//! # Ok(())
//! # }
//! ```

pub mod clock;
pub mod faulty;
pub mod hooked;
pub mod map;
pub mod memory;
pub mod runner;
mod seeds;
pub mod shrink;
mod tier;
pub mod world;

pub use seeds::seeds;
pub use tier::{by_tier, combinations, is_nightly};

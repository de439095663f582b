//! The folder of a store: the lock of the process that writes there.

use std::io::ErrorKind;
use std::path::Path;

use crate::error::{Error, Result};
use crate::fs::{Fs, Lock};

/// The file that the process that writes a store locks.
pub(crate) const LOCK: &str = "LOCK";

/// Acquires the lock of the process that writes the store in `dir`.
pub(crate) fn lock_folder(fs: &dyn Fs, dir: &Path) -> Result<Box<dyn Lock>> {
    let path = dir.join(LOCK);
    fs.lock(&path).map_err(|e| match e.kind() {
        ErrorKind::WouldBlock => Error::Locked {
            path: dir.to_path_buf(),
        },
        _ => Error::io(&path, "lock", e),
    })
}

//! The folder of a store: its creation, and the lock of the process that writes there.

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

/// Creates the folder of a store, durably: also where it exists already, because the process that
/// created it may have ended before its name was durable.
pub(crate) fn create_folder(fs: &dyn Fs, dir: &Path) -> Result<()> {
    fs.create_dir(dir)
        .map_err(|e| Error::io(dir, "create the folder", e))?;
    let Some(parent) = dir.parent() else {
        return Ok(());
    };
    match fs.sync_dir(parent) {
        // Who may not open the parent has been given the folder by others.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(()),
        synced => synced.map_err(|e| Error::io(parent, "sync", e)),
    }
}

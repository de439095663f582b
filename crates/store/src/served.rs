//! Where a store is served: a server says it in a file in the store's folder, so that a command
//! that finds the store locked can say it, too.
//!
//! **Invariants.** The server holds a lock on the file while it serves. A file without a lock was
//! left behind by a server that was killed, and says nothing.

use std::fs::{File, TryLockError};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// The name of the file.
const NAME: &str = "SERVED";

/// The longest address that is read, in bytes.
const LONGEST: u64 = 300;

/// Says where a store is served, until it is dropped.
#[derive(Debug)]
pub struct ServedAt {
    path: PathBuf,
    _locked: File,
}

impl ServedAt {
    /// Says that the store in a folder is served at an address. The caller has the store open for
    /// writing.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn say(folder: &Path, address: &str) -> std::io::Result<ServedAt> {
        let path = folder.join(NAME);
        // Others see a whole file, or none.
        let new = folder.join(format!("{NAME}.new"));
        let mut file = File::create(&new)?;
        file.write_all(address.as_bytes())?;
        file.lock()?;
        std::fs::rename(&new, &path)?;
        Ok(ServedAt {
            path,
            _locked: file,
        })
    }
}

impl Drop for ServedAt {
    fn drop(&mut self) {
        // Without its lock it says nothing.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Where the store in a folder is served; `None` if it is not.
pub fn served_at(folder: &Path) -> Option<String> {
    let file = File::open(folder.join(NAME)).ok()?;
    match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => {}
        Ok(()) | Err(TryLockError::Error(_)) => return None,
    }
    let mut address = String::new();
    file.take(LONGEST).read_to_string(&mut address).ok()?;
    let is_address = address.starts_with("http") && !address.contains(char::is_whitespace);
    is_address.then_some(address)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_a_killed_server_left_says_nothing() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(served_at(dir.path()), None);
        let said = ServedAt::say(dir.path(), "http://127.0.0.1:7700").unwrap();
        assert_eq!(served_at(dir.path()).unwrap(), "http://127.0.0.1:7700");
        // As if the process had ended without the chance to remove the file.
        let ServedAt { path, _locked } = &said;
        std::fs::copy(path, dir.path().join("copy")).unwrap();
        drop(said);
        assert_eq!(served_at(dir.path()), None);
        std::fs::rename(dir.path().join("copy"), dir.path().join(NAME)).unwrap();
        assert_eq!(served_at(dir.path()), None);
        let again = ServedAt::say(dir.path(), "https://[::1]:1").unwrap();
        assert_eq!(served_at(dir.path()).unwrap(), "https://[::1]:1");
        drop(again);
    }
}

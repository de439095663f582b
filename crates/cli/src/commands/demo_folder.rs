//! The folder of a demo. A temporary one is removed when the demo ends, also by a signal.

use std::fs;
use std::io::{self, ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path as FilePath, PathBuf};
use std::process::{self, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::{SigId, flag, low_level};

use crate::failure::Failure;

/// The demo's folder; a temporary one is removed at the end.
pub(super) struct DemoFolder {
    pub(super) path: PathBuf,
    pub(super) temporary: bool,
}

impl DemoFolder {
    pub(super) fn new(dir: Option<&FilePath>) -> Result<Self, Failure> {
        if let Some(dir) = dir {
            if fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some()) {
                return Err(Failure::Usage(format!(
                    "{} is not empty; the demo needs a new directory",
                    dir.display()
                )));
            }
            return Ok(Self {
                path: dir.to_path_buf(),
                temporary: false,
            });
        }
        // Another process has another number; the same number may recur after a crash.
        for attempt in 0..1000 {
            let name = format!("esker-demo-{}-{attempt}", process::id());
            let path = std::env::temp_dir().join(name);
            match fs::create_dir(&path) {
                Ok(()) => {
                    return Ok(Self {
                        path,
                        temporary: true,
                    });
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => {
                    return Err(Failure::Store(format!(
                        "cannot create {}: {error}",
                        path.display()
                    )));
                }
            }
        }
        Err(Failure::Store(
            "no free name for a temporary folder; give --dir".to_string(),
        ))
    }

    /// SIGINT and SIGTERM remove a temporary folder and end the process, until the watch is
    /// dropped.
    pub(super) fn watch(&self) -> Result<Option<Watch>, Failure> {
        let watch = self.temporary.then(|| Watch::new(self.path.clone()));
        let watch = watch.transpose();
        watch.map_err(|error| Failure::Usage(format!("cannot watch for signals: {error}")))
    }

    /// What removes a temporary folder and ends the process at once with a code.
    pub(super) fn removal(&self) -> impl FnOnce(i32) + Send + use<> {
        let folder = self.temporary.then(|| self.path.clone());
        move |code| {
            if let Some(folder) = folder {
                remove_and_exit(&folder, code);
            }
        }
    }
}

impl Drop for DemoFolder {
    fn drop(&mut self) {
        if self.temporary {
            // The store is closed. What cannot be removed stays, where temporary files are.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Removes a folder and ends the process with a code.
///
/// Threads of the store may create files in it, and the folder itself, up to the end of the
/// process: a shell takes its place, which ends the threads, and removes the folder.
fn remove_and_exit(folder: &FilePath, code: i32) -> ! {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", "rm -rf -- \"$1\"; exit \"$2\"", "sh"]);
    shell.arg(folder).arg(code.to_string());
    let error = shell.exec();
    // There is no shell: the threads may write what stays.
    eprintln!(
        "cannot start a shell that removes {}: {error}",
        folder.display()
    );
    let _ = fs::remove_dir_all(folder);
    process::exit(code);
}

/// A thread that waits for a signal.
pub(super) struct Watch(Vec<SigId>);

impl Watch {
    fn new(folder: PathBuf) -> io::Result<Watch> {
        let noted = Arc::new(AtomicUsize::new(0));
        let (mut read, write) = UnixStream::pair()?;
        let mut watch = Watch(Vec::new());
        for signal in [SIGINT, SIGTERM] {
            let number = signal.unsigned_abs() as usize;
            // The order matters: the thread reads the number when it is woken.
            let note = flag::register_usize(signal, Arc::clone(&noted), number)?;
            watch.0.push(note);
            let wake = low_level::pipe::register(signal, write.try_clone()?)?;
            watch.0.push(wake);
        }
        thread::Builder::new()
            .name("signals".to_string())
            .spawn(move || {
                // Without a signal it ends with the watch, which has the other ends.
                if read.read_exact(&mut [0]).is_ok() {
                    let signal = i32::try_from(noted.load(Ordering::Relaxed));
                    remove_and_exit(&folder, 128 + signal.unwrap_or_default());
                }
            })?;
        Ok(watch)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        for id in self.0.drain(..) {
            low_level::unregister(id);
        }
    }
}

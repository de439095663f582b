//! The stores that commands work on. This is the only file that knows the embedded store's type:
//! commands use [`esker_store`], except those of publish/subscribe and the demonstrations, which
//! need a folder.

use std::path::Path;
#[cfg(feature = "server")]
use std::sync::OnceLock;

use ::pubsub::PubSub;
use esker::{Database, Durability, Options};
use esker_store::{Dataset, Mode, Records, Store};

use crate::failure::Failure;
use crate::nearest::meant;

/// The embedded store.
pub(crate) type FolderStore = Database;

/// The options of every command; only the memory budget (in bytes) is configurable.
pub(crate) fn options(memory: usize) -> Options {
    PubSub::register(Options::new().memory_budget(memory))
}

/// Opens an existing store for writing.
pub(crate) fn open(dir: &Path, memory: usize) -> Result<Box<dyn Store>, Failure> {
    open_as(dir, Mode::Write, options(memory))
}

/// Opens an existing store for writing, with this durability.
pub(crate) fn open_durable(
    dir: &Path,
    memory: usize,
    durability: Durability,
) -> Result<Box<dyn Store>, Failure> {
    let options = options(memory).durability(durability);
    open_as(dir, Mode::Write, options)
}

/// Opens an existing store for reading, which also works beside a process that writes to it.
pub(crate) fn open_to_read(dir: &Path, memory: usize) -> Result<Box<dyn Store>, Failure> {
    open_as(dir, Mode::Read, options(memory))
}

/// Opens an existing store for a command on the whole store: for writing, or for reading if another
/// process writes to it.
pub(crate) fn open_whole(dir: &Path, memory: usize) -> Result<Box<dyn Store>, Failure> {
    open_as(dir, Mode::WriteIfFree, options(memory))
}

/// Opens a store for writing, and creates it if it does not exist.
pub(crate) fn create_or_open(dir: &Path, memory: usize) -> Result<Box<dyn Store>, Failure> {
    open_as(dir, Mode::Create, options(memory))
}

/// Opens the store at a path or an address.
pub(crate) fn open_as(dir: &Path, mode: Mode, options: Options) -> Result<Box<dyn Store>, Failure> {
    refuse_file(dir)?;
    Ok(opened(dir, mode, options)?)
}

/// As [`open_as`], with the error of the library.
#[cfg(not(feature = "server"))]
pub(crate) fn opened(
    dir: &Path,
    mode: Mode,
    options: Options,
) -> Result<Box<dyn Store>, esker::Error> {
    esker_store::open(dir, mode, options)
}

/// As [`open_as`], with the error of the library.
#[cfg(feature = "server")]
pub(crate) fn opened(
    dir: &Path,
    mode: Mode,
    options: Options,
) -> Result<Box<dyn Store>, esker::Error> {
    match ACCESS.get() {
        Some(access) => esker_store::open_with(dir, mode, options, access),
        None => esker_store::open(dir, mode, options),
    }
}

/// How servers are reached, if the command line says so.
#[cfg(feature = "server")]
static ACCESS: OnceLock<esker_store::Access> = OnceLock::new();

/// Takes the token of a file for servers, in place of that of the environment.
#[cfg(feature = "server")]
pub(crate) fn choose(token_file: Option<&Path>) -> Result<(), Failure> {
    if let Some(file) = token_file {
        let access = esker_store::Access::from_env()?.with_token_file(file)?;
        // The arguments are read once.
        let _ = ACCESS.set(access);
    }
    Ok(())
}

/// True for the address of a server.
pub(crate) fn is_served(dir: &Path) -> bool {
    let text = dir.to_string_lossy();
    text.starts_with("http://") || text.starts_with("https://")
}

/// Refuses the address of a server or a cluster where a command works on a folder; `of_server` says
/// what to use with a server.
pub(crate) fn refuse_address(dir: &Path, of_server: &str) -> Result<(), Failure> {
    needs_folder(dir, of_server).map_or(Ok(()), |why| Err(Failure::Usage(why)))
}

/// Why a command that works on a folder cannot work on this.
fn needs_folder(dir: &Path, of_server: &str) -> Option<String> {
    let instead = if is_served(dir) {
        of_server
    } else if dir.to_string_lossy().contains("://") {
        "a cluster has records and indexes alone"
    } else {
        return None;
    };
    let dir = dir.display();
    Some(format!("{dir}: this command works on a folder; {instead}"))
}

/// Where a server has what a folder's publish/subscribe has.
const TOPICS: &str = "a server has publications at /v1/topics/TOPIC";

/// Refuses what is no folder for publish/subscribe.
pub(crate) fn refuse_no_folder(dir: &Path) -> Result<(), Failure> {
    refuse_file(dir)?;
    refuse_address(dir, TOPICS)
}

/// Opens a folder for publish/subscribe or a demonstration, and creates it if it does not exist.
pub(crate) fn create_or_open_folder(dir: &Path, options: Options) -> Result<FolderStore, Failure> {
    refuse_address(dir, TOPICS)?;
    Ok(Database::create_or_open(dir, options)?)
}

/// Opens a folder to read publications from it.
pub(crate) fn open_folder_to_read(dir: &Path, memory: usize) -> Result<FolderStore, esker::Error> {
    match needs_folder(dir, TOPICS) {
        Some(why) => Err(esker::Error::Unsupported(why)),
        None => Database::open_reader(dir, options(memory)),
    }
}

/// Refuses a file as the store: the usual reason is arguments in the wrong order.
pub(crate) fn refuse_file(dir: &Path) -> Result<(), Failure> {
    if dir.is_file() {
        Err(Failure::Usage(format!(
            "{} is a file: the first argument is the store's folder",
            dir.display()
        )))
    } else {
        Ok(())
    }
}

/// An existing dataset; the error names the existing ones.
pub(crate) fn dataset(store: &dyn Store, name: &str) -> Result<Box<dyn Dataset>, Failure> {
    store.dataset(name).or_else(|error| {
        let names = store.dataset_names()?;
        Err(unknown(error, "dataset", name, &names))
    })
}

/// A dataset as it is now, or in the snapshot of this name.
pub(crate) fn dataset_at(
    store: &dyn Store,
    name: &str,
    snapshot: Option<&str>,
) -> Result<Box<dyn Records>, Failure> {
    let Some(snapshot) = snapshot else {
        return Ok(dataset(store, name)?.snapshot()?);
    };
    let names = dataset_names_at(store, snapshot)?;
    let found = store.dataset_at(snapshot, name);
    found.map_err(|error| unknown(error, "dataset", name, &names))
}

/// The datasets in the snapshot of this name; the error names the existing snapshots.
pub(crate) fn dataset_names_at(store: &dyn Store, snapshot: &str) -> Result<Vec<String>, Failure> {
    store.dataset_names_at(snapshot).or_else(|error| {
        let kept = store.snapshots()?.into_iter();
        let names: Vec<String> = kept.map(|kept| kept.name).collect();
        Err(unknown(error, "snapshot", snapshot, &names))
    })
}

/// The error for an unknown name, with a suggestion and the existing names.
fn unknown(error: esker::Error, what: &str, name: &str, names: &[String]) -> Failure {
    match error {
        esker::Error::UnknownDataset { .. } | esker::Error::UnknownSnapshot { .. } => {
            let known = if names.is_empty() {
                "none".to_string()
            } else {
                names.join(", ")
            };
            let meant = meant(name, names.iter().map(String::as_str));
            Failure::Usage(format!(
                "there is no {what} `{name}`{meant} (existing: {known})"
            ))
        }
        _ => error.into(),
    }
}

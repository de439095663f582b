//! Opening a store by a path or an address.

use std::path::Path;

use esker::{Database, Error, Options, Result};
#[cfg(feature = "http")]
use esker_client::Access;

use crate::embedded::Embedded;
use crate::store::{Mode, Store};

/// Opens the store at a path, or at an address `SCHEME:...`.
///
/// # Errors
/// [`Error::Unsupported`] for an address of an unknown scheme; errors of the store.
pub fn open(address: impl AsRef<Path>, mode: Mode, options: Options) -> Result<Box<dyn Store>> {
    let address = address.as_ref();
    if let Some((scheme, rest)) = address.to_str().and_then(split) {
        #[cfg(feature = "http")]
        if is_served(scheme) {
            return open_with(address, mode, options, &Access::from_env()?);
        }
        return open_scheme(scheme, rest, mode);
    }
    let db = match mode {
        Mode::Read => Database::open_reader(address, options)?,
        Mode::Write => Database::open(address, options)?,
        Mode::WriteIfFree => match Database::open(address, options.clone()) {
            Err(Error::Locked { .. }) => Database::open_reader(address, options)?,
            opened => opened?,
        },
        Mode::Create => Database::create_or_open(address, options)?,
    };
    Ok(Box::new(Embedded::new(db)))
}

/// As [`open`], with what a server wants beside its address.
///
/// # Errors
/// As [`open`].
#[cfg(feature = "http")]
pub fn open_with(
    address: impl AsRef<Path>,
    mode: Mode,
    options: Options,
    access: &Access,
) -> Result<Box<dyn Store>> {
    let address = address.as_ref();
    match address
        .to_str()
        .filter(|text| split(text).is_some_and(|(scheme, _)| is_served(scheme)))
    {
        Some(text) => Ok(Box::new(crate::remote::Remote::open(text, mode, access)?)),
        None => open(address, mode, options),
    }
}

/// True for the schemes of servers.
#[cfg(feature = "http")]
fn is_served(scheme: &str) -> bool {
    scheme == "http" || scheme == "https"
}

/// Splits an address. A path with a colon can be given as `./a:b`.
fn split(address: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = address.split_once(':')?;
    let is_scheme = scheme.len() > 1 && scheme.chars().all(|c| c.is_ascii_lowercase());
    is_scheme.then_some((scheme, rest))
}

fn open_scheme(scheme: &str, _rest: &str, _mode: Mode) -> Result<Box<dyn Store>> {
    match scheme {
        #[cfg(feature = "cluster")]
        "cassandra" => Ok(Box::new(crate::cluster::Cluster::cassandra(_rest, _mode)?)),
        #[cfg(feature = "cluster")]
        "hbase" => Ok(Box::new(crate::cluster::Cluster::hbase(_rest, _mode)?)),
        #[cfg(feature = "plain")]
        "plain" => Ok(Box::new(crate::plain::Plain::open(
            Path::new(_rest),
            _mode,
        )?)),
        "http" | "https" => Err(Error::Unsupported(
            "this program was built without the client of servers (its feature `server`)"
                .to_string(),
        )),
        _ => Err(Error::Unsupported(format!(
            "`{scheme}:` is not a kind of store that this program knows; for a folder of that name, write ./{scheme}:..."
        ))),
    }
}

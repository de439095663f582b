//! The trees of a broker in its store.
//!
//! | tree | keys | values |
//! | --- | --- | --- |
//! | `lists` (DualDB) | all value lists (`forms/keys.rs`) | elements (`forms/element.rs`) |
//! | `publications`, `subscriptions` (TwoDB) | lists of one sort | elements |
//! | `directory` | as follows | as follows |
//!
//! | key in `directory` | value |
//! | --- | --- |
//! | `s`, a shape ([`super::shape`]) | the time until which it is needed |
//! | `i`, the number of a subscription | the subscription: its topics and forms |
//! | `l`, the number of a late publication | the time of the store's clock when it was written |
//! | `t` | the latest time of all publications |
//!
//! RepQueries has `publications` without `subscriptions`. The elements of lists are written as
//! operands, which reads and compactions merge (`lists/merging.rs`). The configuration of the tree
//! `directory` is that of the broker ([`Config`]).

use std::sync::Arc;

use esker::extension::{Extension, Leveled, TreeOptions};
use esker::{Error, Result};

use crate::forms::config::Config;
use crate::lists::merging::ValueLists;
use crate::lists::times::ListTimes;

/// The extension with which a store with a broker must be opened.
///
/// ```
/// use std::sync::Arc;
/// use esker::Options;
///
/// let options = Options::new().extension(Arc::new(esker_pubsub::PubSub));
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct PubSub;

/// The name of the extension in the store.
pub(crate) const NAME: &str = "pubsub";

pub(crate) const DIRECTORY: &str = "directory";
pub(crate) const LISTS: &str = "lists";
pub(crate) const PUBLICATIONS: &str = "publications";
pub(crate) const SUBSCRIPTIONS: &str = "subscriptions";

impl Extension for PubSub {
    fn name(&self) -> &'static str {
        NAME
    }

    fn tree_options(&self, tree: &str, config: &[u8]) -> Result<TreeOptions> {
        match tree {
            LISTS | PUBLICATIONS | SUBSCRIPTIONS => Ok(TreeOptions {
                operator: Some(Arc::new(ValueLists)),
                extractor: Some(Arc::new(ListTimes)),
                ..short_lived()
            }),
            DIRECTORY => Config::decode(config).map(|_| short_lived()),
            other => Err(Error::Unsupported(format!(
                "publish/subscribe: this program knows no tree `{other}`"
            ))),
        }
    }
}

/// Options of trees whose entries mostly end before a compaction reads them.
fn short_lived() -> TreeOptions {
    TreeOptions {
        compresses_flushes: false,
        // If live entries fill only a few flushes, each run of level 0 covers a stretch of time:
        // walks skip it once that has passed, and it is dropped unread once all of it has expired.
        // With little memory there are more flushes, which are compacted as usual.
        ..TreeOptions::with_policy(Arc::new(Leveled {
            level0_runs: 6,
            ..Leveled::default()
        }))
    }
}

impl PubSub {
    /// Opens a store with this extension, or creates it if it does not exist.
    ///
    /// # Errors
    /// The errors of [`esker::Database::create_or_open`].
    pub fn create_or_open(
        folder: impl AsRef<std::path::Path>,
        options: esker::Options,
    ) -> esker::Result<esker::Database> {
        esker::Database::create_or_open(folder, PubSub::register(options))
    }

    /// Registers this extension in the options, unless they have it already.
    pub fn register(options: esker::Options) -> esker::Options {
        if options.has_extension(NAME) {
            return options;
        }
        options.extension(Arc::new(PubSub))
    }
}

//! The trees of a broker in its store.
//!
//! | tree | keys | values |
//! | --- | --- | --- |
//! | `lists` (DualDB) | lists of publications and of subscriptions ([`crate::keys`]) | operands: elements ([`crate::element`]) |
//! | `publications`, `subscriptions` (TwoDB) | the same, apart | the same |
//! | `directory` | `s` and a shape; `i` and the number of a subscription; `l` and that of a late publication | the time until which it is needed; the subscription; when it was written |
//!
//! The configuration of `directory` is that of the broker ([`Config`]).

use std::sync::Arc;

use esker::extension::{Extension, Leveled, TreeOptions};

use crate::config::Config;
use crate::lists::ValueLists;
use crate::times::ListTimes;

/// The extension with which a store with a broker must be opened.
///
/// ```
/// use std::sync::Arc;
/// use esker::Options;
///
/// let options = Options { extensions: vec![Arc::new(esker_pubsub::PubSub)], ..Options::default() };
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct PubSub;

/// Its name in the store.
pub(crate) const NAME: &str = "pubsub";

pub(crate) const DIRECTORY: &str = "directory";
pub(crate) const LISTS: &str = "lists";
pub(crate) const PUBLICATIONS: &str = "publications";
pub(crate) const SUBSCRIPTIONS: &str = "subscriptions";

impl Extension for PubSub {
    fn name(&self) -> &'static str {
        NAME
    }

    fn tree_options(&self, tree: &str, config: &[u8]) -> Option<TreeOptions> {
        match tree {
            LISTS | PUBLICATIONS | SUBSCRIPTIONS => Some(TreeOptions {
                operator: Some(Arc::new(ValueLists)),
                extractor: Some(Arc::new(ListTimes)),
                ..short_lived()
            }),
            DIRECTORY => Config::decode(config).map(|_| short_lived()),
            _ => None,
        }
    }
}

/// The options of trees of which much has ended before it is merged.
fn short_lived() -> TreeOptions {
    TreeOptions {
        compresses_flushes: false,
        // With little memory there are many flushes, and these are merged as ever. Where what is alive is a few of them, each is
        // about a stretch of time: walks skip it when that has passed, and it is dropped unread when all of it has expired.
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
        esker::Database::create_or_open(folder, PubSub::with(options))
    }

    /// Adds this extension to the options.
    pub fn with(mut options: esker::Options) -> esker::Options {
        let is_there = options.extensions.iter().any(|e| e.name() == NAME);
        if !is_there {
            options.extensions.push(Arc::new(PubSub));
        }
        options
    }
}

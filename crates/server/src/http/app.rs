//! What the handlers share.

use std::path::PathBuf;
use std::sync::Arc;

use super::bodies::Bodies;
use crate::access::Tokens;
use crate::config::Limits;
use crate::engine::Engine;
use crate::jobs::Jobs;
use crate::live::Live;
use crate::metrics::Metrics;
use crate::pages::Pages;
use crate::rates::Rates;

/// What handlers share.
pub(crate) struct App {
    pub(crate) engine: Engine,
    pub(crate) pages: Pages,
    pub(crate) jobs: Arc<Jobs>,
    pub(crate) bodies: Bodies,
    /// The folder of backups, if there is one.
    pub(crate) backups: Option<PathBuf>,
    pub(crate) live: Live,
    pub(crate) tokens: Tokens,
    pub(crate) limits: Limits,
    /// The requests of each token, by its name.
    pub(crate) rates: Rates<String>,
    pub(crate) metrics: Metrics,
    pub(crate) logs_requests: bool,
    /// Origins whose pages may use the server.
    pub(crate) origins: Vec<String>,
    /// The OpenAPI document.
    pub(crate) document: String,
}

pub(crate) type Shared = Arc<App>;

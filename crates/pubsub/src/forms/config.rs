//! The configuration of a broker, and its stored form.

use std::time::Duration;

use esker::{Error, Result};
use esker_coding::Reader;

use crate::forms::cell::MAX_DEPTH;
use crate::forms::element::damaged;

/// How publications and subscriptions are stored (the paper's section 5).
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Architecture {
    /// One tree, in which the lists of a topic lie side by side (section 5.3).
    #[default]
    DualDb,
    /// A tree of publications and a tree of subscriptions (section 5.2): a baseline.
    TwoDb,
    /// Publications only; subscriptions are repeated queries ([`crate::RepeatedQueries`], section
    /// 5.1): a baseline.
    RepQueries,
}

/// How areas and cells are stored (section 6.2).
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Granularity {
    /// In few cells of any level.
    #[default]
    Variable,
    /// In all the cells of the deepest level that they overlap: a baseline.
    Fixed,
}

/// The configuration of a broker, fixed when the broker is created.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// For benchmarks: how publications and subscriptions are stored. Default:
    /// [`Architecture::DualDb`].
    #[doc(hidden)]
    pub architecture: Architecture,
    /// For benchmarks: how areas and cells are stored. Default: [`Granularity::Variable`].
    #[doc(hidden)]
    pub granularity: Granularity,
    /// Levels of the quad-tree of cells, at most [`MAX_DEPTH`]. Default 12: cells of 10 by 5
    /// kilometres at the equator.
    pub depth: u8,
    /// How long after its end the broker remembers a subscription of a named user, so that a later
    /// self-join of the same user ([`crate::Subscription::join`]) receives nothing twice.
    /// Self-joins look back no further than this. A whole number of milliseconds; `None`: forever.
    /// Default: a minute.
    pub remember: Option<Duration>,
    /// Units of the broker's times per millisecond of the store's clock, from 1 to 1,000,000
    /// (nanoseconds, which reach up to the year 2262). Default 1.
    pub resolution: u32,
}

/// The version of the stored form.
const VERSION: u8 = 1;

/// The stored form of a [`Config::remember`] without an end, which is otherwise in milliseconds.
const FOREVER: u64 = u64::MAX;

/// Nanoseconds. In finer units, times would soon exceed the range of [`crate::Time`].
const MAX_RESOLUTION: u32 = 1_000_000;

/// The number of milliseconds as it is stored; `None` if they are no whole number, or too many.
fn remember_millis(remember: Duration) -> Option<u64> {
    let millis = u64::try_from(remember.as_millis()).ok()?;
    (millis < FOREVER && Duration::from_millis(millis) == remember).then_some(millis)
}

impl Default for Config {
    fn default() -> Config {
        Config {
            architecture: Architecture::default(),
            granularity: Granularity::default(),
            depth: 12,
            remember: Some(Duration::from_secs(60)),
            resolution: 1,
        }
    }
}

impl Config {
    /// The default: DualDB with variable granularity.
    pub fn new() -> Config {
        Config::default()
    }

    /// For benchmarks: how publications and subscriptions are stored. Default:
    /// [`Architecture::DualDb`].
    #[doc(hidden)]
    #[must_use]
    pub fn architecture(mut self, architecture: Architecture) -> Config {
        self.architecture = architecture;
        self
    }

    /// For benchmarks: how areas and cells are stored. Default: [`Granularity::Variable`].
    #[doc(hidden)]
    #[must_use]
    pub fn granularity(mut self, granularity: Granularity) -> Config {
        self.granularity = granularity;
        self
    }

    /// Levels of the quad-tree of cells, at most [`MAX_DEPTH`]. Areas are stored and found by
    /// cells: more levels tell smaller areas apart, but large areas then have more cells. Default
    /// 12: cells of 10 by 5 kilometres at the equator.
    #[must_use]
    pub fn depth(mut self, depth: u8) -> Config {
        self.depth = depth;
        self
    }

    /// How long after its end the broker remembers a subscription of a named user
    /// ([`Config::remember`](Config#structfield.remember)): a whole number of milliseconds, or
    /// `None` for forever. Default: a minute.
    #[must_use]
    pub fn remember(mut self, remember: Option<Duration>) -> Config {
        self.remember = remember;
        self
    }

    /// Units of the broker's times per millisecond of the store's clock, from 1 to 1,000,000.
    /// Default 1: times are in milliseconds.
    #[must_use]
    pub fn resolution(mut self, resolution: u32) -> Config {
        self.resolution = resolution;
        self
    }

    /// Checks the configuration of a new broker.
    ///
    /// # Errors
    /// A text that names the setting that is out of range.
    pub(crate) fn check(&self) -> std::result::Result<(), String> {
        if self.resolution > MAX_RESOLUTION {
            return Err(format!(
                "the resolution must be at most {MAX_RESOLUTION}, not {}",
                self.resolution
            ));
        }
        if let Some(remember) = self.remember
            && remember_millis(remember).is_none()
        {
            return Err(format!(
                "`remember` must be a whole number of milliseconds below 2^64 - 1, not {remember:?}"
            ));
        }
        self.check_stored()
    }

    /// Checks a stored configuration: older versions did not limit the resolution.
    fn check_stored(&self) -> std::result::Result<(), String> {
        if self.depth > MAX_DEPTH {
            return Err(format!(
                "the depth of cells must be at most {MAX_DEPTH}, not {}",
                self.depth
            ));
        }
        if self.resolution == 0 {
            return Err("the resolution must be at least 1".to_owned());
        }
        Ok(())
    }

    /// The stored form: the configuration of the tree `directory`.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        out.push(match self.architecture {
            Architecture::DualDb => 1,
            Architecture::TwoDb => 2,
            Architecture::RepQueries => 3,
        });
        out.push(match self.granularity {
            Granularity::Variable => 1,
            Granularity::Fixed => 2,
        });
        out.push(self.depth);
        out.extend_from_slice(&self.resolution.to_le_bytes());
        let remember = self.remember.and_then(remember_millis);
        out.extend_from_slice(&remember.unwrap_or(FOREVER).to_le_bytes());
        out
    }

    /// Decodes a stored configuration.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if it is of a newer version; [`Error::Damaged`] if it is malformed.
    pub(crate) fn decode(stored: &[u8]) -> Result<Config> {
        match stored.first() {
            Some(&version) if version > VERSION => Err(Error::Unsupported(format!(
                "publish/subscribe: the configuration of the broker is of version {version}, and \
                 this program reads up to version {VERSION}"
            ))),
            _ => Config::parse(stored)
                .ok_or_else(|| damaged("the configuration of the broker is malformed")),
        }
    }

    fn parse(stored: &[u8]) -> Option<Config> {
        let mut input = Reader::new(stored);
        if input.u8()? != VERSION {
            return None;
        }
        let architecture = match input.u8()? {
            1 => Architecture::DualDb,
            2 => Architecture::TwoDb,
            3 => Architecture::RepQueries,
            _ => return None,
        };
        let granularity = match input.u8()? {
            1 => Granularity::Variable,
            2 => Granularity::Fixed,
            _ => return None,
        };
        let depth = input.u8()?;
        let resolution = input.u32()?;
        let remember = match input.u64()? {
            FOREVER => None,
            millis => Some(Duration::from_millis(millis)),
        };
        let config = Config {
            architecture,
            granularity,
            depth,
            remember,
            resolution,
        };
        (config.check_stored().is_ok() && input.is_empty()).then_some(config)
    }
}

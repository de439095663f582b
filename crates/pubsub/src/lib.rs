//! Publish/subscribe over past and future, in an Esker store.
//!
//! The store keeps both subscriptions and publications, possibly millions of each, and each may
//! expire within seconds. A subscription covers an interval around now: the last minute, say, and
//! the next one. The crate implements DualDB, TwoDB and RepQueries of Qader and Hristidis
//! ("High-throughput Publish/Subscribe on top of LSM-based Storage") with the value lists and the
//! expiry of Esker's engine, beside the datasets of the same store.
//!
//! ```
//! use std::time::Duration;
//!
//! use esker::Options;
//! use esker_pubsub::{Broker, Config, PubSub, Publication, Region, Subscription};
//!
//! # fn main() -> esker::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! let db = PubSub::create_or_open(dir.path(), Options::default())?;
//! let broker = Broker::create_or_open(&db, Config::new())?;
//!
//! let accident = Publication::new("traffic/accident".parse()?, br#"{"lanes": 2}"#);
//! broker.publish(&accident.at_point(9.99, 53.55).lives(Duration::from_secs(600)))?;
//!
//! // Traffic around here, in the last minute and in the next one.
//! let here = Region::Circle { longitude: 10.0, latitude: 53.5, metres: 10_000.0 };
//! let subscription = Subscription::to("traffic".parse()?)
//!     .since(Duration::from_secs(60))
//!     .lasting(Duration::from_secs(60))
//!     .within(here)
//!     .user("ann");
//! let made = broker.subscribe(&subscription)?;
//! assert_eq!(made.past.len(), 1);
//!
//! let closed = Publication::new("traffic/closed".parse()?, br#"{"road": "A7"}"#);
//! let published = broker.publish(&closed.at_point(10.01, 53.52))?;
//! assert_eq!(published.matches[0].subscription, made.id);
//! # Ok(())
//! # }
//! ```

// The layers of these modules: `../layers.txt`.

mod anchor;
mod broker;
mod cell;
mod change;
mod config;
mod deliver;
mod element;
mod extension;
mod follow;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod inbox;
mod join;
mod keys;
mod lists;
mod matching;
mod message;
mod place;
mod publications;
mod publish;
mod repeat;
mod shape;
mod spans;
mod subscribe;
mod subscribers;
mod times;
mod topic;
mod topics;
mod walk;
mod watch;

pub use broker::{Broker, ReadStats};
pub use cell::{Cell, MAX_DEPTH};
pub use config::{Architecture, Config, Granularity};
pub use element::Time;
pub use extension::PubSub;
pub use follow::Follow;
pub use inbox::{Inbox, Notifier};
pub use message::{
    Match, Notification, Publication, Published, Subscribed, Subscription, Threshold,
};
pub use place::{Place, Region};
pub use repeat::{OnMatch, RepeatedQueries};
pub use topic::{MAX_LEVELS, Topic, TopicFilter};
pub use topics::TopicUse;
pub use watch::Watch;

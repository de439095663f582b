//! Publish/subscribe over past and future, in an Esker store.
//!
//! A publication has a topic, a body, and optionally a place and an expiry. A subscription selects
//! publications by topic, area and a condition on the body, within an interval of time around now:
//! the last minute and the next one, say. The store keeps both beside its datasets, possibly
//! millions of each; each may expire within seconds.
//!
//! [`Broker::publish`] returns the subscriptions that a publication matches. [`Broker::inbox`] and
//! [`Broker::notify`] deliver to a stored subscription, [`Broker::follow`] reads without storing
//! one, and [`Watch`] follows the records of a dataset.
//!
//! The design is DualDB of Qader and Hristidis ("High-throughput Publish/Subscribe on top of
//! LSM-based Storage"); its baselines can be chosen for benchmarks.
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

// The layers are in `../layers.txt`, the terms in `../DESIGN.md`. The publish path:
//
// 1. `operations/publish.rs` writes the publication, and takes a snapshot of everything before it;
// 2. `search/subscribers.rs` finds the matching subscriptions in the snapshot, by steps 3 to 5;
// 3. `lists/select.rs` chooses the value lists that can hold them;
// 4. `lists/walk.rs` reads these lists, and skips tables of other times (`lists/times.rs`);
// 5. `matching.rs` decides by interval, place and condition; step 2 then drops subscriptions to
//    changes that are too small, and self-joins whose user receives the publication by an earlier
//    subscription;
// 6. `deliver.rs` puts the publication into the queues of consumers (`consumers/inbox.rs`).
//
// The subscribe path begins in `operations/subscribe.rs`, and searches in `search/publications.rs`.

mod broker;
mod consumers;
mod deliver;
mod forms;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod lists;
mod matching;
mod operations;
mod search;

pub use broker::{Broker, ReadStats};
pub use consumers::fence::{Fence, FenceEvent};
pub use consumers::follow::Follow;
pub use consumers::inbox::{Inbox, Notifier};
pub use consumers::repeated_queries::{OnMatch, RepeatedQueries};
pub use consumers::watch::Watch;
pub use forms::cell::{Cell, MAX_DEPTH};
pub use forms::config::{Architecture, Config, Granularity};
pub use forms::element::{Threshold, Time};
pub use forms::message::{Match, Notification, Publication, Published, Subscribed, Subscription};
pub use forms::place::{Place, Region};
pub use forms::topic::{MAX_LEVELS, Topic, TopicFilter};
pub use lists::trees::PubSub;
pub use operations::topics::TopicUse;

//! Stored subscriptions: what matches a topic, a condition and an area, published before or after.
//!
//! `cargo run -p esker-pubsub --example alerts`

use std::time::Duration;

use esker::Options;
use esker_pubsub::{Broker, Config, PubSub, Publication, Region, Subscription};

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let db = PubSub::create_or_open(folder.path().join("road"), Options::new())?;
    let broker = Broker::create_or_open(&db, Config::new())?;

    // Kept for ten minutes.
    let accident = Publication::new("traffic/accident".parse()?, br#"{"lanes": 2}"#)
        .at_point(9.99, 53.55)
        .lives(Duration::from_secs(600));
    broker.publish(&accident)?;

    let around_here = Region::Circle {
        longitude: 10.0,
        latitude: 53.5,
        metres: 10_000.0,
    };
    let subscription = Subscription::to("traffic".parse()?)
        .since(Duration::from_secs(60))
        .lasting(Duration::from_secs(3600))
        .within(around_here)
        .user("ann");
    let made = broker.subscribe(&subscription)?;
    assert_eq!(made.past.len(), 1, "the accident is a minute old at most");

    // The inbox of the subscription has each match once, in the order of publication.
    let mut inbox = broker.inbox(made.id, None)?;
    let closed = Publication::new("traffic/closed".parse()?, br#"{"road": "A7"}"#);
    broker.publish(&closed.clone().at_point(10.01, 53.52))?;
    broker.publish(&closed.at_point(2.35, 48.85))?; // in Paris: not for ann
    while let Some(found) = inbox.wait(Duration::from_millis(10))? {
        println!("{}: {}", found.topic, String::from_utf8_lossy(&found.body));
    }
    broker.unsubscribe(made.id)?;
    Ok(())
}

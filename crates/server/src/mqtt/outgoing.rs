//! Publications for the broker, of PUBLISH packets and of wills.

use std::time::Duration;

use super::message::Meta;
use super::packet::Publish;
use super::reason::{Reason, Refusal};

/// A publication for the broker.
#[derive(Debug, Clone)]
pub(super) struct Outgoing {
    pub(super) topic: String,
    pub(super) payload: Vec<u8>,
    pub(super) meta: Meta,
    /// As long as the publisher says.
    pub(super) lifetime: Option<Duration>,
    /// Longitude and latitude.
    pub(super) place: Option<(f64, f64)>,
}

impl Outgoing {
    /// The publication of a packet whose topic was checked.
    ///
    /// # Errors
    /// A user property `position` that is none.
    pub(super) fn of(packet: Publish, publisher: Option<u64>) -> Result<Outgoing, Refusal> {
        let position = packet.user.iter().find(|(name, _)| name == "position");
        let place = position.map(|(_, text)| point(text)).transpose()?;
        Ok(Outgoing {
            topic: packet.topic,
            payload: packet.payload,
            meta: Meta {
                qos: packet.qos,
                retain: packet.retain,
                has_expiry: packet.expiry.is_some(),
                publisher,
                properties: packet.properties,
            },
            lifetime: (packet.expiry).map(|seconds| Duration::from_secs(seconds.into())),
            place,
        })
    }
}

/// `LON,LAT` in degrees.
fn point(text: &str) -> Result<(f64, f64), Refusal> {
    let parts = text.split_once(',').and_then(|(longitude, latitude)| {
        let longitude: f64 = longitude.trim().parse().ok()?;
        let latitude: f64 = latitude.trim().parse().ok()?;
        let is_right = (-180.0..=180.0).contains(&longitude) && (-90.0..=90.0).contains(&latitude);
        is_right.then_some((longitude, latitude))
    });
    parts.ok_or_else(|| {
        let why = format!("position `{text}`: a position is LON,LAT in degrees");
        Refusal::new(Reason::Implementation, why)
    })
}

//! The versions of MQTT.

/// The version of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    V3,
    V5,
}

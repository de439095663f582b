//! The versions of MQTT.

/// The version of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    V3,
    V5,
}

impl Version {
    /// Its name, for measurements.
    pub(super) fn name(self) -> &'static str {
        match self {
            Version::V3 => "3.1.1",
            Version::V5 => "5",
        }
    }
}

//! Reason codes of MQTT 5, and why a connection ends.

use super::version::Version;

/// A reason code that is sent. Its number is that of MQTT 5.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Reason {
    Success = 0,
    GrantedQos1 = 1,
    NoSubscription = 0x11,
    Unspecified = 0x80,
    MalformedPacket = 0x81,
    ProtocolError = 0x82,
    Implementation = 0x83,
    UnsupportedVersion = 0x84,
    ClientNotValid = 0x85,
    BadUserOrPassword = 0x86,
    NotAuthorized = 0x87,
    ServerBusy = 0x89,
    ShuttingDown = 0x8b,
    BadAuthenticationMethod = 0x8c,
    KeepAliveTimeout = 0x8d,
    TakenOver = 0x8e,
    TopicFilterInvalid = 0x8f,
    TopicNameInvalid = 0x90,
    ReceiveMaximumExceeded = 0x93,
    TopicAliasInvalid = 0x94,
    PacketTooLarge = 0x95,
    QuotaExceeded = 0x97,
    QosNotSupported = 0x9b,
}

impl Reason {
    pub(super) fn code(self) -> u8 {
        self as u8
    }

    /// Its name, for measurements.
    pub(super) fn name(self) -> &'static str {
        match self {
            Reason::Success | Reason::GrantedQos1 => "success",
            Reason::NoSubscription => "no-subscription",
            Reason::Unspecified => "unspecified",
            Reason::MalformedPacket => "malformed-packet",
            Reason::ProtocolError => "protocol-error",
            Reason::Implementation => "implementation-specific",
            Reason::UnsupportedVersion => "unsupported-version",
            Reason::ClientNotValid => "client-not-valid",
            Reason::BadUserOrPassword => "bad-user-or-password",
            Reason::NotAuthorized => "not-authorized",
            Reason::ServerBusy => "server-busy",
            Reason::ShuttingDown => "shutting-down",
            Reason::BadAuthenticationMethod => "bad-authentication-method",
            Reason::KeepAliveTimeout => "keep-alive-timeout",
            Reason::TakenOver => "taken-over",
            Reason::TopicFilterInvalid => "topic-filter-invalid",
            Reason::TopicNameInvalid => "topic-name-invalid",
            Reason::ReceiveMaximumExceeded => "receive-maximum-exceeded",
            Reason::TopicAliasInvalid => "topic-alias-invalid",
            Reason::PacketTooLarge => "packet-too-large",
            Reason::QuotaExceeded => "quota-exceeded",
            Reason::QosNotSupported => "qos-not-supported",
        }
    }

    /// The return code of CONNACK in MQTT 3.1.1.
    pub(super) fn return_code(self) -> u8 {
        match self {
            Reason::Success => 0,
            Reason::UnsupportedVersion => 1,
            Reason::ClientNotValid => 2,
            Reason::BadUserOrPassword => 4,
            Reason::NotAuthorized => 5,
            _ => 3,
        }
    }
}

/// Why a connection ends, or a request is refused.
#[derive(Debug, Clone)]
pub(super) struct Refusal {
    pub(super) reason: Reason,
    pub(super) why: String,
    /// The form of the answer, where the connection has no version yet.
    pub(super) version: Option<Version>,
}

impl Refusal {
    pub(super) fn new(reason: Reason, why: impl Into<String>) -> Refusal {
        Refusal {
            reason,
            why: why.into(),
            version: None,
        }
    }

    /// The refusal of a CONNECT with this protocol level.
    pub(super) fn for_connect(mut self, level: Option<u8>) -> Refusal {
        let of_level = match level {
            Some(4) => Some(Version::V3),
            Some(5) => Some(Version::V5),
            _ => None,
        };
        self.version = self.version.or(of_level);
        self
    }
}

impl From<crate::problem::Problem> for Refusal {
    fn from(problem: crate::problem::Problem) -> Refusal {
        let reason = match problem.status().as_u16() {
            400 => Reason::Implementation,
            403 | 404 => Reason::NotAuthorized,
            503 => Reason::ServerBusy,
            507 => Reason::QuotaExceeded,
            _ => Reason::Unspecified,
        };
        Refusal::new(reason, problem.detail())
    }
}

/// Refuses.
///
/// # Errors
/// Always.
pub(super) fn refuse<T>(reason: Reason, why: &str) -> Result<T, Refusal> {
    Err(Refusal::new(reason, why))
}

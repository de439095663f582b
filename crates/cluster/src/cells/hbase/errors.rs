//! Errors of the gateway, in words of this crate. Java's exceptions arrive as text.

use super::connection::Refused;
use crate::error::Error;

/// The error of a request that was answered with one.
pub(super) fn failed(refused: &Refused) -> Error {
    let text = refused.message.lines().next().unwrap_or_default().trim();
    let has = |name: &str| refused.message.contains(name);
    if has("AccessDeniedException") || has("Insufficient permissions") {
        Error::BadInput(format!("the cluster refuses this user: {text}"))
    } else if has("TableNotFoundException") || has("TableNotEnabledException") {
        Error::Busy(format!("a table is gone: {text}"))
    } else if has("NamespaceNotFoundException") {
        Error::NoStore(text.to_string())
    } else if has("DoNotRetry") && !has("RegionServerStopped") {
        Error::Unsupported(format!("the cluster refuses the request: {text}"))
    } else {
        Error::Unavailable(format!("the cluster did not do it: {text}"))
    }
}

/// True if the same request may succeed later.
pub(super) fn may_pass(error: &Error) -> bool {
    matches!(error, Error::Unavailable(_))
}

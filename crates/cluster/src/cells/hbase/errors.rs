//! Errors of the gateway, in words of this crate. Java's exceptions arrive as text.

use super::connection::Refused;
use crate::error::Error;

/// The error of a request that was answered with one.
pub(super) fn failed(refused: &Refused) -> Error {
    let text = refused.message.lines().next().unwrap_or_default().trim();
    let has = |name: &str| refused.message.contains(name);
    if has("AccessDeniedException") || has("Insufficient permissions") {
        Error::BadInput(format!("the cluster refuses this user: {text}"))
    } else if has("TableNotFoundException") || has("TableNotEnabledException") || is_name(text) {
        Error::Busy(format!("a table is gone: {text}"))
    } else if has("NamespaceNotFoundException") {
        Error::NoStore(text.to_string())
    } else if has("DoNotRetry") && !has("RegionServerStopped") {
        Error::Unsupported(format!("the cluster refuses the request: {text}"))
    } else {
        Error::Unavailable(format!("the cluster did not do it: {text}"))
    }
}

/// True for the name of a table with its namespace: all that is said of one that is missing or
/// disabled, alone or as `Failed 2 actions: shop:esker_1: 2 times, ...`.
fn is_name(text: &str) -> bool {
    let counted = text.strip_prefix("Failed ");
    let reason = counted.and_then(|rest| rest.split(": ").nth(1));
    let text = reason.unwrap_or(text);
    let is_part = |part: &str| {
        !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    text.split_once(':')
        .is_some_and(|(namespace, table)| is_part(namespace) && is_part(table))
}

/// True if the same request may succeed later.
pub(super) fn may_pass(error: &Error) -> bool {
    matches!(error, Error::Unavailable(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_gateway_says_is_understood() {
        let of = |message: &str| {
            failed(&Refused {
                message: message.to_string(),
            })
        };
        for text in [
            "shop:esker_1",
            "Failed 2 actions: shop:esker_1: 2 times, servers with issues: null",
        ] {
            assert!(matches!(of(text), Error::Busy(_)), "{text}");
        }
        let denied = of("org.apache.hadoop.hbase.security.AccessDeniedException: no");
        assert!(matches!(denied, Error::BadInput(_)));
        for text in ["", "Failed 1 action: Connection reset: 1 time", "a: b"] {
            assert!(may_pass(&of(text)), "{text}");
        }
    }
}

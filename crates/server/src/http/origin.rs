//! Which pages may use a server without tokens.
//!
//! A browser sends requests to this machine for any page that asks for them: also for a page whose
//! name was made to point here. So a server without tokens answers only requests for a name of this
//! machine, and of pages only its own and those of the settings.

use axum::extract::Request;
use axum::http::{HeaderMap, header};

/// True if a request is for a name of this machine, and comes from no page of another origin.
pub(crate) fn is_own(request: &Request, allowed: &[String]) -> bool {
    let headers = request.headers();
    let host = headers
        .get(header::HOST)
        .map(|host| host.to_str().unwrap_or_default());
    let host = host.or(request.uri().authority().map(|of| of.as_str()));
    host.is_some_and(|host| is_local(host) && origin_is_own(headers, host, allowed))
}

/// True for a name of this machine, with a port or without.
fn is_local(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|c| c.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.to_ascii_lowercase();
    let address = name
        .strip_prefix('[')
        .and_then(|name| name.strip_suffix(']'));
    let address = address.unwrap_or(&name).parse::<std::net::IpAddr>();
    match address {
        Ok(address) => address.to_canonical().is_loopback(),
        Err(_) => name == "localhost" || name.ends_with(".localhost"),
    }
}

fn origin_is_own(headers: &HeaderMap, host: &str, allowed: &[String]) -> bool {
    let Some(origin) = headers.get(header::ORIGIN) else {
        // A browser without an origin says at least where the request is from.
        let site = headers
            .get("sec-fetch-site")
            .and_then(|site| site.to_str().ok());
        return site.is_none_or(|site| site == "same-origin" || site == "none");
    };
    let origin = origin.to_str().unwrap_or_default();
    let own = origin
        .strip_prefix("http://")
        .or(origin.strip_prefix("https://"));
    own == Some(host) || allowed.iter().any(|one| one == origin)
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    fn is_answered(headers: &[(&str, &str)]) -> bool {
        let mut request = Request::builder().uri("/v1/datasets");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::empty()).unwrap();
        is_own(&request, &["https://app.example".to_string()])
    }

    #[test]
    fn pages_of_other_origins_are_refused() {
        for host in [
            "localhost:7700",
            "127.0.0.1:7700",
            "[::1]:7700",
            "db.localhost",
            "127.0.0.2",
        ] {
            assert!(is_answered(&[("host", host)]), "{host}");
        }
        for host in [
            "example.org:7700",
            "10.0.0.1:7700",
            "localhost.example.org",
            "",
            "::1",
        ] {
            assert!(host == "::1" || !is_answered(&[("host", host)]), "{host}");
        }
        assert!(!is_answered(&[]));
        let own = ("host", "localhost:7700");
        for (origin, answered) in [
            ("http://localhost:7700", true),
            ("https://app.example", true),
            ("http://localhost:8080", false),
            ("https://example.org", false),
            ("null", false),
        ] {
            assert_eq!(
                is_answered(&[own, ("origin", origin)]),
                answered,
                "{origin}"
            );
        }
        for (site, answered) in [("none", true), ("same-origin", true), ("cross-site", false)] {
            assert_eq!(
                is_answered(&[own, ("sec-fetch-site", site)]),
                answered,
                "{site}"
            );
        }
    }
}

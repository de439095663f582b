//! The ETags of answers that were compressed: another one for each coding, since the bytes differ
//! (RFC 9110, 8.8.3.3). Handlers know the ETags of plain answers alone.

use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;

/// What stands behind an ETag within its quotes, by the coding.
const CODINGS: [(&str, &str); 2] = [("gzip", "-gzip"), ("zstd", "-zstd")];

/// Takes the suffixes of codings from the expectations of a request. Returns the `If-None-Match`
/// that it had.
pub(super) fn plain(headers: &mut HeaderMap) -> Option<HeaderValue> {
    let known = headers.get(header::IF_NONE_MATCH).cloned();
    for name in [header::IF_MATCH, header::IF_NONE_MATCH] {
        strip(headers, &name);
    }
    known
}

/// Gives an answer that was compressed the ETag of its coding. `known` is the `If-None-Match` of
/// the request.
pub(super) fn by_coding(response: &mut Response, known: Option<&HeaderValue>) {
    let Some(etag) = response.headers().get(header::ETAG) else {
        return;
    };
    let of_coding = match response.headers().get(header::CONTENT_ENCODING) {
        Some(coding) => CODINGS.iter().find(|(name, _)| coding == name),
        // The client has it in the coding that it names.
        None if response.status() == StatusCode::NOT_MODIFIED => CODINGS
            .iter()
            .find(|(_, suffix)| known.is_some_and(|known| names(known, etag, suffix))),
        None => None,
    };
    let changed = of_coding.and_then(|(_, suffix)| with(etag, suffix));
    if let Some(changed) = changed {
        response.headers_mut().insert(header::ETAG, changed);
    }
}

/// A strong ETag with a suffix.
fn with(etag: &HeaderValue, suffix: &str) -> Option<HeaderValue> {
    let inner = etag.to_str().ok()?.strip_prefix('"')?.strip_suffix('"')?;
    HeaderValue::from_str(&format!("\"{inner}{suffix}\"")).ok()
}

/// True if a list of ETags names this one with a suffix.
fn names(list: &HeaderValue, etag: &HeaderValue, suffix: &str) -> bool {
    let wanted = with(etag, suffix);
    let wanted = wanted.as_ref().and_then(|wanted| wanted.to_str().ok());
    match (list.to_str(), wanted) {
        (Ok(list), Some(wanted)) => list.contains(wanted),
        _ => false,
    }
}

/// Takes the suffixes of codings from the ETags of a header.
fn strip(headers: &mut HeaderMap, name: &HeaderName) {
    let values: Vec<HeaderValue> = headers.get_all(name).iter().cloned().collect();
    let has_suffix = |value: &HeaderValue| value.as_bytes().contains(&b'-');
    if !values.iter().any(has_suffix) {
        return;
    }
    headers.remove(name);
    for value in values {
        let plain = value.to_str().ok().map(|text| {
            let mut text = text.to_string();
            for (_, suffix) in CODINGS {
                text = text.replace(&format!("{suffix}\""), "\"");
            }
            text
        });
        let plain = plain.and_then(|text| HeaderValue::from_str(&text).ok());
        headers.append(name, plain.unwrap_or(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_are_taken_from_lists() {
        let mut headers = HeaderMap::new();
        let given = HeaderValue::from_static("\"1-gzip\", W/\"2-zstd\", \"3\", \"a-b\"");
        headers.append(header::IF_MATCH, given);
        headers.append(header::IF_MATCH, HeaderValue::from_static("*"));
        strip(&mut headers, &header::IF_MATCH);
        let all: Vec<_> = headers.get_all(header::IF_MATCH).iter().collect();
        assert_eq!(all, ["\"1\", W/\"2\", \"3\", \"a-b\"", "*"]);
    }

    #[test]
    fn weak_etags_have_no_suffix() {
        let weak = HeaderValue::from_static("W/\"1\"");
        assert_eq!(with(&weak, "-gzip"), None);
        let strong = HeaderValue::from_static("\"1\"");
        assert_eq!(with(&strong, "-gzip").unwrap(), "\"1-gzip\"");
    }
}

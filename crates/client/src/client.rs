//! Requests over HTTP, and their errors.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use esker::{Error, KeyType, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use ureq::http::{Method, Request, Response, StatusCode, header};
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::{Agent, AsSendBody, Body, Timeout};

use crate::access::Access;
use crate::problem::Problem;
use crate::wire::{QUERY_SECONDS, QUERY_TIME};

/// How long a connection may take to be made.
const CONNECTING: Duration = Duration::from_secs(10);

/// What a server may be silent longer than two queries take: a request may wait for its turn as
/// long as it may run then.
const SLACK: Duration = Duration::from_secs(30);

/// The longest time of a query that counts, in seconds: a year.
const LONGEST_QUERY: u64 = 365 * 24 * 60 * 60;

/// How often a request is sent again because the server is busy.
const ATTEMPTS: u32 = 8;

/// The longest pause before a request is sent again.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// The longest document that is read as a whole.
const MOST_BYTES: u64 = 1 << 30;

/// The connections that are kept for the next requests.
const IDLE_CONNECTIONS: usize = 16;

pub(crate) const OF_JSON: &str = "application/json";

/// A server. Clones share its connections.
#[derive(Clone)]
pub struct Client {
    agent: Agent,
    base: Arc<str>,
    authorization: Option<Arc<str>>,
    silence: Silence,
}

/// How long the server may be silent.
#[derive(Clone)]
enum Silence {
    /// This long.
    Given(Duration),
    /// As its queries need, which may take so many seconds.
    Queries(Arc<AtomicU64>),
}

impl Silence {
    fn longest(&self) -> Duration {
        match self {
            Silence::Given(silence) => *silence,
            Silence::Queries(seconds) => of_queries(seconds.load(Ordering::Relaxed)),
        }
    }

    /// Takes the time of queries from an answer; a server does not say the usual one.
    fn learn(&self, response: &Response<Body>) {
        let said = response.headers().get(QUERY_TIME);
        let said = said.and_then(|value| value.to_str().ok()?.parse().ok());
        if let (Silence::Queries(seconds), Some(said)) = (self, said) {
            seconds.store(said, Ordering::Relaxed);
        }
    }
}

fn of_queries(seconds: u64) -> Duration {
    // A time that the clock can express.
    Duration::from_secs(seconds.min(LONGEST_QUERY)) * 2 + SLACK
}

impl Client {
    /// A server at `http://HOST[:PORT]` or `https://HOST[:PORT]`. The first request connects.
    ///
    /// # Errors
    /// [`Error::BadInput`] for an address or certificates that are none.
    pub fn connect(address: &str, access: &Access) -> Result<Client> {
        let base = address.trim_end_matches('/');
        let bad = |why: &str| Error::BadInput(format!("{address}: {why}"));
        let rest = base.strip_prefix("http://");
        let rest = rest.or_else(|| base.strip_prefix("https://"));
        let rest = rest.ok_or_else(|| bad("an address of a server is http://HOST:PORT"))?;
        if rest.is_empty() || rest.contains(['/', '?', '#', '@']) {
            return Err(bad(
                "an address of a server is http://HOST:PORT, without a path",
            ));
        }
        let roots = match &access.trusted {
            None => RootCerts::WebPki,
            Some(pem) => {
                let read = ureq::tls::parse_pem(pem).filter_map(|item| match item {
                    Ok(ureq::tls::PemItem::Certificate(certificate)) => Some(certificate),
                    _ => None,
                });
                let read: Vec<Certificate<'static>> = read.collect();
                if read.is_empty() {
                    return Err(bad("there is no certificate in the file of ESKER_CA"));
                }
                RootCerts::new_with_certs(&read)
            }
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = TlsConfig::builder()
            .unversioned_rustls_crypto_provider(provider)
            .root_certs(roots)
            .build();
        let silence = match access.silence {
            Some(silence) => Silence::Given(silence),
            None => Silence::Queries(Arc::new(QUERY_SECONDS.into())),
        };
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .timeout_connect(Some(CONNECTING))
            .timeout_per_read(Some(silence.longest()))
            .timeout_per_write(Some(silence.longest()))
            .max_idle_connections(IDLE_CONNECTIONS)
            .max_idle_connections_per_host(IDLE_CONNECTIONS)
            .tls_config(tls)
            .build();
        let authorization = access.token.as_ref().map(|token| format!("Bearer {token}"));
        Ok(Client {
            agent: agent.into(),
            base: base.into(),
            authorization: authorization.map(Into::into),
            silence,
        })
    }

    /// The address.
    pub fn address(&self) -> &str {
        &self.base
    }

    /// Sends a request; waits and sends it again if the server is busy, which it says before it
    /// does anything.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if there is no answer; the error of a problem.
    pub(crate) fn send(&self, ask: &Ask<'_>) -> Result<Response<Body>> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            let mut response = match self.run(ask) {
                // The server had closed the connection, which was kept from an earlier request.
                Err(error) if ask.is_read && attempt == 1 && is_closed(&error) => continue,
                Err(ureq::Error::Timeout(Timeout::PerRead | Timeout::PerWrite)) => {
                    return Err(self.silent(ask.is_read));
                }
                run => {
                    run.map_err(|error| Error::Unavailable(format!("{}: {error}", self.base)))?
                }
            };
            self.silence.learn(&response);
            let status = response.status();
            if status.is_success() {
                return Ok(response);
            }
            let is_busy = [
                StatusCode::SERVICE_UNAVAILABLE,
                StatusCode::TOO_MANY_REQUESTS,
            ];
            let pause = response.headers().get(header::RETRY_AFTER);
            let pause = pause.and_then(|value| value.to_str().ok()?.parse().ok());
            match pause {
                Some(seconds) if is_busy.contains(&status) && attempt < ATTEMPTS => {
                    let pause = Duration::from_secs(seconds).min(LONGEST_PAUSE);
                    std::thread::sleep(pause);
                }
                _ => return Err(self.failed(status, &mut response, ask.key_type)),
            }
        }
    }

    fn run(&self, ask: &Ask<'_>) -> std::result::Result<Response<Body>, ureq::Error> {
        let uri = format!("{}{}", self.base, ask.path);
        let mut request = Request::builder().method(ask.method.clone()).uri(uri);
        if let Some(authorization) = &self.authorization {
            request = request.header(header::AUTHORIZATION, &**authorization);
        }
        if let Some(of) = ask.content_type {
            request = request.header(header::CONTENT_TYPE, of);
        }
        match ask.body {
            Some(body) => self.run_with(request.body(body)?),
            None => self.run_with(request.body(())?),
        }
    }

    fn run_with<B: AsSendBody>(
        &self,
        request: Request<B>,
    ) -> std::result::Result<Response<Body>, ureq::Error> {
        let silence = Some(self.silence.longest());
        if self.agent.config().timeout_per_read() == silence {
            return self.agent.run(request);
        }
        let request = self.agent.configure_request(request);
        let request = request
            .timeout_per_read(silence)
            .timeout_per_write(silence)
            .build();
        self.agent.run(request)
    }

    /// The error for a server that says nothing.
    fn silent(&self, is_read: bool) -> Error {
        let silence = self.silence.longest();
        let outcome = if is_read {
            ""
        } else {
            "; whether it has done what was asked is not known"
        };
        Error::Unavailable(format!(
            "{}: the server does not answer (nothing came for {silence:?}){outcome}",
            self.base
        ))
    }

    /// The error of an answer.
    fn failed(
        &self,
        status: StatusCode,
        response: &mut Response<Body>,
        key_type: Option<KeyType>,
    ) -> Error {
        let read = self.document::<Problem>(response);
        match read {
            Ok(problem) if !problem.kind.is_empty() => problem.error(key_type),
            _ => Error::Unavailable(format!(
                "{}: answers with {status}, and not as a server of Esker",
                self.base
            )),
        }
    }

    fn document<T: DeserializeOwned>(&self, response: &mut Response<Body>) -> Result<T> {
        let mut bytes = Vec::new();
        let reader = response.body_mut().as_reader();
        let read = reader.take(MOST_BYTES).read_to_end(&mut bytes);
        read.map_err(|error| self.unread(&error))?;
        serde_json::from_slice(&bytes).map_err(|error| {
            Error::Unavailable(format!(
                "{}: the answer is not that of a server of this version: {error}",
                self.base
            ))
        })
    }

    /// The error for an answer that cannot be read to its end.
    pub(crate) fn unread(&self, error: &std::io::Error) -> Error {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
        match inner {
            Some(ureq::Error::Timeout(_)) => self.silent(true),
            _ => self.broke_off(error),
        }
    }

    /// The error for an answer that ended too early.
    pub(crate) fn broke_off(&self, why: &dyn std::fmt::Display) -> Error {
        Error::Unavailable(format!("{}: the answer broke off: {why}", self.base))
    }

    /// Sends a request and reads the document that answers it.
    ///
    /// # Errors
    /// As [`Client::send`].
    pub(crate) fn ask<T: DeserializeOwned>(&self, ask: &Ask<'_>) -> Result<T> {
        let mut response = self.send(ask)?;
        self.document(&mut response)
    }

    /// Sends a request whose answer has nothing that is needed. Returns its status.
    ///
    /// # Errors
    /// As [`Client::send`].
    pub(crate) fn done(&self, ask: &Ask<'_>) -> Result<StatusCode> {
        let mut response = self.send(ask)?;
        let status = response.status();
        // A connection is used again once its answer was read.
        let mut rest = response.body_mut().as_reader().take(MOST_BYTES);
        std::io::copy(&mut rest, &mut std::io::sink()).map_err(|error| self.unread(&error))?;
        Ok(status)
    }

    /// A document of the server: the answer to `GET path`.
    ///
    /// # Errors
    /// [`Error::Unavailable`]; the error of a problem.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        self.ask(&Ask::new(Method::GET, path))
    }

    /// Sends a document, and reads the one that answers it.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn post<T: DeserializeOwned>(&self, path: &str, document: &impl Serialize) -> Result<T> {
        let body = json(document)?;
        self.ask(&Ask::new(Method::POST, path).json(&body))
    }

    /// Sends a document with `PUT`; true if something was created.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn put(&self, path: &str, document: &impl Serialize) -> Result<bool> {
        let body = json(document)?;
        let status = self.done(&Ask::new(Method::PUT, path).json(&body))?;
        Ok(status == StatusCode::CREATED)
    }

    /// Sends a document with `POST`; the answer is not read.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn tell(&self, path: &str, document: &impl Serialize) -> Result<()> {
        let body = json(document)?;
        self.done(&Ask::new(Method::POST, path).json(&body))
            .map(drop)
    }

    /// Deletes what is at a path.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn delete(&self, path: &str) -> Result<()> {
        self.done(&Ask::new(Method::DELETE, path)).map(drop)
    }
}

/// True if the connection was closed before there was an answer.
fn is_closed(error: &ureq::Error) -> bool {
    use std::io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    let kinds = [
        UnexpectedEof,
        ConnectionReset,
        ConnectionAborted,
        BrokenPipe,
    ];
    matches!(error, ureq::Error::Io(error) if kinds.contains(&error.kind()))
}

/// A document as JSON.
pub(crate) fn json(document: &impl Serialize) -> Result<Vec<u8>> {
    let json = serde_json::to_vec(document);
    json.map_err(|error| Error::BadInput(format!("it cannot be sent: {error}")))
}

/// A request.
pub(crate) struct Ask<'a> {
    method: Method,
    path: &'a str,
    content_type: Option<&'static str>,
    body: Option<&'a [u8]>,
    /// The type of the keys that an error may name.
    key_type: Option<KeyType>,
    /// It changes nothing, so that it can be sent again.
    is_read: bool,
}

impl<'a> Ask<'a> {
    pub(crate) fn new(method: Method, path: &'a str) -> Ask<'a> {
        Ask {
            is_read: method == Method::GET,
            method,
            path,
            content_type: None,
            body: None,
            key_type: None,
        }
    }

    /// A request that changes nothing.
    pub(crate) fn reading(self) -> Ask<'a> {
        Ask {
            is_read: true,
            ..self
        }
    }

    pub(crate) fn json(self, body: &'a [u8]) -> Ask<'a> {
        self.with(OF_JSON, body)
    }

    pub(crate) fn with(self, content_type: &'static str, body: &'a [u8]) -> Ask<'a> {
        Ask {
            content_type: Some(content_type),
            body: Some(body),
            ..self
        }
    }

    pub(crate) fn of_keys(self, key_type: KeyType) -> Ask<'a> {
        let key_type = Some(key_type);
        Ask { key_type, ..self }
    }
}

/// Text as one segment of a path.
pub fn segment(text: &str) -> String {
    use std::fmt::Write;
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'~' => out.push(byte as char),
            // A segment of dots alone would be removed.
            b'.' if !text.trim_matches('.').is_empty() => out.push('.'),
            _ => {
                // Writing to a string cannot fail.
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    out
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_host_and_no_path() {
        let connect = |address: &str| Client::connect(address, &Access::default());
        let client = connect("http://localhost:7700/").unwrap();
        assert_eq!(client.address(), "http://localhost:7700");
        for wrong in ["http://", "ftp://x", "http://x/y", "http://u@x", "x"] {
            assert!(connect(wrong).is_err(), "{wrong}");
        }
        let access = Access {
            trusted: Some(b"nothing".to_vec()),
            ..Access::default()
        };
        assert!(Client::connect("https://x", &access).is_err());
    }

    /// A server that reads a request, sends this and then nothing, to as many clients as come.
    fn silent(sends: &'static [u8]) -> String {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            let mut open = Vec::new();
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let _ = stream.read(&mut [0; 4096]);
                std::io::Write::write_all(&mut stream, sends).unwrap();
                open.push(stream);
            }
        });
        address
    }

    #[test]
    fn a_server_that_says_nothing_is_not_waited_for_without_end() {
        let access = Access {
            silence: Some(Duration::from_millis(100)),
            ..Access::default()
        };
        for sends in [
            &b""[..],
            b"HTTP/1.1 200 OK\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{",
        ] {
            let client = Client::connect(&silent(sends), &access).unwrap();
            let error = client.get::<serde_json::Value>("/v1/stat").unwrap_err();
            assert_eq!(error.kind(), esker::ErrorKind::Unavailable);
            let text = error.to_string();
            assert!(
                text.ends_with("does not answer (nothing came for 100ms)"),
                "{text}"
            );
        }
        // A disk may have stalled under a commit.
        let client = Client::connect(&silent(b""), &access).unwrap();
        let error = client.delete("/v1/datasets/d/records/1").unwrap_err();
        let text = error.to_string();
        assert!(
            text.ends_with("whether it has done what was asked is not known"),
            "{text}"
        );
    }

    #[test]
    fn a_server_with_longer_queries_is_waited_for_longer() {
        let client = Client::connect("http://localhost", &Access::default()).unwrap();
        assert_eq!(client.silence.longest(), Duration::from_secs(150));
        let answer = |seconds: &str| {
            let response = Response::builder().header(QUERY_TIME, seconds);
            response.body(Body::builder().data("")).unwrap()
        };
        client.silence.learn(&answer("600"));
        assert_eq!(client.silence.longest(), Duration::from_secs(1230));
        for odd in ["", "x", "-1"] {
            client.silence.learn(&answer(odd));
        }
        client.silence.learn(&answer(&u64::MAX.to_string()));
        assert_eq!(client.silence.longest(), of_queries(LONGEST_QUERY));
    }

    #[test]
    fn any_text_is_one_segment() {
        assert_eq!(segment("a/b c.d"), "a%2Fb%20c.d");
        assert_eq!(segment(".."), "%2E%2E");
        assert_eq!(segment("\u{e9}"), "%C3%A9");
    }
}

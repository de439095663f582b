//! Who a node is, whom it trusts, and where it may listen without TLS.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use esker_fs::Fs;
use esker_fs::disk::Disk;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use super::error::Error;
use super::name::name;

/// The most bytes that are read of a file of keys or certificates.
const MOST_PEM: u64 = 4 << 20;

/// A node's or client's own certificate, and the issuers that it trusts.
pub struct Identity {
    /// The certificate, and behind it those that lead to a root of the other side.
    pub certificate: Vec<CertificateDer<'static>>,
    /// The private key of the first certificate.
    pub key: PrivateKeyDer<'static>,
    /// The issuers that the other side's certificate must come from.
    pub roots: RootCertStore,
}

/// The two roles of an identity in TLS.
pub struct Roles {
    /// For connecting.
    pub(super) client: Arc<ClientConfig>,
    /// For accepting.
    pub(super) server: Arc<ServerConfig>,
    /// The name in its certificate.
    name: Option<String>,
}

/// How connections are protected.
#[derive(Clone)]
pub enum Security {
    /// Not at all: on loopback only.
    Plain,
    /// By TLS 1.3, and both sides show a certificate. The side that connects also checks that the
    /// certificate is for the host (name or IP address) that it connects to.
    Tls(Arc<Roles>),
}

impl std::fmt::Debug for Security {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Security::Plain => "Plain",
            Security::Tls(_) => "Tls",
        })
    }
}

impl Security {
    /// Reads PEM files: the certificate (with intermediate ones behind it), its key, and the
    /// certificates of trusted issuers. Fails where a file cannot be read, lacks what it should
    /// have, or where the key is not the certificate's.
    pub fn load(cert: &Path, key: &Path, ca: &Path) -> Result<Security, Error> {
        Security::load_from(&Disk::new(), cert, key, ca)
    }

    /// As [`Security::load`], from files of `fs`.
    pub fn load_from(fs: &dyn Fs, cert: &Path, key: &Path, ca: &Path) -> Result<Security, Error> {
        let mut roots = RootCertStore::empty();
        for issuer in certificates(fs, ca)? {
            let added = roots.add(issuer);
            added.map_err(|error| pem(ca, error))?;
        }
        let text = read(fs, key)?;
        Security::new(Identity {
            certificate: certificates(fs, cert)?,
            key: PrivateKeyDer::from_pem_slice(&text).map_err(|error| pem(key, error))?,
            roots,
        })
    }

    /// TLS with this identity. Fails where its parts do not go together.
    pub fn new(identity: Identity) -> Result<Security, Error> {
        let name = identity.certificate.first().and_then(name);
        let provider = Arc::new(ring::default_provider());
        let versions = &[&rustls::version::TLS13];
        let roots = Arc::new(identity.roots);
        let refused = |reason: &dyn std::fmt::Display| Error::Identity(reason.to_string());

        let clients = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone())
            .build()
            .map_err(|error| refused(&error))?;
        let mut server = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(versions)
            .map_err(|error| refused(&error))?
            .with_client_cert_verifier(clients)
            .with_single_cert(identity.certificate.clone(), identity.key.clone_key())
            .map_err(|error| refused(&error))?;
        // Each connection verifies the certificate anew: a resumed one would outlive its expiry.
        server.send_tls13_tickets = 0;
        server.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});

        let mut client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .map_err(|error| refused(&error))?
            .with_root_certificates(roots)
            .with_client_auth_cert(identity.certificate, identity.key)
            .map_err(|error| refused(&error))?;
        client.resumption = rustls::client::Resumption::disabled();
        Ok(Security::Tls(Arc::new(Roles {
            client: Arc::new(client),
            server: Arc::new(server),
            name,
        })))
    }

    /// Fails where TLS is used and this end's certificate has another name.
    pub fn check_name(&self, wanted: &str) -> Result<(), Error> {
        let Security::Tls(roles) = self else {
            return Ok(());
        };
        match &roles.name {
            Some(name) if name == wanted => Ok(()),
            name => Err(Error::OtherName {
                wanted: wanted.to_string(),
                found: name.clone(),
            }),
        }
    }
}

/// Refuses to listen without TLS beyond loopback.
pub fn check_listen(address: SocketAddr, security: &Security) -> Result<(), Error> {
    let is_local = address.ip().to_canonical().is_loopback();
    match security {
        Security::Plain if !is_local => Err(Error::NotLoopback(address)),
        _ => Ok(()),
    }
}

/// The certificates in a PEM file, at least one.
fn certificates(fs: &dyn Fs, path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let text = read(fs, path)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let all = all.map_err(|error| pem(path, error))?;
    if all.is_empty() {
        return Err(pem(path, "no certificate is in it"));
    }
    Ok(all)
}

/// The bytes of a small file.
fn read(fs: &dyn Fs, path: &Path) -> Result<Vec<u8>, Error> {
    let failed = |source: io::Error| Error::File {
        path: path.to_path_buf(),
        source,
    };
    let file = fs.open(path).map_err(failed)?;
    let length = file.len().map_err(failed)?;
    if length > MOST_PEM {
        return Err(pem(path, format!("{length} bytes are too long")));
    }
    let mut text = vec![0; usize::try_from(length).unwrap_or(0)];
    file.read_at(0, &mut text).map_err(failed)?;
    Ok(text)
}

fn pem(path: &Path, reason: impl std::fmt::Display) -> Error {
    Error::Pem {
        path: path.to_path_buf(),
        reason: reason.to_string(),
    }
}

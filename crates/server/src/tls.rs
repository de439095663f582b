//! TLS: a certificate and its key, which are read again when their files change.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use crate::config::Tls;

/// The certificate of a server.
pub(crate) struct Certificate {
    settings: Tls,
    protocols: Vec<Vec<u8>>,
    /// What new connections get.
    current: Mutex<Current>,
}

struct Current {
    acceptor: TlsAcceptor,
    /// When its files were changed.
    changed: [Option<SystemTime>; 2],
}

impl Certificate {
    /// Reads a certificate and its key. `protocols` are offered to clients (ALPN).
    ///
    /// # Errors
    /// A sentence with the file.
    pub(crate) fn read(settings: &Tls, protocols: &[&str]) -> Result<Certificate, String> {
        let protocols: Vec<Vec<u8>> = protocols
            .iter()
            .map(|one| one.as_bytes().to_vec())
            .collect();
        let changed = changed(settings);
        let acceptor = acceptor(settings, &protocols)?;
        Ok(Certificate {
            settings: settings.clone(),
            protocols,
            current: Mutex::new(Current { acceptor, changed }),
        })
    }

    /// Accepts connections with the newest certificate.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        self.current.lock().acceptor.clone()
    }

    /// Reads the files again if they have changed. A certificate that is not valid is not used: the
    /// one before stays. Reads files: must not be called on the event loop.
    pub(crate) fn refresh(&self) {
        let now = changed(&self.settings);
        if self.current.lock().changed == now {
            return;
        }
        match acceptor(&self.settings, &self.protocols) {
            Ok(acceptor) => {
                let mut current = self.current.lock();
                current.acceptor = acceptor;
                current.changed = now;
                tracing::info!("the certificate was read again");
            }
            // Perhaps the key is not written yet.
            Err(why) => tracing::warn!("the certificate before stays: {why}"),
        }
    }
}

fn changed(settings: &Tls) -> [Option<SystemTime>; 2] {
    let of = |path: &Path| std::fs::metadata(path).ok()?.modified().ok();
    [of(&settings.certificate), of(&settings.key)]
}

fn acceptor(settings: &Tls, protocols: &[Vec<u8>]) -> Result<TlsAcceptor, String> {
    let of = |path: &Path, why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
    let certificates = CertificateDer::pem_file_iter(&settings.certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| of(&settings.certificate, &error))?;
    let key =
        PrivateKeyDer::from_pem_file(&settings.key).map_err(|error| of(&settings.key, &error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_no_client_auth()
        .with_single_cert(certificates, key);
    let mut config = config.map_err(|error| of(&settings.certificate, &error))?;
    config.alpn_protocols = protocols.to_vec();
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// The error of a connection that is not TLS, for logs.
pub(crate) fn is_usual(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::InvalidData
    )
}

//! TLS, users and their rights, and the parameters of an address, on a node that asks for them.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use esker_cluster::cells::Cassandra;
use esker_cluster::{Error, Options, Result, Store, cassandra_address};
use scylla::client::session_builder::SessionBuilder;

use crate::clients::{definition, json, key};
use crate::nodes::host;

/// The first user of a new cluster.
const FIRST: &str = "cassandra";

/// Connects as a user, with parameters.
fn store(user: &str, parameters: &str, creates: bool) -> Result<Store> {
    let secret = tempfile::NamedTempFile::new().unwrap();
    // A line end behind the password is no part of it.
    std::fs::write(secret.path(), format!("{user}\n")).unwrap();
    let path = secret.path().display();
    let host = host(1);
    let address = format!("//{host}/secure?user={user}&password-file={path}{parameters}");
    let cells = Cassandra::connect(&cassandra_address(&address)?, creates)?;
    Store::open(Arc::new(cells), creates, Options::default())
}

/// The error of a connection; it is not waited for long.
fn refused(result: Result<Store>, text: &str) {
    let error = result.unwrap_err();
    assert!(error.to_string().contains(text), "{error}");
}

pub(crate) fn all(folder: &Path) {
    let ca = format!("&ca={}", folder.join("run/ca.pem").display());
    let begun = Instant::now();
    let created = store(
        FIRST,
        &format!("{ca}&dc=datacenter1&replicas=1&consistency=local_quorum"),
        true,
    );
    let dataset = created.unwrap().create_dataset("d", &definition()).unwrap();
    let mut batch = dataset.batch();
    batch
        .put_json(json(1, &("s".to_string(), 7)).as_bytes())
        .unwrap();
    batch.commit().unwrap();
    assert!(dataset.get(&key(1)).unwrap().is_some());
    eprintln!("a record by TLS after {:?}", begun.elapsed());

    // What will never succeed is said at once.
    let begun = Instant::now();
    refused(store("nobody", &ca, false), "refuses this user");
    refused(
        store(FIRST, &format!("{ca}&dc=nowhere"), false),
        "no node in the data centre `nowhere`",
    );
    assert!(
        begun.elapsed() < Duration::from_secs(20),
        "{:?}",
        begun.elapsed()
    );
    refused(store(FIRST, "", false), "no node of");
    let other = folder.join("run/other.pem");
    std::fs::write(&other, OTHER).unwrap();
    refused(
        store(FIRST, &format!("&ca={}", other.display()), false),
        "certificate",
    );

    roles(&ca, folder);
}

/// What a user may do who only reads.
fn roles(ca: &str, folder: &Path) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let tls = client(&folder.join("run/ca.pem"));
    runtime.block_on(async {
        let builder = SessionBuilder::new().known_node(format!("{}:9042", host(1)));
        let builder = builder.user(FIRST, FIRST).tls_context(Some(tls));
        let session = builder.build().await.unwrap();
        for text in [
            "CREATE ROLE reader WITH PASSWORD = 'reader' AND LOGIN = true",
            "GRANT SELECT ON KEYSPACE secure TO reader",
            "CREATE ROLE writer WITH PASSWORD = 'writer' AND LOGIN = true",
            "GRANT SELECT ON KEYSPACE secure TO writer",
            "GRANT MODIFY ON KEYSPACE secure TO writer",
            "GRANT CREATE ON KEYSPACE secure TO writer",
            "GRANT DROP ON KEYSPACE secure TO writer",
            "CREATE ROLE other WITH PASSWORD = 'other' AND LOGIN = true",
        ] {
            session.query_unpaged(text, &[]).await.unwrap();
        }
    });
    // Rights are looked up again after a while.
    std::thread::sleep(Duration::from_secs(3));
    let reader = store("reader", ca, false).unwrap().dataset("d").unwrap();
    assert!(reader.get(&key(1)).unwrap().is_some());
    let mut batch = reader.batch();
    batch
        .put_json(json(2, &("s".to_string(), 7)).as_bytes())
        .unwrap();
    let error = batch.commit().unwrap_err();
    assert!(matches!(error, Error::BadInput(_)), "{error}");
    assert!(error.to_string().contains("refuses this user"), "{error}");
    // The rights that the documentation asks for suffice.
    let writer = store("writer", ca, true).unwrap();
    let dataset = writer.create_dataset("e", &definition()).unwrap();
    let mut batch = dataset.batch();
    batch
        .put_json(json(3, &("s".to_string(), 7)).as_bytes())
        .unwrap();
    batch.commit().unwrap();
    writer.drop_dataset("e").unwrap();
    let other = store("other", ca, false);
    assert!(matches!(other, Err(Error::BadInput(_))), "{other:?}");
}

fn client(authorities: &Path) -> Arc<rustls::ClientConfig> {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(authorities).unwrap() {
        roots.add(certificate.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions().unwrap();
    Arc::new(config.with_root_certificates(roots).with_no_client_auth())
}

/// A certificate that has signed nothing here.
const OTHER: &str = include_str!("other.pem");

//! Addresses of clusters.

use std::path::PathBuf;

use crate::cells::Settings;
use crate::error::{Error, Result};

/// The environment variable with the password of the user in an address.
const PASSWORD: &str = "ESKER_PASSWORD";

const FORM: &str = "an address is cassandra://HOST[:PORT][,HOST...]/KEYSPACE, with ?user=NAME, password-file=FILE, ca=FILE, dc=NAME, replicas=N or consistency=local_quorum joined by &";

/// Reads what follows `cassandra:` in an address:
/// `//HOST[:PORT][,HOST...]/KEYSPACE[?NAME=VALUE&...]`.
///
/// | name | |
/// | --- | --- |
/// | `user` | the user's name; the password is in `password-file`, or in `ESKER_PASSWORD` |
/// | `ca` | a file of certificates (PEM) that the nodes' certificates are checked against, by TLS |
/// | `dc` | the data centre whose nodes are asked |
/// | `consistency` | `quorum` (of all replicas), or `local_quorum` (of those in the data centre) |
/// | `replicas` | the copies of each row, where the keyspace is made |
///
/// ```
/// let settings = esker_cluster::cassandra_address("//db1,db2:9043/shop?dc=west&replicas=3")?;
/// assert_eq!(settings.hosts, ["db1:9042", "db2:9043"]);
/// assert_eq!(settings.keyspace, "shop");
/// # Ok::<(), esker_cluster::Error>(())
/// ```
///
/// # Errors
/// [`Error::BadInput`] for another text, or a password file that cannot be read.
pub fn cassandra_address(text: &str) -> Result<Settings> {
    let bad = |what: String| Error::BadInput(format!("{what}; {FORM}"));
    let rest = text
        .strip_prefix("//")
        .ok_or_else(|| bad("`//` is missing".to_string()))?;
    let (place, parameters) = rest.split_once('?').unwrap_or((rest, ""));
    let (hosts, keyspace) = place
        .split_once('/')
        .ok_or_else(|| bad("the keyspace is missing".to_string()))?;
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let begins = keyspace.starts_with(|c: char| c.is_ascii_lowercase());
    if !begins || keyspace.len() > 48 || !keyspace.chars().all(is_name) {
        return Err(bad(format!(
            "keyspace `{keyspace}`: 1 to 48 lower-case letters, digits and `_` are allowed, the first a letter"
        )));
    }
    if hosts.contains('@') {
        let what = "a user and a password are not part of the host";
        return Err(bad(what.to_string()));
    }
    let hosts: Vec<String> = hosts.split(',').map(|host| with_port(host, 9042)).collect();
    if hosts.iter().any(|host| host.starts_with(':')) {
        return Err(bad("a host is missing".to_string()));
    }
    let mut settings = Settings {
        hosts,
        keyspace: keyspace.to_string(),
        user: None,
        data_centre: None,
        replicas: None,
        is_local: false,
        authorities: None,
    };
    let (mut user, mut password) = (None, None);
    for parameter in parameters.split('&').filter(|text| !text.is_empty()) {
        let (name, value) = parameter
            .split_once('=')
            .ok_or_else(|| bad(format!("`{parameter}` has no value")))?;
        match name {
            "user" => user = Some(value.to_string()),
            "password-file" => password = Some(password_in(value)?),
            "ca" => settings.authorities = Some(PathBuf::from(value)),
            "dc" => settings.data_centre = Some(value.to_string()),
            "replicas" => {
                let count = value.parse().ok().filter(|count| *count > 0);
                let count = count.ok_or_else(|| bad(format!("`{value}` is not a number")))?;
                settings.replicas = Some(count);
            }
            "consistency" => {
                settings.is_local = match value {
                    "quorum" => false,
                    "local_quorum" => true,
                    other => {
                        return Err(bad(format!(
                            "consistency `{other}`: a write must be seen by all later reads, so it is `quorum` or `local_quorum`"
                        )));
                    }
                }
            }
            other => return Err(bad(format!("`{other}` is not a parameter"))),
        }
    }
    if let Some(user) = user {
        let given = password.or_else(|| std::env::var(PASSWORD).ok());
        let Some(password) = given else {
            let what = format!("the password of `{user}` is missing: give a file, or {PASSWORD}");
            return Err(bad(what));
        };
        settings.user = Some((user, password));
    }
    Ok(settings)
}

/// A host with its port, or with the usual one.
pub(crate) fn with_port(host: &str, usual: u16) -> String {
    let is_port = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_digit());
    match host.rsplit_once(':') {
        // An address of version 6 is in brackets.
        Some((before, port))
            if is_port(port) && (before.ends_with(']') || !before.contains(':')) =>
        {
            host.to_string()
        }
        _ => format!("{host}:{usual}"),
    }
}

fn password_in(path: &str) -> Result<String> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Error::BadInput(format!("{path}: {error}")))?;
    Ok(text.trim_end_matches(['\r', '\n']).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_said() {
        for (text, what) in [
            ("db/ks", "`//` is missing"),
            ("//db", "keyspace is missing"),
            ("//db/Ks", "keyspace `Ks`"),
            ("///ks", "a host is missing"),
            ("//ann:secret@db/ks", "not part of the host"),
            ("//db/ks?consistency=one", "consistency `one`"),
            ("//db/ks?colour=red", "`colour` is not a parameter"),
            ("//db/ks?replicas=0", "`0` is not a number"),
            (
                "//db/ks?password-file=/no/such/file&user=a",
                "/no/such/file",
            ),
        ] {
            let error = cassandra_address(text).unwrap_err().to_string();
            assert!(error.contains(what), "{text}: {error}");
        }
    }

    #[test]
    fn parameters_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("password");
        std::fs::write(&file, "a secret & more\n").unwrap();
        let text = format!(
            "//db/shop?user=ann&password-file={}&ca=/etc/ca.pem&dc=west&replicas=5&consistency=local_quorum",
            file.display()
        );
        let user = ("ann".to_string(), "a secret & more".to_string());
        let expected = Settings {
            hosts: vec!["db:9042".to_string()],
            keyspace: "shop".to_string(),
            user: Some(user),
            data_centre: Some("west".to_string()),
            replicas: Some(5),
            is_local: true,
            authorities: Some(PathBuf::from("/etc/ca.pem")),
        };
        assert_eq!(cassandra_address(&text), Ok(expected));
        let plain = cassandra_address("//db/shop?consistency=quorum").unwrap();
        let parts = (plain.user, plain.data_centre, plain.replicas);
        assert_eq!(parts, (None, None, None));
        assert!(!plain.is_local && plain.authorities.is_none());
        // A password without a user is not sent; a user without a password is refused.
        let unused = format!("//db/shop?password-file={}", file.display());
        assert_eq!(cassandra_address(&unused).unwrap().user, None);
        if std::env::var(PASSWORD).is_err() {
            let missing = cassandra_address("//db/shop?user=ann").unwrap_err();
            assert!(missing.to_string().contains("the password of `ann`"));
        }
    }

    #[test]
    fn hosts_have_ports() {
        let hosts = cassandra_address("//a,b:1,[::1]:7,[::1]/k").unwrap().hosts;
        assert_eq!(hosts, ["a:9042", "b:1", "[::1]:7", "[::1]:9042"]);
    }
}

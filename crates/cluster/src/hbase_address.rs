//! Addresses of HBase clusters.

use std::path::PathBuf;

use crate::address::with_port;
use crate::cells::{Coprocessor, HBaseSettings};
use crate::error::{Error, Result};

const FORM: &str = "an address is hbase://HOST[:PORT][,HOST...]/NAMESPACE, with ?ca=FILE, regions=N or coprocessor=JAR joined by &";
const USUAL_PORT: u16 = 9090;
/// The regions of a table that is made.
const USUAL_REGIONS: u8 = 4;

/// Reads what follows `hbase:` in an address: `//HOST[:PORT][,HOST...]/NAMESPACE[?NAME=VALUE&...]`.
/// The hosts are Thrift gateways.
///
/// | name | |
/// | --- | --- |
/// | `ca` | a file of certificates (PEM) that the gateways' are checked against, by TLS |
/// | `regions` | the regions of a table that is made, 1 to 128 |
/// | `coprocessor` | for tables of records that are made: the place of its jar, or `installed` |
///
/// ```
/// let settings = esker_cluster::hbase_address("//gate1,gate2:9091/shop?regions=8")?;
/// assert_eq!(settings.hosts, ["gate1:9090", "gate2:9091"]);
/// assert_eq!(settings.namespace, "shop");
/// # Ok::<(), esker_cluster::Error>(())
/// ```
///
/// # Errors
/// [`Error::BadInput`] for another text.
pub fn hbase_address(text: &str) -> Result<HBaseSettings> {
    let bad = |what: String| Error::BadInput(format!("{what}; {FORM}"));
    let rest = text
        .strip_prefix("//")
        .ok_or_else(|| bad("`//` is missing".to_string()))?;
    let (place, parameters) = rest.split_once('?').unwrap_or((rest, ""));
    let (hosts, namespace) = place
        .split_once('/')
        .ok_or_else(|| bad("the namespace is missing".to_string()))?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if namespace.is_empty() || namespace.len() > 48 || !namespace.chars().all(is_name) {
        return Err(bad(format!(
            "namespace `{namespace}`: 1 to 48 letters, digits and `_` are allowed"
        )));
    }
    if hosts.contains('@') {
        let what = "a gateway takes no user and password: it has its own";
        return Err(bad(what.to_string()));
    }
    let hosts: Vec<String> = hosts
        .split(',')
        .map(|host| with_port(host, USUAL_PORT))
        .collect();
    if hosts.iter().any(|host| host.starts_with(':')) {
        return Err(bad("a host is missing".to_string()));
    }
    let mut settings = HBaseSettings {
        hosts,
        namespace: namespace.to_string(),
        authorities: None,
        regions: USUAL_REGIONS,
        coprocessor: None,
    };
    for parameter in parameters.split('&').filter(|text| !text.is_empty()) {
        let (name, value) = parameter
            .split_once('=')
            .ok_or_else(|| bad(format!("`{parameter}` has no value")))?;
        match name {
            "ca" => settings.authorities = Some(PathBuf::from(value)),
            "regions" => {
                let count = value.parse().ok().filter(|count| (1..=128).contains(count));
                let count = count.ok_or_else(|| bad(format!("`{value}` is not 1 to 128")))?;
                settings.regions = count;
            }
            "coprocessor" if value == "installed" => {
                settings.coprocessor = Some(Coprocessor::Installed);
            }
            // HBase divides its own description of a coprocessor by these.
            "coprocessor" if value.is_empty() || value.contains('|') => {
                return Err(bad(format!("`{value}` is not the place of a jar")));
            }
            "coprocessor" => settings.coprocessor = Some(Coprocessor::Jar(value.to_string())),
            "user" | "password-file" => {
                let what =
                    format!("`{name}`: a gateway takes no user and password: it has its own");
                return Err(bad(what));
            }
            other => return Err(bad(format!("`{other}` is not a parameter"))),
        }
    }
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_said() {
        for (text, what) in [
            ("db/ns", "`//` is missing"),
            ("//db", "namespace is missing"),
            ("//db/a-b", "namespace `a-b`"),
            ("//db/", "namespace ``"),
            ("///ns", "a host is missing"),
            ("//ann:secret@db/ns", "no user and password"),
            ("//db/ns?user=ann", "no user and password"),
            ("//db/ns?regions=0", "`0` is not 1 to 128"),
            ("//db/ns?regions=many", "`many` is not 1 to 128"),
            ("//db/ns?coprocessor=", "not the place of a jar"),
            ("//db/ns?colour=red", "`colour` is not a parameter"),
        ] {
            let error = hbase_address(text).unwrap_err().to_string();
            assert!(error.contains(what), "{text}: {error}");
        }
    }

    #[test]
    fn parameters_are_read() {
        let settings =
            hbase_address("//[::1]/Shop?coprocessor=hdfs:///esker.jar&ca=a.pem").unwrap();
        assert_eq!(settings.hosts, ["[::1]:9090"]);
        let jar = Coprocessor::Jar("hdfs:///esker.jar".to_string());
        assert_eq!(settings.coprocessor, Some(jar));
        assert_eq!(settings.authorities, Some("a.pem".into()));
        let settings = hbase_address("//a/b?coprocessor=installed").unwrap();
        assert_eq!(settings.coprocessor, Some(Coprocessor::Installed));
    }
}

//! The connection: settings, keyspace, prepared statements.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use scylla::client::execution_profile::ExecutionProfile;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::statement::prepared::PreparedStatement;
use scylla::statement::{Consistency, SerialConsistency};
use scylla::value::CqlValue;
use tokio::runtime::Runtime;

use super::errors::{failed, may_pass, not_prepared, refused, unexpected};
use super::statements::Statement;
use crate::error::{Error, Result};

/// How long a request is sent again while too few nodes are alive.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// After this time a node whose news differ from those of the others is taken to be down.
const SETTLES: Duration = Duration::from_secs(5);
/// How long one attempt may take.
const ATTEMPT: Duration = Duration::from_secs(8);

/// Where a cluster is, and how to use it.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Some of its nodes, `HOST:PORT`.
    pub hosts: Vec<String>,
    /// The keyspace.
    pub keyspace: String,
    /// The user's name and password.
    pub user: Option<(String, String)>,
    /// The data centre whose nodes are asked; without one, that of the first host.
    pub data_centre: Option<String>,
    /// The copies of each row in a keyspace that is made; without a number, three, or as many as
    /// there are nodes.
    pub replicas: Option<u32>,
    /// True for a majority of the replicas of the data centre alone, not of all.
    pub is_local: bool,
    /// A file of certificates (PEM) that the nodes' certificates are checked against; TLS is used
    /// if there is one.
    pub authorities: Option<std::path::PathBuf>,
}

/// Prepared statements by table.
type Prepared = HashMap<(Arc<str>, Statement), Arc<PreparedStatement>>;

/// A keyspace of a Cassandra cluster.
pub struct Cassandra {
    pub(super) runtime: Runtime,
    pub(super) session: Session,
    pub(super) keyspace: String,
    pub(super) serial: SerialConsistency,
    prepared: Mutex<Prepared>,
    /// When the keyspace was made, once it is known.
    made: Mutex<Option<i64>>,
}

impl std::fmt::Debug for Cassandra {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cassandra")
            .field("keyspace", &self.keyspace)
            .finish_non_exhaustive()
    }
}

impl Cassandra {
    /// Connects to a cluster; with `create`, makes the keyspace if it does not exist. Waits up to
    /// thirty seconds for a node that answers.
    ///
    /// # Errors
    /// [`Error::NoStore`] without the keyspace; [`Error::Unavailable`]; [`Error::BadInput`] for a
    /// certificate file that cannot be read.
    pub fn connect(settings: &Settings, create: bool) -> Result<Cassandra> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .thread_name("esker-cassandra")
            .build()
            .map_err(|error| Error::Unavailable(format!("cannot start threads: {error}")))?;
        let session = runtime.block_on(session(settings))?;
        let serial = if settings.is_local {
            SerialConsistency::LocalSerial
        } else {
            SerialConsistency::Serial
        };
        let cassandra = Cassandra {
            runtime,
            session,
            keyspace: settings.keyspace.clone(),
            serial,
            prepared: Mutex::new(HashMap::new()),
            made: Mutex::new(None),
        };
        if !cassandra.has_keyspace()? {
            if !create {
                return Err(Error::NoStore(format!(
                    "the cluster has no keyspace `{}`; `esker load` and `esker create` make it",
                    settings.keyspace
                )));
            }
            cassandra.create_keyspace(settings)?;
        }
        Ok(cassandra)
    }

    fn has_keyspace(&self) -> Result<bool> {
        let text = "SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = ?";
        let name = self.keyspace.clone();
        let found = self.patiently(|| self.session.query_unpaged(text, (&name,)))?;
        let rows = found.into_rows_result();
        Ok(rows.is_ok_and(|rows| rows.rows_num() > 0))
    }

    fn create_keyspace(&self, settings: &Settings) -> Result<()> {
        let state = self.session.get_cluster_state();
        let nodes = state.get_nodes_info();
        let is_mine = |of: &Option<String>| match &settings.data_centre {
            Some(wanted) => of.as_ref() == Some(wanted),
            None => true,
        };
        let mut mine = nodes.iter().filter(|node| is_mine(&node.datacenter));
        let first = mine.next();
        let name = first.and_then(|node| node.datacenter.clone());
        let centre = name.unwrap_or_else(|| "datacenter1".to_string());
        let count = 1 + mine
            .filter(|node| node.datacenter.as_deref() == Some(centre.as_str()))
            .count();
        let replicas = settings.replicas.unwrap_or_else(|| count.min(3) as u32);
        let text = format!(
            "CREATE KEYSPACE IF NOT EXISTS {} WITH replication = {{'class': 'NetworkTopologyStrategy', '{}': {replicas}}}",
            self.keyspace,
            centre.replace('\'', "''"),
        );
        self.define(&text)
    }

    /// Runs a statement that changes the schema, and waits until the nodes that are alive agree.
    pub(super) fn define(&self, text: &str) -> Result<()> {
        self.patiently(|| self.session.query_unpaged(text, &[]))?;
        self.agreed()
    }

    /// Waits until the nodes that are alive agree on the schema.
    fn agreed(&self) -> Result<()> {
        let agreed = async {
            for _ in 0..60 {
                if self.session.await_schema_agreement().await.is_ok() {
                    return true;
                }
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
            false
        };
        if self.runtime.block_on(agreed) {
            Ok(())
        } else {
            Err(Error::Unavailable(
                "the nodes do not agree on the schema".to_string(),
            ))
        }
    }

    /// When the keyspace was made, or last altered: the same for all processes that ask while no
    /// other one alters it. Of several that make it at the same moment the last one counts, once
    /// the nodes agree. Any node may answer, also one that has just begun to hear of the keyspace,
    /// so the nodes' own news of each other must agree; of a node that is down they are old.
    pub(super) fn made(&self) -> Result<i64> {
        if let Some(known) = *self.made.lock() {
            return Ok(known);
        }
        let begun = Instant::now();
        loop {
            self.agreed()?;
            let is_settled = self.is_settled()? || begun.elapsed() > SETTLES;
            match self.read_made()? {
                Some(made) if is_settled => {
                    *self.made.lock() = Some(made);
                    return Ok(made);
                }
                None if begun.elapsed() > PATIENCE => {
                    let name = &self.keyspace;
                    let text = format!("the keyspace `{name}` was dropped meanwhile");
                    return Err(Error::Unavailable(text));
                }
                _ => std::thread::sleep(Duration::from_millis(250)),
            }
        }
    }

    /// True if a node has heard of no other version of the schema.
    fn is_settled(&self) -> Result<bool> {
        let mut versions = BTreeSet::new();
        for table in ["local", "peers"] {
            let text = format!("SELECT schema_version FROM system.{table}");
            let found = self.patiently(|| self.session.query_unpaged(text.as_str(), &[]))?;
            let rows = found.into_rows_result().map_err(|e| unexpected(&e))?;
            for row in rows
                .rows::<(Option<CqlValue>,)>()
                .map_err(|e| unexpected(&e))?
            {
                let (version,) = row.map_err(|e| unexpected(&e))?;
                versions.extend(version.map(|version| format!("{version:?}")));
            }
        }
        Ok(versions.len() <= 1)
    }

    fn read_made(&self) -> Result<Option<i64>> {
        let text = "SELECT WRITETIME(durable_writes) FROM system_schema.keyspaces \
                    WHERE keyspace_name = ?";
        let name = self.keyspace.clone();
        let found = self.patiently(|| self.session.query_unpaged(text, (&name,)))?;
        let rows = found.into_rows_result().map_err(|e| unexpected(&e))?;
        let row = rows.maybe_first_row::<(Option<i64>,)>();
        Ok(row.map_err(|e| unexpected(&e))?.and_then(|(made,)| made))
    }

    /// Runs a request again while too few nodes are alive.
    fn patiently<F, T>(&self, mut request: impl FnMut() -> F) -> Result<T>
    where
        F: Future<Output = std::result::Result<T, scylla::errors::ExecutionError>>,
    {
        self.runtime.block_on(async {
            let begun = tokio::time::Instant::now();
            loop {
                let error = match request().await {
                    Ok(found) => return Ok(found),
                    Err(error) => failed(&error),
                };
                if !may_pass(&error) || begun.elapsed() > PATIENCE {
                    return Err(error);
                }
                tokio::time::sleep(Duration::from_millis(250)).await;
            }
        })
    }

    /// A prepared statement of a table.
    pub(super) async fn prepared(
        &self,
        table: &Arc<str>,
        statement: Statement,
    ) -> Result<Arc<PreparedStatement>> {
        let key = (table.clone(), statement);
        if let Some(known) = self.prepared.lock().get(&key) {
            return Ok(known.clone());
        }
        let text = statement.text(&self.keyspace, table);
        let prepared = self.session.prepare(text).await;
        let mut prepared = prepared.map_err(|error| not_prepared(&error))?;
        prepared.set_is_idempotent(statement.is_idempotent());
        prepared.set_serial_consistency(Some(self.serial));
        if statement == Statement::Swapped {
            prepared.set_consistency(match self.serial {
                SerialConsistency::Serial => Consistency::Serial,
                SerialConsistency::LocalSerial => Consistency::LocalSerial,
            });
        }
        let prepared = Arc::new(prepared);
        self.prepared.lock().insert(key, prepared.clone());
        Ok(prepared)
    }

    /// Forgets what was prepared for a table that is dropped.
    pub(super) fn forget(&self, table: &str) {
        self.prepared.lock().retain(|(of, _), _| &**of != table);
    }
}

async fn session(settings: &Settings) -> Result<Session> {
    let consistency = if settings.is_local {
        Consistency::LocalQuorum
    } else {
        Consistency::Quorum
    };
    let profile = ExecutionProfile::builder()
        .consistency(consistency)
        .request_timeout(Some(ATTEMPT))
        .build();
    let tls = match &settings.authorities {
        Some(path) => Some(super::super::tls::client(path)?),
        None => None,
    };
    let mut builder = SessionBuilder::new()
        .known_nodes(&settings.hosts)
        .connection_timeout(Duration::from_secs(5))
        .fetch_schema_metadata(false)
        .tls_context(tls)
        .default_execution_profile_handle(profile.into_handle());
    if let Some((user, password)) = &settings.user {
        builder = builder.user(user, password);
    }
    if let Some(centre) = &settings.data_centre {
        builder = builder.prefer_datacenter(centre.clone());
    }
    let begun = tokio::time::Instant::now();
    loop {
        match builder.build().await {
            Ok(session) => return in_centre(session, settings),
            Err(error) => {
                if let Some(refused) = refused(&error) {
                    return Err(refused);
                }
                if begun.elapsed() > PATIENCE {
                    return Err(Error::Unavailable(format!(
                        "no node of {} answers: {error}",
                        settings.hosts.join(", ")
                    )));
                }
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        }
    }
}

/// Fails if no node is in the data centre of the settings: no request would find one.
fn in_centre(session: Session, settings: &Settings) -> Result<Session> {
    let Some(wanted) = &settings.data_centre else {
        return Ok(session);
    };
    let state = session.get_cluster_state();
    let nodes = state.get_nodes_info().iter();
    let known: BTreeSet<&str> = nodes
        .filter_map(|node| node.datacenter.as_deref())
        .collect();
    if known.is_empty() || known.contains(wanted.as_str()) {
        return Ok(session);
    }
    let known: Vec<&str> = known.into_iter().collect();
    Err(Error::BadInput(format!(
        "there is no node in the data centre `{wanted}` (existing: {})",
        known.join(", ")
    )))
}

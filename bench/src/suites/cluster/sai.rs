//! Cassandra without Esker: a table with the server's own index (SAI), prepared inserts, and what
//! the nodes count.

use std::sync::Arc;

use futures_util::{StreamExt, stream};
use scylla::client::execution_profile::ExecutionProfile;
use scylla::client::session_builder::SessionBuilder;
use scylla::policies::load_balancing::{NodeIdentifier, SingleTargetLoadBalancingPolicy};
use scylla::statement::prepared::PreparedStatement;
use scylla::statement::{Consistency, Statement};
use tokio::runtime::Runtime;

use super::data::Record;
use super::server::Server;
use crate::failure::Result;

/// Requests in flight, as many as Esker has.
const IN_FLIGHT: usize = 128;

/// A connection.
pub(super) struct Session {
    runtime: Runtime,
    session: scylla::client::session::Session,
}

impl Session {
    pub(super) fn new(server: &Server) -> Result<Session> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()?;
        let profile = ExecutionProfile::builder().consistency(Consistency::Quorum);
        let hosts: Vec<String> = server
            .hosts()
            .split(',')
            .map(|h| format!("{h}:9042"))
            .collect();
        let builder = SessionBuilder::new()
            .known_nodes(hosts)
            .fetch_schema_metadata(false)
            .default_execution_profile_handle(profile.build().into_handle());
        let session = runtime.block_on(builder.build())?;
        Ok(Session { runtime, session })
    }

    fn run(&self, text: &str) -> Result<()> {
        self.runtime
            .block_on(self.session.query_unpaged(text, &[]))?;
        Ok(())
    }

    /// Compactions of a table begin only when they are asked for.
    pub(super) fn compact_when_asked(&self, keyspace: &str, table: &str) -> Result<()> {
        self.run(&format!(
            "ALTER TABLE {keyspace}.{table} WITH compaction = \
             {{'class': 'SizeTieredCompactionStrategy', 'enabled': 'false'}}"
        ))
    }

    fn prepared(&self, text: &str) -> Result<PreparedStatement> {
        Ok(self.runtime.block_on(self.session.prepare(text))?)
    }

    /// The reads of partitions and of ranges that the nodes have done for tables of a keyspace.
    pub(super) fn requests_of_nodes(&self, keyspace: &str) -> Result<u64> {
        let state = self.session.get_cluster_state();
        let mut count = 0_i64;
        for node in state.get_nodes_info() {
            let target = NodeIdentifier::Node(Arc::clone(node));
            let policy = SingleTargetLoadBalancingPolicy::new(target, None);
            let profile = ExecutionProfile::builder()
                .load_balancing_policy(policy)
                .consistency(Consistency::One)
                .build();
            for table in ["local_read_latency", "local_scan_latency"] {
                let text = format!(
                    "SELECT count FROM system_views.{table} WHERE keyspace_name = '{keyspace}' ALLOW FILTERING"
                );
                let mut statement = Statement::new(text);
                statement.set_execution_profile_handle(Some(profile.clone().into_handle()));
                let found = self
                    .runtime
                    .block_on(self.session.query_unpaged(statement, &[]))?;
                let found = found.into_rows_result()?;
                for row in found.rows::<(i64,)>()? {
                    count += row?.0;
                }
            }
        }
        Ok(count.try_into().unwrap_or(0))
    }
}

/// A table with an index of the server's own.
pub(super) struct Sai {
    session: Session,
    pub(super) name: String,
    put: PreparedStatement,
    get: PreparedStatement,
    find: PreparedStatement,
}

impl Sai {
    pub(super) fn new(server: &Server, keyspace: &str, table: &str) -> Result<Sai> {
        let name = format!("own_{table}");
        let session = Session::new(server)?;
        let of = format!("{keyspace}.{name}");
        session.run(&format!(
            "CREATE TABLE IF NOT EXISTS {of} (k bigint PRIMARY KEY, v bigint, b blob)"
        ))?;
        session.run(&format!(
            "CREATE INDEX IF NOT EXISTS ON {of} (v) USING 'sai'"
        ))?;
        session.compact_when_asked(keyspace, &name)?;
        // An index is usable a moment after it was made.
        std::thread::sleep(std::time::Duration::from_secs(2));
        Ok(Sai {
            put: session.prepared(&format!("INSERT INTO {of} (k, v, b) VALUES (?, ?, ?)"))?,
            get: session.prepared(&format!("SELECT b FROM {of} WHERE k = ?"))?,
            find: session.prepared(&format!("SELECT b FROM {of} WHERE v = ?"))?,
            session,
            name,
        })
    }

    pub(super) fn put(&self, records: &[Record]) -> Result<()> {
        let session = &self.session.session;
        let all = stream::iter(records).map(|record| async {
            let values = (
                record.key as i64,
                record.value as i64,
                record.json.as_bytes(),
            );
            session.execute_unpaged(&self.put, values).await
        });
        let all = all.buffer_unordered(IN_FLIGHT).collect::<Vec<_>>();
        for done in self.session.runtime.block_on(all) {
            done?;
        }
        Ok(())
    }

    pub(super) fn get(&self, keys: &[u64]) -> Result<usize> {
        let session = &self.session.session;
        let all = stream::iter(keys)
            .map(|key| async { session.execute_unpaged(&self.get, (*key as i64,)).await });
        let all = all.buffer_unordered(IN_FLIGHT).collect::<Vec<_>>();
        let mut count = 0;
        for found in self.session.runtime.block_on(all) {
            count += found?.into_rows_result()?.rows_num();
        }
        Ok(count)
    }

    pub(super) fn find(&self, value: u64) -> Result<usize> {
        let asked = self
            .session
            .session
            .execute_unpaged(&self.find, (value as i64,));
        let found = self.session.runtime.block_on(asked)?;
        Ok(found.into_rows_result()?.rows_num())
    }
}

/// The rows and entries that Esker writes, as prepared inserts without Esker.
pub(super) struct Inserts {
    session: Session,
    puts: [PreparedStatement; 2],
}

impl Inserts {
    pub(super) fn new(server: &Server, keyspace: &str) -> Result<Inserts> {
        let session = Session::new(server)?;
        let put = |table: &str| {
            let of = format!("{keyspace}.{table}");
            session.run(&format!(
                "CREATE TABLE IF NOT EXISTS {of} (p blob, c blob, v blob, PRIMARY KEY (p, c))"
            ))?;
            session.prepared(&format!(
                "INSERT INTO {of} (p, c, v) VALUES (?, ?, ?) USING TIMESTAMP ?"
            ))
        };
        let puts = [put("bare_entries")?, put("bare_records")?];
        Ok(Inserts { session, puts })
    }

    /// Writes a record and its entry, of all records as many in flight as Esker has.
    pub(super) fn put(&self, records: &[Record]) -> Result<()> {
        let session = &self.session.session;
        let all = stream::iter(records).flat_map(|record| {
            let key = record.key.to_be_bytes().to_vec();
            let at = record.key.wrapping_mul(8) as i64 + 1;
            let entry = [&record.value.to_be_bytes()[..], &[0; 8], &key, &[0; 4]].concat();
            let [entries, versions] = &self.puts;
            stream::iter([
                (entries, vec![0_u8; 2], entry, Vec::new(), at),
                (
                    versions,
                    key,
                    vec![0; 9],
                    record.json.clone().into_bytes(),
                    at,
                ),
            ])
        });
        let all = all.map(|(put, partition, row, value, at)| async move {
            session
                .execute_unpaged(put, (partition, row, value, at))
                .await
        });
        let all = all.buffer_unordered(IN_FLIGHT).collect::<Vec<_>>();
        for done in self.session.runtime.block_on(all) {
            done?;
        }
        Ok(())
    }
}

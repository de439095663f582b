//! The topics of publish/subscribe as tables of a schema: their publications that are kept.
//!
//! The name of a table is that of a topic, or a filter with wildcards (`"traffic/#"`). The columns
//! are the fields of the publications' bodies, as for a dataset, after `_topic`, `_time`,
//! `_expires`, `_longitude` and `_latitude`, and the whole body is `_record`. A body that is not a
//! JSON object has no fields.
//!
//! **Invariants.** A broker reads what matches a subscription at once, so all publications of a
//! table are in memory, counted by the budget of statements.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{
    ArrayRef, Float64Builder, RecordBatch, StringBuilder, TimestampMicrosecondBuilder,
};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::catalog::{SchemaProvider, Session, TableProvider};
use datafusion::datasource::MemTable;
use datafusion::error::Result;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use esker::Database;
use esker::schema::Fields;
use esker_pubsub::{Broker, Notification, Place, Subscription, Time, Topic, TopicFilter};

use crate::columns::{Column, RECORD, columns, schema};
use crate::rows::Rows;
use crate::table::failed;

/// The schema of the topics.
pub(crate) const SCHEMA: &str = "topics";

/// Columns of a publication that are not of its body.
const OWN: [&str; 5] = ["_topic", "_time", "_expires", "_longitude", "_latitude"];

/// The topics of a store.
pub(crate) struct Topics {
    pub(crate) db: Database,
    pub(crate) memory: Arc<dyn MemoryPool>,
}

impl std::fmt::Debug for Topics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("topics of a store")
    }
}

impl Topics {
    fn broker(&self) -> Result<Option<Broker>> {
        let is_there = Broker::is_there(&self.db).map_err(failed)?;
        let broker = is_there.then(|| Broker::open(&self.db));
        broker.transpose().map_err(failed)
    }
}

/// A table of publications.
struct Publications {
    table: MemTable,
    /// What the table has.
    _memory: MemoryReservation,
}

impl std::fmt::Debug for Publications {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("publications")
    }
}

#[async_trait]
impl SchemaProvider for Topics {
    fn table_names(&self) -> Vec<String> {
        // A list of names cannot fail; a statement on one of them does.
        let topics = self.broker().ok().flatten();
        let topics = topics.and_then(|broker| broker.topics().ok());
        let topics = topics.into_iter().flatten();
        let published = topics.filter(|topic| topic.publications > 0);
        published.map(|topic| topic.topic.to_string()).collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let Some(broker) = self.broker()? else {
            return Ok(None);
        };
        let filter = if name.contains(['+', '#']) {
            name.parse::<TopicFilter>().map_err(failed)?
        } else {
            TopicFilter::exact(name.parse::<Topic>().map_err(failed)?)
        };
        let all = Subscription::to(filter).from(Time::MIN);
        let found = broker.query(&all).map_err(failed)?;
        let memory = MemoryConsumer::new(format!("the publications of {name}"));
        let memory = memory.register(&self.memory);
        let bodies = found.iter().map(|found| found.body.len());
        memory.try_grow(bodies.sum())?;
        let batch = batch(&found, broker.config().resolution)?;
        memory.try_resize(batch.get_array_memory_size())?;
        let table = MemTable::try_new(batch.schema(), vec![vec![batch]])?;
        Ok(Some(Arc::new(Publications {
            table,
            _memory: memory,
        })))
    }

    async fn table_type(&self, name: &str) -> Result<Option<TableType>> {
        Ok(self.table_exist(name).then_some(TableType::Base))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.table_names().iter().any(|known| known == name)
    }
}

#[async_trait]
impl TableProvider for Publications {
    fn schema(&self) -> SchemaRef {
        self.table.schema()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.table.scan(session, projection, filters, limit).await
    }
}

/// The body of a publication, if it is a JSON object.
fn object_of(publication: &Notification) -> Option<&[u8]> {
    let text = std::str::from_utf8(&publication.body).ok()?;
    let is_object = text.trim_start().starts_with('{')
        && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
    is_object.then_some(&publication.body)
}

/// The columns of the bodies.
fn columns_of(found: &[Notification]) -> Vec<Column> {
    let mut fields = Fields::default();
    for body in found.iter().filter_map(object_of) {
        fields.add(body);
    }
    let mut columns = columns(&fields, "");
    columns.retain(|column| column.name != RECORD && !OWN.contains(&column.name.as_str()));
    columns
}

fn batch(found: &[Notification], resolution: u32) -> Result<RecordBatch> {
    let columns = columns_of(found);
    let mut rows = Rows::new(Arc::new(schema(&columns)), &columns);
    let mut topics = StringBuilder::new();
    let (mut times, mut ends) = (micros(), micros());
    let (mut longitudes, mut latitudes) = (Float64Builder::new(), Float64Builder::new());
    let mut records = StringBuilder::new();
    // Times are in units of which a millisecond has `resolution`.
    let micros_of = |time: Time| {
        let micros = i128::from(time) * 1000 / i128::from(resolution.max(1));
        i64::try_from(micros).unwrap_or(i64::MAX)
    };
    for publication in found {
        topics.append_value(publication.topic.to_string());
        times.append_value(micros_of(publication.time));
        ends.append_option(publication.expires.map(micros_of));
        let point = match &publication.place {
            Place::Point {
                longitude,
                latitude,
            } => Some((*longitude, *latitude)),
            _ => None,
        };
        longitudes.append_option(point.map(|(longitude, _)| longitude));
        latitudes.append_option(point.map(|(_, latitude)| latitude));
        rows.add(object_of(publication).unwrap_or(b"{}"))?;
        records.append_value(String::from_utf8_lossy(&publication.body));
    }
    let bodies = rows.take()?;
    let time = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    let types = [
        DataType::Utf8,
        time.clone(),
        time,
        DataType::Float64,
        DataType::Float64,
    ];
    let mut fields: Vec<Field> = Vec::new();
    for (name, data_type) in OWN.into_iter().zip(types) {
        fields.push(Field::new(name, data_type, true));
    }
    for field in bodies.schema().fields() {
        fields.push(field.as_ref().clone());
    }
    fields.push(Field::new(RECORD, DataType::Utf8, true));
    let mut arrays: Vec<ArrayRef> = vec![
        Arc::new(topics.finish()),
        Arc::new(times.finish()),
        Arc::new(ends.finish()),
        Arc::new(longitudes.finish()),
        Arc::new(latitudes.finish()),
    ];
    arrays.extend(bodies.columns().iter().cloned());
    arrays.push(Arc::new(records.finish()));
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)?)
}

fn micros() -> TimestampMicrosecondBuilder {
    TimestampMicrosecondBuilder::new().with_timezone("UTC")
}

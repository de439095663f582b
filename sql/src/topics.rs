//! The topics of publish/subscribe as tables of a schema: their publications that are kept.
//!
//! The name of a table is that of a topic, or a filter with wildcards (`"traffic/#"`). The columns
//! are the fields of the publications' bodies, as for a dataset, after `_topic`, `_time`,
//! `_expires`, `_longitude` and `_latitude`, and the whole body is `_record`. A body that is not a
//! JSON object, or has text or numbers that cannot be decoded, has no fields.
//!
//! **Invariants.** A broker reads what matches a subscription at once, so all publications of a
//! table are in memory, counted by the budget of statements. Where that refuses them, the table
//! still has its columns, for a list of all columns, and only its rows are an error.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use datafusion::arrow::array::{
    ArrayRef, Float64Builder, RecordBatch, StringBuilder, TimestampMicrosecondBuilder,
};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::catalog::{SchemaProvider, Session, TableProvider};
use datafusion::datasource::MemTable;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use esker::Database;
use esker::schema::Fields;
use esker_pubsub::{Broker, Notification, Place, Subscription, Time, Topic, TopicFilter};
use serde_json::{Map, Value};

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
    columns: Vec<Column>,
    schema: SchemaRef,
    /// Units of time of a millisecond.
    resolution: u32,
    kept: Mutex<Kept>,
    /// What is kept.
    memory: MemoryReservation,
}

/// The publications of a table.
enum Kept {
    /// As they were found.
    Found(Vec<Found>),
    Rows(Arc<MemTable>),
    /// Not at all: there is too little memory.
    Refused(Arc<DataFusionError>),
}

/// A publication.
struct Found {
    publication: Notification,
    /// Whether the body is an object that can be decoded.
    is_object: bool,
}

impl Found {
    fn new(publication: Notification) -> Found {
        let text = std::str::from_utf8(&publication.body).ok();
        // Decodes all values: a text may have half a surrogate pair, a number may be beyond floats.
        let object = text.map(serde_json::from_str::<Map<String, Value>>);
        Found {
            is_object: object.is_some_and(|object| object.is_ok()),
            publication,
        }
    }

    /// The body, if it is an object.
    fn object(&self) -> Option<&[u8]> {
        self.is_object.then_some(&self.publication.body)
    }
}

impl Publications {
    fn new(found: Vec<Notification>, resolution: u32, memory: MemoryReservation) -> Publications {
        let found: Vec<Found> = found.into_iter().map(Found::new).collect();
        let columns = columns_of(&found);
        let bodies = found.iter().map(|found| found.publication.body.len());
        let kept = match memory.try_grow(bodies.sum()) {
            Ok(()) => Kept::Found(found),
            Err(error) => Kept::Refused(Arc::new(error)),
        };
        Publications {
            schema: schema_of(&columns),
            columns,
            resolution,
            kept: Mutex::new(kept),
            memory,
        }
    }

    /// The rows, which are made when they are first read.
    fn rows(&self) -> Result<Arc<MemTable>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let found = match &*kept {
            Kept::Found(found) => found,
            Kept::Rows(rows) => return Ok(rows.clone()),
            Kept::Refused(error) => return Err(DataFusionError::from(error)),
        };
        let batch = self.batch(found)?;
        self.memory.try_resize(batch.get_array_memory_size())?;
        let rows = Arc::new(MemTable::try_new(self.schema.clone(), vec![vec![batch]])?);
        *kept = Kept::Rows(rows.clone());
        Ok(rows)
    }
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
        let publications = Publications::new(found, broker.config().resolution, memory);
        Ok(Some(Arc::new(publications)))
    }

    /// Without a look at the store: a list of all tables has this of each of them.
    async fn table_type(&self, name: &str) -> Result<Option<TableType>> {
        Ok(name.parse::<Topic>().is_ok().then_some(TableType::Base))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.table_names().iter().any(|known| known == name)
    }
}

#[async_trait]
impl TableProvider for Publications {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
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
        let rows = self.rows()?;
        rows.scan(session, projection, filters, limit).await
    }
}

/// The columns of the bodies.
fn columns_of(found: &[Found]) -> Vec<Column> {
    let mut fields = Fields::default();
    for body in found.iter().filter_map(Found::object) {
        fields.add(body);
    }
    let mut columns = columns(&fields, "");
    columns.retain(|column| column.name != RECORD && !OWN.contains(&column.name.as_str()));
    columns
}

/// The schema of publications whose bodies have these columns.
fn schema_of(columns: &[Column]) -> SchemaRef {
    let time = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    let types = [
        DataType::Utf8,
        time.clone(),
        time,
        DataType::Float64,
        DataType::Float64,
    ];
    let own = OWN.into_iter().zip(types);
    let own = own.map(|(name, data_type)| Arc::new(Field::new(name, data_type, true)));
    let mut fields: Vec<Arc<Field>> = own.collect();
    fields.extend(schema(columns).fields().iter().cloned());
    fields.push(Arc::new(Field::new(RECORD, DataType::Utf8, true)));
    Arc::new(Schema::new(fields))
}

impl Publications {
    fn batch(&self, found: &[Found]) -> Result<RecordBatch> {
        let mut rows = Rows::new(Arc::new(schema(&self.columns)), &self.columns);
        let mut topics = StringBuilder::new();
        let (mut times, mut ends) = (micros(), micros());
        let (mut longitudes, mut latitudes) = (Float64Builder::new(), Float64Builder::new());
        let mut records = StringBuilder::new();
        let resolution = i128::from(self.resolution.max(1));
        let micros_of = |time: Time| {
            let micros = i128::from(time) * 1000 / resolution;
            i64::try_from(micros).unwrap_or(i64::MAX)
        };
        for found in found {
            let publication = &found.publication;
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
            rows.add(found.object().unwrap_or(b"{}"))?;
            records.append_value(String::from_utf8_lossy(&publication.body));
        }
        let bodies = rows.take()?;
        let mut arrays: Vec<ArrayRef> = vec![
            Arc::new(topics.finish()),
            Arc::new(times.finish()),
            Arc::new(ends.finish()),
            Arc::new(longitudes.finish()),
            Arc::new(latitudes.finish()),
        ];
        arrays.extend(bodies.columns().iter().cloned());
        arrays.push(Arc::new(records.finish()));
        Ok(RecordBatch::try_new(self.schema.clone(), arrays)?)
    }
}

fn micros() -> TimestampMicrosecondBuilder {
    TimestampMicrosecondBuilder::new().with_timezone("UTC")
}

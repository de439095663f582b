//! A dataset as a table.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{Expr as Sql, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use esker::schema::Fields;
use esker::{Database, DatasetDef, DatasetSnapshot, Order, Request, Seq, StoreSnapshot};

use crate::columns::{Column, columns, schema};
use crate::exec::DatasetExec;
use crate::filter::{Dataset, Pushed};

/// The moment of a statement, in the configuration of its session.
pub(crate) struct Moment(pub(crate) StoreSnapshot);

/// The columns of a dataset at the moment at which a statement, a view or a prepared statement
/// named it. Its records are those of the moment at which it is read.
pub(crate) struct Table {
    db: Database,
    name: String,
    seq: Seq,
    def: DatasetDef,
    columns: Vec<Column>,
    schema: SchemaRef,
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "dataset {}", self.name)
    }
}

/// An error of the store.
pub(crate) fn failed(error: esker::Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// False for what a dataset refuses although SQL does not: the reversed bounds of a range, which
/// nothing can meet.
fn is_accepted(dataset: &DatasetSnapshot, request: &Request) -> bool {
    dataset.request(request.clone()).explain().is_ok()
}

/// The columns of a dataset. Where the fields are unknown, all records are read for them.
fn columns_of(dataset: &DatasetSnapshot) -> Result<Vec<Column>> {
    let fields = match dataset.fields().map_err(failed)? {
        Some(fields) => fields,
        None => {
            let mut fields = Fields::default();
            for record in dataset.scan(..) {
                fields.add(record.map_err(failed)?.json());
            }
            fields
        }
    };
    Ok(columns(&fields, &dataset.def().key.to_string()))
}

impl Table {
    /// The table of a dataset with the columns that it has in this snapshot.
    pub(crate) fn new(db: Database, name: &str, dataset: &DatasetSnapshot) -> Result<Table> {
        let columns = columns_of(dataset)?;
        Ok(Table {
            db,
            name: name.to_string(),
            seq: dataset.seq(),
            def: dataset.def(),
            schema: Arc::new(schema(&columns)),
            columns,
        })
    }

    fn pushed(&self, filter: &Sql) -> Option<Pushed> {
        let dataset = Dataset {
            columns: &self.columns,
            def: &self.def,
        };
        dataset.pushed(filter)
    }

    /// The records that a statement of this session reads.
    fn records(&self, session: &dyn Session) -> Result<DatasetSnapshot> {
        let moment = session.config().get_extension::<Moment>();
        let store = match &moment {
            Some(moment) => moment.0.clone(),
            None => self.db.snapshot(),
        };
        let dataset: DatasetSnapshot = store.dataset(&self.name).map_err(failed)?;
        // Some changes of a definition write nothing.
        let def = dataset.def();
        if dataset.seq() == self.seq && def == self.def {
            return Ok(dataset);
        }
        // A view, or a prepared statement, from before.
        let now = columns_of(&dataset)?;
        let still_reads = |column: &Column| {
            let now = now.iter().find(|now| now.name == column.name);
            now.is_none_or(|now| column.shape.still_reads(&now.shape))
        };
        match self.columns.iter().find(|column| !still_reads(column)) {
            None if def == self.def => Ok(dataset),
            None => Err(DataFusionError::Execution(format!(
                "the definition of `{}` has changed since this view or statement was made: make it anew",
                self.name
            ))),
            Some(column) => Err(DataFusionError::Execution(format!(
                "`{}` of `{}` has values of other types than when this view or statement was made: make it anew",
                column.name, self.name
            ))),
        }
    }
}

#[async_trait]
impl TableProvider for Table {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Sql],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        let dataset: DatasetSnapshot = self.db.snapshot().dataset(&self.name).map_err(failed)?;
        let each = filters.iter().map(|filter| {
            let Some(pushed) = self.pushed(filter) else {
                return TableProviderFilterPushDown::Unsupported;
            };
            if !is_accepted(&dataset, &Request::of(pushed.condition)) {
                return TableProviderFilterPushDown::Unsupported;
            }
            if pushed.is_exact {
                TableProviderFilterPushDown::Exact
            } else {
                TableProviderFilterPushDown::Inexact
            }
        });
        Ok(each.collect())
    }

    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Sql],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let dataset = self.records(session)?;
        let mut request = Request::default();
        request.order = Order::Any;
        let mut is_exact = true;
        for filter in filters {
            let pushed = self.pushed(filter).ok_or_else(|| {
                DataFusionError::Internal(format!("{filter} cannot be passed to a dataset"))
            })?;
            is_exact &= pushed.is_exact;
            let mut with = request.clone();
            with.filter(pushed.condition.clone());
            if !is_accepted(&dataset, &with) {
                // Bounds that are negated twice are no part of a range.
                with = request;
                with.filter(!!pushed.condition);
            }
            request = with;
        }
        // Of records that are tested once more, more may be needed.
        request.limit = limit.filter(|_| is_exact);
        let all: Vec<usize> = (0..self.columns.len()).collect();
        let projection = projection.unwrap_or(&all);
        let selected = projection.iter().filter_map(|at| self.columns.get(*at));
        let columns: Vec<Column> = selected.cloned().collect();
        let exec = DatasetExec::new(dataset, request, columns)?;
        Ok(Arc::new(exec))
    }
}

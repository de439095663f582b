//! The scan of a dataset, as a step of a plan: its condition, order and limit are the dataset's.
//!
//! **Invariants.** Records are passed on in batches of bounded size, as they are found. Without
//! columns only the number of records is wanted, which the dataset counts. An order is taken over
//! only if the dataset sorts as SQL does: by simple values of one type, those without one last.
//! Whoever drops the stream of rows cancels the reading.

use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::{Column as ColumnExpr, Literal};
use datafusion::physical_expr::{
    EquivalenceProperties, LexOrdering, Partitioning, PhysicalExpr, PhysicalSortExpr,
    ScalarFunctionExpr,
};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, Count, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet, RecordOutput,
};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::stream::{RecordBatchReceiverStream, RecordBatchStreamAdapter};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, ReplaceChildrenOptions,
    SortOrderPushdownResult,
};
use esker::request::Direction;
use esker::{DatasetSnapshot, Explain, Order, Request, Stop};
use futures::StreamExt;
use tokio::sync::mpsc::Sender;

use crate::columns::{Column, RECORD, Shape, schema};
use crate::filter::{Dataset, text_of};
use crate::rows::Rows;
use crate::table::failed;

/// Bytes of a batch, by the JSON of its values and eight for each.
const BATCH_BYTES: usize = 1 << 20;
/// Batches that wait to be taken.
const WAITING: usize = 2;

/// The scan of a dataset.
#[derive(Clone)]
pub(crate) struct DatasetExec {
    dataset: DatasetSnapshot,
    request: Request,
    columns: Vec<Column>,
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl std::fmt::Debug for DatasetExec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.fmt_as(DisplayFormatType::Default, f)
    }
}

impl DatasetExec {
    pub(crate) fn new(
        dataset: DatasetSnapshot,
        request: Request,
        columns: Vec<Column>,
    ) -> Result<DatasetExec> {
        let schema: SchemaRef = Arc::new(schema(&columns));
        let properties = properties(EquivalenceProperties::new(schema.clone()));
        Ok(DatasetExec {
            dataset,
            request,
            columns,
            schema,
            properties,
            metrics: ExecutionPlanMetricsSet::new(),
        })
    }

    /// The order of the dataset that sorts as these expressions do; `None` if there is none.
    fn order(&self, by: &[PhysicalSortExpr]) -> Option<Order> {
        let def = self.dataset.def();
        let dataset = Dataset {
            columns: &self.columns,
            def: &def,
        };
        let mut order = Order::Fields(Vec::new());
        let mut is_refined = false;
        for by in by {
            let column = self.column(&by.expr)?;
            if by.options.nulls_first || is_refined {
                return None;
            }
            // A dataset sorts numbers by their exact values, also those that are one float: records
            // which SQL takes for equal cannot be in the order of a further column.
            is_refined = matches!(column.shape, Shape::Float { .. });
            let path = dataset.ordered(&column)?;
            let direction = if by.options.descending {
                Direction::Descending
            } else {
                Direction::Ascending
            };
            order = order.then(path, direction).ok()?;
        }
        Some(order)
    }

    /// The column of an expression over the rows, if it is one, or a field of the structs in one.
    fn column(&self, expr: &Arc<dyn PhysicalExpr>) -> Option<Column> {
        if let Some(column) = expr.downcast_ref::<ColumnExpr>() {
            return self.columns.get(column.index()).cloned();
        }
        let call = expr.downcast_ref::<ScalarFunctionExpr>()?;
        let (of, names) = call.args().split_first()?;
        if call.name() != "get_field" {
            return None;
        }
        names.iter().try_fold(self.column(of)?, |column, name| {
            column.field(text_of(name.downcast_ref::<Literal>()?.value())?)
        })
    }

    /// How the dataset finds the records, in a few words.
    fn access(&self) -> String {
        let plan = match self.dataset.request(self.request.clone()).explain() {
            Ok(explain) => explain.plan,
            Err(error) => return error.to_string(),
        };
        let index = |index: &esker::explain::ExplainedIndex| {
            format!("{} index of {}", index.kind, index.index)
        };
        if let Some(one) = &plan.index {
            return index(one);
        }
        let several = match &plan.combined {
            Some(combined) => &combined.indexes,
            None => &plan.union,
        };
        let several: Vec<String> = several.iter().map(index).collect();
        match plan.scan {
            Some(scan) => format!("scan of {scan}"),
            None => several.join(", "),
        }
    }
}

/// The properties of a scan with these orders.
fn properties(orders: EquivalenceProperties) -> Arc<PlanProperties> {
    let properties = PlanProperties::new(
        orders,
        Partitioning::UnknownPartitioning(1),
        EmissionType::Incremental,
        Boundedness::Bounded,
    );
    Arc::new(properties.with_scheduling_type(SchedulingType::Cooperative))
}

impl DisplayAs for DatasetExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DatasetExec: {}", self.dataset.name())?;
        if let Some(condition) = &self.request.condition {
            write!(f, ", condition=[{condition}]")?;
        }
        if self.request.order != Order::Any {
            write!(f, ", order=[{}]", self.request.order)?;
        }
        if let Some(limit) = self.request.limit {
            write!(f, ", limit={limit}")?;
        }
        if self.columns.is_empty() {
            f.write_str(", counted")?;
        } else {
            let shown = |column: &Column| match column.path.as_slice() {
                [] => RECORD.to_string(),
                names => names.join("."),
            };
            let names: Vec<String> = self.columns.iter().map(shown).collect();
            write!(f, ", columns=[{}]", names.join(", "))?;
        }
        write!(f, ", by=[{}]", self.access())
    }
}

impl ExecutionPlan for DatasetExec {
    fn name(&self) -> &'static str {
        "DatasetExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn with_new_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn fetch(&self) -> Option<usize> {
        self.request.limit
    }

    fn with_fetch(&self, limit: Option<usize>) -> Option<Arc<dyn ExecutionPlan>> {
        let mut exec = self.clone();
        exec.request.limit = limit;
        Some(Arc::new(exec))
    }

    fn try_swapping_with_projection(
        &self,
        projection: &ProjectionExec,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        // The expressions of an order are those of the columns before.
        if self.request.order != Order::Any {
            return Ok(None);
        }
        let columns = projection.expr().iter().map(|projected| {
            let column = self.column(&projected.expr)?;
            Some(Column {
                name: projected.alias.clone(),
                ..column
            })
        });
        let Some(columns) = columns.collect::<Option<Vec<Column>>>() else {
            return Ok(None);
        };
        let exec = DatasetExec::new(self.dataset.clone(), self.request.clone(), columns)?;
        Ok(Some(Arc::new(exec)))
    }

    fn try_pushdown_sort(
        &self,
        order: &[PhysicalSortExpr],
    ) -> Result<SortOrderPushdownResult<Arc<dyn ExecutionPlan>>> {
        // The first of a limit in any order are not the first of another order.
        if self.request.limit.is_some() || self.request.order != Order::Any {
            return Ok(SortOrderPushdownResult::Unsupported);
        }
        let by = self.order(order);
        let (Some(by), Some(ordering)) = (by, LexOrdering::new(order.iter().cloned())) else {
            return Ok(SortOrderPushdownResult::Unsupported);
        };
        let mut exec = self.clone();
        exec.request.order = by;
        exec.properties = properties(EquivalenceProperties::new_with_orderings(
            self.schema.clone(),
            [ordering],
        ));
        let inner = Arc::new(exec);
        Ok(SortOrderPushdownResult::Exact { inner })
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let mut stream = RecordBatchReceiverStream::builder(self.schema.clone(), WAITING);
        let stop = Stop::new();
        let counter = |name| MetricBuilder::new(&self.metrics).counter(name, partition);
        let scan = Scan {
            dataset: self.dataset.with_stop(&stop),
            request: self.request.clone(),
            rows: Rows::new(self.schema.clone(), &self.columns),
            most: context.session_config().batch_size().max(1),
            out: stream.tx(),
            rows_out: BaselineMetrics::new(&self.metrics, partition),
            records_read: counter("records_read"),
            entries_read: counter("entries_read"),
        };
        let counts = self.columns.is_empty();
        let schema = self.schema.clone();
        stream.spawn_blocking(move || {
            if counts {
                scan.count(schema)
            } else {
                scan.run()
            }
        });
        let cancel = Cancel(stop);
        let batches = stream.build().map(move |batch| {
            let _ = &cancel;
            batch
        });
        let batches = RecordBatchStreamAdapter::new(self.schema.clone(), batches);
        Ok(Box::pin(batches))
    }
}

/// Ends the reads when it is dropped.
struct Cancel(Stop);

impl Drop for Cancel {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// The reading of a dataset, on a thread of its own.
struct Scan {
    dataset: DatasetSnapshot,
    request: Request,
    rows: Rows,
    /// Rows of a batch.
    most: usize,
    out: Sender<Result<RecordBatch>>,
    rows_out: BaselineMetrics,
    records_read: Count,
    entries_read: Count,
}

impl Scan {
    fn run(mut self) -> Result<()> {
        let query = self.dataset.request(self.request.clone());
        let mut ended = Ok(());
        let explain = query.visit(&mut |record| {
            let goes_on = self.rows.add(record.json()).and_then(|()| {
                let is_full = self.rows.len() >= self.most || self.rows.bytes() >= BATCH_BYTES;
                if is_full { self.send() } else { Ok(true) }
            });
            match goes_on {
                Ok(true) => ControlFlow::Continue(()),
                Ok(false) => ControlFlow::Break(()),
                Err(error) => {
                    ended = Err(error);
                    ControlFlow::Break(())
                }
            }
        });
        // Nobody waits for an answer that was cancelled.
        if self.out.is_closed() {
            return Ok(());
        }
        self.note(&explain.map_err(failed)?);
        ended?;
        if self.rows.len() > 0 {
            self.send()?;
        }
        Ok(())
    }

    /// Notes what the dataset read.
    fn note(&self, explain: &Explain) {
        let steps = &explain.steps;
        let read = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        self.records_read.add(read(steps.scanned + steps.fetched));
        if steps.scanned == 0 {
            self.entries_read.add(read(steps.candidates + steps.listed));
        }
    }

    /// Sends the rows; false if nobody takes more.
    fn send(&mut self) -> Result<bool> {
        let batch = self.rows.take()?.record_output(&self.rows_out);
        Ok(self.out.blocking_send(Ok(batch)).is_ok())
    }

    /// Sends as many rows without columns as there are records.
    fn count(self, schema: SchemaRef) -> Result<()> {
        let query = self.dataset.request(self.request.clone());
        let (count, explain) = match query.count_explained() {
            Ok(counted) => counted,
            Err(_) if self.out.is_closed() => return Ok(()),
            Err(error) => return Err(failed(error)),
        };
        self.note(&explain);
        let mut left = usize::try_from(count)
            .map_err(|_| DataFusionError::Execution(format!("{count} rows are too many")))?;
        while left > 0 {
            let rows = left.min(1 << 20);
            left -= rows;
            let options = RecordBatchOptions::new().with_row_count(Some(rows));
            let batch = RecordBatch::try_new_with_options(schema.clone(), Vec::new(), &options)?;
            let batch = batch.record_output(&self.rows_out);
            if self.out.blocking_send(Ok(batch)).is_err() {
                break;
            }
        }
        Ok(())
    }
}

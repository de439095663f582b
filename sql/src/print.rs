//! Rows on standard output. All formats but tables are written as the rows come.

use std::io::{self, Write};
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch, StringBuilder};
use datafusion::arrow::csv::WriterBuilder;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::arrow::json::writer::{
    EncoderOptions, JsonArray, LineDelimited, WriterBuilder as JsonBuilder,
};
use datafusion::arrow::util::display::FormatOptions;
use datafusion::arrow::util::pretty::pretty_format_batches_with_options;
use datafusion::dataframe::DataFrame;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::physical_plan::{
    ExecutionPlanProperties, SendableRecordBatchStream, execute_stream,
};
use datafusion_cli::print_format::PrintFormat;
use datafusion_cli::print_options::MaxRows;
use futures::StreamExt;

use crate::failure::Failure;

/// How rows are printed.
pub(crate) struct Printer {
    format: PrintFormat,
    most: usize,
}

/// Rows of a table that come.
struct Rows {
    schema: SchemaRef,
    stream: SendableRecordBatchStream,
    memory: MemoryReservation,
}

impl Printer {
    pub(crate) fn new(format: PrintFormat, maxrows: MaxRows) -> Printer {
        let most = match maxrows {
            MaxRows::Unlimited => usize::MAX,
            MaxRows::Limited(rows) => rows,
        };
        Printer { format, most }
    }

    /// Runs a statement and prints its rows.
    pub(crate) async fn print(&mut self, rows: DataFrame) -> Result<(), Failure> {
        let context = Arc::new(rows.task_ctx());
        let plan = rows.create_physical_plan().await?;
        let schema = plan.schema();
        // Of statements without rows, such as those that create a table.
        if schema.fields().is_empty() && !plan.boundedness().is_unbounded() {
            let mut stream = execute_stream(plan, context)?;
            while let Some(batch) = stream.next().await {
                batch?;
            }
            return Ok(());
        }
        let rows = Rows {
            schema,
            memory: MemoryConsumer::new("the rows of a table").register(context.memory_pool()),
            stream: execute_stream(plan, context)?,
        };
        match self.format {
            PrintFormat::Table | PrintFormat::Automatic => self.table(rows).await,
            PrintFormat::Csv => separated(rows, b',').await,
            PrintFormat::Tsv => separated(rows, b'\t').await,
            PrintFormat::Json => json(rows, true).await,
            PrintFormat::NdJson => json(rows, false).await,
        }
    }

    /// All rows at once, since the widths of columns are those of their widest values.
    async fn table(&self, mut rows: Rows) -> Result<(), Failure> {
        let mut batches = Vec::new();
        let mut left = self.most;
        while let Some(batch) = rows.stream.next().await {
            let batch = batch?;
            let size = batch.get_array_memory_size();
            rows.memory.try_grow(size).map_err(|_| {
                Failure::Usage(
                    "the rows do not fit in memory as a table: another --format prints them as they come, \
                     --maxrows prints the first, --memory gives more"
                        .to_string(),
                )
            })?;
            let has_more = batch.num_rows() > left;
            batches.push(batch.slice(0, batch.num_rows().min(left)));
            left -= batch.num_rows().min(left);
            if has_more {
                eprintln!("the first {} rows; --maxrows prints more", self.most);
                break;
            }
        }
        if batches.is_empty() {
            batches.push(RecordBatch::new_empty(rows.schema));
        }
        let options = FormatOptions::default().with_null("NULL");
        let table = pretty_format_batches_with_options(&batches, &options);
        let table = table.map_err(DataFusionError::from)?;
        written(writeln!(io::stdout().lock(), "{table}"))
    }
}

fn written(written: io::Result<()>) -> Result<(), Failure> {
    written.map_err(|error| Failure::output(&error))
}

/// Writes a text that was made of rows to standard output.
fn write(text: &mut Vec<u8>) -> Result<(), Failure> {
    written(io::stdout().lock().write_all(text))?;
    text.clear();
    Ok(())
}

/// With a line of names, and structs and lists as JSON.
async fn separated(mut rows: Rows, separator: u8) -> Result<(), Failure> {
    let mut text = Vec::new();
    let empty = RecordBatch::new_empty(rows.schema.clone());
    let mut header = Some(empty);
    loop {
        let (batch, is_header) = match header.take() {
            Some(empty) => (empty, true),
            None => match rows.stream.next().await {
                Some(batch) => (batch?, false),
                None => return Ok(()),
            },
        };
        let builder = WriterBuilder::new().with_delimiter(separator);
        let mut writer = builder.with_header(is_header).build(&mut text);
        let flat = flat(&batch)?;
        writer.write(&flat).map_err(DataFusionError::from)?;
        drop(writer);
        write(&mut text)?;
    }
}

async fn json(mut rows: Rows, as_array: bool) -> Result<(), Failure> {
    let builder = JsonBuilder::new();
    let mut array = as_array.then(|| builder.clone().build::<_, JsonArray>(Vec::new()));
    let mut lines = builder.build::<_, LineDelimited>(Vec::new());
    while let Some(batch) = rows.stream.next().await {
        let batch = batch?;
        let text = match &mut array {
            Some(writer) => {
                writer.write(&batch).map_err(DataFusionError::from)?;
                writer.get_mut()
            }
            None => {
                lines.write(&batch).map_err(DataFusionError::from)?;
                lines.get_mut()
            }
        };
        write(text)?;
    }
    if let Some(mut writer) = array {
        writer.finish().map_err(DataFusionError::from)?;
        let mut text = writer.into_inner();
        text.push(b'\n');
        write(&mut text)?;
    }
    Ok(())
}

/// The batch with JSON in place of structs and lists.
fn flat(batch: &RecordBatch) -> Result<RecordBatch> {
    let schema = batch.schema();
    let mut fields = Vec::new();
    let mut arrays = Vec::new();
    for (field, array) in schema.fields().iter().zip(batch.columns()) {
        let (field, array) = if field.data_type().is_nested() {
            let text: ArrayRef = json_of(field, array)?;
            (Field::new(field.name(), DataType::Utf8, true), text)
        } else {
            (field.as_ref().clone(), array.clone())
        };
        fields.push(field);
        arrays.push(array);
    }
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)?)
}

fn json_of(field: &Arc<Field>, array: &ArrayRef) -> Result<ArrayRef> {
    let options = EncoderOptions::default();
    let mut encoder = datafusion::arrow::json::writer::make_encoder(field, array, &options)?;
    let mut texts = StringBuilder::new();
    let mut text = Vec::new();
    for row in 0..array.len() {
        if encoder.is_null(row) {
            texts.append_null();
            continue;
        }
        text.clear();
        encoder.encode(row, &mut text);
        texts.append_value(String::from_utf8_lossy(&text));
    }
    Ok(Arc::new(texts.finish()))
}

//! Batches of rows from the JSON of records: only the fields that a statement names are read.
//!
//! **Invariants.** A value is read by the type that the statistics of the dataset promise; one that
//! is not of the type is an error, never another value. Numbers are those of their text: integers
//! exactly, floats to the nearest; -0.0 is 0.0, since SQL and datasets take them for equal.

use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, BooleanBuilder, Float64Builder, Int64Builder, ListArray, RecordBatch,
    RecordBatchOptions, StringBuilder, StructArray,
};
use datafusion::arrow::buffer::{NullBuffer, OffsetBuffer};
use datafusion::arrow::datatypes::{Field, SchemaRef};
use datafusion::error::{DataFusionError, Result};
use serde_json::value::RawValue;

use crate::columns::{Column, Shape, arrow_fields};
use crate::object::fields_of;

/// Bytes of a value in an array, also of one that is null.
const CELL: usize = 8;

/// Rows that are being gathered.
pub(crate) struct Rows {
    schema: SchemaRef,
    /// The names of fields of the records that are wanted.
    names: Vec<String>,
    /// The columns that are fields.
    fields: Vec<Gathered>,
    /// For each column of the schema, its place in `fields`; none for the whole record.
    columns: Vec<Option<usize>>,
    records: StringBuilder,
    len: usize,
    bytes: usize,
}

impl Rows {
    /// No rows, of these columns.
    pub(crate) fn new(schema: SchemaRef, columns: &[Column]) -> Rows {
        let mut rows = Rows {
            schema,
            names: Vec::new(),
            fields: Vec::new(),
            columns: Vec::with_capacity(columns.len()),
            records: StringBuilder::new(),
            len: 0,
            bytes: 0,
        };
        for column in columns {
            let is_field = column.shape != Shape::Record;
            rows.columns.push(is_field.then_some(rows.fields.len()));
            if let Some((name, below)) = column.path.split_first().filter(|_| is_field) {
                let known = rows.names.iter().position(|known| known == name);
                let name = known.unwrap_or_else(|| {
                    rows.names.push(name.clone());
                    rows.names.len() - 1
                });
                rows.fields.push(Gathered {
                    name,
                    below: below.iter().map(|name| [name.clone()]).collect(),
                    values: Builder::new(&column.shape),
                });
            }
        }
        rows
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The bytes of values so far: of their JSON, and of their places in arrays.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a record.
    pub(crate) fn add(&mut self, json: &[u8]) -> Result<()> {
        let text = std::str::from_utf8(json).map_err(|e| unreadable(&e))?;
        if !self.names.is_empty() {
            let found = fields_of(text, &self.names).map_err(|e| unreadable(&e))?;
            for field in &mut self.fields {
                let value = field.of(found.get(field.name).copied().flatten())?;
                let cells = field.values.add(value)?;
                self.bytes += value.map_or(0, str::len) + cells * CELL;
            }
        }
        if self.columns.contains(&None) {
            self.records.append_value(text);
            self.bytes += text.len() + CELL;
        }
        self.len += 1;
        Ok(())
    }

    /// The rows so far as a batch.
    pub(crate) fn take(&mut self) -> Result<RecordBatch> {
        let fields = self.fields.iter_mut().map(|field| field.values.finish());
        let fields = fields.collect::<Result<Vec<ArrayRef>>>()?;
        let records: ArrayRef = Arc::new(self.records.finish());
        let array = |place: &Option<usize>| match place {
            Some(at) => fields.get(*at).cloned(),
            None => Some(records.clone()),
        };
        let arrays: Vec<ArrayRef> = self.columns.iter().filter_map(array).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(self.len));
        (self.len, self.bytes) = (0, 0);
        let batch = RecordBatch::try_new_with_options(self.schema.clone(), arrays, &options);
        Ok(batch?)
    }
}

/// A column that is a field.
struct Gathered {
    /// The place of the outermost name among those that are wanted.
    name: usize,
    /// The names of fields in it, outermost first.
    below: Vec<[String; 1]>,
    values: Builder,
}

impl Gathered {
    /// The value of the field in the value of the outermost one.
    fn of<'j>(&self, mut value: Option<&'j str>) -> Result<Option<&'j str>> {
        for name in &self.below {
            let Some(object) = value.filter(|value| *value != "null") else {
                return Ok(None);
            };
            let found = fields_of(object, name).map_err(|e| unreadable(&e))?;
            value = found.first().copied().flatten();
        }
        Ok(value)
    }
}

fn unreadable(why: &dyn std::fmt::Display) -> DataFusionError {
    DataFusionError::Execution(format!("a record cannot be read: {why}"))
}

/// The values of a column, or of a part of one.
enum Builder {
    Bool(BooleanBuilder),
    Int(Int64Builder),
    Float(Float64Builder),
    Text(StringBuilder),
    Json(StringBuilder),
    Struct {
        shapes: Vec<(String, Shape)>,
        names: Vec<String>,
        values: Vec<Builder>,
        valid: Vec<bool>,
    },
    List {
        shape: Shape,
        elements: Box<Builder>,
        lengths: Vec<usize>,
        valid: Vec<bool>,
    },
}

impl Builder {
    fn new(shape: &Shape) -> Builder {
        // Without room: there may be many columns, and few rows.
        match shape {
            Shape::Bool => Builder::Bool(BooleanBuilder::with_capacity(0)),
            Shape::Int => Builder::Int(Int64Builder::with_capacity(0)),
            Shape::Float { .. } => Builder::Float(Float64Builder::with_capacity(0)),
            Shape::Text => Builder::Text(StringBuilder::with_capacity(0, 0)),
            Shape::Json | Shape::Record => Builder::Json(StringBuilder::with_capacity(0, 0)),
            Shape::Struct(fields) => Builder::Struct {
                shapes: fields.clone(),
                names: fields.iter().map(|(name, _)| name.clone()).collect(),
                values: fields
                    .iter()
                    .map(|(_, shape)| Builder::new(shape))
                    .collect(),
                valid: Vec::new(),
            },
            Shape::List(element) => Builder::List {
                shape: (**element).clone(),
                elements: Box::new(Builder::new(element)),
                lengths: Vec::new(),
                valid: Vec::new(),
            },
        }
    }

    /// Adds a value from its JSON, and returns how many places it takes in arrays.
    fn add(&mut self, json: Option<&str>) -> Result<usize> {
        let json = json.filter(|json| *json != "null");
        let mut cells = 1;
        match self {
            Builder::Bool(builder) => builder.append_option(parsed(json)?),
            Builder::Int(builder) => builder.append_option(parsed(json)?),
            // One zero, as datasets sort: -0 is no value of its own.
            Builder::Float(builder) => {
                builder.append_option(parsed::<f64>(json)?.map(|value| value + 0.0));
            }
            Builder::Text(builder) => match json {
                Some(json) => add_text(builder, json)?,
                None => builder.append_null(),
            },
            Builder::Json(builder) => builder.append_option(json),
            Builder::Struct {
                names,
                values,
                valid,
                ..
            } => {
                valid.push(json.is_some());
                let found = match json {
                    Some(json) => fields_of(json, names).map_err(|e| unreadable(&e))?,
                    None => vec![None; names.len()],
                };
                for (value, found) in values.iter_mut().zip(found) {
                    cells += value.add(found)?;
                }
            }
            Builder::List {
                elements,
                lengths,
                valid,
                ..
            } => {
                valid.push(json.is_some());
                let list: Vec<&RawValue> = match json {
                    Some(json) => serde_json::from_str(json).map_err(|e| unreadable(&e))?,
                    None => Vec::new(),
                };
                lengths.push(list.len());
                for element in list {
                    cells += elements.add(Some(element.get()))?;
                }
            }
        }
        Ok(cells)
    }

    fn finish(&mut self) -> Result<ArrayRef> {
        Ok(match self {
            Builder::Bool(builder) => Arc::new(builder.finish()),
            Builder::Int(builder) => Arc::new(builder.finish()),
            Builder::Float(builder) => Arc::new(builder.finish()),
            Builder::Text(builder) | Builder::Json(builder) => Arc::new(builder.finish()),
            Builder::Struct {
                shapes,
                values,
                valid,
                ..
            } => {
                let arrays = values.iter_mut().map(Builder::finish);
                let arrays = arrays.collect::<Result<Vec<ArrayRef>>>()?;
                let nulls = NullBuffer::from(std::mem::take(valid));
                let fields = arrow_fields(shapes);
                Arc::new(StructArray::try_new(fields, arrays, Some(nulls))?)
            }
            Builder::List {
                shape,
                elements,
                lengths,
                valid,
            } => {
                let values = elements.finish()?;
                let offsets = OffsetBuffer::from_lengths(std::mem::take(lengths));
                let nulls = NullBuffer::from(std::mem::take(valid));
                let field = Arc::new(Field::new("item", shape.data_type(), true));
                Arc::new(ListArray::try_new(field, offsets, values, Some(nulls))?)
            }
        })
    }
}

/// A number or a truth value from its JSON. Not by `serde_json`: that reads `-0` as a float.
fn parsed<T>(json: Option<&str>) -> Result<Option<T>>
where
    T: std::str::FromStr<Err: std::fmt::Display>,
{
    let read = json.map(|json| {
        let value = json.parse::<T>();
        value.map_err(|why| unreadable(&format!("{json}: {why}")))
    });
    read.transpose()
}

/// Adds text from its JSON.
fn add_text(builder: &mut StringBuilder, json: &str) -> Result<()> {
    let plain = json
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'));
    match plain {
        Some(plain) if !plain.contains('\\') => builder.append_value(plain),
        _ => {
            let text: String = serde_json::from_str(json).map_err(|e| unreadable(&e))?;
            builder.append_value(text);
        }
    }
    Ok(())
}

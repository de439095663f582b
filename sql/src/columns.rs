//! The columns of a table, by the fields of a dataset's records.
//!
//! | values of a field | column |
//! | --- | --- |
//! | integers of 64 bits | `BIGINT` |
//! | floats, or floats and integers | `DOUBLE` |
//! | strings | `VARCHAR` |
//! | booleans | `BOOLEAN` |
//! | objects | a struct of their fields |
//! | arrays | a list of their elements' type |
//! | of several types, larger integers, nothing but null | `VARCHAR`, the JSON of the value |
//!
//! An absent value and null are both null. `_record` is the whole record.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, Fields as ArrowFields, Schema};
use esker::schema::{FieldNode, Fields, JsonTypes};

/// The column of whole records.
pub(crate) const RECORD: &str = "_record";

/// A column: its name, the names of the field on the way from the record to it, and how its values
/// are made of JSON.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) path: Vec<String>,
    pub(crate) shape: Shape,
}

/// How a value is made of JSON.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Shape {
    Bool,
    Int,
    /// With `ints` some values are integers.
    Float {
        ints: bool,
    },
    Text,
    /// The text of the JSON itself.
    Json,
    Struct(Vec<(String, Shape)>),
    List(Box<Shape>),
    /// The whole record.
    Record,
}

impl Column {
    /// The column of a field of the structs in this one; `None` if they have none of this name.
    pub(crate) fn field(&self, name: &str) -> Option<Column> {
        let Shape::Struct(fields) = &self.shape else {
            return None;
        };
        let (name, shape) = fields.iter().find(|(known, _)| known == name)?;
        let mut path = self.path.clone();
        path.push(name.clone());
        Some(Column {
            name: name.clone(),
            path,
            shape: shape.clone(),
        })
    }
}

impl Shape {
    fn of(node: FieldNode<'_>, has_more: bool) -> Shape {
        // Where fields were left out, so may be types of those that are there.
        if has_more {
            return Shape::Json;
        }
        let types = node.types().without(JsonTypes::NULL);
        let is = |of: JsonTypes| !types.is_empty() && types.without(of).is_empty();
        if is(JsonTypes::BOOL) {
            Shape::Bool
        } else if is(JsonTypes::INT) {
            Shape::Int
        } else if is(JsonTypes::INT | JsonTypes::FLOAT) {
            Shape::Float {
                ints: types.has(JsonTypes::INT),
            }
        } else if is(JsonTypes::TEXT) {
            Shape::Text
        } else if is(JsonTypes::OBJECT) && !node.children().is_empty() {
            let children = node.children().into_iter();
            let fields = children.map(|child| {
                let shape = Shape::of(child, has_more);
                (child.name().to_string(), shape)
            });
            Shape::Struct(fields.collect())
        } else if is(JsonTypes::ARRAY)
            && let Some(elements) = node.elements()
        {
            Shape::List(Box::new(Shape::of(elements, has_more)))
        } else {
            Shape::Json
        }
    }

    /// The type of the column.
    pub(crate) fn data_type(&self) -> DataType {
        match self {
            Shape::Bool => DataType::Boolean,
            Shape::Int => DataType::Int64,
            Shape::Float { .. } => DataType::Float64,
            Shape::Text | Shape::Json | Shape::Record => DataType::Utf8,
            Shape::Struct(fields) => DataType::Struct(arrow_fields(fields)),
            Shape::List(element) => {
                DataType::List(Arc::new(Field::new("item", element.data_type(), true)))
            }
        }
    }

    /// True if all values of the shape `now` can be read as ones of this shape, and mean the same.
    pub(crate) fn still_reads(&self, now: &Shape) -> bool {
        match (self, now) {
            (Shape::Json, _) => true,
            (Shape::Struct(own), Shape::Struct(fields)) => own.iter().all(|(name, shape)| {
                let now = fields.iter().find(|(known, _)| known == name);
                now.is_none_or(|(_, now)| shape.still_reads(now))
            }),
            (Shape::List(own), Shape::List(now)) => own.still_reads(now),
            _ => self == now,
        }
    }
}

/// The fields of a struct.
pub(crate) fn arrow_fields(fields: &[(String, Shape)]) -> ArrowFields {
    let field = |(name, shape): &(String, Shape)| Field::new(name, shape.data_type(), true);
    fields.iter().map(field).collect()
}

/// The columns for the fields of a dataset: those of its key, then the others by name, then the
/// whole record.
pub(crate) fn columns(fields: &Fields, key: &str) -> Vec<Column> {
    let children = fields.record().children().into_iter();
    let mut columns: Vec<Column> = children
        .filter(|node| node.name() != RECORD)
        .map(|node| Column {
            name: node.name().to_string(),
            path: vec![node.name().to_string()],
            shape: Shape::of(node, fields.has_more()),
        })
        .collect();
    let of_key: Vec<&str> = key.split(',').collect();
    columns.sort_by_key(|column| {
        let place = of_key.iter().position(|name| *name == column.name);
        place.unwrap_or(of_key.len())
    });
    columns.push(Column {
        name: RECORD.to_string(),
        path: Vec::new(),
        shape: Shape::Record,
    });
    columns
}

/// The schema of columns.
pub(crate) fn schema(columns: &[Column]) -> Schema {
    let fields = columns
        .iter()
        .map(|column| Field::new(&column.name, column.shape.data_type(), true));
    Schema::new(fields.collect::<Vec<_>>())
}

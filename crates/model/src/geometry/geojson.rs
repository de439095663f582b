//! Areas from GeoJSON (RFC 7946): its polygons.

use serde_json::Value;

use super::point::{Point, Space};
use super::polygon::Polygon;
use crate::error::{Error, Result};

/// The polygons of a text.
pub(super) fn polygon(space: Space, text: &str) -> Result<Polygon> {
    let value: Value = serde_json::from_str(text)
        .map_err(|error| Error::bad_input(format!("this is no GeoJSON: {error}")))?;
    let mut polygons = Vec::new();
    gather(space, &value, &mut polygons)?;
    Polygon::new(space, &polygons)
}

type Rings = Vec<Vec<Point>>;

/// Adds the polygons of a GeoJSON object. The JSON parser has bounded its depth.
fn gather(space: Space, value: &Value, polygons: &mut Vec<Rings>) -> Result<()> {
    let kind = value.get("type").and_then(Value::as_str);
    let list = |name: &str| match value.get(name) {
        Some(Value::Array(list)) => Ok(list),
        _ => Err(Error::bad_input(format!(
            "a GeoJSON {} needs a list of {name}",
            kind.unwrap_or_default()
        ))),
    };
    match kind {
        Some("Polygon") => polygons.push(rings(space, list("coordinates")?)?),
        Some("MultiPolygon") => {
            for polygon in list("coordinates")? {
                let Value::Array(polygon) = polygon else {
                    return Err(shape("a polygon is a list of rings", polygon));
                };
                polygons.push(rings(space, polygon)?);
            }
        }
        Some("Feature") => match value.get("geometry") {
            Some(geometry) => gather(space, geometry, polygons)?,
            None => return Err(Error::bad_input("a GeoJSON Feature needs a geometry")),
        },
        Some("FeatureCollection") => {
            for feature in list("features")? {
                gather(space, feature, polygons)?;
            }
        }
        Some("GeometryCollection") => {
            for geometry in list("geometries")? {
                gather(space, geometry, polygons)?;
            }
        }
        Some(other) => {
            return Err(Error::bad_input(format!(
                "a GeoJSON {other} is no area: a Polygon or MultiPolygon is"
            )));
        }
        None => return Err(Error::bad_input("a GeoJSON object needs a type")),
    }
    Ok(())
}

fn rings(space: Space, rings: &[Value]) -> Result<Rings> {
    let ring = |ring: &Value| match ring {
        Value::Array(points) => points.iter().map(|point| position(space, point)).collect(),
        other => Err(shape("a ring is a list of positions", other)),
    };
    rings.iter().map(ring).collect()
}

/// A position: longitude, latitude and perhaps a height, which is ignored.
fn position(space: Space, value: &Value) -> Result<Point> {
    let numbers = value
        .as_array()
        .map(|list| list.iter().map(Value::as_f64).collect::<Vec<_>>());
    match numbers.as_deref() {
        Some([Some(x), Some(y), ..]) => Point::new(space, *x, *y),
        _ => Err(shape("a position is a list of two numbers or more", value)),
    }
}

fn shape(expected: &str, found: &Value) -> Error {
    let mut found = found.to_string();
    if let Some((end, _)) = found.char_indices().nth(40) {
        found.truncate(end);
        found.push_str("...");
    }
    Error::bad_input(format!("{expected}, not {found}"))
}

//! Areas from the polygons of GeoJSON texts (RFC 7946).

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::value::RawValue;

use crate::error::{Error, Result};
use crate::geometry::{Area, Point, Polygon, Space};
use crate::schema::{exact, is_too_deep};

impl Area {
    /// The polygons of a GeoJSON text: a `Polygon` or `MultiPolygon`, or a `Feature`,
    /// `FeatureCollection` or `GeometryCollection` of polygons.
    ///
    /// # Errors
    ///
    /// If the text is not JSON or not of these types, or a ring is invalid ([`Polygon::new`]).
    pub fn from_geojson(space: Space, text: &str) -> Result<Area> {
        Ok(Area::polygon(polygon(space, text)?))
    }
}

/// Parses the polygons of a text.
fn polygon(space: Space, text: &str) -> Result<Polygon> {
    if is_too_deep(text.as_bytes()) {
        return Err(Error::bad_input("this GeoJSON is nested too deeply"));
    }
    let value: &RawValue = serde_json::from_str(text)
        .map_err(|error| Error::bad_input(format!("not GeoJSON: {error}")))?;
    let mut polygons = Vec::new();
    gather(space, value, &mut polygons)?;
    Polygon::new(space, &polygons)
}

type Rings = Vec<Vec<Point>>;

/// The elements of an array.
fn list_of(value: &RawValue) -> Option<Vec<&RawValue>> {
    serde_json::from_str(value.get()).ok()
}

/// Adds the polygons of a GeoJSON object; the caller has limited its depth.
fn gather(space: Space, value: &RawValue, polygons: &mut Vec<Rings>) -> Result<()> {
    let fields: BTreeMap<Cow<'_, str>, &RawValue> =
        serde_json::from_str(value.get()).unwrap_or_default();
    let kind = fields.get("type");
    let kind: Option<Cow<'_, str>> = kind.and_then(|kind| serde_json::from_str(kind.get()).ok());
    let kind = kind.as_deref();
    let list = |name: &str| match fields.get(name).and_then(|value| list_of(value)) {
        Some(list) => Ok(list),
        None => Err(Error::bad_input(format!(
            "a GeoJSON {} needs a list of {name}",
            kind.unwrap_or_default()
        ))),
    };
    match kind {
        Some("Polygon") => polygons.push(rings(space, &list("coordinates")?)?),
        Some("MultiPolygon") => {
            for polygon in list("coordinates")? {
                let Some(rings_of) = list_of(polygon) else {
                    return Err(shape("a polygon is a list of rings", polygon));
                };
                polygons.push(rings(space, &rings_of)?);
            }
        }
        Some("Feature") => match fields.get("geometry") {
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
                "a GeoJSON {other} is not an area: use a Polygon or MultiPolygon"
            )));
        }
        None => return Err(Error::bad_input("a GeoJSON object needs a type")),
    }
    Ok(())
}

fn rings(space: Space, rings: &[&RawValue]) -> Result<Rings> {
    let ring = |ring: &&RawValue| match list_of(ring) {
        Some(points) => points.iter().map(|point| position(space, point)).collect(),
        None => Err(shape("a ring is a list of positions", ring)),
    };
    rings.iter().map(ring).collect()
}

/// Parses a position: longitude, latitude, and optionally a height, which is ignored. Numbers are
/// read to the last bit.
fn position(space: Space, value: &RawValue) -> Result<Point> {
    let numbers = list_of(value).unwrap_or_default();
    let numbers: Vec<Option<f64>> = numbers.into_iter().map(exact::as_f64).collect();
    match numbers.as_slice() {
        [Some(x), Some(y), ..] => Point::new(space, *x, *y),
        _ => Err(shape("a position is a list of two numbers or more", value)),
    }
}

fn shape(expected: &str, found: &RawValue) -> Error {
    let mut found = found.get().to_string();
    if let Some((end, _)) = found.char_indices().nth(40) {
        found.truncate(end);
        found.push_str("...");
    }
    Error::bad_input(format!("{expected}, not {found}"))
}

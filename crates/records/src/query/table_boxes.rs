//! The tables of a spatial index and the boxes around their points, for visualisation. A table that
//! was cut by space has its exact box in its metadata.

use esker_lsm::version::TableFile;
use esker_model::geometry::Bounds;
use esker_model::schema::{Path, Type, Value, decode_point, decode_point_time};

use crate::error::{Error, Result};
use crate::index;
use crate::store::View;

/// A table of a spatial index, and the box around its points.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct TableBox {
    /// The number of its file.
    pub table: u64,
    /// Its level; the runs of level 0 are the newest.
    pub level: u32,
    /// Its run, from the newest (0) to the oldest.
    pub run: usize,
    /// Entries, deletions among them.
    pub entries: u64,
    /// Bytes of its file.
    pub bytes: u64,
    /// Least longitude, or first coordinate.
    pub west: f64,
    /// Least latitude, or second coordinate.
    pub south: f64,
    /// Greatest longitude, or first coordinate.
    pub east: f64,
    /// Greatest latitude, or second coordinate.
    pub north: f64,
}

impl View {
    /// The tables of the spatial index at `path`. The boxes are exact if tables are cut by space;
    /// otherwise they enclose a sample of the points: the ends of each table and its partition
    /// keys.
    ///
    /// # Errors
    /// [`Error::BadInput`] if the attribute has no spatial index with its own tree; any read error.
    pub(crate) fn table_boxes(&self, path: &Path) -> Result<Vec<TableBox>> {
        let attributes = &self.layout.attributes;
        let attribute = attributes.iter().find(|attribute| attribute.path == *path);
        let fits = attribute.filter(|a| a.ty.has_place() && a.kind.is_standalone());
        let Some(attribute) = fits else {
            return Err(Error::bad_input(format!(
                "`{path}` has no spatial index with its own tree"
            )));
        };
        let version = self.snapshot.version();
        // A dataset that was dropped has no trees.
        let tree = version.trees.get(&attribute.index_tree()?);
        let mut boxes = Vec::new();
        for (at, run) in tree.iter().flat_map(|tree| tree.runs.iter().enumerate()) {
            for file in run.tables.iter() {
                let meta = file.meta();
                let bounds = match index::box_of(file) {
                    Some(points) => Some(points.area),
                    None => sampled_box(attribute.ty, file)?,
                };
                // No sampled key has a point.
                let Some(bounds) = bounds else { continue };
                boxes.push(TableBox {
                    table: meta.number,
                    level: run.level,
                    run: at,
                    entries: meta.entries,
                    bytes: meta.size,
                    west: bounds.min_x,
                    south: bounds.min_y,
                    east: bounds.max_x,
                    north: bounds.max_y,
                });
            }
        }
        Ok(boxes)
    }
}

/// The box around the points at the ends of a table and in its partition keys. Keys without a point
/// are skipped: those of other values, and partition keys, which are cut off where they can be.
fn sampled_box(ty: Type, file: &TableFile) -> Result<Option<Bounds>> {
    let (meta, table) = (file.meta(), file.table()?);
    let ends = [meta.smallest.as_slice(), meta.largest.as_slice()];
    let keys = ends.into_iter().chain(table.partition_keys());
    let points = keys.filter_map(|key| {
        let (value, _) = Value::split(ty, key)?;
        match ty.timed_space() {
            Some(space) => decode_point_time(space, value).map(|(point, _)| point),
            None => decode_point(ty.space()?, value),
        }
    });
    Ok(points.map(Bounds::of).reduce(Bounds::union))
}

//! Queries of points: the nearest records, records by distance, counts by cell, and the latest
//! record of each value of a field; and the tables of a spatial index.

use esker_model::schema::IntoPath;
use esker_model::{FromRecord, PrimaryKey, Record};

use super::{DatasetSnapshot, Query};
use crate::error::Result;
use crate::query::{CellCount, Explain, Latest, Neighbour, TableBox};
use crate::record;

impl<K: PrimaryKey, V: FromRecord<K>> Query<K, V> {
    /// The `k` records nearest to the point `from` among those that meet the conditions, nearest
    /// first, ties by key. `from` is a longitude and a latitude; if the points at `path` are in the
    /// plane, x and y. With `max`, only records at most that far away (in metres; in the plane, in
    /// the unit of the coordinates). With a spatial index at `path` it reads about `k` records;
    /// without one, all of them. `k` replaces the limit of the query.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// use esker::{AreaExpr, Database, DatasetDef, Index, Options, field};
    ///
    /// let db = Database::create_or_open(dir.path(), Options::default())?;
    /// let def = DatasetDef::key("id").index("lon,lat", Index::spatial());
    /// let stops = db.create_dataset::<u64>("stops", def)?;
    /// for (id, lon, lat) in [(1, 2.35, 48.85), (2, 2.29, 48.86), (3, -0.13, 51.51)] {
    ///     stops.put(&serde_json::json!({"id": id, "lon": lon, "lat": lat}))?;
    /// }
    /// let near = stops.query().nearest("lon,lat", (2.34, 48.86), 2, None)?;
    /// assert_eq!(near.iter().map(|stop| *stop.record.key()).collect::<Vec<_>>(), [1, 2]);
    /// let london = field("lon,lat").within(AreaExpr::rect(-1.0, 51.0, 1.0, 52.0));
    /// assert_eq!(stops.find(london).count()?, 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::BadInput`](crate::Error::BadInput) if the point or distance is invalid, the field
    /// is not a point, or the query has an order, an offset, a page token or selected fields; also
    /// any read error.
    pub fn nearest(
        self,
        path: impl IntoPath,
        from: (f64, f64),
        k: usize,
        max: Option<f64>,
    ) -> Result<Vec<Neighbour<K>>> {
        Ok(self.nearest_explained(path, from, k, max)?.0)
    }

    /// As [`Query::nearest`], with an explanation. The search queries circles around the point,
    /// each larger than the one before, until one has enough records: the explanation is that of
    /// the last of these queries.
    ///
    /// # Errors
    /// As [`Query::nearest`].
    pub fn nearest_explained(
        self,
        path: impl IntoPath,
        from: (f64, f64),
        k: usize,
        max: Option<f64>,
    ) -> Result<(Vec<Neighbour<K>>, Explain)> {
        let path = path.into_path()?;
        let (neighbours, explain) = self.with_valid_arguments()?.nearest(&path, from, k, max)?;
        Ok((with_key_type(neighbours)?, explain))
    }

    /// All matching records after the offset (at most the limit) by their distance from the point
    /// `from` ([`Query::nearest`]), nearest first, ties by key.
    ///
    /// # Errors
    /// [`Error::BadInput`](crate::Error::BadInput) if the point is invalid, the field is not a
    /// point, or the query has an order, a page token or selected fields; also any read error.
    pub fn by_distance(
        self,
        path: impl IntoPath,
        from: (f64, f64),
    ) -> Result<(Vec<Neighbour<K>>, Explain)> {
        let path = path.into_path()?;
        let (neighbours, explain) = self.with_valid_arguments()?.by_distance(&path, from)?;
        Ok((with_key_type(neighbours)?, explain))
    }

    /// The number of matching records in each non-empty cell of a grid with cells of `degrees`
    /// degrees: fullest first, then by row and column.
    ///
    /// # Errors
    /// [`Error::BadInput`](crate::Error::BadInput) if the size is invalid, or the query has an
    /// order, an offset, a limit, a page token or selected fields; also any read error.
    pub fn cells(self, path: impl IntoPath, degrees: f64) -> Result<Vec<CellCount>> {
        self.with_valid_arguments()?
            .cells(&path.into_path()?, degrees)
    }

    /// Takes the newest record of each value at `path`, and returns those that meet the conditions,
    /// ordered by primary key (after the offset, at most the limit): "the last position of each
    /// vehicle, for the vehicles now in this area". Skips records without a value at `path`. Memory
    /// grows with the number of values.
    ///
    /// # Errors
    /// [`Error::BadInput`](crate::Error::BadInput) if the path is invalid or one of points,
    /// `latest` has an invalid bound, or bounds but no path of the time, or the query has an order,
    /// a page token or selected fields; also any read error.
    pub fn latest_per(
        self,
        path: impl IntoPath,
        latest: &Latest,
    ) -> Result<(Vec<Record<K>>, Explain)> {
        let query = self.with_valid_arguments()?;
        let (records, explain) = query.latest_per(&path.into_path()?, latest)?;
        let records = records.into_iter().map(record::with_key_type);
        Ok((records.collect::<Result<_>>()?, explain))
    }
}

impl<K: PrimaryKey, V: FromRecord<K>> DatasetSnapshot<K, V> {
    /// The tables of the spatial index at `path`, newest first, with the bounding boxes of their
    /// points: exact in spatially partitioned layouts, otherwise from a sample of about a
    /// thousandth of the points.
    ///
    /// # Errors
    /// [`Error::BadInput`](crate::Error::BadInput) if there is no such index, or it has no tree;
    /// also any read error.
    pub fn table_boxes(&self, path: impl IntoPath) -> Result<Vec<TableBox>> {
        self.view.table_boxes(&path.into_path()?)
    }
}

/// The neighbours, with their keys as values of the program's type.
fn with_key_type<K: PrimaryKey>(neighbours: Vec<Neighbour>) -> Result<Vec<Neighbour<K>>> {
    let neighbours = neighbours.into_iter();
    neighbours.map(|near| Ok(near.typed()?)).collect()
}

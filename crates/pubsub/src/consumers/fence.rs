//! Geofences on datasets: which changes move a record into an area, out of it, or within it.

use std::fmt;
use std::str::FromStr;

use esker::{AreaExpr, Change, DatasetDef, Error, Expr, Path, PrimaryKey, Record, Result};
use esker_model::condition::Filter;
use esker_model::geometry::{Area, Space};
use esker_model::schema::PointAt;

/// What a change does to a record with regard to an area ([`Fence`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FenceEvent {
    /// The record is inside now, and was not before: it moved in, or is new.
    Enter,
    /// The record was inside, and is not any more: it moved out, was deleted, or has expired.
    Exit,
    /// The record was inside before the change and is inside after it.
    Inside,
}

impl FenceEvent {
    /// All events, `enter`, `exit`, `inside`.
    pub const ALL: [FenceEvent; 3] = [FenceEvent::Enter, FenceEvent::Exit, FenceEvent::Inside];

    /// Its name: `enter`, `exit` or `inside`.
    pub fn name(self) -> &'static str {
        match self {
            FenceEvent::Enter => "enter",
            FenceEvent::Exit => "exit",
            FenceEvent::Inside => "inside",
        }
    }
}

impl fmt::Display for FenceEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for FenceEvent {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<FenceEvent, String> {
        let known = FenceEvent::ALL.into_iter().find(|one| one.name() == text);
        known.ok_or_else(|| {
            format!("`{text}` is no event of a fence: there are enter, exit and inside")
        })
    }
}

/// An area that records enter and leave. It decides by a change and the record that the change
/// replaced, so it needs a feed with old records ([`esker::Changes::with_old`]).
///
/// With a condition, only a record that meets it is inside: a record in the area that comes to
/// meet the condition enters, one that ceases to meet it exits.
///
/// ```
/// use esker::{AreaExpr, ChangesFrom, Database, DatasetDef, Options, Path};
/// use esker_pubsub::{Fence, FenceEvent};
///
/// # fn main() -> esker::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// let db = Database::create_or_open(dir.path(), Options::default())?;
/// let def = DatasetDef::key("id").keep_old_records();
/// let cars = db.create_dataset::<u64>("cars", def)?;
/// let harbour = AreaExpr::rect(9.9, 53.5, 10.0, 53.6);
/// let fence = Fence::new(&cars.def(), &Path::parse("at").unwrap(), &harbour)?;
///
/// let mut changes = cars.changes(ChangesFrom::Now)?.with_old()?;
/// cars.put_json(br#"{"id": 1, "at": [9.95, 53.55]}"#)?;
/// cars.put_json(br#"{"id": 1, "at": [8.0, 53.55]}"#)?;
/// let mut events = Vec::new();
/// while let Some(change) = changes.next()? {
///     events.extend(fence.event(&change));
/// }
/// assert_eq!(events, [FenceEvent::Enter, FenceEvent::Exit]);
/// # Ok(())
/// # }
/// ```
pub struct Fence {
    area: Area,
    space: Space,
    point: PointAt,
    filter: Option<Filter>,
}

impl Fence {
    /// A fence around an area, for the points at a path: GeoJSON points, arrays of two numbers, or
    /// two fields (`LON,LAT`). They are degrees, unless the dataset has an index on the path whose
    /// points are of the plane.
    ///
    /// # Errors
    /// [`Error::BadInput`] if the path or the area is invalid.
    pub fn new(def: &DatasetDef, path: &Path, area: &AreaExpr) -> Result<Fence> {
        let mut indexes = def.indexes.iter().filter(|index| index.path == *path);
        let space = indexes.find_map(|index| index.ty.space());
        let space = space.unwrap_or(Space::Sphere);
        Ok(Fence {
            area: area.area(space)?,
            space,
            point: PointAt::new(path)?,
            filter: None,
        })
    }

    /// Only records that meet the condition can be inside.
    ///
    /// # Errors
    /// [`Error::BadInput`] if the condition is invalid.
    pub fn matching(mut self, condition: &Expr) -> Result<Fence> {
        condition.check().map_err(Error::BadInput)?;
        self.filter = Some(Filter::new(condition));
        Ok(self)
    }

    /// What a change of a feed with old records does; `None` if the record is outside before and
    /// after it.
    pub fn event<K: PrimaryKey>(&self, change: &Change<K>) -> Option<FenceEvent> {
        let is_inside =
            |record: Option<&Record<K>>| record.is_some_and(|record| self.contains(record.json()));
        match (is_inside(change.old()), is_inside(change.record())) {
            (false, true) => Some(FenceEvent::Enter),
            (true, false) => Some(FenceEvent::Exit),
            (true, true) => Some(FenceEvent::Inside),
            (false, false) => None,
        }
    }

    /// True if a record is inside; false if it has no valid point.
    pub fn contains(&self, json: &[u8]) -> bool {
        let point = self.point.find(self.space, json);
        point.is_some_and(|point| self.area.contains(point))
            && (self.filter.as_ref()).is_none_or(|filter| filter.matches_json(json))
    }
}

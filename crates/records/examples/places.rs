//! Points in space: an area, and the nearest few.
//!
//! `cargo run -p esker --example places`

use esker::{AreaExpr, Database, DatasetDef, Index, Options, field};
use serde_json::json;

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let db = Database::create_or_open(folder.path().join("city"), Options::new())?;
    let def = DatasetDef::key("id").index("at", Index::spatial());
    let seen = db.dataset_or_create::<u64>("seen", def)?;
    for (id, bus, lon, lat) in [
        (1, "a", 2.330, 48.850),
        (2, "b", 2.350, 48.860),
        (3, "a", 2.340, 48.855),
        (4, "c", 2.500, 48.900),
    ] {
        seen.put(&json!({"id": id, "bus": bus, "at": [lon, lat]}))?;
    }

    // Within 2 km of a place, written in WGS 84 degrees and metres.
    let near = field("at").within(AreaExpr::circle(2.34, 48.855, 2000.0));
    println!("{} sightings within 2 km", seen.find(near).count()?);

    // The nearest two, with their distance.
    let nearest = seen.query().nearest("at", (2.34, 48.855), 2, None)?;
    for found in &nearest {
        println!("{}, {:.0} m away", found.record.key(), found.distance);
    }
    let keys: Vec<u64> = nearest.iter().map(|found| *found.record.key()).collect();
    assert_eq!(keys, [3, 2]);
    Ok(())
}

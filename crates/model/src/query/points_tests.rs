//! Points of fields that have indexes of their own.

use super::Shape;
use crate::definition::{DatasetDef, Index, StoredDef};
use crate::geometry::Space;
use crate::schema::{KeyType, Path};

#[test]
fn a_compound_index_of_the_coordinates_declares_no_point() {
    let def = DatasetDef::new("id", KeyType::Int)
        .index("x", Index::none().float())
        .index("y", Index::none().float())
        .index("x,y", Index::composite().compound());
    let shape = Shape::new(&StoredDef::new(&def));
    let path: Path = "x,y".parse().unwrap();
    assert_eq!(shape.space_of(&path).unwrap(), Space::Sphere);
    assert!(shape.space_of(&"x".parse().unwrap()).is_err());
}

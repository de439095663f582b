//! Tests of the map: single cases, and random commands against a model.

mod cases;
mod model;
mod random;
mod replica;

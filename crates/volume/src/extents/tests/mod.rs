//! Tests of the segments: against a model under power cuts and faults, under rot, and of reading.

mod ahead;
mod codec;
mod common;
mod model;
mod reading;
mod rot;
mod spares;

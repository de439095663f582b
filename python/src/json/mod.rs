//! Records as Python has them: dicts, written and read as JSON without other objects between.

mod reader;
mod writer;

pub(crate) use reader::{Names, decoded};
pub(crate) use writer::{record_json, time_text, value_json};

//! Definitions of datasets: the key, the indexed attributes, and the kinds of their indexes.

mod attribute;
mod checks;
mod dataset;
mod document;
mod external;
mod index;
mod kind;
mod stored;
mod strategy;
mod text;

pub use attribute::{IndexDef, MAX_INDEXES};
pub use checks::{check_fields, check_place_and_time, check_tokenizer, check_type};
pub use dataset::{DatasetDef, Expiry, check_dataset_name, check_name};
pub use document::DefinitionDocument;
pub use external::ExternalKind;
pub use index::Index;
pub use kind::{IndexKind, Layout};
pub use stored::{MaintenanceSettings, StoredAttribute, StoredChange, StoredDef};
pub use strategy::{Maintenance, Merging, Repair};
pub use text::{ExpiresText, IndexText, KINDS, KeyText};

//! The open store: the engine, its datasets, and the state that their handles share. Modules below
//! the public interface get it as a [`Handle`] (one dataset) or a [`View`] (one dataset in one
//! snapshot).

mod append;
mod expired;
mod expiry;
mod findings;
mod handle;
mod kept_filter;
mod open;
mod read_repair;
mod remarks;
mod state;

pub(crate) use append::append_completed;
pub(crate) use expired::ExpiryEntry;
pub(crate) use expiry::{expiry_key, has_expired};
pub(crate) use handle::{Background, Handle, View, records_in};
pub(crate) use kept_filter::{CachedFilter, ComponentState, KeptFilter};
pub use open::check_dataset_name;
pub(crate) use open::{Store, datasets_in};
pub(crate) use remarks::Remarks;
pub(crate) use state::DatasetState;

//! A store that a server has, at `http://` or `https://` (`esker serve`).

mod answers;
mod dataset;
mod reads;
mod requests;
mod store;

pub use store::Remote;

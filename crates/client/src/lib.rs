//! A client of a served Esker store (`esker serve`): blocking, with typed requests and errors.
//!
//! ```no_run
//! use esker::{Request, field};
//! use esker_client::{Access, At, Client};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::connect("http://127.0.0.1:7700", &Access::from_env()?)?;
//! let visits = client.dataset("visits")?;
//! visits.put_json(br#"{"id": 1, "user": "ann"}"#)?;
//! for record in visits.find(&At::Now, &Request::of(field("user").eq("ann")))? {
//!     println!("{}", String::from_utf8_lossy(record?.json()));
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Errors are those of the library: a problem that the server answers with becomes the
//! [`esker::Error`] of its kind again, with the same text. `esker-store` opens an address with this
//! client, so that whatever works on a store works on a served one.

// The layers of these modules: `../layers.txt`.

#[cfg(feature = "http")]
mod access;
#[cfg(feature = "http")]
mod answer;
#[cfg(feature = "http")]
mod client;
#[cfg(feature = "http")]
mod dataset;
#[cfg(feature = "http")]
mod feed;
#[cfg(feature = "http")]
mod jobs;
#[cfg(feature = "http")]
mod moments;
#[cfg(feature = "http")]
mod problem;
#[cfg(feature = "http")]
mod writes;

#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod wire;

#[cfg(feature = "http")]
pub use access::Access;
#[cfg(feature = "http")]
pub use answer::Rows;
#[cfg(feature = "http")]
pub use client::{Client, segment};
#[cfg(feature = "http")]
pub use dataset::Dataset;
#[cfg(feature = "http")]
pub use feed::Feed;
#[cfg(feature = "http")]
pub use jobs::{Job, JobState};
#[cfg(feature = "http")]
pub use moments::Moment;
pub use wire::At;
#[cfg(feature = "http")]
pub use writes::{Writes, Written};

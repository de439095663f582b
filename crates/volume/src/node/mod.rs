//! A node: all groups, without I/O in `core`, and as a process runs them in `driver`.

mod apply;
mod core;
mod driver;
mod errands;
mod group;
mod heal;
mod images;
pub mod input;
pub mod layout;
mod leader;
mod log;
mod membership;
mod open;
mod picture;
pub mod reading;
mod router;
mod settings;
mod space;
mod status;

pub use self::core::Core;
pub use driver::{Node, NodeOptions};
pub use open::open;
pub use settings::Settings;

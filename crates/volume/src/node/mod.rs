//! A node: all groups, without I/O in `core`, and as a process runs them in `driver`.

mod apply;
mod asked;
mod core;
mod cutting;
mod disk;
mod driver;
mod errands;
mod group;
mod heads;
mod heal;
mod healing;
mod home;
mod images;
mod imaging;
pub mod input;
pub mod layout;
mod leader;
mod log;
mod membership;
mod open;
mod picture;
pub mod reading;
mod reads;
mod reopen;
mod router;
#[cfg(test)]
mod router_tests;
mod rows;
mod running;
mod settings;
mod space;
mod status;
mod upkeep;
mod vacuum;
mod whole;

pub use self::core::Core;
pub use driver::{Node, NodeOptions};
pub use open::open;
pub use settings::{MEMORY, Settings, Shares};

//! MQTT 5 and 3.1.1 on the broker of the store. The design is in `DESIGN.md`, section MQTT.

mod begun;
mod connect;
mod connection;
mod deliver;
mod encode;
mod filter;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod kept;
mod message;
mod outgoing;
mod packet;
mod pass;
mod publish;
mod reason;
mod retaining;
mod router;
mod served;
mod session;
mod sessions;
mod shared;
mod source;
mod subscribe;
mod sweep;
mod users;
mod version;
mod websocket;

pub(crate) use served::{Door, Served, start};
pub use users::password_hash;

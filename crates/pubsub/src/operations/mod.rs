//! The calls of a broker that write: publish and withdraw, subscribe, change a subscription; and
//! the listing of topics.

pub(crate) mod change;
pub(crate) mod publish;
pub(crate) mod subscribe;
pub(crate) mod topics;

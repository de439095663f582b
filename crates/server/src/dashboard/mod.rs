//! The dashboard, and the reference of the interface: pages without a build step, embedded in the
//! program, that use the interface as any other client does. Their files need no token: the pages
//! ask for one.

mod files;

pub(crate) use files::{has, routes};

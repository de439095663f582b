//! `esker volume`: replicated block volumes.

mod ask;
mod demo;
mod link;
mod members;
mod node;
mod processes;
mod run;
mod show;

pub(super) use demo::demo;
pub(crate) use run::volume;

//! HTTP: the routes (`routes`), what surrounds the handler of each (`around`), and the handlers.

mod app;
mod around;
mod batches;
mod bodies;
mod body;
mod datasets;
mod document;
mod etags;
mod examples;
mod extract;
mod feed;
mod find;
mod jobs;
mod levels;
mod live;
mod load;
mod origin;
mod points;
mod read;
mod records;
mod routes;
mod rows;
mod state;
mod stream;
mod system;
mod writes;

pub(crate) use app::{App, Shared};
pub(crate) use bodies::Bodies;
pub(crate) use origin::is_own as is_own_origin;
pub(crate) use routes::{document, router};

//! `esker volume`: nodes as processes, commands, NBD, certificates, and nodes that are killed.

mod certificates;
mod cluster;
mod commands;
mod data;
mod full;
mod members;
mod outside;

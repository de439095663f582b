//! The namespace and its tables.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::types::TableKind;
use super::errors::may_pass;
use super::gateway::{Coprocessor, HBase, PATIENCE};
use super::messages::{NewTable, read_attributes, table_name};
use super::names::splits;
use super::wire::{Reader, Writer, kind, malformed};
use crate::error::{Error, Result};
use crate::time::HINTS;

/// The class of the coprocessor.
const CLASS: &str = "esker.hbase.CompactionRepair";
/// Among HBase's own names of attributes, that of a table's first coprocessor.
const ATTRIBUTE: &[u8] = b"coprocessor$1";
/// The priority of coprocessors that users add.
const PRIORITY: u32 = 1_073_741_823;

impl HBase {
    /// The name of a table with its namespace.
    pub(super) fn full_name(&self, table: &str) -> Vec<u8> {
        format!("{}:{table}", self.settings.namespace).into_bytes()
    }

    pub(super) fn open_namespace(&self, create: bool) -> Result<()> {
        let name = self.settings.namespace.as_str();
        if self.has_namespace()? {
            return Ok(());
        }
        if !create {
            return Err(Error::NoStore(format!(
                "the cluster has no namespace `{name}`; `esker load` and `esker create` make it"
            )));
        }
        let mut request = Writer::call("createNamespace");
        request.structure(1, |to| to.binary(1, name.as_bytes()));
        match self.once(request, |_, _| Ok(())) {
            Ok(_) => Ok(()),
            // Another process may have been first.
            Err(error) => {
                if self.has_namespace()? {
                    Ok(())
                } else {
                    Err(error)
                }
            }
        }
    }

    fn has_namespace(&self) -> Result<bool> {
        let name = self.settings.namespace.as_bytes();
        let names = self.ask(Writer::call("listNamespaces"), |from, of| match of {
            kind::LIST => from.binaries(),
            _ => Err(malformed("a list of names is missing")),
        })?;
        Ok(names.iter().any(|known| known == name))
    }

    fn named(&self, call: &str, table: &str) -> Writer {
        let mut request = Writer::call(call);
        let namespace = self.settings.namespace.as_bytes();
        request.structure(1, |to| table_name(to, namespace, table.as_bytes()));
        request
    }

    fn exists(&self, table: &str) -> Result<bool> {
        self.is(self.named("tableExists", table))
    }

    fn is(&self, request: Writer) -> Result<bool> {
        self.ask(request, |from: &mut Reader<'_>, of| match of {
            kind::BOOL => from.bool(),
            _ => Err(malformed("the answer is missing")),
        })
    }

    /// Creates a table that may exist already.
    pub(super) fn make_table(&self, table: &str, of: TableKind) -> Result<()> {
        if self.exists(table)? {
            return Ok(());
        }
        let mut new = NewTable {
            namespace: self.settings.namespace.clone().into_bytes(),
            name: table.as_bytes().to_vec(),
            ..NewTable::default()
        };
        if of != TableKind::Swapped {
            new.splits = splits(self.settings.regions);
        }
        if of == TableKind::Versions {
            // Any time above 0 keeps the deletions: our timestamps are ahead of milliseconds.
            let kept = ("hbase.hstore.time.to.purge.deletes", HINTS.to_string());
            new.configuration.push(kept);
            if let Some(from) = &self.settings.coprocessor {
                let jar = match from {
                    Coprocessor::Installed => "",
                    Coprocessor::Jar(path) => path,
                };
                let value = format!("{jar}|{CLASS}|{PRIORITY}|");
                new.attributes
                    .push((ATTRIBUTE.to_vec(), value.into_bytes()));
            }
        }
        let mut request = Writer::call("createTable");
        new.write(&mut request);
        let Err(error) = self.once(request, |_, _| Ok(())) else {
            return Ok(());
        };
        // Another process may have been first, or this one, if it took longer than an answer may.
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            if self.exists(table)? && self.is(self.named("isTableAvailable", table))? {
                return Ok(());
            }
            if !may_pass(&error) && !self.exists(table)? {
                break;
            }
            std::thread::sleep(Duration::from_millis(250));
        }
        Err(error)
    }

    /// Drops a table that may be gone already.
    pub(super) fn remove_table(&self, table: &str) -> Result<()> {
        self.hooks.lock().retain(|known, _| &**known != table);
        let mut last = Ok(());
        for _ in 0..3 {
            if !self.exists(table)? {
                return Ok(());
            }
            // Each of the two may have been done by another process, or by an attempt whose answer
            // was lost.
            if self.is(self.named("isTableEnabled", table))? {
                last = self
                    .once(self.named("disableTable", table), |_, _| Ok(()))
                    .map(drop);
            }
            if last.is_ok() {
                last = self
                    .once(self.named("deleteTable", table), |_, _| Ok(()))
                    .map(drop);
            }
        }
        if self.exists(table)? { last } else { Ok(()) }
    }

    /// True if a table has the coprocessor. One that gets it later is noticed by new processes.
    pub(super) fn has_hook(&self, table: &Arc<str>) -> bool {
        if let Some(known) = self.hooks.lock().get(table) {
            return *known;
        }
        let attributes = self.ask(
            self.named("getTableDescriptor", table),
            |from, of| match of {
                kind::STRUCT => read_attributes(from),
                _ => Err(malformed("the description of a table is missing")),
            },
        );
        let Ok(attributes) = attributes else {
            return false;
        };
        let has_class = |value: &[u8]| {
            let class = CLASS.as_bytes();
            value.windows(class.len()).any(|part| part == class)
        };
        let has = attributes
            .iter()
            .any(|(name, value)| name.starts_with(b"coprocessor$") && has_class(value));
        self.hooks.lock().insert(table.clone(), has);
        has
    }
}

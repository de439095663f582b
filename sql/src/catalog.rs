//! The datasets of a store as the tables of a session, and the moment of a statement.
//!
//! A statement gets a context of its own, whose catalog has the datasets of one [`StoreSnapshot`]
//! and hands everything else on to that of the session. The snapshot is in the configuration, too,
//! where a table finds it that a view named before.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::{
    CatalogProvider, CatalogProviderList, MemorySchemaProvider, SchemaProvider, TableProvider,
};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::TableType;
use esker::{Database, DatasetSnapshot, ErrorKind, StoreSnapshot};

use crate::table::{Table, failed};

/// The names of a catalog and a schema.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) catalog: String,
    pub(crate) schema: String,
}

/// The datasets of a store as they are, and tables that a session creates.
pub(crate) struct Datasets {
    pub(crate) db: Database,
    pub(crate) others: MemorySchemaProvider,
}

impl std::fmt::Debug for Datasets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("datasets of a store")
    }
}

impl Datasets {
    fn has(&self, name: &str) -> bool {
        self.db.dataset_names().iter().any(|known| known == name)
    }
}

/// The table of a dataset; `None` if there is none of this name.
fn table_of(
    db: &Database,
    moment: &StoreSnapshot,
    name: &str,
) -> Result<Option<Arc<dyn TableProvider>>> {
    let dataset: DatasetSnapshot = match moment.dataset(name) {
        Ok(dataset) => dataset,
        Err(error) if error.kind() == ErrorKind::UnknownDataset => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    Ok(Some(Arc::new(Table::new(db.clone(), name, &dataset)?)))
}

pub(crate) fn of_the_store(name: &str) -> DataFusionError {
    DataFusionError::Execution(format!(
        "`{name}` is a dataset of the store, which SQL only reads: `esker` creates and drops datasets"
    ))
}

#[async_trait]
impl SchemaProvider for Datasets {
    fn table_names(&self) -> Vec<String> {
        let mut names = self.db.dataset_names();
        names.extend(self.others.table_names());
        names
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        match table_of(&self.db, &self.db.snapshot(), name)? {
            Some(table) => Ok(Some(table)),
            None => self.others.table(name).await,
        }
    }

    /// Without its columns, for a list of all tables.
    async fn table_type(&self, name: &str) -> Result<Option<TableType>> {
        if self.has(name) {
            return Ok(Some(TableType::Base));
        }
        self.others.table_type(name).await
    }

    fn register_table(
        &self,
        name: String,
        table: Arc<dyn TableProvider>,
    ) -> Result<Option<Arc<dyn TableProvider>>> {
        if self.has(&name) {
            return Err(of_the_store(&name));
        }
        self.others.register_table(name, table)
    }

    fn deregister_table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        if self.has(name) {
            return Err(of_the_store(name));
        }
        self.others.deregister_table(name)
    }

    fn table_exist(&self, name: &str) -> bool {
        self.has(name) || self.others.table_exist(name)
    }
}

/// What the catalogs of a session have at a moment: other datasets in the schema of the datasets.
#[derive(Clone)]
pub(crate) struct AtMoment<T: ?Sized> {
    pub(crate) inner: Arc<T>,
    pub(crate) place: Place,
    pub(crate) db: Database,
    pub(crate) moment: StoreSnapshot,
}

impl<T: ?Sized> std::fmt::Debug for AtMoment<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a store after write {}", self.moment.seq())
    }
}

impl<T: ?Sized> AtMoment<T> {
    /// The same moment of a part.
    fn of<P: ?Sized>(&self, inner: Arc<P>) -> AtMoment<P> {
        AtMoment {
            inner,
            place: self.place.clone(),
            db: self.db.clone(),
            moment: self.moment.clone(),
        }
    }
}

impl CatalogProviderList for AtMoment<dyn CatalogProviderList> {
    fn register_catalog(
        &self,
        name: String,
        catalog: Arc<dyn CatalogProvider>,
    ) -> Option<Arc<dyn CatalogProvider>> {
        self.inner.register_catalog(name, catalog)
    }

    fn catalog_names(&self) -> Vec<String> {
        self.inner.catalog_names()
    }

    fn catalog(&self, name: &str) -> Option<Arc<dyn CatalogProvider>> {
        let catalog = self.inner.catalog(name)?;
        if name == self.place.catalog {
            return Some(Arc::new(self.of(catalog)));
        }
        Some(catalog)
    }
}

impl CatalogProvider for AtMoment<dyn CatalogProvider> {
    fn schema_names(&self) -> Vec<String> {
        self.inner.schema_names()
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        let schema = self.inner.schema(name)?;
        if name == self.place.schema {
            return Some(Arc::new(self.of(schema)));
        }
        Some(schema)
    }

    fn register_schema(
        &self,
        name: &str,
        schema: Arc<dyn SchemaProvider>,
    ) -> Result<Option<Arc<dyn SchemaProvider>>> {
        self.inner.register_schema(name, schema)
    }

    fn deregister_schema(
        &self,
        name: &str,
        cascade: bool,
    ) -> Result<Option<Arc<dyn SchemaProvider>>> {
        self.inner.deregister_schema(name, cascade)
    }
}

#[async_trait]
impl SchemaProvider for AtMoment<dyn SchemaProvider> {
    fn table_names(&self) -> Vec<String> {
        self.inner.table_names()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        match table_of(&self.db, &self.moment, name)? {
            Some(table) => Ok(Some(table)),
            None => self.inner.table(name).await,
        }
    }

    async fn table_type(&self, name: &str) -> Result<Option<TableType>> {
        self.inner.table_type(name).await
    }

    fn register_table(
        &self,
        name: String,
        table: Arc<dyn TableProvider>,
    ) -> Result<Option<Arc<dyn TableProvider>>> {
        self.inner.register_table(name, table)
    }

    fn deregister_table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        self.inner.deregister_table(name)
    }

    fn table_exist(&self, name: &str) -> bool {
        self.inner.table_exist(name)
    }
}

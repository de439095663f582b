//! A session of SQL over a store.

use std::sync::Arc;

use datafusion::catalog::{CatalogProviderList, MemorySchemaProvider};
use datafusion::config::Dialect;
use datafusion::dataframe::DataFrame;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::context::SessionState;
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::logical_expr::{DdlStatement, LogicalPlan, Statement};
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion::sql::parser::{DFParser, Statement as SqlStatement};
use datafusion::sql::sqlparser::dialect::dialect_from_str;
use esker::Database;
use esker_pubsub::Broker;

use crate::catalog::{AtMoment, Datasets, Place, of_the_store};
use crate::table::{Moment, failed};
use crate::topics::{SCHEMA, Topics};

/// A session of SQL over a store.
#[derive(Clone)]
pub struct Session {
    context: SessionContext,
    db: Database,
    place: Place,
}

impl Session {
    /// A session over a store, in which joins, sorts and groups may use so many bytes of memory;
    /// what does not fit goes to temporary files. What the store itself uses is its own budget.
    /// Of a store that was opened with publish/subscribe ([`esker_pubsub::PubSub::register`]) the topics
    /// are tables, too.
    ///
    /// # Errors
    /// Any error of DataFusion.
    pub fn new(db: Database, memory: usize) -> Result<Session> {
        // An error says that the store was opened without.
        let has_topics = Broker::is_there(&db).is_ok();
        let pool = Arc::new(FairSpillPool::new(memory));
        let runtime = RuntimeEnvBuilder::new()
            .with_memory_pool(pool.clone())
            .build_arc()?;
        let mut config = SessionConfig::new().with_information_schema(true);
        let options = config.options_mut();
        // As people expect it of a shell.
        options.format.null = "NULL".to_string();
        // As datasets sort, and most other stores do.
        options.sql_parser.default_null_ordering = "nulls_last".to_string();
        // The generic one takes `user` for a function, and a field is often called so.
        options.sql_parser.dialect = Dialect::DuckDB;
        let place = Place {
            catalog: options.catalog.default_catalog.clone(),
            schema: options.catalog.default_schema.clone(),
        };
        let context = SessionContext::new_with_config_rt(config, runtime).enable_url_table();
        let datasets = Datasets {
            db: db.clone(),
            others: MemorySchemaProvider::new(),
        };
        let catalog = context
            .catalog(&place.catalog)
            .ok_or_else(|| DataFusionError::Internal("there is no catalog".to_string()))?;
        catalog.register_schema(&place.schema, Arc::new(datasets))?;
        if has_topics {
            let topics = Topics {
                db: db.clone(),
                memory: pool,
            };
            catalog.register_schema(SCHEMA, Arc::new(topics))?;
        }
        Ok(Session { context, db, place })
    }

    /// What DataFusion knows of the session: for tables of other kinds, functions, and settings.
    /// What is run in it directly reads each table as of the time at which that is planned.
    pub fn context(&self) -> &SessionContext {
        &self.context
    }

    /// Plans a statement over the store as it is now: all of its tables are read as of one moment.
    /// A store that is open for reading ([`Database::open_reader`]) is refreshed first.
    ///
    /// # Errors
    /// Any error of DataFusion or of the store.
    pub async fn sql(&self, statement: &str) -> Result<DataFrame> {
        let state = self.state_now()?;
        let plan = state.create_logical_plan(statement).await?;
        self.execute(state, plan).await
    }

    /// The state of the session, over the store as it is now.
    ///
    /// # Errors
    /// Any read error.
    pub fn state_now(&self) -> Result<SessionState> {
        self.db.refresh().map_err(failed)?;
        let state = self.context.state();
        let moment = self.db.snapshot();
        let catalogs: Arc<dyn CatalogProviderList> = Arc::new(AtMoment {
            inner: state.catalog_list().clone(),
            place: self.place.clone(),
            db: self.db.clone(),
            moment: moment.clone(),
        });
        let moment = Moment(moment);
        let config = state.config().clone().with_extension(Arc::new(moment));
        let state = SessionStateBuilder::new_from_existing(state)
            .with_config(config)
            .with_catalog_list(catalogs);
        Ok(state.build())
    }

    /// The statements of a text, which semicolons separate.
    ///
    /// # Errors
    /// What is no SQL.
    pub fn parse(&self, text: &str) -> Result<Vec<SqlStatement>> {
        let config = self.context.copied_config();
        let dialect = config.options().sql_parser.dialect;
        let dialect = dialect_from_str(dialect).ok_or_else(|| {
            DataFusionError::Configuration(format!("there is no dialect {dialect}"))
        })?;
        Ok(DFParser::parse_sql_with_dialect(text, dialect.as_ref())?.into())
    }

    /// Executes a plan that was made with a [state](Session::state_now). Statements that change the
    /// session itself change this one.
    ///
    /// # Errors
    /// Any error of DataFusion or of the store.
    pub async fn execute(&self, state: SessionState, plan: LogicalPlan) -> Result<DataFrame> {
        // DataFusion would say that there is no such table.
        if let LogicalPlan::Ddl(DdlStatement::DropTable(drop)) = &plan {
            let of = drop.name.clone();
            let of = of.resolve(&self.place.catalog, &self.place.schema);
            let is_here = *of.catalog == self.place.catalog && *of.schema == self.place.schema;
            if is_here
                && self
                    .db
                    .dataset_names()
                    .iter()
                    .any(|name| **name == *of.table)
            {
                return Err(of_the_store(&of.table));
            }
        }
        if let LogicalPlan::Statement(Statement::Execute(_)) = &plan {
            // The session knows the statement, the state the moment that its tables are read at.
            let prepared = self.context.execute_logical_plan(plan).await?;
            return Ok(DataFrame::new(state, prepared.into_unoptimized_plan()));
        }
        let is_of_session = matches!(
            plan,
            LogicalPlan::Statement(
                Statement::SetVariable(_)
                    | Statement::ResetVariable(_)
                    | Statement::Prepare(_)
                    | Statement::Deallocate(_)
            ) | LogicalPlan::Ddl(DdlStatement::CreateFunction(_) | DdlStatement::DropFunction(_))
        );
        let context = if is_of_session {
            self.context.clone()
        } else {
            SessionContext::new_with_state(state)
        };
        context.execute_logical_plan(plan).await
    }
}

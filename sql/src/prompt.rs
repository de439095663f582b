//! A session as the prompt of DataFusion's command line uses it: each statement that is planned
//! sees the store as it is then.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use datafusion::dataframe::DataFrame;
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::execution::context::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion_cli::cli_context::CliSessionContext;
use esker_sql::Session;
use object_store::ObjectStore;

/// The session of a prompt.
pub(crate) struct Prompt {
    session: Session,
    /// The state with which the last statement was planned.
    planned: Mutex<Option<SessionState>>,
}

impl Prompt {
    pub(crate) fn new(session: Session) -> Prompt {
        Prompt {
            session,
            planned: Mutex::new(None),
        }
    }
}

#[async_trait]
impl CliSessionContext for Prompt {
    fn task_ctx(&self) -> Arc<TaskContext> {
        self.session.context().task_ctx()
    }

    fn session_state(&self) -> SessionState {
        // A store that cannot be read any more fails the statement itself, too.
        let state = self.session.state_now();
        let state = state.unwrap_or_else(|_| self.session.context().state());
        let mut planned = self.planned.lock().unwrap_or_else(PoisonError::into_inner);
        *planned = Some(state.clone());
        state
    }

    fn register_object_store(
        &self,
        url: &url::Url,
        store: Arc<dyn ObjectStore>,
    ) -> Option<Arc<dyn ObjectStore>> {
        self.session.context().register_object_store(url, store)
    }

    fn register_table_options_extension_from_scheme(&self, scheme: &str) {
        let context = self.session.context();
        CliSessionContext::register_table_options_extension_from_scheme(context, scheme);
    }

    async fn execute_logical_plan(&self, plan: LogicalPlan) -> Result<DataFrame> {
        let planned = {
            let mut planned = self.planned.lock().unwrap_or_else(PoisonError::into_inner);
            planned.take()
        };
        let state = match planned {
            Some(state) => state,
            None => self.session.state_now()?,
        };
        self.session.execute(state, plan).await
    }
}

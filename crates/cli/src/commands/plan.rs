//! The plan of a query and its cost: text for people, JSON for programs.

use std::io::{self, IsTerminal};

use esker::Explain;

use super::said::json;
use crate::args::ExplainForm;
use crate::output::note;
use crate::report;

/// Prints a plan on standard error, if `--explain` was given.
pub(super) fn explain(form: Option<ExplainForm>, plan: impl FnOnce() -> Explain) {
    let Some(form) = form else {
        return;
    };
    let plan = plan();
    let is_text = match form {
        ExplainForm::Auto => io::stderr().is_terminal(),
        ExplainForm::Text => true,
        ExplainForm::Json => false,
    };
    if report::is_json() {
        report::event("plan", serde_json::json!({ "plan": plan }));
    } else if is_text {
        note(plan);
    } else {
        note(format_args!("{:#}", json(&plan)));
    }
}

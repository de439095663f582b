//! The plan of a query and its cost: text for people, JSON for programs.

use std::io::{self, IsTerminal};

use esker::Explain;

use super::said::json;
use crate::args::ExplainForm;
use crate::output::note;
use crate::report;

/// True if a plan is printed as text, which includes the notes of the query.
fn is_text(form: Option<ExplainForm>) -> bool {
    let is_text = match form {
        Some(ExplainForm::Auto) => io::stderr().is_terminal(),
        Some(ExplainForm::Text) => true,
        Some(ExplainForm::Json) | None => false,
    };
    is_text && !report::is_json()
}

/// Prints the notes of a query, unless its plan is printed with them.
pub(super) fn notes(form: Option<ExplainForm>, plan: &Explain) {
    if is_text(form) {
        return;
    }
    for text in &plan.notes {
        note(format_args!("note: {text}"));
    }
}

/// Prints a plan on standard error, if `--explain` was given.
pub(super) fn explain(form: Option<ExplainForm>, plan: impl FnOnce() -> Explain) {
    if form.is_none() {
        return;
    }
    let plan = plan();
    if report::is_json() {
        report::event("plan", serde_json::json!({ "plan": plan }));
    } else if is_text(form) {
        note(plan);
    } else {
        note(format_args!("{:#}", json(&plan)));
    }
}

//! `esker advise DIR DATASET`

use esker::IndexKind;
use esker::advise::{Advice, AdvisedChange, AttributeAdvice, KindCost, Mix, MixSource};

use super::said::json;
use crate::args::AdviseArgs;
use crate::failure::{Failure, Outcome};
use crate::output::{Output, columns, counted, thousands};
use crate::store::{dataset, open_to_read};
use crate::words::index_command;

pub(crate) fn advise(args: &AdviseArgs, memory: usize) -> Result<Outcome, Failure> {
    let mix = args.mix.map(|mix| Mix {
        limit: args.k.unwrap_or(mix.limit),
        ..mix
    });
    let db = open_to_read(&args.dir, memory)?;
    let advice = dataset(&*db, &args.dataset)?.advise(mix.as_ref())?;
    let mut output = Output::new();
    if args.json {
        output.line(json(&advice))?;
    } else {
        let dir = args.dir.display().to_string();
        output.line(picture(&advice, &dir).trim_end())?;
    }
    output.finish()?;
    Ok(Outcome::Done)
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// Microseconds, with one decimal below 10.
fn micros(us: f64) -> String {
    if us < 9.95 {
        format!("{us:.1}")
    } else {
        thousands(us.round() as u64)
    }
}

fn picture(advice: &Advice, dir: &str) -> String {
    let source = match advice.source {
        MixSource::Given => "For the given mix of operations, assumed for each field.".to_string(),
        MixSource::Counted => {
            let counts = &advice.counts;
            let queries = counts.attributes.values().map(|a| a.lookups + a.ranges);
            format!(
                "Counted: {}, {}, {}, {}.",
                counted(counts.puts, "put"),
                counted(counts.deletes, "delete"),
                counted(counts.gets, "get"),
                match queries.sum::<u64>() {
                    1 => "1 query".to_string(),
                    queries => format!("{} queries", thousands(queries)),
                }
            )
        }
        MixSource::Assumed => {
            let mix = Mix::default();
            format!(
                "No read was counted. Assumed for each field: {} % puts, {} % gets, {} % lookups, K = {}; --mix sets another mix.",
                mix.puts,
                mix.gets,
                mix.lookups,
                mix.limit.unwrap_or(0)
            )
        }
    };
    let mut text = format!(
        "{}: about {}. {source}\n",
        advice.dataset,
        counted(advice.records, "record")
    );
    if advice.attributes.is_empty() {
        text += "No field is declared, and none was queried: no advice.\n";
        return text;
    }
    text += "\n";
    let mut rows = vec![
        [
            "field",
            "now",
            "advised",
            "pruned",
            "values",
            "most frequent",
            "queried",
            "K",
            "write us",
            "query us",
        ]
        .map(str::to_string),
    ];
    rows.extend(advice.attributes.iter().map(row));
    text += &columns(&rows);
    for attribute in &advice.attributes {
        text += &format!("\n{}: {}\n", attribute.path, attribute.why);
        let (path, kind, change) = (&attribute.path, attribute.kind, attribute.change);
        if let Some(command) = index_command(path, kind, change, dir, &advice.dataset) {
            text += &format!("  esker index {command}\n");
        }
    }
    text += "\nCosts are estimates in microseconds of CPU time; for a write, the additional cost of the index.\n";
    text
}

fn row(attribute: &AttributeAdvice) -> [String; 10] {
    let work = &attribute.workload;
    let now = attribute.now.unwrap_or(IndexKind::None);
    let before = attribute.cost_of(now);
    let after = attribute.cost_of(attribute.kind);
    let change = |of: fn(&KindCost) -> f64| {
        let was = before.map_or(0.0, of);
        // `None` is in the list only if it is the current kind, and then its costs are 0.
        let is = after.map_or(0.0, of);
        match attribute.change {
            AdvisedChange::Keep => micros(was),
            _ => format!("{} -> {}", micros(was), micros(is)),
        }
    };
    let limit = if work.lookups + work.ranges <= 0.0 {
        "-".to_string()
    } else if work.limited <= 0.0 {
        "all".to_string()
    } else {
        micros(work.limit)
    };
    let advised = match attribute.change {
        AdvisedChange::Keep => "keep".to_string(),
        AdvisedChange::Drop => "drop".to_string(),
        _ => attribute.kind.to_string(),
    };
    [
        attribute.path.to_string(),
        attribute
            .now
            .map_or("undeclared".to_string(), |kind| kind.to_string()),
        advised,
        attribute.pruned.map_or("-".to_string(), percent),
        thousands(attribute.distinct),
        percent(attribute.top_share),
        percent(work.lookups + work.ranges),
        limit,
        change(|cost| cost.write),
        change(|cost| cost.query),
    ]
}

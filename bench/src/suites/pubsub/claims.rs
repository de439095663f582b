//! What the paper found and what Esker is to reach, checked on the medians of a run.

use serde_json::Value as Json;

use super::turns::{FORMULA, TABLE_3};
use super::{EVEN, HEAVY, Memory, SUITE, memory, sustained};
use crate::measure::{Claim, Row};
use crate::report::scale::short;
use crate::suites::upkeep::found::Found;

/// The claims of a run, of those experiments that it has.
pub fn all(rows: &[Row]) -> Vec<Claim> {
    let found = Found {
        suite: SUITE,
        paper: "Qader & Hristidis",
        rows,
    };
    let mut claims = Vec::new();
    for cache in Memory::BOTH {
        let heavy = HEAVY.map(|(workload, _)| workload);
        for (workload, least, figure) in
            [(heavy[0], 5.0, "figure 10"), (heavy[1], 2.0, "figure 11")]
        {
            let ask = |other, least, text: &str, why| Beside {
                experiment: "simple",
                workload,
                cache,
                other,
                least,
                text: text.to_string(),
                figure,
                why,
            };
            claims.extend(beside(&found, &ask(
                "RepQueries, 1 s",
                least,
                "DualDB beside queries repeated each second",
                "the counted reads allow it where each costs as much as a write: a repeated query that finds nothing new ends at the first element, in a block that the one before it left in the cache, or in memory; DualDB writes each subscription twice, in its list and by its number",
            )));
            claims.extend(beside(
                &found,
                &ask("TwoDB", 0.95, "DualDB is not slower than TwoDB (5 %)", ""),
            ));
        }
        for (workload, figure) in [(heavy[0], "figure 12"), (heavy[1], "figure 13")] {
            claims.extend(beside(
                &found,
                &Beside {
                    experiment: "self-join",
                    workload,
                    cache,
                    other: "TwoDB",
                    least: 1.1,
                    text: "self-joins: DualDB beside TwoDB".to_string(),
                    figure,
                    why: "where there are few subscriptions, their tree alone is small, and TwoDB looks at publications only when a publication is for somebody; in memory one walk over both lists saves no read",
                },
            ));
        }
        for (experiment, figure, least) in
            [("levels", "figure 14", 3.0), ("circles", "figure 15", 2.0)]
        {
            claims.extend(beside(&found, &Beside {
                experiment,
                workload: EVEN.0,
                cache,
                other: "DualDB, fixed",
                least,
                text: format!("{experiment}: variable granularity beside fixed"),
                figure,
                why: "a circle over the corner of large cells has a range of many others to be compared with exactly, and most of the time goes there; the smallest cells have fewer",
            }));
        }
    }
    blocks(&found, &mut claims);
    memory_ends(&found, &mut claims);
    steady(&found, &mut claims);
    claims
}

/// DualDB keeps to its budget whatever is alive, where lists in memory need more the more there is.
fn memory_ends(found: &Found<'_>, claims: &mut Vec<Claim>) {
    // What is no part of the budget: code, threads, buffers of the log.
    const BESIDE: f64 = 24.0 * MIB;
    let of = |subject: &str| {
        let mut rows: Vec<&Row> = found
            .rows
            .iter()
            .filter(|row| row.suite == SUITE && row.experiment == memory::EXPERIMENT)
            .filter(|row| row.subject == subject)
            .collect();
        let alive = |row: &Row| row.parameters.get("alive").and_then(Json::as_u64);
        rows.sort_by_key(|row| alive(row));
        rows
    };
    let needs = |row: &Row| row.figures.get("memory_bytes").copied().unwrap_or_default();
    let (naive, dual) = (of("in memory"), of("DualDB"));
    let (Some(last), Some(naive_last)) = (dual.last(), naive.last()) else {
        return;
    };
    let budget = last
        .figures
        .get("budget_bytes")
        .copied()
        .unwrap_or_default();
    let most = dual.iter().map(|row| needs(row)).fold(0.0, f64::max);
    let ends = naive.iter().find(|row| needs(row) > budget + BESIDE);
    let ends = ends.and_then(|row| row.parameters.get("alive"));
    let held = most <= budget + BESIDE;
    claims.push(Claim {
        suite: SUITE.to_string(),
        experiment: memory::EXPERIMENT.to_string(),
        text: "DualDB's memory does not grow with what is alive".to_string(),
        source: "goal".to_string(),
        expected: format!("at most {:.0} MiB", (budget + BESIDE) / MIB),
        measured: format!(
            "at most {:.0} MiB; lists in memory need {:.0} MiB, and pass that {}",
            most / MIB,
            needs(naive_last) / MIB,
            match ends {
                Some(alive) => format!("at {alive} alive"),
                None => "beyond what was tried".to_string(),
            }
        ),
        held,
        why: match held {
            true => String::new(),
            false => "the budget is small beside what a process needs in any case".to_string(),
        },
    });
}

const MIB: f64 = 1024.0 * 1024.0;

/// The sustained load was sustained.
fn steady(found: &Found<'_>, claims: &mut Vec<Claim>) {
    const MILLIS: f64 = 20.0;
    let at = |operation| found.one(sustained::EXPERIMENT, "DualDB", operation, &[]);
    let (Some(publish), Some(subscribe), Some(heard)) =
        (at("publish"), at("subscribe"), at("notification"))
    else {
        return;
    };
    let of = |row: &Row, name: &str| row.figures.get(name).copied().unwrap_or_default();
    let mut claim = |text: &str, expected: String, measured: String, held, why: &str| {
        claims.push(Claim {
            suite: SUITE.to_string(),
            experiment: sustained::EXPERIMENT.to_string(),
            text: text.to_string(),
            source: "goal".to_string(),
            expected,
            measured,
            held,
            why: if held { String::new() } else { why.to_string() },
        });
    };
    let (published, subscribed) = (of(publish, "a_minute"), of(subscribe, "a_minute"));
    let asked = sustained::A_MINUTE as f64;
    claim(
        "a million publications and subscriptions a minute are kept up",
        format!("{asked:.0} a minute (1 %)"),
        format!(
            "{published:.0} publications with {:.2} matches each, {subscribed:.0} subscriptions, {:.2} cores",
            of(publish, "matches"),
            of(publish, "cores"),
        ),
        published.min(subscribed) >= 0.99 * asked,
        "the machine had something else to do, or is too slow",
    );
    let slowest = publish.p99_us.max(heard.p99_us) / 1e3;
    claim(
        "the 99th percentile of a publication, and of the time to its notification, stays under 20 ms",
        format!("under {MILLIS} ms"),
        format!(
            "{:.2} ms and {:.2} ms",
            publish.p99_us / 1e3,
            heard.p99_us / 1e3
        ),
        slowest < MILLIS,
        "syncs and merges of the same two cores come between",
    );
    let (memory, budget) = (of(publish, "memory_bytes"), sustained::MEMORY as f64);
    claim(
        "memory stays within 256 MiB",
        "256 MiB".to_string(),
        format!("{:.0} MiB", memory / MIB),
        memory <= budget,
        "subscriptions end before publications: a table with nothing but subscriptions is dropped unread, one with both is kept, and looked into, for twice as long; one memtable of twice the size costs more to insert into than two",
    );
}

/// A claim that another subject takes at least so many times as long as DualDB.
struct Beside<'a> {
    experiment: &'a str,
    workload: &'a str,
    cache: Memory,
    other: &'a str,
    least: f64,
    text: String,
    figure: &'a str,
    why: &'a str,
}

fn beside(found: &Found<'_>, claim: &Beside<'_>) -> Option<Claim> {
    let at = |subject: &str| {
        let parameters = [
            ("workload", claim.workload.into()),
            ("cache", claim.cache.name().into()),
        ];
        found.one(claim.experiment, subject, "operation", &parameters)
    };
    let (other, dual) = (at(claim.other)?, at("DualDB")?);
    let figure = |row: &Row, name: &str| row.figures.get(name).copied();
    // Direct reads wait for the disk, so that CPU time does not tell; without them wall time tells less.
    let (name, unit) = match claim.cache {
        Memory::Direct => ("times_dual", "wall time"),
        Memory::Cached => ("cpu_times_dual", "CPU time"),
    };
    let times = figure(other, name)?;
    let between = figure(other, &format!("{name}_low")).zip(figure(other, &format!("{name}_high")));
    let (low, high) = between?;
    let held = times >= claim.least;
    let blocks = |row: &Row| figure(row, "blocks").unwrap_or_default();
    let times_blocks = match blocks(dual) {
        0.0 => String::new(),
        dual => format!(", {:.2}x", blocks(other) / dual),
    };
    Some(Claim {
        suite: SUITE.to_string(),
        experiment: claim.experiment.to_string(),
        text: format!("{}, {}, {}", claim.text, claim.workload, claim.cache.name()),
        source: format!("goal; {} {}", found.paper, claim.figure),
        expected: format!("at least {}x in {unit}", claim.least),
        measured: format!(
            "{times:.2}x in {unit} (slices {low:.2} to {high:.2}); counted, an operation: {} looks at lists beside {}, blocks {} beside {}{times_blocks}",
            short(figure(other, "walks").unwrap_or_default()),
            short(figure(dual, "walks").unwrap_or_default()),
            short(blocks(other)),
            short(blocks(dual)),
        ),
        held,
        why: match held {
            true => String::new(),
            false => claim.why.to_string(),
        },
    })
}

/// No operation needs more blocks than the formula of table 3 says.
fn blocks(found: &Found<'_>, claims: &mut Vec<Claim>) {
    let of_table = |row: &&Row| row.suite == SUITE && row.experiment == TABLE_3;
    for row in found.rows.iter().filter(of_table) {
        let by_formula = format!("{}{FORMULA}", row.subject);
        let parameters: Vec<(&str, Json)> = row
            .parameters
            .iter()
            .map(|(name, value)| (name.as_str(), value.clone()))
            .collect();
        let formula = found.one(TABLE_3, &by_formula, &row.operation, &parameters);
        let of = |row: &Row| row.figures.get("blocks").copied().unwrap_or_default();
        let Some(formula) = formula.map(of) else {
            continue;
        };
        let measured = of(row);
        let held = measured <= formula + 1e-9;
        let values = parameters.iter().filter_map(|(_, value)| value.as_str());
        claims.push(Claim {
            suite: SUITE.to_string(),
            experiment: TABLE_3.to_string(),
            text: format!(
                "{}, {}: blocks are at most the formula's ({})",
                row.subject,
                row.operation,
                values.collect::<Vec<_>>().join(", ")
            ),
            source: format!("{} table 3", found.paper),
            expected: format!("at most {formula:.2}"),
            measured: format!("{measured:.2} beside {formula:.2}"),
            held,
            why: match held {
                true => String::new(),
                false => "the lists of a topic lie in several blocks where they are long, or one ends between them".to_string(),
            },
        });
    }
}

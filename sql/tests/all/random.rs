//! Conditions and orders that are passed to a dataset, beside the same ones in DataFusion over a
//! copy of the rows.

use esker::{Dataset, Index, Type};
use fastrand::Rng;

use crate::store::Store;

const RECORDS: u64 = 300;

/// Values at which comparisons may differ.
const INTS: [&str; 9] = [
    "-1",
    "0",
    "-0",
    "7",
    "9007199254740992",
    "9007199254740993",
    "-9007199254740993",
    "9223372036854775807",
    "-9223372036854775808",
];
const FLOATS: [&str; 10] = [
    "0.1",
    "-0.0",
    "0.30000000000000004",
    "1e300",
    "-1e-300",
    "2.5",
    "9007199254740993",
    "9007199254740992.0",
    "0.1000000000000000055511151231257827",
    "3",
];
const TEXTS: [&str; 8] = ["", "a", "ab", "abc", "B", "\u{e9}", "\u{1f980}", "z%_"];

fn one<'v>(rng: &mut Rng, of: &[&'v str]) -> &'v str {
    of[rng.usize(..of.len())]
}

/// A field with this value, or null, or absent.
fn field(rng: &mut Rng, name: &str, value: String) -> Option<String> {
    match rng.u8(..6) {
        0 => None,
        1 => Some(format!(r#""{name}":null"#)),
        _ => Some(format!(r#""{name}":{value}"#)),
    }
}

fn record(rng: &mut Rng, id: u64) -> String {
    let text = |rng: &mut Rng| format!("{:?}", one(rng, &TEXTS));
    let mut fields = vec![Some(format!(r#""id":{id}"#))];
    let value = one(rng, &INTS).to_string();
    fields.push(field(rng, "i", value));
    let value = one(rng, &INTS[..6]).to_string();
    fields.push(field(rng, "j", value));
    let value = one(rng, &FLOATS).to_string();
    fields.push(field(rng, "f", value));
    let value = one(rng, &["0.5", "-0.0", "0.0", "1.5"]).to_string();
    fields.push(field(rng, "g", value));
    let value = text(rng);
    fields.push(field(rng, "s", value));
    let value = text(rng);
    fields.push(field(rng, "p", value));
    let value = rng.bool().to_string();
    fields.push(field(rng, "b", value));
    let list = match rng.u8(..4) {
        0 => "[]".to_string(),
        1 => "[null]".to_string(),
        2 => format!("[{}]", text(rng)),
        _ => format!("[{},null,{}]", text(rng), text(rng)),
    };
    fields.push(field(rng, "l", list));
    let (x, dotted) = (rng.i64(..5).to_string(), text(rng));
    let inner = [field(rng, "x", x), field(rng, "a.b", dotted)];
    let inner: Vec<String> = inner.into_iter().flatten().collect();
    fields.push(field(rng, "o", format!("{{{}}}", inner.join(","))));
    let mixed = one(rng, &["1", "\"1\"", "true", "[1]", "{}", "1.0"]).to_string();
    fields.push(field(rng, "m", mixed));
    let fields: Vec<String> = fields.into_iter().flatten().collect();
    format!("{{{}}}", fields.join(","))
}

/// Numbers of seconds; the last one is no time.
const TIMES: [&str; 8] = ["-1", "0", "1", "2", "3", "4", "5", "9223372036854775807"];

const COLUMNS: [&str; 10] = [
    "i", "j", "f", "g", "s", "p", "o['x']", "o['a.b']", "t", "id",
];

fn literal(rng: &mut Rng, column: &str) -> String {
    match column {
        "i" | "j" if rng.u8(..4) == 0 => one(rng, &FLOATS).replace("-0.0", "0.0"),
        "i" | "j" => one(rng, &INTS).to_string(),
        // DataFusion takes -0.0 in a list for another number than 0.0; datasets and DuckDB do not.
        "f" | "g" => one(rng, &FLOATS).replace("-0.0", "0.0"),
        "s" | "p" | "o['a.b']" => format!("'{}'", one(rng, &TEXTS)),
        "id" => rng.u64(..RECORDS).to_string(),
        // The second one is 3 in microseconds.
        "t" if rng.u8(..4) == 0 => one(rng, &["0.5", "3.0000000001", "-1e-300"]).to_string(),
        "t" => one(rng, &TIMES).to_string(),
        _ => rng.i64(-1..6).to_string(),
    }
}

fn test(rng: &mut Rng) -> String {
    let column = one(rng, &COLUMNS);
    let value = literal(rng, column);
    let not = one(rng, &["", "", "not "]);
    match rng.u8(..12) {
        0 => format!("{column} is {not}null"),
        1 => {
            let other = literal(rng, column);
            format!("{column} {not}between {value} and {other}")
        }
        2 => {
            let all: Vec<String> = (0..rng.usize(1..6)).map(|_| literal(rng, column)).collect();
            format!("{column} {not}in ({})", all.join(", "))
        }
        3 => format!(
            "s {not}like '{}%'",
            one(rng, &["", "a", "ab", "\u{e9}", "z"])
        ),
        4 => format!("{not}b"),
        5 => format!("b {} {}", one(rng, &["=", "<>", "<", ">="]), rng.bool()),
        6 => format!("{not}array_has(l, '{}')", one(rng, &TEXTS)),
        7 => format!(
            "m {} '{}'",
            one(rng, &["=", "<>", ">"]),
            one(rng, &["1", "\"1\"", "[1]"])
        ),
        8 => format!("b is {not}{}", one(rng, &["true", "false", "null"])),
        _ => format!(
            "{column} {} {value}",
            one(rng, &["=", "<>", "<", "<=", ">", ">="])
        ),
    }
}

fn condition(rng: &mut Rng, depth: usize) -> String {
    if depth == 0 || rng.u8(..3) == 0 {
        return test(rng);
    }
    let (left, right) = (condition(rng, depth - 1), condition(rng, depth - 1));
    match rng.u8(..5) {
        0 => format!("not ({left})"),
        1 | 2 => format!("({left} and {right})"),
        _ => format!("({left} or {right})"),
    }
}

fn order(rng: &mut Rng) -> String {
    let mut by = Vec::new();
    for _ in 0..rng.usize(1..4) {
        let column = one(rng, &[&COLUMNS[..], &["b", "m"]].concat());
        let nulls = one(rng, &["", "", " nulls first", " nulls last"]);
        by.push(format!("{column} {}{nulls}", one(rng, &["asc", "desc"])));
    }
    format!("{}, id limit {}", by.join(", "), rng.u8(1..40))
}

fn fill(rng: &mut Rng, dataset: &Dataset, store: &Store, times: &[&str]) {
    for id in 0..RECORDS {
        let record = record(rng, id);
        let time = one(rng, times);
        let record = format!(r#"{},"t":{time}}}"#, record.strip_suffix('}').unwrap());
        dataset.put_json(record).unwrap();
        if id == RECORDS / 2 {
            store.db.flush().unwrap();
        }
    }
    // Some are replaced and deleted.
    for _ in 0..RECORDS / 10 {
        let id = rng.u64(..RECORDS);
        let record = record(rng, id);
        dataset.put_json(record).unwrap();
        let key = dataset.parse_key(&rng.u64(..RECORDS).to_string()).unwrap();
        dataset.delete(key).unwrap();
    }
}

#[test]
fn passed_conditions_and_orders_answer_as_datafusion_does() {
    let mut pushed = 0;
    let (mut sorted, mut floats) = (0, 0);
    for seed in 0..5 {
        let mut rng = Rng::with_seed(seed);
        let store = Store::new();
        let dataset = store.dataset("t", |def| match seed {
            0 => def,
            1 => def
                .index("i", Index::composite().int())
                .index("s", Index::lazy().string())
                .index("l", Index::lazy().string())
                .index("t", Index::composite().time()),
            2 => def
                .index("f", Index::composite().float())
                .index("j", Index::composite().int())
                .index("o.x", Index::recent().int())
                .index("b", Index::lazy().bool()),
            3 => def
                .index("t", Index::composite().of_type(Type::TimeS).lenient())
                .index("i", Index::composite().int().lenient()),
            _ => def
                .index("g", Index::embedded().float())
                .index("s", Index::composite().string())
                .index("o.a\\.b", Index::composite().string()),
        });
        // Where times are declared, the last one is refused.
        let times = &TIMES[..TIMES.len() - usize::from(seed == 1)];
        fill(&mut rng, &dataset, &store, times);
        store.ask("create table copy as select * from t").unwrap();
        for _ in 0..80 {
            let condition = condition(&mut rng, 2);
            let ask = |table: &str| {
                let sql = format!("select id from {table} where {condition} order by id");
                store
                    .ask(&sql)
                    .unwrap_or_else(|error| panic!("seed {seed}: {sql}: {error}"))
            };
            let (own, copy) = (ask("t"), ask("copy"));
            pushed +=
                usize::from(own.plan.contains("condition=") && !own.plan.contains("FilterExec"));
            assert_eq!(
                own.rows, copy.rows,
                "seed {seed}: {condition}\n{}",
                own.plan
            );
            let count = format!("select count(*) from t where {condition}");
            assert_eq!(
                store.first(&count),
                [own.rows.len().to_string()],
                "seed {seed}: {count}"
            );
        }
        for _ in 0..48 {
            let (condition, order) = (test(&mut rng), order(&mut rng));
            let (number, way) = (one(&mut rng, &["f", "g"]), one(&mut rng, &["asc", "desc"]));
            let by_float = format!(
                "select j, {number} from t where {condition} order by j, {number} {way} limit 9"
            );
            let own = store.ask(&by_float).unwrap();
            let copy = store.ask(&by_float.replace("from t", "from copy")).unwrap();
            assert_eq!(own.rows, copy.rows, "seed {seed}: {by_float}\n{}", own.plan);
            floats += usize::from(!own.plan.contains("SortExec"));
            let ask = |table: &str| {
                let sql = format!("select id, o from {table} where {condition} order by {order}");
                store
                    .ask(&sql)
                    .unwrap_or_else(|error| panic!("seed {seed}: {sql}: {error}"))
            };
            let (own, copy) = (ask("t"), ask("copy"));
            sorted += usize::from(!own.plan.contains("SortExec"));
            assert_eq!(
                own.rows, copy.rows,
                "seed {seed}: {condition} order by {order}\n{}",
                own.plan
            );
        }
    }
    // Most of them are passed on.
    assert!(pushed > 100, "{pushed}");
    assert!(sorted > 40, "{sorted}");
    assert!(floats > 60, "{floats}");
}

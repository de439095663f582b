//! Random conditions find the same records as an evaluation of every record, for every kind of
//! index, strategy, order and form of query.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::common::tree::Tree;
use crate::common::{
    Doing, Put, Wanted, converge, keys_in_every_way, open, path, row, rows, seeds, with_strategy,
};
use esker::experimental::Combining;
use esker::schema::Tokenizer;
use esker::{Dataset, DatasetDef, ErrorKind, IndexKind, KeyType, Op, Order, Type, Value, field};
use esker_sim::by_tier;
use esker_sim::memory::Memory;

/// `n` and `s` have an index of the tested kind, `t` one of another kind, `u` none.
const NAMES: [&str; 4] = ["n", "s", "t", "u"];

/// Few records would not be worth a second index.
const COMBINING: [Combining; 4] = [
    Combining::Auto,
    Combining::Never,
    Combining::Always,
    Combining::Always,
];

fn value(name: &str, rng: &mut fastrand::Rng) -> Value {
    match name {
        "s" | "u" => Value::String(["", "a", "ab", "abc", "b"][rng.usize(0..5)].to_owned()),
        _ => Value::Int(i128::from(rng.i64(-2..12))),
    }
}

fn wanted(rng: &mut fastrand::Rng) -> Vec<Wanted> {
    let mut names = NAMES;
    rng.shuffle(&mut names);
    let mut all = Vec::new();
    for name in &names[..rng.usize(1..3)] {
        let is_text = matches!(*name, "s" | "u");
        let mut add = |op, value| {
            all.push(Wanted {
                path: (*name).to_owned(),
                op,
                value,
            });
        };
        match rng.usize(0..6) {
            0 if is_text => add(Op::Prefix, value(name, rng)),
            1 => {
                let (mut lo, mut hi) = (value(name, rng), value(name, rng));
                if lo > hi {
                    std::mem::swap(&mut lo, &mut hi);
                }
                add([Op::Ge, Op::Gt][rng.usize(0..2)], lo);
                add([Op::Le, Op::Lt][rng.usize(0..2)], hi);
            }
            2 => add(
                [Op::Ge, Op::Gt, Op::Le, Op::Lt][rng.usize(0..4)],
                value(name, rng),
            ),
            _ => add(Op::Eq, value(name, rng)),
        }
    }
    all
}

fn values(rng: &mut fastrand::Rng) -> (String, Vec<Value>) {
    let name = NAMES[rng.usize(0..NAMES.len())];
    let values = (0..rng.usize(1..4)).map(|_| value(name, rng)).collect();
    (name.to_owned(), values)
}

fn put(dataset: &Dataset, model: &mut BTreeMap<i64, Put>, order: u64, rng: &mut fastrand::Rng) {
    let id = rng.i64(0..150);
    let mut fields = vec![format!("\"id\":{id}")];
    let mut own = BTreeMap::new();
    for name in NAMES {
        let text = |value: &Value| match value {
            Value::String(text) => format!("{text:?}"),
            other => other.to_string(),
        };
        let count = [0, 0, 1, 1, 1, 2, 3][rng.usize(0..7)];
        let values: Vec<Value> = (0..count).map(|_| value(name, rng)).collect();
        match values.as_slice() {
            [] if rng.bool() => {}
            [] => fields.push(format!("\"{name}\":{}", ["null", "[]"][rng.usize(0..2)])),
            [one] => fields.push(format!("\"{name}\":{}", text(one))),
            many => {
                let many: Vec<String> = many.iter().map(text).collect();
                fields.push(format!("\"{name}\":[{}]", many.join(",")));
            }
        }
        own.insert(name.to_owned(), values);
    }
    let body = format!("{{{}}}", fields.join(","));
    dataset.put_json(body.as_bytes()).unwrap();
    let values = own;
    model.insert(
        id,
        Put {
            order,
            body,
            values,
        },
    );
}

#[test]
fn every_kind_and_strategy_gives_what_a_look_at_each_record_gives() {
    let mut found_some = 0;
    for seed in seeds(by_tier(9, 48)) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let kinds = IndexKind::ALL;
        let kind = kinds[seed as usize % kinds.len()];
        let other = kinds[rng.usize(0..kinds.len())];
        let db = open(Arc::new(Memory::new())).unwrap();
        let mut def = DatasetDef::new(path("id"), KeyType::Int)
            .index(path("n"), esker::Index::new(kind).of_type(Type::Int));
        def = if kind.is_standalone() && rng.bool() {
            def.index(
                path("s"),
                esker::Index::new(kind)
                    .of_type(Type::String)
                    .tokenizer(Tokenizer::Prefix),
            )
        } else {
            def.index(path("s"), esker::Index::new(kind).of_type(Type::String))
        };
        def = def.index(path("t"), esker::Index::new(other).of_type(Type::Int));
        let dataset = db
            .create_dataset::<esker::Key>("d", with_strategy(def, rng.usize(0..20)))
            .unwrap();
        let mut model = BTreeMap::new();
        for order in 0..500 {
            put(&dataset, &mut model, order, &mut rng);
            if rng.usize(0..10) == 0 {
                let id = rng.i64(0..150);
                let key = dataset.parse_key(&id.to_string()).unwrap();
                let was = dataset.delete(&key).unwrap();
                assert_eq!(was.is_some(), model.remove(&id).is_some());
            }
            match rng.usize(0..100) {
                0 | 1 => db.flush().unwrap(),
                2 => converge(&db),
                _ => {}
            }
        }
        for round in 0..60 {
            let tree = Tree::random(&mut rng, 2, &mut wanted, &mut values);
            let expr = tree.expr().unwrap();
            let _doing = Doing(format!(
                "seed {seed} round {round} {kind} and {other}: {expr}"
            ));
            let mut right: Vec<(u64, i64, &str)> = model
                .iter()
                .filter(|(_, put)| tree.meets(put))
                .map(|(id, put)| (put.order, *id, put.body.as_str()))
                .collect();
            let by_key: Vec<(String, String)> = right
                .iter()
                .map(|(_, id, body)| (id.to_string(), (*body).to_owned()))
                .collect();
            right.sort_unstable();
            if round % 2 == 0 {
                right.reverse();
            }
            let right: Vec<(String, String)> = right
                .into_iter()
                .map(|(_, id, body)| (id.to_string(), body.to_owned()))
                .collect();
            found_some += usize::from(!right.is_empty() && right.len() < model.len());
            let order = [Order::Newest, Order::Oldest][round % 2].clone();
            let combining = COMBINING[rng.usize(0..COMBINING.len())];
            let find = |expr| dataset.find(expr).combining(combining);
            let query = find(expr.clone()).order(order.clone());
            assert_eq!(rows(query.clone()), right);
            keys_in_every_way(&query);
            // The printed condition parses back to the same one.
            let read = expr.to_string().parse().unwrap();
            let limit = right.len().min(rng.usize(0..20));
            let few = find(read).order(order.clone()).limit(Some(limit));
            assert_eq!(rows(few.clone()), right[..limit]);
            assert_eq!(few.count().unwrap(), limit as u64);
            let (mut pages, mut token) = (Vec::new(), None);
            loop {
                let mut page = query.clone().limit(Some(7));
                if let Some(token) = token {
                    page = page.after(token);
                }
                let mut answer = page.run().unwrap();
                let before = pages.len();
                pages.extend(answer.by_ref().map(|record| row(record).unwrap()));
                token = answer.token();
                if pages.len() == before {
                    break;
                }
            }
            assert_eq!(pages, right);
            let bulk = |order: Order| {
                let mut found = Vec::new();
                let visit = &mut |record| {
                    found.push(row(Ok(record)).unwrap());
                    ControlFlow::Continue(())
                };
                find(expr.clone()).order(order).visit(visit).unwrap();
                found
            };
            assert_eq!(bulk(Order::Key), by_key);
            let any = bulk(Order::Any);
            assert_eq!(any.len(), by_key.len());
            let any: BTreeSet<_> = any.into_iter().collect();
            assert!(by_key.iter().all(|row| any.contains(row)));
        }
    }
    assert!(found_some > 400, "{found_some}");
}

#[test]
fn indexes_drive_together_where_each_branch_has_one() {
    let db = open(Arc::new(Memory::new())).unwrap();
    let def = DatasetDef::new(path("id"), KeyType::Int)
        .index(
            path("n"),
            esker::Index::new(IndexKind::Composite).of_type(Type::Int),
        )
        .index(
            path("s"),
            esker::Index::new(IndexKind::Lazy).of_type(Type::String),
        );
    let dataset = db.create_dataset::<esker::Key>("d", def).unwrap();
    for id in 0..200 {
        let json = format!(
            r#"{{"id":{id},"n":{},"s":"{}","u":{id}}}"#,
            id % 50,
            id % 40
        );
        dataset.put_json(json.as_bytes()).unwrap();
    }
    let plan = |text: &str| {
        let mut answer = dataset.find(text.parse().unwrap()).run().unwrap();
        let count = answer.by_ref().count();
        (count, answer.explain().plan)
    };
    for (text, count, union) in [
        ("n in (3, 4)", 8, 1),
        ("n = 3 or s = 7", 9, 2),
        ("(n = 3 and u < 100) or s = 7 or n > 48", 11, 3),
        ("(n = 3 or s = 7) and u exists", 9, 2),
    ] {
        let (found, plan) = plan(text);
        assert_eq!(found, count, "{text}");
        assert_eq!(plan.union.len(), union, "{text}: {plan:?}");
    }
    for text in [
        "n = 3 or u = 7",
        "not n = 3",
        "n exists",
        "n != 3",
        "n is null",
    ] {
        assert!(plan(text).1.scan.is_some(), "{text}");
    }
    assert!(plan("n = 3 and (u = 3 or u = 53)").1.index.is_some());
    assert!(plan("n >= 3 and n < 5").1.index.is_some());
    // Each index answers alone: no record is read for keys.
    let either = field("n").one_of([3, 4]);
    let keys = dataset.find(either).keys().unwrap();
    assert_eq!(keys.count(), 8);
}

#[test]
fn what_a_condition_cannot_mean_is_refused() {
    let db = open(Arc::new(Memory::new())).unwrap();
    let def = DatasetDef::new(path("id"), KeyType::Int).index(
        path("n"),
        esker::Index::new(IndexKind::Lazy).of_type(Type::Int),
    );
    let dataset = db.create_dataset::<esker::Key>("d", def).unwrap();
    dataset.put_json(br#"{"id":1,"n":5}"#).unwrap();
    for wrong in [
        field("n..").eq(1),
        field("n").eq("five"),
        field("n").eq(true),
        field("u").eq(f64::NAN),
        !(field("n").eq(1) | field("n").one_of(["1", "x"])),
        field("n").ge(7) & field("n").le(5),
    ] {
        let error = dataset.find(wrong.clone()).run().err().map(|e| e.kind());
        assert_eq!(error, Some(ErrorKind::BadInput), "{wrong}");
        assert!(dataset.find(wrong).count().is_err());
    }
    let now = std::time::SystemTime::now();
    for (fine, count) in [
        (field("n").lt(5.5), 1),
        (field("n").eq(5.5), 0),
        (field("n").one_of::<i64>([]), 0),
        (field("n").range(5..=5) & field("u").is_null(), 1),
        (field("u").lt(now) | field("n").gt(u64::MAX), 0),
    ] {
        assert_eq!(dataset.find(fine.clone()).count().unwrap(), count, "{fine}");
    }
}

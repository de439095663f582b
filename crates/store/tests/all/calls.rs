//! Calls of a store, chosen at random, and what they return: two stores that are given the same calls
//! return the same. Tests of other crates use them, too.

use std::ops::{Bound, ControlFlow};

use esker::request::{Aggregate, Aggregation, GroupBy};
use esker::space::Latest;
use esker::{DatasetDef, Index, Key, KeyType, Order, Request, Update};
use esker_store::{Dataset, Records};

pub(crate) fn def() -> DatasetDef {
    DatasetDef::new("id", KeyType::Int)
        .index("n", Index::recent().int())
        .index("name", Index::lazy().string())
        .index("lon,lat", Index::spatial())
}

fn record(rng: &mut fastrand::Rng) -> String {
    let (id, n) = (rng.u32(..40), rng.i32(-3..4));
    let name = ["ann", "bob", "cy"][rng.usize(..3)];
    let (lon, lat) = (rng.i32(-20..20), rng.i32(-20..20));
    match rng.u32(..4) {
        0 => format!(r#"{{"id":{id},"n":{n}}}"#),
        1 => format!(r#"{{"id":{id},"name":"{name}","tags":["{name}",{n}]}}"#),
        _ => format!(r#"{{"id":{id},"n":{n},"name":"{name}","lon":{lon},"lat":{lat}}}"#),
    }
}

pub(crate) fn write(dataset: &dyn Dataset, rng: &mut fastrand::Rng) -> Vec<String> {
    let mut said = Vec::new();
    let mut batch = dataset.batch();
    for _ in 0..rng.usize(1..6) {
        let json = record(rng);
        let key = dataset.key_of(json.as_bytes()).unwrap();
        match rng.u32(..8) {
            0 => batch.delete(&key).unwrap(),
            1 => batch.insert_json(json.as_bytes()).unwrap(),
            2 => {
                let error = batch.put_json(br#"{"id":"x"}"#).unwrap_err();
                said.push(error.to_string());
            }
            _ => batch.put_json(json.as_bytes()).unwrap(),
        }
    }
    said.push(format!("{:?}", batch.commit().is_ok()));
    let key = Key::parse(KeyType::Int, &rng.u32(..40).to_string()).unwrap();
    let put = format!(r#"{{"id":{key},"n":7}}"#);
    let old = dataset.update(&key, &mut |old| {
        Ok(match old {
            Some(_) => Update::Put(put.clone().into_bytes()),
            None => Update::Keep,
        })
    });
    said.push(json_of(old.unwrap().iter()));
    said
}

fn json_of<'r>(records: impl IntoIterator<Item = &'r esker::Record>) -> String {
    let each = records
        .into_iter()
        .map(|r| String::from_utf8_lossy(r.json()));
    each.collect::<Vec<_>>().join("\n")
}

pub(crate) fn read(records: &dyn Records, rng: &mut fastrand::Rng) -> Vec<String> {
    let mut said = Vec::new();
    let condition = [
        "n >= 0 and n < 3",
        "name = ann or n = 2",
        "not tags contains bob",
        "within(lon,lat, rect(-10,-10,10,10))",
        "id in (1, 2, 3, 39) and name exists",
    ][rng.usize(..5)];
    let mut request = Request::of(condition.parse().unwrap());
    request.limit = [None, Some(0), Some(3)][rng.usize(..3)];
    request.order = [Order::Newest, Order::Oldest, Order::Key][rng.usize(..3)].clone();
    if rng.bool() {
        let orders = ["n:desc", "name,n", "tags", "tags:desc,id:desc"];
        request.order = orders[rng.usize(..4)].parse().unwrap();
    }
    request.offset = [0, 0, 1, 3][rng.usize(..4)];
    if rng.bool() {
        request.select = vec!["name".parse().unwrap(), "tags".parse().unwrap()];
    }
    said.push(format!("{condition} {:?}", request.limit));
    let found: Vec<_> = records
        .find(&request)
        .unwrap()
        .map(Result::unwrap)
        .collect();
    said.push(json_of(&found));
    let keys = records
        .keys(&request)
        .unwrap()
        .map(|key| key.unwrap().to_string());
    said.push(keys.collect::<Vec<_>>().join(" "));
    said.push(records.count(&request).unwrap().0.to_string());
    let mut visited = Vec::new();
    let mut take = |record| {
        visited.push(record);
        ControlFlow::Continue(())
    };
    records.visit(&request, &mut take).unwrap();
    said.push(json_of(&visited));
    said.extend(pages(records, &request));
    said.extend(groups(records, condition, rng));
    let from = Key::parse(KeyType::Int, "5").unwrap();
    let range = (Bound::Excluded(from), Bound::Unbounded);
    let scan = records.scan(range, rng.bool()).unwrap();
    said.push(json_of(&scan.map(Result::unwrap).collect::<Vec<_>>()));
    let all = Request::default();
    let path = "lon,lat".parse().unwrap();
    for max in [None, Some(1e6)] {
        // The number of records is asked for by itself: a limit does not make it less.
        let mut asked = Request::default();
        asked.limit = rng.bool().then(|| rng.usize(..4));
        asked.keys_only = rng.bool();
        let near = records.nearest(&asked, &path, (1.0, 2.0), 5, max);
        let near = near.unwrap().0;
        said.push(format!(
            "{:?}",
            near.iter().map(|n| n.distance).collect::<Vec<_>>()
        ));
        said.push(json_of(near.iter().map(|n| &n.record)));
    }
    said.push(format!("{:?}", records.cells(&all, &path, 10.0).unwrap()));
    let name = "name".parse().unwrap();
    let latest = records
        .latest_per(&all, &name, &Latest::written())
        .unwrap()
        .0;
    said.push(json_of(&latest));
    said
}

/// The records of a request without its limit, in pages of two, each behind the token of the last.
/// They are those of the whole answer: the offset is that of the first page.
fn pages(records: &dyn Records, request: &Request) -> Vec<String> {
    let (mut request, mut said) = (request.clone(), Vec::new());
    request.limit = None;
    let whole = records.find(&request).unwrap().map(Result::unwrap);
    let whole: Vec<_> = whole.collect();
    let mut seen = 0;
    loop {
        request.limit = None;
        let left = whole.len() - seen;
        assert_eq!(records.count(&request).unwrap().0, left as u64);
        request.limit = Some(2);
        let mut answer = records.find(&request).unwrap();
        let page: Vec<_> = answer.by_ref().map(Result::unwrap).collect();
        let behind = whole.iter().skip(seen).take(2);
        assert_eq!(json_of(&page), json_of(behind), "{request:?}");
        if page.is_empty() {
            return said;
        }
        seen += page.len();
        said.push(json_of(&page));
        let token = answer.token().unwrap();
        request.after = Some(token.to_string().parse().unwrap());
    }
}

fn groups(records: &dyn Records, condition: &str, rng: &mut fastrand::Rng) -> Vec<String> {
    let aggregates =
        "count,distinct(name),approx_distinct(tags),min(tags),max(n),sum(n),avg(n),p50(lon)";
    let mut aggregation = Aggregation::new(Aggregate::parse_list(aggregates).unwrap());
    aggregation.condition = rng.bool().then(|| condition.parse().unwrap());
    let by = ["", "name", "tags,n", "n/2@1", "lon/12.5"][rng.usize(..5)];
    if !by.is_empty() {
        aggregation.by = GroupBy::parse_list(by).unwrap();
    }
    if rng.bool() {
        aggregation.order = vec!["count:desc".parse().unwrap(), "sum(n)".parse().unwrap()];
    }
    aggregation.limit = [None, Some(2)][rng.usize(..2)];
    let mut said = vec![by.to_string()];
    let visited = records.aggregate(&aggregation, &mut |group| {
        said.push(group.to_json());
        ControlFlow::Continue(())
    });
    visited.unwrap();
    said
}

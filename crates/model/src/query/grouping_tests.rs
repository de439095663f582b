//! Groups of records in memory, as text.

use super::{Aggregate, Aggregation, GroupBy, Grouping, Groups, Order, Shape};
use crate::definition::{DatasetDef, Index, StoredDef};
use crate::error::Result;
use crate::schema::{KeyType, Type};

/// The groups in their order.
fn groups(
    index: Option<(&str, Index)>,
    aggregates: &str,
    by: &str,
    order: &str,
    records: &[&str],
) -> Result<Vec<String>> {
    let mut def = DatasetDef::new("id", KeyType::Int);
    if let Some((path, index)) = index {
        def = def.index(path, index);
    }
    let shape = Shape::new(&StoredDef::new(&def));
    let mut aggregation = Aggregation::new(Aggregate::parse_list(aggregates)?);
    aggregation.by = GroupBy::parse_list(by)?;
    if !order.is_empty() {
        aggregation.order = order.parse::<Order>()?.fields().to_vec();
    }
    let grouping = Grouping::new(&shape, &aggregation)?;
    let mut groups = Groups::new(grouping.clone());
    for record in records {
        groups.add(record.as_bytes());
    }
    let mut ranked = Vec::new();
    for group in groups.finish()? {
        let mut rank = Vec::new();
        grouping.rank(&group, &mut rank);
        ranked.push((rank, group.to_json()));
    }
    if grouping.is_ordered() {
        ranked.sort();
    }
    Ok(ranked.into_iter().map(|(_, group)| group).collect())
}

#[test]
fn an_aggregate_of_any_field_can_be_ordered_by() {
    let records = [
        r#"{"id":1,"k":1,"a/b":1,"x@y":5,"c:d":1,"e,f":1,"g(h)":1,"i.j":1,"n":1}"#,
        r#"{"id":2,"k":2,"a/b":2,"x@y":6,"c:d":2,"e,f":2,"g(h)":2,"i.j":2,"n":2}"#,
    ];
    for (aggregate, order, name) in [
        (r"sum(n)", "sum(n)", "sum(n)"),
        (r"sum(a\/b)", r"sum(a\/b)", "sum(a/b)"),
        (r"sum(a/b)", r"sum(a/b)", "sum(a/b)"),
        (r"max(x@y)", r"max(x@y)", "max(x@y)"),
        (r"max(x\@y)", r"max(x@y)", "max(x@y)"),
        (r"min(c\:d)", r"min(c\:d)", "min(c:d)"),
        (r"avg(e\,f)", r"avg(e\,f)", "avg(e,f)"),
        (r"distinct(k),p50(g\(h\))", r"p50(g\(h\))", "p50(g(h))"),
        (r"sum(i\.j)", r"sum(i\.j)", r"sum(i\\.j)"),
    ] {
        let ordered = |direction: &str| {
            let order = format!("{order}:{direction}");
            groups(None, aggregate, "k", &order, &records).unwrap()
        };
        let (up, mut down) = (ordered("asc"), ordered("desc"));
        down.reverse();
        assert_eq!(up, down, "{aggregate}");
        assert!(up[0].contains(r#""k":1"#), "{aggregate}: {up:?}");
        assert!(up[0].contains(&format!("\"{name}\":")), "{name}: {up:?}");
    }
    let unknown = groups(None, "sum(n)", "k", "sum(m)", &records);
    assert!(unknown.is_err());
}

#[test]
fn a_value_that_no_bucket_can_have_is_in_the_group_null() {
    let (least, most) = (i64::MIN, i64::MAX);
    let record = |value: &str| format!("{{\"id\":1,\"f\":{value}}}");
    for (ty, by, extremes, usual, begin) in [
        (None, "f/10", vec!["1e300", "-1e300", "1e38"], "15", "10"),
        (None, "f/0.000000000000000001", vec!["1e25"], "1", "1"),
        (
            None,
            "f/7@3",
            vec!["-170141183460469231731687303715884105727"],
            "15",
            "10",
        ),
        (
            None,
            "f/86400",
            vec!["\"-290308-12-21T19:59:05.224193Z\""],
            "\"1970-01-02T12:00:00Z\"",
            "\"1970-01-02T00:00:00Z\"",
        ),
        (
            Some(Type::TimeUs),
            "f/1d",
            vec![&*least.to_string()],
            "5",
            "0",
        ),
        (
            Some(Type::TimeUs),
            "f/month",
            vec![&*least.to_string()],
            "5",
            "0",
        ),
        (
            Some(Type::TimeUs),
            "f/year",
            vec![&*least.to_string()],
            "5",
            "0",
        ),
        (
            Some(Type::TimeUs),
            "f/300w@2500-01-01",
            vec![&*least.to_string(), &*(least + 1).to_string()],
            &*most.to_string(),
            "",
        ),
    ] {
        let index = ty.map(|ty| ("f", Index::none().of_type(ty)));
        let all = extremes.iter().copied().chain([usual]);
        let all: Vec<String> = all.map(record).collect();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        let found = groups(index, "count", by, "", &all).unwrap();
        let null = format!("{{\"f\":null,\"count\":{}}}", extremes.len());
        assert_eq!(found.len(), 2, "{by}: {found:?}");
        assert_eq!(found[1], null, "{by}: {found:?}");
        let begins = format!("{{\"f\":{begin}");
        assert!(found[0].starts_with(&begins), "{by}: {found:?}");
        assert!(found[0].ends_with("\"count\":1}"), "{by}: {found:?}");
    }
}

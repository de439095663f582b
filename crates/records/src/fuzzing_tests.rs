//! A short run of each entry point; `ESKER_FUZZ=1000` makes it long.

use esker_lsm::fuzzing::campaign;

use super::*;
use crate::{DatasetDef, Index};
use esker_model::definition::{Maintenance, Merging, Repair};

#[test]
fn stored_records() {
    let mut one = Vec::new();
    let attributes = [(0, &b"ann\0\x01"[..]), (3, &[0x81, 1]), (300, b"")];
    record::encode(&mut one, 2, attributes.into_iter(), br#"{"id":1}"#);
    campaign(1, 20_000, &[one, vec![0], vec![]], &mut stored_record);
}

#[test]
fn sets_of_fields() {
    let json = br#"{"id": 1, "a\"": [1.5, {"b": null}, [true]], "c": {"d": "x", "e": -12345678901234567890}}"#;
    let mut set = Fields::default();
    set.add(json);
    let mut stored = Vec::new();
    set.encode(&mut stored);
    campaign(9, 20_000, &[json.to_vec(), stored, vec![]], &mut fields);
}

#[test]
fn posting_lists() {
    let mut corpus = Vec::new();
    for cancel in [false, true] {
        let mut lists = Vec::new();
        for (newest, settled) in [(890, true), (690, false)] {
            let mut writer = PostingWriter::new();
            for i in 0..4_u64 {
                let key = format!("a long key that is shared {}", i % 3);
                let (seq, key) = (newest - i * 40, key.as_bytes());
                let cancel = cancel && i == 1;
                assert!(writer.push(Posting { seq, key, cancel }));
            }
            let mut list = Vec::new();
            writer.finish(settled, &mut list);
            lists.push(list);
        }
        let len = [lists[0].len() as u8];
        corpus.push([&len[..], &lists[0], &lists[1]].concat());
    }
    let (mut newer, mut older) = (Vec::new(), Vec::new());
    esker_model::posting::encode_one(&mut newer, b"k", false);
    esker_model::posting::encode_one(&mut older, &[7; 40], true);
    corpus.push([&[newer.len() as u8][..], &newer, &older].concat());
    // A posting of number 0 would pass for a posting of the entry's own number once it is alone.
    corpus.push(vec![7, 7, 1, 1, 1, 0, 2, 0]);
    campaign(2, 20_000, &corpus, &mut postings);
}

#[test]
fn values() {
    let values = [
        Value::Int(-1),
        Value::Int(u64::MAX.into()),
        Value::Float(-1.5e300),
        Value::String("a\0b\u{e9}".into()),
        Value::Bool(true),
        Value::Time(1_714_566_600_123_456),
        Value::Time(-1),
        Value::Point(
            Space::Sphere,
            Point::new(Space::Sphere, -180.0, 48.5).unwrap(),
        ),
        Value::Point(Space::Plane, Point::new(Space::Plane, 1e9, -0.25).unwrap()),
        Value::PointTime(
            Space::Sphere,
            Point::new(Space::Sphere, 2.25, 90.0).unwrap(),
            -7,
        ),
    ];
    let mut corpus: Vec<Vec<u8>> = values.iter().map(Value::encoded).collect();
    // Several fields: a text, none, a time, a truth value, a float, and a stand-in.
    corpus.push(b"\x06\x03a\0\x01\0\x05\x81\x01\x04\x01\x02\x80\0\0\0\0\0\0\0\x01\xff".to_vec());
    campaign(3, 30_000, &corpus, &mut value);
}

#[test]
fn jsons() {
    let corpus = [
        r#"{"id":1,"a":-7,"b":["x","y",null],"c":"2024-05-01T12:30:00.5+02:00","d":"\u00e9\ud83d\ude00"}"#,
        r#"{"id":"k","a":{"b":[1e3,2]},"b":{"c":[true,[false]]},"c":[1714566600,1714566600.25],"x":{"y":[{}]}}"#,
        r#"{"id":3,"p":[2.5,-48.25],"a":{"x":-7e3,"y":0},"c":[1714566600,"2024-05-01"]}"#,
        r#"{"id":4,"p":{"type":"Point","coordinates":[180,90,7]},"a":[{"x":1},{"y":2}],"c":-1}"#,
        r#"{"id":18446744073709551615,"a":[9223372036854775807],"b":"","c":null}"#,
    ];
    let corpus = corpus.map(|text| text.as_bytes().to_vec());
    campaign(4, 20_000, &corpus, &mut json);
}

#[test]
fn conditions() {
    let corpus = [
        "a.b>=12\n{\"id\":1,\"a\":[{\"b\":12},{\"b\":3.5}]}",
        "a\\.b^=x\n{\"id\":1,\"a.b\":\"xyz\"}",
        "a=true\n{\"id\":1,\"a\":[true,\"true\",1]}",
        "not (a.b in (1, \"x y\", int(5)) or c is null) and a>1 and a<9\n{\"id\":1,\"a\":[3,{\"b\":5}],\"c\":[1]}",
        "a exists and 'b c'!=time(2024-05-01)\n{\"id\":1,\"a\":null,\"b c\":\"2024-05-01\"}",
        "within(p, circle(2.5, 48.5, 1e4)) and not within(a.x,a.y, rect(170, -1, -170, 1))\n{\"id\":1,\"p\":[2.5,48.5],\"a\":{\"x\":175,\"y\":0}}",
        "at<2024-05-01T00:00:00Z\n{\"id\":1,\"at\":\"2024\"}",
    ];
    let corpus = corpus.map(|text| text.as_bytes().to_vec());
    campaign(5, 20_000, &corpus, &mut condition);
}

#[test]
fn areas() {
    let corpus = [
        r#"{"type":"Polygon","coordinates":[[[1,1],[7,1],[7,6],[1,1]],[[2,2],[3,2],[3,3],[2,2]]]}"#,
        r#"{"type":"Polygon","coordinates":[[[170,-1],[-170,-1],[-170,1],[170,1],[170,-1]]]}"#,
        r#"{"type":"FeatureCollection","features":[{"type":"Feature","geometry":
            {"type":"MultiPolygon","coordinates":[[[[0,80],[120,80],[-120,80],[0,80]]]]}}]}"#,
    ];
    let corpus = corpus.map(|text| text.as_bytes().to_vec());
    campaign(8, 10_000, &corpus, &mut geojson);
}

#[test]
fn definitions() {
    let def = DatasetDef::new("id", KeyType::Int)
        .index("a\\.b.c", Index::lazy().string())
        .index("at", Index::embedded().time())
        .index("lon,lat", Index::spatial())
        .index("p@at", Index::new("space-time:mbr".parse().unwrap()));
    let kept = def
        .clone()
        .maintenance(Maintenance::Deferred)
        .repair(Repair::Staged)
        .merging(Merging::Correlated)
        .versions(7);
    let before = r#"{"key":"id","key_type":"int","attributes":[],"next_id":0}"#;
    let corpus = [
        StoredDef::new(&def).to_bytes(),
        StoredDef::new(&kept).to_bytes(),
        before.as_bytes().to_vec(),
    ];
    campaign(6, 10_000, &corpus, &mut definition);
}

#[test]
fn tree_configs() {
    let corpus = [
        "composite",
        "lazy correlated incomplete",
        "keys tiered silent",
        "superseded",
        "deleted correlated silent incomplete",
        "staging leveled",
    ];
    let corpus = corpus.map(|text| text.as_bytes().to_vec());
    // Found by a fuzzer.
    tree_config(b"deleted versions=0");
    campaign(7, 20_000, &corpus, &mut tree_config);
}

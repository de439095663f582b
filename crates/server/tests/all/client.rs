//! A served store, reached by Esker's own client, against a folder: the same calls return the same.

use std::ops::{Bound, ControlFlow};
use std::time::Duration;

use esker::{ChangesFrom, ErrorKind, Index, Key, KeyType, Options, Record, Request};
use esker_server::{Config, Role, TokenSettings, hash_of};
use esker_store::{Access, Dataset, Mode, Store, open, open_with};

use crate::common::Served;

#[path = "../../../store/tests/all/calls.rs"]
mod calls;

fn remote(served: &Served) -> Box<dyn Store> {
    let access = Access::default();
    open_with(served.url(""), Mode::Create, Options::default(), &access).unwrap()
}

/// A served store, and one in a folder.
fn pair() -> (Served, tempfile::TempDir, [Box<dyn Store>; 2]) {
    let (served, dir) = (Served::new(), tempfile::tempdir().unwrap());
    let folder = open(dir.path().join("db"), Mode::Create, Options::default()).unwrap();
    let stores = [folder, remote(&served)];
    (served, dir, stores)
}

#[test]
fn a_served_store_gives_the_answers_of_a_folder() {
    for seed in 0..esker_sim::by_tier(2, 8) {
        let (_served, _dir, stores) = pair();
        for store in &stores {
            store.create_dataset("d", calls::def()).unwrap();
        }
        let datasets = stores.each_ref().map(|store| store.dataset("d").unwrap());
        for round in 0..25 {
            let step = fastrand::Rng::with_seed(seed * 1000 + round);
            let said = datasets.each_ref().map(|dataset| {
                let mut rng = step.clone();
                let mut said = calls::write(&**dataset, &mut rng);
                said.extend(calls::read(&**dataset, &mut rng));
                said.extend(calls::read(&*dataset.snapshot().unwrap(), &mut rng));
                said
            });
            assert_eq!(said[0], said[1], "seed {seed}, round {round}");
        }
    }
}

fn shown(record: &Record) -> String {
    let json = String::from_utf8_lossy(record.json());
    format!("{} {} {json}", record.key(), record.seq())
}

fn filled(dataset: &dyn Dataset) {
    let mut batch = dataset.batch();
    for id in 0..2000 {
        let json = format!(
            r#"{{"id":{id},"n":{},"name":"name {}","lon":{},"lat":1}}"#,
            id % 7,
            id % 100,
            id % 90
        );
        batch.put_json(json.as_bytes()).unwrap();
    }
    batch.commit().unwrap();
}

#[test]
fn plans_numbers_tokens_and_errors_are_those_of_a_folder() {
    let (_served, _dir, stores) = pair();
    let said = stores.each_ref().map(|store| {
        let dataset = store.create_dataset("d", calls::def()).unwrap();
        filled(&*dataset);
        let mut said = vec![format!("{:?}", dataset.def())];
        for condition in [
            "n = 3",
            "name = 'name 5' and n > 2",
            "other = 1",
            "not n = 3",
        ] {
            let mut request = Request::of(condition.parse().unwrap());
            request.limit = Some(5);
            let mut answer = dataset.find(&request).unwrap();
            let begin = answer.explain();
            said.push(format!(
                "{} {:?}",
                begin.plan.alternatives.len(),
                begin.notes.len()
            ));
            let seqs: Vec<_> = answer
                .by_ref()
                .map(|record| record.unwrap().seq())
                .collect();
            let end = answer.explain();
            said.push(format!("{seqs:?} {:?} {end}", answer.token()));
            said.push(dataset.explain(&request).unwrap().to_string());
            said.push(dataset.count(&request).unwrap().1.to_string());
            request.order = "key".parse().unwrap();
            let mut keys = Vec::new();
            let mut take = |record: Record| {
                keys.push(record.key().to_string());
                ControlFlow::Continue(())
            };
            let explain = dataset.visit(&request, &mut take).unwrap();
            said.push(format!("{keys:?} {explain}"));
        }
        let key = |n: u32| Key::parse(KeyType::Int, &n.to_string()).unwrap();
        let found = dataset.get_many(&[key(5), key(99_999), key(1)]).unwrap();
        said.extend(
            found
                .iter()
                .map(|found| format!("{:?}", found.as_ref().map(shown))),
        );
        let versions = dataset
            .versions(&key(5), None, 3)
            .map(|all| all.iter().map(shown).collect::<Vec<_>>());
        said.push(format!("{versions:?}"));
        let fields = dataset.fields().unwrap().unwrap();
        let fields = fields
            .list()
            .map(|field| format!("{} {}", field.path(), field.types()));
        said.push(fields.collect::<Vec<_>>().join(", "));
        // Errors have their kinds and texts.
        let mut batch = dataset.batch();
        batch.insert_json(br#"{"id":5}"#).unwrap();
        let mut errors = vec![batch.commit().unwrap_err()];
        batch = dataset.batch();
        batch.put_json(br#"{"id":5}"#).unwrap();
        batch.expect(&key(5), Some(7_000_000)).unwrap();
        errors.push(batch.commit().unwrap_err());
        errors.push(batch.put_json(br#"{"id":"x"}"#).unwrap_err());
        errors.push(batch.put_json(br#"{"id":1,"n":"x"}"#).unwrap_err());
        errors.push(batch.note("", None).unwrap_err());
        // Without the names of others: the caller may not know them.
        errors.push(store.dataset("nothing").err().unwrap());
        errors.push(store.create_dataset("d", calls::def()).err().unwrap());
        errors.push(store.create_dataset("a/", calls::def()).err().unwrap());
        errors.push(store.rename_dataset("nothing", "f").unwrap_err());
        errors.push(store.drop_snapshot("none").unwrap_err());
        let wrong = Request::of("within(n, rect(0,0,1,1))".parse().unwrap());
        errors.push(dataset.find(&wrong).err().unwrap());
        let range = (Bound::Included(key(9)), Bound::Included(key(1)));
        let scanned = dataset.scan(range, false);
        errors.push(
            scanned
                .and_then(|mut scan| scan.next().transpose())
                .unwrap_err(),
        );
        said.extend(
            errors
                .iter()
                .map(|error| format!("{:?} {error}", error.kind())),
        );
        said
    });
    for (folder, served) in said[0].iter().zip(&said[1]) {
        assert_eq!(folder, served);
    }
    assert_eq!(said[0].len(), said[1].len());
}

#[test]
fn definitions_notes_and_maintenance_are_those_of_a_folder() {
    let (_served, _dir, stores) = pair();
    let said = stores.each_ref().map(|store| {
        let def = calls::def().ttl(Duration::from_secs(86_400));
        let dataset = store.create_dataset("d", def).unwrap();
        filled(&*dataset);
        let mut said = Vec::new();
        let mut batch = dataset.batch();
        batch.note("place", Some(&[0, 1, 255])).unwrap();
        batch.commit().unwrap();
        said.push(format!("{:?}", dataset.notes().unwrap()));
        let at = "tag".parse().unwrap();
        let added = dataset.add_index(at, Index::recent().string()).unwrap();
        said.push(format!("{:?}", added.run()));
        let kind = "lazy".parse().unwrap();
        let switched = dataset.switch_index("n".parse().unwrap(), kind).unwrap();
        said.push(format!("{:?}", switched.run()));
        said.push(format!(
            "{:?}",
            dataset.drop_index(&"name".parse().unwrap())
        ));
        said.push(format!("{:?}", dataset.resume_index().unwrap().run()));
        said.push(format!(
            "{:?} {:?}",
            dataset.def(),
            dataset.unfinished_index()
        ));
        let unique = Index::recent().int().unique();
        let refused = dataset.add_index("lon".parse().unwrap(), unique).unwrap();
        let refused = refused.run().unwrap_err();
        said.push(format!("{:?} {refused}", refused.kind()));
        let strategy = dataset
            .set_maintenance("validation".parse().unwrap())
            .unwrap();
        let report = strategy.run().unwrap();
        said.push(format!(
            "{:?} {:?} {}",
            report.from, report.to, report.complete
        ));
        let repaired = dataset.repair(&Default::default()).unwrap().run().unwrap();
        said.push(format!("{:?} {}", repaired.method, repaired.complete));
        dataset.set_ttl(None).unwrap();
        said.push(format!(
            "{:?} {}",
            dataset.def().expiry,
            dataset.expire_now().unwrap()
        ));
        said.push(format!("{:?}", dataset.usage().unwrap().puts));
        let advice = dataset.advise(None).unwrap();
        said.push(format!("{} {}", advice.source, advice.attributes.len()));
        said.push(format!("{:?}", dataset.unindexed()));
        said.push(format!("{:?}", dataset.stats().unwrap().definition));
        store.keep_snapshot("monday").unwrap();
        let mut shown = Vec::new();
        let deleted = dataset.delete_where("n < 3".parse().unwrap(), &mut |done| {
            shown.push(done);
            ControlFlow::Continue(())
        });
        said.push(format!("{:?} {}", deleted, shown.is_empty()));
        let now = dataset.count(&Request::default()).unwrap().0;
        let then = store.dataset_at("monday", "d").unwrap();
        let then = then.count(&Request::default()).unwrap().0;
        said.push(format!(
            "{now} {then} {:?}",
            store.dataset_names_at("monday")
        ));
        said.push(format!("{:?}", store.snapshots().unwrap().len()));
        store.drop_snapshot("monday").unwrap();
        store.compact(Some("d")).unwrap();
        said.push(format!("{:?}", store.check().unwrap().errors));
        said.push(format!("{:?}", store.stats().unwrap().datasets.keys()));
        said.push(format!("{:?}", store.unconfirmed_time()));
        store.rename_dataset("d", "e").unwrap();
        said.push(format!("{:?}", store.dataset_names()));
        store.drop_dataset("e").unwrap();
        said.push(format!("{:?}", store.dataset_names()));
        said
    });
    for (folder, served) in said[0].iter().zip(&said[1]) {
        assert_eq!(folder, served);
    }
}

#[test]
fn changes_are_those_of_a_folder_and_a_consumer_goes_on() {
    let (_served, _dir, stores) = pair();
    let said = stores.each_ref().map(|store| {
        let def = calls::def().keep_old_records();
        let dataset = store.create_dataset("d", def).unwrap();
        let mut feed = dataset.changes(ChangesFrom::Oldest, true).unwrap();
        let mut named = dataset.consume("one", None, 1 << 20, false).unwrap();
        assert!(named.is_new());
        for n in [1, 2] {
            let mut batch = dataset.batch();
            batch
                .put_json(format!(r#"{{"id":1,"n":{n}}}"#).as_bytes())
                .unwrap();
            batch
                .put_json(format!(r#"{{"id":{},"n":{n}}}"#, n + 5).as_bytes())
                .unwrap();
            batch.commit().unwrap();
        }
        let key = Key::parse(KeyType::Int, "1").unwrap();
        let mut batch = dataset.batch();
        batch.delete(&key).unwrap();
        batch.commit().unwrap();
        let mut said = Vec::new();
        while let Some(change) = feed.wait(Duration::ZERO).unwrap() {
            let (new, old) = (change.record().map(shown), change.old().map(shown));
            said.push(format!(
                "{:?} {} {} {new:?} {old:?}",
                change.kind(),
                change.key(),
                change.seq()
            ));
            assert!(feed.position().seq >= change.seq());
        }
        for _ in 0..2 {
            let change = named.wait(Duration::ZERO).unwrap().unwrap();
            said.push(format!("{} {}", change.key(), change.seq()));
        }
        named.done().unwrap();
        let consumers = store.change_consumers().unwrap();
        said.push(format!(
            "{:?}",
            consumers
                .iter()
                .map(|c| (&c.name, &c.dataset))
                .collect::<Vec<_>>()
        ));
        drop(named);
        let mut named = dataset.consume("one", None, 1 << 20, false).unwrap();
        assert!(!named.is_new());
        let next = named.wait(Duration::ZERO).unwrap().unwrap();
        said.push(format!("{} {}", next.key(), next.seq()));
        drop(named);
        said.push(format!(
            "{:?} {:?}",
            dataset.release_changes("one"),
            dataset.release_changes("one")
        ));
        said
    });
    assert_eq!(said[0], said[1]);
}

#[test]
fn a_server_with_long_queries_says_so() {
    let said = |seconds: u64| {
        let mut config = Config::default();
        config.limits.query_time = Duration::from_secs(seconds);
        let served = Served::with(config);
        let reply = served.ask("GET /v1/datasets");
        reply.header("esker-query-time").map(str::to_string)
    };
    assert_eq!(said(60), None);
    assert_eq!(said(90), Some("90".to_string()));
}

#[test]
fn a_feed_waits_for_the_next_change() {
    let (_served, _dir, [_, remote]) = pair();
    let dataset = remote.create_dataset("d", calls::def()).unwrap();
    let mut feed = dataset.changes(ChangesFrom::Now, false).unwrap();
    assert!(feed.wait(Duration::ZERO).unwrap().is_none());
    let waiting = std::thread::spawn(move || {
        loop {
            if let Some(change) = feed.wait(Duration::from_secs(20)).unwrap() {
                return change.key().to_string();
            }
        }
    });
    let mut batch = dataset.batch();
    batch.put_json(br#"{"id":7}"#).unwrap();
    batch.commit().unwrap();
    assert_eq!(waiting.join().unwrap(), "7");
}

#[test]
fn a_snapshot_does_not_see_what_is_written_later() {
    let (_served, _dir, [_, remote]) = pair();
    let dataset = remote.create_dataset("d", calls::def()).unwrap();
    filled(&*dataset);
    let before = dataset.snapshot().unwrap();
    let mut answer = before.find(&Request::default()).unwrap();
    let mut batch = dataset.batch();
    batch.put_json(br#"{"id":5000}"#).unwrap();
    batch.commit().unwrap();
    assert_eq!(before.count(&Request::default()).unwrap().0, 2000);
    assert_eq!(answer.by_ref().filter(Result::is_ok).count(), 2000);
    assert_eq!(dataset.count(&Request::default()).unwrap().0, 2001);
}

#[test]
fn a_client_needs_its_token_and_no_more_than_it_may() {
    let token = |name: &str, role: Role| TokenSettings {
        name: name.to_string(),
        sha256: hash_of(name),
        role,
        datasets: Some(vec!["d".to_string()]),
        topics: None,
    };
    let served = Served::with(Config {
        tokens: vec![token("reader", Role::Read), token("admin", Role::Admin)],
        ..Config::default()
    });
    let open = |token: Option<&str>| {
        let access = Access {
            token: token.map(str::to_string),
            ..Access::default()
        };
        open_with(served.url(""), Mode::Write, Options::default(), &access).unwrap()
    };
    let error = open(None).dataset_names().unwrap_err();
    assert!(error.to_string().contains("ESKER_TOKEN"), "{error}");
    open(Some("admin"))
        .create_dataset("d", calls::def())
        .unwrap();
    let reader = open(Some("reader"));
    let dataset = reader.dataset("d").unwrap();
    assert_eq!(dataset.count(&Request::default()).unwrap().0, 0);
    let mut batch = dataset.batch();
    batch.put_json(br#"{"id":5}"#).unwrap();
    let error = batch.commit().unwrap_err();
    assert_eq!(error.to_string(), "this needs the role write");
    let error = reader.dataset("other").err().unwrap();
    assert_eq!(error.kind(), ErrorKind::UnknownDataset);
}

#[test]
fn what_a_server_cannot_give_is_refused_with_what_to_use() {
    let (served, _dir, [_, remote]) = pair();
    let error = remote.backup("x".as_ref()).unwrap_err();
    assert!(error.to_string().contains("/v1/backups"), "{error}");
    let url = served.url("");
    drop(served.stop());
    let error = remote.dataset_names().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains(&url), "{error}");
}

#[test]
fn an_encrypted_server_is_reached_with_its_certificate_alone() {
    let dir = tempfile::tempdir().unwrap();
    let tls = crate::tls::certificate(dir.path(), "localhost");
    let access = Access {
        trusted: Some(std::fs::read(&tls.certificate).unwrap()),
        ..Access::default()
    };
    let served = Served::with(Config {
        tls: Some(tls),
        ..Config::default()
    });
    let url = served
        .url("")
        .replace("http://127.0.0.1", "https://localhost");
    let open = |access: &Access| open_with(&url, Mode::Write, Options::default(), access).unwrap();
    open(&access).create_dataset("d", calls::def()).unwrap();
    assert_eq!(open(&access).dataset_names().unwrap(), ["d"]);
    let error = open(&Access::default()).dataset_names().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}

#[test]
fn malformed_reads_and_batches_are_refused() {
    let served = Served::new();
    served.create("d", serde_json::json!({"key": "id:int"}));
    for body in [
        "",
        "{}",
        r#"{"read":{"find":{}}}"#,
        r#"{"read":{"get":{"keys":["x"]}}}"#,
        r#"{"at":{"moment":"zz"},"read":"fields"}"#,
    ] {
        let refused = served.send(
            "POST /v1/datasets/d/read",
            &[("content-type", "application/json")],
            body.as_bytes(),
        );
        assert!(
            (400..500).contains(&refused.status),
            "{body}: {}",
            refused.text()
        );
        refused.problem();
    }
    let gone = r#"{"at":{"moment":"00000000000000ff"},"read":"fields"}"#;
    let refused = served.send(
        "POST /v1/datasets/d/read",
        &[("content-type", "application/json")],
        gone.as_bytes(),
    );
    assert_eq!(
        (refused.status, refused.problem().as_str()),
        (410, "page-expired")
    );
    let mut rng = fastrand::Rng::with_seed(7);
    for _ in 0..300 {
        let mut body: Vec<u8> = (0..rng.usize(1..60)).map(|_| rng.u8(..)).collect();
        if rng.bool() {
            let kinds = b"PIDENM?";
            body = vec![kinds[rng.usize(..kinds.len())]];
            let rest: Vec<u8> = (0..rng.usize(0..20)).map(|_| rng.u8(..)).collect();
            body.extend_from_slice(&(rest.len() as u32).to_le_bytes());
            body.extend_from_slice(&rest);
        }
        let answer = served.send("POST /v1/datasets/d/write", &[], &body);
        assert!(answer.status < 500, "{body:?}: {}", answer.text());
    }
}

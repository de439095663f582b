//! The coprocessor: compactions repair.

use esker_cluster::Dataset;

use crate::layer::{Model, checked, compare, definition, histories, json, settle};
use crate::server::Cluster;

pub(crate) fn all(cluster: &Cluster) {
    let store = cluster.store_with_hook("hook");
    let dataset = store.create_dataset("d", &definition(1)).unwrap();
    let three = store.create_dataset("three", &definition(3)).unwrap();
    let (model, other) = (histories(&dataset), histories(&three));
    let table = &cluster.table_of("hook", "d");
    let (before, _) = cluster.raw(table);
    settle();
    cluster.admin("compact", table);
    let (versions, markers) = cluster.raw(table);
    assert!(before > versions, "{before} versions, then {versions}");
    assert_eq!(markers, 0);
    // The newest version of each key stays: a record or a deletion.
    assert!(versions as usize >= model.len() && versions <= 320);
    checked(&dataset);
    compare(&dataset, &model);
    // With several versions kept.
    cluster.admin("compact", &cluster.table_of("hook", "three"));
    checked(&three);
    compare(&three, &other);
    // Again, now with versions of both times, and the files of both.
    let model = more(&dataset, model);
    settle();
    cluster.admin("compact", table);
    checked(&dataset);
    compare(&dataset, &model);
}

fn more(dataset: &Dataset, mut model: Model) -> Model {
    let mut batch = dataset.batch();
    for (id, record) in &mut model {
        record.1 = -record.1;
        batch.put_json(json(*id, record).as_bytes()).unwrap();
    }
    batch.commit().unwrap();
    model
}

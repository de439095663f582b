//! What the server measures beside MQTT: its requests as they are answered, and the
//! store's own counters when they are asked for.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::http::Method;
use esker::stats::{StoreStats, TreeStats};
use parking_lot::RwLock;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::mqtt::Mqtt;

/// The bounds of the buckets of answers' times, in seconds.
const SECONDS: [f64; 14] = [
    0.0001, 0.000_25, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.25, 1.0, 2.5, 10.0, 60.0,
];

/// A kind of request, and how it was answered.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answered {
    /// As in the OpenAPI document: `/v1/datasets/{dataset}/records`.
    route: String,
    method: &'static str,
    status: u16,
}

/// A kind of request.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Asked {
    route: String,
    method: &'static str,
    /// The dataset in its address; empty without one.
    dataset: String,
}

/// The most datasets whose times are measured one by one: each has some series for each route.
const DATASETS: usize = 200;

/// The label of all further datasets, which no dataset can have as its name.
const OTHER: &str = "(other)";

/// What the server measures while it runs.
pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<Answered, Counter>,
    seconds: Family<Asked, Histogram, fn() -> Histogram>,
    /// Requests whose answers have not begun.
    in_flight: Gauge,
    /// The datasets that have labels, and the series of each.
    datasets: RwLock<HashMap<String, Vec<Asked>>>,
    /// Connections of HTTP that are open.
    pub(crate) connections: Gauge,
    /// Connections that were refused, because there were too many.
    pub(crate) refused: Counter,
    pub(crate) mqtt: Mqtt,
}

fn histogram() -> Histogram {
    Histogram::new(SECONDS)
}

impl Default for Metrics {
    fn default() -> Metrics {
        let mut registry = Registry::with_prefix("esker");
        let requests = Family::default();
        let seconds = Family::new_with_constructor(histogram as fn() -> Histogram);
        let (connections, refused) = (Gauge::default(), Counter::default());
        let in_flight = Gauge::default();
        registry.register(
            "http_requests",
            "Requests by route and status",
            requests.clone(),
        );
        registry.register_with_unit(
            "http_request",
            "The time until an answer begins, by route and dataset",
            Unit::Seconds,
            seconds.clone(),
        );
        registry.register(
            "http_requests_in_flight",
            "Requests whose answers have not begun",
            in_flight.clone(),
        );
        registry.register(
            "http_connections",
            "Open connections of HTTP",
            connections.clone(),
        );
        registry.register(
            "http_connections_refused",
            "Connections refused because there were too many",
            refused.clone(),
        );
        let mqtt = Mqtt::default();
        mqtt.register(&mut registry);
        Metrics {
            registry,
            mqtt,
            requests,
            seconds,
            in_flight,
            datasets: RwLock::default(),
            connections,
            refused,
        }
    }
}

/// A request whose answer has not begun.
pub(crate) struct InFlight(Gauge);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Metrics {
    /// Counts a request that is being answered.
    pub(crate) fn asked(&self) -> InFlight {
        self.in_flight.inc();
        InFlight(self.in_flight.clone())
    }

    /// Counts a request. `route` is `None` for an address without a route, `dataset` for one
    /// without a dataset.
    pub(crate) fn answered(
        &self,
        route: Option<&str>,
        dataset: Option<String>,
        method: &Method,
        status: u16,
        took: Duration,
    ) {
        // Clients choose methods: each has labels of its own, which are kept.
        let known = ["GET", "HEAD", "PUT", "POST", "PATCH", "DELETE", "OPTIONS"];
        let mut known = known.into_iter();
        let method = known
            .find(|known| *known == method.as_str())
            .unwrap_or("other");
        let route = route.unwrap_or("none").to_string();
        let asked = Asked {
            route: route.clone(),
            method,
            dataset: dataset.unwrap_or_default(),
        };
        self.observe(asked, took.as_secs_f64());
        let answered = Answered {
            route,
            method,
            status,
        };
        self.requests.get_or_create(&answered).inc();
    }

    fn observe(&self, mut asked: Asked, seconds: f64) {
        if let Some(known) = self.seconds.get(&asked) {
            known.observe(seconds);
            return;
        }
        // Under the lock the series is made, too: it is known when its dataset is forgotten.
        let mut known = self.datasets.write();
        if !asked.dataset.is_empty() {
            if known.len() >= DATASETS && !known.contains_key(&asked.dataset) {
                asked.dataset = OTHER.to_string();
            } else {
                let series = known.entry(asked.dataset.clone()).or_default();
                if !series.contains(&asked) {
                    series.push(asked.clone());
                }
            }
        }
        self.seconds.get_or_create(&asked).observe(seconds);
    }

    /// Removes the series of a dataset that was dropped or renamed, so that others can have their
    /// own.
    pub(crate) fn forget(&self, dataset: &str) {
        let mut known = self.datasets.write();
        for series in known.remove(dataset).into_iter().flatten() {
            self.seconds.remove(&series);
        }
    }

    /// Everything in Prometheus' text form.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn text(&self, store: &StoreStats, calls: Calls) -> Result<String, fmt::Error> {
        let mut all = String::new();
        self.mqtt.refresh();
        text::encode_registry(&mut all, &self.registry)?;
        text::encode(&mut all, &of_store(store, calls))?;
        Ok(all)
    }
}

/// Calls of the store.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Calls {
    pub(crate) running: usize,
    pub(crate) waiting: usize,
    /// Snapshots that pages keep.
    pub(crate) pages: usize,
    /// Streams of changes, areas and topics.
    pub(crate) streams: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Tree {
    dataset: String,
    tree: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Level {
    dataset: String,
    tree: String,
    level: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reader {
    dataset: String,
    consumer: String,
}

type Bytes<L> = Family<L, Gauge<u64, AtomicU64>>;

fn set<L: Clone + std::hash::Hash + Eq>(family: &Bytes<L>, labels: &L, value: u64) {
    family
        .get_or_create(labels)
        .inner()
        .store(value, Ordering::Relaxed);
}

/// Sizes of a store and numbers of calls: their names, what they are, and their values.
fn sizes(stats: &StoreStats, calls: &Calls) -> [(&'static str, &'static str, usize); 11] {
    let memory = &stats.memory;
    [
        (
            "memory_budget_bytes",
            "The memory budget",
            memory.budget_bytes,
        ),
        ("memory_cache_bytes", "The block cache", memory.cache_bytes),
        ("memory_memtable_bytes", "Memtables", memory.memtable_bytes),
        (
            "memory_mapped_bytes",
            "Mapped tables, apart from the budget",
            memory.mapped_bytes as usize,
        ),
        (
            "memory_waiting",
            "Loans of memory that wait",
            memory.waiting,
        ),
        (
            "calls_running",
            "Calls of the store that run",
            calls.running,
        ),
        (
            "calls_waiting",
            "Calls of the store that wait for a thread",
            calls.waiting,
        ),
        (
            "page_snapshots",
            "Snapshots that pages of answers keep",
            calls.pages,
        ),
        (
            "http_streams",
            "Streams of changes, areas and topics that are open",
            calls.streams,
        ),
        (
            "background_jobs",
            "Flushes and compactions that run",
            stats.jobs.len(),
        ),
        (
            "failing_jobs",
            "Background jobs that keep failing",
            stats.failures.len(),
        ),
    ]
}

/// The store's own counters and sizes.
fn of_store(stats: &StoreStats, calls: Calls) -> Registry {
    let mut registry = Registry::with_prefix("esker");
    for (name, value) in &stats.counters {
        let help = "A counter of the engine since the store was opened";
        registry.register(format!("store_{name}"), help, ConstCounter::new(*value));
    }
    let mut gauge = |name: &str, help: &str, value: u64| {
        let gauge: Gauge<u64, AtomicU64> = Gauge::default();
        gauge.inner().store(value, Ordering::Relaxed);
        registry.register(name, help, gauge);
    };
    for (name, help, value) in sizes(stats, &calls) {
        gauge(name, help, value as u64);
    }
    let counter = |name: &str| stats.counters.get(name).copied().unwrap_or_default();
    let flushed = counter("flush_bytes");
    let amplification: Gauge<f64, AtomicU64> = Gauge::default();
    if flushed > 0 {
        let written = flushed + counter("merge_write_bytes");
        amplification.set(written as f64 / flushed as f64);
    }
    let help = "Bytes of tables written for each byte flushed";
    registry.register("write_amplification", help, amplification);

    let (bytes, entries) = (Bytes::default(), Bytes::default());
    let (tables, memtables) = (Bytes::default(), Bytes::default());
    for (dataset, of) in &stats.datasets {
        for tree in &of.trees {
            add_tree(dataset, tree, [&bytes, &entries, &tables], &memtables);
        }
    }
    registry.register("tree_bytes", "Bytes of a tree's tables by level", bytes);
    registry.register(
        "tree_entries",
        "Entries of a tree's tables by level",
        entries,
    );
    registry.register("tree_tables", "Tables of a tree by level", tables);
    registry.register(
        "tree_memtable_bytes",
        "Bytes of a tree in memory",
        memtables,
    );
    let lag = Bytes::default();
    for consumer in &stats.consumers {
        let reader = Reader {
            dataset: consumer.dataset.clone().unwrap_or_default(),
            consumer: consumer.name.clone(),
        };
        set(&lag, &reader, consumer.lag_bytes);
    }
    let help = "Bytes of log that a consumer of changes has not read";
    registry.register("consumer_lag_bytes", help, lag);
    registry
}

fn add_tree(
    dataset: &str,
    tree: &TreeStats,
    [bytes, entries, tables]: [&Bytes<Level>; 3],
    memtables: &Bytes<Tree>,
) {
    for level in &tree.levels {
        let labels = Level {
            dataset: dataset.to_string(),
            tree: tree.name.clone(),
            level: level.level,
        };
        set(bytes, &labels, level.bytes);
        set(entries, &labels, level.entries);
        set(tables, &labels, level.files as u64);
    }
    let labels = Tree {
        dataset: dataset.to_string(),
        tree: tree.name.clone(),
    };
    set(memtables, &labels, tree.memtable.bytes as u64);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datasets_with_labels_are_bounded_and_dropped_ones_make_room() {
        let metrics = Metrics::default();
        let route = "/v1/datasets/{dataset}/count";
        let answered = |name: &str| {
            let took = Duration::from_millis(1);
            metrics.answered(Some(route), Some(name.to_string()), &Method::GET, 200, took);
        };
        let has = |name: &str| {
            let mut text = String::new();
            text::encode_registry(&mut text, &metrics.registry).unwrap();
            text.contains(&format!("dataset=\"{name}\""))
        };
        for number in 0..DATASETS {
            answered(&format!("d{number}"));
        }
        // A dataset may have this word for its name.
        answered("other");
        answered("d7");
        assert!(has("d0") && has("d199") && has(OTHER) && !has("other"));
        metrics.forget("d7");
        assert!(!has("d7"));
        answered("other");
        assert!(has("other"));
        answered("d7");
        assert!(!has("d7"));
    }
}

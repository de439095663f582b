//! A served store.

use std::path::Path as FsPath;

use esker::changes::ChangeConsumer;
use esker::maintain::CheckReport;
use esker::schema::{DefinitionDocument, check_dataset_name};
use esker::stats::{NamedSnapshot, StoreStats};
use esker::{DatasetDef, Error, Result, Seq};
use esker_client::{Access, Client, segment};
use serde::Deserialize;
use serde_json::json;

use super::reads::Served;
use super::requests;
use crate::capabilities::Capabilities;
use crate::records::{Dataset, Records};
use crate::store::{Mode, Store};

/// A store that a server has.
pub struct Remote {
    client: Client,
    reads_only: bool,
}

#[derive(Deserialize)]
struct Listed {
    name: String,
}

#[derive(Deserialize)]
struct Datasets {
    datasets: Vec<Listed>,
}

#[derive(Deserialize)]
struct Snapshot {
    name: String,
    seq: Seq,
    #[serde(default)]
    time: u64,
    #[serde(default)]
    bytes: u64,
    #[serde(default)]
    own_bytes: u64,
}

#[derive(Deserialize)]
struct Snapshots {
    snapshots: Vec<Snapshot>,
}

#[derive(Deserialize)]
struct Unconfirmed {
    unconfirmed: Option<u64>,
}

#[derive(Deserialize)]
struct OnDisk {
    #[serde(default)]
    bytes_on_disk: Option<u64>,
}

impl Remote {
    /// The store at an address.
    ///
    /// # Errors
    /// [`Error::BadInput`] for an address that is none.
    pub fn open(address: &str, mode: Mode, access: &Access) -> Result<Remote> {
        Ok(Remote {
            client: Client::connect(address, access)?,
            reads_only: mode == Mode::Read,
        })
    }

    fn writes(&self) -> Result<()> {
        if self.reads_only {
            Err(Error::ReadOnly)
        } else {
            Ok(())
        }
    }

    fn served(&self, dataset: esker_client::Dataset) -> Box<dyn Dataset> {
        Box::new(Served::now(dataset, self.reads_only))
    }
}

impl Store for Remote {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            snapshots: true,
            versions: true,
            indexes: true,
            changes: true,
            expiry: true,
            maintenance: true,
            summaries: false,
            files: true,
            key_order: true,
        }
    }

    fn dataset_names(&self) -> Result<Vec<String>> {
        let Datasets { datasets } = self.client.get("/v1/datasets")?;
        Ok(datasets.into_iter().map(|one| one.name).collect())
    }

    fn dataset(&self, name: &str) -> Result<Box<dyn Dataset>> {
        Ok(self.served(self.client.dataset(name)?))
    }

    fn create_dataset(&self, name: &str, def: DatasetDef) -> Result<Box<dyn Dataset>> {
        self.writes()?;
        check_dataset_name(name)?;
        def.validate()?;
        let document = DefinitionDocument::of(&def);
        let path = format!("/v1/datasets/{}", segment(name));
        if !self.client.put(&path, &document)? {
            return Err(Error::Exists(format!("dataset `{name}` exists already")));
        }
        self.dataset(name)
    }

    fn rename_dataset(&self, name: &str, to: &str) -> Result<()> {
        self.writes()?;
        let path = format!("/v1/datasets/{}/rename", segment(name));
        self.client.tell(&path, &json!({"to": to}))
    }

    fn drop_dataset(&self, name: &str) -> Result<()> {
        self.writes()?;
        self.client
            .delete(&format!("/v1/datasets/{}", segment(name)))
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }

    fn snapshots(&self) -> Result<Vec<NamedSnapshot>> {
        let Snapshots { snapshots } = self.client.get("/v1/snapshots")?;
        let named = snapshots.into_iter().map(|one| {
            let mut named = NamedSnapshot::new(one.name, one.seq);
            (named.time, named.bytes, named.own_bytes) = (one.time, one.bytes, one.own_bytes);
            named
        });
        Ok(named.collect())
    }

    fn keep_snapshot(&self, name: &str) -> Result<Seq> {
        self.writes()?;
        let path = format!("/v1/snapshots/{}", segment(name));
        self.client.put(&path, &json!({}))?;
        let kept = self.snapshots()?.into_iter().find(|one| one.name == name);
        let name = name.to_string();
        Ok(kept.ok_or(Error::UnknownSnapshot { name })?.seq)
    }

    fn drop_snapshot(&self, name: &str) -> Result<()> {
        self.writes()?;
        self.client
            .delete(&format!("/v1/snapshots/{}", segment(name)))
    }

    fn dataset_names_at(&self, snapshot: &str) -> Result<Vec<String>> {
        let path = format!("/v1/snapshots/{}/datasets", segment(snapshot));
        let Datasets { datasets } = self.client.get(&path)?;
        Ok(datasets.into_iter().map(|one| one.name).collect())
    }

    fn dataset_at(&self, snapshot: &str, name: &str) -> Result<Box<dyn Records>> {
        let (dataset, moment) = self.client.dataset_at(snapshot, name)?;
        Ok(Box::new(Served::at(dataset, moment)))
    }

    fn compact(&self, dataset: Option<&str>) -> Result<()> {
        self.writes()?;
        let path = match dataset {
            Some(name) => format!("/v1/datasets/{}/compact", segment(name)),
            None => "/v1/compact".to_string(),
        };
        requests::job(&self.client, &path, &json!({})).map(drop)
    }

    fn check(&self) -> Result<CheckReport> {
        let result = requests::job(&self.client, "/v1/check", &json!({}))?;
        requests::report(result)
    }

    fn backup(&self, _to: &FsPath) -> Result<()> {
        let address = self.client.address();
        Err(Error::Unsupported(format!(
            "a server makes backups in a folder of its own: curl -X POST {address}/v1/backups -H 'content-type: application/json' -d '{{\"name\": \"monday\"}}'; `esker copy {address} FOLDER` brings the records here"
        )))
    }

    fn stats(&self) -> Result<StoreStats> {
        self.client.get("/v1/stat")
    }

    fn bytes_on_disk(&self) -> Result<Option<u64>> {
        let stat: OnDisk = self.client.get("/v1/stat")?;
        Ok(stat.bytes_on_disk)
    }

    fn change_consumers(&self) -> Result<Vec<ChangeConsumer>> {
        requests::consumers(&self.client)
    }

    fn confirm_time(&self) -> Result<()> {
        self.writes()?;
        self.client.tell("/v1/confirm-time", &json!({}))
    }

    fn unconfirmed_time(&self) -> Option<u64> {
        let answer: Unconfirmed = self.client.get("/v1/confirm-time").ok()?;
        answer.unconfirmed
    }
}

//! Notes that programs keep beside the records of a dataset: the tree `d/notes`, name -> bytes. A
//! batch writes its notes in the commit of its records: after a crash the notes match the records
//! ([`crate::WriteBatch::note`]).

use std::collections::BTreeMap;

use esker_lsm::coding::Misplaced;
use esker_lsm::{Cursor, Kind, TreeChange, TreeId};

use super::batch::{DatasetWrites, Note};
use crate::catalog::{Role, TreeConfig, notes_tree};
use crate::error::{Error, Result};
use crate::store::Handle;

impl Handle {
    /// The tree of the notes, which is created on first use.
    pub(super) fn notes_tree(&self) -> Result<TreeId> {
        if let Some(tree) = self.layout().notes {
            return Ok(tree);
        }
        let _first = self.state.first_note.lock();
        // Another writer may have created it by now.
        if let Some(tree) = self.layout().notes {
            return Ok(tree);
        }
        let _claim = self.state.claim()?;
        let layout = self.layout();
        if let Some(tree) = layout.notes {
            return Ok(tree);
        }
        let config = TreeConfig::new(Role::Notes, &layout.stored.settings);
        let created = self.store.group.change_trees(&mut |_| {
            Ok(TreeChange {
                created: vec![(notes_tree(&self.name()), config.to_bytes())],
                // With the definition, so that its layout is computed again.
                configured: vec![(layout.data, layout.stored.to_bytes())],
                ..TreeChange::default()
            })
        })?;
        Ok(*created.first().ok_or_else(|| Misplaced::here())?)
    }

    /// All notes, by name.
    pub(crate) fn notes(&self) -> Result<BTreeMap<String, Vec<u8>>> {
        let snapshot = self.store.group.snapshot();
        let mut notes = BTreeMap::new();
        let Some(tree) = self.state.layout_in(snapshot.version()).notes else {
            return Ok(notes);
        };
        let mut cursor = snapshot.cursor(tree, 0);
        cursor.seek_first()?;
        while cursor.valid() {
            let name = String::from_utf8(cursor.key().to_vec());
            let name = name.map_err(|_| Error::damaged("the name of a note is not UTF-8"))?;
            notes.insert(name, cursor.value().to_vec());
            cursor.next()?;
        }
        Ok(notes)
    }
}

impl DatasetWrites {
    /// The longest name of a note, in bytes.
    pub(crate) const MAX_NOTE_NAME: usize = 1024;

    /// See [`crate::WriteBatch::note`].
    pub(crate) fn note(&mut self, name: &str, value: Option<&[u8]>) -> Result<()> {
        if name.is_empty() || name.len() > DatasetWrites::MAX_NOTE_NAME {
            return Err(Error::bad_input(format!(
                "the name of a note has {} bytes: 1 to {} are allowed",
                name.len(),
                DatasetWrites::MAX_NOTE_NAME
            )));
        }
        let tree = self.dataset.notes_tree()?;
        self.notes.retain(|known| known.name != name);
        self.notes.push(Note {
            tree,
            name: name.to_string(),
            value: value.map(<[u8]>::to_vec),
        });
        Ok(())
    }

    /// Adds the notes to the writes, under the number of the last record.
    pub(super) fn add_notes(&mut self) -> Result<()> {
        let batch = &mut self.writes.batch;
        for note in &self.notes {
            let (kind, value) = match &note.value {
                Some(value) => (Kind::Put, value.as_slice()),
                None => (Kind::Delete, [].as_slice()),
            };
            batch.also(kind, note.tree, note.name.as_bytes(), value)?;
        }
        Ok(())
    }
}

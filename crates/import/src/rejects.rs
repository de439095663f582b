//! `FILE.rejected`: the rejected lines of an import, as NDJSON
//! `{"line":N,"reason":"...","text":"..."}`. Each import that rejects a line replaces the file.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::observer::Note;

/// The maximum number of bytes stored of a rejected line.
pub(crate) const TEXT_MAX: usize = 64 << 10;

/// The rejected lines of one input.
pub(crate) struct Rejects {
    path: PathBuf,
    file: Option<BufWriter<File>>,
    /// The file cannot be created: lines are reported as notes instead.
    is_unwritable: bool,
    count: u64,
    /// The number of these on lines that are done, and in the file.
    done: u64,
    /// The file has lines that a power cut may take away.
    is_unsynced: bool,
    /// The folder has the file, also after a power cut.
    is_named: bool,
}

impl Rejects {
    /// The rejects of an input: beside the file, or in the current folder for standard input.
    pub(crate) fn beside(input: Option<&Path>) -> Self {
        let mut name = input
            .unwrap_or(Path::new("./stdin"))
            .as_os_str()
            .to_os_string();
        name.push(".rejected");
        Self::at(name.into())
    }

    fn at(path: PathBuf) -> Self {
        Self {
            path,
            file: None,
            is_unwritable: false,
            count: 0,
            done: 0,
            is_unsynced: false,
            is_named: false,
        }
    }

    /// The path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Continues the file of an interrupted import: keeps the entries of lines up to `last`, at
    /// most `most` of them. Later lines are read again. Returns false if the file has fewer.
    pub(crate) fn resume(&mut self, last: u64, most: Option<u64>) -> io::Result<bool> {
        let text = match fs::read(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        // The last entry may be torn.
        let line = |entry: &[u8]| serde_json::from_slice::<Value>(entry).ok()?["line"].as_u64();
        let kept = text
            .split(|byte| *byte == b'\n')
            .filter(|entry| line(entry).is_some_and(|line| line <= last));
        let noted = most.map(|most| usize::try_from(most).unwrap_or(usize::MAX));
        let kept: Vec<&[u8]> = kept.take(noted.unwrap_or(usize::MAX)).collect();
        if noted.is_some_and(|noted| kept.len() < noted) {
            return Ok(false);
        }
        if kept.is_empty() {
            return Ok(true);
        }
        self.count = kept.len() as u64;
        self.done = self.count;
        // The entries are nowhere else, so the file is replaced as a whole.
        let mut new = self.path.clone().into_os_string();
        new.push(".new");
        let mut file = BufWriter::new(File::create(&new)?);
        for entry in kept {
            file.write_all(entry)?;
            file.write_all(b"\n")?;
        }
        file.flush()?;
        file.get_ref().sync_data()?;
        fs::rename(&new, &self.path)?;
        self.file = Some(file);
        self.is_named = false;
        Ok(true)
    }

    /// Forgets an interrupted import.
    pub(crate) fn start_over(&mut self) {
        let path = std::mem::take(&mut self.path);
        *self = Self::at(path);
    }

    /// Writes the buffered lines to the file, so that they survive the end of the process.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), |file| file.flush())
    }

    /// Stores a line; if the file cannot be created, passes it to `note`.
    pub(crate) fn add(
        &mut self,
        line: u64,
        reason: &str,
        text: &[u8],
        note: &mut dyn FnMut(&Note),
    ) -> io::Result<()> {
        self.count += 1;
        if self.file.is_none() && !self.is_unwritable {
            match File::create(&self.path) {
                Ok(file) => self.file = Some(BufWriter::new(file)),
                Err(error) => {
                    note(&Note::Unwritten {
                        path: self.path.clone(),
                        reason: error.to_string(),
                    });
                    self.is_unwritable = true;
                }
            }
        }
        let Some(file) = &mut self.file else {
            note(&Note::Rejected {
                line,
                reason: reason.to_string(),
            });
            return Ok(());
        };
        let text = String::from_utf8_lossy(cut(text));
        let entry = json!({ "line": line, "reason": reason, "text": text });
        self.is_unsynced = true;
        writeln!(file, "{entry}")
    }

    /// The number of rejected lines.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// All lines so far are done: an import that is resumed does not read them again.
    pub(crate) fn set_done(&mut self) {
        if self.file.is_some() {
            self.done = self.count;
        }
    }

    /// The number of rejected lines that are done.
    pub(crate) fn done(&self) -> u64 {
        self.done
    }

    /// If this import rejected no line, removes the file of an earlier import.
    pub(crate) fn remove_stale(&self) -> io::Result<()> {
        if self.count > 0 || !is_ours(&self.path) {
            return Ok(());
        }
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Writes the lines since the last call to the disk, so that they survive a power cut.
    pub(crate) fn sync(&mut self) -> io::Result<()> {
        let Some(file) = &mut self.file else {
            return Ok(());
        };
        if self.is_unsynced {
            file.flush()?;
            file.get_ref().sync_data()?;
            self.is_unsynced = false;
        }
        if !self.is_named {
            let folder = self.path.parent().filter(|folder| *folder != Path::new(""));
            File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
            self.is_named = true;
        }
        Ok(())
    }

    /// Writes the buffered lines and returns the path of the file, if there is one.
    pub(crate) fn finish(self) -> io::Result<Option<PathBuf>> {
        match self.file {
            Some(file) => {
                file.into_inner().map_err(io::IntoInnerError::into_error)?;
                Ok(Some(self.path))
            }
            None => Ok(None),
        }
    }
}

/// True if the file begins like a file of rejected lines.
fn is_ours(path: &Path) -> bool {
    let mut first = Vec::new();
    let read = File::open(path).and_then(|file| {
        let mut line = BufReader::new(file).take(8 * TEXT_MAX as u64);
        line.read_until(b'\n', &mut first)
    });
    let entry: Value = serde_json::from_slice(&first).unwrap_or_default();
    read.is_ok() && entry["line"].is_u64() && entry["reason"].is_string()
}

/// The first `TEXT_MAX` bytes of a text, cut between characters.
pub(crate) fn cut(text: &[u8]) -> &[u8] {
    let mut end = text.len().min(TEXT_MAX);
    for _ in 0..3 {
        if text.get(end).is_some_and(|byte| byte & 0xC0 == 0x80) {
            end -= 1;
        }
    }
    text.get(..end).unwrap_or(text)
}

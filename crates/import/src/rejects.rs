//! `FILE.rejected`: the rejected lines of an import, as NDJSON
//! `{"line":N,"reason":"...","text":"..."}`, with `"part":P` for a value that is not the first to
//! begin on its line. Each import that rejects a line replaces the file.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::feed::Place;
use crate::observer::Note;
use crate::text::TEXT_MAX;

/// Numbers of rejected lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    /// Those in the file.
    written: u64,
    /// Those that were only reported, because the file cannot be created.
    unwritten: u64,
}

impl Counts {
    fn add(&mut self, is_written: bool) {
        *(if is_written {
            &mut self.written
        } else {
            &mut self.unwritten
        }) += 1;
    }
}

/// The rejected lines of one input.
pub(crate) struct Rejects {
    path: PathBuf,
    file: Option<BufWriter<File>>,
    /// The file cannot be created: lines are reported as notes instead.
    is_unwritable: bool,
    /// Those that a note of the progress counts, whatever its place.
    settled: Counts,
    /// The others, and whether they are in the file: a note may have a place before them.
    unsettled: Vec<(Place, bool)>,
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
            settled: Counts::default(),
            unsettled: Vec::new(),
            is_unsynced: false,
            is_named: false,
        }
    }

    /// The path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Continues the file of an interrupted import: keeps the entries of values up to `last`, at
    /// most `most` of them. Later ones are read again. Returns false if the file has fewer.
    /// `unwritten` lines up to `last` were rejected but could not be written.
    pub(crate) fn resume(
        &mut self,
        last: Place,
        most: Option<u64>,
        unwritten: u64,
    ) -> io::Result<bool> {
        self.settled.unwritten = unwritten;
        if most == Some(0) {
            return Ok(true);
        }
        let text = match fs::read(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        // The last entry may be torn.
        let place = |entry: &[u8]| {
            let entry: Value = serde_json::from_slice(entry).ok()?;
            let part = entry["part"].as_u64().unwrap_or(1);
            Some((entry["line"].as_u64()?, part))
        };
        let last = (last.line, u64::from(last.part).max(1));
        let kept = text
            .split(|byte| *byte == b'\n')
            .filter(|entry| place(entry).is_some_and(|place| place <= last));
        let noted = most.map(|most| usize::try_from(most).unwrap_or(usize::MAX));
        let kept: Vec<&[u8]> = kept.take(noted.unwrap_or(usize::MAX)).collect();
        if noted.is_some_and(|noted| kept.len() < noted) {
            return Ok(false);
        }
        if kept.is_empty() {
            return Ok(true);
        }
        self.settled.written = kept.len() as u64;
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
        place: Place,
        reason: &str,
        text: &[u8],
        note: &mut dyn FnMut(&Note),
    ) -> io::Result<()> {
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
        self.unsettled.push((place, self.file.is_some()));
        let line = place.line;
        let Some(file) = &mut self.file else {
            note(&Note::Rejected {
                line,
                reason: reason.to_string(),
            });
            return Ok(());
        };
        let text = String::from_utf8_lossy(cut(text));
        let entry = match place.part {
            0 | 1 => json!({ "line": line, "reason": reason, "text": text }),
            part => json!({ "line": line, "part": part, "reason": reason, "text": text }),
        };
        self.is_unsynced = true;
        writeln!(file, "{entry}")
    }

    /// The number of rejected lines.
    pub(crate) fn count(&self) -> u64 {
        self.settled.written + self.settled.unwritten + self.unsettled.len() as u64
    }

    /// Every later note of the progress is for a place behind all lines so far.
    pub(crate) fn settle(&mut self) {
        for (_, is_written) in self.unsettled.drain(..) {
            self.settled.add(is_written);
        }
    }

    /// The numbers of rejected lines up to a place: those in the file, and those that could not be
    /// written. An import that resumes there does not read them again.
    pub(crate) fn up_to(&self, place: Place) -> (u64, u64) {
        let mut counts = self.settled;
        let before = self.unsettled.iter().filter(|(at, _)| *at <= place);
        before.for_each(|(_, is_written)| counts.add(*is_written));
        (counts.written, counts.unwritten)
    }

    /// If this import rejected no line, removes the file of an earlier import.
    pub(crate) fn remove_stale(&self) -> io::Result<()> {
        if self.count() > 0 || !is_ours(&self.path) {
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

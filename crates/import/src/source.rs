//! The sources of an import: checks that they exist, and detects their format.

use std::fs::{self, File};
use std::io::{self, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::compression::{self, Compression, HEAD};
use crate::error::{Error, Result};
use crate::utf16::Text;

/// The size of a widened pipe: the maximum that Linux grants to unprivileged processes.
#[cfg(target_os = "linux")]
const PIPE: usize = 1 << 20;

/// The form of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// JSON objects, one per line; also several on a line, one over several lines, and files that
    /// are an array of them, a GeoJSON FeatureCollection, or an object with one array of objects.
    Ndjson,
    /// Lines returned as they are, with any content.
    Lines,
    /// Separated values with a header row.
    Csv,
}

/// A file, or standard input.
#[derive(Clone, Debug)]
pub struct Source {
    /// `None` is standard input.
    pub path: Option<PathBuf>,
    /// The format of its content.
    pub format: Format,
    /// Its size in bytes, if known.
    pub size: Option<u64>,
    /// The separator of CSV columns; if not given, it is detected in the header.
    pub delimiter: Option<u8>,
    /// The path, as names, to the array of records in each JSON value. An empty path: the value
    /// itself is a record.
    pub records: Option<Vec<String>>,
    /// An object that is alone in the source, and whose only member is an array of objects, is
    /// read as these objects. A record may look like that, too, if its key is generated.
    pub unwraps: bool,
}

/// The sources for these files; `-` is standard input. Checks each file now, so that a mistake in
/// the last name does not appear only after the others were loaded.
pub fn sources(files: &[PathBuf], format: Option<Format>) -> Result<Vec<Source>> {
    let mut sources: Vec<Source> = Vec::with_capacity(files.len());
    for file in files {
        let source = if file.as_os_str() == "-" {
            if sources.iter().any(|source| source.path.is_none()) {
                return Err(Error::Input(
                    "standard input ('-') can be read only once".to_string(),
                ));
            }
            Source {
                path: None,
                format: format.unwrap_or(Format::Ndjson),
                size: None,
                delimiter: None,
                records: None,
                unwraps: true,
            }
        } else {
            let refuse =
                |error: io::Error| Error::Input(format!("cannot read {}: {error}", file.display()));
            let metadata = fs::metadata(file).map_err(refuse)?;
            if metadata.is_dir() {
                return Err(Error::Input(format!(
                    "{} is a directory, not a file of records",
                    file.display()
                )));
            }
            // A pipe must not be opened twice, so only regular files are tried.
            let size = metadata.is_file().then_some(metadata.len());
            if size.is_some() {
                File::open(file).map_err(refuse)?;
            }
            let (by_name, delimiter) = format_by_name(file);
            Source {
                path: Some(file.clone()),
                format: format.unwrap_or(by_name),
                size,
                delimiter,
                records: None,
                unwraps: true,
            }
        };
        sources.push(source);
    }
    Ok(sources)
}

impl Source {
    /// The name to show.
    pub fn name(&self) -> String {
        self.path
            .as_ref()
            .map_or("standard input".to_string(), |path| {
                path.display().to_string()
            })
    }

    /// Opens it; `counter` counts the bytes read, before decompression.
    pub fn open(&self, counter: &Arc<AtomicU64>) -> io::Result<Box<dyn Read>> {
        let raw: Box<dyn Read> = match &self.path {
            Some(path) => Box::new(File::open(path)?),
            None => {
                widen(&io::stdin());
                Box::new(io::stdin())
            }
        };
        let mut raw = Counted {
            inner: raw,
            count: Arc::clone(counter),
        };
        let head = head(&mut raw)?;
        let path = self.path.as_deref();
        let invalid = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
        let named = path.map_or(Compression::Plain, compression::by_name);
        let found = compression::by_magic(&head).unwrap_or(Compression::Plain);
        if found == Compression::Plain
            && let Some(what) = compression::other(&head, path)
        {
            return Err(invalid(what));
        }
        if named != Compression::Plain && found == Compression::Plain && !head.is_empty() {
            let says = if named == Compression::Gzip {
                "gzip"
            } else {
                "zstd"
            };
            let what = format!(
                "by its name it is a {says} file, but its first bytes are not those of {says}"
            );
            return Err(invalid(what));
        }
        if path.is_some_and(is_archive) {
            let what =
                "it is a tar archive: `tar -xOf FILE | esker load ... -` reads the files in it";
            return Err(invalid(what.to_string()));
        }
        let reader = BufReader::with_capacity(128 << 10, Cursor::new(head).chain(raw));
        Ok(Box::new(Text::new(compression::expand(found, reader)?)))
    }
}

/// The text of a file, decompressed, from UTF-8 or UTF-16, without a byte order mark.
pub fn read_text(file: &Path) -> Result<String> {
    let unreadable =
        |error: io::Error| Error::Input(format!("cannot read {}: {error}", file.display()));
    let mut text = String::new();
    for source in sources(&[file.to_path_buf()], None)? {
        let mut reader = source.open(&Arc::default()).map_err(unreadable)?;
        reader.read_to_string(&mut text).map_err(unreadable)?;
    }
    Ok(text)
}

/// True if the name is that of a tar archive, compressed or not.
fn is_archive(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let endings = [".tar", ".tar.gz", ".tgz", ".tar.zst"];
    name.is_some_and(|name| endings.iter().any(|ending| name.ends_with(ending)))
}

/// If standard input is a pipe, enlarges its buffer. With 64 KiB, reader and writer wait for each
/// other so often that a load takes 5 % longer.
fn widen(stdin: &io::Stdin) {
    // Other inputs stay as they are; so do pipes that may not be enlarged.
    #[cfg(target_os = "linux")]
    let _ = rustix::pipe::fcntl_setpipe_size(stdin, PIPE);
    #[cfg(not(target_os = "linux"))]
    let _ = stdin;
}

/// The first bytes of a stream, up to the number that determines its compression. No more, because
/// a slow stream may begin with a short line and pause.
fn head(raw: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut head = Vec::with_capacity(HEAD);
    while compression::by_magic(&head).is_none() && raw.by_ref().take(1).read_to_end(&mut head)? > 0
    {
    }
    Ok(head)
}

/// The format of a file by its name, and the separator that the name implies.
pub(crate) fn format_by_name(path: &Path) -> (Format, Option<u8>) {
    let stem = match compression::by_name(path) {
        Compression::Plain => path.to_path_buf(),
        _ => path.with_extension(""),
    };
    let extension = stem.extension().and_then(|extension| extension.to_str());
    match extension.map(str::to_ascii_lowercase).as_deref() {
        Some("csv") => (Format::Csv, None),
        Some("tsv" | "tab") => (Format::Csv, Some(b'\t')),
        _ => (Format::Ndjson, None),
    }
}

struct Counted {
    inner: Box<dyn Read>,
    count: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.count.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

//! Opening a source: is it there, and how is it compressed?

use std::fs::{self, File};
use std::io::{self, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::bufread::MultiGzDecoder;

use crate::error::{Error, Result};

/// What compressed streams begin with: the first byte, from the least to the greatest that it may be, and those behind it.
/// Of zstd a frame, or a skippable frame before it.
const MAGIC: [(Compression, u8, u8, &[u8]); 3] = [
    (Compression::Gzip, 0x1F, 0x1F, &[0x8B]),
    (Compression::Zstd, 0x28, 0x28, &[0xB5, 0x2F, 0xFD]),
    (Compression::Zstd, 0x50, 0x5F, &[0x2A, 0x4D, 0x18]),
];

/// Bytes that a pipe holds: what Linux grants to everybody.
#[cfg(target_os = "linux")]
const PIPE: usize = 1 << 20;

/// The largest zstd window that is accepted, as a power of two: 128 MiB.
const WINDOW_LOG_MAX: u32 = 27;

/// The form of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// One JSON object a line.
    Ndjson,
    /// Comma-separated values with a header row.
    Csv,
}

/// A file, or standard input.
#[derive(Clone, Debug)]
pub struct Source {
    /// `None` is standard input.
    pub path: Option<PathBuf>,
    /// What it holds.
    pub format: Format,
    /// Its size in bytes, where that is known.
    pub size: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Compression {
    Plain,
    Gzip,
    Zstd,
}

/// The sources that a command names, `-` being standard input. Each is checked now, so that a slip in the last name does not
/// show after the others were loaded.
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
            // A pipe must not be opened twice; only what can be opened again is tried.
            let size = metadata.is_file().then_some(metadata.len());
            if size.is_some() {
                File::open(file).map_err(refuse)?;
            }
            let format = format.unwrap_or_else(|| format_by_name(file));
            Source {
                path: Some(file.clone()),
                format,
                size,
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

    /// Opens it; `counter` counts the bytes read before decompression.
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
        let named = self
            .path
            .as_deref()
            .map_or(Compression::Plain, compression_by_name);
        let found = compression_by_magic(&head);
        if named != Compression::Plain && found == Compression::Plain && !head.is_empty() {
            let says = if named == Compression::Gzip {
                "gzip"
            } else {
                "zstd"
            };
            let what = format!("by its name it is {says}, but it does not begin so");
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        let reader = BufReader::with_capacity(128 << 10, Cursor::new(head).chain(raw));
        Ok(match found {
            Compression::Plain => Box::new(reader),
            Compression::Gzip => Box::new(MultiGzDecoder::new(reader)),
            Compression::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::with_buffer(reader)?;
                decoder.window_log_max(WINDOW_LOG_MAX)?;
                Box::new(decoder)
            }
        })
    }
}

fn compression_by_name(path: &Path) -> Compression {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("gz") => Compression::Gzip,
        Some("zst") => Compression::Zstd,
        _ => Compression::Plain,
    }
}

/// Where standard input is a pipe, lets it hold more: at 64 KiB the two sides wait for each other many times, which is a twentieth of the
/// time of a load.
fn widen(stdin: &io::Stdin) {
    // What is no pipe, or may not be widened, stays as it is.
    #[cfg(target_os = "linux")]
    let _ = rustix::pipe::fcntl_setpipe_size(stdin, PIPE);
    #[cfg(not(target_os = "linux"))]
    let _ = stdin;
}

/// The first bytes of a stream, as many as tell how it is compressed: a slow stream may begin with a line of two bytes, and
/// give no more for long.
fn head(raw: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut head = Vec::with_capacity(4);
    while by_magic(&head).is_none() && raw.by_ref().take(1).read_to_end(&mut head)? > 0 {}
    Ok(head)
}

fn compression_by_magic(head: &[u8]) -> Compression {
    by_magic(head).unwrap_or(Compression::Plain)
}

/// How a stream that begins so is compressed; `None` where more bytes can tell.
fn by_magic(head: &[u8]) -> Option<Compression> {
    let (first, rest) = head.split_first()?;
    let mut known = Some(Compression::Plain);
    for (compression, least, greatest, behind) in MAGIC {
        if !(least..=greatest).contains(first) {
            continue;
        }
        if rest.starts_with(behind) {
            return Some(compression);
        }
        if behind.starts_with(rest) {
            known = None;
        }
    }
    known
}

fn format_by_name(path: &Path) -> Format {
    let stem = match compression_by_name(path) {
        Compression::Plain => path.to_path_buf(),
        _ => path.with_extension(""),
    };
    match stem.extension().and_then(|extension| extension.to_str()) {
        Some("csv") => Format::Csv,
        _ => Format::Ndjson,
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

//! Detection and decompression of sources: gzip and zstd, in several members or frames with
//! padding. Other formats are recognised and refused.

use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use flate2::bufread::GzDecoder;
use zstd::stream::read::Decoder;

/// The compression of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compression {
    /// None.
    Plain,
    Gzip,
    Zstd,
}

/// The magic numbers of compressed streams: the range of the first byte, and the bytes behind it.
/// For zstd, the magic number of a frame and those of skippable frames.
const MAGIC: [(Compression, u8, u8, &[u8]); 3] = [
    (Compression::Gzip, 0x1F, 0x1F, &[0x8B]),
    (Compression::Zstd, 0x28, 0x28, &[0xB5, 0x2F, 0xFD]),
    (Compression::Zstd, 0x50, 0x5F, &[0x2A, 0x4D, 0x18]),
];

/// Unsupported formats: the magic number, a description, and a command that converts to text, if
/// any.
const OTHERS: [(&[u8], &str, &str); 13] = [
    (b"BZh", "compressed with bzip2", "bzip2 -dc"),
    (b"\xFD7zXZ\0", "compressed with xz", "xz -dc"),
    (b"\x5D\0\0", "compressed with lzma", "xz -dc"),
    (b"\x04\x22\x4D\x18", "compressed with lz4", "lz4 -dc"),
    (b"\xFF\x06\0\0sNaPpY", "compressed with snappy", "snzip -dc"),
    (b"\x1F\x9D", "compressed with compress", "gzip -dc"),
    (b"PK\x03\x04", "a zip archive", "unzip -p"),
    (b"7z\xBC\xAF\x27\x1C", "a 7z archive", "7z x -so"),
    (b"PAR1", "a Parquet file", ""),
    (b"Obj\x01", "an Avro file", ""),
    (b"ORC", "an ORC file", ""),
    (b"ARROW1", "an Arrow file", ""),
    (b"SQLite format 3\0", "an SQLite database", ""),
];

/// File name extensions of unsupported formats without a magic number.
const ENDINGS: [(&str, &str, &str); 2] = [
    ("br", "compressed with brotli", "brotli -dc"),
    ("Z", "compressed with compress", "gzip -dc"),
];

/// The number of bytes that are enough to detect any of these formats.
pub(crate) const HEAD: usize = 16;

/// The largest accepted zstd window, as a power of two: 128 MiB.
const WINDOW_LOG_MAX: u32 = 27;

pub(crate) fn by_name(path: &Path) -> Compression {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("gz" | "gzip" | "tgz") => Compression::Gzip,
        Some("zst" | "zstd") => Compression::Zstd,
        _ => Compression::Plain,
    }
}

/// The compression of a stream with these first bytes; `None` if more bytes are needed.
pub(crate) fn by_magic(head: &[u8]) -> Option<Compression> {
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
    let is_other =
        |(magic, ..): &(&[u8], &str, &str)| magic.len() > head.len() && magic.starts_with(head);
    if OTHERS.iter().any(is_other) {
        None
    } else {
        known
    }
}

/// The error text for a file in an unsupported format; `None` if the file may hold records.
pub(crate) fn other(head: &[u8], path: Option<&Path>) -> Option<String> {
    let by_magic = OTHERS.iter().find(|(magic, ..)| head.starts_with(magic));
    let ending = path.and_then(|path| path.extension()?.to_str());
    let by_name = || ENDINGS.iter().find(|(name, ..)| Some(*name) == ending);
    let (what, command) = match by_magic {
        Some((_, what, command)) => (what, command),
        // The extension does not count if the content is JSON.
        None if head.first().is_some_and(|byte| matches!(byte, b'{' | b'[')) => return None,
        None => by_name().map(|(_, what, command)| (what, command))?,
    };
    let file = path.map_or("FILE".to_string(), |path| path.display().to_string());
    Some(if command.is_empty() {
        format!(
            "it is {what}; `load` reads NDJSON, other JSON and CSV, plain or compressed with gzip or zstd"
        )
    } else {
        format!(
            "it is {what}; `load` reads only gzip and zstd. Use `{command} {file} | esker load ... -`"
        )
    })
}

/// Decompresses a stream.
pub(crate) fn expand<R: BufRead + 'static>(
    compression: Compression,
    reader: R,
) -> io::Result<Box<dyn Read>> {
    Ok(match compression {
        Compression::Plain => Box::new(reader),
        Compression::Gzip => Box::new(Members {
            member: Some(Member::Gzip(Box::new(GzDecoder::new(reader)))),
        }),
        Compression::Zstd => Box::new(Members {
            member: Some(Member::zstd(BufReader::with_capacity(128 << 10, reader))?),
        }),
    })
}

/// One member of a gzip stream, or one frame of a zstd stream.
enum Member<R: BufRead> {
    Gzip(Box<GzDecoder<R>>),
    Zstd(Decoder<'static, BufReader<R>>),
}

impl<R: BufRead> Member<R> {
    fn zstd(reader: BufReader<R>) -> io::Result<Self> {
        let mut decoder = Decoder::with_buffer(reader)?.single_frame();
        decoder.window_log_max(WINDOW_LOG_MAX)?;
        Ok(Self::Zstd(decoder))
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Gzip(_) => "gzip",
            Self::Zstd(_) => "zstd",
        }
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Gzip(decoder) => decoder.read(buffer),
            Self::Zstd(decoder) => decoder.read(buffer),
        }
    }

    /// The member behind this one, which has ended. Zeros between members are padding.
    fn next(self) -> io::Result<Option<Self>> {
        match self {
            Self::Gzip(decoder) => {
                let mut reader = decoder.into_inner();
                Ok(if begins(&mut reader, "gzip", &[0x1F])? {
                    Some(Self::Gzip(Box::new(GzDecoder::new(reader))))
                } else {
                    None
                })
            }
            Self::Zstd(decoder) => {
                let mut reader = decoder.finish();
                let first: Vec<u8> = [0x28].into_iter().chain(0x50..=0x5F).collect();
                Ok(if begins(&mut reader, "zstd", &first)? {
                    Some(Self::zstd(reader)?)
                } else {
                    None
                })
            }
        }
    }
}

/// True if another member begins behind the last one, false at the end of the stream.
fn begins(reader: &mut impl BufRead, name: &str, first: &[u8]) -> io::Result<bool> {
    loop {
        let bytes = match reader.fill_buf() {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let length = bytes.len();
        if length == 0 {
            return Ok(false);
        }
        match bytes.iter().position(|byte| *byte != 0) {
            None => reader.consume(length),
            Some(at) if bytes.get(at).is_some_and(|byte| first.contains(byte)) => {
                reader.consume(at);
                return Ok(true);
            }
            Some(_) => {
                let what = format!("other data follows the end of its {name} data");
                return Err(io::Error::new(io::ErrorKind::InvalidData, what));
            }
        }
    }
}

/// Reads the members of a stream, one after the other.
struct Members<R: BufRead> {
    member: Option<Member<R>>,
}

impl<R: BufRead> Read for Members<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let Some(member) = &mut self.member else {
                return Ok(0);
            };
            match member.read(buffer) {
                Ok(0) if !buffer.is_empty() => {
                    self.member = self.member.take().map_or(Ok(None), Member::next)?;
                }
                Ok(read) => return Ok(read),
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    let name = member.name();
                    let what = format!("the {name} data is cut off: {error}");
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, what));
                }
                Err(error) => return Err(error),
            }
        }
    }
}

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
/// any. A text may begin with some of these magic numbers ([`has_other`]).
const OTHERS: [(&[u8], &str, &str); 13] = [
    (BZIP2, "compressed with bzip2", "bzip2 -dc"),
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

/// The magic number of bzip2. Behind it are the level, and the magic number of the first block or
/// of the end.
const BZIP2: &[u8] = b"BZh";
const BZIP2_LEVELS: std::ops::RangeInclusive<u8> = b'1'..=b'9';
const BZIP2_BLOCKS: [&[u8]; 2] = [b"1AY&SY", b"\x17\x72\x45\x38\x50\x90"];

/// True if these first bytes are of the format with this magic number; `None` if more bytes are
/// needed. Letters alone do not make a file binary.
fn has_other(magic: &[u8], head: &[u8]) -> Option<bool> {
    let Some(behind) = head.strip_prefix(magic) else {
        return (!magic.starts_with(head)).then_some(false);
    };
    if magic == BZIP2 {
        let (level, block) = behind.split_first()?;
        let may_be = |magic: &&[u8]| magic.starts_with(block) || block.starts_with(magic);
        if !BZIP2_LEVELS.contains(level) || !BZIP2_BLOCKS.iter().any(may_be) {
            return Some(false);
        }
        return BZIP2_BLOCKS
            .iter()
            .any(|magic| block.starts_with(magic))
            .then_some(true);
    }
    if !is_text(magic) || !is_text(behind) {
        return Some(true);
    }
    (head.len() >= HEAD).then_some(false)
}

/// True for bytes that a text may have.
fn is_text(bytes: &[u8]) -> bool {
    let is_control = |byte: &u8| byte.is_ascii_control() && !matches!(byte, b'\t' | b'\r' | b'\n');
    let is_utf8 = match std::str::from_utf8(bytes) {
        Ok(_) => true,
        // The last character may be cut off.
        Err(error) => error.error_len().is_none(),
    };
    is_utf8 && !bytes.iter().any(is_control)
}

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
    let mut others = OTHERS.iter().map(|(magic, ..)| has_other(magic, head));
    if others.any(|has| has.is_none()) {
        None
    } else {
        known
    }
}

/// The error text for a file in an unsupported format; `None` if the file may hold records.
pub(crate) fn other(head: &[u8], path: Option<&Path>) -> Option<String> {
    let mut others = OTHERS.iter();
    let by_magic = others.find(|(magic, ..)| has_other(magic, head) == Some(true));
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Three letters at the beginning of a text made it a file of another format.
    #[test]
    fn a_text_that_begins_like_a_magic_number_is_a_text() {
        let texts: [&[u8]; 10] = [
            b"ORCID,name\n",
            b"ORC\n1\n",
            b"ORC\xC3\x89,name\n1,2\n",
            b"BZh,name,value,other\n",
            b"BZh9,name,value,other\n",
            b"PAR1,name,value\n",
            b"PAR1",
            b"ARROW1;ARROW2;ARROW3\n",
            b"ARROW1\r\nx\r\n",
            b"OR",
        ];
        for text in texts {
            for length in 1..=text.len().min(HEAD) {
                let head = &text[..length];
                let is_plain = by_magic(head).is_none_or(|by| by == Compression::Plain);
                assert!(is_plain, "{head:?}");
            }
            let head = &text[..text.len().min(HEAD)];
            assert_eq!(other(head, None), None, "{head:?}");
        }
        let files: [(&[u8], &str); 8] = [
            (b"BZh91AY&SY\x01\x02\x03\x04\x05\x06", "bzip2"),
            (b"BZh1\x17\x72\x45\x38\x50\x90\0\0\0\0", "bzip2"),
            (
                b"PAR1\x15\x04\x15\x80\x02\x15\x64\x4C\x15\x10\x15\0",
                "Parquet",
            ),
            (b"ORC\x1B\0\0\n\x0B\x08\x01\x10\0\x18\0", "ORC"),
            (b"ORC\n\x1A\n\x04\x08\x02\x10\x02", "ORC"),
            (b"ARROW1\0\0\xFF\xFF\xFF\xFF\x10\0\0\0", "Arrow"),
            (b"PK\x03\x04\x14\0\0\0\x08\0", "zip"),
            (b"SQLite format 3\0", "SQLite"),
        ];
        for (head, name) in files {
            assert_eq!(
                by_magic(head).unwrap_or(Compression::Plain),
                Compression::Plain
            );
            let what = other(head, None);
            assert!(what.is_some_and(|what| what.contains(name)), "{head:?}");
        }
    }
}

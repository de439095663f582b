//! Decodes files field by field, from FORMAT.md alone.

use std::fmt::Write;

/// Bytes per line.
const WIDTH: usize = 12;

/// A file, the position in it, and the text so far.
pub(crate) struct Dump<'a> {
    bytes: &'a [u8],
    at: usize,
    /// The offset to print for the first byte.
    base: usize,
    out: String,
}

/// A block: offset, stored length, raw length, content.
type Block = (usize, usize, usize, What);

#[derive(Clone, Copy, PartialEq)]
enum What {
    Data,
    Index,
    Filter,
    Synopsis,
    Sample,
    Digest,
    Top,
    Properties,
}

impl What {
    fn name(self) -> &'static str {
        match self {
            What::Data => "data block",
            What::Index => "index",
            What::Filter => "key filter",
            What::Synopsis => "synopsis",
            What::Sample => "sample",
            What::Digest => "digest",
            What::Top => "top-level index",
            What::Properties => "properties",
        }
    }
}

fn text(bytes: &[u8]) -> String {
    format!("\"{}\"", bytes.escape_ascii())
}

impl<'a> Dump<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Dump<'a> {
        Dump {
            bytes,
            at: 0,
            base: 0,
            out: String::new(),
        }
    }

    pub(crate) fn finish(self) -> String {
        assert_eq!(self.at, self.bytes.len(), "bytes are left\n{}", self.out);
        self.out
    }

    fn title(&mut self, title: &str) {
        writeln!(self.out, "-- {title}").unwrap();
    }

    /// Prints the bytes from `start` to the position.
    fn say(&mut self, start: usize, what: &str) {
        let rows = self.bytes[start..self.at].chunks(WIDTH);
        for (i, row) in rows.enumerate() {
            let hex: Vec<String> = row.iter().map(|byte| format!("{byte:02x}")).collect();
            let what = if i == 0 { what } else { "" };
            let line = format!(
                "{:04x}  {:36} {what}",
                self.base + start + i * WIDTH,
                hex.join(" ")
            );
            writeln!(self.out, "{}", line.trim_end()).unwrap();
        }
    }

    fn take(&mut self, n: usize, what: &str) -> &'a [u8] {
        let start = self.at;
        self.at += n;
        self.say(start, what);
        &self.bytes[start..self.at]
    }

    fn shown(&mut self, n: usize, what: &str) -> &'a [u8] {
        let shown = text(&self.bytes[self.at..self.at + n]);
        self.take(n, &format!("{what} {shown}"))
    }

    fn u8(&mut self, what: &str) -> u8 {
        let v = self.bytes[self.at];
        self.take(1, &format!("{what} {v}"));
        v
    }

    fn u32(&mut self, what: &str) -> usize {
        let v = u32::from_le_bytes(self.bytes[self.at..][..4].try_into().unwrap());
        self.take(4, &format!("{what} {v}"));
        v as usize
    }

    fn u64(&mut self, what: &str) -> u64 {
        let v = u64::from_le_bytes(self.bytes[self.at..][..8].try_into().unwrap());
        let shown = if v == u64::MAX {
            "none".to_string()
        } else {
            v.to_string()
        };
        self.take(8, &format!("{what} {shown}"));
        v
    }

    fn peek_varint(&self) -> (u64, usize) {
        let (mut v, mut n) = (0, 0);
        loop {
            let byte = self.bytes[self.at + n];
            v |= u64::from(byte & 0x7f) << (7 * n);
            n += 1;
            if byte < 0x80 {
                return (v, n);
            }
        }
    }

    fn varint(&mut self, what: &str) -> u64 {
        let (v, n) = self.peek_varint();
        self.take(n, &format!("{what} {v}"));
        v
    }

    /// Bytes with their length in front.
    fn counted(&mut self, what: &str) -> &'a [u8] {
        let start = self.at;
        let (len, n) = self.peek_varint();
        self.at += n + len as usize;
        let bytes = &self.bytes[start + n..self.at];
        self.say(start, &format!("{what} {}", text(bytes)));
        bytes
    }

    fn zone(&mut self) {
        match self.u8("zone map:") {
            0 => {}
            1 => {
                self.counted("  least");
                self.counted("  greatest");
            }
            _ => {
                self.counted("  least, unbounded above");
            }
        }
    }

    pub(crate) fn current(&mut self) {
        self.shown(8, "magic");
        self.u32("format version");
        self.u8("state (1: sealed)");
        self.u64("manifest");
        self.u64("its length");
        for _ in 0..self.varint("logs:") {
            self.varint("  number");
            self.varint("  length");
        }
        self.take(8, "checksum");
    }

    /// A framed file; `payload` prints its payloads.
    pub(crate) fn log(&mut self, payload: fn(&mut Dump<'a>)) {
        self.shown(8, "magic");
        self.u32("format version");
        self.u32("reserved");
        self.u64("number");
        self.u64("previous number");
        self.u64("previous length");
        self.take(8, "checksum");
        while self.at < self.bytes.len() {
            self.title("record");
            let len = self.u32("payload length");
            self.take(4, "checksum");
            let end = self.at + 1 + len;
            if self.u8("type") == 2 {
                self.take(8, "sync marker");
                self.u64("durable up to");
            } else {
                // A payload ends at its stated length.
                let whole = self.bytes;
                self.bytes = &whole[..end];
                payload(self);
                self.bytes = whole;
            }
            assert_eq!(self.at, end);
        }
    }

    pub(crate) fn edit(&mut self) {
        while self.at < self.bytes.len() {
            match self.u8("edit") {
                1 => {
                    self.varint("  created tree");
                    self.counted("  name");
                    self.counted("  configuration");
                }
                2 => {
                    self.varint("  dropped tree");
                }
                3 => {
                    self.varint("  configured tree");
                    self.counted("  configuration");
                }
                20 => {
                    self.varint("  renamed tree");
                    self.counted("  name");
                }
                4 => {
                    self.varint("  table added to tree");
                    self.varint("  level");
                    self.varint("  run");
                    self.varint("  component from");
                    self.varint("  component to");
                    self.meta();
                }
                5 => {
                    self.varint("  tree");
                    self.varint("  table removed");
                }
                6 => {
                    self.varint("  tree");
                    self.varint("  level");
                    self.counted("  next merge begins behind");
                }
                7 => {
                    self.varint("  first log segment");
                }
                8 => {
                    self.varint("  next file");
                    self.varint("  next tree");
                }
                9 => {
                    self.varint("  last sequence number that no log is needed for");
                }
                11 => {
                    self.varint("  the log was synced up to write");
                }
                12 => {
                    self.varint("  forgotten numbers: tree");
                    self.varint("  how many");
                }
                13 => {
                    self.counted("  kept snapshot");
                    self.varint("  sees writes up to");
                    self.varint("  and what expires after");
                    self.counted("  edit that makes it");
                }
                14 => {
                    self.u64("  the store's history");
                    self.varint("  numbers below this one may have been given out");
                    let lost = self.varint("  spans of lost numbers");
                    for _ in 0..2 * lost {
                        self.varint("    behind, and up to");
                    }
                    let kept = self.varint("  kept log segments");
                    for _ in 0..kept {
                        for what in ["number", "after write", "last write", "length", "ended"] {
                            self.varint(&format!("    {what}"));
                        }
                    }
                    let consumers = self.varint("  consumers of the log");
                    for _ in 0..consumers {
                        self.counted("    name");
                        self.varint("    position");
                        self.varint("    most bytes");
                    }
                }
                15 => {
                    self.varint("  shared file");
                    self.varint("  offset in it");
                    self.varint("  bytes of it");
                }
                16 => {
                    self.varint("  partitioner");
                    self.counted("  bounds");
                }
                17 => {
                    self.varint("  entries that expire");
                    self.varint("  the first at");
                    self.varint("  the last at");
                }
                18 => {
                    self.counted("  snapshot kept no more");
                }
                19 => {
                    self.varint("  dropped what expired up to");
                }
                tag => panic!("edit {tag}"),
            }
        }
    }

    fn meta(&mut self) {
        for what in [
            "table",
            "size",
            "entries",
            "deletes",
            "operands",
            "least seq",
            "greatest seq",
        ] {
            self.varint(&format!("  {what}"));
        }
        self.counted("  least key");
        self.counted("  greatest key");
        for _ in 0..self.varint("  attributes:") {
            self.varint("  attribute");
            self.zone();
        }
    }

    pub(crate) fn batch(&mut self) {
        self.u64("first sequence number");
        for _ in 0..self.u32("operations") {
            let tag = self.u8("operation");
            self.varint("  tree");
            self.counted("  key");
            if tag & 3 != 0 {
                self.counted("  value");
            }
        }
    }

    pub(crate) fn table(&mut self) {
        let (blocks, has_digest) = (self.blocks(), self.has_digest());
        self.shown(8, "magic");
        self.u32("format version");
        self.u32("reserved");
        self.u64("table");
        self.take(8, "checksum");
        for (offset, stored, raw, what) in blocks {
            assert_eq!(self.at, offset, "a gap between blocks");
            let payload = &self.bytes[offset..offset + stored];
            let packed = self.bytes[offset + stored] == 1;
            let expanded = if packed {
                self.title(what.name());
                self.take(stored, &format!("LZ4 of {raw} bytes, which are:"));
                expand(payload)
            } else {
                self.at += stored;
                payload.to_vec()
            };
            assert_eq!(expanded.len(), raw);
            let mut block = Dump::new(&expanded);
            if !packed {
                block.title(what.name());
                block.base = offset;
            }
            match what {
                What::Data => block.data(),
                What::Index => block.index(),
                What::Filter => block.filter(),
                What::Synopsis => block.synopsis(),
                What::Sample => block.sample(),
                What::Top => drop(block.top()),
                What::Digest => block.digest(),
                What::Properties => drop(block.properties(has_digest)),
            }
            self.out += &block.finish();
            self.u8("block type");
            self.take(4, "block checksum");
        }
        self.title("footer");
        for what in ["top-level index", "properties"] {
            self.u64(&format!("{what}: offset"));
            self.u32("  stored");
            self.u32("  raw");
        }
        self.u64("table");
        self.u32("format version");
        self.u32("reserved");
        self.take(8, "checksum");
        self.shown(8, "magic");
    }

    /// Finds all blocks, starting from the footer; sorted by offset.
    fn blocks(&self) -> Vec<Block> {
        let handle = |bytes: &[u8]| {
            let offset = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
            (offset, word(bytes, 8), word(bytes, 12))
        };
        let payload = |offset: usize, stored: usize| {
            let payload = &self.bytes[offset..offset + stored];
            if self.bytes[offset + stored] == 1 {
                expand(payload)
            } else {
                payload.to_vec()
            }
        };
        let footer = &self.bytes[self.bytes.len() - 64..];
        let (top, properties) = (handle(footer), handle(&footer[16..]));
        let mut blocks = vec![
            (top.0, top.1, top.2, What::Top),
            (properties.0, properties.1, properties.2, What::Properties),
        ];
        for (offset, stored, raw, what) in Dump::new(&payload(top.0, top.1)).top() {
            if stored == 0 {
                continue;
            }
            blocks.push((offset, stored, raw, what));
            if what == What::Index {
                let index = payload(offset, stored);
                let n = word(&index, index.len() - 4);
                for record in index[index.len() - 8 - n * 32..].chunks_exact(32).take(n) {
                    let (offset, stored, raw) = handle(&record[16..]);
                    blocks.push((offset, stored, raw, What::Data));
                }
            }
        }
        let properties = payload(properties.0, properties.1);
        blocks.extend(Dump::new(&properties).properties(self.has_digest()));
        blocks.sort_by_key(|block| block.0);
        blocks
    }

    /// Returns the blocks that describe partitions.
    fn top(&mut self) -> Vec<Block> {
        let mut found = Vec::new();
        let partitions = self.varint("partitions:");
        let slots = self.varint("attribute slots");
        for _ in 0..partitions {
            self.counted("  separator");
            self.varint("  its seq");
            for what in [What::Index, What::Filter, What::Synopsis] {
                let offset = self.varint(&format!("  {}: offset", what.name())) as usize;
                let stored = self.varint("    stored") as usize;
                found.push((offset, stored, self.varint("    raw") as usize, what));
            }
            self.varint("  least seq");
            self.varint("  greatest seq");
            self.varint("  entries");
            for _ in 0..slots {
                self.zone();
            }
        }
        found
    }

    /// True if the table has a digest: by its format.
    fn has_digest(&self) -> bool {
        word(self.bytes, 8) > 1
    }

    /// Returns the digest and the samples.
    fn properties(&mut self, has_digest: bool) -> Vec<Block> {
        self.meta();
        self.varint("data blocks");
        self.varint("bytes of keys");
        self.varint("bytes of values");
        let mut found = Vec::new();
        if has_digest {
            self.varint("digest: inherited");
            let offset = self.varint("  offset") as usize;
            let stored = self.varint("  stored") as usize;
            found.push((offset, stored, self.varint("  raw") as usize, What::Digest));
        }
        while self.at < self.bytes.len() {
            self.varint("sample of attribute slot");
            let offset = self.varint("  offset") as usize;
            let stored = self.varint("  stored") as usize;
            found.push((offset, stored, self.varint("  raw") as usize, What::Sample));
        }
        found
    }

    fn digest(&mut self) {
        self.u8("fields were left out");
        self.field("the record");
        assert_eq!(self.at, self.bytes.len());
    }

    fn field(&mut self, what: &str) {
        let types = self.u8(&format!("{what}: types"));
        if types & 64 != 0 && self.u8("  it has elements") == 1 {
            self.field("elements");
        }
        if types & 32 != 0 {
            for _ in 0..self.varint("  fields:") {
                self.counted("  name");
                self.field("  field");
            }
        }
    }

    fn sample(&mut self) {
        self.varint("entries in the sample");
        while self.at < self.bytes.len() {
            for _ in 0..self.varint("an entry's values:") {
                self.counted("  value");
            }
        }
    }

    fn filter(&mut self) {
        while self.bytes.len() - self.at > 1 {
            self.take(64, "line");
        }
        self.u8("probes");
    }

    fn data(&mut self) {
        let end = self.bytes.len();
        let (entries, restarts) = (word(self.bytes, end - 8), word(self.bytes, end - 4));
        let keys_end = end - 16 - restarts * 8;
        // The values come first; their lengths are stored with the keys.
        let mut keys = Dump {
            bytes: self.bytes,
            at: entries,
            base: self.base,
            out: String::new(),
        };
        let mut lengths = Vec::new();
        while keys.at < keys_end {
            keys.varint("key: shared");
            let rest = keys.varint("  further");
            lengths.push(keys.varint("  value length"));
            keys.varint("  stamp");
            keys.shown(rest as usize, " ");
        }
        for len in lengths {
            self.shown(len as usize, "value");
        }
        assert_eq!(self.at, entries);
        self.at = keys.at;
        self.out += &keys.out;
        for _ in 0..restarts {
            self.u32("restart: entry at");
            self.u32("  its value at");
        }
        self.u64("base seq");
        self.u32("entries at");
        self.u32("restarts");
    }

    fn index(&mut self) {
        let end = self.bytes.len();
        let (prefix, n) = (word(self.bytes, end - 8), word(self.bytes, end - 4));
        let heads = end - 8 - n * 40;
        self.shown(prefix, "prefix of separators");
        self.shown(heads - prefix, "their rests");
        for _ in 0..n {
            self.take(8, "head");
        }
        for _ in 0..n {
            self.u32("block: rest ends at");
            self.u32("  entries");
            self.u64("  separator's seq");
            self.u64("  offset");
            self.u32("  stored");
            self.u32("  raw");
        }
        self.u32("prefix length");
        self.u32("blocks");
    }

    fn synopsis(&mut self) {
        let end = self.bytes.len();
        let (blocks, slots) = (word(self.bytes, end - 8), word(self.bytes, end - 4));
        for _ in 0..blocks {
            self.u64("block: least seq");
            self.u64("  greatest seq");
        }
        for _ in 0..slots * blocks {
            self.zone();
            self.counted("  value filter");
        }
        for _ in 0..slots {
            self.u32("slot ends at");
        }
        self.u32("blocks");
        self.u32("slots");
    }
}

fn word(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize
}

/// Expands an LZ4 block: literals and copies in turn.
fn expand(packed: &[u8]) -> Vec<u8> {
    let mut input = packed.iter().copied();
    let mut out: Vec<u8> = Vec::new();
    while let Some(token) = input.next() {
        let length = |input: &mut dyn Iterator<Item = u8>, nibble: u8| {
            let mut n = usize::from(nibble);
            while n >= 15 {
                let more = input.next().unwrap();
                n += usize::from(more);
                if more < 255 {
                    break;
                }
            }
            n
        };
        let literals = length(&mut input, token >> 4);
        out.extend(input.by_ref().take(literals));
        let Some(low) = input.next() else {
            break;
        };
        let back = usize::from(u16::from_le_bytes([low, input.next().unwrap()]));
        for _ in 0..length(&mut input, token & 15) + 4 {
            out.push(out[out.len() - back]);
        }
    }
    out
}

//! Recovery: replays the unflushed writes from the log.
//!
//! The header of each segment names the position that it continues from: the previous segment and
//! its length. So replay keeps a prefix of the writes. Where a segment is torn or missing the log
//! breaks off, and resumes with a segment that continues from exactly there: an earlier opening has
//! seen the same break. Other segments are skipped; if one proves that it was synced, which
//! includes everything before it, then the break is damage.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::pending::{LogPlace, PendingBatches, apply_batch};
use crate::coding::Own;
use crate::entry::Seq;
use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::generation::Generation;
use crate::sort;
use crate::version::{
    ClosedSegment, Current, MAX_FILE, Recovered, TableSource, TreeProvider, is_written, log_path,
    own_number, recover,
};
use crate::wal::{LogFormat, Record, Replayed, Tail, replay};

/// The result of replaying the log.
#[derive(Default)]
pub(super) struct Recovery {
    /// Oldest first.
    pub(super) generations: Vec<Arc<Generation>>,
    /// The last write read.
    pub(super) last_seq: Seq,
    /// In a read-only group: the batches that may not be acknowledged, the last acknowledged write,
    /// and the last one known to be durable.
    pub(super) waiting: Option<PendingBatches>,
    pub(super) applied: Seq,
    pub(super) durable: Seq,
    /// The ends of the valid log: (segment, length). Several when segments without records follow
    /// the last record; the newest is the last.
    pub(super) ends: Vec<(u64, u64)>,
    pub(super) highest: u64,
    /// The manifest and the log's segments, where they may not be durable.
    pub(super) unsynced: Vec<PathBuf>,
    /// Segments that are not part of the log: they hold no write that was acknowledged as durable.
    pub(super) discarded: Vec<PathBuf>,
    /// The segments of the log, and the retained ones before them, oldest first.
    pub(super) closed: Vec<ClosedSegment>,
    pub(super) now: u64,
}

/// Recovers the state beside the writer: everything acknowledged, and everything up to `shown`,
/// which was visible before.
pub(super) fn recover_beside(
    source: &TableSource,
    provider: &dyn TreeProvider,
    shown: Seq,
) -> Result<(Recovered, Recovery)> {
    let tree_options = |name: &str, config: &[u8]| provider.tree_options(name, config);
    let mut recovered = recover(source, &tree_options, true)?;
    let current = recovered.current.clone();
    recovered.apply_pending_where(source, &tree_options, || writer_is_gone(source, &current))?;
    let mut recovery = Recovery {
        last_seq: recovered.last_seq,
        applied: recovered.last_seq,
        waiting: Some(PendingBatches::default()),
        durable: recovered.synced.max(recovered.last_seq).max(shown),
        ..Recovery::default()
    };
    recovery.replay_all(source, &recovered)?;
    Ok((recovered, recovery))
}

/// True when the writer of that manifest is gone, so that no write waits for a sync: what was read
/// before this call is what an opening would find.
///
/// A writer that goes on in another manifest gives up the lock of this one, and one may have begun
/// since `current` was read. Both have replaced `CURRENT` before, so it is read again.
pub(super) fn writer_is_gone(source: &TableSource, current: &Current) -> bool {
    let has_ended = current.seal.is_some() || !is_written(source, current.manifest).unwrap_or(true);
    let now = has_ended.then(|| Current::read(&*source.fs, &source.dir));
    now.is_some_and(|now| now.is_ok_and(|now| now.manifest == current.manifest))
}

/// Where and why the log breaks off.
struct Break {
    segment: u64,
    offset: u64,
    why: String,
}

impl Break {
    fn in_segment(segment: u64, tail: &Tail) -> Option<Break> {
        match tail {
            Tail::Clean => None,
            Tail::Torn { offset, why } => Some(Break {
                segment,
                offset: *offset,
                why: why.clone(),
            }),
        }
    }
}

/// What a segment holds, whether it is part of the log or not.
struct Segment {
    replayed: Replayed,
    generation: Arc<Generation>,
    /// The last write read, and the last applied one, after the segment.
    last_seq: Seq,
    applied: Seq,
}

impl Recovery {
    /// The end of the valid log: segment and offset. `None` where no segment belongs to it.
    pub(super) fn end(&self) -> Option<(u64, u64)> {
        self.ends.last().copied()
    }

    /// Replays the segments that the manifest needs, in order.
    pub(super) fn replay_all(&mut self, source: &TableSource, recovered: &Recovered) -> Result<()> {
        let names = source
            .fs
            .list(&source.dir)
            .map_err(|e| Error::io(&source.dir, "list", e))?;
        let mut numbers: Vec<u64> = names
            .iter()
            .filter_map(|name| segment_number(name))
            .collect();
        numbers.sort_unstable();
        self.highest = highest_number(&names);
        if recovered.external_log {
            return Ok(());
        }
        // Without gaps: a missing segment invalidates those before it.
        let kept = recovered.order.kept.iter().rev();
        let there =
            kept.take_while(|kept| kept.number < recovered.log && numbers.contains(&kept.number));
        self.closed = there.copied().collect();
        self.closed.reverse();
        numbers.retain(|number| *number >= recovered.log);
        let sealed: Option<BTreeMap<u64, u64>> = recovered
            .current
            .seal
            .as_ref()
            .map(|seal| seal.logs.iter().copied().collect());
        let expected = match &sealed {
            Some(sealed) => sealed.keys().copied().collect(),
            None => vec![recovered.log],
        };
        if let Some(missing) = expected.iter().find(|number| !numbers.contains(number)) {
            return Err(missing_segment(source, *missing));
        }
        let mut broken = None;
        for number in numbers {
            let sealed_len = sealed
                .as_ref()
                .and_then(|sealed| sealed.get(&number).copied());
            self.replay_one(source, recovered, number, sealed_len, &mut broken)?;
        }
        if self.last_seq < recovered.synced {
            return Err(self.cut_short(source, recovered, broken));
        }
        Ok(())
    }

    /// Replays one segment. It is accepted if it continues from the end of the valid log: then the
    /// process that started it has seen the same log, and `broken` is resolved. Otherwise the log
    /// breaks off here.
    fn replay_one(
        &mut self,
        source: &TableSource,
        recovered: &Recovered,
        number: u64,
        sealed: Option<u64>,
        broken: &mut Option<Break>,
    ) -> Result<()> {
        let path = log_path(&source.dir, number);
        let segment = self.read_segment(source, recovered, number, sealed)?;
        let replayed = &segment.replayed;
        let Some(header) = &replayed.header else {
            self.discarded.push(path);
            if broken.is_none() {
                *broken = Break::in_segment(number, &replayed.tail);
            }
            return Ok(());
        };
        let goes_on = match header.previous {
            Some(place) => {
                self.ends.contains(&place) || (self.ends.is_empty() && place.0 < recovered.log)
            }
            None => self.ends.is_empty(),
        };
        if !goes_on {
            let why = broken.get_or_insert_with(|| self.missing(number, header.previous));
            // A sync includes everything written before.
            if replayed.synced > 0 || sealed.is_some() {
                let path = log_path(&source.dir, why.segment);
                return Err(Error::corruption(&path, why.offset, why.why.clone()));
            }
            self.discarded.push(path);
            if let Some(waiting) = &mut self.waiting {
                waiting.forget(number);
            }
            return Ok(());
        }
        *broken = Break::in_segment(number, &replayed.tail);
        self.accept(number, segment);
        if sealed.is_none() {
            self.unsynced.push(path);
        }
        Ok(())
    }

    /// Reads a segment's writes into a generation of their own.
    fn read_segment(
        &mut self,
        source: &TableSource,
        recovered: &Recovered,
        number: u64,
        sealed: Option<u64>,
    ) -> Result<Segment> {
        let path = log_path(&source.dir, number);
        let generation = Generation::new(self.last_seq);
        let (mut last_seq, mut applied) = (self.last_seq, self.applied);
        let durable = self.durable;
        let mut apply = |generation: &Arc<Generation>, payload: &[u8], at: LogPlace| {
            let last = apply_batch(source, recovered, generation, payload, at)?;
            applied = last.max(applied);
            Ok(last)
        };
        let waiting = &mut self.waiting;
        let mut visit = |offset, record: Record<'_>| {
            let at = LogPlace {
                segment: number,
                offset,
            };
            let last = match waiting {
                Some(waiting) => {
                    waiting.take(source, at, record, durable, &generation, &mut apply)?
                }
                None => match record {
                    Record::Data { payload, .. } => Some(apply(&generation, payload, at)?),
                    _ => None,
                },
            };
            last_seq = last.map_or(last_seq, |last| last_seq.max(last));
            Ok(())
        };
        let fs = &*source.fs;
        let replayed = replay(fs, &path, LogFormat::WAL, number, sealed, &mut visit)?;
        Ok(Segment {
            replayed,
            generation,
            last_seq,
            applied,
        })
    }

    /// Takes a segment that continues the log.
    fn accept(&mut self, number: u64, segment: Segment) {
        let Segment {
            replayed,
            generation,
            last_seq,
            applied,
        } = segment;
        if last_seq > self.last_seq {
            self.ends.clear();
        }
        self.ends.push((number, replayed.end));
        // A segment without writes is not retained.
        if last_seq > self.last_seq {
            self.closed.push(ClosedSegment {
                number,
                after: self.last_seq,
                last: last_seq,
                len: replayed.end,
                ended: self.now,
            });
        }
        (self.last_seq, self.applied) = (last_seq, applied);
        let waiting = self.waiting.as_ref();
        if !generation.is_empty() || waiting.is_some_and(|waiting| waiting.has(&generation)) {
            generation.set_log(number);
            self.generations.push(generation);
        }
    }

    /// The manifest refers to synced writes beyond the end of the log, so the log is damaged there,
    /// though it looks torn.
    fn cut_short(
        &self,
        source: &TableSource,
        recovered: &Recovered,
        broken: Option<Break>,
    ) -> Error {
        let (segment, offset) = self.ends.last().copied().unwrap_or((recovered.log, 0));
        let (segment, offset, why) = match broken {
            Some(broken) => (broken.segment, broken.offset, broken.why),
            None => (segment, offset, "the log ends".to_string()),
        };
        let (last, synced) = (self.last_seq, recovered.synced);
        let what = format!("{why}, after write {last}; it was synced up to write {synced}");
        Error::corruption(&log_path(&source.dir, segment), offset, what)
    }

    /// The damage when segment `number` says that the log before it ended at `previous`.
    fn missing(&self, number: u64, previous: Option<(u64, u64)>) -> Break {
        let (segment, len) = previous.unwrap_or((number, 0));
        match self.ends.iter().find(|(seen, _)| *seen == segment) {
            Some((_, end)) => Break {
                segment,
                offset: *end,
                why: format!("the segment had {len} bytes, of which {end} are left"),
            },
            None => Break {
                segment,
                offset: 0,
                why: "the segment is missing".to_string(),
            },
        }
    }
}

fn missing_segment(source: &TableSource, number: u64) -> Error {
    Error::corruption(&log_path(&source.dir, number), 0, "the segment is missing")
}

/// The highest number of a file, foreign ones included, so that no existing file is overwritten.
/// Numbers that would leave few for the files to come are not counted.
pub(super) fn highest_number(names: &[PathBuf]) -> u64 {
    let numbers = names.iter().filter_map(|name| {
        let name = name.to_str()?;
        let kinds = [("", ".tbl"), ("", ".log"), ("MANIFEST-", "")];
        let mut numbers = kinds
            .iter()
            .map(|(prefix, suffix)| own_number(name, prefix, suffix));
        numbers.find_map(|number| number)
    });
    numbers.filter(|n| *n < MAX_FILE / 2).max().unwrap_or(0)
}

pub(super) fn segment_number(name: &Path) -> Option<u64> {
    own_number(name.to_str()?, "", ".log")
}

/// True when the name is one that the engine creates, is not in `keep`, and may be removed. The
/// contents must be checked as well ([`is_own`]).
pub(super) fn is_leftover(
    name: &str,
    keep_tables: &dyn Fn(u64) -> bool,
    needs_log: &dyn Fn(u64) -> bool,
    manifest: u64,
) -> bool {
    if let Some(number) = own_number(name, "", ".tbl") {
        return !keep_tables(number);
    }
    if let Some(number) = own_number(name, "", ".log") {
        return !needs_log(number);
    }
    if let Some(number) = own_number(name, "MANIFEST-", "") {
        return number != manifest;
    }
    name == "CURRENT.new" || sort::is_leftover(name)
}

/// False for a table, log or manifest that the engine cannot have written, whatever its name: a
/// foreign file. The engine's files begin with one of three magic words, which may be missing or
/// zeros after a power cut.
pub(super) fn is_own(fs: &dyn Fs, path: &Path) -> bool {
    let numbered = path.file_name().and_then(|name| name.to_str());
    let numbered = numbered.is_some_and(|name| {
        name.starts_with("MANIFEST-") || name.ends_with(".tbl") || name.ends_with(".log")
    });
    if !numbered {
        return true;
    }
    let begin = || {
        let file = fs.open(path)?;
        let mut begin = [0; 8];
        let len = file.len()?.min(8) as usize;
        file.read_at(0, begin.own_mut(..len))?;
        Ok::<_, std::io::Error>((begin, len))
    };
    let Ok((begin, len)) = begin() else {
        return false;
    };
    let begin = begin.own(..len);
    let words: [&[u8; 8]; 3] = [b"ESKERLOG", b"ESKERMAN", b"ESKERTBL"];
    begin.iter().all(|byte| *byte == 0) || words.iter().any(|word| word.starts_with(begin))
}

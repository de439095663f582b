//! Recovery: the writes that were not flushed, from the log.
//!
//! Each segment names the place that it goes on from, the one before it and that one's length, so that
//! replay keeps a prefix of what was written. Where a segment is torn or missing the log breaks off,
//! and takes up again with a segment that goes on from just there: an earlier opening has seen the
//! same break. Other segments are not taken; should one tell that it was synced, which includes
//! everything before it, then the break is damage.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::reader::Waiting;
use crate::batch::{TreeId, decode};
use crate::entry::Seq;
use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::generation::Generation;
use crate::sort;
use crate::version::{ClosedSegment, MAX_FILE, Recovered, TableSource, log_path, own_number};
use crate::wal::{LogKind, Record, Tail, replay};

/// What the log segments gave.
#[derive(Default)]
pub(super) struct Recovery {
    /// Oldest first.
    pub(super) generations: Vec<Arc<Generation>>,
    /// The last write that was read.
    pub(super) last_seq: Seq,
    /// Of a reader beside the writer: what may not be acknowledged, the last write that is, and up to where all is known to be.
    pub(super) waiting: Option<Waiting>,
    pub(super) applied: Seq,
    pub(super) durable: Seq,
    /// Where the good part of the log ends: (segment, length). Several places when segments without
    /// records follow the last record; the newest is the last.
    pub(super) ends: Vec<(u64, u64)>,
    pub(super) highest: u64,
    /// The manifest and the segments that are part of the log, where they may not be durable.
    pub(super) unsynced: Vec<PathBuf>,
    /// Segments that are no part of the log: they hold nothing that was acknowledged as durable.
    pub(super) forsaken: Vec<PathBuf>,
    /// Those that are, and those before them that are kept, oldest first.
    pub(super) closed: Vec<ClosedSegment>,
    pub(super) now: u64,
}

/// Where and why the log broke off.
struct Break {
    segment: u64,
    offset: u64,
    why: String,
}

impl Recovery {
    /// Where the good part of the log ends: the segment, and the place in it. `None` where no segment is a part of it.
    pub(super) fn end(&self) -> Option<(u64, u64)> {
        self.ends.last().copied()
    }

    /// Replays the segments that the manifest needs, from the first on.
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
        // Also numbers of files that are no part of the store: nothing that is there is written over.
        let taken = names.iter().filter_map(|name| {
            let name = name.to_str()?;
            own_number(name, "", ".tbl").or_else(|| own_number(name, "", ".log"))
        });
        self.highest = taken.filter(|n| *n < MAX_FILE / 2).max().unwrap_or(0);
        // Without gaps: one that is missing takes those before it along.
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

    /// Replays one segment, which is taken if it goes on where the log is good up to: then whoever
    /// started it has seen the same log, and `broken` has ended. Otherwise the log breaks off here.
    fn replay_one(
        &mut self,
        source: &TableSource,
        recovered: &Recovered,
        number: u64,
        sealed: Option<u64>,
        broken: &mut Option<Break>,
    ) -> Result<()> {
        let path = log_path(&source.dir, number);
        let generation = Generation::new(self.last_seq);
        let mut last_seq = self.last_seq;
        let (durable, applied) = (self.durable, &mut self.applied);
        let mut apply = |generation: &Arc<Generation>, payload: &[u8], at: (u64, u64)| {
            let last = apply_batch(source, recovered, generation, payload, at)?;
            *applied = last.max(*applied);
            Ok(last)
        };
        let waiting = &mut self.waiting;
        let replayed = replay(
            &*source.fs,
            &path,
            LogKind::Wal,
            number,
            sealed,
            &mut |offset, record| {
                let at = (number, offset);
                let last = match waiting {
                    Some(waiting) => {
                        waiting.take(source, at, record, durable, &generation, &mut apply)?
                    }
                    None => match record {
                        Record::Data { payload, .. } => Some(apply(&generation, payload, at)?),
                        _ => None,
                    },
                };
                last_seq = last_seq.max(last.unwrap_or(0));
                Ok(())
            },
        )?;
        let previous = match &replayed.header {
            Some(header) => header.previous,
            None => {
                self.forsaken.push(path);
                if broken.is_none()
                    && let Tail::Torn { offset, why } = replayed.tail
                {
                    *broken = Some(Break {
                        segment: number,
                        offset,
                        why,
                    });
                }
                return Ok(());
            }
        };
        let goes_on = match previous {
            Some(place) => {
                self.ends.contains(&place) || (self.ends.is_empty() && place.0 < recovered.log)
            }
            None => self.ends.is_empty(),
        };
        if !goes_on {
            let why = broken.get_or_insert_with(|| self.missing(number, previous));
            // A sync includes all that was written before.
            if replayed.synced > 0 || sealed.is_some() {
                let path = log_path(&source.dir, why.segment);
                return Err(Error::corruption(&path, why.offset, why.why.clone()));
            }
            self.forsaken.push(path);
            if let Some(waiting) = &mut self.waiting {
                waiting.forget(number);
            }
            return Ok(());
        }
        *broken = match replayed.tail {
            Tail::Clean => None,
            Tail::Torn { offset, why } => Some(Break {
                segment: number,
                offset,
                why,
            }),
        };
        if last_seq > self.last_seq {
            self.ends.clear();
        }
        self.ends.push((number, replayed.end));
        // One without writes is not kept.
        if last_seq > self.last_seq {
            self.closed.push(ClosedSegment {
                number,
                after: self.last_seq,
                last: last_seq,
                len: replayed.end,
                ended: self.now,
            });
        }
        self.last_seq = last_seq;
        if sealed.is_none() {
            self.unsynced.push(path);
        }
        let waiting = self.waiting.as_ref();
        if !generation.is_empty() || waiting.is_some_and(|waiting| waiting.has(&generation)) {
            generation.set_log(number);
            self.generations.push(generation);
        }
        Ok(())
    }

    /// What the manifest refers to was synced, so the log is damaged where it ends, though it looks torn there.
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

    /// What is missing when segment `number` says that the log before it ended at `previous`.
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

/// Applies a batch of the log, which begins at a place (segment, offset) there. Returns its last sequence number.
pub(super) fn apply_batch(
    source: &TableSource,
    recovered: &Recovered,
    generation: &Generation,
    payload: &[u8],
    (segment, offset): (u64, u64),
) -> Result<Seq> {
    let damage = |what: String| {
        let path = log_path(&source.dir, segment);
        Err(Error::corruption(&path, offset, what))
    };
    let mut unknown: Option<TreeId> = None;
    let last = decode(payload, |operation| {
        let inserted = generation.insert(&recovered.version, &operation);
        if !inserted && operation.tree >= recovered.next_tree {
            unknown = Some(operation.tree);
        }
    });
    match (last, unknown) {
        (None, _) => damage("malformed batch".to_string()),
        (_, Some(tree)) => damage(format!("tree {tree} is unknown")),
        (Some(last), None) => {
            generation.applied(payload.len(), last);
            Ok(last)
        }
    }
}

fn missing_segment(source: &TableSource, number: u64) -> Error {
    Error::corruption(&log_path(&source.dir, number), 0, "the segment is missing")
}

pub(super) fn segment_number(name: &Path) -> Option<u64> {
    own_number(name.to_str()?, "", ".log")
}

/// True when the file is one that the engine makes, is not `keep`, and may be removed: by its name. What it holds
/// must be looked at as well ([`is_own`]).
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

/// False for a table, log or manifest that the engine cannot have written, whatever its name is: somebody else's file.
/// All of ours begin with one of three words; of one that a power cut took apart they may be missing, or zeros.
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
        if let Some(begin) = begin.get_mut(..len) {
            file.read_at(0, begin)?;
        }
        Ok::<_, std::io::Error>((begin, len))
    };
    let Ok((begin, len)) = begin() else {
        return false;
    };
    let begin = begin.get(..len).unwrap_or_default();
    let words: [&[u8; 8]; 3] = [b"ESKERLOG", b"ESKERMAN", b"ESKERTBL"];
    begin.iter().all(|byte| *byte == 0) || words.iter().any(|word| word.starts_with(begin))
}

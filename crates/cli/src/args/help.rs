//! Longer help texts, shown below the options of a command.

pub(super) const EXAMPLES: &str = "\
Examples:
  esker demo
  esker load db events events.ndjson.zst --key id --index user --index time:embedded
  esker lookup db events user ann --limit 10
  esker range db events time 1547194388 1547280788 | jq .text
  esker find db events 'user = ann and time >= 1547194388' --explain
  esker count db events
  esker stat db
  esker index switch db events user:composite

Options of every command:
  --memory SIZE    memory that the store may use: bytes, or with a unit, as in 64M or 64MiB [default: 128M]
  --progress FORM  progress on standard error: a line on terminals (auto, the default), none, or JSON objects, one a line, in
                   place of all other messages (json)

Exit codes: 0 found or done, 1 not found, 2 usage or bad input, 3 damaged or unavailable store.";

/// Which kind of index to take: what a user chooses from.
macro_rules! kinds {
    () => {
        "\
KIND is one of
  lazy         the newest few of a value quickly (the default)
  recent       the newest few of a value, and all of them
  composite    all records of a value or range
  embedded     fields that grow with time; costs a write nothing
  fingerprint  as embedded, with quicker lookups of values
  filter       ranges of time in data that is kept for long; costs nothing
  spatial      points: see `esker within --help`; LON_PATH,LAT_PATH:spatial[:LAYOUT], LAYOUT z (default), mbr or embedded
  space-time   points with a time: POINT_PATH@TIME_PATH:space-time[:LAYOUT]
All give the same answers; `esker advise` says which fits. TYPE is int, float, string, bool or time; time takes the unit of its
numbers from the first ones, time_s, time_ms, time_us and time_ns say it. PATH? keeps records with a value of another type, which
are rejected otherwise. TOKENIZER is exact (default), prefix (the index holds the prefixes of strings, for ^=) or number (int,
float and time)."
    };
}

pub(super) const BASELINES: &str = "\
Esker implements published systems, and has what their papers compare with, for experiments. Answers are the same with
each; nobody needs one. They are taken where the others are, and are not listed there:
  KIND eager               of an index: a posting list for each value, which each write reads and writes back
  STRATEGY deleted-key     of maintenance: each index keeps a tree of the keys that were written
  --repair WHEN            of load and create: when obsolete entries are noted for good: as compactions go (merge, the default),
                           by a pass over all versions, which compactions keep until then (staged), or by `esker repair` (none)
  --merging POLICY         of load and create: the compaction policy of the trees: lazy-leveled (the default), leveled, tiered,
                           or correlated, which compacts all trees of a dataset together
  --compaction WHEN        of repair, with --method primary: compact the records, too, before or after the repair
  --no-bloom               of repair by index: sort all keys, also those that no key filter knows
  --lookups HOW            of repair: find the entries of known keys by batches of lookups (points) or by reading all
                           (merge-scan) [default: auto]
  --validation HOW         of queries: validate candidates by their records (direct) or by the primary-key index (timestamp)
                           [default: auto]";

macro_rules! load {
    () => {
        concat!(
            "\
FILE may be '-' (standard input), plain, .gz or .zst. It holds JSON objects, one a line or otherwise; an array of them; a
GeoJSON FeatureCollection; an object whose only member is an array of objects; or CSV. Loading into a dataset that exists
replaces records with the same key; its definition need not be repeated. Bad lines go to FILE.rejected, and the exit code is
2 then (--allow-rejects: 0). A load that was killed resumes where it was when
the same command is given again; standard input cannot be read again, so that such a load starts over.
",
            kinds!(),
            "
A type that is not given is the one that most of the first records have, and belongs to the dataset from then on.

Examples:
  esker load db events events.ndjson.zst --key id --index user --index time:embedded
  zcat more.gz | esker load db events -
  esker load db places places.csv --key code:string --index population:composite:int
  esker load db trail cloudtrail.json.gz --key eventID
  esker load db logs export.json --records result.items --key cluster,id
  esker load db notes notes.ndjson --key auto
  esker load db events events.ndjson --key id --index user:composite --maintenance auto
  esker load db events events.ndjson --progress json 2> progress.ndjson"
        )
    };
}
pub(super) const LOAD: &str = load!();

macro_rules! create {
    () => {
        concat!(
            kinds!(),
            "\n
Examples:
  esker create db events --key id:int --index user:recent:string --index time:embedded:time
  esker create db jobs --key id:string --index state:composite:string --maintenance auto --ttl 30d"
        )
    };
}
pub(super) const CREATE: &str = create!();

macro_rules! index {
    () => {
        concat!(
            "\
Every record is read once, and nothing is changed until the new index is complete. A command that was killed resumes
where it was when it is given again, or with `esker index resume`.
",
            kinds!(),
            "\n
Examples:
  esker index add db events files:lazy
  esker index switch db events user:composite
  esker index drop db events user
  esker index resume db"
        )
    };
}
pub(super) const INDEX_ADD: &str = concat!(
    kinds!(),
    "\n
Examples:
  esker index add db events files
  esker index add db events user.name:composite:string"
);

pub(super) const INDEX_SWITCH: &str = concat!(
    kinds!(),
    "\n
Example:
  esker index switch db events user:composite"
);

pub(super) const INDEX: &str = index!();

macro_rules! maintain {
    () => {
        "\
An update leaves the index entries of the old record behind. Answers are never affected; the strategy decides when such
entries are found to be obsolete. STRATEGY is one of
  auto            chosen by what is measured, among those below
  deferred        at the query, which reads the record and remembers what it found (the default)
  validation      at the query, by an index of keys
  mutable-bitmap  at the write, by an index of keys
  eager           at the write, which reads the old record
A command that was killed resumes when it is given again; answers are exact in between.

Examples:
  esker maintain db events auto
  esker maintain db events mutable-bitmap"
    };
}
pub(super) const MAINTAIN: &str = maintain!();

pub(super) const REPAIR: &str = "\
Methods: key reads what was written since the last repair, and what it replaced, from the primary-key index; index sorts
the entries of each index and validates them; primary goes through all versions of all records. A repair that was killed
loses only its own work. Answers are exact before, during and after.

Examples:
  esker repair db events
  esker repair db events --method index --threads 2 --rate 50M
  esker repair db events --rebuild-index user.name";

pub(super) const READ_KEY: &str = "\
A dataset that was made with --versions N keeps the latest N of each key.

Examples:
  esker read-key db prices 7
  esker read-key db prices 7 --versions 3 --at 1200";

pub(super) const READ_VALUE: &str = "\
A version is printed when it is among the latest M (--versions) of its key, as of --at, and each field has a value that
its TOKEN matches: the value itself, or with an index of prefixes a prefix of it. When there is more, the last line on
standard error has the token for --after.

Examples:
  esker read-value db jobs state=ready
  esker read-value db jobs state=ready team=red --versions 2 --at 1200 --limit 20";

pub(super) const PUT: &str = "\
A record replaces the one with the same key. With --merge each line is a merge patch (RFC 7396) of the record with its key:
what it does not name stays, a field that is null is taken away, objects are merged, any other value takes the place of
what is there; a record that is not there is made. Bad lines are reported and left out (exit code 2).

Examples:
  echo '{\"id\":7,\"user\":\"ann\"}' | esker put db events
  echo '{\"id\":7,\"seen\":true,\"draft\":null}' | esker put db events --merge";

pub(super) const DELETE: &str = "\
Each key that has no record is named on standard error; the others are deleted all the same. '-' reads further keys from
standard input, one a line (a key that is a '-' itself goes there, too).
Exit codes: 0 every key had a record, 1 at least one had none, 2 a key is not of the dataset's type (nothing is deleted;
of standard input: that line is skipped).

With --where every record that meets the condition is deleted, in batches of a thousand, and the exit code is 0, however
many there were. A command that was stopped or killed has deleted whole batches: the same command again deletes the rest.
`esker count db events --where EXPR` says beforehand how many there are.

Examples:
  esker delete db events 200001
  esker delete db events 200001 200002 200003
  esker delete db events --where 'user = ann and time < 2026-01-01'
  zcat keys.gz | esker delete db events -";

pub(super) const ADVISE: &str = "\
The advice is for the mix of operations that was counted by processes which wrote to the store; those that only read leave
no counts behind. With --mix it is for that mix, and each field is taken to have that share of lookups and ranges. `pruned`
is the share of blocks that an index without a tree skips, and K the limit of the queries.

Examples:
  esker advise db events
  esker advise db events --mix puts=80,gets=15,lookups=5 --k 10";

pub(super) const STAT: &str = "\
Records are counted, which reads the store's keys. --verbose adds trees, levels, memory, jobs and counters.
A tree is a sorted structure on disk: one of the records, one of each index. A memtable has its newest writes in memory, a
run is the sorted tables of a level. The obsolete set has the numbers of writes that were replaced and whose index entries
are still there. A posting list has the records of a value. Zone maps are the least and the greatest value of a block or table.

Examples:
  esker stat db
  esker stat db events --verbose
  esker stat db events --json | jq .records";

pub(super) const SNAPSHOT: &str = "\
What a snapshot sees stays as it is whatever is written, compacted, changed or dropped afterwards, until the snapshot is
dropped; it takes the space of what was replaced since. It is a part of backups. Commands that read take --snapshot NAME.

Examples:
  esker snapshot db before-import
  esker count db events --snapshot before-import
  esker snapshot db
  esker snapshot db before-import --drop";

pub(super) const FIND: &str = "\
EXPR is made of tests, joined by and, or, not and ( ). A test is one of
  PATH = V   PATH != V   PATH < V   PATH <= V   PATH > V   PATH >= V
  PATH ^= PREFIX     text that begins with PREFIX
  PATH contains V    the array has the element V; the text has the part V
  PATH in (V, V...)  equals one of these
  PATH exists, PATH is null (or = null), PATH is not null
  within(PATH, AREA)   the point lies there; AREA is rect(W,S,E,N), circle(LON,LAT,METRES) or polygon([[LON,LAT],...])
Blanks around an operator mean nothing. V ends at a blank or ), and takes the type of what it is
compared with; a value with blanks is quoted. Where a field is absent, `is null` holds and no other
test does (`not ms = 1` holds there, `ms != 1` does not). A time is RFC 3339, or a number in the field's unit; now, now-1h and
now+1d12h stand behind <, <=, > and >=. Quote EXPR for the shell; several are
joined by and.

Where --limit cut the answer off, the last line on standard error has the token for --after, which prints the next page.
Records that are written meanwhile come before the first page; with --snapshot nothing changes between pages.

Examples:
  esker find db events user=ann 'time>=1547194388' --limit 10
  esker find db events 'path^=src/' --oldest
  esker find db events 'user in (ann, bob) and not tags contains new'
  esker find db events 'title = \"two words\" or (ms > 10 and title is null)'
  esker find db events user=ann --format csv --columns id,user,address.city";

pub(super) const COMPLETIONS: &str = "\
The script asks `esker` for what fits: commands, options, and the names of datasets, fields, snapshots and consumers of the
store that is named before.

Examples:
  esker completions bash > ~/.local/share/bash-completion/completions/esker
  esker completions zsh > ~/.zfunc/_esker
  esker completions fish > ~/.config/fish/completions/esker.fish";

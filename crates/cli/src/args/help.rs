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
  --memory SIZE      memory that the store may use: bytes, or with a unit, as in 64M or 64MiB [default: 128M]
  --progress FORM    progress on standard error: a line on terminals (auto, the default), none, or JSON objects, one per
                     line, instead of all other messages (json)
  --token-file FILE  the token for a server, which stands as http://HOST:PORT where a DIR stands (or ESKER_TOKEN has it)

Exit codes: 0 found or done, 1 not found, 2 usage or bad input, 3 damaged or unavailable store.";

/// The kinds of index that users choose from.
macro_rules! kinds {
    () => {
        "\
KIND is one of
  lazy         for the newest few records of a value (the default)
  recent       for the newest few records of a value, and for all of them
  composite    for all records of a value or range
  embedded     for fields that grow with time; writes cost nothing
  fingerprint  like embedded, with faster lookups of values
  filter       for ranges of time in long-lived data; writes cost nothing
  spatial      points: see `esker within --help`; LON_PATH,LAT_PATH:spatial[:LAYOUT], LAYOUT z (default), mbr or embedded
  space-time   points with a time: POINT_PATH@TIME_PATH:space-time[:LAYOUT]
Every kind returns the same answers; `esker advise` says which one fits. TYPE is int, float, string, bool or time. For time,
the unit of numbers is inferred from the first ones; time_s, time_ms, time_us and time_ns set it. PATH? keeps records with a
value of another type, which are rejected otherwise. TOKENIZER is exact (default), prefix (the index contains the prefixes
of strings, for ^=) or number (for int, float and time). A last part `unique`, as in email:composite:unique, rejects a second
record with the same value. PATH,PATH[:KIND][:unique] is a compound index of several fields, lazy, recent or composite: for
conditions on the first fields together, as in user = ann and at > now-1h; their types are inferred, or set by PATH:none:TYPE."
    };
}

pub(super) const BASELINES: &str = "\
Esker implements published systems, and for experiments also the baselines that their papers compare with. Answers are the
same with each. You do not need them. The commands accept these values and options, but do not list them:
  KIND eager               index: a list of the records of each value, which each write reads and writes back
  STRATEGY deleted-key     maintain: each index keeps a tree of the keys that were written
  --repair WHEN            load, create: when obsolete index entries are recorded: during compactions (merge, the default),
                           by a pass over all versions, which compactions keep until then (staged), or by `esker repair` (none)
  --merging POLICY         load, create: the compaction policy of the trees: lazy-leveled (the default), leveled, tiered,
                           or correlated, which compacts all trees of a dataset together
  --compaction WHEN        repair, with --method primary: also compact the records, before or after the repair
  --no-bloom               repair by index: sort all keys, also those that are in no key filter
  --lookups HOW            repair: find the entries of known keys by batches of lookups (points) or by reading all
                           (merge-scan) [default: auto]
  --validation HOW         queries: check index entries by reading their records (direct) or the primary-key index (timestamp)
                           [default: auto]";

macro_rules! load {
    () => {
        concat!(
            "\
FILE may be '-' (standard input), plain, .gz or .zst. It holds JSON objects, one per line or otherwise; an array of them; a
GeoJSON FeatureCollection; one object whose only member is an array of objects (a record itself with --key auto); or CSV. A
load into an existing dataset replaces records with the same key, and needs no --key or --index. Bad lines go to FILE.rejected, and the exit code is 2 then
(0 with --allow-rejects). To resume a killed load, give the same command again. Standard input cannot be read again, so a
load from it starts over.
",
            kinds!(),
            "
If a type is not given, it is the type that most of the first records have; it is fixed for the dataset from then on.

Examples:
  esker load db events events.ndjson.zst --key id --index user --index time:embedded
  zcat more.gz | esker load db events -
  esker load db places places.csv --key code:string --index population:composite:int
  esker load db events events.ndjson --key id --index user,time:composite
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
Adding or switching an index reads every record once, and takes effect when the new index is complete. To resume a killed
command, give it again, or use `esker index resume`.
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
An update leaves the index entries of the old record behind. Answers are always right; the strategy decides when the store
detects that such entries are obsolete. STRATEGY is one of
  auto            the store measures and chooses one of those below
  deferred        at the query, which reads the record and remembers the result (the default)
  validation      at the query, with an index of keys
  mutable-bitmap  at the write, with an index of keys
  eager           at the write, which reads the old record
To resume a killed command, give it again; answers are right in between.

Examples:
  esker maintain db events auto
  esker maintain db events mutable-bitmap"
    };
}
pub(super) const MAINTAIN: &str = maintain!();

pub(super) const REPAIR: &str = "\
An index entry is obsolete if its record was replaced or deleted since. Methods: `key` reads the writes since the last repair,
and those that they replaced, from the primary-key index (a tree of keys only); `index` sorts the entries of each index and
checks them; `primary` reads all versions of all records. A killed repair loses only its own work. Answers are right before,
during and after a repair. On a cluster a repair scans the records, first the parts that were repaired longest ago: after a
stop it continues there. With `index` it also compares all entries with their records.

Examples:
  esker repair db events
  esker repair cassandra://db1/shop orders
  esker repair db events --method index --threads 2 --rate 50M
  esker repair db events --rebuild-index user.name";

pub(super) const READ_KEY: &str = "\
A dataset created with --versions N keeps the latest N versions of each record.

Examples:
  esker read-key db prices 7
  esker read-key db prices 7 --versions 3 --at 1200";

pub(super) const READ_VALUE: &str = "\
Prints a version if it is among the latest M (--versions) of its key, as of --at, and each field has a value that its TOKEN
matches: the TOKEN is the value, or, if the field has an index of prefixes, a prefix of it. If there are more versions, the
last line on standard error has the token for --after.

Examples:
  esker read-value db jobs state=ready
  esker read-value db jobs state=ready team=red --versions 2 --at 1200 --limit 20";

pub(super) const PUT: &str = "\
A record replaces the one with the same key. With --merge, each line is a merge patch (RFC 7396) for the record with its key:
fields that it does not name stay, null removes a field, objects are merged, and any other value replaces the old one. A
record that does not exist is created. Bad lines, and those with a value that must be unique and that another record has, are
reported and left out (exit code 2). If the store fails, the command says how far it came.

Examples:
  echo '{\"id\":7,\"user\":\"ann\"}' | esker put db events
  echo '{\"id\":7,\"seen\":true,\"draft\":null}' | esker put db events --merge";

pub(super) const DELETE: &str = "\
Keys without a record are reported on standard error; the others are deleted all the same. '-' reads more keys from standard
input, one per line (give the key '-' itself there, too).
Exit codes: 0 every key had a record, 1 at least one had none, 2 a key is not of the dataset's type (then nothing is deleted;
a bad line of standard input is only skipped).

With --where, every record that meets the condition is deleted, in batches of a thousand. The exit code is 0, even if no
record meets it. A stopped or killed command has deleted whole batches; give the same command again to delete the rest.
`esker count db events --where EXPR` shows beforehand how many records meet it.

Examples:
  esker delete db events 200001
  esker delete db events 200001 200002 200003
  esker delete db events --where 'user = ann and time < 2026-01-01'
  zcat keys.gz | esker delete db events -";

pub(super) const ADVISE: &str = "\
The advice is for the operations counted by processes that wrote to the store; processes that only read leave no counts.
With --mix, it is for that mix, with these shares of lookups and ranges for each field. In the table, `pruned` is the share
of blocks that an index without a tree skips, and K is the limit of the queries.

Examples:
  esker advise db events
  esker advise db events --mix puts=80,gets=15,lookups=5 --k 10";

pub(super) const STAT: &str = "\
Counting the records reads the store's keys. --verbose adds trees, levels, memory, jobs and counters.
A tree is a sorted structure on disk: one holds the records, and most indexes have their own. A memtable holds a tree's newest
writes in memory; a run is the sorted tables of a level. The obsolete set holds the numbers of replaced writes that still have
index entries. A posting list holds the records of a value. A zone map holds the least and the greatest value of a block or
table.

Examples:
  esker stat db
  esker stat db events --verbose
  esker stat db events --json | jq .records";

pub(super) const SNAPSHOT: &str = "\
A snapshot shows the store as it is now until you drop the snapshot, whatever is written, compacted, changed or dropped
meanwhile. It takes the space of the data replaced since. Backups contain it. Commands that read accept --snapshot NAME.

Examples:
  esker snapshot db before-import
  esker count db events --snapshot before-import
  esker snapshot db
  esker snapshot db before-import --drop";

pub(super) const FIND: &str = "\
EXPR combines tests with and, or, not and ( ). A test is one of
  PATH = V   PATH != V   PATH < V   PATH <= V   PATH > V   PATH >= V
  PATH ^= PREFIX     text that begins with PREFIX
  PATH contains V    the array contains the element V; the text contains V
  PATH in (V, V...)  equals one of these
  PATH exists, PATH is null (or = null), PATH is not null
  within(PATH, AREA)   the point lies there; AREA is rect(W,S,E,N), circle(LON,LAT,METRES) or polygon([[LON,LAT],...])
Blanks around an operator are ignored. V ends at a blank or ), and takes the type of the value it is compared with; quote
a value with blanks. If a field is absent, `is null` holds and no other test does (so `not ms = 1` holds, and `ms != 1` does
not). A time is RFC 3339, or a number in the field's unit; after <, <=, > and >= it can also be relative: now, now-1h,
now+1d12h. Quote EXPR for the shell. If you give several EXPR, all must hold.

--order FIELD[:asc|desc],... sorts by values: numbers by value, text by code points; if a field has several types,
booleans come before numbers, times and text. An array counts by its least value (asc) or its greatest (desc). Records
without the field, with null or an object there, come last. Equal records are in the order of their keys.

--latest-per PATH first takes the newest record of each value of a field, and then those of them that meet the conditions, in
the order of their keys.

If --limit cut the answer off, the last line on standard error has the token for --after, which prints the next page.
Newest first, records written meanwhile belong before the first page; with --snapshot nothing changes between pages.

Examples:
  esker find db events user=ann 'time>=1547194388' --limit 10
  esker find db events 'path^=src/' --oldest
  esker find db events 'user = ann' --order files:desc,time --select id,files --limit 10 --offset 20
  esker find db events 'user in (ann, bob) and not tags contains new'
  esker find db events 'title = \"two words\" or (ms > 10 and title is null)'
  esker find db events user=ann --format csv --select id,user,address.city";

pub(super) const COMPLETIONS: &str = "\
The script completes commands, options, and the names of datasets, fields, snapshots and consumers of the store on the
command line. It calls `esker` for this.

Examples:
  esker completions bash > ~/.local/share/bash-completion/completions/esker
  esker completions zsh > ~/.zfunc/_esker
  esker completions fish > ~/.config/fish/completions/esker.fish";

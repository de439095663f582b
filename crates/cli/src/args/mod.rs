//! The syntax of the command line: commands, arguments, and parsers of their values.

mod aggregate;
mod changes;
mod command;
mod copy;
mod datasets;
mod expiry;
mod help;
mod manage;
mod pubsub;
mod query;
#[cfg(feature = "server")]
mod serve;
mod space;
mod update;
mod values;
#[cfg(feature = "volume")]
mod volume;
mod write;

pub(crate) use self::pubsub::{
    DemoCommand, DemoPubsubArgs, PublishArgs, ReplayArchitecture, ReplayArgs, ReplayGranularity,
    SubscribeArgs,
};
pub(crate) use self::update::UpdateArgs;
pub(crate) use aggregate::AggregateArgs;
pub(crate) use changes::{ChangesArgs, FeedArgs, FenceArgs};
pub(crate) use command::{Cli, Command};
pub(crate) use copy::CopyArgs;
pub(crate) use datasets::{DropArgs, FieldsArgs, ListArgs, RenameArgs};
pub(crate) use expiry::{ExpireArgs, TtlArgs};
pub(crate) use manage::{
    AdviseArgs, BackupArgs, CheckArgs, CompactArgs, CompletionsArgs, DirArgs, IndexArgs,
    IndexChangeArgs, IndexCommand, IndexDropArgs, IndexResumeArgs, MaintainArgs, ManArgs,
    RepairArgs, RepairBy, RepairCompaction, RepairLookups, SnapshotArgs, StatArgs,
};
pub(crate) use query::{
    AnswerArgs, CountArgs, ExplainForm, FindArgs, GetArgs, LatestArgs, LookupArgs, QueryArgs,
    RangeArgs, ReadKeyArgs, ReadValueArgs, RowForm, RowsArgs, ScanArgs, VersionArgs,
};
#[cfg(feature = "server")]
pub(crate) use serve::{DemoServeArgs, ServeArgs, TokenArgs, TokenRole};
pub(crate) use space::{AreaArgs, AreaOrder, NearArgs, ViewArgs, WithinArgs};
pub(crate) use values::{Strategy, Ttl, size};
#[cfg(test)]
pub(crate) use values::{durability, duration};
#[cfg(feature = "volume")]
pub(crate) use volume::{
    AskArgs, CloneArgs, CreateVolumeArgs, DeleteVolumeArgs, DemoVolumeArgs, GrowArgs, MapArgs,
    MemberArgs, MemberCommand, NodeArgs, RenameVolumeArgs, SnapshotVolumeArgs, StatusArgs, TlsArgs,
    VolumeArgs, VolumeCommand, groups, wait,
};
pub(crate) use write::{
    CreateArgs, DefinitionArgs, DeleteArgs, DemoArgs, Format, LoadArgs, PutArgs,
};

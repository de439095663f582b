//! Definitions of datasets in numbers.

use std::time::Duration;

use esker::schema::{Maintenance, Repair, Tokenizer};
use esker::{DatasetDef, IndexKind, KeyType, Type};
use serde::{Deserialize, Serialize};

use crate::action::{DECLARED, MERGINGS, PATHS, REPAIRS, TOKENIZERS, TTLS, pick};
use crate::common::path;
use crate::compound;
use crate::space::{LAYOUTS, POINT, TIME, TIMED};
use crate::unique::is_unique;

/// One more than the largest `point` of a definition.
pub(crate) const MOST_POINT: u8 = 15;

/// A dataset's definition in numbers; incompatible settings are adjusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Def {
    /// Integers, strings, or an integer and a string.
    pub(crate) keys: u8,
    /// 0: not declared; else one more than an index of [`IndexKind::ALL`].
    pub(crate) kinds: [u8; DECLARED],
    pub(crate) types: [u8; DECLARED],
    pub(crate) tokenizers: [u8; DECLARED],
    /// An index of [`Maintenance::ALL`]; the next number means `auto`.
    pub(crate) maintenance: u8,
    pub(crate) repair: u8,
    pub(crate) merging: u8,
    pub(crate) versions: u8,
    /// 1: records name their expiry time; 2: records expire long after their write; 3: both. The
    /// higher bits have the time.
    pub(crate) expiry: u8,
    /// The dataset keeps old records for its feed.
    pub(crate) old_records: bool,
    /// 0: points are not declared; else the argument of [`Def::place`].
    pub(crate) point: u8,
    /// Indexes accept records with values of another type.
    pub(crate) lenient: bool,
    /// One more than the number of the path whose values are unique; 0: none are.
    #[serde(default)]
    pub(crate) unique: u8,
    /// 0: no compound index; else its number, see [`crate::compound`].
    #[serde(default)]
    pub(crate) compound: u8,
}

/// The tokenizer of this number, or the plain one if the index does not support it.
pub(crate) fn tokenizer(number: u8, kind: IndexKind, ty: Type) -> Tokenizer {
    let wanted = pick(&TOKENIZERS, number);
    let fits = match wanted {
        Tokenizer::Exact => true,
        Tokenizer::Prefix => ty == Type::String,
        Tokenizer::Number => matches!(ty, Type::Int | Type::Float | Type::Time),
    };
    if fits && kind.is_standalone() {
        wanted
    } else {
        Tokenizer::Exact
    }
}

/// The field of the keys of a type.
pub(crate) fn key_path(ty: KeyType) -> &'static str {
    match ty {
        KeyType::Fields => "id,k",
        _ => "id",
    }
}

impl Def {
    pub(crate) fn key_type(&self) -> KeyType {
        pick(&[KeyType::Int, KeyType::String, KeyType::Fields], self.keys)
    }

    /// The type of each path. Undeclared paths are compared as numbers or as strings.
    pub(crate) fn types(&self) -> [Type; PATHS.len()] {
        let mut types = [Type::Int, Type::Int, Type::Int, Type::Int, Type::String];
        let declared = types.iter_mut().zip(self.kinds.iter().zip(&self.types));
        for (ty, (kind, number)) in declared {
            *ty = match kind {
                0 => pick(&[Type::Int, Type::String], *number),
                _ => pick(&Type::SCALAR, *number),
            };
        }
        types
    }

    /// Declares points: with their own index (up to 4), with times (up to 8), both, or stored by
    /// location.
    fn place(&self, def: DatasetDef) -> DatasetDef {
        let number = self.point.wrapping_sub(1);
        let layout = pick(&LAYOUTS, number);
        let points = || esker::Index::new(IndexKind::Spatial(layout)).of_type(Type::Point);
        let timed = || esker::Index::new(IndexKind::SpaceTime(layout)).of_type(Type::PointTime);
        let with_times =
            |def: DatasetDef| def.index(path(TIME), esker::Index::none().of_type(Type::Int));
        match self.point % MOST_POINT {
            0 => def,
            1..=4 => def.index(path(POINT), points()),
            5..=8 => with_times(def).index(path(TIMED), timed()),
            9 => with_times(def)
                .index(path(POINT), points())
                .index(path(TIMED), timed()),
            10 | 11 => def.cluster(path(POINT)),
            12 => with_times(def).cluster(path(TIMED)),
            13 => with_times(def)
                .cluster(path(POINT))
                .index(path(TIMED), timed()),
            _ => with_times(def)
                .index(path(POINT), points())
                .cluster(path(TIMED)),
        }
    }

    /// The number of the path whose values are unique.
    pub(crate) fn unique(&self) -> Option<usize> {
        usize::from(self.unique).checked_sub(1)
    }

    pub(crate) fn build(&self) -> DatasetDef {
        let types = self.types();
        let mut def = DatasetDef::new(path(key_path(self.key_type())), self.key_type());
        for at in 0..DECLARED {
            if self.kinds[at] == 0 {
                continue;
            }
            let kind = pick(&IndexKind::ALL, self.kinds[at] - 1);
            let tokenizer = tokenizer(self.tokenizers[at], kind, types[at]);
            def = def.index(
                path(PATHS[at]),
                esker::Index::new(kind)
                    .of_type(types[at])
                    .tokenizer(tokenizer)
                    .lenient_if(self.lenient)
                    .unique_if(is_unique(self.unique(), at, kind, tokenizer)),
            );
        }
        let strategies = Maintenance::ALL.len() as u8;
        def = match self.maintenance % (strategies + 1) {
            auto if auto == strategies => def.auto(),
            number => def.maintenance(pick(&Maintenance::ALL, number)),
        };
        def = self.place(def);
        def = compound::declare(def, self.compound, &types, self.lenient);
        if self.old_records {
            def = def.keep_old_records();
        }
        if self.expiry & 1 != 0 {
            def = def.expires_at(path("until"));
        }
        if self.expiry & 2 != 0 {
            let ttl = Duration::from_millis(pick(&TTLS, self.expiry >> 2));
            def = def.ttl(ttl);
        }
        let deferred = def.maintenance == Maintenance::Deferred;
        let repair = match pick(&REPAIRS, self.repair) {
            Repair::Staged if !deferred => Repair::Merge,
            repair => repair,
        };
        let is_clustered = def.indexes.iter().any(|index| index.kind.is_clustered());
        let versions = if deferred && !is_clustered {
            u32::from(self.versions % 3) + 1
        } else {
            1
        };
        def.repair(repair)
            .merging(pick(&MERGINGS, self.merging))
            .versions(versions)
    }
}

//! Actions on definitions: create and drop datasets, change indexes and strategies, repair. Each
//! runs other actions inside, and may be stopped and resumed.

use std::rc::Rc;

use esker::maintain::{Compaction, Lookups};
use esker::maintain::{RepairMethod, RepairOptions};
use esker::schema::{IndexDef, Maintenance, Repair};
use esker::{Dataset, DatasetDef, ErrorKind, IndexKind, Type};

use crate::action::{Action, Change, Def, Inside, Method, PATHS, pick};
use crate::ask;
use crate::common::path;
use crate::compound::{self, COMPOUND_NUMBER};
use crate::define::tokenizer;
use crate::model::Types;
use crate::obsolete::Known;
use crate::runner::count;
use crate::space::{LAYOUTS, POINT, POINT_NUMBER, TIME, TIMED, TIMED_NUMBER};
use crate::unique::{is_refusal, is_unique};
use crate::world::{Set, Within, World};

/// The errors of a call that conflicts with another operation in progress.
const BUSY: [ErrorKind; 1] = [ErrorKind::Busy];
const REFUSED: [ErrorKind; 3] = [ErrorKind::Busy, ErrorKind::BadInput, ErrorKind::Exists];

impl World {
    pub(crate) fn create(&mut self, at: usize, name: &str, def: &Def) {
        let Some(db) = self.stores[at].db.clone() else {
            return;
        };
        let there = self.stores[at].sets.iter().any(|set| set.name == name);
        let built = def.build();
        self.tell(|_| format!("  {name}: {built:?}"));
        let result = db.create_dataset::<esker::Key>(name, built.clone());
        drop(db);
        let set = Set {
            uid: self.new_uid(),
            name: name.to_string(),
            key_type: def.key_type(),
            types: Types {
                of: def.types(),
                lenient: def.lenient,
                unique: def.unique(),
                compound: def.compound,
            },
            known: Known::of(&built),
            def: built,
            unfinished: None,
            doubt: false,
            is_timed: def.expiry & 3 != 0,
        };
        let allowed: &[ErrorKind] = if there { &[ErrorKind::Exists] } else { &[] };
        let made = self.decide(at, result.map(drop), allowed).is_some();
        assert!(!(made && there), "a second dataset of one name");
        let store = &mut self.stores[at];
        if made {
            let mut state = store.now().clone();
            state.records.insert(set.uid, Rc::default());
            *store.states.last_mut().unwrap() = state;
            store.told = store.last_seq();
            store.sets.push(set);
            store.sets.sort_by(|a, b| a.name.cmp(&b.name));
        } else if !there {
            store.made_sets.push(set);
        }
    }

    pub(crate) fn drop_set(&mut self, at: usize, set: usize) {
        let Some(db) = self.stores[at].db.clone() else {
            return;
        };
        let Set { name, uid, .. } = self.stores[at].sets[set].clone();
        let result = db.drop_dataset(&name);
        drop(db);
        let allowed: &[ErrorKind] = match self.depth {
            0 => &[],
            _ => &BUSY,
        };
        let refused = matches!(&result, Err(error) if !self.stores[at].excused && error.kind() == ErrorKind::Busy);
        let store_result = self.decide(at, result, allowed);
        let store = &mut self.stores[at];
        match store_result {
            Some(()) => {
                store.sets.remove(set);
                store.consumers.end(uid);
            }
            None if refused => {}
            None => {
                store.lost_sets.insert(uid);
            }
        }
    }

    /// Renames a dataset. Older handles continue under the new name.
    pub(crate) fn rename_set(&mut self, at: usize, set: usize, to: &str) {
        let store = &self.stores[at];
        let Some(db) = store.db.clone() else {
            return;
        };
        let is_taken = store.sets.iter().any(|set| set.name == to);
        let Set { name, uid, .. } = store.sets[set].clone();
        let before = store.handle(&name).unwrap();
        let result = db.rename_dataset(&name, to);
        drop(db);
        let mut allowed = Vec::new();
        allowed.extend(is_taken.then_some(ErrorKind::Exists));
        allowed.extend((self.depth > 0).then_some(ErrorKind::Busy));
        let kinds = [ErrorKind::Exists, ErrorKind::Busy];
        let refused = matches!(&result, Err(error) if kinds.contains(&error.kind()));
        let renamed = self.decide(at, result, &allowed).is_some();
        assert!(!(renamed && is_taken), "two datasets of one name");
        let store = &mut self.stores[at];
        let mut new = store.sets[set].clone();
        new.name = to.to_string();
        if renamed {
            count("renamed");
            store.told = store.last_seq();
            store.sets[set] = new.clone();
            store.sets.sort_by(|a, b| a.name.cmp(&b.name));
            assert_eq!(before.name(), to);
            let (view, records) = (new.view(), store.records(uid).at(store.time()));
            let mut rng = fastrand::Rng::with_seed(3);
            let asked = ask::some(&before.snapshot(), &view, &records, &mut rng, 1);
            self.decide(at, asked, &[]);
        } else if !refused {
            // A reader may find either name.
            store.lost_sets.insert(uid);
            store.made_sets.push(new);
        }
    }

    pub(crate) fn change(&mut self, action: &Action) {
        let (Action::Index { store, set, .. }
        | Action::Strategy { store, set, .. }
        | Action::RepairSet { store, set, .. }) = action
        else {
            return;
        };
        let at = self.store_at(*store);
        let Some(set) = self.set_at(at, *set) else {
            return;
        };
        let Set { name, uid, .. } = self.stores[at].sets[set].clone();
        let dataset = self.stores[at].handle(&name).unwrap();
        let before = self.stores[at].last_seq();
        let failed = match action {
            Action::Index {
                path,
                kind,
                tokenizer,
                change,
                inside,
                ..
            } => self.index(
                at,
                uid,
                &dataset,
                (*path, *kind, *tokenizer, *change),
                inside,
            ),
            Action::Strategy { to, inside, .. } => self.strategy(at, uid, &dataset, *to, inside),
            Action::RepairSet {
                method,
                memory,
                lookups,
                bloom,
                inside,
                ..
            } => {
                let options = RepairOptions {
                    method: method_of(*method),
                    memory: *memory as usize,
                    // A single thread behaves the same each time.
                    threads: 1,
                    bytes_per_second: None,
                    bloom: *bloom,
                    lookups: pick(
                        &[Lookups::Auto, Lookups::Points, Lookups::MergeScan],
                        *lookups,
                    ),
                };
                self.repair(at, uid, &dataset, &options, inside)
            }
            _ => false,
        };
        let Some(set) = self.stores[at].sets.iter_mut().find(|set| set.uid == uid) else {
            return;
        };
        // Adopts the new definition, which was compared before.
        let (def, unfinished) = (dataset.def(), dataset.unfinished_index());
        // An automatically chosen strategy may change at any time.
        let changed =
            !def.auto && !set.def.auto && (&set.def, &set.unfinished) != (&def, &unfinished);
        set.def = def;
        set.unfinished = unfinished;
        set.doubt |= failed;
        if changed && !failed {
            self.stores[at].told = before;
        }
    }

    /// Returns true if the change failed, so that it may or may not have happened.
    fn index(
        &mut self,
        at: usize,
        uid: u32,
        dataset: &Dataset,
        (path_number, kind, tokens, change): (u8, u8, u8, Change),
        inside: &Inside,
    ) -> bool {
        let set = self.stores[at].sets.iter().find(|s| s.uid == uid).unwrap();
        let number = usize::from(path_number) % (PATHS.len() + 1);
        let (name, ty, kind) = match path_number {
            POINT_NUMBER => {
                let kind = IndexKind::Spatial(pick(&LAYOUTS, kind));
                (path(POINT), Type::Point, kind)
            }
            TIMED_NUMBER => {
                let kind = IndexKind::SpaceTime(pick(&LAYOUTS, kind));
                (path(TIMED), Type::PointTime, kind)
            }
            COMPOUND_NUMBER => {
                let name = compound::path_of(set.types.compound);
                let fields = compound::fields(set.types.compound);
                let is_declared =
                    |at: &usize| set.def.indexes.iter().any(|i| i.path == path(PATHS[*at]));
                if fields.is_empty() || !fields.iter().all(is_declared) {
                    return false;
                }
                (name, Type::Compound, pick(&IndexKind::ALL, kind))
            }
            _ if number == PATHS.len() => {
                self.refused_index(at, uid, dataset, kind);
                return false;
            }
            _ => {
                let kind = pick(&IndexKind::ALL, kind);
                (path(PATHS[number]), set.types.of[number], kind)
            }
        };
        let (def, unfinished) = (set.def.clone(), set.unfinished.clone());
        let tokenizer = tokenizer(tokens, kind, ty);
        let lenient = set.types.lenient && !kind.is_spatial() && !ty.is_compound();
        let unique = if ty.is_compound() {
            set.types.compound & compound::UNIQUE != 0 && kind.can_be_unique()
        } else {
            is_unique(set.types.unique, number, kind, tokenizer)
        };
        let mut allowed = self.allowed_change(&unfinished, &def, (&name, kind, ty), change);
        let mut within = Within::new(inside);
        let result = match change {
            Change::Add => {
                let index = esker::Index::new(kind).of_type(ty).tokenizer(tokenizer);
                let index = index.lenient_if(lenient).unique_if(unique);
                let task = dataset.add_index(&name, index);
                task.on_progress(|_| within.go_on(self)).run().map(Some)
            }
            Change::Switch => {
                let task = dataset.switch_index(&name, kind);
                task.on_progress(|_| within.go_on(self)).run().map(Some)
            }
            Change::Rebuild => {
                let task = dataset.rebuild_index(&name);
                task.on_progress(|_| within.go_on(self)).run().map(Some)
            }
            Change::DropIndex => dataset.drop_index(&name).map(Some),
            Change::Resume => {
                let task = dataset.resume_index();
                task.on_progress(|_| within.go_on(self)).run()
            }
        };
        let becomes = match change {
            Change::Add => Some(IndexDef::new(name.clone(), kind, ty).unique(unique)),
            _ => unfinished.clone(),
        };
        let becomes = becomes.filter(|index| index.unique);
        allowed.extend(becomes.as_ref().map(|_| ErrorKind::NotUnique));
        let refused = is_refusal(&result);
        if let Some(index) = &becomes
            && (refused || matches!(&result, Ok(Some(change)) if change.complete))
            && change != Change::DropIndex
            && self.depth == 0
        {
            // A switch that is resumed compares nothing.
            let writes = change != Change::Add || !inside.steps.is_empty();
            self.compare_build(at, uid, index, refused, writes);
        }
        let failed = result.is_err() && (self.stores[at].excused || self.stores[at].db.is_none());
        let changed = self.decide(at, result, &allowed);
        let Some(Some(changed)) = changed else {
            let same = (dataset.def().indexes, dataset.unfinished_index());
            if refused {
                assert_eq!(dataset.unfinished_index(), None, "after a refusal");
                count("index: not unique");
            } else if !failed && self.depth == 0 && inside.steps.is_empty() {
                assert_eq!(same, (def.indexes, unfinished), "after a refusal");
            }
            return failed;
        };
        if let Some(set) = self.stores[at].sets.iter_mut().find(|s| s.uid == uid) {
            set.known.partial = true;
        }
        if self.depth > 0 {
            return false;
        }
        let indexes = dataset.def().indexes;
        let found = indexes.iter().find(|index| index.path == changed.path);
        let left = dataset.unfinished_index();
        count(if changed.complete {
            "index: complete"
        } else {
            "index: broken off"
        });
        if changed.complete {
            assert_eq!(left, None, "a change that is complete");
            // A cancelled index may not have been declared.
            let now = found.map_or(IndexKind::None, |found| found.kind);
            assert_eq!(now, changed.to, "the index of {}", changed.path);
        } else {
            let to = left.map(|index| (index.path, index.kind));
            assert_eq!(to, Some((changed.path.clone(), changed.to)), "broken off");
            assert!(inside.stop_after.is_some(), "nobody broke it off");
        }
        false
    }

    /// The path has no ints: an index of ints is refused and changes nothing.
    fn refused_index(&mut self, at: usize, uid: u32, dataset: &Dataset, kind: u8) {
        let store = &self.stores[at];
        let set = store.sets.iter().find(|s| s.uid == uid).unwrap();
        let busy = self.depth > 0 || set.unfinished.is_some() || store.excused;
        if busy || store.records(uid).rows().next().is_none() {
            return;
        }
        let kind = pick(&IndexKind::ALL, kind);
        if is_by_place(&set.def, &path("pad"), kind) {
            return;
        }
        let result = dataset
            .add_index(path("pad"), esker::Index::new(kind).of_type(Type::Int))
            .run();
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadInput);
        let text = error.to_string();
        assert!(text.contains("field pad must be of type int"), "{text}");
        count("index: refused");
    }

    /// The errors that a change of an index may return.
    fn allowed_change(
        &self,
        unfinished: &Option<IndexDef>,
        def: &DatasetDef,
        (name, kind, ty): (&esker::Path, IndexKind, Type),
        change: Change,
    ) -> Vec<ErrorKind> {
        if self.depth > 0 {
            return REFUSED.to_vec();
        }
        if let Some(left) = unfinished {
            let same = left.path == *name;
            return match change {
                Change::Resume => vec![],
                Change::DropIndex if same => vec![],
                Change::Switch if same && left.kind == kind => vec![],
                // If the index has this kind already, the change resumes.
                Change::Rebuild => REFUSED.to_vec(),
                _ => REFUSED.to_vec(),
            };
        }
        let known = def.indexes.iter().find(|index| index.path == *name);
        let lacks_time = *name == path(TIMED) && !def.indexes.iter().any(|i| i.path == path(TIME));
        if change != Change::Resume && (is_by_place(def, name, kind) || lacks_time) {
            return REFUSED.to_vec();
        }
        let legal = match (change, known) {
            (Change::Add, None) if ty.is_compound() => kind.can_be_compound(),
            (Change::Resume, _) | (Change::Add, None) => true,
            (Change::Add, Some(known)) => {
                known.kind == IndexKind::None && kind != IndexKind::None && known.ty == ty
            }
            (Change::Switch, Some(known)) => {
                let fits = kind.is_standalone()
                    || known.tokenizer == esker::schema::Tokenizer::Exact
                    || kind == IndexKind::None;
                let needs_order = known.unique || known.ty.is_compound();
                let fits =
                    fits && (!needs_order || kind.can_be_unique() || kind == IndexKind::None);
                known.kind != kind && known.kind != IndexKind::None && fits
            }
            (Change::DropIndex | Change::Rebuild, Some(known)) => known.kind != IndexKind::None,
            (_, None) => false,
        };
        if legal { vec![] } else { REFUSED.to_vec() }
    }

    fn strategy(
        &mut self,
        at: usize,
        uid: u32,
        dataset: &Dataset,
        to: u8,
        inside: &Inside,
    ) -> bool {
        let set = self.stores[at].sets.iter().find(|s| s.uid == uid).unwrap();
        let (def, unfinished) = (set.def.clone(), set.unfinished.is_some());
        let strategies = Maintenance::ALL.len() as u8;
        let auto = to % (strategies + 1) == strategies;
        let to = pick(&Maintenance::ALL, to);
        let set = self.stores[at].sets.iter_mut().find(|s| s.uid == uid);
        set.unwrap().known.partial = true;
        let mut within = Within::new(inside);
        let task = if auto {
            dataset.set_auto()
        } else {
            dataset.set_maintenance(to)
        };
        let result = task.on_progress(|_| within.go_on(self)).run();
        let failed = result.is_err() && (self.stores[at].excused || self.stores[at].db.is_none());
        let leaves = auto || to != Maintenance::Deferred;
        let unfit = leaves && (def.versions > 1 || def.repair == Repair::Staged);
        let allowed: &[ErrorKind] = match (unfit, unfinished || self.depth > 0) {
            (true, _) => &[ErrorKind::BadInput, ErrorKind::Busy],
            (false, true) => &BUSY,
            _ => &[],
        };
        // Steps inside may have begun an index or dropped the dataset.
        let inner = inside.steps.is_empty();
        let allowed = if inner { allowed } else { &REFUSED };
        let changed = self.decide(at, result, allowed);
        let Some(report) = changed else {
            return failed;
        };
        assert!(report.complete || inside.stop_after.is_some());
        count(if report.complete {
            "strategy: complete"
        } else {
            "strategy: broken off"
        });
        if self.depth == 0 && inner {
            let now = dataset.def();
            assert_eq!((now.maintenance, now.auto), (report.to, auto));
            assert_eq!(now.indexes, def.indexes);
        }
        false
    }

    fn repair(
        &mut self,
        at: usize,
        uid: u32,
        dataset: &Dataset,
        options: &RepairOptions,
        inside: &Inside,
    ) -> bool {
        let set = self.stores[at].sets.iter().find(|s| s.uid == uid).unwrap();
        let unfinished = set.unfinished.is_some();
        let mut within = Within::new(inside);
        let result = dataset
            .repair(options)
            .on_progress(|_| within.go_on(self))
            .run();
        let mut allowed = Vec::new();
        if options.method != RepairMethod::Auto {
            allowed.push(ErrorKind::BadInput);
        }
        let eventful = !inside.steps.is_empty();
        if self.depth > 0 || unfinished || eventful {
            allowed.push(ErrorKind::Busy);
        }
        if eventful {
            // A step inside may have dropped the dataset.
            allowed.extend(REFUSED);
        }
        let Some(report) = self.decide(at, result, &allowed) else {
            return false;
        };
        assert!(report.complete || inside.stop_after.is_some());
        count(match report.method {
            RepairMethod::Auto => "repair: none",
            RepairMethod::Key => "repair: key",
            RepairMethod::Index => "repair: index",
            RepairMethod::Primary { .. } => "repair: primary",
            other => panic!("a repair of the kind {other:?}"),
        });
        if report.found > 0 {
            count("repair: found some");
        }
        let seq = self.stores[at].now().seq;
        let store = &mut self.stores[at];
        if let Some(set) = store.sets.iter_mut().find(|s| s.uid == uid) {
            assert!(
                report.watermark >= report.watermark_before,
                "the mark went back"
            );
            // A repair by index does not read records without index entries.
            set.known.partial |= report.method == RepairMethod::Index;
        }
        assert!(report.watermark <= seq, "the mark is ahead");
        if report.complete && !eventful && self.depth == 0 && !self.stores[at].excused {
            // The repair has added the obsolete writes to the set.
            let again = dataset.repair(options).run();
            // Only the same method finds nothing again: a repair by index misses obsolete writes
            // without index entries, a repair by record finds them.
            if let Some(again) = self.decide(at, again, &[])
                && again.method == report.method
            {
                assert_eq!(
                    (again.found, again.watermark),
                    (0, report.watermark),
                    "again"
                );
            }
        }
        false
    }

    /// Resumes an interrupted change and completes it.
    pub(crate) fn finish_changes(&mut self, at: usize) {
        for set in 0..self.stores[at].sets.len() {
            if self.stores[at].sets[set].unfinished.is_none() {
                continue;
            }
            let none = Inside {
                steps: Vec::new(),
                stop_after: None,
            };
            self.change(&Action::Index {
                store: at as u8,
                set: set as u8,
                path: 0,
                kind: 0,
                tokenizer: 0,
                change: Change::Resume,
                inside: none,
            });
        }
    }
}

/// True if the dataset is stored by location and may refuse the index: an index of the location
/// itself, or an index without its own tree on an attribute declared later, which stubs lack.
fn is_by_place(def: &DatasetDef, name: &esker::Path, kind: IndexKind) -> bool {
    let clustered = def.indexes.iter().find(|index| index.kind.is_clustered());
    clustered.is_some_and(|by| by.path == *name || !kind.is_standalone())
}

fn method_of(method: Method) -> RepairMethod {
    let primary = |compaction| RepairMethod::Primary { compaction };
    match method {
        Method::Auto => RepairMethod::Auto,
        Method::ByKey => RepairMethod::Key,
        Method::ByIndex => RepairMethod::Index,
        Method::Primary => primary(Compaction::Without),
        Method::PrimaryBefore => primary(Compaction::Before),
        Method::PrimaryAfter => primary(Compaction::After),
    }
}

//! Changes of indexes in the middle of a life.

use std::ops::ControlFlow;

use esker::{ErrorKind, IndexKind, Type};

use super::Life;
use crate::common::{Doing, check, path};

impl Life {
    /// Adds, switches or drops an index, goes on with a change that was broken off, or takes it back.
    pub(super) fn change_index(&mut self) {
        let kind = IndexKind::ALL[self.rng.usize(0..IndexKind::ALL.len())];
        if let Some((at, to, _)) = self.unfinished {
            let other = self.attributes.first().map_or("u", |attribute| attribute.0);
            match self.rng.usize(0..5) {
                0 => {
                    let change = self.dataset.drop_index(&path(at)).unwrap();
                    assert!(change.complete);
                    self.unfinished = None;
                }
                1 if (other, kind) != (at, to) && other != at => {
                    let error = self.dataset.drop_index(&path(other)).unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::Unavailable);
                }
                _ => self.build(),
            }
            return;
        }
        if self.rng.usize(0..10) == 0 && !self.model.is_empty() {
            let def = self.dataset.def();
            let pad = (path("pad"), Some(Type::Int));
            let result = self
                .dataset
                .add_index(&pad.0, kind, pad.1, &mut |_| ControlFlow::Continue(()));
            let error = result.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BadInput);
            let text = error.to_string();
            assert!(text.contains("field pad must be of type int"), "{text}");
            assert_eq!(
                (self.dataset.def(), self.dataset.unfinished_index()),
                (def, None)
            );
            return;
        }
        let declared = self.attributes.len();
        let at = self.rng.usize(0..declared + self.undeclared.len());
        let (at, from, ty) = match self.attributes.get(at) {
            Some((at, from, ty)) => (*at, *from, *ty),
            None => {
                let (at, ty) = self.undeclared[at - declared];
                self.unfinished = Some((at, kind, ty));
                return self.build();
            }
        };
        if kind == from {
            let mut go = |_| ControlFlow::Continue(());
            let error = self.dataset.switch_index(&path(at), kind, &mut go);
            assert_eq!(error.unwrap_err().kind(), ErrorKind::Exists);
        } else if kind == IndexKind::None {
            let change = self.dataset.drop_index(&path(at)).unwrap();
            assert_eq!((change.from, change.to), (Some(from), kind));
            self.declared(at, kind, ty);
        } else {
            self.unfinished = Some((at, kind, ty));
            self.build();
        }
    }

    fn declared(&mut self, at: &'static str, kind: IndexKind, ty: Type) {
        self.undeclared.retain(|other| other.0 != at);
        self.attributes.retain(|other| other.0 != at);
        self.attributes.push((at, kind, ty));
        let def = self.dataset.def();
        let found = def.indexes.iter().find(|index| index.path == path(at));
        assert_eq!(found.map(|index| (index.kind, index.ty)), Some((kind, ty)));
    }

    /// Begins the change that is to be done, or goes on with it, with life going on meanwhile.
    pub(super) fn build(&mut self) {
        let Some((at, kind, ty)) = self.unfinished else {
            return;
        };
        let _doing = Doing(format!("changed {at} to {kind}"));
        let dataset = self.dataset.clone();
        let known = self.attributes.iter().find(|attribute| attribute.0 == at);
        let from = known.map(|attribute| attribute.1);
        let begun = dataset.unfinished_index().is_some();
        let how = self.rng.usize(0..2);
        let mut left = [None, None, Some(0), Some(3)][self.rng.usize(0..4)];
        self.inside = true;
        let mut progress = |_| {
            for _ in 0..self.rng.usize(0..5) {
                self.step();
            }
            let go_on = left != Some(0);
            left = left.map(|left: usize| left.saturating_sub(1));
            if go_on {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        };
        let change = match (begun, how) {
            (true, 0) => dataset.resume_index(&mut progress).unwrap().unwrap(),
            _ if from.is_some_and(|from| from != IndexKind::None) => dataset
                .switch_index(&path(at), kind, &mut progress)
                .unwrap(),
            _ => dataset
                .add_index(&path(at), kind, Some(ty), &mut progress)
                .unwrap(),
        };
        self.inside = false;
        assert_eq!((change.from, change.to), (from, kind));
        let unfinished = dataset.unfinished_index();
        assert_eq!(change.complete, unfinished.is_none());
        if change.complete {
            self.unfinished = None;
            self.declared(at, kind, ty);
        }
        check(&self.db);
    }
}

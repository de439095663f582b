//! Repairs in the middle of a life, by any method.

use std::ops::ControlFlow;

use esker::{Compaction, ErrorKind, Lookups, RepairMethod, RepairOptions};

use super::Life;
use crate::common::{Doing, check};

impl Life {
    pub(super) fn repair(&mut self) {
        let primary = |compaction| RepairMethod::Primary { compaction };
        let methods = [
            RepairMethod::Auto,
            RepairMethod::Key,
            RepairMethod::Index,
            primary(Compaction::Without),
            primary(Compaction::Before),
            primary(Compaction::After),
        ];
        let rng = &mut self.rng;
        let options = RepairOptions {
            method: methods[rng.usize(0..methods.len())],
            memory: [64 << 10, 16 << 20][rng.usize(0..2)],
            threads: rng.usize(1..3),
            bytes_per_second: None,
            bloom: rng.bool(),
            lookups: [Lookups::Auto, Lookups::Points, Lookups::MergeScan][rng.usize(0..3)],
        };
        let _doing = Doing(format!("repaired, {options:?}"));
        let go_on = rng.usize(0..4) > 0;
        let result = self.dataset.repair(&options, &mut |_| match go_on {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        });
        match result {
            // By index, records without facts are not gone through.
            Ok(report) => self.known.partial |= report.method == RepairMethod::Index,
            Err(error) => {
                let by_index = self.inside || self.unfinished.is_some();
                let refused = match error.kind() {
                    ErrorKind::BadInput => options.method != RepairMethod::Auto,
                    ErrorKind::Unavailable => by_index,
                    _ => false,
                };
                assert!(refused, "{error}");
            }
        }
        check(&self.db);
    }
}

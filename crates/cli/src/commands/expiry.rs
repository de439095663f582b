//! `ttl` and `expire`.

use crate::args::{ExpireArgs, Ttl, TtlArgs};
use crate::failure::{Failure, Outcome};
use crate::output::{counted, note};
use crate::store::{dataset, open};

/// `esker ttl DIR DATASET TIME`: sets the time to live of records written from now on.
pub(crate) fn ttl(args: &TtlArgs, memory: usize) -> Result<Outcome, Failure> {
    let db = open(&args.dir, memory)?;
    let dataset = dataset(&*db, &args.dataset)?;
    let before = Ttl(dataset.def().expiry.ttl);
    dataset.set_ttl(args.ttl.0)?;
    db.close()?;
    note(format_args!(
        "the time to live is now {} for records written from now on; it was {before}",
        args.ttl
    ));
    Ok(Outcome::Done)
}

/// `esker expire DIR [DATASET]`: deletes expired records.
pub(crate) fn expire(args: &ExpireArgs, memory: usize) -> Result<Outcome, Failure> {
    let db = open(&args.dir, memory)?;
    let names = match &args.dataset {
        Some(name) => vec![name.clone()],
        None => db.dataset_names()?,
    };
    if args.confirm {
        db.confirm_time()?;
    }
    let mut records = 0;
    for name in &names {
        records += dataset(&*db, name)?.expire_now()?;
    }
    let unconfirmed = db.unconfirmed_time().is_some();
    db.close()?;
    note(format_args!("{} had expired", counted(records, "record")));
    if unconfirmed {
        note(
            "note: the clock is a day or more ahead of the store's last use, so nothing is deleted by it; if the clock is right, use --confirm",
        );
    }
    Ok(Outcome::Done)
}

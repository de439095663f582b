//! Which strategy a migration ends with.

use super::*;

#[test]
fn a_choice_does_not_undo_another_migration() {
    let (old, new) = (Maintenance::Validation, Maintenance::MutableBitmap);
    let fixed = |strategy| Setting {
        strategy,
        is_auto: false,
    };
    let auto = |strategy| Setting {
        strategy,
        is_auto: true,
    };
    let chosen = MigrationTarget::Chosen {
        present: old,
        to: new,
    };
    assert_eq!(chosen.resolve(auto(old)), auto(new));
    let other = Maintenance::Eager;
    for now in [fixed(old), fixed(other), auto(new), auto(other)] {
        assert_eq!(chosen.resolve(now), now);
    }
    let present = MigrationTarget::Present;
    assert_eq!(present.resolve(auto(new)), auto(new));
    let to_auto = MigrationTarget::Auto;
    assert_eq!(to_auto.resolve(fixed(new)), auto(new));
    assert_eq!(
        to_auto.resolve(fixed(Maintenance::Deferred)),
        auto(Maintenance::Validation)
    );
    let to_old = MigrationTarget::Fixed(old);
    assert_eq!(to_old.resolve(auto(new)), fixed(old));
}

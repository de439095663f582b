//! Searches of sorted positions: from the top, and from a nearby position.

/// Finds the first position in `lo..hi` that is not `before` the target, `hi` when all are; `None`
/// when `before` fails. Positions before the target come first; the last one is the last for which
/// `before` returned true.
///
/// From the top it is a binary search. `near` searches from `lo` on in steps that double, and then
/// within the last step (Luo & Carey section 3.2): O(log d) for a target at distance d.
#[inline]
pub(super) fn first_not_before(
    near: bool,
    mut lo: usize,
    mut hi: usize,
    mut before: impl FnMut(usize) -> Option<bool>,
) -> Option<usize> {
    let mut step = 1;
    while near && lo < hi {
        let probe = lo + step - 1;
        if probe >= hi {
            break;
        }
        if !before(probe)? {
            hi = probe;
            break;
        }
        lo = probe + 1;
        step *= 2;
    }
    while lo < hi {
        let mid = lo.midpoint(hi);
        if before(mid)? {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    Some(lo)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_searches_find_every_place_and_the_near_one_in_few_steps() {
        for len in 0..70 {
            for target in 0..=len {
                for lo in 0..=target {
                    for near in [false, true] {
                        let (mut steps, mut last) = (0, None);
                        let found = first_not_before(near, lo, len, |at| {
                            steps += 1;
                            let before = at < target;
                            last = if before { Some(at) } else { last };
                            Some(before)
                        });
                        assert_eq!(found, Some(target), "{lo}..{len}");
                        assert_eq!(last, (target > lo).then(|| target - 1));
                        let distance = if near { target - lo } else { len - lo };
                        assert!(
                            steps <= 2 * (distance + 1).ilog2() + 2,
                            "{steps}: {distance}"
                        );
                    }
                }
            }
        }
        assert_eq!(first_not_before(true, 0, 9, |_| None), None);
    }
}

//! Searches in sorted lists by those who ask for places in order.

/// The last of `len` places that begins where it must, which all places before it do and none after it; looks first from
/// the place that was found last.
#[inline]
pub(crate) fn last(len: usize, near: usize, begins: impl Fn(usize) -> bool) -> Option<usize> {
    let (mut low, mut high) = (0, near.min(len));
    if near < len && begins(near) {
        let mut step = 0;
        (low, high) = (near + 1, near + 1);
        while high < len && begins(high) {
            low = high + 1;
            high = (low + step).min(len);
            step = 2 * step + 1;
        }
    }
    while low < high {
        let middle = low + (high - low) / 2;
        if begins(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low.checked_sub(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::last;

    proptest! {
        #[test]
        fn the_last_place_is_found_from_anywhere(len in 0usize..40, count in 0usize..40, near in 0usize..60) {
            let count = count.min(len);
            prop_assert_eq!(last(len, near, |i| i < count), count.checked_sub(1));
        }
    }
}

use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;

use crate::failure::Failure;

/// Runs `work` on `0..count` in parallel. What fails first in order is the failure, whichever thread was faster; what comes
/// after it is left out.
pub(super) fn in_order<T: Send>(
    count: usize,
    work: impl Fn(usize) -> Result<T, Failure> + Sync,
) -> Result<Vec<T>, Failure> {
    let first_failed = AtomicUsize::new(usize::MAX);
    let run = |index: usize| {
        if index > first_failed.load(Ordering::SeqCst) {
            return None;
        }
        let result = work(index);
        if result.is_err() {
            first_failed.fetch_min(index, Ordering::SeqCst);
        }
        Some(result)
    };
    let results: Vec<Option<Result<T, Failure>>> = (0..count).into_par_iter().map(run).collect();
    results.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::{Failure, in_order};

    #[test]
    fn the_first_failure_in_order_is_the_failure() {
        for _ in 0..50 {
            let fails = |i: usize| if i % 7 == 5 { Err(Failure::config(i)) } else { Ok(i) };
            assert_eq!(in_order(40, fails).map_err(|f| f.message), Err("5".to_owned()));
        }
        assert_eq!(in_order(3, Ok), Ok(vec![0, 1, 2]));
    }
}

use std::time::Instant;

use skewbench_cuda::attention::LaunchTimer;
use skewbench_cuda::gemm::GemmTimer;
use skewbench_cuda::{CopyTimer, CudaError, LinkTimer, Overlap};

use super::{Entry, Journal, Point, Work};
use crate::failure::Failure;
use crate::progress::Progress;
use crate::replay::{Samples, calls};
use crate::scheduler::check_interrupted;

/// What measures; points of what is missing are left out, and the profile keeps those parts of the one it starts from.
pub struct Instruments<'a> {
    /// Kernel calls.
    pub launches: &'a mut dyn LaunchTimer,
    /// Matrix products.
    pub products: Option<&'a mut dyn GemmTimer>,
    /// Kernels that move rows.
    pub copies: Option<&'a mut dyn CopyTimer>,
    /// Exchanges between cards.
    pub links: Option<&'a mut dyn LinkTimer>,
}

/// Repeats that count, at least: fewer have no spread.
const REPEATS: u32 = 3;

impl Instruments<'_> {
    fn has(&self, work: &Work) -> bool {
        match work {
            Work::Launch(..) => true,
            Work::Gemm(_) => self.products.is_some(),
            Work::Copy(_) | Work::Merge(_) => self.copies.is_some(),
            Work::Exchange(..) | Work::Overlap(_) => self.links.is_some(),
        }
    }

    /// Repeats of every row of a point.
    fn measure(&mut self, work: &Work) -> Result<Vec<Vec<f64>>, CudaError> {
        const WARM_UP: u32 = 2;
        let missing = || CudaError::Program("nothing measures this".into());
        let repeats = match work {
            Work::Launch(_, shape) => {
                let (warm_up, repeats) = calls(0.0);
                Samples::take(self.launches, shape, warm_up, repeats.max(REPEATS))?.repeats
            }
            Work::Gemm(shape) => self.products.as_mut().ok_or_else(missing)?.time(*shape, WARM_UP, 2 * REPEATS)?,
            Work::Copy(bytes) => self.copies.as_mut().ok_or_else(missing)?.copy_ns(*bytes, WARM_UP, 2 * REPEATS)?,
            Work::Merge(bytes) => self.copies.as_mut().ok_or_else(missing)?.merge_ns(*bytes, WARM_UP, 2 * REPEATS)?,
            Work::Exchange(transport, bytes) => {
                self.links.as_mut().ok_or_else(missing)?.exchange_ns(*transport, *bytes, WARM_UP, 2 * REPEATS)?
            }
            Work::Overlap(transport) => {
                let Overlap { compute_alone_ns, transfer_alone_ns, compute_together_ns, transfer_together_ns } =
                    self.links.as_mut().ok_or_else(missing)?.overlap(*transport, REPEATS)?;
                return Ok(vec![compute_alone_ns, transfer_alone_ns, compute_together_ns, transfer_together_ns]);
            }
        };
        Ok(vec![repeats])
    }
}

/// Measures points in their order until all are, or the budget of seconds is spent; returns how many are left. A point that
/// fails is noted, and tried again only by a later run that goes on with the journal.
///
/// # Errors
/// A journal that cannot be written; an interruption.
pub fn measure(
    points: &[Point],
    instruments: &mut Instruments<'_>,
    journal: &mut Journal,
    budget_s: f64,
) -> Result<usize, Failure> {
    let started = Instant::now();
    let wanted: Vec<&Point> = points.iter().filter(|p| instruments.has(&p.work)).collect();
    let progress = Progress::new("points", wanted.len() as u64);
    let mut left = 0;
    for point in wanted {
        let rows = point.rows();
        if rows.iter().all(|row| journal.get(row).is_some_and(|entry| entry.failed.is_none())) {
            progress.advance(1, &point.name);
            continue;
        }
        check_interrupted()?;
        if started.elapsed().as_secs_f64() + point.seconds > budget_s {
            left += 1;
            progress.advance(1, "left out, the budget is spent");
            continue;
        }
        let (times, failed) = match instruments.measure(&point.work) {
            Ok(times) => (times, None),
            Err(error) => (vec![Vec::new(); rows.len()], Some(error.to_string())),
        };
        for (point, ns) in rows.into_iter().zip(times) {
            journal.add(Entry { point, ns, failed: failed.clone() })?;
        }
        progress.advance(1, &point.name);
    }
    progress.finish();
    Ok(left)
}

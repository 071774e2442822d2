use rayon::prelude::*;

use crate::error::WorkloadError;
use crate::rng::Draws;
use crate::stream::{StreamOptions, WindowStream};
use crate::workload::Workload;

/// Orders of the quantiles in [`DocumentStats`] and [`WindowStats`].
pub const QUANTILES: [f64; 9] = [0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 1.0];

/// Chunks that a description is made of: independent, so that they give standard errors although the windows of one
/// chunk depend on each other.
const CHUNKS: u32 = 32;

/// A value with its standard error.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Estimate {
    /// The estimate.
    pub value: f64,
    /// Its standard error, by leaving out one chunk at a time (jackknife).
    pub standard_error: f64,
}

/// What a set of documents is like. Lengths are in tokens.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct DocumentStats {
    /// Number of documents.
    pub documents: u64,
    /// Their tokens.
    pub tokens: u64,
    /// Mean length.
    pub mean: f64,
    /// Lengths at [`QUANTILES`]: the smallest length that at least this share of documents does not exceed.
    pub quantiles: [u64; 9],
    /// Share of the unmasked pairs l (l + 1) / 2 that the longest 1% of documents hold (at least one document).
    pub pairs_of_top_percent: f64,
}

/// What the packed windows of a workload are like. x is the sum of squared lengths over the squared window, 0 to 1.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct WindowStats {
    /// Windows looked at.
    pub windows: u64,
    /// Mean documents in a window.
    pub documents_per_window: f64,
    /// Mean of x.
    pub mean_x: Estimate,
    /// Standard deviation of x over its mean.
    pub cv_x: Estimate,
    /// x at [`QUANTILES`].
    pub x_quantiles: [f64; 9],
    /// Share of windows that are one document.
    pub full_windows: f64,
}

/// Documents as they arrive, as they are packed, and the windows. Computed, nothing is measured.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Description {
    /// Documents before packing: all of a user's file, else a sample.
    pub documents: DocumentStats,
    /// True when `documents` is a sample.
    pub documents_sampled: bool,
    /// Documents as they lie in the windows: truncated, cut, topped up.
    pub packed_documents: DocumentStats,
    /// The windows.
    pub windows: WindowStats,
}

/// Describes a workload by about `windows` of its windows (rounded up to a multiple of 32), using all cores.
///
/// # Errors
/// That many windows do not fit in memory, or there are none.
pub fn describe(workload: &Workload, seed: u64, windows: u32) -> Result<Description, WorkloadError> {
    if windows == 0 {
        return Err(WorkloadError::Stream { option: "windows", value: 0, why: "describe at least 1 window".into() });
    }
    let options = StreamOptions { gbs: 1, steps_per_chunk: Some(windows.div_ceil(CHUNKS)), shuffle: false };
    let total_documents = workload.documents_per_window() * f64::from(windows);
    if total_documents > f64::from(1u32 << 28) {
        let why = format!("they hold about {total_documents:.0} documents; ask for fewer");
        return Err(WorkloadError::Stream { option: "windows", value: u64::from(windows), why });
    }
    let stream = WindowStream::with_options(workload, seed, options)?;
    let area = f64::from(workload.window()) * f64::from(workload.window());
    let chunks: Vec<(Vec<f64>, u64, Vec<u32>)> = (0..u64::from(CHUNKS))
        .into_par_iter()
        .map(|chunk| {
            let windows = stream.chunk(chunk).concat();
            let x = windows.iter().map(|w| w.iter().map(|&l| f64::from(l) * f64::from(l)).sum::<f64>() / area);
            let full = windows.iter().filter(|w| w.len() == 1).count() as u64;
            (x.collect(), full, windows.concat())
        })
        .collect();

    let mut x: Vec<f64> = Vec::new();
    let mut sums: Vec<[f64; 3]> = Vec::new();
    let mut packed: Vec<u32> = Vec::new();
    let mut full = 0;
    for (chunk_x, chunk_full, lengths) in chunks {
        sums.push(chunk_x.iter().fold([0.0; 3], |[n, s, q], x| [n + 1.0, s + x, q + x * x]));
        x.extend(chunk_x);
        full += chunk_full;
        packed.extend(lengths);
    }
    let count = x.len();
    let documents_per_window = packed.len() as f64 / count as f64;
    x.sort_unstable_by(f64::total_cmp);
    let windows = WindowStats {
        windows: count as u64,
        documents_per_window,
        mean_x: jackknife(&sums, |[n, s, _]| s / n),
        cv_x: jackknife(&sums, |[n, s, q]| {
            let mean = s / n;
            (q / n - mean * mean).max(0.0).sqrt() / mean
        }),
        x_quantiles: QUANTILES.map(|order| x[rank(order, count)]),
        full_windows: full as f64 / count as f64,
    };
    let (documents, documents_sampled) = match workload.source().as_list() {
        Some(list) => (DocumentStats::of(list.iter().collect()), false),
        None => {
            let mut sample = vec![0u64; packed.len().clamp(1 << 20, 1 << 23)];
            workload.source().fill(&mut Draws::new(seed, "documents", 0), &mut sample);
            (DocumentStats::of(sample), true)
        }
    };
    let packed_documents = DocumentStats::of(packed);
    // Both sets have at least one document: windows are never empty and sources neither.
    match (documents, packed_documents) {
        (Some(documents), Some(packed_documents)) => {
            Ok(Description { documents, documents_sampled, packed_documents, windows })
        }
        _ => Err(WorkloadError::Source("there are no documents".into())),
    }
}

impl DocumentStats {
    /// Statistics of these lengths; nothing for none.
    pub fn of<L: Copy + Ord + Into<u64> + Send>(mut lengths: Vec<L>) -> Option<Self> {
        if lengths.is_empty() {
            return None;
        }
        lengths.par_sort_unstable();
        let count = lengths.len();
        let pairs = |part: &[L]| part.iter().map(|&l| l.into() as f64).map(|l| l * (l + 1.0) / 2.0).sum::<f64>();
        let (rest, top) = lengths.split_at(count - count.div_ceil(100));
        let top = pairs(top);
        let tokens: u64 = lengths.iter().fold(0, |sum: u64, &l| sum.saturating_add(l.into()));
        Some(Self {
            documents: count as u64,
            tokens,
            mean: tokens as f64 / count as f64,
            quantiles: QUANTILES.map(|order| lengths[rank(order, count)].into()),
            pairs_of_top_percent: top / (top + pairs(rest)),
        })
    }
}

/// Index in ascending order of the quantile of this order.
fn rank(order: f64, count: usize) -> usize {
    ((order * count as f64).ceil() as usize).clamp(1, count) - 1
}

/// A function of the summed moments of all chunks, with the standard error from leaving each chunk out in turn.
fn jackknife(chunks: &[[f64; 3]], of: impl Fn([f64; 3]) -> f64) -> Estimate {
    let add = |a: [f64; 3], b: &[f64; 3]| [a[0] + b[0], a[1] + b[1], a[2] + b[2]];
    let all = chunks.iter().fold([0.0; 3], add);
    let n = chunks.len() as f64;
    let without: Vec<f64> = chunks.iter().map(|c| of([all[0] - c[0], all[1] - c[1], all[2] - c[2]])).collect();
    let mean = without.iter().sum::<f64>() / n;
    let spread: f64 = without.iter().map(|v| (v - mean) * (v - mean)).sum();
    Estimate { value: of(all), standard_error: (spread * (n - 1.0) / n).sqrt() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packing::Packing;
    use crate::source::LengthSource;

    #[test]
    fn document_statistics_by_hand() {
        let stats = DocumentStats::of((1u32..=1000).collect()).unwrap();
        assert_eq!((stats.documents, stats.tokens, stats.mean), (1000, 500_500, 500.5));
        assert_eq!(stats.quantiles, [1, 100, 250, 500, 750, 900, 990, 999, 1000]);
        let pairs = |from: u64, to: u64| (from..=to).map(|l| l * (l + 1) / 2).sum::<u64>() as f64;
        assert!((stats.pairs_of_top_percent - pairs(991, 1000) / pairs(1, 1000)).abs() < 1e-12);
        assert_eq!(DocumentStats::of(vec![7u64]).unwrap().pairs_of_top_percent, 1.0);
        assert!(DocumentStats::of(Vec::<u32>::new()).is_none());
    }

    #[test]
    fn equal_documents_give_windows_without_spread() {
        let workload = Workload::new("fours", "", LengthSource::list(vec![4]).unwrap(), 16, Packing::Split).unwrap();
        let described = describe(&workload, 1, 100).unwrap();
        assert_eq!(described.windows.windows, 128);
        assert_eq!(described.windows.documents_per_window, 4.0);
        assert_eq!(described.windows.mean_x, Estimate { value: 0.25, standard_error: 0.0 });
        assert_eq!(described.windows.cv_x.value, 0.0);
        assert_eq!(described.windows.full_windows, 0.0);
        assert!(!described.documents_sampled);
        assert_eq!(described.documents.documents, 1);
    }

    #[test]
    fn jackknife_of_a_mean_is_the_usual_standard_error() {
        let values = [1.0, 4.0, 2.0, 7.0, 6.0];
        let chunks: Vec<[f64; 3]> = values.iter().map(|v| [1.0, *v, v * v]).collect();
        let estimate = jackknife(&chunks, |[n, s, _]| s / n);
        let variance = values.iter().map(|v| (v - 4.0) * (v - 4.0)).sum::<f64>() / 4.0;
        assert_eq!(estimate.value, 4.0);
        assert!((estimate.standard_error - (variance / 5.0).sqrt()).abs() < 1e-12);
    }
}

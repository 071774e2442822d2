/// Cards from which the fastest and the slowest are dropped: with fewer, nothing would be left to compare.
const DROPPED_FROM: usize = 4;

/// (slowest - fastest) / fastest of the same call on several cards, the slowest and the fastest card dropped where there are at
/// least four; `None` for fewer than two cards.
pub fn runtime_spread(times: &[f64]) -> Option<f64> {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    let kept = if sorted.len() >= DROPPED_FROM { &sorted[1..sorted.len() - 1] } else { &sorted };
    match kept {
        [fastest, .., slowest] if *fastest > 0.0 => Some((slowest - fastest) / fastest),
        _ => None,
    }
}

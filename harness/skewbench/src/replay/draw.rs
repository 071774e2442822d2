use std::ops::Range;

/// Waves that a system must have at least, or all that there are: long windows take a card longer.
pub fn least_waves(window_tokens: u32) -> u32 {
    if window_tokens < 1 << 19 { 8 } else { 2 }
}

/// All waves of some steps in an order of which every beginning is spread evenly over both steps and waves of a step: systems
/// that sort sequences into waves have unlike waves. `waves` is the number of a step's waves.
pub fn draw_order(steps: Range<u32>, waves: impl Fn(u32) -> u32) -> Vec<(u32, u32)> {
    let most = steps.clone().map(&waves).max().unwrap_or(0);
    let by_step = spread(steps.end.saturating_sub(steps.start), 0);
    // From the quarter, so that two waves are the middles of both halves.
    let by_wave = spread(most, most / 4);
    let mut order = Vec::new();
    for round in 0..by_step.len() {
        for (place, wave) in by_wave.iter().enumerate() {
            let shift = place * by_step.len() / by_wave.len();
            let step = steps.start + by_step[(round + shift) % by_step.len()];
            if *wave < waves(step) {
                order.push((step, *wave));
            }
        }
    }
    order
}

/// The numbers below `n` in the order of their reversed bits, moved on by `start`.
fn spread(n: u32, start: u32) -> Vec<u32> {
    let bits = n.max(1).next_power_of_two().trailing_zeros();
    let reversed = |i: u32| if bits == 0 { 0 } else { i.reverse_bits() >> (32 - bits) };
    (0..1u32 << bits).map(reversed).filter(|i| *i < n).map(|i| (i + start) % n).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{draw_order, spread};

    #[test]
    fn every_wave_comes_once_and_beginnings_are_even() {
        let order = draw_order(0..20, |_| 8);
        assert_eq!(order.len(), 160);
        assert_eq!(order.iter().collect::<BTreeSet<_>>().len(), 160);
        let steps: BTreeSet<u32> = order[..8].iter().map(|o| o.0).collect();
        let waves: BTreeSet<u32> = order[..8].iter().map(|o| o.1).collect();
        assert_eq!((steps.len(), waves.len()), (8, 8));
        assert_eq!(order[..2].iter().map(|o| o.1).collect::<Vec<_>>(), [2, 6]);
    }

    #[test]
    fn steps_may_have_unlike_numbers_of_waves() {
        let order = draw_order(5..7, |step| if step == 5 { 1 } else { 3 });
        assert_eq!(order.into_iter().collect::<BTreeSet<_>>(), [(5, 0), (6, 0), (6, 1), (6, 2)].into());
        assert_eq!(draw_order(3..3, |_| 8), []);
        assert_eq!(spread(1, 0), [0]);
        assert_eq!(spread(5, 0).len(), 5);
    }
}

use super::Prices;

/// A cell that asks for time of the card.
pub struct Wanted {
    /// Cells that are compared with each other have the same.
    pub group: usize,
    /// Numbers of the launches of the fewest waves that it needs.
    pub launches: Vec<usize>,
}

/// Which cells are timed where a budget is too small for all, beside launches that are timed in any case: of every group in
/// turn the one that takes least alone, where it still fits. Launches that several cells need count once.
pub fn select(wanted: &[Wanted], fixed: &[usize], prices: &Prices, budget_s: f64) -> Vec<bool> {
    let alone: Vec<f64> = wanted.iter().map(|w| prices.seconds(w.launches.iter().copied()).seconds).collect();
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|a, b| alone[*a].total_cmp(&alone[*b]));
    // Groups take turns: the place in its group comes before the group.
    let mut taken: Vec<usize> = Vec::new();
    let mut turns: Vec<(usize, usize, usize)> = Vec::new();
    for number in order {
        let group = wanted[number].group;
        taken.resize(taken.len().max(group + 1), 0);
        turns.push((taken[group], group, number));
        taken[group] += 1;
    }
    turns.sort_unstable();
    let mut chosen = vec![false; wanted.len()];
    let mut launches: Vec<usize> = fixed.to_vec();
    for (.., number) in turns {
        let before = launches.len();
        launches.extend(&wanted[number].launches);
        chosen[number] = prices.seconds(launches.iter().copied()).seconds <= budget_s;
        if !chosen[number] {
            launches.truncate(before);
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use skewbench_plan::{LaunchShape, Mask, Pass, TileShape};
    use skewbench_sim::{Pricing, Profile};

    use super::*;
    use crate::replay::Shape;

    #[test]
    fn groups_take_turns_and_shared_launches_count_once() {
        let pricing = Pricing::new(Profile::named("h200").expect("a profile"));
        let mut prices = Prices::default();
        let mut add = |rows: u32| {
            let tiles = [TileShape { q: rows, k: rows }];
            let launch = LaunchShape {
                pass: Pass::Forward,
                mask: Mask::Causal,
                q_heads: 16,
                kv_heads: 16,
                head_dim: 128,
                tiles: &tiles,
            };
            prices.add(Shape::new(&launch).expect("a launch"), &pricing)
        };
        let (small, middle, large) = (add(1024), add(2048), add(131_072));
        let wanted = |group: usize, launches: &[usize]| Wanted { group, launches: launches.to_vec() };
        let all = [
            wanted(0, &[large]),
            wanted(0, &[small]),
            wanted(1, &[small, middle]),
            // Not in the budget alone, and free once the others are timed.
            wanted(1, &[middle, small, middle]),
        ];
        let budget = prices.seconds([small, middle]).seconds;
        assert_eq!(select(&all, &[], &prices, budget), [false, true, true, true]);
        assert_eq!(select(&all, &[], &prices, 1e9), [true; 4]);
        assert_eq!(select(&all, &[], &prices, 0.0), [false; 4]);
        assert_eq!(select(&all, &[large], &prices, budget), [false; 4]);
    }
}

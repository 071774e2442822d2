use skewbench_plan::PackedSequence;

/// Packed sequences of every micro-batch, in order: two of equal count (one more where odd), by greedy on the sum of squared
/// lengths: heaviest first, each to the lighter one that has a place. One when there is nothing to cut.
pub(super) fn halves(sequences: &[&PackedSequence], ping_pong: bool) -> Vec<Vec<u32>> {
    let count = sequences.len();
    if !ping_pong || count < 2 {
        return vec![(0..count as u32).collect()];
    }
    let work: Vec<u128> = sequences.iter().map(|s| s.l_squared()).collect();
    let mut order: Vec<u32> = (0..count as u32).collect();
    order.sort_by_key(|&seq| std::cmp::Reverse(work[seq as usize]));
    let places = count.div_ceil(2);
    let mut sides: [(u128, Vec<u32>); 2] = Default::default();
    for seq in order {
        let [ping, pong] = &sides;
        let to_pong = ping.1.len() == places || (pong.1.len() < places && pong.0 < ping.0);
        let side = &mut sides[usize::from(to_pong)];
        side.0 += work[seq as usize];
        side.1.push(seq);
    }
    sides
        .into_iter()
        .map(|(_, mut side)| {
            side.sort_unstable();
            side
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_have_equal_counts_and_like_work() {
        let sequences = [[9], [1], [8], [2], [2]].map(PackedSequence::new);
        let sequences: Vec<&PackedSequence> = sequences.iter().collect();
        assert_eq!(halves(&sequences, true), [vec![0, 1], vec![2, 3, 4]]);
        assert_eq!(halves(&sequences[..2], true), [vec![0], vec![1]]);
        assert_eq!(halves(&sequences[..1], true), [vec![0]]);
        assert_eq!(halves(&sequences, false), [vec![0, 1, 2, 3, 4]]);
    }
}

/// Times of one pipeline over one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PipelineTimes {
    /// End of the last backward.
    pub makespan_ps: u64,
    /// Work of every stage.
    pub busy_ps: Vec<u64>,
}

impl PipelineTimes {
    /// Share of all stages' time in which they wait.
    pub fn bubble_share(&self) -> f64 {
        let all = self.makespan_ps as f64 * self.busy_ps.len() as f64;
        if all == 0.0 { 0.0 } else { 1.0 - self.busy_ps.iter().map(|ps| *ps as f64).sum::<f64>() / all }
    }
}

/// Simulates the 1F1B schedule: stage s of p runs p - s - 1 forwards, then alternates, then drains.
///
/// `forward[stage][micro_batch]` and `backward[stage][micro_batch]` in picoseconds, all rows of one length; `hop_ps` passes activations or
/// gradients to the neighbour.
pub fn one_f_one_b(forward: &[Vec<u64>], backward: &[Vec<u64>], hop_ps: u64) -> PipelineTimes {
    let stages = forward.len().min(backward.len());
    let batches = forward.iter().chain(backward).map(Vec::len).min().unwrap_or(0);
    let mut forward_end = vec![vec![None; batches]; stages];
    let mut backward_end: Vec<Vec<Option<u64>>> = vec![vec![None; batches]; stages];
    let mut clock = vec![0u64; stages];
    // Position in each stage's order of 2 x batches operations.
    let mut position = vec![0usize; stages];
    // A stage advances until it needs a neighbour's result; that result wakes it.
    let mut awake: Vec<usize> = (0..stages).rev().collect();
    while let Some(stage) = awake.pop() {
        let before = position[stage];
        while position[stage] < 2 * batches {
            let (is_forward, batch) = operation(position[stage], stages - stage - 1, batches);
            let input = if is_forward {
                stage.checked_sub(1).map_or(Some(0), |previous| forward_end[previous][batch])
            } else if stage + 1 == stages {
                forward_end[stage][batch]
            } else {
                backward_end[stage + 1][batch]
            };
            let Some(input) = input else { break };
            let local = if is_forward { stage == 0 } else { stage + 1 == stages };
            let arrives = if local { input } else { input.saturating_add(hop_ps) };
            let work = if is_forward { forward[stage][batch] } else { backward[stage][batch] };
            clock[stage] = clock[stage].max(arrives).saturating_add(work);
            let ends = if is_forward { &mut forward_end } else { &mut backward_end };
            ends[stage][batch] = Some(clock[stage]);
            position[stage] += 1;
        }
        if position[stage] > before {
            awake.extend(stage.checked_sub(1));
            awake.extend((stage + 1 < stages).then_some(stage + 1));
        }
    }
    let busy_ps = (0..stages)
        .map(|stage| {
            forward[stage][..batches].iter().chain(&backward[stage][..batches]).fold(0u64, |a, b| a.saturating_add(*b))
        })
        .collect();
    PipelineTimes { makespan_ps: clock.into_iter().max().unwrap_or(0), busy_ps }
}

/// Whether operation `position` of a stage is a forward, and of which micro-batch.
fn operation(position: usize, later_stages: usize, batches: usize) -> (bool, usize) {
    let warm_up = later_stages.min(batches);
    if position < warm_up {
        return (true, position);
    }
    let steady = 2 * (batches - warm_up);
    let after = position - warm_up;
    if after >= steady {
        return (false, position - batches);
    }
    if after.is_multiple_of(2) { (true, warm_up + after / 2) } else { (false, after / 2) }
}

#[cfg(test)]
mod tests {
    use super::{one_f_one_b, operation};

    #[test]
    fn equal_micro_batches_give_the_known_bubble() {
        for (stages, batches) in [(1, 1), (1, 5), (4, 8), (8, 8), (4, 2), (3, 100)] {
            let forward = vec![vec![10; batches]; stages];
            let backward = vec![vec![20; batches]; stages];
            let times = one_f_one_b(&forward, &backward, 0);
            assert_eq!(
                times.makespan_ps,
                30 * (batches + stages - 1) as u64,
                "{stages} stages, {batches} micro-batches"
            );
            let bubble = (stages - 1) as f64 / (batches + stages - 1) as f64;
            assert!((times.bubble_share() - bubble).abs() < 1e-12);
        }
    }

    #[test]
    fn every_operation_appears_once() {
        for (later, batches) in [(0, 3), (2, 5), (7, 4)] {
            let mut seen: Vec<(bool, usize)> = (0..2 * batches).map(|i| operation(i, later, batches)).collect();
            seen.sort_unstable();
            let expected: Vec<(bool, usize)> =
                [false, true].into_iter().flat_map(|f| (0..batches).map(move |b| (f, b))).collect();
            assert_eq!(seen, expected, "{later} later stages, {batches} micro-batches");
        }
    }

    #[test]
    fn one_slow_micro_batch_holds_every_stage() {
        let mut forward = vec![vec![10; 4]; 2];
        let backward = vec![vec![20; 4]; 2];
        forward[0][2] = 100;
        let slow = one_f_one_b(&forward, &backward, 0).makespan_ps;
        // Stage 0: F0 F1 B0 F2 B1 ...; its slow forward delays the later stage's third forward, too.
        assert_eq!(slow, 240);
        assert!(one_f_one_b(&forward, &backward, 7).makespan_ps > slow);
        assert_eq!(one_f_one_b(&[], &[], 0).makespan_ps, 0);
    }
}

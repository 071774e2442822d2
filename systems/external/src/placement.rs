use std::sync::Arc;

use skewbench_plan::{PlaceContext, PlacedStep, Placement, Placer, Step, SystemError, Wave};

use crate::error::Cause;
use crate::protocol::{Request, line};
use crate::session::{PLACE, Session};

/// A placement that asks a program, for every step on its own.
pub(crate) struct ExternalPlacement {
    pub(crate) session: Arc<Session>,
}

impl Placement for ExternalPlacement {
    fn name(&self) -> &str {
        &self.session.external().name
    }

    fn pooled(&self) -> bool {
        true
    }

    fn placer(&self) -> Box<dyn Placer + '_> {
        Box::new(ExternalPlacer(&self.session))
    }
}

struct ExternalPlacer<'a>(&'a Session);

impl Placer for ExternalPlacer<'_> {
    fn place(&mut self, step: &Step, context: &PlaceContext<'_>) -> Result<PlacedStep, SystemError> {
        let pools = context.pools();
        let question = |id| {
            line(&Request::Place {
                id,
                seed: context.seed,
                step: step.index,
                window: step.window,
                sequences: &step.sequences,
                layout: context.layout,
                pools: pools.iter().map(|pool| [pool.start, pool.end]).collect(),
                shape: context.shape,
                options: &self.0.options,
            })
        };
        let answer = |response: crate::protocol::Response| {
            let waves = response.waves.ok_or_else(|| Cause::Contract("answered place without waves".to_owned()))?;
            accept(waves, step.sequences.len(), context.layout.dp).map_err(Cause::Contract)
        };
        let waves = self.0.ask(PLACE, question, answer)?;
        Ok(PlacedStep {
            sequences: step.sequences.clone(),
            waves,
            pools,
            preserved: true,
            late: Vec::new(),
            delayed_tokens: 0,
        })
    }
}

/// Every sequence once, one a data-parallel rank in every wave.
pub(crate) fn accept(waves: Vec<Vec<u32>>, sequences: usize, dp: u32) -> Result<Vec<Wave>, String> {
    let mut seen = vec![false; sequences];
    for (number, wave) in waves.iter().enumerate() {
        if wave.len() != dp as usize {
            return Err(format!("placed {} sequences in wave {number}; dp is {dp}", wave.len()));
        }
        for sequence in wave {
            match seen.get_mut(*sequence as usize) {
                None => {
                    return Err(format!(
                        "placed sequence {sequence} in wave {number}; the step has sequences 0 to {}",
                        sequences.saturating_sub(1)
                    ));
                }
                Some(true) => {
                    return Err(format!("placed sequence {sequence} twice, the second time in wave {number}"));
                }
                Some(slot) => *slot = true,
            }
        }
    }
    match seen.iter().position(|seen| !seen) {
        Some(sequence) => Err(format!("did not place sequence {sequence}")),
        None => Ok(waves.into_iter().map(|sequences| Wave { sequences }).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::accept;

    #[test]
    fn every_sequence_has_one_place() {
        assert_eq!(accept(vec![vec![2, 0], vec![1, 3]], 4, 2).map(|w| w.len()), Ok(2));
        for (waves, part) in [
            (vec![vec![0, 1]], "did not place sequence 2"),
            (vec![vec![0, 1], vec![2]], "1 sequences in wave 1; dp is 2"),
            (vec![vec![0, 1], vec![1, 2]], "sequence 1 twice"),
            (vec![vec![0, 1], vec![2, 4_000_000_000]], "sequences 0 to 3"),
            (vec![], "did not place sequence 0"),
        ] {
            let message = accept(waves, 4, 2).expect_err("a wrong placement");
            assert!(message.contains(part), "{message}");
        }
    }
}

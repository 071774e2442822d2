use std::collections::BTreeMap;

use skewbench_plan::Pass;

use super::{Placed, Validation};

/// How much faster than another system one runs a step, predicted and measured: both passes, the slowest rank of every wave.
#[derive(Clone, Debug, PartialEq)]
pub struct Speedup {
    /// System.
    pub system: String,
    /// Workload, heads and transport.
    pub workload: String,
    /// Layout.
    pub layout: String,
    /// By the simulator.
    pub predicted: f64,
    /// On cards, medians of the repeats.
    pub measured: f64,
}

impl Speedup {
    /// True when the simulator sends the reader to the system that is faster on cards.
    pub fn agrees(&self) -> bool {
        (self.predicted >= 1.0) == (self.measured >= 1.0)
    }
}

/// Predicted and measured nanoseconds of a step, by pass and wave.
type Step = BTreeMap<(Pass, u32), [f64; 2]>;

impl Validation {
    /// Speedups over a system wherever both ran the same passes and as many waves, in the order of settings and systems.
    pub fn speedups(&self, baseline: &str) -> Vec<Speedup> {
        let mut settings: BTreeMap<(&str, &str, &str), BTreeMap<&str, Step>> = BTreeMap::new();
        for wave in &self.waves {
            let Placed { source, system, workload, layout, pass, wave: number, .. } = wave;
            let systems = settings.entry((workload, layout, source)).or_default();
            let time = [wave.predicted_ns, wave.measured_ns_median];
            systems.entry(system).or_default().insert((*pass, *number), time);
        }
        let sum = |step: &Step| step.values().fold([0.0; 2], |[a, b], [p, m]| [a + p, b + m]);
        let mut speedups = Vec::new();
        for ((workload, layout, _), systems) in &settings {
            let Some(base) = systems.get(baseline) else { continue };
            for (system, step) in systems.iter().filter(|(system, _)| **system != baseline) {
                if !step.keys().eq(base.keys())
                    || ![Pass::Forward, Pass::Backward].iter().all(|p| step.keys().any(|k| k.0 == *p))
                {
                    continue;
                }
                let ([predicted, measured], [base_predicted, base_measured]) = (sum(step), sum(base));
                speedups.push(Speedup {
                    system: (*system).to_owned(),
                    workload: (*workload).to_owned(),
                    layout: (*layout).to_owned(),
                    predicted: base_predicted / predicted,
                    measured: base_measured / measured,
                });
            }
        }
        speedups
    }
}

#[cfg(test)]
mod tests {
    use crate::shipped::validation_of;

    #[test]
    fn speedups_are_ratios_of_whole_steps() {
        let mut validation = validation_of("h200").unwrap().unwrap();
        let template = validation.waves[0].clone();
        let wave = |system: &str, pass, wave, predicted_ns, measured_ns_median| super::Placed {
            system: system.into(),
            pass,
            wave,
            predicted_ns,
            measured_ns_median,
            ..template.clone()
        };
        use skewbench_plan::Pass::{Backward, Forward};
        validation.waves = vec![
            wave("base", Forward, 0, 10.0, 11.0),
            wave("base", Backward, 0, 20.0, 19.0),
            wave("other", Forward, 0, 5.0, 20.0),
            wave("other", Backward, 0, 10.0, 20.0),
            wave("half", Forward, 0, 5.0, 5.0),
        ];
        let [one] = validation.speedups("base").try_into().unwrap();
        assert_eq!((one.system.as_str(), one.predicted, one.measured, one.agrees()), ("other", 2.0, 0.75, false));
        assert!(validation.speedups("none").is_empty());
    }
}

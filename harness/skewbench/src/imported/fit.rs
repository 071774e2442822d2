use skewbench_store::stats::{Bootstrap, mean, quantile};

use super::TimedPass;
use crate::metrics::Estimated;

/// Rounds in which factors and speeds are fitted in turn, at most.
const ROUNDS: usize = 100;
/// Change of a speed that ends them.
const SETTLED: f64 = 1e-10;
/// Resamples of waves for intervals.
const RESAMPLES: usize = 400;
/// Waves below which there are no intervals.
const MIN_WAVES: usize = 5;
/// Relative spread (squared) of what is predicted below which a constant cannot be told from a factor.
const TELLING: f64 = 1e-4;

/// One measured time beside what is predicted of it, nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Observation {
    /// Position of the wave.
    pub wave: usize,
    /// Rank.
    pub rank: usize,
    /// Pass.
    pub pass: TimedPass,
    /// Measured.
    pub measured: f64,
    /// Predicted time of the rank's attention kernels.
    pub kernels: f64,
    /// All else that is predicted: waiting for transfers, token-wise work.
    pub rest: f64,
    /// Predicted kernel calls.
    pub launches: f64,
}

impl Observation {
    /// What the profile predicts.
    pub fn predicted(&self) -> f64 {
        self.kernels + self.rest
    }
}

/// What makes predictions fit: measured = constant + factor x speed of the rank x kernels + rest.
#[derive(Clone, Debug, PartialEq)]
pub struct Fit {
    /// By pass.
    pub passes: Vec<PassFit>,
    /// Time factor of every rank over the mean rank; empty of one rank.
    pub speeds: Vec<Estimated>,
    /// Standard deviation of the ranks' factors, without what their noise adds to it.
    pub relative_sd: f64,
}

/// What makes predictions of a pass fit.
#[derive(Clone, Debug, PartialEq)]
pub struct PassFit {
    /// Pass.
    pub pass: TimedPass,
    /// Factor on the time of its kernels.
    pub factor: Estimated,
    /// Constant of a wave, nanoseconds; none where what is predicted varies too little to tell it from the factor.
    pub constant: Option<Estimated>,
    /// The factor where there is no constant.
    pub alone: Estimated,
}

/// The numbers of a fit.
#[derive(Clone, Debug)]
struct Solved {
    factors: Vec<f64>,
    constants: Vec<f64>,
    speeds: Vec<f64>,
}

/// Fits by least squares of relative errors, with intervals over waves.
///
/// # Errors
/// When the times do not grow with what is predicted.
pub fn fit(observations: &[Observation], seed: u64) -> Result<Fit, String> {
    let mut passes: Vec<TimedPass> = observations.iter().map(|o| o.pass).collect();
    passes.sort_unstable();
    passes.dedup();
    let ranks = observations.iter().map(|o| o.rank + 1).max().unwrap_or(0);
    let waves = observations.iter().map(|o| o.wave + 1).max().unwrap_or(0);
    let telling: Vec<bool> = passes.iter().map(|pass| tells_constant(observations, *pass)).collect();
    let once = vec![1.0; waves];
    let by_measured: Vec<f64> = observations.iter().map(|o| o.measured.powi(-2)).collect();
    let first = solve(observations, &by_measured, &once, &passes, &telling, ranks);
    // Errors relative to measured times would favour those that are too short: a second fit takes them relative to the first.
    let fitted = observations.iter().zip(&by_measured);
    let relative: Vec<f64> =
        fitted.map(|(o, w)| Some(first.of(&passes, o).powi(-2)).filter(|w| w.is_finite()).unwrap_or(*w)).collect();
    let solve = |weights: &[f64], telling: &[bool]| solve(observations, &relative, weights, &passes, telling, ranks);
    let none = vec![false; passes.len()];
    let (solved, alone) = (solve(&once, &telling), solve(&once, &none));
    if let Some(factor) = first.factors.iter().chain(&solved.factors).find(|f| !(f.is_finite() && **f > 0.0)) {
        return Err(format!(
            "the times do not grow with what is predicted (factor {factor:.3}); are system, layout, model and what was timed those of the measurement?"
        ));
    }
    let mut drawn: Vec<[Solved; 2]> = Vec::new();
    if waves >= MIN_WAVES {
        let bootstrap = Bootstrap { resamples: RESAMPLES, ..Bootstrap::new(seed, "imported times") };
        // One draw of waves serves all numbers, which are fitted together.
        let all = bootstrap.run(waves, |indices| {
            let mut weights = vec![0.0; waves];
            indices.iter().for_each(|i| weights[*i as usize] += 1.0);
            drawn.push([solve(&weights, &telling), solve(&weights, &none)]);
            0.0
        });
        all.map_err(|e| e.to_string())?;
    }
    let estimate = |value: f64, of: &dyn Fn(&[Solved; 2]) -> f64| {
        let values: Vec<f64> = drawn.iter().map(of).collect();
        let interval = (!values.is_empty()).then(|| (quantile(&values, 0.025), quantile(&values, 0.975)));
        Estimated { value, interval, n: waves as u64 }
    };
    let by_pass = passes.iter().enumerate().map(|(i, pass)| PassFit {
        pass: *pass,
        factor: estimate(solved.factors[i], &|s| s[0].factors[i]),
        constant: telling[i].then(|| estimate(solved.constants[i], &|s| s[0].constants[i])),
        alone: estimate(alone.factors[i], &|s| s[1].factors[i]),
    });
    let by_pass = by_pass.collect();
    let speeds: Vec<Estimated> = (0..ranks).map(|r| estimate(solved.speeds[r], &|s| s[0].speeds[r])).collect();
    let noise = (0..ranks).map(|r| variance(&drawn.iter().map(|s| s[0].speeds[r]).collect::<Vec<_>>()));
    let noise: Vec<f64> = noise.collect();
    let spread = variance(&solved.speeds) - if noise.is_empty() { 0.0 } else { mean(&noise) };
    Ok(Fit {
        passes: by_pass,
        speeds: if ranks > 1 { speeds } else { Vec::new() },
        relative_sd: spread.max(0.0).sqrt(),
    })
}

/// Variance with n - 1; 0 of fewer than two values.
fn variance(values: &[f64]) -> f64 {
    if values.len() < 2 {
        return 0.0;
    }
    let centre = mean(values);
    values.iter().map(|v| (v - centre) * (v - centre)).sum::<f64>() / (values.len() - 1) as f64
}

/// Sums of a weighted regression of y on x.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    w: f64,
    x: f64,
    y: f64,
    xx: f64,
    xy: f64,
}

impl Sums {
    fn add(&mut self, w: f64, x: f64, y: f64) {
        self.w += w;
        self.x += w * x;
        self.y += w * y;
        self.xx += w * x * x;
        self.xy += w * x * y;
    }

    /// Relative spread of x, squared.
    fn spread(&self) -> f64 {
        let determinant = self.w * self.xx - self.x * self.x;
        if self.xx > 0.0 { determinant / (self.w * self.xx) } else { 0.0 }
    }
}

fn tells_constant(observations: &[Observation], pass: TimedPass) -> bool {
    let mut sums = Sums::default();
    let of_pass = observations.iter().filter(|o| o.pass == pass);
    of_pass.for_each(|o| sums.add(o.measured.powi(-2), o.kernels, o.measured));
    sums.spread() > TELLING
}

/// Least squares where every observation counts by its own weight and that of its wave.
fn solve(
    observations: &[Observation],
    relative: &[f64],
    weights: &[f64],
    passes: &[TimedPass],
    telling: &[bool],
    ranks: usize,
) -> Solved {
    let pass_of = |o: &Observation| passes.iter().position(|p| *p == o.pass).unwrap_or(0);
    let rows: Vec<(usize, usize, f64, f64, f64)> = observations
        .iter()
        .zip(relative)
        .filter(|(o, _)| weights[o.wave] > 0.0)
        .map(|(o, relative)| (pass_of(o), o.rank, weights[o.wave] * relative, o.kernels, o.measured - o.rest))
        .collect();
    let mut s =
        Solved { factors: vec![1.0; passes.len()], constants: vec![0.0; passes.len()], speeds: vec![1.0; ranks] };
    for _ in 0..ROUNDS {
        let mut sums = vec![Sums::default(); passes.len()];
        for (pass, rank, w, kernels, y) in &rows {
            sums[*pass].add(*w, kernels * s.speeds[*rank], *y);
        }
        for (i, sums) in sums.iter().enumerate() {
            if telling[i] && sums.spread() > TELLING {
                let determinant = sums.w * sums.xx - sums.x * sums.x;
                s.factors[i] = (sums.w * sums.xy - sums.x * sums.y) / determinant;
                s.constants[i] = (sums.y - s.factors[i] * sums.x) / sums.w;
            } else {
                s.factors[i] = sums.xy / sums.xx;
                s.constants[i] = 0.0;
            }
        }
        if ranks < 2 {
            break;
        }
        let mut of_rank = vec![Sums::default(); ranks];
        for (pass, rank, w, kernels, y) in &rows {
            of_rank[*rank].add(*w, kernels * s.factors[*pass], y - s.constants[*pass]);
        }
        // A rank without kernels has no speed of its own.
        let raw: Vec<f64> = of_rank.iter().map(|r| if r.xx > 0.0 { r.xy / r.xx } else { 1.0 }).collect();
        let centre = mean(&raw);
        let next: Vec<f64> = raw.iter().map(|v| v / centre).collect();
        let change = next.iter().zip(&s.speeds).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        s.speeds = next;
        s.factors.iter_mut().for_each(|factor| *factor *= centre);
        if change < SETTLED {
            break;
        }
    }
    s
}

impl Solved {
    /// What these numbers say of an observation, nanoseconds.
    fn of(&self, passes: &[TimedPass], o: &Observation) -> f64 {
        let pass = passes.iter().position(|p| *p == o.pass).unwrap_or(0);
        self.constants[pass] + self.factors[pass] * self.speeds[o.rank] * o.kernels + o.rest
    }
}

impl Fit {
    /// What the fit says of an observation, nanoseconds.
    pub fn of(&self, o: &Observation) -> f64 {
        let found = self.passes.iter().find(|fit| fit.pass == o.pass);
        let (factor, constant) =
            found.map_or((1.0, 0.0), |fit| (fit.factor.value, fit.constant.map_or(0.0, |c| c.value)));
        constant + factor * self.speeds.get(o.rank).map_or(1.0, |s| s.value) * o.kernels + o.rest
    }
}

#[cfg(test)]
mod tests {
    use rand::RngExt;
    use skewbench_store::stats::stream;

    use super::*;

    const SPEEDS: [f64; 4] = [0.95, 1.0, 1.02, 1.03];

    /// Times of which everything is known: factor 1.2, a constant of 4 us, and cards that differ.
    fn known(waves: usize, noise: f64, seed: u64) -> Vec<Observation> {
        let mut random = stream(seed, "test");
        let mut all = Vec::new();
        for wave in 0..waves {
            for (rank, speed) in SPEEDS.iter().enumerate() {
                let kernels = 10_000.0 + 90_000.0 * random.random::<f64>();
                let error = 1.0 + noise * (2.0 * random.random::<f64>() - 1.0);
                let measured = (4000.0 + 1.2 * speed * kernels + 500.0) * error;
                all.push(Observation {
                    wave,
                    rank,
                    pass: TimedPass::Both,
                    measured,
                    kernels,
                    rest: 500.0,
                    launches: 2.0,
                });
            }
        }
        all
    }

    fn near(a: f64, b: f64, within: f64) {
        assert!((a - b).abs() < within, "{a} {b}");
    }

    #[test]
    fn exact_times_give_back_what_made_them() {
        let fit = fit(&known(20, 0.0, 3), 1).unwrap();
        let PassFit { pass, factor, constant, alone } = &fit.passes[0];
        assert_eq!(*pass, TimedPass::Both);
        // Without the constant the factor takes its share.
        assert!(alone.value > factor.value + 0.01, "{alone:?}");
        near(factor.value, 1.2, 1e-6);
        near(constant.unwrap().value, 4000.0, 0.1);
        fit.speeds.iter().zip(SPEEDS).for_each(|(ours, theirs)| near(ours.value, theirs, 1e-6));
        near(fit.relative_sd, variance(&SPEEDS).sqrt(), 1e-6);
        known(20, 0.0, 3).iter().for_each(|o| near(fit.of(o) / o.measured, 1.0, 1e-6));
    }

    #[test]
    fn intervals_hold_the_truth_as_often_as_they_say() {
        let (mut held, mut all, mut factors) = (0, 0, 0.0);
        for seed in 0..20 {
            let fit = fit(&known(100, 0.05, seed), 1).unwrap();
            factors += fit.passes[0].factor.value / 20.0;
            near(fit.relative_sd, variance(&SPEEDS).sqrt(), 0.01);
            let numbers = [(&fit.passes[0].factor, 1.2), (fit.passes[0].constant.as_ref().unwrap(), 4000.0)];
            for (e, truth) in numbers.into_iter().chain(fit.speeds.iter().zip(SPEEDS)) {
                let (low, high) = e.interval.unwrap();
                assert!(high - low < 0.6 * truth, "{e:?} {truth}");
                held += u32::from(low <= truth && truth <= high);
                all += 1;
            }
        }
        // 95 of 100 in the long run.
        assert!((105..=120).contains(&held) && all == 120, "{held} of {all}");
        near(factors, 1.2, 0.002);
    }

    #[test]
    fn what_cannot_be_told_is_left_out() {
        let same: Vec<Observation> =
            known(9, 0.0, 3).into_iter().map(|o| Observation { kernels: 50_000.0, measured: 60_000.0, ..o }).collect();
        let fitted = fit(&same, 1).unwrap();
        assert_eq!(fitted.passes[0].constant, None);
        near(fitted.passes[0].factor.value, (60_000.0 - 500.0) / 50_000.0, 1e-9);
        assert_eq!(fitted.relative_sd, 0.0);
        let few = fit(&known(4, 0.0, 3), 1).unwrap();
        assert!(few.passes[0].factor.interval.is_none() && few.speeds[0].interval.is_none());
        let alone: Vec<Observation> = known(9, 0.0, 3).into_iter().filter(|o| o.rank == 0).collect();
        assert!(fit(&alone, 1).unwrap().speeds.is_empty());
        let falling: Vec<Observation> =
            known(9, 0.0, 3).into_iter().map(|o| Observation { measured: 1e6 / o.kernels, rest: 0.0, ..o }).collect();
        assert!(fit(&falling, 1).unwrap_err().contains("do not grow"));
    }
}

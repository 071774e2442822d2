use std::collections::{BTreeMap, BTreeSet};

use skewbench_plan::Pass;
use skewbench_store::stats::{Bootstrap, median};

use super::published::ranks_of;
use super::{Mode, PeerSample, Sample, pass_name};
use crate::metrics::Estimated;

/// Resamples of an interval.
const RESAMPLES: usize = 1000;
/// Seed of all intervals: what ships gives the same page everywhere.
const SEED: u64 = 1;
/// Elements of a head in `scripts/peers`.
const PEER_HEAD_DIM: u32 = 128;
/// The peer that sends nothing.
const KERNEL_ALONE: &str = "kernel-alone";

/// What is computed, and on which ranks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Case {
    /// As [`Sample::case`].
    pub name: String,
    /// Tokens of a wave.
    pub tokens: u64,
    /// Query heads.
    pub q_heads: u32,
    /// KV heads.
    pub kv_heads: u32,
    /// Elements of a head.
    pub head_dim: u32,
    /// Layout in text.
    pub layout: String,
}

impl Case {
    /// The case in few words.
    pub fn title(&self) -> String {
        let tokens =
            if self.tokens.is_multiple_of(1024) { format!("{}K", self.tokens / 1024) } else { self.tokens.to_string() };
        format!("{} {tokens}, {}:{}, {}", self.name, self.q_heads, self.kv_heads, self.layout.replace(',', " "))
    }

    /// Ranks, each on a card of its own.
    pub fn ranks(&self) -> u32 {
        ranks_of(&self.layout).unwrap_or(1)
    }
}

/// What a system took for a case.
#[derive(Clone, Debug, PartialEq)]
pub struct Times {
    /// The case.
    pub case: Case,
    /// System.
    pub system: String,
    /// Transport.
    pub transport: String,
    /// Passes and waves.
    pub waves: Vec<WaveTimes>,
}

/// What a pass of a wave took.
#[derive(Clone, Debug, PartialEq)]
pub struct WaveTimes {
    /// Pass.
    pub pass: Pass,
    /// Wave.
    pub wave: u32,
    /// Unmasked pairs of one head.
    pub pairs: u64,
    /// Pieces of heads that the plan overlaps in this wave; 1 where it overlaps none.
    pub pieces: u32,
    /// Time of the slowest rank, nanoseconds, by mode and number of the repetition.
    pub slowest: BTreeMap<Mode, BTreeMap<u32, f64>>,
    /// Median of every rank with everything issued, nanoseconds.
    pub by_rank: Vec<f64>,
}

/// Groups samples, without warm-up, by case, system and transport.
pub fn times_of(samples: &[Sample]) -> Vec<Times> {
    let mut groups: BTreeMap<_, BTreeMap<(u32, Pass), Vec<&Sample>>> = BTreeMap::new();
    for s in samples.iter().filter(|s| !s.warm_up) {
        let case = Case {
            name: s.case.clone(),
            tokens: s.tokens,
            q_heads: s.q_heads,
            kv_heads: s.kv_heads,
            head_dim: s.head_dim,
            layout: s.layout.clone(),
        };
        let key = (case, s.system.clone(), s.transport.clone());
        groups.entry(key).or_default().entry((s.wave, s.pass)).or_default().push(s);
    }
    let of_group = |((case, system, transport), waves): ((Case, String, String), BTreeMap<_, Vec<&Sample>>)| {
        let waves = waves.into_iter().map(|((wave, pass), samples)| wave_times(pass, wave, &samples)).collect();
        Times { case, system, transport, waves }
    };
    groups.into_iter().map(of_group).collect()
}

fn wave_times(pass: Pass, wave: u32, samples: &[&Sample]) -> WaveTimes {
    let mut slowest: BTreeMap<Mode, BTreeMap<u32, f64>> = BTreeMap::new();
    let mut by_rank: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for s in samples {
        let ns = s.ns as f64;
        slowest.entry(s.mode).or_default().entry(s.sample).and_modify(|t| *t = t.max(ns)).or_insert(ns);
        if s.mode == Mode::All {
            by_rank.entry(s.rank).or_default().push(ns);
        }
    }
    WaveTimes {
        pass,
        wave,
        pairs: samples.first().map_or(0, |s| s.pairs),
        pieces: samples.first().map_or(1, |s| s.pieces),
        slowest,
        by_rank: by_rank.values().map(|times| median(times)).collect(),
    }
}

/// Least share of transfers in computation at which a hidden share can be told: clocks under load differ by as much.
const TELLING: f64 = 0.1;

impl WaveTimes {
    /// Times of the slowest rank in a mode.
    fn of(&self, mode: Mode) -> Option<Vec<f64>> {
        Some(self.slowest.get(&mode)?.values().copied().collect())
    }

    /// Times in several modes of the repetitions that have them all: those were measured side by side.
    fn side_by_side<const N: usize>(&self, modes: [Mode; N]) -> Option<[Vec<f64>; N]> {
        let all = modes.iter().map(|mode| self.slowest.get(mode)).collect::<Option<Vec<_>>>()?;
        let shared = all.first()?.keys().filter(|n| all.iter().all(|times| times.contains_key(*n)));
        let mut columns = [const { Vec::new() }; N];
        for number in shared {
            columns.iter_mut().zip(&all).for_each(|(column, times)| column.push(times[number]));
        }
        columns.first().is_some_and(|column| !column.is_empty()).then_some(columns)
    }

    /// Median time of the slowest rank, nanoseconds.
    pub fn time(&self) -> Option<Estimated> {
        paired("published time", &[&self.of(Mode::All)?], |m| m[0])
    }

    /// Hidden share of the transfers; none where the plan overlaps nothing, a mode was not measured, or the transfers are so
    /// short beside the computation that what differs between two executions of it would be taken for them.
    pub fn hidden_share(&self) -> Option<Estimated> {
        let [all, compute, transfers] = self.side_by_side([Mode::All, Mode::ComputeOnly, Mode::TransfersOnly])?;
        if self.pieces < 2 || median(&transfers) < TELLING * median(&compute) {
            return None;
        }
        let can = f64::from(self.pieces - 1) / f64::from(self.pieces);
        let columns = [&all[..], &compute[..], &transfers[..]];
        paired("published hidden share", &columns, |m| (m[2] - (m[0] - m[1])) / (can * m[2]))
    }

    /// Time of the bare attention calls over that of the program.
    pub fn of_bare(&self) -> Option<Estimated> {
        let [bare, all] = self.side_by_side([Mode::Bare, Mode::All])?;
        paired("published share of bare calls", &[&bare, &all], |m| m[0] / m[1])
    }

    /// TFLOP/s of a card, from exact pairs.
    pub fn tflop_per_s(&self, case: &Case) -> Option<Estimated> {
        let flops =
            flops(pass_name(self.pass)) * f64::from(case.q_heads) * f64::from(case.head_dim) * self.pairs as f64;
        rate(flops / f64::from(case.ranks()), &self.of(Mode::All)?)
    }

    /// Samples with everything issued.
    pub fn samples(&self) -> Vec<f64> {
        self.of(Mode::All).unwrap_or_default()
    }
}

impl Times {
    /// Waves of which anything was measured.
    pub fn count(&self) -> usize {
        self.waves.iter().map(|w| w.wave).collect::<BTreeSet<_>>().len()
    }

    /// True for one causal document of all tokens, which is what peers compute.
    pub fn is_one_document(&self) -> bool {
        let tokens = u128::from(self.case.tokens);
        !self.waves.is_empty() && self.waves.iter().all(|w| u128::from(w.pairs) == tokens * (tokens + 1) / 2)
    }

    /// Both passes of the slowest wave, in every repetition, nanoseconds; none where a pass is missing. The slowest wave is
    /// taken inside each repetition, so that its median has an interval.
    pub fn worst_wave(&self) -> Option<Vec<f64>> {
        let mut waves: BTreeMap<u32, [Option<Vec<f64>>; 2]> = BTreeMap::new();
        for w in &self.waves {
            waves.entry(w.wave).or_default()[usize::from(w.pass == Pass::Backward)] = w.of(Mode::All);
        }
        let waves: Vec<(Vec<f64>, Vec<f64>)> =
            waves.into_values().map(|[forward, backward]| forward.zip(backward)).collect::<Option<_>>()?;
        let repetitions = waves.iter().map(|(f, b)| f.len().min(b.len())).min()?;
        let at = |i: usize| waves.iter().map(|(f, b)| f[i] + b[i]).fold(0.0, f64::max);
        Some((0..repetitions).map(at).collect())
    }

    /// Median of [`Times::worst_wave`].
    pub fn worst(&self) -> Option<Estimated> {
        paired("published worst wave", &[&self.worst_wave()?], |m| m[0])
    }

    /// The worst wave of another system over ours.
    pub fn worst_against(&self, other: &Self) -> Option<Estimated> {
        let (ours, theirs) = (self.worst_wave()?, other.worst_wave()?);
        paired("published worst wave against", &[&theirs, &ours], |m| m[0] / m[1])
    }
}

/// What a peer took.
#[derive(Clone, Debug, PartialEq)]
pub struct PeerTimes {
    /// The peer.
    pub peer: String,
    /// Pass.
    pub pass: String,
    /// Tokens, or rows of a product.
    pub tokens: u64,
    /// Query heads; 0 for a product.
    pub heads: u32,
    /// KV heads.
    pub kv_heads: u32,
    /// Ranks.
    pub ranks: u32,
    /// Time of the slowest rank in every repetition, nanoseconds.
    pub slowest: Vec<f64>,
}

/// Groups samples of peers.
pub fn times_of_peers(samples: &[PeerSample]) -> Vec<PeerTimes> {
    let mut groups: BTreeMap<_, BTreeMap<u32, f64>> = BTreeMap::new();
    for s in samples {
        let key = (s.tokens, s.heads, s.kv_heads, s.ranks, s.pass.clone(), s.peer.clone());
        let ns = s.ns as f64;
        groups.entry(key).or_default().entry(s.sample).and_modify(|t| *t = t.max(ns)).or_insert(ns);
    }
    groups
        .into_iter()
        .map(|((tokens, heads, kv_heads, ranks, pass, peer), slowest)| PeerTimes {
            peer,
            pass,
            tokens,
            heads,
            kv_heads,
            ranks,
            slowest: slowest.into_values().collect(),
        })
        .collect()
}

impl PeerTimes {
    /// Median time of the slowest rank, nanoseconds.
    pub fn time(&self) -> Option<Estimated> {
        paired("published peer", &[&self.slowest], |m| m[0])
    }

    /// True for a matrix product.
    pub fn is_product(&self) -> bool {
        self.heads == 0
    }

    /// True for attention without an exchange.
    pub fn is_kernel_alone(&self) -> bool {
        self.peer == KERNEL_ALONE
    }

    /// True for attention that exchanges its operands, which a system may be compared with.
    pub fn is_parallel(&self) -> bool {
        !self.is_product() && !self.is_kernel_alone()
    }

    /// True where the peer computes a pass of a case, which must be one document.
    pub fn computes(&self, case: &Case, pass: Pass) -> bool {
        self.pass == pass_name(pass)
            && (self.tokens, self.heads, self.kv_heads, PEER_HEAD_DIM)
                == (case.tokens, case.q_heads, case.kv_heads, case.head_dim)
            && self.ranks == case.ranks()
    }

    /// TFLOP/s of a card, from exact pairs.
    pub fn tflop_per_s(&self) -> Option<Estimated> {
        let n = self.tokens as f64;
        let flops = if self.is_product() {
            2.0 * n * n * n
        } else {
            flops(&self.pass) * f64::from(self.heads) * f64::from(PEER_HEAD_DIM) * n * (n + 1.0) / 2.0
        };
        rate(flops / f64::from(self.ranks), &self.slowest)
    }
}

/// FLOPs of a pair, head and element.
fn flops(pass: &str) -> f64 {
    if pass == "backward" { 10.0 } else { 4.0 }
}

fn rate(flops: f64, ns: &[f64]) -> Option<Estimated> {
    paired("published rate", &[ns], |m| flops / m[0] * 1e-3)
}

/// A function of the medians of several columns, drawn together where they have as many repetitions, apart where they have
/// not; without an interval where one has a single repetition.
fn paired(name: &str, columns: &[&[f64]], of: impl Fn(&[f64]) -> f64) -> Option<Estimated> {
    let n = columns.first()?.len();
    let together = columns.iter().all(|c| c.len() == n);
    estimate(name, columns, together, of)
}

/// Median of one column over that of another that was measured apart from it.
pub fn independent(over: &[f64], under: &[f64]) -> Option<Estimated> {
    estimate("published ratio", &[over, under], false, |m| m[0] / m[1])
}

fn estimate(name: &str, columns: &[&[f64]], together: bool, of: impl Fn(&[f64]) -> f64) -> Option<Estimated> {
    let least = columns.iter().map(|c| c.len()).min().filter(|n| *n > 0)?;
    let medians: Vec<f64> = columns.iter().map(|c| median(c)).collect();
    // Indices below a multiple of a column's length, taken modulo it, are uniform in it: columns that are drawn apart take
    // indices of their own out of one list that is long enough for all.
    let draws = if together { least } else { columns.iter().map(|c| c.len()).product() };
    let interval = (least > 1).then(|| {
        let mut drawn = Vec::new();
        let mut medians = vec![0.0; columns.len()];
        bootstrap(name).run(draws, |indices| {
            let mut from = 0;
            for (m, column) in medians.iter_mut().zip(columns) {
                let own = indices.iter().cycle().skip(from).take(column.len());
                drawn.clear();
                drawn.extend(own.map(|i| column[*i as usize % column.len()]));
                *m = median(&drawn);
                from += if together { 0 } else { column.len() };
            }
            of(&medians)
        })
    });
    let interval = interval.and_then(Result::ok).map(|i| (i.low, i.high));
    Some(Estimated { value: of(&medians), interval, n: least as u64 })
}

fn bootstrap(name: &str) -> Bootstrap<'_> {
    Bootstrap { resamples: RESAMPLES, ..Bootstrap::new(SEED, name) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{Case, Mode, PeerSample, Sample, WaveTimes, independent, times_of, times_of_peers};
    use skewbench_plan::Pass;

    fn sample(pass: Pass, mode: Mode, rank: u32, sample: u32, ns: u64) -> Sample {
        Sample {
            system: "libra".into(),
            case: "dense".into(),
            tokens: 65_536,
            pairs: 65_536 * 65_537 / 2,
            q_heads: 16,
            kv_heads: 16,
            head_dim: 128,
            layout: "dp=1,cp=2".into(),
            pieces: 4,
            transport: "copy_engines".into(),
            pass,
            mode,
            wave: 0,
            rank,
            sample,
            warm_up: false,
            ns,
        }
    }

    #[test]
    fn a_wave_is_its_slowest_rank() {
        let mut samples = Vec::new();
        for i in 0..5 {
            for pass in [Pass::Forward, Pass::Backward] {
                for (mode, ns) in
                    [(Mode::All, 110), (Mode::ComputeOnly, 100), (Mode::TransfersOnly, 40), (Mode::Bare, 99)]
                {
                    samples.push(sample(pass, mode, 0, i, ns - 10));
                    samples.push(sample(pass, mode, 1, i, ns));
                }
            }
        }
        samples.push(Sample { warm_up: true, ..sample(Pass::Forward, Mode::All, 0, 0, 10_000) });
        let times = times_of(&samples);
        assert_eq!(times.len(), 1);
        let wave = &times[0].waves[0];
        assert_eq!(wave.time().unwrap().value, 110.0);
        assert_eq!(wave.by_rank, [100.0, 110.0]);
        // 10 of 40 are exposed and 30 can be hidden: all of them are.
        assert!((wave.hidden_share().unwrap().value - 1.0).abs() < 1e-12);
        assert_eq!(WaveTimes { pieces: 1, ..wave.clone() }.hidden_share(), None);
        let short = BTreeMap::from([(Mode::TransfersOnly, BTreeMap::from([(0, 9.0)]))]);
        let slowest = wave.slowest.clone().into_iter().chain(short).collect();
        assert_eq!(WaveTimes { slowest, ..wave.clone() }.hidden_share(), None);
        assert!((wave.of_bare().unwrap().value - 0.9).abs() < 1e-12);
        assert_eq!(times[0].worst().unwrap().value, 220.0);
        assert_eq!(times[0].worst_against(&times[0]).unwrap().value, 1.0);
        assert_eq!(wave.time().unwrap().interval, Some((110.0, 110.0)));
    }

    #[test]
    fn rates_count_exact_pairs() {
        let times = times_of(&[
            sample(Pass::Forward, Mode::All, 0, 0, 10_000_000),
            sample(Pass::Forward, Mode::All, 1, 0, 10_000_000),
        ]);
        let rate = times[0].waves[0].tflop_per_s(&times[0].case).unwrap();
        let exact = 4.0 * 16.0 * 128.0 * 65_536.0 * 65_537.0 / 2.0 / 2.0 / 0.01 / 1e12;
        assert!((rate.value / exact - 1.0).abs() < 1e-12);
        assert_eq!(rate.interval, None);
        let peer = |peer: &str, pass: &str, heads, ranks, ns| PeerSample {
            peer: peer.into(),
            pass: pass.into(),
            tokens: 65_536,
            heads,
            kv_heads: heads,
            ranks,
            rank: 0,
            sample: 0,
            ns,
            torch: "2.11".into(),
            cudnn: "91900".into(),
            nccl: "2.28.9".into(),
            card: "H200".into(),
        };
        let peers = times_of_peers(&[
            peer("torch-ulysses", "forward", 16, 2, 10_000_000),
            peer("gemm", "product", 0, 1, 1_000_000_000),
        ]);
        let attention = peers.iter().find(|p| !p.is_product()).unwrap();
        assert!((attention.tflop_per_s().unwrap().value / exact - 1.0).abs() < 1e-12);
        assert!(attention.computes(&times[0].case, Pass::Forward) && attention.is_parallel());
        assert!(!attention.computes(&Case { tokens: 1, ..times[0].case.clone() }, Pass::Forward));
        assert!(!attention.computes(&Case { head_dim: 64, ..times[0].case.clone() }, Pass::Forward));
        assert!(times[0].is_one_document());
        let product = peers.iter().find(|p| p.is_product()).unwrap();
        assert!((product.tflop_per_s().unwrap().value - 2.0 * 65_536f64.powi(3) / 1e12).abs() < 1e-9);
    }

    #[test]
    fn independent_ratios_have_intervals_around_them() {
        let (over, under): (Vec<f64>, Vec<f64>) =
            ((0..9).map(|i| 200.0 + f64::from(i)).collect(), (0..7).map(|i| 100.0 + f64::from(i)).collect());
        let ratio = independent(&over, &under).unwrap();
        let (low, high) = ratio.interval.unwrap();
        assert!(low < ratio.value && ratio.value < high && high - low < 0.2, "{ratio:?}");
        assert_eq!(independent(&over, &[]), None);
    }
}

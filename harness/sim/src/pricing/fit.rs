//! Fits the laws of a pass to measured calls.

use skewbench_plan::Pass;

use super::droop::Droop;
use super::law::{BLOCK, Heads, Kind, LONGEST, Law, STEP_ROWS, Totals};
use crate::profile::{Profile, RaggedCall};

/// Ragged over alone where a profile has no ragged rows: the middle of the 5 to 8% first seen on the h200.
const RAGGED: f64 = 1.065;
/// Share of the work of a card's peak that kernels reach, before anything is measured.
const REACHED: f64 = 0.7;

/// A measured call.
#[derive(Clone, Debug)]
struct Row {
    kind: Kind,
    heads: Heads,
    totals: Totals,
    longest: Vec<(u32, u32)>,
    /// Tiles that end last, by what is expected, each with those issued up to its longest block.
    late: Vec<(Totals, (u32, u32))>,
    ns: f64,
}

impl Row {
    fn late(&self, law: &Law) -> f64 {
        self.late.iter().map(|(issued, tile)| law.late(self.kind, self.heads.query, issued, *tile)).fold(0.0, f64::max)
    }
}

/// The laws of a pass and the droop that both share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PassLaws {
    pub(crate) alone: Law,
    pub(crate) ragged: Law,
    pub(crate) droop: Droop,
}

/// Numbers of a law that are fitted.
const N: usize = 14;
/// As logarithms: overhead, block, step, row, key, busy, unaligned, grouped call, tile, grouped tile, what later blocks save, then the kinds'
/// factors of the step.
type Numbers = [f64; N];
const KINDS: usize = 11;
/// How far each may be from what is expected before anything is measured.
const EXPECTED_WITHIN: Numbers = [0.5, 1.0, 0.5, 2.0, 2.0, 1.0, 0.1, 1.0, 2.0, 2.0, 1.0, 0.1, 0.1, 0.1];
/// Farther than this nothing goes.
const LIMIT: f64 = 3.0;
/// Relative error of a row beyond which it counts less: repeats differ by about so much.
const NOISE: f64 = 0.03;

fn law(pass: Pass, alone: bool, multiprocessors: u32, numbers: &Numbers) -> Law {
    let number = |i: usize| libm::exp(numbers[i]);
    let backward = pass == Pass::Backward;
    Law {
        pass,
        multiprocessors: multiprocessors.into(),
        overhead_ns: number(0),
        grouped_ns: if backward { number(7) } else { 0.0 },
        tile_ns: if alone { 0.0 } else { number(8) },
        grouped_tile_ns: if backward && !alone { number(9) } else { 0.0 },
        later: if alone { 1.0 } else { 1.0 - number(10).min(0.5) },
        block_ns: number(1),
        step_ns: std::array::from_fn(|kind| number(2) * number(KINDS + kind)),
        unaligned: if alone { number(6).max(1.0) } else { 1.0 },
        row_ns: if backward { number(3) } else { 0.0 },
        key_ns: if backward { number(4) } else { 0.0 },
        busy: number(5),
    }
}

impl PassLaws {
    /// Fits the laws of a pass to all attention rows of a profile.
    pub(crate) fn fit(profile: &Profile, pass: Pass) -> Self {
        let sms = profile.card.multiprocessors;
        let (alone, ragged): (Vec<Row>, Vec<Row>) =
            rows(profile, pass).into_iter().partition(|row: &Row| row.totals.alone());
        let expected = expected(profile, pass);
        let (mut one, mut many) = (expected, expected);
        let mut droop = Droop::none();
        for _ in 0..3 {
            approach(&mut one, &expected, &alone, &droop, |numbers| law(pass, true, sms, numbers));
            let mut of_ragged = one;
            of_ragged[2] += libm::log(RAGGED);
            approach(&mut many, &of_ragged, &ragged, &droop, |numbers| law(pass, false, sms, numbers));
            let laws = [(law(pass, true, sms, &one), &alone), (law(pass, false, sms, &many), &ragged)];
            let full =
                |(law, rows): &(Law, &Vec<Row>)| rows.iter().filter_map(|row| slower(law, row)).collect::<Vec<_>>();
            droop = Droop::fit(laws.iter().flat_map(full));
        }
        // A call of many tiles, or of tiles of several kinds, is at least as dear as one of less.
        let mut alone = law(pass, true, sms, &one);
        let mut ragged = law(pass, false, sms, &many);
        for law in [&mut alone, &mut ragged] {
            let square = law.step_ns[Kind::Square as usize];
            let bottom_right = &mut law.step_ns[Kind::BottomRight as usize];
            *bottom_right = bottom_right.max(square);
        }
        ragged = ragged.at_least(&alone);
        Self { alone, ragged, droop }
    }
}

/// What the laws are before anything is measured: peak rates, and some reads and writes of rows.
fn expected(profile: &Profile, pass: Pass) -> Numbers {
    let (card, attention) = (&profile.card, &profile.attention);
    let head_dim = f64::from(attention.head_dim);
    let (products, step_length, overhead) = match pass {
        Pass::Forward => (2.0, BLOCK, attention.launch_overhead_ns.forward),
        Pass::Backward => (5.0, STEP_ROWS, attention.launch_overhead_ns.backward),
    };
    let flops = products * 2.0 * f64::from(BLOCK * step_length) * head_dim;
    let step = libm::log(flops / (card.bf16_flops_per_s / f64::from(card.multiprocessors)) / REACHED * 1e9);
    let element = 2.0 * head_dim / card.memory_bandwidth.bytes_per_s() * 1e9;
    let [row, key] = [10.0 * element, 4.0 * element].map(libm::log);
    [
        libm::log(0.6 * overhead),
        step,
        step,
        row,
        key,
        libm::log(0.03),
        0.0,
        libm::log(0.2 * overhead),
        libm::log(50.0),
        libm::log(200.0),
        libm::log(0.02),
        0.0,
        0.0,
        0.0,
    ]
}

/// Length of a row that keeps the card full, and how much slower than without droop it was.
fn slower(law: &Law, row: &Row) -> Option<(f64, f64)> {
    let parts = law.parts(row.kind, row.heads, &row.totals, row.late(law), row.longest.iter().copied());
    let found = parts.fixed + parts.makespan + law.busy * parts.work;
    (parts.work >= 0.8 * parts.makespan).then(|| (parts.makespan, 1.0 + (row.ns - found) / parts.work))
}

/// Steps of Gauss and Newton on the logarithms of times; rows far off count less.
fn approach(numbers: &mut Numbers, expected: &Numbers, rows: &[Row], droop: &Droop, law: impl Fn(&Numbers) -> Law) {
    const STEPS: usize = 4;
    const SMALL: f64 = 0.02;
    for _ in 0..STEPS {
        let mut matrix = [[0.0; N + 1]; N];
        for i in 0..N {
            let weight = (NOISE / EXPECTED_WITHIN[i]) * (NOISE / EXPECTED_WITHIN[i]);
            matrix[i][i] += weight;
            matrix[i][N] += weight * (expected[i] - numbers[i]);
        }
        let now = law(numbers);
        let moved: [Law; N] = std::array::from_fn(|i| {
            let mut moved = *numbers;
            moved[i] += SMALL;
            law(&moved)
        });
        for row in rows {
            let log = |law: &Law| {
                libm::log(law.call_ns(
                    row.kind,
                    row.heads,
                    &row.totals,
                    droop,
                    row.late(law),
                    row.longest.iter().copied(),
                ))
            };
            let found = log(&now);
            let left = libm::log(row.ns) - found;
            let weight = 1.0 / (left.abs() / NOISE).max(1.0);
            let slopes: [f64; N] = std::array::from_fn(|i| {
                let other_kind = i >= KINDS && i - KINDS != row.kind as usize;
                if other_kind || moved[i] == now { 0.0 } else { (log(&moved[i]) - found) / SMALL }
            });
            for i in 0..N {
                for j in 0..N {
                    matrix[i][j] += weight * slopes[i] * slopes[j];
                }
                matrix[i][N] += weight * slopes[i] * left;
            }
        }
        let step = solve(matrix);
        if step.iter().any(|s| !s.is_finite()) {
            return;
        }
        for ((number, step), expected) in numbers.iter_mut().zip(step).zip(expected) {
            *number = (*number + step.clamp(-1.0, 1.0)).clamp(expected - LIMIT, expected + LIMIT);
        }
    }
}

/// Solution of a system with a positive definite matrix.
fn solve<const N: usize, const M: usize>(mut rows: [[f64; M]; N]) -> [f64; N] {
    for i in 0..N {
        let pivot = rows[i][i];
        rows[i].iter_mut().for_each(|x| *x /= pivot);
        let eliminated = rows[i];
        for (_, row) in rows.iter_mut().enumerate().filter(|(j, _)| *j != i) {
            let factor = row[i];
            row.iter_mut().zip(eliminated).for_each(|(x, y)| *x -= factor * y);
        }
    }
    std::array::from_fn(|i| rows[i][M - 1])
}

fn rows(profile: &Profile, pass: Pass) -> Vec<Row> {
    let attention = &profile.attention;
    let nominal = law(pass, false, profile.card.multiprocessors, &expected(profile, pass));
    let row = |kind, heads: (u32, u32), tiles: Vec<(u32, u32)>, ns| {
        let mut totals = Totals::default();
        let mut late: Vec<(Totals, (u32, u32))> = Vec::with_capacity(tiles.len());
        for &(q, k) in &tiles {
            let before = totals;
            totals.add(pass, kind, q, k);
            late.push((if nominal.longest_first(kind) { before } else { totals }, (q, k)));
        }
        late.sort_by(|a, b| nominal.late(kind, heads.0, &b.0, b.1).total_cmp(&nominal.late(kind, heads.0, &a.0, a.1)));
        late.truncate(if totals.tiles > 1 { LONGEST } else { 0 });
        let mut longest = tiles;
        longest.sort_by_key(|(q, k)| std::cmp::Reverse(u64::from(*q) * u64::from(*k)));
        longest.truncate(LONGEST);
        Row { kind, heads: Heads { query: heads.0, grouped: heads.1 < heads.0 }, totals, longest, late, ns }
    };
    let singles = [
        (Kind::Square, &attention.square),
        (Kind::BottomRight, &attention.bottom_right),
        (Kind::Full, &attention.rectangle),
    ];
    let mut rows = Vec::new();
    for (kind, singles) in singles {
        let of_pass = singles.iter().filter(|single| single.0.pass() == pass);
        rows.extend(of_pass.map(|single| row(kind, (single.1, single.2), vec![(single.3, single.4)], single.5)));
    }
    for call in attention.ragged.iter().filter(|call| call.pass.pass() == pass) {
        rows.push(row(kind_of(call), (call.q_heads, call.kv_heads), call.tiles().collect(), call.ns));
    }
    rows
}

/// The kernel that ran a call of many tiles.
pub(super) fn kind_of(call: &RaggedCall) -> Kind {
    match call.full {
        true => Kind::Full,
        false if call.q_len == call.kv_len => Kind::Square,
        false => Kind::BottomRight,
    }
}

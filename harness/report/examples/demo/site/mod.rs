//! A report of the size and shape of a full reproduction. All of its own numbers come from the formulas below and mean
//! nothing; only those marked published are quoted.

mod figures;
mod shapes;
mod words;

use figures::{forward_times, grouping, kernel_rate, latency, pool_sweep, random_grouping, scaling};
use shapes::{distribution, grid, ratios};
use skewbench_report::{
    Axis, Citation, Download, Failure, Figure, Named, Point, Scale, Section, Site, Status, WorkloadCard,
};
use words::{summary, systems};

const SYSTEMS: [&str; 9] =
    ["ulysses", "ring-zigzag", "libra", "libra-vrsp", "libra-tap", "ulysses+sorted", "ulysses+lpt", "random", "zigzag"];
const WINDOWS: [&str; 2] = ["256K", "1M"];
const DP: [f64; 5] = [1.0, 2.0, 4.0, 8.0, 16.0];

/// A number between 0 and 1 that looks random and is always the same.
fn noise(a: usize, b: usize) -> f64 {
    let mixed = (a as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (b as u64 + 7).wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
    ((mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 40) as f64 / 16_777_216.0
}

fn point(x: f64, y: f64, half: f64) -> Point {
    Point { x, y, low: Some(y - half), high: Some(y + half) }
}

fn named(category: &str, value: f64, half: f64) -> Named {
    Named { category: category.into(), value, low: Some(value - half), high: Some(value + half) }
}

fn axis(label: &str, unit: &str, scale: Scale) -> Axis {
    Axis { label: label.into(), unit: unit.into(), scale, ..Axis::default() }
}

/// The whole report.
pub fn demo() -> Site {
    Site {
        title: "Does balancing attention across data-parallel ranks pay?".into(),
        subtitle: "A demonstration of the report: every number of ours on this page is made up".into(),
        question: "How much of the published gain do we see?".into(),
        verdict: vec![
            "With pools of eight sequences the busiest pool of a step does 0.5% more work than the mean one, against 90% under random grouping. On the simulated cluster this turns into 2.3 times the throughput of Ulysses at DP = 16 on 1M windows; the published figure is 2.54.".into(),
            "Most of the gain is reached by placement alone. Sorting sequences by work before dealing them to waves closes two thirds of the gap without moving any attention.".into(),
        ],
        command: "skewbench reproduce --out results/runs/demo".into(),
        revision: "a678708".into(),
        profile: "h200: attention and links measured, network between nodes assumed".into(),
        backend: "sim".into(),
        seed: "20260730".into(),
        created_from: "11 experiments, 4 000 steps a cell for R−1, 200 for scaling".into(),
        series_order: SYSTEMS.iter().map(|s| (*s).to_owned()).collect(),
        summary: summary(),
        figures: vec![
            scaling("fig1", "Ulysses stops scaling with data parallelism", &SYSTEMS[..1], &WINDOWS[1..]),
            random_grouping(),
            kernel_rate(),
            grouping(),
            scaling("fig11", "Throughput against data parallelism", &SYSTEMS[..7], &WINDOWS),
            forward_times(),
            latency(),
            pool_sweep(),
            grid(),
            distribution(),
            ratios(),
        ],
        systems: systems(),
        method: vec![
            Section {
                title: "What is simulated".into(),
                paragraphs: vec!["Each step is packed, placed and planned as on a cluster; the resulting program is checked and then priced launch by launch on the profile. Integer picoseconds, so that the same seed gives the same bytes.".into()],
            },
            Section {
                title: "Intervals".into(),
                paragraphs: vec!["95% percentile bootstrap over steps. A maximum is never resampled.".into()],
            },
        ],
        environment: [("Rust", "1.95.0"), ("Operating system", "Linux 6.8, x86-64"), ("Processor", "2 cores"), ("Card of the profile", "NVIDIA H200, driver 580.65, cuDNN 9.13")]
            .iter()
            .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()))
            .collect(),
        failures: vec![Failure {
            experiment: "fig13".into(),
            cell: "ring-zigzag, 1M, DP 16".into(),
            status: Status::Skipped,
            reason: "peak memory 151.2 GB of the rank is over the limit of 141.0 GB".into(),
        }],
        downloads: vec![
            Download { label: "summary.json".into(), href: "summary.json".into(), description: "every row of the table above, for programs".into() },
            Download { label: "run/manifest.json".into(), href: "run/manifest.json".into(), description: "inputs, seeds and versions".into() },
        ],
        picture: Some(Figure { id: "answer".into(), title: "The answer in one picture".into(), ..latency() }),
        workloads: vec![WorkloadCard { name: "1M".into(), description: "windows of 1M tokens".into(), facts: vec![("Window".into(), "1 048 576 tokens".into())] }],
        citation: Citation {
            description: "Made-up numbers in the layout of a report.".into(),
            authors: vec!["The skewbench authors".into()],
            version: "0.1.0".into(),
            licence: "MIT OR Apache-2.0".into(),
            keywords: vec!["attention".into(), "load balancing".into()],
            ..Citation::default()
        },
        ..Site::default()
    }
}

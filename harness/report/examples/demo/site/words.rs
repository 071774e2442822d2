//! The table of published values and the descriptions.

use skewbench_report::{Kind, Status, SummaryRow, SystemCard, SystemOption, Verdict};

use super::shapes;

pub(super) fn summary() -> Vec<SummaryRow> {
    let row = |figure: &str, dataset: &str, system: &str, quantity: &str, unit: &str| SummaryRow {
        figure: figure.into(),
        dataset: dataset.into(),
        system: system.into(),
        quantity: quantity.into(),
        unit: unit.into(),
        ..SummaryRow::default()
    };
    let compared =
        |base: SummaryRow, published: &str, over: f64, value: f64, half: f64, n: u64, verdict: Verdict| SummaryRow {
            published: Some(published.into()),
            value: Some(value),
            ratio: Some(value / over),
            ci_low: Some(value - half),
            ci_high: Some(value + half),
            n: Some(n),
            verdict,
            ..base
        };
    vec![
        compared(
            row("fig4", "256K", "random", "mean R−1 at P = 8", "%"),
            "90%",
            90.0,
            89.9,
            0.6,
            4000,
            Verdict::Agrees,
        ),
        compared(
            row("fig4", "1M", "random", "mean R−1 at P = 8", "%"),
            "108%",
            108.0,
            107.4,
            0.7,
            4000,
            Verdict::Agrees,
        ),
        SummaryRow {
            kind: Kind::Computed,
            ..compared(
                row("fig8", "1M", "vrsp", "mean R−1 at P = 8", "%"),
                "< 0.7%",
                0.7,
                0.52,
                0.03,
                4000,
                Verdict::Agrees,
            )
        },
        compared(
            row("fig11", "256K", "ulysses", "throughput at DP = 16 over DP = 1", "x"),
            "7.63x",
            7.63,
            7.58,
            0.21,
            200,
            Verdict::Agrees,
        ),
        SummaryRow {
            reason: "published without the cost of transfers".into(),
            ..compared(
                row("fig11", "1M", "ulysses", "throughput at DP = 16 over DP = 1", "x"),
                "4.42x",
                4.42,
                3.31,
                0.18,
                200,
                Verdict::Differs,
            )
        },
        compared(
            row("fig14", "1M", "libra", "straggler latency at P = 8 over Ulysses", ""),
            "0.39",
            0.39,
            0.43,
            0.05,
            20,
            Verdict::Unclear,
        ),
        compared(
            row("fig12", "1M", "ulysses", "slowest over fastest micro-batch", "x"),
            "23x",
            23.0,
            131.0,
            9.0,
            20,
            Verdict::Differs,
        ),
        SummaryRow {
            value: Some(2.31),
            ci_low: Some(2.2),
            ci_high: Some(2.4),
            n: Some(200),
            ..row("fig11", "1M", "ulysses+sorted", "throughput over Ulysses at DP = 16", "x")
        },
        SummaryRow {
            status: Status::Skipped,
            reason: "peak memory over the limit".into(),
            ..row("fig13", "1M", "ring-zigzag", "straggler latency, mean", "ms")
        },
    ]
}

pub(super) fn systems() -> Vec<SystemCard> {
    let card = |name: &str, placement: &str, planner: &str, description: &str, source: &str| SystemCard {
        name: name.into(),
        placement: placement.into(),
        planner: planner.into(),
        description: description.into(),
        source: source.into(),
        ..SystemCard::default()
    };
    vec![
        card(
            "ulysses",
            "arrival",
            "all-to-all",
            "Exchanges heads for sequence shards before attention and back after it. Nothing moves between sequences.",
            "arXiv 2309.14509",
        ),
        SystemCard {
            options: vec![
                option("pool", "8", "sequences of a pool"),
                option("tau", "0.03", "tolerance of a worker's load"),
                option("pieces", "4", "head pieces whose transfers overlap"),
                option("block", "4096", "query tokens of a tile"),
            ],
            notes: vec!["Pools wait for each other only inside a wave.".into()],
            figures: vec![shapes::wave()],
            ..card(
                "libra",
                "VRSP",
                "tiled attention pooling",
                "Groups sequences so that pools carry equal work, then spreads tiles of attention over the ranks of a pool.",
                "arXiv 2607.23250",
            )
        },
        card(
            "ulysses+sorted",
            "sorted into waves",
            "all-to-all",
            "Sequences sorted by work and dealt to waves; no attention moves at all.",
            "a trivial baseline, ours",
        ),
    ]
}

fn option(name: &str, value: &str, meaning: &str) -> SystemOption {
    SystemOption { name: name.into(), value: value.into(), meaning: meaning.into() }
}

//! Figures like those of the paper.

use skewbench_report::{Axis, Cell, Column, Figure, Kind, Mark, Named, Panel, Point, Quantiles, Scale, Side, Table};

use super::{DP, SYSTEMS, WINDOWS, axis, named, noise, point};

fn efficiency(system: usize, window: usize, dp: f64) -> f64 {
    let loss = [0.075, 0.068, 0.021, 0.035, 0.05, 0.03, 0.033][system % 7] * if window == 0 { 1.0 } else { 1.9 };
    1.0 / (1.0 + loss * (dp - 1.0).powf(0.98))
}

pub(super) fn scaling(id: &str, title: &str, systems: &[&str], windows: &[&str]) -> Figure {
    let mut rows = Vec::new();
    let panels = windows
        .iter()
        .map(|window| {
            let w = usize::from(*window == "1M");
            let mut marks: Vec<Mark> = vec![Mark::Curve {
                label: "ideal".into(),
                points: DP.iter().map(|dp| Point { x: *dp, y: *dp, ..Point::default() }).collect(),
            }];
            for (s, system) in systems.iter().enumerate() {
                let points: Vec<Point> = DP
                    .iter()
                    .map(|dp| {
                        let y = dp * efficiency(s, w, *dp);
                        point(*dp, y, 0.03 * y)
                    })
                    .collect();
                for p in &points {
                    rows.push(vec![
                        Cell::from(*system),
                        (*window).into(),
                        p.x.into(),
                        p.y.into(),
                        p.low.into(),
                        p.high.into(),
                    ]);
                }
                if *system == "libra" {
                    marks.push(Mark::Band {
                        series: (*system).into(),
                        label: "libra at half and double network bandwidth".into(),
                        points: points
                            .iter()
                            .map(|p| Point { low: Some(p.y * 0.9), high: Some(p.y * 1.05), ..*p })
                            .collect(),
                    });
                }
                marks.push(Mark::Line { series: (*system).into(), points });
            }
            let published = [("ulysses", if w == 0 { 7.63 } else { 4.42 }), ("libra", 0.703 * 16.0)];
            for (system, value) in published.iter().filter(|(s, _)| systems.contains(s) && (w == 1 || *s == "ulysses"))
            {
                marks.push(Mark::Published {
                    series: Some((*system).into()),
                    label: "published, in the system's colour".into(),
                    points: vec![Point { x: 16.0, y: *value, ..Point::default() }],
                });
            }
            Panel {
                title: format!("{window} windows, CP = {}", if w == 0 { 8 } else { 16 }),
                x: axis("data-parallel ranks", "", Scale::Log2),
                y: axis("throughput over DP = 1", "×", Scale::Linear),
                marks,
            }
        })
        .collect();
    Figure {
        id: id.into(),
        title: title.into(),
        description: "Lines of throughput relative to one data-parallel rank against 1 to 16 ranks. Ulysses flattens first; libra stays closest to the ideal line.".into(),
        kind: Kind::Simulated,
        panels,
        caption: "Tokens per second relative to each system's own DP = 1. qwen3-30b-a3b, TP = PP = 1, fitted linear cost, a wait per micro-batch. Mean and 95% interval over 200 steps, seed 20260730, profile h200 (network assumed).".into(),
        notes: vec!["At 1M our Ulysses falls short of the published 4.42×: transfers are charged here and were not in the published model, as far as its text says.".into()],
        table: table(&[("System", "system", ""), ("Window", "window", ""), ("DP", "dp", ""), ("Scaling", "scaling_x", "×"), ("Low", "ci_low_x", "×"), ("High", "ci_high_x", "×")], rows),
        ..Figure::default()
    }
}

pub(super) fn table(columns: &[(&str, &str, &str)], rows: Vec<Vec<Cell>>) -> Table {
    Table { columns: columns.iter().map(|(t, k, u)| Column::new(*t, *k, *u)).collect(), rows }
}

pub(super) fn random_grouping() -> Figure {
    let sizes = [1.0, 2.0, 4.0, 8.0, 16.0];
    let mut rows = Vec::new();
    let panels = WINDOWS
        .iter()
        .enumerate()
        .map(|(w, window)| {
            let value = |p: f64| 90.0 * (1.0 + 0.2 * w as f64) * (8.0 / p).sqrt();
            let points: Vec<Point> = sizes.iter().map(|p| point(*p, value(*p), 2.0)).collect();
            rows.extend(points.iter().map(|p| vec![Cell::from(*window), p.x.into(), p.y.into()]));
            Panel {
                title: format!("{window} windows"),
                x: axis("sequences a pool, P", "", Scale::Log2),
                y: axis("mean R−1 over the pools of a step", "%", Scale::Auto),
                marks: vec![
                    Mark::Curve {
                        label: "eq. 3: CV/√P · √(2 ln(D/P))".into(),
                        points: sizes
                            .iter()
                            .map(|p| Point { x: *p, y: value(*p) * 1.12, ..Point::default() })
                            .collect(),
                    },
                    Mark::Line { series: "random".into(), points },
                    Mark::Published {
                        series: None,
                        label: "published".into(),
                        points: vec![Point { x: 8.0, y: [90.0, 108.0][w], ..Point::default() }],
                    },
                ],
            }
        })
        .collect();
    Figure {
        id: "fig4".into(),
        title: "Random grouping leaves pools unequal".into(),
        description: "R minus one against pool size for random grouping, falling with pool size and close to the published point at P = 8.".into(),
        kind: Kind::Computed,
        panels,
        caption: "Heaviest pool over mean pool, minus one; 4 000 steps of 128 sequences.".into(),
        table: table(&[("Window", "window", ""), ("P", "p", ""), ("R−1", "r_minus_1_percent", "%")], rows),
        ..Figure::default()
    }
}

pub(super) fn kernel_rate() -> Figure {
    let blocks = ["128", "256", "512", "1024", "2048", "4096", "8192"];
    let heads = ["4 heads", "16 heads", "32 heads"];
    let mut rows = Vec::new();
    let marks = heads
        .iter()
        .enumerate()
        .map(|(h, heads)| Mark::Line {
            series: (*heads).into(),
            points: blocks
                .iter()
                .enumerate()
                .map(|(b, block)| {
                    let x: f64 = block.parse().unwrap_or(1.0);
                    let y = 620.0 * (1.0 - (-(b as f64 + 1.0 + h as f64) / 2.4).exp());
                    rows.push(vec![Cell::from(*heads), x.into(), y.into()]);
                    point(x, y, 9.0)
                })
                .collect(),
        })
        .collect();
    Figure {
        id: "fig5".into(),
        title: "Kernels are slow on small blocks and few heads".into(),
        description: "Attention throughput rises with block length and number of heads and saturates near 600 teraflops per second.".into(),
        kind: Kind::Measured,
        panels: vec![Panel { title: String::new(), x: axis("query tokens in a block", "", Scale::Log2), y: axis("forward throughput", "TFLOP/s", Scale::Linear), marks }],
        caption: "Device events, median of 50 launches after 10 of warm-up; 95% interval of the median. One H200.".into(),
        table: table(&[("Heads", "heads", ""), ("Block", "block_tokens", "tokens"), ("Throughput", "tflops", "TFLOP/s")], rows),
        ..Figure::default()
    }
}

pub(super) fn grouping() -> Figure {
    let names = ["random", "zigzag", "zigzag-with-swap", "zigzag-swap-all", "vrsp"];
    let scale = [90.0, 22.0, 14.0, 1.1, 0.5];
    let mut rows = Vec::new();
    let panels = WINDOWS
        .iter()
        .enumerate()
        .map(|(w, window)| {
            let marks: Vec<Mark> = names
                .iter()
                .zip(scale)
                .map(|(name, scale)| Mark::Line {
                    series: (*name).into(),
                    points: [1.0, 2.0, 4.0, 8.0, 16.0]
                        .iter()
                        .map(|p: &f64| {
                            let y = scale
                                * (1.0 + 0.2 * w as f64)
                                * (8.0 / p).powf(if *name == "random" { 0.5 } else { 1.3 });
                            rows.push(vec![Cell::from(*window), (*name).into(), (*p).into(), y.into()]);
                            point(*p, y, 0.05 * y)
                        })
                        .collect(),
                })
                .chain([Mark::Reference {
                    label: "published bound for VRSP at P = 8: 0.7%".into(),
                    side: Side::Y,
                    value: 0.7,
                }])
                .collect();
            Panel {
                title: format!("{window} windows"),
                x: axis("sequences a pool, P", "", Scale::Log2),
                y: axis("mean R−1", "%", Scale::Auto),
                marks,
            }
        })
        .collect();
    Figure {
        id: "fig8".into(),
        title: "Placement decides how unequal pools are".into(),
        description:
            "R minus one against pool size for five groupings on a logarithmic axis; VRSP is lowest from P = 4 on."
                .into(),
        kind: Kind::Computed,
        panels,
        caption: "Logarithmic axis. 4 000 steps of 128 sequences; mean and 95% interval.".into(),
        table: table(
            &[
                ("Window", "window", ""),
                ("Grouping", "grouping", ""),
                ("P", "p", ""),
                ("R−1", "r_minus_1_percent", "%"),
            ],
            rows,
        ),
        ..Figure::default()
    }
}

pub(super) fn forward_times() -> Figure {
    let mut rows = Vec::new();
    let panels = WINDOWS
        .iter()
        .enumerate()
        .map(|(w, window)| {
            let marks = SYSTEMS[..7]
                .iter()
                .enumerate()
                .map(|(s, system)| {
                    let median = (60.0 + 300.0 * w as f64) * (1.0 + 0.1 * noise(s, w));
                    let spread = if system.starts_with("libra") { 0.15 } else { 0.7 };
                    let q = Quantiles {
                        category: (*system).into(),
                        p5: median * (1.0 - spread * 0.9),
                        p25: median * (1.0 - spread * 0.5),
                        p50: median,
                        p75: median * (1.0 + spread * 0.9),
                        p95: median * (1.0 + spread * 2.4),
                        max: median * (1.0 + spread * 4.1),
                    };
                    rows.push(vec![
                        Cell::from(*window),
                        (*system).into(),
                        q.p5.into(),
                        q.p25.into(),
                        q.p50.into(),
                        q.p75.into(),
                        q.p95.into(),
                        q.max.into(),
                    ]);
                    Mark::Boxes { series: (*system).into(), values: vec![q] }
                })
                .collect();
            Panel {
                title: format!("{window} windows"),
                x: axis("forward time of a micro-batch", "ms", Scale::Linear),
                y: Axis { scale: Scale::Category, ..Axis::default() },
                marks,
            }
        })
        .collect();
    Figure {
        id: "fig12".into(),
        title: "Micro-batches take very different times".into(),
        description: "Box plots of forward time per micro-batch and system: wide for the baselines, narrow for libra."
            .into(),
        panels,
        caption: "20 steps of 128 micro-batches.".into(),
        table: table(
            &[
                ("Window", "window", ""),
                ("System", "system", ""),
                ("p5", "p5_ms", "ms"),
                ("p25", "p25_ms", "ms"),
                ("p50", "p50_ms", "ms"),
                ("p75", "p75_ms", "ms"),
                ("p95", "p95_ms", "ms"),
                ("Largest", "max_ms", "ms"),
            ],
            rows,
        ),
        ..Figure::default()
    }
}

pub(super) fn latency() -> Figure {
    let mut rows = Vec::new();
    let panels = WINDOWS
        .iter()
        .enumerate()
        .map(|(w, window)| {
            let base = [530.6, 3955.0][w];
            let values = |worst: f64| -> Vec<Named> {
                SYSTEMS[..7]
                    .iter()
                    .enumerate()
                    .map(|(s, system)| {
                        let v = base * worst * [1.0, 0.93, 0.36, 0.61, 0.74, 0.8, 0.82][s];
                        named(system, v, 0.03 * v)
                    })
                    .collect()
            };
            let marks = vec![
                Mark::Bars { series: "mean over waves".into(), values: values(1.0) },
                Mark::Bars { series: "largest of a step".into(), values: values(1.6) },
                Mark::PublishedNamed {
                    series: Some("mean over waves".into()),
                    label: "published mean".into(),
                    values: vec![Named { category: "ulysses".into(), value: base, ..Named::default() }],
                },
            ];
            for mark in &marks {
                if let Mark::Bars { series, values } = mark {
                    rows.extend(values.iter().map(|v| {
                        vec![
                            Cell::from(*window),
                            v.category.as_str().into(),
                            series.as_str().into(),
                            v.value.into(),
                            v.low.into(),
                            v.high.into(),
                        ]
                    }));
                }
            }
            Panel {
                title: format!("{window} windows"),
                x: axis("straggler latency of core attention", "ms", Scale::Linear),
                y: Axis { scale: Scale::Category, ..Axis::default() },
                marks,
            }
        })
        .collect();
    Figure {
        id: "fig13".into(),
        title: "Latency of the slowest worker".into(),
        description: "Horizontal bars of straggler latency for seven systems, mean and largest; libra is shortest."
            .into(),
        panels,
        caption: "Forward and backward of one layer; slowest of DP × CP ranks, transfers included. 20 steps.".into(),
        table: table(
            &[
                ("Window", "window", ""),
                ("System", "system", ""),
                ("Statistic", "statistic", ""),
                ("Latency", "straggler_ms", "ms"),
                ("Low", "ci_low_ms", "ms"),
                ("High", "ci_high_ms", "ms"),
            ],
            rows,
        ),
        ..Figure::default()
    }
}

pub(super) fn pool_sweep() -> Figure {
    let mut rows = Vec::new();
    let panels = WINDOWS
        .iter()
        .enumerate()
        .map(|(w, window)| {
            let marks = ["libra", "libra-vrsp", "libra-tap"]
                .iter()
                .enumerate()
                .map(|(s, system)| Mark::Bars {
                    series: (*system).into(),
                    values: ["1", "2", "4", "8", "16"]
                        .iter()
                        .enumerate()
                        .map(|(p, size)| {
                            let v = [0.36, 0.62, 0.75][s] + 0.05 * w as f64 + 0.08 * ((p as f64) - 2.5).abs();
                            rows.push(vec![Cell::from(*window), (*system).into(), (*size).into(), v.into()]);
                            named(size, v, 0.02)
                        })
                        .collect(),
                })
                .chain([
                    Mark::PublishedNamed {
                        series: Some("libra".into()),
                        label: "published".into(),
                        values: vec![
                            Named { category: "8".into(), value: [0.34, 0.39][w], ..Named::default() },
                            Named { category: "4".into(), value: [0.33, 0.37][w], ..Named::default() },
                        ],
                    },
                    Mark::Reference { label: "Ulysses".into(), side: Side::Y, value: 1.0 },
                ])
                .collect();
            Panel {
                title: format!("{window} windows"),
                x: axis("sequences a pool, P", "", Scale::Category),
                y: axis("straggler latency over Ulysses", "", Scale::Linear),
                marks,
            }
        })
        .collect();
    Figure {
        id: "fig14".into(),
        title: "Pool size: what placement and tiling each bring".into(),
        description: "Grouped bars of latency over Ulysses for three systems at pool sizes 1 to 16.".into(),
        panels,
        caption: "Slowest pool, mean over 20 steps, as a share of the Ulysses mean.".into(),
        table: table(
            &[
                ("Window", "window", ""),
                ("System", "system", ""),
                ("P", "p", ""),
                ("Latency over Ulysses", "normalised", ""),
            ],
            rows,
        ),
        ..Figure::default()
    }
}

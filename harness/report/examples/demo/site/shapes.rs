//! Figures of shapes that the paper has not.

use skewbench_report::{Activity, Axis, Cell, Figure, HeatCell, Lane, Mark, Panel, Point, Scale, Side, Span};

use super::figures::table;
use super::{SYSTEMS, WINDOWS, axis, named, noise};

pub(super) fn grid() -> Figure {
    let mut rows = Vec::new();
    let panels = WINDOWS
        .iter()
        .enumerate()
        .map(|(w, window)| {
            let cells = ["8", "4", "2", "1"]
                .iter()
                .enumerate()
                .flat_map(|(h, heads)| {
                    ["2048", "4096", "8192", "16384", "32768"]
                        .iter()
                        .enumerate()
                        .map(move |(b, block)| (h, *heads, b, *block))
                })
                .map(|(h, heads, b, block)| {
                    let value =
                        0.8 + 0.3 * h as f64 + 0.1 * (2.0 - (b as f64 - 1.0 - w as f64).abs()) + 0.04 * noise(h, b);
                    rows.push(vec![Cell::from(*window), block.into(), heads.into(), value.into()]);
                    HeatCell { column: block.into(), row: heads.into(), value }
                })
                .collect();
            Panel {
                title: format!("{window} windows"),
                x: axis("block of query tokens, B", "", Scale::Category),
                y: axis("head shards, H", "", Scale::Category),
                marks: vec![Mark::Heat { cells, center: Some(1.0) }],
            }
        })
        .collect();
    Figure {
        id: "fig15".into(),
        title: "Speedup over Ulysses by tile".into(),
        description: "Heat maps of speedup over Ulysses by block length and head shards; best with one head shard and blocks of 4096 to 8192.".into(),
        panels,
        caption: "Core attention, forward and backward. Blue is faster than Ulysses, orange slower.".into(),
        table: table(&[("Window", "window", ""), ("B", "block_tokens", ""), ("H", "head_shards", ""), ("Speedup", "speedup_x", "×")], rows),
        ..Figure::default()
    }
}

pub(super) fn distribution() -> Figure {
    let mut rows = Vec::new();
    let marks = ["ulysses", "libra", "ulysses+sorted"]
        .iter()
        .enumerate()
        .map(|(s, system)| {
            let points: Vec<Point> = (1..=200)
                .map(|i| {
                    let share = f64::from(i) / 200.0;
                    let x = 100.0 + 260.0 * [1.0, 0.25, 0.7][s] * (-(1.0 - share * 0.995).ln());
                    Point { x, y: share, ..Point::default() }
                })
                .collect();
            rows.extend(points.iter().step_by(10).map(|p| vec![Cell::from(*system), p.x.into(), p.y.into()]));
            Mark::Steps { series: (*system).into(), points }
        })
        .collect();
    Figure {
        id: "ecdf".into(),
        title: "Distribution of wave times".into(),
        description: "Empirical distribution of wave time for three systems.".into(),
        panels: vec![Panel {
            title: String::new(),
            x: axis("time of a wave", "ms", Scale::Linear),
            y: axis("share of waves", "", Scale::Linear),
            marks,
        }],
        caption: "1M windows, 20 steps.".into(),
        table: table(&[("System", "system", ""), ("Time", "time_ms", "ms"), ("Share", "share", "")], rows),
        ..Figure::default()
    }
}

pub(super) fn ratios() -> Figure {
    let mut rows = Vec::new();
    let panels = ["end-to-end throughput", "worst straggler latency", "GPU-hours"]
        .iter()
        .enumerate()
        .map(|(q, title)| {
            let marks = SYSTEMS[1..7]
                .iter()
                .enumerate()
                .map(|(s, system)| {
                    let v = 0.9 + 1.6 * noise(s, q);
                    rows.push(vec![Cell::from(*title), (*system).into(), v.into()]);
                    Mark::Dots { series: (*system).into(), values: vec![named(system, v, 0.15)] }
                })
                .chain([Mark::Reference { label: "Ulysses".into(), side: Side::X, value: 1.0 }])
                .collect();
            Panel {
                title: (*title).into(),
                x: axis("over Ulysses", "×", Scale::Linear),
                y: Axis { scale: Scale::Category, ..Axis::default() },
                marks,
            }
        })
        .collect();
    Figure {
        id: "overview".into(),
        title: "Systems at a glance".into(),
        description: "Dot plots of three ratios to Ulysses for six systems.".into(),
        panels,
        caption: "1M windows, DP = 16.".into(),
        table: table(&[("Quantity", "quantity", ""), ("System", "system", ""), ("Ratio", "ratio", "")], rows),
        ..Figure::default()
    }
}

/// A wave of 32 ranks, of which one works longest.
pub(super) fn wave() -> Figure {
    let lanes: Vec<Lane> = (0..32)
        .map(|rank| {
            let work = if rank == 21 { 96.0 } else { 30.0 + 30.0 * noise(rank, 3) };
            let span = |start: f64, end: f64, activity| Span { start, end, activity };
            Lane {
                label: if rank % 8 == 0 || rank == 21 { format!("rank {rank}") } else { String::new() },
                straggler: rank == 21,
                spans: vec![
                    span(0.0, 3.0, Activity::Transfer),
                    span(3.0, 3.0 + work / 3.0, Activity::Forward),
                    span(38.0, 40.0, Activity::Transfer),
                    span(40.0, 40.0 + work / 1.5, Activity::Backward),
                    span(40.0 + work / 1.5, 41.0 + work / 1.5, Activity::Local),
                ],
            }
        })
        .collect();
    let rows = lanes
        .iter()
        .enumerate()
        .map(|(rank, lane)| {
            vec![Cell::Number(rank as f64), lane.spans.iter().map(|s| s.end).fold(0.0, f64::max).into()]
        })
        .collect();
    Figure {
        id: "wave-libra-1m".into(),
        title: "A wave over time".into(),
        description: "Rank 21 works twice as long as the mean rank; the others wait for it.".into(),
        panels: vec![Panel {
            title: "All ranks".into(),
            x: axis("time", "ms", Scale::Linear),
            marks: vec![Mark::Timeline { lanes }],
            ..Panel::default()
        }],
        caption: "Forward and backward of one layer.".into(),
        table: table(&[("Rank", "rank", ""), ("End", "end_ms", "ms")], rows),
        ..Figure::default()
    }
}

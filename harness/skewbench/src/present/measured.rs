use skewbench_plan::Pass;
use skewbench_report::{Axis, Cell, Column, Figure, Kind, Mark, Named, Page, Panel, Scale, Section, Side, Table};
use skewbench_sim::step_model::Model;

use super::overview::OWN;
use super::summary::short;
use super::validation::slug;
use crate::metrics::Estimated;
use crate::shipped::{
    Case, LayerProduct, PeerTimes, Published, Times, clocks, independent, layer_ns, pass_name, times_of, times_of_peers,
};

const MS: f64 = 1e-6;

/// The page that shows published runs on real cards.
pub fn measured_page(published: &[Published]) -> Page {
    let mut page = Page {
        name: "measured".into(),
        title: "Measured on cards".into(),
        subtitle: "Published runs of the same programs on real cards".into(),
        ..Page::default()
    };
    if published.is_empty() {
        page.text.push(
            "No run on cards ships with this program. Every latency of this report that is not marked as measured is simulated on a profile.".into(),
        );
        return page;
    }
    for run in published {
        add(&mut page, run);
    }
    page.method = method();
    let elsewhere: Vec<String> = published
        .iter()
        .flat_map(|run| run.runs.iter().map(move |r| (&run.name, r)))
        .map(|(name, r)| {
            format!("{}: {}. Its pages: skewbench report results/published/{name}/{}", r.folder, r.about, r.folder)
        })
        .collect();
    if !elsewhere.is_empty() {
        page.method.push(Section { title: "Stored runs that are not on this page".into(), paragraphs: elsewhere });
    }
    page
}

fn add(page: &mut Page, run: &Published) {
    let name = &run.name;
    page.text.push(format!("{name}: {}", run.title));
    page.text.extend(run.notes.iter().map(|note| format!("{name}: {note}")));
    page.facts.push(("run".into(), name.clone()));
    page.facts.extend(run.card.facts());
    if let Some(peer) = run.peers.first() {
        let versions = format!("PyTorch {}, cuDNN {}, NCCL {}, {}", peer.torch, peer.cudnn, peer.nccl, peer.card);
        page.facts.push(("peers".into(), versions));
    }
    page.text.extend(clocks(&run.states).iter().map(|card| format!("{name}: {}", card.sentence())));
    let times = times_of(&run.samples);
    let peers = times_of_peers(&run.peers);
    page.text.extend(dense_sentences(&times, &peers));
    let id = |what: &str| format!("measured-{}-{what}", slug(name));
    page.figures.extend(dense_figure(id("dense"), name, &times, &peers));
    page.figures.extend(worst_figure(id("worst"), name, &times));
    page.figures.extend(wave_table(id("waves"), name, &times));
    page.figures.extend(layer_table(id("layer"), name, &times, &run.layer));
    page.figures.extend(peer_table(id("peers"), name, &peers));
    page.figures.extend(failure_table(id("failures"), name, run));
}

fn cases(times: &[Times]) -> Vec<&Case> {
    let mut cases: Vec<&Case> = Vec::new();
    for t in times {
        if !cases.contains(&&t.case) {
            cases.push(&t.case);
        }
    }
    cases
}

/// Cases that are one causal document on all ranks.
fn documents(times: &[Times]) -> Vec<&Case> {
    let mut cases = cases(times);
    cases.retain(|case| times.iter().filter(|t| t.case == **case).all(Times::is_one_document));
    cases
}

fn named(category: String, e: &Estimated, scale: f64) -> Named {
    let e = e.scaled(scale);
    Named { category, value: e.value, low: e.interval.map(|i| i.0), high: e.interval.map(|i| i.1) }
}

/// A system, with its transport where that is not the copy engines and the case was measured over several.
fn label(t: &Times, times: &[Times]) -> String {
    let twin = |o: &Times| o.system == t.system && o.case == t.case && o.transport != t.transport;
    if t.transport != "copy_engines" && times.iter().any(twin) {
        format!("{}, {}", t.system, t.transport)
    } else {
        t.system.clone()
    }
}

/// The fastest peer that computes a pass of a case.
fn best_peer<'a>(peers: &'a [PeerTimes], case: &Case, pass: Pass) -> Option<&'a PeerTimes> {
    let median = |p: &PeerTimes| p.time().map_or(f64::INFINITY, |t| t.value);
    let same = peers.iter().filter(|p| p.is_parallel() && p.computes(case, pass));
    same.min_by(|a, b| median(a).total_cmp(&median(b)))
}

/// How the fastest of our systems stands against the fastest peer, in words.
fn dense_sentences(times: &[Times], peers: &[PeerTimes]) -> Vec<String> {
    let mut sentences = Vec::new();
    for case in documents(times) {
        for pass in [Pass::Forward, Pass::Backward] {
            let Some(best) = best_peer(peers, case, pass) else { continue };
            let ours = times.iter().filter(|t| t.case == *case).flat_map(|t| t.waves.iter().map(move |w| (t, w)));
            let fastest = ours
                .filter(|(_, w)| w.pass == pass)
                .filter_map(|(t, w)| Some((t, independent(&best.slowest, &w.samples())?)))
                .max_by(|a, b| a.1.value.total_cmp(&b.1.value));
            let Some((t, speed)) = fastest else { continue };
            sentences.push(format!(
                "{}, {}: the fastest of ours, {}, reaches {}x the speed of the fastest peer, {}{}.",
                case.title(),
                pass_name(pass),
                label(t, times),
                short(speed.value),
                best.peer,
                interval(&speed)
            ));
        }
    }
    sentences
}

fn interval(e: &Estimated) -> String {
    e.interval.map(|(low, high)| format!(" ({} to {})", short(low), short(high))).unwrap_or_default()
}

/// Rates on one dense document: ours, peers, the kernel alone, and the card's matrix products.
fn dense_figure(id: String, run: &str, times: &[Times], peers: &[PeerTimes]) -> Option<Figure> {
    let peak =
        peers.iter().filter(|p| p.is_product()).filter_map(PeerTimes::tflop_per_s).map(|e| e.value).reduce(f64::max);
    let mut panels = Vec::new();
    let mut rows = Vec::new();
    for case in documents(times) {
        for pass in [Pass::Forward, Pass::Backward] {
            let theirs = peers.iter().filter(|p| p.computes(case, pass));
            let theirs =
                theirs.filter_map(|p| Some((p.peer.clone(), p.peer.clone(), p.tflop_per_s()?, p.time()?, None, None)));
            let best = best_peer(peers, case, pass);
            let alone = peers.iter().find(|p| p.is_kernel_alone() && p.computes(case, pass));
            let alone = alone.and_then(PeerTimes::tflop_per_s).map(|e| e.value);
            let ours = times.iter().filter(|t| t.case == *case);
            let ours = ours
                .flat_map(|t| t.waves.iter().map(move |w| (t, w)))
                .filter(|(_, w)| w.pass == pass)
                .filter_map(|(t, w)| {
                    let speed = best.and_then(|b| independent(&b.slowest, &w.samples()));
                    Some((t.system.clone(), label(t, times), w.tflop_per_s(case)?, w.time()?, w.of_bare(), speed))
                });
            let all: Vec<_> = theirs.chain(ours).collect();
            let mut marks: Vec<Mark> = peak
                .map(|value| Mark::Reference { label: "large bf16 product".into(), side: Side::X, value })
                .into_iter()
                .collect();
            marks.extend(all.iter().map(|(series, category, rate, ..)| Mark::Dots {
                series: series.clone(),
                values: vec![named(category.clone(), rate, 1.0)],
            }));
            panels.push(Panel {
                // All ranks share one document here, so the layout needs no words.
                title: format!("{}, {}", case.title().rsplit_once(", ").map_or("", |t| t.0), pass_name(pass)),
                x: Axis {
                    label: "rate of a card".into(),
                    unit: "TFLOP/s".into(),
                    min: Some(0.0),
                    scale: Scale::Linear,
                    ..Axis::default()
                },
                y: Axis {
                    scale: Scale::Category,
                    categories: all.iter().map(|(_, category, ..)| category.clone()).collect(),
                    ..Axis::default()
                },
                marks,
            });
            rows.extend(all.into_iter().map(|(_, category, rate, time, bare, speed)| {
                let mut row: Vec<Cell> = vec![case.title().into(), pass_name(pass).into(), category.into()];
                row.extend(estimate_cells(Some(&time.scaled(MS))));
                row.extend(estimate_cells(Some(&rate)));
                row.extend([peak, alone].map(|roof| Cell::from(roof.map(|roof| rate.value / roof))));
                row.push(bare.map(|b| b.value).into());
                row.extend(estimate_cells(speed.as_ref()));
                row.push((time.n as f64).into());
                row
            }));
        }
    }
    (!rows.is_empty()).then(|| Figure {
        id,
        title: format!("One causal document: rate of a card beside peers and roof, {run}"),
        description: "TFLOP/s of a card on one dense causal document: our systems, PyTorch's context parallelism, Ulysses written in PyTorch, the \
                      attention kernel alone, and the rate of large bf16 products as a line."
            .into(),
        kind: Kind::Measured,
        panels,
        caption: "Median of the slowest rank's time over repetitions, as a rate from exact pairs, by copy engines where no transport is named; bars: 95% bootstrap interval of the median over \
                  repetitions. Kernel alone: the same attention without any exchange. Best peer / ours: time of the fastest peer over that of the system; above 1 the system is faster."
            .into(),
        table: Table {
            columns: [Column::new("case", "case", ""), Column::new("pass", "pass", ""), Column::new("what", "what", "")]
                .into_iter()
                .chain(estimate_columns("time", "time_ms", "ms"))
                .chain(estimate_columns("rate", "rate_tflop_per_s", "TFLOP/s"))
                .chain([
                    Column::new("of a bf16 product", "of_product", ""),
                    Column::new("of the kernel alone", "of_kernel_alone", ""),
                    Column::new("bare calls / program", "of_bare", ""),
                ])
                .chain(estimate_columns("best peer / ours", "speed_against_peer", ""))
                .chain([Column::new("n", "n", "")])
                .collect(),
            rows,
        },
        ..Figure::default()
    })
}

/// Both passes of the worst wave by case and system.
fn worst_figure(id: String, run: &str, times: &[Times]) -> Option<Figure> {
    let mut panels = Vec::new();
    let mut rows = Vec::new();
    for case in cases(times) {
        // A system that a budget stopped may lack its slowest wave.
        let waves = times.iter().filter(|t| t.case == *case).map(Times::count).max().unwrap_or(0);
        let here: Vec<&Times> = times.iter().filter(|t| t.case == *case && t.count() == waves).collect();
        // The faster of ours where it was measured over several transports.
        let worst = |t: &Times| t.worst().map_or(f64::INFINITY, |e| e.value);
        let ours = here.iter().filter(|t| t.system == OWN).min_by(|a, b| worst(a).total_cmp(&worst(b)));
        let all: Vec<(&Times, Estimated)> = here.iter().filter_map(|t| Some((*t, t.worst()?))).collect();
        if all.is_empty() {
            continue;
        }
        let dots = all
            .iter()
            .map(|(t, e)| Mark::Dots { series: t.system.clone(), values: vec![named(label(t, times), e, MS)] });
        panels.push(Panel {
            title: case.title(),
            x: Axis {
                label: "worst wave".into(),
                unit: "ms".into(),
                min: Some(0.0),
                scale: Scale::Linear,
                ..Axis::default()
            },
            y: Axis {
                scale: Scale::Category,
                categories: all.iter().map(|(t, _)| label(t, times)).collect(),
                ..Axis::default()
            },
            marks: dots.collect(),
        });
        rows.extend(all.iter().map(|(t, e)| {
            let mut row: Vec<Cell> = vec![case.title().into(), label(t, times).into()];
            row.extend(estimate_cells(Some(&e.scaled(MS))));
            row.extend(estimate_cells(ours.and_then(|ours| ours.worst_against(t)).as_ref()));
            row.push((e.n as f64).into());
            row
        }));
    }
    (!rows.is_empty()).then(|| Figure {
        id,
        title: format!("Worst wave, forward and backward, {run}"),
        description: "Time of the slowest wave of each system, both passes, by case.".into(),
        kind: Kind::Measured,
        panels,
        caption: format!(
            "Both passes of one layer's attention, transfers included, by copy engines where no transport is named; the slowest wave and rank of every repetition, median over repetitions with its \
             95% bootstrap interval. The ratio is against {OWN}, whoever is faster: above 1 the other is slower. Systems of which not every wave was measured are left out."
        ),
        table: Table {
            columns: [Column::new("case", "case", ""), Column::new("system", "system", "")]
                .into_iter()
                .chain(estimate_columns("worst wave", "worst_ms", "ms"))
                .chain(estimate_columns(&format!("over {OWN}"), "ratio", ""))
                .chain([Column::new("n", "n", "")])
                .collect(),
            rows,
        },
        ..Figure::default()
    })
}

/// Tokens a second of one layer: attention as measured, and the products of a model on the tokens of a rank.
fn layer_table(id: String, run: &str, times: &[Times], products: &[LayerProduct]) -> Option<Figure> {
    let layers = layer_ns(products);
    let mut rows = Vec::new();
    for t in times {
        let ranks = f64::from(t.case.ranks());
        let waves = t.count() as f64;
        let attention: f64 = t.waves.iter().filter_map(|w| Some(w.time()?.value)).sum();
        for ((model, tokens), ns) in &layers {
            if *tokens as f64 * ranks != t.case.tokens as f64 || !has_heads(model, &t.case) {
                continue;
            }
            let seconds = (attention + waves * ns) * 1e-9;
            rows.push(vec![
                t.case.title().into(),
                label(t, times).into(),
                model.as_str().into(),
                Cell::Number(attention / waves * MS),
                Cell::Number(ns * MS),
                Cell::Number(waves * *tokens as f64 / seconds),
            ]);
        }
    }
    (!rows.is_empty()).then(|| Figure {
        id,
        title: format!("One layer, {run}"),
        description: "Tokens a second and card of one transformer layer, by case and system.".into(),
        kind: Kind::Computed,
        caption: "Computed from two measurements: the attention of a wave (both passes, slowest rank, mean over waves), and the matrix products of one \
                  layer on the tokens of a rank (both passes, tokens spread evenly over experts), one after the other. Norms, routing, activations and \
                  communication of the other parts are left out, so it is an upper bound."
            .into(),
        table: Table {
            columns: vec![
                Column::new("case", "case", ""),
                Column::new("system", "system", ""),
                Column::new("model", "model", ""),
                Column::new("attention", "attention_ms", "ms"),
                Column::new("products", "products_ms", "ms"),
                Column::new("tokens a second and card", "tokens_per_s_per_card", "1/s"),
            ],
            rows,
        },
        ..Figure::default()
    })
}

fn has_heads(model: &str, case: &Case) -> bool {
    Model::named(model).is_ok_and(|m| (u32::from(m.q_heads), u32::from(m.kv_heads)) == (case.q_heads, case.kv_heads))
}

/// Every pass of every wave.
fn wave_table(id: String, run: &str, times: &[Times]) -> Option<Figure> {
    let rows = times.iter().flat_map(|t| t.waves.iter().map(move |w| (t, w))).map(|(t, w)| {
        let mut row: Vec<Cell> = vec![
            t.case.title().into(),
            t.system.clone().into(),
            t.transport.replace('_', " ").into(),
            pass_name(w.pass).into(),
            f64::from(w.wave).into(),
        ];
        row.extend(estimate_cells(w.time().map(|e| e.scaled(MS)).as_ref()));
        let by_rank: Vec<String> = w.by_rank.iter().map(|ns| short(ns * MS)).collect();
        row.push(by_rank.join(" ").into());
        row.extend(estimate_cells(w.hidden_share().as_ref()));
        row.extend(estimate_cells(w.of_bare().as_ref()));
        row.push(w.tflop_per_s(&t.case).map(|e| e.value).into());
        row.push((w.samples().len() as f64).into());
        row
    });
    let rows: Vec<Vec<Cell>> = rows.collect();
    (!rows.is_empty()).then(|| Figure {
        id,
        title: format!("All waves, {run}"),
        description: "Times, hidden share and rate of every pass of every wave.".into(),
        kind: Kind::Measured,
        caption: "Time: slowest rank, median over repetitions with its 95% bootstrap interval. Hidden share: (transfers alone - (program - computation alone)) over the part of the transfers alone that \
                  the plan's pieces let be hidden. 1: all is hidden; 0: nothing; below 0: overlap slowed the program by more than it hid; above 1: by the spread \
                  of the three times; not said where transfers alone take less than a tenth of computation alone. Bare calls / program: time of the bare attention calls over that of the whole program."
            .into(),
        table: Table {
            columns: ["case", "system", "transport", "pass", "wave"]
                .map(|c| Column::new(c, c, ""))
                .into_iter()
                .chain(estimate_columns("time", "time_ms", "ms"))
                .chain([Column::new("by rank", "by_rank_ms", "ms")])
                .chain(estimate_columns("hidden share", "hidden_share", ""))
                .chain(estimate_columns("bare calls / program", "of_bare", ""))
                .chain([Column::new("rate of a card", "rate_tflop_per_s", "TFLOP/s"), Column::new("n", "n", "")])
                .collect(),
            rows,
        },
        ..Figure::default()
    })
}

fn peer_table(id: String, run: &str, peers: &[PeerTimes]) -> Option<Figure> {
    let rows = peers.iter().map(|p| {
        let mut row: Vec<Cell> = vec![p.peer.clone().into(), p.pass.clone().into()];
        row.extend([p.tokens as f64, f64::from(p.heads), f64::from(p.kv_heads), f64::from(p.ranks)].map(Cell::Number));
        row.extend(estimate_cells(p.time().map(|e| e.scaled(MS)).as_ref()));
        row.extend(estimate_cells(p.tflop_per_s().as_ref()));
        row.push((p.slowest.len() as f64).into());
        row
    });
    (!peers.is_empty()).then(|| Figure {
        id,
        title: format!("Peers and roof, {run}"),
        description: "Times and rates of what PyTorch does with the same documents, of the attention kernel alone, and of matrix products.".into(),
        kind: Kind::Measured,
        caption: "From scripts/peers. Slowest rank, median over repetitions with its 95% bootstrap interval. gemm: a square bf16 product with as many rows, \
                  columns and inner elements as the column tokens says."
            .into(),
        table: Table {
            columns: ["peer", "pass", "tokens", "heads", "kv_heads", "ranks"]
                .map(|c| Column::new(c.replace('_', " "), c, ""))
                .into_iter()
                .chain(estimate_columns("time", "time_ms", "ms"))
                .chain(estimate_columns("rate of a card", "rate_tflop_per_s", "TFLOP/s"))
                .chain([Column::new("n", "n", "")])
                .collect(),
            rows: rows.collect(),
        },
        ..Figure::default()
    })
}

fn failure_table(id: String, name: &str, run: &Published) -> Option<Figure> {
    let rows = run.failures.iter().map(|f| {
        [&f.system, &f.case, &f.layout, &f.transport, &f.reason].map(|text| Cell::from(text.clone())).to_vec()
    });
    (!run.failures.is_empty()).then(|| Figure {
        id,
        title: format!("Without a number, {name}"),
        description: "What failed its check, could not run or found no time left, and was not timed.".into(),
        kind: Kind::Measured,
        caption: "Programs whose results were checked and found wrong, that could not run, or for which no time was left were not timed; the reason of each stands beside it.".into(),
        table: Table {
            columns: ["system", "case", "layout", "transport", "reason"].map(|c| Column::new(c, c, "")).to_vec(),
            rows: rows.collect(),
        },
        ..Figure::default()
    })
}

/// Columns of a value and its interval.
fn estimate_columns(title: &str, key: &str, unit: &str) -> [Column; 3] {
    [
        Column::new(title, key, unit),
        Column::new("95% low", format!("{key}_low"), unit),
        Column::new("95% high", format!("{key}_high"), unit),
    ]
}

fn estimate_cells(e: Option<&Estimated>) -> [Cell; 3] {
    let interval = e.and_then(|e| e.interval);
    [e.map(|e| e.value).into(), interval.map(|i| i.0).into(), interval.map(|i| i.1).into()]
}

fn method() -> Vec<Section> {
    vec![Section {
        title: "How it was measured".into(),
        paragraphs: vec![
            "Every program was verified on the cards before it was timed; one that failed was not timed. Times are those of device events on each \
             rank, after warm-up; systems were measured in turns. A wave is its slowest rank. All raw samples ship in cuda.csv and peers.csv."
                .into(),
            "FLOPs are 4 (forward) or 10 (backward) x query heads x head size x exact unmasked pairs, over all cards. Speeds against peers compare \
             medians of runs on the same cards that were not drawn in pairs; ratios between our systems pair repetitions of the same number."
                .into(),
        ],
    }]
}

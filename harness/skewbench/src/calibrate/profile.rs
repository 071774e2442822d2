use skewbench_cuda::CardInfo;
use skewbench_cuda::run::Transport;
use skewbench_plan::{Mask, Pass};
use skewbench_sim::Profile;
use skewbench_sim::profile::{
    Attention, Bandwidth, ContentionFactors, LaunchOverhead, Link, MeasuredOn, RaggedCall, Single, Source, SourceKind,
    TablePass,
};
use skewbench_store::stats::quantile;

use super::{Family, Journal, Point, Work};
use crate::failure::Failure;

/// What a profile is measured on, and what it is called.
pub struct Machine {
    /// Name of the profile.
    pub name: String,
    /// The measuring run.
    pub run: String,
    /// Date, as people write it.
    pub date: String,
    /// Revision of the program.
    pub revision: String,
    /// The card.
    pub card: CardInfo,
}

/// A point with the median of its first row's times.
struct Seen<'a> {
    work: &'a Work,
    name: &'a str,
    ns: f64,
    /// Medians of all rows of the point.
    rows: Vec<f64>,
}

fn seen<'a>(points: &'a [Point], journal: &'a Journal) -> Vec<Seen<'a>> {
    let of = |point: &'a Point| {
        let median = |row: String| {
            let entry = journal.get(&row).filter(|e| e.failed.is_none() && !e.ns.is_empty())?;
            Some(quantile(&entry.ns, 0.5))
        };
        let rows: Vec<f64> = point.rows().into_iter().map(median).collect::<Option<_>>()?;
        Some(Seen { work: &point.work, name: &point.name, ns: *rows.first()?, rows })
    };
    points.iter().filter_map(of).collect()
}

/// FLOPs from which a product counts as large.
const LARGE_FLOPS: f64 = 1e12;
/// Bytes from which a copy shows the bandwidth.
const LARGE_BYTES: u64 = 1 << 27;

/// The profile of the measured points; parts that no point measured are those of `base`, with their own sources.
///
/// # Errors
/// Too few points of attention to price it.
pub fn build(points: &[Point], journal: &Journal, base: &Profile, machine: &Machine) -> Result<Profile, Failure> {
    let seen = seen(points, journal);
    let card = &machine.card;
    let source = |note: String| Source { kind: SourceKind::Measured, run: Some(machine.run.clone()), note };
    let mut profile = base.clone();
    profile.name.clone_from(&machine.name);
    profile.measured_on = Some(MeasuredOn {
        card: card.name.clone(),
        driver: card.driver.clone(),
        cuda: card.cuda.clone(),
        cudnn: card.cudnn.clone(),
        nccl: card.nccl.clone(),
        sm_clock_mhz: card.sm_clock_mhz,
        sm_clock_max_mhz: card.sm_clock_max_mhz,
        memory_clock_mhz: card.memory_clock_mhz,
        power_limit_w: card.power_limit_w,
        date: machine.date.clone(),
        revision: machine.revision.clone(),
    });
    profile.attention = attention(
        &seen,
        source(format!(
            "cuDNN {}, bf16, driver {}, CUDA {}; medians of at least 3 calls by device events, spread in the points beside the profile",
            card.cudnn, card.driver, card.cuda
        )),
    )?;
    let mut products: Vec<(u32, u32, u32, f64)> = Vec::new();
    let mut rates = Vec::new();
    for point in &seen {
        if let Work::Gemm(shape) = point.work {
            products.push((shape.rows, shape.columns, shape.inner, point.ns));
            if shape.flops() >= LARGE_FLOPS {
                rates.push(shape.flops() / (point.ns * 1e-9));
            }
        }
    }
    if !rates.is_empty() {
        products.sort_unstable_by_key(|p| (p.0, p.1, p.2));
        profile.gemm.flops_per_s = quantile(&rates, 0.5);
        profile.gemm.products = products;
        profile.gemm.source = source("cublasLt, bf16, f32 sums; median rate of products of at least 1e12 FLOPs".into());
    }
    copies(&seen, &mut profile, &source);
    for (transport, link, contention) in [
        (Transport::Nccl, &mut profile.intra_node.nccl, &mut profile.contention.nccl),
        (Transport::CopyEngines, &mut profile.intra_node.copy_engines, &mut profile.contention.copy_engines),
    ] {
        links(&seen, transport, link, contention, &source);
    }
    profile.validate(&machine.name).map_err(Failure::config)?;
    Ok(profile)
}

fn table_pass(pass: Pass) -> TablePass {
    match pass {
        Pass::Forward => TablePass::Forward,
        Pass::Backward => TablePass::Backward,
    }
}

fn attention(seen: &[Seen<'_>], source: Source) -> Result<Attention, Failure> {
    let launches = || {
        seen.iter().filter_map(|point| match point.work {
            Work::Launch(family, shape) => Some((*family, shape, point)),
            _ => None,
        })
    };
    let smallest = |pass: Pass| {
        let times = launches().filter(|(_, shape, _)| shape.pass == pass).map(|(_, _, point)| point.ns);
        times.reduce(f64::min).ok_or_else(|| Failure::config("no launch was measured; give a larger --budget"))
    };
    let overhead = LaunchOverhead { forward: smallest(Pass::Forward)?, backward: smallest(Pass::Backward)? };
    let floor = |pass: Pass| if pass == Pass::Forward { overhead.forward } else { overhead.backward };
    let mut attention = Attention {
        source,
        head_dim: 0,
        launch_overhead_ns: overhead,
        bottom_right: Vec::new(),
        square: Vec::new(),
        rectangle: Vec::new(),
        ragged: Vec::new(),
    };
    for (family, shape, point) in launches().filter(|(_, shape, point)| point.ns > floor(shape.pass)) {
        attention.head_dim = shape.head_dim;
        let (pass, heads) = (table_pass(shape.pass), (shape.q_heads, shape.kv_heads));
        if let (Family::Single, [tile]) = (family, shape.tiles.as_slice()) {
            let single = Single(pass, heads.0, heads.1, tile.q, tile.k, point.ns.round());
            match shape.mask {
                Mask::Full => attention.rectangle.push(single),
                _ if tile.q == tile.k => attention.square.push(single),
                _ => attention.bottom_right.push(single),
            }
        } else {
            attention.ragged.push(RaggedCall {
                name: point.name.to_owned(),
                pass,
                q_heads: heads.0,
                kv_heads: heads.1,
                q_len: shape.tiles.iter().map(|t| t.q).collect(),
                kv_len: shape.tiles.iter().map(|t| t.k).collect(),
                full: shape.mask == Mask::Full,
                ns: point.ns.round(),
            });
        }
    }
    for table in [&mut attention.bottom_right, &mut attention.square, &mut attention.rectangle] {
        table.sort_by_key(|row| (row.0.pass(), row.1, row.2, row.3, row.4));
    }
    attention.ragged.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(attention)
}

/// Bandwidth and launch time of kernels that move rows: the slope between large kernels, and what a small one takes beside it.
fn copies(seen: &[Seen<'_>], profile: &mut Profile, source: &dyn Fn(String) -> Source) {
    // Bytes read and written, as the simulator counts them.
    let points: Vec<(u64, f64)> = seen
        .iter()
        .filter_map(|point| match point.work {
            Work::Copy(bytes) => Some((2 * bytes, point.ns)),
            Work::Merge(bytes) => Some((5 * bytes, point.ns)),
            _ => None,
        })
        .collect();
    let rates: Vec<f64> =
        points.iter().filter(|p| p.0 >= LARGE_BYTES).map(|(bytes, ns)| *bytes as f64 / (ns * 1e-9)).collect();
    let smallest = points.iter().min_by_key(|p| p.0);
    if let (false, Some((bytes, ns))) = (rates.is_empty(), smallest) {
        let rate = quantile(&rates, 0.5);
        profile.copies.bandwidth = Bandwidth::from_bytes_per_s(rate);
        profile.copies.launch_ns = (ns - *bytes as f64 / rate * 1e9).max(0.0);
        profile.copies.source =
            source("copies and merges of rows by size; median rate of those of at least 128 MiB".into());
    }
}

fn links(
    seen: &[Seen<'_>],
    transport: Transport,
    link: &mut Link,
    contention: &mut ContentionFactors,
    source: &dyn Fn(String) -> Source,
) {
    let mut points: Vec<(u64, f64)> = Vec::new();
    for point in seen {
        match point.work {
            Work::Exchange(other, bytes) if *other == transport => points.push((*bytes, point.ns)),
            Work::Overlap(other) if *other == transport => {
                if let [compute, transfer, compute_together, transfer_together] = point.rows[..] {
                    let rate = |alone: f64, together: f64| (alone / together).clamp(0.001, 1.0);
                    contention.compute_rate = rate(compute, compute_together);
                    contention.transfer_rate = rate(transfer, transfer_together);
                    contention.source =
                        source("attention and an exchange between two cards, each under the other".into());
                }
            }
            _ => {}
        }
    }
    if points.len() >= 2 {
        points.sort_unstable_by_key(|p| p.0);
        link.points_bytes_ns = points;
        link.source = source("exchange between two cards of a host by size".into());
    }
}

/// Every row of every measured point with the spread of its repeats, as CSV.
pub fn points_csv(points: &[Point], journal: &Journal) -> String {
    let mut text = String::from("point,median_ns,min_ns,max_ns,n,failed\n");
    for row in points.iter().flat_map(Point::rows) {
        let Some(entry) = journal.get(&row) else { continue };
        let extreme = |of: fn(f64, f64) -> f64| entry.ns.iter().copied().reduce(of);
        let number = |value: Option<f64>| value.map(|v| v.to_string()).unwrap_or_default();
        let median = (!entry.ns.is_empty()).then(|| quantile(&entry.ns, 0.5));
        let failed = crate::present::quote(entry.failed.as_deref().unwrap_or_default());
        text.push_str(&format!(
            "{},{},{},{},{},{failed}\n",
            crate::present::quote(&row),
            number(median),
            number(extreme(f64::min)),
            number(extreme(f64::max)),
            entry.ns.len(),
        ));
    }
    text
}

//! Every preset packs exactly and repeatably; the fitted ones reproduce their published figures.

use rayon::prelude::*;
use skewbench_workloads::{Packing, StreamOptions, WindowStream, Workload, describe, presets};

const WINDOWS: [u32; 2] = [262_144, 1_048_576];

#[test]
fn every_preset_fills_windows_exactly_and_repeats() {
    let all: Vec<(&str, u32)> = presets().iter().flat_map(|p| WINDOWS.map(|w| (p.name.as_str(), w))).collect();
    all.into_par_iter().for_each(|(name, window)| {
        for packing in [None, Some(Packing::FIRST_FIT), Some(Packing::Cut), Some(Packing::Split)] {
            let workload = Workload::preset(name, Some(window), packing).unwrap();
            let options = StreamOptions { gbs: 32, steps_per_chunk: Some(4), shuffle: true };
            let stream = WindowStream::with_options(&workload, 3, options).unwrap();
            let chunk = stream.chunk(1);
            assert_eq!(chunk.len(), 4);
            for windows in &chunk {
                assert_eq!(windows.len(), 32);
                for documents in windows {
                    assert_eq!(documents.iter().map(|&l| u64::from(l)).sum::<u64>(), u64::from(window), "{name}");
                    assert!(documents.iter().all(|&l| l > 0), "{name}");
                }
            }
            assert_eq!(WindowStream::with_options(&workload, 3, options).unwrap().chunk(1), chunk, "{name}");
            assert_eq!(stream.step(6), chunk[2], "{name}");
        }
    });
}

#[test]
fn windows_do_not_depend_on_the_number_of_threads() {
    let workload = Workload::preset("paper-256k", None, None).unwrap();
    let stream = WindowStream::new(&workload, 8).unwrap();
    let with = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| (0..4u64).into_par_iter().map(|c| stream.chunk(c)).collect::<Vec<_>>())
    };
    assert_eq!(with(1), with(3));
}

/// The bytes of a seed are part of every result that names it: a change here changes published runs.
#[test]
fn first_windows_of_a_seed_stay_what_they_are() {
    let first = |name| {
        let stream = WindowStream::new(&Workload::preset(name, None, None).unwrap(), 1).unwrap();
        let mut hash = blake3::Hasher::new();
        for window in stream.step(0) {
            for length in window {
                hash.update(&length.to_le_bytes());
            }
        }
        hash.finalize().to_hex()[..16].to_owned()
    };
    let prints: Vec<String> = presets().iter().map(|p| format!("{} {}", p.name, first(&p.name))).collect();
    assert_eq!(prints.join("\n"), include_str!("first-windows.txt").trim());
}

struct Published {
    name: &'static str,
    mean_x: f64,
    cv_x: f64,
    documents_per_window: f64,
    full_windows: f64,
    /// Median, mean, 99% and 99.9% of document lengths.
    lengths: [f64; 4],
    /// Quantiles 0.1, 0.25, 0.5, 0.75, 0.9 of x.
    x: [f64; 5],
}

#[test]
fn fitted_presets_reproduce_the_fit() {
    let fits = [
        Published {
            name: "paper-256k",
            mean_x: 0.2156,
            cv_x: 1.2676,
            documents_per_window: 78.6,
            full_windows: 0.061,
            lengths: [1111.0, 3465.8, 41291.0, 235_069.0],
            x: [0.02396, 0.03645, 0.09327, 0.26729, 0.6428],
        },
        Published {
            name: "paper-1m",
            mean_x: 0.1905,
            cv_x: 1.5052,
            documents_per_window: 314.9,
            full_windows: 0.0701,
            lengths: [1100.0, 3530.7, 21188.0, 390_308.0],
            x: [0.00745, 0.01196, 0.05488, 0.22289, 0.67302],
        },
    ];
    for fit in fits {
        let described = describe(&Workload::preset(fit.name, None, None).unwrap(), 20, 50_000).unwrap();
        let windows = &described.windows;
        let near = |what: &str, ours: f64, published: f64, within: f64| {
            assert!((ours / published - 1.0).abs() < within, "{} {what}: {ours} against {published}", fit.name);
        };
        assert!(windows.windows >= 50_000);
        near("mean x", windows.mean_x.value, fit.mean_x, 0.03);
        near("CV(x)", windows.cv_x.value, fit.cv_x, 0.03);
        assert!(windows.mean_x.standard_error < 0.01 * fit.mean_x);
        near("documents a window", windows.documents_per_window, fit.documents_per_window, 0.03);
        near("full windows", windows.full_windows, fit.full_windows, 0.08);
        let documents = &described.documents;
        let ours = [
            documents.quantiles[3] as f64,
            documents.mean,
            documents.quantiles[6] as f64,
            documents.quantiles[7] as f64,
        ];
        for (ours, published) in ours.into_iter().zip(fit.lengths) {
            near("document length", ours, published, 0.05);
        }
        // Few windows lie around the 0.9 quantile of x: its standard error is above 2% on either side.
        for ((ours, published), within) in
            windows.x_quantiles[1..6].iter().zip(fit.x).zip([0.05, 0.05, 0.05, 0.05, 0.1])
        {
            near("quantile of x", *ours, published, within);
        }
    }
}

#[test]
fn real_and_peer_presets_behave_as_published() {
    // mean x and CV(x) of a few thousand windows; tails are heavy, so the tolerance is wide.
    let published = [
        ("real-256k", 262_144, Packing::FIRST_FIT, 0.2532, 1.2778),
        ("real-1m", 1_048_576, Packing::Split, 0.1874, 1.4914),
        ("magi", 262_144, Packing::FIRST_FIT, 0.1423, 1.0702),
        ("magi-long", 262_144, Packing::Split, 0.6658, 0.4366),
        ("magi-short", 1_048_576, Packing::FIRST_FIT, 0.0097, 0.2982),
        ("longmino", 262_144, Packing::FIRST_FIT, 0.2441, 1.037),
        ("wlb-lengths", 262_144, Packing::FIRST_FIT, 0.0725, 1.0501),
    ];
    for (name, window, packing, mean, cv) in published {
        let workload = Workload::preset(name, Some(window), Some(packing)).unwrap();
        let windows = describe(&workload, 5, 16_384).unwrap().windows;
        assert!((windows.mean_x.value / mean - 1.0).abs() < 0.06, "{name}: mean x {:?} against {mean}", windows.mean_x);
        assert!((windows.cv_x.value / cv - 1.0).abs() < 0.06, "{name}: CV(x) {:?} against {cv}", windows.cv_x);
    }
}

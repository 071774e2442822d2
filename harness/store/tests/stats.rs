//! Statistics against values worked out elsewhere, and their properties.

use std::collections::BTreeMap;

use proptest::prelude::*;
use rand::RngExt;
use skewbench_store::stats::{
    Bootstrap, CompareOptions, Summary, Verdict, compare, geometric_means, mad, mean, median, outliers, quantile,
    standard_error, stream,
};

fn noise(seed: u64, n: usize) -> Vec<f64> {
    let mut random = stream(seed, "noise");
    (0..n).map(|_| random.random::<f64>()).collect()
}

#[test]
fn descriptions_match_known_values() {
    // R: x <- c(2,4,4,4,5,5,7,9); quantile(x, c(.1,.99)); mad(x, constant = 1); sd(x) / sqrt(8)
    let x = [9.0, 2.0, 4.0, 5.0, 4.0, 7.0, 4.0, 5.0];
    assert_eq!((mean(&x), median(&x), mad(&x)), (5.0, 4.5, 0.5));
    assert!((quantile(&x, 0.1) - 3.4).abs() < 1e-12 && (quantile(&x, 0.99) - 8.86).abs() < 1e-12);
    assert!((standard_error(&x) - 0.755_928_946_018_454_5).abs() < 1e-12);
    let summary = Summary::of(&x).unwrap();
    assert_eq!((summary.n, summary.min, summary.max), (8, 2.0, 9.0));
    // 0.6745 * 4.5 / 0.5 = 6.1 for 9, 3.4 for 2 and 7.
    assert_eq!(summary.outliers, 1);
    assert_eq!(outliers(&[1.0; 9]), 0);
    assert_eq!(outliers(&[1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 100.0]), 1, "MAD of 0");
    assert!(Summary::of(&[]).is_err() && Summary::of(&[1.0, f64::NAN]).is_err());
    assert_eq!(Summary::of(&[3.0]).unwrap().standard_error, 0.0);
}

#[test]
fn intervals_cover_the_mean_as_often_as_they_say() {
    let covered = (0..400)
        .filter(|i| {
            let interval = Bootstrap { resamples: 400, ..Bootstrap::new(1, "cover") }.mean(&noise(*i, 60)).unwrap();
            interval.low <= 0.5 && 0.5 <= interval.high
        })
        .count();
    assert!((366..=390).contains(&covered), "{covered} of 400");
}

#[test]
fn intervals_are_reproducible_and_named() {
    let x = noise(3, 500);
    let interval = |seed, name| Bootstrap::new(seed, name).mean(&x).unwrap();
    assert_eq!(interval(1, "a"), interval(1, "a"));
    assert_ne!(interval(1, "a"), interval(1, "b"));
    assert_ne!(interval(1, "a"), interval(2, "a"));
    let normal = 1.96 * standard_error(&x);
    assert!((interval(1, "a").low - (mean(&x) - normal)).abs() < 0.1 * normal);
}

#[test]
fn blocks_widen_the_interval_of_dependent_samples() {
    let mut level = 0.0;
    let walk: Vec<f64> = noise(5, 2000)
        .into_iter()
        .map(|x| {
            level = 0.95 * level + x - 0.5;
            level
        })
        .collect();
    let width = |block| {
        let interval = Bootstrap::new(1, "walk").with_block(block).mean(&walk).unwrap();
        interval.high - interval.low
    };
    assert!(width(100) > 3.0 * width(1), "{} {}", width(100), width(1));
}

#[test]
fn resampling_any_statistic_equals_the_special_cases() {
    let (a, b) = (noise(1, 77), noise(2, 77));
    let bootstrap = Bootstrap::new(9, "x");
    let pick = |v: &[f64], i: &[u32]| i.iter().map(|i| v[*i as usize]).sum::<f64>();
    let (special, general) = (bootstrap.mean(&a).unwrap(), bootstrap.run(77, |i| pick(&a, i) / 77.0).unwrap());
    assert!((special.low - general.low).abs() < 1e-12 && (special.high - general.high).abs() < 1e-12);
    assert_eq!(bootstrap.ratio(&a, &b).unwrap(), bootstrap.run(77, |i| pick(&a, i) / pick(&b, i)).unwrap());
    assert!(
        bootstrap.mean(&[]).is_err() && bootstrap.run(0, |_| 1.0).is_err() && bootstrap.run(3, |_| f64::NAN).is_err()
    );
    assert!(bootstrap.ratio(&a, &b[1..]).is_err());
    assert!(Bootstrap { resamples: 0, ..bootstrap }.mean(&a).is_err());
    let one = bootstrap.mean(&[4.0]).unwrap();
    assert_eq!((one.low, one.high), (4.0, 4.0));
}

#[test]
fn verdicts() {
    let base: Vec<f64> = noise(7, 200).iter().map(|x| 100.0 + x).collect();
    let scaled = |f: f64| base.iter().map(|x| x * f).collect::<Vec<_>>();
    let times = CompareOptions::times(Bootstrap::new(1, "verdict"));
    let rates = CompareOptions::rates(Bootstrap::new(1, "verdict"));
    let verdict = |subject: &[f64], options| compare(&base, subject, options).unwrap().verdict;
    assert_eq!(verdict(&base, &times), Verdict::Same);
    assert_eq!(verdict(&scaled(1.005), &times), Verdict::Same);
    assert_eq!(verdict(&scaled(0.8), &times), Verdict::Faster);
    assert_eq!(verdict(&scaled(1.2), &times), Verdict::Slower);
    assert_eq!(verdict(&scaled(1.2), &rates), Verdict::Faster);
    let wild: Vec<f64> = noise(8, 200).iter().map(|x| 200.0 * x).collect();
    let unclear = compare(&base, &wild, &times).unwrap();
    assert!(unclear.verdict == Verdict::Unclear && unclear.reason.is_some());
    let few = compare(&base[..4], &scaled(0.5)[..4], &times).unwrap();
    assert_eq!((few.verdict, few.n, few.reason.as_deref()), (Verdict::Unclear, 4, Some("4 pairs, fewer than 5")));
    assert!(compare(&[0.0, 1.0], &[1.0, 1.0], &times).is_err());
    assert!(compare(&base, &base[1..], &times).is_err());
}

#[test]
fn geometric_means_take_the_intersection() {
    let cells = |list: &[(&str, f64)]| list.iter().map(|(c, v)| ((*c).to_owned(), *v)).collect::<BTreeMap<_, _>>();
    let values = BTreeMap::from([
        ("libra".to_owned(), cells(&[("a", 2.0), ("b", 8.0), ("c", 100.0)])),
        ("ulysses".to_owned(), cells(&[("a", 1.0), ("b", 1.0), ("d", 100.0)])),
    ]);
    let result = geometric_means(&values).unwrap();
    assert!((result.means["libra"] - 4.0).abs() < 1e-12 && result.means["ulysses"] == 1.0);
    assert_eq!(result.cells, ["a", "b"]);
    let left: Vec<_> = result.left_out.iter().map(|l| (l.cell.as_str(), l.missing[0].as_str())).collect();
    assert_eq!(left, [("c", "ulysses"), ("d", "libra")]);
    assert!(geometric_means(&BTreeMap::new()).is_err());
    let negative = BTreeMap::from([("libra".to_owned(), cells(&[("a", -1.0)]))]);
    assert!(geometric_means(&negative).is_err());
}

proptest! {
    #[test]
    fn quantiles_are_ordered_and_inside(x in proptest::collection::vec(-1e9f64..1e9, 1..50), a in 0.0f64..1.0, b in 0.0f64..1.0) {
        let (low, high) = (a.min(b), a.max(b));
        let summary = Summary::of(&x).unwrap();
        prop_assert!(summary.min <= quantile(&x, low));
        prop_assert!(quantile(&x, low) <= quantile(&x, high) + 1e-6);
        prop_assert!(quantile(&x, high) <= summary.max);
        prop_assert_eq!(quantile(&x, 0.0), summary.min);
        prop_assert_eq!(quantile(&x, 1.0), summary.max);
        prop_assert!(summary.outliers <= x.len() / 2);
    }

    #[test]
    fn intervals_stay_inside_the_samples(x in proptest::collection::vec(-1e6f64..1e6, 1..40), block in 1usize..9) {
        let interval = Bootstrap { resamples: 50, ..Bootstrap::new(0, "p") }.with_block(block).mean(&x).unwrap();
        let summary = Summary::of(&x).unwrap();
        prop_assert!(interval.low <= interval.high);
        prop_assert!(summary.min - 1e-6 <= interval.low && interval.high <= summary.max + 1e-6);
    }
}

//! Calibration with a timer that stands in for a card.

use skewbench::calibrate::{
    Instruments, Journal, Machine, build, held_out, measure, points, points_csv, validation_csv,
};
use skewbench_cuda::gemm::{GemmShape, GemmTimer};
use skewbench_cuda::run::Transport;
use skewbench_cuda::{CardInfo, CopyTimer, CudaError, LinkTimer, Overlap};
use skewbench_sim::profile::SourceKind;
use skewbench_sim::{Pricing, Profile};

use crate::fake::{FakeCard, Law};

struct Products;

impl GemmTimer for Products {
    fn time(&mut self, shape: GemmShape, _: u32, repeats: u32) -> Result<Vec<f64>, CudaError> {
        Ok(vec![shape.flops() / 7e14 * 1e9 + 3000.0; repeats as usize])
    }
}

struct Copies;

impl CopyTimer for Copies {
    fn copy_ns(&mut self, bytes: u64, _: u32, repeats: u32) -> Result<Vec<f64>, CudaError> {
        Ok(vec![2.0 * bytes as f64 / 4e12 * 1e9 + 2000.0; repeats as usize])
    }

    fn merge_ns(&mut self, bytes: u64, _: u32, repeats: u32) -> Result<Vec<f64>, CudaError> {
        Ok(vec![5.0 * bytes as f64 / 4e12 * 1e9 + 2000.0; repeats as usize])
    }
}

struct Links;

impl LinkTimer for Links {
    fn exchange_ns(&mut self, transport: Transport, bytes: u64, _: u32, repeats: u32) -> Result<Vec<f64>, CudaError> {
        match transport {
            Transport::Nccl => Ok(vec![bytes as f64 / 3e11 * 1e9 + 60_000.0; repeats as usize]),
            Transport::CopyEngines => Err(CudaError::Program("no peer access".into())),
        }
    }

    fn overlap(&mut self, _: Transport, repeats: u32) -> Result<Overlap, CudaError> {
        Ok(Overlap {
            compute_alone_ns: vec![9.0; repeats as usize],
            transfer_alone_ns: vec![5.0; repeats as usize],
            compute_together_ns: vec![10.0; repeats as usize],
            transfer_together_ns: vec![20.0; repeats as usize],
        })
    }
}

fn machine(card: &CardInfo) -> Machine {
    Machine {
        name: "fake".into(),
        run: "a run".into(),
        date: "2030-01-01".into(),
        revision: "r".into(),
        card: card.clone(),
    }
}

fn journal_lines(path: &std::path::Path) -> usize {
    std::fs::read_to_string(path).expect("a journal").lines().count()
}

#[test]
fn a_profile_measured_on_the_profile_says_the_same() {
    let base = Profile::named("h200").expect("built in");
    let pricing = Pricing::new(base.clone());
    let all = points(&pricing, 1).expect("points");
    let folder = tempfile::tempdir().expect("a folder");
    let info = CardInfo { name: "a card".into(), cudnn: "9.19.0".into(), ..CardInfo::default() };
    let mut journal = Journal::open(&folder.path().join("points.jsonl"), &info, 1, Some("r"), false).expect("new");
    let (mut card, mut products, mut copies, mut links) = (FakeCard::new(Law::Noise(0.01)), Products, Copies, Links);
    let mut instruments = Instruments {
        launches: &mut card,
        products: Some(&mut products),
        copies: Some(&mut copies),
        links: Some(&mut links),
    };
    let left = measure(&all, &mut instruments, &mut journal, 1e9).expect("measures");
    assert_eq!(left, 0);
    let profile = build(&all, &journal, &base, &machine(&info)).expect("a profile");
    let text = serde_json::to_string(&profile).expect("JSON");
    let profile = Profile::parse(&text, "fake.json").expect("the strict loader takes it");
    assert_eq!(profile.attention.source.kind, SourceKind::Measured);
    assert_eq!(profile.measured_on.as_ref().map(|m| m.cudnn.as_str()), Some("9.19.0"));
    // What failed is tried again, and nothing else.
    let before = journal_lines(&folder.path().join("points.jsonl"));
    drop(journal);
    let mut journal = Journal::open(&folder.path().join("points.jsonl"), &info, 1, Some("r"), true).expect("resumes");
    let mut instruments = Instruments { launches: &mut card, products: None, copies: None, links: Some(&mut links) };
    measure(&all, &mut instruments, &mut journal, 1e9).expect("measures");
    let failed = all.iter().filter(|point| point.name.starts_with("exchange copy_engines")).count();
    assert_eq!(journal_lines(&folder.path().join("points.jsonl")) - before, failed);
    assert!((profile.gemm.flops_per_s / 7e14 - 1.0).abs() < 0.01, "{}", profile.gemm.flops_per_s);
    assert!((profile.copies.bandwidth.bytes_per_s() / 4e12 - 1.0).abs() < 0.05);
    assert!((profile.contention.nccl.transfer_rate - 0.25).abs() < 1e-9);
    // What could not be measured keeps its source.
    assert_eq!(profile.intra_node.copy_engines, base.intra_node.copy_engines);
    assert_eq!(profile.network, base.network);
    // Held-out launches of the same card are priced well by the new profile.
    let ours = Pricing::new(profile);
    let held = held_out(&ours, 1).expect("points");
    let mut tried = Journal::open(&folder.path().join("held.jsonl"), &info, 1, Some("r"), false).expect("new");
    let mut instruments = Instruments { launches: &mut card, products: None, copies: None, links: None };
    measure(&held, &mut instruments, &mut tried, 1e9).expect("measures");
    let csv = validation_csv(&held, &tried, &ours);
    let mut errors: Vec<f64> = csv
        .lines()
        .skip(1)
        .map(|line| {
            let fields: Vec<&str> = line.split(',').collect();
            assert_eq!(fields.len(), 15, "{line}");
            let number = |i: usize| fields[i].parse::<f64>().expect("a number");
            (number(10) / number(11) - 1.0).abs()
        })
        .collect();
    errors.sort_by(f64::total_cmp);
    assert!(errors.len() > 100);
    assert!(errors[errors.len() / 2] < 0.02, "median error {}", errors[errors.len() / 2]);
    let spread = points_csv(&all, &journal);
    assert!(spread.contains("no peer access"), "failed points are listed");
    for row in ["compute alone,9", "transfer alone,5", "compute together,10", "transfer together,20"] {
        assert!(spread.contains(&format!("overlap nccl {row},")), "{row}");
    }
}

#[test]
fn a_budget_leaves_a_profile_that_is_whole_and_goes_on() {
    let base = Profile::named("h200").expect("built in");
    let pricing = Pricing::new(base.clone());
    let all = points(&pricing, 1).expect("points");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("points.jsonl");
    let info = CardInfo { name: "a card".into(), ..CardInfo::default() };
    let first: Vec<_> = all.iter().filter(|p| p.level == 0).cloned().collect();
    let mut card = FakeCard::new(Law::Exact);
    let mut journal = Journal::open(&path, &info, 1, Some("r"), false).expect("new");
    let mut instruments = Instruments { launches: &mut card, products: None, copies: None, links: None };
    measure(&first, &mut instruments, &mut journal, 1e9).expect("measures");
    let profile = build(&all, &journal, &base, &machine(&info)).expect("a profile");
    assert_eq!((&profile.gemm, &profile.copies), (&base.gemm, &base.copies));
    drop(journal);
    let before = card.calls();
    let mut journal = Journal::open(&path, &info, 1, Some("r"), true).expect("resumes");
    let mut instruments = Instruments { launches: &mut card, products: None, copies: None, links: None };
    assert_eq!(measure(&first, &mut instruments, &mut journal, 1e9).expect("measures"), 0);
    assert!(measure(&all, &mut instruments, &mut journal, 0.001).expect("measures") > 100);
    assert_eq!(card.calls(), before);
}

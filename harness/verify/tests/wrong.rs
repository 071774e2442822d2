//! Systems that are wrong on purpose: each must fail, with a message that names what and where.

use skewbench_plan::{
    CallMode, Domain, HeadRange, Mask, Pass, PlaceContext, PlacedStep, Placement, Placer, Plan, Planner, Scope, Step,
    SystemError, Work,
};
use skewbench_systems::planners::libra::{TileAssignment, plan_assignment};
use skewbench_systems::registry::system;
use skewbench_verify::{Backend, Case, Ending, Finding, Subject, verify_case};

/// The planner of a system with a defect in some of its plans.
struct Broken<'a> {
    planner: &'a dyn Planner,
    damage: fn(&mut Plan),
    bound: fn(u64) -> u64,
}

impl Planner for Broken<'_> {
    fn name(&self) -> &str {
        "broken"
    }

    fn scope(&self) -> Scope {
        self.planner.scope()
    }

    fn plan(&self, domain: &Domain<'_>) -> Result<Plan, SystemError> {
        let mut plan = self.planner.plan(domain)?;
        (self.damage)(&mut plan);
        Ok(plan)
    }

    fn load_bound(&self, domain: &Domain<'_>) -> Result<u64, SystemError> {
        Ok((self.bound)(self.planner.load_bound(domain)?))
    }
}

/// Libra's tiles, all of them on the last rank, under Libra's own bound.
struct Lopsided<'a>(&'a dyn Planner);

impl Planner for Lopsided<'_> {
    fn name(&self) -> &str {
        "lopsided"
    }

    fn scope(&self) -> Scope {
        self.0.scope()
    }

    fn plan(&self, domain: &Domain<'_>) -> Result<Plan, SystemError> {
        let ends = |s: &&skewbench_plan::PackedSequence| {
            let tokens = s.tokens() as u32;
            (1..tokens.div_ceil(8)).map(|block| 8 * block).chain([tokens]).collect()
        };
        let ends: Vec<Vec<u32>> = domain.sequences.iter().map(ends).collect();
        let ranks = domain.sequences.len() as u32 * domain.cp;
        let workers = vec![ranks - 1; ends.iter().map(Vec::len).sum()];
        plan_assignment("lopsided", domain, &TileAssignment { head_shards: 1, pieces: 1, resend: true, ends, workers })
    }

    fn load_bound(&self, domain: &Domain<'_>) -> Result<u64, SystemError> {
        self.0.load_bound(domain)
    }
}

/// A placement that loses the last document of every step.
struct Losing;

impl Placement for Losing {
    fn name(&self) -> &str {
        "losing"
    }

    fn placer(&self) -> Box<dyn Placer + '_> {
        Box::new(Self)
    }
}

impl Placer for Losing {
    fn place(&mut self, step: &Step, context: &PlaceContext<'_>) -> Result<PlacedStep, SystemError> {
        let arrival = system("ulysses", &serde_json::Map::new()).expect("a named system");
        let mut placed = arrival.placement().placer().place(step, context)?;
        if let Some(last) = placed.sequences.last_mut() {
            let documents = last.documents().to_vec();
            *last = skewbench_plan::PackedSequence::new(documents.into_iter().skip(1));
        }
        Ok(placed)
    }
}

/// What verification says of a system with a defect, over cases until one is wrong.
fn finding(name: &str, damage: fn(&mut Plan), bound: fn(u64) -> u64) -> String {
    for number in 0..40 {
        let case = Case::draw(number, &[], 1);
        let built = system(name, &serde_json::Map::new()).expect("a named system");
        let broken = Broken { planner: built.planner(), damage, bound };
        let subject = Subject { placement: built.placement(), planner: &broken, pool: 4 };
        match verify_case(subject, &case, Backend::Cpu) {
            Ending::Wrong(finding) => return finding.to_string(),
            Ending::Right(_) | Ending::Refused(_) => {}
        }
    }
    panic!("{name} with a defect passed all cases");
}

fn unchanged(bound: u64) -> u64 {
    bound
}

/// The first launch of some rank.
fn first_launch(plan: &mut Plan, pass: Pass) -> Option<&mut skewbench_plan::Launch> {
    let table = if pass == Pass::Forward { &mut plan.forward } else { &mut plan.backward };
    table.ranks.iter_mut().flat_map(|r| r.streams.iter_mut().flatten()).find_map(|op| match &mut op.work {
        Work::Launch(launch) => Some(launch),
        _ => None,
    })
}

#[track_caller]
fn names(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
}

#[test]
fn a_dropped_tile_is_named() {
    let drop_tile = |plan: &mut Plan| {
        if let Some(launch) = first_launch(plan, Pass::Forward).filter(|l| l.tiles.len() > 1) {
            launch.tiles.end -= 1;
        }
    };
    for name in ["ulysses", "ring-zigzag", "libra"] {
        names(&finding(name, drop_tile, unchanged), &["step 0", "dp ranks", "forward", "sequence", "document"]);
    }
}

#[test]
fn a_mask_that_is_off_by_one_is_named() {
    let shift = |plan: &mut Plan| {
        if let Some(launch) = first_launch(plan, Pass::Forward).filter(|l| l.mask == Mask::Causal) {
            launch.mask = Mask::CausalExclusive;
        }
    };
    for name in ["ulysses", "libra"] {
        names(&finding(name, shift, unchanged), &["dp ranks", "forward", "sequence"]);
    }
}

#[test]
fn swapped_heads_are_named() {
    let swap = |plan: &mut Plan| {
        let heads = plan.shape.q_heads;
        for op in plan.forward.ranks.iter_mut().flat_map(|r| r.streams.iter_mut().flatten()) {
            if let Work::Launch(launch) = &mut op.work {
                launch.q_heads = HeadRange::new(heads - launch.q_heads.end, heads - launch.q_heads.start);
            }
        }
    };
    names(&finding("ulysses", swap, unchanged), &["dp ranks", "forward", "heads"]);
}

#[test]
fn a_lost_gradient_is_named() {
    let lose = |plan: &mut Plan| {
        let accumulates = plan.backward.calls.iter_mut().filter(|c| c.mode == CallMode::Accumulate);
        if let Some(part) = accumulates.flat_map(|c| &mut c.parts).find(|p| p.moves.len() > 1) {
            part.moves.end -= 1;
        }
    };
    for name in ["ulysses", "ring-zigzag", "libra"] {
        names(&finding(name, lose, unchanged), &["dp ranks", "backward", "rank"]);
    }
}

#[test]
fn more_load_than_declared_is_named() {
    names(&finding("libra", |_| {}, |bound| bound / 2), &["dp ranks", "rank", "pairs x heads", "declared bound"]);
}

#[test]
fn a_planner_that_gives_one_rank_everything_is_named_with_rank_load_and_bound() {
    let options = serde_json::json!({ "B": 8 });
    let libra = system("libra", options.as_object().expect("an object")).expect("a named system");
    let lopsided = Lopsided(libra.planner());
    let mut case = Case { dp: 2, cp: 2, ..Case::draw(0, &[], 1) };
    case.steps = vec![vec![vec![100, 28], vec![64, 64]]];
    let verified = |planner: &dyn Planner, backend: Backend| {
        verify_case(Subject { placement: libra.placement(), planner, pool: 2 }, &case, backend)
    };
    for backend in Backend::ALL {
        assert!(matches!(verified(libra.planner(), backend), Ending::Right(_)));
        let Ending::Wrong(Finding::Load { pass, rank, load, bound, at }) = verified(&lopsided, backend) else {
            panic!("a planner that gives one rank everything passed");
        };
        let pairs: u64 = [100u64, 28, 64, 64].iter().map(|l| l * (l + 1) / 2).sum();
        let heads = u64::from(case.shape.q_heads);
        assert_eq!((pass, rank, load), ("forward", 3, pairs * heads));
        assert!(bound < load / 2, "{bound}");
        let text = Finding::Load { pass, rank, load, bound, at }.to_string();
        names(&text, &["dp ranks 0..2", "rank 3", &load.to_string(), &bound.to_string()]);
    }
}

#[test]
fn a_lost_document_is_named() {
    let built = system("ulysses", &serde_json::Map::new()).expect("a named system");
    let subject = Subject { placement: &Losing, planner: built.planner(), pool: 4 };
    let Ending::Wrong(finding) = verify_case(subject, &Case::draw(3, &[], 1), Backend::Cpu) else {
        panic!("a placement that loses documents passed");
    };
    names(&finding.to_string(), &["placement", "step 0", "tokens"]);
}

#[test]
fn a_planner_that_panics_is_named() {
    let text = finding("ulysses", |_| panic!("out of ideas"), unchanged);
    names(&text, &["planner", "panicked", "out of ideas"]);
}

use std::time::{Duration, Instant};

use skewbench_cuda::run::{self, Transport};
use skewbench_plan::{Pass, Step};

use super::bench::Bench;
use super::log::Log;
use super::study::{CaseFile, StudyFile};
use super::waves::{Setting, Wave, step_of, waves_of};
use crate::cells::Resources;
use crate::failure::{Exit, Failure};
use crate::progress::Progress;
use crate::scheduler::check_interrupted;
use crate::shipped::{Failed, Mode, Sample};

/// What a study runs with.
pub(super) struct Plan<'a> {
    pub study: &'a StudyFile,
    pub systems: Vec<String>,
    /// They were chosen on the command line, and stand in place of those of cases, too.
    pub chosen: bool,
    pub seed: u64,
    /// Prices that planners balance by.
    pub profile: &'a str,
    /// Time after which nothing new is begun.
    pub budget: Duration,
    /// Ranks that the cards can hold.
    pub ranks: usize,
}

/// A case with one count of heads and one transport.
struct Block<'a> {
    case: &'a CaseFile,
    heads: (u16, u16),
    carrier: Transport,
    samples: u32,
    rounds: u32,
    systems: &'a [String],
}

impl Block<'_> {
    fn layout(&self) -> String {
        format!("dp={},cp={}", self.case.layout.dp, self.case.layout.cp)
    }

    /// What carries its transfers, in tables.
    fn transport(&self) -> &'static str {
        if self.case.ranks() == 1 { "none" } else { self.carrier.name() }
    }

    fn failed(&self, system: &str, reason: impl std::fmt::Display) -> Failed {
        Failed {
            system: system.to_owned(),
            case: self.case.name.clone(),
            layout: self.layout(),
            transport: self.transport().to_owned(),
            reason: format!("{}:{} heads: {reason}", self.heads.0, self.heads.1),
        }
    }
}

/// A system in a block.
struct Entrant {
    name: String,
    waves: Vec<Wave>,
    /// Nothing more of it is measured.
    out: bool,
}

/// Modes beside the whole program, and how many executions of each.
const APART: [(run::Mode, Mode); 3] = [
    (run::Mode::Compute, Mode::ComputeOnly),
    (run::Mode::Transfers, Mode::TransfersOnly),
    (run::Mode::Bare, Mode::Bare),
];
const APART_SAMPLES: u32 = 3;

/// Measures every block. Systems take turns, in an order that changes from round to round.
///
/// # Errors
/// A log that cannot be written, an interruption. What a system or card cannot do is a row of failures.
pub(super) fn measure(
    plan: &Plan<'_>,
    bench: &mut dyn Bench,
    resources: &mut Resources,
    log: &mut Log,
) -> Result<(), Failure> {
    let start = Instant::now();
    let blocks: Vec<Block<'_>> = blocks(plan);
    let progress = Progress::new("blocks", blocks.len() as u64);
    for block in &blocks {
        check_interrupted()?;
        let name = format!("{} {}:{} {}", block.case.name, block.heads.0, block.heads.1, block.transport());
        if start.elapsed() > plan.budget {
            let why = format!("not measured: the budget of {} s was spent", plan.budget.as_secs());
            block.systems.iter().try_for_each(|system| log.failed(&block.failed(system, &why)))?;
        } else {
            one_block(plan, block, bench, resources, log, start)?;
        }
        progress.advance(1, &name);
    }
    progress.finish();
    Ok(())
}

fn blocks<'a>(plan: &'a Plan<'_>) -> Vec<Block<'a>> {
    let mut blocks = Vec::new();
    for case in &plan.study.cases {
        for heads in &case.heads {
            let samples = case.samples.unwrap_or(plan.study.samples);
            let rounds = case.rounds.unwrap_or(plan.study.rounds);
            let own = |of: &'a [String]| if of.is_empty() || plan.chosen { &plan.systems[..] } else { of };
            let carriers = if case.transports.is_empty() { &plan.study.transports } else { &case.transports };
            // Ranks that send nothing to each other are the same under every transport.
            let carriers = if case.ranks() == 1 { &carriers[..1] } else { &carriers[..] };
            let block = |carrier: &Transport| {
                let systems = own(&case.systems);
                Block { case, heads: *heads, carrier: *carrier, samples, rounds, systems }
            };
            blocks.extend(carriers.iter().map(block));
        }
    }
    blocks
}

fn one_block(
    plan: &Plan<'_>,
    block: &Block<'_>,
    bench: &mut dyn Bench,
    resources: &mut Resources,
    log: &mut Log,
    start: Instant,
) -> Result<(), Failure> {
    let needed = block.case.ranks() as usize;
    if needed > plan.ranks {
        let why = skewbench_cuda::CudaError::Cards { needed, found: plan.ranks };
        return block.systems.iter().try_for_each(|system| log.failed(&block.failed(system, &why)));
    }
    let step: Step = step_of(block.case, plan.seed, resources)?;
    let machine = resources.machine(plan.profile, &Default::default())?;
    let pricing = resources.pricing(&machine)?.clone();
    let shape = CaseFile::shape(block.heads, plan.study.head_dim);
    let setting = Setting { case: block.case, shape, seed: plan.seed, pricing: &pricing };
    let mut entrants = Vec::new();
    for system in block.systems {
        match waves_of(system, &step, &setting, resources) {
            Ok(waves) => entrants.push(Entrant { name: system.clone(), waves, out: false }),
            Err(why) => log.failed(&block.failed(system, why))?,
        }
    }
    for round in 0..block.rounds {
        if start.elapsed() > plan.budget && round > 0 {
            break;
        }
        // Whoever comes first finds the card coolest: turns change.
        let count = entrants.len().max(1);
        for turn in 0..entrants.len() {
            let entrant = &mut entrants[(turn + round as usize) % count];
            if entrant.out {
                continue;
            }
            check_interrupted()?;
            if let Err(why) = one_turn(plan, block, round, entrant, bench, log) {
                if why.exit == Exit::Interrupted || why.exit == Exit::Internal {
                    return Err(why);
                }
                entrant.out = true;
                log.failed(&block.failed(&entrant.name, why))?;
            }
        }
    }
    Ok(())
}

/// All waves of one system, once.
fn one_turn(
    plan: &Plan<'_>,
    block: &Block<'_>,
    round: u32,
    entrant: &Entrant,
    bench: &mut dyn Bench,
    log: &mut Log,
) -> Result<(), Failure> {
    for (number, wave) in (0u32..).zip(&entrant.waves) {
        bench.load(wave, block.carrier)?;
        let seed = plan.seed.wrapping_add(u64::from(number));
        bench.fill(wave, seed)?;
        if round == 0 {
            let errors = bench.verify(wave, seed)?;
            log.verified(block.case, block.heads, block.transport(), &entrant.name, number, &errors)?;
        }
        let row = row(plan, block, entrant, number, wave);
        for number in 0..plan.study.warm_up {
            let sample = round * plan.study.warm_up + number;
            for pass in [Pass::Forward, Pass::Backward] {
                let times = bench.execute(pass, run::Mode::Whole)?;
                log.samples(&row, &Taken { pass, mode: Mode::All, sample, warm_up: true }, &times)?;
            }
        }
        log.states(&entrant.name, block.case, &bench.states())?;
        for sample in 0..block.samples {
            for pass in [Pass::Forward, Pass::Backward] {
                let times = bench.execute(pass, run::Mode::Whole)?;
                let number = round * block.samples + sample;
                log.samples(&row, &Taken { pass, mode: Mode::All, sample: number, warm_up: false }, &times)?;
                if round > 0 || sample >= APART_SAMPLES {
                    continue;
                }
                // Side by side with the whole, so that a card that slows down slows all of them.
                for (mode, word) in APART {
                    if word == Mode::TransfersOnly && block.case.ranks() == 1 {
                        continue;
                    }
                    let times = bench.execute(pass, mode)?;
                    log.samples(&row, &Taken { pass, mode: word, sample, warm_up: false }, &times)?;
                }
                // The other modes leave results that are not right, and the backward reads those of the forward.
                if pass == Pass::Forward {
                    bench.execute(pass, run::Mode::Whole)?;
                }
            }
        }
        log.states(&entrant.name, block.case, &bench.states())?;
    }
    Ok(())
}

/// What tells an execution from others of its wave.
pub(super) struct Taken {
    pub pass: Pass,
    pub mode: Mode,
    pub sample: u32,
    pub warm_up: bool,
}

/// A row of the wave's samples without what tells them apart.
fn row(plan: &Plan<'_>, block: &Block<'_>, entrant: &Entrant, number: u32, wave: &Wave) -> Sample {
    Sample {
        system: entrant.name.clone(),
        case: block.case.name.clone(),
        tokens: wave.tokens(),
        pairs: wave.pairs(),
        q_heads: block.heads.0.into(),
        kv_heads: block.heads.1.into(),
        head_dim: plan.study.head_dim.into(),
        layout: block.layout(),
        pieces: wave.pieces(),
        transport: block.transport().to_owned(),
        pass: Pass::Forward,
        mode: Mode::All,
        wave: number,
        rank: 0,
        sample: 0,
        warm_up: false,
        ns: 0,
    }
}

#[cfg(test)]
mod tests {
    use skewbench_cuda::run::CardState;

    use super::*;
    use crate::cards::study::find_study;
    use crate::shipped::{Card, Published, Shipped, write_about};

    const STUDY: &str = "title = \"t\"\ndescription = \"d\"\nsystems = [\"ulysses\", \"ring-zigzag\", \"wlb\"]\nhead_dim = 64\n\
        samples = 4\nwarm_up = 2\nrounds = 2\ntransports = [\"nccl\", \"copy_engines\"]\n\
        [[case]]\nname = \"one\"\ndocuments = [64, 32]\nlayout = { cp = 2 }\nheads = [[4, 2]]\n\
        [[case]]\nname = \"alone\"\ndocuments = [64]\nlayout = {}\nheads = [[2, 2]]\nsystems = [\"libra\"]\nrounds = 1\nsamples = 2\n\
        [[case]]\nname = \"wide\"\ndocuments = [64]\nlayout = { cp = 4 }\nheads = [[4, 4]]\n";

    /// Ranks whose passes take one nanosecond more each time.
    struct Fake {
        ranks: usize,
        calls: u64,
        broken: &'static str,
        filled: bool,
    }

    impl Bench for Fake {
        fn load(&mut self, wave: &Wave, _: Transport) -> Result<(), Failure> {
            self.ranks = wave.domains.iter().map(|domain| domain.program.ranks as usize).sum();
            self.filled = false;
            Ok(())
        }

        fn fill(&mut self, _: &Wave, _: u64) -> Result<(), Failure> {
            self.filled = true;
            Ok(())
        }

        fn verify(&mut self, wave: &Wave, _: u64) -> Result<Vec<(&'static str, f64)>, Failure> {
            match wave.domains[0].plan.planner.as_str() == self.broken {
                true => Err(Failure::new(Exit::Verification, "dQ is wrong")),
                false => Ok(vec![("O", 0.001)]),
            }
        }

        fn execute(&mut self, _: Pass, _: run::Mode) -> Result<Vec<u64>, Failure> {
            assert!(self.filled, "executed on memory that holds anything");
            self.calls += 1;
            Ok(vec![1000 + self.calls; self.ranks])
        }

        fn states(&self) -> Vec<Option<CardState>> {
            vec![Some(CardState::default()), None]
        }
    }

    #[test]
    fn what_is_measured_is_a_published_run_and_what_fails_a_row() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("study.toml");
        std::fs::write(&file, STUDY).expect("written");
        let found = find_study(&file.display().to_string()).expect("a study");
        let plan = plan(&found.study, Duration::from_secs(600));
        let mut log = Log::new(folder.path()).expect("a log");
        let mut fake = Fake { ranks: 0, calls: 0, broken: "ring-zigzag", filled: false };
        measure(&plan, &mut fake, &mut Resources::default(), &mut log).expect("measured");
        let (taken, failed) = log.finish().expect("finished");
        write_about(folder.path(), "t", &[], &card()).expect("written");
        let run = Published::parse(&Shipped::read(folder.path()).expect("read")).expect("a published run");
        assert_eq!((taken, failed), (run.samples.len(), run.failures.len()));
        let count = |system: &str, mode: Mode, warm_up: bool| {
            run.samples.iter().filter(|s| (s.system.as_str(), s.mode, s.warm_up) == (system, mode, warm_up)).count()
        };
        // Transports x rounds x samples x passes x ranks.
        assert_eq!(count("ulysses", Mode::All, false), 2 * 2 * 4 * 2 * 2);
        assert_eq!(count("ulysses", Mode::All, true), 2 * 2 * 2 * 2 * 2);
        assert_eq!(count("ulysses", Mode::Bare, false), 2 * 3 * 2 * 2);
        assert_eq!(count("libra", Mode::All, false), 2 * 2);
        assert_eq!((count("libra", Mode::TransfersOnly, false), count("ring-zigzag", Mode::All, false)), (0, 0));
        let why = |system: &str, case: &str| {
            let found = run.failures.iter().find(|f| f.system == system && f.case == case);
            found.map(|f| f.reason.clone()).unwrap_or_default()
        };
        assert!(why("ring-zigzag", "one").contains("dQ is wrong"));
        assert!(why("wlb", "one").contains("later steps"));
        assert!(why("ulysses", "wide").contains("--backend replay"));
    }

    fn plan(study: &StudyFile, budget: Duration) -> Plan<'_> {
        let systems = study.systems.clone();
        Plan { study, systems, chosen: false, seed: 1, profile: "h200", budget, ranks: 2 }
    }

    fn card() -> Card {
        Card {
            card: "made up".into(),
            cards: 2,
            driver: "1".into(),
            cuda: "1".into(),
            cudnn: "1".into(),
            nccl: None,
            clocks: None,
            date: "2026-11-30".into(),
            revision: "none".into(),
            commands: Vec::new(),
        }
    }

    #[test]
    fn a_spent_budget_begins_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("study.toml");
        std::fs::write(&file, STUDY).expect("written");
        let found = find_study(&file.display().to_string()).expect("a study");
        let plan = Plan { systems: vec!["libra".into()], chosen: true, ..plan(&found.study, Duration::ZERO) };
        let mut log = Log::new(folder.path()).expect("a log");
        let mut fake = Fake { ranks: 0, calls: 0, broken: "", filled: false };
        measure(&plan, &mut fake, &mut Resources::default(), &mut log).expect("measured");
        assert_eq!((log.finish().expect("finished"), fake.calls), ((0, 5), 0));
    }
}

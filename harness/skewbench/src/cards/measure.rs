use std::time::{Duration, Instant};

use skewbench_cuda::run;
use skewbench_plan::Pass;

use super::bench::Bench;
use super::blocks::{Block, Standing, rounds};
use super::log::Log;
use super::study::{CaseFile, StudyFile};
use super::waves::Wave;
use crate::failure::{Exit, Failure};
use crate::progress::Progress;
use crate::scheduler::check_interrupted;
use crate::shipped::{Mode, Sample};

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

impl Plan<'_> {
    /// Seed of a case's windows.
    pub fn seed_of(&self, case: &CaseFile) -> u64 {
        case.seed(self.seed)
    }
}

/// What is timed side by side, in the order of the repetition `number`: transfers first, which hardly load a card, then the
/// others in an order that turns round every time and begins elsewhere every second time, so that a card that slows down or
/// warms up favours none of them. A wave that sends nothing has no transfers, and its computation is the whole program.
fn side_by_side(sends: bool, number: u32) -> Vec<(run::Mode, Mode)> {
    let mut all = vec![(run::Mode::Bare, Mode::Bare), (run::Mode::Whole, Mode::All)];
    if sends {
        all.insert(0, (run::Mode::Compute, Mode::ComputeOnly));
    }
    let turned = number as usize / 2 % all.len();
    all.rotate_left(turned);
    if number % 2 == 1 {
        all.reverse();
    }
    if sends {
        all.insert(0, (run::Mode::Transfers, Mode::TransfersOnly));
    }
    all
}

/// What measuring spent on the host's clock.
#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    loading: Duration,
    verifying: Duration,
    executing: Duration,
}

/// Measures blocks until the budget is spent: every block once before any twice, in a block one system after another, in an
/// order that changes from round to round. The budget is looked at before every wave and every sample; what it leaves out is
/// a row of failures with the reason.
///
/// # Errors
/// A log that cannot be written, an interruption: what was measured before is in the log. What a system or card cannot do is
/// a row of failures.
pub(super) fn measure(
    plan: &Plan<'_>,
    blocks: &mut [Block<'_>],
    bench: &mut dyn Bench,
    log: &mut Log,
) -> Result<(), Failure> {
    let mut turns = Turns { plan, bench, log, start: Instant::now(), spent: Spent::default() };
    let order = rounds(blocks);
    let progress = Progress::new("turns of a case", order.len() as u64);
    for (round, number) in order {
        if let Some(block) = blocks.get_mut(number) {
            turns.block(block, round)?;
            progress.advance(1, &block.name());
        }
    }
    progress.finish();
    let Turns { spent, .. } = turns;
    eprintln!(
        "{:.0} s: loading and filling {:.0}, verifying {:.0}, executing {:.0}",
        (spent.loading + spent.verifying + spent.executing).as_secs_f64(),
        spent.loading.as_secs_f64(),
        spent.verifying.as_secs_f64(),
        spent.executing.as_secs_f64()
    );
    for block in blocks.iter() {
        for entrant in block.entrants.iter().filter(|entrant| entrant.standing == Standing::LeftOut) {
            let spent = format!("the budget of {} s was spent", plan.budget.as_secs());
            let why = match entrant.taken {
                0 => format!("not measured: {spent}"),
                taken => {
                    let all = 2 * block.rounds * block.samples * entrant.waves.len() as u32;
                    format!("{taken} of {all} samples of passes of its waves: {spent}")
                }
            };
            log.failed(&block.failed(&entrant.name, why))?;
        }
    }
    Ok(())
}

/// Turns of systems on cards.
struct Turns<'a> {
    plan: &'a Plan<'a>,
    bench: &'a mut dyn Bench,
    log: &'a mut Log,
    start: Instant,
    spent: Spent,
}

impl Turns<'_> {
    /// All systems of a block, once.
    fn block(&mut self, block: &mut Block<'_>, round: u32) -> Result<(), Failure> {
        let count = block.entrants.len();
        // Whoever comes first finds the card coolest: turns change.
        for at in (0..count).map(|turn| (turn + round as usize) % count) {
            if block.entrants.get(at).is_none_or(|entrant| entrant.standing != Standing::In) {
                continue;
            }
            check_interrupted()?;
            let standing = match self.turn(block, round, at) {
                Ok(standing) => standing,
                Err(why) if why.exit == Exit::Interrupted => return Err(why),
                Err(why) => {
                    self.log.failed(&block.failed(&block.entrants[at].name, why))?;
                    Standing::Failed
                }
            };
            block.entrants[at].standing = standing;
        }
        Ok(())
    }

    fn over(&self) -> bool {
        self.start.elapsed() > self.plan.budget
    }

    /// All waves of one system, once.
    fn turn(&mut self, block: &mut Block<'_>, round: u32, at: usize) -> Result<Standing, Failure> {
        let waves = std::sync::Arc::clone(&block.entrants[at].waves);
        for (number, wave) in (0u32..).zip(waves.iter()) {
            if self.over() {
                return Ok(Standing::LeftOut);
            }
            self.ready(block, round, at, number, wave)?;
            let row = row(self.plan, block, &block.entrants[at].name, number, wave);
            self.warm_up(block, round, &row, Pass::Forward)?;
            self.states(block, round, at, number)?;
            let forward = self.samples(block, round, &row, Pass::Forward, wave.sends(Pass::Forward))?;
            block.entrants[at].taken += forward;
            if forward < block.samples {
                return Ok(Standing::LeftOut);
            }
            self.warm_up(block, round, &row, Pass::Backward)?;
            let backward = self.samples(block, round, &row, Pass::Backward, wave.sends(Pass::Backward))?;
            block.entrants[at].taken += backward;
            if backward < block.samples {
                return Ok(Standing::LeftOut);
            }
            self.states(block, round, at, number)?;
        }
        Ok(Standing::In)
    }

    /// Untimed executions of a pass, after which the memory holds what the pass leaves there: parts of it then run on what
    /// they run on inside the whole.
    fn warm_up(&mut self, block: &Block<'_>, round: u32, row: &Sample, pass: Pass) -> Result<(), Failure> {
        for warm_up in 0..block.warm_up {
            let taken = Taken { pass, mode: Mode::All, sample: round * block.warm_up + warm_up, warm_up: true };
            self.execute(row, &taken, run::Mode::Whole)?;
        }
        if block.warm_up == 0 {
            self.untimed(pass)?;
        }
        Ok(())
    }

    /// Samples of a pass of the loaded wave, of which the first ones have its parts beside the whole. Returns how many there
    /// are; fewer than asked for when the budget is spent.
    fn samples(
        &mut self,
        block: &Block<'_>,
        round: u32,
        row: &Sample,
        pass: Pass,
        sends: bool,
    ) -> Result<u32, Failure> {
        let apart = block.apart.min(block.samples);
        let mut last = Mode::All;
        for sample in 0..block.samples {
            if self.over() {
                return Ok(sample);
            }
            let modes = match sample < apart {
                true => side_by_side(sends, round * apart + sample),
                false => vec![(run::Mode::Whole, Mode::All)],
            };
            for (mode, word) in modes {
                let taken = Taken { pass, mode: word, sample: round * block.samples + sample, warm_up: false };
                self.execute(row, &taken, mode)?;
                last = word;
            }
        }
        // The backward reads what a whole forward leaves.
        if pass == Pass::Forward && last != Mode::All {
            self.untimed(pass)?;
        }
        Ok(block.samples)
    }

    /// Loads a wave, gives it inputs, and verifies it where it runs for the first time.
    fn ready(&mut self, block: &Block<'_>, round: u32, at: usize, number: u32, wave: &Wave) -> Result<(), Failure> {
        let begun = Instant::now();
        let seed = self.plan.seed.wrapping_add(u64::from(number));
        let loaded = self.bench.load(wave, block.carrier).and_then(|()| self.bench.fill(wave, seed));
        self.spent.loading += begun.elapsed();
        loaded?;
        if round > 0 {
            return Ok(());
        }
        let begun = Instant::now();
        let errors = self.bench.verify(wave, seed);
        self.spent.verifying += begun.elapsed();
        self.log.verified(&block.place(&block.entrants[at].name, number), &errors?)
    }

    fn states(&mut self, block: &Block<'_>, round: u32, at: usize, number: u32) -> Result<(), Failure> {
        let states = self.bench.states();
        self.log.states(&block.place(&block.entrants[at].name, number), round, &states)
    }

    fn execute(&mut self, row: &Sample, taken: &Taken, mode: run::Mode) -> Result<(), Failure> {
        let begun = Instant::now();
        let times = self.bench.execute(taken.pass, mode);
        self.spent.executing += begun.elapsed();
        self.log.samples(row, taken, &times?)
    }

    fn untimed(&mut self, pass: Pass) -> Result<(), Failure> {
        let begun = Instant::now();
        let times = self.bench.execute(pass, run::Mode::Whole);
        self.spent.executing += begun.elapsed();
        times.map(drop)
    }
}

/// What tells an execution from others of its wave.
pub(super) struct Taken {
    pub pass: Pass,
    pub mode: Mode,
    pub sample: u32,
    pub warm_up: bool,
}

/// A row of the wave's samples without what tells them apart.
fn row(plan: &Plan<'_>, block: &Block<'_>, system: &str, number: u32, wave: &Wave) -> Sample {
    Sample {
        system: system.to_owned(),
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
    use std::path::Path;

    use skewbench_cuda::run::CardState;

    use skewbench_cuda::run::Transport;

    use super::*;
    use crate::cards::blocks::resolve;
    use crate::cards::study::{FoundStudy, find_study};
    use crate::cells::Resources;
    use crate::shipped::{Card, Published, Shipped, write_about};

    const STUDY: &str = "title = \"t\"\ndescription = \"d\"\nsystems = [\"ulysses\", \"ring-zigzag\", \"wlb\"]\nhead_dim = 64\n\
        samples = 4\nwarm_up = 2\nrounds = 2\ntransports = [\"nccl\", \"copy_engines\"]\n\
        [[case]]\nname = \"one\"\ndocuments = [64, 32]\nlayout = { cp = 2 }\nheads = [[4, 2]]\n\
        [[case]]\nname = \"alone\"\ndocuments = [64]\nlayout = {}\nheads = [[2, 2]]\nsystems = [\"libra\"]\nrounds = 1\nsamples = 2\n\
        [[case]]\nname = \"wide\"\ndocuments = [64]\nlayout = { cp = 4 }\nheads = [[4, 4]]\n";

    /// Ranks whose passes take one nanosecond more each time.
    #[derive(Default)]
    struct Fake {
        ranks: usize,
        calls: u64,
        /// A call that takes longer than the budget.
        slow_at: Option<u64>,
        filled: bool,
    }

    /// [`STUDY`], read from a folder.
    fn study(folder: &Path) -> FoundStudy {
        let file = folder.join("study.toml");
        std::fs::write(&file, STUDY).expect("written");
        find_study(&file.display().to_string()).expect("a study")
    }

    fn run_all(plan: &Plan<'_>, fake: &mut Fake, log: &mut Log) {
        let mut blocks = resolve(plan, &mut Resources::default(), log).expect("resolved");
        measure(plan, &mut blocks, fake, log).expect("measured");
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
            match wave.domains[0].plan.planner == "ring-zigzag" {
                true => Err(Failure::new(Exit::Verification, "dQ is wrong")),
                false => Ok(vec![("O", 0.001)]),
            }
        }

        fn execute(&mut self, _: Pass, _: run::Mode) -> Result<Vec<u64>, Failure> {
            assert!(self.filled, "executed on memory that holds anything");
            self.calls += 1;
            if self.slow_at == Some(self.calls) {
                std::thread::sleep(Duration::from_millis(1100));
            }
            Ok(vec![1000 + self.calls; self.ranks])
        }

        fn states(&self) -> Vec<Option<CardState>> {
            vec![Some(CardState::default()), None]
        }
    }

    #[test]
    fn what_is_measured_is_a_published_run_and_what_fails_a_row() {
        let folder = tempfile::tempdir().expect("a folder");
        let found = study(folder.path());
        let mut log = Log::new(folder.path()).expect("a log");
        let mut fake = Fake::default();
        run_all(&plan(&found.study, Duration::from_secs(600)), &mut fake, &mut log);
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
        // Parts of a wave beside three of the samples of every round.
        let parts = [Mode::Bare, Mode::ComputeOnly, Mode::TransfersOnly];
        assert_eq!(parts.map(|mode| count("ulysses", mode, false)), [2 * 2 * 3 * 2 * 2; 3]);
        assert_eq!(parts.map(|mode| count("libra", mode, false)), [2 * 2, 0, 0]);
        assert_eq!(count("libra", Mode::All, false), 2 * 2);
        assert_eq!(count("ring-zigzag", Mode::All, false), 0);
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
            settings: [("NCCL_DEBUG".to_owned(), "INFO".to_owned())].into(),
        }
    }

    #[test]
    fn no_mode_is_favoured_by_its_place() {
        for (sends, count, rest) in [(false, 2, 0), (true, 3, 1)] {
            let mut places: std::collections::BTreeMap<Mode, Vec<usize>> = std::collections::BTreeMap::new();
            for number in 0..2 * count {
                let order = side_by_side(sends, number);
                assert_eq!(order.len(), count as usize + rest);
                assert!(!sends || order[0].1 == Mode::TransfersOnly);
                order
                    .iter()
                    .skip(rest)
                    .enumerate()
                    .for_each(|(at, (_, mode))| places.entry(*mode).or_default().push(at));
                // Two repetitions have every mode as early as late.
                if number % 2 == 1 {
                    let sums: Vec<usize> = places.values().map(|places| places.iter().rev().take(2).sum()).collect();
                    assert!(sums.iter().all(|sum| *sum == count as usize - 1), "{order:?}");
                }
            }
            for (mode, mut places) in places {
                places.sort_unstable();
                let each: Vec<usize> = (0..count as usize).flat_map(|place| [place, place]).collect();
                assert_eq!(places, each, "{mode:?}");
            }
        }
    }

    #[test]
    fn a_spent_budget_begins_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let found = study(folder.path());
        let plan = Plan { systems: vec!["libra".into()], chosen: true, ..plan(&found.study, Duration::ZERO) };
        let mut log = Log::new(folder.path()).expect("a log");
        let mut fake = Fake::default();
        run_all(&plan, &mut fake, &mut log);
        assert_eq!((log.finish().expect("finished"), fake.calls), ((0, 5), 0));
    }

    #[test]
    fn what_a_budget_cuts_says_how_much_there_is() {
        let folder = tempfile::tempdir().expect("a folder");
        let found = study(folder.path());
        let plan = Plan { systems: vec!["ulysses".into()], ..plan(&found.study, Duration::from_secs(1)) };
        let mut log = Log::new(folder.path()).expect("a log");
        let mut fake = Fake { slow_at: Some(20), ..Fake::default() };
        run_all(&plan, &mut fake, &mut log);
        log.finish().expect("finished");
        let failures = std::fs::read_to_string(folder.path().join("failures.csv")).expect("rows");
        assert!(failures.contains("of 16 samples of passes of its waves: the budget of 1 s was spent"), "{failures}");
        assert!(failures.contains("not measured: the budget of 1 s was spent"), "{failures}");
    }

    #[test]
    fn every_block_has_a_turn_before_any_has_two() {
        let folder = tempfile::tempdir().expect("a folder");
        let found = study(folder.path());
        let mut log = Log::new(folder.path()).expect("a log");
        let blocks = resolve(&plan(&found.study, Duration::ZERO), &mut Resources::default(), &mut log).expect("blocks");
        let order: Vec<_> = rounds(&blocks)
            .into_iter()
            .map(|(round, at)| (round, blocks[at].case.name.as_str(), blocks[at].transport()))
            .collect();
        let nccl = [(0, "one", "nccl"), (0, "alone", "none"), (0, "wide", "nccl")];
        assert_eq!(order[..3], nccl);
        assert_eq!(order[3..5], [(0, "one", "copy_engines"), (0, "wide", "copy_engines")]);
        assert_eq!(order[5..7], [(1, "one", "copy_engines"), (1, "wide", "copy_engines")]);
        assert_eq!(order[7..], [(1, "one", "nccl"), (1, "wide", "nccl")]);
    }

    #[test]
    fn a_case_that_nobody_knows_is_a_row_and_the_others_run() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("study.toml");
        let wrong = "documents = [64]\nlayout = { cp = 4 }";
        let text = STUDY.replace(wrong, "workload = \"paper-0\"\nlayout = { cp = 2 }");
        assert_ne!(text, STUDY);
        std::fs::write(&file, text).expect("written");
        let found = find_study(&file.display().to_string()).expect("a study");
        let plan = Plan { systems: vec!["ulysses".into()], ..plan(&found.study, Duration::from_secs(600)) };
        let mut log = Log::new(folder.path()).expect("a log");
        let mut fake = Fake::default();
        run_all(&plan, &mut fake, &mut log);
        let (taken, failed) = log.finish().expect("finished");
        assert!(taken > 0);
        assert_eq!(failed, 2, "a row of every transport");
    }
}

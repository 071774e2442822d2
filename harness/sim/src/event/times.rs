pub use skewbench_exec::TraceEvent;
use skewbench_exec::{InstrId, Program};
use skewbench_plan::Pass;

use super::{
    calls::Calls,
    costs::Priced,
    engine::{Engine, Mode, Room},
    links::Links,
};
use crate::{Machine, SimError, profile::Network};

/// Which runs are made beside the one with everything in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Runs {
    /// Transfers take no time (ranks still wait for each other).
    pub compute_only: bool,
    /// Kernels take no time.
    pub transfers_only: bool,
    /// Keep every instruction's start and end.
    pub trace: bool,
}

impl Runs {
    /// All extra runs, no trace.
    pub const ALL: Self = Self { compute_only: true, transfers_only: true, trace: false };
}

/// Times of one pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassTimes {
    /// End of the slowest rank.
    pub wave_ps: u64,
    /// The slowest rank, the first of several.
    pub slowest_rank: u32,
    /// End of every rank.
    pub rank_end_ps: Vec<u64>,
    /// Kernel calls of every rank at their price, without contention.
    pub launch_ps: Vec<u64>,
    /// Bytes that every rank sends inside its node.
    pub intra_bytes: Vec<u64>,
    /// Bytes that every rank sends to other nodes.
    pub inter_bytes: Vec<u64>,
    /// The wave with transfers that take no time.
    pub compute_only_ps: Option<u64>,
    /// The wave with kernels that take no time.
    pub transfers_only_ps: Option<u64>,
    /// Executed instructions in order of their end; empty unless asked for.
    pub trace: Vec<TraceEvent>,
}

impl PassTimes {
    /// Time that transfers add to the wave's compute alone.
    pub fn exposed_ps(&self) -> Option<u64> {
        self.compute_only_ps.map(|alone| self.wave_ps.saturating_sub(alone))
    }
}

/// Times of a program's attention.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaveTimes {
    /// Forward pass.
    pub forward: PassTimes,
    /// Backward pass.
    pub backward: PassTimes,
}

impl WaveTimes {
    /// Both passes of the slowest rank of each.
    pub fn wave_ps(&self) -> u64 {
        self.forward.wave_ps.saturating_add(self.backward.wave_ps)
    }
}

/// A kernel call of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Pass.
    pub pass: Pass,
    /// Rank.
    pub rank: u32,
    /// The instruction.
    pub id: InstrId,
    /// Picoseconds by the machine's pricing, on a nominal card.
    pub price_ps: u64,
}

/// Picoseconds that a kernel call takes on a nominal card. It is asked in the order of ranks, streams and instructions.
pub type LaunchTimes<'a> = dyn Fn(Launch) -> u64 + 'a;

/// Prices a program on a machine.
///
/// # Errors
/// When the program is not one that lowering makes of a checked plan for as many ranks as the machine has.
pub fn simulate(program: &Program, machine: &Machine, runs: Runs) -> Result<WaveTimes, SimError> {
    simulate_launches(program, machine, runs, &|launch| launch.price_ps)
}

/// As [`simulate`], with given times of kernel calls. All else costs what the machine's pricing says, and a card's time factor
/// prolongs given times as it does prices.
///
/// # Errors
/// As [`simulate`].
pub fn simulate_launches(
    program: &Program,
    machine: &Machine,
    runs: Runs,
    launches: &LaunchTimes<'_>,
) -> Result<WaveTimes, SimError> {
    let pass = |pass| Ok(pass_times(program, pass, machine, runs, launches, &[])?.0);
    Ok(WaveTimes { forward: pass(Pass::Forward)?, backward: pass(Pass::Backward)? })
}

/// As [`simulate`], and [`WaveTimes::wave_ps`] of the same cards on each of some other networks: kernels are priced once.
///
/// # Errors
/// As [`simulate`].
pub fn simulate_networks(
    program: &Program,
    machine: &Machine,
    runs: Runs,
    networks: &[Network],
) -> Result<(WaveTimes, Vec<u64>), SimError> {
    let pass = |pass| pass_times(program, pass, machine, runs, &|launch| launch.price_ps, networks);
    let ((forward, on_others), (backward, back_on_others)) = (pass(Pass::Forward)?, pass(Pass::Backward)?);
    let both = on_others.iter().zip(&back_on_others).map(|(f, b)| f.saturating_add(*b));
    Ok((WaveTimes { forward, backward }, both.collect()))
}

/// Prices one pass of a program on a machine.
///
/// # Errors
/// As [`simulate`].
pub fn simulate_pass(program: &Program, pass: Pass, machine: &Machine, runs: Runs) -> Result<PassTimes, SimError> {
    Ok(pass_times(program, pass, machine, runs, &|launch| launch.price_ps, &[])?.0)
}

/// Times of a pass, and the end of its slowest rank on each of the other networks.
fn pass_times(
    program: &Program,
    pass: Pass,
    machine: &Machine,
    runs: Runs,
    launches: &LaunchTimes<'_>,
    networks: &[Network],
) -> Result<(PassTimes, Vec<u64>), SimError> {
    let priced = Priced::new(program, pass, machine, launches)?;
    let calls = Calls::new(&priced, machine)?;
    let mut links = Links::new(machine, &machine.pricing.profile().network);
    let compute_rate = machine.pricing.profile().overlap().compute_rate;
    let mut room = Room::default();
    let mut run = |mode, trace| Engine::new(&priced, &calls, &mut links, &mut room, mode, compute_rate, trace).run();
    let (rank_end_ps, trace) = run(Mode::Everything, runs.trace)?;
    let mut alone = |wanted: bool, mode| -> Result<Option<u64>, SimError> {
        if !wanted {
            return Ok(None);
        }
        run(mode, false).map(|(ends, _)| ends.into_iter().max())
    };
    let compute_only_ps = alone(runs.compute_only, Mode::ComputeOnly)?;
    let transfers_only_ps = alone(runs.transfers_only, Mode::TransfersOnly)?;
    let wave_ps = rank_end_ps.iter().copied().max().unwrap_or(0);
    // Where nothing crosses between nodes, networks are alike.
    let crosses = calls.routes.iter().any(|route| route.sent().any(|(_, _, inter_rows)| inter_rows > 0));
    let mut on_others = vec![wave_ps; networks.len()];
    for (slowest_ps, network) in on_others.iter_mut().zip(networks).filter(|_| crosses) {
        let mut links = Links::new(machine, network);
        let everything = Mode::Everything;
        let (ends, _) = Engine::new(&priced, &calls, &mut links, &mut room, everything, compute_rate, false).run()?;
        *slowest_ps = ends.into_iter().max().unwrap_or(0);
    }
    let ranks = rank_end_ps.len();
    let (mut intra_bytes, mut inter_bytes) = (vec![0u64; ranks], vec![0u64; ranks]);
    for part in priced.program.calls.iter().flat_map(|call| &call.parts) {
        for (rank, intra_rows, inter_rows) in calls.routes[part.routes as usize].sent() {
            for (total, rows) in [(&mut intra_bytes[rank], intra_rows), (&mut inter_bytes[rank], inter_rows)] {
                *total = total.saturating_add(rows.saturating_mul(part.row_bytes));
            }
        }
    }
    let slowest_rank = rank_end_ps.iter().position(|end| *end == wave_ps).unwrap_or(0) as u32;
    let times = PassTimes {
        wave_ps,
        slowest_rank,
        rank_end_ps,
        launch_ps: priced.launch_ps,
        intra_bytes,
        inter_bytes,
        compute_only_ps,
        transfers_only_ps,
        trace,
    };
    Ok((times, on_others))
}

use skewbench_exec::{Program, lower};
use skewbench_plan::check::{Limits, check_facts};
use skewbench_plan::{Domain, Facts, Mask, Pass, Plan, Planner, Rows, SystemError, Work};
use skewbench_sim::{Machine, Pricing, Runs, simulate};

use crate::Backend;
use crate::finding::{Finding, Place, Seen};
use crate::guard::guarded;
use crate::numbers::{on_cpu, on_runner};

/// Plans a domain twice, and checks that the plans agree, that the checker accepts them, that no rank has more work than
/// the planner declares, and what the backend says of the program.
///
/// # Errors
/// `Err(Ok(_))` when the planner refuses the domain, `Err(Err(_))` when something is wrong.
pub fn verify(
    planner: &dyn Planner,
    domain: &Domain<'_>,
    pricing: &std::sync::Arc<Pricing>,
    backend: Backend<'_>,
    seed: u64,
    at: Place,
    seen: &mut Seen,
) -> Result<(), Result<SystemError, Finding>> {
    let make = || guarded("planner", || planner.plan(domain)).map_err(Err)?.map_err(Ok);
    let plan = make()?;
    if make()? != plan {
        return Err(Err(Finding::Unrepeatable { part: "planner" }));
    }
    let bound = guarded("planner", || planner.load_bound(domain)).map_err(Err)?.map_err(Ok)?;
    checked(&plan, domain, pricing, backend, bound, seed, at, seen).map_err(Err)
}

#[expect(clippy::too_many_arguments, reason = "everything that a finding must be able to name")]
fn checked(
    plan: &Plan,
    domain: &Domain<'_>,
    pricing: &std::sync::Arc<Pricing>,
    backend: Backend<'_>,
    bound: u64,
    seed: u64,
    at: Place,
    seen: &mut Seen,
) -> Result<(), Finding> {
    let facts = || {
        let facts = Facts::of(plan)?;
        let checked = check_facts(plan, &facts, &Limits::default())?;
        Ok((facts, checked))
    };
    let (facts, checked) = guarded("checker", facts)?.map_err(|source| Finding::Checker { at, source })?;
    for (pass, name) in [(Pass::Forward, "forward"), (Pass::Backward, "backward")] {
        let loads = loads(plan, pass);
        if loads != plan.load(pass) {
            return Err(Finding::Numbers {
                at,
                what: format!("{name}: the reported loads are not those of the tiles"),
            });
        }
        let heaviest = loads.iter().copied().enumerate().max_by_key(|(_, load)| *load).unwrap_or_default();
        if heaviest.1 > bound {
            return Err(Finding::Load { at, pass: name, rank: heaviest.0, load: heaviest.1, bound });
        }
        let mean = loads.iter().sum::<u64>() as f64 / loads.len().max(1) as f64;
        if bound > 0 && mean > 0.0 {
            seen.load_over_bound = seen.load_over_bound.max(heaviest.1 as f64 / bound as f64);
            seen.r = seen.r.max(heaviest.1 as f64 / mean);
        }
    }
    let lowered = guarded("lowering", || lower(plan, &facts, &checked.operands))?;
    let program = lowered.map_err(|e| Finding::Numbers { at, what: e.to_string() })?;
    match backend {
        Backend::Cpu => on_cpu(plan, &program, seed, at, seen)?,
        Backend::Sim => simulated(plan, &program, domain, pricing, at)?,
        Backend::Runner(runner) => on_runner(runner, plan, &program, seed, at, seen)?,
    }
    seen.domains += 1;
    Ok(())
}

/// Pairs x query heads of every rank, counted row by row from the tiles.
fn loads(plan: &Plan, pass: Pass) -> Vec<u64> {
    let table = plan.pass(pass);
    let seen_keys = |mask: Mask, rows: Rows, keys: Rows, row: u32| match mask {
        Mask::Full => keys.len,
        Mask::Causal => (keys.len + row + 1).saturating_sub(rows.len),
        Mask::CausalExclusive => (keys.len + row).saturating_sub(rows.len),
    };
    let ops = |rank: &skewbench_plan::RankStreams| -> u64 {
        let launches = rank.streams.iter().flatten().filter_map(|op| match op.work {
            Work::Launch(launch) => Some(launch),
            _ => None,
        });
        launches
            .map(|launch| {
                let tiles = table.tiles.get(launch.tiles.range()).unwrap_or_default();
                let rows = tiles.iter().flat_map(|t| (0..t.q.len).map(|row| seen_keys(launch.mask, t.q, t.k, row)));
                rows.map(u64::from).sum::<u64>() * u64::from(launch.q_heads.len())
            })
            .sum()
    };
    table.ranks.iter().map(ops).collect()
}

fn simulated(
    plan: &Plan,
    program: &Program,
    domain: &Domain<'_>,
    pricing: &std::sync::Arc<Pricing>,
    at: Place,
) -> Result<(), Finding> {
    let wrong = |what: String| Finding::Simulation { at, what };
    let run = || {
        let machine = Machine { cards_per_node: 4, ..Machine::new(pricing.clone(), domain.nodes.to_vec()) };
        guarded("simulation", || simulate(program, &machine, Runs::ALL))?.map_err(|e| wrong(e.to_string()))
    };
    let times = run()?;
    if run()? != times {
        return Err(Finding::Unrepeatable { part: "simulation" });
    }
    for (pass, name, times) in
        [(Pass::Forward, "forward", &times.forward), (Pass::Backward, "backward", &times.backward)]
    {
        let busiest = times.launch_ps.iter().copied().max().unwrap_or(0);
        let alone = times.compute_only_ps.unwrap_or(0).max(times.transfers_only_ps.unwrap_or(0));
        if times.wave_ps < busiest || times.wave_ps < alone {
            return Err(wrong(format!(
                "the {name} takes {} ps, less than its busiest rank's launches ({busiest} ps) or than one kind of work alone ({alone} ps)",
                times.wave_ps
            )));
        }
        if plan.load(pass).iter().any(|load| *load > 0) && times.wave_ps == 0 {
            return Err(wrong(format!("the {name} has work and takes no time")));
        }
        let (sent, moved) = (sent_bytes(times), moved_bytes(plan, pass));
        if sent != moved {
            return Err(wrong(format!("the {name} sends {sent} bytes, the plan's moves between ranks carry {moved}")));
        }
    }
    Ok(())
}

fn sent_bytes(times: &skewbench_sim::PassTimes) -> u64 {
    times.intra_bytes.iter().chain(&times.inter_bytes).sum()
}

/// Bytes that the plan's moves between different ranks carry.
fn moved_bytes(plan: &Plan, pass: Pass) -> u64 {
    let table = plan.pass(pass);
    let parts = table.calls.iter().flat_map(|call| call.parts.iter().map(move |part| (call, part)));
    parts
        .map(|(call, part)| {
            let moves = table.moves.get(part.moves.range()).unwrap_or_default();
            let rows: u64 = moves.iter().filter(|m| m.from != m.to).map(|m| u64::from(m.rows.len)).sum();
            rows * part.row_bytes(plan.shape.head_dim, call.dtype)
        })
        .sum()
}

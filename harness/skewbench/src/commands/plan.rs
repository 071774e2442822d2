//! `skewbench plan`.

use serde_json::{Map, Value, json};
use skewbench_cpu::{CpuError, Inputs, RunOptions, TOLERANCE, needles, reference};
use skewbench_exec::InstrKind;
use skewbench_external::Catalogue;
use skewbench_plan::check::Limits;
use skewbench_plan::{Domain, Layout, PackedSequence, Pass, PlaceContext, Step, SystemError};
use skewbench_sim::{Machine, PassTimes, Runs, simulate};

use super::output;
use crate::cells::{Clock, Prepared, Resources, prepare, step_seed};
use crate::cli::{Format, PlanArgs, PlanFormat};
use crate::experiment::WorkloadFile;
use crate::failure::{Exit, Failure};
use crate::scheduler::{check_interrupted, end_when_interrupted, watch_interruptions};
use crate::trace::{TraceOptions, of_times, of_traces, write_trace};

/// Shows the plan of one wave: by rank, whole, or as a trace of its simulation.
///
/// # Errors
/// Unknown names, layouts that cannot be run, plans that the checker refuses.
pub fn run(args: &PlanArgs) -> Result<(), Failure> {
    watch_interruptions();
    let mut resources = Resources::default();
    let layout = layout(&args.layout)?;
    let options = options(&args.options)?;
    let name = resources.catalogue().admit(&args.system)?;
    let system = resources.catalogue().system(&name, &options, args.seed)?;
    let file = WorkloadFile { name: args.workload.clone(), window_tokens: args.window, packing: None, cp: None };
    let workload = resources.workload(&file)?;
    let model = resources.model(&args.model)?;
    let machine = resources.machine(&args.profile, &Default::default())?;
    let gbs = args.gbs.unwrap_or_else(|| layout.dp.saturating_mul(8));
    layout
        .validate(u32::from(model.q_heads), u32::from(model.kv_heads), gbs, workload.window_tokens)
        .map_err(|e| Failure::config(format!("--layout {}: {e}", args.layout)))?;
    let source = resources.steps(&workload, gbs, args.seed)?;
    let per_chunk = u64::from(source.steps_per_chunk());
    let pricing = resources.pricing(&machine)?.clone();
    let placement = system.placement();
    // What a placement holds back comes from the steps before.
    let first = if placement.stateful() { 0 } else { args.step };
    let mut placer = placement.placer();
    let mut placed = None;
    for index in first..=args.step {
        check_interrupted()?;
        let chunk = source.chunk(index / per_chunk);
        let step: &Step = &chunk[(index % per_chunk) as usize];
        let context = PlaceContext {
            layout,
            pool: system.pool(),
            seed: step_seed(args.seed, step.index),
            shape: model.shape(layout.tp),
            cost: &*pricing,
        };
        placed = Some(placer.place(step, &context).map_err(stopped)?);
    }
    drop(placer);
    let placed = placed.ok_or_else(|| Failure::internal("no step was placed"))?;
    let wave = placed.waves.get(args.wave).ok_or_else(|| {
        Failure::usage(format!("--wave {}: the step has waves 0 to {}", args.wave, placed.waves.len() - 1))
    })?;
    let domains = placed.domains(system.planner().scope(), layout.dp);
    let range = domains.get(args.pool).cloned().ok_or_else(|| {
        Failure::usage(format!("--pool {}: the wave has domains 0 to {}", args.pool, domains.len() - 1))
    })?;
    let sequences: Vec<&PackedSequence> = wave.sequences[range.start as usize..range.end as usize]
        .iter()
        .map(|s| &placed.sequences[*s as usize])
        .collect();
    let nodes: Vec<u32> = range.clone().flat_map(|dp| (0..layout.cp).map(move |cp| layout.node(dp, cp))).collect();
    let domain = Domain {
        sequences: &sequences,
        cp: layout.cp,
        shape: model.shape(layout.tp),
        nodes: &nodes,
        cost: &*pricing,
        time_factors: &[],
    };
    let made = prepare(&system, &domain, true, &Limits::default(), &Clock::default());
    check_interrupted()?;
    let made = made?;
    drop(system);
    end_programs(resources.catalogue())?;
    let executed = args.executed.then(|| execute(&made, args.seed)).transpose()?;
    if args.format == PlanFormat::Json {
        return output::line(serde_json::to_string(&made.plan).map_err(Failure::internal)?);
    }
    let on = Machine { cards_per_node: layout.cards_per_node, ..Machine::new(pricing, nodes) };
    let runs = Runs { trace: args.format == PlanFormat::Perfetto, ..Runs::default() };
    let times = simulate(&made.program, &on, runs).map_err(Failure::internal)?;
    match (args.format, &executed) {
        (PlanFormat::Perfetto, Some(run)) => {
            let options = TraceOptions::new("executed on the CPU, wall clock".to_owned());
            let events = of_traces(&run.outputs.forward_trace, &run.outputs.backward_trace);
            output::line(write_trace(&made.plan, &made.program, &events, &options))
        }
        (PlanFormat::Perfetto, None) => {
            let options = TraceOptions::new(format!("simulated, profile {}", args.profile));
            output::line(write_trace(&made.plan, &made.program, &of_times(&times), &options))
        }
        _ => {
            table(&made, &times.forward, &times.backward)?;
            executed.map_or(Ok(()), |run| output::line(run.sentence))
        }
    }
}

/// FLOPs of a wave that the CPU takes at most; some minutes.
const MOST_FLOPS: f64 = 1e12;
/// Keys that dominate one row each, at the bounds of tiles and documents, at most.
const NEEDLES: usize = 64;

/// A wave that ran on the CPU.
struct Executed {
    outputs: skewbench_cpu::Outputs,
    /// What the comparison with dense attention says.
    sentence: String,
}

fn execute(made: &Prepared, seed: u64) -> Result<Executed, Failure> {
    let plan = &made.plan;
    let loads = [Pass::Forward, Pass::Backward].map(|pass| plan.load(pass).iter().sum::<u64>());
    let flops = f64::from(plan.shape.head_dim) * (4.0 * loads[0] as f64 + 10.0 * loads[1] as f64);
    if flops > MOST_FLOPS {
        return Err(Failure::usage(format!(
            "--executed: the wave has {flops:.1e} FLOPs, and the CPU takes minutes for {MOST_FLOPS:.0e}; choose a smaller --window"
        )));
    }
    end_when_interrupted();
    check_interrupted()?;
    let inputs = Inputs::random(&plan.sequences, plan.shape, seed).with_needles(&needles(plan, NEEDLES));
    let options = RunOptions { trace: true, ..RunOptions::default() };
    let outputs = skewbench_cpu::run(&made.program, &inputs, &options).map_err(not_executed)?;
    let report = skewbench_cpu::compare(&inputs, &outputs, &reference::attention(&inputs));
    report.verdict().map_err(|wrong| Failure::new(Exit::Verification, wrong))?;
    let worst = report.tensors.iter().max_by(|a, b| a.error.total_cmp(&b.error));
    let sentence = worst.map_or_else(String::new, |tensor| {
        format!(
            "executed on the CPU: worst error {:.1e}, of {}, against dense attention; {TOLERANCE:.0e} is allowed",
            tensor.error, tensor.tensor
        )
    });
    Ok(Executed { outputs, sentence })
}

/// A wave that is too large for this machine is a matter of the configuration; a program that cannot run to its end is wrong.
fn not_executed(error: CpuError) -> Failure {
    match error {
        CpuError::Memory { .. } | CpuError::Thread(_) => Failure::config(format!("--executed: {error}")),
        CpuError::Inputs(_) | CpuError::Abnormal { .. } | CpuError::Processes(_) | CpuError::Silent { .. } => {
            Failure::internal(error)
        }
        CpuError::Program(_)
        | CpuError::Instruction { .. }
        | CpuError::Hung { .. }
        | CpuError::Left { .. }
        | CpuError::Wrong(_) => Failure::new(Exit::Verification, error),
    }
}

/// A program that was stopped by an interruption has not failed.
fn stopped(error: SystemError) -> Failure {
    check_interrupted().err().unwrap_or_else(|| Failure::config(error))
}

/// Shows what external programs wrote to standard error.
///
/// # Errors
/// What they did wrong at their end.
pub(super) fn end_programs(catalogue: &Catalogue) -> Result<(), Failure> {
    let ledger = catalogue.take_ledger();
    for line in ledger.standard_error.iter().flat_map(|kept| kept.text.lines().map(|line| (&kept.system, line))) {
        eprintln!("{}: {}", line.0, line.1.replace(char::is_control, "?"));
    }
    ledger.complaint.map_or(Ok(()), |complaint| Err(Failure::config(complaint)))
}

/// A layout as `--layout` gives it; degrees that are left out are 1.
///
/// # Errors
/// Unknown degrees, ones that are given twice or are no numbers.
pub(super) fn layout(text: &str) -> Result<Layout, Failure> {
    let mut layout = Layout::dp_cp(1, 1);
    let mut given: Vec<&str> = Vec::new();
    for part in text.split(',') {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        if given.contains(&key.trim()) {
            return Err(Failure::usage(format!("--layout {text}: {} is given twice", key.trim())));
        }
        given.push(key.trim());
        let number = value.trim().parse::<u32>().map_err(|_| {
            Failure::usage(format!("--layout {text}: {part:?} is not key=number; for example dp=2,cp=4"))
        })?;
        match key.trim() {
            "dp" => layout.dp = number,
            "cp" => layout.cp = number,
            "pp" => layout.pp = number,
            "tp" => layout.tp = number,
            "cards_per_node" => layout.cards_per_node = number,
            other => {
                let hint = crate::failure::nearest(other, ["dp", "cp", "pp", "tp", "cards_per_node"]);
                return Err(Failure::usage(format!("--layout {text}: unknown degree {other}{hint}")));
            }
        }
    }
    Ok(layout)
}

/// Options of a system as `--option` gives them.
///
/// # Errors
/// One that is no `key=value`.
pub(super) fn options(list: &[String]) -> Result<Map<String, Value>, Failure> {
    list.iter()
        .map(|option| {
            let (key, value) = option.split_once('=').ok_or_else(|| {
                Failure::usage(format!("--option {option}: expected key=value, for example tau=0.05"))
            })?;
            let value = serde_json::from_str(value).unwrap_or_else(|_| json!(value));
            Ok((key.to_owned(), value))
        })
        .collect()
}

fn table(made: &Prepared, forward: &PassTimes, backward: &PassTimes) -> Result<(), Failure> {
    let load = made.plan.load(Pass::Forward);
    let mean = load.iter().sum::<u64>() as f64 / load.len().max(1) as f64;
    let ms = |ps: u64| json!((ps as f64 * 1e-6).round() / 1e3);
    let count = |rank: usize, kind: fn(&InstrKind) -> bool| {
        let passes = [&made.program.forward, &made.program.backward];
        passes.iter().flat_map(|p| p.ranks[rank].streams.iter().flatten()).filter(|i| kind(&i.kind)).count()
    };
    let rows: Vec<Map<String, Value>> = (0..load.len())
        .map(|rank| {
            let mut row = Map::new();
            row.insert("rank".into(), json!(rank));
            row.insert("load / mean".into(), json!((load[rank] as f64 / mean * 1e4).round() / 1e4));
            row.insert("launches".into(), json!(count(rank, |k| matches!(k, InstrKind::Launch { .. }))));
            row.insert("transfers".into(), json!(count(rank, |k| matches!(k, InstrKind::Transfer { .. }))));
            row.insert("forward ms".into(), ms(forward.rank_end_ps[rank]));
            row.insert("backward ms".into(), ms(backward.rank_end_ps[rank]));
            let sent = |p: &PassTimes| p.intra_bytes[rank].saturating_add(p.inter_bytes[rank]);
            row.insert("sent MB".into(), json!((sent(forward).saturating_add(sent(backward))) / 1_000_000));
            row.insert("peak MB".into(), json!(made.peak_bytes.get(rank).map(|b| b / 1_000_000)));
            row
        })
        .collect();
    output::records(&rows, Format::Human)?;
    let tiles = made.plan.forward.tiles.len();
    output::line(format!(
        "\n{}: {} ranks, {tiles} tiles, accepted by the checker; simulated forward {:.3} ms, backward {:.3} ms",
        made.plan.planner,
        made.plan.ranks,
        forward.wave_ps as f64 * 1e-9,
        backward.wave_ps as f64 * 1e-9
    ))
}

//! Programs of all systems, and a host that runs their steps.

#![allow(dead_code, reason = "not every test uses all of it")]

pub mod arena;
pub mod attend;
pub mod emulate;

use emulate::{Emulated, rounded};
use serde_json::{Map, Value};
use skewbench_cpu::{Inputs, Outputs, compare, needles, reference};
use skewbench_cuda::steps::{DeviceProgram, StepOptions, device_program};
use skewbench_cuda::{BF16_TOLERANCE, LSE_TOLERANCE};
use skewbench_exec::{Program, lower};
use skewbench_plan::check::{Limits, check_facts};
use skewbench_plan::{AttentionShape, Domain, Facts, FlopsCost, PackedSequence, PlaceContext, PlacedStep, Plan, Scope};
use skewbench_systems::registry::{self, System};
use skewbench_verify::Case;

pub static COST: FlopsCost = FlopsCost { flops_per_s: 6e14, bytes_per_s: 5e10 };

pub fn shape(q_heads: u16, kv_heads: u16, head_dim: u16) -> AttentionShape {
    AttentionShape { q_heads, kv_heads, head_dim }
}

/// Checks and lowers a plan.
pub fn lowered(plan: &Plan) -> Program {
    let facts = Facts::of(plan).unwrap();
    let checked = check_facts(plan, &facts, &Limits::default()).unwrap_or_else(|e| panic!("{}: {e}", plan.planner));
    lower(plan, &facts, &checked.operands).unwrap()
}

/// A plan of one domain of these documents.
pub fn planned(system: &System, documents: &[&[u32]], cp: u32, shape: AttentionShape) -> Plan {
    let planner = system.planner();
    let count = if planner.scope() == Scope::Sequence { 1 } else { documents.len() };
    let sequences: Vec<_> = documents[..count].iter().map(|d| PackedSequence::new(d.iter().copied())).collect();
    let sequences: Vec<_> = sequences.iter().collect();
    let nodes = vec![0; count * cp as usize];
    planner.plan(&Domain { sequences: &sequences, cp, shape, nodes: &nodes, cost: &COST, time_factors: &[] }).unwrap()
}

pub fn named(name: &str, options: &Value) -> System {
    registry::system(name, options.as_object().unwrap_or(&Map::new())).unwrap()
}

/// Plans of the case of one number of a system, at most `most`; where it refuses the options that were drawn, without them.
pub fn plans_of_case(name: &str, number: u64, most: usize) -> Vec<Plan> {
    let specs = registry::describe(name).unwrap().options;
    let mut case = Case::draw(number, &specs, 1);
    case.shape.head_dim = case.shape.head_dim.max(8);
    if let Some(plans) = registry::system(name, &case.options).ok().and_then(|s| plans(&s, &case, most)) {
        return plans;
    }
    case.options.clear();
    plans(&named(name, &Value::Null), &case, most).unwrap_or_else(|| panic!("{name} refuses case {number}"))
}

fn plans(system: &System, case: &Case, most: usize) -> Option<Vec<Plan>> {
    let layout = case.layout();
    let context = PlaceContext { layout, pool: system.pool(), seed: case.seed, shape: case.shape, cost: &COST };
    let mut placer = system.placement().placer();
    let mut placed: Vec<PlacedStep> = Vec::new();
    for step in case.loaded() {
        placed.push(placer.place(&step, &context).ok()?);
    }
    placed.extend(placer.finish(&context).ok()?);
    let scope = system.planner().scope();
    let mut plans = Vec::new();
    for step in &placed {
        for (wave, range) in
            step.waves.iter().flat_map(|w| step.domains(scope, case.dp).into_iter().map(move |r| (w, r)))
        {
            let members = &wave.sequences[range.start as usize..range.end as usize];
            let sequences: Vec<&PackedSequence> = members.iter().map(|s| &step.sequences[*s as usize]).collect();
            let nodes: Vec<u32> = range.flat_map(|dp| (0..case.cp).map(move |cp| layout.node(dp, cp))).collect();
            let (cp, shape) = (case.cp, case.shape);
            let domain = Domain { sequences: &sequences, cp, shape, nodes: &nodes, cost: &COST, time_factors: &[] };
            if plans.len() < most {
                plans.push(system.planner().plan(&domain).ok()?);
            }
        }
    }
    Some(plans)
}

pub fn device(program: &Program, repeatable: bool) -> DeviceProgram {
    device_program(program, StepOptions { repeatable }).unwrap()
}

/// Runs the steps of a plan in a random order and compares what they leave with dense attention.
pub fn right(plan: &Plan, seed: u64) -> Result<(), String> {
    let program = lowered(plan);
    let inputs = rounded(Inputs::random(&plan.sequences, plan.shape, seed).with_needles(&needles(plan, 64)));
    let expected = reference::attention(&inputs);
    let mut fixed: Option<Outputs> = None;
    for (repeatable, seed) in [(false, seed), (true, seed + 1), (true, seed + 2)] {
        let steps = device(&program, repeatable);
        let mut emulated = Emulated::new(&steps, &inputs, seed);
        let outputs = emulated.run(&inputs);
        for tensor in compare(&inputs, &outputs, &expected).tensors {
            let most = if tensor.tensor == "LSE" { LSE_TOLERANCE } else { BF16_TOLERANCE };
            if tensor.error.is_nan() || tensor.error > most {
                return Err(format!("{} (repeatable: {repeatable}): {tensor:?}", plan.planner));
            }
        }
        if repeatable {
            let tables = |o: &Outputs| [o.o.clone(), o.lse.clone(), o.dq.clone(), o.dk.clone(), o.dv.clone()];
            // The memory is as the first run left it, and no order of streams changes a bit.
            let again = emulated.run(&inputs);
            let same = fixed.iter().chain([&outputs]).all(|known| tables(known) == tables(&again));
            if !same {
                return Err(format!("{}: another order of streams gives other bits", plan.planner));
            }
            fixed = Some(outputs);
        }
    }
    Ok(())
}

use skewbench_sim::{Profile, profile};

use super::{Fit, Observation, PassFit, TimedPass};
use crate::failure::Failure;

/// The profile that predicts what was measured: attention tables with the fitted factor, and the spread of cards. Parts that
/// change are labelled measured by the import; parts that the times say nothing about stay as they are. The second result says
/// what changed, and what the times tell and a profile has no part for.
///
/// # Errors
/// Times without intervals, which change nothing; a profile that no machine can have.
pub fn adapted(
    base: &Profile,
    fit: &Fit,
    observations: &[Observation],
    (name, run): (&str, &str),
) -> Result<(Profile, Vec<String>), Failure> {
    let mut changed = base.clone();
    let mut said = Vec::new();
    changed.name = name.to_owned();
    changed.measured_on = None;
    let source = |before: &profile::Source, what: String| profile::Source {
        kind: profile::SourceKind::Measured,
        run: Some(run.to_owned()),
        note: format!("{what}; before ({}): {}", before.kind.name(), before.note),
    };
    let mut notes = Vec::new();
    for PassFit { pass, factor, constant, alone } in &fit.passes {
        // A constant of a wave is what its calls cost beside their work, if it is above 0; else the factor stands for itself.
        let constant = constant.as_ref().filter(|c| c.interval.is_some_and(|(low, _)| low > 0.0));
        let factor = if constant.is_some() { factor } else { alone };
        let (low, high) = factor.interval.ok_or_else(|| {
            Failure::config(format!(
                "{} waves give no intervals, so nothing is known to have changed; measure at least 5",
                factor.n
            ))
        })?;
        if low <= 1.0 && 1.0 <= high && constant.is_none() {
            said.push(format!("{}: kernels stay as they are (factor {low:.3} to {high:.3})", pass.name()));
            continue;
        }
        let launches: Vec<f64> = observations.iter().filter(|o| o.pass == *pass).map(|o| o.launches).collect();
        let calls = launches.iter().sum::<f64>() / launches.len().max(1) as f64;
        let call_ns = constant.map_or(0.0, |c| c.value / calls.max(1.0));
        scale(&mut changed.attention, *pass, factor.value, call_ns);
        let more = if call_ns > 0.0 { format!(" and {:.1} us a call", call_ns * 1e-3) } else { String::new() };
        notes.push(format!("{} x {:.4} ({low:.4} to {high:.4}){more}", pass.name(), factor.value));
    }
    if !notes.is_empty() {
        let what = format!("table of profile {} with {}", base.name, notes.join(", "));
        said.push(format!("attention: {}", notes.join(", ")));
        changed.attention.source = source(&base.attention.source, what);
    }
    if fit.speeds.len() > 1 {
        changed.card_speed.relative_sd = fit.relative_sd;
        let what = format!("standard deviation of {} ranks, less what their noise adds", fit.speeds.len());
        said.push(format!("card_speed: relative_sd {:.4}", fit.relative_sd));
        changed.card_speed.source = source(&base.card_speed.source, what);
    }
    changed.validate(name).map_err(Failure::config)?;
    Ok((changed, said))
}

fn scale(attention: &mut profile::Attention, pass: TimedPass, factor: f64, call_ns: f64) {
    let of = |row: profile::TablePass| match pass {
        TimedPass::Both => true,
        TimedPass::Forward => row == profile::TablePass::Forward,
        TimedPass::Backward => row == profile::TablePass::Backward,
    };
    let changed = |ns: &mut f64| *ns = *ns * factor + call_ns;
    let tables = [&mut attention.bottom_right, &mut attention.square, &mut attention.rectangle];
    for row in tables.into_iter().flatten().filter(|row| of(row.0)) {
        changed(&mut row.5);
    }
    for row in attention.ragged.iter_mut().filter(|row| of(row.pass)) {
        changed(&mut row.ns);
    }
    if of(profile::TablePass::Forward) {
        changed(&mut attention.launch_overhead_ns.forward);
    }
    if of(profile::TablePass::Backward) {
        changed(&mut attention.launch_overhead_ns.backward);
    }
}

use std::sync::Arc;

use skewbench_plan::{Domain, Plan, Planner, Scope, SystemError};
use skewbench_systems::planners::libra::{TileAssignment, plan_assignment};

use crate::error::Cause;
use crate::protocol::{Assigned, AssignedBlock, Request, Response, line};
use crate::session::{PLAN, Session};

/// A planner that asks a program.
pub(crate) struct ExternalPlanner {
    pub(crate) session: Arc<Session>,
    pub(crate) scope: Scope,
    pub(crate) load_bound: Option<f64>,
}

impl Planner for ExternalPlanner {
    fn name(&self) -> &str {
        &self.session.external().name
    }

    fn scope(&self) -> Scope {
        self.scope
    }

    fn plan(&self, domain: &Domain<'_>) -> Result<Plan, SystemError> {
        let session = &*self.session;
        let question = |id| {
            line(&Request::Plan {
                id,
                seed: session.seed,
                sequences: domain.sequences,
                cp: domain.cp,
                ranks: domain.ranks(),
                shape: domain.shape,
                nodes: domain.nodes,
                time_factors: domain.time_factors,
                options: &session.options,
            })
        };
        let answer = |response: Response| {
            match (response.assignment, response.plan) {
                (Some(assigned), None) => derive(self.name(), domain, assigned),
                (None, Some(plan)) => accept(self.name(), domain, *plan),
                _ => Err("answered plan with neither or both of assignment and plan".to_owned()),
            }
            .map_err(Cause::Contract)
        };
        session.ask(PLAN, question, answer)
    }

    fn load_bound(&self, domain: &Domain<'_>) -> Result<u64, SystemError> {
        Ok(most_load(self.load_bound, domain))
    }

    fn trusted(&self) -> bool {
        false
    }
}

/// Pairs x query heads that no rank exceeds when none exceeds the mean by more than the factor `bound`; all of them without
/// a factor.
pub(crate) fn most_load(bound: Option<f64>, domain: &Domain<'_>) -> u64 {
    let pairs: u128 = domain.sequences.iter().map(|s| u128::from(s.pairs())).sum();
    let total = pairs * u128::from(domain.shape.q_heads);
    let mean = total as f64 / f64::from(domain.ranks().max(1));
    let most = bound.map_or(total as f64, |bound| mean * bound);
    // One more for the rounding of the product, which saturates as the conversion does.
    (most as u64).saturating_add(1)
}

/// The plan of an assignment: transfers follow from who computes what.
pub(crate) fn derive(name: &str, domain: &Domain<'_>, assigned: Assigned) -> Result<Plan, String> {
    let Assigned { head_shards, pieces, resend, mut blocks } = assigned;
    blocks.sort_by_key(|block| (block.seq, block.start));
    let mut ends: Vec<Vec<u32>> = vec![Vec::new(); domain.sequences.len()];
    let mut workers = Vec::with_capacity(blocks.len());
    for AssignedBlock { seq, start, end, workers: of_block } in blocks {
        let wrong = |what: String| Err(format!("assigned rows {start}..{end} of packed sequence {seq} {what}"));
        let Some(ends) = ends.get_mut(seq as usize) else {
            return wrong(format!("; the domain has sequences 0 to {}", domain.sequences.len().saturating_sub(1)));
        };
        let reached = ends.last().copied().unwrap_or(0);
        if start < reached {
            return wrong(format!("although rows to {reached} are assigned already"));
        }
        if start > reached {
            return wrong(format!("and nobody rows {reached}..{start}"));
        }
        if end <= start {
            return wrong("which are none".to_owned());
        }
        if of_block.len() != head_shards as usize {
            return wrong(format!("to {} workers; {head_shards} head shards need one each", of_block.len()));
        }
        ends.push(end);
        workers.extend(of_block);
    }
    let assignment = TileAssignment { head_shards, pieces, resend, ends, workers };
    plan_assignment(name, domain, &assignment).map_err(|e| format!("gave an assignment that cannot be planned: {e}"))
}

/// A whole plan, if it is one of this domain. That it computes the right thing is the checker's question.
pub(crate) fn accept(name: &str, domain: &Domain<'_>, mut plan: Plan) -> Result<Plan, String> {
    if plan.ranks != domain.ranks() {
        return Err(format!("planned {} ranks; the domain has {}", plan.ranks, domain.ranks()));
    }
    if plan.shape != domain.shape {
        return Err(format!("planned heads {:?}; the domain has {:?}", plan.shape, domain.shape));
    }
    if plan.sequences.len() != domain.sequences.len() {
        return Err(format!("planned {} sequences; the domain has {}", plan.sequences.len(), domain.sequences.len()));
    }
    for (seq, (bounds, sequence)) in plan.sequences.iter().zip(domain.sequences).enumerate() {
        let lengths = sequence.documents();
        let alike = bounds.len() == lengths.len() + 1
            && bounds.first() == Some(&0)
            && bounds.windows(2).zip(lengths).all(|(bound, length)| bound[0].checked_add(*length) == Some(bound[1]));
        if !alike {
            return Err(format!("planned other document bounds for packed sequence {seq} than the domain has"));
        }
    }
    name.clone_into(&mut plan.planner);
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use skewbench_plan::{AttentionShape, Domain, FlopsCost, PackedSequence};

    use super::most_load;

    #[test]
    fn the_bound_on_the_load_follows_the_factor_and_saturates() {
        let sequence = PackedSequence::new([5, 3]);
        let cost = FlopsCost { flops_per_s: 4e14, bytes_per_s: 4e10 };
        let shape = AttentionShape { q_heads: 4, kv_heads: 2, head_dim: 8 };
        let domain = Domain { sequences: &[&sequence], cp: 2, shape, nodes: &[0, 0], cost: &cost, time_factors: &[] };
        // 21 pairs x 4 heads on 2 ranks.
        for (factor, most) in [(None, 85), (Some(1.0), 43), (Some(1.5), 64), (Some(1e300), u64::MAX)] {
            assert_eq!(most_load(factor, &domain), most, "{factor:?}");
        }
    }
}

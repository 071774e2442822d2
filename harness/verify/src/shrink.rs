use crate::Case;

/// A smaller case for which `wrong` still holds: fewer steps, fewer and shorter documents, fewer ranks, default options.
/// Greedy and bounded: at most `budget` cases are tried.
pub fn shrink(case: &Case, mut budget: usize, wrong: impl Fn(&Case) -> bool) -> Case {
    let mut smallest = case.clone();
    loop {
        let smaller = candidates(&smallest).into_iter().find(|candidate| {
            let try_it = budget > 0;
            budget = budget.saturating_sub(1);
            try_it && wrong(candidate)
        });
        match smaller {
            Some(candidate) => smallest = candidate,
            None => return smallest,
        }
    }
}

/// Cases that are smaller in one respect, the boldest first.
fn candidates(case: &Case) -> Vec<Case> {
    let mut all = Vec::new();
    let mut add = |change: &dyn Fn(&mut Case)| {
        let mut smaller = case.clone();
        change(&mut smaller);
        if smaller != *case {
            all.push(smaller);
        }
    };
    add(&|c| c.steps.truncate(1));
    add(&|c| c.steps.iter_mut().for_each(|step| step.truncate(c.dp as usize)));
    add(&|c| {
        c.dp = 1;
        c.steps.iter_mut().for_each(|step| step.truncate(1));
    });
    for (step, sequences) in case.steps.iter().enumerate() {
        for (sequence, documents) in sequences.iter().enumerate() {
            let half = documents.len() / 2;
            if half > 0 {
                add(&|c| c.steps[step][sequence].truncate(half));
                add(&|c| c.steps[step][sequence].drain(..half).for_each(drop));
            }
            for document in 0..documents.len().min(8) {
                add(&|c| {
                    let length = &mut c.steps[step][sequence][document];
                    *length = (*length / 2).max(1);
                });
            }
        }
    }
    add(&|c| c.cp = (c.cp / 2).max(1));
    add(&|c| c.cp = c.cp.saturating_sub(1).max(1));
    add(&|c| c.shape.q_heads = c.shape.kv_heads);
    add(&|c| {
        c.shape.q_heads /= c.shape.kv_heads;
        c.shape.kv_heads = 1;
    });
    for name in case.options.keys() {
        add(&|c| {
            c.options.remove(name);
        });
    }
    all
}

//! An outline is the program of the same plan without what only running it needs.

use proptest::prelude::*;
use serde_json::Map;
use skewbench_exec::{Instr, InstrKind, PassProgram, lower, outline};
use skewbench_plan::check::{Limits, check_facts, check_only};
use skewbench_plan::{AttentionShape, Domain, Facts, FlopsCost, PackedSequence, Scope, Span, TileShape};
use skewbench_systems::registry::{self, SYSTEMS};

/// An instruction without the place of its tiles, and their shapes.
fn told<'a>(pass: &'a PassProgram, instr: &Instr) -> (Instr, &'a [TileShape]) {
    let InstrKind::Launch { tiles, mask, q_heads, kv_heads } = instr.kind else { return (*instr, &[]) };
    let kind = InstrKind::Launch { tiles: Span { start: 0, end: 0 }, mask, q_heads, kv_heads };
    (Instr { kind, ..*instr }, &pass.shapes[tiles.range()])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn outlines_of_all_systems_are_their_programs(
        documents in prop::collection::vec(prop::collection::vec(1u32..600, 1..6), 2..4), cp in 1u32..5,
    ) {
        let window = documents.iter().map(|list| list.iter().sum::<u32>()).max().unwrap_or(0);
        let filled = |list: &Vec<u32>| {
            let rest = window - list.iter().sum::<u32>();
            list.iter().copied().chain((rest > 0).then_some(rest)).collect::<Vec<u32>>()
        };
        let sequences: Vec<PackedSequence> = documents.iter().map(filled).map(PackedSequence::new).collect();
        let shape = AttentionShape { q_heads: 8, kv_heads: 4, head_dim: 64 };
        let cost = FlopsCost { flops_per_s: 4e14, bytes_per_s: 5e10 };
        let mut planned = 0;
        for named in SYSTEMS {
            let system = registry::system(named.name, &Map::new()).expect("a named system");
            let members = if system.planner().scope() == Scope::Sequence { 1 } else { sequences.len() };
            let members: Vec<&PackedSequence> = sequences[..members].iter().collect();
            let nodes: Vec<u32> = (0..members.len() as u32 * cp).map(|rank| rank / 4).collect();
            let domain = Domain { sequences: &members, cp, shape, nodes: &nodes, cost: &cost, time_factors: &[] };
            let Ok(plan) = system.planner().plan(&domain) else { continue };
            planned += 1;
            let facts = Facts::of(&plan).expect("sound");
            let checked = check_facts(&plan, &facts, &Limits::default()).expect("right");
            prop_assert_eq!(check_only(&plan, &facts, &Limits::default()).expect("right"), checked.peak_bytes);
            let whole = lower(&plan, &facts, &checked.operands).expect("checked");
            let outline = outline(&plan, &facts).expect("checked");
            prop_assert_eq!((whole.shape, whole.ranks), (outline.shape, outline.ranks));
            for (whole, outline) in [(&whole.forward, &outline.forward), (&whole.backward, &outline.backward)] {
                prop_assert_eq!((&whole.calls, &whole.events), (&outline.calls, &outline.events), "{}", named.name);
                prop_assert_eq!(whole.tiles.len(), whole.shapes.len());
                prop_assert!(whole.tiles.iter().zip(&whole.shapes).all(|(t, s)| (t.q_rows, t.k_rows) == (s.q, s.k)));
                for (a, b) in whole.routes.iter().zip(&outline.routes) {
                    prop_assert_eq!((&a.flows, &a.rows), (&b.flows, &b.rows), "{}", named.name);
                }
                for (a, b) in whole.ranks.iter().zip(&outline.ranks) {
                    let tell = |pass, streams: &Vec<Vec<Instr>>| -> Vec<_> {
                        streams.iter().map(|s| s.iter().map(|i| told(pass, i)).collect::<Vec<_>>()).collect()
                    };
                    prop_assert_eq!(tell(whole, &a.streams), tell(outline, &b.streams), "{}", named.name);
                    prop_assert!(b.buffers.is_empty());
                }
            }
        }
        prop_assert!(planned > SYSTEMS.len() / 2);
    }
}

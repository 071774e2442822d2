use skewbench_plan::check::*;
use skewbench_plan::*;
use skewbench_systems::registry;
use std::time::Instant;
fn main() {
    let name = std::env::args().nth(1).unwrap();
    let n: usize = std::env::args().nth(2).unwrap().parse().unwrap();
    let seqs: Vec<PackedSequence> = (0..8)
        .map(|s| {
            let mut v = vec![];
            let mut room = 1u32 << 20;
            let mut x = 12345u32 + s;
            while room > 0 {
                x = x.wrapping_mul(1664525).wrapping_add(1013904223);
                let mut l = ((x >> 16) % 3000 + 200) as u32;
                if x % 97 == 0 {
                    l *= 100;
                }
                let l = l.min(room);
                v.push(l);
                room -= l;
            }
            PackedSequence::new(v)
        })
        .collect();
    let k = if name == "libra" { 8 } else { 1 };
    let refs: Vec<&PackedSequence> = seqs.iter().take(k).collect();
    let nodes: Vec<u32> = (0..k as u32 * 16).map(|r| r / 8).collect();
    let cost = FlopsCost { flops_per_s: 6e14, bytes_per_s: 5e10 };
    let d = Domain {
        sequences: &refs,
        cp: 16,
        shape: AttentionShape { q_heads: 32, kv_heads: 4, head_dim: 128 },
        nodes: &nodes,
        cost: &cost,
    };
    let sys = registry::system(&name, &Default::default()).unwrap();
    let mut t = [0f64; 4];
    let mut docs = 0;
    for _ in 0..n {
        let a = Instant::now();
        let p = sys.planner().plan(&d).unwrap();
        t[0] += a.elapsed().as_secs_f64();
        docs = p.forward.tiles.len();
        let a = Instant::now();
        let f = Facts::of(&p).unwrap();
        t[1] += a.elapsed().as_secs_f64();
        let a = Instant::now();
        let c = check_facts(&p, &f, &Limits::default()).unwrap();
        t[2] += a.elapsed().as_secs_f64();
        let a = Instant::now();
        let q = skewbench_exec::lower(&p, &f, &c.operands).unwrap();
        t[3] += a.elapsed().as_secs_f64();
        std::hint::black_box(q);
    }
    println!(
        "{name} tiles {docs} plan {:.3} facts {:.3} check {:.3} lower {:.3} ms",
        t[0] / n as f64 * 1e3,
        t[1] / n as f64 * 1e3,
        t[2] / n as f64 * 1e3,
        t[3] / n as f64 * 1e3
    );
}

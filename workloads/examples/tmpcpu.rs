use skewbench_workloads::*;
fn cpu() -> u64 { std::fs::read_to_string("/proc/thread-self/schedstat").unwrap().split(' ').next().unwrap().parse().unwrap() }
fn main() {
    for (name, packing) in [("paper-256k", Packing::FIRST_FIT), ("paper-1m", Packing::FIRST_FIT), ("paper-1m", Packing::Cut), ("paper-1m", Packing::Split), ("real-256k", Packing::FIRST_FIT), ("real-1m", Packing::Split), ("magi", Packing::FIRST_FIT), ("magi-short", Packing::Split), ("wikipedia", Packing::FIRST_FIT)] {
        let w = Workload::preset(name, None, Some(packing)).unwrap();
        let s = WindowStream::new(&w, 1).unwrap();
        let mut best = u64::MAX; let mut docs = 0;
        for _ in 0..5 {
            let t = cpu();
            let c = s.chunk(0);
            let e = cpu() - t;
            docs = c.iter().flatten().map(|x| x.len()).sum::<usize>();
            best = best.min(e);
        }
        println!("{name} {packing} {:.1} ns/doc ({docs} docs, {:.1} ms)", best as f64 / docs as f64, best as f64 / 1e6);
    }
}

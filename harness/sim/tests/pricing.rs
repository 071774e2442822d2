#[test]
fn print() {
    let p = skewbench_sim::Pricing::new(skewbench_sim::Profile::named("h200").unwrap());
    for e in p.table_errors() { if e.relative().abs() > 0.03 || e.tiles > 1 { println!("{} {:?} {} {} {} {} {:.3}", e.table, e.pass, e.q_heads, e.q_len, e.kv_len, e.tiles, e.relative()); } }
}

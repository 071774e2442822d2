//! The fast balancer against a plain one that looks at every item for every move.

use proptest::prelude::*;
use skewbench_plan::{AttentionShape, PackedSequence};

use super::balance::{Price, balance};
use super::fill::{Document, Item, documents, fill, loads};
use super::options::KvCharge;

const SHAPE: AttentionShape = AttentionShape { q_heads: 32, kv_heads: 4, head_dim: 128 };

/// Moves as the public description has them, with nothing remembered from one move to the next.
fn plain(items: &mut Vec<Item>, documents: &[Document], ranks: u32, tolerance: f64, price: Price) {
    let loads = loads(items, ranks);
    let mean = loads.iter().map(|&load| load as f64).sum::<f64>() / f64::from(ranks);
    let mut surplus: Vec<f64> = loads.iter().map(|&load| load as f64 - mean).collect();
    let mut recipients: Vec<usize> = (0..surplus.len()).filter(|&rank| surplus[rank] < 0.0).collect();
    recipients.sort_by(|&a, &b| surplus[a].total_cmp(&surplus[b]));
    for recipient in recipients {
        let mut need = -surplus[recipient];
        while need > tolerance * mean {
            let candidates =
                items.iter().enumerate().filter(|(_, i)| surplus[i.server as usize] > 0.0 && i.pairs() > 0);
            let candidates = candidates.map(|(index, item)| {
                let pairs = need.min(item.pairs() as f64).min(surplus[item.server as usize]);
                let len = f64::from(documents[item.document as usize].rounded);
                let keys = if price.charge == KvCharge::Document || item.is_whole(len as u32) {
                    len + 1.0
                } else {
                    f64::from(item.tail.1.max(item.head.1))
                };
                ((pairs / (len + 1.0) * price.row + keys * price.key) / pairs, index, pairs)
            });
            let Some((_, index, pairs)) = candidates.min_by(|a, b| a.0.total_cmp(&b.0)) else { break };
            let (donor, all) = (items[index].server as usize, items[index].pairs());
            let moved = if pairs >= all as f64 {
                items[index].server = recipient as u32;
                all
            } else {
                let rows = (pairs as u64 / items[index].row_pair()).min(u64::from(items[index].row_pairs()));
                if rows == 0 {
                    break;
                }
                let inner = items[index].split(rows as u32, recipient as u32);
                items.push(inner);
                inner.pairs()
            };
            surplus[donor] -= moved as f64;
            surplus[recipient] += moved as f64;
            need -= moved as f64;
        }
    }
}

fn lengths() -> impl Strategy<Value = Vec<u32>> {
    let skewed = (0u32..14).prop_flat_map(|bits| 1u32..2 << bits);
    let some = prop_oneof![3 => skewed.clone(), 1 => Just(64u32), 1 => Just(1u32), 1 => 500u32..520];
    prop_oneof![
        6 => prop::collection::vec(some, 1..60),
        1 => prop::collection::vec(1u32..6, 200..400),
        1 => (1u32..100_000).prop_map(|len| vec![len]),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn the_fast_balancer_makes_the_same_moves(
        lengths in lengths(), ranks in 1u32..20, tolerance in prop_oneof![Just(0.0), Just(0.1), 0.0..0.5],
        round in prop_oneof![Just(1u32), Just(16)], shard in any::<bool>(), kv in prop_oneof![Just(4u16), Just(1), Just(32)],
    ) {
        let sequence = PackedSequence::new(lengths);
        let documents = documents(&[&sequence], &[0], round);
        let charge = if shard { KvCharge::Shard } else { KvCharge::Document };
        let price = Price::new(AttentionShape { kv_heads: kv, ..SHAPE }, charge);
        let filled = fill(&documents, ranks, round);
        let (mut fast, mut slow) = (filled.clone(), filled.clone());
        balance(&mut fast, &documents, ranks, tolerance, price);
        plain(&mut slow, &documents, ranks, tolerance, price);
        prop_assert_eq!(&fast, &slow);

        let (before, after) = (loads(&filled, ranks), loads(&fast, ranks));
        let mean = before.iter().sum::<u64>().div_ceil(u64::from(ranks));
        prop_assert_eq!(before.iter().sum::<u64>(), after.iter().sum::<u64>());
        for (before, after) in before.iter().zip(&after) {
            prop_assert!(*after <= (*before).max(mean), "{before} became {after}, mean {mean}");
        }
    }
}

/// Loads over the mean before and after.
fn balanced(lengths: &[u32], ranks: u32, tolerance: f64) -> (Vec<f64>, Vec<f64>) {
    let sequence = PackedSequence::new(lengths.iter().copied());
    let documents = documents(&[&sequence], &[0], 1);
    let mut items = fill(&documents, ranks, 1);
    let shares = |items: &[Item]| -> Vec<f64> {
        let loads = loads(items, ranks);
        let mean = loads.iter().sum::<u64>() as f64 / f64::from(ranks);
        loads.iter().map(|&load| load as f64 / mean).collect()
    };
    let before = shares(&items);
    balance(&mut items, &documents, ranks, tolerance, Price::new(SHAPE, KvCharge::Document));
    (before, shares(&items))
}

/// Seven servers 9% below the mean and one 63% above it: no deficit exceeds a tenth of the mean, so nothing moves.
#[test]
fn tolerance_bounds_deficits_and_not_the_surplus() {
    // Eight ranks of 1024 tokens; the first has one document of 1000 tokens, the others 746 and small ones.
    let mut lengths = vec![1000];
    lengths.extend([1; 24]);
    for _ in 0..7 {
        lengths.push(746);
        lengths.extend([1; 278]);
    }
    let (before, after) = balanced(&lengths, 8, 0.1);
    assert!((1.62..1.64).contains(&before[0]), "{before:?}");
    assert!(before[1..].iter().all(|share| (0.90..0.92).contains(share)), "{before:?}");
    assert_eq!(before, after);
    let (_, after) = balanced(&lengths, 8, 0.02);
    assert!(after[0] < 1.0 + 7.0 * 0.02 + 0.01, "{after:?}");
}

#[test]
fn a_single_long_document_is_even_from_the_start() {
    let (before, after) = balanced(&[1 << 20], 16, 0.1);
    assert_eq!(before, after);
    assert!(before.iter().all(|share| (0.9999..1.0001).contains(share)), "{before:?}");
}

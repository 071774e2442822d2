//! Small broken plans, each refused with a message that says what is wrong and where.

use skewbench_plan::check::{Limits, check};
use skewbench_plan::{
    Accounting, AttentionShape, COMPUTE, Call, CallMode, Dtype, HeadRange, Launch, Mask, Move, Op, OpId, Part, Pass,
    PassPlan, Plan, Rows, Shard, Span, Tensor, TensorSet, Tile, Work,
};

const SHAPE: AttentionShape = AttentionShape { q_heads: 4, kv_heads: 2, head_dim: 64 };
const INPUTS: TensorSet = TensorSet::of(&[Tensor::Q, Tensor::K, Tensor::V]);
const ALL: TensorSet = TensorSet::of(&[Tensor::Q, Tensor::K, Tensor::V, Tensor::DO, Tensor::O, Tensor::Lse]);

fn rows(start: u32, end: u32) -> Rows {
    Rows::range(start, end)
}

fn tile(q: (u32, u32), k: (u32, u32)) -> Tile {
    Tile { seq: 0, q: rows(q.0, q.1), k: rows(k.0, k.1) }
}

/// A pass under construction.
struct Hand<'a>(&'a mut PassPlan);

impl Hand<'_> {
    fn launch(&mut self, rank: usize, mask: Mask, tiles: &[Tile], after: &[OpId]) -> OpId {
        let start = self.0.tiles.len() as u32;
        self.0.tiles.extend(tiles);
        let tiles = Span { start, end: self.0.tiles.len() as u32 };
        let launch = Launch { tiles, mask, q_heads: SHAPE.all_q() };
        self.0.ranks[rank].push(COMPUTE, Work::Launch(launch), after.to_vec())
    }

    fn call(&mut self, mode: CallMode, dtype: Dtype, tensors: TensorSet, moves: &[(u32, u32, Rows)]) -> u32 {
        let start = self.0.moves.len() as u32;
        self.0.moves.extend(moves.iter().map(|&(from, to, rows)| Move { from, to, seq: 0, rows }));
        let moves = Span { start, end: self.0.moves.len() as u32 };
        let part = Part { moves, tensors, q_heads: SHAPE.all_q(), kv_heads: SHAPE.all_kv() };
        self.0.calls.push(Call { mode, dtype, parts: vec![part], keep: false });
        self.0.calls.len() as u32 - 1
    }

    fn copy(&mut self, tensors: TensorSet, moves: &[(u32, u32, Rows)]) -> u32 {
        self.call(CallMode::Copy, Dtype::Bf16, tensors, moves)
    }

    fn add(&mut self, dtype: Dtype, tensors: TensorSet, moves: &[(u32, u32, Rows)]) -> u32 {
        self.call(CallMode::Accumulate, dtype, tensors, moves)
    }

    fn post(&mut self, rank: usize, stream: u8, call: u32, after: &[OpId]) -> OpId {
        self.0.ranks[rank].push(stream, Work::Exchange(call), after.to_vec())
    }
}

/// One document of `tokens` rows at home on rank 0, which computes it alone.
fn alone(tokens: u32, ranks: u32) -> Plan {
    let shards = vec![Shard { rank: 0, seq: 0, rows: rows(0, tokens) }];
    let mut plan = Plan {
        planner: "hand".to_owned(),
        shape: SHAPE,
        sequences: vec![vec![0, tokens]],
        ranks,
        entry: shards.clone(),
        exit: shards,
        forward: PassPlan::new(ranks),
        backward: PassPlan::new(ranks),
        accounting: Accounting::default(),
    };
    for pass in [&mut plan.forward, &mut plan.backward] {
        Hand(pass).launch(0, Mask::Causal, &[tile((0, tokens), (0, tokens))], &[]);
    }
    plan
}

/// As [`alone`], with the forward computed on rank 1: call 0 brings Q, K, V, call 1 takes O home.
fn elsewhere(tokens: u32, ranks: u32) -> Plan {
    let mut plan = alone(tokens, ranks);
    plan.forward = PassPlan::new(ranks);
    let mut hand = Hand(&mut plan.forward);
    let there = hand.copy(INPUTS, &[(0, 1, rows(0, tokens))]);
    let home = hand.add(Dtype::Bf16, TensorSet::O_LSE, &[(1, 0, rows(0, tokens))]);
    hand.post(0, 1, there, &[]);
    let arrived = hand.post(1, 1, there, &[]);
    let computed = hand.launch(1, Mask::Causal, &[tile((0, tokens), (0, tokens))], &[arrived]);
    hand.post(0, 2, home, &[]);
    hand.post(1, 2, home, &[computed]);
    plan
}

/// A forward in which rank 0 computes rows and rank 1 the rest of their keys; the O of rank 1 comes home in call 1.
fn split_keys() -> Plan {
    let mut plan = alone(4, 2);
    plan.forward = PassPlan::new(2);
    let mut hand = Hand(&mut plan.forward);
    let there = hand.copy(INPUTS, &[(0, 1, rows(0, 4))]);
    let home = hand.add(Dtype::F32, TensorSet::O_LSE, &[(1, 0, rows(2, 4))]);
    hand.post(0, 1, there, &[]);
    let arrived = hand.post(1, 1, there, &[]);
    hand.launch(0, Mask::Causal, &[tile((0, 2), (0, 2)), tile((2, 4), (2, 4))], &[]);
    let computed = hand.launch(1, Mask::Full, &[tile((2, 4), (0, 2))], &[arrived]);
    hand.post(0, 2, home, &[]);
    hand.post(1, 2, home, &[computed]);
    plan
}

#[track_caller]
fn accepts(plan: &Plan) {
    check(plan, &Limits::default()).unwrap_or_else(|e| panic!("{e}"));
}

#[track_caller]
fn refuses(plan: &Plan, why: &[&str]) {
    let error = check(plan, &Limits::default()).expect_err("the checker accepts a broken plan").to_string();
    assert!(why.iter().all(|part| error.contains(part)), "{error}");
}

fn changed(plan: Plan, change: impl FnOnce(&mut Plan)) -> Plan {
    let mut plan = plan;
    change(&mut plan);
    plan
}

fn at(stream: u8, index: u32) -> OpId {
    OpId { stream, index }
}

fn op(plan: &mut Plan, rank: usize, at: OpId) -> &mut Op {
    &mut plan.forward.ranks[rank].streams[usize::from(at.stream)][at.index as usize]
}

#[test]
fn the_plans_that_are_broken_below_are_right() {
    accepts(&alone(4, 1));
    accepts(&elsewhere(4, 3));
    accepts(&split_keys());
}

#[test]
fn work_that_is_not_done_or_done_twice() {
    let tiles = |tiles: &[Tile], mask| {
        changed(alone(8, 1), |plan| {
            plan.forward = PassPlan::new(1);
            Hand(&mut plan.forward).launch(0, mask, tiles, &[]);
        })
    };
    let place = "hand, forward: sequence 0, document 0, query heads 0..4:";
    let causal = |q, k| tiles(&[tile(q, k)], Mask::Causal);
    refuses(&causal((0, 7), (0, 7)), &[place, "row 7 has keys 0..=7 computed by no tile"]);
    refuses(&causal((0, 8), (1, 8)), &[place, "keys 0..=0 computed by no tile"]);
    refuses(&causal((0, 8), (0, 7)), &[place, "tile of rows 0..8 on keys 0..7 is not aligned with the diagonal"]);
    refuses(&causal((0, 7), (1, 8)), &[place, "tile of rows 0..7 on keys 1..8 is not aligned with the diagonal"]);
    refuses(&causal((0, 9), (0, 9)), &["tile 0: sequence 0: row 8 of 8"]);
    let two = [tile((0, 8), (0, 8)), tile((6, 8), (6, 8))];
    refuses(&tiles(&two, Mask::Causal), &[place, "row 7 has keys", "computed more than once"]);
    refuses(&tiles(&[tile((0, 8), (0, 8))], Mask::Full), &[place, "shows keys that causality masks"]);
    refuses(&tiles(&[tile((0, 8), (0, 8))], Mask::CausalExclusive), &[place, "is not aligned with the diagonal"]);
    let across = changed(causal((0, 8), (0, 8)), |plan| plan.sequences[0] = vec![0, 4, 8]);
    refuses(&across, &["document 0", "rows 0..8 on keys 0..8 reaches outside its document 0..4"]);
    let nothing = changed(alone(8, 1), |plan| plan.backward = PassPlan::new(1));
    refuses(&nothing, &["backward: sequence 0, document 0, query heads 0..4: no tile computes it"]);
    let wrong_heads = |heads: HeadRange| {
        changed(alone(8, 1), |plan| {
            let Work::Launch(launch) = &mut op(plan, 0, at(0, 0)).work else { return };
            launch.q_heads = heads;
        })
    };
    refuses(&wrong_heads(HeadRange::new(0, 3)), &["query heads 3..4: no tile computes it"]);
    refuses(&wrong_heads(HeadRange::new(1, 5)), &["rank 0: a launch on query heads", "start: 1, end: 5"]);
    refuses(&wrong_heads(HeadRange::new(2, 2)), &["rank 0: a launch on query heads"]);
    refuses(&wrong_heads(HeadRange { start: 3, end: 1 }), &["rank 0: a launch on query heads"]);
}

#[test]
fn operands_that_are_not_there() {
    let unordered = changed(elsewhere(4, 2), |plan| op(plan, 1, at(0, 0)).after.clear());
    let missing =
        "rank 1: the launch at operation 0.0 starts before Q of sequence 0, rows 0..4, heads 0..4 have arrived";
    refuses(&unordered, &[missing, "call 0 brings them, but nothing makes it wait for that call"]);
    let short = changed(elsewhere(4, 2), |plan| plan.forward.moves[0].rows.len = 3);
    refuses(&short, &[missing, "they are not on the rank in one piece"]);
    let no_values = changed(elsewhere(4, 2), |plan| plan.forward.calls[0].parts[0].tensors = TensorSet::Q);
    refuses(&no_values, &["rank 1", "starts before K, V of sequence 0, rows 0..4, heads 0..2 have arrived"]);
    let half = changed(elsewhere(4, 2), |plan| plan.forward.calls[0].parts[0].kv_heads = HeadRange::new(0, 1));
    refuses(&half, &["rank 1", "starts before K, V of sequence 0, rows 0..4, heads 0..2 have arrived"]);
    let scattered = changed(elsewhere(4, 2), |plan| {
        plan.forward.moves[0].rows = rows(0, 2);
        plan.forward.moves.push(Move { from: 0, to: 1, seq: 0, rows: Rows { start: 2, len: 1, stride: 2 } });
        plan.forward.moves.push(Move { from: 0, to: 1, seq: 0, rows: rows(3, 4) });
        let part = Part { moves: Span { start: 2, end: 4 }, ..plan.forward.calls[0].parts[0] };
        plan.forward.calls[0].parts.push(part);
    });
    refuses(&scattered, &[missing]);
    // Rank 1 passes on to rank 2 what it has not got yet.
    let relay = |stream: u8| {
        changed(elsewhere(4, 3), |plan| {
            let mut hand = Hand(&mut plan.forward);
            let on = hand.copy(TensorSet::KV, &[(1, 2, rows(0, 4))]);
            hand.post(1, stream, on, &[]);
            hand.post(2, 1, on, &[]);
        })
    };
    accepts(&relay(1));
    let early = "rank 1: call 2 starts before K of sequence 0, rows 0..4, heads 0..2 have arrived: call 0 brings them";
    refuses(&relay(3), &[early]);
    // The backward reads O and LSE, and homes have no LSE where O came without it.
    let bare = changed(elsewhere(4, 2), |plan| {
        plan.forward.calls[1].parts[0].tensors = TensorSet::of(&[Tensor::O]);
    });
    refuses(&bare, &["backward: rank 0", "starts before O, LSE of sequence 0, rows 0..4"]);
}

#[test]
fn contributions_that_get_lost_or_counted_twice() {
    let o = "forward: rank 1: O of sequence 0";
    let unordered = changed(elsewhere(4, 2), |plan| op(plan, 1, at(2, 0)).after.clear());
    let race = "rows 0..4, heads 0..4: the launch at operation 0.0 and the departure at operation 2.0 are not ordered";
    refuses(&unordered, &[o, race]);
    let drained = changed(elsewhere(4, 2), |plan| {
        op(plan, 1, at(2, 0)).after.clear();
        op(plan, 1, at(0, 0)).after.push(at(2, 0));
    });
    refuses(
        &drained,
        &[o, "rows 0..4, heads 0..4: a contribution is missing: what the launch at operation 0.0 adds comes"],
    );
    let partly = changed(elsewhere(4, 2), |plan| plan.forward.moves[1].rows = rows(0, 3));
    refuses(
        &partly,
        &[o, "rows 3..4, heads 0..4: a contribution is missing: what the launch at operation 0.0 adds never"],
    );
    let fewer_heads = changed(elsewhere(4, 2), |plan| plan.forward.calls[1].parts[0].q_heads = HeadRange::new(0, 3));
    refuses(&fewer_heads, &[o, "rows 0..4, heads 3..4: a contribution is missing"]);
    let never = changed(elsewhere(4, 2), |plan| {
        plan.forward.calls[1].parts.clear();
        plan.forward.ranks[0].streams[2].clear();
        plan.forward.ranks[1].streams[2].clear();
    });
    refuses(&never, &[o, "rows 0..4, heads 0..4: a contribution is missing"]);
    let twice = changed(elsewhere(4, 2), |plan| {
        let again = plan.forward.moves[1];
        plan.forward.moves.push(again);
        plan.forward.calls[1].parts[0].moves.end += 1;
        plan.forward.calls[1].dtype = Dtype::F32;
    });
    let left = "rows 0..4, heads 0..4: the departure at operation 2.0 takes a contribution that has already left";
    refuses(&twice, &[o, left]);
    let astray = changed(elsewhere(4, 3), |plan| {
        plan.forward.moves[1].to = 2;
        let post = plan.forward.ranks[0].streams.pop();
        plan.forward.ranks[2].streams = vec![Vec::new(), Vec::new(), post.unwrap_or_default()];
    });
    refuses(&astray, &["rank 2: O of sequence 0, rows 0..4, heads 0..4: a contribution is missing: what the arrival"]);
    let stolen = changed(split_keys(), |plan| {
        let mut hand = Hand(&mut plan.forward);
        let away = hand.add(Dtype::F32, TensorSet::O_LSE, &[(0, 1, rows(0, 1))]);
        hand.post(0, 2, away, &[at(0, 0)]);
        hand.post(1, 2, away, &[]);
    });
    refuses(
        &stolen,
        &["rank 0: O of sequence 0, rows 0..1, heads 0..4: the departure", "takes away what is already home"],
    );
}

#[test]
fn partial_sums_are_not_rounded() {
    let rounded = changed(split_keys(), |plan| plan.forward.calls[1].dtype = Dtype::Bf16);
    refuses(&rounded, &["rank 0: O of sequence 0, rows 2..4, heads 0..4:", "bf16; partial sums travel in f32"]);
    // A long tile, a short one, and past the short one's end the arrival.
    let mut beside = alone(4, 2);
    beside.backward = PassPlan::new(2);
    let mut hand = Hand(&mut beside.backward);
    let there = hand.copy(ALL, &[(0, 1, rows(0, 4))]);
    let queries = hand.add(Dtype::Bf16, TensorSet::DQ, &[(1, 0, rows(3, 4))]);
    let keys = hand.add(Dtype::F32, TensorSet::DKV, &[(1, 0, rows(1, 4))]);
    hand.post(0, 1, there, &[]);
    let arrived = hand.post(1, 1, there, &[]);
    hand.launch(0, Mask::Full, &[tile((1, 4), (0, 1))], &[]);
    hand.launch(0, Mask::Causal, &[tile((0, 1), (0, 1)), tile((1, 2), (1, 2)), tile((2, 3), (1, 3))], &[]);
    let computed = hand.launch(1, Mask::Causal, &[tile((3, 4), (1, 4))], &[arrived]);
    for call in [queries, keys] {
        hand.post(0, 2, call, &[]);
        hand.post(1, 2, call, &[computed]);
    }
    refuses(&beside, &["backward: rank 0: dQ of sequence 0, rows 3..4, heads 0..4:", "partial sums travel in f32"]);
    beside.backward.calls[queries as usize].dtype = Dtype::F32;
    accepts(&beside);
    // Rounded on the way to rank 1, which passes it on in f32.
    let mut relayed = changed(split_keys(), |plan| {
        plan.ranks = 3;
        plan.backward.ranks.push(Default::default());
        plan.forward.ranks.push(Default::default());
        plan.forward.moves[1].to = 2;
        plan.forward.calls[1].dtype = Dtype::Bf16;
        plan.forward.ranks[0].streams[2].clear();
        let mut hand = Hand(&mut plan.forward);
        hand.post(2, 2, 1, &[]);
        let on = hand.add(Dtype::F32, TensorSet::O_LSE, &[(2, 0, rows(2, 4))]);
        hand.post(2, 2, on, &[]);
        hand.post(0, 2, on, &[]);
    });
    refuses(&relayed, &["rank 2: O of sequence 0, rows 2..4, heads 0..4:", "passes on in f32 what arrived in bf16"]);
    relayed.forward.calls[1].dtype = Dtype::F32;
    accepts(&relayed);
}

#[test]
fn partial_outputs_need_their_log_sum_exp() {
    let bare = changed(split_keys(), |plan| {
        plan.forward.calls[1].parts[0].tensors = TensorSet::of(&[Tensor::O]);
    });
    let why = "sends O without LSE, or keeps it for the backward, although other keys are still missing";
    refuses(&bare, &["rank 1: O of sequence 0, rows 2..4, heads 0..4: the departure at operation 2.0", why]);
    let kept = changed(split_keys(), |plan| plan.forward.calls[1].keep = true);
    refuses(&kept, &["rank 1: O of sequence 0, rows 2..4, heads 0..4: the departure at operation 2.0", why]);
    // Rank 0 keeps its own rows for the backward before the other keys have come.
    let mut local = split_keys();
    let mut hand = Hand(&mut local.forward);
    let own = hand.add(Dtype::F32, TensorSet::O_LSE, &[(0, 0, rows(2, 4))]);
    hand.post(0, 2, own, &[at(0, 0)]);
    accepts(&local);
    local.forward.calls[own as usize].keep = true;
    refuses(&local, &["rank 0: O of sequence 0, rows 2..4, heads 0..4: the departure at operation 2.1", why]);
    let lse = changed(split_keys(), |plan| {
        plan.forward.calls[1].parts[0].tensors = TensorSet::of(&[Tensor::Lse]);
    });
    refuses(&lse, &["call 1: LSE cannot be merged without its O"]);
}

#[test]
fn local_moves_bring_home_what_was_computed_once() {
    let with = |moves: &[(u32, u32, Rows)], after: &[OpId]| {
        changed(alone(4, 1), |plan| {
            let mut hand = Hand(&mut plan.forward);
            let own = hand.add(Dtype::F32, TensorSet::O_LSE, moves);
            hand.post(0, 1, own, after);
        })
    };
    accepts(&with(&[(0, 0, rows(1, 3))], &[at(0, 0)]));
    let place = "rank 0: O of sequence 0, rows 1..3, heads 0..4: the departure at operation 1.0";
    refuses(&with(&[(0, 0, rows(1, 3))], &[]), &[place, "does not wait for the launch at operation 0.0"]);
    let twice = with(&[(0, 0, rows(0, 3)), (0, 0, rows(1, 4))], &[at(0, 0)]);
    refuses(&twice, &[place, "takes a contribution that has already left"]);
    let nothing = changed(elsewhere(4, 2), |plan| {
        plan.forward.moves.push(Move { from: 0, to: 0, seq: 0, rows: rows(1, 3) });
        plan.forward.calls[1].parts[0].moves.end += 1;
    });
    let never = "takes a contribution that was never made";
    refuses(&nothing, &["rank 0: O of sequence 0, rows 1..3, heads 0..4: the departure at operation 2.0", never]);
    let away = changed(elsewhere(4, 2), |plan| {
        plan.forward.moves.push(Move { from: 1, to: 1, seq: 0, rows: rows(0, 4) });
        plan.forward.calls[1].parts[0].moves.end += 1;
    });
    refuses(&away, &["rank 1: O of sequence 0, rows 0..4, heads 0..4:", "adds to itself away from home"]);
}

#[test]
fn rows_meet_whatever_their_stride() {
    // One row, given as a stride of 5 and of 7: rank 1 has one dQ of it to send, not two.
    let one = |stride| Rows { start: 1, len: 1, stride };
    let mut plan = alone(2, 2);
    plan.backward = PassPlan::new(2);
    let mut hand = Hand(&mut plan.backward);
    let there = hand.copy(ALL, &[(0, 1, rows(0, 2))]);
    hand.launch(0, Mask::Causal, &[tile((0, 1), (0, 1))], &[]);
    hand.post(0, 1, there, &[]);
    let arrived = hand.post(1, 1, there, &[]);
    hand.launch(1, Mask::Full, &[Tile { seq: 0, q: one(5), k: rows(0, 1) }], &[arrived]);
    let computed = hand.launch(1, Mask::Causal, &[Tile { seq: 0, q: one(7), k: rows(1, 2) }], &[]);
    let calls = [(one(5), TensorSet::DQ), (rows(0, 2), TensorSet::DKV), (one(7), TensorSet::DQ)];
    for (rows, tensors) in calls {
        let call = hand.add(Dtype::F32, tensors, &[(1, 0, rows)]);
        hand.post(0, 2, call, &[]);
        hand.post(1, 2, call, &[computed]);
    }
    let left = "takes a contribution that has already left";
    refuses(
        &plan,
        &["backward: rank 1: dQ of sequence 0, rows 1..2, heads 0..4: the departure at operation 2.2", left],
    );
    for streams in &mut plan.backward.ranks {
        streams.streams[2].pop();
    }
    plan.backward.calls.pop();
    accepts(&plan);
}

#[test]
fn calls_and_dependencies_that_cannot_be() {
    let forgotten = changed(elsewhere(4, 2), |plan| plan.forward.ranks[0].streams[2].clear());
    refuses(&forgotten, &["rank 0 has rows in call 1 but does not post it"]);
    let twice = changed(elsewhere(4, 2), |plan| {
        Hand(&mut plan.forward).post(0, 2, 1, &[]);
    });
    refuses(&twice, &["rank 0 posts call 1 twice"]);
    let stranger = changed(elsewhere(4, 3), |plan| {
        Hand(&mut plan.forward).post(2, 1, 0, &[]);
    });
    refuses(&stranger, &["rank 2 posts call 0 without rows in it"]);
    let unknown = changed(elsewhere(4, 2), |plan| op(plan, 0, at(1, 0)).work = Work::Exchange(9));
    refuses(&unknown, &["rank 0: no call 9"]);
    let dangling = changed(elsewhere(4, 2), |plan| op(plan, 1, at(0, 0)).after.push(at(7, 3)));
    refuses(&dangling, &["rank 1 operation 0.0 waits for operation 7.3, which does not exist"]);
    let cycle = changed(elsewhere(4, 2), |plan| op(plan, 1, at(1, 0)).after.push(at(2, 0)));
    refuses(&cycle, &["operations wait for each other", "never gets past"]);
    let crossed = changed(elsewhere(4, 2), |plan| {
        let mut hand = Hand(&mut plan.forward);
        let first = hand.copy(TensorSet::Q, &[(0, 1, rows(0, 4))]);
        let second = hand.copy(TensorSet::Q, &[(0, 1, rows(0, 4))]);
        for (rank, order) in [(0, [first, second]), (1, [second, first])] {
            for call in order {
                hand.post(rank, 3, call, &[]);
            }
        }
    });
    refuses(&crossed, &["rank 0 operation 3.0 never gets past call 2: operations wait for each other"]);
    let empty = changed(alone(4, 1), |plan| {
        let Work::Launch(launch) = &mut op(plan, 0, at(0, 0)).work else { return };
        launch.tiles.end = 0;
    });
    refuses(&empty, &["rank 0: a launch without tiles or outside the table of tiles"]);
    let misplaced = changed(alone(4, 1), |plan| {
        let ops = std::mem::take(&mut plan.forward.ranks[0].streams[0]);
        plan.forward.ranks[0].streams.push(ops);
    });
    refuses(&misplaced, &["rank 0: a launch on transfer stream 1"]);
    // Stream 256 has no number of its own: its operations would pass for those of stream 0.
    let streams = changed(elsewhere(4, 2), |plan| {
        let post = std::mem::take(&mut plan.forward.ranks[1].streams[1]);
        plan.forward.ranks[1].streams.resize_with(256, Vec::new);
        plan.forward.ranks[1].streams.push(post);
        op(plan, 1, at(0, 0)).after = Vec::new();
        plan.forward.ranks[1].streams[0]
            .insert(0, Op { work: Work::Linear { tokens: 1 }, after: vec![], micro_batch: 0 });
        op(plan, 1, at(2, 0)).after = vec![at(0, 1)];
    });
    refuses(&streams, &["rank 1: 257 streams; at most 256"]);
}

#[test]
fn parts_that_carry_what_they_cannot() {
    let part =
        |change: &dyn Fn(&mut Part)| changed(elsewhere(4, 2), |plan| change(&mut plan.forward.calls[0].parts[0]));
    refuses(&part(&|p| p.kv_heads = HeadRange::new(1, 3)), &["call 0: K of heads 1..3"]);
    refuses(&part(&|p| p.q_heads = HeadRange::EMPTY), &["call 0: Q of heads 0..0"]);
    refuses(&part(&|p| p.tensors = TensorSet::default()), &["call 0: a part without tensors"]);
    refuses(&part(&|p| p.tensors = TensorSet::of(&[Tensor::Q, Tensor::K])), &["call 0: K and V travel together"]);
    refuses(&part(&|p| p.tensors = TensorSet::of(&[Tensor::O])), &["call 0: O cannot travel in a call of this mode"]);
    refuses(&part(&|p| p.moves.end = 99), &["call 0: a part without moves or outside the table of moves"]);
    refuses(&part(&|p| p.moves.end = 0), &["call 0: a part without moves or outside the table of moves"]);
    let keep = changed(elsewhere(4, 2), |plan| {
        let call = Hand(&mut plan.backward).copy(TensorSet::KV, &[(0, 1, rows(0, 4))]);
        plan.backward.calls[call as usize].keep = true;
    });
    refuses(&keep, &["backward: call 0 keeps values after the backward"]);
    for bits in [0x200_u32, 0x8001, 70_000] {
        assert!(serde_json::from_value::<TensorSet>(bits.into()).is_err(), "{bits}");
    }
}

#[test]
fn layouts_that_do_not_partition_the_rows() {
    let entry = |shards: &[(u32, Rows)]| {
        changed(alone(6, 2), |plan| {
            plan.entry = shards.iter().map(|&(rank, rows)| Shard { rank, seq: 0, rows }).collect();
        })
    };
    refuses(&entry(&[(0, rows(0, 4))]), &["layout: entry layout holds 4 of the 6 rows of sequence 0"]);
    refuses(&entry(&[(0, rows(0, 4)), (1, rows(3, 5))]), &["entry layout holds rows 3..5 of sequence 0 twice"]);
    let striped = [(0, Rows::residue(0, 6, 0, 2)), (1, Rows { start: 0, len: 3, stride: 1 })];
    refuses(&entry(&striped), &["entry layout holds row 0 of sequence 0 twice"]);
    refuses(&entry(&[(2, rows(0, 6))]), &["entry layout names rank 2 of 2"]);
    refuses(&entry(&[(0, rows(0, 6)), (1, rows(2, 2))]), &["entry layout: sequence 0: empty rows at 2"]);
    let exit = changed(alone(6, 2), |plan| plan.exit[0].rows.len = 5);
    refuses(&exit, &["exit layout holds 5 of the 6 rows of sequence 0"]);
    let bounds = changed(alone(6, 2), |plan| plan.sequences[0] = vec![0, 4, 4, 6]);
    refuses(&bounds, &["sequence 0: document bounds must start at 0 and rise"]);
    let heads = changed(alone(6, 1), |plan| plan.shape.kv_heads = 3);
    refuses(&heads, &["4 query heads on 3 KV heads of dimension 64 is not a grouped-query shape"]);
    let ranks = changed(alone(6, 1), |plan| plan.ranks = 4);
    refuses(&ranks, &["streams of 1 ranks in a plan of 4"]);
}

#[test]
fn numbers_without_bound() {
    let most = u32::MAX;
    for (start, len, stride) in [(most, most, most), (0, most, 2), (most, 1, 1), (0, 2, most), (1, 1, 0), (0, 0, 1)] {
        let huge = Rows { start, len, stride };
        let bad = ["sequence 0: "];
        refuses(&changed(elsewhere(4, 2), |plan| plan.forward.tiles[0].q = huge), &bad);
        refuses(&changed(elsewhere(4, 2), |plan| plan.forward.tiles[0].k = huge), &bad);
        refuses(&changed(elsewhere(4, 2), |plan| plan.forward.moves[0].rows = huge), &bad);
        refuses(&changed(elsewhere(4, 2), |plan| plan.entry[0].rows = huge), &bad);
    }
    // The longest sequence there is.
    let longest = alone(most, 1);
    accepts(&longest);
    let two = changed(longest, |plan| plan.sequences.push(vec![0, 1]));
    refuses(&two, &["layout: 4294967296 rows in all sequences; at most 4294967295"]);
    // The stride of a single row means nothing and costs nothing.
    let mut single = alone(1, 1);
    for pass in [&mut single.forward, &mut single.backward] {
        pass.tiles[0].q.stride = most;
        pass.tiles[0].k.stride = most;
    }
    accepts(&single);
    let moved = changed(elsewhere(1, 2), |plan| plan.forward.moves[0].rows.stride = most);
    accepts(&moved);
}

#[test]
fn memory_over_the_limit() {
    for plan in [alone(4, 1), elsewhere(64, 3), split_keys()] {
        let peaks = check(&plan, &Limits::default()).unwrap().peak_bytes;
        let (rank, most) = peaks.iter().enumerate().max_by_key(|(_, peak)| **peak).unwrap();
        let limit = |bytes| Limits { memory_bytes: Some(bytes) };
        assert!(check(&plan, &limit(*most)).is_ok());
        let error = check(&plan, &limit(most - 1)).unwrap_err().to_string();
        let why = format!("memory: rank {rank} holds {most} bytes at its peak, above the limit of {}", most - 1);
        assert!(error.contains(&why), "{error}");
    }
    // An operand of rank 1: 64 rows of Q and of K, V in bf16, and O with LSE in f32 until it has left.
    let plan = elsewhere(64, 2);
    let peak = check(&plan, &Limits::default()).unwrap().peak_bytes[1];
    let operands = 64 * 2 * 64 * (4 + 2 * 2);
    assert!(peak > operands && peak < 3 * operands, "{peak}");
    assert_eq!(plan.load(Pass::Forward), [0, 64 * 65 / 2 * 4]);
}

/// Plans whose few lines stand for billions of rows, tiles or moves are refused before anything of that size is made.
#[test]
fn hostile_sizes() {
    let refused = |plan: &Plan, text: &str| {
        let error = check(plan, &Limits::default()).unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    };
    let huge = 1 << 31;

    let mut dealt = alone(huge, 1);
    let half = |start| Shard { rank: 0, seq: 0, rows: Rows { start, len: huge / 2, stride: 2 } };
    dealt.entry = vec![half(0), half(1)];
    refused(&dealt, "can be dealt so");

    let mut strided = alone(huge, 1);
    let far = Rows { start: 0, len: 2, stride: 1 << 30 };
    strided.forward.tiles = vec![Tile { seq: 0, q: far, k: far }];
    refused(&strided, "computed by no tile");

    let mut again = alone(1000, 1);
    again.forward.tiles = (0..1000).map(|row| tile((row, row + 1), (0, row + 1))).collect();
    again.forward.ranks[0].streams.clear();
    for _ in 0..70 {
        let launch = Launch { tiles: Span { start: 0, end: 1000 }, mask: Mask::Causal, q_heads: SHAPE.all_q() };
        again.forward.ranks[0].push(COMPUTE, Work::Launch(launch), Vec::new());
    }
    refused(&again, "more than once");

    let mut overlapping = alone(2000, 1);
    let moves = &mut overlapping.forward.moves;
    moves.extend((0..2000).map(|row| Move { from: 0, to: 0, seq: 0, rows: rows(row, row + 1) }));
    let part = |start| Part {
        moves: Span { start, end: 2000 },
        tensors: TensorSet::Q,
        q_heads: SHAPE.all_q(),
        kv_heads: HeadRange::EMPTY,
    };
    let parts = (0..2000).map(part).collect();
    overlapping.forward.calls.push(Call { mode: CallMode::Copy, dtype: Dtype::Bf16, parts, keep: false });
    refused(&overlapping, "overlapping spans");

    let mut ranks = alone(10, 1);
    ranks.ranks = u32::MAX;
    refused(&ranks, "streams of 1 ranks");
}

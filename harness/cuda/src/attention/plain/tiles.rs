use crate::steps::{AttendCall, Slot};

/// Rows, or keys, of the tile that a block works on: what fits shared memory at this head_dim.
pub(super) fn tile(head_dim: u32) -> u32 {
    if head_dim <= 128 { 64 } else { 32 }
}

/// Shared memory of a kernel that holds so many tiles of operands and of scores, bytes.
pub(super) fn shared_bytes(head_dim: u32, operands: u32, scores: u32) -> u32 {
    let (tile, pitch) = (tile(head_dim), head_dim.div_ceil(2) | 1);
    (operands * tile * pitch + scores * tile * (tile + 1)) * 4
}

/// Slots as the kernels read them: lengths, bytes in the arena, first row among the rows of all slots.
pub(super) fn slot_table(call: &AttendCall) -> Vec<i64> {
    let mut first = 0;
    let mut table = Vec::with_capacity(call.slots.len() * 12);
    for s in &call.slots {
        table.extend([s.q_rows, s.k_rows].map(i64::from));
        table.extend([s.q, s.k, s.v, s.o, s.lse, s.d_o, s.dq, s.dk, s.dv].map(|b| b as i64));
        table.push(first);
        first += i64::from(s.q_rows);
    }
    table
}

/// All tiles of all slots along rows or keys: slot and number of the tile.
pub(super) fn tile_table(call: &AttendCall, length: fn(&Slot) -> u32) -> Vec<i32> {
    let tile = tile(call.head_dim);
    let of = |(slot, s): (usize, &Slot)| (0..length(s).div_ceil(tile)).flat_map(move |t| [slot as i32, t as i32]);
    call.slots.iter().enumerate().flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use skewbench_plan::Pass;

    use super::*;
    use crate::steps::{AttendMask, Strides};

    #[test]
    fn every_row_is_in_one_tile() {
        let slot = |q_rows, k_rows, q| Slot { q_rows, k_rows, q, ..Slot::default() };
        let call = AttendCall {
            pass: Pass::Forward,
            mask: AttendMask::Full,
            q_heads: 1,
            kv_heads: 1,
            head_dim: 128,
            strides: Strides::default(),
            slots: vec![slot(65, 3, 32), slot(64, 128, 48)],
        };
        assert_eq!(tile_table(&call, |s| s.q_rows), [0, 0, 0, 1, 1, 0]);
        assert_eq!(tile_table(&call, |s| s.k_rows), [0, 0, 1, 0, 1, 1]);
        let table = slot_table(&call);
        assert_eq!((table.len(), table[2], table[11], table[12], table[14], table[23]), (24, 32, 0, 64, 48, 65));
    }

    #[test]
    fn tiles_fit_shared_memory() {
        for head_dim in 1..=256 {
            assert!(shared_bytes(head_dim, 4, 2) <= 99 << 10, "{head_dim}");
        }
    }
}

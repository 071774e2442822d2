use half::bf16;
use skewbench_cpu::{Inputs, Outputs};
use skewbench_plan::{Pass, Tensor};

use super::inputs::{Generated, key};
use crate::CudaError;
use crate::steps::{Element, Region};

/// A NaN in bf16 twice and in f32 that no computation makes.
pub(super) const NAN_WORD: u32 = 0xffc1_ffc1;
const NAN_HALF: u16 = 0xffc1;

/// A run of rows that the kernel `make_inputs` makes, as it reads it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct MadeRun {
    to: u64,
    key: u64,
    row: u32,
    stride: u32,
    head: u32,
    heads: u32,
    width: u32,
    rows: u32,
    first: u64,
}

/// What makes the inputs of a rank whose arena starts at an address, with the number of all elements.
///
/// # Errors
/// An input is not bf16, or runs do not lie in order.
pub(super) fn made_runs(regions: &[Region], inputs: &Generated, arena: u64) -> Result<(Vec<MadeRun>, u64), CudaError> {
    let (mut runs, mut first) = (Vec::new(), 0);
    for region in regions {
        if region.element != Element::Bf16 {
            return Err(CudaError::Program(format!("the input {} is not bf16", region.tensor.name())));
        }
        let (heads, width) = (region.heads.len(), region.width);
        let row_bytes = u64::from(heads) * u64::from(width) * 2;
        for run in region.runs.iter().filter(|run| run.rows.len > 0 && heads > 0 && width > 0) {
            runs.push(MadeRun {
                to: arena + region.offset + u64::from(run.offset) * row_bytes,
                key: key(inputs.seed(), region.tensor, run.seq),
                row: run.rows.start,
                stride: run.rows.stride,
                head: u32::from(region.heads.start),
                heads,
                width,
                rows: run.rows.len,
                first,
            });
            first += u64::from(run.rows.len) * u64::from(heads) * u64::from(width);
        }
    }
    Ok((runs, first))
}

/// Where keys lie that the generator does not make, with their bytes.
pub(super) fn overwritten(regions: &[Region], inputs: &Generated) -> Vec<(u64, Vec<u8>)> {
    let mut places = Vec::new();
    for one in inputs.overwrites() {
        for region in regions.iter().filter(|region| region.tensor == Tensor::K) {
            let head = one.head.checked_sub(region.heads.start).filter(|_| one.head < region.heads.end);
            let Some(head) = head else { continue };
            let each = u64::from(region.width) * 2;
            let bytes: Vec<u8> = one.values.iter().flat_map(|x| x.to_le_bytes()).collect();
            for index in indices(region, one.seq, one.row) {
                let offset =
                    region.offset + (u64::from(index) * u64::from(region.heads.len()) + u64::from(head)) * each;
                places.push((offset, bytes.clone()));
            }
        }
    }
    places
}

/// Rows of a region that hold a row of a sequence.
pub(super) fn indices(region: &Region, seq: u32, row: u32) -> impl Iterator<Item = u32> {
    region.runs.iter().filter(move |run| run.seq == seq && run.rows.len > 0).filter_map(move |run| {
        let past = row.checked_sub(run.rows.start)?;
        let stride = run.rows.stride.max(1);
        (past.is_multiple_of(stride) && past / stride < run.rows.len).then(|| run.offset + past / stride)
    })
}

/// The pass that leaves a result.
pub(super) fn pass(result: Tensor) -> Pass {
    if matches!(result, Tensor::O | Tensor::Lse) { Pass::Forward } else { Pass::Backward }
}

/// Rows that a region has.
fn rows(region: &Region) -> u64 {
    region.runs.iter().map(|run| u64::from(run.offset) + u64::from(run.rows.len)).max().unwrap_or(0)
}

/// Bytes of a region.
pub(super) fn bytes(region: &Region) -> u64 {
    rows(region) * u64::from(region.heads.len()) * u64::from(region.width) * region.element.bytes()
}

/// Numbers of bytes.
pub(super) fn numbers(element: Element, bytes: &[u8]) -> Vec<f32> {
    match element {
        Element::Bf16 => bytes.chunks_exact(2).map(|b| bf16::from_le_bytes([b[0], b[1]]).to_f32()).collect(),
        Element::F32 => bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect(),
    }
}

/// Every row of a region: index in it, sequence, row of the sequence.
fn each_row(region: &Region) -> impl Iterator<Item = (u32, u32, u32)> {
    region
        .runs
        .iter()
        .flat_map(|run| (0..run.rows.len).map(|i| (run.offset + i, run.seq, run.rows.start + i * run.rows.stride)))
}

/// The bytes of an input region.
///
/// # Errors
/// The inputs lack rows.
pub(super) fn encode(region: &Region, inputs: &Inputs) -> Result<Vec<u8>, CudaError> {
    let table = match region.tensor {
        Tensor::Q => &inputs.q,
        Tensor::K => &inputs.k,
        Tensor::V => &inputs.v,
        Tensor::DO => &inputs.d_o,
        other => return Err(CudaError::Program(format!("{} is not an input", other.name()))),
    };
    let (heads, width) = (region.heads.len() as usize, region.width as usize);
    let size = region.element.bytes() as usize;
    let mut bytes = vec![0u8; usize::try_from(self::bytes(region)).unwrap_or(0)];
    for (index, seq, row) in each_row(region) {
        for (at, head) in (region.heads.start..region.heads.end).enumerate() {
            let values = table.at(seq, row, head).filter(|values| values.len() == width).ok_or_else(|| {
                let name = region.tensor.name();
                CudaError::Program(format!("the inputs have no {name} of sequence {seq}, row {row}, head {head}"))
            })?;
            let start = (index as usize * heads + at) * width * size;
            for (to, value) in bytes[start..].chunks_exact_mut(size).zip(values) {
                match region.element {
                    Element::Bf16 => to.copy_from_slice(&bf16::from_f32(*value).to_le_bytes()),
                    Element::F32 => to.copy_from_slice(&value.to_le_bytes()),
                }
            }
        }
    }
    Ok(bytes)
}

/// Puts what a result region holds into the tables, except what was never written.
pub(super) fn decode(region: &Region, bytes: &[u8], outputs: &mut Outputs) {
    let (heads, width) = (region.heads.len() as usize, region.width as usize);
    let size = region.element.bytes() as usize;
    let Some(table) = outputs.table_mut(region.tensor) else { return };
    for (index, seq, row) in each_row(region) {
        for (at, head) in (region.heads.start..region.heads.end).enumerate() {
            let start = (index as usize * heads + at) * width * size;
            let Some(held) = bytes.get(start..start + width * size) else { continue };
            let untouched = match region.element {
                Element::Bf16 => held.starts_with(&NAN_HALF.to_le_bytes()),
                Element::F32 => held.starts_with(&NAN_WORD.to_le_bytes()),
            };
            if let Some(to) = table.at_mut(seq, row, head).filter(|_| !untouched) {
                to.iter_mut().zip(numbers(region.element, held)).for_each(|(to, from)| *to = from);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use skewbench_cpu::{Inputs, Needle, Outputs};
    use skewbench_plan::{AttentionShape, HeadRange, Rows, Run, Tensor};

    use super::{MadeRun, NAN_WORD, bytes, decode, encode, indices, made_runs, overwritten};
    use crate::run::inputs::{Generated, rounded};
    use crate::steps::{Element, Region};

    const SHAPE: AttentionShape = AttentionShape { q_heads: 4, kv_heads: 2, head_dim: 8 };

    fn region(tensor: Tensor, heads: HeadRange) -> Region {
        let runs: Arc<[Run]> = [
            Run { seq: 0, rows: Rows { start: 1, len: 4, stride: 3 }, offset: 0, mixed: false },
            Run { seq: 1, rows: Rows::range(0, 5), offset: 4, mixed: false },
        ]
        .into();
        Region { offset: 64, tensor, element: Element::Bf16, heads, width: 8, runs }
    }

    #[test]
    fn what_is_encoded_is_decoded_and_what_is_not_written_stays_so() {
        let inputs = rounded(Inputs::random(&[vec![0, 11], vec![0, 5]], SHAPE, 1));
        let from = region(Tensor::Q, HeadRange::new(1, 3));
        let mut held = encode(&from, &inputs).expect("encoded");
        assert_eq!(held.len() as u64, bytes(&from));
        assert_eq!(bytes(&from), 9 * 2 * 8 * 2);
        // Row 2 of the region, head 1: row 7 of sequence 0.
        let untouched = 2 * 2 * 16;
        held[untouched..untouched + 4].copy_from_slice(&NAN_WORD.to_le_bytes());
        let mut outputs = Outputs::unwritten(&inputs);
        decode(&Region { tensor: Tensor::O, ..from }, &held, &mut outputs);
        assert_eq!(outputs.o.at(0, 10, 2), inputs.q.at(0, 10, 2));
        assert_eq!(outputs.o.at(1, 4, 1), inputs.q.at(1, 4, 1));
        let written = |seq, row, head| outputs.o.at(seq, row, head).is_some_and(Outputs::is_written);
        assert!(written(0, 7, 2) && !written(0, 7, 1) && !written(0, 0, 1) && !written(1, 0, 0));
    }

    #[test]
    fn runs_of_inputs_follow_each_other() {
        assert_eq!(size_of::<MadeRun>(), 48);
        let inputs = Generated::new(1, 0, SHAPE);
        let (runs, all) = made_runs(&[region(Tensor::K, HeadRange::new(0, 2))], &inputs, 1000).expect("runs");
        assert_eq!(all, 9 * 16);
        assert_eq!((runs[0].to, runs[0].first, runs[0].stride), (1064, 0, 3));
        assert_eq!((runs[1].to, runs[1].first, runs[1].row), (1064 + 4 * 32, 4 * 16, 0));
    }

    #[test]
    fn needles_are_put_where_their_keys_lie() {
        let needle = Needle { seq: 0, row: 9, key: 7 };
        let inputs =
            Generated::new(1, 0, AttentionShape { head_dim: 64, ..SHAPE }).with_needles(&[vec![0, 11]], &[needle]);
        let held = Region { width: 64, ..region(Tensor::K, HeadRange::new(1, 2)) };
        let places = overwritten(std::slice::from_ref(&held), &inputs);
        assert_eq!(places.iter().map(|(at, bytes)| (*at, bytes.len())).collect::<Vec<_>>(), [(64 + 2 * 128, 128)]);
        assert_eq!(indices(&held, 0, 8).count(), 0);
        assert_eq!(indices(&held, 1, 3).collect::<Vec<_>>(), [7]);
    }
}

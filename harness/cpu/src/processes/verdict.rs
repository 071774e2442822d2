//! What processes tell each other at the end of a run: the rows that each has, and what the first makes of them.

use serde::{Deserialize, Serialize};
use skewbench_plan::Tensor;

use crate::compare::{Found, Place, Report, TensorReport};
use crate::memory::{Memory, each_row};
use crate::table::is_poison;
use crate::{CpuError, Outputs};

/// Results in the order of a report.
const RESULTS: [Tensor; 5] = [Tensor::O, Tensor::Lse, Tensor::DQ, Tensor::DK, Tensor::DV];

/// Rows of buffers as bytes: tensor, sequence, row, head, elements.
pub(super) fn write_rows<'m, 'a: 'm>(memory: impl Iterator<Item = &'m Memory<'a>>, bytes: &mut Vec<u8>) {
    for memory in memory {
        let Some(tensor) = RESULTS.iter().position(|tensor| *tensor == memory.buffer.tensor) else { continue };
        let reading = memory.read();
        for (index, seq, row) in each_row(memory.buffer) {
            for head in memory.buffer.heads.start..memory.buffer.heads.end {
                let Some(values) = reading.at(index, head).filter(|values| !is_poison(values)) else { continue };
                bytes.push(tensor as u8);
                bytes.extend(seq.to_le_bytes());
                bytes.extend(row.to_le_bytes());
                bytes.extend(head.to_le_bytes());
                values.iter().for_each(|x| bytes.extend(x.to_le_bytes()));
            }
        }
    }
}

/// Puts rows into the tables of the results; none for bytes that [`write_rows`] does not write.
pub(super) fn read_rows(mut bytes: &[u8], outputs: &mut Outputs) -> Option<()> {
    while let Some((tensor, rest)) = bytes.split_first() {
        let (seq, rest) = rest.split_first_chunk::<4>()?;
        let (row, rest) = rest.split_first_chunk::<4>()?;
        let (head, rest) = rest.split_first_chunk::<2>()?;
        let table = outputs.table_mut(*RESULTS.get(usize::from(*tensor))?)?;
        let (values, rest) = rest.split_at_checked(table.width().checked_mul(4)?)?;
        let to = table.at_mut(u32::from_le_bytes(*seq), u32::from_le_bytes(*row), u16::from_le_bytes(*head))?;
        let (values, _) = values.as_chunks::<4>();
        to.iter_mut().zip(values).for_each(|(to, x)| *to = f32::from_le_bytes(*x));
        bytes = rest;
    }
    Some(())
}

/// What the first process makes of a run.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Verdict {
    /// Errors of the tensors as bits, with places.
    Report(Vec<(u64, Option<Place>, Found)>),
    /// Why the run did not end.
    Failed(String),
}

impl Verdict {
    pub(super) fn of(result: &Result<Report, CpuError>) -> Self {
        match result {
            Ok(report) => Self::Report(report.tensors.iter().map(|t| (t.error.to_bits(), t.at, t.found)).collect()),
            Err(e) => Self::Failed(e.to_string()),
        }
    }

    pub(super) fn result(self) -> Result<Report, CpuError> {
        match self {
            Self::Report(tensors) => {
                let tensors = tensors.into_iter().zip(RESULTS).map(|((error, at, found), tensor)| TensorReport {
                    tensor: tensor.name(),
                    error: f64::from_bits(error),
                    at,
                    found,
                });
                Ok(Report { tensors: tensors.collect() })
            }
            Self::Failed(what) => Err(CpuError::Processes(what)),
        }
    }
}

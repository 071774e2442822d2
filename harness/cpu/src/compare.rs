use serde::{Deserialize, Serialize};
use skewbench_plan::Tensor;

use crate::reference::Reference;
use crate::{Inputs, Outputs, Table};

/// Largest error of a right program: max|a - b| / max(max|b|, 1) per tensor, a what it leaves and b dense attention, for
/// unit-normal inputs. f32 storage between kernels, transfers and merges leaves about a tenth of it.
pub const TOLERANCE: f64 = 1e-5;

/// How far the results of a program are from dense attention.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// O, LSE, dQ, dK, dV.
    pub tensors: Vec<TensorReport>,
}

/// The largest error of one tensor.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TensorReport {
    /// The tensor.
    pub tensor: &'static str,
    /// max|a - b| / max(max|b|, 1); infinite where a row was never written or is not a number, or where the reference is
    /// missing or not a number.
    pub error: f64,
    /// Where it is.
    pub at: Option<Place>,
    /// What is there.
    pub found: Found,
}

/// An element of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Packed sequence.
    pub seq: u32,
    /// Document of the sequence.
    pub document: u32,
    /// Row of the sequence.
    pub row: u32,
    /// Row of the document.
    pub document_row: u32,
    /// Head.
    pub head: u16,
    /// Element of the head.
    pub element: u32,
}

/// What a result has where it is worst.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Found {
    /// A number.
    Number {
        /// What the program leaves.
        value: f64,
        /// What dense attention gives.
        expected: f64,
    },
    /// NaN or infinite.
    NotANumber,
    /// Nothing was written to this row and head.
    NeverWritten,
    /// The reference has no finite value to compare with.
    NoReference,
}

/// Results differ from dense attention.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{}", self.text())]
pub struct Wrong {
    /// The first tensor that does.
    pub tensor: TensorReport,
    /// The error that was allowed.
    pub tolerance: f64,
}

impl Wrong {
    fn text(&self) -> String {
        let TensorReport { tensor, error, at, found } = &self.tensor;
        let tolerance = self.tolerance;
        let place = at.map_or_else(String::new, |at| {
            let Place { seq, document, row, document_row, head, element } = at;
            format!(" of sequence {seq}, document {document}, row {row} ({document_row} of the document), head {head}, element {element}")
        });
        match found {
            Found::Number { value, expected } => {
                format!(
                    "{tensor}{place} is {value:.6}, dense attention gives {expected:.6}: error {error:.1e}, above {tolerance:.0e}"
                )
            }
            Found::NotANumber => format!("{tensor}{place} is not a number"),
            Found::NeverWritten => format!("{tensor}{place} was never written"),
            Found::NoReference => format!("{tensor}{place} has no finite reference to be compared with"),
        }
    }
}

impl Report {
    /// The largest error of all tensors.
    pub fn worst(&self) -> f64 {
        self.tensors.iter().map(|t| t.error).fold(0.0, f64::max)
    }

    /// Whether all tensors are within [`TOLERANCE`].
    ///
    /// # Errors
    /// The first tensor that is not.
    pub fn verdict(&self) -> Result<(), Wrong> {
        self.within(TOLERANCE)
    }

    /// Whether all tensors are within a tolerance.
    ///
    /// # Errors
    /// The first tensor that is not.
    pub fn within(&self, tolerance: f64) -> Result<(), Wrong> {
        match self.tensors.iter().find(|t| t.error.is_nan() || t.error > tolerance) {
            Some(tensor) => Err(Wrong { tensor: tensor.clone(), tolerance }),
            None => Ok(()),
        }
    }
}

/// Compares all results with dense attention.
pub fn compare(inputs: &Inputs, outputs: &Outputs, reference: &Reference) -> Report {
    let pairs = [
        (Tensor::O, &outputs.o, &reference.o),
        (Tensor::Lse, &outputs.lse, &reference.lse),
        (Tensor::DQ, &outputs.dq, &reference.dq),
        (Tensor::DK, &outputs.dk, &reference.dk),
        (Tensor::DV, &outputs.dv, &reference.dv),
    ];
    Report { tensors: pairs.map(|(tensor, a, b)| compare_tensor(inputs, tensor, a, b)).into() }
}

fn compare_tensor(inputs: &Inputs, tensor: Tensor, ours: &Table, reference: &Table) -> TensorReport {
    let heads = ours.heads().max(reference.heads());
    let (mut largest, mut worst) = (1.0f64, 0.0f64);
    let mut at = None;
    let mut found = Found::Number { value: 0.0, expected: 0.0 };
    for (seq, bounds) in (0u32..).zip(&inputs.sequences) {
        for (document, range) in (0u32..).zip(bounds.windows(2)) {
            for row in range[0]..range[1] {
                for head in 0..heads as u16 {
                    let place = |element: usize| Place {
                        seq,
                        document,
                        row,
                        document_row: row - range[0],
                        head,
                        element: element as u32,
                    };
                    let written = ours.at(seq, row, head).filter(|values| Outputs::is_written(values));
                    let Some(values) = written else {
                        return broken(tensor, place(0), Found::NeverWritten);
                    };
                    let expected = reference.at(seq, row, head).filter(|expected| expected.len() == values.len());
                    let Some(expected) = expected else {
                        return broken(tensor, place(0), Found::NoReference);
                    };
                    for (element, (a, b)) in values.iter().zip(expected).enumerate() {
                        let (a, b) = (f64::from(*a), f64::from(*b));
                        if !b.is_finite() {
                            return broken(tensor, place(element), Found::NoReference);
                        }
                        if !a.is_finite() {
                            return broken(tensor, place(element), Found::NotANumber);
                        }
                        largest = largest.max(b.abs());
                        if (a - b).abs() > worst {
                            worst = (a - b).abs();
                            at = Some(place(element));
                            found = Found::Number { value: a, expected: b };
                        }
                    }
                }
            }
        }
    }
    TensorReport { tensor: tensor.name(), error: worst / largest, at, found }
}

fn broken(tensor: Tensor, at: Place, found: Found) -> TensorReport {
    TensorReport { tensor: tensor.name(), error: f64::INFINITY, at: Some(at), found }
}

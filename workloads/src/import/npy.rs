use std::io::Read;
use std::path::Path;

use npyz::{Deserialize, NpyFile};

use super::error::ImportError;
use super::intake::Intake;
use super::length;

/// Reads an array of integers with one dimension.
pub(crate) fn read(reader: impl Read, file: &Path, intake: &mut Intake<'_>) -> Result<(), ImportError> {
    // The header's product of dimensions is not checked by the decoder: an absurd one must not end the program.
    let opened = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| NpyFile::new(reader)));
    let array = match opened {
        Ok(Ok(array)) => array,
        Ok(Err(e)) => return Err(ImportError::file(file, format!("not a .npy file that can be read: {e}"))),
        Err(_) => return Err(ImportError::file(file, "not a .npy file that can be read: it is damaged")),
    };
    let shape = array.shape().to_vec();
    let kind = array.dtype().descr();
    if shape.len() != 1 {
        let what = format!("the array has shape {shape:?}; save one of one dimension");
        return Err(ImportError::file(file, what));
    }
    let array = take::<i64, _>(array, file, intake)
        .or_else(|left| left.and_try::<u64>(file, intake))
        .or_else(|left| left.and_try::<i32>(file, intake))
        .or_else(|left| left.and_try::<u32>(file, intake))
        .or_else(|left| left.and_try::<i16>(file, intake))
        .or_else(|left| left.and_try::<u16>(file, intake))
        .or_else(|left| left.and_try::<i8>(file, intake))
        .or_else(|left| left.and_try::<u8>(file, intake));
    match array {
        Ok(()) => Ok(()),
        Err(Left::Failed(error)) => Err(error),
        Err(Left::Other(_)) => Err(ImportError::file(file, format!("the array holds {kind}; save one of integers"))),
    }
}

/// Why an array was not taken: it holds another type, or it was tried and is bad.
enum Left<R: Read> {
    Other(NpyFile<R>),
    Failed(ImportError),
}

impl<R: Read> Left<R> {
    fn and_try<T: Deserialize + Into<i128>>(self, file: &Path, intake: &mut Intake<'_>) -> Result<(), Self> {
        match self {
            Self::Other(array) => take::<T, R>(array, file, intake),
            failed => Err(failed),
        }
    }
}

fn take<T: Deserialize + Into<i128>, R: Read>(
    array: NpyFile<R>,
    file: &Path,
    intake: &mut Intake<'_>,
) -> Result<(), Left<R>> {
    let items = array.try_data::<T>().map_err(Left::Other)?;
    let promised = items.total_len();
    for (index, item) in items.enumerate() {
        let row = index as u64 + 1;
        let error = |what: String| Left::Failed(ImportError::row(file, row, what));
        let value = item.map_err(|e| match e.kind() {
            std::io::ErrorKind::UnexpectedEof => {
                error(format!("the file ends here but its header promises {promised} numbers; it is truncated"))
            }
            _ => Left::Failed(ImportError::read(file, &e)),
        })?;
        intake.bytes(size_of::<T>() as u64);
        intake.length(length::from_i128(value.into()).map_err(error)?).map_err(Left::Failed)?;
    }
    Ok(())
}

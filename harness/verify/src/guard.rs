use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::finding::Finding;

/// Runs part of a system; a panic becomes a finding, so that one broken system does not end the verification of others.
///
/// # Errors
/// [`Finding::Panic`].
pub fn guarded<T>(part: &'static str, work: impl FnOnce() -> T) -> Result<T, Finding> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
        Finding::Panic { part, what: text.unwrap_or("without a message").to_owned() }
    })
}

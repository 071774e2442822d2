use skewbench_cluster::{Attempt, Claim, ClusterError, Life, Owner};

use super::turns::NAP;
use super::{Names, Session};
use crate::failure::Failure;
use crate::scheduler::check_interrupted;

/// Begins to try failed cells again. Until the claim that this returns is given back, nobody seals the runs; `reopen` is called
/// when nobody seals or renders them, and opens those that are sealed.
///
/// # Errors
/// An interruption, claims that cannot be made, those of `reopen`.
pub fn begin_retry(
    session: &Session,
    names: &Names,
    reopen: impl Fn() -> Result<(), Failure>,
) -> Result<Claim, Failure> {
    let claims = &session.claims;
    let mut own = None;
    loop {
        check_interrupted()?;
        // Whoever seals looks for this claim once more when it has that of sealing: one of the two sees the other.
        let attempt = match own {
            Some(_) => claims.claim(&names.seal(), |_| true),
            None => claims.claim(&names.retry(&claims.owner().id), |_| true),
        };
        match (attempt, own.take()) {
            (Ok(Attempt::Ours(claim, _)), None) => own = Some(claim),
            (Ok(Attempt::Ours(seal, _)), Some(own)) => {
                let reopened = reopen();
                claims.release(&seal)?;
                return reopened.map(|()| own);
            }
            (Ok(_), before) => {
                own = before;
                std::thread::sleep(NAP);
            }
            // Whoever sealed has also rendered, and removed the claims.
            (Err(e), _) if e.is_gone() => claims.rejoin()?,
            (Err(e), _) => return Err(e.into()),
        }
    }
}

/// Another process that tries failed cells of these runs again.
///
/// # Errors
/// Claims that cannot be read.
pub(super) fn retrying(session: &Session, names: &Names) -> Result<Option<(Owner, Life)>, ClusterError> {
    for name in session.claims.names(super::names::RETRY)?.iter().filter(|name| names.is_retry(name)) {
        let holder = session.claims.holder(name)?;
        if holder.as_ref().is_some_and(|(owner, _)| owner.id != session.claims.owner().id) {
            return Ok(holder);
        }
    }
    Ok(None)
}

//! Verifies passwords on separate threads, because password hashes are slow by design. A few run at a time, and the
//! queue is limited.

use std::sync::Arc;

use route::{Credentials, CredentialsDigest};

use crate::context::plan::Auth;
use crate::context::routed::ExchangeContext;
use crate::failure::Failure;
use transport::deadline::Ticks;

/// Time limit for waiting in the queue.
const PATIENCE: Ticks = Ticks(50);

/// Credentials that were not verified recently.
pub(crate) struct Claim<'a> {
    pub(crate) auth: &'a Arc<Auth>,
    pub(crate) credentials: Credentials,
    pub(crate) digest: CredentialsDigest,
}

/// Verifies credentials on another thread. Returns the index of the user.
pub(crate) async fn verify(ctx: &ExchangeContext<'_>, claim: Claim<'_>) -> Result<usize, Failure> {
    let Claim { auth, credentials, digest } = claim;
    let verifier = &ctx.snapshot.plan.verifier;
    let _place = verifier.line_up().ok_or(Failure::VerifierBusy)?;
    let turn = ctx.client.deadline.within(PATIENCE, verifier.turn());
    let turn = ctx.worker.holding.during(turn).await;
    let Ok(Ok(turn)) = turn else { return Err(Failure::VerifierBusy) };
    // A browser opens several connections: one of them may have been verified meanwhile.
    if let Some(user) = auth.known(&credentials, ctx.worker.time_ns()).1 {
        return Ok(user);
    }
    let users = Arc::clone(&auth.users);
    let verified = tokio::task::spawn_blocking(move || {
        // The place is held until the hash is computed, even if no request waits for it any more.
        let _turn = turn;
        users.verify(&credentials)
    });
    match ctx.worker.holding.during(verified).await {
        Ok(Some(user)) => {
            auth.keep(digest, user, ctx.worker.time_ns());
            Ok(user)
        }
        Ok(None) => Err(Failure::Unauthorized),
        // The process is shutting down.
        Err(_) => Err(Failure::VerifierBusy),
    }
}

//! Verifies passwords on separate threads, because password hashes are slow by design. A few run at a time, and the
//! queue is limited.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::available_parallelism;

use route::{Credentials, CredentialsDigest};
use tokio::sync::Semaphore;

use crate::context::exchange::ExchangeContext;
use crate::context::failure::Failure;
use crate::context::plan::Auth;
use transport::deadline::Ticks;

/// Requests in line, over all workers; those beyond are told to come again.
const LINE_MAX: usize = 256;
/// How long one waits there.
const PATIENCE: Ticks = Ticks(50);

/// Limits verifications: those that run, and those that wait. Shared by all plans of a process.
pub(crate) struct Verifier {
    turns: Arc<Semaphore>,
    in_line: AtomicUsize,
}

/// Half of the cores: the others go on serving.
impl Default for Verifier {
    fn default() -> Self {
        let cores = available_parallelism().map_or(1, std::num::NonZero::get);
        Self { turns: Arc::new(Semaphore::new((cores / 2).max(1))), in_line: AtomicUsize::new(0) }
    }
}

/// Credentials that were not verified lately.
pub(crate) struct Claim<'a> {
    pub(crate) auth: &'a Arc<Auth>,
    pub(crate) credentials: Credentials,
    pub(crate) digest: CredentialsDigest,
}

/// Verifies a claim. Returns the index of the user.
pub(crate) async fn verify(ctx: &ExchangeContext<'_>, claim: Claim<'_>) -> Result<usize, Failure> {
    let Claim { auth, credentials, digest } = claim;
    let verifier = &ctx.snapshot.plan.verifier;
    let _place = Place::take(&verifier.in_line).ok_or(Failure::VerifierBusy)?;
    let turn = ctx.client.deadline.within(PATIENCE, Arc::clone(&verifier.turns).acquire_owned());
    let turn = ctx.worker.holding.during(turn).await;
    let Ok(Ok(turn)) = turn else { return Err(Failure::VerifierBusy) };
    // A browser opens several connections: the first of them may have been here.
    if let Some(user) = auth.known(&credentials, ctx.worker.time_ns()).1 {
        return Ok(user);
    }
    let users = Arc::clone(&auth.users);
    let verified = tokio::task::spawn_blocking(move || {
        // Its turn is over when the hash is, even if nobody waits for it any more.
        let _turn = turn;
        users.verify(&credentials)
    });
    match ctx.worker.holding.during(verified).await {
        Ok(Some(user)) => {
            auth.keep(digest, user, ctx.worker.time_ns());
            Ok(user)
        }
        Ok(None) => Err(Failure::Unauthorized),
        // The process ends.
        Err(_) => Err(Failure::VerifierBusy),
    }
}

/// A place in the line, until it is dropped.
struct Place<'a>(&'a AtomicUsize);

impl<'a> Place<'a> {
    fn take(in_line: &'a AtomicUsize) -> Option<Self> {
        let before = in_line.fetch_add(1, Ordering::Relaxed);
        let place = Self(in_line);
        (before < LINE_MAX).then_some(place)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

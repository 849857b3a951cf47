//! Decides whether a client is admitted, by the proofs that its route requires: all of them, or any.
//!
//! Proofs that are known are judged without a wait. The rest is a separate future, so that a request with known proofs
//! does not pay for it.

use std::io::Write;
use std::sync::Arc;

use config::Require;
use route::{Credentials, SignIn};

use crate::answer;
use crate::context::client::AfterExchange;
use crate::context::exchange_slot::{CurrentRequest, SlotMemory};
use crate::context::plan::{Auth, AuthDecision, Authentication, Proof, RefusedAnswer};
use crate::context::routed::{ExchangeContext, RoutedRequest};
use crate::context::seen::RequestFields;
use crate::exchange::{Exchange, ExchangeState};
use crate::failure::Failure;
use crate::gate::ask_auth;
use crate::gate::bots::{self, Bot, Unverified};
use crate::gate::token::{self, TokenOutcome};
use crate::gate::verify::{self, Claim};
use crate::outgoing::edits::{self, PolicySubject};
use crate::shared::vouched::Vouched;
use transport::cold::cold;

/// A decision that needs a wait, or a response.
pub(crate) struct AuthCourse<'a> {
    authentication: &'a Authentication,
    /// Index of the proof to judge next.
    next: usize,
    /// The refusal of the last proof.
    refusal: Option<AuthRefusal>,
    verdict: Option<AuthVerdict>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum AuthVerdict {
    Admitted,
    Refused,
}

/// Why a client is not admitted, and who answers it.
enum AuthRefusal {
    /// The proxy answers.
    Failure(Failure),
    /// The proxy answers, and states what is wrong with the token.
    Token(jwt::Refusal),
    /// The authentication server has answered.
    Answer(Arc<RefusedAnswer>),
    /// The proxy answers; the log states what is wrong with the signature.
    Bot(Unverified),
}

/// Judges the proofs that are known already. Called first for each request of a route with authentication.
///
/// # Errors
/// Returns the rest of the decision, for [`in_time`].
#[inline]
pub(crate) fn at_once<'a>(
    ctx: &ExchangeContext<'_>,
    authentication: &'a Authentication,
    routed: &mut RoutedRequest,
    memory: &mut SlotMemory,
    state: &mut ExchangeState<'_>,
) -> Result<(), AuthCourse<'a>> {
    let mut course = AuthCourse { authentication, next: 0, refusal: None, verdict: None };
    while let Some(proof) = course.open() {
        let Some(judged) = known(ctx, proof, routed, &memory.request) else { return Err(course) };
        course.take(judged, routed, &mut memory.request, state);
    }
    if course.verdict == Some(AuthVerdict::Admitted) { Ok(()) } else { Err(course) }
}

/// Judges the remaining proofs, waiting where necessary. Called if `at_once` could not admit the client. Returns `Some`
/// if the client was refused, and has been answered.
pub(crate) async fn in_time(
    ctx: &ExchangeContext<'_>,
    mut course: AuthCourse<'_>,
    routed: &mut RoutedRequest,
    memory: &mut SlotMemory,
    state: &mut ExchangeState<'_>,
) -> Result<Option<AfterExchange>, Failure> {
    while let Some(proof) = course.open() {
        let judged = match known(ctx, proof, routed, &memory.request) {
            Some(judged) => judged,
            None => found_out(ctx, proof, routed, &memory.request, state).await,
        };
        if let Err(AuthRefusal::Failure(Failure::ClientGone)) = judged {
            return Err(Failure::ClientGone);
        }
        course.take(judged, routed, &mut memory.request, state);
    }
    match course.refusal {
        Some(AuthRefusal::Failure(failure)) if course.verdict == Some(AuthVerdict::Refused) => Err(failure),
        Some(AuthRefusal::Token(refused)) if course.verdict == Some(AuthVerdict::Refused) => {
            Err(token::failure(refused))
        }
        Some(AuthRefusal::Answer(answer)) if course.verdict == Some(AuthVerdict::Refused) => {
            let settings = course.authentication.server().map(|auth| &auth.settings);
            let sign_in = settings.and_then(|settings| settings.sign_in.as_ref());
            // A gRPC client cannot use a login page.
            let sign_in = sign_in.filter(|_| answer.status == 401 && !answer::is_call(&memory.request));
            let exchange = &mut Exchange { ctx, routed, memory, state };
            match sign_in {
                Some(page) => send_to(exchange, Some(page), &answer).await.map(Some),
                None if answer.status == 401
                    && settings.is_some_and(|settings| settings.follows_location)
                    && !answer::is_call(&exchange.memory.request)
                    && answer.location().is_some() =>
                {
                    send_to(exchange, None, &answer).await.map(Some)
                }
                None if settings.is_some_and(|settings| !settings.passes_answer) => {
                    cold(|| refuse(exchange, &answer)).await.map(Some)
                }
                None => pass_on(exchange, course.authentication, &answer).await.map(Some),
            }
        }
        Some(AuthRefusal::Bot(unverified)) if course.verdict == Some(AuthVerdict::Refused) => {
            Err(unverified.failure())
        }
        _ => Ok(None),
    }
}

impl<'a> AuthCourse<'a> {
    /// Returns the next proof to judge; `None` once the decision is made.
    fn open(&mut self) -> Option<&'a Proof> {
        if self.verdict.is_some() {
            return None;
        }
        let proof = self.authentication.proofs.get(self.next);
        // No proof is left: with `any`, none has admitted the client; with `all`, none has refused it.
        if proof.is_none() {
            let is_refused = self.authentication.require == Require::Any;
            self.verdict = Some(if is_refused { AuthVerdict::Refused } else { AuthVerdict::Admitted });
        }
        proof
    }

    /// Applies the result of a proof.
    fn take(
        &mut self,
        judged: Judged,
        routed: &mut RoutedRequest,
        request: &mut CurrentRequest,
        state: &mut ExchangeState<'_>,
    ) {
        self.next += 1;
        let require = self.authentication.require;
        match judged {
            Ok(identity) => {
                identity.note(routed, request, state);
                self.verdict = (require == Require::Any).then_some(AuthVerdict::Admitted);
            }
            Err(refusal) => {
                if let AuthRefusal::Token(refusal) = refusal {
                    state.refuses_token(refusal);
                }
                if let AuthRefusal::Bot(unverified) = refusal {
                    state.refuses_bot(unverified.reason());
                }
                self.refusal = Some(refusal);
                self.verdict = (require == Require::All).then_some(AuthVerdict::Refused);
            }
        }
    }
}

/// The identity that a proof establishes.
enum ProvenIdentity {
    Listed(usize),
    /// A user that a token or a server vouches for.
    Vouched(Arc<Vouched>),
}

type Judged = Result<ProvenIdentity, AuthRefusal>;

impl ProvenIdentity {
    /// Notes the identity in the request, and for the log.
    fn note(self, routed: &mut RoutedRequest, request: &mut CurrentRequest, state: &mut ExchangeState<'_>) {
        match self {
            Self::Listed(user) => {
                routed.user = Some(user);
                state.knows_user(routed.user);
            }
            Self::Vouched(vouched) => match &mut request.texts.vouched {
                // Several proofs may each know something about the client.
                Some(before) => Arc::make_mut(before).and(&vouched),
                none => *none = Some(vouched),
            },
        }
    }
}

/// Judges a proof from memory; `None` if that needs a wait.
#[inline]
fn known(
    ctx: &ExchangeContext<'_>,
    proof: &Proof,
    routed: &RoutedRequest,
    request: &CurrentRequest,
) -> Option<Judged> {
    match proof {
        Proof::Password(auth) => match password(ctx, auth, request) {
            Ok(Password::Known(user)) => Some(Ok(ProvenIdentity::Listed(user))),
            Ok(Password::Claimed(_)) => None,
            Err(failure) => Some(Err(AuthRefusal::Failure(failure))),
        },
        Proof::Token(tokens) => {
            let token = token::verify(ctx, tokens, &routed.target, request);
            (!token.may_wait(tokens)).then(|| judged(token))
        }
        Proof::Server(auth) => ask_auth::known(ctx, auth, routed, request).map(decided),
        Proof::Bot(bots) => match bots::verify(ctx, bots, request) {
            Bot::Verified(vouched) => Some(Ok(ProvenIdentity::Vouched(vouched))),
            Bot::Refused(unverified) => Some(Err(AuthRefusal::Bot(unverified))),
            Bot::Unknown(..) => None,
        },
    }
}

/// Judges a proof that needs a wait.
async fn found_out(
    ctx: &ExchangeContext<'_>,
    proof: &Proof,
    routed: &RoutedRequest,
    request: &CurrentRequest,
    state: &mut ExchangeState<'_>,
) -> Judged {
    match proof {
        Proof::Password(auth) => {
            let user = match password(ctx, auth, request) {
                Ok(Password::Known(user)) => Ok(user),
                Ok(Password::Claimed(claim)) => verify::verify(ctx, claim).await,
                Err(failure) => Err(failure),
            };
            user.map(ProvenIdentity::Listed).map_err(AuthRefusal::Failure)
        }
        Proof::Token(tokens) => judged(token::wait(ctx, tokens, &routed.target, request).await),
        Proof::Server(auth) => match ask_auth::ask(ctx, auth, routed, request, state).await {
            Ok(decision) => decided(decision),
            Err(failure) => Err(AuthRefusal::Failure(failure)),
        },
        Proof::Bot(bots) => {
            let verified = bots::wait(ctx, bots, request).await;
            verified.map(ProvenIdentity::Vouched).map_err(AuthRefusal::Bot)
        }
    }
}

fn judged(token: TokenOutcome) -> Judged {
    match token {
        TokenOutcome::Verified(bearer) => Ok(ProvenIdentity::Vouched(bearer)),
        TokenOutcome::Refused(refusal) => Err(AuthRefusal::Token(refusal)),
        TokenOutcome::NoKeys => Err(AuthRefusal::Failure(Failure::TokenKeysMissing)),
    }
}

fn decided(decision: AuthDecision) -> Judged {
    match decision {
        AuthDecision::Admitted(vouched) => Ok(ProvenIdentity::Vouched(vouched)),
        AuthDecision::Refused(answer) => Err(AuthRefusal::Answer(answer)),
    }
}

/// Passes the response of an authentication server on to the client.
async fn pass_on(
    exchange: &mut Exchange<'_, '_>,
    authentication: &Authentication,
    RefusedAnswer { status, lines, body }: &RefusedAnswer,
) -> Result<AfterExchange, Failure> {
    let refusal = exchange.state.refusal;
    let out = &mut exchange.memory.response.out;
    answer::begin(out, *status);
    out.extend_from_slice(lines);
    // With `any`, the client may also prove its identity to this proxy, which says how.
    if *status == 401 && authentication.require == Require::Any {
        for challenge in authentication.challenges(refusal) {
            // Writing into a Vec cannot fail.
            let _ = write!(out, "WWW-Authenticate: {challenge}\r\n");
        }
    }
    answer::push_length(out, *status, body.len());
    answer::own(exchange, *status, body).await
}

/// Answers in place of an authentication server, with its status if that refuses the client.
async fn refuse(exchange: &mut Exchange<'_, '_>, refused: &RefusedAnswer) -> Result<AfterExchange, Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    let status = if matches!(refused.status, 401 | 403) { refused.status } else { 500 };
    let page = answer::page(ctx, routed.policies(ctx), status);
    let out = &mut exchange.memory.response.out;
    answer::begin(out, status);
    if status == 401 {
        refused.challenges().for_each(|line| out.extend_from_slice(line));
    }
    let (content_type, body) = page.map_or(("", &b""[..]), |page| (&*page.content_type, &page.body[..]));
    answer::push_content(out, status, content_type, body);
    answer::own(exchange, status, body).await
}

/// Redirects a client to its login page, or to the Location of the answer, with cookies and challenges of the
/// authentication server.
#[cold]
async fn send_to(
    exchange: &mut Exchange<'_, '_>,
    page: Option<&SignIn>,
    refused: &RefusedAnswer,
) -> Result<AfterExchange, Failure> {
    const STATUS: u16 = 302;
    let Exchange { ctx, routed, .. } = *exchange;
    let SlotMemory { request, response, .. } = exchange.memory;
    let out = &mut response.out;
    answer::begin(out, STATUS);
    match page {
        Some(page) => {
            out.extend_from_slice(b"Location: ");
            edits::sign_in(ctx, page, &PolicySubject::from_routed(routed), request, out)?;
            out.extend_from_slice(b"\r\n");
        }
        None => out.extend_from_slice(refused.location().unwrap_or_default()),
    }
    refused.cookies().chain(refused.challenges()).for_each(|line| out.extend_from_slice(line));
    answer::push_length(out, STATUS, 0);
    answer::own(exchange, STATUS, b"").await
}

enum Password<'a> {
    /// A user who was verified recently, by index.
    Known(usize),
    /// Credentials that must be verified.
    Claimed(Claim<'a>),
}

/// Parses the request's credentials, and looks them up among recently verified ones.
fn password<'a>(
    ctx: &ExchangeContext<'_>,
    auth: &'a Arc<Auth>,
    request: &CurrentRequest,
) -> Result<Password<'a>, Failure> {
    let fields = RequestFields::new(&request.head, request.head_bytes());
    let mut values = route::FieldLookup::values(&fields, b"authorization");
    // With two fields, a server could read another user than the one that is verified here.
    let (Some(value), None) = (values.next(), values.next()) else { return Err(Failure::Unauthorized) };
    let credentials = Credentials::parse(value).map_err(|_| Failure::Unauthorized)?;
    let (digest, user) = auth.known(&credentials, ctx.worker.time_ns());
    Ok(user.map_or_else(|| Password::Claimed(Claim { auth, credentials, digest }), Password::Known))
}

//! Decides whether a client is let in, by the proofs that its route asks for: all of them, or any.
//!
//! What can be decided at once is decided without a wait: a request with a proof that is known by now pays no more. The
//! rest is a future of its own.

use std::io::Write;
use std::sync::Arc;

use config::Require;
use route::{Credentials, SignIn};

use crate::context::client::Next;
use crate::context::exchange::{Exchange, ExchangeContext, RoutedRequest};
use crate::context::exchange_slot::{Memory, Request};
use crate::context::exchange_state::ExchangeState;
use crate::context::failure::Failure;
use crate::context::plan::{Auth, AuthDecision, Authentication, Proof, RefusedAnswer};
use crate::context::seen::Fields;
use crate::context::vouched::Vouched;
use crate::forward::bots::{self, Bot, Unverified};
use crate::forward::policies::{self, Subject};
use crate::forward::token::{self, Token};
use crate::forward::verify::{self, Claim};
use crate::forward::{answer, ask_auth};

/// The way to a decision that takes a wait, or that has to be answered.
pub(crate) struct Course<'a> {
    authentication: &'a Authentication,
    /// The number of the proof to judge next.
    next: usize,
    /// Why the last one was refused.
    refusal: Option<Refusal>,
    verdict: Option<Verdict>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Admitted,
    Refused,
}

/// Why a client is not let in.
enum Refusal {
    /// The proxy answers.
    Failure(Failure),
    /// The proxy answers, and says what is wrong with the token.
    Token(jwt::Refusal),
    /// An authentication server has answered.
    Answer(Arc<RefusedAnswer>),
    /// The proxy answers; the log says what is wrong with the signature.
    Bot(Unverified),
}

/// Lets a client in whose proofs are known by now.
///
/// # Errors
/// The way that is left, with [`in_time`].
#[inline]
pub(crate) fn at_once<'a>(
    ctx: &ExchangeContext<'_>,
    authentication: &'a Authentication,
    routed: &mut RoutedRequest,
    memory: &mut Memory,
    state: &mut ExchangeState<'_>,
) -> Result<(), Course<'a>> {
    let mut course = Course { authentication, next: 0, refusal: None, verdict: None };
    while let Some(proof) = course.open() {
        let Some(judged) = known(ctx, proof, routed, &memory.request) else { return Err(course) };
        course.take(judged, routed, &mut memory.request, state);
    }
    if course.verdict == Some(Verdict::Admitted) { Ok(()) } else { Err(course) }
}

/// Goes the rest of the way. Returns what follows if the client was refused, and has been answered.
pub(crate) async fn in_time(
    ctx: &ExchangeContext<'_>,
    mut course: Course<'_>,
    routed: &mut RoutedRequest,
    memory: &mut Memory,
    state: &mut ExchangeState<'_>,
) -> Result<Option<Next>, Failure> {
    while let Some(proof) = course.open() {
        let judged = match known(ctx, proof, routed, &memory.request) {
            Some(judged) => judged,
            None => found_out(ctx, proof, routed, &memory.request, state).await,
        };
        if let Err(Refusal::Failure(Failure::ClientGone)) = judged {
            return Err(Failure::ClientGone);
        }
        course.take(judged, routed, &mut memory.request, state);
    }
    match course.refusal {
        Some(Refusal::Failure(failure)) if course.verdict == Some(Verdict::Refused) => Err(failure),
        Some(Refusal::Token(refused)) if course.verdict == Some(Verdict::Refused) => {
            Err(token::failure(refused))
        }
        Some(Refusal::Answer(answer)) if course.verdict == Some(Verdict::Refused) => {
            let sign_in = course.authentication.server().and_then(|auth| auth.settings.sign_in.as_ref());
            // Who makes calls has no use for a page.
            let sign_in = sign_in.filter(|_| answer.status == 401 && !answer::is_call(&memory.request));
            let exchange = &mut Exchange { ctx, routed, memory, state };
            match sign_in {
                Some(page) => send_to(exchange, page, &answer).await.map(Some),
                None => pass_on(exchange, course.authentication, &answer).await.map(Some),
            }
        }
        Some(Refusal::Bot(unverified)) if course.verdict == Some(Verdict::Refused) => {
            Err(unverified.failure())
        }
        _ => Ok(None),
    }
}

impl<'a> Course<'a> {
    /// The next proof to judge; `None` once it is decided.
    fn open(&mut self) -> Option<&'a Proof> {
        if self.verdict.is_some() {
            return None;
        }
        let proof = self.authentication.proofs.get(self.next);
        if proof.is_none() {
            let is_refused = self.authentication.require == Require::Any;
            self.verdict = Some(if is_refused { Verdict::Refused } else { Verdict::Admitted });
        }
        proof
    }

    /// Takes what came of it.
    fn take(
        &mut self,
        judged: Judged,
        routed: &mut RoutedRequest,
        request: &mut Request,
        state: &mut ExchangeState<'_>,
    ) {
        self.next += 1;
        let require = self.authentication.require;
        match judged {
            Ok(identity) => {
                identity.note(routed, request, state);
                self.verdict = (require == Require::Any).then_some(Verdict::Admitted);
            }
            Err(refusal) => {
                if let Refusal::Token(refusal) = refusal {
                    state.refuses_token(refusal);
                }
                if let Refusal::Bot(unverified) = refusal {
                    state.refuses_bot(unverified.reason());
                }
                self.refusal = Some(refusal);
                self.verdict = (require == Require::All).then_some(Verdict::Refused);
            }
        }
    }
}

/// Who a client is, by one proof.
enum Identity {
    /// A listed user, by index.
    Listed(usize),
    /// Somebody that a token or a server vouches for.
    Vouched(Arc<Vouched>),
}

/// What comes of one proof.
type Judged = Result<Identity, Refusal>;

impl Identity {
    /// Notes who the client is.
    fn note(self, routed: &mut RoutedRequest, request: &mut Request, state: &mut ExchangeState<'_>) {
        match self {
            Self::Listed(user) => {
                routed.user = Some(user);
                state.knows_user(routed.user);
            }
            Self::Vouched(vouched) => match &mut request.texts.vouched {
                Some(before) => Arc::make_mut(before).and(&vouched),
                none => *none = Some(vouched),
            },
        }
    }
}

/// What is known of a proof by now; `None` if finding out takes a wait.
#[inline]
fn known(
    ctx: &ExchangeContext<'_>,
    proof: &Proof,
    routed: &RoutedRequest,
    request: &Request,
) -> Option<Judged> {
    match proof {
        Proof::Password(auth) => match password(ctx, auth, request) {
            Ok(Password::Known(user)) => Some(Ok(Identity::Listed(user))),
            Ok(Password::Claimed(_)) => None,
            Err(failure) => Some(Err(Refusal::Failure(failure))),
        },
        Proof::Token(tokens) => {
            let token = token::verify(ctx, tokens, request);
            (!token.may_wait(tokens)).then(|| judged(token))
        }
        Proof::Server(auth) => ask_auth::known(ctx, auth, routed, request).map(decided),
        Proof::Bot(bots) => match bots::verify(ctx, bots, request) {
            Bot::Verified(vouched) => Some(Ok(Identity::Vouched(vouched))),
            Bot::Refused(unverified) => Some(Err(Refusal::Bot(unverified))),
            Bot::Unknown(..) => None,
        },
    }
}

/// Finds out what is not known yet.
async fn found_out(
    ctx: &ExchangeContext<'_>,
    proof: &Proof,
    routed: &RoutedRequest,
    request: &Request,
    state: &mut ExchangeState<'_>,
) -> Judged {
    match proof {
        Proof::Password(auth) => {
            let user = match password(ctx, auth, request) {
                Ok(Password::Known(user)) => Ok(user),
                Ok(Password::Claimed(claim)) => verify::verify(ctx, claim).await,
                Err(failure) => Err(failure),
            };
            user.map(Identity::Listed).map_err(Refusal::Failure)
        }
        Proof::Token(tokens) => judged(token::wait(ctx, tokens, request).await),
        Proof::Server(auth) => match ask_auth::ask(ctx, auth, routed, request, state).await {
            Ok(decision) => decided(decision),
            Err(failure) => Err(Refusal::Failure(failure)),
        },
        Proof::Bot(bots) => {
            let verified = bots::wait(ctx, bots, request).await;
            verified.map(Identity::Vouched).map_err(Refusal::Bot)
        }
    }
}

/// What a token proves.
fn judged(token: Token) -> Judged {
    match token {
        Token::Verified(bearer) => Ok(Identity::Vouched(bearer)),
        Token::Refused(refusal) => Err(Refusal::Token(refusal)),
        Token::NoKeys => Err(Refusal::Failure(Failure::TokenKeysMissing)),
    }
}

/// What an authentication server's decision is worth.
fn decided(decision: AuthDecision) -> Judged {
    match decision {
        AuthDecision::Admitted(vouched) => Ok(Identity::Vouched(vouched)),
        AuthDecision::Refused(answer) => Err(Refusal::Answer(answer)),
    }
}

/// Passes the answer of an authentication server on to the client.
async fn pass_on(
    exchange: &mut Exchange<'_, '_>,
    authentication: &Authentication,
    RefusedAnswer { status, lines, body }: &RefusedAnswer,
) -> Result<Next, Failure> {
    let refusal = exchange.state.refusal;
    let out = &mut exchange.memory.response.out;
    answer::begin(out, *status);
    out.extend_from_slice(lines);
    if *status == 401 && authentication.require == Require::Any {
        for challenge in authentication.challenges(refusal) {
            // Writing into a Vec does not fail.
            let _ = write!(out, "WWW-Authenticate: {challenge}\r\n");
        }
    }
    answer::push_length(out, *status, body.len());
    answer::own(exchange, (*status, body)).await
}

/// Sends a client to where it can sign in, with the cookies of the authentication server.
#[cold]
async fn send_to(
    exchange: &mut Exchange<'_, '_>,
    page: &SignIn,
    refused: &RefusedAnswer,
) -> Result<Next, Failure> {
    const STATUS: u16 = 302;
    let Exchange { ctx, routed, .. } = *exchange;
    let Memory { request, response, .. } = exchange.memory;
    let out = &mut response.out;
    answer::begin(out, STATUS);
    out.extend_from_slice(b"Location: ");
    policies::sign_in(ctx, page, &Subject::of(routed), request, out)?;
    out.extend_from_slice(b"\r\n");
    refused.cookies().for_each(|line| out.extend_from_slice(line));
    answer::push_length(out, STATUS, 0);
    answer::own(exchange, (STATUS, b"")).await
}

/// The user of a password.
enum Password<'a> {
    /// A user who was verified lately, by index.
    Known(usize),
    /// Credentials that have to be verified.
    Claimed(Claim<'a>),
}

/// Whether the request comes from a listed user.
fn password<'a>(
    ctx: &ExchangeContext<'_>,
    auth: &'a Arc<Auth>,
    request: &Request,
) -> Result<Password<'a>, Failure> {
    let fields = Fields::of(&request.head, request.head_bytes());
    let mut values = route::Fields::values(&fields, b"authorization");
    let (Some(value), None) = (values.next(), values.next()) else { return Err(Failure::Unauthorized) };
    let credentials = Credentials::parse(value).map_err(|_| Failure::Unauthorized)?;
    let (digest, user) = auth.known(&credentials, ctx.worker.time_ns());
    Ok(user.map_or_else(|| Password::Claimed(Claim { auth, credentials, digest }), Password::Known))
}

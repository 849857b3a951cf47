//! How clients of a route prove who they are.

use std::borrow::Cow;
use std::sync::Arc;

use config::Require;
use jwt::Refusal;

use super::bots::Bots;
use super::forward_auth::ForwardAuth;
use super::routes::Auth;
use super::tokens::Tokens;

/// The proofs that a route asks for. Without any, everybody is let in.
pub(crate) struct Authentication {
    /// What is asked for, in this order: what is decided at once comes first.
    pub(crate) proofs: Vec<Proof>,
    /// Whether one of them is enough.
    pub(crate) require: Require,
}

/// A kind of proof, with what is needed to judge one. Another kind is a variant here and its arms in
/// `forward/authenticate`.
pub(crate) enum Proof {
    /// Name and password (RFC 7617).
    Password(Arc<Auth>),
    /// A token (RFC 7519).
    Token(Arc<Tokens>),
    /// Another server decides.
    Server(Arc<ForwardAuth>),
    /// The signature of a bot (RFC 9421).
    Bot(Arc<Bots>),
}

impl Authentication {
    /// `None` if no proof is asked for.
    pub(crate) fn new(require: Require, proofs: impl IntoIterator<Item = Proof>) -> Option<Self> {
        let proofs: Vec<Proof> = proofs.into_iter().collect();
        (!proofs.is_empty()).then_some(Self { proofs, require })
    }

    /// The listed users, if passwords are proofs.
    pub(crate) fn password(&self) -> Option<&Arc<Auth>> {
        self.proofs.iter().find_map(|proof| match proof {
            Proof::Password(auth) => Some(auth),
            Proof::Token(_) | Proof::Server(_) | Proof::Bot(_) => None,
        })
    }

    /// The rules of tokens, if tokens are proofs.
    pub(crate) fn tokens(&self) -> Option<&Arc<Tokens>> {
        self.proofs.iter().find_map(|proof| match proof {
            Proof::Token(tokens) => Some(tokens),
            Proof::Password(_) | Proof::Server(_) | Proof::Bot(_) => None,
        })
    }

    /// What another server is asked, if one is.
    pub(crate) fn server(&self) -> Option<&Arc<ForwardAuth>> {
        self.proofs.iter().find_map(|proof| match proof {
            Proof::Server(auth) => Some(auth),
            Proof::Token(_) | Proof::Password(_) | Proof::Bot(_) => None,
        })
    }

    /// The bots that are let in, if their signatures are proofs.
    pub(crate) fn bots(&self) -> Option<&Arc<Bots>> {
        self.proofs.iter().find_map(|proof| match proof {
            Proof::Bot(bots) => Some(bots),
            Proof::Password(_) | Proof::Token(_) | Proof::Server(_) => None,
        })
    }

    /// The names of fields that only this proxy tells servers: what a client says under them is removed.
    pub(crate) fn own_fields(&self) -> impl Iterator<Item = &str> {
        let of_server = self.server().into_iter().flat_map(|auth| &auth.settings.copy_headers);
        let of_token = self.tokens().into_iter().flat_map(|tokens| tokens.removed_fields());
        of_token.chain(of_server.map(String::as_str))
    }

    /// RFC 9110 §11.6.1: what a client may prove itself by, each a value of WWW-Authenticate. `refusal` says why its token
    /// was refused. An authentication server says it in its answer.
    pub(crate) fn challenges(&self, refusal: Option<Refusal>) -> impl Iterator<Item = Cow<'_, str>> {
        self.proofs.iter().filter_map(move |proof| match proof {
            Proof::Password(auth) => Some(auth.challenge.as_str().into()),
            Proof::Token(_) => Some(refusal.unwrap_or(Refusal::Missing).challenge().into()),
            Proof::Server(_) => None,
            // There is no scheme for it.
            Proof::Bot(_) => None,
        })
    }
}

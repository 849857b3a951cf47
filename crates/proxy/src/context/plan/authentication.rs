//! The proofs of identity that a route requires from its clients.

use std::borrow::Cow;
use std::sync::Arc;

use config::Require;
use jwt::Refusal;

use super::bots::Bots;
use super::forward_auth::ForwardAuth;
use super::routes::Auth;
use super::tokens::Tokens;

/// The proofs that a route requires.
pub(crate) struct Authentication {
    /// In the order of judging: those that need no wait come first.
    pub(crate) proofs: Vec<Proof>,
    /// Whether any of them suffices, or all are required.
    pub(crate) require: Require,
}

/// A kind of proof, with the data to judge it. A new kind is a variant here and match arms in `gate/authenticate`.
pub(crate) enum Proof {
    /// Name and password (RFC 7617).
    Password(Arc<Auth>),
    /// A token (RFC 7519).
    Token(Arc<Tokens>),
    Server(Arc<ForwardAuth>),
    /// The signature of a bot (RFC 9421).
    Bot(Arc<Bots>),
}

impl Authentication {
    /// `None` if no proof is required.
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

    /// The authentication server, if there is one.
    pub(crate) fn server(&self) -> Option<&Arc<ForwardAuth>> {
        self.proofs.iter().find_map(|proof| match proof {
            Proof::Server(auth) => Some(auth),
            Proof::Token(_) | Proof::Password(_) | Proof::Bot(_) => None,
        })
    }

    /// The admitted bots, if their signatures are proofs.
    pub(crate) fn bots(&self) -> Option<&Arc<Bots>> {
        self.proofs.iter().find_map(|proof| match proof {
            Proof::Bot(bots) => Some(bots),
            Proof::Password(_) | Proof::Token(_) | Proof::Server(_) => None,
        })
    }

    /// The names of fields that only this proxy may send to servers: a client's fields with these names are removed.
    pub(crate) fn own_fields(&self) -> impl Iterator<Item = &str> {
        let of_server = self.server().into_iter().flat_map(|auth| &auth.settings.copy_headers);
        let of_token = self.tokens().into_iter().flat_map(|tokens| tokens.removed_fields());
        of_token.chain(of_server.map(|copied| copied.to.as_str()))
    }

    /// Returns the values of WWW-Authenticate (RFC 9110 §11.6.1). `refusal` is the reason why the token was refused. An
    /// authentication server sends its own.
    pub(crate) fn challenges(&self, refusal: Option<Refusal>) -> impl Iterator<Item = Cow<'_, str>> {
        self.proofs.iter().filter_map(move |proof| match proof {
            Proof::Password(auth) => Some(auth.challenge.as_str().into()),
            Proof::Token(_) => Some(refusal.unwrap_or(Refusal::Missing).challenge().into()),
            Proof::Server(_) => None,
            // No scheme exists for signatures.
            Proof::Bot(_) => None,
        })
    }
}

//! How clients of a route prove who they are.

use std::sync::Arc;

use config::Require;

use super::routes::Auth;

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
}

impl Authentication {
    /// `None` if no proof is asked for.
    pub(crate) fn new(require: Require, proofs: impl IntoIterator<Item = Proof>) -> Option<Self> {
        let proofs: Vec<Proof> = proofs.into_iter().collect();
        (!proofs.is_empty()).then_some(Self { proofs, require })
    }

    /// The listed users, if passwords are proofs.
    #[expect(clippy::unnecessary_find_map, reason = "other kinds of proof list no users")]
    pub(crate) fn password(&self) -> Option<&Arc<Auth>> {
        self.proofs.iter().find_map(|proof| match proof {
            Proof::Password(auth) => Some(auth),
        })
    }

    /// The names of fields that only this proxy tells servers: what a client says under them is removed.
    pub(crate) fn own_fields(&self) -> impl Iterator<Item = &str> {
        self.proofs.iter().flat_map(|proof| match proof {
            Proof::Password(_) => [].iter().copied(),
        })
    }

    /// RFC 9110 §11.6.1: what a client may prove itself by, each a value of WWW-Authenticate.
    pub(crate) fn challenges(&self) -> impl Iterator<Item = &str> {
        self.proofs.iter().map(|proof| match proof {
            Proof::Password(auth) => auth.challenge.as_str(),
        })
    }
}

//! Findings of authentication about a client, besides its admission.

use jwt::KeptClaims;

/// The findings about a client, for the log, the server and the response. Kept with the texts of a request.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Vouched {
    /// Empty if unknown.
    pub(crate) user: String,
    /// Field lines for the server, each with CRLF. The client's fields with these names are removed: see
    /// `Authentication::own_fields`.
    pub(crate) request_lines: Vec<u8>,
    /// Field lines for the response, each with CRLF.
    pub(crate) response_lines: Vec<u8>,
    /// Claims of a verified token, for conditions.
    pub(crate) claims: KeptClaims,
}

impl Vouched {
    /// Adds the findings of another authentication. Its user replaces this one, if it names one.
    pub(crate) fn and(&mut self, other: &Self) {
        if !other.user.is_empty() {
            self.user.clone_from(&other.user);
        }
        self.request_lines.extend_from_slice(&other.request_lines);
        self.response_lines.extend_from_slice(&other.response_lines);
        if !other.claims.is_empty() {
            self.claims.clone_from(&other.claims);
        }
    }
}

//! Settings of forward authentication.

use std::time::Duration;

use route::{AuthKeyPart, SignIn};

/// Forward authentication: another server decides who is let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForwardAuth {
    /// The upstream with the server, an index into `Settings::upstreams`.
    pub upstream: usize,
    /// The path that is asked, with its query.
    pub path: String,
    /// The time from the question to the whole answer.
    pub timeout: Duration,
    /// The client's fields that the server gets; `None` is all that make sense.
    pub request_headers: Option<Vec<String>>,
    /// Fields of a 2xx answer for the route's server.
    pub copy_headers: Vec<String>,
    /// The field of a 2xx answer that names the user.
    pub user_header: Option<String>,
    /// Whether the client gets the cookies of a 2xx answer.
    pub sets_cookies: bool,
    /// Where a client goes whom a 401 turns away; `None` passes the answer on.
    pub sign_in: Option<SignIn>,
    /// Remembered decisions; `None` remembers none.
    pub cache: Option<AuthCache>,
}

/// Remembered decisions of forward authentication.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthCache {
    /// The parts of a request that a decision is for.
    pub key: Vec<AuthKeyPart>,
    /// How long a permission counts at most.
    pub ttl: Duration,
    /// How long a refusal counts at most; `None` remembers none.
    pub negative_ttl: Option<Duration>,
    /// The most decisions, over all workers.
    pub entries_max: usize,
    /// Whether instances share them through Redis.
    pub is_shared: bool,
}

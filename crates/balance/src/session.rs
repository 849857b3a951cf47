//! Sticky sessions: keep a client on the server that it started with.
//!
//! `Source` extracts the session key from a request, and `Sessions` remembers the server of each session. An inserted
//! cookie names its server, so nothing is remembered. Servers are identified by `ServerId`, which survives reloads;
//! `Picker::follow` decides whether a server may still be used.

/// Where a request carries its session key.
mod source;
/// The table of sessions: bounded, with expiry.
mod table;
/// The cookie that the proxy inserts, with server, expiry and signature.
mod cookie;

pub use cookie::{CookieAttributes, InsertedCookie, SameSite, Stuck};
pub use source::{SessionFields, SessionParts, SessionSource, learnt_cookie};
pub use table::{FoundSession, SessionKey, Sessions};

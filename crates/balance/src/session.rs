//! Sessions: what keeps a client on the server that it began with.
//!
//! A `Source` finds in a request what makes it one of a session; `Sessions` remembers the server of each; an inserted
//! cookie needs no memory, as it names its server itself. Which server it is, is said by `ServerId`, so a reload changes
//! nothing; whether it may still be asked says `Picker::follow`.

/// Where a request says which session it is one of.
mod source;
/// Which server each session is on: bounded, and forgotten in time.
mod table;
/// The cookie that the proxy inserts: which server, until when, and a signature.
mod cookie;

pub use cookie::{CookieAttributes, InsertedCookie, SameSite, Stuck};
pub use source::{Fields, Parts, Source, learnt_cookie};
pub use table::{SessionKey, Sessions};

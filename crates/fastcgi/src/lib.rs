//! FastCGI 1.0 as a web server speaks it to an application such as php-fpm, without a socket: bytes in, bytes out.
//!
//! A request head becomes records, and the application's records become a response head as HTTP/1.1 text, and pieces of
//! its body. One request is under way on a connection at a time. File system, time-outs and pools are left to the caller.

#![forbid(unsafe_code)]

/// Record headers, and the records that start and abort a request.
mod record;
/// Name-value pairs.
mod pair;
/// Splits a request's path into script and path info.
mod script;
/// Writes name-value pairs as PARAMS records.
mod params;
/// CGI meta-variables of a request.
mod environment;
/// The body of a request.
mod stdin;
/// Requests for the ping page, for health checks.
mod ping;
/// Decodes the application's records.
mod decode;
/// Converts a CGI response head to HTTP/1.1 text.
mod head;
/// Reads a response: head, body, error output, end.
mod response;

pub use decode::{DecodedOutput, Decoder, EndRequest, FastcgiBroken, ProtocolStatus, RecordLimits, Rule};
pub use environment::{Gateway, Request, is_valid_name};
pub use head::{Body, CgiHeadError, CgiHeadLimits, HeadOutline, add_length};
pub use pair::{PairError, ParamPairs, push_pair};
pub use params::{ParamsError, ParamsLimits, RequestOutline};
pub use ping::Ping;
pub use record::{
    ABORT, CONTENT_MAX, HEADER_BYTES, Header, PIECE_MAX, REQUEST_ID, RecordType, begin_request,
};
pub use response::{Event, Response, ResponseError, ResponseLimits};
pub use script::{Script, ScriptCandidates, ScriptForm, ScriptPathError, ScriptRules, ScriptRulesError};
pub use stdin::{BodyTooLong, STDIN_END, Stdin};

//! Checks whether an origin serves a target, for authors of plans, without a running origin. No I/O.

use std::mem::MaybeUninit;

use crate::endpoint::{Endpoint, NotServed};
use crate::request::{self, FIELDS_MAX, OwnedRequest};
use crate::target::{PageOptions, ParsedTarget};

/// Checks whether an origin answers a GET request for this path and query, with any status.
///
/// # Errors
/// The reason, as text.
pub fn serves(target: &str) -> Result<(), String> {
    let head = format!("GET {target} HTTP/1.1\r\nHost: origin\r\n\r\n");
    let mut slots = [MaybeUninit::uninit(); FIELDS_MAX];
    let parsed =
        request::parse(head.as_bytes(), &mut slots).map_err(|refusal| refusal.reason().to_owned())?;
    let request = OwnedRequest::new(head.as_bytes(), &parsed);
    let target = ParsedTarget::parse(&request.method, &request.target)
        .map_err(|refusal| refusal.reason().to_owned())?;
    PageOptions::from_query(&target.query).map_err(|wrong| wrong.message)?;
    match Endpoint::find(&request, &target) {
        Ok(_) => Ok(()),
        Err(NotServed::Wrong(wrong)) => Err(wrong.message),
        Err(NotServed::NotFound | NotServed::Method) => {
            Err("an origin has no such page; GET / of `vanward origin` lists its pages".to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_known_by_their_paths_and_their_queries() {
        for known in
            ["/tiny", "/large?delay=5ms", "/blank/5000", "/varnish/gen/10?as=1", "/cgi-bin/second.pl"]
        {
            assert_eq!(serves(known), Ok(()), "{known}");
        }
        for unknown in
            ["/tinny", "/blank/much", "/blank/5000/x", "/tiny?delay=soon", "/a b", "tiny", "/x\r\nA: b"]
        {
            assert!(serves(unknown).is_err(), "{unknown:?}");
        }
    }
}

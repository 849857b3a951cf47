//! What routes and policies see of a request.

use std::net::IpAddr;

use wire::{Field, Head, Name, RequestHead, Target, host_without_port};

use crate::exchange::Call;

/// The fields of a head, for those who look for names of their own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fields<'a> {
    fields: &'a [Field],
    bytes: &'a [u8],
}

impl<'a> Fields<'a> {
    /// Those of nothing.
    pub(crate) const NONE: Self = Self { fields: &[], bytes: &[] };

    pub(crate) fn of<Start>(head: &'a Head<Start>, bytes: &'a [u8]) -> Self {
        Self { fields: &head.fields, bytes }
    }
}

/// The value of the first field line of this name, for one that `wire` has no name for.
pub(crate) fn line<'a, Start>(head: &Head<Start>, bytes: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let field = head.fields.iter().find(|field| field.name.of(bytes).eq_ignore_ascii_case(name))?;
    Some(field.value.of(bytes))
}

impl route::Fields for Fields<'_> {
    fn lines(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.fields.iter().map(|field| (field.name.of(self.bytes), field.value.of(self.bytes)))
    }
}

/// A request to a host and a path.
pub(crate) fn request<'a>(
    call: &Call<'_>,
    target: &Target,
    bytes: &'a [u8],
    client: IpAddr,
    fields: &'a Fields<'a>,
    head: &RequestHead,
) -> route::Request<'a, Fields<'a>> {
    let path = target.path.of(bytes);
    let query = target.path_and_query.of(bytes).get(path.len()..).and_then(|rest| rest.strip_prefix(b"?"));
    route::Request {
        // Of one that is not listened on any more no rule can know.
        listener: call.client.listening.place().unwrap_or(usize::MAX),
        host: host_without_port(target.authority.of(bytes)),
        path,
        query,
        method: head.start.method_span.of(bytes),
        client,
        fields,
    }
}

/// Who asks: the peer, or whom it names if it may.
#[inline]
pub(crate) fn client(call: &Call<'_>, head: &RequestHead, bytes: &[u8]) -> IpAddr {
    let peer = call.client.address;
    if !call.client.is_trusted {
        return peer;
    }
    wire::named_client(head, bytes, peer, |address| call.snapshot.plan.trusts(address))
}

/// The scheme that the client used, as far as it is known here.
pub(crate) fn scheme(call: &Call<'_>, head: &RequestHead, bytes: &[u8]) -> &'static str {
    let told = if call.client.is_trusted { head.value(bytes, Name::XForwardedProto) } else { None };
    match told {
        Some(told) if told.eq_ignore_ascii_case(b"https") => "https",
        Some(told) if told.eq_ignore_ascii_case(b"http") => "http",
        _ if call.client.tls.is_some() => "https",
        _ => "http",
    }
}

//! Outcomes for readers: the response, and the requests that servers saw, line by line.

use crate::answer::ProofOutcome;
use crate::compare::{Aspect, FREE_FIELDS, FREE_SERVER_FIELDS, is_mark};
use crate::old::OldConfiguration;
use crate::request::{MARK, SHARE};
use crate::stand_in::StandIns;

/// Bodies are cut, in characters.
const BODY_MAX: usize = 160;

/// An outcome of a request. Fields that may differ are left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShownOutcome {
    pub response: Vec<ShownLine>,
    pub servers: Vec<ShownServer>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownServer {
    /// Host and port in the old configuration.
    pub address: String,
    pub request: Vec<ShownLine>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownLine {
    pub text: String,
    /// Whether the outcomes differ here.
    pub differs: bool,
}

/// Shows an outcome whose `aspect` differs from the other one.
pub(crate) fn outcome(
    old: &OldConfiguration,
    stand_ins: &StandIns,
    outcome: &ProofOutcome,
    aspect: &Aspect,
) -> ShownOutcome {
    let original = |text: &str| stand_ins.original(old, text);
    let fields = |fields: &[(String, String)], free: &[&str], differing: Option<&String>| {
        let shown = fields.iter().filter(|(name, _)| {
            let is_own = [MARK, SHARE].iter().any(|own| name.eq_ignore_ascii_case(own));
            !free.contains(&name.as_str()) && !is_own && !is_mark(name) || differing == Some(name)
        });
        let line = |(name, value): &(String, String)| ShownLine {
            text: format!("{name}: {}", original(value)),
            differs: differing == Some(name),
        };
        let mut lines: Vec<ShownLine> = shown.map(line).collect();
        // Their order has no meaning, and so both sides have the same one.
        lines.sort_by(|one, other| one.text.cmp(&other.text));
        lines
    };
    let answer = &outcome.answer;
    let status = match answer.status {
        0 => format!("no response: {}", answer.trouble),
        status => status.to_string(),
    };
    let mut response =
        vec![ShownLine { text: status, differs: matches!(aspect, Aspect::Status | Aspect::Limit) }];
    let differing = if let Aspect::Field(name) = aspect { Some(name) } else { None };
    response.extend(fields(&answer.fields, &FREE_FIELDS, differing));
    response.extend(body(&answer.body, *aspect == Aspect::Body));
    let differing = if let Aspect::ServerField(name) = aspect { Some(name) } else { None };
    let servers = outcome.seen.iter().map(|seen| {
        let first = ShownLine {
            text: format!("{} {}", seen.method, original(&seen.target)),
            differs: matches!(aspect, Aspect::Method | Aspect::Target),
        };
        let mut request = vec![first];
        request.extend(fields(&seen.fields, &FREE_SERVER_FIELDS, differing));
        request.extend(body(&seen.body, *aspect == Aspect::ServerBody));
        let address = old.servers.get(seen.server).map_or("?", |server| server.address.as_str());
        ShownServer { address: address.to_owned(), request }
    });
    ShownOutcome { response, servers: servers.collect() }
}

/// The beginning of a body, behind an empty line.
fn body(bytes: &[u8], differs: bool) -> Vec<ShownLine> {
    if bytes.is_empty() {
        return Vec::new();
    }
    let text = String::from_utf8_lossy(bytes);
    let is_shown = |letter: char| !letter.is_control() || letter == '\n';
    let start: String = text.chars().take(BODY_MAX).filter(|letter| is_shown(*letter)).collect();
    let mut lines: Vec<ShownLine> = std::iter::once("")
        .chain(start.lines())
        .map(|line| ShownLine { text: line.to_owned(), differs: differs && !line.is_empty() })
        .collect();
    if text.chars().nth(BODY_MAX).is_some() {
        lines.push(ShownLine { text: format!("… {} bytes", bytes.len()), differs: false });
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OldProxy;
    use crate::answer::{ProofAnswer, SeenRequest};

    #[test]
    fn the_differing_line_is_marked_and_fields_without_a_meaning_are_left_out() {
        let mut old = OldConfiguration::new(OldProxy::Nginx, Vec::new());
        old.server("app:3000", 80, None);
        let stand_ins = crate::nginx::tests::stand_ins(&old);
        let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        let seen = SeenRequest {
            server: 0,
            method: "GET".to_owned(),
            target: "/x".to_owned(),
            fields: [("host", "127.0.0.9:5000"), ("via", "1.1 a"), ("x-vanward-proof", "7 page")]
                .map(owned)
                .into(),
            body: Vec::new(),
        };
        let answer = ProofAnswer {
            status: 200,
            fields: [("date", "now"), ("x-a", "1")].map(owned).into(),
            body: format!("a\n{}", "b".repeat(400)).into_bytes(),
            trouble: String::new(),
        };
        let outcome = ProofOutcome { answer, seen: vec![seen] };
        let shown = super::outcome(&old, &stand_ins, &outcome, &Aspect::Field("x-a".to_owned()));
        let lines = |lines: &[ShownLine]| {
            lines.iter().map(|line| (line.text.clone(), line.differs)).collect::<Vec<_>>()
        };
        let response = lines(&shown.response);
        assert_eq!(
            response[..4],
            [("200", false), ("x-a: 1", true), ("", false), ("a", false)]
                .map(|(text, is)| (text.to_owned(), is))
        );
        assert_eq!(response[5..], [("… 402 bytes".to_owned(), false)]);
        assert_eq!(shown.servers[0].address, "app:3000");
        let request = lines(&shown.servers[0].request);
        assert_eq!(
            request,
            [("GET /x", false), ("host: app:3000", false)].map(|(text, is)| (text.to_owned(), is))
        );
        let nothing = super::outcome(&old, &stand_ins, &ProofOutcome::default(), &Aspect::Status);
        assert_eq!(lines(&nothing.response), [("no response: ".to_owned(), true)]);
    }
}

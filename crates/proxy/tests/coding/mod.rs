//! Responses that the proxy codes or decodes, between clients of HTTP/1 and HTTP/2 and a server that the test plays.
//!
//! Each test is one thread, and no test depends on sleeping.

/// Responses from a server in transit.
mod passing;
/// Dictionaries.
mod dictionary;
/// Stored responses.
mod stored;
/// The ends of responses.
mod ends;

use coding::{BodyDecoder, Coding};
use testkit::http2::frame::H2Frame;
use testkit::scene::{BodylessRequest, SceneClient};

/// A received response, with the bytes of its body.
#[derive(Debug)]
struct Answer {
    status: u16,
    /// Lines of `name: value`, names in lower case.
    fields: String,
    body: Vec<u8>,
}

impl Answer {
    fn all(&self, name: &str) -> Vec<&str> {
        let pairs = self.fields.lines().filter_map(|line| line.split_once(": "));
        pairs.filter(|(known, _)| *known == name).map(|(_, value)| value).collect()
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.all(name).first().copied()
    }

    fn decoded(&self) -> Vec<u8> {
        let Some(coding) = self.field("content-encoding") else { return self.body.clone() };
        let coding = Coding::named(coding.as_bytes()).expect("it is a coding");
        decode(coding, &self.body)
    }
}

fn decode(coding: Coding, coded: &[u8]) -> Vec<u8> {
    let mut decoder = BodyDecoder::new(coding).expect("it needs no dictionary");
    let body = pieces(&mut decoder, coded);
    assert!(decoder.is_whole(), "the body is whole");
    body
}

/// Decodes the bytes so far.
fn pieces(decoder: &mut BodyDecoder, mut coded: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let decoded = decoder.decode(coded, 64 << 10, &mut body).expect("it is well coded");
        coded = &coded[decoded.used..];
        if coded.is_empty() && decoded.wants_input {
            return body;
        }
    }
}

fn gets(client: &mut SceneClient) -> Answer {
    let (mut answer, mut body) = gets_head(client);
    while let Some(bytes) = body.next(client) {
        answer.body.extend(bytes);
    }
    answer
}

fn gets_head(client: &mut SceneClient) -> (Answer, Body) {
    match client {
        SceneClient::One(peer) => {
            let head = peer.head();
            let status = head[9..12].parse().expect("is a status");
            let lines = head.lines().skip(1).filter_map(|line| line.split_once(": "));
            let fields: String =
                lines.map(|(name, value)| format!("{}: {value}\n", name.to_lowercase())).collect();
            let answer = Answer { status, fields, body: Vec::new() };
            let body = match answer.field("content-length") {
                _ if status == 304 => Body::Over,
                Some(length) => Body::Length(length.parse().expect("is a number")),
                None => Body::Chunked,
            };
            (answer, body)
        }
        SceneClient::Two(end, stream) => {
            let stream = std::mem::replace(stream, *stream + 2);
            let H2Frame::Headers { fields, ends, .. } = end.next_on(stream) else {
                panic!("a head comes first")
            };
            let status = fields.lines().next().and_then(|line| line.strip_prefix(":status: "));
            let status = status.and_then(|status| status.parse().ok()).expect("is a status");
            let answer = Answer { status, fields, body: Vec::new() };
            (answer, if ends { Body::Over } else { Body::Stream(stream) })
        }
    }
}

/// The rest of a body.
#[derive(Debug, PartialEq, Eq)]
enum Body {
    Length(usize),
    Chunked,
    Stream(u32),
    Over,
}

impl Body {
    /// Returns the next piece, as it was sent; `None` at the end.
    fn next(&mut self, client: &mut SceneClient) -> Option<Vec<u8>> {
        let body = std::mem::replace(self, Self::Over);
        match (body, client) {
            (Self::Length(length), SceneClient::One(peer)) => Some(peer.exactly(length)),
            (Self::Chunked, SceneClient::One(peer)) => {
                let size = usize::from_str_radix(&peer.line(), 16).expect("is the size of a chunk");
                if size == 0 {
                    assert_eq!(peer.line(), "", "no trailers");
                    return None;
                }
                let bytes = peer.exactly(size);
                assert_eq!(peer.line(), "", "a chunk ends with a line end");
                *self = Self::Chunked;
                Some(bytes)
            }
            (Self::Stream(stream), SceneClient::Two(end, _)) => match end.next_on(stream) {
                H2Frame::Data { bytes, ends, .. } => {
                    *self = if ends { Self::Over } else { Self::Stream(stream) };
                    Some(bytes)
                }
                other => panic!("no data, but {other:?}"),
            },
            (Self::Over, _) => None,
            (body, _) => panic!("{body:?} is of the other version"),
        }
    }
}

fn get<'a>(target: &'a str, fields: &'a str) -> BodylessRequest<'a> {
    BodylessRequest { method: "GET", host: "test", target, fields }
}

/// A text that codings shorten considerably.
fn text(bytes: usize) -> String {
    "All work and no play makes Jack a dull boy. ".chars().cycle().take(bytes).collect()
}

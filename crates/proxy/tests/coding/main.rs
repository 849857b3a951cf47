//! Responses in other content codings than their servers gave them, between clients of both versions and a server that the
//! test plays.
//!
//! As in the other conversations one thread does one thing after the other, and nothing sleeps to be right.

/// What passes from a server to a client.
mod passing;
/// Dictionaries.
mod dictionary;
/// What is stored.
mod stored;

use coding::{Coding, Decoder};
use testkit::http2::frame::Frame;
use testkit::scene::{Asked, Client};

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

    /// The body without its coding.
    fn decoded(&self) -> Vec<u8> {
        let Some(coding) = self.field("content-encoding") else { return self.body.clone() };
        let coding = Coding::named(coding.as_bytes()).expect("it is a coding");
        decode(coding, &self.body)
    }
}

/// Decodes a whole body.
fn decode(coding: Coding, coded: &[u8]) -> Vec<u8> {
    let mut decoder = Decoder::new(coding).expect("it needs no dictionary");
    let body = pieces(&mut decoder, coded);
    assert!(decoder.is_over(), "the body is whole");
    body
}

/// What a decoder makes of the bytes so far.
fn pieces(decoder: &mut Decoder, mut coded: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let decoded = decoder.decode(coded, 64 << 10, &mut body).expect("it is well coded");
        coded = &coded[decoded.used..];
        if coded.is_empty() && decoded.wants_input {
            return body;
        }
    }
}

/// Receives a whole response.
fn gets(client: &mut Client) -> Answer {
    let (mut answer, mut body) = gets_head(client);
    while let Some(bytes) = body.next(client) {
        answer.body.extend(bytes);
    }
    answer
}

/// Receives the head of a response.
fn gets_head(client: &mut Client) -> (Answer, Body) {
    match client {
        Client::One(peer) => {
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
        Client::Two(end, stream) => {
            let stream = std::mem::replace(stream, *stream + 2);
            let Frame::Headers { fields, ends, .. } = end.next_on(stream) else {
                panic!("a head comes first")
            };
            let status = fields.lines().next().and_then(|line| line.strip_prefix(":status: "));
            let status = status.and_then(|status| status.parse().ok()).expect("is a status");
            let answer = Answer { status, fields, body: Vec::new() };
            (answer, if ends { Body::Over } else { Body::Stream(stream) })
        }
    }
}

/// What is still to come of a body.
#[derive(Debug, PartialEq, Eq)]
enum Body {
    Length(usize),
    Chunked,
    Stream(u32),
    Over,
}

impl Body {
    /// The next piece, as it was sent; `None` at the end.
    fn next(&mut self, client: &mut Client) -> Option<Vec<u8>> {
        let body = std::mem::replace(self, Self::Over);
        match (body, client) {
            (Self::Length(length), Client::One(peer)) => Some(peer.exactly(length)),
            (Self::Chunked, Client::One(peer)) => {
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
            (Self::Stream(stream), Client::Two(end, _)) => match end.next_on(stream) {
                Frame::Data { bytes, ends, .. } => {
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

/// A GET request with these fields.
fn get<'a>(target: &'a str, fields: &'a str) -> Asked<'a> {
    Asked { method: "GET", host: "test", target, fields }
}

/// A text that gets much shorter by a coding.
fn text(bytes: usize) -> String {
    "All work and no play makes Jack a dull boy. ".chars().cycle().take(bytes).collect()
}

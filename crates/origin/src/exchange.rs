//! One request beyond the fixed pages: which endpoint answers it, its body in, its response out.
//!
//! Endpoints say what to send; framing, HEAD, HTTP/1.0, keep-alive and the options of every page are settled here.

use std::fmt::Write as _;
use std::io::IoSlice;

use crate::body::{Body, Trailers};
use crate::connection::{Connection, FROM_FILE_BYTES_MIN, Stop};
use crate::content;
use crate::endpoint::{Endpoint, NotServed};
use crate::head::{Head, Length};
use crate::request::{Refusal, Request};
use crate::target::{Options, Target};

/// What becomes of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    KeepAlive,
    /// Closed in an orderly way: what was sent arrives.
    Close,
    /// Dropped.
    Abort,
}

/// A request being answered.
pub(crate) struct Exchange<'c> {
    pub(crate) connection: &'c mut Connection,
    pub(crate) request: Request,
    pub(crate) target: Target,
    options: Options,
    body: Body,
    /// The client waits for 100, and nothing of its body has come.
    continue_due: bool,
    response: Response,
    /// Rendered and not yet sent: it goes out with the next piece.
    out: Vec<u8>,
    ending: Ending,
}

/// How far the response is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Response {
    NotBegun,
    /// The head is rendered; `body` says whether one follows.
    Begun {
        length: Length,
        body: bool,
    },
}

/// Answers one request.
pub(crate) async fn run(connection: &mut Connection, request: Request) -> Ending {
    let target = match Target::parse(&request.method, &request.target) {
        Ok(target) => target,
        Err(refusal) => return connection.refuse(refusal).await,
    };
    let mut exchange = Exchange {
        options: Options::default(),
        body: Body::new(request.facts.framing),
        continue_due: request.facts.expects_continue,
        response: Response::NotBegun,
        out: Vec::new(),
        ending: if request.facts.keep_alive { Ending::KeepAlive } else { Ending::Close },
        connection,
        request,
        target,
    };
    match exchange.answer().await {
        Ok(()) => exchange.ending,
        Err(Stop::Refused(refusal)) if exchange.response == Response::NotBegun => {
            exchange.connection.refuse(refusal).await
        }
        Err(_) => Ending::Abort,
    }
}

impl Exchange<'_> {
    async fn answer(&mut self) -> Result<(), Stop> {
        let endpoint = Endpoint::find(&self.request, &self.target)
            .and_then(|endpoint| Ok((endpoint, Options::of(&self.target.query)?)));
        if !matches!(endpoint, Ok((Endpoint::Stats, _))) {
            self.connection.worker.counters().request(&self.target.path);
        }
        let endpoint = match endpoint {
            Ok((endpoint, options)) => {
                self.options = options;
                endpoint
            }
            Err(not_served) => return self.decline(not_served).await,
        };
        if !endpoint.reads_body() {
            self.discard_body().await?;
        }
        if let Some(delay) = self.options.delay {
            tokio::time::sleep(delay).await;
        }
        endpoint.answer(self).await?;
        // What an endpoint left of the body would be taken for the next request.
        if self.ending == Ending::KeepAlive { self.discard_body().await } else { Ok(()) }
    }

    async fn decline(&mut self, not_served: NotServed) -> Result<(), Stop> {
        self.discard_body().await?;
        let (status, allow, text) = match not_served {
            NotServed::NotFound => (404, false, "nothing is served here; / lists what is.".to_owned()),
            NotServed::Method => (405, true, "this method is not served.".to_owned()),
            NotServed::Wrong(wrong) => (400, false, wrong.message),
        };
        let text = format!("{text}\n");
        let mut head =
            Head::new(status, Length::Known(text.len() as u64)).field("Content-Type", "text/plain");
        if allow {
            head = head.field("Allow", "GET, HEAD, POST, PUT, DELETE, PATCH, OPTIONS");
        }
        self.respond(head, text.as_bytes()).await
    }

    /// Receives the next piece of the request's body and shows it to `take`; `false` once the body has ended.
    pub(crate) async fn body_piece(&mut self, mut take: impl FnMut(&[u8])) -> Result<bool, Stop> {
        while !self.body.is_done() {
            if let Some(buffer) = self.connection.input() {
                self.continue_due = false;
                let step = self.body.step(buffer.filled())?;
                let data = &buffer.filled()[step.data];
                let length = data.len();
                if length > 0 {
                    take(data);
                }
                buffer.consume(step.consumed);
                self.connection.worker.counters().body(length);
                if length > 0 {
                    return Ok(true);
                }
                continue;
            }
            if std::mem::take(&mut self.continue_due) {
                self.interim(&Head::new(100, Length::None)).await?;
            }
            if self.connection.receive().await? == 0 {
                return Err(Stop::Gone);
            }
        }
        Ok(false)
    }

    /// The whole body, if it is at most `most` bytes.
    pub(crate) async fn whole_body(&mut self, most: usize) -> Result<Vec<u8>, Stop> {
        let mut whole = Vec::new();
        while self.body_piece(|piece| whole.extend_from_slice(piece)).await? {
            if whole.len() > most {
                return Err(Refusal::BodyTooLarge.into());
            }
        }
        Ok(whole)
    }

    async fn discard_body(&mut self) -> Result<(), Stop> {
        while self.body_piece(|_| {}).await? {}
        Ok(())
    }

    /// The trailers of the request's body, once it has ended.
    pub(crate) fn trailers(&self) -> &[(String, Vec<u8>)] {
        static NONE: Trailers = Trailers::new();
        if let Body::Done(trailers) = &self.body { trailers } else { &NONE }
    }

    /// Sends a 1xx response.
    pub(crate) async fn interim(&mut self, head: &Head) -> Result<(), Stop> {
        let mut out = Vec::new();
        head.render(&[], None, &mut out);
        Ok(self.connection.write_all(&out).await?)
    }

    /// Begins the response. The head goes out with the first piece, or with `flush`.
    pub(crate) fn begin(&mut self, mut head: Head) {
        assert!(self.response == Response::NotBegun, "a request has one response");
        head.status = self.options.status.unwrap_or(head.status);
        if let Some(cache) = self.options.cache.take() {
            head = head.replace("Cache-Control", cache);
        }
        // RFC 9110 §8.6, §15.4.5: neither has a body, nor a length that anybody would need.
        let bodiless = matches!(head.status, 204 | 304);
        head.length = match head.length {
            _ if bodiless => Length::None,
            // RFC 9112 §6.1: no transfer coding towards HTTP/1.0.
            Length::Chunked if !self.request.facts.http11 => Length::Close,
            length => length,
        };
        // With the body unread and no 100 sent, whether the client sends it is not known.
        if head.length == Length::Close || self.continue_due {
            self.close_afterwards();
        }
        let connection = match self.ending {
            Ending::KeepAlive if !self.request.facts.http11 => Some("keep-alive"),
            Ending::KeepAlive => None,
            Ending::Close | Ending::Abort => Some("close"),
        };
        head.render(&self.connection.worker.date.get(), connection, &mut self.out);
        self.response = Response::Begun { length: head.length, body: !bodiless && !self.request.is_head() };
    }

    /// Whether the body's pieces are sent: not to HEAD. Saves making them.
    pub(crate) fn sends_body(&self) -> bool {
        matches!(self.response, Response::Begun { body: true, .. })
    }

    /// Sends a piece of the body, framed as the head said.
    pub(crate) async fn piece(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        let Response::Begun { length, body: true } = self.response else { return Ok(()) };
        if bytes.is_empty() {
            return Ok(());
        }
        let line_end: &[u8] = match length {
            Length::Chunked => {
                let mut size = String::new();
                let _ = write!(size, "{:x}\r\n", bytes.len());
                self.out.extend_from_slice(size.as_bytes());
                b"\r\n"
            }
            _ => b"",
        };
        let mut parts = [IoSlice::new(&self.out), IoSlice::new(bytes), IoSlice::new(line_end)];
        self.connection.write_parts(&mut parts).await?;
        self.out.clear();
        Ok(())
    }

    /// Sends `length` bytes of the pattern, from `offset`.
    pub(crate) async fn pattern(&mut self, offset: u64, length: u64) -> Result<(), Stop> {
        if let Response::Begun { length: Length::Known(_) | Length::Close, body: true } = self.response
            && length >= FROM_FILE_BYTES_MIN
        {
            self.connection.write_pattern(&self.out, offset, length).await?;
            self.out.clear();
            return Ok(());
        }
        let mut sent = 0;
        while sent < length && self.sends_body() {
            let piece = content::pattern(offset + sent, length - sent);
            self.piece(piece).await?;
            sent += piece.len() as u64;
        }
        Ok(())
    }

    /// Sends what is rendered and not yet sent.
    pub(crate) async fn flush(&mut self) -> Result<(), Stop> {
        self.connection.write_all(&self.out).await?;
        self.out.clear();
        Ok(())
    }

    /// Ends the response, with trailers if it is chunked.
    pub(crate) async fn finish(&mut self, trailers: &[(&str, &[u8])]) -> Result<(), Stop> {
        if let Response::Begun { length: Length::Chunked, body: true } = self.response {
            self.out.extend_from_slice(b"0\r\n");
            for (name, value) in trailers {
                for part in [name.as_bytes(), b": ", value, b"\r\n"] {
                    self.out.extend_from_slice(part);
                }
            }
            self.out.extend_from_slice(b"\r\n");
        }
        self.flush().await
    }

    /// Sends a whole response.
    pub(crate) async fn respond(&mut self, head: Head, body: &[u8]) -> Result<(), Stop> {
        self.begin(head);
        self.piece(body).await?;
        self.finish(&[]).await
    }

    /// Sends a whole response of plain text.
    pub(crate) async fn respond_text(&mut self, text: &str) -> Result<(), Stop> {
        let head = Head::new(200, Length::Known(text.len() as u64));
        self.respond(head.field("Content-Type", "text/plain; charset=utf-8"), text.as_bytes()).await
    }

    /// Sends bytes as they are, whatever they are.
    pub(crate) async fn raw(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        Ok(self.connection.write_all(bytes).await?)
    }

    /// Whether the answer is a success as far as options go.
    pub(crate) fn answers_successfully(&self) -> bool {
        self.options.status.is_none_or(|status| (200..300).contains(&status))
    }

    /// After an upgrade: what came next, in place of what `piece` holds; `false` once the client has closed its side.
    pub(crate) async fn tunnel_piece(&mut self, piece: &mut Vec<u8>) -> Result<bool, Stop> {
        piece.clear();
        if self.connection.input().is_none() && self.connection.receive().await? == 0 {
            return Ok(false);
        }
        if let Some(buffer) = self.connection.input() {
            piece.extend_from_slice(buffer.filled());
            buffer.consume(piece.len());
        }
        Ok(true)
    }

    /// The connection ends with this response. The head says so if this comes before `begin`.
    pub(crate) fn close_afterwards(&mut self) {
        self.ending = Ending::Close;
    }

    /// The connection is reset, whatever of the response has not arrived.
    pub(crate) fn reset(&mut self) -> Result<(), Stop> {
        self.ending = Ending::Abort;
        Ok(self.connection.reset_on_close()?)
    }

    /// Waits until the client has closed the connection, whatever it sends before.
    pub(crate) async fn wait_for_close(&mut self) -> Result<(), Stop> {
        self.ending = Ending::Abort;
        loop {
            self.connection.drop_input();
            if self.connection.receive().await? == 0 {
                return Ok(());
            }
        }
    }
}

//! Trace contexts: read from a request's fields and written to those for a server (W3C Trace Context, B3).
//!
//! The proxy decides which callers are trusted, and which traces are recorded. `span` encodes spans.

use logline::hexadecimal;

/// The names of the fields that carry a trace context, in lower case.
const TRACEPARENT: &[u8] = b"traceparent";
const B3: &[u8] = b"b3";
const X_B3: &[u8] = b"x-b3-";

/// The flag of `traceparent` for traces that the caller records.
const SAMPLED: u8 = 0x01;
/// The flag for random trace IDs (W3C Trace Context level 2).
const RANDOM: u8 = 0x02;
/// The length of a line of `traceparent`.
pub const PARENT_LINE: usize = 70;
/// The line with zeros in place of its values.
const LINE: &[u8; PARENT_LINE] = b"traceparent: 00-00000000000000000000000000000000-0000000000000000-00\r\n";
/// The positions of trace ID, span ID and flags in it.
const TRACE_ID_AT: usize = 16;
const SPAN_ID_AT: usize = 49;
const FLAGS_AT: usize = 66;
/// Room for the lines of B3.
const B3_LINES_MAX: usize = 136;

/// The form of B3 fields for servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum B3Form {
    /// B3 fields are neither read nor changed.
    #[default]
    Off,
    /// The field `b3`.
    Single,
    /// `X-B3-TraceId`, `X-B3-SpanId`, `X-B3-ParentSpanId` and `X-B3-Sampled`.
    Multi,
}

/// The trace context of a client's request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    /// Never 0.
    pub trace_id: u128,
    /// The span in which the request was sent; never 0.
    pub span_id: u64,
    /// Whether the caller records the trace; `None` if it leaves the decision to others (B3 only).
    pub is_sampled: Option<bool>,
    is_random: bool,
    /// Whether `tracestate` belongs to it.
    has_state: bool,
}

impl Caller {
    /// Reads the context from fields, given by name and value: `traceparent`, otherwise B3 if it is in use. `None` if
    /// there is no valid one.
    pub fn read<'a>(lines: impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone, b3: B3Form) -> Option<Self> {
        let named = |name: &'static [u8]| {
            let lines = lines.clone();
            lines.filter(move |(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
        };
        let mut parents = named(TRACEPARENT);
        match (parents.next(), parents.next()) {
            (Some(parent), None) => Self::of_traceparent(parent),
            // W3C Trace Context §4.3: several fields are invalid.
            (Some(_), Some(_)) => None,
            (None, _) if b3 == B3Form::Off => None,
            (None, _) => match named(B3).next() {
                Some(single) => Self::of_b3(single),
                None => Self::of_b3_fields(lines),
            },
        }
    }

    /// W3C Trace Context §3.2: `version "-" trace-id "-" parent-id "-" trace-flags`, in lower-case hexadecimal digits.
    fn of_traceparent(value: &[u8]) -> Option<Self> {
        let (known, rest) = value.split_at_checked(55)?;
        let mut parts = known.split(|&byte| byte == b'-');
        let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let version = hex(version, 2)?;
        // §3.2.2: version ff is invalid; a later version may have more behind another dash.
        let is_whole = rest.is_empty() || (version > 0 && rest.starts_with(b"-"));
        if version == 0xff || !is_whole || parts.next().is_some() {
            return None;
        }
        let flags = hex(flags, 2)? as u8;
        Some(Self {
            trace_id: Some(hex(trace, 32)?).filter(|&id| id != 0)?,
            span_id: Some(hex(span, 16)? as u64).filter(|&id| id != 0)?,
            is_sampled: Some(flags & SAMPLED != 0),
            is_random: flags & RANDOM != 0,
            has_state: true,
        })
    }

    /// B3 in one field: `TraceId-SpanId[-SamplingState[-ParentSpanId]]`. A value with only a sampling state names no
    /// trace.
    fn of_b3(value: &[u8]) -> Option<Self> {
        let mut parts = value.split(|&byte| byte == b'-');
        let (trace, span) = (parts.next()?, parts.next()?);
        let is_sampled = match parts.next() {
            None => None,
            Some(b"1" | b"d") => Some(true),
            Some(b"0") => Some(false),
            Some(_) => return None,
        };
        let is_parent = parts.next().is_none_or(|parent| hex(parent, 16).is_some());
        if !is_parent || parts.next().is_some() {
            return None;
        }
        Self::of_b3_ids(trace, span, is_sampled)
    }

    fn of_b3_fields<'a>(lines: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Option<Self> {
        let (mut trace, mut span, mut is_sampled) = (None, None, None);
        for (name, value) in lines.filter(|(name, _)| is_x_b3(name)) {
            match &name[X_B3.len()..] {
                part if part.eq_ignore_ascii_case(b"traceid") => trace = Some(value),
                part if part.eq_ignore_ascii_case(b"spanid") => span = Some(value),
                part if part.eq_ignore_ascii_case(b"flags") && value == b"1" => is_sampled = Some(true),
                part if part.eq_ignore_ascii_case(b"sampled") && is_sampled.is_none() => {
                    is_sampled = match value {
                        b"1" | b"true" => Some(true),
                        b"0" | b"false" => Some(false),
                        _ => return None,
                    };
                }
                _ => {}
            }
        }
        Self::of_b3_ids(trace?, span?, is_sampled)
    }

    fn of_b3_ids(trace: &[u8], span: &[u8], is_sampled: Option<bool>) -> Option<Self> {
        // A 64-bit trace ID equals the 128-bit one with leading zeros.
        let trace_id = hex(trace, 32).or_else(|| hex(trace, 16)).filter(|&id| id != 0)?;
        let span_id = Some(hex(span, 16)? as u64).filter(|&id| id != 0)?;
        Some(Self { trace_id, span_id, is_sampled, is_random: false, has_state: false })
    }
}

/// A number of exactly `count` lower-case hexadecimal digits.
fn hex(digits: &[u8], count: usize) -> Option<u128> {
    if digits.len() != count {
        return None;
    }
    digits.iter().try_fold(0, |sum: u128, digit| {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(sum << 4 | u128::from(value))
    })
}

fn is_x_b3(name: &[u8]) -> bool {
    name.len() > X_B3.len() && name[..X_B3.len()].eq_ignore_ascii_case(X_B3)
}

/// The place of a request in its trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trace {
    /// Never 0.
    pub trace_id: u128,
    /// The span in which the request was sent; 0 if the trace begins here.
    pub parent_id: u64,
    /// Whether the parent span belongs to another process.
    pub has_remote_parent: bool,
    /// The span of the request; never 0.
    pub span_id: u64,
    /// Whether the trace is recorded regardless of the result of the request.
    pub is_sampled: bool,
    /// The number of finished attempts with servers.
    pub attempts: u8,
    is_random: bool,
    keeps_state: bool,
}

impl Trace {
    /// A request from `caller`, or one that begins a trace with `new_trace_id`. Both IDs are random numbers.
    #[must_use]
    pub fn new(caller: Option<Caller>, new_trace_id: u128, span_id: u64, is_sampled: bool) -> Self {
        let (trace_id, parent_id, is_random, keeps_state) = match caller {
            Some(caller) => (caller.trace_id, caller.span_id, caller.is_random, caller.has_state),
            None => (new_trace_id.max(1), 0, true, false),
        };
        let (span_id, has_remote_parent) = (span_id.max(1), parent_id != 0);
        Self {
            trace_id,
            parent_id,
            has_remote_parent,
            span_id,
            is_sampled,
            attempts: 0,
            is_random,
            keeps_state,
        }
    }

    /// A request of the proxy's own, made from this one.
    #[must_use]
    pub fn child(&self, span_id: u64) -> Self {
        let parent_id = self.span_id;
        Self { parent_id, has_remote_parent: false, span_id: span_id.max(1), attempts: 0, ..*self }
    }

    /// The span ID of an attempt, counted from 0. It needs no random number, because it is derived from the request's
    /// span ID.
    #[must_use]
    pub fn attempt_id(&self, number: u8) -> u64 {
        let (id, is_beyond) = self.span_id.overflowing_add(u64::from(number) + 1);
        // 0 is no valid ID, so it is skipped.
        id + u64::from(is_beyond)
    }

    /// Whether the server gets the client's `tracestate`. Without a valid `traceparent` it has no meaning (W3C Trace
    /// Context §3.3).
    #[must_use]
    pub fn keeps_state(&self) -> bool {
        self.keeps_state
    }

    /// The line of `traceparent` for the server of the current attempt, with CRLF.
    #[must_use]
    #[inline]
    pub fn parent_line(&self) -> [u8; PARENT_LINE] {
        let flags = (if self.is_sampled { SAMPLED } else { 0 }) | (if self.is_random { RANDOM } else { 0 });
        let mut line = *LINE;
        line[TRACE_ID_AT..][..32].copy_from_slice(&hexadecimal::wide_digits(self.trace_id));
        line[SPAN_ID_AT..][..16].copy_from_slice(&hexadecimal::digits(self.attempt_id(self.attempts)));
        // Both flags are in the last digit.
        line[FLAGS_AT + 1] = b'0' + flags;
        line
    }

    /// The lines of B3 for the server of the current attempt, each with CRLF.
    #[must_use]
    #[cold]
    pub fn b3_lines(&self, b3: B3Form) -> B3Lines {
        let trace_id = &hexadecimal::wide_digits(self.trace_id);
        let span_id = &hexadecimal::digits(self.attempt_id(self.attempts));
        let parent_id = &hexadecimal::digits(self.span_id);
        let sampled: &[u8] = if self.is_sampled { b"1" } else { b"0" };
        let pieces: &[&[u8]] = match b3 {
            B3Form::Off => &[],
            B3Form::Single => &[b"b3: ", trace_id, b"-", span_id, b"-", sampled, b"-", parent_id, b"\r\n"],
            B3Form::Multi => &[
                b"X-B3-TraceId: ",
                trace_id,
                b"\r\nX-B3-SpanId: ",
                span_id,
                b"\r\nX-B3-ParentSpanId: ",
                parent_id,
                b"\r\nX-B3-Sampled: ",
                sampled,
                b"\r\n",
            ],
        };
        let mut lines = B3Lines { bytes: [0; B3_LINES_MAX], len: 0 };
        for piece in pieces {
            lines.bytes[lines.len..][..piece.len()].copy_from_slice(piece);
            lines.len += piece.len();
        }
        lines
    }
}

/// The field lines of B3, without an allocation.
pub struct B3Lines {
    bytes: [u8; B3_LINES_MAX],
    len: usize,
}

impl B3Lines {
    /// The lines, each with CRLF.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN: &str = "00f067aa0ba902b7";
    const TRACE_ID: u128 = 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736;
    const SPAN_ID: u64 = 0x00f0_67aa_0ba9_02b7;

    fn read(lines: &[(&str, &str)], b3: B3Form) -> Option<(u128, u64, Option<bool>)> {
        let lines = lines.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        Caller::read(lines, b3).map(|caller| (caller.trace_id, caller.span_id, caller.is_sampled))
    }

    #[test]
    fn a_traceparent_is_read_by_the_recommendation() {
        let fields =
            |version: &str, trace: &str, span: &str, flags: &str| format!("{version}-{trace}-{span}-{flags}");
        for (value, expected) in [
            (fields("00", TRACE, SPAN, "01"), Some(true)),
            (fields("00", TRACE, SPAN, "00"), Some(false)),
            (fields("00", TRACE, SPAN, "03"), Some(true)),
            (fields("00", TRACE, SPAN, "fe"), Some(false)),
            // A later version, with or without more fields.
            (fields("01", TRACE, SPAN, "01"), Some(true)),
            (fields("cc", TRACE, SPAN, "01-what-the-future-brings"), Some(true)),
            (fields("cc", TRACE, SPAN, "01.what"), None),
            (fields("00", TRACE, SPAN, "01-more"), None),
            (fields("ff", TRACE, SPAN, "01"), None),
            (fields("0", TRACE, SPAN, "01"), None),
            (fields("00", &TRACE.to_uppercase(), SPAN, "01"), None),
            (fields("00", &"0".repeat(32), SPAN, "01"), None),
            (fields("00", TRACE, &"0".repeat(16), "01"), None),
            (fields("00", &TRACE[1..], SPAN, "01"), None),
            (fields("00", TRACE, &SPAN[1..], "010"), None),
            (fields("00", TRACE, SPAN, "0x"), None),
            (fields("00", TRACE, SPAN, "1"), None),
            (String::new(), None),
        ] {
            let caller = read(&[("Traceparent", &value)], B3Form::Off);
            let expected = expected.map(|is_sampled| (TRACE_ID, SPAN_ID, Some(is_sampled)));
            assert_eq!(caller, expected, "{value}");
        }
        let value = fields("00", TRACE, SPAN, "01");
        assert_eq!(read(&[("traceparent", &value), ("TRACEPARENT", &value)], B3Form::Single), None);
        assert_eq!(read(&[], B3Form::Single), None);
    }

    #[test]
    fn b3_is_read_where_it_is_in_use_and_there_is_no_traceparent() {
        let single = format!("{TRACE}-{SPAN}-1-05e3ac9a4f6e3b90");
        let sampled = Some((TRACE_ID, SPAN_ID, Some(true)));
        assert_eq!(read(&[("b3", &single)], B3Form::Off), None);
        for (value, expected) in [
            (single.clone(), sampled),
            (format!("{TRACE}-{SPAN}-d"), sampled),
            (format!("{TRACE}-{SPAN}-0"), Some((TRACE_ID, SPAN_ID, Some(false)))),
            (format!("{TRACE}-{SPAN}"), Some((TRACE_ID, SPAN_ID, None))),
            (
                format!("{}-{SPAN}-1", &TRACE[16..]),
                Some((TRACE_ID & u128::from(u64::MAX), SPAN_ID, Some(true))),
            ),
            (format!("{TRACE}-{SPAN}-2"), None),
            (format!("{TRACE}-{SPAN}-1-5"), None),
            (format!("{single}-1"), None),
            ("0".to_owned(), None),
            (String::new(), None),
        ] {
            assert_eq!(read(&[("B3", &value)], B3Form::Multi), expected, "{value}");
        }
        let parts = |sampled, flags| {
            [("X-B3-TraceId", TRACE), ("x-b3-spanid", SPAN), ("X-B3-Sampled", sampled), ("X-B3-Flags", flags)]
        };
        assert_eq!(read(&parts("1", "0"), B3Form::Single), sampled);
        assert_eq!(read(&parts("0", "0"), B3Form::Single), Some((TRACE_ID, SPAN_ID, Some(false))));
        assert_eq!(read(&parts("2", "0"), B3Form::Single), None);
        assert_eq!(read(&parts("1", "1")[..1], B3Form::Single), None);
        let traceparent = format!("00-{TRACE}-{SPAN}-00");
        let both = [("traceparent", traceparent.as_str()), ("b3", single.as_str())];
        assert_eq!(read(&both, B3Form::Single), Some((TRACE_ID, SPAN_ID, Some(false))));
    }

    fn lines(trace: &Trace, b3: B3Form) -> String {
        let lines = [&trace.parent_line()[..], trace.b3_lines(b3).bytes()].concat();
        String::from_utf8(lines).unwrap()
    }

    #[test]
    fn a_context_is_written_with_the_attempt_as_the_parent() {
        let traceparent = format!("00-{TRACE}-{SPAN}-03");
        let caller = Caller::read([(&b"traceparent"[..], traceparent.as_bytes())].into_iter(), B3Form::Off);
        let mut trace = Trace::new(caller, 1, 0xab0f, false);
        assert!(trace.keeps_state() && trace.has_remote_parent && trace.parent_id == SPAN_ID);
        assert_eq!(lines(&trace, B3Form::Off), format!("traceparent: 00-{TRACE}-000000000000ab10-02\r\n"));
        trace.attempts = 1;
        trace.is_sampled = true;
        let single = format!(
            "traceparent: 00-{TRACE}-000000000000ab11-03\r\nb3: {TRACE}-000000000000ab11-1-000000000000ab0f\r\n"
        );
        assert_eq!(lines(&trace, B3Form::Single), single);
        let multi = format!(
            "traceparent: 00-{TRACE}-000000000000ab11-03\r\nX-B3-TraceId: {TRACE}\r\nX-B3-SpanId: 000000000000ab11\r\n\
             X-B3-ParentSpanId: 000000000000ab0f\r\nX-B3-Sampled: 1\r\n"
        );
        assert_eq!(lines(&trace, B3Form::Multi), multi);
        let child = trace.child(7);
        assert_eq!((child.trace_id, child.parent_id, child.span_id), (TRACE_ID, 0xab0f, 7));
        assert!(!child.has_remote_parent && child.attempts == 0);
        let begun = Trace::new(None, 0x77, 0, true);
        assert_eq!((begun.trace_id, begun.parent_id, begun.span_id), (0x77, 0, 1));
        assert!(!begun.keeps_state() && !begun.has_remote_parent);
    }

    #[test]
    fn the_attempts_of_a_request_have_ids_of_their_own() {
        for span_id in [1, 0xab, u64::MAX - 1, u64::MAX] {
            let trace = Trace::new(None, 1, span_id, true);
            let ids: std::collections::HashSet<_> =
                (0..=255).map(|number| trace.attempt_id(number)).collect();
            assert!(ids.len() == 256 && !ids.contains(&0), "{span_id}");
        }
    }

    #[test]
    fn reading_restores_written_values() {
        for b3 in [B3Form::Off, B3Form::Single, B3Form::Multi] {
            let trace = Trace::new(None, TRACE_ID, SPAN_ID, true);
            let text = lines(&trace, b3);
            // Without `traceparent`, because B3 has the same content.
            let skipped = usize::from(b3 != B3Form::Off);
            let fields = text.lines().skip(skipped).map(|line| line.split_once(": ").unwrap());
            let fields: Vec<_> = fields.map(|(name, value)| (name.as_bytes(), value.as_bytes())).collect();
            let caller = Caller::read(fields.into_iter(), b3).unwrap();
            assert_eq!((caller.trace_id, caller.span_id), (TRACE_ID, trace.attempt_id(0)));
            assert_eq!(caller.is_sampled, Some(true));
        }
    }
}

//! Records of an application behind FastCGI: any split of the bytes is read alike, limits hold, and a head that is passed
//! on reads as the same status and framing. The first byte says whether the request is a HEAD.

#![no_main]

use fastcgi::{
    Body, CgiHeadLimits, EndRequest, Event, HeadOutline, ParamPairs, RecordLimits, Response, ResponseError,
    ResponseLimits,
};
use fuzz::{LIMITS, cuts};
use http1::{BodyFraming, MessageHead, Parsed, ResponseHead, response_framing};
use libfuzzer_sys::fuzz_target;

const TIGHT: ResponseLimits = ResponseLimits {
    records: RecordLimits { empty_records: 3 },
    head: CgiHeadLimits { bytes: 128, fields: 4 },
    stderr_bytes: 16,
};

fuzz_target!(|bytes: &[u8]| {
    let Some((&first, rest)) = bytes.split_first() else { return };
    let to_head = first == b'H';
    let whole = read(rest, to_head, [rest.len()].into_iter());
    assert_eq!(read(rest, to_head, cuts(rest)), whole);
    assert!(whole.stderr.len() <= TIGHT.stderr_bytes);
    if let Some(outline) = whole.outline {
        let mut head: ResponseHead = MessageHead::default();
        assert_eq!(head.parse(&whole.text, &LIMITS[0]), Ok(Parsed::Complete));
        assert_eq!((head.len, head.start.status), (whole.text.len(), outline.status));
        assert!(head.len <= TIGHT.head.bytes + 2 * TIGHT.head.fields + 100);
        let expected = match outline.body {
            Body::None | Body::Length(0) => BodyFraming::None,
            Body::Length(length) => BodyFraming::Length(length),
            Body::UntilEnd => BodyFraming::UntilClose,
        };
        assert_eq!(response_framing(&head, &whole.text, to_head), Ok(expected));
        if let (Body::Length(length), Some(_)) = (outline.body, whole.end) {
            assert!(whole.is_refusal() || whole.body.len() as u64 == length);
        }
    }
    let pairs = ParamPairs::new(rest).filter_map(Result::ok);
    assert!(pairs.map(|(name, value)| name.len() + value.len() + 2).sum::<usize>() <= rest.len());
});

#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    text: Vec<u8>,
    outline: Option<HeadOutline>,
    body: Vec<u8>,
    stderr: Vec<u8>,
    end: Option<(EndRequest, usize)>,
    error: Option<ResponseError>,
}

impl Seen {
    fn is_refusal(&self) -> bool {
        self.end.is_some_and(|(end, _)| end.protocol_status.is_untouched())
    }
}

fn read(bytes: &[u8], to_head: bool, cuts: impl Iterator<Item = usize>) -> Seen {
    let mut response = Response::new(TIGHT, to_head);
    let (mut seen, mut at) = (Seen::default(), 0);
    for cut in cuts {
        loop {
            let (taken, event) = match response.read(&bytes[at..cut], &mut seen.text) {
                Ok(read) => read,
                Err(error) => {
                    seen.error = Some(error);
                    return seen;
                }
            };
            at += taken;
            match event {
                Event::More => break,
                Event::Head { outline, body } => {
                    assert_eq!(seen.outline.replace(outline), None);
                    seen.body.extend_from_slice(body);
                }
                Event::Body(body) => seen.body.extend_from_slice(body),
                Event::Stderr(output) => seen.stderr.extend_from_slice(output),
                Event::End(end) => {
                    assert!(response.has_ended());
                    seen.end = Some((end, at));
                    return seen;
                }
            }
        }
        assert_eq!(at, cut);
    }
    // The next call returns the error of the last piece.
    seen.error = response.read(b"", &mut seen.text).err();
    seen
}

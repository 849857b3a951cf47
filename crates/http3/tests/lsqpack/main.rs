//! QPACK against ls-qpack, the implementation of several browsers and servers. Each end encodes for the other, while
//! instructions and acknowledgments arrive late. `cargo xtask qpack` runs this test.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use fields::compose::Encode;
use http3::{QpackDecoder, QpackEncoder, SectionOutcome};

type Field = (Vec<u8>, Vec<u8>);

/// The other implementation, as a process that answers line by line.
struct Peer {
    process: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Peer {
    fn start(table_bytes: usize, blocked_streams: u64) -> Self {
        let python = std::env::var_os("LSQPACK_PYTHON").expect("cargo xtask qpack sets it");
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/lsqpack/peer.py");
        let mut process = Command::new(python)
            .args([script, &table_bytes.to_string(), &blocked_streams.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("Python starts");
        let (to, from) =
            (process.stdin.take().expect("is a pipe"), process.stdout.take().expect("is a pipe"));
        Self { process, to, from: BufReader::new(from) }
    }

    fn ask(&mut self, line: &str) -> String {
        writeln!(self.to, "{line}").expect("it listens");
        let mut answer = String::new();
        self.from.read_line(&mut answer).expect("it answers");
        assert!(!answer.is_empty(), "it ended at: {line}");
        answer.trim_end().to_owned()
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    let digit = |digit: u8| char::from(digit).to_digit(16).expect("is hexadecimal") as u8;
    let (pairs, rest) = hex.as_bytes().as_chunks::<2>();
    assert!(rest.is_empty() || hex == "-");
    pairs.iter().map(|[high, low]| digit(*high) << 4 | digit(*low)).collect()
}

fn field_of(word: &str) -> Field {
    let (name, value) = word.split_once('=').expect("is a field");
    (bytes(name), bytes(value))
}

/// A generator of numbers that are the same in every run.
struct Chances(u64);

impl Chances {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) as usize % limit
    }

    /// Fields in a realistic mix: some always, some often, some only once, some in the static table.
    fn fields(&mut self) -> Vec<Field> {
        const COMMON: [(&str, &str); 12] = [
            (":status", "200"),
            (":path", "/index.html"),
            ("server", "vanward"),
            ("content-type", "text/html; charset=utf-8"),
            ("content-type", "image/avif"),
            ("cache-control", "public, max-age=31536000"),
            ("vary", "accept-encoding"),
            ("x-request-kind", "navigation"),
            ("strict-transport-security", "max-age=63072000"),
            ("set-cookie", "session=0123456789abcdef"),
            ("authorization", "Basic secret"),
            ("x-empty", ""),
        ];
        let count = 1 + self.below(9);
        let mut fields: Vec<Field> = (0..count)
            .map(|_| COMMON[self.below(COMMON.len())])
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        fields.push((b"etag".to_vec(), format!("\"{:x}\"", self.below(1 << 30)).into()));
        if self.below(8) == 0 {
            let any: Vec<u8> = (0..self.below(400)).map(|_| self.below(256) as u8).collect();
            fields.push((format!("x-{}", self.below(4)).into(), any));
        }
        fields
    }
}

const SETTINGS: [(usize, u64); 5] = [(0, 0), (200, 0), (512, 1), (4096, 0), (4096, 8)];
const SECTIONS: u64 = 400;

#[test]
#[ignore = "needs pylsqpack: cargo xtask qpack"]
fn it_decodes_what_we_encode() {
    for (table_bytes, blocked_streams) in SETTINGS {
        let (mut peer, mut chances) = (Peer::start(table_bytes, blocked_streams), Chances(7));
        let mut encoder = QpackEncoder::default();
        encoder.allow(table_bytes as u64, blocked_streams);
        let (mut instructions, mut acknowledgments) = (Vec::new(), Vec::new());
        let mut blocked: Vec<(u64, Vec<Field>)> = Vec::new();
        let (mut total, mut encoded, mut has_blocked) = (0, 0, false);
        for at in 0..SECTIONS {
            let (stream, fields) = (4 * at, chances.fields());
            encoder.begin(stream, true);
            fields.iter().for_each(|(name, value)| encoder.field(name, value));
            let mut section = Vec::new();
            encoder.end(&mut section);
            encoder.take_instructions(&mut instructions);
            total += fields.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>();
            encoded += section.len();
            match &peer.ask(&format!("decode {stream} {}", hex(&section)))[..] {
                "blocked" => {
                    blocked.push((stream, fields));
                    has_blocked = true;
                }
                said => acknowledgments.extend(check(said, &fields)),
            }
            if chances.below(3) == 0 && !instructions.is_empty() {
                let unblocked = peer.ask(&format!("instruct {}", hex(&std::mem::take(&mut instructions))));
                for stream in unblocked.split(' ').filter_map(|stream| stream.parse::<u64>().ok()) {
                    let place = blocked.iter().position(|(other, _)| *other == stream).expect("it waits");
                    let (_, fields) = blocked.remove(place);
                    acknowledgments.extend(check(&peer.ask(&format!("resume {stream}")), &fields));
                }
                let taken = encoder.acknowledged(&acknowledgments).expect("it acknowledges what was sent");
                acknowledgments.drain(..taken);
            }
            assert!(blocked.len() as u64 <= blocked_streams);
        }
        assert_eq!(has_blocked, blocked_streams > 0, "{table_bytes}");
        assert!(encoded < total, "{encoded} of {total} bytes");
    }
}

fn check(said: &str, fields: &[Field]) -> Vec<u8> {
    let (acknowledgment, rest) = said.split_once(' ').expect("there are fields");
    assert_eq!(rest.split(' ').map(field_of).collect::<Vec<_>>(), fields);
    bytes(acknowledgment)
}

#[test]
#[ignore = "needs pylsqpack: cargo xtask qpack"]
fn we_decode_what_it_encodes() {
    for (table_bytes, blocked_streams) in SETTINGS {
        let (mut peer, mut chances) = (Peer::start(table_bytes, blocked_streams), Chances(11));
        let mut decoder = QpackDecoder::new(table_bytes);
        let mut instructions = Vec::new();
        let mut waiting: Vec<(u64, Vec<u8>, Vec<Field>)> = Vec::new();
        for at in 0..SECTIONS {
            let (stream, fields) = (4 * at, chances.fields());
            let words: String =
                fields.iter().map(|(name, value)| format!(" {}={}", hex(name), hex(value))).collect();
            let said = peer.ask(&format!("encode {stream}{words}"));
            let (told, section) = said.split_once(' ').expect("both are there");
            instructions.extend(bytes(told));
            waiting.push((stream, bytes(section), fields));
            if chances.below(3) == 0 {
                decoder.instruct(&std::mem::take(&mut instructions)).expect("they are valid");
            }
            waiting.retain(|(stream, section, fields)| {
                let mut got = Vec::new();
                let field = |name: &[u8], value: &[u8]| got.push((name.to_vec(), value.to_vec()));
                match decoder.decode(*stream, section, field).expect("it is readable") {
                    SectionOutcome::Whole => {
                        assert_eq!(&got, fields);
                        false
                    }
                    SectionOutcome::Blocked(_) => true,
                }
            });
            assert!(waiting.len() as u64 <= blocked_streams);
            let mut acknowledgments = Vec::new();
            decoder.acknowledge(&mut acknowledgments);
            if !acknowledgments.is_empty() {
                peer.ask(&format!("acknowledge {}", hex(&acknowledgments)));
            }
        }
        assert_eq!(decoder.inserted() > 0, table_bytes > 0);
    }
}

//! Packets of plain HTTP/1, as tcpdump and Wireshark write them: pcap and pcapng.

/// Messages in the bytes of a connection.
mod messages;

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use etherparse::{EtherType, LaxNetSlice, LaxSlicedPacket, TransportSlice};
use pcap_parser::{Block, Linktype, PcapBlockOwned, PcapError, create_reader};

use crate::{Capture, CaptureError, REQUESTS_MAX, SkippedEntries};
use messages::requests_of;

/// Longer packets are no packets of a network.
const BLOCK_BYTES_MAX: usize = 1 << 20;
/// Payload beyond this length is left out.
const PAYLOAD_BYTES_MAX: usize = 512 << 20;
const CONNECTIONS_MAX: usize = 1_000_000;

/// A segment of one direction of a connection.
#[derive(Debug)]
struct TcpSegment {
    time_ms: u64,
    sequence: u32,
    is_first: bool,
    payload: Vec<u8>,
}

/// Both directions of a connection; the first one is from the end that sent the first packet.
#[derive(Debug)]
struct TcpConnection {
    ends: [SocketAddr; 2],
    segments: [Vec<TcpSegment>; 2],
    /// The sequence number of the first SYN.
    first_syn: Option<u32>,
}

/// The bytes of one direction, in order, with the time of each piece.
#[derive(Debug, Default)]
pub(super) struct TcpBytes {
    bytes: Vec<u8>,
    /// Where a segment begins, and its time.
    times: Vec<(usize, u64)>,
    /// Whether a segment is missing behind them.
    is_cut: bool,
}

impl TcpBytes {
    fn time_ms(&self, at: usize) -> Option<u64> {
        let behind = self.times.partition_point(|(start, _)| *start <= at);
        self.times.get(behind.checked_sub(1)?).map(|(_, time_ms)| *time_ms)
    }
}

/// Reads a pcap or pcapng file. With `ports`, only connections to these ports count.
///
/// # Errors
/// If the file is none, or has no request.
pub fn pcap(file: &[u8], ports: &[u16]) -> Result<Capture, CaptureError> {
    let mut packets = PacketReader {
        ports,
        known: HashMap::new(),
        connections: Vec::new(),
        payload_bytes: 0,
        is_full: false,
    };
    let mut skipped = SkippedEntries::default();
    packets.read(file, &mut skipped)?;
    if packets.is_full {
        skipped.add(|| format!("payload beyond {} MiB", PAYLOAD_BYTES_MAX >> 20));
    }
    let (mut requests, mut cut) = (Vec::new(), 0_u64);
    for connection in packets.connections {
        let TcpConnection { ends, segments: [one, other], .. } = connection;
        let mut ways = [in_order(one), in_order(other)];
        let mut client = ends[0].ip();
        // The first packet may be from the server, if the capture began within the connection.
        if messages::is_response(&ways[0].bytes) {
            ways.reverse();
            client = ends[1].ip();
        }
        cut += ways.iter().filter(|way| way.is_cut).count() as u64;
        match requests_of(&ways[0], &ways[1]) {
            Ok(found) => requests.extend(found.into_iter().map(|mut request| {
                request.client = Some(client);
                request
            })),
            Err(why) => skipped.add(|| format!("the connection {} to {}: {why}", ends[0], ends[1])),
        }
    }
    requests.sort_by_key(|request| request.time_ms);
    if requests.len() > REQUESTS_MAX {
        skipped.count += (requests.len() - REQUESTS_MAX) as u64;
        requests.truncate(REQUESTS_MAX);
    }
    if requests.is_empty() {
        let first = skipped.first.unwrap_or_else(|| "no TCP connection begins with HTTP/1".to_owned());
        return Err(CaptureError::new(format!("no packet has a request of plain HTTP/1: {first}")));
    }
    let mut lacks = vec!["requests over TLS, HTTP/2 and HTTP/3".to_owned()];
    if cut > 0 {
        lacks.push(format!("bytes behind missing packets of {cut} connections"));
    }
    Ok(Capture { source: "packets".to_owned(), lacks, requests, skipped, is_masked: false })
}

struct PacketReader<'p> {
    ports: &'p [u16],
    /// Indices of connections. The smaller end is first.
    known: HashMap<[SocketAddr; 2], usize>,
    connections: Vec<TcpConnection>,
    payload_bytes: usize,
    is_full: bool,
}

impl PacketReader<'_> {
    fn read(&mut self, file: &[u8], skipped: &mut SkippedEntries) -> Result<(), CaptureError> {
        let no_capture = || CaptureError::new("it is no pcap or pcapng file");
        let mut reader = create_reader(BLOCK_BYTES_MAX, file).map_err(|_| no_capture())?;
        let mut is_nanoseconds = false;
        // Kind of packets, units of a second, and their offset, by interface.
        let mut interfaces: Vec<(Linktype, u64, u64)> = Vec::new();
        loop {
            match reader.next() {
                Ok((length, block)) => {
                    match block {
                        PcapBlockOwned::LegacyHeader(header) => {
                            is_nanoseconds = header.is_nanosecond_precision();
                            interfaces = vec![(header.network, 1, 0)];
                        }
                        PcapBlockOwned::Legacy(packet) => {
                            let parts = if is_nanoseconds { 1_000_000 } else { 1000 };
                            let time_ms = u64::from(packet.ts_sec) * 1000 + u64::from(packet.ts_usec) / parts;
                            let kind = interfaces.first().map_or(Linktype::ETHERNET, |(kind, ..)| *kind);
                            self.packet(kind, time_ms, packet.data);
                        }
                        PcapBlockOwned::NG(Block::SectionHeader(_)) => interfaces.clear(),
                        PcapBlockOwned::NG(Block::InterfaceDescription(known)) => {
                            let units = known.ts_resolution().unwrap_or(1_000_000).max(1);
                            interfaces.push((
                                known.linktype,
                                units,
                                u64::try_from(known.ts_offset()).unwrap_or(0),
                            ));
                        }
                        PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
                            if let Some((kind, units, offset)) = interfaces.get(packet.if_id as usize) {
                                let (high, low) = (u64::from(packet.ts_high), u64::from(packet.ts_low));
                                let time = u128::from((high << 32) | low) * 1000 / u128::from(*units);
                                let time_ms = u64::try_from(time)
                                    .unwrap_or(0)
                                    .saturating_add(offset.saturating_mul(1000));
                                let length = packet.data.len().min(packet.caplen as usize);
                                self.packet(*kind, time_ms, &packet.data[..length]);
                            }
                        }
                        PcapBlockOwned::NG(_) => {}
                    }
                    reader.consume(length);
                }
                Err(PcapError::Eof) => return Ok(()),
                Err(PcapError::Incomplete(_)) => {
                    if reader.reader_exhausted() {
                        skipped.add(|| "the file ends within a packet".to_owned());
                        return Ok(());
                    }
                    reader.refill().map_err(|_| no_capture())?;
                }
                Err(_) if self.connections.is_empty() => return Err(no_capture()),
                Err(_) => {
                    skipped.add(|| "a block of the file is damaged, and the rest is not read".to_owned());
                    return Ok(());
                }
            }
        }
    }

    fn packet(&mut self, kind: Linktype, time_ms: u64, data: &[u8]) {
        // A link-layer header of Linux names the protocol at this place, and has this length.
        let behind = |protocol: usize, length: usize| {
            let number = data.get(protocol..protocol + 2)?;
            let ether_type = EtherType(u16::from_be_bytes([number[0], number[1]]));
            Some(LaxSlicedPacket::from_ether_type(ether_type, data.get(length..)?))
        };
        let sliced = match kind {
            Linktype::ETHERNET => LaxSlicedPacket::from_ethernet(data).ok(),
            Linktype::LINUX_SLL => behind(14, 16),
            Linktype::LINUX_SLL2 => behind(0, 20),
            Linktype::NULL => data.get(4..).and_then(|data| LaxSlicedPacket::from_ip(data).ok()),
            _ => LaxSlicedPacket::from_ip(data).ok(),
        };
        let Some(LaxSlicedPacket { net: Some(net), transport: Some(TransportSlice::Tcp(tcp)), .. }) = sliced
        else {
            return;
        };
        let (source, target): (IpAddr, IpAddr) = match net {
            LaxNetSlice::Ipv4(ip) => {
                (ip.header().source_addr().into(), ip.header().destination_addr().into())
            }
            LaxNetSlice::Ipv6(ip) => {
                (ip.header().source_addr().into(), ip.header().destination_addr().into())
            }
            LaxNetSlice::Arp(_) => return,
        };
        let source = SocketAddr::new(source, tcp.source_port());
        let target = SocketAddr::new(target, tcp.destination_port());
        let is_wanted = |end: SocketAddr| self.ports.contains(&end.port());
        if !self.ports.is_empty() && !is_wanted(source) && !is_wanted(target) {
            return;
        }
        let is_first = tcp.syn();
        let payload = tcp.payload();
        if payload.is_empty() && !is_first {
            return;
        }
        if self.payload_bytes + payload.len() > PAYLOAD_BYTES_MAX {
            self.is_full = true;
            return;
        }
        let opens = (is_first && !tcp.ack()).then(|| tcp.sequence_number());
        let Some(connection) = self.connection(source, target, opens) else { return };
        let way = usize::from(connection.ends[0] != source);
        connection.segments[way].push(TcpSegment {
            time_ms,
            sequence: tcp.sequence_number(),
            is_first,
            payload: payload.to_vec(),
        });
        self.payload_bytes += payload.len();
    }

    /// Returns the connection of two ends. `opens`: the sequence number of a SYN. Another one opens a new connection.
    fn connection(
        &mut self,
        source: SocketAddr,
        target: SocketAddr,
        opens: Option<u32>,
    ) -> Option<&mut TcpConnection> {
        let key = if source < target { [source, target] } else { [target, source] };
        let known = self.known.get(&key).copied().filter(|known| {
            opens.is_none()
                || self.connections.get(*known).is_some_and(|connection| connection.first_syn == opens)
        });
        let index = match known {
            Some(index) => index,
            None if self.connections.len() >= CONNECTIONS_MAX => {
                self.is_full = true;
                return None;
            }
            None => {
                self.known.insert(key, self.connections.len());
                let segments = [Vec::new(), Vec::new()];
                self.connections.push(TcpConnection { ends: [source, target], segments, first_syn: opens });
                self.connections.len() - 1
            }
        };
        self.connections.get_mut(index)
    }
}

/// Puts segments in order, and leaves out what was sent twice. Ends where a segment is missing.
fn in_order(mut segments: Vec<TcpSegment>) -> TcpBytes {
    let mut made = TcpBytes::default();
    let Some(first) = segments.iter().find(|segment| segment.is_first).or(segments.first()) else {
        return made;
    };
    // RFC 9293 §3.4: a SYN takes one sequence number.
    let base = first.sequence.wrapping_add(u32::from(first.is_first));
    let place = |segment: &TcpSegment| {
        let sequence = segment.sequence.wrapping_add(u32::from(segment.is_first));
        // Sequence numbers wrap around; no capture has 2 GiB of one direction.
        i64::from(sequence.wrapping_sub(base) as i32)
    };
    segments.sort_by_key(|segment| place(segment));
    let lowest = segments.first().map_or(0, |segment| place(segment).min(0));
    for segment in segments {
        let at = place(&segment) - lowest;
        let done = made.bytes.len() as i64;
        if at > done {
            made.is_cut = true;
            break;
        }
        let known = usize::try_from(done - at).unwrap_or(usize::MAX);
        if let Some(new) = segment.payload.get(known..).filter(|new| !new.is_empty()) {
            made.times.push((made.bytes.len(), segment.time_ms));
            made.bytes.extend_from_slice(new);
        }
    }
    made
}

#[cfg(test)]
mod tests {
    use etherparse::PacketBuilder;

    use super::*;
    use crate::CapturedScheme;

    const REQUEST: &[u8] =
        b"POST /a?b HTTP/1.1\r\nHost: a.example:8080\r\nCookie: a=b\r\nContent-Length: 5\r\n\r\nhello\
        GET /c HTTP/1.0\r\nHost: a.example\r\n\r\n";
    const RESPONSE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n\
        HTTP/1.1 404 Not Found\r\nX-A: b\r\n\r\nuntil the end";

    /// A packet between a client and a server: `way` 0 is from the client.
    fn packet(way: usize, sequence: u32, is_syn: bool, payload: &[u8]) -> Vec<u8> {
        let ends = [([192, 0, 2, 7], 40_000), ([192, 0, 2, 1], 8080)];
        let ((source, source_port), (target, target_port)) = (ends[way], ends[1 - way]);
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4(source, target, 64).tcp(
            source_port,
            target_port,
            sequence,
            1000,
        );
        let builder = match (is_syn, way) {
            (true, 0) => builder.syn(),
            (true, _) => builder.syn().ack(1),
            _ => builder.ack(1),
        };
        let mut bytes = Vec::new();
        builder.write(&mut bytes, payload).expect("it fits");
        bytes
    }

    /// A pcap file; the packets are a second apart.
    fn file(packets: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes =
            vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0];
        for (second, packet) in (1_u32..).zip(packets) {
            let length = packet.len() as u32;
            for number in [second, 7000, length, length] {
                bytes.extend(number.to_le_bytes());
            }
            bytes.extend(packet);
        }
        bytes
    }

    /// A pcapng file with one interface, without options.
    fn next_generation(packets: &[Vec<u8>]) -> Vec<u8> {
        fn block(kind: u32, content: &[u8]) -> Vec<u8> {
            let padded = content.len().next_multiple_of(4);
            let length = (padded + 12) as u32;
            let mut bytes = [kind.to_le_bytes(), length.to_le_bytes()].concat();
            bytes.extend(content);
            bytes.resize(8 + padded, 0);
            bytes.extend(length.to_le_bytes());
            bytes
        }
        let head = [&0x1a2b_3c4d_u32.to_le_bytes()[..], &[1, 0, 0, 0], &[0xff; 8]].concat();
        let mut bytes = [block(0x0a0d_0d0a, &head), block(1, &[1, 0, 0, 0, 0, 0, 4, 0])].concat();
        for (second, packet) in (1_u64..).zip(packets) {
            let time = second * 1_000_000 + 7000;
            let length = packet.len() as u32;
            let numbers = [0, (time >> 32) as u32, time as u32, length, length];
            let mut content = numbers.map(u32::to_le_bytes).concat();
            content.extend(packet);
            bytes.extend(block(6, &content));
        }
        bytes
    }

    /// A connection with packets out of order, sent twice, and overlapping.
    fn packets() -> Vec<Vec<u8>> {
        let first = u32::MAX - 10;
        let at = |offset: usize| first.wrapping_add(1 + offset as u32);
        vec![
            packet(0, first, true, b""),
            packet(1, 500, true, b""),
            packet(0, at(0), false, &REQUEST[..30]),
            packet(0, at(60), false, &REQUEST[60..]),
            packet(0, at(20), false, &REQUEST[20..60]),
            packet(0, at(60), false, &REQUEST[60..]),
            packet(1, 501, false, &RESPONSE[..40]),
            packet(1, 541, false, &RESPONSE[40..]),
        ]
    }

    #[test]
    fn requests_and_responses_of_a_connection() {
        for file in [file(&packets()), next_generation(&packets())] {
            let capture = pcap(&file, &[]).expect("it has requests");
            let [first, second] = &capture.requests[..] else { panic!("{capture:?}") };
            assert_eq!((first.time_ms, first.client), (Some(3007), "192.0.2.7".parse().ok()));
            assert_eq!((first.method.as_str(), first.target.as_str()), ("POST", "/a?b"));
            assert_eq!(
                (first.scheme, first.host.as_deref()),
                (Some(CapturedScheme::Http), Some("a.example:8080"))
            );
            assert_eq!(first.field("cookie"), Some("a=b"));
            assert_eq!(first.body.as_ref().and_then(|body| body.base64.as_deref()), Some("aGVsbG8="));
            let answers: Vec<_> = capture
                .requests
                .iter()
                .filter_map(|request| request.response.as_ref())
                .map(|response| (response.status, response.body_bytes, response.fields.len()))
                .collect();
            assert_eq!(answers, [(200, Some(3), 1), (404, Some(13), 1)]);
            assert_eq!((second.version.as_deref(), second.target.as_str()), (Some("1.0"), "/c"));
            assert!(pcap(&file, &[8080]).is_ok());
            let error = pcap(&file, &[80]).expect_err("no such port");
            assert!(error.why.contains("no packet has a request"), "{error}");
        }
    }

    #[test]
    fn missing_packets_cut_a_connection_and_other_files_are_refused() {
        let mut packets = packets();
        packets.remove(2);
        packets.remove(3);
        let error = pcap(&file(&packets), &[]).expect_err("the head is not there");
        assert!(error.why.contains("no packet has a request"), "{error}");
        let tls = [packet(0, 1, true, b""), packet(0, 2, false, b"\x16\x03\x01\x02\x00\x01")];
        let error = pcap(&file(&tls), &[]).expect_err("it is TLS");
        assert!(error.why.contains("TLS"), "{error}");
        for wrong in [&b""[..], b"GET / HTTP/1.1\r\n\r\n", &[0xd4, 0xc3, 0xb2, 0xa1]] {
            assert_eq!(
                pcap(wrong, &[]).map_err(|error| error.why),
                Err("it is no pcap or pcapng file".to_owned())
            );
        }
        // A file that is cut off keeps its complete packets.
        let whole = file(&super::tests::packets());
        let capture = pcap(&whole[..whole.len() - 5], &[]).expect("it has requests");
        assert_eq!((capture.requests.len(), capture.skipped.count), (2, 1));
    }
}

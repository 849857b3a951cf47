//! Mistakes in faults: what is wrong with a value, and what makes no sense together.

use config::{ValueFault, examine, parse};

/// The mistakes of a file with this from line 4 on, a line each, without the file's name.
fn said(faults: &str) -> Vec<String> {
    let file = format!(
        "listen = [{{ address = \"127.0.0.1:8080\" }}, {{ address = \"127.0.0.1:1\", tcp = \"app\", name = \"bytes\" }}, \
         {{ address = \"unix:/a\", name = \"local\" }}]\n\
         route = [{{ name = \"api\", upstream = \"app\" }}, {{ name = \"old\", path = \"/old\", redirect = {{ to = \"/new\" }} }}]\nupstream.app.servers = [\"http://a\"]\n{faults}"
    );
    let mistakes = parse(&file, "f").err().unwrap_or_default();
    mistakes.iter().map(|mistake| mistake.to_string().replacen("f:", "", 1)).collect()
}

const WHAT: &str = "503 or another status, \"delay 200ms±50ms\", \"cut 10KB\", \"length +10\", bad-chunk, \"drip 100ms\", \
                    no-trailers, reset, goaway or \"connection reset\"";

const WHAT_OF_CONNECTIONS: &str = "connection reset, \"connection reset 500ms\" or \"10KB\", \"connection black-hole 5s\", \"connection \
                                   slow-start 2s\", \"connection slow-close 2s\", \"connection slice 100 10ms\", \"connection \
                                   limit 10KB\", \"connection half-open 10KB\", \"connection corrupt 1000\", connection \
                                   bad-handshake, connection refuse, \"connection datagrams lose\", \"datagrams \
                                   duplicate\" or \"datagrams delay 20ms\", with up, down or both behind it";

#[test]
fn mistakes() {
    let cases: &[(&str, &[&str])] = &[
        ("[[fault]]\nprobability = \"1%\"", &[&format!("4:1: [[fault]] has no inject; expected {WHAT}")]),
        (
            "[[fault]]\ninject = \"rset\"",
            &[&format!("5:10: inject: \"rset\" is not known here; did you mean \"reset\"? Expected {WHAT}")],
        ),
        (
            "[[fault]]\ninject = \"503\"\nprobability = \"5\"",
            &[
                "6:15: probability: \"5\" has no %; did you mean \"5%\"? Expected a share such as 1%, 0.5% or 100%",
            ],
        ),
        (
            "[[fault]]\ninject = \"connection rset\"",
            &[&format!(
                "5:10: inject: \"rset\" is not known here; did you mean \"reset\"? Expected {WHAT_OF_CONNECTIONS}"
            )],
        ),
        (
            "[[fault]]\ninject = \"connection reset\"\nlistener = \"bytes\"\npath = \"/a\"\nkey = \"header:X-Key\"",
            &[
                "5:10: inject: key with a part that is not the client applies to requests, but this fault \
                 affects connections; expected listener and clients, or another fault with it",
                "5:10: inject: path applies to requests, but this fault affects connections; expected \
                 listener and clients, or another fault with it",
            ],
        ),
        (
            "[[fault]]\ninject = \"connection refuse\"\nlistener = \"bytes\"\nfirst = 3\nprobability = \"1%\"",
            &[
                "5:10: inject: a listener refuses all connections or none, so probability has no effect; \
                 expected listener, from, until, repeat or expires with it, or \"connection reset\" of some \
                 connections",
                "5:10: inject: a listener refuses all connections or none, so first has no effect; expected \
                 listener, from, until, repeat or expires with it, or \"connection reset\" of some \
                 connections",
            ],
        ),
        (
            "[[fault]]\ninject = \"connection refuse\"\nclients = [\"10.0.0.0/8\"]\nclient_share = \"5%\"",
            &[
                "5:10: inject: a listener refuses all connections or none, so client_share has no effect; \
                 expected listener, from, until, repeat or expires with it, or \"connection reset\" of some \
                 connections",
                "5:10: inject: a listener refuses all connections or none, so clients has no effect; \
                 expected listener, from, until, repeat or expires with it, or \"connection reset\" of some \
                 connections",
            ],
        ),
        (
            "[[fault]]\ninject = \"connection refuse\"\nlistener = \"local\"",
            &[
                "6:12: listener: \"local\" is a Unix socket, which cannot refuse for a while; expected a listener of TCP, or \
                 \"connection reset\"",
            ],
        ),
        (
            "[[fault]]\ninject = \"connection bad-handshake\"\nlistener = \"bytes\"",
            &[
                "6:12: listener: \"bytes\" has no tls, so no handshake can fail there; expected a listener with tls, or \
                 \"connection reset\"",
            ],
        ),
        (
            "[[fault]]\ninject = \"connection datagrams lose\"",
            &["5:10: inject: no listener has http3, and only HTTP/3 has datagrams; expected a listener \
               with http3, or loss and latency of a listener"],
        ),
        (
            "[[fault]]\ninject = \"connection bad-handshake\"",
            &[
                "5:10: inject: no listener has tls, so no handshake can fail; expected a listener with tls, or \
                 \"connection reset\"",
            ],
        ),
        (
            "[[fault]]\ninject = \"no-trailers\"\nroute = [\"api\", \"old\"]",
            &[
                "6:17: route: \"old\" is answered without a server, so it never has trailers; expected a route with an \
                 upstream, or another fault",
            ],
        ),
        (
            "[[fault]]\ninject = \"503\"\nroute = \"apo\"",
            &["6:9: route: no route is named \"apo\"; did you mean \"api\"? Expected api or old"],
        ),
        (
            "[[fault]]\ninject = \"503\"\nlistener = \"bytes\"",
            &["6:12: listener: \"bytes\" has tcp, so routes do not apply to it; expected a listener \
               without tcp"],
        ),
        (
            "[[fault]]\ninject = \"503\"\nfrom = \"10s\"\nuntil = \"10s\"",
            &["7:9: until: 10s is not after from; expected more than 10s"],
        ),
        (
            "[[fault]]\ninject = \"503\"\nuntil = \"10s\"\nrepeat = \"5s\"",
            &["7:10: repeat: 5s ends before the fault does; expected at least 10s"],
        ),
        (
            "[[fault]]\ninject = \"503\"\nname = \"a\"\n[[fault]]\ninject = \"502\"\nname = \"a\"",
            &["9:8: name: \"a\" appears twice; expected a name other than the one in line 6"],
        ),
        (
            "[faults]\nheader = \"X-ValueFault\"",
            &["5:10: header: no client may use it; expected header_clients with a network such as \
               127.0.0.0/8"],
        ),
        (
            "[[fault]]\ninject = \"503\"\nfirst = 0",
            &["6:9: first: 0 is too small; expected a whole number, 1 to 1000000000"],
        ),
    ];
    for (faults, expected) in cases {
        assert_eq!(said(faults), *expected, "{faults}");
    }
}

#[test]
fn a_response_belongs_to_a_status_and_is_one_that_can_be_sent() {
    for (fault, expected) in [
        (
            "inject = \"reset\"\nresponse = { body = \"a\" }",
            "6:12: response: only an injected status has one; expected inject = \"503\", or another status",
        ),
        (
            "inject = \"204\"\nresponse = { body = \"a\" }",
            "6:21: body: a response with status 204 has no body; leave it out",
        ),
        (
            "inject = \"503\"\nresponse = { headers = { Content-Length = \"1\" } }",
            "6:26: headers: Content-Length cannot be edited: bodies are framed by the proxy",
        ),
        (
            "inject = \"503\"\nresponse = { headers = { Content-Type = \"a/b\" } }",
            "6:26: headers: Content-Type is a separate option; expected content_type",
        ),
        (
            "inject = \"503\"\nresponse = { grpc_status = 17 }",
            "6:28: grpc_status: 17 is too large; expected a whole number, 0 to 16",
        ),
    ] {
        assert_eq!(said(&format!("[[fault]]\n{fault}")), [expected], "{fault}");
    }
}

#[test]
fn a_fault_of_bytes_of_tcp_is_warned_of_where_clients_of_http3_come() {
    let warnings = |fault: &str| {
        let file = format!(
            "listen = [{{ address = \"127.0.0.1:8080\", name = \"plain\" }}, {{ address = \"127.0.0.1:8443\", name = \"web\", tls = {{ self_signed = true }}, http3 = true }}]\n\
             route = [{{ upstream = \"app\" }}]\nupstream.app.servers = [\"http://a\"]\n[[fault]]\ninject = \"connection {fault}\"\n"
        );
        let reading = examine(&file, "f");
        assert_eq!(reading.mistakes, [], "{fault}");
        reading.warnings.iter().filter(|warning| warning.to_string().contains("affects only TCP")).count()
    };
    for fault in
        ["slice 100", "corrupt 10", "limit 1KB", "half-open 1KB", "slow-close 1s", "reset 1s", "reset 10KB"]
    {
        assert_eq!(warnings(fault), 1, "{fault}");
        assert_eq!(warnings(&format!("{fault}\"\nlistener = \"web")), 1, "{fault}");
        assert_eq!(warnings(&format!("{fault}\"\nlistener = \"plain")), 0, "{fault}");
    }
    for fault in
        ["refuse", "bad-handshake", "black-hole", "black-hole 5s", "slow-start 1s", "reset", "datagrams lose"]
    {
        assert_eq!(warnings(fault), 0, "{fault}");
    }
}

#[test]
fn what_a_flag_has_is_refused_in_the_same_words() {
    let error = config::injection("1:503").unwrap_err();
    assert_eq!(
        error.fault,
        ValueFault::Unknown { written: "1".to_owned(), why: "has no %", nearest: Some("1%".to_owned()) }
    );
    assert!(config::injection("1%:503").is_ok());
}

//! Mistakes about services of Consul, and the messages about them.

use config::examine;

/// The mistakes and warnings of a file with these servers on line 3, a line each, without its name.
fn said(servers: &str, lines: &str) -> Vec<String> {
    let text = format!(
        "listen = [{{ address = \"127.0.0.1:8080\" }}]\nroute = [{{ upstream = \"app\" }}]\n\
         upstream.app.servers = [{servers}]\n{lines}"
    );
    let reading = examine(&text, "f");
    let line =
        |mistake: &config::Mistake, word| format!("{word}{}", mistake.to_string().replacen("f:", "", 1));
    let mistakes = reading.mistakes.iter().map(|mistake| line(mistake, ""));
    mistakes.chain(reading.warnings.iter().map(|warning| line(warning, "warning: "))).collect()
}

#[test]
fn services_and_how_consul_is_reached() {
    const SERVER: &str = "\"http+consul://web\"";
    const IN_THE_CLEAR: &str = "warning: 5:14: token_file: without TLS, an attacker on the network can read \
                                the token; expected an address with https://";
    for (servers, lines, expected) in [
        (SERVER, "", &[][..]),
        (SERVER, "consul.token_file = \"t\"", &[]),
        (
            SERVER,
            "[consul]\naddress = \"https://consul.example.com:8501\"\ntoken_file = \"t\"\nname = \"a.example\"",
            &[],
        ),
        (SERVER, "[consul]\ntoken_file = \"t\"\naddress = \"http://10.0.0.1:8500\"", &[IN_THE_CLEAR]),
        (
            SERVER,
            "[consul]\naddress = \"127.0.0.1:8500\"",
            &[
                "5:11: address: \"127.0.0.1:8500\" has no scheme; did you mean \"https://127.0.0.1:8500\"? Expected a URL \
               such as http://127.0.0.1:8500 or https://consul.example.com:8501",
            ],
        ),
        (
            SERVER,
            "[consul]\nca = \"a\"\ncert = \"b\"\nname = \"c.example\"",
            &[
                "5:6: ca: Consul is reached without TLS; expected an address with https://, or no ca",
                "6:8: cert needs key; expected the key as well",
                "6:8: cert: Consul is reached without TLS; expected an address with https://, or no cert",
                "7:8: name: Consul is reached without TLS; expected an address with https://, or no name",
            ],
        ),
        (
            "\"http://a\", \"https+consul://web\"",
            "",
            &["3:37: servers: the certificates of web need a name to be verified with; expected tls.name \
               as well: anyone who registers instances can choose their addresses, but not this name"],
        ),
        ("\"https+consul://web\"", "upstream.app.tls = { name = \"web.internal\" }", &[]),
        (
            "\"https+consul://web\"",
            "upstream.app.tls = { verify = false }",
            &["warning: 4:31: verify = false: an attacker on the network can read and change everything"],
        ),
        (
            "\"http+consul://web?near=a\"",
            "",
            &["3:25: servers: \"near=a\" is neither tag=TAG nor dc=DATACENTER; expected a service such as \
               http+consul://web?tag=v2&tag=eu&dc=eu-1, with up to 16 tags and a datacenter"],
        ),
        (
            "\"http+consul://web:80\"",
            "",
            &[
                "3:25: servers: a service takes no port: each of its servers has one, but 80 was given; expected a service \
               such as http+consul://web?tag=v2&tag=eu&dc=eu-1, with up to 16 tags and a datacenter",
            ],
        ),
        (
            "\"http://a\"",
            "[consul]\ntoken_file = \"t\"",
            &["warning: 5:14: [consul]: no upstream uses a service from Consul; expected servers such as \
               http+consul://web, or no [consul]"],
        ),
    ] {
        let mut found = said(servers, lines);
        found.sort();
        assert_eq!(found, expected, "{servers}\n{lines}");
    }
}

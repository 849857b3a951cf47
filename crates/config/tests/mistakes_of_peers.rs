//! Mistakes about instances that share a cache, and the messages about them.

use config::parse;

/// The minimum of every file, in one line each: the rest begins at line 4.
const FIRST: &str = "listen = [{ address = \"127.0.0.1:8080\" }]\nroute = [{ upstream = \"app\" }]\n\
                     upstream.app.servers = [\"http://127.0.0.1:9000\"]";

/// The mistakes of a file, a line each, without its name.
fn said(text: &str) -> Vec<String> {
    let mistakes = parse(text, "f").err().unwrap_or_default();
    mistakes.iter().map(|mistake| mistake.to_string().replacen("f:", "", 1)).collect()
}

#[test]
fn instances_that_share_a_cache() {
    let peers = |lines: &str| format!("{FIRST}\n[cache]\nmemory = \"1MiB\"\n[cache.peers]\n{lines}");
    let files = "ca = \"a\"\ncert = \"b\"\nkey = \"c\"";
    let expected = "expected a host with a port such as 10.0.0.1:7443 or edge-1.example.com:7443";
    let file = "expected the path of a file such as /etc/vanward/site.pem";
    for (text, mistakes) in [
        (
            peers("listen = \"10.0.0.1:7443\""),
            vec![
                format!("6:1: peers has no address; {expected}"),
                format!("6:1: peers has no ca; {file}"),
                format!("6:1: peers has no cert; {file}"),
                format!("6:1: peers has no key; {file}"),
            ],
        ),
        (
            peers(&format!(
                "listen = \"10.0.0.1:7443\"\naddress = \"10.0.0.1:7443\"\nmembers = [\"10.0.0.2:7443\", \"10.0.0.3\"]\n{files}"
            )),
            vec![format!("9:29: members: \"10.0.0.3\" has no port; {expected}")],
        ),
        (
            peers(&format!(
                "listen = \"127.0.0.1:8080\"\naddress = \"10.0.0.1:7443\"\nmembers = [\"10.0.0.2:7443\", \"10.0.0.2:7443\"]\n{files}"
            )),
            vec![
                "1:23: address: 127.0.0.1:8080 appears twice; expected an address other than the one in line \
                 7".to_owned(),
                "8:11: address: 10.0.0.1:7443 is not among the members; expected one of members".to_owned(),
                "9:29: members: 10.0.0.2:7443 appears twice; expected each instance once".to_owned(),
            ],
        ),
        (
            peers(&format!("listen = \"10.0.0.1:7443\"\naddress = \"10.0.0.1:7443\"\n{files}"))
                .replace("upstream.app", "upstream.cache-peers")
                .replace("\"app\"", "\"cache-peers\""),
            vec![
                "3:10: \"cache-peers\" is reserved for the instances in [cache.peers]; expected another name"
                    .to_owned(),
            ],
        ),
    ] {
        let mut found = said(&text);
        found.sort();
        assert_eq!(found, mistakes, "{text}");
    }
}

//! Stored responses as dictionaries for later ones (RFC 9842).

use testkit::http1::Http1Peer;
use testkit::scene::{BOTH, Scene, Spoken};

use super::{Answer, get, gets, text};

const ROUTE: &str = "[cache]\nmemory = \"64MiB\"\n[[route]]\nupstream = \"app\"\ncache = {}\n\
     compress = { dictionaries = [\"/app/*.js\"] }\n[upstream.app]\nservers = [\"http://{0}\"]\n";

/// A long script that differs little between versions. It begins unlike those of other tests, so that coding it without
/// the dictionary gives a much longer result.
fn script(version: u32) -> String {
    let line = |number: u32| format!("export const f{number} = {};\n", number.wrapping_mul(2_654_435_761));
    let lines: String = (0..2000).map(line).collect();
    format!("// version {version}\n{lines}{}", text(100))
}

fn fetch(scene: &Scene, spoken: Spoken, target: &str, fields: &str, served: Option<(&str, &str)>) -> Answer {
    let mut client = scene.client(spoken).asking(&get(target, fields));
    if let Some((fields, body)) = served {
        let mut server: Http1Peer = scene.accept(0);
        server.head();
        server.sends(format!(
            "HTTP/1.1 200 OK\r\nCache-Control: max-age=3600\r\nContent-Type: text/javascript\r\n{fields}Connection: close\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        ));
    }
    gets(&mut client)
}

fn digest(body: &str) -> (Vec<u8>, String) {
    use base64::Engine;
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, body.as_bytes()).as_ref().to_vec();
    let text = base64::engine::general_purpose::STANDARD.encode(&digest);
    (digest, format!(":{text}:"))
}

#[test]
fn a_later_version_is_coded_with_the_earlier_one() {
    for spoken in BOTH {
        let scene = Scene::new(ROUTE);
        let (one, two) = (script(1), script(2));
        let first = fetch(&scene, spoken, "/app/1.js", "accept-encoding: gzip, br, zstd\n", Some(("", &one)));
        assert_eq!(first.field("content-encoding"), Some("zstd"), "{spoken:?}");
        assert_eq!(first.field("use-as-dictionary"), Some("match=\"/app/*.js\""));
        assert_eq!(first.all("vary"), ["Accept-Encoding", "Available-Dictionary"]);
        let (sha, known) = digest(&one);
        for (accepted, coding, magic) in [
            ("gzip, br, zstd, dcb, dcz", "dcz", &b"\x5e\x2a\x4d\x18\x20\0\0\0"[..]),
            ("gzip, br, dcb", "dcb", b"\xff\x44\x43\x42"),
        ] {
            let fields = format!("accept-encoding: {accepted}\navailable-dictionary: {known}\n");
            for served in [None, Some(("", &*two))]
                .into_iter()
                .rev()
                .filter(|served| coding == "dcz" || served.is_none())
            {
                let later = fetch(&scene, spoken, "/app/2.js", &fields, served);
                assert_eq!(later.field("content-encoding"), Some(coding), "{spoken:?} {accepted}");
                assert_eq!(later.all("vary"), ["Accept-Encoding", "Available-Dictionary"]);
                assert_eq!(later.body[..magic.len()], *magic);
                assert_eq!(later.body[magic.len()..magic.len() + 32], sha[..]);
                assert!(later.body.len() < 400, "{coding}: {} of {}", later.body.len(), two.len());
            }
        }
        // Clients with another dictionary, or without a dictionary coding, get the usual codings.
        let (_, other) = digest("another");
        for fields in [
            format!("accept-encoding: zstd, dcz\navailable-dictionary: {other}\n"),
            format!("accept-encoding: zstd\navailable-dictionary: {known}\n"),
            "accept-encoding: zstd, dcz\navailable-dictionary: nonsense\n".to_owned(),
        ] {
            let answer = fetch(&scene, spoken, "/app/2.js", &fields, None);
            assert_eq!(answer.field("content-encoding"), Some("zstd"), "{fields}");
            assert_eq!(answer.decoded(), two.as_bytes());
        }
    }
}

#[test]
fn a_server_may_say_itself_what_is_a_dictionary() {
    let scene = Scene::new(ROUTE);
    let (one, two) = (script(1), script(2));
    let said = "Use-As-Dictionary: match=\"/x/*\"\r\n";
    let first = fetch(&scene, Spoken::Http1, "/x/1", "accept-encoding: dcz, zstd\n", Some((said, &one)));
    assert_eq!(first.all("use-as-dictionary"), ["match=\"/x/*\""]);
    let fields = format!("accept-encoding: dcz, zstd\navailable-dictionary: {}\n", digest(&one).1);
    let later = fetch(&scene, Spoken::Http1, "/x/2", &fields, Some(("", &two)));
    assert_eq!(later.field("content-encoding"), Some("dcz"));
    // A response that is neither declared nor matches a pattern is not a dictionary.
    let scene = Scene::new(ROUTE);
    fetch(&scene, Spoken::Http1, "/x/1", "accept-encoding: dcz, zstd\n", Some(("", &one)));
    let later = fetch(&scene, Spoken::Http1, "/x/2", &fields, Some(("", &two)));
    assert_eq!(later.field("content-encoding"), Some("zstd"));
}

/// A site's dictionary is not used for another site.
#[test]
fn a_dictionary_is_of_its_origin() {
    let scene = Scene::new(ROUTE);
    let (one, two) = (script(1), script(2));
    fetch(&scene, Spoken::Http1, "/app/1.js", "accept-encoding: dcz, zstd\n", Some(("", &one)));
    let fields = format!("accept-encoding: dcz, zstd\navailable-dictionary: {}\n", digest(&one).1);
    let mut client = scene.client(Spoken::Http1);
    client.asks(&testkit::scene::BodylessRequest { host: "other", ..get("/app/2.js", &fields) });
    let mut server = scene.accept(0).after_head();
    server.sends(format!(
        "HTTP/1.1 200 OK\r\nCache-Control: max-age=3600\r\nContent-Type: text/javascript\r\nContent-Length: {}\r\n\r\n{two}",
        two.len()
    ));
    assert_eq!(gets(&mut client).field("content-encoding"), Some("zstd"));
}

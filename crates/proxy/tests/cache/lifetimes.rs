//! Lifetimes of stored responses by condition, and conditions of the cache on users.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use testkit::scene::{BOTH, BodylessRequest, Scene, Spoken, get};

const ROUTES: &str = r#"
[cache]
memory = "64MiB"
[[route]]
upstream = "app"
[route.cache]
ttl = "10m"
rules = [
  { when = 'response.status == 404 && request.path.startsWith("/long")', ttl = "1h" },
  { when = 'response.headers["x-store"] == "no" || (response.size ?? 0) > 100', ttl = "0s" },
  { when = 'response.status >= 500', ttl = "2h" },
]
[upstream.app]
servers = ["http://{0}"]
"#;

fn response(status: &str, fields: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nConnection: close\r\n{fields}Content-Length: {}\r\n\r\n{body}", body.len())
}

/// The lifetime of a stored response, as Cache-Status says; `None` if there is none.
fn stored(scene: &Scene, spoken: Spoken, request: &BodylessRequest<'_>) -> Option<u64> {
    let fields = format!("{}cache-control: only-if-cached\n", request.fields);
    let got = scene.answer(spoken, &BodylessRequest { fields: &fields, ..*request });
    let status = got.field("cache-status")?;
    let ttl = status.split("; ").find_map(|part| part.strip_prefix("ttl="))?;
    status.contains("; hit").then(|| ttl.parse().expect("is a number"))
}

/// The lifetime of a stored response after a server has answered.
fn brought(scene: &Scene, spoken: Spoken, request: &BodylessRequest<'_>, answer: &str) -> Option<u64> {
    scene.exchange(spoken, request, answer);
    stored(scene, spoken, request)
}

#[test]
fn the_first_rule_that_holds_sets_the_lifetime() {
    for spoken in BOTH {
        let scene = Scene::new(ROUTES);
        for (target, status, fields, body, expected) in [
            ("/a", "200 OK", "", "ok", Some(500..=600)),
            ("/b", "404 Not Found", "", "no", Some(500..=600)),
            ("/long", "404 Not Found", "X-Store: no\r\n", "no", Some(3000..=3600)),
            ("/c", "200 OK", "X-Store: no\r\n", "ok", None),
            ("/d", "200 OK", "", &*"x".repeat(101), None),
            // A status that is not cacheable by default.
            ("/e", "500 Broken", "", "bad", Some(7000..=7200)),
            // What the response forbids is not stored, whatever a rule says.
            ("/f", "500 Broken", "Cache-Control: no-store\r\n", "bad", None),
        ] {
            let found = brought(&scene, spoken, &get(target), &response(status, fields, body));
            let is_expected = match (&expected, found) {
                (Some(range), Some(found)) => range.contains(&found),
                (None, None) => true,
                _ => false,
            };
            assert!(is_expected, "{spoken:?} {target}: {found:?}, expected {expected:?}");
        }
    }
}

/// Each variant has the lifetime of its response.
#[test]
fn variants_have_their_own_lifetimes() {
    for spoken in BOTH {
        let scene = Scene::new(
            "[cache]\nmemory = \"64MiB\"\n[[route]]\nupstream = \"app\"\n\
             cache = { rules = { when = 'response.headers[\"content-language\"] == \"de\"', ttl = \"2h\" }, default_ttl = \"10m\" }\n\
             [upstream.app]\nservers = [\"http://{0}\"]\n",
        );
        for (language, range) in [("de", 7000..=7200), ("en", 500..=600), ("de", 7000..=7200)] {
            let fields = format!("Vary: Accept-Language\r\nContent-Language: {language}\r\n");
            let answer = response("200 OK", &fields, language);
            let asked = format!("accept-language: {language}\n");
            let known = BodylessRequest { fields: &asked, ..get("/") };
            let found = stored(&scene, spoken, &known).or_else(|| brought(&scene, spoken, &known, &answer));
            assert!(found.is_some_and(|found| range.contains(&found)), "{spoken:?} {language}: {found:?}");
        }
    }
}

/// A 304 gives a stored response the lifetime of its rule again.
#[test]
fn a_validated_response_has_the_lifetime_of_its_rule() {
    let scene = Scene::new(
        "[cache]\nmemory = \"64MiB\"\n[[route]]\nupstream = \"app\"\n\
         cache = { rules = { when = 'response.status == 200 && response.headers[\"x-long\"] == \"yes\"', ttl = \"1h\" } }\n\
         [upstream.app]\nservers = [\"http://{0}\"]\n",
    );
    let first = response("200 OK", "ETag: \"a\"\r\nCache-Control: max-age=0\r\n", "ok");
    scene.exchange(Spoken::Http1, &get("/"), &first);
    let validated = "HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\nX-Long: yes\r\nConnection: close\r\n\r\n";
    let (seen, got) = scene.exchange(Spoken::Http1, &get("/"), validated);
    assert!(seen.to_lowercase().contains("if-none-match: \"a\""), "{seen}");
    assert_eq!((got.status, got.body.as_str()), (200, "ok"));
    let ttl = stored(&scene, Spoken::Http1, &get("/"));
    assert!(ttl.is_some_and(|ttl| (3000..=3600).contains(&ttl)), "{ttl:?}");
}

#[test]
fn a_condition_on_the_user_decides_after_authentication() {
    const USERS: &str = "me:$2b$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW\n\
                         you:$2b$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW\n";
    let text = "[cache]\nmemory = \"64MiB\"\n[[route]]\nupstream = \"app\"\nauth = { users = \"{dir}/users\" }\n\
                cache = { when = 'client.user != \"me\"', ttl = \"1h\" }\n\
                response_headers = { when = 'cache.status == \"hit\"', set = { X-Hit = \"1\" } }\n\
                [upstream.app]\nservers = [\"http://{0}\"]\n";
    for spoken in BOTH {
        let scene = Scene::with_files(&[("users", USERS)], text);
        let fields = |user: &str| {
            format!("authorization: Basic {}\n", BASE64_STANDARD.encode(format!("{user}:secret")))
        };
        let (me, you) = (fields("me"), fields("you"));
        let ask = |fields: &str, body: &str| {
            let asked = BodylessRequest { fields, ..get("/") };
            scene.exchange(spoken, &asked, &response("200 OK", "", body)).1.body
        };
        assert_eq!(ask(&me, "one"), "one", "{spoken:?}");
        assert_eq!(ask(&you, "stored"), "stored", "{spoken:?}: nothing was stored");
        let got = scene.answer(spoken, &BodylessRequest { fields: &you, ..get("/") });
        assert_eq!((got.body.as_str(), got.field("x-hit")), ("stored", Some("1")), "{spoken:?}");
        assert_eq!(ask(&me, "two"), "two", "{spoken:?}: the cache is not for this user");
    }
}

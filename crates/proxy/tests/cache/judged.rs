//! Each response is judged separately: earlier responses for the same URL, or for other clients, do not keep it out of
//! the store.

use testkit::scene::{BOTH, BodylessRequest, Got, Scene, Spoken, get};
use testkit::wait::assert_soon;

use super::answered::{ONE_ROUTE, response};

const FRESH: &str = "Cache-Control: max-age=60\r\n";

pub(crate) fn is_hit(got: &Got) -> bool {
    got.field("cache-status").is_some_and(|status| status.starts_with("vanward; hit"))
}

/// Repeats a request until its response is stored.
pub(crate) fn comes_to_be_stored(scene: &Scene, spoken: Spoken, request: &BodylessRequest<'_>) {
    let fields = format!("{}cache-control: only-if-cached\n", request.fields);
    assert_soon("it is not stored", || {
        scene.answer(spoken, &BodylessRequest { fields: &fields, ..*request }).status != 504
    });
}

#[test]
fn the_first_storable_answer_behind_one_that_is_not_is_stored() {
    for spoken in BOTH {
        for (for_one, answer) in [
            ("authorization: Basic eDp5\n", FRESH),
            ("cookie: sid=1\n", "Cache-Control: private\r\n"),
            ("cookie: sid=1\n", "Cache-Control: no-store\r\n"),
            ("", "Cache-Control: max-age=60\r\nSet-Cookie: sid=1\r\n"),
            ("x-kind: a\n", "Cache-Control: max-age=60\r\nVary: *\r\n"),
            ("x-kind: a\n", ""),
        ] {
            let scene = Scene::new(ONE_ROUTE);
            let asked = BodylessRequest { fields: for_one, ..get("/a") };
            // The mark of a refused response, and a second one.
            for _ in 0..2 {
                let (_, got) = scene.exchange(spoken, &asked, &response(answer, "one"));
                assert!(!is_hit(&got) && got.body == "one", "{for_one}{answer}: {got:?}");
            }
            let (_, got) = scene.exchange(spoken, &get("/a"), &response(FRESH, "all"));
            assert_eq!(
                (
                    got.body.as_str(),
                    got.field("cache-status").is_some_and(|status| status.contains("; stored"))
                ),
                ("all", true),
                "{for_one}{answer}"
            );
            comes_to_be_stored(&scene, spoken, &get("/a"));
            assert_eq!(scene.answer(spoken, &get("/a")).body, "all");
            assert!(scene.try_accept(0).is_none());
        }
    }
}

#[test]
fn what_is_for_one_is_not_stored_however_often_it_comes() {
    let scene = Scene::new(ONE_ROUTE);
    for (fields, answer) in [
        ("authorization: Basic eDp5\n", FRESH),
        ("", "Cache-Control: private, max-age=60\r\n"),
        ("", "Cache-Control: max-age=60\r\nSet-Cookie: sid=1\r\n"),
        ("range: bytes=0-\n", "Cache-Control: private, max-age=60\r\n"),
        ("cache-control: no-store\n", FRESH),
    ] {
        for _ in 0..3 {
            let (_, got) = scene.exchange(
                Spoken::Http1,
                &BodylessRequest { fields, ..get("/a") },
                &response(answer, "one"),
            );
            assert!(
                !got.field("cache-status").is_some_and(|status| status.contains("stored")),
                "{fields}{answer}: {got:?}"
            );
        }
    }
    let fields = "cache-control: only-if-cached\n";
    assert_eq!(scene.answer(Spoken::Http1, &BodylessRequest { fields, ..get("/a") }).status, 504);
}

#[test]
fn a_whole_that_answers_a_request_for_a_range_is_stored() {
    for spoken in BOTH {
        let scene = Scene::new(ONE_ROUTE);
        let of = |fields| BodylessRequest { fields, ..get("/a") };
        let (sent, got) = scene.exchange(spoken, &of("range: bytes=2-4\n"), &response(FRESH, "0123456789"));
        assert!(sent.to_ascii_lowercase().contains("range: bytes=2-4"), "{sent}");
        // RFC 9110 §14.2: the cache may cut a range that the server has ignored.
        assert_eq!((got.status, got.body.as_str()), (206, "234"));
        assert_eq!(got.field("content-range"), Some("bytes 2-4/10"));
        comes_to_be_stored(&scene, spoken, &get("/a"));
        for (fields, status, body) in
            [("range: bytes=7-\n", 206, "789"), ("", 200, "0123456789"), ("range: bytes=10-\n", 416, "")]
        {
            let got = scene.answer(spoken, &of(fields));
            assert_eq!((got.status, got.body.as_str()), (status, body), "{fields}");
        }
    }
}

#[test]
fn a_part_of_nobody_knows_how_much_is_stored_as_one() {
    for spoken in BOTH {
        let scene = Scene::new(ONE_ROUTE);
        let of = |fields| BodylessRequest { fields, ..get("/a") };
        let answer = "HTTP/1.1 206 Partial Content\r\nContent-Length: 5\r\nContent-Range: bytes 10-14/*\r\n\
                      ETag: \"a\"\r\nCache-Control: max-age=60\r\n\r\nabcde";
        let (_, got) = scene.exchange(spoken, &of("range: bytes=10-14\n"), answer);
        assert_eq!(
            (got.status, got.body.as_str(), got.field("content-range")),
            (206, "abcde", Some("bytes 10-14/*"))
        );
        comes_to_be_stored(&scene, spoken, &of("range: bytes=10-14\n"));
        let got = scene.answer(spoken, &of("range: bytes=11-12\n"));
        assert_eq!(
            (got.status, got.body.as_str(), got.field("content-range")),
            (206, "bc", Some("bytes 11-12/*"))
        );
        // The length is unknown.
        let (_, got) =
            scene.exchange(spoken, &of("range: bytes=11-\n"), &response("", "0123456789abcdefghij"));
        assert_eq!(got.status, 200);
    }
}

#[test]
fn the_cookie_of_a_session_goes_to_its_client_and_the_response_into_the_store() {
    for spoken in BOTH {
        let scene = Scene::new(&format!("{ONE_ROUTE}sticky = {{ by = \"cookie\" }}\n"));
        let fields = "Cache-Control: public, max-age=60\r\n";
        let (_, got) = scene.exchange(spoken, &get("/a"), &response(fields, "all"));
        assert!(got.field("set-cookie").is_some_and(|cookie| cookie.starts_with("vanward_app=")), "{got:?}");
        comes_to_be_stored(&scene, spoken, &get("/a"));
        let got = scene.answer(spoken, &get("/a"));
        assert_eq!((got.body.as_str(), got.field("set-cookie")), ("all", None));
        // A cookie from the server is a different case.
        let (_, got) = scene.exchange(
            spoken,
            &get("/b"),
            &response("Cache-Control: max-age=60\r\nSet-Cookie: a=b\r\n", "one"),
        );
        assert_eq!(got.all("set-cookie").len(), 2, "{got:?}");
        let fields = "cache-control: only-if-cached\n";
        assert_eq!(scene.answer(spoken, &BodylessRequest { fields, ..get("/b") }).status, 504);
    }
}

/// The user `x` with the password `y`.
const USERS: (&str, &str) = ("users", "x:$5$salt$2Nzqo2UdTsbUHzzG.2hY9Z90ZDzHuXDYApV9U9gChM9\n");
const SIGNED_IN: &str = "authorization: Basic eDp5\n";

fn scene_with_password(route: &str) -> Scene {
    let cached = format!("cache = {{}}\nauth = {{ users = \"{{dir}}/users\" }}\n{route}");
    Scene::with_files(&[USERS], &ONE_ROUTE.replace("cache = {}", &cached))
}

#[test]
fn what_a_route_asks_a_password_for_is_stored_for_all_who_have_one() {
    for spoken in BOTH {
        let scene = scene_with_password("");
        let asked = BodylessRequest { fields: SIGNED_IN, ..get("/a") };
        let (sent, got) = scene.exchange(spoken, &asked, &response(FRESH, "all"));
        assert_eq!(got.body, "all");
        assert!(!sent.to_ascii_lowercase().contains("authorization"), "{sent}");
        comes_to_be_stored(&scene, spoken, &asked);
        assert!(is_hit(&scene.answer(spoken, &asked)));
        assert_eq!(scene.answer(spoken, &get("/a")).status, 401);
        // The server must also judge unsafe requests.
        let (sent, _) =
            scene.exchange(spoken, &BodylessRequest { method: "DELETE", ..asked }, &response("", "gone"));
        assert!(sent.to_ascii_lowercase().contains("authorization: basic edp5"), "{sent}");
    }
}

#[test]
fn what_a_server_is_told_the_user_for_is_not_stored() {
    let scene = scene_with_password("request_headers = { set = { \"X-User\" = \"$user\" } }");
    let asked = BodylessRequest { fields: SIGNED_IN, ..get("/a") };
    for _ in 0..2 {
        let (sent, got) = scene.exchange(Spoken::Http1, &asked, &response(FRESH, "of x"));
        assert!(sent.contains("X-User: x"), "{sent}");
        assert!(got.field("cache-status").is_some_and(|status| status.contains("authorization")), "{got:?}");
    }
}

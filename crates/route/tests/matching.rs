//! The route of a request, with every kind of condition; the table and its explanation agree.

use std::net::IpAddr;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use proptest::prelude::*;
use route::{
    BytePattern, ClaimRules, Condition, HostRule, NoFields, PathRule, RequestFacts, RequestParts, RouteRule,
    RouteTable, RuleOutcome, TokenSource, ValueRule,
};

fn pattern(text: &str) -> BytePattern {
    BytePattern::new(text).unwrap()
}

fn exact(text: &str) -> PathRule {
    PathRule::Exact(text.to_owned())
}

fn prefix(text: &str) -> PathRule {
    PathRule::Prefix(text.to_owned())
}

fn named(name: &str, rule: ValueRule) -> (String, ValueRule) {
    (name.to_owned(), rule)
}

fn value(text: &str) -> ValueRule {
    ValueRule::Exact(text.to_owned())
}

const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7));

fn get<'a>(host: &'a str, path: &'a str) -> RequestParts<'a, NoFields> {
    RequestParts {
        listener: 0,
        host: host.as_bytes(),
        path: path.as_bytes(),
        query: None,
        method: b"GET",
        client: CLIENT,
        fields: &NoFields,
        conditions: &route::NoConditions,
    }
}

#[test]
fn paths_exact_then_patterns_then_the_longest_prefix() {
    let paths = [
        prefix("/"),
        PathRule::Pattern(pattern(r"/files/.*\.jpg")),
        exact("/files/a.jpg"),
        PathRule::Pattern(pattern("/files/(private|secret)/.*")),
        prefix("/files/private/thumbs"),
        exact("/files/"),
        PathRule::Pattern(pattern("/")),
    ];
    let table = RouteTable::compile(
        paths.into_iter().map(|path| RouteRule { path, ..RouteRule::default() }).collect(),
    );
    for (path, route) in [
        ("/files/a.jpg", 2),
        ("/files//%61.jpg", 2),
        ("/files/b.jpg", 1),
        ("/files/private/b.jpg", 1),
        ("/files/private/b.png", 3),
        ("/files/%70rivate/b.png", 3),
        ("/files/private/b\n.png", 3),
        ("/files/private/thumbs/b.png", 3),
        ("/files/private%2Fb.png", 3),
        ("/files/private", 0),
        ("/files/", 5),
        ("/files", 0),
        ("/", 6),
        ("", 6),
        ("*", 0),
        ("/caf\u{e9}", 0),
    ] {
        assert_eq!(table.choose(&get("a.example", path)), Some(route), "{path:?}");
        assert_eq!(table.find(b"a.example", path.as_bytes()), Some(route), "{path:?}");
    }
    assert!(table.depends_on_path());
    let long = format!("/files/{}%61.jpg", "x".repeat(5000));
    assert_eq!(table.choose(&get("a.example", &long)), Some(1));
}

#[test]
fn other_conditions_come_after_host_and_path() {
    let rules = vec![
        RouteRule::default(),
        RouteRule { methods: vec!["POST".to_owned(), "PUT".to_owned()], ..RouteRule::default() },
        RouteRule { methods: vec!["POST".to_owned()], ..RouteRule::default() },
        RouteRule { headers: vec![named("X-Beta", ValueRule::Present)], ..RouteRule::default() },
        RouteRule { headers: vec![named("x-beta", value("1"))], ..RouteRule::default() },
        RouteRule {
            headers: vec![named("x-beta", value("1")), named("x-who", ValueRule::Present)],
            ..RouteRule::default()
        },
        RouteRule { query: vec![named("v", ValueRule::Prefix("2 ".to_owned()))], ..RouteRule::default() },
        RouteRule { query: vec![named("v", ValueRule::Pattern(pattern(r"\d\+")))], ..RouteRule::default() },
        RouteRule { clients: vec!["192.0.2.0/24".parse().unwrap()], ..RouteRule::default() },
        RouteRule { clients: vec!["192.0.2.0/28".parse().unwrap()], ..RouteRule::default() },
        RouteRule {
            clients: vec!["192.0.2.7/32".parse().unwrap(), "10.0.0.0/8".parse().unwrap()],
            ..RouteRule::default()
        },
        RouteRule { listeners: vec![2, 3, 2], path: prefix("/a"), ..RouteRule::default() },
        RouteRule { path: prefix("/a"), methods: vec!["HEAD".to_owned()], ..RouteRule::default() },
    ];
    let table = RouteTable::compile(rules);
    let none: &[(&str, &str)] = &[];
    for (listener, method, path, query, client, fields, route) in [
        (0, "GET", "/", None, "198.51.100.1", none, 0),
        (0, "PUT", "/", None, "198.51.100.1", none, 1),
        (0, "POST", "/", None, "198.51.100.1", none, 2),
        (0, "post", "/", None, "198.51.100.1", none, 0),
        (0, "GET", "/", None, "198.51.100.1", &[("X-BETA", "")], 3),
        (0, "GET", "/", None, "198.51.100.1", &[("x-beta", "0"), ("X-Beta", "1")], 4),
        (0, "GET", "/", None, "198.51.100.1", &[("x-who", "me"), ("X-Beta", "1")], 5),
        (0, "PUT", "/", None, "198.51.100.1", &[("x-beta", "1")], 1),
        (0, "GET", "/", Some("v=2+x"), "198.51.100.1", none, 6),
        (0, "GET", "/", Some("w=1&%76=2%20"), "198.51.100.1", none, 6),
        (0, "GET", "/", Some("v=2%2B"), "198.51.100.1", none, 7),
        (0, "GET", "/", Some("v=2"), "198.51.100.1", none, 0),
        (0, "GET", "/", None, "192.0.2.99", none, 8),
        (0, "GET", "/", None, "192.0.2.7", none, 9),
        (0, "GET", "/", None, "::ffff:192.0.2.7", none, 9),
        (0, "GET", "/", None, "10.9.9.9", none, 10),
        (0, "GET", "/", None, "2001:db8::1", none, 0),
        (0, "GET", "/a", None, "198.51.100.1", none, 0),
        (0, "HEAD", "/a", None, "198.51.100.1", none, 12),
        (2, "HEAD", "/a", None, "198.51.100.1", none, 11),
        (3, "GET", "/a/b", None, "198.51.100.1", none, 11),
        (3, "GET", "/b", None, "198.51.100.1", none, 0),
        (4, "GET", "/a/b", None, "198.51.100.1", none, 0),
    ] {
        let request = RequestParts {
            listener,
            host: b"a.example",
            path: path.as_bytes(),
            query: query.map(str::as_bytes),
            method: method.as_bytes(),
            client: client.parse().unwrap(),
            fields,
            conditions: &route::NoConditions,
        };
        let explanation = table.explain(&request);
        assert_eq!(table.choose(&request), Some(route), "{explanation}");
        assert_eq!(explanation.route, Some(route), "{explanation}");
    }
    assert_eq!(table.find(b"a.example", b"/a"), Some(0), "rules that ask for more are passed over");
}

/// A table with a shortcut for the most common case.
#[test]
fn one_route_for_every_request_and_others_that_ask_for_more() {
    let post = RouteRule { methods: vec!["POST".to_owned()], ..RouteRule::default() };
    let own = RouteRule { listeners: vec![0], ..RouteRule::default() };
    for (rules, get_route, post_route, elsewhere) in [
        (vec![RouteRule::default()], Some(0), Some(0), Some(0)),
        (vec![RouteRule::default(), RouteRule::default()], Some(0), Some(0), Some(0)),
        (vec![RouteRule::default(), post.clone()], Some(0), Some(1), Some(0)),
        (vec![post.clone()], None, Some(0), None),
        (vec![RouteRule::default(), own.clone()], Some(1), Some(1), Some(0)),
        (vec![own], Some(0), Some(0), None),
        (vec![], None, None, None),
    ] {
        let table = RouteTable::compile(rules);
        let request = get("a.example", "/");
        assert_eq!(table.choose(&request), get_route);
        assert_eq!(table.choose(&RequestParts { method: b"POST", ..request }), post_route);
        assert_eq!(table.choose(&RequestParts { listener: 1, ..request }), elsewhere);
        assert!(!table.depends_on_path());
    }
}

/// An empty path is the root (RFC 9110 §4.2.3), for the table and for its explanation.
#[test]
fn an_empty_path_starts_with_the_text_of_the_root() {
    let path = PathRule::TextPrefix("/".to_owned());
    let table = RouteTable::compile(vec![RouteRule { path, ..RouteRule::default() }]);
    for path in ["", "/", "/x"] {
        let request = get("a.example", path);
        assert_eq!((table.choose(&request), table.explain(&request).route), (Some(0), Some(0)), "{path}");
    }
}

#[test]
fn an_explanation_lists_the_tested_rules() {
    let table = RouteTable::compile(vec![
        RouteRule::default(),
        RouteRule {
            host: HostRule::from_text("*.example.com"),
            path: prefix("/api"),
            ..RouteRule::default()
        },
        RouteRule {
            host: HostRule::from_text("www.example.com"),
            methods: vec!["POST".to_owned()],
            headers: vec![named("X-Key", value("secret"))],
            query: vec![named("q", ValueRule::Pattern(pattern("a+")))],
            clients: vec!["10.0.0.0/8".parse().unwrap()],
            listeners: vec![1],
            ..RouteRule::default()
        },
        RouteRule { path: exact("/api/x"), ..RouteRule::default() },
        RouteRule::default(),
    ]);
    let fields = [("x-key", "wrong"), ("X-Key", "o\u{7}ther")];
    let request =
        RequestParts { query: Some(b"q=b&q=%0a"), ..get("WWW.example.com.", "/api//x").with(&fields) };
    assert_eq!(
        table.explain(&request).to_string(),
        "route 3 (www.example.com /): no: wants listener 2, found 1; wants method POST, found GET; \
         wants header X-Key = secret, found wrong, o\\x07ther; wants parameter q ~ a+, found b, \\n; \
         wants client in 10.0.0.0/8, found 192.0.2.7\n\
         route 2 (*.example.com /api): taken\n\
         route 4 (* = /api/x): holds as well, but after route 2: the host *.example.com comes before *\n\
         route 1 (* /): holds as well, but after route 2: the host *.example.com comes before *\n\
         route 5 (* /): holds as well, but after route 2: the host *.example.com comes before *\n\
         The request takes route 2."
    );
    let explanation = table.explain(&get("", "/x"));
    assert_eq!(explanation.route, Some(0));
    let RuleOutcome::Missed(misses) = &explanation.steps[1].outcome else { panic!("{explanation}") };
    assert_eq!(
        misses.iter().map(|miss| miss.condition).collect::<Vec<_>>(),
        [Condition::Host, Condition::Path]
    );
    assert_eq!(misses[0].found, "(empty)");
    assert!(explanation.to_string().contains("neither is more specific, and that one is written first"));
    let nothing = RouteTable::compile(vec![RouteRule { path: exact("/a"), ..RouteRule::default() }]);
    assert_eq!(
        nothing.explain(&get("", "/b")).to_string(),
        "route 1 (* = /a): no: wants path = /a, found /b\nNo route holds for the request."
    );
}

trait With<'a> {
    fn with<F: ?Sized>(self, fields: &'a F) -> RequestParts<'a, F>;
}

impl<'a> With<'a> for RequestParts<'a, NoFields> {
    fn with<F: ?Sized>(self, fields: &'a F) -> RequestParts<'a, F> {
        let RequestParts { listener, host, path, query, method, client, .. } = self;
        RequestParts { listener, host, path, query, method, client, fields, conditions: &route::NoConditions }
    }
}

fn hosts() -> impl Strategy<Value = HostRule> {
    prop_oneof![
        Just(HostRule::Any),
        "[ab](\\.[ab]){0,2}".prop_map(HostRule::Exact),
        "[ab](\\.[ab]){0,1}".prop_map(HostRule::Below),
        prop::sample::select(vec![".*", "a.*", ".*b", "[ab]\\.[ab]"])
            .prop_map(|text| HostRule::Pattern(pattern(text))),
    ]
}

fn paths() -> impl Strategy<Value = PathRule> {
    prop_oneof![
        "(/[ab]{0,2}){1,3}".prop_map(PathRule::Exact),
        "(/[ab]{0,2}){1,3}".prop_map(PathRule::Prefix),
        "(/[ab]{0,2}){1,3}".prop_map(PathRule::TextPrefix),
        prop::sample::select(vec![".*", "/a.*", ".*b", "/[ab]/.*", "/b+", "/a/?.*"])
            .prop_map(|text| PathRule::Pattern(pattern(text))),
    ]
}

fn values() -> impl Strategy<Value = ValueRule> {
    prop_oneof![
        Just(ValueRule::Present),
        "[ab]{0,2}".prop_map(ValueRule::Exact),
        "[ab]{0,1}".prop_map(ValueRule::Prefix),
        Just(ValueRule::Pattern(pattern("a*b"))),
    ]
}

/// A token with these claims and an invalid signature.
fn token(claims: &str) -> String {
    let encode = |text: &str| URL_SAFE_NO_PAD.encode(text);
    format!("{}.{}.{}", encode("{\"alg\":\"ES256\"}"), encode(claims), encode("signed"))
}

#[test]
fn claims_of_a_token_decide() {
    let of = |name: &str, rule| ClaimRules {
        from: TokenSource::Bearer,
        token_bytes_max: 200,
        values: vec![named(name, rule)],
    };
    let table = RouteTable::compile(vec![
        RouteRule::default(),
        RouteRule { claims: of("plan", ValueRule::Present), ..RouteRule::default() },
        RouteRule { claims: of("plan", value("gold")), ..RouteRule::default() },
        RouteRule { claims: of("realm.roles", value("admin")), ..RouteRule::default() },
    ]);
    let long = "x".repeat(200);
    for (claims, route) in [
        (r#"{"plan":"gold"}"#, 2),
        (r#"{"plan":"tin"}"#, 1),
        (r#"{"plan":null}"#, 1),
        (r#"{"plan":["tin","gold"]}"#, 2),
        (r#"{"realm":{"roles":["user","admin"]}}"#, 3),
        (r#"{"realm":{"roles":["user"]}}"#, 0),
        (r#"{"plan":"gold","plan":"tin"}"#, 0),
        (r#"["plan"]"#, 0),
        (&format!("{{\"plan\":\"gold\",\"x\":\"{long}\"}}"), 0),
    ] {
        let fields = [("Authorization", format!("bearer {}", token(claims)))];
        let of = |fields: &[(&str, String)]| {
            let RequestParts { listener, host, path, query, method, client, .. } = get("a", "/");
            let conditions = &route::NoConditions;
            table.choose(&RequestParts { listener, host, path, query, method, client, fields, conditions })
        };
        assert_eq!(of(&fields), Some(route), "{claims}");
        assert_eq!(of(&[fields[0].clone(), fields[0].clone()]), Some(0), "{claims}: which of them is meant?");
    }
}

fn rules() -> impl Strategy<Value = RouteRule> {
    let parts = || prop::collection::vec(("[xy]", values()), 0..2);
    let methods = prop::collection::vec(prop::sample::select(vec!["GET".to_owned(), "PUT".to_owned()]), 0..2);
    let clients = prop::collection::vec(
        prop::sample::select(vec!["10.0.0.0/8", "10.0.0.0/16", "10.0.0.1/32", "::/0"])
            .prop_map(|text| text.parse().unwrap()),
        0..2,
    );
    let listeners = prop::collection::vec(0..3_usize, 0..2);
    let when = prop::option::of(prop::sample::select(vec![
        "request.method == 'PUT'",
        "request.path.startsWith('/a')",
        "'a' in request.headers.x || request.host.endsWith('b')",
        "request.query.x.orValue('').matches('^a')",
    ]));
    let when = when.prop_map(|text| text.map(crate::conditions::condition));
    (listeners, hosts(), paths(), methods, parts(), parts(), parts(), parts(), (when, clients)).prop_map(
        |(listeners, host, path, methods, headers, cookies, query, values, (when, clients))| RouteRule {
            listeners,
            host,
            path,
            methods,
            headers,
            cookies,
            query,
            claims: ClaimRules {
                from: TokenSource::Header("token".to_owned()),
                token_bytes_max: 512,
                values,
            },
            when,
            clients,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn the_table_and_its_explanation_agree(
        rules in prop::collection::vec(rules(), 0..24),
        listener in 0..3_usize,
        host in "[abAB](\\.[ab]){0,3}\\.?",
        path in "(/[ab]{0,2}){0,4}(/%6[12])?",
        query in prop::option::of("([xy]=[ab]{0,2}&?){0,3}"),
        method in prop::sample::select(vec!["GET", "PUT", "POST"]),
        client in prop::sample::select(vec!["10.0.0.1", "10.0.0.2", "10.1.0.1", "11.0.0.1", "::1", "::ffff:10.0.0.1"]),
        fields in prop::collection::vec(("[xyXY]", "[ab]{0,2}"), 0..3),
        cookies in prop::collection::vec("([xyX]=[ab]{0,2}; ?){0,2}[xy]=[ab]{0,2}", 0..3),
        claims in prop::collection::vec(("[ab]{0,2}", "[ab]{0,2}"), 0..3),
    ) {
        let table = RouteTable::compile(rules);
        let mut fields = fields;
        fields.extend(cookies.into_iter().map(|cookies| ("Cookie".to_owned(), cookies)));
        fields.extend(claims.iter().map(|(x, y)| ("Token".to_owned(), token(&format!("{{\"x\":\"{x}\",\"y\":[\"{y}\"]}}")))));
        let facts = RequestFacts {
            host: host.as_bytes(),
            query: query.as_deref().map(str::as_bytes),
            method: method.as_bytes(),
            client: client.parse().unwrap(),
            ..crate::conditions::facts(fields.as_slice())
        };
        let request = facts.parts(listener, path.as_bytes());
        let explanation = table.explain(&request);
        prop_assert_eq!(table.choose(&request), explanation.route, "{}", explanation);
        prop_assert_eq!(table.clone().choose(&request), explanation.route);
    }
}

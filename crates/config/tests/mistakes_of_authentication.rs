//! Mistakes in how a route asks who a client is.

use config::parse;

/// The mistakes of a file with this route from line 5 on, a line each, without the file's name.
fn said(route: &str) -> Vec<String> {
    let file = format!(
        "listen = [{{ address = \"127.0.0.1:8080\" }}, {{ address = \"127.0.0.1:1\", tcp = \"db\", name = \"bytes\" }}]\n\
         upstream.app.servers = [\"http://a\"]\nupstream.db.servers = [\"tcp://b:1\"]\n[[route]]\n{route}"
    );
    let mistakes = parse(&file, "f").err().unwrap_or_default();
    mistakes.iter().map(|mistake| mistake.to_string().replacen("f:", "", 1)).collect()
}

#[test]
fn tokens() {
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let key = r#"{"kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}"#;
    let keys = put("keys.json", &format!("{{\"keys\":[{key}]}}"));
    let secret = put("secret", &"s".repeat(32));
    let broken = put("broken", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    let url = "https://id.example.com/keys";
    for (route, expected) in [
        (format!("jwt = {{ keys = {keys:?} }}"), None),
        (format!("jwt = {{ jwks = {url:?}, issuer = \"a\", audience = \"*\" }}"), None),
        (format!("jwt = {{ secret = {secret:?}, algorithms = [\"HS256\", \"HS512\"] }}"), None),
        ("jwt = { jwks = \"http://localhost:9000\" }".to_owned(), None),
        ("jwt = { jwks = \"http://[::1]/a?b\" }".to_owned(), None),
        ("jwt = { jwks = \"http://id.example.com/a\", allow_http = true }".to_owned(), None),
        (format!("jwt = {{ keys = {keys:?} }}\nclaim = {{ \"a.b\" = \"c\", d = true }}"), None),
        (
            "claim = { plan = \"gold\" }".to_owned(),
            Some("5:9: claim: the route has no jwt, so the token is not verified; expected jwt"),
        ),
        (
            format!(
                "jwt = {{ keys = {keys:?} }}\nrequire = \"any\"\nclaim = {{ plan = \"gold\" }}\nweb_bot_auth = {{ agents = \"https://a\" }}"
            ),
            Some("claim: with require = \"any\", another authentication method may admit a forged token"),
        ),
        (format!("jwt = {{ keys = {keys:?} }}\nrate_limit = {{ rate = \"1/s\", key = \"user\" }}"), None),
        (
            "concurrency = { max = 1, by = \"user\" }".to_owned(),
            Some("concurrency: the route does not authenticate clients, so there is no user to count by"),
        ),
        (
            "rate_limit = { rate = \"1/s\", key = [\"client\", \"user\"] }".to_owned(),
            Some("rate_limit: the route does not authenticate clients, so there is no user to count by"),
        ),
        ("jwt = {}".to_owned(), Some("5:7: jwt has no keys; expected keys, jwks, discovery or secret")),
        (
            format!("jwt = {{ keys = {keys:?}, jwks = {url:?} }}"),
            Some("jwt has keys and jwks; expected one of them"),
        ),
        (
            "jwt = { jwks = \"http://id.example.com/a\" }".to_owned(),
            Some(
                "5:16: jwks: over http, an attacker on the network can replace the keys; expected an \
                 https:// URL, or allow_http = true",
            ),
        ),
        (
            "jwt = { jwks = \"id.example.com\" }".to_owned(),
            Some("\"id.example.com\" has no scheme; did you mean \"https://id.example.com\"?"),
        ),
        ("jwt = { jwks = \"file:///etc/keys\" }".to_owned(), Some("unknown scheme \"file\"")),
        (
            "jwt = { jwks = \"https://me:you@a/b\" }".to_owned(),
            Some("a server takes no user name or password"),
        ),
        ("jwt = { jwks = \"https://a/b c\" }".to_owned(), Some("has characters that are invalid in a URL")),
        (
            "jwt = { jwks = \"https://a/b\\r\\nX: y\" }".to_owned(),
            Some("has characters that are invalid in a URL"),
        ),
        (format!("jwt = {{ jwks = {url:?}, refresh = \"1s\" }}"), Some("refresh: 1s is too small")),
        (
            format!("jwt = {{ keys = {keys:?}, ca = \"ca.pem\" }}"),
            Some("jwt has ca without jwks; expected an https:// URL in jwks or discovery, or no ca"),
        ),
        (
            format!("jwt = {{ keys = {broken:?} }}"),
            Some(
                "it has a certificate, which is no public key; openssl x509 -pubkey -noout prints the key of a certificate",
            ),
        ),
        (
            format!("jwt = {{ secret = {keys:?} }}"),
            Some("it is a key in PEM or a JSON Web Key, and no secret"),
        ),
        (
            format!("jwt = {{ keys = {keys:?}, algorithms = [\"ES256\", \"HS256\"] }}"),
            Some("algorithms: HS256 verifies with a secret, and jwt has public keys"),
        ),
        (
            format!("jwt = {{ secret = {secret:?}, algorithms = \"RS256\" }}"),
            Some("algorithms: RS256 verifies with a public key, and jwt has a secret"),
        ),
        (
            format!("jwt = {{ keys = {keys:?}, algorithms = \"RS256\" }}"),
            Some("algorithms: no key works with any of them; expected an algorithm that fits the keys"),
        ),
        (
            format!("jwt = {{ keys = {keys:?}, algorithms = \"none\" }}"),
            Some("algorithms: unknown word \"none\""),
        ),
        (
            format!("jwt = {{ keys = {keys:?}, from = \"path:token\" }}"),
            Some("expected bearer, header:NAME, cookie:NAME or query:NAME"),
        ),
        (format!("jwt = {{ keys = {keys:?}, from = \"query:token\", algorithms = \"ES256\" }}"), None),
        ("jwt = { discovery = \"https://id.example.com/realms/a\", ca = \"ca.pem\" }".to_owned(), None),
        (
            "jwt = { discovery = \"http://id.example.com/\" }".to_owned(),
            Some("discovery: over http, an attacker on the network can replace the keys"),
        ),
        (
            format!("jwt = {{ discovery = \"https://id.example.com\", jwks = {url:?} }}"),
            Some("jwt has jwks and discovery; expected one of them"),
        ),
        (
            "jwt = { discovery = \"https://id.example.com/a/.well-known/openid-configuration\" }".to_owned(),
            Some("is the URL of the issuer's document; did you mean \"https://id.example.com/a\"?"),
        ),
        (
            "jwt = { discovery = \"https://id.example.com?a=b\" }".to_owned(),
            Some("has a query, and an issuer has none"),
        ),
        (
            format!("jwt = {{ keys = {keys:?}, from = \"header:Authorization\" }}"),
            Some("has a scheme in front of the token; did you mean \"bearer\"?"),
        ),
        (
            format!("jwt = {{ keys = {keys:?}, require = {{ role = [] }} }}"),
            Some("require: a claim without a value to require"),
        ),
        (
            format!("jwt = {{ keys = {keys:?}, claims = {{ Host = \"sub\" }} }}"),
            Some("claims: Host cannot be edited: use the host rewrite"),
        ),
        (format!("jwt = {{ keys = {keys:?}, claims = {{ \"X User\" = \"sub\" }} }}"), Some("claims: ")),
        (
            format!(
                "jwt = {{ keys = {keys:?}, claims = {{ X-User = \"sub\" }} }}\nrequest_headers = {{ set = {{ x-user = \"a\" }} }}"
            ),
            Some("request_headers: x-user is written by jwt.claims, in line 5"),
        ),
        (
            format!(
                "jwt = {{ keys = {keys:?}, claims = {{ X-User = \"sub\" }} }}\nforward_auth = {{ upstream = \"app\", path = \"/\", copy_headers = \"x-user\" }}"
            ),
            Some("claims: X-User is one of forward_auth.copy_headers; expected another name in one of them"),
        ),
    ] {
        let said = said(&format!("{route}\nupstream = \"app\""));
        match expected {
            None => assert!(said.is_empty(), "{route}: {said:?}"),
            Some(expected) => {
                assert!(said.len() == 1 && said[0].contains(expected), "{route}: {said:?}");
            }
        }
    }
}

/// OpenID Connect Discovery 1.0 §4: where the document is, and whose tokens count.
#[test]
fn an_issuer_is_discovered_below_its_url() {
    for (jwt, place, issuers) in [
        (
            "discovery = \"https://id.example.com\"",
            "https://id.example.com/",
            &["https://id.example.com"][..],
        ),
        (
            "discovery = \"https://id.example.com:8443/realms/a/\"",
            "https://id.example.com:8443/realms/a/",
            &["https://id.example.com:8443/realms/a/"],
        ),
        ("discovery = \"https://a\", issuer = [\"b\", \"c\"]", "https://a/", &["b", "c"]),
    ] {
        let text = format!(
            "[[listen]]\naddress = \"*:80\"\n[log]\ntarget = \"stdout\"\nmask = [\"x\"]\n[[route]]\nupstream = \"app\"\n\
             jwt = {{ {jwt}, from = \"query:token\" }}\n[upstream.app]\nservers = [\"http://a\"]\n"
        );
        let config = parse(&text, "f").expect("is valid");
        let jwt = config.routes[0].policies.jwt.as_ref().expect("is there");
        assert_eq!(jwt.rules.issuers, issuers);
        let config::TokenKeys::Fetched(source) = &jwt.keys else { panic!("{jwt:?}") };
        assert_eq!(source.url.to_string(), format!("{place}.well-known/openid-configuration"));
        // The value of the token's parameter is not logged.
        let hidden = config::LogQuery::Without(vec!["x".to_owned(), "token".to_owned()]);
        assert_eq!(config.access_logs[0].masks.query, hidden);
        assert_eq!(parse(&config.text(&config), "printed").expect("is valid"), config);
    }
}

#[test]
fn bots() {
    for (route, expected) in [
        ("web_bot_auth = { agents = \"https://bot.example.com\" }", None),
        ("web_bot_auth = { agents = [\"https://bot.example.com:8443/\", \"http://localhost\"] }", None),
        (
            "web_bot_auth = {}",
            Some("web_bot_auth has no agents; expected the URL of an agent such as https://bot.example.com"),
        ),
        (
            "web_bot_auth = { agents = [] }",
            Some("web_bot_auth: no agent is admitted; expected agents: the URL of an agent"),
        ),
        (
            "web_bot_auth = { agents = \"http://bot.example.com\" }",
            Some(
                "agents: over http, an attacker on the network can replace the keys; expected an https:// \
                 URL, or allow_http = true",
            ),
        ),
        (
            "web_bot_auth = { agents = \"https://bot.example.com/keys\" }",
            Some("has a path, but agents are identified by host only; expected the URL of an agent"),
        ),
    ] {
        let said = said(&format!("{route}\nupstream = \"app\""));
        match expected {
            None => assert!(said.is_empty(), "{route}: {said:?}"),
            Some(expected) => assert!(said.len() == 1 && said[0].contains(expected), "{route}: {said:?}"),
        }
    }
}

#[test]
fn a_user_whom_nobody_is_asked_for_is_warned_of() {
    let text = "[[listen]]\naddress = \"127.0.0.1:1\"\n[[route]]\nrequest_headers = { set = { X-User = \"$user\" } }\n\
                upstream = \"a\"\n[upstream.a]\nservers = [\"http://127.0.0.1:2\"]\n";
    let reading = config::examine(text, "f");
    let warnings: Vec<String> = reading.warnings.iter().map(ToString::to_string).collect();
    let said =
        "f:4:19: request_headers: $user is always empty here, since the route does not authenticate clients";
    assert_eq!((reading.mistakes.len(), warnings), (0, vec![said.to_owned()]));
}

#[test]
fn fields_are_copied_once() {
    let options = "copy_headers = [\"X-B\"], copy_headers_as = { X-A = \"A\", x-a = \"B\", X-B = \"C\" }";
    assert_eq!(
        said(&format!("upstream = \"app\"\nforward_auth = {{ upstream = \"app\", {options} }}")),
        [
            "6:91: copy_headers_as: the same name appears twice; expected a name other than the one in line 6",
            "6:102: copy_headers_as: X-B is in copy_headers, too; expected each field once",
        ]
    );
}

//! Conditions that follow from others, and those that do not.

use crate::exchange::compiled;

#[test]
fn what_follows() {
    for (given, then) in [
        (r#"request.method == "GET""#, r#""GET" == request.method"#),
        (r#"request.method == "GET" && request.path == "/a""#, r#"request.path == "/a""#),
        (
            r#"request.method == "GET" && request.path == "/a""#,
            r#"request.path == "/a" && request.method == "GET""#,
        ),
        (r#"request.method == "GET""#, r#"request.method == "GET" || request.path == "/a""#),
        (r#"request.method == "GET""#, r#"request.method in ["GET", "HEAD"]"#),
        (
            r#"request.method in ["GET", "HEAD"]"#,
            r#"request.method == "HEAD" || request.method in ["POST", "GET"]"#,
        ),
        (r#"request.method == "GET""#, r#"request.method != "POST""#),
        (r#"request.method == "GET""#, r#"!(request.method in ["POST", "PUT"])"#),
        (r#"request.path == "/api/x""#, r#"request.path.startsWith("/api/")"#),
        (r#"request.path.startsWith("/api/")"#, r#"request.path.startsWith("/api")"#),
        (r#"request.path.startsWith("/api/")"#, r#"request.path.contains("api")"#),
        (r#"request.path == "/api/x""#, r#"request.path.matches("^/api/.$")"#),
        (r#"request.headers["x"] == "1""#, r#"has(request.headers["x"])"#),
        (r#""1" in request.headers["x"]"#, r#""x" in request.headers"#),
        (r#"client.address in "10.1.0.0/16""#, r#"client.address in ["10.0.0.0/8", "::1"]"#),
        (r#"client.address == "10.1.2.3""#, r#"client.address in "10.0.0.0/8""#),
        (r#"client.address in "10.1.2.3""#, r#"client.address == "10.1.2.3""#),
        ("client.port > 1024", "client.port >= 1000"),
        ("client.port == 5", "client.port < 6 && client.port != 4"),
        ("client.port < 5", "client.port != 5"),
        ("!(client.port < 6)", "!(client.port < 5)"),
        ("false", r#"request.method == "GET""#),
        (r#"request.method == "GET""#, "true"),
        ("values.failed", "response.status > 400"),
        ("response.status == 500", "values.failed"),
        (
            r#"(client.port == 1 || client.port == 2) && request.method == "GET""#,
            "client.port == 2 || client.port == 1",
        ),
    ] {
        assert!(compiled(given).implies(&compiled(then)), "{given} => {then}");
    }
}

#[test]
fn what_does_not_follow() {
    for (given, then) in [
        (r#"request.method == "GET""#, r#"request.method == "HEAD""#),
        (r#"request.method in ["GET", "HEAD"]"#, r#"request.method == "GET""#),
        (r#"request.method == "GET""#, r#"request.host == "GET""#),
        (r#"request.path.startsWith("/api")"#, r#"request.path.startsWith("/api/")"#),
        (r#"request.path.startsWith("/api")"#, r#"request.path.endsWith("/api")"#),
        (r#"request.headers["x"] != "1""#, r#"has(request.headers["x"])"#),
        (r#"request.headers["x"] == "1""#, r#"has(request.headers["y"])"#),
        (r#"client.address in "10.0.0.0/8""#, r#"client.address in "10.1.0.0/16""#),
        ("client.port > 1024", "client.port > 1025"),
        ("client.port != 1", "client.port == 2"),
        ("!(client.port < 5)", "!(client.port < 6)"),
        ("true", "false"),
        ("client.port == 1 || client.port == 2", "client.port == 1"),
        // Values are not conditions.
        ("client.port", "client.port"),
    ] {
        assert!(!compiled(given).implies(&compiled(then)), "{given} => {then}");
    }
}

/// Nested `&&` and `||` have more ways through than anyone can try.
#[test]
fn a_proof_ends() {
    let nested = |last: &str| {
        (0..30).fold(last.to_owned(), |text, number| {
            let sign = if number % 2 == 0 { "||" } else { "&&" };
            format!("({text} {sign} client.port == {})", 1000 + number)
        })
    };
    assert!(
        !compiled(&nested("client.port > 1"))
            .implies(&compiled(&nested("client.port > 2").replace("100", "200")))
    );
}

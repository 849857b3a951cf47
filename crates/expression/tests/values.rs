//! Values of expressions for one exchange.

use expression::{EvaluationScratch, ExchangeStage, FactFamily, Facts, Value, ValueType};

use crate::exchange::{Exchange, compiled, schema, value_of};

/// Each row is evaluated twice, also by the explanation, and has to take no more steps than its cost.
fn check(rows: &[(&str, &str)]) {
    let exchange = Exchange::default();
    for (text, value) in rows {
        let expression = compiled(text);
        assert_eq!(value_of(&expression, &exchange), *value, "{text}");
        let explanation = expression.explain(&exchange);
        assert!(
            explanation.steps <= expression.cost(),
            "{text}: {} > {}",
            explanation.steps,
            expression.cost()
        );
        if let Some(whole) = explanation.parts.first() {
            assert_eq!(whole.outcome.to_string(), *value, "explanation of {text}");
        }
    }
}

#[test]
fn operators() {
    check(&[
        ("true && !false", "true"),
        ("false || true && false", "false"),
        ("true ? 1 : 2", "1"),
        ("false ? 1 : true ? 2 : 3", "2"),
        ("1 + 2 * 3 - 4", "3"),
        ("(1 + 2) * 3", "9"),
        ("7 / 2", "3"),
        ("-7 / 2", "-3"),
        ("-7 % 3", "-1"),
        ("- -5", "5"),
        ("0x10", "16"),
        ("9223372036854775807 + 1", "9223372036854775807"),
        ("-9223372036854775808 - 1", "-9223372036854775808"),
        ("-9223372036854775808 / -1", "9223372036854775807"),
        ("-9223372036854775808 % -1", "0"),
        ("-(-9223372036854775808)", "9223372036854775807"),
        ("3037000500 * 3037000500", "9223372036854775807"),
        ("1 < 2 && 2 <= 2 && 3 > 2 && 2 >= 2 && 1 != 2", "true"),
        (r#""a" < "b" && "a" < "aa""#, "true"),
        (r#""a" + 'b' + "\u00e9""#, r#""ab\xc3\xa9""#),
        ("true == !false", "true"),
        ("!(1 == 1) == false", "true"),
        ("1 in [1, 2]", "true"),
        ("-3 in [1, -3,]", "true"),
        ("4 in [1, 2]", "false"),
        (r#""b" in ["c", "b", "a"]"#, "true"),
        ("// a comment\n 1 // another\n + 1", "2"),
    ]);
}

#[test]
fn names_and_fields() {
    check(&[
        ("request.method", r#""GET""#),
        (r#"request.method in ["GET", "HEAD"]"#, "true"),
        ("request.path", r#""/api/v1/Users""#),
        (r#"request.query == "page=2&name=a%20b+c&page=3&tag=x&tag=y%26""#, "true"),
        (r#"request.query["page"]"#, r#""2""#),
        (r#"request.query.page"#, r#""2""#),
        (r#"request.query["name"]"#, r#""a b c""#),
        (r#"request.query["none"]"#, "absent"),
        (r#""3" in request.query["page"]"#, "true"),
        (r#""y&" in request.query["tag"]"#, "true"),
        (r#""y%26" in request.query["tag"]"#, "false"),
        (r#"request.headers["X-Beta"] == "1""#, "true"),
        (r#"request.headers["x-none"] == "1""#, "false"),
        (r#"request.headers["x-none"] != "1""#, "true"),
        (r#"!(request.headers["x-none"] == "1")"#, "true"),
        (r#"request.headers["x-none"] in ["1"]"#, "false"),
        (r#"request.headers["accept"]"#, r#""text/html""#),
        (r#""image/png" in request.headers["accept"]"#, "true"),
        (r#""image" in request.headers["accept"]"#, "false"),
        (r#"request.headers.accept"#, r#""text/html""#),
        (r#"has(request.headers["x-empty"])"#, "true"),
        (r#"has(request.headers["x-none"])"#, "false"),
        (r#""x-beta" in request.headers && !("x-none" in request.headers)"#, "true"),
        (r#"request.cookies["session"]"#, r#""s1""#),
        (r#"jwt.claims.sub == "ann""#, "true"),
        (r#"jwt.claims.realm.level"#, r#""7""#),
        (r#"jwt.claims["realm.level"]"#, r#""7""#),
        (r#""admin" in jwt.claims["roles"]"#, "true"),
        ("client.address", "10.1.2.3"),
        (r#"client.address == "10.1.2.3""#, "true"),
        (r#"client.address == "::ffff:10.1.2.3""#, "true"),
        (r#"client.address in "10.0.0.0/8""#, "true"),
        (r#"client.address in ["192.168.0.0/16", "2001:db8::/32"]"#, "false"),
        ("client.address in values.office", "true"),
        ("client.port", "40000"),
        ("has(client.tls.version)", "false"),
        ("client.tls.version", "absent"),
        ("client.tls.sni == request.host", "true"),
        (r#"client.address in map.blocked"#, "false"),
        (r#""127.0.0.1" in map.blocked"#, "true"),
        ("map.tenants[request.host]", r#""acme""#),
        ("request.host in map.tenants", "true"),
        (r#"map.tenants["other"]"#, "absent"),
        (r#"map.tenants["wrong"]"#, "absent"),
        (r#"map.tenants[request.host.upperAscii().lowerAscii()] ?? "none""#, r#""acme""#),
        ("map.flags[request.host]", "true"),
        (r#"map.flags["other"] || !map.flags[request.headers["x-none"]]"#, "true"),
        (r#"map.tenants[request.headers["x-none"]]"#, "absent"),
        ("response.status >= values.limit", "true"),
        ("request.path.startsWith(values.prefix) && values.strict", "true"),
        ("response.time > values.slow", "true"),
        ("values.agent", r#""some bot/1.0""#),
        (r#"values.agent.contains("bot")"#, "true"),
        (r#"values.beta == "1" && values.failed"#, "true"),
        (r#"has(values.beta) && values.beta.size() == 1"#, "true"),
        ("upstream.name", "absent"),
        ("cache.status", r#""miss""#),
    ]);
}

#[test]
fn absent_values() {
    check(&[
        (r#"request.headers["x-none"] ?? "none""#, r#""none""#),
        (r#"request.headers["x-none"] ?? request.headers["x-no"] ?? "none""#, r#""none""#),
        (r#"request.headers["x-none"] ?? request.headers["x-beta"]"#, r#""1""#),
        (r#"request.headers["x-none"] ?? request.headers["x-no"]"#, "absent"),
        (r#"request.headers["x-beta"] ?? "0" == "1""#, "true"),
        (r#"request.headers["x-none"] ?? "a" + "b""#, r#""ab""#),
        (r#"request.headers["x-none"].orValue("none")"#, r#""none""#),
        (r#"has(request.headers["x-beta"]) && request.headers["x-beta"].size() == 1"#, "true"),
        (r#"!has(request.headers["x-none"]) || request.headers["x-none"].size() == 1"#, "true"),
        (r#"has(request.headers["x-none"]) ? request.headers["x-none"] : "no""#, r#""no""#),
        (r#"request.headers["x-beta"] == "1" && request.headers["x-beta"] + "2" == "12""#, "true"),
        (r#"(has(jwt.claims.sub) && true) && jwt.claims.sub.endsWith("n")"#, "true"),
        (r#"request.host in map.tenants && map.tenants[request.host].startsWith("ac")"#, "true"),
        (r#"request.size ?? 0"#, "0"),
        (r#"int(request.headers["x-number"] ?? "") ?? 0"#, "-42"),
        (r#"int("+1")"#, "absent"),
        (r#"int(" 1") ?? -1"#, "-1"),
        (r#"int("9223372036854775808") ?? -1"#, "-1"),
        (r#"int("000000000000000000000000001") ?? -1"#, "-1"),
    ]);
}

#[test]
fn texts() {
    check(&[
        (r#"request.path.startsWith("/api/") && request.path.endsWith("Users")"#, "true"),
        (r#"request.path.contains("/v1/")"#, "true"),
        (r#"request.path.contains(request.method)"#, "false"),
        (r#"request.path.matches("^/api/v[0-9]+/")"#, "true"),
        (r#"request.path.matches(r"v\d+/users$")"#, "false"),
        (r#"request.path.matches("(?i)users$")"#, "true"),
        (r#"request.path.lowerAscii()"#, r#""/api/v1/users""#),
        (r#"request.path.upperAscii()"#, r#""/API/V1/USERS""#),
        (r#"request.host.lowerAscii()"#, r#""www.example.com""#),
        ("int(time)", "1795955400"),
        (r#"(request.query["page"] ?? "").hash("md5", "base64url")"#, r#""yB5yjZ1ML2NvBn-JzBSGLA""#),
        (r#"("<" + request.method.hash("sha256", "hex") + ">").size()"#, "66"),
        (r#"request.host.replaceFirst("^www[.]", "")"#, r#""example.com""#),
        (r#"request.host.replaceFirst("[.]com$", "")"#, r#""www.example""#),
        (r#"request.host.replaceFirst("[.]", "-")"#, r#""www-example.com""#),
        (r#"request.host.replaceFirst("^api[.]", "x")"#, r#""www.example.com""#),
        (r#"request.host.replaceFirst("x*", "$1")"#, r#""$1www.example.com""#),
        (r#"request.host.replaceFirst(".*", "")"#, "\"\""),
        (r#""<" + request.path.lowerAscii().replaceFirst("/v[0-9]+", "/v2") + ">""#, r#""</api/v2/users>""#),
        (r#"request.path.lowerAscii().replaceFirst("^/api", "").replaceFirst("/users", "")"#, r#""/v1""#),
        (r#"(request.path + "?" + request.method).lowerAscii()"#, r#""/api/v1/users?get""#),
        (r#""<" + request.path.lowerAscii() + request.method.lowerAscii() + ">""#, r#""</api/v1/usersget>""#),
        (r#""<" + (request.path.lowerAscii().split("/")[2] ?? "") + ">""#, r#""<v1>""#),
        (r#"size(request.path) == 13 && request.path.size() == 13"#, "true"),
        (r#"size("\u00e9")"#, "2"),
        (r#"(request.headers["x-list"] ?? "").split(",")[0]"#, r#""a""#),
        (r#"(request.headers["x-list"] ?? "").split(",")[2]"#, r#""""#),
        (r#"(request.headers["x-list"] ?? "").split(",")[3]"#, r#""d""#),
        (r#"(request.headers["x-list"] ?? "").split(",")[4]"#, "absent"),
        (r#""abc".split("/")[0]"#, r#""abc""#),
        // A piece that is absent leaves nothing behind.
        (r#"(string(7).split(",")[1] ?? "") + "a""#, r#""a""#),
        (r#"string(client.address) + ":" + string(client.port)"#, r#""10.1.2.3:40000""#),
        (r#"string(-9223372036854775808)"#, r#""-9223372036854775808""#),
        (r#"(request.query["name"] ?? "") + "|" + (request.query["tag"] ?? "")"#, r#""a b c|x""#),
        (r#""a" in request.query["tag"] ? "yes" : "no" + request.query.name.orValue("")"#, r#""noa b c""#),
    ]);
}

#[test]
fn times_and_durations() {
    check(&[
        (r#"duration("1h30m")"#, r#"duration("1h30m")"#),
        (r#"duration("1h") + duration("30m") - duration("90m") == duration("0s")"#, "true"),
        (r#"-duration("1.5s")"#, r#"duration("-1.5s")"#),
        ("time", r#"timestamp("2026-11-29T12:30:00Z")"#),
        (r#"time + duration("24h") > timestamp("2026-11-30T00:00:00Z")"#, "true"),
        (r#"time - timestamp("2026-11-29T12:00:00Z")"#, r#"duration("30m")"#),
        (r#"time.getHours() >= 8 && time.getHours() < 18"#, "true"),
        (r#"time.getHours("+02:00")"#, "14"),
        (r#"time.getHours("UTC")"#, "12"),
        (r#"time.getDayOfWeek() in [0, 6]"#, "true"),
        (r#"time.getTimeOfDay("-01:00") < duration("11h31m")"#, "true"),
        (r#"time.getFullYear() * 10000 + (time.getMonth() + 1) * 100 + time.getDate()"#, "20261129"),
        (r#"response.time >= duration("1500ms")"#, "true"),
    ]);
}

/// A network of IPv4 addresses does not contain IPv6 addresses, but their mapped form.
#[test]
fn addresses() {
    let inside = compiled(r#"client.address in ["10.0.0.0/8", "2001:db8::/32"]"#);
    for (address, is_in) in [
        ("10.9.9.9", true),
        ("::ffff:10.9.9.9", true),
        ("11.0.0.0", false),
        ("2001:db8::7", true),
        ("::1", false),
    ] {
        let exchange = Exchange { client: address.parse().unwrap(), ..Exchange::default() };
        assert_eq!(value_of(&inside, &exchange), is_in.to_string(), "{address}");
    }
}

#[test]
fn bytes_that_are_no_text() {
    let mut exchange = Exchange { path: b"/\xff\x00".to_vec(), ..Exchange::default() };
    exchange.fields.push((FactFamily::RequestQuery, "raw", b"%ff%zz%4".to_vec()));
    for (text, value) in [
        ("request.path", r#""/\xff\x00""#),
        (r#"request.path.matches("^/(?-u:\\xff).$")"#, "true"),
        (r#"request.query["raw"]"#, r#""\xff%zz%4""#),
        ("size(request.path)", "3"),
    ] {
        assert_eq!(value_of(&compiled(text), &exchange), value, "{text}");
    }
}

#[test]
fn types_stages_and_equality() {
    let stage = |text: &str| compiled(text).stage();
    assert_eq!(stage("client.port == 1"), ExchangeStage::Connection);
    assert_eq!(stage("request.method == 'GET'"), ExchangeStage::Request);
    assert_eq!(stage("request.method == server.name"), ExchangeStage::Forward);
    assert_eq!(stage("values.failed"), ExchangeStage::Response);
    let kind = compiled("request.size").kind();
    assert_eq!((kind.of, kind.is_optional), (ValueType::Integer, true));
    assert_eq!(compiled("1==client.port"), compiled("client.port  == 1"));
    assert_ne!(compiled("1 == client.port"), compiled("2 == client.port"));
    assert_eq!(compiled("client.port > 1").to_string(), "client.port > 1");
    // Facts may be behind a pointer.
    let facts: &dyn Facts = &Exchange::default();
    assert!(compiled("request.method == 'GET'").holds(facts, &mut EvaluationScratch::new()));
    assert_eq!(Value::Text(b"\"\n").to_string(), r#""\"\n""#);
    assert_eq!(schema(ExchangeStage::Request).stage(), ExchangeStage::Request);
}

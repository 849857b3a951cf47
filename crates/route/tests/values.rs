//! Values in templates, and in the keys of rate limits.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use expression::{ExchangeStage, Expression, ExpressionLimits, Schema};
use route::{
    ContentSyntax, HeaderEdit, HeaderEdits, NamedValues, OfClient, PathRewrite, Rate, RateKey, RateKeyPart,
    RateLimiter, RateVerdict, Redirect, RedirectStatus, RequestFacts, RouteTemplate, TemplateFault,
    TemplateStage, TemplateUse, VariableValues,
};

use crate::conditions::facts;

/// Names for expressions, each of which can use those before it.
pub(crate) fn values(named: &[(&str, &str)]) -> NamedValues {
    let mut values = NamedValues::default();
    let mut schema = Schema::new(ExchangeStage::Response);
    for (name, text) in named {
        let compiled = Expression::new(text, &schema, &ExpressionLimits::default());
        let meaning = Arc::new(compiled.unwrap_or_else(|fault| panic!("{text}: {fault}")));
        values.add(name, &meaning);
        schema = schema.with_definition(&format!("values.{name}"), meaning);
    }
    values
}

fn template(text: &str, place: TemplateUse, values: &NamedValues) -> RouteTemplate {
    let read = RouteTemplate::new(text, place, TemplateStage::Route, values);
    read.unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn values_are_filled_in_and_escaped_by_place() {
    let values = values(&[
        ("x", "request.headers['x'] ?? 'none'"),
        ("absent", "request.headers['y']"),
        ("wait", "duration('90s')"),
        ("a2", "client.address"),
    ]);
    let fields = [("X", "a/b <\"&'>\\")];
    let facts = facts(&fields);
    let request = VariableValues::from_request(facts.parts(0, b"/p"), "https");
    let content = TemplateUse::Content;
    for (place, text, expected) in [
        (TemplateUse::FieldValue, "$x|${x}|$absent|$wait ${a2}", "a/b <\"&'>\\|a/b <\"&'>\\||1m30s 10.0.0.1"),
        (TemplateUse::Location, "/${x}?$x", "/a/b%20%3C%22&'%3E%5C?a/b%20%3C%22%26'%3E%5C"),
        (TemplateUse::Location, "https://$x.example/", "https://a%2Fb%20%3C%22%26%27%3E%5C.example/"),
        (TemplateUse::Path, "/v1/$x", "/v1/a/b%20%3C%22&'%3E%5C"),
        (
            content(ContentSyntax::Plain),
            "${x} $x $1 $$ $${x} $$$${x} $$${wait}",
            "a/b <\"&'>\\ $x $1 $$ ${x} $${x} $1m30s",
        ),
        (content(ContentSyntax::Markup), "<a b='${x}'>\n", "<a b='a/b &#x3C;&#x22;&#x26;&#x27;&#x3E;\\'>\n"),
        (
            content(ContentSyntax::Json),
            "{\"a\":\"${x}\",\"b\":\"${absent}\"}",
            "{\"a\":\"a/b \\u003C\\u0022\\u0026\\u0027\\u003E\\u005C\",\"b\":\"\"}",
        ),
    ] {
        let mut out = Vec::new();
        template(text, place, &values).fill(&request, &mut out);
        assert_eq!(String::from_utf8(out).expect("is text"), expected, "{text}");
    }
}

#[test]
fn folders_are_below() {
    let values = values(&[("x", "request.headers['x'] ?? ''")]);
    let folder = template("sites/$x/public", TemplateUse::Folder, &values);
    for (x, expected) in [
        ("one", Some("sites/one/public")),
        ("a b%", Some("sites/a%20b%25/public")),
        ("..a", None),
        ("", None),
        (".", None),
        ("..", None),
        ("a/b", None),
        ("a\\b", None),
        ("a\0", None),
        (".git", None),
    ] {
        let fields = [("X", x)];
        let facts = facts(&fields);
        let request = VariableValues::from_request(facts.parts(0, b"/p"), "https");
        let mut out = b"/".to_vec();
        let is_below = folder.fill_folder(&request, &mut out);
        let got = String::from_utf8(out).expect("is text");
        assert_eq!((is_below, &got[1..]), (expected.is_some(), expected.unwrap_or("")), "{x:?}");
    }
}

/// A map is escaped as a value is.
#[test]
fn maps_are_filled_in_like_values() {
    let schema = Schema::new(ExchangeStage::Request);
    let host = Expression::new("request.host", &schema, &ExpressionLimits::default()).expect("is valid");
    let mut values = values(&[("x", "'value'")]);
    values.add_map("map.tenant", &Arc::new(host));
    let fields: [(&str, &str); 0] = [];
    let facts = RequestFacts { host: b"a/b\r\n", ..facts(&fields) };
    let request = VariableValues::from_request(facts.parts(0, b"/p"), "https");
    for (place, text, expected) in [
        (TemplateUse::FieldValue, "${map.tenant}|$map.tenant.$x", "a/b  |a/b  .value"),
        (TemplateUse::Path, "/${map.tenant}", "/a/b%0D%0A"),
        (TemplateUse::Location, "/?q=${map.tenant}", "/?q=a/b%0D%0A"),
        (TemplateUse::Content(ContentSyntax::Plain), "$map.tenant ${map.tenant}", "$map.tenant a/b\r\n"),
    ] {
        let mut out = Vec::new();
        template(text, place, &values).fill(&request, &mut out);
        assert_eq!(String::from_utf8(out).expect("is text"), expected, "{text}");
    }
    assert_eq!(values.names().collect::<Vec<_>>(), ["x", "map.tenant"]);
    assert_eq!(values.iter().count(), 1, "lists of values are without maps");
    let error = RouteTemplate::new("$map.x", TemplateUse::FieldValue, TemplateStage::Route, &values);
    let names = ["x", "map.tenant"].map(str::to_owned).to_vec();
    let fault = TemplateFault::Unknown { name: "map.x".to_owned(), values: names };
    assert_eq!(error.expect_err("it is unknown").fault, fault);
}

#[test]
fn mistakes_and_properties_of_templates_with_values() {
    let values = values(&[
        ("app", "request.headers['x'] ?? 'none'"),
        ("host_of", "request.method == 'GET' ? 'a.example' : 'b.example'"),
        ("of_path", "request.path + 'x'"),
        ("bare", "request.host.replaceFirst('^www[.]', '')"),
        ("mixed", "request.host.replaceFirst('^www[.]', '') + request.path"),
    ]);
    let error =
        |text: &str, place| RouteTemplate::new(text, place, TemplateStage::Route, &values).expect_err(text);
    let unknown = error("a $apps", TemplateUse::FieldValue);
    let names = ["app", "host_of", "of_path", "bare", "mixed"].map(str::to_owned).to_vec();
    assert_eq!(unknown.fault, TemplateFault::Unknown { name: "apps".to_owned(), values: names });
    assert_eq!(unknown.offset, 2);
    // Clients choose the one host, and none of the others.
    assert_eq!(error("https://${app}/", TemplateUse::Location).fault, TemplateFault::InAuthority);
    template("https://${host_of}/", TemplateUse::Location, &values);
    // A text of nothing but the requested host is as good as the host.
    template("https://${bare}$path", TemplateUse::Location, &values);
    for text in ["https://${mixed}/", "https://a${bare}/"] {
        assert_eq!(error(text, TemplateUse::Location).fault, TemplateFault::InAuthority, "{text}");
    }
    // Built-in variables and groups come first.
    assert!(matches!(error("$1", TemplateUse::FieldValue).fault, TemplateFault::NoPattern(_)));
    let only = |text: &str| {
        template(text, TemplateUse::FieldValue, &values).only_value().map(|value| value.as_str().to_owned())
    };
    assert_eq!(only("${app}").as_deref(), Some("values.app"));
    assert_eq!((only("a${app}"), only("$host")), (None, None));
    let rewrite = PathRewrite::whole("/$app/$of_path/$host_of", &values).expect("is valid");
    assert_eq!(rewrite.of_client().collect::<Vec<_>>(), [OfClient::Value("values.app")]);
    let redirect = Redirect::new(RedirectStatus::Found, "/$nothing", None, &values).expect_err("is unknown");
    assert!(matches!(redirect.fault, TemplateFault::Unknown { .. }));
    let edits = HeaderEdits::new([HeaderEdit::Set("A", "$app")], TemplateStage::Forward, NamedValues::NONE);
    assert!(edits.is_err(), "only declared values are known");
}

/// A text can have the values that are known when it is filled in.
#[test]
fn values_have_stages() {
    use TemplateStage::{Authenticated, Forward, Response, Route};
    let values = values(&[
        ("early", "request.method"),
        ("who", "client.user"),
        ("plan", "jwt.claims['plan']"),
        ("at", "server.name"),
        ("failed", "response.status >= 500"),
        ("label", "values.failed ? 'bad' : 'good'"),
    ]);
    for (name, first, asks) in [
        ("early", Route, ""),
        ("who", Authenticated, "client.user"),
        ("plan", Authenticated, "jwt.claims"),
        ("at", Forward, "server.name"),
        ("failed", Response, "response.status"),
        ("label", Response, "response.status"),
    ] {
        for stage in [Route, Authenticated, Forward, Response] {
            let text = format!("a ${{{name}}}");
            let read = RouteTemplate::new(&text, TemplateUse::FieldValue, stage, &values);
            let error = read.map(|_| ()).map_err(|error| (error.offset, error.fault));
            let fault = TemplateFault::LateValue {
                name: name.to_owned(),
                asks,
                known: first.of_exchange(),
                here: stage.of_exchange(),
            };
            assert_eq!(error, if stage < first { Err((2, fault)) } else { Ok(()) }, "{name} {stage:?}");
        }
    }
    let edits = |value: &str| {
        HeaderEdits::new([HeaderEdit::Set("A", value)], TemplateStage::Response, &values).expect("is known")
    };
    for (value, of_user) in [
        ("$who", Some("values.who")),
        ("$plan", Some("values.plan")),
        ("$user", Some("$user")),
        ("$label $at", None),
    ] {
        assert_eq!(edits(value).user_variable(), of_user, "{value}");
        assert_eq!(edits(value).tells_user(), of_user.is_some(), "{value}");
    }
    let key =
        |name: &str| RateKey(vec![RateKeyPart::Value(Arc::clone(values.find(name).expect("it is there")))]);
    assert!(key("who").has_user() && key("plan").has_user() && !key("early").has_user());
    let rewrite = PathRewrite::whole("/$who/$early", &values).expect("is known after authentication");
    assert_eq!(rewrite.values_known(), ExchangeStage::Authenticated);
    assert_eq!(rewrite.of_client().collect::<Vec<_>>(), [OfClient::Value("values.who")]);
}

#[test]
fn requests_are_counted_by_a_value() {
    let values = values(&[("app", "request.headers['x']")]);
    let key = RateKey(vec![RateKeyPart::Value(Arc::clone(values.find("app").expect("it is there")))]);
    let rate = Rate::new(NonZeroU32::MIN, Duration::from_secs(60), NonZeroU32::MIN).expect("is a rate");
    let limiter = RateLimiter::new(rate, key, 100, [1, 2]);
    let admits = |fields: &[(&str, &str)]| {
        let facts: RequestFacts<'_, [(&str, &str)]> = facts(fields);
        limiter.admit(&facts.parts(0, b"/p"), "", 1) == RateVerdict::Admitted
    };
    assert!(admits(&[("X", "a")]) && !admits(&[("x", "a")]));
    assert!(admits(&[("X", "b")]) && !admits(&[("x", "b")]));
    assert!(admits(&[("X", "")]) && !admits(&[("x", "")]));
    assert!(admits(&[]) && !admits(&[]), "an absent value is one more");
}

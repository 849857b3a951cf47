//! Decisions per request do not allocate. Alone in its process, because it counts the allocations of a thread.

use allocation_counter::measure;
use expression::EvaluationScratch;
use route::{
    AccessDecision, AccessList, BytePattern, HeaderEdit, HeaderEdits, HostRule, PathRewrite, PathRule,
    Present, Rate, RateKey, RateKeyPart, RateLimiter, RequestFacts, RequestParts, RouteRule, RouteTable,
    Split, TemplateStage, ValueRule, VariableValues,
};

const FIELDS: [(&str, &str); 2] = [("Host", "www.example.com"), ("X-Beta", "1")];

fn request(path: &str) -> RequestParts<'_, [(&'static str, &'static str); 2]> {
    RequestParts {
        listener: 0,
        host: b"WWW.example.com.",
        path: path.as_bytes(),
        query: Some(b"page=2&beta=%31"),
        method: b"GET",
        client: [127, 0, 0, 1].into(),
        fields: &FIELDS,
        conditions: &route::NoConditions,
    }
}

fn table() -> RouteTable {
    let pattern = |text: &str| BytePattern::new(text).unwrap();
    let path = |text: &str| PathRule::Prefix(text.to_owned());
    let mut rules = vec![
        RouteRule { host: HostRule::from_text("*.example.com"), path: path("/api"), ..RouteRule::default() },
        RouteRule {
            host: HostRule::Pattern(pattern(r"www\..*")),
            path: path("/files"),
            ..RouteRule::default()
        },
        RouteRule {
            headers: vec![("x-beta".to_owned(), ValueRule::Pattern(pattern("[0-9]")))],
            query: vec![("beta".to_owned(), ValueRule::Exact("1".to_owned()))],
            clients: vec!["127.0.0.0/8".parse().unwrap()],
            ..RouteRule::default()
        },
    ];
    for number in 0..10 {
        let path = PathRule::Pattern(pattern(&format!("/{number}/.*")));
        rules.push(RouteRule { path, ..RouteRule::default() });
    }
    RouteTable::compile(rules)
}

#[test]
fn conditions_allocate_nothing() {
    let condition = crate::conditions::condition(
        "request.path.startsWith('/api') && request.host.endsWith('.com') && '1' in request.headers['x-beta'] \
         && request.query.beta == '1' && client.address in '127.0.0.0/8'",
    );
    let facts = RequestFacts {
        query: Some(b"page=2&beta=%31"),
        client: [127, 0, 0, 1].into(),
        ..crate::conditions::facts(&FIELDS)
    };
    let mut scratch = EvaluationScratch::new();
    let mut hold = || assert!(facts.hold_with(&condition, b"/%61pi//x", &mut scratch));
    hold();
    assert_eq!(measure(hold).count_total, 0);
}

#[test]
fn decisions_per_request_allocate_nothing() {
    let table = table();
    let asked = [("/api//x", 0), ("/%66iles/x", 1), ("/x", 2), ("/7/x", 10)];
    let choose = || {
        for (path, route) in asked {
            assert_eq!(table.choose(&request(path)), Some(route), "{path}");
        }
    };
    // Patterns allocate scratch space at first use.
    choose();
    assert_eq!(measure(choose).count_total, 0);

    let one = std::num::NonZeroU32::MIN;
    let rate = Rate::new(one, std::time::Duration::from_secs(1), one).unwrap();
    let key = RateKey(vec![RateKeyPart::ClientNetwork { bits_v4: 24, bits_v6: 64 }, RateKeyPart::Host]);
    let limiter = RateLimiter::new(rate, key, 100, [1, 2]);
    let access = AccessList::new(["127.0.0.0/8".parse().unwrap()], ["127.0.0.2/32".parse().unwrap()]);
    let split = Split::new([(0, "a", 1), (1, "b", 2)]).unwrap();
    let edits =
        [HeaderEdit::Set("X-Client", "$client_address $header.x-beta"), HeaderEdit::Remove("X-Powered-By")];
    let edits = HeaderEdits::new(edits, TemplateStage::Forward, None).unwrap();
    let rewrite = PathRewrite::prefix("/api", "/v1").unwrap();
    let mut out = Vec::with_capacity(1000);
    let counted = measure(|| {
        let request = request("/api/x");
        let values = VariableValues::from_request(request, "https");
        limiter.admit(&request, "", 5);
        limiter.admit(&request, "", 6);
        assert_eq!(access.access(request.client), AccessDecision::Allowed);
        split.draw(7);
        split.of_key(b"key");
        edits.write(&values, Present::default(), &mut out);
        assert!(edits.remove(b"x-powered-by"));
        assert_eq!(rewrite.apply(&values, &mut out), Ok(true));
    });
    assert_eq!(counted.count_total, 0);
    assert_eq!(out, b"X-Client: 127.0.0.1 1\r\n/v1/x?page=2&beta=%31");
}

//! Decisions per request do not allocate. Alone in its process, because it counts the allocations of a thread.

use std::sync::Arc;

use allocation_counter::measure;
use expression::{EvaluationScratch, ExchangeStage, Expression, ExpressionLimits, Schema, ValueType};
use route::{
    AccessDecision, AccessList, BytePattern, Concurrency, ConcurrencyEntry, ConcurrencyLimiter, HeaderEdit,
    HeaderEdits, HostRule, LaterFacts, NamedValues, PathRewrite, PathRule, Present, Rate, RateKey,
    RateKeyPart, RateLimiter, RequestFacts, RequestParts, RequestSource, ResponseFacts, RouteRule,
    RouteTable, Split, SplitShare, TemplateStage, ValueRule, VariableValues,
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

fn compiled(text: &str) -> Arc<Expression> {
    let schema = Schema::new(ExchangeStage::Response);
    Arc::new(Expression::of_type(ValueType::Boolean, text, &schema, &ExpressionLimits::default()).unwrap())
}

#[test]
fn conditions_on_a_response_allocate_nothing() {
    let condition = compiled(
        "response.status >= 200 && '1' in response.headers['x-a'] && client.user == 'ann' && 'b' in jwt.claims.roles \
         && response.size == 7 && (response.headers['x-b'] ?? '').matches('^[0-9]+$') && cache.status == 'miss'",
    );
    let claims = jwt::KeptClaims::from_texts([("roles", vec!["a", "b"])]);
    let head = b"HTTP/1.1 200 OK\r\nX-A: 0\r\nX-A: 1\r\nX-B: 12\r\nContent-Length: 7\r\n\r\n";
    let later = LaterFacts {
        user: "ann",
        claims: Some(&claims),
        response: Some(ResponseFacts { status: 200, head, size: None, time: None }),
        cache_status: "miss",
        ..LaterFacts::default()
    };
    let facts = crate::conditions::facts(&FIELDS);
    let mut scratch = EvaluationScratch::new();
    let mut hold = || assert!(facts.hold_later(&condition, b"/", &later, &mut scratch));
    // Patterns allocate scratch space at first use.
    hold();
    assert_eq!(measure(hold).count_total, 0);
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
    let limiter = RateLimiter::new(rate, key.clone(), 100, [1, 2]);
    let concurrency = ConcurrencyLimiter::<()>::new([1, 2]);
    let limit = Concurrency { max: one, waiting_max: 0 };
    let count = |request: &RequestParts<'_, _>| {
        let key = concurrency.key_of(&key, request, "");
        assert_eq!(concurrency.enter(key, limit, || ()), ConcurrencyEntry::UnderWay);
        assert_eq!(concurrency.enter(key, limit, || ()), ConcurrencyEntry::Full);
        assert_eq!(concurrency.exit(key), None);
    };
    // The map of keys allocates at first use.
    count(&request("/"));
    let access = AccessList::new(["127.0.0.0/8".parse().unwrap()], ["127.0.0.2/32".parse().unwrap()]);
    let share = |upstream, when| SplitShare { upstream, name: "a", weight: 1, when };
    let split =
        Split::with_conditions([share(0, None), share(1, Some(compiled("client.user == \"ann\"")))]).unwrap();
    let edits = [
        HeaderEdit::Set("X-Client", "$client_address $header.x-beta ${beta} ${beta}"),
        HeaderEdit::Remove("X-Powered-By"),
    ];
    let edits = edits.into_iter().enumerate().map(|(group, edit)| (group + 1, edit));
    let groups = vec![Some(compiled("client.user == \"ann\"")), Some(compiled("has(client.user)"))];
    let values = crate::values::values(&[("beta", "request.headers['x-beta'] ?? 'none'")]);
    let edits = HeaderEdits::in_groups(edits, groups, TemplateStage::Forward, &values).unwrap();
    let rewrite = PathRewrite::prefix("/api", "/v1", NamedValues::NONE).unwrap();
    let mut out = Vec::with_capacity(1000);
    let facts = crate::conditions::facts(&FIELDS);
    let counted = measure(|| {
        // Values take nothing but the text of what they are made of.
        let request = RequestParts { conditions: &facts, ..request("/api/x") };
        let values = VariableValues::from_request(request, "https");
        limiter.admit(&request, "", 5);
        limiter.admit(&request, "", 6);
        count(&request);
        assert_eq!(access.access(request.client), AccessDecision::Allowed);
        split.among(|_| true).draw(7);
        split.among(|_| true).of_key(b"key");
        let active = edits.active(|_| true);
        edits.write(&values, Present::default(), active, &mut out);
        assert!(edits.remove(b"x-powered-by", active));
        assert_eq!(rewrite.apply(&values, &mut out), Ok(true));
    });
    assert_eq!(counted.count_total, 0);
    assert_eq!(out, b"X-Client: 127.0.0.1 1 1 1\r\n/v1/x?page=2&beta=%31");
}

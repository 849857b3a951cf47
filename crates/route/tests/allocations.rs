//! What is asked for every request allocates nothing. Alone in its process, as it counts those of a thread.

use allocation_counter::measure;
use route::{
    Access, AccessList, Exchange, HeaderEdit, HeaderEdits, HostRule, PathRewrite, PathRule, Pattern, Present,
    Rate, RateKey, RateKeyPart, RateLimiter, Request, RouteTable, Rule, Split, Stage, ValueRule,
};

const FIELDS: [(&str, &str); 2] = [("Host", "www.example.com"), ("X-Beta", "1")];

fn request(path: &str) -> Request<'_, [(&'static str, &'static str); 2]> {
    Request {
        listener: 0,
        host: b"WWW.example.com.",
        path: path.as_bytes(),
        query: Some(b"page=2&beta=%31"),
        method: b"GET",
        client: [127, 0, 0, 1].into(),
        fields: &FIELDS,
    }
}

fn table() -> RouteTable {
    let pattern = |text: &str| Pattern::new(text).unwrap();
    let path = |text: &str| PathRule::Prefix(text.to_owned());
    let mut rules = vec![
        Rule { host: HostRule::of("*.example.com"), path: path("/api"), ..Rule::default() },
        Rule { host: HostRule::Pattern(pattern(r"www\..*")), path: path("/files"), ..Rule::default() },
        Rule {
            headers: vec![("x-beta".to_owned(), ValueRule::Pattern(pattern("[0-9]")))],
            query: vec![("beta".to_owned(), ValueRule::Exact("1".to_owned()))],
            clients: vec!["127.0.0.0/8".parse().unwrap()],
            ..Rule::default()
        },
    ];
    for number in 0..10 {
        let path = PathRule::Pattern(pattern(&format!("/{number}/.*")));
        rules.push(Rule { path, ..Rule::default() });
    }
    RouteTable::compile(rules)
}

#[test]
fn what_every_request_asks_for_allocates_nothing() {
    let table = table();
    let asked = [("/api//x", 0), ("/%66iles/x", 1), ("/x", 2), ("/7/x", 10)];
    let choose = || {
        for (path, route) in asked {
            assert_eq!(table.choose(&request(path)), Some(route), "{path}");
        }
    };
    // Patterns make room for themselves at first.
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
    let edits = HeaderEdits::new(edits, Stage::Forward, None).unwrap();
    let rewrite = PathRewrite::prefix("/api", "/v1").unwrap();
    let mut out = Vec::with_capacity(1000);
    let counted = measure(|| {
        let request = request("/api/x");
        let exchange = Exchange::of(request, "https");
        limiter.admit(&request, "", 5);
        limiter.admit(&request, "", 6);
        assert_eq!(access.access(request.client), Access::Allowed);
        split.draw(7);
        split.of_key(b"key");
        edits.write(&exchange, Present::default(), &mut out);
        assert!(edits.remove(b"x-powered-by"));
        assert_eq!(rewrite.apply(&exchange, &mut out), Ok(true));
    });
    assert_eq!(counted.count_total, 0);
    assert_eq!(out, b"X-Client: 127.0.0.1 1\r\n/v1/x?page=2&beta=%31");
}

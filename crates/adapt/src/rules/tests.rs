//! The routes give each request the same result as the ordered rules.

use ::expression::ExchangeStage;

use super::*;

fn schema() -> Schema {
    Schema::new(ExchangeStage::Request)
}

/// The conditions of a rule, and its result.
type Given<'r> = (&'r [usize], &'static str);

/// Conditions, rules over them, and the expected routes.
type Case<'r> = (&'r [Atom], &'r [Given<'r>], &'r [&'r str]);

/// Converts rules: conditions that must hold, and the result.
fn made(tests: &[Atom], rules: &[Given<'_>]) -> Vec<String> {
    let tests: Vec<Test> = tests.iter().map(|atom| Test { atom: atom.clone(), from: Vec::new() }).collect();
    let found = routes(&tests, &schema(), &mut |holds| {
        let rule =
            rules.iter().find(|(wanted, _)| wanted.iter().all(|place| holds.atom(&tests[*place].atom)));
        let mut options = DraftTable::default();
        options.set("upstream", rule.map_or("none", |(_, name)| *name), Vec::new());
        RegionOutcome { from: Vec::new(), options }
    });
    found.tables.iter().map(DraftTable::place).collect()
}

fn methods(names: &[&str]) -> Atom {
    Atom::Methods(names.iter().map(|name| (*name).to_owned()).collect())
}

#[test]
fn the_first_rule_that_holds_decides_where_conditions_meet() {
    let api = Atom::Path(PathIs::prefix("/api"));
    let host = Atom::Host(HostIs::Exact("a.b".to_owned()));
    let cases: [Case<'_>; 6] = [
        // The rules check the path first, Vanward checks the host first.
        (
            &[api.clone(), host.clone()],
            &[(&[0], "api"), (&[1], "site")],
            &[
                "host = \"a.b\", path = \"/api*\", upstream = \"api\"",
                "host = \"a.b\", upstream = \"site\"",
                "path = \"/api*\", upstream = \"api\"",
                "upstream = \"none\"",
            ],
        ),
        (
            &[host.clone(), api.clone()],
            &[(&[0], "site"), (&[1], "api")],
            &[
                "host = \"a.b\", upstream = \"site\"",
                "path = \"/api*\", upstream = \"api\"",
                "upstream = \"none\"",
            ],
        ),
        // A narrower host inside a wider one.
        (
            &[Atom::Host(HostIs::Below("b".to_owned())), host.clone()],
            &[(&[0], "below"), (&[1], "one")],
            &["host = \"*.b\", upstream = \"below\"", "upstream = \"none\""],
        ),
        // Overlapping lists of methods.
        (
            &[methods(&["GET", "POST"]), methods(&["POST", "PUT"])],
            &[(&[0, 1], "both"), (&[0], "first"), (&[1], "second")],
            &[
                "methods = \"POST\", upstream = \"both\"",
                "methods = [\"GET\", \"POST\"], upstream = \"first\"",
                "methods = [\"POST\", \"PUT\"], upstream = \"second\"",
                "upstream = \"none\"",
            ],
        ),
        // An expression inside a prefix.
        (
            &[Atom::Path(PathIs::Pattern("/api/(v1|v2)/.*".to_owned())), api.clone()],
            &[(&[0, 1], "both"), (&[1], "prefix"), (&[0], "pattern")],
            &[
                "path = \"~ /api/(v1|v2)/.*\", upstream = \"both\"",
                "path = \"/api*\", upstream = \"prefix\"",
                "upstream = \"none\"",
            ],
        ),
        // An exact path that an expression matches.
        (
            &[Atom::Path(PathIs::Pattern(".*\\.x".to_owned())), Atom::Path(PathIs::exact("/a.x"))],
            &[(&[1], "exact"), (&[0], "pattern")],
            &[
                "path = \"= /a.x\", upstream = \"exact\"",
                "path = \"~ .*\\\\.x\", upstream = \"pattern\"",
                "upstream = \"none\"",
            ],
        ),
    ];
    for (tests, rules, expected) in cases {
        let mut found = made(tests, rules);
        let mut expected: Vec<String> = expected.iter().map(|route| (*route).to_owned()).collect();
        found.sort();
        expected.sort();
        assert_eq!(found, expected, "{rules:?}");
    }
}

#[test]
fn overlapping_expressions_are_decided_within_a_route() {
    let paths = ["/a.*", "/.*b"].map(|pattern| Atom::Path(PathIs::Pattern(pattern.to_owned())));
    let with_both = |both: &'static str| made(&paths, &[(&[0, 1], both), (&[0], "first"), (&[1], "second")]);
    let apart = [
        "path = \"~ /a.*\", upstream = \"first\"",
        "path = \"~ /.*b\", upstream = \"second\"",
        "upstream = \"none\"",
    ];
    assert_eq!(with_both("first"), apart);
    let when = "when = 'request.path.matches(\"(?s)^/.*b$\")'";
    let expected = [
        format!("path = \"~ /a.*\", {when}, upstream = \"both\""),
        "path = \"~ /a.*\", upstream = \"first\"".to_owned(),
        format!("{when}, upstream = \"second\""),
        "upstream = \"none\"".to_owned(),
    ];
    assert_eq!(with_both("both"), expected);
}

fn header(name: &str) -> Atom {
    Atom::Header(name.to_owned(), TextIs::Present)
}

#[test]
fn conditions_are_routes_one_by_one() {
    let fields: Vec<Atom> = (0..40).map(|number| header(&format!("x-{number}"))).collect();
    let places: Vec<usize> = (0..40).collect();
    let names: Vec<&'static str> = vec!["one"; 40];
    let rules: Vec<Given<'_>> =
        places.iter().zip(&names).map(|(place, name)| (std::slice::from_ref(place), *name)).collect();
    // A route for each rule, although 2^40 combinations of their conditions exist.
    assert_eq!(made(&fields, &rules).len(), 41);
}

#[test]
fn options_say_what_they_can_in_the_order_of_routes() {
    let post = methods(&["POST"]);
    let clients = Atom::Clients(vec!["10.0.0.0/8".to_owned()]);
    let cases: [Case<'_>; 3] = [
        // A route with methods comes before one with fields.
        (
            &[post.clone(), header("a")],
            &[(&[0], "post"), (&[1], "a")],
            &[
                "methods = \"POST\", upstream = \"post\"",
                "headers = { a = true }, upstream = \"a\"",
                "upstream = \"none\"",
            ],
        ),
        (
            &[post.clone(), header("a")],
            &[(&[1], "a"), (&[0], "post")],
            &[
                "headers = { a = true }, upstream = \"a\"",
                "when = 'request.method == \"POST\"', upstream = \"post\"",
                "upstream = \"none\"",
            ],
        ),
        // Networks come last, behind conditions.
        (
            &[clients.clone(), Atom::When("request.version == \"1.0\"".to_owned())],
            &[(&[0], "near"), (&[1], "old")],
            &[
                "when = 'client.address in \"10.0.0.0/8\"', upstream = \"near\"",
                "when = 'request.version == \"1.0\"', upstream = \"old\"",
                "upstream = \"none\"",
            ],
        ),
    ];
    for (tests, rules, expected) in cases {
        assert_eq!(made(tests, rules), expected, "{rules:?}");
    }
}

#[test]
fn a_prefix_is_matched_as_a_text() {
    let tests: Vec<Test> = ["/admin", "/admin/open", "/shop"]
        .iter()
        .map(|path| Test {
            atom: Atom::Path(PathIs::prefix(path)),
            from: vec![StatementOrigin::Directive(0)],
        })
        .collect();
    let found = routes(&tests, &schema(), &mut |holds| {
        let mut options = DraftTable::default();
        match tests.iter().map(|test| holds.atom(&test.atom)).collect::<Vec<_>>()[..] {
            [true, false, _] => options.set("respond", answer(403, None), Vec::new()),
            [.., true] => options.set("upstream", "shop", Vec::new()),
            _ => options.set("upstream", "web", Vec::new()),
        }
        RegionOutcome { from: Vec::new(), options }
    });
    let shown: Vec<String> = found.tables.iter().map(DraftTable::place).collect();
    let expected = [
        "path = \"/admin/open*\", upstream = \"web\"",
        "path = \"/admin*\", respond = { status = 403 }",
        "path = \"/shop*\", upstream = \"shop\"",
        "upstream = \"web\"",
    ];
    assert_eq!(shown, expected);
}

#[test]
fn a_place_with_too_many_results_is_closed() {
    let fields: Vec<Atom> = (0..20).map(|number| header(&format!("x-{number}"))).collect();
    let tests: Vec<Test> = fields
        .iter()
        .map(|atom| Test { atom: atom.clone(), from: vec![StatementOrigin::Directive(0)] })
        .collect();
    let found = routes(&tests, &schema(), &mut |holds| {
        let mut options = DraftTable::default();
        for (number, field) in fields.iter().enumerate().filter(|(_, field)| holds.atom(field)) {
            options.set(&number.to_string(), format!("{field:?}"), Vec::new());
        }
        RegionOutcome { from: Vec::new(), options }
    });
    assert!(!found.dropped.is_empty());
    let last = found.tables.last().map(DraftTable::place).unwrap_or_default();
    assert!(last.starts_with("respond = { status = 501"), "{last}");
}

#[test]
fn many_conditions_end_in_time() {
    let hosts = (0..3000).map(|number| Atom::Host(HostIs::Exact(format!("h{number}.b"))));
    let tests: Vec<Test> =
        hosts.map(|atom| Test { atom, from: vec![StatementOrigin::Directive(0)] }).collect();
    let found = routes(&tests, &schema(), &mut |_| RegionOutcome::default());
    assert_eq!(found.tables.len(), 1);
    let found = routes(&tests, &schema(), &mut |holds| {
        let mut options = DraftTable::default();
        let host = tests.iter().position(|test| holds.atom(&test.atom));
        options.set("upstream", host.map_or(String::new(), |host| host.to_string()), Vec::new());
        RegionOutcome { from: Vec::new(), options }
    });
    assert!(!found.dropped.is_empty());
}

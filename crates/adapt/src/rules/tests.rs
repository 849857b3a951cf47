//! The routes give each request the same result as the ordered rules.

use super::*;

/// The conditions of a rule, and its result.
type Given<'r> = (&'r [usize], &'static str);

/// Conditions, rules over them, and the expected routes.
type Case<'r> = (&'r [Atom], &'r [Given<'r>], &'r [&'r str]);

/// Converts rules: conditions that must hold, and the result.
fn made(tests: &[Atom], rules: &[Given<'_>]) -> Vec<String> {
    let tests: Vec<Test> = tests.iter().map(|atom| Test { atom: atom.clone(), from: Vec::new() }).collect();
    let found = routes(&tests, &mut |holds| {
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
                "host = \"a.b\", path = \"/api\", upstream = \"api\"",
                "host = \"a.b\", upstream = \"site\"",
                "path = \"/api\", upstream = \"api\"",
                "upstream = \"none\"",
            ],
        ),
        (
            &[host.clone(), api.clone()],
            &[(&[0], "site"), (&[1], "api")],
            &[
                "host = \"a.b\", upstream = \"site\"",
                "path = \"/api\", upstream = \"api\"",
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
                "path = \"/api\", upstream = \"prefix\"",
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
fn overlapping_expressions_are_reported_if_the_result_differs() {
    let tests: Vec<Test> = ["/a.*", "/.*b"]
        .iter()
        .enumerate()
        .map(|(number, pattern)| Test {
            atom: Atom::Path(PathIs::Pattern((*pattern).to_owned())),
            from: vec![StatementOrigin::Directive(number)],
        })
        .collect();
    let told = |both: &'static str| {
        routes(&tests, &mut |holds| {
            let (first, second) = (holds.atom(&tests[0].atom), holds.atom(&tests[1].atom));
            let name = if first && second {
                both
            } else if first {
                "first"
            } else if second {
                "second"
            } else {
                "none"
            };
            let mut options = DraftTable::default();
            options.set("upstream", name, Vec::new());
            RegionOutcome { from: Vec::new(), options }
        })
        .unsaid
    };
    assert_eq!(told("first"), []);
    assert_eq!(told("second"), [StatementOrigin::Directive(1)]);
}

#[test]
fn many_conditions_end_in_time() {
    let hosts = (0..3000).map(|number| Atom::Host(HostIs::Exact(format!("h{number}.b"))));
    let tests: Vec<Test> =
        hosts.map(|atom| Test { atom, from: vec![StatementOrigin::Directive(0)] }).collect();
    let found = routes(&tests, &mut |_| RegionOutcome::default());
    assert_eq!(found.tables.len(), 1);
    assert!(!found.dropped.is_empty());
}

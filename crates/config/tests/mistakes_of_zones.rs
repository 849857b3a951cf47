//! Mistakes in limits of one zone, in which several routes count together, and in captures.

use config::parse;

#[test]
fn limits_of_one_zone_count_alike() {
    let two = |first: &str, second: &str| {
        let file = format!(
            "listen = [{{ address = \"127.0.0.1:8080\" }}]\nupstream.app.servers = [\"http://a\"]\n\
             [[route]]\nupstream = \"app\"\n{first}\n[[route]]\npath = \"/b\"\nupstream = \"app\"\n{second}\n"
        );
        let mistakes = parse(&file, "f").err().unwrap_or_default();
        mistakes.iter().map(|mistake| mistake.to_string().replacen("f:", "", 1)).collect::<Vec<_>>()
    };
    let rate = |options: &str| format!("rate_limit = {{ zone = \"z\", {options} }}");
    let one = rate("rate = \"5/m\"");
    for other in [
        "rate = \"5/m\", burst = 9",
        "rate = \"5/m\", fields = true",
        "rate = \"5/m\", when = \"has(request.query)\"",
    ] {
        assert_eq!(two(&one, &rate(other)), [""; 0], "{other}");
    }
    for other in ["rate = \"6/m\"", "rate = \"5/m\", key = \"host\"", "rate = \"5/m\", keys_max = 9"] {
        let expected = "6:1: rate_limit: the limits of zone \"z\" need the same rate, key, keys_max and shared; \
                        expected values as in line 3, or another zone or file";
        assert_eq!(two(&one, &rate(other)), [expected], "{other}");
    }
    let counted = |by: &str| format!("concurrency = {{ max = 1, zone = \"z\", by = \"{by}\" }}");
    assert_eq!(two(&counted("host"), &counted("host")), [""; 0]);
    let expected = "6:1: concurrency: the limits of zone \"z\" need the same by and shared; expected values as in \
                    line 3, or another zone or file";
    assert_eq!(two(&counted("host"), &counted("client")), [expected]);
    let shared = |max: u32| format!("concurrency = {{ max = {max}, zone = \"z\", shared = \"local\" }}");
    let expected = expected.replace("need the same by", "need the same max, by");
    let mistakes = two(&shared(1), &shared(2));
    assert!(mistakes.contains(&expected), "{mistakes:?}");
}

#[test]
fn captured_bodies_have_to_be_buffered() {
    for (buffering, count) in [("false", 1), ("{ discard = true }", 1), ("true", 0)] {
        let route = format!("request_buffering = {buffering}\ncapture = {{ file = \"a\", bodies = true }}");
        let file = format!(
            "[[listen]]\naddress = \"127.0.0.1:8080\"\n[[route]]\nupstream = \"app\"\n{route}\n[upstream.app]\nservers = [\"http://a\"]\n"
        );
        let mistakes = parse(&file, "f").err().unwrap_or_default();
        assert_eq!(mistakes.len(), count, "{mistakes:?}");
        let expected = "f:6:11: capture: bodies are captured only where they are buffered; expected request_buffering = \
                        true on the same route, or no bodies";
        assert!(mistakes.iter().all(|mistake| mistake.to_string() == expected), "{mistakes:?}");
    }
}

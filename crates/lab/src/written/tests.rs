//! Plans as they are written, and their mistakes.

use std::time::Duration;

use super::*;

const SHORTEST: &str = "title = \"t\"\nproxies = [\"direct\"]\nduration = \"1s\"\n";

#[test]
fn every_combination_is_a_case() {
    let text = format!(
        "{SHORTEST}[[case]]\nscheme = [\"http\", \"https\"]\npayload = [\"tiny\", \"large\"]\n\
         connections = [1, 2]\nload = [\"closed\", \"50%\"]\n"
    );
    let read = WrittenPlan::read(&text, "f", false).expect("a plan");
    assert_eq!(read.cases.len(), 16);
    assert_eq!(read.cases[0].name, "http-tiny-c1-closed");
    assert_eq!(read.cases[15].name, "https-large-c2-50%");
    assert_eq!(read.cases[15].load, PlanLoad::ShareOfSlowest(0.5));
}

#[test]
fn what_origins_speak_and_the_layer_make_cases_of_their_own() {
    let text = format!(
        "{SHORTEST}[[case]]\nname = \"{{upstream}}-{{layer}}\"\npayload = \"tiny\"\nconnections = 1\n\
         upstream = [\"http\", \"https\", \"h2\"]\n[[case]]\nname = \"l{{layer}}-{{scheme}}\"\npayload = \"tiny\"\n\
         connections = 1\nscheme = \"https\"\nupstream = \"https\"\nlayer = 4\n"
    );
    let read = WrittenPlan::read(&text, "f", false).expect("a plan");
    let names: Vec<&str> = read.cases.iter().map(|case| case.name.as_str()).collect();
    assert_eq!(names, ["http-7", "https-7", "h2-7", "l4-https"]);
    // Without TLS, `direct` has no server to connect to.
    assert_eq!(read.cases.iter().filter(|case| case.includes_role(ProxyRole::Direct)).count(), 2);
}

#[test]
fn versions_generators_searches_and_deviations_are_read() {
    let text = format!(
        "{SHORTEST}[[case]]\nname = \"{{version}}-{{generator}}-{{load}}\"\npayload = \"tiny\"\nconnections = 1\n\
         version = [\"1.1\", \"2\"]\ngenerator = [\"vanward\", \"h2load\"]\nload = [\"closed\", \"p99 < 10ms\"]\n\
         [proxy.direct]\nworkers = 2\naccess_log = true\n"
    );
    let read = WrittenPlan::read(&text, "f", false).expect("a plan");
    let names: Vec<&str> = read.cases.iter().map(|case| case.name.as_str()).collect();
    assert_eq!(names[..3], ["1.1-vanward-closed", "1.1-vanward-highest", "1.1-h2load-closed"]);
    assert_eq!((read.cases.len(), read.cases[7].version), (8, ClientVersion::Http2));
    assert!(matches!(&read.cases[7].load, PlanLoad::Search(bound) if bound.text() == "p99 < 10ms"));
    assert_eq!(read.wanted.deviations["direct"].access_log, Some(true));
}

#[test]
fn quick_takes_what_it_says() {
    let text = format!(
        "{SHORTEST}[[case]]\npayload = [\"tiny\", \"large\"]\nconnections = 400\nscheme = [\"http\", \"https\"]\n\
         duration = \"500ms\"\nquick = {{ connections = 4, payload = \"tiny\", scheme = \"https\" }}\n[quick]\nrepeats = 1\nduration = \"10ms\"\n"
    );
    let full = WrittenPlan::read(&text, "f", false).expect("a plan");
    assert_eq!((full.cases.len(), full.timing.rounds), (4, 3));
    assert_eq!(full.cases[0].measured(full.timing), Duration::from_millis(500));
    let quick = WrittenPlan::read(&text, "f", true).expect("a plan");
    assert_eq!((quick.cases.len(), quick.cases[0].connections.get()), (1, 4));
    assert_eq!(quick.cases[0].scheme, ClientScheme::Https);
    assert_eq!((quick.timing.rounds, quick.timing.measured), (1, Duration::from_millis(10)));
    assert_eq!(quick.cases[0].measured(quick.timing), quick.timing.measured);
}

#[test]
fn mistakes_have_a_place_and_the_name_that_was_meant() {
    let case = "[[case]]\npayload = \"tiny\"\nconnections = 1\n";
    let cases = [
        (format!("{SHORTEST}{case}lod = 5\n"), "f:7:1: ", "did you mean \"load\""),
        (format!("{SHORTEST}{case}load = \"much\"\n"), "f:7:8: ", "\"closed\""),
        (format!("{SHORTEST}{case}delay = \"5\"\n"), "f:7:9: ", "duration"),
        (format!("{SHORTEST}{case}{case}"), "f:4:", "two cases"),
        (SHORTEST.replace("direct", "ngnix") + case, "f:2:12: ", "nginx"),
        (
            format!("expect = [\"direct: p99 < much\"]\n{SHORTEST}{case}"),
            "f:1:",
            "\"much\" is not a duration",
        ),
        (format!("{SHORTEST}{case}load = \"errors < 1\"\n"), "f:7:8: ", "p99 < 10ms"),
        (format!("{SHORTEST}{case}generator = \"siege\"\n"), "f:7:13: ", "h2load"),
        (format!("{SHORTEST}{case}[proxy.nginx]\nworkers = 2\n"), "f:1:1: ", "none of the plan's"),
        (format!("{SHORTEST}{case}load = \"50%\"\n"), "f:1:1: ", "is a share of a closed loop"),
        (
            format!("{SHORTEST}{}", case.replace("tiny", "tinny")),
            "f:",
            "/tinny\": an origin has no such page",
        ),
        (format!("{SHORTEST}{}", case.replace("tiny", "/blank/-5")), "f:", "is not a size"),
        (format!("{SHORTEST}{case}responses = \"all\"\n"), "f:7:13: ", "`any`"),
        (format!("{SHORTEST}{case}responses = \"any\"\ngenerator = \"wrk\"\n"), "f:", "compares responses"),
        (format!("{SHORTEST}{case}layer = 5\n"), "f:7:9: ", "a layer is 4"),
        (format!("{SHORTEST}{case}layer = 4\nscheme = \"https\"\n"), "f:", "need upstream = \"https\""),
        (format!("{SHORTEST}{case}layer = 4\nupstream = \"h2\"\n"), "f:", "need upstream = \"http\""),
        (format!("{SHORTEST}{case}upstream = \"h3\"\n"), "f:7:12: ", "`h2`"),
        (
            format!("expect = [\"direct: p99 < 1s\", \"nginx: p99 < 1s\"]\n{SHORTEST}{case}"),
            "f:1:",
            "no proxy \"nginx\"",
        ),
        (format!("expect = [\"p99 < 1s\"]\n{SHORTEST}{case}"), "f:1:", "applies to no proxy"),
    ];
    for (text, place, said) in cases {
        let refused = WrittenPlan::read(&text, "f", false).expect_err("a mistake");
        assert_eq!(refused.len(), 1, "{refused:?}");
        let refused = refused[0].to_string();
        assert!(refused.starts_with(place) || place.ends_with(':') && refused.starts_with("f:"), "{refused}");
        assert!(refused.contains(said), "{refused}");
    }
}

#[test]
fn streams_are_cases_with_defaults_of_their_kind() {
    let text = format!(
        "{SHORTEST}expect = [\"direct: lost = 0\", \"direct: gap-p99 < 1s\"]\n[[case]]\nname = \"{{stream}}-{{load}}\"\n\
         stream = {{ kind = \"echo\", size = \"200B\", in_flight = 2 }}\npayload = \"/websocket\"\nconnections = 4\n\
         [[case]]\nname = \"{{stream}}\"\nstream = \"grpc-unary\"\npayload = \"/vanward.Origin/Echo\"\nconnections = 1\n\
         load = 500\n[[case]]\nname = \"{{stream}}\"\nstream = \"fan-out\"\npayload = \"/websocket/fan-out?room=r\"\n\
         connections = 3\nload = 5\n[[case]]\nname = \"l{{layer}}\"\nstream = \"grpc-bidi\"\n\
         payload = \"/vanward.Origin/Echo\"\nconnections = 1\nlayer = 4\n"
    );
    let read = WrittenPlan::read(&text, "f", false).expect("a plan");
    let names: Vec<&str> = read.cases.iter().map(|case| case.name.as_str()).collect();
    assert_eq!(names, ["echo-closed", "grpc-unary", "fan-out", "l4"]);
    let [echo, grpc, fan_out, layer_4] = &read.cases[..] else { panic!("four") };
    assert_eq!((echo.version, echo.upstream), (ClientVersion::Http1, OriginProtocol::Http));
    for case in [grpc, layer_4] {
        assert_eq!(
            (case.version, case.upstream),
            (ClientVersion::Http2, OriginProtocol::H2),
            "{}",
            case.name
        );
    }
    let streams = |case: &CasePlan| case.streams.clone().expect("streams");
    assert_eq!((streams(echo).size_bytes, streams(echo).in_flight.map(NonZeroUsize::get)), (200, Some(2)));
    assert_eq!(streams(fan_out).senders, Some(NonZeroUsize::MIN));
    assert_eq!((grpc.payload.bytes, &grpc.load), (None, &PlanLoad::Rate(500.0)));
}

#[test]
fn mistakes_of_streams_are_found_in_the_plan() {
    let stream = |stream: &str, path: &str, rest: &str| {
        format!("{SHORTEST}[[case]]\nstream = {stream}\npayload = \"{path}\"\nconnections = 4\n{rest}")
    };
    let (echo, events, call) = ("/websocket", "/events", "/vanward.Origin/Echo");
    let own = "[origin]\ncommand = [\"x\", \"{listen}\"]\n";
    let cases = [
        (stream("\"ecko\"", echo, ""), "f:5:10: ", "did you mean \"echo\""),
        (stream("{ kind = \"echo\", sizes = 5 }", echo, ""), "f:5:27: ", "did you mean \"size\""),
        (stream("{ size = \"5B\" }", echo, ""), "f:5:10: ", "missing field `kind`"),
        (stream("{ kind = \"echo\", message = \"hex:0\" }", echo, ""), "f:5:37: ", "pairs of hexadecimal"),
        (stream("{ kind = \"echo\", message = \"{{cuonter}}\" }", echo, ""), "f:5:37: ", "is not a value"),
        (stream("{ kind = \"echo\", message = \"@f\" }", echo, ""), "f:5:37: ", "a file elsewhere"),
        (stream("{ kind = \"echo\", senders = 2 }", echo, ""), "f:5:10: ", "senders applies to \"fan-out\""),
        (
            stream("{ kind = \"events\", size = \"5B\" }", events, ""),
            "f:5:10: ",
            "size applies to streams that send",
        ),
        (stream("\"events\"", events, "load = 5\n"), "f:4:1: ", "the server decides when"),
        (stream("\"fan-out\"", "/websocket/fan-out", ""), "f:4:1: ", "has no answers"),
        (
            stream("{ kind = \"fan-out\", senders = 4 }", "/websocket/fan-out", "load = 5\n"),
            "f:4:1: ",
            "as many senders",
        ),
        (
            stream("\"fan-out\"", "/websocket/fan-out", "load = 5\n")
                .replace("proxies", "origins = 2\nproxies"),
            "f:5:1: ",
            "do not share rooms",
        ),
        (stream("\"grpc-unary\"", call, "version = \"1.1\"\n"), "f:4:1: ", "expected version = \"2\""),
        (stream("\"grpc-unary\"", call, "upstream = \"http\"\n"), "f:4:1: ", "expected upstream = \"h2\""),
        (stream("\"echo\"", echo, "upstream = \"h2\"\n"), "f:4:1: ", "over HTTP/1.1"),
        (stream("{ kind = \"echo\", per_connection = 2 }", echo, ""), "f:4:1: ", "version = \"2\""),
        (stream("\"grpc-client-stream\"", call, ""), "f:4:1: ", "no method with client streams"),
        (stream("\"echo\"", "/tiny", ""), "f:4:1: ", "WebSocket echo at /websocket"),
        (stream("\"echo\"", echo, "generator = \"wrk\"\n"), "f:4:1: ", "only the generator \"vanward\""),
        (stream("\"echo\"", echo, "urls = { total = 5 }\n"), "f:4:1: ", "in place of requests"),
        (
            stream("\"echo\"", echo, "request = { body = \"x\" }\n"),
            "f:4:1: ",
            "everything in request except headers",
        ),
        (stream("\"echo\"", echo, "cache = \"1MB\"\n"), "f:4:1: ", "no cache stores"),
        (stream("\"echo\"", echo, own), "f:4:1: ", "expected ready ="),
        (
            format!(
                "expect = [\"direct: lost = 0\"]\n{SHORTEST}[[case]]\npayload = \"tiny\"\nconnections = 1\n"
            ),
            "f:1:11: ",
            "no case of the plan has streams",
        ),
    ];
    for (text, place, said) in cases {
        let refused = WrittenPlan::read(&text, "f", false).expect_err(said);
        assert_eq!(refused.len(), 1, "{refused:?}");
        let refused = refused[0].to_string();
        assert!(refused.starts_with(place) && refused.contains(said), "{refused}\n{place} {said}");
    }
}

#[test]
fn every_mistake_is_told_at_once() {
    let text = "titel = \"t\"\nproxies = [\"direct\", \"ngnix\"]\nduration = 5\nexpect = [\"direct: p99 < much\", \
                \"nginx: p99 < 1s\", \"p99 <\"]\n[[case]]\npayload = \"tiny\"\nconnections = 0\nlod = 1\n[[case]]\n\
                connections = 1\n[quick]\nrepeats = 1\nduratoin = \"1s\"\nwarm up\n[made]\nup = 1\n";
    let told: Vec<String> = WrittenPlan::read(text, "f", false)
        .expect_err("mistakes")
        .iter()
        .map(|mistake| format!("{}:{} {}", mistake.line, mistake.column, mistake.sentence()))
        .collect();
    let begins = [
        "1:1 unknown field `titel`; did you mean \"title\"? Expected one of",
        "2:22 no proxy is called \"ngnix\"; did you mean \"nginx\"?",
        "3:12 this is an integer; expected a string",
        "4:11 \"much\" is not a duration",
        "4:33 the plan has no proxy \"nginx\"",
        "4:52 \"\" is not a duration",
        "7:15 0 is not possible; expected a whole number, 1 or more",
        "8:1 unknown field `lod`; did you mean \"load\"?",
        "13:1 unknown field `duratoin`; did you mean \"duration\"?",
        "14:6 key with no value",
        "15:2 unknown field `made`",
    ];
    assert_eq!(told.len(), begins.len(), "{told:#?}");
    for (told, begin) in told.iter().zip(begins) {
        assert!(told.starts_with(begin), "{told}\n{begin}");
    }
    let missing =
        format!("{SHORTEST}[[case]]\nconnections = 1\n[[case]]\npayload = \"tiny\"\nconnections = 0\n");
    let mistakes = WrittenPlan::read(&missing.replace("title", "titel"), "f", false).expect_err("mistakes");
    let told: Vec<&str> = mistakes.iter().map(|mistake| mistake.message.as_str()).collect();
    let nought = "0 is not possible";
    assert_eq!(told, ["unknown field `titel`", "missing field `payload`", nought]);
    let mistakes = WrittenPlan::read("proxies = [\"direct\"]\n", "f", false).expect_err("mistakes");
    let told: Vec<&str> = mistakes.iter().map(|mistake| mistake.message.as_str()).collect();
    assert_eq!(told, ["the plan has no title", "the plan has no duration", "the plan has no case"]);
}

#[test]
fn what_is_no_plan_at_all_ends() {
    for text in [
        "",
        "[",
        "[[case]]",
        "case = 1",
        "\u{feff}\u{e9} = \u{e9}\n",
        "a = [\n1,\n\"",
        "[a]\n[a]\n",
        "proxies = [1, 2",
    ] {
        assert!(WrittenPlan::read(text, "f", false).is_err(), "{text}");
    }
    let many = "[[case]]\npayload = 1\nconnections = 0\n".repeat(500);
    let mistakes = WrittenPlan::read(&many, "f", false).expect_err("mistakes");
    assert!((100..=201).contains(&mistakes.len()), "{}", mistakes.len());
}

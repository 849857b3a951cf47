//! Live data in the admin API, and the last hour: requests under way, clients, points every five seconds.

use api::live::{HourStatus, LiveStatus, RequestStage};
use serde::de::DeserializeOwned;
use testkit::admin;
use testkit::scene::{BOTH, Scene, get};
use testkit::wait::assert_soon;

const ROUTES: &str = "admin = \"{dir}/admin\"\n[[route]]\nname = \"shop\"\nupstream = \"app\"\n\
                      [upstream.app]\nservers = [\"http://{0}\"]\n";

fn told<T: DeserializeOwned>(scene: &Scene, place: &str) -> T {
    let (status, text) = admin::asks(&scene.file("admin"), "GET", place, "");
    assert_eq!(status, 200, "{text}");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{place}: {error}: {text}"))
}

/// A request is shown from its admission to its end, without its query, even if it began before the first question.
#[test]
fn a_request_under_way_is_shown_with_what_it_waits_for() {
    for spoken in BOTH {
        let scene = Scene::new(ROUTES);
        let mut client = scene.client(spoken).asking(&get("/slow?token=secret"));
        let mut server = scene.accept(0).after_head();
        let live: LiveStatus = told(&scene, "/live");
        let [request] = &live.requests[..] else { panic!("there is one: {live:?}") };
        assert_eq!((request.line.as_str(), request.route.as_str()), ("GET /slow", "shop"));
        assert_eq!(request.upstream.as_deref(), Some("app"));
        let label = scene.server_address(0);
        assert_eq!((request.server.as_deref(), request.stage), (Some(label.as_str()), RequestStage::Server));
        assert_eq!(request.client, "127.0.0.1");
        server.sends("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nab");
        let mut stage = RequestStage::Server;
        assert_soon("the response is on its way", || {
            let live: LiveStatus = told(&scene, "/live");
            stage = live.requests.first().map_or(stage, |request| request.stage);
            stage == RequestStage::Response
        });
        server.sends("cd");
        assert_eq!(client.gets().body, "abcd");
        assert_soon("it has ended", || told::<LiveStatus>(&scene, "/live").requests.is_empty());
    }
}

#[test]
fn failed_requests_are_listed_with_route_server_and_cause() {
    for spoken in BOTH {
        let routes = ROUTES.replace("http://{0}", "http://127.0.0.1:1");
        let scene =
            Scene::new(&format!("{routes}[[route]]\npath = \"/fine\"\nrespond = {{ status = 503 }}\n"));
        let mut client = scene.client(spoken);
        assert_eq!(client.asks_for(&get("/fine")).status, 503);
        assert!(told::<LiveStatus>(&scene, "/live").errors.is_empty(), "an answer of the file is no error");
        (0..3).for_each(|_| assert_eq!(client.asks_for(&get("/?token=secret")).status, 502));
        assert_soon("they are noted", || {
            told::<LiveStatus>(&scene, "/live").errors.iter().map(|error| error.count).sum::<u64>() == 3
        });
        let live: LiveStatus = told(&scene, "/live");
        let [error] = &live.errors[..] else { panic!("alike ones are one: {live:?}") };
        assert_eq!((error.route.as_deref(), error.server.as_deref()), (Some("shop"), Some("127.0.0.1:1")));
        assert_eq!((error.status, error.cause.as_str()), (502, "upstream-refused"));
        assert!(error.detail.as_deref().is_some_and(|detail| detail.contains("refused")), "{error:?}");
        assert!(error.at_seconds > 1.7e9, "{error:?}");
    }
}

#[test]
fn clients_are_counted_from_the_first_question_on() {
    let scene = Scene::new("admin = \"{dir}/admin\"\n[[route]]\nrespond = { status = 200 }\n");
    let mut clients: Vec<_> = BOTH.into_iter().map(|spoken| scene.client(spoken)).collect();
    clients[0].asks_for(&get("/"));
    assert_eq!(told::<LiveStatus>(&scene, "/live").clients.requests, 0);
    for client in &mut clients {
        assert_eq!(client.asks_for(&get("/")).status, 200);
    }
    let counted = told::<LiveStatus>(&scene, "/live").clients;
    let each: Vec<_> = counted.clients.iter().map(|one| (one.address.as_str(), one.requests)).collect();
    assert_eq!((each, counted.requests, counted.error), (vec![("127.0.0.1", 2)], 2, 0));
}

#[test]
fn the_last_hour_has_a_point_for_each_five_seconds() {
    let scene = Scene::new("admin = \"{dir}/admin\"\n[[route]]\nrespond = { status = 404 }\n");
    scene.answer(BOTH[0], &get("/"));
    assert_soon("the requests are in a point", || {
        let hour: HourStatus = told(&scene, "/hour");
        assert_eq!(hour.at_seconds.len(), hour.requests_per_second.len());
        hour.client_errors_per_second.iter().any(|rate| *rate > 0.0)
            && hour.p50_ms.iter().any(Option::is_some)
    });
}

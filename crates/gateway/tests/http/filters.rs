//! Effects of filters on requests and responses.

use gateway::ObjectKind;
use serde_json::{Value, json};

use crate::scene::{
    answer, backend, cluster, conditions, config, gateway, http_route, listener, path_for_servers, translated,
};

fn redirect(options: Value) -> Value {
    json!([{ "type": "RequestRedirect", "requestRedirect": options }])
}

#[test]
fn redirects_keep_what_they_do_not_replace() {
    let prefix = |new: &str| json!({ "type": "ReplacePrefixMatch", "replacePrefixMatch": new });
    for (port, options, request, expected) in [
        (80, json!({}), "a.example/x", "302 http://a.example/x"),
        (8080, json!({}), "a.example/x", "302 http://a.example:8080/x"),
        (8080, json!({ "scheme": "https" }), "a.example/x?q", "302 https://a.example/x?q"),
        (8080, json!({ "scheme": "http" }), "a.example/x", "302 http://a.example/x"),
        (80, json!({ "scheme": "https", "port": 8443 }), "a.example/x", "302 https://a.example:8443/x"),
        (80, json!({ "port": 80 }), "a.example/x", "302 http://a.example/x"),
        (80, json!({ "hostname": "b.example", "statusCode": 301 }), "a.example/x", "301 http://b.example/x"),
        (
            80,
            json!({ "path": { "type": "ReplaceFullPath", "replaceFullPath": "/y$1" } }),
            "a.example/x",
            "302 http://a.example/y$1",
        ),
        (80, json!({ "path": prefix("/new") }), "a.example/old/z", "302 http://a.example/new/z"),
        (80, json!({ "path": prefix("/new/") }), "a.example/old", "302 http://a.example/new"),
        (80, json!({ "path": prefix("/new") }), "a.example/old/", "302 http://a.example/new/"),
        (80, json!({ "path": prefix("/") }), "a.example/old/z", "302 http://a.example/z"),
        (80, json!({ "path": prefix("") }), "a.example/old", "302 http://a.example/"),
    ] {
        let mut cluster = cluster();
        cluster.put(
            ObjectKind::Gateway,
            gateway("infra", "edge", &json!([listener("http", port, Value::Null)])),
        );
        let prefix = if request.contains("/old") { "/old" } else { "/" };
        let rules = json!([{ "matches": [{ "path": { "type": "PathPrefix", "value": prefix } }], "filters": redirect(options.clone()) }]);
        cluster.put(ObjectKind::HttpRoute, http_route("r", &[], &rules));
        let config = config(&translated(&cluster));
        assert_eq!(answer(&config, port, &format!("GET http://{request}")), expected, "{options}");
    }
}

#[test]
fn paths_are_rewritten_for_servers() {
    for (matched, path, request, expected) in [
        (
            "/old",
            json!({ "type": "ReplacePrefixMatch", "replacePrefixMatch": "/new" }),
            "/old/x?q=1",
            "/new/x?q=1",
        ),
        ("/old", json!({ "type": "ReplacePrefixMatch", "replacePrefixMatch": "/new/" }), "/old", "/new/"),
        ("/old", json!({ "type": "ReplacePrefixMatch", "replacePrefixMatch": "/" }), "/old/x", "/x"),
        ("/old", json!({ "type": "ReplacePrefixMatch", "replacePrefixMatch": "" }), "/old", "/"),
        ("/old", json!({ "type": "ReplaceFullPath", "replaceFullPath": "/one" }), "/old/x?q=1", "/one?q=1"),
    ] {
        let mut cluster = cluster();
        let rewrite = json!([{ "type": "URLRewrite", "urlRewrite": { "path": path } }]);
        let rules = json!([{ "matches": [{ "path": { "type": "PathPrefix", "value": matched } }],
            "filters": rewrite, "backendRefs": [backend("cart")] }]);
        cluster.put(ObjectKind::HttpRoute, http_route("r", &[], &rules));
        let config = config(&translated(&cluster));
        assert_eq!(
            path_for_servers(&config, 80, &format!("GET http://a.example{request}")),
            expected,
            "{path}"
        );
    }
}

#[test]
fn all_other_filters_are_options_of_the_route() {
    let mut cluster = cluster();
    let edits = json!({ "set": [{ "name": "X-Set", "value": "1" }], "add": [{ "name": "X-Add", "value": "2" }], "remove": ["X-Gone"] });
    let rules = json!([{
        "filters": [
            { "type": "RequestHeaderModifier", "requestHeaderModifier": edits },
            { "type": "ResponseHeaderModifier", "responseHeaderModifier": edits },
            { "type": "URLRewrite", "urlRewrite": { "hostname": "inner.example" } },
            { "type": "RequestMirror", "requestMirror": { "backendRef": backend("blog"), "fraction": { "numerator": 1, "denominator": 4 } } },
            { "type": "CORS", "cors": { "allowOrigins": ["https://a.example"], "allowMethods": ["PUT"], "allowCredentials": true } },
        ],
        "backendRefs": [backend("cart")],
    }]);
    cluster.put(ObjectKind::HttpRoute, http_route("r", &[], &rules));
    let translation = translated(&cluster);
    assert_eq!(
        conditions(&translation, ObjectKind::HttpRoute, "r"),
        "Accepted=Accepted ResolvedRefs=ResolvedRefs"
    );
    let config = config(&translation);
    let policies = &config.routes[1].policies;
    let edits = |edits: &route::HeaderEdits| format!("{:?}", edits.edits().collect::<Vec<_>>());
    let expected = r#"[Set("X-Set", "1"), Add("X-Add", "2"), Remove("x-gone")]"#;
    assert_eq!(edits(&policies.request_headers), expected);
    assert_eq!(edits(&policies.response_headers), expected);
    assert_eq!(policies.rewrite.host.as_ref().map(route::HostRewrite::as_str), Some("inner.example"));
    let mirror = policies.mirror.as_ref().expect("a mirror");
    assert_eq!(config.upstreams[mirror.upstream].name, "shop.blog.80");
    assert!(policies.cors.is_some());
}

#[test]
fn time_outs_are_those_of_the_request_and_of_the_server() {
    let seconds = |count: u64| Some(std::time::Duration::from_secs(count));
    let never = seconds(24 * 3600);
    for (timeouts, request, first_byte) in [
        (json!({ "request": "10s", "backendRequest": "2s" }), Some(seconds(10)), seconds(2)),
        (json!({ "request": "10m" }), Some(seconds(600)), seconds(600)),
        (json!({ "backendRequest": "2s" }), None, seconds(2)),
        (json!({ "request": "0s" }), Some(None), never),
        (json!({ "request": "0s", "backendRequest": "2s" }), Some(None), seconds(2)),
        (json!({ "backendRequest": "0s" }), None, never),
        (json!({}), None, None),
    ] {
        let mut cluster = cluster();
        let rules = json!([{ "backendRefs": [backend("cart")], "timeouts": timeouts }]);
        cluster.put(ObjectKind::HttpRoute, http_route("r", &[], &rules));
        let config = config(&translated(&cluster));
        let found = &config.routes[1].policies.timeouts;
        assert_eq!((found.request, found.upstream_first_byte), (request, first_byte), "{timeouts}");
    }
}

/// A mirror without a backend does not affect requests.
#[test]
fn a_mirror_without_a_backend_is_reported_and_left_out() {
    let mut cluster = cluster();
    let rules = json!([{
        "filters": [{ "type": "RequestMirror", "requestMirror": { "backendRef": backend("gone") } }],
        "backendRefs": [backend("cart")],
    }]);
    cluster.put(ObjectKind::HttpRoute, http_route("r", &[], &rules));
    let translation = translated(&cluster);
    assert_eq!(
        conditions(&translation, ObjectKind::HttpRoute, "r"),
        "Accepted=Accepted !ResolvedRefs=BackendNotFound"
    );
    assert_eq!(answer(&config(&translation), 80, "GET http://a.example/"), "shop.cart.80");
}

#[test]
fn a_redirect_may_edit_its_response_but_ask_nobody() {
    let edits = json!({ "type": "ResponseHeaderModifier", "responseHeaderModifier": { "set": [{ "name": "X", "value": "1" }] } });
    let mirror = json!({ "type": "RequestMirror", "requestMirror": { "backendRef": backend("blog") } });
    for (filter, expected) in [(edits, "Accepted=Accepted"), (mirror, "!Accepted=UnsupportedValue")] {
        let mut cluster = cluster();
        let filters = json!([{ "type": "RequestRedirect", "requestRedirect": {} }, filter]);
        cluster.put(ObjectKind::HttpRoute, http_route("r", &[], &json!([{ "filters": filters }])));
        let told = conditions(&translated(&cluster), ObjectKind::HttpRoute, "r");
        assert_eq!(told.split(' ').next(), Some(expected));
    }
}

//! Whole configurations: the output, the remarks, and that no statement is lost.

use proptest::prelude::*;

use super::*;
use crate::RemarkKind;
use crate::told::{self, filled, nothing, options, routes, whole};

const SAMPLE: &str = include_str!("../../samples/apache/01-sites.conf");

#[track_caller]
fn checked(text: &str) -> Adapted {
    let adapted = adapt(text, "a.conf", &mut nothing).unwrap_or_else(|mistake| panic!("{mistake}"));
    let (_, source) = syntax::read(text, "a.conf", &mut nothing).expect("it was read");
    whole(&source, &adapted);
    adapted
}

/// The routes of a virtual host.
#[track_caller]
fn site(inner: &str) -> (Vec<String>, Adapted) {
    let adapted =
        checked(&format!("Listen 80\n<VirtualHost *:80>\nServerName a.example\n{inner}\n</VirtualHost>\n"));
    (routes(&adapted), adapted)
}

#[test]
fn the_sample_is_valid_and_whole() {
    let adapted = checked(&filled(SAMPLE));
    let found = routes(&adapted);
    for route in [
        "path = \"= /.git\"; respond = { status = 403 }",
        "rewrite = { path = \"/v1/\" }",
        "redirect = { to = \"/new$1\", status = 301, pattern = \"/old(.*)\" }",
        "upstream = \"both\"",
    ] {
        let parts: Vec<&str> = route.split("; ").collect();
        let has_all = |route: &&String| parts.iter().all(|part| route.contains(part));
        assert!(found.iter().any(|route| has_all(&route)), "{route}: {found:#?}");
    }
    assert!(options(&adapted).iter().any(|line| line.contains("weight = 3")), "{}", adapted.toml);
}

#[test]
fn locations_of_servers_are_mapped_back_where_apache_does_it() {
    let (found, _) = site("ProxyPass / http://s:1/\nProxyPassReverse / http://s:1/");
    assert!(found[0].contains("location = \"absolute\""), "{found:?}");
    for other in ["ProxyPass / http://s:1/", "ProxyPass / http://s:1/\nProxyPassReverse / http://t/"] {
        let (found, _) = site(other);
        assert!(!found[0].contains("location"), "{found:?}");
    }
    let (_, adapted) = site("ProxyPass /a http://s:1/");
    assert!(adapted.remarks.iter().any(|remark| remark.why.contains("Apache sends `//`")));
}

#[test]
fn balancers_of_virtual_hosts() {
    let inner = "<Proxy balancer://set>\nBalancerMember http://s:1\nBalancerMember http://s:2\n</Proxy>\nProxyPass / balancer://set/";
    let (found, adapted) = site(inner);
    assert_eq!(found, ["upstream = \"set\""], "{adapted:?}");
    // Another virtual host has one of the same name.
    let two = format!("{inner}\n</VirtualHost>\n<VirtualHost *:80>\nServerName b.example\n{inner}");
    let (found, _) = site(&two);
    assert!(found.iter().all(|route| route.contains("status = 501")), "{found:?}");
}

#[test]
fn the_first_pass_whose_path_is_met_wins_and_paths_end_at_slashes() {
    let (found, _) = site("ProxyPass /a/b !\nProxyPass /a http://s:1/x\nProxyPass / http://s:2/");
    let at = |path: &str| found.iter().filter(|route| route.contains(&format!("path = \"{path}\""))).count();
    assert_eq!((at("= /a"), at("/a/*"), at("= /a/b"), at("/a/b/*")), (1, 1, 1, 1), "{found:#?}");
    let rewritten = |path: &str| found.iter().any(|route| route.contains(&format!("rewrite = {{ {path} }}")));
    assert!(rewritten("pattern = \"/a(.*)\", path = \"/x$1\"") && rewritten("path = \"/x/\""), "{found:#?}");
    assert_eq!(found.iter().filter(|route| route.contains("status = 404")).count(), 2, "{found:#?}");
    assert_eq!(found.last().map(String::as_str), Some("upstream = \"s-2\""));
}

#[test]
fn guards_are_taken_over_or_their_requests_get_501() {
    let none = "respond = { status = 501";
    let rows = [
        ("Require ip 10.0.0.0/8 192.0.2.1", "allow = [\"10.0.0.0/8\", \"192.0.2.1\"]"),
        ("Require all denied", "respond = { status = 403 }"),
        ("AuthType Basic\nAuthUserFile /u\nRequire valid-user", "auth = { users = \"/u\" }"),
        ("AuthType Digest\nAuthUserFile /u\nRequire valid-user", none),
        ("Require ip 10.0.0.0/8\nRequire valid-user", none),
        ("Require host example.com", none),
        ("Require not ip 10.0.0.0/8", none),
        ("<RequireAny>\nRequire ip 10.0.0.0/8\n</RequireAny>", none),
        ("Order deny,allow\nDeny from all", none),
        ("Satisfy any", none),
    ];
    for (inner, expected) in rows {
        let (found, adapted) =
            site(&format!("ProxyPass / http://s:1/\n<Location /in>\n{inner}\n</Location>"));
        for path in ["\"= /in\"", "\"/in/*\""] {
            let route = found.iter().find(|route| route.contains(&format!("path = {path}")));
            assert!(route.is_some_and(|route| route.contains(expected)), "{inner}: {found:#?}");
            assert_eq!(
                route.is_some_and(|route| route.contains("upstream")),
                !expected.starts_with("respond")
            );
        }
        assert_eq!(adapted.refused() > 0, expected == none, "{inner}: {:?}", adapted.remarks);
    }
    let (found, _) = site("ProxyPass / http://s:1/\n<Location /x*>\nRequire all denied\n</Location>");
    assert!(found.iter().all(|route| route.contains(none)), "{found:#?}");
    // A later section wins.
    let later =
        "<Location />\nRequire all denied\n</Location>\n<Location /open>\nRequire all granted\n</Location>";
    let (found, _) = site(&format!("ProxyPass / http://s:1/\n{later}"));
    let is_open = |route: &&String| route.contains("path = \"= /open\"") && route.contains("upstream");
    assert!(found.iter().any(|route| is_open(&route)), "{found:#?}");
    assert!(found.last().is_some_and(|route| route.contains("status = 403")), "{found:#?}");
}

#[test]
fn what_is_not_understood_is_refused_and_answers_501() {
    for inner in [
        "ProxyPass / ajp://s:8009/",
        "ProxyPass / unix:/run/a.sock|http://s/",
        "ProxyPass / balancer://none/",
        "ProxyPassMatch (.*) http://s:1$1",
        "DocumentRoot /srv/www",
    ] {
        let (found, adapted) = site(inner);
        assert!(found[0].contains("status = 501"), "{inner}: {found:#?}");
        assert!(!found.iter().any(|route| route.contains("upstream")), "{inner}: {found:#?}");
        assert!(adapted.refused() > 0, "{inner}: {:?}", adapted.remarks);
    }
    let (_, adapted) = site("ProxyPass / http://s:1/\nRewriteEngine On\nHeader set X-A \"%{Y}i\"");
    let refused = adapted.remarks.iter().filter(|remark| remark.kind == RemarkKind::Refused);
    assert_eq!(refused.map(|remark| remark.line).collect::<Vec<_>>(), [5, 6]);
}

#[test]
fn hosts_addresses_and_certificates() {
    let text = "Listen 80\nListen 127.0.0.1:443 https\nProxyPass / http://lost:1/\n<VirtualHost *:80>\nServerName a.example\n\
                Redirect / https://a.example/\n</VirtualHost>\n<VirtualHost _default_:443>\nSSLEngine on\nSSLCertificateFile /c\n\
                SSLCertificateKeyFile /k\nServerName a.example:443\nServerAlias *.a.example\nProxyPass / https://s:8443/\n</VirtualHost>\n";
    let adapted = checked(text);
    let lines = options(&adapted);
    for line in [
        "address = \"*:80\"",
        "address = \"127.0.0.1:443\"",
        "tls = { certificates = [{ cert = \"/c\", key = \"/k\" }] }",
        "host = \"server\"",
    ] {
        assert!(lines.iter().any(|known| known == line), "{line}: {}", adapted.toml);
    }
    assert!(!adapted.toml.contains("lost"), "{}", adapted.toml);
    let redirect = "redirect = { to = \"https://a.example/$1\", status = 302, pattern = \"/(.*)\" }";
    assert!(routes(&adapted).iter().any(|route| route.contains(redirect)), "{}", adapted.toml);
}

#[test]
fn guards_outside_of_locations_are_not_lost() {
    let none = "respond = { status = 501";
    for guard in [
        "<Proxy *>\nRequire ip 10.0.0.0/8\n</Proxy>",
        "<Proxy *>\nOrder deny,allow\nDeny from all\n</Proxy>",
        "SSLVerifyClient require",
        "RewriteRule !^/ok - [F]",
        "<If \"true\">\nRequire all denied\n</If>",
        "<LimitExcept GET>\nRequire all denied\n</LimitExcept>",
    ] {
        let (found, _) = site(&format!("ProxyPass / http://s:1/\n{guard}"));
        assert!(found.iter().all(|route| route.contains(none)), "{guard}: {found:#?}");
    }
    let outside = "<Proxy *>\nRequire ip 10.0.0.0/8\n</Proxy>\nListen 80\n<VirtualHost *:80>\nProxyPass / http://s:1/\n</VirtualHost>\n";
    assert!(routes(&checked(outside)).iter().all(|route| route.contains(none)), "{outside}");
    let outside = "<Location /in>\nRequire ip 10.0.0.0/8\n</Location>\nListen 80\n<VirtualHost *:80>\nProxyPass / http://s:1/\n</VirtualHost>\n";
    let found = routes(&checked(outside));
    assert!(found.iter().take(2).all(|route| route.contains("allow = [\"10.0.0.0/8\"]")), "{found:#?}");
    let (found, _) = site("ProxyPass / http://s:1/\nRewriteCond %{HTTP_HOST} x\nRewriteRule ^/git - [F,L]");
    assert!(found[0].contains("path = \"~ /git.*\"; respond = { status = 501"), "{found:#?}");
    assert_eq!(found[1], "upstream = \"s-1\"");
    let (found, _) = site("ProxyPass / http://s:1/\n<Proxy *>\nOrder deny,allow\nAllow from all\n</Proxy>");
    assert_eq!(found, ["upstream = \"s-1\""]);
}

#[test]
fn a_file_of_one_site_has_the_addresses_of_its_hosts() {
    let adapted =
        checked("<VirtualHost *:8080>\nServerName a.example\nProxyPass / http://s:1/\n</VirtualHost>\n");
    assert!(options(&adapted).contains(&"address = \"*:8080\"".to_owned()), "{}", adapted.toml);
}

#[test]
fn lines_continue_and_definitions_count() {
    let adapted = checked(
        "Define PORT 8080\nListen ${PORT}\n<VirtualHost *:8080>\nServerName a.example\nProxyPass / \\\n  http://s:1/\n\
         RequestHeader set X-A 'b c'\n</VirtualHost>\n<IfModule !mod_proxy.c>\nListen 81\n</IfModule>\n",
    );
    assert!(
        adapted.toml.contains("address = \"*:8080\"") && !adapted.toml.contains(":81\""),
        "{}",
        adapted.toml
    );
    assert_eq!(routes(&adapted), ["request_headers = { set = { X-A = \"b c\" } }; upstream = \"s-1\""]);
}

#[test]
fn wrong_syntax_has_its_place() {
    for (text, at) in [
        ("<Location /a>\nRequire all denied\n", (3, 1)),
        ("Listen 80\n</Location>\n", (2, 1)),
        ("<Location /a>\n</VirtualHost>\n", (2, 1)),
        ("ServerName \"a\n", (1, 1)),
    ] {
        let mistake = adapt(text, "a.conf", &mut nothing).err().unwrap_or_else(|| panic!("{text}"));
        assert_eq!((mistake.line, mistake.column), at, "{text}");
    }
}

const WORDS: &str = "Listen\n80\n<VirtualHost\n*:80>\n</VirtualHost>\nServerName\na.example\nProxyPass\n/\n/a\n!\nhttp://s:1/\n\\n\n\\n\n\\n\n\
                     <Location\n/in>\n</Location>\nRequire\nip\n10.0.0.0/8\nall\ndenied\nRedirect\npermanent\nHeader\nset\nX-A\n1\n<IfModule\nm>\n\
                     </IfModule>\nDefine\nN\n${N}\n\"q\"\n\\\\\n#\nbalancer://b/\n<Proxy\nbalancer://b>\n</Proxy>\nBalancerMember";

proptest! {
    #[test]
    fn any_text_gives_a_whole_result_or_a_mistake(words in prop::collection::vec(told::word(WORDS), 0..60)) {
        let text = words.join(" ");
        if let Ok((_, source)) = syntax::read(&text, "a.conf", &mut nothing) {
            let adapted = adapt(&text, "a.conf", &mut nothing).expect("it was read");
            told::sound(&source, &adapted);
        }
    }
}

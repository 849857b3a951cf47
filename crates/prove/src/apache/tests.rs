//! Facts of configurations of Apache, and rewritten ones.

use super::*;
use crate::nginx::tests::stand_ins;

const SITE: &str = "ServerRoot /etc/apache2
Listen 80
<VirtualHost *:80>
    ServerName a.example
    ServerAlias *.b.example
    <Location /in>
        Require ip 10.0.0.0/8
    </Location>
    ProxyPass /x !
    ProxyPass /api http://10.0.0.2:8080/v1
    ProxyPass / balancer://all/
    Redirect permanent /old /new
    CustomLog /var/log/x combined
</VirtualHost>
<Proxy balancer://all>
    BalancerMember http://10.0.0.3
</Proxy>
";

fn old() -> OldConfiguration {
    let nothing = &mut |_: &str| Err("there is none".to_owned());
    examine(adapt::statements::apache(SITE, "a.conf", nothing).expect("it is right"))
}

#[test]
fn hosts_sections_and_servers_are_facts() {
    let old = old();
    let doors: Vec<_> = old.doors.iter().map(|door| (door.host.as_str(), door.port, door.is_tls)).collect();
    assert_eq!(doors, [("*", 80, false)]);
    let servers: Vec<_> =
        old.servers.iter().map(|server| (server.address.as_str(), server.group.as_str())).collect();
    assert_eq!(servers, [("10.0.0.2:8080", "10.0.0.2:8080"), ("10.0.0.3:80", "balancer://all")]);
    let [site] = &old.sites[..] else { panic!("{:?}", old.sites) };
    assert_eq!(site.hosts.len(), 2);
    let path = |text: &str| OldCondition::Path(TextPattern::Prefix(text.to_owned()));
    let inside = OldCondition::Clients(vec!["10.0.0.0/8".to_owned()]);
    let found: Vec<_> = site.rules.iter().map(|rule| (rule.place.line, rule.conditions.clone())).collect();
    assert_eq!(
        found,
        [
            (3, vec![]),
            (6, vec![path("/in")]),
            (6, vec![path("/in"), inside]),
            (9, vec![path("/x")]),
            (10, vec![path("/api")]),
            (11, vec![]),
            (12, vec![path("/old")]),
        ]
    );
}

#[test]
fn addresses_servers_and_networks_are_replaced_and_sections_have_marks() {
    let old = old();
    let made = original(&old, &stand_ins(&old));
    for line in [
        "Listen 127.0.0.9:4000",
        "<virtualhost 127.0.0.9:4000>",
        "require ip 127.100.0.0/16",
        "proxypass /api http://127.0.0.9:5000/v1",
        "balancermember http://127.0.0.9:5001",
        "SetEnvIf Request_URI ^ proof_0=0",
        "SetEnvIf Request_URI ^/api(/|$) proof_3=3",
    ] {
        assert_eq!(
            made.text.lines().filter(|known| known.trim() == line).count(),
            1,
            "{line}\n{}",
            made.text
        );
    }
    assert!(!made.text.contains("/var/log") && !made.text.contains("/etc/apache2"), "{}", made.text);
    assert_eq!(made.text.lines().count(), made.lines.len());
    assert_eq!(made.marks.len(), 5, "{:?}", made.marks);
}

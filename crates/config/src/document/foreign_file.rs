//! Recognises configuration files of other programs by how their lines start.

/// A program whose configuration files are recognised by how lines start.
struct System {
    name: &'static str,
    /// The beginnings of lines that identify the format.
    tells: &'static [&'static str],
}

/// Known programs. Formats with equal braces are distinguished by their words; if two fit equally, the first one
/// counts.
const SYSTEMS: &[System] = &[
    System {
        name: "Varnish (VCL)",
        tells: &[
            "vcl 4",
            "sub vcl_",
            "import std",
            "backend default",
            "set req.",
            "set beresp.",
            "set bereq.",
            ".host =",
            "return (",
            "return(",
        ],
    },
    System {
        name: "HAProxy",
        tells: &[
            "frontend ",
            "backend ",
            "defaults",
            "global",
            "default_backend ",
            "use_backend ",
            "timeout ",
            "mode http",
            "mode tcp",
            "bind ",
            "server ",
            "option http",
            "option forwardfor",
            "acl ",
            "maxconn ",
            "stats ",
            "listen ",
            "balance ",
        ],
    },
    System {
        name: "Squid",
        tells: &[
            "http_port ",
            "https_port ",
            "http_access ",
            "acl ",
            "cache_peer ",
            "cache_dir ",
            "cache_mem ",
            "refresh_pattern ",
            "visible_hostname ",
            "coredump_dir ",
        ],
    },
    System {
        name: "nginx",
        tells: &[
            "http {",
            "http{",
            "events {",
            "server {",
            "server{",
            "upstream ",
            "location ",
            "listen ",
            "server_name ",
            "proxy_pass ",
            "proxy_set_header ",
            "worker_processes ",
            "worker_connections ",
            "keepalive_timeout ",
            "ssl_certificate",
            "access_log ",
            "error_log ",
            "include ",
            "stream {",
            "root ",
        ],
    },
    System {
        name: "Apache httpd",
        tells: &[
            "<virtualhost",
            "</virtualhost",
            "proxypass",
            "proxypassreverse",
            "servername ",
            "documentroot ",
            "loadmodule ",
            "<proxy",
            "<location",
            "sslengine ",
            "rewriterule ",
            "listen ",
        ],
    },
    System {
        name: "Traefik",
        tells: &[
            "entrypoints:",
            "routers:",
            "services:",
            "middlewares:",
            "providers:",
            "certificatesresolvers:",
            "loadbalancer:",
            "[entrypoints",
            "[http.routers",
            "[http.services",
            "[providers",
            "[http.middlewares",
            "[certificatesresolvers",
            "http:",
            "rule:",
        ],
    },
    System {
        name: "Envoy",
        tells: &[
            "static_resources:",
            "dynamic_resources:",
            "listeners:",
            "- name: listener",
            "filter_chains:",
            "clusters:",
            "virtual_hosts:",
            "load_assignment:",
            "route_config:",
            "socket_address:",
            "typed_config:",
            "\"@type\": type.googleapis.com/envoy",
            "- name: envoy.",
            "admin:",
            "http_filters:",
        ],
    },
    System {
        name: "Kubernetes",
        tells: &[
            "apiversion:",
            "kind: ingress",
            "kind: httproute",
            "kind: gateway",
            "metadata:",
            "spec:",
            "rules:",
            "parentrefs:",
        ],
    },
    System {
        name: "Caddy",
        tells: &[
            "reverse_proxy ",
            "reverse_proxy{",
            "file_server",
            "encode ",
            "handle ",
            "handle_path ",
            "tls ",
            "respond ",
            "root *",
            "php_fastcgi ",
            "redir ",
            "log {",
            "@",
            "header ",
            "basic_auth ",
            "import ",
            "\"apps\":",
            "\"handle\":",
        ],
    },
];

/// The most lines that are examined.
const LINES_MAX: usize = 2000;

/// The program whose configuration file the text is, and the number of the first telling line, from 1; `None` if it is
/// not recognised.
pub(crate) fn whose(text: &str) -> Option<(&'static str, usize)> {
    let all = || text.lines().take(LINES_MAX).enumerate().map(|(at, line)| (at + 1, line.trim()));
    let lines = || all().filter(|(_, line)| !is_assignment(line));
    // Our format also has tables; no other has both.
    if all().any(|(_, line)| line.starts_with("[[listen]]") || line.starts_with("[[route]]")) {
        return None;
    }
    let told = SYSTEMS.iter().filter_map(|system| {
        let mut first = None;
        let tells = |tell: &&&str| {
            let mut found = lines().filter(|(_, line)| {
                line.get(..tell.trim_end().len())
                    .is_some_and(|begin| begin.eq_ignore_ascii_case(tell.trim_end()))
                    && (!tell.ends_with(' ')
                        || line[tell.trim_end().len()..].starts_with(char::is_whitespace))
            });
            let Some((at, _)) = found.next() else { return false };
            first = Some(first.map_or(at, |first: usize| first.min(at)));
            true
        };
        let count = system.tells.iter().filter(tells).count();
        (count >= 2).then(|| (count, system.name, first.unwrap_or(1)))
    });
    // The first of those with the most.
    let best = told.reduce(|best, other| if other.0 > best.0 { other } else { best });
    let (_, name, line) = best.or_else(|| site_of_caddy(text).map(|line| (0, "Caddy", line)))?;
    Some((name, line))
}

/// `name = value`: only TOML has it among these formats, and Traefik, which has tables, too.
fn is_assignment(line: &str) -> bool {
    let is_of_name = |character: char| character.is_alphanumeric() || "_-.".contains(character);
    let rest = line.trim_start_matches(is_of_name);
    rest.len() < line.len() && rest.trim_start().starts_with('=') && !line.ends_with(';')
}

/// A site of Caddy's may be all that there is: a host with a brace behind it.
fn site_of_caddy(text: &str) -> Option<usize> {
    let is_site = |line: &str| {
        let site = line.trim().strip_suffix('{').map(str::trim_end);
        site.is_some_and(|site| {
            !site.is_empty()
                && !site.contains(char::is_whitespace)
                && (site.starts_with(':') || site.contains('.') || site == "localhost")
        })
    };
    text.lines().take(LINES_MAX).position(is_site).map(|at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_others_are_recognised() {
        for (text, name, line) in [
            (
                "# x\nhttp {\n  server {\n    listen 80;\n    location / { proxy_pass http://a; }\n  }\n}\n",
                "nginx",
                2,
            ),
            ("upstream app {\n  server 10.0.0.1;\n}\nserver {\n  server_name a;\n}\n", "nginx", 1),
            (
                "global\n  maxconn 10\ndefaults\n  mode http\nfrontend web\n  bind :80\n  default_backend app\nbackend app\n  server a 10.0.0.1:80\n",
                "HAProxy",
                1,
            ),
            ("example.com {\n\treverse_proxy localhost:9000\n}\n", "Caddy", 1),
            (":80 {\n\tencode gzip\n\treverse_proxy 10.0.0.1:80 10.0.0.2:80\n}\n", "Caddy", 2),
            (
                "entryPoints:\n  web:\n    address: \":80\"\nproviders:\n  file:\n    filename: x\n",
                "Traefik",
                1,
            ),
            ("[entryPoints]\n  [entryPoints.web]\n  address = \":80\"\n[providers.file]\n", "Traefik", 1),
            (
                "http:\n  routers:\n    a:\n      rule: Host(`a`)\n  services:\n    b:\n      loadBalancer:\n",
                "Traefik",
                1,
            ),
            (
                "static_resources:\n  listeners:\n  - name: listener_0\n    address:\n      socket_address: { address: 0.0.0.0, port_value: 80 }\n",
                "Envoy",
                1,
            ),
            ("vcl 4.1;\n\nbackend default {\n  .host = \"a\";\n}\n", "Varnish (VCL)", 1),
            ("acl localnet src 10.0.0.0/8\nhttp_port 3128\nhttp_access allow localnet\n", "Squid", 1),
            (
                "<VirtualHost *:80>\n  ServerName a\n  ProxyPass / http://b/\n</VirtualHost>\n",
                "Apache httpd",
                1,
            ),
            (
                "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata:\n  name: a\nspec:\n",
                "Kubernetes",
                1,
            ),
        ] {
            let told = whose(text).map(|(name, _)| name);
            assert_eq!(told, Some(name), "{text}");
            assert!(
                whose(text).is_some_and(|(_, first)| first <= line.max(1) + 1),
                "{text}: {:?}",
                whose(text)
            );
        }
        for text in [
            "",
            "a = 1\n",
            "[[listen]]\nserver_name = \"a\"\nupstream = 1\nlocation = 2\n",
            "listen = 80\n",
            "\u{e9}\u{e9}\u{e9}",
        ] {
            assert_eq!(whose(text), None, "{text}");
        }
    }
}

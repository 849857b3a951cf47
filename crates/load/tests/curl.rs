//! Redirects, cookies, credentials and directions: compares the generator with curl on nginx, if both are installed. On
//! CI they must be installed.

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::made::Made;
use load::{ConnectTargets, Errors, LoadPlan, RunOutcome, Tls};

/// nginx whose statuses reveal the request.
struct Nginx {
    child: Child,
    /// HTTP/1.1, HTTP/2, and both over TLS.
    ports: [u16; 3],
    made: Made,
}

impl Nginx {
    /// `None` if nginx or curl is not installed, unless this is CI.
    fn start() -> Option<Self> {
        let has_curl = Command::new("curl").arg("--version").stdout(Stdio::null()).status().is_ok();
        // nginx cannot use a port that the kernel chooses. These three were free at once a moment ago, so they differ.
        let free = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").expect("a port on loopback is free"));
        let ports = free.map(|listener| listener.local_addr().expect("it is bound").port());
        let made = Made::new(&format!("curl-{}", ports[0]), &["shop.test"]);
        let folder = made.folder();
        std::fs::write(folder.join("users"), "name:{PLAIN}secret\n").expect("a file");
        let file = folder.join("nginx.conf");
        std::fs::write(&file, configuration(&folder.display().to_string(), ports)).expect("a file");
        let spawned = Command::new("nginx").arg("-c").arg(&file).stderr(Stdio::null()).spawn();
        let is_ci = std::env::var_os("CI").is_some();
        assert!(!is_ci || (has_curl && spawned.is_ok()), "nginx and curl must be installed on CI");
        let mut nginx = Self { child: spawned.ok().filter(|_| has_curl)?, ports, made };
        while ports.iter().any(|port| TcpStream::connect(("127.0.0.1", *port)).is_err()) {
            let ended = nginx.child.try_wait().expect("a child of ours");
            assert!(ended.is_none(), "nginx ended: {ended:?}; see {}", nginx.made.folder().display());
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(nginx)
    }

    fn socket(&self) -> std::path::PathBuf {
        self.made.folder().join("socket")
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn configuration(path: &str, [plain, http2, tls]: [u16; 3]) -> String {
    format!(
        "worker_processes 1; daemon off; master_process off; pid {path}/pid; error_log {path}/error.log;
         events {{ worker_connections 512; }}
         http {{ access_log off; client_body_temp_path {path}/body; proxy_temp_path {path}/proxy;
                 fastcgi_temp_path {path}/fastcgi; uwsgi_temp_path {path}/uwsgi; scgi_temp_path {path}/scgi;
                 ssl_certificate {path}/cert.pem; ssl_certificate_key {path}/key.pem;
                 ssl_client_certificate {path}/cert.pem; ssl_verify_client optional;
                 server {{
                   listen 127.0.0.1:{plain}; listen 127.0.0.1:{http2} http2;
                   listen 127.0.0.1:{tls} ssl http2; listen unix:{path}/socket;
                   location /hop {{ return 302 /landed; }}
                   location /relative/hop {{ absolute_redirect off; return 301 ../landed; }}
                   location /landed {{ return 204; }}
                   location /loop {{ return 302 /loop; }}
                   location /away {{ return 302 http://elsewhere.test/; }}
                   location /see {{ return 303 /method; }}
                   location /keep {{ return 307 /method; }}
                   location /method {{
                     if ($request_method = GET) {{ return 204; }}
                     if ($content_length = 2) {{ return 206; }}
                     return 400; }}
                   location /login {{ add_header Set-Cookie 'user=x; Path=/'; return 302 /private; }}
                   location /private {{ if ($cookie_user = x) {{ return 204; }} return 403; }}
                   location /given {{ if ($http_cookie = 'a=b; c=d') {{ return 204; }} return 403; }}
                   location /admin {{ auth_basic x; auth_basic_user_file {path}/users; try_files /none =204; }}
                   location /leave {{ return 302 https://127.0.0.1:{tls}/secret; }}
                   location /secret {{ if ($http_authorization) {{ return 403; }} return 204; }}
                   location /host {{ if ($host = shop.test) {{ return 204; }} return 400; }}
                   location /sni {{ if ($ssl_server_name = shop.test) {{ return 204; }} return 400; }}
                   location /me {{ if ($ssl_client_verify = SUCCESS) {{ return 204; }} return 403; }}
                 }} }}"
    )
}

/// The final status in curl, and the number of redirects that it followed.
fn curl(arguments: &[&str]) -> (u16, u64) {
    let output = Command::new("curl")
        .args(["-s", "-o", "/dev/null", "-w", "%{http_code} %{num_redirects}", "--noproxy", "*"])
        .args(arguments)
        .output()
        .expect("curl is installed");
    let text = String::from_utf8(output.stdout).expect("text");
    let (status, redirects) = text.split_once(' ').expect("what -w says");
    (status.parse().expect("a status"), redirects.parse().expect("a number"))
}

/// The final status of each of three requests, and the number of redirects that each followed.
fn load(plan: &LoadPlan) -> (u16, u64) {
    let told = run(plan);
    let statuses: Vec<(u16, u64)> = told.statuses.into_iter().collect();
    let [(status, 3)] = statuses[..] else { panic!("{statuses:?}, {:?}", told.error_examples) };
    (status, told.redirects / 3)
}

fn run(plan: &LoadPlan) -> RunOutcome {
    load::run(plan).expect("it is reached")
}

/// Plans of three requests on one connection: HTTP/1.1 and HTTP/2 without TLS, then both with it.
fn plans(nginx: &Nginx, path: &str, change: impl Fn(&mut LoadPlan)) -> Vec<LoadPlan> {
    let [plain, http2, tls] = nginx.ports;
    let versions =
        [("http", plain, false), ("http", http2, true), ("https", tls, false), ("https", tls, true)];
    let plan = |(scheme, port, http2)| {
        let mut plan = LoadPlan {
            http2,
            connections: 1,
            duration_seconds: None,
            requests: Some(3),
            tls: Tls { verify: false, ..Tls::default() },
            ..LoadPlan::new(format!("{scheme}://127.0.0.1:{port}{path}"))
        };
        change(&mut plan);
        plan
    };
    versions.map(plan).into()
}

#[test]
fn redirects_cookies_and_credentials_are_those_of_curl() {
    let Some(nginx) = Nginx::start() else { return };
    type Case = (&'static str, &'static [&'static str], fn(&mut LoadPlan));
    let cases: [Case; 12] = [
        ("/hop", &[], |_| {}),
        ("/hop", &["-L"], |plan| plan.redirects_max = Some(10)),
        ("/relative/hop", &["-L"], |plan| plan.redirects_max = Some(10)),
        ("/see", &["-L", "-d", "hi"], |plan| {
            (plan.method, plan.body, plan.redirects_max) = ("POST".into(), b"hi".to_vec(), Some(10));
        }),
        ("/hop", &["-L", "-d", "hi"], |plan| {
            (plan.method, plan.body, plan.redirects_max) = ("POST".into(), b"hi".to_vec(), Some(10));
        }),
        ("/keep", &["-L", "-d", "hi"], |plan| {
            (plan.method, plan.body, plan.redirects_max) = ("POST".into(), b"hi".to_vec(), Some(10));
        }),
        ("/login", &["-L"], |plan| plan.redirects_max = Some(10)),
        ("/login", &["-L", "-b", ""], |plan| {
            (plan.redirects_max, plan.cookies) = (Some(10), Some(String::new()));
        }),
        ("/given", &["-b", "a=b; c=d"], |plan| plan.cookies = Some("a=b; c=d".into())),
        ("/admin", &["-u", "name:secret"], |plan| plan.user = Some("name:secret".into())),
        ("/admin", &["-u", "name:wrong"], |plan| plan.user = Some("name:wrong".into())),
        ("/host", &["-H", "Host: shop.test"], |plan| plan.headers = vec!["Host: shop.test".into()]),
    ];
    for (path, arguments, change) in cases {
        let expected = curl(&[arguments, &[&format!("http://127.0.0.1:{}{path}", nginx.ports[0])]].concat());
        for plan in plans(&nginx, path, change) {
            assert_eq!(load(&plan), expected, "{path} {arguments:?}, HTTP/2 {}: {:?}", plan.http2, plan.urls);
        }
    }
}

#[test]
fn another_origin_gets_no_credentials_and_a_loop_or_a_stranger_is_an_error() {
    let Some(nginx) = Nginx::start() else { return };
    let user = "name:secret";
    let url = |path: &str, at: usize| {
        format!("{}://127.0.0.1:{}{path}", ["http", "", "https"][at], nginx.ports[at])
    };
    assert_eq!(curl(&["-k", "-u", user, &url("/secret", 2)]), (403, 0));
    assert_eq!(curl(&["-k", "-L", "-u", user, &url("/leave", 0)]), (204, 1));
    let plan = plans(&nginx, "/leave", |plan| {
        (plan.redirects_max, plan.user) = (Some(10), Some(user.to_owned()));
    });
    let told = run(&plan[0]);
    assert_eq!((told.statuses[&204], told.redirects, told.errors), (3, 3, Errors::default()));
    // The first connection was open before; the one to the other origin is kept for the next redirect, as is the first.
    assert_eq!(told.connections_opened, 1);
    assert_eq!(load(&LoadPlan { urls: vec![url("/secret", 2)], ..plan[0].clone() }), (403, 0));
    // Credentials are sent to the same origin.
    assert_eq!(load(&plan[2]), (403, 1));
    assert_eq!(curl(&["-k", "-L", "-u", user, &url("/leave", 2)]), (403, 1));
    for (path, most) in [("/loop", "--max-redirs"), ("/away", "no URL of the run")] {
        for plan in plans(&nginx, path, |plan| plan.redirects_max = Some(4)) {
            let told = run(&plan);
            assert_eq!(told.errors, Errors { redirect: 3, ..Errors::default() });
            let example = told.error_examples.values().next().expect("an example");
            assert!(example.contains(most), "{example}");
        }
    }
}

#[test]
fn connections_go_where_they_are_led_with_the_name_of_the_url() {
    let Some(nginx) = Nginx::start() else { return };
    let [plain, http2, tls] = nginx.ports;
    let made = || Tls { ca: Some(nginx.made.certificate()), ..Tls::default() };
    let ca = nginx.made.certificate().display().to_string();
    for (scheme, port, is_http2) in
        [("http", plain, false), ("http", http2, true), ("https", tls, false), ("https", tls, true)]
    {
        let url = format!("{scheme}://shop.test:{port}/host");
        let entry = format!("shop.test:{port}:127.0.0.1");
        let base = || LoadPlan {
            http2: is_http2,
            connections: 1,
            duration_seconds: None,
            requests: Some(3),
            tls: made(),
            ..LoadPlan::new(url.clone())
        };
        if !(is_http2 && scheme == "http") {
            assert_eq!(curl(&["--resolve", &entry, "--cacert", &ca, &url]), (204, 0));
        }
        let resolve = ConnectTargets { resolve: vec![entry], ..ConnectTargets::default() };
        assert_eq!(load(&LoadPlan { directions: resolve, ..base() }), (204, 0));
        let connect_to = vec![format!("shop.test:{port}:127.0.0.1:")];
        let led = ConnectTargets { connect_to, ..ConnectTargets::default() };
        assert_eq!(load(&LoadPlan { directions: led, ..base() }), (204, 0));
    }
    let socket = nginx.socket();
    let path = socket.display().to_string();
    assert_eq!(curl(&["--unix-socket", &path, "http://shop.test/host"]), (204, 0));
    let directions = ConnectTargets { unix_socket: Some(socket), ..ConnectTargets::default() };
    let plan = plans(&nginx, "/host", |_| {}).swap_remove(0);
    let told = LoadPlan { urls: vec!["http://shop.test/host".into()], directions, ..plan };
    assert_eq!(load(&told), (204, 0));
}

#[test]
fn a_server_sees_the_asked_name_and_the_clients_certificate() {
    let Some(nginx) = Nginx::start() else { return };
    let (cert, key) = (nginx.made.certificate(), nginx.made.key());
    let (cert_path, key_path) = (cert.display().to_string(), key.display().to_string());
    let url = |path: &str| format!("https://127.0.0.1:{}{path}", nginx.ports[2]);
    assert_eq!(curl(&["-k", &url("/me")]), (403, 0));
    assert_eq!(curl(&["-k", "--cert", &cert_path, "--key", &key_path, &url("/me")]), (204, 0));
    let both = cert.with_file_name("both.pem");
    let pem = [&cert, &key].map(|file| std::fs::read_to_string(file).expect("a file")).concat();
    std::fs::write(&both, pem).expect("a file");
    for (certificate, key, status) in
        [(None, None, 403), (Some(cert.clone()), Some(key), 204), (Some(both), None, 204)]
    {
        for mut plan in plans(&nginx, "/me", |_| {}).split_off(2) {
            (plan.tls.certificate, plan.tls.key) = (certificate.clone(), key.clone());
            assert_eq!(load(&plan), (status, 0), "{certificate:?}");
        }
    }
    // The name is sent as SNI, and the certificate must be valid for it.
    for mut plan in plans(&nginx, "/sni", |_| {}).split_off(2) {
        assert_eq!(load(&plan), (400, 0));
        plan.tls = Tls { ca: Some(cert.clone()), server_name: Some("shop.test".into()), ..Tls::default() };
        assert_eq!(load(&plan), (204, 0));
        plan.tls.server_name = Some("other.test".into());
        let error = load::run(&plan).expect_err("a certificate for another name").to_string();
        assert!(error.contains("not valid for name"), "{error}");
    }
}

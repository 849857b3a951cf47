//! Admission of bots by signatures (Web Bot Auth).

use std::time::{SystemTime, UNIX_EPOCH};

use testkit::scene::{BOTH, BodylessRequest, Scene, Spoken, get};
use testkit::text::OK;
use testkit::tokens::Issuer;

use super::tokens::{Publisher, key_response};

const ROUTES: &str = r#"
[log]
target = "{dir}/access.log"
format = "json"
[[route]]
headers = { Signature-Agent = true }
upstream = "app"
rate = "64KB/s"
web_bot_auth = { agents = ["http://OTHER", "http://PUBLISHER"], lifetime = "2h" }
response_headers = { set = { X-Who = "$user" } }
[[route]]
path = "/bots"
upstream = "app"
web_bot_auth = { agents = "http://PUBLISHER" }
[[route]]
path = "/counted"
headers = { Signature-Agent = true }
upstream = "app"
web_bot_auth = { agents = ["http://OTHER", "http://PUBLISHER"] }
rate_limit = { rate = "1/h", key = "user" }
[[route]]
respond = { status = 204 }
[upstream.app]
servers = ["http://{0}"]
"#;

/// The fields of a request for the host `test`, signed for `authority`.
struct Signed<'s> {
    agent: Option<&'s str>,
    authority: &'s str,
    key: &'s Issuer,
    lifetime_s: u64,
}

impl Signed<'_> {
    fn fields(&self) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later").as_secs();
        let mut base = format!("\"@authority\": {}\n", self.authority);
        let mut covered = "\"@authority\"".to_owned();
        let mut fields = String::new();
        if let Some(agent) = self.agent {
            base += &format!("\"signature-agent\": \"{agent}\"\n");
            covered += " \"signature-agent\"";
            fields = format!("signature-agent: \"{agent}\"\n");
        }
        let parameters = format!(
            "({covered});created={};expires={};keyid=\"{}\";alg=\"ed25519\";tag=\"web-bot-auth\"",
            now - 60,
            now - 60 + self.lifetime_s,
            self.key.thumbprint()
        );
        base += &format!("\"@signature-params\": {parameters}");
        let signature = self.key.signature(&base);
        fields + &format!("signature-input: s={parameters}\nsignature: s=:{signature}:\n")
    }
}

fn scene(publisher: &Publisher, other: &Publisher) -> Scene {
    Scene::new(&ROUTES.replace("PUBLISHER", &publisher.address).replace("OTHER", &other.address))
}

#[test]
fn a_bot_comes_in_by_its_signature() {
    let key = Issuer::new("any");
    let publisher = Publisher::new(key_response(&[&key]), |it| it);
    let other = Publisher::new(key_response(&[&Issuer::new("other")]), |it| it);
    let scene = scene(&publisher, &other);
    let agent = format!("http://{}", publisher.address);
    let signed = Signed { agent: Some(&agent), authority: "test", key: &key, lifetime_s: 3600 };
    for spoken in BOTH {
        let (seen, got) =
            scene.exchange(spoken, &BodylessRequest { fields: &signed.fields(), ..get("/a?b") }, OK);
        assert_eq!((got.status, got.field("x-who")), (200, Some(agent.as_str())), "{spoken:?}");
        assert!(seen.to_lowercase().contains("signature-agent: "), "{seen}");
        // Without a name, the key identifies the bot.
        let nameless = Signed { agent: None, ..signed }.fields();
        let (_, got) = scene.exchange(spoken, &BodylessRequest { fields: &nameless, ..get("/bots") }, OK);
        assert_eq!(got.status, 200, "{spoken:?}");
        // A request without a signature takes another route.
        assert_eq!(scene.answer(spoken, &get("/")).status, 204, "{spoken:?}");
    }
    let (running, directory) = scene.into_parts();
    running.drain();
    running.wait();
    let log = std::fs::read_to_string(directory.path().join("access.log")).expect("the log is there");
    assert_eq!(
        log.lines().filter(|line| line.contains(&format!("\"user\":\"{agent}\""))).count(),
        4,
        "{log}"
    );
}

/// Each bot has a separate limit, independent of its addresses.
#[test]
fn bots_are_counted_by_their_names() {
    let (key, other_key) = (Issuer::new("a"), Issuer::new("b"));
    let publisher = Publisher::new(key_response(&[&key]), |it| it);
    let other = Publisher::new(key_response(&[&other_key]), |it| it);
    let [agent, other_agent] = [&publisher, &other].map(|it| format!("http://{}", it.address));
    let signed = Signed { agent: Some(&agent), authority: "test", key: &key, lifetime_s: 3600 };
    let of_other = Signed { agent: Some(&other_agent), key: &other_key, ..signed };
    for spoken in BOTH {
        let scene = scene(&publisher, &other);
        let forged = Signed { key: &other_key, ..signed }.fields();
        assert_eq!(scene.answer(spoken, &BodylessRequest { fields: &forged, ..get("/counted") }).status, 403);
        for fields in [signed.fields(), of_other.fields()] {
            let (_, got) =
                scene.exchange(spoken, &BodylessRequest { fields: &fields, ..get("/counted") }, OK);
            assert_eq!(got.status, 200, "{spoken:?}");
            assert_eq!(
                scene.answer(spoken, &BodylessRequest { fields: &fields, ..get("/counted") }).status,
                429
            );
        }
    }
}

#[test]
fn what_is_not_signed_as_it_says_is_refused() {
    let (key, other_key) = (Issuer::new("a"), Issuer::new("b"));
    let publisher = Publisher::new(key_response(&[&key]), |it| it);
    let other = Publisher::new(key_response(&[&other_key]), |it| it);
    let stranger = Publisher::new(key_response(&[&key]), |it| it);
    let scene = scene(&publisher, &other);
    let [agent, other_agent, unlisted] =
        [&publisher, &other, &stranger].map(|it| format!("http://{}", it.address));
    let signed = Signed { agent: Some(&agent), authority: "test", key: &key, lifetime_s: 3600 };
    let unsigned = format!("signature-agent: \"{agent}\"\n");
    const REFUSED: &str = "The signature of the bot is not valid here.\n";
    for (fields, body) in [
        (unsigned, "The signature of a bot is required.\n"),
        (signed.fields().replace("web-bot-auth", "other"), "The signature of a bot is required.\n"),
        (Signed { authority: "example.com", ..signed }.fields(), REFUSED),
        (Signed { key: &other_key, ..signed }.fields(), REFUSED),
        (Signed { agent: Some(&other_agent), ..signed }.fields(), REFUSED),
        (Signed { agent: Some(&unlisted), ..signed }.fields(), REFUSED),
        (Signed { agent: Some("file:///etc/passwd"), ..signed }.fields(), REFUSED),
        (Signed { lifetime_s: 10, ..signed }.fields(), REFUSED),
        (Signed { lifetime_s: 7201, ..signed }.fields(), REFUSED),
        (signed.fields().replace("signature: s=:", "signature: s=:AAAA"), REFUSED),
        (signed.fields().replace("signature-input: s=", "signature-input: t="), REFUSED),
        (signed.fields().replace("\"@authority\" ", ""), REFUSED),
        (signed.fields().replace(&agent, &other_agent), REFUSED),
    ] {
        for spoken in BOTH {
            let got = scene.answer(spoken, &BodylessRequest { fields: &fields, ..get("/") });
            assert_eq!((got.status, got.body.as_str()), (403, body), "{spoken:?} {fields}");
        }
    }
    assert_eq!(stranger.fetches(), 0, "keys are fetched from listed agents alone");
}

#[test]
fn a_bot_may_have_new_keys() {
    let (old, new) = (Issuer::new("old"), Issuer::new("new"));
    let publisher = Publisher::new(key_response(&[&old]), |it| it);
    let other = Publisher::new(key_response(&[&Issuer::new("other")]), |it| it);
    let scene = scene(&publisher, &other);
    let agent = format!("http://{}", publisher.address);
    let signed = |key| Signed { agent: Some(&agent), authority: "test", key, lifetime_s: 3600 }.fields();
    for key in [&old, &new] {
        publisher.publishes(key_response(&[key]));
        let fields = signed(key);
        let (_, got) = scene.exchange(Spoken::Http1, &BodylessRequest { fields: &fields, ..get("/") }, OK);
        assert_eq!(got.status, 200);
    }
    assert_eq!(
        scene.answer(Spoken::Http1, &BodylessRequest { fields: &signed(&old), ..get("/") }).status,
        403
    );
}

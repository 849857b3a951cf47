//! DNS records by dynamic updates (RFC 2136), over TCP.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use config::{DnsUpdate, TsigKey};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::dns_message::{self, DnsAnswer, Edit, NotAName};
use super::dns_tsig::{self, Signer, Unverified};
use super::proof::{RecordChange, TxtRecord};

const UPDATE_MAX: Duration = Duration::from_secs(20);

pub(crate) async fn send(update: &DnsUpdate, record: &TxtRecord, change: RecordChange) -> Result<(), String> {
    let sent = tokio::time::timeout(UPDATE_MAX, send_at_all(update, record, change)).await;
    let sent = sent.unwrap_or_else(|_| Err("no answer in time".to_owned()));
    sent.map_err(|why| format!("update at {}: {why}", update.server))
}

async fn send_at_all(update: &DnsUpdate, record: &TxtRecord, change: RecordChange) -> Result<(), String> {
    let secret = update.key.as_ref().map(secret).transpose()?;
    let not_a_name = |_: NotAName| "a name is too long for DNS".to_owned();
    let mut stream = TcpStream::connect(update.server).await.map_err(|error| error.to_string())?;
    let zone = match &update.zone {
        Some(zone) => zone.clone(),
        None => zone(&mut stream, &record.name).await?,
    };
    let edit = match change {
        RecordChange::Present => Edit::Add,
        RecordChange::Cleanup => Edit::Delete,
    };
    let id = fastrand::u16(..);
    let mut message =
        dns_message::update(id, &zone, (edit, &record.name, &record.value)).map_err(not_a_name)?;
    let Some((TsigKey { name, algorithm, .. }, secret)) = update.key.as_ref().zip(secret) else {
        let (answer, _) = ask(&mut stream, &message, id).await?;
        return judged(&zone, &answer);
    };
    let signer = Signer { name, secret: &secret, algorithm: *algorithm };
    let mac = dns_tsig::sign(&mut message, &signer, now()).map_err(not_a_name)?;
    let (answer, bytes) = ask(&mut stream, &message, id).await?;
    let verified = dns_tsig::verify(&bytes, &signer, &mac, now());
    match verified {
        // RFC 8945 §5.3.2: an unsigned answer is untrusted, but its reason may help.
        Err(Unverified::Unsigned) if answer.code != 0 => judged(&zone, &answer),
        Err(unverified) => Err(format!("key {name}: {unverified}")),
        Ok(()) => judged(&zone, &answer),
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn judged(zone: &str, DnsAnswer { code, .. }: &DnsAnswer) -> Result<(), String> {
    match code {
        0 => Ok(()),
        code => Err(format!("zone {zone}: {} ({code})", dns_message::reason(*code))),
    }
}

/// Finds the zone of a name: the nearest parent with a SOA record.
async fn zone(stream: &mut TcpStream, name: &str) -> Result<String, String> {
    let (mut rest, mut refusal) = (name, None);
    while let Some((_, above)) = rest.split_once('.') {
        let id = fastrand::u16(..);
        let query = dns_message::soa_query(id, above).map_err(|_| "a name is too long for DNS")?;
        let (answer, _) = ask(stream, &query, id).await?;
        if answer.is_zone {
            return Ok(above.to_owned());
        }
        // The first zone may be the right one but not loaded. Zones further above belong to others.
        refusal = refusal.or((answer.code != 0).then_some((above, answer.code)));
        rest = above;
    }
    let said = refusal.map(|(above, code)| {
        let word = dns_message::reason(code).split(':').next().unwrap_or_default();
        format!(", and answers {word} for {above}")
    });
    Err(format!("it has no zone for this name{}; set zone in dns", said.unwrap_or_default()))
}

/// RFC 1035 §4.2.2: messages begin with their length.
async fn ask(stream: &mut TcpStream, message: &[u8], id: u16) -> Result<(DnsAnswer, Vec<u8>), String> {
    let failed = |error: std::io::Error| error.to_string();
    let length = (message.len() as u16).to_be_bytes();
    stream.write_all(&[&length[..], message].concat()).await.map_err(failed)?;
    let length = stream.read_u16().await.map_err(failed)?;
    let mut answer = vec![0; usize::from(length)];
    stream.read_exact(&mut answer).await.map_err(failed)?;
    let read =
        dns_message::answer(&answer, id).ok_or_else(|| "its answer is not a DNS message".to_owned())?;
    Ok((read, answer))
}

fn secret(key: &TsigKey) -> Result<Vec<u8>, String> {
    let file = key.file.display();
    let text = std::fs::read_to_string(&key.file).map_err(|error| format!("{file}: {error}"))?;
    // The error message would contain the secret.
    STANDARD.decode(text.trim()).map_err(|_| format!("{file}: it has no secret in base64"))
}

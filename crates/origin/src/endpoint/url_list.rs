//! URL list of the Varnish experiment: N random URLs as its script makes them, and the last one once more.
//!
//! The script draws a size from 10 to 40, and a number from 1 to 100. It writes `?as=` only if the first digit of the
//! number is above 1: for 88 of 100. So 88% of the URLs are cacheable, 2728 different ones.

use crate::connection::Stop;
use crate::content::scramble;
use crate::exchange::OriginExchange;
use crate::head::{Length, OriginHead};
use crate::request::OwnedRequest;
use crate::target::{InvalidTarget, ParsedTarget};

const URLS_MAX: u64 = 10_000_000;

/// Approximate size of the pieces in which a list is sent.
const PIECE_BYTES: usize = 32 * 1024;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct UrlList {
    total: u64,
    host: String,
    seed: u64,
}

impl UrlList {
    pub(crate) fn new(request: &OwnedRequest, target: &ParsedTarget) -> Result<Self, InvalidTarget> {
        let query = &target.query;
        let seed = query.text("seed").unwrap_or("1");
        let own_host = || target.authority.clone().or_else(|| request.list("Host")).unwrap_or_default();
        let host = query.text("host").map_or_else(own_host, str::to_owned);
        if host.is_empty()
            || host.len() > 255
            || !host.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/')
        {
            return Err(InvalidTarget::new("host", &host, "a host with or without a port"));
        }
        Ok(Self {
            total: query.size("total", URLS_MAX)?.unwrap_or(10_000),
            seed: seed.parse().map_err(|_| InvalidTarget::new("seed", seed, "a number"))?,
            host,
        })
    }

    /// The URL at this index; depends only on the seed.
    fn url(&self, index: u64) -> String {
        let random = scramble(self.seed.wrapping_mul(0xD134_2543_DE82_EF95).wrapping_add(index));
        let size_kib = 10 + (random >> 32) * 31 / (1 << 32);
        let random2 = 1 + (random & 0xFFFF_FFFF) * 100 / (1 << 32);
        let host = &self.host;
        match random2 {
            // The first digit is 1.
            1 | 10..=19 | 100 => format!("http://{host}/varnish/gen/{size_kib}"),
            _ => format!("http://{host}/varnish/gen/{size_kib}?as={random2}"),
        }
    }

    pub(crate) async fn answer(&self, exchange: &mut OriginExchange<'_>) -> Result<(), Stop> {
        exchange.begin(OriginHead::new(200, Length::Chunked).field("Content-Type", "text/plain"));
        let mut piece = String::with_capacity(PIECE_BYTES + 512);
        for index in 0..self.total {
            if !exchange.sends_body() {
                break;
            }
            piece.push_str(&self.url(index));
            piece.push('\n');
            if piece.len() >= PIECE_BYTES {
                exchange.piece(piece.as_bytes()).await?;
                piece.clear();
            }
        }
        // The script prints its last URL once more, without a line end: "it creates one extra URL".
        if let Some(last) = self.total.checked_sub(1) {
            piece.push_str(&self.url(last));
        }
        exchange.piece(piece.as_bytes()).await?;
        exchange.finish(&[]).await
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn sizes_and_shares_are_the_scripts() {
        let list = UrlList { total: 100_000, host: "h".to_owned(), seed: 1 };
        let urls: Vec<_> = (0..list.total).map(|index| list.url(index)).collect();
        let (mut sizes, mut numbers) = (BTreeSet::new(), BTreeSet::new());
        for url in &urls {
            let rest = url.strip_prefix("http://h/varnish/gen/").expect("is of that form");
            let (size, number) = rest.split_once("?as=").unwrap_or((rest, ""));
            sizes.insert(size.parse::<u32>().expect("is a number"));
            assert!(!number.starts_with('1'), "{url}");
            numbers.insert(number);
        }
        assert_eq!(sizes, (10..=40).collect());
        assert_eq!(numbers.len(), 88 + 1);
        let cacheable = urls.iter().filter(|url| url.contains("?as=")).count();
        assert!((87_500..88_500).contains(&cacheable), "{cacheable}");
        let different: BTreeSet<_> = urls.iter().filter(|url| url.contains("?as=")).collect();
        assert_eq!(different.len(), 31 * 88);
    }

    #[test]
    fn a_seed_decides_all() {
        let url = |seed, index| UrlList { total: 9, host: "h".to_owned(), seed }.url(index);
        assert_eq!(url(7, 5), url(7, 5));
        let differ = |a: u64, b: u64| (0..100).filter(|&index| url(a, index) != url(b, index)).count();
        assert!(differ(1, 2) > 90);
        assert!(differ(0, u64::MAX) > 90);
    }
}

//! Colour, dash and marker of each series: the palette of Okabe and Ito, lightened or darkened for contrast with the
//! page.

use std::fmt::Write as _;

use super::escaped;
use crate::results::{Proxy, Role};

/// Number of colours with dashes. Further series repeat them with other markers.
const STYLES: usize = 8;
const SHAPES: usize = 4;

/// Style sheet for pages with these charts. `--paper` is the background of the page.
pub const STYLE: &str = include_str!("chart.css");

/// Look of one series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Look {
    style: usize,
    shape: usize,
}

/// Looks of the proxies. The subject has the first look and `direct` the last, so that peers keep theirs whichever are
/// installed.
pub(crate) fn looks(proxies: &[&Proxy]) -> Vec<Look> {
    let mut peers = 0;
    proxies
        .iter()
        .map(|proxy| match proxy.role {
            Role::Subject => Look::of(0, 0),
            Role::Direct => Look::of(STYLES - 1, 0),
            Role::Peer => {
                let look = Look::of(1 + peers % (STYLES - 2), peers / (STYLES - 2));
                peers += 1;
                look
            }
        })
        .collect()
}

impl Look {
    /// A style with a different marker for each repetition.
    fn of(style: usize, time_around: usize) -> Self {
        Self { style, shape: (style + time_around) % SHAPES }
    }

    /// CSS class for colour and dash.
    pub(crate) fn class(self) -> String {
        format!("s{}", self.style)
    }

    /// SVG marker of about 8 by 8 around a point.
    pub(super) fn marker(self, x: f64, y: f64) -> String {
        let class = self.class();
        let polygon = |points: &[(f64, f64)]| {
            let points: Vec<String> =
                points.iter().map(|(dx, dy)| format!("{:.1},{:.1}", x + dx, y + dy)).collect();
            format!("<polygon class=\"marker {class}\" points=\"{}\"/>", points.join(" "))
        };
        match self.shape {
            0 => format!("<circle class=\"marker {class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.8\"/>"),
            1 => polygon(&[(-3.5, -3.5), (3.5, -3.5), (3.5, 3.5), (-3.5, 3.5)]),
            2 => polygon(&[(0.0, -4.5), (4.2, 3.4), (-4.2, 3.4)]),
            _ => polygon(&[(0.0, -4.8), (4.4, 0.0), (0.0, 4.8), (-4.4, 0.0)]),
        }
    }
}

/// Legend for charts of these proxies.
pub fn legend(proxies: &[&Proxy]) -> String {
    let mut out = String::from("<ul class=\"legend\">");
    for (proxy, look) in proxies.iter().zip(looks(proxies)) {
        let _ = write!(
            out,
            "<li><svg class=\"chart key\" viewBox=\"0 0 44 12\" width=\"44\" height=\"12\" aria-hidden=\"true\">\
             <line class=\"curve {}\" x1=\"1\" y1=\"6\" x2=\"43\" y2=\"6\"/>{}</svg>{}</li>",
            look.class(),
            look.marker(22.0, 6.0),
            escaped(&proxy.name)
        );
    }
    out.push_str("</ul>");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_proxy_that_the_lab_knows_has_a_look_of_its_own() {
        let proxy = |role| Proxy { name: String::new(), role, version: String::new(), started: Vec::new() };
        let mut proxies = vec![proxy(Role::Direct), proxy(Role::Subject)];
        proxies.extend((0..15).map(|_| proxy(Role::Peer)));
        let looks = looks(&proxies.iter().collect::<Vec<_>>());
        for (place, look) in looks.iter().enumerate() {
            assert!(!looks[..place].contains(look), "{place}: {look:?}");
        }
    }
}

//! Colour, dash and marker of each series: the palette of Okabe and Ito, lightened or darkened where it would fade
//! into the page.

use std::fmt::Write as _;

use super::escaped;
use crate::results::{Proxy, Role};

/// The looks that can be told apart; more series than these begin again with the first.
const LOOKS: usize = 8;

/// The style that every page with these charts includes. `--paper` is the page's background.
pub const STYLE: &str = include_str!("chart.css");

/// How one series looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Look(usize);

/// The subject has the first look, `direct` the last, so that peers keep theirs whichever are installed.
pub(crate) fn looks(proxies: &[&Proxy]) -> Vec<Look> {
    let mut peers = 0;
    proxies
        .iter()
        .map(|proxy| match proxy.role {
            Role::Subject => Look(0),
            Role::Direct => Look(LOOKS - 1),
            Role::Peer => {
                peers += 1;
                Look(1 + (peers - 1) % (LOOKS - 2))
            }
        })
        .collect()
}

impl Look {
    /// The class that carries colour and dash.
    pub(crate) fn class(self) -> String {
        format!("s{}", self.0)
    }

    /// A shape of about 8 by 8 around a point.
    pub(super) fn marker(self, x: f64, y: f64) -> String {
        let class = self.class();
        let polygon = |points: &[(f64, f64)]| {
            let points: Vec<String> =
                points.iter().map(|(dx, dy)| format!("{:.1},{:.1}", x + dx, y + dy)).collect();
            format!("<polygon class=\"marker {class}\" points=\"{}\"/>", points.join(" "))
        };
        match self.0 % 4 {
            0 => format!("<circle class=\"marker {class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.8\"/>"),
            1 => polygon(&[(-3.5, -3.5), (3.5, -3.5), (3.5, 3.5), (-3.5, 3.5)]),
            2 => polygon(&[(0.0, -4.5), (4.2, 3.4), (-4.2, 3.4)]),
            _ => polygon(&[(0.0, -4.8), (4.4, 0.0), (0.0, 4.8), (-4.4, 0.0)]),
        }
    }
}

/// A key for the charts of these proxies.
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

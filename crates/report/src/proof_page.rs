//! Page of a proof that a proxy answers like another one: one file that works without network and scripts, in light,
//! dark and print.

use serde::Serialize;

use crate::page::{PageError, placed};
use crate::table::TextTable;

/// Contents of the page.
#[derive(Debug, Clone, Serialize)]
pub struct Proof {
    pub title: String,
    pub lede: String,
    /// A sign beside the verdict, because colours alone do not reach every reader.
    pub sign: &'static str,
    pub verdict: String,
    /// Numbers with their labels.
    pub figures: Vec<(String, String)>,
    /// Requests that only the new proxy lets through, and other differences.
    pub open: ProofCauses,
    pub others: ProofCauses,
    /// Unproved statements, with the reason.
    pub unproved: Option<TextTable>,
    /// Blocks of the old configuration, with the number of requests that reached them.
    pub blocks: Option<TextTable>,
    /// Further tables, each under a heading.
    pub notes: Vec<TextTable>,
}

/// Differences under a heading.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ProofCauses {
    pub heading: String,
    pub lede: String,
    pub causes: Vec<ProofCause>,
}

/// Differences with one cause.
#[derive(Debug, Clone, Serialize)]
pub struct ProofCause {
    pub number: usize,
    pub heading: String,
    /// Such as `7 requests`.
    pub count: String,
    pub curl: String,
    pub sides: Vec<ProofSide>,
    /// Place and text of the lines that decide.
    pub deciding: Vec<(String, String)>,
    /// Command lines of other requests.
    pub others: Vec<String>,
}

/// The answer of one proxy.
#[derive(Debug, Clone, Serialize)]
pub struct ProofSide {
    pub proxy: String,
    pub summary: String,
    pub response: Vec<ProofLine>,
    /// Addresses of servers, with the requests that they got.
    pub servers: Vec<(String, Vec<ProofLine>)>,
}

#[derive(Debug, Clone, Serialize)]
pub struct ProofLine {
    pub text: String,
    pub differs: bool,
}

#[derive(Serialize)]
struct ProofPage<'p> {
    style: &'static str,
    proof_style: &'static str,
    proof: &'p Proof,
    groups: Vec<(&'static str, &'p ProofCauses)>,
}

/// Renders the page.
///
/// # Errors
/// It would be too long.
pub fn render(proof: &Proof) -> Result<String, PageError> {
    let groups = [("open", &proof.open), ("others", &proof.others)];
    let groups = groups.into_iter().filter(|(_, group)| !group.causes.is_empty()).collect();
    let (style, proof_style) = (include_str!("page.css"), include_str!("proof_page.css"));
    placed(include_str!("proof_page.html"), ProofPage { style, proof_style, proof, groups })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str, differs: bool) -> ProofLine {
        ProofLine { text: text.to_owned(), differs }
    }

    #[test]
    fn texts_of_others_stay_text() {
        let script = "<script>alert(1)</script>";
        let side = ProofSide {
            proxy: "nginx".to_owned(),
            summary: script.to_owned(),
            response: vec![line("403", true), line(script, false)],
            servers: vec![(script.to_owned(), vec![line(script, true)])],
        };
        let cause = ProofCause {
            number: 1,
            heading: "the status differs".to_owned(),
            count: "1 request".to_owned(),
            curl: format!("curl 'http://a/{script}'"),
            sides: vec![side],
            deciding: vec![("n:1".to_owned(), script.to_owned())],
            others: vec![script.to_owned()],
        };
        let causes = ProofCauses { heading: "Open".to_owned(), lede: String::new(), causes: vec![cause] };
        let table = |caption: &str| TextTable {
            caption: caption.to_owned(),
            headings: ["block", "why"].map(str::to_owned).into(),
            rows: vec![vec![script.to_owned(), "no request reached it".to_owned()]],
        };
        let proof = Proof {
            title: script.to_owned(),
            lede: script.to_owned(),
            sign: "≠",
            verdict: "Not proved".to_owned(),
            figures: vec![("Requests".to_owned(), "1".to_owned())],
            open: causes,
            others: ProofCauses::default(),
            unproved: Some(table("Not proved")),
            blocks: Some(table("Blocks")),
            notes: vec![table("Replaced")],
        };
        let page = render(&proof).expect("it is short");
        assert!(!page.contains("<script"), "{page}");
        assert!(page.contains("<span class=\"differs\">403</span>"), "{page}");
        assert!(page.contains("href=\"#open\"") && !page.contains("href=\"#others\""), "{page}");
        assert!(!page.contains("http://") || !page.contains("src="), "nothing is loaded: {page}");
    }
}

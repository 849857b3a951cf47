//! Claims of a verified token that are remembered with it, as texts.

use crate::claims::any;
use crate::json::Json;

/// The texts of some claims. Lookups allocate nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KeptClaims(Box<[KeptClaim]>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct KeptClaim {
    name: Box<str>,
    texts: Box<[Box<str>]>,
}

impl KeptClaims {
    /// Claims with the given texts.
    pub fn from_texts<'t>(claims: impl IntoIterator<Item = (&'t str, Vec<&'t str>)>) -> Self {
        let claim = |(name, texts): (&str, Vec<&str>)| KeptClaim {
            name: name.into(),
            texts: texts.into_iter().map(Box::from).collect(),
        };
        Self(claims.into_iter().map(claim).collect())
    }

    /// The texts of the claims with these names. A missing claim has none.
    pub(crate) fn from_claims(claims: &Json, names: &[String]) -> Self {
        let of_claim = |name: &String| {
            let found = claims.find(name)?;
            let mut texts: Vec<Box<str>> = Vec::new();
            any(found, name, |text| {
                texts.push(text.into());
                false
            });
            Some(KeptClaim { name: name.as_str().into(), texts: texts.into() })
        };
        Self(names.iter().filter_map(of_claim).collect())
    }

    /// The claim's text, or those of its elements if it is a list.
    pub fn values<'c>(&'c self, name: &[u8]) -> impl Iterator<Item = &'c [u8]> {
        let claim = self.0.iter().find(|claim| claim.name.as_bytes() == name);
        claim.into_iter().flat_map(|claim| claim.texts.iter().map(|text| text.as_bytes()))
    }

    /// Whether there are no claims.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

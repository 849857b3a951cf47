//! Groups mistakes with one sentence: one message with twelve places, instead of twelve messages.

use std::collections::HashMap;
use std::fmt;

use crate::Mistake;

/// The maximum number of places that a message lists besides the first.
const PLACES_MAX: usize = 20;

/// Mistakes with one sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepeatedMistake<'m> {
    pub first: &'m Mistake,
    pub others: Vec<&'m Mistake>,
}

/// Groups mistakes with one sentence, in the order of the first of each.
pub fn repeated(mistakes: &[Mistake]) -> Vec<RepeatedMistake<'_>> {
    let mut groups: Vec<RepeatedMistake<'_>> = Vec::new();
    let mut known: HashMap<String, usize> = HashMap::new();
    for mistake in mistakes {
        let group = *known.entry(mistake.sentence()).or_insert(groups.len());
        match groups.get_mut(group) {
            Some(alike) => alike.others.push(mistake),
            None => groups.push(RepeatedMistake { first: mistake, others: Vec::new() }),
        }
    }
    groups
}

impl RepeatedMistake<'_> {
    /// The number of places and where the others are: `3 places: also at 9:1, other.toml:4:1`; `None` for one place.
    pub fn places(&self) -> Option<String> {
        let Self { first, others } = self;
        let place = |other: &&Mistake| match other.file == first.file {
            true => format!("{}:{}", other.line, other.column),
            false => format!("{}:{}:{}", other.file, other.line, other.column),
        };
        let mut places: Vec<String> = others.iter().take(PLACES_MAX).map(place).collect();
        if let Some(more) = others.len().checked_sub(PLACES_MAX).filter(|more| *more > 0) {
            places.push(format!("{more} more"));
        }
        let text = format!("{} places: also at {}", others.len() + 1, places.join(", "));
        (!others.is_empty()).then_some(text)
    }
}

/// The mistake in one line, with all its places: `vanward.toml:3:1: unknown key "paht" (2 places: also at 6:1)`.
impl fmt::Display for RepeatedMistake<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.first)?;
        match self.places() {
            Some(places) => write!(formatter, " ({places})"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::LineMap;

    use super::*;

    #[test]
    fn equal_sentences_are_one_message_with_all_places() {
        let text = "a\nb\na\n".repeat(20);
        let (map, other) = (LineMap::new(&text, "f.toml"), LineMap::new("a", "g.toml"));
        let mut mistakes: Vec<Mistake> =
            text.match_indices(['a', 'b']).map(|(at, name)| map.mistake(&(at..at + 1), name)).collect();
        mistakes.truncate(3);
        mistakes.push(other.mistake(&(0..1), "a"));
        mistakes.push(map.mistake(&(0..1), "a").expecting("b"));
        let said: Vec<String> = repeated(&mistakes).iter().map(ToString::to_string).collect();
        assert_eq!(
            said,
            [
                "f.toml:1:1: a (3 places: also at 3:1, g.toml:1:1)",
                "f.toml:2:1: b",
                "f.toml:1:1: a; expected b"
            ]
        );
        let many = vec![mistakes[0].clone(); PLACES_MAX + 3];
        let said: Vec<String> = repeated(&many).iter().map(ToString::to_string).collect();
        assert_eq!(said.len(), 1);
        assert!(
            said[0].starts_with("f.toml:1:1: a (23 places: also at 1:1, ") && said[0].ends_with(", 2 more)"),
            "{said:?}"
        );
        assert!(repeated(&[]).is_empty());
    }
}

//! The names that an expression asks for, as bits.

use crate::facts::{Fact, FactFamily};
use crate::node::{Node, NodeOperation};

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct AskedNames {
    facts: u64,
    families: u8,
    pub(crate) has_pattern: bool,
    pub(crate) has_map: bool,
}

const _: () = assert!(Fact::ALL.len() <= 64 && FactFamily::ALL.len() <= 8, "each name has a bit");

impl AskedNames {
    pub(crate) fn from_node(node: &Node) -> Self {
        let own = match &node.operation {
            NodeOperation::Fact(fact) => Self { facts: 1 << *fact as u64, ..Self::default() },
            NodeOperation::Field(family, _) | NodeOperation::AnyField(family, ..) => {
                Self { families: 1 << *family as u8, ..Self::default() }
            }
            NodeOperation::Matches(..) | NodeOperation::ReplaceFirst(..) => {
                Self { has_pattern: true, ..Self::default() }
            }
            NodeOperation::Lookup(..) | NodeOperation::InMap(..) => Self { has_map: true, ..Self::default() },
            NodeOperation::Definition(definition) => definition.0.asked,
            _ => Self::default(),
        };
        node.parts().iter().map(Self::from_node).fold(own, Self::joined)
    }

    fn joined(self, other: Self) -> Self {
        Self {
            facts: self.facts | other.facts,
            families: self.families | other.families,
            has_pattern: self.has_pattern || other.has_pattern,
            has_map: self.has_map || other.has_map,
        }
    }

    pub(crate) fn has_fact(self, fact: Fact) -> bool {
        self.facts & (1 << fact as u64) != 0
    }

    pub(crate) fn has_only(self, fact: Fact) -> bool {
        self.facts == 1 << fact as u64 && self.families == 0 && !self.has_map
    }

    pub(crate) fn has_family(self, family: FactFamily) -> bool {
        self.families & (1 << family as u8) != 0
    }
}

/// Calls `see` with each name of a family that a node asks for.
pub(crate) fn keys<'n>(node: &'n Node, family: FactFamily, see: &mut impl FnMut(&'n str)) {
    match &node.operation {
        NodeOperation::Field(of, key) | NodeOperation::AnyField(of, key, _) if *of == family => {
            see(key.as_str());
        }
        NodeOperation::Definition(definition) => keys(&definition.0.root, family, see),
        _ => {}
    }
    node.parts().iter().for_each(|part| keys(part, family, see));
}

//! The variants of one resource, as many as fit into their share of memory. Each is found with one lookup.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::key::CacheKey;
use crate::store::object::Object;
use crate::vary::{VariantKey, Vary};

/// The most different Vary lists of a resource. When a server uses more, all variants are dropped.
// A lookup hashes the request once for each list.
const VARIES_MAX: usize = 16;

/// The memory of a variant besides its response: a place in the table and in the order, with spare room.
const PLACE_BYTES: u64 = 112;

#[derive(Debug, Clone, Default)]
pub(crate) struct Variants {
    groups: Vec<VariantGroup>,
    /// Oldest first. A replaced variant leaves an unused place for a while.
    order: VecDeque<VariantPlace>,
    next_number: u64,
    weight_bytes: u64,
    /// How many variants were evicted for others of this resource.
    displaced: u64,
}

/// Variants that vary by equal fields.
#[derive(Debug, Clone)]
struct VariantGroup {
    vary: Vary,
    objects: HashMap<VariantKey, (u64, Arc<Object>)>,
}

#[derive(Debug, Clone, Copy)]
struct VariantPlace {
    number: u64,
    group: usize,
    variant: VariantKey,
}

impl Variants {
    /// Finds the variant for a request; among several, the one stored last (RFC 9111 §4.1).
    pub(crate) fn find(
        &self,
        key: CacheKey,
        mut variant_of: impl FnMut(&Vary) -> VariantKey,
    ) -> Option<&Arc<Object>> {
        let found = self.groups.iter().filter_map(|group| {
            let found = group.objects.get(&variant_of(&group.vary))?;
            // A slot may have been taken over by another key with the same 64 bits.
            (found.1.key() == key && !found.1.is_gone()).then_some(found)
        });
        found.max_by_key(|(number, _)| *number).map(|(_, object)| object)
    }

    /// The newest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.order.iter().rev().filter_map(|place| self.at(place))
    }

    pub(crate) fn len(&self) -> usize {
        self.groups.iter().map(|group| group.objects.len()).sum()
    }

    pub(crate) fn weight_bytes(&self) -> u64 {
        self.weight_bytes
    }

    pub(crate) fn displaced(&self) -> u64 {
        self.displaced
    }

    /// Stores a response in place of the previous one of its variant. The oldest variants are evicted to stay within
    /// `bytes_max`, and moved to `left`.
    pub(crate) fn put(&mut self, object: Arc<Object>, bytes_max: u64, left: &mut Vec<Arc<Object>>) {
        let known = self.groups.iter().position(|group| group.vary == *object.vary());
        if known.is_none() && self.groups.len() >= VARIES_MAX {
            let displaced = self.displaced + self.len() as u64;
            left.extend(self.iter().cloned());
            *self = Self { displaced, ..Self::default() };
        }
        let group = known.unwrap_or_else(|| {
            self.groups.push(VariantGroup { vary: object.vary().clone(), objects: HashMap::new() });
            self.groups.len() - 1
        });
        let (number, variant) = (self.next_number, object.variant());
        self.next_number += 1;
        self.weight_bytes += object.weight_bytes() + PLACE_BYTES;
        self.order.push_back(VariantPlace { number, group, variant });
        if let Some((_, replaced)) = self.groups[group].objects.insert(variant, (number, object)) {
            self.weight_bytes -= replaced.weight_bytes() + PLACE_BYTES;
            left.push(replaced);
        }
        // The newest variant stays.
        while self.weight_bytes > bytes_max && self.order.len() > 1 {
            let Some(place) = self.order.pop_front() else { break };
            if let Some(object) = self.remove(&place) {
                self.displaced += u64::from(!object.is_gone());
                left.push(object);
            }
        }
        // Places of replaced variants are removed together, so that replacing takes constant time on average.
        if self.order.len() > 2 * self.len() + 8 {
            let Self { groups, order, .. } = self;
            order.retain(|place| is_at(groups, place).is_some());
        }
    }

    /// Counts memory that is kept beside a response for which `is_it` holds. Returns whether there is one.
    pub(crate) fn grow(&mut self, is_it: impl Fn(&Object) -> bool, bytes: u64) -> bool {
        let Some(object) = self.iter().find(|object| is_it(object)) else { return false };
        object.add_weight(bytes);
        self.weight_bytes += bytes;
        true
    }

    fn at(&self, place: &VariantPlace) -> Option<&Arc<Object>> {
        is_at(&self.groups, place)
    }

    fn remove(&mut self, place: &VariantPlace) -> Option<Arc<Object>> {
        self.at(place)?;
        let (_, object) = self.groups.get_mut(place.group)?.objects.remove(&place.variant)?;
        self.weight_bytes -= object.weight_bytes() + PLACE_BYTES;
        Some(object)
    }
}

fn is_at<'a>(groups: &'a [VariantGroup], place: &VariantPlace) -> Option<&'a Arc<Object>> {
    let (number, object) = groups.get(place.group)?.objects.get(&place.variant)?;
    // A place with another number belongs to a variant that was replaced since.
    (*number == place.number).then_some(object)
}

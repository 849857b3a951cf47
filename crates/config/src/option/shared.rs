//! Values that many settings have alike, kept once: of 100,000 routes most have the same policies.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// A value that its clones share. A change makes a copy first.
#[derive(Clone, Default)]
pub struct Shared<T>(Arc<T>);

impl<T> Shared<T> {
    /// Whether both are one value, so that they need not be compared.
    pub fn is_one_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl<T: PartialEq> Shared<T> {
    /// Becomes one with another, if both are equal. Returns whether they are.
    pub(crate) fn share_with(&mut self, other: &Self) -> bool {
        let are_equal = *self == *other;
        if are_equal && !self.is_one_with(other) {
            self.0 = Arc::clone(&other.0);
        }
        are_equal
    }
}

impl<T> From<T> for Shared<T> {
    fn from(value: T) -> Self {
        Self(Arc::new(value))
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Clone> DerefMut for Shared<T> {
    fn deref_mut(&mut self) -> &mut T {
        Arc::make_mut(&mut self.0)
    }
}

impl<T: PartialEq> PartialEq for Shared<T> {
    fn eq(&self, other: &Self) -> bool {
        self.is_one_with(other) || *self.0 == *other.0
    }
}

impl<T: fmt::Debug> fmt::Debug for Shared<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_kept_once_and_changed_apart() {
        let (one, mut other, mut third) =
            (Shared::from(vec![1]), Shared::from(vec![1]), Shared::from(vec![2]));
        other.share_with(&one);
        third.share_with(&one);
        assert_eq!((Arc::ptr_eq(&one.0, &other.0), Arc::ptr_eq(&one.0, &third.0)), (true, false));
        other.push(3);
        assert_eq!((&*one, &*other), (&vec![1], &vec![1, 3]));
        assert_ne!(one, other);
    }
}

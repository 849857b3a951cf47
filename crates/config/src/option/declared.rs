//! Options whose value needs no conversion: one declaration each.
//!
//! A declaration yields the field, its default, its docs, and the entry in the table of options, from which the option
//! is read, checked, printed and documented. Settings contain the struct itself, so no field is copied. Options that
//! depend on other options are declared elsewhere, with their relations in `*_resolve`.

use crate::option::table::Declared;

/// Declares a struct of options, which the field `$place` of `$Table` holds, and the entries of these options,
/// `$ENTRIES`.
///
/// An option is `name: Type = KIND, "docs";`. Its default is the default of its type.
macro_rules! options {
    (
        $(#[$attribute:meta])*
        pub struct $Options:ident in $Table:ident . $place:ident as $ENTRIES:ident {
            $( $name:ident: $Value:ty = $kind:expr, $doc:expr; )+
        }
    ) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, PartialEq, Default)]
        pub struct $Options {
            $( #[doc = $doc] pub $name: $Value, )+
        }

        pub(crate) const $ENTRIES: &[$crate::option::table::Declared<$Table>] = &[
            $( $crate::option::table::inherited!(stringify!($name), $kind, $Table.$place.$name, $doc), )+
        ];
    };
}
pub(crate) use options;

/// The number of options in all parts of a table.
pub(crate) const fn count<T>(parts: &[&[Declared<T>]]) -> usize {
    let (mut total, mut part) = (0, 0);
    while part < parts.len() {
        total += parts[part].len();
        part += 1;
    }
    total
}

/// Joins the parts of a table into one list, in order.
///
/// # Panics
/// Unless `COUNT` is the `count` of the parts; in a constant this is a compile error.
pub(crate) const fn joined<T, const COUNT: usize>(parts: &[&[Declared<T>]]) -> [Declared<T>; COUNT] {
    let mut all = [parts[0][0]; COUNT];
    let (mut next, mut part) = (0, 0);
    while part < parts.len() {
        let mut index = 0;
        while index < parts[part].len() {
            all[next] = parts[part][index];
            next += 1;
            index += 1;
        }
        part += 1;
    }
    assert!(next == COUNT, "every option has a place");
    all
}

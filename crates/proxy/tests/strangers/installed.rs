//! Look-up of installed programs.

pub(crate) use testkit::installed::installed;
pub(crate) use testkit::wait::PATIENCE;

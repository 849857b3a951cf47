//! Cargo features that a build may lack. Their commands and options then name the missing feature.

pub(crate) struct Feature {
    name: &'static str,
    /// Description of the feature, for messages.
    brings: &'static str,
    commands: &'static [&'static str],
    is_built: bool,
}

pub(crate) const LAB: Feature = Feature {
    name: "lab",
    brings: "lab",
    commands: &["capture", "demo", "lab", "load", "origin"],
    is_built: cfg!(feature = "lab"),
};
pub(crate) const FLEET: Feature = Feature {
    name: "fleet",
    brings: "etcd and Redis",
    commands: &["fleet"],
    is_built: cfg!(feature = "fleet"),
};
pub(crate) const KUBERNETES: Feature = Feature {
    name: "kubernetes",
    brings: "Kubernetes",
    commands: &[],
    is_built: cfg!(feature = "kubernetes"),
};
#[cfg(feature = "lab")]
pub(crate) const PACKETS: Feature = Feature {
    name: "packets",
    brings: "reader of packets",
    commands: &[],
    is_built: cfg!(feature = "packets"),
};
#[cfg(feature = "lab")]
pub(crate) const PICTURES: Feature =
    Feature { name: "pictures", brings: "PNG pictures", commands: &[], is_built: cfg!(feature = "pictures") };

impl Feature {
    /// The message of a build without this feature; `None` in a build with it.
    pub(crate) fn missing(&self) -> Option<String> {
        let Self { name, brings, is_built, .. } = self;
        (!is_built).then(|| format!("this build has no {brings}; build with `--features {name}`"))
    }
}

pub(crate) fn missing_command(command: &str) -> Option<String> {
    let feature = [&LAB, &FLEET].into_iter().find(|feature| feature.commands.contains(&command))?;
    feature.missing()
}

pub(crate) fn is_in_etcd(config: &str) -> bool {
    config.starts_with("etcd:") || config.starts_with("etcd+")
}

pub(crate) fn is_in_kubernetes(config: &str) -> bool {
    config.starts_with("kubernetes:") || config.starts_with("kubernetes+")
}

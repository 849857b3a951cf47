//! The listeners of the control thread for metrics, admin API and dashboard, across configuration changes.

use std::io;

use config::Config;

use crate::StartError;
use crate::admin::AdminPath;
use crate::change::Control;
use crate::control_listener::{Moved, PageAddress};
use crate::handover::{Inheritance, Passed};

/// Opened listeners that are not yet in force, because the configuration moved them.
pub(crate) struct OpenedListeners {
    metrics: Option<Moved<PageAddress>>,
    admin: Option<Moved<AdminPath>>,
    dashboard: Option<Moved<PageAddress>>,
}

impl Control {
    /// Opens the listeners that a configuration moves. Fails if the kernel does not permit to listen on an address.
    pub(crate) fn open_own(
        &self,
        config: &Config,
        inherited: &mut Inheritance,
    ) -> Result<OpenedListeners, StartError> {
        let dashboard = config.dashboard.as_ref().map(|dashboard| PageAddress::Dashboard(dashboard.address));
        Ok(OpenedListeners {
            metrics: self.metrics.listener.open(config.metrics.map(PageAddress::Metrics), inherited)?,
            admin: self.admin.open(config.admin.clone().map(AdminPath), inherited)?,
            dashboard: self.dashboard.open(dashboard, inherited)?,
        })
    }

    pub(crate) fn listen_own(&self, OpenedListeners { metrics, admin, dashboard }: OpenedListeners) {
        metrics.into_iter().for_each(|moved| self.metrics.listener.listen(moved));
        admin.into_iter().for_each(|moved| self.admin.listen(moved));
        dashboard.into_iter().for_each(|moved| self.dashboard.listen(moved));
    }

    /// Copies the sockets, for an upgrade. Fails if no file descriptor is left.
    pub(crate) fn pass_on_own(&self) -> io::Result<Vec<Passed>> {
        let passed = [self.metrics.listener.pass_on()?, self.admin.pass_on()?, self.dashboard.pass_on()?];
        Ok(passed.into_iter().flatten().collect())
    }

    pub(crate) fn leave_own(&self) {
        self.admin.leave();
        self.metrics.listener.close();
        self.dashboard.close();
    }
}

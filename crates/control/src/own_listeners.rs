//! The listeners of the control thread: metrics, admin API and dashboard, over changes of the configuration.

use std::io;

use config::Config;

use crate::StartError;
use crate::admin::AdminPath;
use crate::change::Control;
use crate::control_listener::{Moved, PageAddress};
use crate::handover::{Inheritance, Passed};

/// Those that a configuration moves, opened and not yet in force.
pub(crate) struct Opened {
    metrics: Option<Moved<PageAddress>>,
    admin: Option<Moved<AdminPath>>,
    dashboard: Option<Moved<PageAddress>>,
}

impl Control {
    /// Opens the listeners that a configuration moves.
    ///
    /// # Errors
    /// When the kernel does not permit to listen on an address.
    pub(crate) fn open_own(
        &self,
        config: &Config,
        inherited: &mut Inheritance,
    ) -> Result<Opened, StartError> {
        let dashboard = config.dashboard.as_ref().map(|dashboard| PageAddress::Dashboard(dashboard.address));
        Ok(Opened {
            metrics: self.metrics.listener.open(config.metrics.map(PageAddress::Metrics), inherited)?,
            admin: self.admin.open(config.admin.clone().map(AdminPath), inherited)?,
            dashboard: self.dashboard.open(dashboard, inherited)?,
        })
    }

    /// Puts opened listeners in force.
    pub(crate) fn listen_own(&self, Opened { metrics, admin, dashboard }: Opened) {
        metrics.into_iter().for_each(|moved| self.metrics.listener.listen(moved));
        admin.into_iter().for_each(|moved| self.admin.listen(moved));
        dashboard.into_iter().for_each(|moved| self.dashboard.listen(moved));
    }

    /// Copies of the sockets, for a process that takes over.
    ///
    /// # Errors
    /// If there is no file descriptor left.
    pub(crate) fn pass_on_own(&self) -> io::Result<Vec<Passed>> {
        let passed = [self.metrics.listener.pass_on()?, self.admin.pass_on()?, self.dashboard.pass_on()?];
        Ok(passed.into_iter().flatten().collect())
    }

    /// Leaves the listeners to the process that has taken over.
    pub(crate) fn leave_own(&self) {
        self.admin.leave();
        self.metrics.listener.close();
        self.dashboard.close();
    }
}

//! The proxy's accounts with authorities: created once, stored in the folder, and shared by instances through Redis.

use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::{URL_SAFE, URL_SAFE_NO_PAD};
use config::{Acme, Authority, ExternalAccount, KeyUrl};
use instant_acme::{Account, AccountCredentials, Error, ExternalAccountKey, NewAccount};
use telemetry::message;
use tokio::sync::Mutex;

use super::failure::{AcmeFailure, is_problem};
use super::folder::CertificateFolder;
use super::http::AcmeClient;
use crate::outbound::Outbound;
use crate::shared::Engine as SharedEngine;

/// Maximum number of waits for another process that creates the same account.
const LOCK_LOOKS: usize = 30;
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);

/// The stores of accounts: the folder, and Redis while it is reachable.
type Kept<'a> = (&'a CertificateFolder, Option<&'a SharedEngine>);

pub(crate) struct AccountSession {
    pub(crate) account: Account,
    pub(crate) client: AcmeClient,
}

/// The accounts in use, by directory. Creating one blocks all others, because they wait for the same account.
pub(crate) struct Accounts {
    outbound: Rc<Outbound>,
    open: Mutex<HashMap<String, Rc<AccountSession>>>,
}

impl Accounts {
    pub(crate) fn new(outbound: Rc<Outbound>) -> Self {
        Self { outbound, open: Mutex::default() }
    }

    pub(crate) async fn session(
        &self,
        authority: &Authority,
        settings: &Acme,
        kept: Kept<'_>,
    ) -> Result<Rc<AccountSession>, AcmeFailure> {
        let mut open = self.open.lock().await;
        let key = authority.directory.to_string();
        if let Some(session) = open.get(&key) {
            return Ok(Rc::clone(session));
        }
        let client = AcmeClient::new(Rc::clone(&self.outbound), authority.ca.clone());
        let opened = self.open_account(authority, settings, (kept, &client)).await;
        let account = opened.map_err(|failure| failure.with_retry_after(&client))?;
        let session = Rc::new(AccountSession { account, client });
        open.insert(key, Rc::clone(&session));
        Ok(session)
    }

    /// Removes an account that its authority no longer knows: the next session creates a new one.
    pub(crate) async fn forget(&self, directory: &KeyUrl, (folder, engine): Kept<'_>) {
        let mut open = self.open.lock().await;
        if open.remove(&directory.to_string()).is_some() {
            let _ = folder.remove_account(directory);
            if let Some(engine) = engine {
                let _ = engine.remove_account(&directory.to_string()).await;
            }
        }
    }

    async fn open_account(
        &self,
        authority: &Authority,
        settings: &Acme,
        ((folder, engine), client): (Kept<'_>, &AcmeClient),
    ) -> Result<Account, AcmeFailure> {
        let directory = &authority.directory;
        let mut looks = 0;
        let _lock = loop {
            match folder
                .lock_account(directory)
                .map_err(|error| AcmeFailure::folder(&settings.folder, &error))?
            {
                Some(lock) => break lock,
                None if looks == LOCK_LOOKS => {
                    return Err(AcmeFailure::said(
                        "another process has been creating the account for too long".to_owned(),
                    ));
                }
                None => looks += 1,
            }
            tokio::time::sleep(BETWEEN_LOOKS).await;
        };
        let written = |error: io::Error| AcmeFailure::folder(&settings.folder, &error);
        let mut kept = folder.account(directory).map_err(written)?;
        if let (None, Some(engine)) = (&kept, engine) {
            kept = engine.account(&directory.to_string()).await.unwrap_or_default();
            kept.iter().try_for_each(|account| folder.put_account(directory, account)).map_err(written)?;
        }
        if let Some(kept) = kept {
            let credentials: AccountCredentials = serde_json::from_slice(&kept).map_err(|_| {
                AcmeFailure::said(format!(
                    "the account in {} is damaged: remove it",
                    settings.folder.display()
                ))
            })?;
            let builder = Account::builder_with_http(Box::new(client.clone()));
            return builder
                .from_credentials(credentials)
                .await
                .map_err(|error| AcmeFailure::from_error(&error));
        }
        let binding = authority.external_account.as_ref().map(external_account).transpose()?;
        let contacts: Vec<String> = settings.contact.iter().map(|email| format!("mailto:{email}")).collect();
        let contacts: Vec<&str> = contacts.iter().map(String::as_str).collect();
        let wanted =
            NewAccount { contact: &contacts, terms_of_service_agreed: true, only_return_existing: false };
        let builder = Account::builder_with_http(Box::new(client.clone()));
        let made = builder.create(&wanted, directory.to_string(), binding.as_ref()).await;
        let (account, credentials) = made.map_err(|error| explained(&error, authority))?;
        let text = serde_json::to_vec(&credentials).map_err(|error| AcmeFailure::said(error.to_string()))?;
        folder.put_account(directory, &text).map_err(written)?;
        if let Some(engine) = engine {
            // Without it, other instances create their own accounts.
            let _ = engine.put_account(&directory.to_string(), &text).await;
        }
        message::info(&format!("acme: created an account with {}", directory.server.authority()));
        Ok(account)
    }
}

fn explained(error: &Error, authority: &Authority) -> AcmeFailure {
    let mut failure = AcmeFailure::from_error(error);
    if is_problem(error, "externalAccountRequired") && authority.external_account.is_none() {
        failure.what += "; set external_account in [acme] to the key that the authority has given";
    }
    failure
}

fn external_account(account: &ExternalAccount) -> Result<ExternalAccountKey, AcmeFailure> {
    let ExternalAccount { id, key_file } = account;
    let file = key_file.display();
    let text = std::fs::read_to_string(key_file)
        .map_err(|error| AcmeFailure::said(format!("external_account: {file} cannot be read: {error}")))?;
    let text = text.trim();
    let key = URL_SAFE_NO_PAD.decode(text).or_else(|_| URL_SAFE.decode(text));
    // The error message would contain the key.
    let key =
        key.map_err(|_| AcmeFailure::said(format!("external_account: {file} has no key in base64url")))?;
    Ok(ExternalAccountKey::new(id.clone(), &key))
}

//! Members are changed in several ways: made and changed by an administrator, imported, dropped, put back. Whichever it is,
//! an address of mail is held for its member before anything is made of it, and his account follows him afterwards.

use schemas::account::Account;
use schemas::account::email::Email;
use schemas::catalog::change::Author;
use schemas::catalog::user::User;
use schemas::failure::Failure;
use schemas::id::{RequestId, TenantId, UserId};
use schemas::time::Timestamp;

use super::errand::{self, Errand};
use super::mail::letter::Occasion;
use super::{accounts, invalid, member};
use crate::state::Shared;

/// What a change says of a member's address of mail.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Address<'a> {
    /// Nothing.
    Stays,
    /// He has this one from then on, or none; whoever signs in by his needs one.
    Is(Option<&'a str>),
    /// He has what files say: where they say none, his account ends.
    Falls,
}

/// A member who is about to be made or changed.
pub(crate) struct Turn {
    tenant: TenantId,
    user: UserId,
    /// He has an account, where there is signing in at all.
    pub(crate) signs_in: bool,
    /// The address of mail that he has so far.
    before: Option<Email>,
    was_disabled: bool,
    /// The address that is held for him and was not his before.
    held: Option<Email>,
}

impl Turn {
    /// Holds an address of mail for a member. Refuses one that is somebody else's, so that of two who are to have it one
    /// is refused before anything is made, and none for whoever signs in by one.
    pub(crate) async fn begin(
        state: &Shared,
        who: (&TenantId, &UserId),
        address: Address<'_>,
        now: Timestamp,
    ) -> Result<Self, Failure> {
        let mut signs_in = member::signs_in(state, who).await?;
        let catalog = state.ports.catalog.load();
        let member = catalog.user(who.0, who.1);
        if signs_in && member.is_none() && accounts::is_nobodys(state, who).await? {
            // What a member of before had is not for whoever comes to his id.
            accounts::remove(state, who).await?;
            signs_in = false;
        }
        let mut turn = Self {
            tenant: who.0.clone(),
            user: who.1.clone(),
            signs_in,
            before: member.and_then(email_of),
            was_disabled: member.is_some_and(|member| member.disabled),
            held: None,
        };
        let Address::Is(told) = address else {
            return Ok(turn);
        };
        let email = told.and_then(Email::parse);
        if email.is_none() && signs_in {
            return Err(invalid("email", "the member signs in by his address of mail"));
        }
        // Who signs in by another than he has comes to it again.
        let is_new = |email: &Email| signs_in || turn.before.as_ref() != Some(email);
        if let Some(email) = email.filter(is_new) {
            let is_held = accounts::claim(state, &email, who, now).await?;
            turn.held = is_held.then_some(email);
        }
        Ok(turn)
    }

    /// Lets go of what was held: the member is not made, or not changed.
    pub(crate) async fn fail(self, state: &Shared) {
        if let Some(held) = &self.held {
            accounts::release(state, held, (&self.tenant, &self.user)).await;
        }
    }

    /// Has the member's account follow what he is from now on; `None` where he is nobody any more.
    pub(crate) async fn done(
        self,
        state: &Shared,
        after: Option<&User>,
        author: &Author,
    ) -> Result<(), Failure> {
        let who = (&self.tenant, &self.user);
        let own = after.and_then(email_of);
        if state.sign_in.signer.is_some()
            && let Some(account) = accounts::of(state, who).await?
        {
            follow(state, (account, after), author.at).await?;
        } else if let Some(before) = self
            .before
            .as_ref()
            .filter(|before| own.as_ref() != Some(*before))
        {
            accounts::release(state, before, who).await;
        }
        if let Some(after) = after.filter(|after| self.was_disabled && !after.disabled) {
            let_in(state, after, author.id).await;
        }
        Ok(())
    }
}

fn email_of(member: &User) -> Option<Email> {
    member.email.as_deref().and_then(Email::parse)
}

/// Has an account follow its member: it ends with him or his address of mail, has another when he has, and no session of
/// whoever is disabled.
async fn follow(
    state: &Shared,
    (account, after): (Account, Option<&User>),
    now: Timestamp,
) -> Result<(), Failure> {
    let who = (&account.tenant, &account.user);
    let Some(member) = after.filter(|member| member.email.is_some()) else {
        return accounts::remove(state, who).await;
    };
    if member.disabled && !account.sessions.is_empty() {
        let out = |account: &Account| {
            Ok(Some(Account {
                sessions: Vec::new(),
                ..account.clone()
            }))
        };
        accounts::change(state, who, out).await?;
    }
    match email_of(member) {
        Some(email) if email != account.email => accounts::move_to(state, who, &email, now).await,
        _ => Ok(()),
    }
}

/// Tells a member whom an administrator lets in, if he signed up himself and waited for it.
async fn let_in(state: &Shared, member: &User, request: RequestId) {
    if !state.sign_in.errands.sends_mail() {
        return;
    }
    // He is let in all the same if nobody can tell him.
    let account = accounts::of(state, (&member.tenant, &member.id)).await;
    if let Some(account) = account.ok().flatten().filter(|account| account.is_new) {
        let _ = errand::leave(state, Errand::Letter(account.email, Occasion::Approved, request));
    }
}

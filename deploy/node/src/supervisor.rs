//! Runs roles together: each has a name, the first that stops stops all, and shutdown waits for every one.

use std::future::Future;

use tokio::task::{JoinError, JoinSet};

/// Tasks with names.
#[derive(Default)]
pub struct Supervisor {
    tasks: JoinSet<(&'static str, anyhow::Result<()>)>,
    names: Vec<&'static str>,
}

impl Supervisor {
    /// Runs a role on this runtime.
    pub fn spawn<E: Into<anyhow::Error>>(
        &mut self,
        name: &'static str,
        task: impl Future<Output = Result<(), E>> + Send + 'static,
    ) {
        self.names.push(name);
        self.tasks
            .spawn(async move { (name, task.await.map_err(Into::into)) });
    }

    /// Runs a role on a thread of its own with its name, so that its CPU can be told apart. The thread and those that
    /// it starts have `urgency`.
    pub fn spawn_thread<F, E>(
        &mut self,
        (name, urgency): (&'static str, Urgency),
        task: impl FnOnce() -> F + Send + 'static,
    ) -> std::io::Result<()>
    where
        F: Future<Output = Result<(), E>>,
        E: Into<anyhow::Error>,
    {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (done, ended) = tokio::sync::oneshot::channel();
        let work = move || {
            if urgency == Urgency::Background {
                give_way(name);
            }
            let result = runtime.block_on(task()).map_err(Into::into);
            // Nobody waits any more when the process is being torn down.
            let _ = done.send(result);
        };
        std::thread::Builder::new().name(name.to_owned()).spawn(work)?;
        self.names.push(name);
        self.tasks.spawn(async move {
            let result = ended
                .await
                .unwrap_or_else(|_| Err(anyhow::anyhow!("the thread {name} panicked")));
            (name, result)
        });
        Ok(())
    }

    /// The next role that ended, `None` when all have.
    pub async fn ended(&mut self) -> Option<(&'static str, anyhow::Result<()>)> {
        Some(named(self.tasks.join_next().await?))
    }

    /// True when a role of this name was started.
    pub fn has(&self, name: &str) -> bool {
        self.names.contains(&name)
    }

    /// Waits until the roles `left` ended, and takes each out when it does; the first failure of any role on the way
    /// is returned.
    pub async fn wait_for(&mut self, left: &mut Vec<&str>) -> anyhow::Result<()> {
        let mut outcome = Ok(());
        while !left.is_empty() {
            let Some((ended, result)) = self.ended().await else {
                break;
            };
            if let (Ok(()), Err(error)) = (&outcome, result) {
                outcome = Err(error.context(format!("{ended} failed")));
            }
            left.retain(|name| *name != ended);
        }
        outcome
    }
}

/// How a thread shares a processor with others of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Urgency {
    /// Like any thread.
    Normal,
    /// Gives way to those that serve callers: what it does may be done later, and still is while they are busy.
    Background,
}

/// The nice value of background threads: about a tenth of a busy processor is theirs.
#[cfg(target_os = "linux")]
const BACKGROUND_NICE: i32 = 10;

/// Lets this thread give way. Elsewhere than on Linux a thread has no priority of its own.
fn give_way(name: &str) {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::setpriority_process(Some(rustix::thread::gettid()), BACKGROUND_NICE)
    {
        tracing::debug!(
            error = &error as &dyn std::error::Error,
            "the thread {name} keeps its priority"
        );
    }
    #[cfg(not(target_os = "linux"))]
    let _ = name;
}

fn named(
    joined: Result<(&'static str, anyhow::Result<()>), JoinError>,
) -> (&'static str, anyhow::Result<()>) {
    joined.unwrap_or_else(|error| ("role", Err(anyhow::Error::from(error).context("a role panicked"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_failing_role_is_named() {
        let mut supervisor = Supervisor::default();
        supervisor.spawn("good", async { Ok::<(), anyhow::Error>(()) });
        supervisor
            .spawn_thread(("bad", Urgency::Background), || async {
                Err::<(), _>(anyhow::anyhow!("no disk"))
            })
            .expect("thread");

        let mut left = vec!["bad", "good"];
        let result = supervisor.wait_for(&mut left).await;

        assert!(left.is_empty() && supervisor.has("good") && !supervisor.has("other"));

        assert_eq!(
            format!("{:#}", result.expect_err("failed")),
            "bad failed: no disk"
        );
    }
}

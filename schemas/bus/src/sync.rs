//! Syncs files in the background on a thread of its own: what was written is on disk within one period, all
//! writers of that period share one sync, and nobody who writes waits. Who must know waits for [`Synced`].

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::watch;
use tracing::error;

use crate::segment::files::Unsynced;

/// Pause between two syncs nobody waits for.
const PERIOD: Duration = Duration::from_millis(20);

/// How far syncing is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Synced {
    /// Everything up to this position is on disk, as the target counts its positions.
    pub(crate) upto: u64,
    /// A sync failed. What the system still holds in memory may never reach the disk, and a later success
    /// would not prove the contrary: nothing after `upto` counts as synced until the files are opened again.
    pub(crate) failed: bool,
}

/// Something that writes files.
pub(crate) trait Target: Send + Sync + 'static {
    /// What to sync, and the position that it covers.
    fn begin(&self) -> (Unsynced, u64);

    /// Called after `synced` has moved.
    fn done(&self) {}
}

/// The thread and the way to it. Dropping it syncs what is written and waits for the thread.
pub(crate) struct Flusher {
    control: Arc<Control>,
    thread: Option<JoinHandle<()>>,
}

struct Control {
    dirty: AtomicBool,
    wishes: Mutex<Wishes>,
    wake: Condvar,
    synced: watch::Sender<Synced>,
}

#[derive(Default)]
struct Wishes {
    /// The thread waits for something to do.
    idle: bool,
    /// Somebody waits: no pause.
    urgent: bool,
    stopping: bool,
}

impl Flusher {
    /// Starts the thread; everything up to `upto` is on disk already.
    pub(crate) fn start(name: &str, target: Arc<dyn Target>, upto: u64) -> io::Result<Self> {
        let control = Arc::new(Control {
            dirty: AtomicBool::new(false),
            wishes: Mutex::default(),
            wake: Condvar::new(),
            synced: watch::Sender::new(Synced { upto, failed: false }),
        });
        let run = Arc::clone(&control);
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || run.run(&*target))?;
        Ok(Self {
            control,
            thread: Some(thread),
        })
    }

    /// Something was written.
    pub(crate) fn written(&self) {
        if !self.control.dirty.swap(true, Ordering::AcqRel) {
            let wishes = self.control.wishes.lock();
            if wishes.idle {
                self.control.wake.notify_one();
            }
        }
    }

    /// How far it is.
    pub(crate) fn synced(&self) -> Synced {
        *self.control.synced.borrow()
    }

    /// Follows how far it is.
    pub(crate) fn follow(&self) -> watch::Receiver<Synced> {
        self.control.synced.subscribe()
    }

    /// Waits for `position` without a pause in between; false when syncing has failed.
    pub(crate) async fn reach(&self, position: u64) -> bool {
        let mut synced = self.follow();
        if synced.borrow().upto < position {
            self.control.wishes.lock().urgent = true;
            self.control.wake.notify_one();
        }
        let reached = synced
            .wait_for(|synced| synced.upto >= position || synced.failed)
            .await;
        reached.is_ok_and(|synced| synced.upto >= position)
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        self.control.wishes.lock().stopping = true;
        self.control.wake.notify_one();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            error!("the thread that syncs has panicked");
        }
    }
}

impl Control {
    fn run(&self, target: &dyn Target) {
        while self.wait_for_work() {
            self.dirty.store(false, Ordering::Release);
            let (files, upto) = target.begin();
            match files.sync() {
                Ok(()) => {
                    self.synced.send_modify(|synced| synced.upto = upto);
                    target.done();
                    self.pause();
                }
                Err(problem) => {
                    error!(
                        error = &problem as &dyn std::error::Error,
                        "a sync failed: restart when the disk is well"
                    );
                    self.synced.send_modify(|synced| synced.failed = true);
                    target.done();
                    return;
                }
            }
        }
    }

    /// False when the end has come and nothing is left to sync.
    fn wait_for_work(&self) -> bool {
        let mut wishes = self.wishes.lock();
        loop {
            if self.dirty.load(Ordering::Acquire) {
                wishes.urgent = false;
                return true;
            }
            if wishes.stopping {
                return false;
            }
            wishes.idle = true;
            self.wake.wait(&mut wishes);
            wishes.idle = false;
        }
    }

    fn pause(&self) {
        let mut wishes = self.wishes.lock();
        while !wishes.urgent && !wishes.stopping {
            if self.wake.wait_for(&mut wishes, PERIOD).timed_out() {
                return;
            }
        }
    }
}

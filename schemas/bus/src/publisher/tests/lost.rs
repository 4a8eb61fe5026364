//! What the log took and lost again is published once more, and nothing else is.

use schemas::subject::mark;
use tempfile::TempDir;

use super::*;
use crate::faulty::Bent;

/// A publisher at work on a log that can be bent; the test is the ledger.
struct Scene {
    spool: Spool,
    bus: Arc<Bent>,
    tasks: JoinSet<Result<(), BusError>>,
    _dir: TempDir,
}

impl Scene {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("dir");
        let (spool, bus) = (open_spool(dir.path()), Arc::new(Bent::default()));
        let mut tasks = JoinSet::new();
        let publisher = run(
            spool.clone(),
            bus.clone() as _,
            bus.clone() as _,
            CancellationToken::new(),
        );
        tasks.spawn(publisher);
        Self {
            spool,
            bus,
            tasks,
            _dir: dir,
        }
    }

    /// Appends events, as one batch (up to its size), and waits until the log has `messages`.
    async fn append(&self, count: u64, messages: usize) -> Vec<String> {
        let ids = append(&self.spool, count);
        // The publisher shares this thread: it sees nothing before everything can be read.
        while self.spool.readable() < self.spool.appended() {
            std::thread::sleep(Duration::from_micros(50));
        }
        self.until(|| self.bus.ids().len() == messages).await;
        ids
    }

    async fn until(&self, condition: impl Fn() -> bool) {
        let waited = tokio::time::timeout(Duration::from_mins(10), async {
            while !condition() {
                sleep(Duration::from_millis(5)).await;
            }
        });
        assert!(waited.await.is_ok(), "{:?}", self.bus.ids());
    }

    async fn put(&self, key: &str, value: String) {
        let put = self.bus.put(MARK_BUCKET, key, value.into(), Expected::Any);
        put.await.expect("put");
    }

    async fn mark(&self, mark: u64) {
        self.put(self.spool.id().as_str(), mark.to_string()).await;
    }

    async fn cursor(&self, stream_created: i64, sequence: u64) {
        let cursor = LedgerCursor {
            stream_created,
            sequence,
        };
        self.put(mark::CURSOR, serde_json::to_string(&cursor).expect("json"))
            .await;
    }
}

fn again(ids: &[String], round: u32) -> Vec<String> {
    ids.iter().map(|id| format!("{id}:r{round}")).collect()
}

#[tokio::test(start_paused = true)]
async fn an_event_that_the_ledger_read_past_is_published_again_until_it_is_marked() {
    let scene = Scene::new();
    let ids = scene.append(3, 3).await;
    scene.bus.lose(2);
    scene.mark(1).await;
    scene.cursor(0, 2).await;
    sleep(Duration::from_mins(1)).await;
    assert_eq!(scene.bus.ids().len(), 2, "the batch has not been read whole");

    scene.cursor(0, 3).await;
    scene.until(|| scene.bus.ids().len() > 2).await;
    assert_eq!(scene.bus.ids()[2..], again(&ids[1..], 1));

    // The ledger has it now, and says so.
    scene.mark(3).await;
    scene.cursor(0, 5).await;
    sleep(Duration::from_mins(5)).await;
    assert_eq!(scene.bus.ids().len(), 4);
    assert_eq!((scene.spool.marked(), scene.spool.gauges().republished), (3, 2));
}

#[tokio::test(start_paused = true)]
async fn what_is_lost_once_more_gets_another_id_once_more() {
    let scene = Scene::new();
    let ids = scene.append(1, 1).await;
    scene.bus.lose(1);
    scene.cursor(0, 1).await;
    scene.until(|| scene.bus.ids() == again(&ids, 1)).await;
    scene.bus.lose(2);
    scene.cursor(0, 2).await;

    scene.until(|| scene.bus.ids() == again(&ids, 2)).await;
}

#[tokio::test(start_paused = true)]
async fn a_log_that_lost_its_end_gets_everything_again_that_is_not_marked() {
    let scene = Scene::new();
    let ids = scene.append(10, 10).await;
    scene.mark(4).await;
    scene.cursor(0, 4).await;
    sleep(Duration::from_secs(10)).await;
    scene.bus.roll_back(6);

    scene.until(|| scene.bus.ids().len() > 6).await;
    assert_eq!(scene.bus.ids()[..6], ids[..6]);
    assert_eq!(scene.bus.ids()[6..], again(&ids[4..], 1));
    let more = scene.append(1, 13).await;
    assert_eq!(
        scene.bus.ids().last(),
        more.last(),
        "new events keep their own id"
    );
}

#[tokio::test(start_paused = true)]
async fn a_log_that_gives_places_away_again_gets_everything_again_at_once() {
    let scene = Scene::new();
    let ids = scene.append(10, 10).await;
    scene.bus.roll_back(2);

    let more = append(&scene.spool, 1);
    let has = |id: &str| scene.bus.ids().iter().any(|known| known.starts_with(id));
    scene
        .until(|| again(&ids, 1).iter().chain(&more).all(|id| has(id)))
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_log_made_anew_gets_everything_again_that_is_not_marked() {
    let scene = Scene::new();
    let ids = scene.append(300, 300).await;
    scene.mark(100).await;
    sleep(Duration::from_secs(10)).await;
    scene.bus.make_anew();

    scene.until(|| scene.bus.ids().len() == 200).await;
    assert_eq!(scene.bus.ids(), again(&ids[100..], 1));
    scene.cursor(0, 500).await;
    sleep(Duration::from_secs(100)).await;
    assert_eq!(scene.bus.ids().len(), 200, "a cursor of the old log says nothing");
}

#[tokio::test(start_paused = true)]
async fn a_bus_that_was_away_gets_every_event_once() {
    let mut scene = Scene::new();
    scene.bus.set_away(true);
    let ids = append(&scene.spool, 600);
    sleep(Duration::from_mins(1)).await;
    assert!(scene.tasks.try_join_next().is_none(), "it goes on trying");
    scene.bus.set_away(false);
    scene.bus.lose_answers(3);

    scene.until(|| scene.bus.ids().len() >= 600).await;
    sleep(Duration::from_mins(1)).await;
    assert_eq!(scene.bus.ids(), ids);
}

#[tokio::test(start_paused = true)]
async fn a_contested_spool_is_not_trimmed_until_an_operator_says_so() {
    let scene = Scene::new();
    scene.append(10, 10).await;
    let key = format!("{}{}", mark::CONTESTED, scene.spool.id());
    scene.put(&key, "7".to_owned()).await;
    scene.until(|| scene.spool.gauges().contested).await;
    scene.mark(10).await;
    scene.cursor(0, 10).await;
    sleep(Duration::from_mins(1)).await;
    assert_eq!((scene.spool.marked(), scene.bus.ids().len()), (0, 10));

    let deleted = scene.bus.delete(MARK_BUCKET, &key, Expected::Any);
    deleted.await.expect("delete");
    scene.until(|| scene.spool.marked() == 10).await;
    assert!(!scene.spool.gauges().contested);
}

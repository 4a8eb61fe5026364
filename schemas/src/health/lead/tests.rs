//! Tests of who leads: one at a time, soon after another is gone, whatever becomes of writes and answers.

use proptest::prelude::*;

use super::*;

/// The record as the bucket has it: a revision and who wrote it.
#[derive(Default)]
struct Bucket {
    revision: u64,
    record: Option<(u64, Leader)>,
}

impl Bucket {
    fn put(&mut self, expected: Option<u64>, boot: &str) -> Option<u64> {
        if self.record.as_ref().map(|(revision, _)| *revision) != expected {
            return None;
        }
        self.revision += 1;
        self.record = Some((self.revision, leader(boot)));
        Some(self.revision)
    }
}

fn leader(boot: &str) -> Leader {
    Leader {
        boot: boot.into(),
        node: NodeId::from("n"),
    }
}

/// Does what is to be done. `heard`: whether the answer comes back.
fn turn(lead: &mut Lead, bucket: &mut Bucket, now_ms: u64, heard: bool) {
    let boot = lead.boot.clone();
    match lead.step(now_ms) {
        Step::Wait => {}
        Step::Look if !heard => {}
        Step::Look => {
            let found = bucket.record.as_ref();
            lead.saw(found.map(|(revision, leader)| (*revision, leader)), now_ms);
        }
        Step::Write(expected) => match bucket.put(expected, &boot) {
            Some(revision) if heard => lead.wrote(revision, now_ms),
            _ => lead.failed(),
        },
    }
}

#[test]
fn the_first_leads_and_the_second_stands_by() {
    let mut bucket = Bucket::default();
    let (mut one, mut other) = (Lead::new("one".into()), Lead::new("other".into()));
    for now_ms in (0..20_000).step_by(250) {
        turn(&mut one, &mut bucket, now_ms, true);
        turn(&mut other, &mut bucket, now_ms, true);
        assert!(!other.leads(now_ms));
        assert!(one.leads(now_ms) || now_ms < 250, "{now_ms}");
    }
}

#[test]
fn whoever_stands_by_takes_over_when_the_leader_is_silent_and_not_before() {
    let mut bucket = Bucket::default();
    let (mut one, mut other) = (Lead::new("one".into()), Lead::new("other".into()));
    for now_ms in [0, 250] {
        turn(&mut one, &mut bucket, now_ms, true);
        turn(&mut other, &mut bucket, now_ms, true);
    }
    let mut taken_ms = None;
    // The first is killed: it does nothing more, and may not come back into what it was.
    for now_ms in (500..10_000).step_by(250) {
        turn(&mut other, &mut bucket, now_ms, true);
        if other.leads(now_ms) {
            taken_ms.get_or_insert(now_ms);
            assert!(!one.leads(now_ms));
        }
    }
    let taken_ms = taken_ms.expect("somebody leads");
    assert!((LIFE_MS..LIFE_MS + 1_000).contains(&taken_ms), "{taken_ms}");
    turn(&mut one, &mut bucket, 10_000, true);
    turn(&mut one, &mut bucket, 10_001, true);
    assert!(!one.leads(10_001));
}

#[test]
fn a_record_that_was_taken_away_is_written_at_the_next_look() {
    let mut bucket = Bucket::default();
    let (mut one, mut other) = (Lead::new("one".into()), Lead::new("other".into()));
    for now_ms in [0, 250] {
        turn(&mut one, &mut bucket, now_ms, true);
        turn(&mut other, &mut bucket, now_ms, true);
    }
    assert_eq!(one.revision(), Some(1));
    bucket.record = None;
    turn(&mut other, &mut bucket, 500, true);
    turn(&mut other, &mut bucket, 750, true);
    assert!(other.leads(750));
    assert_eq!((other.revision(), other.until_ms()), (Some(2), Some(750 + 2_700)));
}

#[test]
fn a_leader_whose_answer_was_lost_finds_his_own_record_and_goes_on() {
    let mut bucket = Bucket::default();
    let mut one = Lead::new("one".into());
    turn(&mut one, &mut bucket, 0, true);
    turn(&mut one, &mut bucket, 1, false);
    assert!(!one.leads(1), "nobody told it");
    turn(&mut one, &mut bucket, 250, true);
    turn(&mut one, &mut bucket, 500, true);
    assert!(one.leads(500));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Turns and lost answers in any order, at any time: there is never more than one.
    #[test]
    fn there_are_never_two(turns in prop::collection::vec((0_usize..3, 0_u64..900, any::<bool>(), any::<bool>()), 1..200)) {
        let mut bucket = Bucket::default();
        let mut all: Vec<Lead> = ["a", "b", "c"].iter().map(|boot| Lead::new((*boot).into())).collect();
        let mut now_ms = 0;
        for (who, pause_ms, heard, gone) in turns {
            now_ms += pause_ms;
            if gone && now_ms % 7 == 0 {
                bucket.record = bucket.record.take().filter(|(_, leader)| &*leader.boot != "a");
                all[0] = Lead::new("a".into());
            }
            turn(&mut all[who], &mut bucket, now_ms, heard);
            let leading = all.iter().filter(|lead| lead.leads(now_ms)).count();
            prop_assert!(leading <= 1, "{leading} lead at {now_ms}");
        }
    }
}

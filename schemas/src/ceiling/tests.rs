//! One number for all, whoever changes it.

use proptest::prelude::*;
use proptest::sample::Index;

use super::*;

const TERMS: Terms = Terms {
    initial: 8,
    max: 64,
    raise_after: 100,
};

#[test]
fn a_429_lowers_it_by_one_and_a_hundred_that_go_well_raise_it_by_one() {
    let mut ceiling = Ceiling::new(TERMS);
    assert_eq!(ceiling.hear(Hint::TooMany), Some(8));
    assert_eq!(ceiling.most(), 7);
    for _ in 0..99 {
        assert_eq!(ceiling.hear(Hint::Fine), None);
    }
    assert_eq!(ceiling.hear(Hint::Fine), Some(7));
    assert_eq!(ceiling.most(), 8);
    for _ in 0..20 {
        ceiling.hear(Hint::TooMany);
    }
    assert_eq!((ceiling.most(), ceiling.hear(Hint::TooMany)), (1, None));
    for _ in 0..10_000 {
        ceiling.hear(Hint::Fine);
    }
    assert_eq!((ceiling.most(), ceiling.hear(Hint::Fine)), (64, None));
}

#[test]
fn what_others_wrote_counts_and_ones_own_change_comes_on_top() {
    let mut ceiling = Ceiling::new(TERMS);
    ceiling.hear(Hint::TooMany);
    ceiling.agree(5, 4);
    assert_eq!(ceiling.most(), 3);
    assert_eq!(ceiling.propose(), Some((5, 3)));
    assert_eq!(ceiling.propose(), None, "it is being written");
    ceiling.agree(6, 5);
    ceiling.wrote(None);
    assert_eq!(ceiling.propose(), Some((6, 4)));
    ceiling.wrote(Some((7, 4)));
    assert_eq!((ceiling.most(), ceiling.propose()), (4, None));
    ceiling.agree(6, 9);
    assert_eq!(ceiling.most(), 4, "that is older");
    ceiling.begin_anew();
    ceiling.agree(1, 9);
    assert_eq!(ceiling.most(), 9);
}

#[test]
fn what_others_run_is_theirs_and_nobody_begins_more_than_his_part_while_somebody_waits() {
    let others = |running, waiting, wanting| Others {
        running,
        waiting,
        wanting,
    };
    assert_eq!(allowance(8, &others(0, 0, 0)), 8);
    assert_eq!(allowance(8, &others(5, 0, 1)), 3);
    assert_eq!(allowance(8, &others(9, 0, 1)), 0);
    assert_eq!(allowance(8, &others(0, 2, 1)), 4);
    assert_eq!(allowance(8, &others(6, 2, 1)), 2);
    assert_eq!(allowance(8, &others(1, 2, 2)), 3);
    assert_eq!(allowance(1, &others(0, 2, 3)), 1);
}

proptest! {
    /// Routers hear what was written in any order of their own, and write over what they know.
    #[test]
    fn the_shared_number_is_the_sum_of_what_all_say(steps in proptest::collection::vec((any::<Index>(), any::<bool>(), any::<bool>()), 1..200)) {
        let terms = Terms { initial: 500, max: 1_000, raise_after: 1 };
        let mut routers = vec![Ceiling::new(terms); 3];
        let (mut revision, mut shared, mut sum) = (0_u64, terms.initial, i64::from(terms.initial));
        let write = |router: &mut Ceiling, revision: &mut u64, shared: &mut u32| {
            if let Some((over, most)) = router.propose() {
                let fits = over == *revision;
                if fits {
                    *revision += 1;
                    *shared = most;
                }
                router.wrote(fits.then_some((*revision, most)));
            }
        };
        for (router, rises, hears) in steps {
            let router = &mut routers[router.index(3)];
            router.hear(if rises { Hint::Fine } else { Hint::TooMany });
            sum += if rises { 1 } else { -1 };
            if hears {
                router.agree(revision, shared);
            }
            write(router, &mut revision, &mut shared);
        }
        for router in &mut routers {
            router.agree(revision, shared);
            write(router, &mut revision, &mut shared);
        }
        for router in &mut routers {
            router.agree(revision, shared);
            prop_assert_eq!(i64::from(router.most()), sum);
        }
    }
}

//! What is left after a crash.

use std::collections::HashSet;
use std::fs;
use std::path::PathBuf;

use super::*;

fn copy(from: &Path) -> tempfile::TempDir {
    let to = tempfile::tempdir().expect("dir");
    for entry in fs::read_dir(from).expect("list") {
        let entry = entry.expect("entry");
        fs::copy(entry.path(), to.path().join(entry.file_name())).expect("copy");
    }
    to
}

fn segments(dir: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> = fs::read_dir(dir)
        .expect("list")
        .map(|entry| entry.expect("entry").path())
        .collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "spool"));
    paths.sort();
    paths
}

fn last_segment(dir: &Path) -> PathBuf {
    segments(dir).pop().expect("a segment")
}

fn orphan_ids(recovered: &Recovered) -> Vec<RequestId> {
    recovered
        .orphans
        .iter()
        .map(|orphan| orphan.accepted.request_id)
        .collect()
}

#[test]
fn a_killed_process_leaves_its_events_and_its_open_requests() {
    let dir = tempfile::tempdir().expect("dir");
    let (spool, _) = open(dir.path());
    serve(&spool);
    let running = accepted(&spool);
    spool.intend(&running).expect("intend");
    serve(&spool);
    // The process is gone at this moment; nothing was closed.
    let after = copy(dir.path());

    let (again, recovered) = open(after.path());

    assert_eq!(
        recovered.orphans,
        [Orphan {
            accepted: running.clone()
        }]
    );
    assert!(recovered.lost.is_empty());
    assert_eq!(again.id(), spool.id());
    assert_eq!(again.appended(), 2);
    again.settle(now(), &settled(&running)).expect("settle");
    assert_eq!(sequences(&again), [1, 2, 3]);
    drop(again);
    assert!(
        open(after.path()).1.orphans.is_empty(),
        "an orphan that was settled is none"
    );
}

#[test]
fn a_write_cut_at_any_byte_costs_only_itself() {
    let dir = tempfile::tempdir().expect("dir");
    let (spool, _) = open(dir.path());
    let file = last_segment(dir.path());
    serve(&spool);
    let running = accepted(&spool);
    let mut ends = vec![fs::metadata(&file).expect("metadata").len()];
    spool.intend(&running).expect("intend");
    ends.push(fs::metadata(&file).expect("metadata").len());
    spool.settle(now(), &settled(&running)).expect("settle");
    ends.push(fs::metadata(&file).expect("metadata").len());

    for cut in
        (ends[0]..=ends[2])
            .step_by(41)
            .chain([ends[1] - 1, ends[1], ends[1] + 1, ends[2] - 1, ends[2]])
    {
        for zeros in [0, 4_096] {
            let after = copy(dir.path());
            let torn = fs::OpenOptions::new()
                .write(true)
                .open(last_segment(after.path()))
                .expect("open");
            torn.set_len(cut).expect("cut");
            torn.set_len(cut + zeros).expect("fill");
            let (again, recovered) = open(after.path());

            assert_eq!(recovered.lost, [], "cut at {cut}");
            let open_request = cut >= ends[1] && cut < ends[2];
            let orphans = if open_request {
                vec![running.request_id]
            } else {
                vec![]
            };
            assert_eq!(orphan_ids(&recovered), orphans, "cut at {cut}");
            serve(&again);
            let kept = if cut < ends[2] { 1 } else { 2 };
            assert!(sequences(&again).into_iter().eq(1..=kept + 1), "cut at {cut}");
        }
    }
}

/// Places of the events' records in a segment.
fn events(file: &Path) -> Vec<std::ops::Range<usize>> {
    let bytes = fs::read(file).expect("read");
    let event = |piece| match piece {
        crate::segment::Piece::Record(record) if record.kind == write::EVENT => Some(record.whole),
        _ => None,
    };
    crate::segment::Reader::new(&bytes).filter_map(event).collect()
}

fn flip(file: &Path, at: usize) {
    let mut bytes = fs::read(file).expect("read");
    bytes[at] ^= 0x10;
    fs::write(file, bytes).expect("write");
}

#[test]
fn a_flipped_bit_costs_its_event_and_the_hole_is_declared_once() {
    let dir = tempfile::tempdir().expect("dir");
    let (spool, _) = open(dir.path());
    for _ in 0..6 {
        serve(&spool);
    }
    drop(spool);
    let file = last_segment(dir.path());
    let places = events(&file);
    flip(&file, places[2].start + 100);
    flip(&file, places[3].start + 5);

    let (again, recovered) = open(dir.path());

    let id = again.id().clone();
    let hole = SpoolLost {
        spool: id,
        from: 3,
        to: 4,
        cause: "checksum".to_owned(),
    };
    assert_eq!(recovered.lost, std::slice::from_ref(&hole));
    let read = everything(&again);
    let numbers: Vec<_> = read.iter().map(|(sequence, _)| *sequence).collect();
    assert_eq!(numbers, [1, 2, 5, 6, 7]);
    let declared: Envelope<SpoolLost> = serde_json::from_slice(&read[4].1.payload).expect("envelope");
    assert_eq!(declared.data, hole);
    assert_eq!(declared.subject, "default");
    // Whose settlement is gone is open again: settling it twice is the books' business, losing it is not.
    assert_eq!(recovered.orphans.len(), 2);
    drop(again);
    let (_, recovered) = open(dir.path());
    assert_eq!(recovered.lost, []);
}

#[test]
fn numbers_of_a_spoiled_end_are_never_given_away_again() {
    let dir = tempfile::tempdir().expect("dir");
    let (spool, _) = open(dir.path());
    for _ in 0..4 {
        serve(&spool);
    }
    drop(spool);
    let file = last_segment(dir.path());
    let places = events(&file);
    flip(&file, places[3].start + 200);

    let (again, recovered) = open(dir.path());

    let lost = &recovered.lost[0];
    assert_eq!(lost.from, 4);
    serve(&again);
    let numbers = sequences(&again);
    assert_eq!(numbers[..3], [1, 2, 3]);
    assert_eq!(numbers[3..], [lost.to + 1, lost.to + 2]);
    drop(again);
    assert_eq!(open(dir.path()).1.lost, [], "declared is declared");
}

#[test]
fn a_segment_that_is_gone_is_declared() {
    let dir = tempfile::tempdir().expect("dir");
    let small = Options {
        bytes_max: 256 << 10,
        ..options(dir.path())
    };
    let (spool, _) = open_with(small.clone());
    for _ in 0..60 {
        serve(&spool);
    }
    drop(spool);
    let files = segments(dir.path());
    assert!(files.len() > 3);
    let first = |file: &Path| {
        let name = file.file_stem().and_then(|name| name.to_str()).expect("name");
        name.split_once('-')
            .expect("two numbers")
            .1
            .parse::<u64>()
            .expect("number")
    };
    let (from, to) = (first(&files[1]), first(&files[2]) - 1);
    fs::remove_file(&files[1]).expect("remove");

    let (again, recovered) = open_with(small);

    let spool = again.id().clone();
    assert_eq!(
        recovered.lost,
        [SpoolLost {
            spool,
            from,
            to,
            cause: "missing_segment".to_owned()
        }]
    );
    let lost: HashSet<u64> = (from..=to).collect();
    assert!(
        sequences(&again)
            .into_iter()
            .eq((1..=61).filter(|sequence| !lost.contains(sequence)))
    );
}

#[test]
fn numbers_that_the_ledger_knows_are_not_given_away_again_when_the_end_is_gone() {
    let dir = tempfile::tempdir().expect("dir");
    let (spool, _) = open(dir.path());
    for _ in 0..10 {
        serve(&spool);
    }
    drop(spool);
    let file = last_segment(dir.path());
    let bytes = fs::read(&file).expect("read");
    let cut = events(&file)[7].start;
    fs::write(&file, &bytes[..cut]).expect("cut");

    let (spool, recovered) = open(dir.path());
    assert_eq!((spool.appended(), recovered.orphans.len()), (7, 1));
    spool.begin_after(10).expect("begin");
    serve(&spool);
    spool.begin_after(10).expect("begin");

    assert_eq!(sequences(&spool), [1, 2, 3, 4, 5, 6, 7, 11, 12]);
    let (_, declaration) = &everything(&spool)[7];
    let declaration = std::str::from_utf8(&declaration.payload).expect("text");
    assert!(
        declaration.contains(r#""from":8,"to":10,"cause":"missing_end""#),
        "{declaration}"
    );
    spool.trim(12);
    drop(spool);
    let (again, recovered) = open(dir.path());
    assert_eq!((again.appended(), recovered.lost.len()), (12, 0));
}

#[test]
fn an_id_whose_files_are_gone_is_not_used_again() {
    let dir = tempfile::tempdir().expect("dir");
    let (spool, _) = open(dir.path());
    serve(&spool);
    let before = spool.id().clone();
    drop(spool);
    fs::remove_file(last_segment(dir.path())).expect("remove");

    let (again, _) = open(dir.path());

    assert_ne!(*again.id(), before);
    assert_eq!(again.appended(), 0);
}

#[test]
fn numbering_goes_on_when_everything_was_trimmed() {
    let dir = tempfile::tempdir().expect("dir");
    let small = Options {
        bytes_max: 256 << 10,
        ..options(dir.path())
    };
    let (spool, _) = open_with(small.clone());
    for _ in 0..60 {
        serve(&spool);
    }
    spool.trim(60);
    drop(spool);

    let (again, recovered) = open_with(small);

    assert_eq!(recovered.lost, []);
    assert_eq!(again.appended(), 60);
    assert!(again.marked() > 0 && again.marked() <= 60);
}

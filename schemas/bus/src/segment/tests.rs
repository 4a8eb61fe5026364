//! Whatever happens to a file, it costs only the records that it happened to.

use proptest::prelude::*;

use super::*;

fn written(payloads: &[Vec<u8>]) -> (Vec<u8>, Vec<Range<usize>>) {
    let mut file = Vec::new();
    let mut places = Vec::new();
    for (index, payload) in payloads.iter().enumerate() {
        let start = file.len();
        encode(&mut file, u8::try_from(index % 7).expect("small"), payload).expect("fits");
        places.push(start..file.len());
    }
    (file, places)
}

fn records(file: &[u8]) -> Vec<Record> {
    Reader::new(file)
        .filter_map(|piece| match piece {
            Piece::Record(record) => Some(record),
            Piece::Damaged { .. } => None,
        })
        .collect()
}

fn payloads() -> impl Strategy<Value = Vec<Vec<u8>>> {
    // Payloads that look like headers are likely here.
    let byte = prop_oneof![Just(b'W'), Just(b'B'), Just(0), Just(1), any::<u8>()];
    prop::collection::vec(prop::collection::vec(byte, 0..60), 1..12)
}

proptest! {
    #[test]
    fn what_is_written_is_read_back_in_order(payloads in payloads()) {
        let (file, places) = written(&payloads);
        let read = records(&file);
        prop_assert_eq!(read.len(), payloads.len());
        for ((record, place), payload) in read.iter().zip(places).zip(&payloads) {
            prop_assert_eq!(&record.whole, &place);
            prop_assert_eq!(&file[record.payload()], &payload[..]);
        }
    }

    #[test]
    fn a_changed_byte_costs_only_its_own_record(
        payloads in payloads(), place in any::<prop::sample::Index>(), change in 1..=255_u8,
    ) {
        let (mut file, places) = written(&payloads);
        let spoiled = place.index(file.len());
        file[spoiled] ^= change;
        let read: Vec<_> = records(&file).into_iter().map(|record| record.whole).collect();
        let kept: Vec<_> = places.into_iter().filter(|place| !place.contains(&spoiled)).collect();
        prop_assert_eq!(read, kept);
    }

    #[test]
    fn a_file_cut_anywhere_keeps_its_whole_records_and_its_end_is_torn(
        payloads in payloads(), place in any::<prop::sample::Index>(), zeros in 0..40_usize,
    ) {
        let (mut file, places) = written(&payloads);
        let cut = place.index(file.len());
        file.truncate(cut);
        let kept: Vec<_> = places.into_iter().filter(|place| place.end <= cut).collect();
        let end = kept.last().map_or(0, |last| last.end);
        file.resize(cut + zeros, 0);
        let read: Vec<_> = records(&file).into_iter().map(|record| record.whole).collect();
        // Zeros may complete a record that ended with zeros; nothing else may appear.
        prop_assert!(read.starts_with(&kept) && read.len() <= kept.len() + 1);
        if read.len() == kept.len() && (zeros == 0 || zeros >= ZERO_FILL_BYTES) {
            for piece in Reader::new(&file) {
                if let Piece::Damaged { range, cause } = piece {
                    prop_assert_eq!((range.start, cause), (end, Cause::Torn));
                }
            }
        }
    }

    #[test]
    fn any_bytes_are_divided_into_pieces_without_rest(file in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut at = 0;
        for piece in Reader::new(&file) {
            let range = match piece {
                Piece::Record(record) => record.whole,
                Piece::Damaged { range, .. } => range,
            };
            prop_assert_eq!(range.start, at);
            prop_assert!(range.end > at);
            at = range.end;
        }
        prop_assert_eq!(at, file.len());
    }
}

#[test]
fn zeros_are_never_a_record() {
    assert_eq!(
        Reader::new(&[0; 64]).collect::<Vec<_>>(),
        [Piece::Damaged {
            range: 0..64,
            cause: Cause::Torn
        }]
    );
}

#[test]
fn a_payload_that_is_too_large_leaves_nothing_behind() {
    let mut file = b"before".to_vec();
    let payload = vec![0; PAYLOAD_BYTES_MAX + 1];
    assert_eq!(
        encode(&mut file, 1, &payload),
        Err(TooLarge {
            bytes: PAYLOAD_BYTES_MAX + 1
        })
    );
    assert_eq!(file, b"before");
}

#[test]
fn printable_text_is_refused_as_a_header_at_first_sight() {
    let text = b"WB\x01\x01    0000and so on".repeat(4);
    assert_eq!(parse(&text, 0), Step::Damaged);
}

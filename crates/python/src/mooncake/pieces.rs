//! Converts blocks in pieces of registered memory to the client's form.

use super::number::Number;
use super::registered::Piece;
use crate::keys::Key;
use crate::lists::List;
use std::ops::Range;
use tidepool_client::{Buffers, GetInto, Parts, PutItem};

/// A block, or a range of it, to read into pieces.
pub(super) fn get_item<'a>(key: &'a Key, range: Option<Range<u64>>, pieces: &'a [Piece]) -> GetInto<'a> {
    GetInto { range, ..GetInto::new(key, target(pieces)) }
}

/// A block to put from pieces.
pub(super) fn put_item<'a>(key: &'a Key, pieces: &'a [Piece]) -> PutItem<'a> {
    PutItem::new(key, source(pieces))
}

/// Addresses and sizes, pair by pair; `None` when they do not pair.
pub(super) fn pieces_of(addresses: &[List<Number>], sizes: &[List<Number>]) -> Option<Vec<Vec<Piece>>> {
    let pair = |(addresses, sizes): (&List<Number>, &List<Number>)| {
        let pieces = addresses.iter().zip(sizes.iter()).map(|(at, len)| Piece::new(*at, *len)).collect();
        (addresses.len() == sizes.len()).then_some(pieces)
    };
    if addresses.len() != sizes.len() {
        return None;
    }
    addresses.iter().zip(sizes).map(pair).collect()
}

fn source(pieces: &[Piece]) -> Parts<'_> {
    // SAFETY: every piece lies in registered memory, which its owner keeps in place until it unregisters it, and which it does
    // not write to during a put.
    let bytes = |piece: &Piece| unsafe { piece.bytes() };
    match pieces {
        [one] => Parts::One(bytes(one)),
        many => Parts::Many(many.iter().map(bytes).collect()),
    }
}

fn target(pieces: &[Piece]) -> Buffers<'_> {
    // SAFETY: as in `source`, and its owner neither reads nor writes it during a get.
    let bytes = |piece: &Piece| unsafe { piece.bytes_mut() };
    match pieces {
        [one] => Buffers::One(bytes(one)),
        many => Buffers::Many(many.iter().map(bytes).collect()),
    }
}

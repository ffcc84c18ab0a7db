//! The places and numbers of masters.
//!
//! The number of a master is both its replica and its server id in group 0. Its place follows from it: the masters that
//! found a cluster get the places of their sorted list, and one that is added later gets a free place. A master that takes
//! the place of a lost one, or of one that was removed, gets a later number of that place.

/// Places that have numbers; more than there can be masters, so that some are added before others are removed.
const PLACES: u64 = 8;
/// The most masters of a cluster.
pub const MASTERS_MAX: usize = 5;

/// A master: the number that it got when it was added, and its address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its number. One that lost its directory since has a later one of the same place.
    pub number: u64,
    /// Where others reach it.
    pub address: String,
}

impl Peer {
    /// Its place, which no other master has.
    pub fn place(&self) -> usize {
        place_of(self.number)
    }
}

/// The number of the master that is at a place after so many others, counted in any way that goes up. The first one at a
/// place has generation 0.
pub fn numbered(place: usize, generation: u64) -> u64 {
    generation * PLACES + place as u64 + 1
}

/// The place of a master with this number.
pub fn place_of(number: u64) -> usize {
    usize::try_from(number.saturating_sub(1) % PLACES).expect("a place is small")
}

/// The places that none of these masters has.
pub fn free_places(peers: &[Peer]) -> impl Iterator<Item = usize> {
    let places = (0..PLACES).map(|number| place_of(number + 1));
    places.filter(|place| peers.iter().all(|peer| peer.place() != *place))
}

/// Why a cluster cannot have so many masters.
pub fn check_count(masters: usize) -> Result<(), &'static str> {
    match masters {
        1 | 3 | MASTERS_MAX => Ok(()),
        0 => Err("at least one is needed"),
        more if more > MASTERS_MAX => Err("more would only make changes slower"),
        _ => Err("an even number tolerates no more failures than one master less"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_the_place() {
        for place in 0..5 {
            assert_eq!(place_of(numbered(place, 0)), place);
            assert_eq!(place_of(numbered(place, 4_711)), place);
        }
        assert_eq!((numbered(2, 0), numbered(2, 1)), (3, 11));
    }

    #[test]
    fn removed_masters_leave_their_places() {
        let peers = [numbered(0, 0), numbered(2, 7)].map(|number| Peer { number, address: String::new() });
        assert_eq!(free_places(&peers).collect::<Vec<_>>(), [1, 3, 4, 5, 6, 7]);
    }
}

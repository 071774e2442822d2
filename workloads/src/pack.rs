//! The packers. They take lengths one at a time and hand out full windows.

use crate::packing::Packing;
use crate::stream::Window;

/// Packs documents into windows of exactly `window` tokens.
#[derive(Debug)]
pub(crate) enum Packer {
    FirstFit(FirstFit),
    OneOpen(OneOpen),
}

impl Packer {
    pub(crate) fn new(packing: Packing, window: u32) -> Self {
        match packing {
            Packing::FirstFit { open, top_up } => {
                Self::FirstFit(FirstFit::new(window, open as usize, Packing::closing_room(top_up, window)))
            }
            Packing::Cut => Self::OneOpen(OneOpen::new(window, false)),
            Packing::Split => Self::OneOpen(OneOpen::new(window, true)),
        }
    }

    /// Packs the documents in order until `done` has `wanted` windows; documents after that are not looked at.
    pub(crate) fn pack(&mut self, documents: &[u64], done: &mut Vec<Window>, wanted: usize) {
        match self {
            Self::FirstFit(packer) => packer.pack(documents, done, wanted),
            Self::OneOpen(packer) => packer.pack(documents, done, wanted),
        }
    }
}

/// First fit over at most `capacity` open windows, see [`Packing::FirstFit`].
#[derive(Debug)]
pub(crate) struct FirstFit {
    window: u32,
    capacity: usize,
    top_up: u32,
    /// Room of every open window, oldest first. Apart from `contents`: the search reads nothing else.
    rooms: Vec<u32>,
    /// Slot of every open window, oldest first.
    slots: Vec<u32>,
    /// Documents of every slot; a slot keeps its memory from one window to the next.
    contents: Vec<Vec<u32>>,
    free: Vec<u32>,
}

impl FirstFit {
    fn new(window: u32, capacity: usize, top_up: u32) -> Self {
        Self {
            window,
            capacity,
            top_up,
            rooms: Vec::with_capacity(capacity),
            slots: Vec::with_capacity(capacity),
            contents: vec![Vec::new(); capacity],
            free: (0..capacity as u32).rev().collect(),
        }
    }

    fn pack(&mut self, documents: &[u64], done: &mut Vec<Window>, wanted: usize) {
        for &document in documents {
            if done.len() >= wanted {
                return;
            }
            let length = document.min(u64::from(self.window)) as u32;
            if length == self.window {
                done.push(Box::from([length]));
            } else if let Some(at) = self.rooms.iter().position(|&room| room >= length) {
                self.place(at, length, done);
            } else if let Some(slot) = self.free.pop() {
                self.rooms.push(self.window);
                self.slots.push(slot);
                self.place(self.rooms.len() - 1, length, done);
            } else if let Some(fullest) = (0..self.rooms.len()).min_by_key(|&i| self.rooms[i]) {
                self.close(fullest, done);
            }
        }
    }

    #[inline]
    fn place(&mut self, at: usize, length: u32, done: &mut Vec<Window>) {
        self.contents[self.slots[at] as usize].push(length);
        self.rooms[at] -= length;
        if self.rooms[at] <= self.top_up {
            self.close(at, done);
        }
    }

    /// Fills what room is left with one segment and hands the window out.
    fn close(&mut self, at: usize, done: &mut Vec<Window>) {
        let room = self.rooms.remove(at);
        let slot = self.slots.remove(at);
        let contents = &mut self.contents[slot as usize];
        if room > 0 {
            contents.push(room);
        }
        done.push(Box::from(&contents[..]));
        contents.clear();
        self.free.push(slot);
        debug_assert!(self.slots.len() + self.free.len() == self.capacity);
    }
}

/// One open window, see [`Packing::Cut`] and [`Packing::Split`].
#[derive(Debug)]
pub(crate) struct OneOpen {
    window: u32,
    carry: bool,
    room: u32,
    contents: Vec<u32>,
}

impl OneOpen {
    fn new(window: u32, carry: bool) -> Self {
        Self { window, carry, room: window, contents: Vec::new() }
    }

    fn pack(&mut self, documents: &[u64], done: &mut Vec<Window>, wanted: usize) {
        for &document in documents {
            let mut rest = document;
            while rest > 0 {
                if done.len() >= wanted {
                    return;
                }
                let placed = rest.min(u64::from(self.room)) as u32;
                self.contents.push(placed);
                self.room -= placed;
                rest = if self.carry { rest - u64::from(placed) } else { 0 };
                if self.room == 0 {
                    done.push(Box::from(&self.contents[..]));
                    self.contents.clear();
                    self.room = self.window;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pack(packing: Packing, window: u32, documents: &[u64]) -> Vec<Vec<u32>> {
        let mut done = Vec::new();
        Packer::new(packing, window).pack(documents, &mut done, usize::MAX);
        done.into_iter().map(Vec::from).collect()
    }

    fn ff(open: u32, top_up: u32) -> Packing {
        Packing::FirstFit { open, top_up: Some(top_up) }
    }

    #[test]
    fn first_fit_by_hand() {
        // 6 opens A; 5 opens B; 4 fills A; 5 fills B.
        assert_eq!(pack(ff(2, 0), 10, &[6, 5, 4, 5]), [vec![6, 4], vec![5, 5]]);
        // A whole window and one that is truncated to it stand alone.
        assert_eq!(pack(ff(2, 0), 10, &[3, 10, 99]), [vec![10], vec![10]]);
        // A 6, B 7; 5 fits neither: B is fuller and takes 3 of it, the other 2 are dropped.
        assert_eq!(pack(ff(2, 0), 10, &[6, 7, 5, 4]), [vec![7, 3], vec![6, 4]]);
        // Of equally full windows the older one takes the head.
        assert_eq!(pack(ff(2, 0), 10, &[6, 5, 1, 7]), [vec![6, 1, 3]]);
        // Room of at most 2 closes at once, topped up by one segment; no room, no segment.
        assert_eq!(pack(ff(2, 2), 10, &[8, 5, 5, 4, 3]), [vec![8, 2], vec![5, 5]]);
        assert_eq!(pack(ff(2, 2), 10, &[4, 3, 2]), [vec![4, 3, 2, 1]]);
    }

    #[test]
    fn what_tops_up_a_short_window_is_a_small_part_of_it() {
        let longest = |window| {
            let windows = pack(Packing::FIRST_FIT, window, &vec![1; 3 * window as usize]);
            windows.concat().into_iter().max()
        };
        assert_eq!(
            (longest(200), longest(4096), longest(1 << 16), longest(1 << 19)),
            (Some(3), Some(64), Some(1024), Some(1024))
        );
    }

    #[test]
    fn first_fit_forgets_the_order_of_a_closed_window() {
        // A 6, B 5, C 4 open; A closes; D becomes the youngest; 5 goes to B, 6 to C.
        assert_eq!(pack(ff(3, 0), 10, &[6, 6, 4, 4, 7, 4, 6]), [vec![6, 4], vec![6, 4], vec![4, 6]]);
    }

    #[test]
    fn cut_and_split_by_hand() {
        assert_eq!(pack(Packing::Cut, 10, &[6, 7, 25, 10, 3]), [vec![6, 4], vec![10], vec![10]]);
        assert_eq!(pack(Packing::Split, 10, &[6, 7, 25, 2]), [vec![6, 4], vec![3, 7], vec![10], vec![8, 2]]);
    }

    #[test]
    fn stops_at_the_wanted_number_inside_a_document() {
        let mut done = Vec::new();
        Packer::new(Packing::Split, 4).pack(&[1 << 40], &mut done, 3);
        assert_eq!(done.len(), 3);
    }

    /// First fit as its definition reads, with every window kept in one list of (documents, still open).
    fn naive_first_fit(window: u32, open: usize, top_up: u32, documents: &[u64]) -> Vec<Vec<u32>> {
        let mut done: Vec<Vec<u32>> = Vec::new();
        let mut all: Vec<(Vec<u32>, bool)> = Vec::new();
        let room = |documents: &Vec<u32>| window - documents.iter().sum::<u32>();
        for &document in documents {
            let length = document.min(u64::from(window)) as u32;
            if length == window {
                done.push(vec![length]);
                continue;
            }
            let fits = all.iter().position(|(d, is_open)| *is_open && room(d) >= length);
            let at = match fits {
                Some(at) => at,
                None if all.iter().filter(|w| w.1).count() < open => {
                    all.push((Vec::new(), true));
                    all.len() - 1
                }
                None => {
                    let mut best = None;
                    for (i, (d, is_open)) in all.iter().enumerate() {
                        if *is_open && best.is_none_or(|b: usize| room(&all[b].0) > room(d)) {
                            best = Some(i);
                        }
                    }
                    let best = best.unwrap();
                    let head = room(&all[best].0);
                    all[best].0.push(head);
                    all[best].1 = false;
                    done.push(all[best].0.clone());
                    continue;
                }
            };
            all[at].0.push(length);
            let left = room(&all[at].0);
            if left <= top_up {
                if left > 0 {
                    all[at].0.push(left);
                }
                all[at].1 = false;
                done.push(all[at].0.clone());
            }
        }
        done
    }

    proptest! {
        #[test]
        fn first_fit_is_the_naive_first_fit(
            documents in prop::collection::vec(1u64..300, 0..600),
            window in 1u32..200,
            open in 1u32..9,
            top_up in 0u32..20,
        ) {
            let fast = pack(ff(open, top_up), window, &documents);
            prop_assert_eq!(fast, naive_first_fit(window, open as usize, top_up, &documents));
        }

        #[test]
        fn windows_are_full_and_hold_no_empty_document(
            documents in prop::collection::vec(1u64..5000, 1..400),
            window in 1u32..1000,
        ) {
            for packing in [ff(3, 7), Packing::Cut, Packing::Split] {
                for packed in pack(packing, window, &documents) {
                    prop_assert_eq!(packed.iter().map(|&l| u64::from(l)).sum::<u64>(), u64::from(window));
                    prop_assert!(packed.iter().all(|&l| l > 0));
                }
            }
        }

        #[test]
        fn split_keeps_every_token_in_order(
            documents in prop::collection::vec(1u64..5000, 1..200),
            window in 1u32..1000,
        ) {
            let tokens: u64 = documents.iter().sum();
            let packed = pack(Packing::Split, window, &documents);
            prop_assert_eq!(packed.len() as u64, tokens / u64::from(window));
            // Document ends that are not window ends must be the ends of the packed documents.
            let ends = |lengths: Vec<u64>| lengths.into_iter().scan(0, |at, l| { *at += l; Some(*at) }).collect::<Vec<u64>>();
            let mut expected = ends(documents);
            expected.extend((1..=packed.len() as u64).map(|i| i * u64::from(window)));
            expected.sort_unstable();
            expected.dedup();
            let limit = packed.len() as u64 * u64::from(window);
            expected.retain(|&end| end <= limit);
            prop_assert_eq!(ends(packed.into_iter().flatten().map(u64::from).collect()), expected);
        }

        #[test]
        fn cut_drops_only_overflow(documents in prop::collection::vec(1u64..5000, 1..200), window in 1u32..1000) {
            let packed = pack(Packing::Cut, window, &documents);
            let flat: Vec<u64> = packed.into_iter().flatten().map(u64::from).collect();
            for (placed, document) in flat.iter().zip(&documents) {
                prop_assert!(placed <= document);
            }
        }
    }
}

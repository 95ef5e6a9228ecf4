//! The place of each gradient: buckets one after the other in the order of their launch, like books
//! on shelves, each gradient as wide as the square root of its bytes.

use lockstep_torch::ddp::lab::BucketFate;

/// A gradient's place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Block {
    pub(super) param: u32,
    pub(super) bucket: u32,
    pub(super) x: f64,
    /// The shelf.
    pub(super) row: u32,
    pub(super) width: f64,
}

/// The begin of a bucket, where its number stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Tag {
    pub(super) bucket: u32,
    pub(super) x: f64,
    pub(super) row: u32,
    pub(super) width: f64,
}

/// All gradients in their places.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Shelves {
    /// By shelf, then from left to right.
    pub(super) blocks: Vec<Block>,
    pub(super) tags: Vec<Tag>,
    /// The height of a shelf's blocks.
    pub(super) high: f64,
    /// From one shelf to the next.
    pub(super) pitch: f64,
}

/// Pixels between shelves.
const GAP: f64 = 4.0;
/// Pixels between buckets on a shelf.
const APART: f64 = 6.0;
/// Heights that blocks have at most and at least.
const HIGH: (f64, f64) = (72.0, 2.0);
/// And where there are few.
const HIGHEST: f64 = 104.0;

impl Shelves {
    /// Places the gradients of `buckets`, with their bytes, so that they fill `width` by `height`.
    pub(super) fn new(buckets: &[BucketFate], bytes: &[u64], width: f64, height: f64) -> Shelves {
        let count: usize = buckets.iter().map(|bucket| bucket.params.len() + 1).sum();
        let each = (width * height / count.max(1) as f64).sqrt();
        let mut high = (each * 0.85).clamp(HIGH.1, HIGH.0);
        loop {
            let gap = if high < 8.0 { 1.0 } else { GAP };
            let pitch = high + gap;
            let rows = (((height + gap) / pitch).floor() as u32).max(1);
            if let Some(mut placed) = fit(buckets, bytes, width, rows, high, pitch) {
                // What room is left makes them higher.
                let used = placed.blocks.last().map_or(1, |last| last.row + 1);
                placed.high =
                    ((height + gap) / f64::from(used) - gap).clamp(high, HIGHEST.max(high));
                placed.pitch = placed.high + gap;
                return placed;
            }
            if high <= HIGH.1 {
                // Even hairlines do not fit: what is left over is left out.
                let mut placed = place(buckets, bytes, width, 0.0, high, pitch);
                placed.blocks.retain(|block| block.row < rows);
                placed.tags.retain(|tag| tag.row < rows);
                return placed;
            }
            high = (high * 0.8).max(HIGH.1);
        }
    }

    /// The gradient at a point.
    pub(super) fn at(&self, x: f64, y: f64) -> Option<&Block> {
        let row = (y / self.pitch).floor();
        if row < 0.0 || y - row * self.pitch > self.high {
            return None;
        }
        let key = |block: &Block| (f64::from(block.row), block.x);
        let after = self.blocks.partition_point(|block| key(block) <= (row, x));
        let found = self.blocks.get(after.checked_sub(1)?)?;
        let inside = f64::from(found.row) == row && x < found.x + found.width;
        inside.then_some(found)
    }

    /// The block of a gradient.
    pub(super) fn of(&self, param: u32) -> Option<&Block> {
        self.blocks.iter().find(|block| block.param == param)
    }

    /// The top of a shelf.
    pub(super) fn top(&self, row: u32) -> f64 {
        f64::from(row) * self.pitch
    }
}

/// The widest blocks with which everything fits into `rows` shelves.
fn fit(
    buckets: &[BucketFate],
    bytes: &[u64],
    width: f64,
    rows: u32,
    high: f64,
    pitch: f64,
) -> Option<Shelves> {
    let fits = |placed: &Shelves| placed.blocks.last().is_none_or(|last| last.row < rows);
    let mut best = place(buckets, bytes, width, 0.0, high, pitch);
    if !fits(&best) {
        return None;
    }
    // Pixels for the largest gradient.
    let (mut low, mut top) = (0.0, width * 0.4);
    for _ in 0..18 {
        let middle = (low + top) / 2.0;
        let placed = place(buckets, bytes, width, middle, high, pitch);
        match fits(&placed) {
            true => (low, best) = (middle, placed),
            false => top = middle,
        }
    }
    Some(best)
}

fn place(
    buckets: &[BucketFate],
    bytes: &[u64],
    width: f64,
    largest: f64,
    high: f64,
    pitch: f64,
) -> Shelves {
    let most = bytes.iter().copied().max().unwrap_or(1).max(1) as f64;
    let least = if high >= 12.0 {
        5.0
    } else if high > 4.0 {
        2.0
    } else {
        1.0
    };
    let tag = if high >= 12.0 {
        30.0
    } else if high > 4.0 {
        6.0
    } else {
        0.0
    };
    let apart = if high > 4.0 { APART } else { 0.0 };
    let (mut x, mut row) = (0.0, 0u32);
    let (mut blocks, mut tags) = (Vec::new(), Vec::new());
    for (bucket, fate) in (0u32..).zip(buckets) {
        if tag > 0.0 {
            // A number never stands alone at the end of a shelf.
            if x + tag + least > width {
                (x, row) = (0.0, row + 1);
            }
            tags.push(Tag { bucket, x, row, width: tag });
            x += tag;
        }
        for &param in &fate.params {
            let share = (bytes.get(param as usize).copied().unwrap_or(0) as f64 / most).sqrt();
            let wide = (share * largest).max(least);
            if x + wide > width && x > 0.0 {
                (x, row) = (0.0, row + 1);
            }
            blocks.push(Block { param, bucket, x, row, width: wide });
            x += wide;
        }
        x += apart;
    }
    Shelves { blocks, tags, high, pitch }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buckets(sizes: &[usize]) -> Vec<BucketFate> {
        let mut next = 0;
        let bucket = |size: &usize| {
            let params = (next..next + *size as u32).collect();
            next += *size as u32;
            BucketFate { params, ..BucketFate::default() }
        };
        sizes.iter().map(bucket).collect()
    }

    #[test]
    fn every_gradient_has_a_place_that_leads_back_to_it() {
        for (sizes, (width, height)) in [
            (vec![2, 20, 40], (1150.0, 330.0)),
            (vec![1; 467], (1150.0, 330.0)),
            (vec![290; 2], (330.0, 200.0)),
            (vec![580], (1150.0, 150.0)),
        ] {
            let of = buckets(&sizes);
            let count: usize = sizes.iter().sum();
            let bytes: Vec<u64> = (0..count as u64).map(|i| 1 << (4 + 2 * (i % 11))).collect();
            let shelves = Shelves::new(&of, &bytes, width, height);
            assert_eq!(shelves.blocks.len(), count);
            for block in &shelves.blocks {
                assert!(block.x + block.width <= width + 0.01, "{block:?}");
                let top = shelves.top(block.row);
                assert!(top + shelves.high <= height + 0.01, "{block:?} {height}");
                let found = shelves.at(block.x + block.width / 2.0, top + shelves.high / 2.0);
                assert_eq!(found, Some(block));
                assert_eq!(shelves.of(block.param), Some(block));
            }
            assert!(shelves.at(-5.0, 5.0).is_none() && shelves.at(5.0, 1e6).is_none());
        }
    }

    #[test]
    fn a_hundred_thousand_are_drawn_as_far_as_there_is_room() {
        let of = buckets(&[100_000]);
        let shelves = Shelves::new(&of, &vec![4; 100_000], 1150.0, 330.0);
        assert!(shelves.blocks.len() > 90_000, "{}", shelves.blocks.len());
        assert!(Shelves::new(&of, &[], 10.0, 10.0).blocks.len() < 1000);
        assert!(Shelves::new(&[], &[], 100.0, 100.0).blocks.is_empty());
    }
}

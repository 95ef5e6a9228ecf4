//! A mesh's ranks as a strided grid, so that a mesh over the whole world is a few numbers, however
//! large the world.

use std::sync::Arc;

/// Ranks by coordinates.
#[derive(Clone, Debug)]
pub(super) struct Grid {
    shape: Vec<u32>,
    strides: Vec<u64>,
    offset: u64,
    /// The ranks in storage order; absent if they are their own places.
    ranks: Option<Arc<[u32]>>,
}

impl PartialEq for Grid {
    fn eq(&self, other: &Grid) -> bool {
        self.shape == other.shape && self.cells().eq(other.cells())
    }
}

impl Grid {
    /// `torch.arange(n).view(shape)`.
    pub(super) fn arange(shape: &[u32]) -> Grid {
        Grid { shape: shape.to_vec(), strides: row_major(shape), offset: 0, ranks: None }
    }

    /// Ranks as given, row by row; `None` if they do not fill the shape.
    pub(super) fn explicit(ranks: &[u32], shape: &[u32]) -> Option<Grid> {
        let grid = Grid { ranks: Some(ranks.into()), ..Grid::arange(shape) };
        (grid.numel() == ranks.len() as u64).then_some(grid)
    }

    pub(super) fn shape(&self) -> &[u32] {
        &self.shape
    }

    pub(super) fn numel(&self) -> u64 {
        self.shape.iter().fold(1, |product, size| product.saturating_mul(u64::from(*size)))
    }

    fn rank_at(&self, place: u64) -> u32 {
        match &self.ranks {
            Some(ranks) => ranks.get(place as usize).copied().unwrap_or(u32::MAX),
            None => place as u32,
        }
    }

    /// Places in storage, row by row.
    fn places(&self) -> impl Iterator<Item = u64> {
        (0..self.numel()).map(|index| self.place(&coordinates(&self.shape, index)))
    }

    fn place(&self, at: &[u32]) -> u64 {
        let steps = at.iter().zip(&self.strides).map(|(i, stride)| u64::from(*i) * stride);
        self.offset + steps.sum::<u64>()
    }

    fn cells(&self) -> impl Iterator<Item = u32> {
        self.places().map(|place| self.rank_at(place))
    }

    /// The ranks, row by row.
    pub(super) fn ranks(&self) -> Vec<u32> {
        self.cells().collect()
    }

    /// The coordinates of a rank, once for each place it has.
    pub(super) fn find(&self, rank: u32) -> Vec<Vec<u32>> {
        // A whole world's ranks are their own places.
        if self.ranks.is_none() && self.offset == 0 && self.strides == row_major(&self.shape) {
            let inside = u64::from(rank) < self.numel();
            return inside.then(|| coordinates(&self.shape, u64::from(rank))).into_iter().collect();
        }
        let found = (0..self.numel()).map(|index| coordinates(&self.shape, index));
        found.filter(|at| self.rank_at(self.place(at)) == rank).collect()
    }

    /// The number of lines along a dimension.
    pub(super) fn lines(&self, dim: usize) -> u64 {
        self.numel() / u64::from(self.shape[dim].max(1))
    }

    /// The number of the line along `dim` through a place. PyTorch swaps `dim` with the last
    /// dimension and takes the rows, so with three or more dimensions lines are not numbered by
    /// the remaining coordinates in order.
    pub(super) fn line_of(&self, dim: usize, at: &[u32]) -> u64 {
        let mut order = at.to_vec();
        let mut shape = self.shape.clone();
        let last = shape.len() - 1;
        order.swap(dim, last);
        shape.swap(dim, last);
        let kept = order.iter().zip(&shape).take(last);
        kept.fold(0, |index, (i, size)| index * u64::from(*size) + u64::from(*i))
    }

    /// The ranks of a line along `dim`, by its number.
    pub(super) fn line(&self, dim: usize, number: u64) -> Vec<u32> {
        let last = self.shape.len() - 1;
        let mut shape = self.shape.clone();
        shape.swap(dim, last);
        let mut at = coordinates(&shape[..last], number);
        at.push(0);
        let cells = (0..self.shape[dim]).map(|i| {
            let mut at = at.clone();
            at[last] = i;
            at.swap(dim, last);
            self.rank_at(self.place(&at))
        });
        cells.collect()
    }

    /// The part of the grid along some dimensions through a place.
    pub(super) fn cut(&self, dims: &[usize], at: &[u32]) -> Grid {
        let mut fixed = at.to_vec();
        for dim in dims {
            fixed[*dim] = 0;
        }
        Grid {
            shape: dims.iter().map(|dim| self.shape[*dim]).collect(),
            strides: dims.iter().map(|dim| self.strides[*dim]).collect(),
            offset: self.place(&fixed),
            ranks: self.ranks.clone(),
        }
    }

    fn rest(&self, dims: &[usize]) -> Vec<usize> {
        (0..self.shape.len()).filter(|dim| !dims.contains(dim)).collect()
    }

    /// Ranks of a block along some dimensions.
    pub(super) fn block_numel(&self, dims: &[usize]) -> u64 {
        dims.iter().fold(1, |product, dim| product * u64::from(self.shape[*dim]))
    }

    /// The number of the block along some dimensions through a place, and how many blocks there
    /// are: by the remaining coordinates, in order.
    pub(super) fn block_of(&self, dims: &[usize], at: Option<&[u32]>) -> (Option<u64>, u64) {
        let rest = self.rest(dims);
        let number = at.map(|at| {
            rest.iter()
                .fold(0, |index, dim| index * u64::from(self.shape[*dim]) + u64::from(at[*dim]))
        });
        (number, self.numel() / self.block_numel(dims).max(1))
    }

    /// The ranks of a block by its number.
    pub(super) fn block(&self, dims: &[usize], number: u64) -> Vec<u32> {
        let rest = self.rest(dims);
        let rest_shape: Vec<u32> = rest.iter().map(|dim| self.shape[*dim]).collect();
        let mut at = vec![0; self.shape.len()];
        for (dim, i) in rest.iter().zip(coordinates(&rest_shape, number)) {
            at[*dim] = i;
        }
        self.cut(dims, &at).ranks()
    }

    /// Nested lists as Python prints them.
    pub(super) fn to_list(&self) -> String {
        let ranks: Vec<String> = self.cells().map(|rank| rank.to_string()).collect();
        let mut level = ranks;
        for size in self.shape.iter().rev() {
            let size = (*size).max(1) as usize;
            level = level.chunks(size).map(|row| format!("[{}]", row.join(", "))).collect();
        }
        level.join(", ")
    }
}

fn row_major(shape: &[u32]) -> Vec<u64> {
    let mut strides = vec![1_u64; shape.len()];
    for dim in (1..shape.len()).rev() {
        strides[dim - 1] = strides[dim].saturating_mul(u64::from(shape[dim]));
    }
    strides
}

/// The coordinates of the index-th cell, row by row.
fn coordinates(shape: &[u32], mut index: u64) -> Vec<u32> {
    let mut at = vec![0; shape.len()];
    for (i, size) in at.iter_mut().zip(shape).rev() {
        let size = u64::from((*size).max(1));
        *i = (index % size) as u32;
        index /= size;
    }
    at
}

//! The shape of a module's output for that of its input.

/// The output shape of a module for the shape that it is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// The input's shape: `nn.ReLU`, norms.
    Same,
    /// `nn.Linear(from, to)`.
    Linear(u64, u64),
    /// `nn.Embedding` of that many features.
    Embedding(u64),
    /// `nn.EmbeddingBag` of that many features: a row of numbers makes one bag. Offsets are not followed.
    Bags(u64),
    /// `nn.Conv2d` and its like: channels, and the window along each dimension after them.
    Window(Option<[u64; 2]>, Vec<Window>),
    /// `nn.AdaptiveAvgPool2d`: those sizes in place of the last ones.
    Last(Vec<u64>),
    /// `nn.Flatten`.
    Flatten,
    /// Classes of a whole sample: the output of models of pictures.
    Classes(u64),
    /// Layers one behind the other: `models.mlp([…])`.
    Chain(Vec<Shape>),
    Unknown,
}

/// A window that is moved along a dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) kernel: u64,
    pub(crate) stride: u64,
    pub(crate) padding: u64,
    pub(crate) dilation: u64,
}

impl Window {
    fn of(self, size: u64) -> Option<u64> {
        let reach = self.dilation.checked_mul(self.kernel.checked_sub(1)?)?.checked_add(1)?;
        let free = size.checked_add(self.padding.checked_mul(2)?)?.checked_sub(reach)?;
        free.checked_div(self.stride)?.checked_add(1)
    }
}

impl Shape {
    /// The shape of the output for an input of that shape; `None` if it is not known.
    pub(crate) fn of(&self, input: &[u64]) -> Option<Vec<u64>> {
        let mut shape = input.to_vec();
        match self {
            Shape::Same => {}
            Shape::Linear(from, to) => {
                *shape.last_mut().filter(|last| **last == *from)? = *to;
            }
            Shape::Embedding(features) => shape.push(*features),
            Shape::Bags(features) => {
                *shape.last_mut().filter(|_| input.len() == 2)? = *features;
            }
            Shape::Window(channels, windows) => {
                let first = shape.len().checked_sub(windows.len())?;
                let own = first.checked_sub(1)?;
                if let Some([from, to]) = channels {
                    *shape.get_mut(own).filter(|own| **own == *from)? = *to;
                }
                for (size, window) in shape.iter_mut().skip(first).zip(windows) {
                    *size = window.of(*size)?;
                }
            }
            Shape::Last(sizes) => {
                let first = shape.len().checked_sub(sizes.len())?;
                shape.truncate(first);
                shape.extend(sizes);
            }
            Shape::Flatten => {
                let all = shape.iter().skip(1).try_fold(1_u64, |all, size| all.checked_mul(*size));
                shape = vec![*shape.first()?, all?];
            }
            Shape::Classes(classes) => {
                shape = vec![*shape.first().filter(|_| input.len() > 1)?, *classes];
            }
            Shape::Chain(parts) => {
                for part in parts {
                    shape = part.of(&shape)?;
                }
            }
            Shape::Unknown => return None,
        }
        Some(shape)
    }
}

#[cfg(test)]
mod tests {
    use crate::nn::output_shape::{Shape, Window};

    #[test]
    fn modules_say_what_they_return() {
        let window = |kernel, stride, padding| Window { kernel, stride, padding, dilation: 1 };
        let conv = |from, to| Shape::Window(Some([from, to]), vec![window(3, 1, 0); 2]);
        let pool = Shape::Window(None, vec![window(2, 2, 0); 2]);
        let (flat, head) = (Shape::Flatten, Shape::Linear(9216, 10));
        let parts = vec![conv(1, 32), Shape::Same, conv(32, 64), pool, flat, head];
        assert_eq!(Shape::Chain(parts).of(&[4, 1, 28, 28]), Some(vec![4, 10]));
        assert_eq!(Shape::Linear(10, 5).of(&[20, 10]), Some(vec![20, 5]));
        assert_eq!(Shape::Linear(10, 5).of(&[20, 7]), None);
        assert_eq!(Shape::Classes(1000).of(&[2, 3, 224, 224]), Some(vec![2, 1000]));
        assert_eq!(Shape::Bags(8).of(&[4, 3]), Some(vec![4, 8]));
        assert_eq!(Shape::Bags(8).of(&[12]), None);
        assert_eq!(Shape::Embedding(8).of(&[2, 5]), Some(vec![2, 5, 8]));
    }
}

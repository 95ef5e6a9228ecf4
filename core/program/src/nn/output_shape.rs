//! The shape of a model's output, as far as its modules determine it. The rest of `forward` is not executed,
//! so a class of modules has a shape only if its modules, one behind the other, have one.

/// The output shape of a module for the shape that it is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// The input's shape: `nn.ReLU`, norms.
    Same,
    /// `nn.Linear(from, to)`.
    Linear(u64, u64),
    /// `nn.Embedding` of that many features.
    Embedding(u64),
    /// `nn.Conv2d` and its like: channels, and the window along each dimension after them.
    Window(Option<[u64; 2]>, Vec<Window>),
    /// `nn.AdaptiveAvgPool2d`: those sizes in place of the last ones.
    Last(Vec<u64>),
    /// `nn.Flatten`.
    Flatten,
    /// Classes of a whole sample: the output of models of pictures.
    Classes(u64),
    /// `nn.Sequential`.
    Chain(Vec<Shape>),
    /// The parts that a class keeps in `self`, whose `forward` may do more than run one behind the other.
    Class(Vec<Shape>),
    /// `return logits, loss`.
    Several(usize),
    Unknown,
}

impl Shape {
    /// The number of its modules, with those that hold others.
    pub(crate) fn layers(&self) -> usize {
        match self {
            Shape::Chain(parts) | Shape::Class(parts) => {
                parts.iter().fold(1, |all: usize, part| all.saturating_add(part.layers()))
            }
            _ => 1,
        }
    }
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
    /// True if the module's output is still a picture, whose further shape depends on the class that uses it.
    fn has_windows(&self) -> bool {
        match self {
            Shape::Window(..) | Shape::Last(_) => true,
            Shape::Chain(parts) => {
                let flat = parts.iter().rposition(|part| matches!(part, Shape::Flatten));
                let last = parts.iter().rposition(Shape::has_windows);
                last.is_some_and(|last| flat.is_none_or(|flat| flat < last))
            }
            _ => false,
        }
    }

    /// The number of features it takes, where it begins with a linear layer.
    fn features(&self) -> Option<u64> {
        match self {
            Shape::Linear(from, _) => Some(*from),
            Shape::Chain(parts) => {
                parts.iter().find(|part| !matches!(part, Shape::Same | Shape::Flatten))?.features()
            }
            _ => None,
        }
    }

    /// The shape of the output for an input of that shape; `None` if it is not known.
    pub(crate) fn of(&self, input: &[u64]) -> Option<Vec<u64>> {
        let mut shape = input.to_vec();
        match self {
            Shape::Same => {}
            Shape::Linear(from, to) => {
                *shape.last_mut().filter(|last| **last == *from)? = *to;
            }
            Shape::Embedding(features) => shape.push(*features),
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
            Shape::Class(parts) => return of_class(parts, shape),
            Shape::Several(_) | Shape::Unknown => return None,
        }
        Some(shape)
    }

    /// The shape of a class made of these parts, with `forward` returning so many values.
    pub(crate) fn class(parts: Vec<Shape>, returned: usize) -> Shape {
        match returned {
            1 if !parts.is_empty() => Shape::Class(parts),
            0 | 1 => Shape::Unknown,
            several => Shape::Several(several),
        }
    }
}

/// One behind the other, with pictures flattened in between.
fn of_class(parts: &[Shape], input: Vec<u64>) -> Option<Vec<u64>> {
    let (mut shape, mut pictures) = (input, false);
    for part in parts {
        if matches!(part, Shape::Embedding(_)) {
            return None;
        }
        if part.has_windows() {
            pictures = true;
            continue;
        }
        if pictures && let Some(features) = part.features() {
            (shape, pictures) = (vec![*shape.first()?, features], false);
        }
        if !pictures {
            shape = part.of(&shape)?;
        }
    }
    (!pictures).then_some(shape)
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
        // A class flattens by itself, and what it does besides is not known.
        let kept = vec![conv(1, 32), conv(32, 64), Shape::Same, Shape::Linear(9216, 10)];
        assert_eq!(Shape::class(kept.clone(), 1).of(&[4, 1, 28, 28]), Some(vec![4, 10]));
        assert_eq!(Shape::class(kept, 2).of(&[4, 1, 28, 28]), None);
        let linear = vec![Shape::Linear(10, 10), Shape::Same, Shape::Linear(10, 5)];
        assert_eq!(Shape::class(linear.clone(), 1).of(&[20, 10]), Some(vec![20, 5]));
        assert_eq!(Shape::class(linear, 1).of(&[20, 7]), None);
        assert_eq!(Shape::class(vec![conv(1, 2)], 1).of(&[4, 1, 28, 28]), None);
        assert_eq!(Shape::Classes(1000).of(&[2, 3, 224, 224]), Some(vec![2, 1000]));
        assert_eq!(Shape::Embedding(8).of(&[2, 5]), Some(vec![2, 5, 8]));
    }
}

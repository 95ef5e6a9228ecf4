//! Parameters and buffers, and the tensors that are one. A parameter is known by its number in its process:
//! modules share one by holding the same. The numbers belong to the program that the thread executes.

use lockstep_core::dtype::Dtype;
use lockstep_core::plan::TensorId;
use lockstep_torch::c10d::{Device, Tensor};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

/// A parameter or buffer, or its gradient.
#[derive(Clone, Debug)]
pub(crate) struct Parameter {
    state: Arc<State>,
    /// True if its gradient is meant.
    pub(crate) grad: bool,
}

/// The values that are kept for a module besides its modules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `nn.Parameter`.
    Parameter,
    /// `register_buffer(…)`.
    Buffer,
    /// A tensor of no module that requires grad.
    Leaf,
}

#[derive(Debug)]
struct State {
    number: u32,
    /// The name that it was made under: `weight`.
    name: String,
    shape: Vec<u64>,
    dtype: Dtype,
    kind: Kind,
    trained: AtomicBool,
    /// True if it has a gradient.
    graded: AtomicBool,
    /// The device that the program has moved it to, if it has.
    moved: Mutex<Option<Device>>,
}

thread_local! {
    static NUMBER: Cell<u32> = const { Cell::new(0) };
    /// All parameters, by their numbers.
    static ALL: RefCell<Vec<Parameter>> = const { RefCell::new(Vec::new()) };
    static TENSORS: RefCell<BTreeMap<TensorId, Parameter>> =
        const { RefCell::new(BTreeMap::new()) };
    /// The device of models that the program does not move: that of the job's backend.
    static DEVICE: Cell<Device> = const { Cell::new(Device::Cpu) };
}

/// Another program begins on this thread.
pub(crate) fn begin() {
    NUMBER.set(0);
    TENSORS.take();
    ALL.take();
    DEVICE.set(Device::Cpu);
}

/// Models are on this device unless the program moves them.
pub(crate) fn models_are_on(device: Device) {
    DEVICE.set(device);
}

/// The parameter of that number has a gradient from here on.
pub(crate) fn gets_gradient(number: u32) {
    ALL.with_borrow(|all| {
        if let Some(own) = all.get(number as usize) {
            own.set_grad(true);
        }
    });
}

/// The parameter that a tensor is, or is a view of.
pub(crate) fn parameter_of(tensor: &Tensor) -> Option<Parameter> {
    TENSORS.with(|known| known.try_borrow().ok()?.get(&tensor.storage()).cloned())
}

impl Parameter {
    /// A new one. Floating-point parameters are trained.
    pub(crate) fn new(name: &str, kind: Kind, dtype: Dtype, shape: &[u64]) -> Parameter {
        let number = NUMBER.get();
        NUMBER.set(number + 1);
        let trained = AtomicBool::new(kind != Kind::Buffer && dtype.is_float());
        let (name, shape, graded) = (name.to_owned(), shape.to_vec(), AtomicBool::new(false));
        let moved = Mutex::new(None);
        let state = State { number, name, shape, dtype, kind, trained, graded, moved };
        let made = Parameter { state: Arc::new(state), grad: false };
        ALL.with_borrow_mut(|all| all.push(made.clone()));
        made
    }

    /// Makes a tensor, and all its views, this parameter.
    pub(crate) fn is(&self, tensor: &Tensor) {
        TENSORS.with(|known| {
            if let Ok(mut known) = known.try_borrow_mut() {
                known.insert(tensor.storage(), self.clone());
            }
        });
    }

    pub(crate) fn number(&self) -> u32 {
        self.state.number
    }

    pub(crate) fn name(&self) -> &str {
        &self.state.name
    }

    pub(crate) fn shape(&self) -> &[u64] {
        &self.state.shape
    }

    pub(crate) fn dtype(&self) -> Dtype {
        self.state.dtype
    }

    pub(crate) fn kind(&self) -> Kind {
        self.state.kind
    }

    pub(crate) fn bytes(&self) -> u64 {
        let numel = self.state.shape.iter().fold(1_u64, |all, size| all.saturating_mul(*size));
        numel.saturating_mul(self.state.dtype.size_bytes())
    }

    /// `parameter.requires_grad`.
    pub(crate) fn is_trained(&self) -> bool {
        self.state.trained.load(Relaxed) && !self.grad
    }

    pub(crate) fn train(&self, requires_grad: bool) {
        self.state.trained.store(requires_grad, Relaxed);
    }

    /// True if it has a gradient: after a backward pass, until `zero_grad()`.
    pub(crate) fn has_grad(&self) -> bool {
        self.state.graded.load(Relaxed)
    }

    pub(crate) fn set_grad(&self, graded: bool) {
        self.state.graded.store(graded, Relaxed);
    }

    /// Its gradient.
    pub(crate) fn gradient(&self) -> Parameter {
        Parameter { grad: true, ..self.clone() }
    }

    pub(crate) fn device(&self) -> Device {
        let moved = self.state.moved.lock().ok().and_then(|moved| *moved);
        moved.unwrap_or_else(|| DEVICE.get())
    }

    /// `.to(device)`, `.cuda()`, `.cpu()`.
    pub(crate) fn move_to(&self, device: Device) {
        if let Ok(mut moved) = self.state.moved.lock() {
            *moved = Some(device);
        }
    }
}

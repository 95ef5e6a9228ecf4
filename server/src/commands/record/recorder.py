"""Lockstep's recorder: runs a training script as the ranks of a job, without GPUs and without a network.

`lockstep record` starts this file with the user's own Python. It imports torch once, forks one process a rank,
and runs the script in each. In every process a c10d process group written in Python stands for gloo and NCCL. It
notes each call (group, sizes, dtype, reduction, root, line of the script) and sends the notes over a Unix socket
to the hub, which is `lockstep` itself.

What a call returns:
- Integers, bytes and small tensors are exchanged with the other ranks through the hub, so that pickled objects,
  shapes, split counts and loss averages are the true ones.
- Large float tensors are filled as if the other ranks held the same values.

Tensors on `cuda` are kept on the CPU, and `torch.cuda` answers as on a machine with a GPU a rank.

Environment: LOCKSTEP_HUB (path of the socket), LOCKSTEP_RECORD (options as JSON, see `Options`).
"""

import ast
import collections
import collections.abc
import contextlib
import ctypes
import functools
import hashlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import inspect
import json
import math
import multiprocessing.process
import operator
import os
import pickle
import runpy
import socket
import struct
import sys
import threading
import time
import traceback
import types
import weakref

try:
    import torch
    import torch.distributed as dist
    import torch.distributed.distributed_c10d as c10d
    from torch.utils import weak
except ImportError as error:
    sys.exit(f"{sys.executable} cannot import torch ({error}): name a Python that has it by --python or LOCKSTEP_PYTHON")

ProcessGroup = torch._C._distributed_c10d.ProcessGroup
Work = torch._C._distributed_c10d.Work

TORCH_DIR = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
STDLIB_DIR = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
SITE_DIRS = tuple(os.sep + name + os.sep for name in ("site-packages", "dist-packages"))
OWN_FILE = os.path.abspath(__file__) if "__file__" in globals() else "<recorder>"

# Float tensors up to this size are exchanged for real; larger ones are filled.
EXCHANGED_FLOAT_BYTES = 64 << 10
# So many callers of a line are noted. As in the plan (`MAX_CALLERS`).
MAX_CALLERS = 32
# A rank that sleeps more often between two calls waits for something; it sleeps for real.
SLEEPS_WITHOUT_A_CALL = 100
# Integer and byte tensors up to this size are exchanged for real.
EXCHANGED_BYTES = 64 << 20


class Options:
    """What `lockstep record` asks for."""

    def __init__(self, text):
        options = json.loads(text)
        self.ranks = options["ranks"]  # the ranks to record, ascending
        self.world_size = options["world_size"]
        self.ranks_per_node = options["ranks_per_node"]
        self.steps = options.get("steps")  # optimizer steps after which a rank ends, or None
        self.cuda = options.get("cuda", True)  # whether torch.cuda answers as if there were GPUs
        self.card = options.get("card")  # {"flops": {dtype: per second}, "bytes_per_s", "launch_ns"} or None
        self.module = options.get("module", False)  # `-m package.module`
        self.code = options.get("code")  # `-c CODE`, or None
        self.script = options["script"]
        self.arguments = options["arguments"]
        self.launcher = options.get("launcher", "torchrun")  # whose environment the ranks get: slurm, mpi
        self.local_rank_argument = options.get("local_rank_argument")  # torch.distributed.launch's, or None
        self.master_port = options.get("master_port", 29500)
        self.no_math = options.get("no_math", False)  # large products and convolutions give zeros
        self.no_memory = options.get("no_memory", False)  # large float tensors have shapes and no values
        self.random_data = options.get("random_data", False)  # stand-ins for torchvision's data sets and weights
        self.starts_ranks = options.get("starts_ranks", False)  # no launcher: a Process of the script may be a rank
        self.plays = options.get("plays")  # by rank, the recorded rank that stands for it; None if all are recorded
        self.finds_roles = options.get("finds_roles", False)  # notes what roles are derived from
        self.silent = options.get("silent", False)  # the script's output is not shown


class StepsReached(BaseException):
    """Ends the script after `--steps` optimizer steps. No `except Exception` of the script catches it."""


# ---------------------------------------------------------------------------------------------------------------
# The hub


class Hub:
    """This rank's connection to `lockstep`. A message is its JSON's length, the payload's length, JSON, payload."""

    def __init__(self, path, rank):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.connect(path)
        self.lock = threading.RLock()
        self.tell({"t": "hello", "rank": rank})

    def tell(self, message, payload=b""):
        text = json.dumps(message, separators=(",", ":")).encode()
        with self.lock:
            self.socket.sendall(struct.pack("<IQ", len(text), len(payload)) + text)
            if payload:
                self.socket.sendall(payload)

    def ask(self, message, payload=b""):
        with self.lock:
            self.tell(message, payload)
            text_length, payload_length = struct.unpack("<IQ", self._read(12))
            answer = json.loads(self._read(text_length))
            return answer, self._read(payload_length)

    def _read(self, length):
        buffer = bytearray(length)
        view = memoryview(buffer)
        while view:
            count = self.socket.recv_into(view)
            if count == 0:
                os._exit(1)  # lockstep has ended
            view = view[count:]
        return bytes(buffer)


class ScriptFiles:
    """Which files are the user's own, and the names by which the plan knows them."""

    def __init__(self, tape, options):
        self.tape, self.folder = tape, os.getcwd()  # a script may go to another folder later
        is_file = not options.module and options.code is None
        self.roots = [os.path.dirname(os.path.abspath(options.script)) if is_file else self.folder, self.folder]
        self.module = options.script.split(".")[0] if options.module else None
        self.kinds, self.names, self.installs = {}, {}, {}

    def _full(self, path):
        return os.path.normpath(os.path.join(self.folder, path))

    def kind(self, path):
        """own: the user's code; library: installed packages; inner: torch, the standard library, this file.

        The user's code is all that is not installed: the script's folder, and what PYTHONPATH, an editable install or
        `sys.path` adds.
        """
        kind = self.kinds.get(path)
        if kind is None:
            full = self._full(path)
            if path.startswith("<") or full == OWN_FILE or full.startswith(TORCH_DIR):
                kind = "inner"
            elif self._is_run_as_module(full):
                kind = "own"
            elif any(site in full for site in SITE_DIRS):
                kind = "library"
            elif full.startswith(STDLIB_DIR):
                kind = "inner"
            elif any(full.startswith(root + os.sep) for root in self.roots):
                kind = "own"
            else:
                kind = "library" if self._is_installed(full) else "own"
            self.kinds[path] = kind
        return kind

    def _is_run_as_module(self, full):
        """True in the package that `-m` runs, wherever it is installed."""
        folders = getattr(sys.modules.get(self.module), "__path__", ()) if self.module else ()
        return any(full.startswith(self._full(folder) + os.sep) for folder in folders)

    def _is_installed(self, full):
        """True below a folder into which pip has installed packages, as `pip install --target` does."""
        base = self._base(full)
        if base not in self.installs:
            try:
                self.installs[base] = any(name.endswith(".dist-info") for name in os.listdir(base))
            except OSError:
                self.installs[base] = False
        return self.installs[base]

    def _base(self, full):
        """The folder from which a file is imported: the innermost one of sys.path, else the one above its package."""
        bases = [self._full(entry) for entry in sys.path if isinstance(entry, str)]
        bases = [base for base in bases if full.startswith(base + os.sep)]
        if bases:
            return max(bases, key=len)
        folder = os.path.dirname(full)
        while os.path.exists(os.path.join(folder, "__init__.py")):
            folder = os.path.dirname(folder)
        return folder

    def name(self, path):
        """The name of a file in the plan: relative to the script's folder, else as it is imported. `lockstep` is
        told where the file is, since it takes the user's own texts into the plan."""
        full = self._full(path)
        name = self.names.get(full)
        if name is None:
            name = self.names[full] = self._new_name(full)
            if self.kind(path) == "own" and self.tape.is_own_process():
                self.tape.hub.tell({"t": "source", "name": name, "path": full})
        return name

    def _new_name(self, full):
        for root in self.roots:
            if full.startswith(root + os.sep):
                return os.path.relpath(full, root)
        for site in SITE_DIRS:
            if site in full:
                return full.split(site, 1)[1]
        base = self._base(full)
        name = os.path.relpath(full, base)
        # A file of the script has this name already: the folder's name tells them apart, on every rank alike.
        if any(os.path.exists(os.path.join(root, name)) for root in self.roots):
            name = os.path.join(os.path.basename(base), name)
        return name


class Tape:
    """Writes what this rank does, in order."""

    def __init__(self, hub, options, rank):
        self.hub, self.rank = hub, rank
        self.meter = None
        self.calls = 0
        self.files = ScriptFiles(self, options)
        self.unwaited = {}  # id of a call -> whether it was made in a backward pass
        self.backward_depth = 0
        self.sleeps = 0  # since the last call
        self.groups = 0
        self.started_others = False  # whether this process has started ranks, and is none of them
        self.process = os.getpid()
        self.plays, self.finds_roles = options.plays, options.finds_roles
        self.reduced = {}  # by group, the addresses of what was all-reduced in it since the last optimizer step
        self.assumed_values = None
        self.averaged = set()  # ids of the groups over which gradients are averaged
        self.capture = None  # the CUDA graph that is being captured, a `Capture`

    def is_own_process(self):
        """False in what a rank has forked: a worker of a data loader is no rank."""
        return os.getpid() == self.process

    def note(self, event):
        if not self.is_own_process():
            return
        if self.capture is not None and event["t"] in Capture.REPLAYED_NOTES:
            return self.capture.add(lambda: self.note(event))
        if self.meter is not None:
            self.meter.flush()
        self.hub.tell(event)

    # Where the script is -----------------------------------------------------------------------------------

    def place(self):
        """The line of the script that is being executed, and what it calls: ((file, line), name)."""
        return self.place_with_callers()[:2]

    def place_with_callers(self):
        """The line of the script that is being executed, what it calls, and the lines that called its function,
        innermost first: ((file, line), name, [(file, line)])."""
        frame, at, inside, callers, library = sys._getframe(2), None, None, [], None
        while frame is not None and len(callers) < MAX_CALLERS:
            kind = self.files.kind(frame.f_code.co_filename)
            if kind == "own" and at is not None:
                callers.append(self.line_of(frame))
            elif kind == "own":
                at = self.line_of(frame)
            elif at is None:
                if kind == "library" and library is None:
                    library = self.line_of(frame), inside
                if frame.f_code.co_filename != OWN_FILE:
                    inside = called_name(frame) or inside
            frame = frame.f_back
        if at is None:
            return *(library or (None, None)), []
        return at, inside, callers

    def line_of(self, frame):
        return self.files.name(frame.f_code.co_filename), frame.f_lineno

    def place_of(self, error):
        """The innermost line of the script from which an exception came, or the one that caused it."""
        while error.__cause__ is not None:
            error = error.__cause__
        found = None
        for frame, line in traceback.walk_tb(error.__traceback__):
            if self.files.kind(frame.f_code.co_filename) == "own":
                found = (self.files.name(frame.f_code.co_filename), line)
        return found

    # Calls -------------------------------------------------------------------------------------------------

    def call(self, group, op, inputs, outputs, **arguments):
        """Notes a call; returns its id."""
        if self.capture is not None:
            number = self.capture.next_call()
            self.unwaited[number] = self.backward_depth > 0
            return number
        number = self.calls
        self.calls += 1
        self.sleeps = 0
        at, via, callers = self.place_with_callers()
        tensors = inputs or outputs
        event = {
            "t": "call",
            "id": number,
            "op": op,
            "group": group.lockstep_id,
            "dtype": str(tensors[0].dtype).removeprefix("torch.") if tensors else None,
            "in": [tensor.numel() for tensor in inputs],
            "out": [tensor.numel() for tensor in outputs],
            **{name: value for name, value in arguments.items() if value is not None},
        }
        if at:
            event["at"] = at
        if callers:
            event["callers"] = callers
        if via and via != op:
            event["via"] = via
        self.note(event)
        self.unwaited[number] = self.backward_depth > 0
        return number

    def group_of_others(self, made):
        """Notes a group of which this rank is no member."""
        name, ranks, timeout = str(made["name"]), list(made["ranks"]), made["timeout"]
        self.note({"t": "group_of_others", "id": group_id(name, ranks), "name": name, "ranks": ranks,
                   "backend": made["backend"], "desc": made["desc"] or "",
                   "timeout_ms": int(timeout.total_seconds() * 1000) if timeout else None})

    def averages_gradients(self, group):
        """Notes that the members of a group hold the same parameters and average their gradients, or shard both."""
        name = getattr(group, "lockstep_id", None)
        if self.finds_roles and name is not None and name not in self.averaged:
            self.averaged.add(name)
            self.note({"t": "data_parallel", "group": name})

    def wait(self, number):
        if self.unwaited.pop(number, None) is not None:
            if number < 0:
                return self.capture.add_wait(number)
            at, _ = self.place()
            self.note({"t": "wait", "id": number, **({"at": at} if at else {})})

    def assumed(self, what):
        at, _ = self.place()
        self.note({"t": "assumed", "what": what, **({"at": at} if at else {})})

    def sleep(self, seconds):
        """Notes that the script sleeps instead of sleeping; False where a loop may wait for something outside."""
        kind = self.files.kind(sys._getframe(2).f_code.co_filename)
        self.sleeps += 1
        is_rank = threading.current_thread() is threading.main_thread() and self.is_own_process()
        if kind != "own" or not is_rank or self.sleeps > SLEEPS_WITHOUT_A_CALL:
            return False
        at, _ = self.place()
        self.note({"t": "sleep", "ns": max(int(seconds * 1e9), 0), **({"at": at} if at else {})})
        return True

    def backward_ends(self):
        """DDP waits for its buckets' futures in C++, which no Python sees: at the end of the backward pass."""
        for number in [number for number, in_backward in self.unwaited.items() if in_backward]:
            self.wait(number)


PASSED_OVER = {"wrapper", "_wrapped_call_impl", "_call_impl", "decorate_context", "inner", "_fn", "__call__", "<lambda>"}


def called_name(frame):
    """The name of the function of a frame as its caller would write it; None for wrappers around functions."""
    name = frame.f_code.co_name
    if name in ("forward", "__init__"):
        owner = frame.f_locals.get("self")
        return f"{type(owner).__name__}.forward" if name == "forward" else type(owner).__name__
    if name in PASSED_OVER or name.startswith("<"):
        return None
    return name


# ---------------------------------------------------------------------------------------------------------------
# Exchanging values with the other ranks


def is_plain(tensor):
    """True for a tensor whose bytes can be read: not a fake one, not a sparse one, not one without storage."""
    return (tensor.device.type == "cpu" and type(tensor) in (torch.Tensor, torch.nn.Parameter)
            and tensor.layout is torch.strided)


def without_wait(tensor):
    """The tensor itself where a functional collective has made it: its wrapper holds no values, and waits for the
    call when they are asked for."""
    wait = getattr(tensor, "trigger_wait", None)
    return wait() if wait is not None and type(tensor).__name__ == "AsyncCollectiveTensor" else tensor


def is_small(tensor):
    size = tensor.numel() * tensor.element_size()
    limit = EXCHANGED_FLOAT_BYTES if tensor.is_floating_point() or tensor.is_complex() else EXCHANGED_BYTES
    return size <= limit


def is_exchanged(tensor):
    return is_plain(tensor) and is_small(tensor)


def is_without_memory(tensor):
    """True for a tensor that has a shape and no values."""
    return not is_plain(tensor) and isinstance(tensor, torch._subclasses.FakeTensor)


def bytes_of(tensor):
    tensor = tensor.detach().contiguous()
    size = tensor.numel() * tensor.element_size()
    return ctypes.string_at(tensor.data_ptr(), size) if size else b""


def tensor_of(data, like):
    """The elements in these bytes, flat, in the type of `like`; None if they are no whole elements."""
    if len(data) % like.element_size() != 0:
        return None
    if not data:
        return torch.empty(0, dtype=like.dtype)
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).view(like.dtype)


def group_id(name, ranks):
    """Names a group in the notes, equal on all its members and short: two groups may share a name."""
    return f"{name}:{hashlib.sha1(','.join(map(str, ranks)).encode()).hexdigest()[:10]}"


class Exchange:
    """What the ranks of a job really tell each other while they are recorded.

    A key names an exchange of a group: the call, its sizes, and how many like it came before. So a rank that skips
    a call does not shift what the others tell each other in calls of another kind.
    """

    def __init__(self, hub):
        self.hub = hub
        self.counts = {}

    def key(self, *signature):
        count = self.counts.get(signature, 0)
        self.counts[signature] = count + 1
        return json.dumps([*signature, count], separators=(",", ":"))

    def post(self, key, me, data, readers):
        """Leaves bytes for `readers` other ranks; `data` is None if this rank has nothing that can be sent."""
        if readers:
            self.hub.tell({"t": "post", "key": key, "from": me, "readers": readers, "none": data is None}, data or b"")

    def take(self, key, members):
        """What the members have posted, in order; None if one of them never posts."""
        if not members:
            return []
        answer, payload = self.hub.ask({"t": "take", "key": key, "from": members})
        if answer.get("lengths") is None:
            return None
        parts, start = [], 0
        for length in answer["lengths"]:
            parts.append(payload[start : start + length])
            start += length
        return parts


# ---------------------------------------------------------------------------------------------------------------
# Values that came from other ranks and are not known


def local_part(tensor):
    return getattr(tensor, "_local_tensor", tensor)


class Assumed:
    """Tensors whose values would have come from other ranks, or were worked out from such, by their memory."""

    def __init__(self, tape):
        self.tape, self.addresses, self.told = tape, set(), set()
        aten = torch.ops.aten
        self.overwrites = {aten.zero_.default, aten.fill_.Scalar, aten.normal_.default, aten.uniform_.default}
        self.copies = aten.copy_.default

    @staticmethod
    def address(tensor):
        tensor = local_part(tensor)
        return tensor.untyped_storage().data_ptr() if is_plain(tensor) else 0

    def add(self, tensor):
        address = self.address(tensor) if tensor.is_floating_point() else 0
        if address:
            self.addresses.add(address)

    def holds(self, tensor):
        return bool(self.addresses) and self.address(tensor) in self.addresses

    def follow(self, func, args, out):
        """What an operator makes of such values is such a value."""
        tensors = []
        for value in args:
            for one in value if isinstance(value, (tuple, list)) else (value,):
                if isinstance(one, torch.Tensor):
                    tensors.append(one)
        if func in self.overwrites:
            tensors = []
        elif func is self.copies and tensors[0].untyped_storage().nbytes() == tensors[0].numel() * tensors[0].element_size():
            tensors = tensors[1:]
        is_assumed = any(self.holds(tensor) for tensor in tensors)
        for one in out if isinstance(out, (tuple, list)) else (out,):
            address = self.address(one) if isinstance(one, torch.Tensor) else 0
            if address:
                (self.addresses.add if is_assumed else self.addresses.discard)(address)

    def decides(self):
        """Notes that the script's own code, or a library's, branches on such a value."""
        frame = sys._getframe(2)
        place = frame.f_code.co_filename, frame.f_lineno
        if place not in self.told and self.tape.files.kind(place[0]) != "inner":
            self.told.add(place)
            line = f"{self.tape.files.name(place[0])}:{place[1]}"
            self.tape.assumed(
                f"the branch at {line} on a value that other ranks have a part in was taken as if all held this rank's "
                "values"
            )

    def number(self, value):
        """A float that notes when it is compared."""
        return AssumedFloat.of(value, self) if isinstance(value, float) else value


class AssumedFloat(float):
    """A float that was worked out from values that would have come from other ranks."""

    @classmethod
    def of(cls, value, assumed):
        number = cls(value)
        number.assumed = assumed
        return number

    def __reduce__(self):
        return float, (float(self),)

    __hash__ = float.__hash__


def _follow_operators():
    def comparing(name):
        original = getattr(float, name)

        def compared(self, *others):
            self.assumed.decides()
            return original(self, *others)

        return compared

    def reckoning(name):
        original = getattr(float, name)

        def reckoned(self, *others):
            return self.assumed.number(original(self, *others))

        return reckoned

    for name in ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__bool__"):
        setattr(AssumedFloat, name, comparing(name))
    for name in ("add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "pow", "rpow", "neg", "abs"):
        setattr(AssumedFloat, f"__{name}__", reckoning(f"__{name}__"))


_follow_operators()


def follow_branches(tape):
    """`item`, `tolist` and `bool` of what came from other ranks and is not known give values that note their use."""
    assumed = tape.assumed_values = Assumed(tape)
    item, tolist, truth = torch.Tensor.item, torch.Tensor.tolist, torch.Tensor.__bool__

    def item_of(self):
        value = item(self)
        return assumed.number(value) if assumed.holds(self) else value

    def list_of(self):
        values = tolist(self)
        if not assumed.holds(self):
            return values

        def marked(value):
            return [*map(marked, value)] if isinstance(value, list) else assumed.number(value)

        return marked(values)

    def truth_of(self):
        if assumed.holds(self):
            assumed.decides()
        return truth(self)

    torch.Tensor.item, torch.Tensor.tolist, torch.Tensor.__bool__ = item_of, list_of, truth_of

    def asked(original):
        def ask(value):
            if isinstance(value, AssumedFloat):
                value.assumed.decides()
            return original(value)

        return ask

    for name in ("isnan", "isinf", "isfinite"):
        setattr(math, name, asked(getattr(math, name)))


# ---------------------------------------------------------------------------------------------------------------
# The process group


class RecordedWork(Work):
    """A call that has ended as soon as it was made."""

    def __init__(self, tape, number, result, source=None):
        super().__init__()
        self._tape, self._number, self._result, self._source = tape, number, result, source
        self._future = torch.futures.Future()
        self._future.set_result(result)

    def wait(self, timeout=None):
        self._tape.wait(self._number)
        return True

    def synchronize(self):
        self._tape.wait(self._number)

    def block_current_stream(self):
        self._tape.wait(self._number)

    def is_completed(self):
        return True

    def is_success(self):
        return True

    def exception(self):
        return None

    def result(self):
        return self._result

    def get_future(self):
        return self._future

    def source_rank(self):
        return self._source

    def _source_rank(self):
        return self._source


REDUCTIONS = ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM")


def reduction_name(op):
    for name in REDUCTIONS:
        known = getattr(dist.ReduceOp, name, None)
        if known is not None and op == known:
            return name.lower()
    return "sum"


def reduced(parts, op):
    """The reduction of tensors of one shape."""
    first, rest = parts[0].clone(), parts[1:]
    for part in rest:
        if op in ("sum", "avg", "premul_sum"):
            first = first + part if first.dtype != torch.bool else first | part
        elif op == "product":
            first = first * part
        elif op == "min":
            first = torch.minimum(first, part)
        elif op == "max":
            first = torch.maximum(first, part)
        elif op == "band":
            first = first & part
        elif op == "bor":
            first = first | part
        elif op == "bxor":
            first = first ^ part
    if op == "avg":
        first = first / len(parts) if first.is_floating_point() else first // len(parts)
    return first


def unmetered(method):
    """What a call of the process group does itself is no work of the script."""

    @functools.wraps(method)
    def call(self, *args, **kwargs):
        meter, capture = self._tape.meter, self._tape.capture
        if capture is not None and not capture.busy:
            return capture.carry_out(lambda: call(self, *args, **kwargs))
        if meter is None:
            return method(self, *args, **kwargs)
        meter.paused += 1
        try:
            return method(self, *args, **kwargs)
        finally:
            meter.paused -= 1
            if meter.started:
                meter.since = time.monotonic_ns()

    return call


class RecordedGroup(ProcessGroup):
    """A process group that notes its calls and fills their outputs."""

    by_name = {}

    def __init__(self, tape, exchange, rank, ranks, name, backend, desc, timeout_ms):
        super().__init__(rank, len(ranks))
        self._tape, self._exchange = tape, exchange
        self._rank, self._ranks, self._count = rank, ranks, len(ranks)
        self._name, self._desc, self.lockstep_backend = name, desc, backend
        self._bound_device = None
        if tape.started_others:
            raise RuntimeError(NOT_STARTED)
        tape.groups += 1
        self.lockstep_id = group_id(name, ranks)
        self._find_present()
        RecordedGroup.by_name[name] = self
        tape.note({
            "t": "group", "id": self.lockstep_id, "name": name, "ranks": ranks, "backend": backend,
            "desc": desc or "", "timeout_ms": timeout_ms,
        })

    def _find_present(self):
        """With `--ranks roles` some members are not recorded: a member of the same role speaks for each of them."""
        plays = self._tape.plays
        voices = [rank if plays is None else plays[rank] for rank in self._ranks]
        places = {rank: place for place, rank in enumerate(self._ranks)}
        # By group rank: the group rank of the recorded member that speaks for it, None if that is no member.
        self._voices = [places.get(voice) for voice in voices]
        self._present = [place for place, voice in enumerate(self._voices) if voice == place]
        self._heard = [place for place in self._present if place != self._rank]

    # What Python asks of a group

    def getBackendName(self):
        # DDP's logger would cast a backend that is called gloo or nccl to PyTorch's own class.
        return "lockstep"

    def name(self):
        return self.lockstep_backend

    @property
    def pg_name(self):
        return self._name

    @property
    def group_name(self):
        return self._name

    @property
    def group_desc(self):
        return self._desc

    def _set_group_name(self, name):
        super()._set_group_name(name)

    def _set_group_desc(self, desc):
        super()._set_group_desc(desc)

    def _get_backend_name(self):
        return self.lockstep_backend

    def _get_backend(self, device=None):
        return self

    def get_backend(self, device=None):
        return self

    @property
    def _device_types(self):
        return [torch.device("cpu")]

    @property
    def bound_device_id(self):
        return self._bound_device

    @bound_device_id.setter
    def bound_device_id(self, device):
        self._bound_device = device

    supports_splitting = False
    supports_coalescing = False
    supports_time_estimate = False

    def _has_hooks(self):
        return False

    def _get_sequence_number_for_group(self):
        return 0

    def _set_sequence_number_for_group(self):
        pass

    def _set_timeout(self, timeout):
        pass

    set_timeout = _set_timeout

    def _enable_collectives_timing(self):
        pass

    def _wait_for_pending_works(self):
        pass

    def shutdown(self):
        pass

    def abort(self):
        pass

    def _verify_work_timeout(self, work, timeout):
        return True

    def _start_coalescing(self, device=None):
        self._tape.note({"t": "batch"})

    def _end_coalescing(self, device=None):
        self._tape.note({"t": "batch_end"})
        return RecordedWork(self._tape, self._tape.calls - 1, [])

    # Parts of every call

    def _work(self, number, outputs, source=None):
        return RecordedWork(self._tape, number, list(outputs), source)

    def _others(self):
        return [rank for rank in range(self._count) if rank != self._rank]

    def _post(self, key, data):
        """Leaves bytes for the other members."""
        self._exchange.post(key, self._rank, data, len(self._heard))

    def _take(self, key, mine):
        """What the other members have posted, in order; `mine` is this rank's own. None if one never posts."""
        taken = self._exchange.take(key, self._heard)
        if taken is None or len(self._present) == self._count:
            return taken
        said = dict(zip(self._heard, taken))
        said[self._rank] = mine
        parts = [said.get(self._voices[place]) for place in self._others()]
        return None if any(part is None for part in parts) else parts

    def _takes_from(self, key, peer):
        """What one member has posted, in a list; None if it never posts or is not recorded."""
        return self._exchange.take(key, [peer]) if self._voices[peer] == peer else None

    def _unheard(self, op):
        if op.endswith("barrier"):
            return self._tape.assumed(f"{op} ends, though another rank never comes to it")
        self._tape.assumed(f"{op} returns this rank's own values, since another rank never makes the call")

    def _everybodys(self, op, mine, *signature):
        """The tensor of every member, in order, flat; None if they are not exchanged."""
        if self._count == 1:
            return [mine.detach().clone().reshape(-1)]
        if is_without_memory(mine) and is_small(mine):  # the others may have values, and wait for this rank's
            self._post(self._exchange.key(self.lockstep_id, op, str(mine.dtype), *signature), b"")
        if not is_exchanged(mine):
            return None
        key = self._exchange.key(self.lockstep_id, op, str(mine.dtype), *signature)
        data = bytes_of(mine)
        self._post(key, data)
        taken = self._take(key, data)
        if taken is None:
            self._unheard(op)
            return None
        parts = [tensor_of(part, mine) for part in taken]
        if any(part is None for part in parts):
            return None
        parts.insert(self._rank, mine.detach().clone().reshape(-1))
        return parts

    def _roots(self, op, root, mine, like, *signature):
        """The bytes of the root's tensor, flat; None if it is not exchanged. `mine` is the root's, or None."""
        if self._count == 1 or not is_exchanged(like):
            if self._rank != root:
                self._assume(like)
            return None
        key = self._exchange.key(self.lockstep_id, op, root, str(like.dtype), *signature)
        if self._rank == root:
            self._post(key, bytes_of(mine))
            return None
        taken = self._takes_from(key, root)
        if taken is None:
            self._unheard(op)
            return None
        return tensor_of(taken[0], like)

    @staticmethod
    def _fill(output, values):
        """Writes flat values into a tensor, as many as both have."""
        if values is None or not is_plain(output):
            return
        with torch.no_grad():
            if values.numel() == output.numel():
                output.copy_(values.reshape(output.shape))

    def _assume(self, *outputs):
        """The values of these tensors would have come from other ranks, and are not known."""
        if self._count > 1 and self._tape.assumed_values is not None:
            for output in outputs:
                self._tape.assumed_values.add(output)

    def _reduce_into(self, output, mine, parts, op):
        """`output` becomes the reduction of `parts`, or of copies of `mine`."""
        if not is_plain(output) or not is_plain(mine):
            return
        if parts is None:
            self._assume(output)
        with torch.no_grad():
            if parts is not None and all(part.numel() == mine.numel() for part in parts):
                output.copy_(reduced(parts, op).reshape(output.shape))
                return
            if output is not mine:
                output.copy_(mine.reshape(output.shape))
            if op in ("sum", "premul_sum") and output.dtype != torch.bool:
                output.mul_(self._count)

    # Collectives

    def allreduce(self, tensors, opts=None, *_):
        tensors = tensors if isinstance(tensors, (list, tuple)) else [tensors]
        op = reduction_name(getattr(opts, "reduceOp", dist.ReduceOp.SUM) if not isinstance(opts, dist.ReduceOp) else opts)
        number = self._tape.call(self, "all_reduce", tensors, tensors, reduce=op)
        if self._tape.finds_roles:
            self._tape.reduced.setdefault(self, set()).update(tensor.data_ptr() for tensor in tensors if is_plain(tensor))
        for tensor in tensors:
            if tensor.is_sparse:
                self._sum_sparse(tensor)
                continue
            parts = self._everybodys("all_reduce", tensor, op, tensor.numel())
            self._reduce_into(tensor, tensor, parts, op)
        return self._work(number, tensors)

    def _sum_sparse(self, tensor):
        """Sparse gradients are summed: each member has elements of its own, in numbers of its own."""
        if self._count == 1 or is_without_memory(tensor):
            return
        key = self._exchange.key(self.lockstep_id, "all_reduce", "sparse", str(tensor.dtype), tensor.numel())
        own = tensor.detach().coalesce()
        data = pickle.dumps((own.indices().numpy(), own.values().contiguous().view(torch.uint8).numpy()))
        self._post(key, data)
        taken = self._take(key, data)
        if taken is None:
            return self._unheard("all_reduce")
        total = own
        for part in filter(None, taken):
            indices, values = pickle.loads(part)
            values = torch.from_numpy(values).view(tensor.dtype)
            total = total + torch.sparse_coo_tensor(torch.from_numpy(indices), values, tensor.shape)
        with torch.no_grad():
            tensor.copy_(total.coalesce())

    def allreduce_coalesced(self, tensors, opts=None):
        op = reduction_name(getattr(opts, "reduceOp", dist.ReduceOp.SUM))
        number = self._tape.call(self, "all_reduce", tensors, tensors, reduce=op, api="allreduce_coalesced")
        for tensor in tensors:
            parts = self._everybodys("all_reduce", tensor, op, tensor.numel())
            self._reduce_into(tensor, tensor, parts, op)
        return self._work(number, tensors)

    def broadcast(self, tensors, opts=None, *_):
        tensors = tensors if isinstance(tensors, (list, tuple)) else [tensors]
        root = opts if isinstance(opts, int) else getattr(opts, "rootRank", 0)
        number = self._tape.call(self, "broadcast", tensors, tensors, root=root)
        for tensor in tensors:
            self._fill(tensor, self._roots("broadcast", root, tensor, tensor, tensor.numel()))
        return self._work(number, tensors)

    def reduce(self, tensors, opts=None, *_):
        tensors = tensors if isinstance(tensors, (list, tuple)) else [tensors]
        op, root = reduction_name(getattr(opts, "reduceOp", dist.ReduceOp.SUM)), getattr(opts, "rootRank", 0)
        number = self._tape.call(self, "reduce", tensors, tensors, reduce=op, root=root)
        for tensor in tensors:
            parts = self._everybodys("reduce", tensor, op, root, tensor.numel())
            if self._rank == root:
                self._reduce_into(tensor, tensor, parts, op)
        return self._work(number, tensors)

    def _gather_into(self, outputs, mine, parts):
        for index, output in enumerate(outputs):
            self._fill(output, mine.detach().reshape(-1) if parts is None else parts[index])
            if parts is None and index != self._rank:
                self._assume(output)

    def allgather(self, output_lists, inputs, opts=None):
        if isinstance(inputs, torch.Tensor):  # allgather(list of outputs, input)
            output_lists, inputs = [output_lists], [inputs]
        outputs = [output for outputs in output_lists for output in outputs]
        number = self._tape.call(self, "all_gather", inputs, outputs)
        for outputs_of_one, mine in zip(output_lists, inputs):
            parts = self._everybodys("all_gather", mine)
            self._gather_into(outputs_of_one, mine, parts)
        return self._work(number, outputs)

    def allgather_coalesced(self, output_lists, inputs, opts=None):
        outputs = [output for outputs in output_lists for output in outputs]
        number = self._tape.call(self, "all_gather", inputs, outputs, api="allgather_coalesced")
        for index, mine in enumerate(inputs):
            parts = self._everybodys("all_gather", mine)
            self._gather_into([outputs_of_rank[index] for outputs_of_rank in output_lists], mine, parts)
        return self._work(number, outputs)

    def _gather_single(self, output, mine):
        parts = self._everybodys("all_gather", mine, mine.numel())
        self._fill(output, torch.cat(parts) if parts is not None else self._repeated(mine))
        if parts is None:
            self._assume(output)

    def _repeated(self, mine):
        return mine.detach().reshape(-1).repeat(self._count) if is_plain(mine) else None

    def _allgather_base(self, output, mine, opts=None):
        number = self._tape.call(self, "all_gather", [mine], [output])
        self._gather_single(output, mine)
        return self._work(number, [output])

    all_gather_single = _allgather_base

    def allgather_into_tensor_coalesced(self, outputs, inputs, opts=None):
        number = self._tape.call(self, "all_gather", inputs, outputs, api="coalesced")
        for output, mine in zip(outputs, inputs):
            self._gather_single(output, mine)
        return self._work(number, outputs)

    all_gather_single_coalesced = allgather_into_tensor_coalesced

    def gather(self, output_lists, inputs, opts=None, *_):
        if isinstance(inputs, torch.Tensor):
            output_lists, inputs = [output_lists] if output_lists else [], [inputs]
        root = getattr(opts, "rootRank", 0) if not isinstance(opts, int) else opts
        outputs = [output for outputs in output_lists for output in outputs]
        number = self._tape.call(self, "gather", inputs, outputs, root=root)
        mine = inputs[0]
        if self._count > 1 and is_exchanged(mine):
            key = self._exchange.key(self.lockstep_id, "gather", root, str(mine.dtype))
            if self._rank != root:
                self._exchange.post(key, self._rank, bytes_of(mine), int(self._voices[root] == root))
            else:
                taken = self._take(key, bytes_of(mine))
                if taken is None:
                    self._unheard("gather")
                parts = None if taken is None else [tensor_of(part, mine) for part in taken]
                if parts is not None:
                    parts.insert(self._rank, mine.detach().reshape(-1))
                self._gather_into(outputs, mine, parts)
        elif self._rank == root:
            self._gather_into(outputs, mine, None)
        return self._work(number, outputs)

    def gather_single(self, output, mine, opts=None, *_):
        return self.gather([list(output.chunk(self._count))] if output is not None else [], [mine], opts)

    gather_into_tensor = gather_single

    def scatter(self, outputs, input_lists, opts=None, *_):
        if isinstance(outputs, torch.Tensor):
            outputs, input_lists = [outputs], [input_lists] if input_lists else []
        root = getattr(opts, "rootRank", 0) if not isinstance(opts, int) else opts
        inputs = [tensor for tensors in input_lists for tensor in tensors]
        number = self._tape.call(self, "scatter", inputs, outputs, root=root)
        output = outputs[0]
        if self._rank == root:
            self._fill(output, inputs[root].detach().reshape(-1))
            if self._count > 1 and is_exchanged(output):
                key = self._exchange.key(self.lockstep_id, "scatter", root, str(output.dtype), output.numel())
                data = b"".join(bytes_of(part) for part in inputs)
                self._post(key, data)
        elif is_exchanged(output):
            key = self._exchange.key(self.lockstep_id, "scatter", root, str(output.dtype), output.numel())
            taken = self._takes_from(key, root)
            if taken is None:
                self._unheard("scatter")
            else:
                size = len(taken[0]) // self._count
                self._fill(output, tensor_of(taken[0][self._rank * size : (self._rank + 1) * size], output))
        elif is_plain(output):
            with torch.no_grad():
                output.zero_()
            self._assume(output)
        return self._work(number, outputs)

    def _scatter_reduced(self, output, mine, op):
        """`mine` is one flat tensor with a part for every member."""
        parts = self._everybodys("reduce_scatter", mine, op, mine.numel())
        if not is_plain(output) or not is_plain(mine):
            return
        own = slice(self._rank * output.numel(), (self._rank + 1) * output.numel())
        flat = mine.detach().reshape(-1)
        self._reduce_into(output, flat[own], None if parts is None else [part[own] for part in parts], op)

    def reduce_scatter(self, outputs, input_lists, opts=None, *_):
        if isinstance(outputs, torch.Tensor):
            outputs, input_lists = [outputs], [input_lists]
        op = reduction_name(getattr(opts, "reduceOp", dist.ReduceOp.SUM))
        inputs = [tensor for tensors in input_lists for tensor in tensors]
        number = self._tape.call(self, "reduce_scatter", inputs, outputs, reduce=op)
        parts = self._everybodys("reduce_scatter", torch.cat([one.detach().reshape(-1) for one in inputs]), op)
        start = sum(one.numel() for one in inputs[: self._rank])
        own = slice(start, start + outputs[0].numel())
        self._reduce_into(
            outputs[0], inputs[self._rank].detach(), None if parts is None else [part[own] for part in parts], op
        )
        return self._work(number, outputs)

    def _reduce_scatter_base(self, output, mine, opts=None):
        op = reduction_name(getattr(opts, "reduceOp", dist.ReduceOp.SUM))
        number = self._tape.call(self, "reduce_scatter", [mine], [output], reduce=op)
        self._scatter_reduced(output, mine, op)
        return self._work(number, [output])

    reduce_scatter_single = _reduce_scatter_base

    def reduce_scatter_tensor_coalesced(self, outputs, inputs, opts=None):
        op = reduction_name(getattr(opts, "reduceOp", dist.ReduceOp.SUM))
        number = self._tape.call(self, "reduce_scatter", inputs, outputs, reduce=op, api="coalesced")
        for output, mine in zip(outputs, inputs):
            self._scatter_reduced(output, mine, op)
        return self._work(number, outputs)

    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced

    def _all_to_all(self, outputs, inputs):
        """Every member's part for this rank into `outputs`; both are lists with an entry a member."""
        like = inputs[0] if inputs else outputs[0]
        if self._count == 1:
            self._fill(outputs[0], inputs[0].detach().reshape(-1))
            return
        key = self._exchange.key(self.lockstep_id, "all_to_all", str(like.dtype))
        posted = all(is_plain(part) for part in inputs)
        size = sum(part.numel() * part.element_size() for part in inputs)
        limit = EXCHANGED_FLOAT_BYTES if like.is_floating_point() else EXCHANGED_BYTES
        data = None
        if posted and size <= limit:
            lengths = struct.pack(f"<{self._count}Q", *[part.numel() * part.element_size() for part in inputs])
            data = lengths + b"".join(bytes_of(part) for part in inputs)
        self._post(key, data)
        taken = self._take(key, data)
        self._fill(outputs[self._rank], inputs[self._rank].detach().reshape(-1))
        if taken is None:
            if data is not None:
                self._unheard("all_to_all")
            self._assume(*outputs)
            for output, own in zip(outputs, inputs):
                self._fill(output, own.detach().reshape(-1))
                if is_plain(output) and output.numel() != own.numel():
                    with torch.no_grad():
                        output.zero_()
            return
        for peer, part in zip(self._others(), taken):
            lengths = struct.unpack(f"<{self._count}Q", part[: 8 * self._count])
            start = 8 * self._count + sum(lengths[: self._rank])
            self._fill(outputs[peer], tensor_of(part[start : start + lengths[self._rank]], outputs[peer]))

    def alltoall(self, outputs, inputs, opts=None):
        number = self._tape.call(self, "all_to_all", inputs, outputs, in_splits=[one.numel() for one in inputs],
                                 out_splits=[one.numel() for one in outputs])
        self._all_to_all(outputs, inputs)
        return self._work(number, outputs)

    def alltoall_base(self, output, mine, output_splits=None, input_splits=None, opts=None):
        if not isinstance(output_splits, (list, tuple)) and output_splits is not None:
            output_splits, input_splits = None, None  # (output, input, opts)
        row_in = mine.numel() // mine.shape[0] if mine.dim() and mine.shape[0] else 1
        row_out = output.numel() // output.shape[0] if output.dim() and output.shape[0] else row_in
        sent = [rows * row_in for rows in input_splits] if input_splits else None
        received = [rows * row_out for rows in output_splits] if output_splits else None
        number = self._tape.call(self, "all_to_all", [mine], [output], in_splits=sent, out_splits=received)
        sent = sent or [mine.numel() // self._count] * self._count
        received = received or [output.numel() // self._count] * self._count
        if is_plain(mine) and is_plain(output) and output.is_contiguous():
            flat_in, flat_out = mine.detach().reshape(-1), output.detach().view(-1)
            self._all_to_all(list(flat_out.split(received)), list(flat_in.split(sent)))
        return self._work(number, [output])

    all_to_all_single = alltoall_base

    def _meet(self, op):
        """Waits for the others for real: rank 0 may write a file before a barrier that the others read behind it."""
        key = self._exchange.key(self.lockstep_id, op)
        self._post(key, b"")
        if self._take(key, b"") is None:
            self._unheard(op)

    def barrier(self, opts=None, *_, **__):
        number = self._tape.call(self, "barrier", [], [])
        self._meet("barrier")
        return self._work(number, [])

    def monitored_barrier(self, timeout=None, wait_all_ranks=False):
        limit = int(timeout.total_seconds() * 1000) if timeout is not None else None
        number = self._tape.call(self, "monitored_barrier", [], [], timeout_ms=limit if limit and limit > 0 else None)
        self._meet("monitored_barrier")
        self._tape.wait(number)

    # Point to point. A peer is a rank of the group.

    def send(self, tensors, peer, tag=0):
        tensor = without_wait(tensors[0])
        number = self._tape.call(self, "send", [tensor], [], peer=peer, tag=tag)
        if is_exchanged(tensor):
            key = self._exchange.key(self.lockstep_id, "p2p", self._rank, peer, tag)
            self._exchange.post(key, self._rank, bytes_of(tensor), int(self._voices[peer] == peer))
        elif is_small(tensor):
            # It has no values to share; the receiver learns that it was sent.
            key = self._exchange.key(self.lockstep_id, "p2p", self._rank, peer, tag)
            self._exchange.post(key, self._rank, b"", int(self._voices[peer] == peer))
        return self._work(number, [tensor])

    def _received(self, tensor, taken):
        values = tensor_of(taken[0], tensor) if taken else None
        if values is not None and values.numel() == tensor.numel():
            self._fill(tensor, values)
        elif is_plain(tensor):
            with torch.no_grad():
                tensor.zero_()
            self._assume(tensor)

    def recv(self, tensors, peer, tag=0):
        tensor = tensors[0]
        number = self._tape.call(self, "recv", [], [tensor], peer=peer, tag=tag)
        taken = None
        if is_exchanged(tensor) and peer != self._rank:
            key = self._exchange.key(self.lockstep_id, "p2p", peer, self._rank, tag)
            taken = self._takes_from(key, peer)
            if taken is None:
                self._tape.assumed("recv returns zeros, since the other rank never sends")
        self._received(tensor, taken)
        return self._work(number, [tensor], peer)

    def recv_anysource(self, tensors, tag=0):
        tensor = tensors[0]
        number = self._tape.call(self, "recv", [], [tensor], tag=tag)
        taken, source = None, (self._rank + 1) % self._count
        if is_exchanged(tensor):
            keys = {
                json.dumps([self.lockstep_id, "p2p", peer, self._rank, tag,
                            self._exchange.counts.get((self.lockstep_id, "p2p", peer, self._rank, tag), 0)],
                           separators=(",", ":")): peer
                for peer in self._heard
            }
            answer, payload = self._exchange.hub.ask({"t": "take_any", "keys": [[key, peer] for key, peer in keys.items()]})
            if answer.get("key") is not None:
                source = keys[answer["key"]]
                signature = (self.lockstep_id, "p2p", source, self._rank, tag)
                self._exchange.counts[signature] = self._exchange.counts.get(signature, 0) + 1
                taken = [payload]
        self._received(tensor, taken)
        return self._work(number, [tensor], source)

    # Groups made of this one (torch 2.10 and later)

    def split_group(self, ranks, timeout=None, opts=None, group_name=None, group_desc=None, device_types=None):
        members = [self._ranks[rank] for rank in ranks]
        if self._rank not in ranks:
            return None
        return RecordedGroup(self._tape, self._exchange, list(ranks).index(self._rank), members,
                             group_name or f"{self._name}:split:{members[0]}", self.lockstep_backend, group_desc, None)


RECORDED_CALLS = (
    "allreduce", "allreduce_coalesced", "broadcast", "reduce", "allgather", "allgather_coalesced", "_allgather_base",
    "all_gather_single", "allgather_into_tensor_coalesced", "all_gather_single_coalesced", "gather", "scatter",
    "reduce_scatter", "_reduce_scatter_base", "reduce_scatter_single", "reduce_scatter_tensor_coalesced",
    "reduce_scatter_single_coalesced", "alltoall", "alltoall_base", "all_to_all_single", "send", "recv",
    "recv_anysource", "barrier", "monitored_barrier",
)
for _name in RECORDED_CALLS:
    setattr(RecordedGroup, _name, unmetered(getattr(RecordedGroup, _name)))


def stand_for_backends(create, making, tape=None):
    """Every process group that the script makes is made by `create`, which finds in `making` what it is."""
    dist.Backend.register_backend("lockstep", create, devices=["cpu", "cuda"])
    helper = c10d._new_process_group_helper
    signature = inspect.signature(helper)

    @functools.wraps(helper)
    def new_process_group(*args, **kwargs):
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        arguments = bound.arguments
        asked = str(arguments["backend"])
        if asked in ("fake", "mpi"):
            return helper(*args, **kwargs)
        unnamed = "gloo" if making.get("mesh_device") == "cpu" or not torch.cuda.is_available() else "nccl"
        on_gpu = "nccl" in asked or (asked == "undefined" and unnamed == "nccl")
        making.update(ranks=arguments["global_ranks_in_group"] or [], name=arguments["group_name"],
                      desc=arguments.get("group_desc"), backend="nccl" if on_gpu else "gloo",
                      timeout=arguments.get("timeout"))
        arguments["backend"] = dist.Backend("lockstep")
        for name in ("backend_options", "pg_options", "device_id"):
            if name in arguments:
                arguments[name] = None
        group, store = helper(*bound.args, **bound.kwargs)
        if tape is not None and tape.finds_roles and not isinstance(group, RecordedGroup):
            tape.group_of_others(making)
        if isinstance(group, RecordedGroup):
            shown = dist.Backend(unnamed if asked == "undefined" else asked)
            c10d._world.pg_map[group] = (shown, store)
            with contextlib.suppress(Exception):
                c10d._world.pg_backend_config[group] = str(c10d.BackendConfig(shown))
        return group, store

    c10d._new_process_group_helper = new_process_group
    note_device_of_mesh(making)
    if hasattr(c10d, "_maybe_attach_flight_recorder"):
        c10d._maybe_attach_flight_recorder = lambda *_, **__: None


def note_device_of_mesh(making):
    """A mesh makes the default group where there is none, and names no backend for it. A mesh of CPUs is
    written for a machine without GPUs, where PyTorch takes gloo."""
    mesh = getattr(dist, "DeviceMesh", None)
    if mesh is None:
        return
    made = mesh.__init__

    @functools.wraps(made)
    def init(self, device_type, *args, **kwargs):
        outer, making["mesh_device"] = making.get("mesh_device"), device_type
        try:
            return made(self, device_type, *args, **kwargs)
        finally:
            making["mesh_device"] = outer

    mesh.__init__ = init


def record_groups(tape, exchange, hub):
    """Every process group that the script makes is a `RecordedGroup`."""
    making = {}

    def create(store, group_rank, group_size, timeout):
        ranks = list(making["ranks"]) or list(range(group_size))
        return RecordedGroup(tape, exchange, group_rank, ranks, str(making["name"]), making["backend"],
                             making["desc"], int(timeout.total_seconds() * 1000) if timeout else None)

    stand_for_backends(create, making, tape)
    c10d.is_nccl_available = dist.is_nccl_available = lambda: True

    # The store of a rendezvous is the hub's.
    def asked_for(given, name):
        if given is not None and given >= 0:
            return given
        if name not in os.environ:
            raise ValueError(
                f"Error initializing torch.distributed using env:// rendezvous: environment variable {name} expected, but not set"
            )
        return int(os.environ[name])

    def rendezvous(url, rank=-1, world_size=-1, **_):
        rank, size = asked_for(rank, "RANK"), asked_for(world_size, "WORLD_SIZE")
        yield HubStore(hub, "rendezvous"), rank, size

    c10d.rendezvous = rendezvous
    dist.rendezvous = rendezvous

    def tcp_store(host_name="127.0.0.1", port=0, *_, **__):
        return HubStore(hub, f"{host_name}:{port}")

    def file_store(path="", *_, **__):
        return HubStore(hub, f"file:{path}")

    for module in (dist, c10d):
        module.TCPStore = tcp_store
        module.FileStore = file_store

    def split_group(parent_pg=None, split_ranks=None, timeout=None, pg_options=None, group_desc=None, **_):
        """NCCL makes groups of a group's members without a call; those that are in none get no group."""
        parent = parent_pg or c10d._get_default_group()
        own = next((ranks for ranks in split_ranks if parent.rank() in ranks), None)
        if own is None:
            return c10d.GroupMember.NON_GROUP_MEMBER
        return c10d.new_group(
            [parent._ranks[rank] for rank in own], timeout, dist.get_backend(parent), use_local_synchronization=True,
            group_desc=group_desc,
        )

    if hasattr(c10d, "split_group"):  # torch 2.4 and later
        c10d.split_group = dist.split_group = split_group

    # gloo and NCCL differ in what a batch is: with NCCL its calls are started together.
    batch = c10d.batch_isend_irecv

    @functools.wraps(batch)
    def batch_isend_irecv(p2p_op_list):
        group = p2p_op_list[0].group or c10d._get_default_group() if p2p_op_list else None
        together = getattr(group, "lockstep_backend", None) == "nccl"
        if together:
            tape.note({"t": "batch"})
        try:
            return batch(p2p_op_list)
        finally:
            if together:
                tape.note({"t": "batch_end"})

    c10d.batch_isend_irecv = dist.batch_isend_irecv = batch_isend_irecv


class HubStore(dist.Store):
    """A c10d store that all recorded ranks share through the hub."""

    # c10d's prefixed stores hold the C++ half of a store alone; without its Python half it has no methods.
    kept = []

    def __init__(self, hub, name):
        super().__init__()
        self._hub, self._store_name = hub, name
        self._timeout = None
        HubStore.kept.append(self)

    def _ask(self, op, key="", payload=b"", **arguments):
        message = {"t": "store", "op": op, "key": f"{self._store_name}/{key}", **arguments}
        return self._hub.ask(message, payload)

    @staticmethod
    def _bytes(value):
        return value.encode() if isinstance(value, str) else bytes(value)

    def set(self, key, value):
        self._ask("set", key, self._bytes(value))

    def get(self, key):
        answer, value = self._ask("get", key)
        if not answer["found"]:
            raise dist.DistStoreError(f"wait timeout: nobody sets the key {key!r}")
        return value

    def add(self, key, amount):
        return self._ask("add", key, amount=amount)[0]["value"]

    def append(self, key, value):
        self._ask("append", key, self._bytes(value))

    def compare_set(self, key, expected, desired):
        expected, desired = self._bytes(expected), self._bytes(desired)
        return self._ask("compare_set", key, expected + desired, expected=len(expected))[1]

    def check(self, keys):
        return all(self._ask("check", key)[0]["found"] for key in keys)

    def wait(self, keys, timeout=None):
        for key in keys:
            if not self._ask("wait", key)[0]["found"]:
                raise dist.DistStoreError(f"wait timeout: nobody sets the key {key!r}")

    def delete_key(self, key):
        return self._ask("delete", key)[0]["found"]

    def num_keys(self):
        return self._ask("num_keys")[0]["value"]

    def multi_get(self, keys):
        return [self.get(key) for key in keys]

    def multi_set(self, keys, values):
        for key, value in zip(keys, values):
            self.set(key, value)

    def has_extended_api(self):
        return True

    def set_timeout(self, timeout):
        self._timeout = timeout

    def clone(self):
        return self


# ---------------------------------------------------------------------------------------------------------------
# GPUs that are not there


def is_cuda(device):
    if isinstance(device, torch.device):
        return device.type == "cuda"
    return isinstance(device, str) and (device == "cuda" or device.startswith("cuda:"))


def on_cpu(value):
    return torch.device("cpu") if is_cuda(value) else value


class CudaOnCpu(torch.overrides.TorchFunctionMode):
    """Carries out on the CPU what the script asks for on `cuda`."""

    used = False  # whether the script has put anything on a GPU

    @classmethod
    def uses_gpu(cls, device):
        """The CPU for a GPU, on which something is put; any other device as it is."""
        cls.used = cls.used or is_cuda(device)
        return on_cpu(device)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is torch.device:
            return func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        if name in ("cuda", "pin_memory") and args:
            CudaOnCpu.used = CudaOnCpu.used or name == "cuda"
            return args[0]
        if name == "scaled_dot_product_attention" and args and hasattr(args[0], "to_local"):
            return self.sharded_attention(func, args, kwargs)
        if name == "to" and len(args) > 1 and isinstance(args[1], int) and not isinstance(args[1], bool):
            args = (args[0], torch.device("cuda", args[1]), *args[2:])
        if kwargs and "device" in kwargs and isinstance(kwargs["device"], int):
            kwargs = {**kwargs, "device": torch.device("cuda", kwargs["device"])}
        if any(is_cuda(value) for value in args):
            args = tuple(self.uses_gpu(value) for value in args)
        if kwargs and any(is_cuda(value) for value in kwargs.values()):
            kwargs = {key: self.uses_gpu(value) for key, value in kwargs.items()}
        if kwargs.get("pin_memory"):
            kwargs = {**kwargs, "pin_memory": False}
        return func(*args, **kwargs)

    @staticmethod
    def sharded_attention(func, args, kwargs):
        """Attention of sharded tensors, as CUDA's fused attention has it; the CPU's has no rule for them. Over heads it
        is that of this rank's; over a sequence, context parallel's ring."""
        query = args[0]
        args, kwargs = torch.utils._pytree.tree_map(
            lambda value: value.to_local() if hasattr(value, "to_local") else value, (args, kwargs)
        )
        cut = [dim for dim, placement in enumerate(query.placements) if placement.is_shard(2)]
        if cut:
            mesh = query.device_mesh
            out = ring_attention(mesh if mesh.ndim == 1 else mesh[mesh.mesh_dim_names[cut[0]]], *args, **kwargs)
        else:
            out = func(*args, **kwargs)
        return type(query).from_local(out, query.device_mesh, query.placements, run_check=False)


def ring_attention(mesh, query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    """`scaled_dot_product_attention` over a sequence of which each rank of the mesh has a part."""
    arguments = inspect.signature(RingAttention.ring()._templated_ring_attention).parameters
    group = mesh if "mesh" in arguments else mesh.get_group()  # the mesh in older PyTorch
    return RingAttention.apply(query, key, value, group, is_causal, scale)


class RingAttention(torch.autograd.Function):
    """PyTorch's own ring of keys and values around the group, with the CPU's kernel instead of CUDA's."""

    @staticmethod
    def ring():
        for name in ("_context_parallel._attention", "_attention"):  # the second in older PyTorch
            with contextlib.suppress(ImportError):
                module = importlib.import_module(f"torch.distributed.tensor.experimental.{name}")
                if hasattr(module, "_templated_ring_attention"):
                    return module
        raise RuntimeError("lockstep record does not know the context parallel of this PyTorch")

    @staticmethod
    def kernel(query, key, value, is_causal, scale):
        repeats = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(repeats, 1), value.repeat_interleave(repeats, 1)
        return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(query, key, value, 0.0, is_causal, scale=scale)

    @staticmethod
    def backward_kernel(grad_out, query, key, value, out, logsumexp, is_causal, scale):
        heads, repeats = key.shape[1], query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(repeats, 1), value.repeat_interleave(repeats, 1)
        grad, *grads = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
            grad_out.contiguous(), query, key, value, out, logsumexp, 0.0, is_causal, scale=scale
        )
        return grad, *(one.unflatten(1, (heads, repeats)).sum(2) for one in grads)

    @staticmethod
    def forward(ctx, query, key, value, group, is_causal, scale):
        ctx.told = group, is_causal, scale
        out, logsumexp = RingAttention.ring()._templated_ring_attention(
            group, 2, RingAttention.kernel, query=query, key=key, value=value, is_causal=is_causal, scale=scale
        )
        out = out.to(query.dtype)
        ctx.save_for_backward(query, key, value, out, logsumexp)
        return out

    @staticmethod
    def backward(ctx, grad_out):
        query, key, value, out, logsumexp = ctx.saved_tensors
        group, is_causal, scale = ctx.told
        grads = RingAttention.ring()._templated_ring_attention_backward(
            group, 2, RingAttention.backward_kernel, grad_out=grad_out, grad_out_name="grad_out", query=query, key=key,
            value=value, out=out, logsumexp=logsumexp, is_causal=is_causal, scale=scale,
        )
        return *grads[:3], None, None, None


class Stream:
    """A CUDA stream on which everything has happened already."""

    def __init__(self, *_, **__):
        self.device, self.cuda_stream, self.stream_id = torch.device("cpu"), 0, 0

    def synchronize(self):
        torch.cuda.synchronize()

    def query(self):
        return True

    def wait_stream(self, stream):
        pass

    def wait_event(self, event):
        pass

    def record_event(self, event=None):
        return event or Event()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None


class Event:
    """A CUDA event; it knows the time at which it was recorded."""

    def __init__(self, *_, **__):
        self.time = time.monotonic()

    def record(self, stream=None):
        self.time = time.monotonic()

    def wait(self, stream=None):
        pass

    def query(self):
        return True

    def synchronize(self):
        pass

    def elapsed_time(self, other):
        return max((other.time - self.time) * 1000, 1e-3)


class Capture:
    """What a CUDA graph has captured: operators and calls, which each replay carries out again.

    On a GPU a capture executes nothing. Here its body runs once, to know shapes, and nothing of it is noted: what
    the plan holds are the replays. Tensors are kept by their memory, as a graph does.
    """

    REPLAYED_NOTES = {"batch", "batch_end"}

    def __init__(self, tape):
        self.tape, self.actions = tape, []
        self.busy = False  # inside an operator or a call, which is carried out again as a whole
        self.captured = 0  # calls in the capture; their ids there are -1, -2, …
        self.numbers = {}  # by the id in the capture, the id in the newest replay

    def next_call(self):
        self.captured += 1
        return -self.captured

    def add(self, action):
        if not self.busy:
            self.actions.append(action)

    def add_wait(self, number):
        self.actions.append(lambda: self.tape.wait(self.numbers.get(number)))

    def carry_out(self, action, again=None):
        """Carries out something now and `again`, or the same, at every replay."""
        first, self.busy = self.captured, True
        waits = len(self.actions)
        try:
            out = action()
        finally:
            self.busy = False
        ids = [-number for number in range(first + 1, self.captured + 1)]

        def replayed():
            start = self.tape.calls
            (again or action)()
            self.numbers.update(zip(ids, range(start, self.tape.calls)))

        self.actions.insert(waits, replayed)  # what waits for a call inside comes behind it
        return out

    @staticmethod
    def kept(tensor):
        """The memory of a tensor, whatever becomes of the tensor itself."""
        return tensor.detach() if is_plain(tensor) else tensor

    def operator(self, carry_out, func, args, kwargs):
        pytree = torch.utils._pytree
        kept_args, kept_kwargs = pytree.tree_map_only(torch.Tensor, self.kept, (args, kwargs))
        targets = []

        def again():
            made = [one for one in pytree.tree_leaves(func(*kept_args, **kept_kwargs)) if isinstance(one, torch.Tensor)]
            for target, value in zip(targets, made):
                if is_plain(target) and is_plain(value) and target.data_ptr() != value.data_ptr() and target.shape == value.shape:
                    target.copy_(value)

        out = self.carry_out(lambda: carry_out(func, args, kwargs), again)
        targets += [self.kept(one) for one in pytree.tree_leaves(out) if isinstance(one, torch.Tensor)]
        return out

    def replay(self):
        # Below autograd: a graph's kernels change memory, not what autograd knows of it.
        with torch._C._AutoDispatchBelowAutograd():
            for action in self.actions:
                action()


def graph_classes(tape):
    """`torch.cuda.CUDAGraph` and `torch.cuda.graph` for GPUs that are not there."""

    class CUDAGraph:
        def __init__(self, keep_graph=False):
            self.capture = None

        def capture_begin(self, *_, **__):
            tape.capture = self.capture = Capture(tape)
            tape.meter.paused += 1

        def capture_end(self):
            tape.capture = None
            tape.meter.paused -= 1
            for number in [number for number in tape.unwaited if number < 0]:
                del tape.unwaited[number]

        def replay(self):
            if self.capture is None:
                raise RuntimeError("Called CUDAGraph::replay without a preceding successful capture.")
            self.capture.replay()

        def reset(self):
            self.capture = None

        def pool(self):
            return 0, 0

        def instantiate(self):
            pass

        enable_debug_mode = debug_dump = register_generator_state = instantiate

    class graph:
        def __init__(self, cuda_graph, *_, **__):
            self.cuda_graph = cuda_graph

        def __enter__(self):
            torch.cuda.synchronize()
            self.cuda_graph.capture_begin()

        def __exit__(self, *_):
            self.cuda_graph.capture_end()

    return CUDAGraph, graph


def follow_storages(tape):
    """FSDP frees and takes memory by resizing storages, in a captured graph too."""
    resize = torch.UntypedStorage.resize_

    def resized(storage, size):
        if tape.capture is not None and not tape.capture.busy:
            tape.capture.add(lambda: resize(storage, size))
        return resize(storage, size)

    torch.UntypedStorage.resize_ = resized


def asked_by_torch():
    """True if torch itself asks: it must not use a GPU that is not there."""
    module = sys._getframe(2).f_globals.get("__name__", "")
    return module == "torch" or module.startswith(("torch.", "torchvision.", "torchaudio."))


def give_cuda(tape, options):
    """`torch.cuda` answers as on a machine with a GPU for each rank of a node."""
    cuda = torch.cuda
    local_rank = tape.rank % options.ranks_per_node
    count = min(options.ranks_per_node, options.world_size - tape.rank + local_rank)
    current = [local_rank]
    # Asked once: on a machine without a GPU each answer searches the disk for a driver, and fake tensors ask for
    # every operator.
    available = functools.cache(cuda.is_available)
    counted = functools.cache(cuda.device_count)

    def set_device(device):
        index = device.index if isinstance(device, torch.device) else device
        if isinstance(index, str):
            index = torch.device(index).index
        if isinstance(index, int) and index >= count:
            raise RuntimeError(
                "CUDA error: invalid device ordinal\nCUDA kernel errors might be asynchronously reported at some other API call"
            )
        if isinstance(index, int) and index >= 0:
            current[0] = index

    def synchronize(*_, **__):
        tape.note({"t": "synchronize"})

    @contextlib.contextmanager
    def stream_context(stream=None):
        yield stream

    properties = types.SimpleNamespace(
        name="NVIDIA H100 80GB HBM3", major=9, minor=0, total_memory=80 << 30, multi_processor_count=132,
        gcnArchName="", is_integrated=False, warp_size=32,
    )
    answers = {
        "is_available": lambda: available() if asked_by_torch() else True,
        "device_count": lambda: counted() if asked_by_torch() else count,
        "is_initialized": lambda: False if asked_by_torch() else True,
        "init": lambda: None,
        "_lazy_init": lambda: None,
        "set_device": set_device,
        "current_device": lambda: current[0],
        "synchronize": synchronize,
        "get_device_name": lambda *_, **__: properties.name,
        "get_device_capability": lambda *_, **__: (9, 0),
        "get_device_properties": lambda *_, **__: properties,
        "is_bf16_supported": lambda *_, **__: True,
        "empty_cache": lambda: None,
        "ipc_collect": lambda: None,
        "memory_allocated": lambda *_, **__: 0,
        "max_memory_allocated": lambda *_, **__: 0,
        "memory_reserved": lambda *_, **__: 0,
        "max_memory_reserved": lambda *_, **__: 0,
        "memory_cached": lambda *_, **__: 0,
        "max_memory_cached": lambda *_, **__: 0,
        "reset_peak_memory_stats": lambda *_, **__: None,
        "reset_max_memory_allocated": lambda *_, **__: None,
        "memory_stats": lambda *_, **__: collections.defaultdict(int),
        "memory_snapshot": lambda *_, **__: [],
        "get_arch_list": lambda: ["sm_90"],
        "temperature": lambda *_, **__: 40,
        "power_draw": lambda *_, **__: 100_000,
        "memory_summary": lambda *_, **__: "",
        "mem_get_info": lambda *_, **__: (80 << 30, 80 << 30),
        "set_per_process_memory_fraction": lambda *_, **__: None,
        "manual_seed": lambda seed: None,
        "manual_seed_all": lambda seed: None,
        "seed": lambda: None,
        "seed_all": lambda: None,
        "initial_seed": lambda: torch.initial_seed(),
        "get_rng_state": lambda *_, **__: torch.get_rng_state(),
        "get_rng_state_all": lambda: [torch.get_rng_state()],
        "set_rng_state": lambda *_, **__: None,
        "set_rng_state_all": lambda *_, **__: None,
        "stream": stream_context,
        "current_stream": lambda *_, **__: Stream(),
        "default_stream": lambda *_, **__: Stream(),
        "set_stream": lambda *_, **__: None,
        "can_device_access_peer": lambda *_, **__: True,
        "utilization": lambda *_, **__: 0,
        "Stream": Stream,
        "Event": Event,
    }
    graph_class, graph_context = graph_classes(tape)
    graphs = {
        "CUDAGraph": graph_class, "graph": graph_context, "graph_pool_handle": lambda: (0, 0),
        "is_current_stream_capturing": lambda: tape.capture is not None,
    }
    for name, answer in (answers | graphs).items():
        if hasattr(cuda, name):
            setattr(cuda, name, answer)
    for name, answer in graphs.items():
        setattr(cuda.graphs, name, answer)
    follow_storages(tape)
    torch.Stream, torch.Event = Stream, Event  # those of any accelerator; PyTorch's hooks make them
    for name in ("range_push", "range_pop", "mark"):
        setattr(cuda.nvtx, name, lambda *_, **__: None)
    cuda.nvtx.range = stream_context

    if hasattr(torch, "accelerator"):
        accelerator = torch.accelerator
        real = {name: getattr(accelerator, name, None) for name in ("is_available", "current_accelerator", "device_count")}
        accelerator.is_available = lambda: real["is_available"]() if asked_by_torch() else True
        accelerator.device_count = lambda: real["device_count"]() if asked_by_torch() else count
        accelerator.current_accelerator = (
            lambda *a, **k: real["current_accelerator"](*a, **k) if asked_by_torch() else torch.device("cuda")
        )
        for name in ("set_device_index", "set_device_idx"):
            if hasattr(accelerator, name):
                setattr(accelerator, name, set_device)
        accelerator.current_device_index = accelerator.current_device_idx = lambda: current[0]
        accelerator.synchronize = synchronize
        for name in ("current_stream", "set_stream", "empty_cache", "memory_stats", "memory_allocated", "memory_reserved",
                     "max_memory_allocated", "max_memory_reserved", "reset_peak_memory_stats"):
            if hasattr(accelerator, name):
                setattr(accelerator, name, answers[name])

    # Its own refuses a stream that is none of torch's before any mode is asked.
    torch.Tensor.record_stream = lambda self, stream: None

    # A device that is chosen by a context or as a default is the CPU.
    torch.set_default_device = lambda device: CudaOnCpu.uses_gpu(device) and None
    load = torch.load

    @functools.wraps(load)
    def load_on_cpu(*args, **kwargs):
        if len(args) > 1:
            args = (args[0], "cpu", *args[2:])
        else:
            kwargs["map_location"] = "cpu"
        return load(*args, **kwargs)

    torch.load = load_on_cpu

    def cpu_type(device):
        return "cpu" if is_cuda(device) else device

    def nothing(_):
        return None

    def mesh_type(device):
        CudaOnCpu.uses_gpu(device)
        return cpu_type(device)

    def device_of_fsdp(device):
        CudaOnCpu.uses_gpu(device if isinstance(device, torch.device) else "cuda")

    ddp = torch.nn.parallel.DistributedDataParallel
    change_argument(torch.amp.autocast_mode.autocast, "__init__", "device_type", cpu_type)
    give_scaler(cpu_type)
    change_argument(ddp, "__init__", "device_ids", nothing)
    change_argument(ddp, "__init__", "output_device", nothing)
    change_argument(torch.distributed.device_mesh.DeviceMesh, "__init__", "device_type", mesh_type)
    change_argument(torch.distributed.fsdp.FullyShardedDataParallel, "__init__", "device_id", device_of_fsdp)
    for module in (c10d, dist):
        for function in ("init_process_group", "new_group", "barrier"):
            for name in ("device_id", "device_ids"):
                change_argument(module, function, name, nothing)

    # Of a script on CPUs they raise.
    forward, check = torch.nn.SyncBatchNorm.forward, ddp._passing_sync_batchnorm_handle
    torch.nn.SyncBatchNorm.forward = lambda *args: (synchronised_batch_norm if CudaOnCpu.used else forward)(*args)
    ddp._passing_sync_batchnorm_handle = lambda *args: None if CudaOnCpu.used else check(*args)
    give_fsdp_a_device()
    with contextlib.suppress(ImportError):  # torch 2.5 and later
        flex = importlib.import_module("torch.nn.attention.flex_attention")
        flex.flex_attention, flex.create_block_mask = flexible_attention(flex), block_mask_maker(flex)
    sys.meta_path.insert(0, CudaPackages())
    CudaOnCpu().__enter__()


# ---------------------------------------------------------------------------------------------------------------
# Packages that are built for CUDA only


def softmax_attention(query, key, value, dropout_p=0.0, softmax_scale=None, causal=False, **_):
    """flash_attn's attention over (batch, length, heads, size), by PyTorch's."""
    query, key, value = (one.transpose(1, 2) for one in (query, key, value))
    repeats = query.shape[1] // key.shape[1]
    if repeats > 1:
        key, value = key.repeat_interleave(repeats, 1), value.repeat_interleave(repeats, 1)
    out = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, dropout_p=dropout_p, is_causal=causal, scale=softmax_scale
    )
    return out.transpose(1, 2)


def flexible_attention(flex):
    """FlexAttention has no backward pass on the CPU: with a mask alone it is PyTorch's attention."""
    original = flex.flex_attention

    @functools.wraps(original)
    def attention(query, key, value, score_mod=None, block_mask=None, scale=None, enable_gqa=False, return_lse=False,
                  kernel_options=None, *, return_aux=None):
        if score_mod is not None or return_lse or any(return_aux or ()):
            more = {} if return_aux is None else {"return_aux": return_aux}
            return original(query, key, value, score_mod, block_mask, scale, enable_gqa, return_lse, **more)
        mask = None
        if block_mask is not None and not is_without_memory(query):
            mask = getattr(block_mask, "lockstep_mask", None)
            if mask is None or mask.shape[-2:] != (query.shape[-2], key.shape[-2]):
                batch, heads = block_mask.shape[:2]
                mask = flex.create_mask(block_mask.mask_mod, batch, heads, query.shape[-2], key.shape[-2], device="cpu")
                block_mask.lockstep_mask = mask  # the layers of a model share it
        out = torch.nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, scale=scale, enable_gqa=enable_gqa
        )
        return out if return_aux is None else (out, flex.AuxOutput())

    return attention


def block_mask_maker(flex):
    """`create_block_mask` without the mask's values, of which there are length²: each block is one that applies the
    mask's function. PyTorch compiles the original, which works blocks out one by one; uncompiled it takes minutes."""
    original = flex.create_block_mask

    @functools.wraps(original)
    def create_block_mask(mask_mod, B, H, Q_LEN, KV_LEN, device="cuda", BLOCK_SIZE=128, *args, **kwargs):
        rows, columns = BLOCK_SIZE if isinstance(BLOCK_SIZE, tuple) else (BLOCK_SIZE, BLOCK_SIZE)
        shape = B or 1, H or 1, -(-Q_LEN // rows)
        across = -(-KV_LEN // columns)
        indices = torch.arange(across, dtype=torch.int32).expand(*shape, across).contiguous()
        return flex.BlockMask.from_kv_blocks(
            torch.full(shape, across, dtype=torch.int32), indices, BLOCK_SIZE=(rows, columns), mask_mod=mask_mod,
            seq_lengths=(Q_LEN, KV_LEN),
        )

    has_lengths = "seq_lengths" in inspect.signature(flex.BlockMask.from_kv_blocks).parameters  # torch 2.6 and later
    return create_block_mask if has_lengths else original


def packed_attention(packed, *args, **kwargs):
    return softmax_attention(*packed.unbind(2), *args, **kwargs)


def varlen_attention(query, key, value, cu_seqlens_q, cu_seqlens_k, max_seqlen_q=None, max_seqlen_k=None, *args, **kwargs):
    """The same over sequences that lie one behind the other: (tokens, heads, size)."""
    starts, others = cu_seqlens_q.tolist(), cu_seqlens_k.tolist()
    parts = [
        softmax_attention(query[None, a:b], key[None, c:d], value[None, c:d], *args, **kwargs)[0]
        for a, b, c, d in zip(starts, starts[1:], others, others[1:])
    ]
    return torch.cat(parts)


def unpad_input(states, mask, *_):
    lengths = mask.sum(-1, dtype=torch.int32)
    kept = mask.flatten().nonzero().flatten()
    starts = torch.nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
    return states.flatten(0, 1)[kept], kept, starts, int(lengths.max()), lengths


def pad_input(states, kept, batch, length):
    out = states.new_zeros(batch * length, *states.shape[1:])
    return out.index_copy(0, kept, states).unflatten(0, (batch, length))


def index_first_axis(states, kept):
    return states[kept]


def rotated(values, cos, sin, interleaved=False, inplace=False, **_):
    """flash_attn's rotary embedding of (batch, length, heads, size): of the first elements of each head."""
    width = cos.shape[-1] * 2
    cos, sin = (one[..., : values.shape[1], :].unsqueeze(-2) for one in (cos, sin))
    turned, rest = values[..., :width], values[..., width:]
    one, two = (turned[..., ::2], turned[..., 1::2]) if interleaved else turned.chunk(2, -1)
    pair = one * cos - two * sin, one * sin + two * cos
    turned = torch.stack(pair, -1).flatten(-2) if interleaved else torch.cat(pair, -1)
    return torch.cat([turned, rest], -1)


def fused_norm(values, weight, bias=None, residual=None, eps=1e-6, dropout_p=0.0, prenorm=False,
               residual_in_fp32=False, is_rms_norm=False, **_):
    """flash_attn's layer_norm_fn: dropout, the residual's sum and a norm."""
    values = torch.nn.functional.dropout(values, dropout_p)
    values = values if residual is None else values + residual
    shape = (values.shape[-1],)
    norm = torch.nn.functional.rms_norm if is_rms_norm else functools.partial(torch.nn.functional.layer_norm, bias=bias)
    out = norm(values, shape, weight=weight.to(values.dtype), eps=eps)
    return (out, values.float() if residual_in_fp32 else values) if prenorm else out


def fused_rms_norm(values, weight, bias=None, **options):
    return fused_norm(values, weight, bias, is_rms_norm=True, **options)


class FusedAdam(torch.optim.AdamW):
    """DeepSpeed's and apex's Adam on a GPU."""

    def __init__(self, params, lr=1e-3, bias_correction=True, betas=(0.9, 0.999), eps=1e-8, adam_w_mode=True,
                 weight_decay=0.0, amsgrad=False, **_):
        super().__init__(params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad)


ATTENTION = {
    "flash_attn_func": softmax_attention, "flash_attn_qkvpacked_func": packed_attention,
    "flash_attn_varlen_func": varlen_attention,
}
# The modules that stand for packages built for CUDA only, where those are not installed.
CUDA_PACKAGES = {
    "flash_attn": {**ATTENTION, "__version__": "2.8.3"},
    "flash_attn.flash_attn_interface": ATTENTION,
    "flash_attn.bert_padding": {"unpad_input": unpad_input, "pad_input": pad_input, "index_first_axis": index_first_axis},
    "flash_attn.layers": {},
    "flash_attn.layers.rotary": {"apply_rotary_emb": rotated, "apply_rotary_emb_func": rotated},
    "flash_attn.ops": {},
    "flash_attn.ops.rms_norm": {"rms_norm": fused_rms_norm},
    "flash_attn.ops.triton": {},
    "flash_attn.ops.triton.layer_norm": {"layer_norm_fn": fused_norm, "rms_norm_fn": fused_rms_norm},
}
# Modules of installed packages that would compile code for CUDA.
CUDA_MODULES = {"deepspeed.ops.adam.fused_adam": {"FusedAdam": FusedAdam}}


class CudaPackages(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the stand-ins of CUDA_PACKAGES and CUDA_MODULES, with what importlib.metadata is asked of them."""

    def __init__(self):
        self.modules = dict(CUDA_MODULES)
        for name, members in CUDA_PACKAGES.items():
            if importlib.machinery.PathFinder.find_spec(name.split(".")[0]) is None:
                self.modules[name] = members

    def find_spec(self, name, path=None, target=None):
        if name not in self.modules:
            return None
        is_package = name in CUDA_PACKAGES
        return importlib.machinery.ModuleSpec(name, self, origin="lockstep", is_package=is_package)

    def exec_module(self, module):
        module.__dict__.update(self.modules[module.__name__])

    def find_distributions(self, context):
        asked = (context.name or "").replace("-", "_")
        if "." not in asked and asked in self.modules:
            yield Distribution(asked, self.modules[asked]["__version__"])


class Distribution(importlib.metadata.Distribution):
    """The name and version of a package that a stand-in is for."""

    def __init__(self, name, version):
        self.text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"

    def read_text(self, filename):
        return self.text if filename == "METADATA" else None

    def locate_file(self, path):
        return path


# ---------------------------------------------------------------------------------------------------------------
# Data sets and weights that are not here

# torchvision's data sets as they come without a transform: mode of the images, size, classes, and how many images
# each split has. The first split is what a constructor without an argument gives.
MNIST_SPLITS = {"train": 60_000, "test": 10_000}
DATA_SETS = {
    "MNIST": ("L", 28, 10, MNIST_SPLITS), "FashionMNIST": ("L", 28, 10, MNIST_SPLITS),
    "KMNIST": ("L", 28, 10, MNIST_SPLITS),
    "QMNIST": ("L", 28, 10, {"train": 60_000, "test": 60_000, "test10k": 10_000, "test50k": 50_000, "nist": 402_953}),
    "EMNIST": ("L", 28, 47, {"train": 112_800, "test": 18_800}), "USPS": ("L", 16, 10, {"train": 7_291, "test": 2_007}),
    "CIFAR10": ("RGB", 32, 10, {"train": 50_000, "test": 10_000}),
    "CIFAR100": ("RGB", 32, 100, {"train": 50_000, "test": 10_000}),
    "SVHN": ("RGB", 32, 10, {"train": 73_257, "test": 26_032, "extra": 531_131}),
    "STL10": ("RGB", 96, 10, {"train": 5_000, "test": 8_000, "unlabeled": 100_000, "train+unlabeled": 105_000}),
    "Food101": ("RGB", 256, 101, {"train": 75_750, "test": 25_250}),
    "Flowers102": ("RGB", 256, 102, {"train": 1_020, "val": 1_020, "test": 6_149}),
    "OxfordIIITPet": ("RGB", 256, 37, {"trainval": 3_680, "test": 3_669}),
    "ImageNet": ("RGB", 256, 1000, {"train": 1_281_167, "val": 50_000}),
    "ImageFolder": ("RGB", 256, 1000, {"train": 1_024}),
}
# EMNIST's `split` names its classes, not train or test: classes, images to train with, images to test with.
EMNIST_SPLITS = {
    "byclass": (62, 697_932, 116_323), "bymerge": (47, 697_932, 116_323), "balanced": (47, 112_800, 18_800),
    "letters": (37, 124_800, 20_800), "digits": (10, 240_000, 40_000), "mnist": (10, 60_000, 10_000),
}


def asked_split(name, args, options):
    """Classes and number of images of the part of a data set that a constructor's arguments name."""
    _, _, classes, splits = DATA_SETS[name]
    split = options.get("split") or options.get("what") or (args[0] if args else None)
    train = options.get("train", split if isinstance(split, bool) else None)
    if name == "EMNIST":
        classes, trained, tested = EMNIST_SPLITS.get(split, EMNIST_SPLITS["balanced"])
        return classes, tested if train is False else trained
    if train is not None and not isinstance(split, str):
        split = "train" if train else "test"
    return classes, splits.get(split, next(iter(splits.values())))


class RandomFiles(collections.abc.Sequence):
    """The (path, label) pairs of a folder of images, made as they are asked for: ImageNet has 1.3 million."""

    def __init__(self, targets):
        self.targets = targets

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, index):
        if isinstance(index, slice):
            return [self[one] for one in range(*index.indices(len(self)))]
        return f"{index % len(self)}.jpg", int(self.targets[index])


def overlapping_images(count, size, channels):
    """Random images of which each begins a byte behind the one before: as many as the data set has, in little memory."""
    row = size * channels
    pixels = torch.randint(0, 256, (size * row + count,), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    if channels == 1:
        return pixels.as_strided((count, size, size), (1, row, 1))
    return pixels.as_strided((count, size, size, channels), (1, row, channels, 1)).numpy()


def random_images(name, original):
    """A class that stands for torchvision's data set of this name: random images, the same on every rank, as many as
    the split that is asked for has."""
    mode, size, _, _ = DATA_SETS[name]

    class RandomImages(torch.utils.data.Dataset):
        def __init__(self, root=None, *args, transform=None, target_transform=None, **options):
            if name == "ImageFolder" and args and callable(args[0]):
                transform = args[0]
            classes, count = asked_split(name, args, options)
            self.root, self.transform, self.target_transform = root, transform, target_transform
            self.classes = [str(label) for label in range(classes)]
            self.class_to_idx = {label: index for index, label in enumerate(self.classes)}
            self.data = overlapping_images(count, size, 1 if mode == "L" else 3)
            self.targets = torch.randint(0, classes, (count,), generator=torch.Generator().manual_seed(0))
            if "MNIST" not in name:
                self.targets = self.targets.tolist()
            self.labels = self.targets
            self.samples = self.imgs = RandomFiles(self.targets)

        def __len__(self):
            return len(self.data)

        def loader(self, path):
            return self.image(int(path.split(".")[0]))

        def image(self, index):
            from PIL import Image

            pixels = self.data[index]
            return Image.fromarray(pixels.numpy() if isinstance(pixels, torch.Tensor) else pixels)

        def __getitem__(self, index):
            image, label = self.image(index), int(self.targets[index])
            if self.transform is not None:
                image = self.transform(image)
            if self.target_transform is not None:
                label = self.target_transform(label)
            return image, label

    RandomImages.__name__ = RandomImages.__qualname__ = name
    if name != "ImageFolder":
        return RandomImages

    def folder(root, *args, **kwargs):
        return original(root, *args, **kwargs) if os.path.isdir(root) else RandomImages(root, *args, **kwargs)

    return folder


def give_random_data():
    """torchvision's data sets are random images of the same shape; its and timm's pretrained weights the initial
    ones; a training script that would download them needs no network."""
    try:
        datasets = importlib.import_module("torchvision.datasets")
        weights = importlib.import_module("torchvision.models._api").WeightsEnum
    except ImportError:
        return
    for name in DATA_SETS:
        if hasattr(datasets, name):
            setattr(datasets, name, random_images(name, getattr(datasets, name)))
    load = torch.nn.Module.load_state_dict

    @functools.wraps(load)
    def load_state_dict(self, state_dict, *args, **kwargs):
        if isinstance(state_dict, OwnWeights):
            return torch.nn.modules.module._IncompatibleKeys([], [])
        return load(self, state_dict, *args, **kwargs)

    torch.nn.Module.load_state_dict = load_state_dict
    weights.get_state_dict = lambda self, *_, **__: OwnWeights()
    torch.hub.load_state_dict_from_url = lambda *_, **__: OwnWeights()
    torch.hub.list = lambda *_, **__: []
    with contextlib.suppress(ImportError):
        importlib.import_module("timm.models._builder").load_pretrained = lambda *_, **__: None


class OwnWeights(dict):
    """Weights that would have been downloaded: a model that loads them keeps its own."""


def give_scaler(cpu_type):
    """`GradScaler` scales on the CPU; for a GPU that is not there it would switch itself off."""
    scaler = torch.amp.GradScaler
    original = scaler.__init__

    @functools.wraps(original)
    def init(self, device="cuda", *args, **kwargs):
        original(self, cpu_type(device), *args, **kwargs)

    scaler.__init__ = init


class CudaHandle:
    """What FSDP1 uses as its device: CUDA's streams and events, with tensors on the CPU."""

    def __getattr__(self, name):
        return getattr(torch.cuda, name)

    def current_device(self):
        return torch.device("cpu")

    def is_available(self):
        return True


def give_fsdp_a_device():
    """FSDP1 refuses a machine without an accelerator before anybody can tell it of one, and to hand out the first
    rank's parameters if they are not on a GPU."""

    def init_device_handle(state, *_, **__):
        state._device_handle = CudaHandle()
        return state

    for name in ("_init_utils", "fully_sharded_data_parallel"):
        module = importlib.import_module(f"torch.distributed.fsdp.{name}")
        if hasattr(module, "_init_device_handle"):
            module._init_device_handle = init_device_handle
        if hasattr(module, "_check_module_states_for_sync_module_states"):
            module._check_module_states_for_sync_module_states = lambda *_: None


class SyncedBatchNorm(torch.autograd.Function):
    """SyncBatchNorm's calls, with plain operators instead of CUDA's: gathers mean, deviation and count of every
    rank, and reduces two sums per channel in the backward pass."""

    @staticmethod
    def forward(ctx, values, weight, bias, module, group, size):
        dims = [dim for dim in range(values.dim()) if dim != 1]
        shape = [1, -1] + [1] * (values.dim() - 2)
        mean, variance = values.float().mean(dims), values.float().var(dims, unbiased=False)
        count = mean.new_full((1,), values.numel() // values.shape[1])
        own = torch.cat([mean, torch.rsqrt(variance + module.eps), count])
        if dist.get_backend(group) == "gloo":
            parts = [torch.empty_like(own) for _ in range(size)]
            dist.all_gather(parts, own, group)
            everybodys = torch.stack(parts)
        else:
            everybodys = own.new_empty(size * own.numel())
            dist.all_gather_into_tensor(everybodys, own, group)
        means, deviations, counts = everybodys.view(size, -1).split([mean.numel(), mean.numel(), 1], dim=1)
        share = counts / counts.sum()
        mean = (means * share).sum(0)
        variance = ((1 / deviations**2 - module.eps + (means - mean) ** 2) * share).sum(0)
        if module.track_running_stats and module.running_mean is not None:
            rate = module.momentum if module.momentum is not None else 0.1
            module.running_mean.lerp_(mean.to(module.running_mean.dtype), rate)
            module.running_var.lerp_(variance.to(module.running_var.dtype), rate)
        inverse = torch.rsqrt(variance + module.eps)
        ctx.save_for_backward(values, weight, mean, inverse, counts.sum())
        ctx.group, ctx.dims, ctx.shape = group, dims, shape
        out = (values - mean.view(shape)) * inverse.view(shape)
        if weight is not None:
            out = out * weight.view(shape) + bias.view(shape)
        return out.to(values.dtype)

    @staticmethod
    def backward(ctx, grad):
        values, weight, mean, inverse, count = ctx.saved_tensors
        dims, shape = ctx.dims, ctx.shape
        centred = values - mean.view(shape)
        sums = torch.cat([grad.float().sum(dims), (grad * centred).float().sum(dims)])
        grad_weight = grad_bias = None
        if weight is not None:
            grad_weight, grad_bias = sums[mean.numel() :] * inverse, sums[: mean.numel()].clone()
        if not ctx.needs_input_grad[0]:
            return None, grad_weight, grad_bias, None, None, None
        dist.all_reduce(sums, group=ctx.group)
        mean_grad, mean_centred = (sums / count).view(2, -1)
        grad_values = grad - mean_grad.view(shape) - centred * (inverse**2 * mean_centred).view(shape)
        grad_values = grad_values * (inverse * (1 if weight is None else weight)).view(shape)
        return grad_values.to(values.dtype), grad_weight, grad_bias, None, None, None


def synchronised_batch_norm(self, values):
    """`SyncBatchNorm.forward`."""
    self._check_input_dim(values)
    trains = self.training or (self.running_mean is None and self.running_var is None)
    group = self.process_group or (c10d._get_default_group() if dist.is_initialized() else None)
    size = dist.get_world_size(group) if group is not None else 1
    if self.training and self.num_batches_tracked is not None:
        self.num_batches_tracked.add_(1)
    if trains and self.training and size > 1:
        return SyncedBatchNorm.apply(values, self.weight, self.bias, self, group, size)
    use_running = not self.training or self.track_running_stats
    return torch.nn.functional.batch_norm(
        values, self.running_mean if use_running else None, self.running_var if use_running else None,
        self.weight, self.bias, trains, self.momentum if self.momentum is not None else 0.0, self.eps,
    )


def change_argument(owner, function, name, change):
    """A function or constructor of `owner` gets another value for one of its arguments."""
    original = getattr(owner, function)
    try:
        signature = inspect.signature(original)
    except (TypeError, ValueError):
        return
    if name not in signature.parameters:
        return

    @functools.wraps(original)
    def changed(*args, **kwargs):
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError:
            return original(*args, **kwargs)
        if bound.arguments.get(name) is not None:
            bound.arguments[name] = change(bound.arguments[name])
        return original(*bound.args, **bound.kwargs)

    setattr(owner, function, changed)


# ---------------------------------------------------------------------------------------------------------------
# Work between calls


# With `--no-math`, operators of `heavy_operators` on smaller tensors are still computed.
HEAVY_ELEMENTS = 1 << 12


@functools.cache
def heavy_operators():
    """Operators that take nearly all of a model's time, and whose values no call of torch.distributed depends on."""
    aten = torch.ops.aten
    return {aten.mm.default, aten.addmm.default, aten.bmm.default, aten.baddbmm.default, aten.convolution.default,
            aten.convolution_backward.default}


class Meter(torch.utils._python_dispatch.TorchDispatchMode):
    """Adds up FLOPs and bytes of the operators between two calls, by phase, and what they take on a card."""

    def __init__(self, tape, options):
        super().__init__()
        card, no_math = options.card, options.no_math
        self.memory = NoMemory(tape) if options.no_memory else None
        from torch.utils.flop_counter import flop_registry

        self.tape, self.card, self.registry, self.no_math = tape, card, flop_registry, no_math
        self.views = {}
        tensor_module = sys.modules.get("torch.distributed.tensor") or sys.modules.get("torch.distributed._tensor")
        self.sharded = getattr(tensor_module, "DTensor", None)
        self.phase, self.paused, self.started = None, 0, False
        self.reset()

    def reset(self):
        self.flops, self.bytes, self.card_ns, self.operators = 0, 0, 0.0, 0
        self.since = time.monotonic_ns() if self.started else None

    def enter(self, phase):
        """What follows is a part of this phase; returns the one before."""
        before = self.phase
        if phase != before:
            self.flush()
            self.phase = phase
            if self.tape.capture is not None:
                self.tape.capture.add(lambda: self.enter(phase))
        return before

    def flush(self):
        if self.operators:
            wall_ns = time.monotonic_ns() - self.since
            self.tape.hub.tell({
                "t": "work", "phase": self.phase or "forward", "flops": self.flops, "bytes": self.bytes,
                "card_ns": round(self.card_ns), "wall_ns": wall_ns,
            })
        self.reset()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if self.sharded is not None and any(issubclass(one, self.sharded) for one in types):
            return NotImplemented  # DTensor carries it out on this rank's shards, by operators that come here
        if torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None:
            return func(*args, **(kwargs or {}))  # DTensor, or the script, works out shapes alone
        capture = self.tape.capture
        if capture is not None and not capture.busy:
            return capture.operator(self.carry_out, func, args, kwargs or {})
        return self.carry_out(func, args, kwargs)

    def carry_out(self, func, args, kwargs):
        out = None
        if self.memory is not None:
            out = self.memory.instead(func, args, kwargs or {})
        if out is None and self.no_math and func in heavy_operators():
            out = self.zeros(func, args, kwargs or {})
        if out is None:
            out = func(*args, **(kwargs or {}))
        if self.tape.assumed_values.addresses:
            self.tape.assumed_values.follow(func, args, out)
        if self.paused:
            return out
        is_view = self.views.get(func)
        if is_view is None:
            returns = func._schema.returns
            is_view = any(one.alias_info is not None and not one.alias_info.is_write for one in returns)
            is_view = is_view or func.namespace not in ("aten", "torchvision", "prims")
            self.views[func] = is_view
        if not is_view:
            self.count(func, args, kwargs or {}, out)
        return out

    @staticmethod
    def zeros(func, args, kwargs):
        """What an operator returns, with zeros in it; None for tensors that are not plain ones."""
        tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)]
        if not all(is_plain(tensor) for tensor in tensors) or max(map(torch.Tensor.numel, tensors)) < HEAVY_ELEMENTS:
            return None

        def shape_only(value):
            return value.to("meta") if isinstance(value, torch.Tensor) else value

        shapes = func(*map(shape_only, args), **{name: shape_only(value) for name, value in kwargs.items()})

        def filled(shape):
            if not isinstance(shape, torch.Tensor):
                return shape
            return torch.zeros(shape.shape, dtype=shape.dtype).as_strided(shape.shape, shape.stride())

        return tuple(map(filled, shapes)) if isinstance(shapes, (tuple, list)) else filled(shapes)

    def count(self, func, args, kwargs, out):
        moved, dtype = 0, None
        outs = out if isinstance(out, (tuple, list)) else (out,)
        for value in (*args, *outs):
            for tensor in value if isinstance(value, (tuple, list)) else (value,):
                if isinstance(tensor, torch.Tensor):
                    moved += tensor.numel() * tensor.element_size()
                    dtype = dtype or tensor.dtype
        formula = self.registry.get(func._overloadpacket)
        flops = 0
        if formula is not None:
            with contextlib.suppress(Exception):
                flops = int(formula(*args, **kwargs, out_val=out))
        if self.since is None:  # what came before the first operator is the script's start
            self.started, self.since = True, time.monotonic_ns()
        self.operators += 1
        self.flops += flops
        self.bytes += moved
        if self.card is not None:
            rates = self.card["flops"]
            rate = rates.get(str(dtype).removeprefix("torch."), rates["float32"])
            seconds = max(flops / rate, moved / self.card["bytes_per_s"])
            self.card_ns += seconds * 1e9 + self.card["launch_ns"]


def find_averaged(tape, optimizer):
    """A group in which the script itself has all-reduced every gradient of an optimizer is data parallel."""
    grads = [one.grad for group in optimizer.param_groups for one in group["params"] if one.grad is not None]
    addresses = {grad.data_ptr() for grad in grads if is_plain(grad) and grad.numel()}
    for group, reduced_there in tape.reduced.items():
        if addresses and addresses <= reduced_there:
            tape.averages_gradients(group)
    tape.reduced.clear()


def follow_training(tape, options):
    """Notes where the script is in a step, and ends it after `--steps` steps of its optimizer."""
    meter = Meter(tape, options)
    tape.meter = meter

    engine = torch.autograd.graph._engine_run_backward

    @functools.wraps(engine)
    def run_backward(*args, **kwargs):
        before = meter.enter("backward")
        tape.backward_depth += 1
        try:
            # `Tensor.backward` comes here from the mode, and hooks would run without it.
            with CudaOnCpu() if options.cuda else contextlib.nullcontext():
                return engine(*args, **kwargs)
        finally:
            tape.backward_depth -= 1
            if tape.backward_depth == 0:
                tape.backward_ends()
            meter.enter(before)

    torch.autograd.graph._engine_run_backward = run_backward
    torch.autograd._engine_run_backward = run_backward

    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    steps, stepping = {}, []

    def before_step(optimizer, args, kwargs):
        if tape.finds_roles:
            find_averaged(tape, optimizer)
        stepping.append(meter.enter("optimizer step"))

    def after_step(optimizer, args, kwargs):
        meter.enter(stepping.pop() if stepping else None)
        if tape.capture is not None:
            return tape.capture.add(lambda: count_step(optimizer))
        count_step(optimizer)

    def count_step(optimizer):
        most = max(steps.values(), default=0)
        steps[id(optimizer)] = steps.get(id(optimizer), 0) + 1
        if steps[id(optimizer)] > most:
            tape.note({"t": "step"})
        if options.steps is not None and max(steps.values()) >= options.steps and not stepping:
            raise StepsReached

    register_optimizer_step_pre_hook(before_step)
    register_optimizer_step_post_hook(after_step)
    meter.__enter__()
    if options.no_math:
        tape.assumed("large matrix products and convolutions are zeros (--no-math)")
    if options.no_memory:
        tape.assumed("large float tensors have shapes and no values (--no-memory)")


# ---------------------------------------------------------------------------------------------------------------
# Models larger than this machine's memory


# With `--no-memory`, float tensors of at least this size have no values.
MEMORY_BYTES = 64 << 10


@functools.cache
def tensor_makers():
    """Operators that make a tensor: from sizes, and like another."""
    aten = torch.ops.aten
    from_sizes = ("empty.memory_format", "empty_strided.default", "zeros.default", "ones.default", "full.default",
                  "rand.default", "rand.generator", "randn.default", "randn.generator", "normal.float_float",
                  "arange.default", "arange.start", "arange.start_step", "linspace.default", "eye.default", "eye.m")
    like = ("empty_like.default", "zeros_like.default", "ones_like.default", "full_like.default", "rand_like.default",
            "randn_like.default", "new_empty.default", "new_empty_strided.default", "new_zeros.default",
            "new_ones.default", "new_full.default")

    def named(names):
        found = set()
        for name in names:
            packet, overload = name.split(".")
            with contextlib.suppress(AttributeError):
                found.add(getattr(getattr(aten, packet), overload))
        return found

    return named(from_sizes), named(like)


class FunctionalCalls:
    """Functional collectives on tensors without values: PyTorch would only work out their shapes, and call nobody."""

    def __init__(self):
        self.works = weak.WeakIdKeyDictionary()  # by output; comparing tensors would ask for their values

    def carry_out(self, func, args, kwargs):
        name = func._schema.name.split("::")[1]
        carry_out = getattr(self, name.removesuffix("_"), None)
        return carry_out(*args, **kwargs) if carry_out is not None and name != "carry_out" else NotImplemented

    @staticmethod
    def group(named):
        return named if isinstance(named, RecordedGroup) else RecordedGroup.by_name.get(named, named)

    @staticmethod
    def reduction(op, options):
        options.reduceOp = getattr(dist.ReduceOp, op.upper()) if isinstance(op, str) else op
        return options

    def started(self, output, work):
        self.works[output] = work
        return output

    def wait_tensor(self, tensor):
        work = self.works.pop(tensor, None)
        if work is not None:
            work.wait()
        return tensor

    def wait_tensors(self, tensors):
        return [self.wait_tensor(tensor) for tensor in tensors]

    def all_reduce(self, mine, op, group):
        output = torch.empty_like(mine)
        return self.started(output, self.group(group).allreduce([output], self.reduction(op, dist.AllreduceOptions())))

    def all_reduce_coalesced(self, inputs, op, group):
        return [self.all_reduce(mine, op, group) for mine in inputs]

    def broadcast(self, mine, root, group):
        options, output = dist.BroadcastOptions(), torch.empty_like(mine)
        options.rootRank = root
        return self.started(output, self.group(group).broadcast([output], options))

    def all_gather_into_tensor(self, mine, size, group):
        output = mine.new_empty(mine.shape[0] * size, *mine.shape[1:])
        return self.started(output, self.group(group)._allgather_base(output, mine))

    def all_gather_into_tensor_coalesced(self, inputs, size, group):
        outputs = [mine.new_empty(mine.shape[0] * size, *mine.shape[1:]) for mine in inputs]
        work = self.group(group).allgather_into_tensor_coalesced(outputs, inputs)
        return [self.started(output, work) for output in outputs]

    def reduce_scatter_tensor(self, mine, op, size, group):
        output = mine.new_empty(mine.shape[0] // size, *mine.shape[1:])
        options = self.reduction(op, dist.ReduceScatterOptions())
        return self.started(output, self.group(group)._reduce_scatter_base(output, mine, options))

    def reduce_scatter_tensor_coalesced(self, inputs, op, size, group):
        outputs = [mine.new_empty(mine.shape[0] // size, *mine.shape[1:]) for mine in inputs]
        options = self.reduction(op, dist.ReduceScatterOptions())
        work = self.group(group).reduce_scatter_tensor_coalesced(outputs, inputs, options)
        return [self.started(output, work) for output in outputs]

    def all_to_all_single(self, mine, received, sent, group):
        output = mine.new_empty(sum(received), *mine.shape[1:])
        return self.started(output, self.group(group).alltoall_base(output, mine, list(received), list(sent)))

    def shard_dim_alltoall(self, mine, gather_dim, shard_dim, group):
        group, shape = self.group(group), list(mine.shape)
        shape[gather_dim] *= group.size()
        shape[shard_dim] //= group.size()
        flat = mine.new_empty(mine.numel())
        group.alltoall_base(flat, mine.reshape(-1)).wait()
        return mine.new_empty(shape)


def fake_mode():
    from torch._subclasses.fake_tensor import FakeTensorMode

    calls = FunctionalCalls()

    class Fake(FakeTensorMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func.namespace in ("_c10d_functional", "_dtensor"):
                with self:
                    out = calls.carry_out(func, args, kwargs or {})
                if out is not NotImplemented:
                    return out
            return super().__torch_dispatch__(func, types, args, kwargs)

    return Fake(allow_non_fake_inputs=True)


class NoMemory:
    """Large float tensors are PyTorch's fake ones: they have shapes, types and gradients, and no values."""

    def __init__(self, tape):
        self.tape, self.busy = tape, False
        self.draws = None  # how often `trunc_normal_` has yet to draw, inside it
        self.fake = fake_mode()
        self.made, self.like = tensor_makers()
        aten = torch.ops.aten
        self.moved = {}  # by id: a parameter and what it became in another type; tied parameters stay tied
        self.move_parameters()
        self.format_by_value()
        self.draw_as_often()
        self.save_shapes()
        self.tell_storages_apart()
        self.flatten_shapes()
        give_safetensors()
        self.number_arrays()
        self.values = {aten._local_scalar_dense.default, aten.is_nonzero.default, aten.equal.default}

    def instead(self, func, args, kwargs):
        """What an operator returns, without values; None where it is carried out as it is."""
        if self.busy:
            return None
        if func in self.values and any(is_without_memory(value) for value in args if isinstance(value, torch.Tensor)):
            return self.value(func, args[0])
        is_like = func in self.like
        if not is_like and func not in self.made:
            return None
        if is_like and (is_without_memory(args[0]) or type(args[0]) not in (torch.Tensor, torch.nn.Parameter)):
            return None  # a fake tensor's like is a fake one
        on = kwargs.get("device") or (args[0].device if is_like else torch.device("cpu"))
        if torch.device(on).type != "cpu":
            return None
        self.busy = True
        try:
            shape = func(*args, **{**kwargs, "device": torch.device("meta")}) if not is_like else self.shape_like(func, args, kwargs)
            if not shape.is_floating_point() or shape.numel() * shape.element_size() < MEMORY_BYTES:
                return None
            with self.fake:
                return torch.empty_strided(shape.shape, shape.stride(), dtype=shape.dtype, device="cpu")
        finally:
            self.busy = False

    def move_parameters(self):
        """`Module.to` and its like swap a parameter's insides, which fake tensors do not allow: they are replaced."""
        apply = torch.nn.Module._apply

        def moved(fn, parameter):
            with torch.no_grad():
                out = fn(parameter)
            if out.dtype == parameter.dtype and out.device == parameter.device:
                return parameter
            known = self.moved.setdefault((id(parameter), out.dtype), (parameter, out))
            if known[1] is out:
                known = parameter, torch.nn.Parameter(out.detach(), parameter.requires_grad)
                self.moved[id(parameter), out.dtype] = known
            return known[1]

        @functools.wraps(apply)
        def apply_to_all(module, fn, *args, **kwargs):
            own = module._parameters
            without = {name: one for name, one in own.items() if one is not None and is_without_memory(one)}
            own.update(dict.fromkeys(without))
            try:
                return apply(module, fn, *args, **kwargs)
            finally:
                own.update({name: moved(fn, one) for name, one in without.items()})

        torch.nn.Module._apply = apply_to_all

    @staticmethod
    def format_by_value():
        """`f"{loss:.4f}"` asks a fake tensor for its value as `loss.item()` does."""
        formatted = torch.Tensor.__format__

        def format_tensor(self, spec):
            if self.dim() == 0 and is_without_memory(self):
                return format(self.item(), spec)
            return formatted(self, spec)

        torch.Tensor.__format__ = format_tensor

    def draw_as_often(self):
        """PyTorch 2.15's `trunc_normal_` draws again while a value lies outside its bounds, and asks all ranks of a
        DTensor: without values it draws as often as is expected of so many elements."""
        original = torch.nn.init._no_grad_trunc_normal_

        @functools.wraps(original)
        def trunc_normal(tensor, mean, std, a, b, *args, **kwargs):
            self.draws, is_certain = expected_draws(tensor.numel(), mean, std, a, b)
            if not is_certain:
                self.tape.assumed("trunc_normal_ drew as often as is expected, since its values are not there (--no-memory)")
            try:
                return original(tensor, mean, std, a, b, *args, **kwargs)
            finally:
                self.draws = None

        torch.nn.init._no_grad_trunc_normal_ = trunc_normal

    def save_shapes(self):
        """Checkpoints and pickled objects keep shapes of tensors without values, which come back as such tensors."""
        module = sys.modules["lockstep_recorder"] = types.ModuleType("lockstep_recorder")
        module.tensor_without_values = tensor_without_values
        tensor_without_values.__module__ = "lockstep_recorder"
        if hasattr(torch.serialization, "add_safe_globals"):  # torch 2.4 and later
            torch.serialization.add_safe_globals([tensor_without_values])
        pickled = [0]

        def reduced_to_shape(tensor, protocol):
            pickled[0] += tensor.numel() * tensor.element_size()
            if isinstance(tensor, torch.nn.Parameter):
                return torch._utils._rebuild_parameter, (tensor.detach(), tensor.requires_grad, collections.OrderedDict())
            return tensor_without_values, (tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.requires_grad)

        torch._subclasses.FakeTensor.__reduce_ex__ = reduced_to_shape
        object_to_tensor = c10d._object_to_tensor

        @functools.wraps(object_to_tensor)
        def as_long_as_values(*args, **kwargs):
            pickled[0] = 0
            data, size = object_to_tensor(*args, **kwargs)
            if pickled[0]:
                is_padded = pickled[0] <= EXCHANGED_BYTES
                length = "estimated" if is_padded else "too short"
                self.tape.assumed(f"an object holds tensors without values (--no-memory): its length is {length}")
                if is_padded:
                    data, size = torch.cat([data, data.new_zeros(pickled[0])]), size + pickled[0]
            return data, size

        c10d._object_to_tensor = as_long_as_values

    def shape_of(self, tensor):
        """A tensor without values of the same shape and type."""
        with self.fake:
            return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")

    def flatten_shapes(self):
        """FSDP1 puts views of one large tensor in the place of a module's parameters: small ones lose their values
        too, in the module and in optimizers that have them already."""
        optimizers = weakref.WeakSet()
        add_group = torch.optim.Optimizer.add_param_group

        @functools.wraps(add_group)
        def add_param_group(optimizer, group):
            optimizers.add(optimizer)
            return add_group(optimizer, group)

        torch.optim.Optimizer.add_param_group = add_param_group
        handle = importlib.import_module("torch.distributed.fsdp._flat_param").FlatParamHandle
        original = handle.__init__

        @functools.wraps(original)
        def init(flat, params, module, *args, **kwargs):
            params = list(params)
            size = sum(one.numel() * one.element_size() for one in params)
            if size < MEMORY_BYTES and not any(map(is_without_memory, params)):
                return original(flat, params, module, *args, **kwargs)
            small = {id(one): torch.nn.Parameter(self.shape_of(one), one.requires_grad) for one in params if is_plain(one)}
            for part in module.modules():
                part._parameters.update({name: small[id(one)] for name, one in part._parameters.items() if id(one) in small})
            for group in (group for optimizer in optimizers for group in optimizer.param_groups):
                group["params"] = [small.get(id(one), one) for one in group["params"]]
            original(flat, [small.get(id(one), one) for one in params], module, *args, **kwargs)

        handle.__init__ = init
        insides = torch.Tensor.data

        def assign(tensor, value):
            insides.__set__(tensor, self.shape_of(value) if is_plain(value) else value)

        torch._subclasses.FakeTensor.data = property(insides.__get__, assign)

    @staticmethod
    def tell_storages_apart():
        """By its address Transformers and safetensors know which tensors are tied; all of a fake tensor's are 0."""
        address = torch.UntypedStorage.data_ptr

        @functools.wraps(address)
        def data_ptr(storage):
            if storage.device.type != "meta":
                return address(storage)
            return storage._cdata if storage.nbytes() else 0

        torch.UntypedStorage.data_ptr = data_ptr

    def number_arrays(self):
        """`tensor.numpy()` gives ones, as `tensor.item()` does."""
        to_array = torch.Tensor.numpy

        @functools.wraps(to_array)
        def array(tensor, *args, **kwargs):
            if not is_without_memory(tensor):
                return to_array(tensor, *args, **kwargs)
            self.needed_value()
            one = torch.ones((), dtype=tensor.dtype)
            return to_array(one.expand(tensor.shape) if tensor.numel() > MEMORY_BYTES else one.repeat(tensor.shape))

        torch.Tensor.numpy = array

    @staticmethod
    def shape_like(func, args, kwargs):
        return func(args[0].to("meta"), *args[1:], **{**kwargs, "device": torch.device("meta")})

    def value(self, func, tensor):
        """A value of a tensor that has none: the script goes on with 1, and the plan says so."""
        is_truth = func is not torch.ops.aten._local_scalar_dense.default or tensor.dtype == torch.bool
        truth = True
        if is_truth and self.draws is not None:
            self.draws -= 1
            truth = self.draws > 0
        else:
            self.needed_value()
        if is_truth:
            return truth
        return 1.0 if tensor.is_floating_point() else 1

    def needed_value(self):
        self.tape.assumed("a value was needed of a tensor that has none (--no-memory): it was taken as 1")


def tensor_without_values(shape, stride, dtype, requires_grad):
    """What a tensor without values is pickled as."""
    return torch.empty_strided(shape, stride, dtype=dtype, requires_grad=requires_grad)


def give_safetensors():
    """`save_file` leaves a hole in the file for each tensor without values."""
    try:
        safetensors = importlib.import_module("safetensors.torch")
    except ImportError:
        return
    save = safetensors.save_file
    names = {dtype: name for name, dtype in getattr(safetensors, "_TYPES", {}).items()}

    @functools.wraps(save)
    def save_file(tensors, filename, metadata=None):
        if not names or not any(map(is_without_memory, tensors.values())):
            return save(tensors, filename, metadata)
        header, end = {"__metadata__": metadata} if metadata else {}, 0
        for name, tensor in tensors.items():
            start, end = end, end + tensor.numel() * tensor.element_size()
            header[name] = {"dtype": names[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with open(filename, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for name, tensor in tensors.items():
                file.seek(8 + len(text) + header[name]["data_offsets"][0])
                if is_plain(tensor):
                    file.write(bytes_of(tensor))
            file.truncate(8 + len(text) + end)

    safetensors.save_file = save_file


def expected_draws(count, mean, std, a, b):
    """How often `trunc_normal_` draws so many elements, and whether nearly every job draws so often."""

    def below(value):
        return (1 + math.erf((value - mean) / std / math.sqrt(2))) / 2

    outside = 1 - (below(b) - below(a)) if std > 0 else 0.0
    if outside >= 0.7:  # PyTorch then draws from a uniform distribution, and rejects another part of the values
        return 1, False
    draws = 1
    while count * outside**draws >= 0.5:
        draws += 1
    left = count * outside ** (draws - 1), count * outside**draws  # elements outside before and after the last draw
    return draws, left[1] < 0.01 and (draws == 1 or left[0] > 5)


# ---------------------------------------------------------------------------------------------------------------
# Roles


def after(owner, function, note):
    """Calls `note` with the object, after its constructor."""
    original = getattr(owner, function)

    @functools.wraps(original)
    def noted(self, *args, **kwargs):
        out = original(self, *args, **kwargs)
        note(self)
        return out

    setattr(owner, function, noted)


def follow_data_parallel(tape):
    """Notes the groups whose members PyTorch keeps equal: those of DDP, FSDP and ZeRO."""

    def note(*names):
        def of(owner):
            for name in names:
                tape.averages_gradients(getattr(owner, name, None))

        return of

    after(torch.nn.parallel.DistributedDataParallel, "__init__", note("process_group"))
    after(torch.distributed.fsdp.FullyShardedDataParallel, "__init__", note("process_group", "_inter_node_pg"))
    for module in ("torch.distributed.fsdp._fully_shard._fsdp_common", "torch.distributed._composable.fsdp._fsdp_common"):
        with contextlib.suppress(ImportError, AttributeError):
            common = importlib.import_module(module)
            after(common.FSDPMeshInfo, "__post_init__", note("shard_process_group"))
            after(common.DDPMeshInfo, "__post_init__", note("replicate_process_group"))
            break
    with contextlib.suppress(ImportError):
        after(importlib.import_module("torch.distributed.optim").ZeroRedundancyOptimizer, "__init__", note("process_group"))


class RankInTerms(ast.NodeTransformer):
    """Writes an expression of the script in `rank`, `local_rank` and `world_size`; `known` is False if it cannot."""

    NAMES = {
        "rank": "rank", "global_rank": "rank", "world_rank": "rank", "my_rank": "rank", "ddp_rank": "rank",
        "dist_rank": "rank", "get_rank": "rank", "get_global_rank": "rank",
        "local_rank": "local_rank", "ddp_local_rank": "local_rank", "get_local_rank": "local_rank",
        "local_process_index": "local_rank", "process_index": "rank",
        "world_size": "world_size", "get_world_size": "world_size", "ddp_world_size": "world_size",
        "num_processes": "world_size", "worldsize": "world_size",
    }
    KEPT = (ast.Compare, ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.Constant, ast.Tuple, ast.List, ast.Set, ast.operator,
            ast.cmpop, ast.unaryop, ast.boolop, ast.expr_context)

    def __init__(self):
        self.known, self.on_rank = True, False

    def named(self, name):
        name = self.NAMES.get(name.lower())
        if name is None:
            self.known = False
            return ast.Constant(0)
        self.on_rank = self.on_rank or name != "world_size"
        return ast.Name(name, ast.Load())

    def visit(self, node):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "int" and len(node.args) == 1:
            return self.visit(node.args[0])
        if isinstance(node, ast.Call) and not node.args and not node.keywords:
            return self.visit(node.func)
        if isinstance(node, ast.Name):
            return self.named(node.id)
        if isinstance(node, ast.Attribute):
            return self.named(node.attr)
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
            return self.named(node.slice.value)
        if not isinstance(node, self.KEPT):
            self.known = False
            return ast.Constant(0)
        return super().generic_visit(node)


def is_about_rank(node):
    names = (one.id if isinstance(one, ast.Name) else getattr(one, "attr", "") for one in ast.walk(node))
    texts = (one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str))
    return any(RankInTerms.NAMES.get(name.lower(), "world_size") != "world_size" for name in (*names, *texts))


def note_rank_comparisons(tape, options):
    """Notes what the script's own files ask of the rank, and for which ranks it is true."""
    files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    if not options.module and options.code is None:
        files.add(os.path.abspath(options.script))
    size, per_node = options.world_size, options.ranks_per_node
    for path in sorted(path for path in files if path and tape.files.kind(path) == "own"):
        try:
            with open(path) as file:
                tree = ast.parse(file.read())
        except (OSError, SyntaxError, ValueError):
            continue
        for node in ast.walk(tree):
            if not isinstance(node, ast.Compare) or not is_about_rank(node):
                continue
            text, terms = ast.unparse(node), RankInTerms()
            told = {"t": "compared", "what": text[:200], "at": (tape.files.name(path), node.lineno)}
            try:
                compiled = compile(ast.fix_missing_locations(ast.Expression(terms.visit(node))), path, "eval")
                if terms.known:
                    told["true"] = [
                        rank for rank in range(size)
                        if eval(compiled, {"__builtins__": {}},
                                {"rank": rank, "local_rank": rank % per_node, "world_size": size})
                    ]
            except Exception:  # `RANK in os.environ`, a division by zero: not a comparison of the rank
                continue
            tape.note(told)


# ---------------------------------------------------------------------------------------------------------------
# mpi4py


class Communicator:
    """mpi4py's COMM_WORLD for what scripts ask before they have a process group: ranks, and objects of all."""

    def __init__(self, exchange, rank, size, plays):
        self.exchange, self.rank, self.size = exchange, rank, size
        self.plays = plays or list(range(size))

    def Get_rank(self):
        return self.rank

    def Get_size(self):
        return self.size

    def allgather(self, value):
        key, others = self.exchange.key("mpi", "allgather"), sorted({*self.plays} - {self.rank})
        self.exchange.post(key, self.rank, pickle.dumps(value), len(others))
        taken = self.exchange.take(key, others)
        if taken is None:
            return [value] * self.size
        values = {self.rank: value, **dict(zip(others, map(pickle.loads, taken)))}
        return [values[played] for played in self.plays]

    def bcast(self, value, root=0):
        return self.allgather(value)[root]

    def gather(self, value, root=0):
        values = self.allgather(value)
        return values if self.rank == root else None

    def scatter(self, values, root=0):
        return self.allgather(values)[root][self.rank]

    def allreduce(self, value, op=None):
        return functools.reduce(op or operator.add, self.allgather(value))

    def barrier(self):
        self.allgather(None)

    Barrier = barrier

    def Abort(self, status=1):
        os._exit(status)


def give_mpi4py(exchange, rank, size, plays):
    """`mpi4py.MPI` with the recorded ranks; the real one would see a job of one rank."""
    mpi = types.ModuleType("mpi4py.MPI")
    mpi.COMM_WORLD, mpi.Comm = Communicator(exchange, rank, size, plays), Communicator
    mpi.SUM, mpi.MAX, mpi.MIN, mpi.PROD = operator.add, max, min, operator.mul
    mpi.Is_initialized, mpi.Is_finalized = lambda: True, lambda: False
    package = types.ModuleType("mpi4py")
    package.MPI, package.__path__ = mpi, []
    sys.modules["mpi4py"], sys.modules["mpi4py.MPI"] = package, mpi


# ---------------------------------------------------------------------------------------------------------------
# A rank


def spawn_of(tape, local_rank, local_world_size):
    """`torch.multiprocessing.spawn`: this process is one of those that it would start."""

    def run_spawned(fn, args=(), nprocs=1, join=True, daemon=False, start_method="spawn"):
        if nprocs != local_world_size:
            raise SystemExit(started_otherwise(nprocs, local_world_size))
        fn(local_rank, *args)
        tell_long_wait(tape)

    return run_spawned


def started_otherwise(started, asked):
    return f"the script starts {started} processes, but -n says {asked}"


# Seconds after which a process that waits for others says where.
SECONDS_OF_SILENCE = 10


def tell_long_wait(tape):
    """Says where the script's first process waits, once it has done so for some seconds.

    Each recorded rank has the script's queues for itself, so what the other ranks put there never comes.
    """
    main = threading.main_thread().ident

    def waiting_place():
        frame = sys._current_frames().get(main)
        waits = ("multiprocessing" + os.sep, os.sep + "queue.py", os.sep + "threading.py")
        if frame is None or not any(part in frame.f_code.co_filename for part in waits):
            return None
        called = None
        while frame is not None and tape.files.kind(frame.f_code.co_filename) != "own":
            called = called_name(frame) or called
            frame = frame.f_back
        return frame and (f"{tape.files.name(frame.f_code.co_filename)}:{frame.f_lineno}", called)

    def watch():
        place, since = None, time.monotonic()
        while True:
            threading.Event().wait(0.5)
            now = waiting_place()
            if now is None or now != place:
                place, since = now, time.monotonic()
            elif time.monotonic() - since >= SECONDS_OF_SILENCE:
                line, called = place
                print(
                    f"lockstep: the script's first process has waited at {line}{f' ({called})' if called else ''} for "
                    f"{SECONDS_OF_SILENCE} s. Each recorded rank has the script's queues for itself: what other ranks put "
                    "there does not come, and --patience ends the recording",
                    file=sys.stderr, flush=True,
                )
                return

    threading.Thread(target=watch, daemon=True).start()


NOT_STARTED = (
    "lockstep record cannot tell which processes of this script are its ranks: it starts some by "
    "multiprocessing.Process, and its first process makes a process group as well. If torchrun starts it, record it "
    "as torchrun --nproc-per-node N SCRIPT; else have it start all its ranks"
)


class StartedProcess:
    """A process of a rank, as `multiprocessing.Process` asks for it. `pid` is None for the others' ranks."""

    def __init__(self, pid=None):
        self.pid, self.sentinel, self.returncode = pid, None, 0 if pid is None else None

    def poll(self, flag=os.WNOHANG):
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, flag)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout=None):
        if timeout is None:
            return self.poll(0)
        until = time.monotonic() + timeout
        while self.poll() is None and time.monotonic() < until:
            threading.Event().wait(0.01)
        return self.returncode

    def terminate(self):
        pass  # a rank ends by itself; lockstep ends what does not

    kill = close = terminate


def follow_processes(tape, options, rank, run_as_rank):
    """A script that starts its ranks by `multiprocessing.Process`: the one whose turn it is goes on as this rank.

    Processes that the script's own lines start before there is a process group are the ranks of this node, in order.
    The process that started them stays silent from then on. Returns what to do before that process may end, and
    what says that the script starts no process for this rank.
    """
    start, started, own = multiprocessing.process.BaseProcess.start, [], []

    @functools.wraps(start)
    def start_rank(process):
        by_script = tape.files.kind(sys._getframe(1).f_code.co_filename) == "own"
        is_rank = by_script and tape.groups == 0 and len(started) < options.ranks_per_node
        if not is_rank or not (own or tape.is_own_process()):
            return start(process)
        started.append(process)
        tape.started_others = True
        process._popen = StartedProcess()
        if len(started) - 1 != rank % options.ranks_per_node:
            return None
        sys.stdout.flush()
        parent, child = os.getpid(), os.fork()
        if child == 0:
            end_with(parent)
            multiprocessing.process.BaseProcess.start = start
            tape.process, tape.started_others = os.getpid(), False
            run_as_rank(process.run)
        tape.process = child
        tape.hub.socket.close()
        process._popen = StartedProcess(child)
        own.append(process._popen)
        tell_long_wait(tape)

    def wait_for_rank():
        for process in own:
            process.wait()

    def unstarted():
        """The complaint of a rank that none of the script's processes is."""
        is_missing = started and not own and tape.is_own_process() and tape.groups == 0
        return started_otherwise(len(started), options.ranks_per_node) if is_missing else None

    multiprocessing.process.BaseProcess.start = start_rank
    return wait_for_rank, unstarted


def set_environment(options, rank):
    per_node = options.ranks_per_node
    if options.launcher == "slurm":
        nodes = -(-options.world_size // per_node)
        os.environ.update({
            "SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank % per_node), "SLURM_NODEID": str(rank // per_node),
            "SLURM_NTASKS": str(options.world_size), "SLURM_NPROCS": str(options.world_size),
            "SLURM_NNODES": str(nodes), "SLURM_JOB_NUM_NODES": str(nodes), "SLURM_NTASKS_PER_NODE": str(per_node),
            "SLURM_TASKS_PER_NODE": str(per_node), "SLURM_JOB_ID": "1", "SLURM_JOBID": "1", "SLURM_JOB_NAME": "lockstep",
            "SLURM_NODELIST": "127.0.0.1", "SLURM_JOB_NODELIST": "127.0.0.1", "SLURM_STEP_NODELIST": "127.0.0.1",
            "SLURMD_NODENAME": "127.0.0.1", "SLURM_LAUNCH_NODE_IPADDR": "127.0.0.1",
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(options.master_port),
        })
        return
    if options.launcher == "mpi":
        local = str(rank % per_node)
        os.environ.update({
            "OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": str(options.world_size),
            "OMPI_COMM_WORLD_LOCAL_RANK": local, "OMPI_COMM_WORLD_LOCAL_SIZE": str(per_node),
            "PMI_RANK": str(rank), "PMI_SIZE": str(options.world_size), "MPI_LOCALRANKID": local,
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(options.master_port),
        })
        return
    os.environ.update({
        "RANK": str(rank),
        "WORLD_SIZE": str(options.world_size),
        "LOCAL_RANK": str(rank % per_node),
        "LOCAL_WORLD_SIZE": str(min(per_node, options.world_size - rank // per_node * per_node)),
        "GROUP_RANK": str(rank // per_node),
        "GROUP_WORLD_SIZE": str(-(-options.world_size // per_node)),
        "ROLE_RANK": str(rank),
        "ROLE_WORLD_SIZE": str(options.world_size),
        "ROLE_NAME": "default",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(options.master_port),
        "TORCHELASTIC_RUN_ID": "lockstep",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_USE_AGENT_STORE": "False",
    })


def run_rank(options, rank):
    """Runs the script as one rank, and ends with the status that its process would have."""
    set_environment(options, rank)
    hub = Hub(os.environ.pop("LOCKSTEP_HUB"), rank)
    os.environ.pop("LOCKSTEP_RECORD", None)
    tape = Tape(hub, options, rank)
    exchange = Exchange(hub)
    record_groups(tape, exchange, hub)
    give_mpi4py(exchange, rank, options.world_size, options.plays)
    if options.cuda:
        give_cuda(tape, options)
    if options.random_data:
        give_random_data()
    per_node = options.ranks_per_node
    on_this_node = min(per_node, options.world_size - rank // per_node * per_node)
    torch.multiprocessing.spawn = spawn_of(tape, rank % per_node, on_this_node)
    follow_branches(tape)
    follow_training(tape, options)
    if options.finds_roles:
        follow_data_parallel(tape)

    sleep = time.sleep
    time.sleep = lambda seconds: None if tape.sleep(seconds) else sleep(seconds)

    leave = os._exit

    def leave_at_once(status):
        tape.note({"t": "end", "how": f"os._exit({status})", "status": status})
        leave(status)

    os._exit = leave_at_once

    def run_as_rank(body):
        """Runs what this rank is, notes how it ended, and ends the process."""
        how, status, text, at = None, 0, "", None
        try:
            body()
        except StepsReached:
            pass
        except SystemExit as error:
            code = error.code
            status = code if isinstance(code, int) else 0 if code is None else 1
            if status:
                how = f"SystemExit: {code}"
        except BaseException as error:
            status = 1
            how, at = last_words(error), tape.place_of(error)
            text = script_traceback(error)
        if how is None and unstarted() is not None:
            how, status = f"SystemExit: {unstarted()}", 1
        if options.finds_roles:
            note_rank_comparisons(tape, options)
        tape.note({"t": "end", "how": how, "status": status, "traceback": text, **({"at": at} if at else {})})
        sys.stdout.flush()
        sys.stderr.flush()
        if not tape.is_own_process():
            wait_for_rank()
        leave(status)

    wait_for_rank, unstarted = lambda: None, lambda: None
    if options.starts_ranks:
        wait_for_rank, unstarted = follow_processes(tape, options, rank, run_as_rank)
    run_as_rank(lambda: run_script(options, rank))


def run_script(options, rank):
    name = options.local_rank_argument
    local = [f"{name}={rank % options.ranks_per_node}"] if name else []
    sys.argv = [options.script, *local, *options.arguments]
    if options.code is not None:
        sys.path[0] = ""
        main_module = types.ModuleType("__main__")
        sys.modules["__main__"] = main_module
        exec(compile(options.code, "<string>", "exec"), main_module.__dict__)
    elif options.module:
        sys.path[0] = os.getcwd()
        runpy.run_module(options.script, run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(options.script))
        runpy.run_path(options.script, run_name="__main__")


def last_words(error):
    """The exception in a line, with the one that caused it: `RuntimeError: …, caused by ValueError: …`."""
    lines = []
    while error is not None and len(lines) < 3:
        line = " ".join("".join(traceback.format_exception_only(type(error), error)).split())
        lines.append(line if len(line) <= 300 else line[:300] + " …")
        error = error.__cause__
    return ", caused by ".join(lines)


def script_traceback(error):
    """The traceback as the script's own process would print it: without this file's frames."""
    shown = traceback.TracebackException.from_exception(error)
    seen = shown
    while seen is not None:
        frames = [frame for frame in seen.stack if frame.filename not in (OWN_FILE, "<frozen runpy>")
                  and not frame.filename.endswith(os.sep + "runpy.py")]
        seen.stack = traceback.StackSummary.from_list(frames)
        seen = seen.__cause__ or seen.__context__
    return "".join(shown.format())


def end_with(parent):
    """This process is killed when its parent ends, so that none outlives `lockstep`. Linux only."""
    with contextlib.suppress(Exception):
        ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL
        if os.getppid() != parent:
            os._exit(1)


def main():
    end_with(os.getppid())
    options = Options(os.environ["LOCKSTEP_RECORD"])
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
    torch.set_num_threads(1)
    # Ranks end without Python's own end, which would give back the script's semaphores: no leak of the script's.
    hushed = [os.environ.get("PYTHONWARNINGS"), "ignore:resource_tracker"]
    os.environ["PYTHONWARNINGS"] = ",".join(filter(None, hushed))
    # Imported once, so that every rank has them without its own time and memory.
    for module in ("torch.distributed.device_mesh", "torch.distributed.fsdp", "torch.utils.flop_counter"):
        importlib.import_module(module)

    children, own = {}, os.getpid()
    for rank in options.ranks:
        child = os.fork()
        if child == 0:
            end_with(own)
            if rank != options.ranks[0] or options.silent:
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, 1)
                os.dup2(null, 2)
            try:
                run_rank(options, rank)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(70)
        children[child] = rank
    while children:
        child, _ = os.wait()
        children.pop(child, None)


if __name__ == "__main__":
    main()

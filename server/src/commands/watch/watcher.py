"""Lockstep's watcher: tells `lockstep watch` what a rank of a running job does.

`lockstep watch` puts the folder of this file in front of PYTHONPATH, and Python imports a module of this name
when it starts. Nothing is changed until the script imports torch.distributed. Then, at init_process_group, one
daemon thread begins. It reads PyTorch's own flight recorder, which notes every call of gloo and NCCL in C++, also
those of DDP's reducer, and sends it over a Unix socket. No call of the job goes through Python because of it.

What it costs: a look at the recorder's counters every 0.2 s (4 us), and a dump of the recorder that takes under
0.5% of the time. A rank that dumps makes its peers wait in their next call. So all ranks dump at the same moments,
which the clock gives them: then a job of many ranks waits as long as one of two. Only when no call has been made
for a while is more asked: then the job waits anyhow.

A failure in here is swallowed: the thread ends, and the job goes on without it.

Environment: LOCKSTEP_WATCH, the path of the socket; LOCKSTEP_WATCH_DUMPS, how the paths of dumps begin that NCCL's
watchdog writes; LOCKSTEP_WATCH_PATIENCE, after how many seconds a job stands still.
"""

import importlib.machinery
import importlib.util
import os
import sys
import time

# How often the recorder's counters are looked at, in seconds.
LOOK = 0.2
# The time between two dumps is at least so many times that of a dump.
PERIOD_PER_DUMP = 200
# The least time between two dumps of a job that goes on, in seconds.
BETWEEN_DUMPS = 1.0
# A rank that made no call for so long is quiet: it dumps once, and tells its stacks.
QUIET = 2.0
# A rank that made no call for so long dumps once with the stack of every call, which may take seconds.
LONG_QUIET = min(10.0, max(QUIET, float(os.environ.get("LOCKSTEP_WATCH_PATIENCE", "60")) / 3))
# How long a socket that takes nothing is waited for.
SEND_TIMEOUT = 20.0

RANK_VARIABLES = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")


class Connection:
    """A message is the length of its JSON (4 bytes), the length of its payload (8 bytes), the JSON, the payload."""

    def __init__(self, path):
        import socket
        import threading

        self.lock = threading.Lock()
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(SEND_TIMEOUT)
        self.socket.connect(path)

    def tell(self, message, payload=b""):
        import json
        import struct

        text = json.dumps(message).encode()
        with self.lock:
            self.socket.sendall(struct.pack("<IQ", len(text), len(payload)) + text + payload)


class Recorder:
    """PyTorch's flight recorders, whichever functions this release has for them.

    NCCL's calls and gloo's are in recorders of their own. Up to 2.11 each has a function of its own, of which
    a build without CUDA lacks NCCL's; later one function is told the backend.
    """

    def __init__(self):
        import torch._C._distributed_c10d as c10d

        self.json = self._functions(c10d, "_dump_fr_trace_json", "_dump_nccl_trace_json")
        self.pickle = self._functions(c10d, "_dump_fr_trace", "_dump_nccl_trace")

    def _functions(self, c10d, *names):
        """Each recorder's function, with the arguments that follow those that all take."""
        functions = [getattr(c10d, name) for name in names if hasattr(c10d, name)]
        for function in functions:
            if "backend:" in (function.__doc__ or ""):
                return [(function, (False, backend)) for backend in ("gloo", "nccl")]
        return [(function, ()) for function in functions]

    def counters(self):
        """Bytes that change when a call is made."""
        texts = (function(False, *more) for function, more in self.json)
        return b"".join(text.encode() if isinstance(text, str) else text for text in texts)

    def _fullest(self, dumps):
        return max((dump for dump in dumps if dump), key=len, default=b"")

    def _pickles(self, stacks):
        return self._fullest(function(True, stacks, *(more or (False,))) for function, more in self.pickle)

    def dump(self):
        """The calls without their stacks. JSON takes three times as long."""
        return self._pickles(False)

    def dump_with_stacks(self):
        return self._pickles(True)


def period_of(took):
    """The seconds between dumps that take so long: a power of two, so that the moments of ranks with different
    periods fall together."""
    period = BETWEEN_DUMPS
    while period < PERIOD_PER_DUMP * took:
        period *= 2
    return period


def until_next(period):
    """Seconds to the clock's next multiple of a period."""
    return period - time.time() % period


OWN_FILE = sys._getframe().f_code.co_filename


def stacks(own_thread):
    """Where every thread is in the job's code, as `py-spy dump` writes it: frames of this file are no part of it."""
    import threading
    import traceback

    names = {thread.ident: thread.name for thread in threading.enumerate()}
    lines = [f"Process {os.getpid()}: {' '.join(sys.argv)}", f"Python v{sys.version.split()[0]} ({sys.executable})", ""]
    for ident, frame in sys._current_frames().items():
        if ident == own_thread:
            continue
        entries = [entry for entry in traceback.extract_stack(frame) if entry.filename != OWN_FILE]
        if not entries:
            continue
        lines.append(f'Thread {ident} (active): "{names.get(ident, "")}"')
        for entry in reversed(entries):
            lines.append(f"    {entry.name} ({entry.filename}:{entry.lineno})")
        lines.append("")
    return "\n".join(lines).encode()


class Watcher:
    def __init__(self, path):
        self.path = path
        self.connection = None
        self.recorder = None
        self.process = os.getpid()

    def rank(self):
        """The global rank, as soon as anything tells it."""
        import torch.distributed as dist

        if dist.is_initialized():
            return dist.get_rank(), dist.get_world_size()
        for name in RANK_VARIABLES:
            if os.environ.get(name, "").isdigit():
                return int(os.environ[name]), None
        return None

    def watch(self):
        try:
            self._watch()
        except Exception:
            pass

    def _watch(self):
        import threading

        own_thread = threading.get_ident()
        known = self.rank()
        while known is None:
            time.sleep(LOOK)
            known = self.rank()
        import torch

        self.recorder = Recorder()
        self.connection = Connection(self.path)
        self.connection.tell({"t": "hello", "rank": known[0], "pid": self.process, "torch": torch.__version__})
        world_told, changes, counters = False, 0, None
        changed = beat = time.monotonic()
        # The first calls are told at once.
        period, moment = BETWEEN_DUMPS, None
        told_quiet = told_long = False
        while True:
            time.sleep(until_next(LOOK))
            now = time.monotonic()
            if not world_told and (known := self.rank()) and known[1]:
                world_told = True
                self.connection.tell({"t": "world", "world_size": known[1]})
            seen = self.recorder.counters()
            if seen != counters:
                counters, changed, told_quiet, told_long = seen, now, False, False
                changes += 1
            quiet = now - changed
            if quiet >= LONG_QUIET and not told_long:
                told_long = True
                self.connection.tell({"t": "dump"}, self.recorder.dump_with_stacks())
                self.connection.tell({"t": "stacks"}, stacks(own_thread))
            elif quiet >= QUIET and not told_quiet:
                told_quiet = True
                self.connection.tell({"t": "dump"}, self.recorder.dump())
                self.connection.tell({"t": "stacks"}, stacks(own_thread))
            elif quiet < QUIET and time.time() // period != moment:
                began = time.monotonic()
                dump = self.recorder.dump()
                period = period_of(time.monotonic() - began)
                moment = time.time() // period
                self.connection.tell({"t": "dump"}, dump)
            if now - beat >= 1.0:
                beat = now
                self.connection.tell({"t": "beat", "changes": changes})

    def last_words(self, raised):
        """At the end of the process: what the recorder holds, with stacks if the script raised."""
        try:
            if self.connection is None or os.getpid() != self.process:
                return
            dump = self.recorder.dump_with_stacks() if raised else self.recorder.dump()
            self.connection.tell({"t": "dump"}, dump)
            if not raised:
                self.connection.tell({"t": "end"})
        except Exception:
            pass

    def begin(self):
        import atexit
        import threading

        threading.Thread(target=self.watch, name="lockstep watch", daemon=True).start()
        raised = []
        hook = sys.excepthook

        def excepthook(kind, value, trace):
            raised.append(kind)
            hook(kind, value, trace)

        sys.excepthook = excepthook
        atexit.register(lambda: self.last_words(bool(raised)))


def set_up_recorder():
    """Sets what PyTorch reads when the first group is made, under the names of this release, unless it is set."""
    import torch

    older = tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 8)
    names = ("TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
    if not older:
        names = ("TORCH_FR_BUFFER_SIZE", "TORCH_FR_DUMP_TEMP_FILE")
    os.environ.setdefault(names[0], "2000")
    if os.environ.get("LOCKSTEP_WATCH_DUMPS"):
        os.environ.setdefault(names[1], os.environ["LOCKSTEP_WATCH_DUMPS"])
        os.environ.setdefault("TORCH_NCCL_DUMP_ON_TIMEOUT", "1")


def hook_into(c10d, path):
    """Has init_process_group begin the watcher before it does its work."""
    set_up_recorder()
    real, begun = c10d.init_process_group, []

    def init_process_group(*args, **kwargs):
        if not begun:
            begun.append(True)
            try:
                Watcher(path).begin()
            except Exception:
                pass
        return real(*args, **kwargs)

    import functools

    c10d.init_process_group = functools.wraps(real)(init_process_group)


class Finder:
    """Waits for the import of one module."""

    NAME = "torch.distributed.distributed_c10d"

    def __init__(self, path):
        self.path = path

    def find_spec(self, name, folders=None, target=None):
        if name != self.NAME:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        execute, path = spec.loader.exec_module, self.path

        def exec_module(module):
            execute(module)
            try:
                hook_into(module, path)
            except Exception:
                pass

        spec.loader.exec_module = exec_module
        return spec


def import_the_other_sitecustomize():
    """This file has taken the place of a module of the same name further down the path."""
    own = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != own]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


if __name__ == "sitecustomize":
    if os.environ.get("LOCKSTEP_WATCH"):
        sys.meta_path.insert(0, Finder(os.environ["LOCKSTEP_WATCH"]))
    import_the_other_sitecustomize()

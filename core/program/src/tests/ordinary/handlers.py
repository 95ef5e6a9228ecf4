import logging, torch
import torch.distributed as dist
log = logging.getLogger("x")
log.info("no"); log.warning("yes")
dist.init_process_group("gloo")
log.setLevel(logging.INFO)
log.info("still no")
h = logging.StreamHandler()
h.setFormatter(logging.Formatter("%(message)s"))
log.addHandler(h)
log.info("now")
dist.destroy_process_group()

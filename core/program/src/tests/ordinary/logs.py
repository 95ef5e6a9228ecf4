import logging, os
import torch.distributed as dist
logging.basicConfig(level=logging.INFO, format="%(message)s")
logger = logging.getLogger(__name__)
dist.init_process_group("gloo")
logger.debug("hidden")
logger.info("shown %d", 3)
logger.warning("warn")
try:
    raise ValueError("x")
except ValueError:
    logger.error("err")
other = logging.getLogger("other.part")
other.setLevel(logging.ERROR)
other.warning("not")
other.error("yes")
logging.getLogger("other").setLevel("DEBUG")
logging.getLogger("other.more").debug("deep")
dist.destroy_process_group()

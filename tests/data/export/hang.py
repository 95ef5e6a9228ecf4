# `healthy.lks` is of HANGS = False.
HANGS = True

def main():
    dist.init_process_group('gloo')
    dp = dist.new_group([0, 2])
    grad = tensor(64)
    act = tensor(16)
    for step in range(2):
        compute('forward', us = 800)
        w = dist.all_reduce(grad, async_op = True)
        compute('backward', us = 70)
        w.wait()
        if dist.get_rank() in [0, 2]:
            dist.broadcast(act, src = 2, group = dp)
        if dist.get_rank() == 0:
            dist.send(act, 3)
        if dist.get_rank() == 3:
            dist.recv(act, 0)
        if HANGS and step == 1 and dist.get_rank() == 1:
            sleep('data loader', us = 100000000)
        compute('optimizer', us = 100)
    dist.barrier()
run(main, world_size = 4)

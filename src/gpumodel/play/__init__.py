"""How a workload is played: the host issues operators, queues run what they launch, ranks wait for
each other.

costs     what an operator or a runtime call costs the host
plan      one step as a row of marks on the host's timeline, with the work that it launches
waits     what a step waits for: a stream in order, other ranks, the loader
engine    plays steps: plans in, times out
assemble  times in, the tables of gpumodel.run out
counters, stacks  samples of the device, and of the host's call stacks
product   operators of the matrix product and of the sharded step
"""

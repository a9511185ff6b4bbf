"""How a workload is played: the host issues operators, queues run what they launch, ranks wait for
each other.

costs         what the host needs for an operator or a runtime call
plan          one step as a list of marks on the host's timeline, with the work that it launches
loader        when batches are ready
device_queue  an in-order stream
collectives   what several ranks do together
engine        plays steps: plan in, times out
assemble      times in, the tables of gpumodel.run out
counters, stacks  samples of the device and of the host's call stacks
product       the matrix product
"""

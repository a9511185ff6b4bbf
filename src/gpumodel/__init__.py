"""A model of an AMD GPU: it turns a workload's operators into a timeline whose truth is known, in
the format of any profiler.

Nothing that comes from here was measured. `simulate` plays a workload, `gpumodel.writers` puts the
result into the files of a profiler, and `python -m gpumodel validate` prints the model's known
error. Names are loaded at their first use: `import gpumodel` imports neither torch nor pandas.
`__init__.pyi` lists them.

"The 4-rank trace" is, in all comments, AMD's torch.profiler trace of this workload on four MI300X
(https://github.com/amd/HPCTrainingExamples, MLExamples/TraceLens).
"""

from tidyprof.lazy_names import names_of_stub

__getattr__, __dir__, __all__ = names_of_stub(__name__, __file__)

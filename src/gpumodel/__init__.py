"""A model of an AMD GPU: a workload's operators in, a timeline with known truth out, in any tool's
format.

Nothing that comes from here was measured. `simulate` plays a workload, `gpumodel.writers` puts the
result into the files of a profiler, and `python -m gpumodel validate` prints the model's known
error. Names are loaded at their first use: `import gpumodel` imports neither torch nor pandas.
`__init__.pyi` lists them.
"""

from tidyprof.lazy_names import names_of_stub

__getattr__, __dir__, __all__ = names_of_stub(__name__, __file__)

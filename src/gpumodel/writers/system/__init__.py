"""Files of system monitors: amd-smi, rocm-smi and omnistat."""

"""Reader for Perfetto traces from AMD's profilers."""

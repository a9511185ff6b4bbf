"""The public names of proflab: what is imported here is loaded at its first use."""

from proflab.correctness_gate import CorrectnessGate
from proflab.doctor import check_up
from proflab.exercises import exercise
from proflab.perfetto_button import perfetto
from proflab.predictions import predict, reveal
from proflab.recordings import Recording, RecordingUnavailable, recording
from proflab.session import start
from proflab.showing import say, show_figure, show_table
from proflab.sources import source

__all__ = [
    "CorrectnessGate",
    "Recording",
    "RecordingUnavailable",
    "check_up",
    "exercise",
    "perfetto",
    "predict",
    "recording",
    "reveal",
    "say",
    "show_figure",
    "show_table",
    "source",
    "start",
]

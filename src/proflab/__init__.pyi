"""The public names of proflab: what is imported here is loaded at its first use."""

from proflab.correctness_gate import CorrectnessGate
from proflab.doctor import run_doctor
from proflab.exercises import exercise
from proflab.perfetto_button import perfetto
from proflab.predictions import predict, reveal
from proflab.recordings import Recording, RecordingUnavailable, recording
from proflab.session import start
from proflab.showing import show_figure, show_table, show_text
from proflab.sources import source

__all__ = [
    "CorrectnessGate",
    "Recording",
    "RecordingUnavailable",
    "exercise",
    "perfetto",
    "predict",
    "recording",
    "reveal",
    "run_doctor",
    "show_figure",
    "show_table",
    "show_text",
    "source",
    "start",
]

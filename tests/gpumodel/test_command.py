"""Which command lines are the course's workload, over how many ranks, and what is said of
others.
"""

from __future__ import annotations

import shlex
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpumodel.command import read_command, workload_of
from gpumodel.workload import MatrixProduct, Training
from tidyprof.errors import UserError

SLURM_STEP = {
    "SLURM_JOB_ID": "7",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_NNODES": "1",
}


def read(text: str, **environment: str):
    return read_command(shlex.split(text), environment)


@pytest.mark.parametrize(
    "text",
    [
        "python -m cifar_train --batch-size 32",
        "python3 -m cifar_train -bs 32",
        "python3.11 -u -X importtime -m cifar_train --batch-size=32",
        "/opt/python/bin/python3 -m cifar_train --batch-size 32",
        "cifar-train --batch-size 32",
        "/opt/venv/bin/cifar-train -bs 32",
    ],
)
def test_the_trainer_is_known_however_it_is_started(text):
    command = read(text)
    assert command.workload == Training(config=command.workload.config)
    assert command.workload.config.batch_size == 32
    assert (command.rank, command.ranks, command.launcher) == (None, (0,), None)


@pytest.mark.parametrize(
    ("text", "launcher", "ranks"),
    [
        ("torchrun --standalone --nproc-per-node=4 -m cifar_train", "torchrun", 4),
        ("torchrun --nproc_per_node 2 --nnodes 1 --module cifar_train", "torchrun", 2),
        ("python -m torch.distributed.run --nproc-per-node 3 -m cifar_train", "torchrun", 3),
        ("mpirun -n 4 --mca btl tcp --bind-to core python -m cifar_train", "mpirun", 4),
        ("mpiexec -np 2 -x MASTER_ADDR cifar-train", "mpirun", 2),
        ("srun -N1 -n4 --gpus-per-node=4 --exclusive python3 -m cifar_train", "srun", 4),
        ("srun --nodes 1 --ntasks 8 -c 8 python3 -m cifar_train", "srun", 8),
        ("srun --ntasks-per-node=2 -- python3 -m cifar_train", "srun", 2),
    ],
)
def test_a_launcher_in_the_command_starts_all_ranks(text, launcher, ranks):
    command = read(text)
    assert command.launcher == launcher
    assert command.workload.ranks == ranks
    assert command.ranks == tuple(range(ranks))
    assert command.rank is None


def test_srun_without_a_number_takes_that_of_the_job():
    assert read("srun python -m cifar_train", SLURM_NTASKS="4").workload.ranks == 4
    assert read("srun python -m cifar_train").workload.ranks == 1


def test_the_ranks_of_several_nodes_are_counted_and_the_nodes_remembered():
    command = read("srun --nodes=2 --ntasks-per-node=3 python -m cifar_train")
    assert (command.workload.ranks, command.nodes) == (6, 2)


def test_inside_a_launcher_the_variables_give_rank_and_size():
    command = read("python -m cifar_train", **SLURM_STEP, SLURM_PROCID="2", SLURM_LOCALID="2")
    assert (command.rank, command.ranks, command.workload.ranks) == (2, (2,), 4)
    command = read(
        "python -m cifar_train",
        RANK="1",
        WORLD_SIZE="2",
        LOCAL_RANK="1",
        MASTER_ADDR="localhost",
        MASTER_PORT="29500",
    )
    assert (command.rank, command.workload.ranks) == (1, 2)


def test_the_batch_script_itself_is_no_rank():
    assert (
        read("python -m cifar_train", SLURM_JOB_ID="7", SLURM_PROCID="0", SLURM_NTASKS="4").rank
        is None
    )


def test_a_launcher_in_the_command_counts_more_than_the_variables_around_it():
    command = read(
        "torchrun --nproc-per-node 2 -m cifar_train",
        **SLURM_STEP,
        SLURM_PROCID="0",
        SLURM_LOCALID="0",
    )
    assert (command.rank, command.workload.ranks) == (None, 2)


@pytest.mark.parametrize(
    ("text", "variable", "values"),
    [
        ("torchrun --nproc-per-node 2 -m cifar_train", "RANK", ["0", "1"]),
        ("mpirun -n 2 cifar-train", "OMPI_COMM_WORLD_RANK", ["0", "1"]),
        ("srun -n 2 cifar-train", "SLURM_PROCID", ["0", "1"]),
    ],
)
def test_each_rank_sees_the_variables_of_its_launcher(text, variable, values):
    command = read(text)
    environments = [command.environment_of(rank, {"HOME": "/home"}) for rank in command.ranks]
    assert [environment[variable] for environment in environments] == values
    assert all(environment["HOME"] == "/home" for environment in environments)


def test_the_matrix_product_is_known_with_its_shapes():
    text = "python -m cifar_train.matmul --x-shape 200 30 --w-shape 30 4 --repeat 2"
    assert read(text).workload == MatrixProduct(rows=200, inner=30, columns=4, repeat=2)
    assert read("python -m cifar_train.matmul").workload == MatrixProduct(5000, 1000, 800, 1)


def test_a_matrix_larger_than_this_machine_can_be_played():
    text = "python -m cifar_train.matmul --x-shape 1000000000 50 --w-shape 50 8"
    assert read(text).workload.rows == 10**9


def test_the_knobs_reach_the_workload():
    training = workload_of(
        ["cifar-train"], {}, device="MI300X", solutions="winograd", profiler="rpd", seed=3
    )
    assert (training.solutions, training.profiler, training.seed) == ("winograd", "rpd", 3)
    product = workload_of(
        ["python", "-m", "cifar_train.matmul"], {}, solutions="winograd", profiler="rpd", seed=3
    )
    assert (product.profiler, product.seed) == ("rpd", 3)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ls -l", "'ls -l' is not the course's workload"),
        ("python train.py", "the real tool would run anything"),
        ("python -m cifar_train.models", "python -m cifar_train ..."),
        ("torchrun --nproc-per-node 2 train.py", "is not the course's workload"),
        ("python -m cifar_train --model alexnet", "invalid choice: 'alexnet'"),
        (
            "python -m cifar_train --batch-size 0",
            "--batch-size must be a whole number of at least 1",
        ),
        ("python -m cifar_train --frobnicate", "unrecognized arguments: --frobnicate"),
        ("python -m cifar_train --download-only", "trains nothing"),
        ("python -m cifar_train --device cpu", "nothing would run on the modelled GPU"),
        (
            "python -m cifar_train.matmul --x-shape 2 3 --w-shape 4 5",
            "X has 3 columns but W has 4 rows",
        ),
        ("python -m cifar_train.matmul --x-shape 0 3 --w-shape 3 5", "must lie between 1 and"),
        ("mpirun -n 2 python -m cifar_train.matmul", "leave the launcher out"),
        ("srun -n 9 cifar-train", "9 ranks: one node of 8 devices is modelled"),
        (
            "torchrun --nproc-per-node gpu -m cifar_train",
            "must be a whole number of at least 1 here, not 'gpu'",
        ),
        ("mpirun cifar-train", "say how many"),
        (
            "mpirun --frobnicate cifar-train",
            "mpirun --frobnicate: an option that this stand-in does not know",
        ),
        ("srun -n", "srun -n needs a value"),
    ],
)
def test_what_cannot_be_played_is_refused_in_one_line(text, said):
    with pytest.raises(UserError) as caught:
        read(text)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_program_is_refused():
    with pytest.raises(UserError, match="no program to run"):
        read_command([], {})


def test_a_slurm_step_on_two_nodes_needs_the_trainers_meeting_point():
    environment = {**SLURM_STEP, "SLURM_NNODES": "2", "SLURM_PROCID": "1", "SLURM_LOCALID": "0"}
    with pytest.raises(UserError, match="MASTER_ADDR is not set"):
        read_command(["cifar-train"], environment)


@settings(max_examples=50)
@given(
    st.lists(
        st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=8),
        min_size=1,
    )
)
def test_any_other_command_is_refused_and_never_run(words):
    with pytest.raises(UserError):
        read_command([*words, "--x"], {})


def test_reading_a_command_imports_neither_torch_nor_pandas():
    code = (
        "import sys; from gpumodel.command import read_command;"
        "read_command(['torchrun', '--nproc-per-node', '2', '-m', 'cifar_train'], {});"
        "print(sorted({'torch', 'pandas', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

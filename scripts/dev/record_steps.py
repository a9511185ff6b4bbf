"""Record the training steps that ship with the model into src/gpumodel/data/steps.

    python scripts/dev/record_steps.py

Each takes a second or two of torch's time; shipped, they take none of a learner's. Run it after a
change of the trainer, of the recorder or of torch; a file is replaced only if its content has
changed.
"""

from __future__ import annotations

from cifar_train.config import RESNET, ZOO, TrainConfig, parse
from gpumodel.recording.steps import SHIPPED, pack, record, step_name

STEPS = (
    # The models, and each fault that changes what a step launches: what make_recordings.py plays.
    "",
    "--model vit",
    "--model swinv2",
    "--pathology tiny-batch",
    *(
        f"--pathology {one.name}"
        for one in ZOO.values()
        if one.operators and one.recording == RESNET
    ),
    "--model vit --compile",
    "--model vit --compile --pathology recompile",
    # Batches that lessons compare.
    "--batch-size 16",
    "--batch-size 32",
    "--batch-size 512",
    # A run whose device is the limit, and the short batch with which its epoch ends on eight ranks.
    "--batch-size 1024 --batched-transforms --fused-optimizer",
    "--batch-size 904 --batched-transforms --fused-optimizer",
    # The case of lessons 00 to 08 after each cure (lessons/case.toml).
    "--batch-size 1024",
    "--batch-size 1024 --fused-optimizer",
    "--batch-size 1024 --fused-optimizer --channels-last",
    "--batch-size 1024 --fused-optimizer --compile",
    # The ladder of cures in lesson 08, and its challenge.
    "--batched-transforms",
    "--fused-optimizer",
    "--fused-optimizer --channels-last",
    "--fused-optimizer --channels-last --compile",
    "--fused-optimizer --channels-last --compile --batch-size 1024",
    "--fused-optimizer --channels-last --compile --batch-size 1024 --batched-transforms",
    "--batch-size 1024 --batched-transforms",
)
"""Options of the trainer: what the lessons play, as shipped and solved, and what ships as modelled
recordings.
"""


def configurations() -> dict[str, TrainConfig]:
    """The configurations by the name of their step."""
    return {step_name(config): config for config in (parse(options.split()) for options in STEPS)}


def main() -> None:
    """Write what has changed, and remove what is no longer listed."""
    SHIPPED.mkdir(exist_ok=True)
    wanted = configurations()
    for name, config in wanted.items():
        target, content = SHIPPED / f"{name}.json.gz", pack(record(config))
        if not target.exists() or target.read_bytes() != content:
            target.write_bytes(content)
            print(f"{target.name}: written, {len(content):,} bytes")
    for stray in SHIPPED.glob("*"):
        if stray.name.removesuffix(".json.gz") not in wanted:
            stray.unlink()
            print(f"{stray.name}: removed")


if __name__ == "__main__":
    main()

"""Reading CIFAR-100's files, choosing the images, and the batches that every rank gets."""

from __future__ import annotations

import os
import pickle
import resource
import signal
import subprocess
import sys
from itertools import islice
from pathlib import Path
from threading import Event

import numpy as np
import pytest
import torch
from torch.utils.data import random_split

from cifar_train.config import TrainConfig
from cifar_train.data import cifar100, loaders
from cifar_train.data.cifar100 import verify_staged
from cifar_train.data.loaders import Loaders, SyntheticImages, build_loaders, resolve_data_source
from tests.cifar_train.cifar_files import make_split, write_cifar100
from tidyprof.errors import UserError


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Tensors here are small; several threads only wait for each other where other programs run."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def staged(tmp_path, monkeypatch) -> Path:
    """A data path with a small CIFAR-100 of 50 + 10 images, whose checksums count as the official
    ones.
    """
    for name, checksum in write_cifar100(tmp_path).items():
        monkeypatch.setitem(cifar100.FILE_MD5S, name, checksum)
    return tmp_path


def settings(data_path: Path = Path("data"), **changes) -> TrainConfig:
    return TrainConfig(**{"data_path": data_path, "batch_size": 8, "num_workers": 0, **changes})


def one_line(error: pytest.ExceptionInfo) -> str:
    text = str(error.value)
    assert "\n" not in text
    return text


def train_images(data_path: Path) -> torch.Tensor:
    return torch.from_numpy(cifar100.read_images(data_path)[0])


# Reading the files


def test_reads_what_python_2_wrote(tmp_path, monkeypatch):
    checksums = write_cifar100(tmp_path, train=50, seed=3)
    monkeypatch.setitem(cifar100.FILE_MD5S, "train", checksums["train"])
    truth = make_split(50, 3, "train")
    images, labels = cifar100.read_images(tmp_path)
    assert (images.dtype, images.shape, labels.dtype) == (np.uint8, (50, 3, 32, 32), np.int64)
    np.testing.assert_array_equal(images.reshape(50, -1), truth[b"data"])
    assert labels.tolist() == truth[b"fine_labels"]


class Payload:
    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self):
        return Path.touch, (self.place,)


def test_a_file_that_is_changed_behind_the_check_is_not_opened(staged, tmp_path):
    verify_staged(staged)
    path = staged / "cifar-100-python" / "train"
    path.write_bytes(pickle.dumps(Payload(tmp_path / "ran")))
    with pytest.raises(UserError, match="train was changed while it was in use: expected md5"):
        cifar100.read_images(staged)
    path.unlink()
    with pytest.raises(UserError, match="train cannot be read"):
        cifar100.read_images(staged)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_no_pickle_runs_a_program_whatever_its_checksum(staged, tmp_path, monkeypatch, protocol):
    path = staged / "cifar-100-python" / "train"
    path.write_bytes(pickle.dumps({b"data": Payload(tmp_path / "ran")}, protocol))
    monkeypatch.setitem(cifar100.FILE_MD5S, "train", cifar100.md5_of(path))
    with pytest.raises(UserError, match="which has no place in it; it was not run"):
        cifar100.read_images(staged)
    assert not (tmp_path / "ran").exists()


# Staged or not


@pytest.mark.parametrize("missing", ["train", "test", "meta"])
def test_staged_means_all_files(staged, missing):
    verify_staged(staged)
    (staged / "cifar-100-python" / missing).unlink()
    with pytest.raises(UserError, match=f"{missing} is missing"):
        verify_staged(staged)


@pytest.mark.parametrize("damaged", ["train", "test", "meta"])
def test_a_changed_byte_is_found(staged, damaged):
    path = staged / "cifar-100-python" / damaged
    expected = cifar100.FILE_MD5S[damaged]
    content = bytearray(path.read_bytes())
    content[-2] ^= 1
    path.write_bytes(content)
    with pytest.raises(UserError) as error:
        verify_staged(staged)
    text = one_line(error)
    assert str(path) in text
    assert f"expected md5 {expected}" in text
    assert f"found {cifar100.md5_of(path)}" in text


def test_the_official_checksums_are_those_of_torchvision():
    from torchvision.datasets import CIFAR100

    assert (
        dict(CIFAR100.train_list + CIFAR100.test_list) | {"meta": CIFAR100.meta["md5"]}
        == cifar100.FILE_MD5S
    )
    assert CIFAR100.base_folder == cifar100.FOLDER


@pytest.mark.parametrize(
    ("data", "source"), [("auto", "cifar100"), ("cifar100", "cifar100"), ("synthetic", "synthetic")]
)
def test_source_where_cifar100_is_staged(staged, data, source):
    assert resolve_data_source(settings(staged, data=data)) == source


@pytest.mark.parametrize("data", ["auto", "synthetic"])
def test_source_where_nothing_is_staged(tmp_path, data):
    assert resolve_data_source(settings(tmp_path, data=data)) == "synthetic"
    assert resolve_data_source(settings(tmp_path / "nowhere", data=data)) == "synthetic"


def test_cifar100_asked_for_and_absent_names_the_command(tmp_path, monkeypatch):
    with pytest.raises(UserError) as error:
        resolve_data_source(settings(tmp_path, data="cifar100"))
    assert one_line(error).endswith(f"python -m cifar_train --download-only --data-path {tmp_path}")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"python -m cifar_train --download-only$"):
        resolve_data_source(settings(Path("data"), data="cifar100"))


@pytest.mark.parametrize("data", ["auto", "cifar100"])
def test_damage_is_never_covered_up_by_synthetic_images(staged, data):
    (staged / "cifar-100-python" / "train").write_bytes(b"half a fi")
    with pytest.raises(UserError, match="wrong checksum"):
        resolve_data_source(settings(staged, data=data))
    (staged / "cifar-100-python" / "train").unlink()
    with pytest.raises(UserError, match="train is missing"):
        resolve_data_source(settings(staged, data=data))


def test_description_says_which_images_these_are(staged):
    def description(source, **changes):
        return build_loaders(settings(**changes), source, 0, 1, "cpu").description

    assert description("cifar100", data_path=staged) == f"CIFAR-100 from {staged}/cifar-100-python"
    assert (
        description("synthetic")
        == "synthetic images (CIFAR-100 is not staged in data; python -m cifar_train"
        " --download-only fetches it)"
    )
    assert (
        description("synthetic", data="synthetic")
        == "synthetic images (asked for with --data synthetic)"
    )
    assert "--data-path 'my data'" in description("synthetic", data_path=Path("my data"))


# Batches


@pytest.mark.parametrize(("ranks", "steps", "last"), [(1, 157, 64), (4, 40, 16), (8, 20, 136)])
def test_steps_per_epoch_as_published(ranks, steps, last):
    loaders = build_loaders(
        settings(batch_size=256, data="synthetic"), "synthetic", ranks - 1, ranks, "cpu"
    )
    assert loaders.steps_per_epoch == steps
    sizes = [len(batch) for batch in loaders.train.batch_sampler]
    assert sizes == [256] * (steps - 1) + [last]


def positions(data_path: Path, images: torch.Tensor) -> list[int]:
    """Which of the stored images these are; only for images without augmentation."""
    stored = train_images(data_path)
    pixels = (images * 255).round().to(torch.uint8) if images.is_floating_point() else images
    return [int((stored == image).all(dim=(1, 2, 3)).nonzero()) for image in pixels]


def raw_training_positions(
    data_path: Path, config: TrainConfig, rank: int, ranks: int, epoch: int = 0
) -> list[int]:
    loaders = build_loaders(config.replace(batched_transforms=True), "cifar100", rank, ranks, "cpu")
    loaders.sampler.set_epoch(epoch)
    return [number for images, _ in loaders.train for number in positions(data_path, images)]


def test_the_split_is_that_of_the_example_and_independent_of_the_seed(staged):
    fixed = torch.Generator().manual_seed(55)
    training, held_out = (
        part.indices for part in random_split(range(50), [0.8, 0.2], generator=fixed)
    )
    for seed in (55, 56):
        config = settings(staged, seed=seed, validate=True)
        assert sorted(raw_training_positions(staged, config, 0, 1)) == sorted(training)
        validation = build_loaders(config, "cifar100", 0, 1, "cpu").validation
        assert [
            number for images, _ in validation for number in positions(staged, images)
        ] == held_out


def test_ranks_share_the_training_images_without_overlap(staged):
    shares = [raw_training_positions(staged, settings(staged), rank, 4) for rank in range(4)]
    assert [len(share) for share in shares] == [10, 10, 10, 10]
    assert len(set().union(*shares)) == 40


def test_order_follows_seed_and_epoch(staged):
    config = settings(staged)
    first = raw_training_positions(staged, config, 0, 1, epoch=0)
    assert first == raw_training_positions(staged, config, 0, 1, epoch=0)
    assert first != raw_training_positions(staged, config, 0, 1, epoch=1)
    assert first != raw_training_positions(staged, config.replace(seed=56), 0, 1, epoch=0)


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("source", ["cifar100", "synthetic"])
def test_form_of_a_training_batch(staged, source, batched):
    loaders = build_loaders(settings(staged, batched_transforms=batched), source, 0, 1, "cpu")
    images, labels = next(iter(loaders.train))
    assert (loaders.transform_batch is not None) == batched
    if batched:
        assert images.dtype == torch.uint8
        images = loaders.transform_batch(images)
    assert type(images) is torch.Tensor
    assert images.dtype == torch.float32
    assert images.shape == (8, 3, 32, 32)
    assert images.min() >= 0
    assert images.max() <= 1
    assert labels.dtype == torch.int64
    assert labels.shape == (8,)


def test_labels_belong_to_their_images(staged):
    labels = cifar100.read_images(staged)[1]
    for batched in (False, True):
        config = settings(staged, validate=True, batched_transforms=batched)
        loaders = build_loaders(config, "cifar100", 0, 1, "cpu")
        for images, found in loaders.validation:
            assert found.tolist() == labels[positions(staged, images)].tolist()
    for images, found in loaders.train:
        assert found.tolist() == labels[positions(staged, images)].tolist()


@pytest.mark.parametrize("batched", [False, True])
def test_validation_images_are_as_stored_and_shared_between_ranks(staged, batched):
    config = settings(staged, validate=True, batched_transforms=batched, batch_size=2)
    stored = train_images(staged)
    seen = []
    for rank in range(3):
        for images, _ in build_loaders(config, "cifar100", rank, 3, "cpu").validation:
            assert images.dtype == torch.float32
            numbers = positions(staged, images)
            torch.testing.assert_close(images, stored[numbers] / 255, rtol=0, atol=1e-6)
            seen += numbers
    assert len(seen) == len(set(seen)) == 10


def test_training_images_are_augmented(staged):
    loaders = build_loaders(settings(staged), "cifar100", 0, 1, "cpu")
    stored = train_images(staged) / 255
    for images, _ in loaders.train:
        assert all((stored - image).abs().amax(dim=(1, 2, 3)).min() > 0.05 for image in images)


def all_batches(loaders: Loaders, epochs: int = 1) -> list[torch.Tensor]:
    """Images and labels of every batch, in order, after all transforms."""
    found = []
    for epoch in range(epochs):
        loaders.sampler.set_epoch(epoch)
        for images, labels in loaders.train:
            found += [
                loaders.transform_batch(images) if loaders.transform_batch else images,
                labels,
            ]
    return found


def same(first: list[torch.Tensor], second: list[torch.Tensor]) -> bool:
    return len(first) == len(second) and all(
        torch.equal(*pair) for pair in zip(first, second, strict=True)
    )


@pytest.mark.parametrize("batched", [False, True])
def test_batches_do_not_depend_on_the_number_of_workers(staged, batched):
    def batches(workers, **changes):
        config = settings(staged, num_workers=workers, batched_transforms=batched, **changes)
        return all_batches(build_loaders(config, "cifar100", 0, 1, "cpu"), epochs=2)

    expected = batches(0)
    assert same(expected, batches(0))
    assert same(expected, batches(1))
    assert same(expected, batches(2))
    assert not same(expected, batches(0, seed=56))


def test_transforms_differ_between_epochs_and_seeds(staged):
    loaders, other_seed = (
        build_loaders(settings(staged, seed=seed), "cifar100", 0, 1, "cpu") for seed in (55, 56)
    )
    first = loaders.train.dataset.__getitems__([0, 1, 2])
    again = loaders.train.dataset.__getitems__([0, 1, 2])
    other_order = loaders.train.dataset.__getitems__([2, 1, 0])
    assert torch.equal(first[0][1], again[0][1])
    assert not torch.equal(first[0][1], other_order[0][1])
    assert not torch.equal(first[0][1], other_seed.train.dataset.__getitems__([0, 1, 2])[0][1])


@pytest.mark.parametrize("batched", [False, True])
def test_the_model_and_the_loader_do_not_share_random_numbers(staged, batched):
    config = settings(staged, batched_transforms=batched)
    expected = all_batches(build_loaders(config, "cifar100", 0, 1, "cpu"))
    torch.manual_seed(1)
    plain = torch.rand(3)
    torch.manual_seed(1)
    loaders = build_loaders(config, "cifar100", 0, 1, "cpu")
    found = all_batches(loaders)
    assert torch.equal(torch.rand(3), plain)
    assert same(found, expected)


@pytest.fixture
def three_threads():
    """Several threads in the main process, whatever the machine, so that workers have something to
    be limited from.
    """
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(1)


def thread_count(image: torch.Tensor) -> torch.Tensor:
    return torch.full((3, 32, 32), float(torch.get_num_threads()))


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.usefixtures("three_threads")
def test_workers_use_one_thread_each(staged, monkeypatch, workers):
    monkeypatch.setattr(
        "cifar_train.data.loaders.per_image_transform", lambda training: thread_count
    )
    loaders = build_loaders(settings(staged, num_workers=workers), "cifar100", 0, 1, "cpu")
    assert {float(images.max()) for images, _ in loaders.train} == {1.0}


@pytest.mark.parametrize(("device_type", "pinned"), [("cpu", False), ("cuda", True), ("xpu", True)])
def test_memory_is_pinned_only_for_a_gpu(staged, device_type, pinned):
    assert build_loaders(settings(staged), "cifar100", 0, 1, device_type).validation is None
    loaders = build_loaders(settings(staged, validate=True), "cifar100", 0, 1, device_type)
    assert loaders.train.pin_memory == loaders.validation.pin_memory == pinned


def test_more_ranks_or_images_than_there_are_is_refused(staged):
    with pytest.raises(
        UserError, match=r"^41 ranks cannot share 40 training images; start at most 40 ranks$"
    ):
        build_loaders(settings(staged, batch_size=1), "cifar100", 0, 41, "cpu")
    with pytest.raises(
        UserError, match=r"^--batch-size 11 .* 10 of 40 .* 4 ranks .* at most --batch-size 10$"
    ):
        build_loaders(settings(staged, batch_size=11), "cifar100", 0, 4, "cpu")
    assert (
        build_loaders(settings(staged, batch_size=10), "cifar100", 0, 4, "cpu").steps_per_epoch == 1
    )
    assert (
        build_loaders(settings(staged, batch_size=1), "cifar100", 39, 40, "cpu").steps_per_epoch
        == 1
    )


# Synthetic images


def test_synthetic_images_are_as_many_as_cifar100_has_and_follow_the_seed():
    images, again, other = SyntheticImages(55), SyntheticImages(55), SyntheticImages(56)
    numbers = torch.arange(0, 50_000, 997)
    assert torch.equal(torch.bincount(images.labels), torch.full((100,), 500))
    assert torch.equal(images.index_select(0, numbers), again.index_select(0, numbers))
    assert not torch.equal(images.index_select(0, numbers), other.index_select(0, numbers))
    for number in (0, 499, 49_999):
        image = images.index_select(0, torch.tensor([number]))
        assert image.shape == (1, 3, 32, 32)
        assert image.dtype == torch.uint8


def test_synthetic_images_of_one_class_are_all_different():
    images = SyntheticImages(55)
    of_class_3 = images.index_select(0, torch.nonzero(images.labels == 3).flatten())
    assert len(torch.unique(of_class_3.flatten(1), dim=0)) == 500


def test_synthetic_images_do_not_overflow():
    images = SyntheticImages(55)
    batch = images.index_select(0, torch.arange(2000))
    patterns = batch.view(20, 100, 3, 32, 32)
    # A wrapped-around uint8 would make pixels of one class differ by more than the noise.
    assert (patterns.amax(dim=0).int() - patterns.amin(dim=0).int()).max() < 96


def losses_of_a_linear_classifier(shuffled: bool) -> list[float]:
    """Cross-entropy in each of 40 steps on batches of 200, from images made coarser to save
    time.
    """
    config = TrainConfig(batch_size=200, num_workers=0, batched_transforms=True, data="synthetic")
    loaders = build_loaders(config, "synthetic", 0, 1, "cpu")
    torch.manual_seed(0)
    model = torch.nn.Linear(3 * 8 * 8, 100)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for images, labels in islice(loaders.train, 40):
        coarse = torch.nn.functional.avg_pool2d(loaders.transform_batch(images) - 0.5, 4)
        target = torch.randint(100, labels.shape) if shuffled else labels
        loss = torch.nn.functional.cross_entropy(model(coarse.flatten(1)), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_a_classifier_learns_from_synthetic_images():
    chance = float(np.log(100))
    assert np.mean(losses_of_a_linear_classifier(shuffled=False)[-5:]) < 0.5 * chance
    assert np.mean(losses_of_a_linear_classifier(shuffled=True)[-5:]) > 0.95 * chance


# Imports


@pytest.mark.parametrize("module", ["cifar100", "download"])
def test_importing_does_not_import_torch(module):
    code = (
        f"import sys, cifar_train.data.{module}; sys.exit('torch' in sys.modules or 'torchvision'"
        " in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# Loader processes that are lost


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (
            lambda images: os.kill(os.getpid(), signal.SIGKILL),
            "(is killed by signal|exited unexpectedly)",
        ),
        (lambda images: os._exit(3), "exited unexpectedly"),
        (lambda images: Event().wait(), "timed out"),
    ],
)
def test_loader_processes_that_are_lost_or_silent_are_one_line(monkeypatch, act, words):
    monkeypatch.setattr(loaders, "LONGEST_WAIT_S", 0.1 if words == "timed out" else 60)
    monkeypatch.setattr(loaders, "_transform_each", lambda transform, images: act(images))
    train = build_loaders(settings(num_workers=1, data="synthetic"), "synthetic", 0, 1, "cpu").train
    with (
        pytest.raises(
            UserError, match=rf"^a process that loads images was lost \(.*{words}.*\): "
        ) as error,
        loaders.lost_loaders_explained(),
    ):
        next(iter(train))
    assert "--num-workers" in one_line(error)


def test_a_batch_that_no_file_may_hold_is_told_before_it_is_waited_for(monkeypatch):
    def build(workers: int) -> Loaders:
        return build_loaders(
            settings(num_workers=workers, data="synthetic"), "synthetic", 0, 1, "cpu"
        )

    batch_bytes = 8 * 3 * 32 * 32 * 4
    for limit in (resource.RLIM_INFINITY, batch_bytes):
        monkeypatch.setattr(resource, "getrlimit", lambda _, limit=limit: (limit, limit))
        build(1)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (batch_bytes - 1, batch_bytes))
    build(0)
    with pytest.raises(
        UserError, match=r"98,303 bytes \(ulimit -f\), but a batch of 98,304 is .*--num-workers 0"
    ) as error:
        build(1)
    one_line(error)


def test_other_errors_are_left_as_they_are():
    with pytest.raises(RuntimeError, match="a bug"), loaders.lost_loaders_explained():
        raise RuntimeError("a bug")

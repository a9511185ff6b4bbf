"""CIFAR-100's files, the choice of images, and the batches that every rank gets."""

from __future__ import annotations

import hashlib
import http.server
import pickle
import tarfile
import threading
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torchvision.datasets import CIFAR100
from torchvision.transforms.v2 import functional

from cifar_train.config import TrainConfig
from cifar_train.data import cifar100
from cifar_train.data.loaders import SyntheticImages, build_loaders, resolve_data_source
from cifar_train.data.transforms import DRAWS, BatchTransform, apply_parameters
from tidyprof.errors import UserError

IMAGES = 50


def md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()


@pytest.fixture
def archive(tmp_path, monkeypatch) -> Path:
    """A small archive as the official one is packed, whose checksums count as the official ones."""
    folder = tmp_path / "packed" / cifar100.FOLDER
    folder.mkdir(parents=True)
    pixels = np.random.default_rng(0).integers(0, 256, (IMAGES, 3072), dtype=np.uint8)
    images = {"data": pixels, "fine_labels": [7 * number % 100 for number in range(IMAGES)]}
    meta = {"fine_label_names": [str(number) for number in range(100)]}
    for name, content in {"train": images, "test": images, "meta": meta}.items():
        (folder / name).write_bytes(pickle.dumps(content, protocol=2))
        monkeypatch.setitem(cifar100.FILE_MD5S, name, md5(folder / name))
    monkeypatch.setattr(CIFAR100, "train_list", [["train", md5(folder / "train")]])
    monkeypatch.setattr(CIFAR100, "test_list", [["test", md5(folder / "test")]])
    monkeypatch.setattr(CIFAR100, "meta", CIFAR100.meta | {"md5": md5(folder / "meta")})
    target = folder.parent / cifar100.ARCHIVE
    with tarfile.open(target, "w:gz") as packed:
        packed.add(folder, arcname=cifar100.FOLDER)
    monkeypatch.setattr(cifar100, "ARCHIVE_MD5", md5(target))
    return target


@pytest.fixture
def staged(archive) -> Path:
    """A data path with the small CIFAR-100."""
    return archive.parent


@pytest.fixture
def served(archive, monkeypatch):
    """The folder of the archive behind CIFAR100_URL, on this machine."""
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(archive.parent))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        address = f"http://127.0.0.1:{server.server_port}/{cifar100.ARCHIVE}"
        monkeypatch.setenv(cifar100.URL_VARIABLE, address)
        yield
        server.shutdown()
        thread.join()


def settings(data_path: Path = Path("data"), **changes) -> TrainConfig:
    return TrainConfig(**{"data_path": data_path, "batch_size": 8, "num_workers": 0, **changes})


@pytest.mark.usefixtures("served")
def test_a_download_is_whole_and_replaces_what_is_damaged(tmp_path):
    data = tmp_path / "data"
    assert cifar100.is_absent(data)
    cifar100.download(data)
    assert cifar100.find_damage(data) is None
    train = data / cifar100.FOLDER / "train"
    train.write_bytes(b"cut")
    assert str(train) in cifar100.find_damage(data)
    cifar100.download(data)
    assert cifar100.find_damage(data) is None


def test_an_archive_that_is_there_needs_no_network(archive, tmp_path, monkeypatch):
    monkeypatch.setenv(cifar100.URL_VARIABLE, "http://127.0.0.1:9/nothing")
    data = tmp_path / "data"
    data.mkdir()
    archive.rename(data / archive.name)
    cifar100.download(data)
    assert cifar100.find_damage(data) is None


@pytest.mark.usefixtures("served")
def test_another_file_in_the_archives_place_is_refused(archive, tmp_path):
    archive.write_bytes(b"another")
    with pytest.raises(UserError):
        cifar100.download(tmp_path / "data")
    assert cifar100.is_absent(tmp_path / "data")


def test_auto_takes_what_is_staged(staged, tmp_path):
    assert resolve_data_source(settings(staged)) == "cifar100"
    assert resolve_data_source(settings(tmp_path / "none")) == "synthetic"
    (staged / cifar100.FOLDER / "test").write_bytes(b"cut")
    assert resolve_data_source(settings(staged)) == "cifar100"
    with pytest.raises(UserError):
        build_loaders(settings(staged), "cifar100", 0, 1, "cpu")


def raw_batches(data_path: Path, rank: int = 0, ranks: int = 1, epoch: int = 0, **changes) -> list:
    """The stored images and labels of all batches."""
    config = settings(data_path, batched_transforms=True, **changes)
    loaders = build_loaders(config, "cifar100", rank, ranks, "cpu")
    loaders.sampler.set_epoch(epoch)
    return [pair for batch in loaders.train for pair in zip(*batch, strict=True)]


def numbers(data_path: Path, pairs: list) -> list[int]:
    """Places of stored images in the file; each has to have its own label."""
    stored = CIFAR100(data_path)
    found = []
    for image, label in pairs:
        same = (stored.data == image.permute(1, 2, 0).numpy()).all(axis=(1, 2, 3))
        found.append(int(same.nonzero()[0][0]))
        assert stored.targets[found[-1]] == label
    return found


def test_ranks_share_four_fifths_of_the_images_without_overlap(staged):
    whole = numbers(staged, raw_batches(staged))
    assert sorted(whole) == sorted(numbers(staged, raw_batches(staged, seed=56)))
    shares = [numbers(staged, raw_batches(staged, rank, 4)) for rank in range(4)]
    assert [len(share) for share in shares] == [10] * 4
    assert set().union(*shares) == set(whole)
    assert len(set(whole)) == 40


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("source", ["cifar100", "synthetic"])
def test_a_training_batch_is_transformed_within_the_range(staged, source, batched):
    loaders = build_loaders(settings(staged, batched_transforms=batched), source, 0, 1, "cpu")
    images, labels = next(iter(loaders.train))
    assert (loaders.transform_batch is not None) == batched
    if batched:
        assert images.dtype == torch.uint8
        images = loaders.transform_batch(images)
    assert (images.dtype, labels.dtype) == (torch.float32, torch.int64)
    assert (images.shape, labels.shape) == ((8, 3, 32, 32), (8,))
    assert images.min() >= 0
    assert images.max() <= 1
    assert len(torch.unique((images * 255) % 1)) > 100  # stored pixels are whole numbers


def test_batches_depend_on_seed_and_epoch_but_not_on_workers_or_the_model(staged):
    def batches(workers: int, epoch: int = 0, **changes) -> torch.Tensor:
        config = settings(staged, num_workers=workers, **changes)
        loaders = build_loaders(config, "cifar100", 0, 1, "cpu")
        loaders.sampler.set_epoch(epoch)
        return torch.cat([images for images, _ in loaders.train])

    torch.manual_seed(1)
    expected = batches(0)
    drawn = torch.rand(3)
    torch.manual_seed(1)
    assert torch.equal(torch.rand(3), drawn)
    assert torch.equal(batches(0), expected)
    assert torch.equal(batches(2), expected)
    assert not torch.equal(batches(0, epoch=1), expected)
    assert not torch.equal(batches(0, seed=56), expected)


def test_more_ranks_or_larger_batches_than_images_are_refused(staged):
    for size, ranks in ((1, 41), (11, 4)):
        with pytest.raises(UserError):
            build_loaders(settings(staged, batch_size=size), "cifar100", 0, ranks, "cpu")
    loaders = build_loaders(settings(staged, batch_size=10), "cifar100", 0, 4, "cpu")
    assert loaders.steps_per_epoch == 1


# Transforms of whole batches


def smooth_images(count: int) -> torch.Tensor:
    coarse = torch.rand(count, 3, 5, 5, generator=torch.Generator().manual_seed(9))
    return (torch.nn.functional.interpolate(coarse, (32, 32), mode="bilinear") * 255).byte()


def draws(**values: float) -> torch.Tensor:
    """The random numbers of one image: those that change nothing, except for the given ones."""
    names = ("flip", "area", "aspect", "column", "row", "brightness", "contrast", "saturation")
    neutral = dict.fromkeys(names, 0.5) | {"area": 1.0} | values
    assert len(neutral) == DRAWS
    return torch.tensor([list(neutral.values())])


@pytest.mark.parametrize(
    ("name", "value", "theirs"),
    [
        ("flip", 0.6, lambda image: image),
        ("flip", 0.4, functional.horizontal_flip),
        ("brightness", 1.0, partial(functional.adjust_brightness, brightness_factor=1.2)),
        ("contrast", 0.0, partial(functional.adjust_contrast, contrast_factor=0.8)),
        ("saturation", 1.0, partial(functional.adjust_saturation, saturation_factor=1.2)),
    ],
)
def test_each_number_does_what_torchvision_does(name, value, theirs):
    images = smooth_images(1)
    expected = theirs(functional.to_dtype(images, torch.float32, scale=True))
    torch.testing.assert_close(
        apply_parameters(images, draws(**{name: value})), expected, rtol=0, atol=1e-5
    )


@pytest.mark.parametrize(("column", "left"), [(0.0, 0), (1.0, 2)])
def test_a_crop_keeps_its_part_of_the_image(column, left):
    images = smooth_images(1)
    area = ((30 / 32) ** 2 - 0.85) / 0.15
    found = apply_parameters(images, draws(area=area, column=column, row=0.0))
    image = functional.to_dtype(images, torch.float32, scale=True)
    expected = functional.resized_crop(image, 0, left, 30, 30, [32, 32], antialias=False)
    # Beyond the crop the one repeats the edge, and the other takes the neighbor in the image.
    torch.testing.assert_close(found, expected, rtol=0, atol=0.02)


def test_random_numbers_of_a_batch_follow_seed_rank_and_order():
    images = smooth_images(1).expand(64, -1, -1, -1)
    transform, again = BatchTransform(55, 0), BatchTransform(55, 0)
    one = transform(images)
    assert len(torch.unique(one.flatten(1), dim=0)) == 64
    assert torch.equal(again(images), one)
    for other in (transform, BatchTransform(56, 0), BatchTransform(55, 1)):
        assert not torch.equal(other(images), one)


# Synthetic images


def test_synthetic_images_follow_the_seed_and_differ_within_a_class():
    images, again, other = SyntheticImages(55), SyntheticImages(55), SyntheticImages(56)
    some = torch.arange(0, 50_000, 997)
    assert torch.equal(torch.bincount(images.labels), torch.full((100,), 500))
    assert torch.equal(images.index_select(0, some), again.index_select(0, some))
    assert not torch.equal(images.index_select(0, some), other.index_select(0, some))
    of_class_3 = images.index_select(0, torch.nonzero(images.labels == 3).flatten())
    assert len(torch.unique(of_class_3.flatten(1), dim=0)) == 500
